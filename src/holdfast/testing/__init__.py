"""What users test their workflows with: virtual time, injected failures, crashes.

>>> async def test_an_approval_that_never_comes_is_a_no():
...     async with Harness() as harness:
...         run = await start(refund, 900)
...         assert await run.result() == "declined"   # 24 hours later, at once
"""

from holdfast.testing.clock import VirtualClock
from holdfast.testing.harness import Harness, run_workflow

__all__ = ["Harness", "VirtualClock", "run_workflow"]
