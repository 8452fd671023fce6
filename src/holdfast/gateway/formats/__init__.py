"""Wire formats: OpenAI chat completions, OpenAI responses, Anthropic messages."""

from __future__ import annotations

from holdfast.gateway.formats.anthropic import AnthropicFormat
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.chat import ChatFormat
from holdfast.gateway.formats.responses import ResponsesFormat
from holdfast.gateway.messages import Origin

FORMATS: dict[Origin, Format] = {
    "chat": ChatFormat(),
    "responses": ResponsesFormat(),
    "anthropic": AnthropicFormat(),
}
"""Every format by name."""
