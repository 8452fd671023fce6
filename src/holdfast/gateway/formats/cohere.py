"""Cohere's own format, `v2/chat`: requests and whole answers; turns and streams are
`cohere_messages`'.

Its tools are called after a plan in words (`tool_plan`): the text beside calls, both ways. What it
is billed by is in `billed_units`; the other count has its own prompts in it.
"""

from __future__ import annotations

from typing import Any, cast

from holdfast.gateway.formats import cohere_messages
from holdfast.gateway.formats.base import (
    Failure,
    FlatRequests,
    Quirks,
    StreamDecoder,
    StreamEncoder,
    sampling,
)
from holdfast.gateway.formats.cohere_messages import (
    decode_message,
    decode_reply_parts,
    decode_usage,
    encode_message,
    encode_reply_message,
    encode_usage,
)
from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    fields,
    items,
    optional_int,
    optional_number,
    text,
)
from holdfast.gateway.formats.openai import decode_function
from holdfast.gateway.formats.sse import event
from holdfast.gateway.messages import (
    Effort,
    Origin,
    OutputSchema,
    Request,
    Tool,
    ToolChoice,
)
from holdfast.gateway.reply import Completion, Usage

KNOWN = {
    "model", "messages", "tools", "strict_tools", "tool_choice", "response_format", "max_tokens",
    "stop_sequences", "temperature", "p", "seed", "thinking", "stream",
}  # fmt: skip
_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24_576}


