"""Wait for a person, with a limit, and go to the next in line when nobody answers.

It prints:

    asked of the team on call: Deploy 2.0
    asked of the head of engineering: Deploy 2.0
    deployed, approved by grace: after the demo
"""

import asyncio

from holdfast import Escalate, approval, decide, list_approvals, start, step, workflow
from holdfast.testing import Harness


@step
async def roll_out(version: str) -> str:
    return "deployed"


@workflow
async def deploy(version: str) -> str:
    decision = await approval(
        f"Deploy {version}",
        to="the team on call",
        timeout="1h",
        fallback=Escalate("the head of engineering", timeout="4h"),
    )
    if not decision:
        return f"not deployed: {decision.status}"
    return f"{await roll_out(version)}, approved by {decision.by}: {decision.note}"


async def show() -> str:
    [asked] = await list_approvals()
    print(f"asked of {asked.asked_of}: {asked.title}")
    return asked.id


async def main() -> None:
    async with Harness() as harness:
        run = await start(deploy, "2.0")
        await harness.until_blocked()
        await show()
        await harness.skip("2h")
        # For real: `holdfast approvals approve ID`, the inspector, or a signed link.
        await decide(await show(), True, by="grace", note="after the demo")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
