"""OpenAI chat completions: the format most providers speak."""

from __future__ import annotations

import json
import time
from typing import Any

from holdfast.gateway.formats import chat_messages, openai
from holdfast.gateway.formats.base import (
    Failure,
    FlatRequests,
    Quirks,
    StreamDecoder,
    StreamEncoder,
    sampling,
)
from holdfast.gateway.formats.chat_messages import (
    content_pieces,
    decode_messages,
    decode_usage,
    encode_messages,
    encode_usage,
    packed_details,
    signed_call,
    signed_id,
)
from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    fields,
    items,
    optional_bool,
    optional_int,
    optional_number,
    optional_text,
    text,
)
from holdfast.gateway.formats.translation import portable
from holdfast.gateway.messages import (
    Message,
    Origin,
    OutputSchema,
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    Request,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
)
from holdfast.gateway.reply import Completion, Usage

KNOWN = {
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "stop", "seed", "response_format",
    "reasoning_effort", "user", "stream",
}  # fmt: skip


class ChatFormat(FlatRequests):
    name: Origin = "chat"

    def path(self, model: str, streams: bool) -> str:
        return "/chat/completions"

    def encode_request(self, request: Request, quirks: Quirks, *, model: str | None = None) -> Json:
        messages = encode_messages(request.messages)
        body: Json = {"model": model or request.model, "messages": messages}
        body.update(_encode_tools(request, quirks))
        if request.max_tokens is not None:
            body[quirks.max_tokens_field] = request.max_tokens
        body.update(sampling(request, quirks, body["model"]))
        if request.stop:
            body["stop"] = list(request.stop)
        if request.seed is not None and quirks.seed:
            body["seed"] = request.seed
        if request.output:
            body["response_format"] = _encode_output(request.output, quirks)
            if request.output.schema is not None and not quirks.json_schema:
                body["messages"] = [schema_instruction(request.output), *messages]
        if request.effort and quirks.effort:
            body["reasoning_effort"] = request.effort
        if request.user:
            body["user"] = request.user
        for tool in request.provider_tools:
            if tool.name != "web_search":
                raise WireError(f"tools: chat completions have no {tool.name!r}")
            body["web_search_options"] = tool.options
        body.update(request.extra.get("chat", {}))
        body.pop("stream_options", None)  # another upstream's, if it came by `extra`
        if request.stream:
            body["stream"] = True
            if quirks.stream_usage:
                body["stream_options"] = {"include_usage": True}
        for name in quirks.drop:
            body.pop(name, None)
        return body

    def decode_request(self, body: Json) -> Request:
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        stop = body.get("stop")
        tools, left_out = portable(
            body, functions="function", decode=_decode_tool,
            free=openai.is_free(body.get("tool_choice")),
        )  # fmt: skip
        return Request(
            model=text(body.get("model"), "model"),
            messages=decode_messages(items(body.get("messages"), "messages")),
            tools=tools,
            left_out=left_out,
            tool_choice=openai.decode_choice(body.get("tool_choice"), _choice_name),
            parallel_tools=optional_bool(body.get("parallel_tool_calls"), "parallel_tool_calls"),
            max_tokens=optional_int(limit, "max_tokens"),
            temperature=optional_number(body.get("temperature"), "temperature"),
            top_p=optional_number(body.get("top_p"), "top_p"),
            stop=(stop,) if isinstance(stop, str) else tuple(items(stop, "stop")),
            seed=optional_int(body.get("seed"), "seed"),
            output=openai.decode_output(
                body.get("response_format"), "response_format", _output_schema
            ),
            effort=body.get("reasoning_effort"),
            user=optional_text(body.get("user"), "user"),
            stream=bool(body.get("stream")),
            extra={"chat": rest} if (rest := {k: v for k, v in body.items() if k not in KNOWN})
            else {},
        )  # fmt: skip

    def encode_reply(self, completion: Completion, request: Request | None) -> Json:
        message: Json = {"role": "assistant", "content": completion.text or None, "refusal": None}
        calls: list[Json] = []
        reasoning = ""
        for part in completion.parts:
            if isinstance(part, ToolCallPart):
                calls.append(encode_call(part))
            elif isinstance(part, RefusalPart):
                message["refusal"] = (message["refusal"] or "") + part.text
            elif isinstance(part, ReasoningPart):
                reasoning += part.text
        if calls:
            message["tool_calls"] = calls
        if reasoning:
            message["reasoning_content"] = reasoning
        body: Json = {
            "id": completion.id or "chatcmpl-holdfast",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": completion.model,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": chat_messages.encode_finish(completion.finish),
                }
            ],
        }
        if completion.usage:
            body["usage"] = encode_usage(completion.usage)
        return body

    def decode_reply(self, body: Json) -> Completion:
        choices = items(body.get("choices"), "choices")
        if not choices:
            raise WireError("choices is empty")
        choice = fields(choices[0], "choices[0]")
        message = fields(choice.get("message"), "choices[0].message")
        finish = choice.get("finish_reason")
        if finish is None:
            raise WireError("choices[0].finish_reason is missing: the reply is not whole")
        parts = _decode_parts(message)
        reason = chat_messages.decode_finish(finish)
        if message.get("refusal"):
            reason = "refusal"
        elif message.get("tool_calls") and reason == "stop":
            reason = "tool_calls"
        return Completion(
            parts=tuple(parts),
            finish=reason,
            model=str(body.get("model") or ""),
            usage=decode_usage(body.get("usage")),
            id=body.get("id"),
        )

    def decode_usage(self, body: Json) -> Usage | None:
        return decode_usage(body.get("usage"))

    def decoder(self) -> StreamDecoder:
        return chat_messages.ChatDecoder()

    def encoder(self, request: Request) -> StreamEncoder:
        options = fields(request.extra.get("chat", {}).get("stream_options") or {})
        return chat_messages.ChatEncoder(include_usage=bool(options.get("include_usage")))

    def encode_failure(self, status: int, kind: str, message: str) -> Json:
        return openai.encode(status, kind, message)

    def decode_failure(self, body: Any) -> Failure | None:
        return openai.decode(body)

    def stream_failure(self, status: int, kind: str, message: str) -> bytes:
        return openai.stream_chat(status, kind, message)


