"""`holdfast simulate`: a workflow of yours, and all that can go wrong, until a check breaks."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.options import add_common, parse_duration, parse_object
from holdfast.cli.workflow_files import load, load_workflow
from holdfast.errors import Refused
from holdfast.ready.simulation import (
    Counterexample,
    SimulationReport,
    load_new_code,
    scenario_of,
    simulate,
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("workflow", metavar="FILE.py:WORKFLOW", help="or MODULE:WORKFLOW")
    parser.add_argument(
        "--invariant",
        metavar="FILE.py|MODULE",
        help="what must hold: functions named check_…, each given how a run went; INPUT, EVENTS, "
        "FAKES, MODEL, APPROVE and reset are taken from it, too",
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first of them (0)")
    parser.add_argument("--input", metavar="JSON", help="the workflow's arguments, as an object")
    parser.add_argument(
        "--deploy", metavar="FILE.py", help="new code, with which workers are replaced in between"
    )
    parser.add_argument(
        "--time", metavar="DURATION", help="stop after so long, even if seeds are left"
    )
    parser.add_argument(
        "--save", type=Path, metavar="FILE.py", help="write what was found there, as a test"
    )
    add_common(parser, _simulate)


def _simulate(options: argparse.Namespace) -> int:
    workflow = load_workflow(options.workflow)
    checks = {} if options.invariant is None else vars(load(options.invariant))
    given = None if options.input is None else parse_object(options.input, "--input")
    new_code = {} if options.deploy is None else load_new_code(options.deploy, Path.cwd())
    scenario = scenario_of(workflow, checks, given, new_code)
    if options.save is not None and options.save.exists():
        raise Refused(f"{options.save} exists", hint="name another file: nothing is replaced")
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # thousands of mishaps, all on purpose
    seconds = None if options.time is None else parse_duration(options.time)
    report = simulate(scenario, options.seeds, first=options.seed, seconds=seconds)
    found = report.found
    if found is not None and options.save is not None:
        options.save.write_text(_test(options, dict(scenario.input), found), encoding="utf-8")
    if options.json:
        output.show_json(_as_json(report))
    else:
        _show(report, sorted(scenario.checks), options)
    return 0 if found is None else 1


def _show(report: SimulationReport, checks: list[str], options: argparse.Namespace) -> None:
    held = ", ".join(["it ends", "it is not stuck", *checks])
    tried = f"{report.seeds:,} seeds, a kill at each of {report.boundaries} boundaries"
    found = report.found
    if found is None:
        print(f"nothing broke: {tried} ({output.duration(report.seconds)})")
        print(f"  held: {held}")
        return
    print(f"seed {found.seed}: {output.plain(found.broken)}\n")
    for line in found.story:
        print(output.plain(line))
    output.note(f"\n{tried} ({output.duration(report.seconds)}); shortest of what broke it")
    if options.save is not None:
        output.note(f"{options.save}: pytest tells this story until it is mended")
    else:
        output.note("--save tests/test_story.py keeps it as a test")


def _as_json(report: SimulationReport) -> dict[str, object]:
    found = report.found
    shown = None
    if found is not None:
        shown = {
            "seed": found.seed,
            "broken": found.broken,
            "plan": [mishap.as_json() for mishap in found.plan],
            "story": list(found.story),
        }
    return {
        "seeds": report.seeds,
        "boundaries": report.boundaries,
        "seconds": round(report.seconds, 3),
        "found": shown,
    }


def _test(options: argparse.Namespace, input: dict[str, object], found: Counterexample) -> str:
    """A test of its own: the plan, the scenario by its names, the story to read."""
    story = "\n".join(f"#   {output.plain(line)}" for line in found.story)
    plan = [mishap.as_json() for mishap in found.plan]
    return f'''"""Found by `holdfast simulate`: {output.plain(found.broken)}"""

from holdfast.ready.simulation import replay_saved

{story}


def test_the_invariants_hold_in_this_story():
    replay_saved(
        workflow={options.workflow!r},
        invariant={options.invariant!r},
        input={input!r},
        deploy={options.deploy!r},
        plan={plan!r},
        seed={found.world_seed},
    )
'''
