"""A tool-calling exchange with the scripted model: no key, no network.

It prints:

    I'll look. weather {'city': 'Oslo'}
    Take an umbrella.
"""

from __future__ import annotations

import asyncio

from holdfast.gateway import Say, ScriptedModel, generate_text, stream_text, tool_result, user


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


async def main() -> None:
    script = [Say("I'll look.", tools=[("weather", {"city": "Oslo"})]), "Take an umbrella."]
    with ScriptedModel("demo", script):
        history = [user("Do I need an umbrella in Oslo?")]
        first = await generate_text("scripted/demo", messages=history, tools=[weather])
        call = first.tool_calls[0]
        print(first.text, call.name, call.input)
        history += [first.message, tool_result(call.id, weather(**call.input))]
        async with stream_text("scripted/demo", messages=history, tools=[weather]) as stream:
            async for piece in stream:
                print(piece, end="", flush=True)
        print()


asyncio.run(main())
