"""Anthropic messages: content blocks, thinking with signatures, cached prefixes."""

from __future__ import annotations

import re
from typing import Any, cast

from holdfast.gateway.formats import anthropic_messages
from holdfast.gateway.formats.anthropic_messages import (
    decode_message,
    decode_reply_part,
    encode_messages,
    encode_reply_part,
    encode_system,
)
from holdfast.gateway.formats.base import (
    Failure,
    FlatRequests,
    Quirks,
    StreamDecoder,
    StreamEncoder,
    sampling,
)
from holdfast.gateway.formats.chat import schema_instruction
from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    fields,
    items,
    optional_int,
    optional_number,
    text,
)
from holdfast.gateway.formats.sse import event
from holdfast.gateway.formats.translation import portable
from holdfast.gateway.messages import (
    Effort,
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
    "model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "top_p",
    "stop_sequences", "stream", "metadata", "thinking", "output_config", "anthropic_version",
}  # fmt: skip

_OLD = re.compile(r"claude-(?:[23]|(?:opus|sonnet|haiku)-[34](?:[-.][0-5])?(?:-\d{8})?$)")
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384}

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "invalid_request_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicFormat(FlatRequests):
    name: Origin = "anthropic"

    def path(self, model: str, streams: bool) -> str:
        return "/messages"

    def encode_request(self, request: Request, quirks: Quirks, *, model: str | None = None) -> Json:
        body: Json = {
            "model": model or request.model,
            "max_tokens": request.max_tokens or _room(request, quirks),
            "messages": encode_messages(request.messages),
        }
        if instructions := encode_system(request.messages):
            body["system"] = instructions
        if request.tools or request.provider_tools:
            own = [_encode_own_tool(tool) for tool in request.provider_tools]
            body["tools"] = [*(_encode_tool(tool) for tool in request.tools), *own]
        if choice := _encode_choice(request):
            body["tool_choice"] = choice
        chosen = sampling(request, quirks, body["model"])
        if "temperature" in chosen:  # both at once are refused since Claude 4.5
            body["temperature"] = min(chosen["temperature"], 1.0)
        else:
            body.update(chosen)
        if request.stop:
            body["stop_sequences"] = list(request.stop)
        if request.user:
            body["metadata"] = {"user_id": request.user}
        _encode_thinking(request, quirks, body)
        if request.output:
            _encode_output(request.output, quirks, body)
        body.update(request.extra.get("anthropic", {}))
        if request.stream:
            body["stream"] = True
        for name in quirks.drop:
            body.pop(name, None)
        return for_vertex(body, quirks.body_version) if quirks.body_version else body

    def decode_request(self, body: Json) -> Request:
        messages = [
            decode_message(fields(raw, f"messages[{n}]"), f"messages[{n}]")
            for n, raw in enumerate(items(body.get("messages"), "messages"))
        ]
        if not messages:
            raise WireError("messages is empty")
        config = fields(body.get("output_config") or {}, "output_config")
        choice = fields(body.get("tool_choice") or {}, "tool_choice")
        thinking = fields(body.get("thinking") or {}, "thinking")
        metadata = fields(body.get("metadata") or {}, "metadata")
        serial = choice.get("disable_parallel_tool_use")
        free = choice.get("type") in (None, "auto", "none")
        tools, left_out = portable(body, functions="custom", decode=_decode_tool, free=free)
        return Request(
            model=text(body.get("model"), "model"),
            messages=(*_decode_system(body.get("system")), *messages),
            tools=tools,
            left_out=left_out,
            tool_choice=_decode_choice(choice),
            parallel_tools=None if serial is None else not serial,
            max_tokens=optional_int(body.get("max_tokens"), "max_tokens"),
            temperature=optional_number(body.get("temperature"), "temperature"),
            top_p=optional_number(body.get("top_p"), "top_p"),
            stop=tuple(items(body.get("stop_sequences"), "stop_sequences")),
            output=_decode_output(config.get("format")),
            effort=cast("Effort | None", config.get("effort")) or _effort_of(thinking),
            thinking_tokens=optional_int(thinking.get("budget_tokens"), "thinking.budget_tokens"),
            user=metadata.get("user_id"),
            stream=bool(body.get("stream")),
            extra=_rest(body),
        )

    def encode_reply(self, completion: Completion, request: Request | None) -> Json:
        usage = completion.usage or Usage()
        return {
            "id": completion.id or "msg_holdfast",
            "type": "message",
            "role": "assistant",
            "model": completion.model,
            "content": [encode_reply_part(part) for part in completion.parts],
            "stop_reason": anthropic_messages.encode_stop(
                completion.finish, completion.stop_sequence
            ),
            "stop_sequence": completion.stop_sequence,
            "usage": anthropic_messages.encode_usage(usage),
        }

    def decode_reply(self, body: Json) -> Completion:
        if body.get("type") != "message":
            raise WireError(f"type should be 'message', not {body.get('type')!r}")
        stop = body.get("stop_reason")
        if stop is None:
            raise WireError("stop_reason is missing: the reply is not whole")
        blocks = items(body.get("content"), "content")
        decoded = [decode_reply_part(fields(b, f"content[{n}]")) for n, b in enumerate(blocks)]
        return Completion(
            parts=tuple(part for part in decoded if part is not None),
            finish=anthropic_messages.decode_stop(text(stop, "stop_reason")),
            model=str(body.get("model") or ""),
            usage=self.decode_usage(body),
            id=body.get("id"),
            stop_sequence=body.get("stop_sequence"),
        )

    def decode_usage(self, body: Json) -> Usage | None:
        return anthropic_messages.decode_usage(body.get("usage"))

    def decoder(self) -> StreamDecoder:
        return anthropic_messages.AnthropicDecoder()

    def encoder(self, request: Request) -> StreamEncoder:
        return anthropic_messages.AnthropicEncoder()

    def encode_failure(self, status: int, kind: str, message: str) -> Json:
        word = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": word, "message": message, "code": kind}}

    def decode_failure(self, body: Any) -> Failure | None:
        return anthropic_messages.decode_failure(body)

    def stream_failure(self, status: int, kind: str, message: str) -> bytes:
        return event(self.encode_failure(status, kind, message), "error")


