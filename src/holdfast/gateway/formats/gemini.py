"""Gemini: `generateContent` and `streamGenerateContent`, as AI Studio and Vertex AI speak it.

The model and whether it streams are in the address, not in the body: `decode_request` finds them
as `model` and `stream`, put there by whoever read the address.
"""

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import quote

from holdfast.gateway.formats import gemini_contents
from holdfast.gateway.formats.base import (
    Failure,
    Framing,
    Quirks,
    StreamDecoder,
    StreamEncoder,
    at_least_one,
    sampling,
)
from holdfast.gateway.formats.gemini_contents import (
    decode_contents,
    encode_contents,
    encode_finish,
    encode_reply_part,
    encode_system,
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
from holdfast.gateway.formats.sse import SseParser, event
from holdfast.gateway.messages import (
    Effort,
    Message,
    Origin,
    OutputSchema,
    Request,
    TextPart,
    Tool,
    ToolChoice,
)
from holdfast.gateway.reply import Completion, Usage

KNOWN = {
    "model", "stream", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig",
}  # fmt: skip
_SETTINGS = {
    "temperature", "topP", "maxOutputTokens", "stopSequences", "seed", "responseMimeType",
    "responseSchema", "responseJsonSchema", "thinkingConfig",
}  # fmt: skip
_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 24_576}
_LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_BY_LEVEL = re.compile(r"(?:.*/)?gemini-(?:[3-9]|\d\d)")
"""Models that are told how hard to think by a word, not by a number of tokens."""
_THINKS_ALWAYS = re.compile(r"(?:.*/)?gemini-2\.5-pro")
_STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED", 422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
TOOLS = {"web_search": "googleSearch", "code_execution": "codeExecution", "web_fetch": "urlContext"}


