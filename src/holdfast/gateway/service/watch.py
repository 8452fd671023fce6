"""Reading along with a raw stream: usage, end and errors, without decoding every event.

Only events that may tell something are parsed; the bytes go on to the client untouched. The one
exception is the usage chunk of chat completions that we asked for and the client did not.
"""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.errors import BadReply
from holdfast.gateway.formats import FORMATS, chat_usage
from holdfast.gateway.formats.anthropic_stream import decode_stop
from holdfast.gateway.formats.anthropic_stream import decode_usage as anthropic_usage
from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.chat_stream import decode_finish
from holdfast.gateway.formats.responses_stream import decode_finish as responses_finish
from holdfast.gateway.formats.sse import SseParser
from holdfast.gateway.formats.wire import Json, WireError, fields, items
from holdfast.gateway.messages import Origin
from holdfast.gateway.meter import Meter
from holdfast.gateway.upstream import mid_stream

_TELLING = {
    "chat": re.compile(rb'"finish_reason"\s*:\s*"|"usage"\s*:\s*\{|"error"|"object"\s*:\s*"error"'),
    "anthropic": re.compile(rb'"message_(?:start|delta|stop)"|"error"'),
    "responses": re.compile(rb'"response\.(?:created|completed|incomplete|failed)"|"error"'),
}


class Watch:
    """Follows one raw stream."""

    def __init__(
        self, format: Origin, provider: str, meter: Meter, max_event: int, *, hide_usage: bool
    ) -> None:
        self._format: Origin = format
        self._provider, self._meter = provider, meter
        self._telling = _TELLING[format]
        self._parser = SseParser(max_event)
        self._hide = hide_usage
        self._usage: Json = {}
        self._finished = False
        self.whole = False
        """The end mark has come."""

    def feed(self, chunk: bytes) -> bytes:
        """What to hand on of this chunk; raises for an error event, after it was noted."""
        hidden = False
        try:
            for data in self._parser.feed(chunk):
                if self._telling.search(data):
                    hidden = self._told(data) or hidden
                elif data.strip() == b"[DONE]":
                    self.whole = self._finished
                else:
                    self._meter.token(len(data) // 8)  # most of a delta event is wrapping
        except WireError as error:
            raise BadReply(f"{self._provider}'s stream can't be read: {error}", bought=True) from (
                error
            )
        return _without_usage(chunk) if hidden else chunk

    def _told(self, data: bytes) -> bool:
        """Take note of an event; True for the usage chunk that the client did not ask for."""
        try:
            event = fields(json.loads(data), "event")
        except (ValueError, RecursionError) as error:
            raise BadReply(f"{self._provider}'s stream holds broken JSON", bought=True) from error
        match self._format:
            case "chat":
                return self._chat(event)
            case "anthropic":
                self._anthropic(event)
            case "responses":
                self._responses(event)
        return False

    def _chat(self, event: Json) -> bool:
        if event.get("error") or event.get("object") == "error":
            self._fail(event)
        self._meter.model = event.get("model") or self._meter.model
        usage = chat_usage.decode_usage(event.get("usage"))
        if usage:
            self._meter.usage = usage
        choices = items(event.get("choices"), "choices")
        for raw in choices:
            finish = fields(raw, "choices").get("finish_reason")
            if finish:
                self._meter.finish = decode_finish(str(finish))
                self._finished = True
        return bool(usage and not choices and self._hide)

    def _anthropic(self, event: Json) -> None:
        match event.get("type"):
            case "message_start":
                message = fields(event.get("message"), "message")
                self._usage = dict(fields(message.get("usage") or {}))
                self._meter.model = message.get("model")
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
            case _:
                self._meter.token(1)
        self._meter.usage = anthropic_usage(self._usage) or self._meter.usage

    def _responses(self, event: Json) -> None:
        kind = event.get("type")
        if kind in ("response.completed", "response.incomplete"):
            response = fields(event.get("response"), "response")
            self._meter.usage = FORMATS["responses"].decode_usage(response)
            self._meter.finish = responses_finish(response, ())
            self.whole = True
        elif kind == "response.created":
            self._meter.model = fields(event.get("response"), "response").get("model")
        elif kind == "response.failed":
            self._fail(fields(event.get("response"), "response"))
        elif kind == "error":
            self._fail(event)
        else:
            self._meter.token(1)

    def _fail(self, event: Any) -> None:
        failure = FORMATS[self._format].decode_failure(event) or Failure("an error without words")
        raise mid_stream(self._provider, StreamFailure(failure))

    def close(self) -> None:
        """The stream has ended; raises BadReply if the answer is not whole."""
        if not self.whole and not (self._format == "chat" and self._finished):
            raise BadReply(f"{self._provider}'s stream was cut", bought=True)


def _without_usage(chunk: bytes) -> bytes:
    """The chunk without its usage event; that event has no choices."""
    kept: list[bytes] = []
    for piece in chunk.split(b"\n\n"):
        data = piece.strip()
        if data.startswith(b"data:") and b'"usage"' in data:
            try:
                event = fields(json.loads(data[5:]))
            except (ValueError, WireError):
                event = {"choices": True}
            if not event.get("choices"):
                continue
        kept.append(piece)
    return b"\n\n".join(kept)
