"""What a run knows about itself, in its body and in its steps, also after retries and forks."""

from datetime import timedelta

import pytest

from holdfast import (
    FatalError,
    NotInWorkflow,
    RunFailed,
    now,
    run_context,
    set_attributes,
    sleep,
    start,
    step,
    step_context,
    workflow,
)
from holdfast.testing import Harness

broken = [True]


@pytest.fixture(autouse=True)
def break_again() -> None:
    broken[0] = True


@step(retries=0)
async def note(what: str) -> str:
    return what


@step(retries=0)
async def mended_later(seen: int) -> int:
    if broken[0]:
        raise FatalError("broken")
    return run_context().attempt


async def test_a_body_knows_its_run(harness: Harness):
    @workflow
    async def known() -> list[object]:
        context = run_context()
        assert context.started_at == now()
        assert context.created_at <= context.started_at
        await sleep("2h")
        assert run_context().started_at == now() - timedelta(hours=2)
        return [
            context.id,
            context.workflow,
            context.attempt,
            context.key,
            dict(context.attributes),
        ]

    run = await start(known.options(key="k", attributes={"team": "a"}))
    assert await run.result() == [run.id, "known", 1, "k", {"team": "a"}]


async def test_attributes_are_those_set_so_far_also_on_replay(harness: Harness):
    @workflow
    async def tagged() -> list[str]:
        seen = [await note(str(sorted(run_context().attributes.items())))]
        set_attributes(team=None, place="here")
        seen.append(await note(str(sorted(run_context().attributes.items()))))
        await sleep("1h")
        return [*seen, await note(str(sorted(run_context().attributes.items())))]

    run = await start(tagged.options(attributes={"team": "a"}))
    await harness.skip("30m")
    await harness.crash()
    after = "[('place', 'here')]"
    assert await run.result() == ["[('team', 'a')]", after, after]


async def test_a_child_knows_its_parent(harness: Harness):
    @workflow
    async def child() -> str | None:
        return run_context().parent_id

    @workflow
    async def parent() -> list[str | None]:
        started = await start(child)
        return [await child(), await started.result(), run_context().parent_id]

    run = await start(parent)
    assert await run.result() == [run.id, run.id, None]


async def test_a_step_knows_its_run(harness: Harness):
    @step
    async def look() -> list[str]:
        set_in_step = step_context().run
        assert set_in_step is run_context()
        return [run_context().id, run_context().workflow, *run_context().attributes]

    @step
    def look_from_a_thread() -> str:
        return run_context().id

    @workflow
    async def flow() -> list[str]:
        set_attributes(before=1)
        found = [*await look(), await look_from_a_thread()]
        set_attributes(later=1)
        return found

    run = await start(flow)
    assert await run.result() == [run.id, "flow", "before", run.id]


async def test_a_retry_counts_as_an_attempt_from_where_the_run_had_failed(harness: Harness):
    @workflow
    async def flow() -> list[int]:
        before = int(await note(str(run_context().attempt)))
        inside = await mended_later(run_context().attempt)
        return [before, inside, int(await note(str(run_context().attempt)))]

    run = await start(flow)
    for still_broken in (True, False):
        with pytest.raises(RunFailed):
            await run.result()
        broken[0] = still_broken
        await run.retry()
    # What was recorded before the failure was recorded by the first attempt, and stays so.
    assert await run.result() == [1, 3, 3]


async def test_a_run_that_failed_before_it_did_anything_begins_its_next_attempt_as_such(
    harness: Harness,
):
    @workflow
    async def flow() -> int:
        if run_context().attempt < 3:
            raise FatalError("not yet")
        return run_context().attempt

    run = await start(flow)
    for _ in range(2):
        with pytest.raises(RunFailed):
            await run.result()
        await run.retry()
    assert await run.result() == 3


async def test_a_worker_that_dies_is_no_attempt(harness: Harness):
    @workflow
    async def flow() -> int:
        await sleep("1h")
        return run_context().attempt

    run = await start(flow)
    await harness.skip("30m")
    await harness.crash()
    assert await run.result() == 1


@pytest.mark.parametrize("edit", [{}, {"input": {"what": "edited"}}, {"result": "replaced"}])
async def test_a_fork_is_itself_from_where_it_leaves_the_other(
    harness: Harness, edit: dict[str, object]
):
    @workflow
    async def flow() -> list[str]:
        first = await note(run_context().id)
        second = await note(run_context().id)
        await sleep("1h")
        return [first, second, await note(run_context().id), run_context().key or "no key"]

    run = await start(flow.options(key="k"))
    assert await run.result() == [run.id, run.id, run.id, "k"]
    for step_key in ("0/1", "0/2"):
        fork = await run.fork(step_key, **edit)  # type: ignore[arg-type]
        taken_over = [run.id] if step_key == "0/2" else []
        changed = [str(value if isinstance(value, str) else "edited") for value in edit.values()]
        own = [*(changed or [fork.id]), *[fork.id] * (1 - len(taken_over))]
        assert await fork.result() == [*taken_over, *own, fork.id, "no key"]
        again = await fork.fork("0/4")
        assert await again.result() == [*taken_over, *own, again.id, "no key"]


async def test_a_fork_from_the_beginning_is_itself_at_once(harness: Harness):
    @workflow
    async def flow(number: int) -> str:
        return await note(f"{run_context().id} {number}")

    run = await start(flow, 1)
    await run.result()
    fork = await run.fork(input={"number": 2})
    assert await fork.result() == f"{fork.id} 2"


def test_there_is_no_run_outside_of_one():
    with pytest.raises(NotInWorkflow):
        run_context()
