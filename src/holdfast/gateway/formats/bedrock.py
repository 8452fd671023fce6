"""Bedrock Converse: any model that Amazon hosts, asked in one way.

The model and whether it streams are in the address, not in the body: `decode_request` finds them
as `model` and `stream`, put there by whoever read the address. How hard a model thinks is the
model's own business there (`additionalModelRequestFields`): Claude's way is known.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast
from urllib.parse import quote

from holdfast.gateway.formats import bedrock_blocks
from holdfast.gateway.formats.base import (
    Failure,
    Framing,
    Quirks,
    StreamDecoder,
    StreamEncoder,
    sampling,
)
from holdfast.gateway.formats.bedrock_blocks import (
    decode_blocks,
    decode_messages,
    decode_reply_part,
    encode_messages,
    encode_reply_part,
    encode_system,
)
from holdfast.gateway.formats.event_stream import EventStreamParser, frame
from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    fields,
    items,
    optional_int,
    optional_number,
    text,
)
from holdfast.gateway.messages import (
    Effort,
    Message,
    Origin,
    OutputSchema,
    Request,
    Tool,
    ToolChoice,
)
from holdfast.gateway.reply import Completion, Usage

KNOWN = {"model", "stream", "messages", "system", "inferenceConfig", "toolConfig", "outputConfig"}
_MODEL_FIELDS = "additionalModelRequestFields"
_CLAUDE = re.compile(r"(?:.*[./])?claude-")
_EXCEPTIONS = {
    400: "ValidationException", 401: "AccessDeniedException", 402: "ServiceQuotaExceededException",
    403: "AccessDeniedException", 404: "ResourceNotFoundException", 408: "ModelTimeoutException",
    429: "ThrottlingException", 503: "ServiceUnavailableException", 504: "ModelTimeoutException",
}  # fmt: skip


class BedrockFormat:
    name: Origin = "bedrock"
    stream_type = "application/vnd.amazon.eventstream"

    def path(self, model: str, streams: bool) -> str:
        return f"/model/{quote(model, safe='')}/{'converse-stream' if streams else 'converse'}"

    def framing(self, max_event: int) -> Framing:
        return EventStreamParser(max_event)

    def output_limits(self, body: Json) -> list[Any]:
        settings = _settings(body)
        return [settings["maxTokens"]] if "maxTokens" in settings else []

    def copies(self, body: Json) -> int:
        return 1

    def limited(self, body: Json, most: int, quirks: Quirks) -> Json:
        return {"inferenceConfig": {**_settings(body), "maxTokens": most}}

    def thinks(self, body: Json) -> bool:
        return bool(body.get(_MODEL_FIELDS) or _output(body).get("effort"))

    def encode_request(self, request: Request, quirks: Quirks, *, model: str | None = None) -> Json:
        model = model or request.model
        body: Json = {"messages": encode_messages(request.messages)}
        if instructions := encode_system(request.messages):
            body["system"] = instructions
        if request.provider_tools:
            raise WireError(f"tools: bedrock has no {request.provider_tools[0].name!r}")
        if tools := _encode_tools(request):
            body["toolConfig"] = tools
        if settings := _encode_settings(request, quirks, model):
            body["inferenceConfig"] = settings
        more = dict(request.extra.get("bedrock", {}))
        named: Json = {**_encode_thinking(request, model), **more.pop(_MODEL_FIELDS, {})}
        if named:
            body[_MODEL_FIELDS] = named
        if request.output and request.output.schema is not None:
            body["outputConfig"] = {"textFormat": _encode_output(request.output)}
        elif request.output:
            words = {"text": "Answer with a JSON object only."}
            body["system"] = [*body.get("system", []), words]
        body.update(more)
        for name in quirks.drop:
            body.pop(name, None)
        return body

    def decode_request(self, body: Json) -> Request:
        settings = _settings(body)
        tools, left_out, choice = _decode_tools(body)
        named = fields(body.get(_MODEL_FIELDS) or {}, _MODEL_FIELDS)
        thinking = fields(named.get("thinking") or {}, "thinking")
        system = decode_blocks(body.get("system"), "system")
        effort = cast("Effort | None", _output(body).get("effort"))
        return Request(
            model=str(body.get("model") or ""),
            messages=(
                *((Message("system", system),) if system else ()),
                *decode_messages(items(body.get("messages"), "messages")),
            ),
            tools=tools,
            left_out=left_out,
            tool_choice=choice,
            max_tokens=optional_int(settings.get("maxTokens"), "inferenceConfig.maxTokens"),
            temperature=optional_number(settings.get("temperature"), "temperature"),
            top_p=optional_number(settings.get("topP"), "topP"),
            stop=tuple(items(settings.get("stopSequences"), "stopSequences")),
            output=_decode_output(body),
            effort="none" if thinking.get("type") == "disabled" else effort,
            thinking_tokens=optional_int(thinking.get("budget_tokens"), "thinking.budget_tokens"),
            stream=bool(body.get("stream")),
            extra=_rest(body, named),
        )

    def encode_reply(self, completion: Completion, request: Request | None) -> Json:
        content = [one for part in completion.parts for one in encode_reply_part(part)]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": bedrock_blocks.encode_stop(completion.finish, completion.stop_sequence),
            "usage": bedrock_blocks.encode_usage(completion.usage or Usage()),
            "metrics": {"latencyMs": 0},
        }

    def decode_reply(self, body: Json) -> Completion:
        message = fields(fields(body.get("output"), "output").get("message"), "output.message")
        stop = text(body.get("stopReason"), "stopReason")
        blocks = items(message.get("content"), "output.message.content")
        decoded = [decode_reply_part(fields(one, f"content[{n}]")) for n, one in enumerate(blocks)]
        return Completion(
            parts=tuple(part for part in decoded if part is not None),
            finish=bedrock_blocks.decode_stop(stop),
            model="",
            usage=self.decode_usage(body),
        )

    def decode_usage(self, body: Json) -> Usage | None:
        return bedrock_blocks.decode_usage(body.get("usage"))

    def decoder(self) -> StreamDecoder:
        return bedrock_blocks.BedrockDecoder()

    def encoder(self, request: Request) -> StreamEncoder:
        return bedrock_blocks.BedrockEncoder()

    def encode_failure(self, status: int, kind: str, message: str) -> Json:
        otherwise = "InternalServerException" if status >= 500 else "ValidationException"
        return {"__type": _EXCEPTIONS.get(status, otherwise), "message": message, "kind": kind}

    def decode_failure(self, body: Any) -> Failure | None:
        return bedrock_blocks.decode_failure(body)

    def stream_failure(self, status: int, kind: str, message: str) -> bytes:
        word = {429: "throttlingException", 503: "serviceUnavailableException"}.get(status)
        word = word or ("internalServerException" if status >= 500 else "validationException")
        return frame(word, {"message": message}, exception=True)


def _settings(body: Json) -> Json:
    return fields(body.get("inferenceConfig") or {}, "inferenceConfig")


def _output(body: Json) -> Json:
    return fields(body.get("outputConfig") or {}, "outputConfig")


def _rest(body: Json, named: Json) -> dict[str, Json]:
    rest = {k: v for k, v in body.items() if k not in KNOWN and k != _MODEL_FIELDS}
    kept = {name: value for name, value in named.items() if name != "thinking"}
    if kept:
        rest[_MODEL_FIELDS] = kept
    return {"bedrock": rest} if rest else {}


def _encode_settings(request: Request, quirks: Quirks, model: str) -> Json:
    chosen = sampling(request, quirks, model)
    settings: Json = {}
    if request.max_tokens is not None:
        settings["maxTokens"] = request.max_tokens
    if "temperature" in chosen:
        settings["temperature"] = min(chosen["temperature"], 1.0)
    elif "top_p" in chosen:  # both at once are refused by Claude since 4.5
        settings["topP"] = chosen["top_p"]
    if request.stop:
        settings["stopSequences"] = list(request.stop)
    return settings


_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384}


def _encode_thinking(request: Request, model: str) -> Json:
    if not _CLAUDE.match(model):
        return {}
    if request.thinking_tokens:
        return {"thinking": {"type": "enabled", "budget_tokens": request.thinking_tokens}}
    if request.effort is None or request.effort == "none":
        return {}
    budget = _BUDGETS.get(request.effort, 32_000)
    if request.max_tokens is not None:  # thinking is within the answer's room
        budget = min(budget, request.max_tokens - 1024)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= 1024 else {}


def _encode_output(output: OutputSchema) -> Json:
    schema = {"schema": json.dumps(output.schema), "name": output.name}
    return {"type": "json_schema", "structure": {"jsonSchema": schema}}


def _decode_output(body: Json) -> OutputSchema | None:
    wanted = _output(body).get("textFormat")
    if wanted is None:
        return None
    structure = fields(fields(wanted, "textFormat").get("structure") or {}, "textFormat.structure")
    found = fields(structure.get("jsonSchema"), "textFormat.structure.jsonSchema")
    try:
        schema = fields(json.loads(text(found.get("schema"), "jsonSchema.schema")), "schema")
    except ValueError as error:
        raise WireError(f"jsonSchema.schema is broken JSON: {error}") from error
    return OutputSchema(schema, str(found.get("name") or "output"))


def _encode_tools(request: Request) -> Json | None:
    choice = request.tool_choice
    if not request.tools or (choice is not None and choice.mode == "none"):
        return None  # there is no way to offer tools and forbid them
    tools = [
        {
            "toolSpec": {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "inputSchema": {"json": tool.schema},
            }
        }
        for tool in request.tools
    ]
    body: Json = {"tools": tools}
    if choice is not None:
        mode = {"required": "any"}.get(choice.mode, choice.mode)
        body["toolChoice"] = {mode: {"name": choice.name} if mode == "tool" else {}}
    return body


def _decode_tools(body: Json) -> tuple[tuple[Tool, ...], tuple[str, ...], ToolChoice | None]:
    """The functions, the kinds of tools that only Amazon could be, and the choice of one."""
    config = fields(body.get("toolConfig") or {}, "toolConfig")
    tools: list[Tool] = []
    others: list[str] = []
    for n, raw in enumerate(items(config.get("tools"), "toolConfig.tools")):
        tool = fields(raw, f"toolConfig.tools[{n}]")
        if "toolSpec" not in tool:
            others.extend(name for name in tool if name != "cachePoint")
            continue
        path = f"toolConfig.tools[{n}].toolSpec"
        spec = fields(tool["toolSpec"], path)
        schema = fields(spec.get("inputSchema") or {}, f"{path}.inputSchema").get("json")
        tools.append(
            Tool(
                text(spec.get("name"), f"{path}.name"),
                str(spec.get("description") or ""),
                fields(schema or {"type": "object"}, f"{path}.inputSchema.json"),
            )
        )
    choice = fields(config.get("toolChoice") or {}, "toolConfig.toolChoice")
    found: ToolChoice | None = None
    if "tool" in choice:
        found = ToolChoice("tool", text(fields(choice["tool"]).get("name"), "toolChoice.tool.name"))
    elif "any" in choice:
        found = ToolChoice("required")
    elif "auto" in choice:
        found = ToolChoice("auto")
    if others and (not tools or (found is not None and found.mode in ("tool", "required"))):
        raise WireError(f"toolConfig: only toolSpec can be translated, not {others[0]!r}")
    return tuple(tools), tuple(others), found
