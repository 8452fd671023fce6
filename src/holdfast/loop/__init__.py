"""The agent loop: a model that calls tools until it has an answer.

Plain outside a workflow, durable inside: each model call and each tool call is a step of its own.
Models are the gateway's, durability is the runtime's; what is here is the loop between them.
"""

from holdfast.loop.agent import Agent
from holdfast.loop.plan import ModelOptions, StepPlan, has_called
from holdfast.loop.results import AgentResult, AgentStep, ToolRun
from holdfast.loop.tools import AgentTool, tool

__all__ = [
    "Agent",
    "AgentResult",
    "AgentStep",
    "AgentTool",
    "ModelOptions",
    "StepPlan",
    "ToolRun",
    "has_called",
    "tool",
]
