"""The 28 points of `holdfast doctor`: what each asks, what proves it, and what came of it.

A point is looked at in up to three tiers: S (the code and the configuration, nothing is carried
out), R (what the store has on record) and D (a drill on a throw-away store). A point reads `pass`
only if a tier that proves it was carried out and found nothing wrong; otherwise it is
`not exercised`, however good the rest looks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Tier = Literal["S", "R", "D"]
Verdict = Literal["pass", "fail", "warn", "not exercised", "n/a", "waived"]
Outcome = Literal["pass", "fail", "warn", "n/a", "not exercised"]
"""What one look in one tier can find."""
TIERS: tuple[Tier, ...] = get_args(Tier)
TIER_WORDS: Mapping[Tier, str] = {"S": "static", "R": "store", "D": "drill"}
BLUEPRINT = "blueprint"
"""Asked for in place of a tier: the picture of the project."""
DOCS = "docs/reference/doctor.md"
"""The page with an anchor for each point."""


@dataclass(frozen=True, slots=True)
class Point:
    """One of the 28."""

    id: str
    title: str
    tiers: str
    """The tiers in which it is looked at."""
    proof: str
    """The tiers of which one must have found nothing wrong for the point to be proven."""
    fix: str
    """What to do if it fails, in one line."""

    @property
    def link(self) -> str:
        return f"{DOCS}#{self.id.lower()}"


POINTS: tuple[Point, ...] = (
    Point("HF01", "signatures can be stored", "S", "S",
          "annotate with types JSON can carry: dataclasses, pydantic models, plain values"),
    Point("HF02", "round trips are equal", "RD", "RD",
          "make validators and __post_init__ leave a stored value as it is"),
    Point("HF03", "no live objects captured", "S", "S",
          "make connections, locks and clients inside a step, not around a workflow body"),
    Point("HF04", "bodies are deterministic", "SD", "SD",
          "use holdfast.now(), random(), uuid4(), or put it into a @step"),
    Point("HF05", "payload sizes", "R", "R",
          "keep large data in files or object storage and pass a reference"),
    Point("HF06", "every step has a deadline", "SR", "S",
          'give it one: @step(timeout="2m"), @workflow(step_timeout=…) or [runtime] step_timeout'),
    Point("HF07", "waits have a limit and a fallback", "SRD", "SD",
          "test what the wait returned: TimedOut is false, and needs a branch of its own"),
    Point("HF08", "loops are bounded", "SD", "SD",
          "bound the loop, the agent's max_steps, and what a run may spend ([[gateway.budgets]])"),
    Point("HF09", "model calls: time-out, retry, fallback", "SRD", "SD",
          "name a fallback for each model in [gateway.fallbacks], and keep retries and time-outs"),
    Point("HF10", "runs have a deadline", "SR", "S",
          'give each workflow one: @workflow(timeout="2d")'),
    Point("HF11", "sandboxes are made under teardown", "SR", "S",
          "make them in `async with await Sandbox.create(…)`, or stop them in a finally"),
    Point("HF12", "no orphan after a kill", "RD", "D",
          "`holdfast sandbox list` names what is left; run workers with their own cgroup"),
    Point("HF13", "limits bite", "D", "D",
          "ask for less than the machine has, and see what `holdfast sandbox doctor` says"),
    Point("HF14", "egress denied", "SRD", "SD",
          "allow single hosts, and name them in [project] egress"),
    Point("HF15", "no secret inside", "SD", "SD",
          "let the network rule add the header: AllowedHost(…, headers={…}) keeps it outside"),
    Point("HF16", "the boundary asked for, the same for n at once", "SRD", "SD",
          "set [sandbox] min_isolation in the production profile"),
    Point("HF17", "tools with side effects declare themselves", "S", "S",
          "say @tool(idempotent=False), or True if doing it twice is the same as doing it once"),
    Point("HF18", "twice is once", "SD", "D",
          "hand step_context().idempotency_key to whoever must not act twice"),
    Point("HF19", "approvals are bound to arguments", "SD", "D",
          'let somebody agree first: @tool(needs_approval=…, approval_timeout="24h")'),
    Point("HF20", "keyed start is atomic", "SRD", "D",
          "start with a key: start(workflow.options(key=…), …)"),
    Point("HF21", "everything leaves a record", "SRD", "SD",
          "call models through the gateway: by holdfast's functions, or its address as base_url"),
    Point("HF22", "failures reach a person", "SRD", "SD",
          "give each workflow an on_failure handler that tells somebody"),
    Point("HF23", "redaction", "SRD", "RD",
          "keep secrets out of arguments and results; add their shape to [gateway] redact"),
    Point("HF24", "the ledger adds up", "R", "R",
          "report it: sums of calls, runs and budgets must agree"),
    Point("HF25", "new code fits runs in flight", "R", "R",
          "guard the change with patched(…): `holdfast runs check` writes it as a diff"),
    Point("HF26", "recorded histories replay", "R", "R",
          "`holdfast runs check` says which run breaks, where and why"),
    Point("HF27", "rollback", "D", "D",
          'change steps rather than bodies, or keep workers to their own code: versions = "own"'),
    Point("HF28", "crash matrix, retention, restore", "SRD", "D",
          "set [retention] keep and [sandbox] keep_records, and back up: holdfast store backup"),
)  # fmt: skip

BY_ID: Mapping[str, Point] = {point.id: point for point in POINTS}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look found."""

    point: str
    tier: Tier
    outcome: Outcome
    message: str
    file: str | None = None
    """Relative to the project."""
    line: int | None = None
    evidence: str = ""
    """What shows it: a run, a seed, a transcript."""
    known: bool = False
    """It is in the baseline: shown, and no reason to fail."""

    @property
    def place(self) -> str:
        if self.file is None:
            return ""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def fingerprint(self) -> str:
        """The same while the finding is: of the point, file and words, not of the line."""
        said = "\n".join((self.point, self.tier, self.file or "", self.message))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "outcome": self.outcome,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "evidence": self.evidence,
            "fingerprint": self.fingerprint,
            "known": self.known,
        }


