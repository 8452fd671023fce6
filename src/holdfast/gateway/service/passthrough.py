"""Reading along with a raw stream: usage, end and errors, without translating it.

Only whole events that can be read go on to the client, with their bytes untouched. The one
exception is the usage chunk of chat completions that we asked for and the client did not.
"""

from __future__ import annotations

from typing import Any

from holdfast import json_text
from holdfast.errors import BadReply, ProviderError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.formats import FORMATS, chat_messages
from holdfast.gateway.formats.anthropic_messages import decode_stop
from holdfast.gateway.formats.anthropic_messages import decode_usage as anthropic_usage
from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.chat_messages import content_pieces, decode_finish
from holdfast.gateway.formats.json_fields import Json, WireError, fields, items
from holdfast.gateway.formats.responses_items import decode_finish as responses_finish
from holdfast.gateway.messages import Origin
from holdfast.gateway.upstream import mid_stream

_DECODED = ("gemini", "bedrock", "cohere")


class Passthrough:
    """Follows one raw stream."""

    def __init__(
        self, format: Origin, provider: str, meter: Meter, max_event: int, *, hide_usage: bool
    ) -> None:
        self._format: Origin = format
        self._provider, self._meter, self._max = provider, meter, max_event
        self._parser = FORMATS[format].framing(max_event)
        self._decoder = FORMATS[format].decoder() if format in _DECODED else None
        self._rest = b""
        self._hide = hide_usage
        self._usage: Json = {}
        self._finished = False
        self.whole = False
        """The end mark has come."""
        self.failed: bytes = b""
        """The provider's own error event, for the client to see."""

    def feed(self, chunk: bytes) -> bytes:
        """The whole events there are now, to be handed on; raises for one that is no good."""
        data = self._rest + chunk
        try:
            end = self._parser.whole(data)
        except WireError as error:
            raise self._bad(f"can't be read: {error}") from error
        self._rest = data[end:]
        if len(self._rest) > self._max:
            raise self._bad(f"has an event of over {self._max} bytes")
        events = data[:end]
        hidden = False
        try:
            if self._format != "bedrock":  # whose frames are binary, and have checksums
                events.decode("utf-8")
            for one in self._parser.feed(events):
                hidden = self._event(one) or hidden
        except UnicodeDecodeError as error:
            raise self._bad("is not valid UTF-8") from error
        except ProviderError as error:
            if not isinstance(error, BadReply):
                self.failed = events
            raise
        except Exception as error:  # whatever it sent, it is the provider's fault
            why = str(error) if isinstance(error, WireError) else repr(error)
            raise self._bad(f"can't be read: {why}") from error
        return _without_usage(events) if hidden else events

    def _event(self, data: bytes) -> bool:
        """Take note of an event; True for the usage chunk that the client did not ask for."""
        if data.strip() == b"[DONE]":
            if self._format == "chat":
                if not self._finished:
                    raise self._bad("was cut: it is done, but not finished")
                self.whole = True
            return False  # the others have an end of their own; some servers add this one
        try:
            loaded = json_text.load(data)
        except (ValueError, RecursionError) as error:
            raise self._bad("holds broken JSON") from error
        event = fields(loaded, "event")
        match self._format:
            case "chat":
                return self._chat(event)
            case "anthropic":
                self._anthropic(event)
            case "responses":
                self._responses(event)
            case _:
                self._decoded(event)
        return False

    def _decoded(self, event: Json) -> None:
        assert self._decoder is not None
        try:
            for one in self._decoder.feed(event):
                self._meter.note(one)
        except StreamFailure as failure:
            raise mid_stream(self._provider, failure) from failure
        self.whole = self._decoder.last

    def _said(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._meter.token(len(text.encode("utf-8", "surrogatepass")))

    def _serves(self, model: object) -> None:
        if isinstance(model, str) and model:
            self._meter.model = model

    def _bad(self, what: str) -> BadReply:
        return BadReply(f"{self._provider}'s stream {what}", bought=True)

    def _chat(self, event: Json) -> bool:
        if event.get("error") or event.get("object") == "error":
            self._fail(event)
        self._serves(event.get("model"))
        usage = chat_messages.decode_usage(event.get("usage"))
        if usage:
            self._meter.usage = usage
        choices = items(event.get("choices"), "choices")
        for raw in choices:
            choice = fields(raw, "choices")
            self._chat_delta(fields(choice.get("delta") or {}, "delta"))
            finish = choice.get("finish_reason")
            if finish:
                self._meter.finish = decode_finish(str(finish))
                self._finished = True
        return bool(usage and not choices and self._hide)

    def _chat_delta(self, delta: Json) -> None:
        for name in ("content", "reasoning_content", "reasoning", "refusal"):
            self._said(delta.get(name))
        if isinstance(delta.get("content"), list):
            for _, words in content_pieces(delta["content"], "content"):
                self._said(words)
        for raw in items(delta.get("tool_calls"), "tool_calls"):
            self._said(fields(fields(raw).get("function") or {}).get("arguments"))

    def _anthropic(self, event: Json) -> None:
        match event.get("type"):
            case "message_start":
                message = fields(event.get("message"), "message")
                self._usage = dict(fields(message.get("usage") or {}))
                self._meter.model = ""
                self._serves(message.get("model"))
            case "message_delta":
                late = fields(event.get("usage") or {})
                self._usage.update({k: v for k, v in late.items() if v is not None})
                stop = fields(event.get("delta") or {}).get("stop_reason")
                if stop:
                    self._meter.finish = decode_stop(str(stop))
            case "message_stop":
                self.whole = self._meter.finish is not None
            case "error":
                self._fail(event)
            case "content_block_start" if self._meter.model is None:
                raise self._bad("has a block before its message_start")
            case "content_block_delta":
                delta = fields(event.get("delta"), "delta")
                for name in ("text", "partial_json", "thinking"):
                    self._said(delta.get(name))
            case _:
                pass
        self._meter.usage = anthropic_usage(self._usage) or self._meter.usage

    def _responses(self, event: Json) -> None:
        kind = event.get("type")
        if kind in ("response.completed", "response.incomplete"):
            response = fields(event.get("response"), "response")
            self._meter.usage = FORMATS["responses"].decode_usage(response)
            self._meter.finish = responses_finish(response, ())
            self.whole = True
        elif kind == "response.created":
            self._serves(fields(event.get("response"), "response").get("model"))
        elif kind == "response.failed":
            self._fail(fields(event.get("response"), "response"))
        elif kind == "error":
            self._fail(event)
        else:
            self._said(event.get("delta"))

    def _fail(self, event: Any) -> None:
        failure = FORMATS[self._format].decode_failure(event) or Failure("an error without words")
        raise mid_stream(self._provider, StreamFailure(failure))

    def close(self) -> None:
        """The stream has ended; raises BadReply if the answer is not whole."""
        if self._decoder is not None:
            try:
                for one in self._decoder.close():
                    self._meter.note(one)
            except WireError as error:
                raise self._bad(f"was cut: {error}") from error
            if self._rest.strip():
                raise self._bad("was cut within an event")
            return
        if not self.whole and not (self._format == "chat" and self._finished):
            raise self._bad("was cut")


def _without_usage(chunk: bytes) -> bytes:
    """The chunk without its usage event; that event has no choices."""
    kept: list[bytes] = []
    for piece in chunk.split(b"\n\n"):
        data = piece.strip()
        if data.startswith(b"data:") and b'"usage"' in data:
            try:
                event = fields(json_text.load(data[5:]))
            except (ValueError, WireError):
                event = {"choices": True}
            if not event.get("choices"):
                continue
        kept.append(piece)
    return b"\n\n".join(kept)
