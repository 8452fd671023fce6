"""What chat completions and responses share: images, tools, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast.gateway.formats.base import Failure
from holdfast.gateway.formats.json_fields import Json, WireError, fields, text
from holdfast.gateway.formats.sse import event
from holdfast.gateway.messages import FilePart, ImagePart, OutputSchema, Tool, ToolChoice


def image_url(part: ImagePart) -> str:
    """The picture as one URL, as OpenAI's formats want it."""
    if part.data is not None:
        return f"data:{part.media_type or 'image/png'};base64,{part.data}"
    return part.url or ""


def image_from_url(url: str, detail: str | None = None) -> ImagePart:
    """A picture from a data URL or an address."""
    if not url.startswith("data:"):
        return ImagePart(url=url, detail=detail)
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        raise WireError("an image's data URL should be data:<media type>;base64,<data>")
    return ImagePart(data=data, media_type=head.removesuffix(";base64"), detail=detail)


def file_data(part: FilePart) -> str:
    """A file's bytes as one URL, as OpenAI's formats want them."""
    return f"data:{part.media_type or 'application/pdf'};base64,{part.data}"


def file_from_data(data: str, name: str | None) -> FilePart:
    """A file from a data URL, or from bare base64, which some clients send."""
    if not data.startswith("data:"):
        return FilePart(data=data, media_type="application/pdf", name=name)
    found = image_from_url(data)
    return FilePart(data=found.data, media_type=found.media_type, name=name)


_SOUND = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def sound_format(part: FilePart) -> str:
    """How a recording is called in `input_audio`."""
    media = part.media_type or ""
    return _SOUND.get(media, media.partition("/")[2])


def is_free(choice: object) -> bool:
    """Whether the model may choose its tools, or none."""
    return choice in (None, "auto", "none")


def decode_function(function: Json, path: str) -> Tool:
    return Tool(
        name=text(function.get("name"), f"{path}.name"),
        description=str(function.get("description") or ""),
        schema=function.get("parameters") or {"type": "object", "properties": {}},
        strict=function.get("strict"),
    )


def decode_choice(value: object, name: Callable[[Json], str]) -> ToolChoice | None:
    """A word, or the tool whose name `name` finds in the object."""
    if value is None:
        return None
    if value in ("auto", "none", "required"):
        return ToolChoice(value)
    return ToolChoice("tool", name(fields(value, "tool_choice")))


def encode_schema(output: OutputSchema) -> Json:
    return {"name": output.name, "schema": output.schema, "strict": output.strict}


def decode_output(value: object, path: str, schema: Callable[[Json], Json]) -> OutputSchema | None:
    """The wanted output at `path`; `schema` finds the object that holds its schema."""
    if value is None:
        return None
    wanted = fields(value, path)
    if wanted.get("type") == "json_object":
        return OutputSchema()
    if wanted.get("type") != "json_schema":
        return None
    found = schema(wanted)
    return OutputSchema(
        schema=found.get("schema"),
        name=str(found.get("name") or "output"),
        strict=bool(found.get("strict")),
    )


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


def encode(status: int, kind: str, message: str) -> Json:
    error = {"message": message, "type": _type(status), "param": None, "code": kind}
    return {"error": error}


def decode(body: Any) -> Failure | None:
    """The error in a body: OpenAI's, and the many shapes of those who follow it."""
    if not isinstance(body, dict):
        return None
    found = cast(Json, body)
    error = found.get("error")
    if isinstance(error, str):
        return Failure(error)
    if isinstance(error, dict):
        inner = cast(Json, error)
        code = inner.get("code") or inner.get("type")
        return Failure(
            str(inner.get("message") or inner),
            None if code is None else str(code),
            None if inner.get("type") is None else str(inner["type"]),
        )
    if found.get("object") == "error" or "message" in found:  # vLLM, Mistral
        return Failure(str(found.get("message")), str(found.get("type") or found.get("code") or ""))
    if "detail" in found:  # FastAPI servers
        return Failure(str(found["detail"]))
    return None


def stream_chat(status: int, kind: str, message: str) -> bytes:
    return event(encode(status, kind, message))


def stream_responses(status: int, kind: str, message: str) -> bytes:
    # `error` twice: the event as documented, and the object OpenAI's own clients look for.
    data = {
        "type": "error",
        "code": kind,
        "message": message,
        "param": None,
        "error": encode(status, kind, message)["error"],
    }
    return event(data, "error")


def _type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