@dataclass(frozen=True, slots=True)
class Waiver:
    """Somebody accepts that a point fails, for a reason, until a day."""

    point: str
    by: str
    why: str
    until: str
    """The last day it counts, as 2027-01-31."""


@dataclass(frozen=True, slots=True)
class Result:
    """One point, judged."""

    point: Point
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    waiver: Waiver | None = None

    @property
    def fails(self) -> bool:
        """Whether it is a reason to stop: it fails, and not only by what the baseline knows."""
        return self.verdict == "fail" and any(
            each.outcome == "fail" and not each.known for each in self.findings
        )

    def as_json(self) -> dict[str, Any]:
        waived = self.waiver
        return {
            "id": self.point.id,
            "title": self.point.title,
            "verdict": self.verdict,
            "tiers": sorted({each.tier for each in self.findings}, key=TIERS.index),
            "findings": [each.as_json() for each in self.findings],
            "fix": self.point.fix,
            "link": self.point.link,
            "waiver": None
            if waived is None
            else {"by": waived.by, "why": waived.why, "until": waived.until},
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All that was asked, judged."""

    project: str
    profile: str
    results: tuple[Result, ...]
    layers: str = ""
    """Which layers the project uses, in words."""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """How long each tier took."""

    @property
    def ok(self) -> bool:
        return not any(result.fails for result in self.results)

    def count(self, verdict: Verdict) -> int:
        return sum(result.verdict == verdict for result in self.results)

    @property
    def headline(self) -> str:
        """`21 of 28 proven, 3 failed, 4 not exercised`."""
        words = [
            f"{self.count('pass')} of {len(self.results)} proven",
            f"{self.count('fail')} failed",
            f"{self.count('not exercised')} not exercised",
        ]
        others: tuple[tuple[Verdict, str], ...] = (
            ("warn", "with a warning"),
            ("n/a", "not applicable"),
            ("waived", "waived"),
        )
        words += [f"{self.count(v)} {word}" for v, word in others if self.count(v)]
        return ", ".join(words)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "headline": self.headline,
            "project": self.project,
            "profile": self.profile,
            "layers": self.layers,
            "seconds": {tier: round(took, 3) for tier, took in self.seconds.items()},
            "points": [result.as_json() for result in self.results],
        }


def judge(
    points: Iterable[Point],
    findings: Sequence[Finding],
    *,
    waivers: Sequence[Waiver] = (),
    today: str,
    baseline: frozenset[str] = frozenset(),
) -> tuple[Result, ...]:
    """The verdict on each point, from everything that was found."""
    by_point: dict[str, list[Finding]] = {}
    for each in findings:
        known = each.outcome == "fail" and each.fingerprint in baseline
        by_point.setdefault(each.point, []).append(replace(each, known=known))
    waived = {each.point: each for each in waivers if each.until >= today}
    return tuple(_judged(p, by_point.get(p.id, []), waived.get(p.id)) for p in points)


def _judged(point: Point, findings: list[Finding], waiver: Waiver | None) -> Result:
    outcomes = {each.outcome for each in findings}
    proven = any(f.outcome == "pass" and f.tier in point.proof for f in findings)
    verdict: Verdict
    if "fail" in outcomes:
        verdict = "fail" if waiver is None else "waived"
    elif "warn" in outcomes:
        verdict = "warn"
    elif proven:
        verdict = "pass"
    elif outcomes == {"n/a"}:
        verdict = "n/a"
    else:
        verdict = "not exercised"
    kept = waiver if verdict == "waived" else None
    return Result(point, verdict, tuple(findings), kept)