def encode_call(part: ToolCallPart) -> Json:
    return {
        **signed_call(part.id),
        "type": "function",
        "function": {"name": part.name, "arguments": part.arguments},
    }


def _decode_parts(message: Json) -> list[ReplyPart]:
    parts: list[ReplyPart] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    details = packed_details(message.get("reasoning_details"))
    words = reasoning if isinstance(reasoning, str) else ""
    if words or details:
        parts.append(ReasoningPart(words, encrypted=details, origin="chat"))
    for kind, words in content_pieces(message.get("content"), "choices[0].message.content"):
        if kind is ReasoningPart:
            parts.append(ReasoningPart(words, origin="chat"))
        elif parts and isinstance(last := parts[-1], TextPart):
            parts[-1] = TextPart(last.text + words)
        else:
            parts.append(TextPart(words))
    if message.get("refusal"):
        parts.append(RefusalPart(text(message["refusal"], "choices[0].message.refusal")))
    if not (calls := message.get("tool_calls")):
        return parts
    for n, raw in enumerate(items(calls, "tool_calls")):
        call = fields(raw, f"tool_calls[{n}]")
        function = fields(call.get("function"), f"tool_calls[{n}].function")
        arguments = function.get("arguments")
        parts.append(
            ToolCallPart(
                id=signed_id(str(call.get("id") or f"call_{n}"), call),
                name=text(function.get("name"), f"tool_calls[{n}].function.name"),
                arguments=arguments if isinstance(arguments, str) else _as_json(arguments),
            )
        )
    return parts


def _as_json(value: object) -> str:
    return json.dumps(value if value is not None else {})


def _encode_tools(request: Request, quirks: Quirks) -> Json:
    body: Json = {}
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    if request.tool_choice:
        body["tool_choice"] = _encode_choice(request.tool_choice)
    if request.parallel_tools is not None and request.tools and quirks.parallel_tools:
        body["parallel_tool_calls"] = request.parallel_tools
    return body


def _encode_tool(tool: Tool) -> Json:
    function: Json = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _decode_tool(tool: Json, path: str) -> Tool:
    function = fields(tool.get("function"), f"{path}.function")
    return openai.decode_function(function, f"{path}.function")


def _encode_choice(choice: ToolChoice) -> object:
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _choice_name(choice: Json) -> str:
    function = fields(choice.get("function"), "tool_choice.function")
    return text(function.get("name"), "tool_choice.function.name")


def _encode_output(output: OutputSchema, quirks: Quirks) -> Json:
    if output.schema is None or not quirks.json_schema:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": openai.encode_schema(output)}


def _output_schema(wanted: Json) -> Json:
    return fields(wanted.get("json_schema"), "response_format.json_schema")


def schema_instruction(output: OutputSchema) -> Json:
    """The schema as words, for a provider that knows only "some JSON"."""
    words = f"Answer with JSON only, matching this JSON schema:\n{_as_json(output.schema)}"
    return encode_messages((Message("system", (TextPart(words),)),))[0]
