// The AI SDK, as its users write it, against the gateway's service: text, stream, tools, objects.
import { createAmazonBedrock } from "@ai-sdk/amazon-bedrock";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createCohere } from "@ai-sdk/cohere";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, apiKey, ...upstreams] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: url, apiKey });
const anthropic = createAnthropic({ baseURL: url, apiKey });
const root = url.replace(/\/v1$/, "");
const google = createGoogleGenerativeAI({ baseURL: `${root}/v1beta`, apiKey });
const bedrock = createAmazonBedrock({ baseURL: root, apiKey, region: "us-east-1" });
const cohere = createCohere({ baseURL: `${root}/v2`, apiKey });
const clients = {
  gemini: (name) => google(name),
  bedrock: (name) => bedrock(name),
  cohere: (name) => cohere(name),
  responses: (name) => openai.responses(name),
  chat: (name) => openai.chat(name),
  anthropic: (name) => anthropic(name),
};
const weather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const found = {};
for (const upstream of upstreams) {
  for (const [client, make] of Object.entries(clients)) {
    const model = make(`${upstream}/m`);
    // A true provider of this format keeps what the SDK refers to; the fake keeps nothing.
    const own = client === "responses" && upstream.endsWith("-responses");
    const providerOptions = own ? { openai: { store: false } } : {};
    const said = {};
    try {
      said.text = (await generateText({ model, prompt: "hi", maxRetries: 0 })).text;
      let streamed = "";
      for await (const piece of streamText({ model, prompt: "hi", maxRetries: 0 }).textStream)
        streamed += piece;
      said.stream = streamed;
      const looked = await generateText({
        model, prompt: "tools", tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0,
        providerOptions,
      });
      said.tools = looked.text;
      said.steps = looked.steps.length;
      const schema = z.object({ city: z.string() });
      said.object = (await generateObject({ model, schema, prompt: "json", maxRetries: 0 })).object;
    } catch (error) {
      said.error = `${error.name}: ${error.message} ${error.responseBody ?? ""}`;
    }
    found[`${client} on ${upstream}`] = said;
  }
}
console.log(JSON.stringify(found));
