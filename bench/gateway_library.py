"""CPU of one library call: `python gateway_library.py WHO URL CALLS`, in whichever venv has WHO.

Prints JSON: microseconds of this process's CPU per call, and of wall time per call, one after
the other.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

PROMPT = "Why is the sky blue? Answer in a few sentences."
Call = Callable[[], Awaitable[Any]]


def ours(url: str, store: str) -> Call:
    from holdfast.gateway.calls import generate_text
    from holdfast.gateway.config import GatewayConfig
    from holdfast.gateway.gateway import Gateway
    from holdfast.store.sqlite.ledger import SqliteLedger

    config = GatewayConfig.from_dict({"providers": {"bench": {"base_url": url, "free": True}}})
    gateway = Gateway(config, ledger=SqliteLedger(store))

    async def call() -> str:
        return (await generate_text("bench/bench", prompt=PROMPT, gateway=gateway)).text

    return call


def openai_sdk(url: str) -> Call:
    import openai

    client = openai.AsyncOpenAI(base_url=url, api_key="k")

    async def call() -> Any:
        return await client.chat.completions.create(
            model="bench", messages=[{"role": "user", "content": PROMPT}]
        )

    return call


def aiohttp_alone(url: str) -> Call:
    """The same bytes by aiohttp, and nothing else done: no record, no budget, no types."""
    import aiohttp

    body = json.dumps({"model": "bench", "messages": [{"role": "user", "content": PROMPT}]})
    headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
    sessions: list[aiohttp.ClientSession] = []

    async def call() -> Any:
        if not sessions:
            sessions.append(aiohttp.ClientSession(headers=headers))
        async with sessions[0].post(f"{url}/chat/completions", data=body) as reply:
            return json.loads(await reply.read())["choices"][0]["message"]["content"]

    return call


def pydantic_ai(url: str) -> Call:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    agent = Agent(OpenAIChatModel("bench", provider=OpenAIProvider(base_url=url, api_key="k")))

    async def call() -> Any:
        return (await agent.run(PROMPT)).output

    return call


def litellm(url: str) -> Call:
    import litellm as library

    async def call() -> Any:
        return await library.acompletion(
            model="openai/bench", api_base=url, api_key="k",
            messages=[{"role": "user", "content": PROMPT}],
        )  # fmt: skip

    return call


async def main(who: str, url: str, calls: int) -> None:
    makers = {
        "openai": openai_sdk,
        "aiohttp": aiohttp_alone,
        "pydantic-ai": pydantic_ai,
        "litellm": litellm,
    }
    if who.startswith("ours"):
        call = ours(url, who.partition(":")[2] or ":memory:")
    else:
        call = makers[who](url)
    for _ in range(50):
        await call()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        await call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"cpu_us": cpu / calls * 1e6, "wall_us": wall / calls * 1e6}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    import os

    sys.stdout.flush()
    os._exit(0)  # some of them leave threads and sessions behind
