"""A run and its steps in words: the lines that `show`, `watch` and `start` print."""

from __future__ import annotations

from holdfast.cli.output import duration, moment, plain, short
from holdfast.records import ErrorInfo, Event, Run, Step
from holdfast.records.live import ANSWER, UPDATE


def step_name(step: Step) -> str:
    """What a step is called: the function's name, or what is waited for."""
    if step.kind == "wait" and step.name.startswith("@run/"):
        return f"end of {step.name.removeprefix('@run/')}"
    if step.kind == "wait" and step.name.startswith("@webhook/"):
        return "webhook called"
    if step.kind == "wait" and step.name.startswith(UPDATE):
        return f"update {plain(step.name.removeprefix(UPDATE))}"
    if step.kind == "wait" and step.name.startswith(ANSWER):
        return f"answer of {step.name.removeprefix(ANSWER).partition('/')[0]}"
    prefix = {"wait": "event ", "child": "run of "}.get(step.kind, "")
    return prefix + plain(step.name)


def outcome(step: Step, width: int) -> str:
    """What came of a step, in a few words."""
    words: list[str] = []
    if step.attempts > 1:
        words.append(f"attempt {step.attempts}")
    if step.status in ("timed out", "cancelled"):
        words.append(step.status)
    if step.error is not None:
        words.append(short(str(step.error), width))
    elif step.output not in (None, b"null"):
        words.append(short((step.output or b"").decode(), width))
    return "  ".join(words)


def header(run: Run, journal: list[Event], now: float) -> list[tuple[str, str]]:
    """What there is to say about a run as a whole, as name and text."""
    facts = [("run", run.id), ("workflow", f"{run.workflow} (version {run.version})")]
    facts.append(("status", run.status + _since(run, now)))
    optional = {
        "key": run.key,
        "parent": run.parent_id,
        "forked from": run.forked_from,
        "continues": run.continued_from,
        "went on as": run.continued_as,
        "worker": run.owner,
        "due": moment(run.due_at) if run.due_at and run.due_at > now else None,
        "deadline": moment(run.deadline) if run.deadline and not run.ended else None,
        "attributes": ", ".join(f"{name}={value}" for name, value in run.attributes.items()),
    }
    facts.append(("created", moment(run.created_at)))
    facts += [(name, text) for name, text in optional.items() if text]
    facts.append(("input", (journal[0].value or b"{}").decode()))
    result = result_of(run, journal)
    if result is not None:
        facts.append(("result", result.decode()))
    return facts


def _since(run: Run, now: float) -> str:
    if run.started_at is None:
        return ""
    if run.finished_at is not None:
        return f" after {duration(run.finished_at - run.started_at)}"
    return f", begun {duration(now - run.started_at)} ago"


def result_of(run: Run, journal: list[Event]) -> bytes | None:
    """The run's result as JSON, once it has completed."""
    return journal[-1].value or b"null" if run.status == "completed" else None


def failure_of(run: Run, journal: list[Event]) -> ErrorInfo | None:
    """The error a run failed with or is stuck on."""
    if run.status not in ("failed", "stuck"):
        return None
    error = journal[-1].facts.get("error")
    return ErrorInfo.from_json(error) if error else None


def hint_for(run: Run, journal: list[Event]) -> str | None:
    """What to do about a run that needs somebody."""
    actions = {
        "failed": f"holdfast runs retry {run.id} goes on from where it failed",
        "stuck": f"holdfast runs resume {run.id} tries again, once the code fits the journal",
        "paused": f"holdfast runs resume {run.id} lets it go on",
    }
    action = actions.get(run.status)
    failure = failure_of(run, journal)
    own = None if failure is None else failure.hint
    return f"{own}; {action}" if own else action


def origins(failure: ErrorInfo) -> list[str]:
    """What an error came from, a line each: its causes, its context, a group's members."""
    found: list[str] = []
    for depth, relation, error in failure.origins():
        indent = "  " * depth
        found.append(f"{indent}{relation} {short(str(error), 200)}")
        found += [f"{indent}  note: {short(note, 200)}" for note in error.notes]
    return found


def innermost(traceback: str) -> list[str]:
    """The end of a traceback: the line of code that raised, and the error."""
    lines = traceback.rstrip().splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith('  File "')]
    return lines[places[-1] :] if places else lines[-1:]
