"""Holdfast beside its peers: durable no-op steps, in turns, as ratios."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE.parent.parent / ".bench-venv" / "bin" / "python"
CONTENDERS = {
    "raw SQLite, FULL": (sys.executable, "contend_raw.py"),
    "Holdfast": (sys.executable, "contend_holdfast.py"),
    "DBOS, SQLite": (str(PEERS), "contend_dbos.py"),
    "LangGraph, SQLite": (str(PEERS), "contend_langgraph.py"),
}
SHAPES = {"one run of 500 steps": (1, 500), "200 runs of 10 steps": (200, 10)}
ROUNDS = 5


def contend(name: str, runs: int, steps: int) -> dict[str, float]:
    """One contender's turn, in a process and a folder of its own."""
    python, script = CONTENDERS[name]
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        command = [python, str(HERE / script), folder, str(runs), str(steps)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> dict[str, dict[str, dict[str, float]]]:
    results: dict[str, dict[str, dict[str, float]]] = {}
    for shape, (runs, steps) in SHAPES.items():
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
        for _ in range(ROUNDS):
            for name in CONTENDERS:
                turns[name].append(contend(name, runs, steps))
        results[shape] = {
            name: {
                key: statistics.median(turn[key] for turn in all_turns)
                for key in ("microseconds_per_step", "steps_per_second", "megabytes")
            }
            for name, all_turns in turns.items()
        }
    show(results)
    return results


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    for shape, contenders in results.items():
        ours = contenders["Holdfast"]
        print(f"\n{shape} (median of {ROUNDS} rounds)")
        print(f"  {'':20}{'µs per step':>12}{'steps/s':>11}{'× ours':>9}{'MB':>7}")
        for name, numbers in contenders.items():
            ratio = numbers["microseconds_per_step"] / ours["microseconds_per_step"]
            print(
                f"  {name:20}{numbers['microseconds_per_step']:12,.0f}"
                f"{numbers['steps_per_second']:11,.0f}{ratio:9.2f}{numbers['megabytes']:7.0f}"
            )


if __name__ == "__main__":
    found = main()
    target = HERE.parent / "results" / "runtime-peers.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(found, indent=2))
    print(f"\n{os.path.relpath(target)}")
