"""A model that is down: the next in line answers, and every request is on record.

It prints:

    I am the spare.
    scripted/main: ProviderUnavailable
    scripted/spare: answered
"""

import asyncio

from holdfast.gateway import Fail, Gateway, GatewayConfig, ScriptedModel, generate_text
from holdfast.store import opener

# In holdfast.toml this is the section [gateway.aliases].
CONFIG = {"aliases": {"best": ["scripted/main", "scripted/spare"]}, "retries": {"attempts": 1}}


async def main() -> None:
    gateway = Gateway(GatewayConfig.from_dict(CONFIG), ledger=opener.ledger(":memory:"))
    with ScriptedModel("main", [Fail(529)]), ScriptedModel("spare", ["I am the spare."]):
        reply = await generate_text("best", prompt="Who are you?", gateway=gateway)
        print(reply.text)
        for attempt in reply.attempts:
            print(f"{attempt.provider}/{attempt.model}: {attempt.error or 'answered'}")
    await gateway.close()


if __name__ == "__main__":
    asyncio.run(main())
