"""A tool may answer with files: every format carries them, and an agent's tool may return one."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from gateway.support import make_gateway
from holdfast import Agent, start, tool, workflow
from holdfast.gateway import use_gateway
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Quirks
from holdfast.gateway.formats.json_fields import WireError
from holdfast.gateway.messages import (
    FilePart,
    ImagePart,
    Origin,
    Request,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    assistant,
    tool_result,
    user,
)
from holdfast.gateway.scripted import Say, ScriptedModel
from holdfast.testing import Harness

PDF = FilePart.of(b"%PDF-1.7", "application/pdf", "report.pdf")
PICTURE = ImagePart.of(b"png", "image/png")
ASKED = Request(
    "m",
    (
        user("read it"),
        assistant(ToolCallPart("c1", "fetch", "{}")),
        tool_result("c1", "here", PDF, PICTURE),
    ),
)
WITHIN = ("responses", "anthropic", "bedrock")
"""Formats whose tool results hold files; in the others they follow as what the user sent."""


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "cohere"])
def test_a_tools_file_reaches_every_format_and_comes_back(name: Origin) -> None:
    body = json.loads(json.dumps(FORMATS[name].encode_request(ASKED, Quirks())))
    decoded = FORMATS[name].decode_request({**body, "model": "m"})
    results = [p for m in decoded.messages for p in m.parts if isinstance(p, ToolResultPart)]
    [result] = results
    after = [p for m in decoded.messages for p in m.parts if isinstance(p, FilePart | ImagePart)]
    files = [part for part in result.content if not isinstance(part, TextPart)]
    assert result.text == "here"
    assert [part.data for part in (files if name in WITHIN else after)] == [PDF.data, PICTURE.data]
    assert not (after if name in WITHIN else files)


def test_cohere_has_no_files_and_says_so() -> None:
    with pytest.raises(WireError, match="cohere has none"):
        FORMATS["cohere"].encode_request(ASKED, Quirks())


def test_the_answer_is_valid_by_amazons_own_model() -> None:
    loaders: Any = importlib.import_module("botocore.loaders")
    models: Any = importlib.import_module("botocore.model")
    validate: Any = importlib.import_module("botocore.validate")
    described = loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    shape = models.ServiceModel(described).operation_model("Converse").input_shape
    body = FORMATS["bedrock"].encode_request(ASKED, Quirks())
    report = validate.ParamValidator().validate({"modelId": "m", **body}, shape)
    assert not report.has_errors(), report.generate_report()
    sound = Request("m", (tool_result("c1", FilePart.of(b"x", "audio/mpeg")),))
    with pytest.raises(WireError, match="recording"):
        FORMATS["bedrock"].encode_request(sound, Quirks())


def test_gemini_3s_own_way_of_sending_them_is_read() -> None:
    part = {"functionResponse": {"name": "fetch", "response": {"result": "here"}, "parts": [
        {"inlineData": {"mimeType": "application/pdf", "data": PDF.data}}]}}  # fmt: skip
    [message] = FORMATS["gemini"].decode_request({"contents": [{"parts": [part]}]}).messages
    [result] = message.parts
    assert isinstance(result, ToolResultPart)
    assert result.content == (
        TextPart("here"),
        FilePart(data=PDF.data, media_type="application/pdf"),
    )


@tool(idempotent=True)
async def fetch_report() -> FilePart:
    """The report."""
    return PDF


@workflow(name="tool-files.read")
async def read_report() -> str:
    return (await Agent("scripted/tool-files", "Read.", [fetch_report]).run("go")).output


async def test_an_agents_tool_may_return_a_file_through_the_journal(harness: Harness) -> None:
    use_gateway(make_gateway())
    try:
        with ScriptedModel("tool-files", [Say(tools=[("fetch_report", {})]), "read"]) as model:
            assert await (await start(read_report)).result() == "read"
    finally:
        use_gateway(None)
    parts = [part for message in model.requests[1].messages for part in message.parts]
    [result] = [part for part in parts if isinstance(part, ToolResultPart)]
    assert result.content == (PDF,)
