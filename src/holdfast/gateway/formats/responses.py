"""OpenAI responses: items instead of messages, reasoning that comes back encrypted.

We keep no conversation on the provider's side: requests are sent with `store: false` and the
reasoning is asked for in encrypted form, so that it can be sent back with the next turn.
"""

from __future__ import annotations

import time
from typing import Any

from holdfast.gateway.formats import openai, responses_items
from holdfast.gateway.formats.base import (
    Failure,
    FlatRequests,
    Quirks,
    StreamDecoder,
    StreamEncoder,
    sampling,
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
from holdfast.gateway.formats.responses_items import (
    decode_input,
    decode_output,
    encode_input,
    encode_output,
)
from holdfast.gateway.formats.translation import portable
from holdfast.gateway.messages import (
    Message,
    Origin,
    OutputSchema,
    ProviderTool,
    Request,
    TextPart,
    Tool,
    ToolChoice,
)
from holdfast.gateway.reply import Completion, Usage

KNOWN = {
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls",
    "max_output_tokens", "temperature", "top_p", "text", "reasoning", "user", "stream",
}  # fmt: skip
STATEFUL = ("previous_response_id", "conversation", "background", "prompt")


class ResponsesFormat(FlatRequests):
    name: Origin = "responses"
    limit_field = "max_output_tokens"

    def path(self, model: str, streams: bool) -> str:
        return "/responses"

    def encode_request(self, request: Request, quirks: Quirks, *, model: str | None = None) -> Json:
        instructions = "\n\n".join(m.text for m in request.messages if m.role == "system")
        body: Json = {
            "model": model or request.model,
            "input": encode_input(request.messages),
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if instructions:
            body["instructions"] = instructions
        if request.tools or request.provider_tools:
            own = [_encode_own_tool(tool) for tool in request.provider_tools]
            body["tools"] = [*(_encode_tool(tool) for tool in request.tools), *own]
        if request.tool_choice:
            body["tool_choice"] = _encode_choice(request.tool_choice)
        if request.parallel_tools is not None and request.tools:
            body["parallel_tool_calls"] = request.parallel_tools
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        body.update(sampling(request, quirks, body["model"]))
        if request.output:
            body["text"] = {"format": _encode_output(request.output)}
        if request.effort and quirks.effort:
            body["reasoning"] = {"effort": request.effort, "summary": "auto"}
        if request.user:
            body["user"] = request.user
        body.update(request.extra.get("responses", {}))
        if request.stream:
            body["stream"] = True
        for name in quirks.drop:
            body.pop(name, None)
        return body

    def decode_request(self, body: Json) -> Request:
        for name in STATEFUL:
            if body.get(name):
                raise WireError(f"{name} needs the provider's own state and can't be translated")
        given = body.get("input")
        turns = (
            (Message("user", (TextPart(given),)),)
            if isinstance(given, str)
            else decode_input(items(given, "input"))
        )
        if not turns:
            raise WireError("input is empty")
        instructions = optional_text(body.get("instructions"), "instructions")
        lead = (Message("system", (TextPart(instructions),)),) if instructions else ()
        wanted = fields(body.get("text") or {}, "text").get("format")
        reasoning = fields(body.get("reasoning") or {}, "reasoning")
        tools, left_out = portable(
            body, functions="function", decode=openai.decode_function,
            free=openai.is_free(body.get("tool_choice")),
        )  # fmt: skip
        return Request(
            model=text(body.get("model"), "model"),
            messages=(*lead, *turns),
            tools=tools,
            left_out=left_out,
            tool_choice=openai.decode_choice(body.get("tool_choice"), _choice_name),
            parallel_tools=optional_bool(body.get("parallel_tool_calls"), "parallel_tool_calls"),
            max_tokens=optional_int(body.get("max_output_tokens"), "max_output_tokens"),
            temperature=optional_number(body.get("temperature"), "temperature"),
            top_p=optional_number(body.get("top_p"), "top_p"),
            output=openai.decode_output(wanted, "text.format", lambda given: given),
            effort=reasoning.get("effort"),
            user=optional_text(body.get("user"), "user"),
            stream=bool(body.get("stream")),
            extra={"responses": rest}
            if (rest := {k: v for k, v in body.items() if k not in KNOWN})
            else {},
        )

    def encode_reply(self, completion: Completion, request: Request | None) -> Json:
        return encode_response(
            completion.id, completion.model, request,
            output=encode_output(completion), completion=completion,
        )  # fmt: skip

    def decode_reply(self, body: Json) -> Completion:
        status = body.get("status")
        if status == "failed" or body.get("error"):
            failure = openai.decode(body) or Failure("the response failed")
            raise WireError(f"the response failed: {failure.message}")
        if status not in ("completed", "incomplete"):
            raise WireError(f"status is {status!r}: the reply is not whole")
        parts = tuple(decode_output(items(body.get("output"), "output")))
        return Completion(
            parts=parts,
            finish=responses_items.decode_finish(body, parts),
            model=str(body.get("model") or ""),
            usage=self.decode_usage(body),
            id=body.get("id"),
        )

    def decode_usage(self, body: Json) -> Usage | None:
        return responses_items.decode_usage(body)

    def decoder(self) -> StreamDecoder:
        return responses_items.ResponsesDecoder()

    def encoder(self, request: Request) -> StreamEncoder:
        return responses_items.ResponsesEncoder(request, encode_response)

    def encode_failure(self, status: int, kind: str, message: str) -> Json:
        return openai.encode(status, kind, message)

    def decode_failure(self, body: Any) -> Failure | None:
        return openai.decode(body)

    def stream_failure(self, status: int, kind: str, message: str) -> bytes:
        return openai.stream_responses(status, kind, message)


def encode_response(
    identity: str | None,
    model: str,
    request: Request | None,
    *,
    output: list[Json],
    completion: Completion | None,
) -> Json:
    """The response object; without a completion it is one in progress."""
    status, details = "in_progress", None
    if completion is not None:
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(
            completion.finish
        )
        status = "incomplete" if reason else "completed"
        details = {"reason": reason} if reason else None
    usage = completion.usage if completion else None
    tools = [_encode_tool(tool) for tool in request.tools] if request else []
    choice = request.tool_choice if request else None
    effort = request.effort if request else None
    return {
        "id": identity or "resp_holdfast",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": details,
        "instructions": None,
        "max_output_tokens": request.max_tokens if request else None,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": request.parallel_tools is not False if request else True,
        "previous_response_id": None,
        "reasoning": {"effort": effort, "summary": None},
        "store": bool(identity and identity.startswith(responses_items.KEPT_HERE)),
        "temperature": request.temperature if request else None,
        "text": {"format": _encode_output(request.output) if request and request.output
                 else {"type": "text"}},
        "tool_choice": _encode_choice(choice) if choice else "auto",
        "tools": tools,
        "top_p": request.top_p if request else None,
        "truncation": "disabled",
        "usage": responses_items.encode_usage(usage) if usage else None,
        "user": request.user if request else None,
    }  # fmt: skip


def _encode_own_tool(tool: ProviderTool) -> Json:
    if tool.name == "web_search":
        return {"type": "web_search", **tool.options}
    if tool.name == "code_execution":
        return {"type": "code_interpreter", "container": {"type": "auto"}, **tool.options}
    raise WireError(f"tools: the responses format has no {tool.name!r}")


def _encode_tool(tool: Tool) -> Json:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": bool(tool.strict),
    }


def _encode_choice(choice: ToolChoice) -> object:
    if choice.mode == "tool":
        return {"type": "function", "name": choice.name}
    return choice.mode


def _choice_name(choice: Json) -> str:
    if choice.get("type") != "function":
        raise WireError(f"tool_choice of type {choice.get('type')!r} can't be translated")
    return text(choice.get("name"), "tool_choice.name")


def _encode_output(output: OutputSchema) -> Json:
    if output.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", **openai.encode_schema(output)}