class GeminiFormat:
    name: Origin = "gemini"
    stream_type = "text/event-stream"

    def path(self, model: str, streams: bool) -> str:
        way = "streamGenerateContent?alt=sse" if streams else "generateContent"
        place = model if model.startswith("tunedModels/") else f"models/{model}"
        return f"/{quote(place, safe='/@')}:{way}"

    def framing(self, max_event: int) -> Framing:
        return SseParser(max_event)

    def output_limits(self, body: Json) -> list[Any]:
        settings = _settings(body)
        return [settings["maxOutputTokens"]] if "maxOutputTokens" in settings else []

    def limited(self, body: Json, most: int, quirks: Quirks) -> Json:
        each = max(most // self.copies(body), 1)
        return {"generationConfig": {**_settings(body), "maxOutputTokens": each}}

    def copies(self, body: Json) -> int:
        return at_least_one(_settings(body).get("candidateCount"))

    def thinks(self, body: Json) -> bool:
        thinking = _settings(body).get("thinkingConfig")
        return not isinstance(thinking, dict) or cast(Json, thinking).get("thinkingBudget") != 0

    def encode_request(self, request: Request, quirks: Quirks, *, model: str | None = None) -> Json:
        model = model or request.model
        body: Json = {"contents": encode_contents(request.messages)}
        if instructions := encode_system(request.messages):
            body["systemInstruction"] = instructions
        if tools := _encode_tools(request):
            body["tools"] = tools
        if request.tool_choice and request.tools:
            body["toolConfig"] = _encode_choice(request.tool_choice)
        settings = _encode_settings(request, quirks, model)
        more = dict(request.extra.get("gemini", {}))
        settings.update(more.pop("generationConfig", {}))
        if settings:
            body["generationConfig"] = settings
        body.update(more)
        for name in quirks.drop:
            body.pop(name, None)
        return body

    def decode_request(self, body: Json) -> Request:
        body = in_camel_case(body)
        settings = _settings(body)
        thinking = fields(settings.get("thinkingConfig") or {}, "thinkingConfig")
        budget = optional_int(thinking.get("thinkingBudget"), "thinkingConfig.thinkingBudget")
        tools, left_out = _decode_tools(body)
        return Request(
            model=str(body.get("model") or ""),
            messages=(
                *_decode_system(body.get("systemInstruction")),
                *decode_contents(items(body.get("contents"), "contents")),
            ),
            tools=tools,
            left_out=left_out,
            tool_choice=_decode_choice(body.get("toolConfig")),
            max_tokens=optional_int(settings.get("maxOutputTokens"), "maxOutputTokens"),
            temperature=optional_number(settings.get("temperature"), "temperature"),
            top_p=optional_number(settings.get("topP"), "topP"),
            stop=tuple(items(settings.get("stopSequences"), "stopSequences")),
            seed=optional_int(settings.get("seed"), "seed"),
            output=_decode_output(settings),
            effort=_effort_of(thinking, budget),
            thinking_tokens=budget if budget and budget > 0 else None,
            stream=bool(body.get("stream")),
            extra=_rest(body, settings),
        )

    def encode_reply(self, completion: Completion, request: Request | None) -> Json:
        parts = [one for part in completion.parts for one in encode_reply_part(part)]
        candidate: Json = {
            "content": {"role": "model", "parts": parts},
            "finishReason": encode_finish(completion.finish),
            "index": 0,
        }
        body: Json = {"candidates": [candidate], "modelVersion": completion.model}
        if completion.id:
            body["responseId"] = completion.id
        if completion.usage:
            body["usageMetadata"] = encode_usage(completion.usage)
        return body

    def decode_reply(self, body: Json) -> Completion:
        return gemini_contents.decode_reply(body)

    def decode_usage(self, body: Json) -> Usage | None:
        return gemini_contents.decode_usage(body.get("usageMetadata"))

    def decoder(self) -> StreamDecoder:
        return gemini_contents.GeminiDecoder()

    def encoder(self, request: Request) -> StreamEncoder:
        return gemini_contents.GeminiEncoder()

    def encode_failure(self, status: int, kind: str, message: str) -> Json:
        word = _STATUS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": kind}
        error = {"code": status, "message": message, "status": word, "details": [detail]}
        return {"error": error}

    def decode_failure(self, body: Any) -> Failure | None:
        return gemini_contents.decode_failure(body)

    def stream_failure(self, status: int, kind: str, message: str) -> bytes:
        return event(self.encode_failure(status, kind, message))


_WORDS_OF_OTHERS = frozenset((
    "args", "response", "parameters", "parametersJsonSchema", "responseSchema",
    "responseJsonSchema", "labels",
))  # fmt: skip


def in_camel_case(value: Any) -> Any:
    """A request with its fields in the case that the documentation writes: Google takes both, and
    its own SDK sends both. What users put in, arguments and schemas, stays as it is."""
    if isinstance(value, list):
        return [in_camel_case(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found: Json = {}
    for name, one in cast(Json, value).items():
        head, *rest = name.split("_")
        camel = head + "".join(word[:1].upper() + word[1:] for word in rest)
        found[camel] = one if camel in _WORDS_OF_OTHERS else in_camel_case(one)
    return found


def _settings(body: Json) -> Json:
    return fields(body.get("generationConfig") or {}, "generationConfig")


def _rest(body: Json, settings: Json) -> dict[str, Json]:
    rest = {name: value for name, value in body.items() if name not in KNOWN}
    kept = {name: value for name, value in settings.items() if name not in _SETTINGS}
    if kept:
        rest["generationConfig"] = kept
    return {"gemini": rest} if rest else {}


def _encode_settings(request: Request, quirks: Quirks, model: str) -> Json:
    chosen = sampling(request, quirks, model)
    settings: Json = {}
    if "temperature" in chosen:
        settings["temperature"] = chosen["temperature"]
    if "top_p" in chosen:
        settings["topP"] = chosen["top_p"]
    if request.max_tokens is not None:
        settings["maxOutputTokens"] = request.max_tokens
    if request.stop:
        settings["stopSequences"] = list(request.stop)
    if request.seed is not None and quirks.seed:
        settings["seed"] = request.seed
    if request.output:
        settings["responseMimeType"] = "application/json"
        if request.output.schema is not None:
            settings["responseJsonSchema"] = request.output.schema
    if thinking := _encode_thinking(request, model):
        settings["thinkingConfig"] = thinking
    return settings


def _encode_thinking(request: Request, model: str) -> Json | None:
    if request.thinking_tokens:
        return {"thinkingBudget": request.thinking_tokens, "includeThoughts": True}
    if request.effort is None:
        return None
    if _BY_LEVEL.match(model):
        if request.effort == "none":
            return {"thinkingLevel": "low"}  # it can't be turned off
        return {"thinkingLevel": _LEVELS.get(request.effort, "high"), "includeThoughts": True}
    if request.effort == "none":
        return {"thinkingBudget": 128 if _THINKS_ALWAYS.match(model) else 0}
    return {"thinkingBudget": _BUDGETS.get(request.effort, 24_576), "includeThoughts": True}


def _effort_of(thinking: Json, budget: int | None) -> Effort | None:
    level = str(thinking.get("thinkingLevel") or "").lower()
    if level in ("minimal", "low", "medium", "high", "xhigh"):
        return cast(Effort, level)
    return "none" if budget == 0 else None


def _encode_tools(request: Request) -> list[Json]:
    tools: list[Json] = []
    if request.tools:
        tools.append({"functionDeclarations": [_encode_tool(tool) for tool in request.tools]})
    for tool in request.provider_tools:
        if tool.name not in TOOLS:
            raise WireError(f"tools: gemini has no {tool.name!r}")
        tools.append({TOOLS[tool.name]: tool.options})
    return tools


def _encode_tool(tool: Tool) -> Json:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": tool.schema,
    }


def _decode_tools(body: Json) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The functions, and the kinds of tools that only Google could be."""
    tools: list[Tool] = []
    others: list[str] = []
    for n, raw in enumerate(items(body.get("tools"), "tools")):
        tool = fields(raw, f"tools[{n}]")
        path = f"tools[{n}].functionDeclarations"
        for m, one in enumerate(items(tool.get("functionDeclarations"), path)):
            tools.append(_decode_tool(fields(one, f"{path}[{m}]"), f"{path}[{m}]"))
        others.extend(name for name in tool if name != "functionDeclarations")
    if others and not tools:
        raise WireError(f"tools: only functionDeclarations can be translated, not {others[0]!r}")
    return tuple(tools), tuple(others)


def _decode_tool(function: Json, path: str) -> Tool:
    schema = function.get("parametersJsonSchema") or _plain_schema(function.get("parameters"))
    return Tool(
        name=text(function.get("name"), f"{path}.name"),
        description=str(function.get("description") or ""),
        schema=schema or {"type": "object", "properties": {}},
    )


def _plain_schema(value: Any) -> Any:
    """Google's own schemas as JSON schemas: their types are in capitals, null is a field."""
    if isinstance(value, list):
        return [_plain_schema(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found: Json = {}
    given = cast(Json, value)
    for name, one in given.items():
        if name == "type" and isinstance(one, str):
            found[name] = [one.lower(), "null"] if given.get("nullable") is True else one.lower()
        elif name == "properties" and isinstance(one, dict):
            found[name] = {key: _plain_schema(each) for key, each in cast(Json, one).items()}
        elif name not in ("nullable", "propertyOrdering"):
            found[name] = one if name in ("enum", "default", "example") else _plain_schema(one)
    return found


def _encode_choice(choice: ToolChoice) -> Json:
    mode = {"auto": "AUTO", "none": "NONE", "required": "ANY", "tool": "ANY"}[choice.mode]
    config: Json = {"mode": mode}
    if choice.mode == "tool":
        config["allowedFunctionNames"] = [choice.name]
    return {"functionCallingConfig": config}


def _decode_choice(value: object) -> ToolChoice | None:
    config = fields(value or {}, "toolConfig").get("functionCallingConfig")
    if config is None:
        return None
    found = fields(config, "functionCallingConfig")
    names = items(found.get("allowedFunctionNames"), "allowedFunctionNames")
    match str(found.get("mode") or "AUTO").upper():
        case "ANY" if len(names) == 1:
            return ToolChoice("tool", text(names[0], "allowedFunctionNames[0]"))
        case "ANY":
            return ToolChoice("required")
        case "NONE":
            return ToolChoice("none")
        case _:
            return ToolChoice("auto")


def _decode_output(settings: Json) -> OutputSchema | None:
    if settings.get("responseMimeType") != "application/json":
        return None
    schema = settings.get("responseJsonSchema") or _plain_schema(settings.get("responseSchema"))
    return OutputSchema(schema, strict=False) if schema else OutputSchema()


def _decode_system(value: object) -> tuple[Message, ...]:
    if value is None:
        return ()
    parts = fields(value, "systemInstruction").get("parts")
    words = [
        TextPart(text(fields(one, "systemInstruction").get("text"), "systemInstruction.text"))
        for one in items(parts, "systemInstruction.parts")
    ]
    return (Message("system", tuple(words)),) if words else ()
