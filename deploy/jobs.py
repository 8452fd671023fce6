"""Workflows for the deployment examples: put your own here."""

from holdfast import cron, step, workflow


@step
async def greet(name: str) -> str:
    return f"hello {name}"


@workflow
async def hello(name: str = "world") -> str:
    """Says hello, in a step."""
    return await greet(name)


@workflow(schedule=cron("0 7 * * MON-FRI", tz="Europe/Berlin"))
async def good_morning() -> str:
    """Starts by itself on working days."""
    return await greet("everybody")
