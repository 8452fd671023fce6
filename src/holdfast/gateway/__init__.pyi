"""The public names of this package and where each is defined; `holdfast.lazy` reads this file."""

from holdfast.gateway.calls import (
    ReplyStream as ReplyStream,
    default_gateway as default_gateway,
    generate_text as generate_text,
    stream_text as stream_text,
    tagged as tagged,
    through as through,
    use_gateway as use_gateway,
)
from holdfast.gateway.config import Budget as Budget, GatewayConfig as GatewayConfig
from holdfast.gateway.gateway import Gateway as Gateway
from holdfast.gateway.hooks import Alert as Alert, Hook as Hook
from holdfast.gateway.keys import create_key as create_key
from holdfast.gateway.messages import (
    Citation as Citation,
    FilePart as FilePart,
    ImagePart as ImagePart,
    Message as Message,
    ProviderTool as ProviderTool,
    ReasoningPart as ReasoningPart,
    RefusalPart as RefusalPart,
    TextPart as TextPart,
    ToolCallPart as ToolCallPart,
    ToolResultPart as ToolResultPart,
    assistant as assistant,
    system as system,
    tool_result as tool_result,
    user as user,
)
from holdfast.gateway.reply import Reply as Reply, Usage as Usage
from holdfast.gateway.messages import Tool as Tool, ToolChoice as ToolChoice
from holdfast.gateway.scripted import Fail as Fail, Say as Say, ScriptedModel as ScriptedModel
from holdfast.gateway.service.app import GatewayApp as GatewayApp
from holdfast.gateway.calls import (
    ObjectReply as ObjectReply,
    generate_object as generate_object,
)
