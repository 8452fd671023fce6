"""The agent loop: a model that calls tools until it has an answer.

Plain outside a workflow, durable inside: each model call and each tool call is a step of its own.
Models are the gateway's, durability is the runtime's; what is here is the loop between them.
"""

from holdfast.loop.agent import Agent, run_agent, stream_agent
from holdfast.loop.agent_stream import (
    AgentStream,
    ReasoningPiece,
    StepFinished,
    TextPiece,
    ToolCalled,
    ToolFinished,
)
from holdfast.loop.approval_decisions import approval_token, decide, get_approval, list_approvals
from holdfast.loop.approvals import Decision, Escalate, approval
from holdfast.loop.mcp import McpServer
from holdfast.loop.plan import ModelOptions, StepPlan, has_called, repeating
from holdfast.loop.results import AgentResult, AgentStep, ToolRun
from holdfast.loop.tools import AgentTool, tool

__all__ = [
    "Agent",
    "AgentResult",
    "AgentStep",
    "AgentStream",
    "AgentTool",
    "Decision",
    "Escalate",
    "McpServer",
    "ModelOptions",
    "ReasoningPiece",
    "StepFinished",
    "StepPlan",
    "TextPiece",
    "ToolCalled",
    "ToolFinished",
    "ToolRun",
    "approval",
    "approval_token",
    "decide",
    "get_approval",
    "has_called",
    "list_approvals",
    "repeating",
    "run_agent",
    "stream_agent",
    "tool",
]
