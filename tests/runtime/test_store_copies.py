"""A harness that begins with a copy of a store."""

from pathlib import Path

from holdfast import sleep, start, step, workflow
from holdfast.runtime.client import get_run
from holdfast.testing import Harness

done: list[str] = []


@step
async def copied_step(word: str) -> str:
    done.append(word)
    return word


@workflow
async def copied_flow() -> list[str]:
    first = await copied_step("first")
    await sleep("3d")
    return [first, await copied_step("second")]


async def test_a_run_goes_on_from_a_copy_and_the_copy_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    done.clear()
    async with Harness() as harness:
        run = await start(copied_flow)
        await harness.skip("2d")
        harness.save(file)
        began = harness.clock.now()
    before = file.read_bytes()
    for _ in range(2):
        async with Harness(copy_of=file) as harness:
            assert harness.clock.now() <= began
            again = await get_run(run.id)
            assert await again.result() == ["first", "second"]
            assert harness.clock.now() >= began + 86400
    assert done == ["first", "second", "second"]
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["copy.db"]
