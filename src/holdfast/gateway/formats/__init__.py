"""Wire formats: OpenAI chat and responses, Anthropic messages, Gemini, Bedrock Converse, Cohere.

Gemini's, Bedrock's and Cohere's are loaded when they are first asked for: most processes never do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.gateway.formats.anthropic import AnthropicFormat
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.chat import ChatFormat
from holdfast.gateway.formats.responses import ResponsesFormat
from holdfast.gateway.messages import Origin


class _Formats(Mapping[Origin, Format]):
    def __init__(self) -> None:
        self._loaded: dict[str, Format] = {
            "chat": ChatFormat(),
            "responses": ResponsesFormat(),
            "anthropic": AnthropicFormat(),
        }

    def __getitem__(self, name: Origin) -> Format:
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self._load(name)
        return found

    def _load(self, name: Origin) -> Format:
        if name == "gemini":
            from holdfast.gateway.formats.gemini import GeminiFormat

            return GeminiFormat()
        if name == "bedrock":
            from holdfast.gateway.formats.bedrock import BedrockFormat

            return BedrockFormat()
        if name == "cohere":
            from holdfast.gateway.formats.cohere import CohereFormat

            return CohereFormat()
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[Origin]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


_NAMES: tuple[Origin, ...] = ("chat", "responses", "anthropic", "gemini", "bedrock", "cohere")
FORMATS: Mapping[Origin, Format] = _Formats()
"""Every format by name."""
