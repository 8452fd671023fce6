"""The gateway: any model by one string, every call on record, never over budget.

Names are loaded when they are first used, so that importing this costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.gateway.calls import (
        ReplyStream,
        default_gateway,
        generate_text,
        stream_text,
        tagged,
        through,
        use_gateway,
    )
    from holdfast.gateway.config import Budget, GatewayConfig
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.keys import create_key
    from holdfast.gateway.messages import (
        ImagePart,
        Message,
        ReasoningPart,
        RefusalPart,
        TextPart,
        ToolCallPart,
        ToolResultPart,
        assistant,
        system,
        tool_result,
        user,
    )
    from holdfast.gateway.reply import Reply, Usage
    from holdfast.gateway.request import Tool, ToolChoice
    from holdfast.gateway.scripted import Fail, Say, ScriptedModel
    from holdfast.gateway.service.app import GatewayApp
    from holdfast.gateway.structured_output import ObjectReply, generate_object

_HOMES = {
    "calls": ("ReplyStream", "default_gateway", "generate_text", "stream_text", "tagged", "through",
              "use_gateway"),
    "config": ("Budget", "GatewayConfig"),
    "gateway": ("Gateway",),
    "keys": ("create_key",),
    "messages": ("ImagePart", "Message", "ReasoningPart", "RefusalPart", "TextPart",
                 "ToolCallPart", "ToolResultPart", "assistant", "system", "tool_result", "user"),
    "structured_output": ("ObjectReply", "generate_object"),
    "reply": ("Reply", "Usage"),
    "request": ("Tool", "ToolChoice"),
    "scripted": ("Fail", "Say", "ScriptedModel"),
    "service.app": ("GatewayApp",),
}  # fmt: skip
__all__ = [
    "Budget", "Fail", "Gateway", "GatewayApp", "GatewayConfig", "ImagePart", "Message",
    "ObjectReply", "ReasoningPart", "RefusalPart", "Reply", "ReplyStream", "Say",
    "ScriptedModel", "TextPart", "Tool", "ToolCallPart", "ToolChoice", "ToolResultPart", "Usage",
    "assistant", "create_key", "default_gateway", "generate_object", "generate_text",
    "stream_text", "system", "tagged", "through", "tool_result", "use_gateway", "user",
]  # fmt: skip

__getattr__ = lazily(__name__, _HOMES)