class CohereFormat(FlatRequests):
    name: Origin = "cohere"

    def path(self, model: str, streams: bool) -> str:
        return "/v2/chat"

    def encode_request(self, request: Request, quirks: Quirks, *, model: str | None = None) -> Json:
        body: Json = {
            "model": model or request.model,
            "messages": [one for each in request.messages for one in encode_message(each)],
            **_encode_tools(request),
        }
        chosen = sampling(request, quirks, body["model"])
        if "temperature" in chosen:
            body["temperature"] = min(chosen["temperature"], 1.0)
        if "top_p" in chosen:
            body["p"] = min(max(chosen["top_p"], 0.01), 0.99)
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        if request.stop:
            body["stop_sequences"] = list(request.stop)
        if request.seed is not None and quirks.seed:
            body["seed"] = request.seed
        if request.output:
            wanted: Json = {"type": "json_object"}
            if request.output.schema is not None:
                wanted["json_schema"] = request.output.schema
            body["response_format"] = wanted
        if thinking := _encode_thinking(request):
            body["thinking"] = thinking
        body.update(request.extra.get("cohere", {}))
        if request.stream:
            body["stream"] = True
        for name in quirks.drop:
            body.pop(name, None)
        return body

    def decode_request(self, body: Json) -> Request:
        messages = items(body.get("messages"), "messages")
        if not messages:
            raise WireError("messages is empty")
        thinking = fields(body.get("thinking") or {}, "thinking")
        budget = optional_int(thinking.get("token_budget"), "thinking.token_budget")
        strict = body.get("strict_tools") is True
        return Request(
            model=text(body.get("model"), "model"),
            messages=tuple(
                decode_message(fields(raw, f"messages[{n}]"), f"messages[{n}]")
                for n, raw in enumerate(messages)
            ),
            tools=tuple(
                _decode_tool(fields(raw, f"tools[{n}]"), f"tools[{n}]", strict)
                for n, raw in enumerate(items(body.get("tools"), "tools"))
            ),
            tool_choice=_decode_choice(body.get("tool_choice")),
            max_tokens=optional_int(body.get("max_tokens"), "max_tokens"),
            temperature=optional_number(body.get("temperature"), "temperature"),
            top_p=optional_number(body.get("p"), "p"),
            stop=tuple(items(body.get("stop_sequences"), "stop_sequences")),
            seed=optional_int(body.get("seed"), "seed"),
            output=_decode_output(body.get("response_format")),
            effort=_decode_effort(thinking),
            thinking_tokens=budget if budget and budget > 0 else None,
            stream=bool(body.get("stream")),
            extra={"cohere": rest} if (rest := {k: v for k, v in body.items() if k not in KNOWN})
            else {},
        )  # fmt: skip

    def encode_reply(self, completion: Completion, request: Request | None) -> Json:
        body: Json = {
            "id": completion.id or "holdfast",
            "finish_reason": cohere_messages.encode_finish(
                completion.finish, completion.stop_sequence
            ),
            "message": encode_reply_message(completion.parts),
        }
        if completion.usage:
            body["usage"] = encode_usage(completion.usage)
        return body

    def decode_reply(self, body: Json) -> Completion:
        message = fields(body.get("message"), "message")
        finish = body.get("finish_reason")
        if finish is None:
            raise WireError("finish_reason is missing: the reply is not whole")
        return Completion(
            parts=tuple(decode_reply_parts(message)),
            finish=cohere_messages.decode_finish(text(finish, "finish_reason")),
            model="",
            usage=self.decode_usage(body),
            id=body.get("id"),
        )

    def decode_usage(self, body: Json) -> Usage | None:
        return decode_usage(body.get("usage"))

    def decoder(self) -> StreamDecoder:
        return cohere_messages.CohereDecoder()

    def encoder(self, request: Request) -> StreamEncoder:
        return cohere_messages.CohereEncoder()

    def encode_failure(self, status: int, kind: str, message: str) -> Json:
        return {"message": message, "code": kind}

    def decode_failure(self, body: Any) -> Failure | None:
        if not isinstance(body, dict):
            return None
        said = cast(Json, body)
        words = said.get("message")
        if not isinstance(words, str):
            return None
        code = said.get("code")
        return Failure(words, None if code is None else str(code))

    def stream_failure(self, status: int, kind: str, message: str) -> bytes:
        data: Json = {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": message}}
        return event(data, "message-end")


def _encode_tools(request: Request) -> Json:
    if request.provider_tools:
        raise WireError(f"tools: cohere has no {request.provider_tools[0].name!r}")
    choice, tools = request.tool_choice, request.tools
    if choice is not None and choice.mode == "tool":  # it can be told to call, not whom
        tools = tuple(tool for tool in tools if tool.name == choice.name)
    if not tools:
        return {}
    body: Json = {"tools": [_encode_tool(tool) for tool in tools]}
    if any(tool.strict for tool in tools):
        body["strict_tools"] = True
    if choice is not None and choice.mode != "auto":
        body["tool_choice"] = "NONE" if choice.mode == "none" else "REQUIRED"
    return body


def _encode_tool(tool: Tool) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _decode_tool(tool: Json, path: str, strict: bool) -> Tool:
    found = decode_function(fields(tool.get("function"), f"{path}.function"), f"{path}.function")
    return Tool(found.name, found.description, found.schema, True if strict else None)


def _decode_choice(value: object) -> ToolChoice | None:
    match value:
        case None:
            return None
        case "REQUIRED":
            return ToolChoice("required")
        case "NONE":
            return ToolChoice("none")
        case _:
            raise WireError(f"tool_choice should be REQUIRED or NONE, not {value!r}")


def _encode_thinking(request: Request) -> Json | None:
    if request.thinking_tokens:
        return {"type": "enabled", "token_budget": request.thinking_tokens}
    if request.effort is None:
        return None
    if request.effort == "none":
        return {"type": "disabled"}
    return {"type": "enabled", "token_budget": _BUDGETS.get(request.effort, 24_576)}


def _decode_effort(thinking: Json) -> Effort | None:
    if thinking.get("type") == "disabled":
        return "none"
    if thinking.get("type") != "enabled":
        return None
    budget = optional_int(thinking.get("token_budget"), "thinking.token_budget") or 8192
    found = (name for name, most in _BUDGETS.items() if budget <= most)
    return cast(Effort, next(found, "high"))


def _decode_output(value: object) -> OutputSchema | None:
    wanted = fields(value or {}, "response_format")
    if wanted.get("type") != "json_object":
        return None
    schema = wanted.get("json_schema") or wanted.get("schema")
    return OutputSchema(schema, strict=False) if schema else OutputSchema()