def for_vertex(body: Json, version: str) -> Json:
    """A request as Vertex takes it: its address names the model, its body the version."""
    rest = {name: value for name, value in body.items() if name != "model"}
    return {"anthropic_version": version, **rest}


def _rest(body: Json) -> dict[str, Json]:
    rest = {name: value for name, value in body.items() if name not in KNOWN}
    return {"anthropic": rest} if rest else {}


def _room(request: Request, quirks: Quirks) -> int:
    return quirks.default_max_tokens + (request.thinking_tokens or 0)


def _decode_system(value: object) -> tuple[Message, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (Message("system", (TextPart(value),)),) if value else ()
    message = decode_message({"role": "user", "content": value}, "system")
    return (Message("system", message.parts),)


def _encode_thinking(request: Request, quirks: Quirks, body: Json) -> None:
    if request.thinking_tokens:
        body["thinking"] = {"type": "enabled", "budget_tokens": request.thinking_tokens}
    elif request.effort == "none":
        body["thinking"] = {"type": "disabled"}
    elif request.effort and _OLD.match(body["model"]):
        # Models before adaptive thinking are given a number of tokens, within the answer's room.
        budget = min(_BUDGETS.get(request.effort, 32_000), body["max_tokens"] - 1024)
        if budget >= 1024:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif request.effort and quirks.effort:
        body["thinking"] = {"type": "adaptive"}
        effort = "low" if request.effort == "minimal" else request.effort
        body["output_config"] = {"effort": effort}


def _effort_of(thinking: Json) -> Effort | None:
    return "none" if thinking.get("type") == "disabled" else None


def _encode_output(output: OutputSchema, quirks: Quirks, body: Json) -> None:
    if output.schema is not None and quirks.json_schema:
        config = body.setdefault("output_config", {})
        config["format"] = {"type": "json_schema", "schema": output.schema}
        return
    words = (
        "Answer with a JSON object only."
        if output.schema is None
        else schema_instruction(output)["content"]
    )
    body["system"] = [*body.get("system", []), {"type": "text", "text": words}]


def _decode_output(value: object) -> OutputSchema | None:
    if value is None:
        return None
    wanted = fields(value, "output_config.format")
    return OutputSchema(schema=fields(wanted.get("schema"), "output_config.format.schema"))


_OWN_TOOLS = {
    "web_search": "web_search_20250305",
    "web_fetch": "web_fetch_20250910",
    "code_execution": "code_execution_20250825",
}


def _encode_own_tool(tool: ProviderTool) -> Json:
    if tool.name not in _OWN_TOOLS:
        raise WireError(f"tools: anthropic has no {tool.name!r}")
    return {"type": _OWN_TOOLS[tool.name], "name": tool.name, **tool.options}


def _encode_tool(tool: Tool) -> Json:
    body: Json = {"name": tool.name, "input_schema": tool.schema}
    if tool.description:
        body["description"] = tool.description
    if tool.strict is not None:
        body["strict"] = tool.strict
    return body


def _decode_tool(tool: Json, path: str) -> Tool:
    return Tool(
        name=text(tool.get("name"), f"{path}.name"),
        description=str(tool.get("description") or ""),
        schema=fields(tool.get("input_schema"), f"{path}.input_schema"),
        strict=tool.get("strict"),
    )


def _encode_choice(request: Request) -> Json | None:
    if not request.tools:
        return None
    choice = request.tool_choice
    serial = request.parallel_tools is False
    if choice is None and not serial:
        return None
    mode = choice.mode if choice else "auto"
    body: Json = {"type": {"required": "any"}.get(mode, mode)}
    if choice and mode == "tool":
        body["name"] = choice.name
    if serial and mode != "none":
        body["disable_parallel_tool_use"] = True
    return body


def _decode_choice(choice: Json) -> ToolChoice | None:
    match choice.get("type"):
        case None:
            return None
        case "any":
            return ToolChoice("required")
        case "tool":
            return ToolChoice("tool", text(choice.get("name"), "tool_choice.name"))
        case "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case other:
            raise WireError(f"tool_choice.type: there is no {other!r}")
