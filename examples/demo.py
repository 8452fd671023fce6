"""The demo: two tasks for the code agent, the second killed with -9 in the middle.

Everything is real (the sandbox, the tests that are run, the verdicts, the recovery) but the
model: without a key the built-in scripted one answers, which knows these tasks by heart and
gets the second wrong at first.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("DEMO_FOLDER", Path(__file__).parent.parent / ".holdfast" / "demo"))
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
BESIDE_PYTHON = Path(sys.executable).with_name("holdfast")
EASY = "Write is_palindrome, ignoring case and punctuation"
HARD = "Write longest_common_subsequence(a, b), which returns the subsequence itself"
MODEL = ["--model", "scripted/demo"]


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)  # the last demo's
    FOLDER.mkdir(parents=True)
    say("The model here is scripted: no AI, no key, no cost. All else is real.\n")
    command("run", EASY)
    easy = subprocess.call([*HOLDFAST, "run", EASY, *MODEL, "--out", "palindrome"], cwd=FOLDER)

    say("\nThe second one is killed as soon as its tests are written:\n")
    command("run", HARD)
    run_id = killed_after("generate tests")
    say(f"$ kill -9\n\n$ holdfast worker &\n$ holdfast runs watch {run_id} --out lcs")
    with Worker():
        watched = subprocess.call([*HOLDFAST, "runs", "watch", run_id, "--out", "lcs"], cwd=FOLDER)
    say("\nNo finished step was done again, and no finished model call was paid for twice.")
    return easy or watched or where_to_look()


def killed_after(step: str) -> str:
    """Start the second task in a process that is killed once this step is done; the run's id."""
    process = subprocess.Popen(
        [*HOLDFAST, "run", HARD, *MODEL], cwd=FOLDER, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    run_id = ""
    for line in process.stderr:
        say(line.rstrip())
        run_id = run_id or line.split()[0]
        if step in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    return run_id


class Worker:
    """`holdfast worker`, as long as the block lasts."""

    def __enter__(self) -> None:
        self._process = subprocess.Popen(
            [*HOLDFAST, "worker"], cwd=FOLDER, stderr=subprocess.DEVNULL
        )

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def where_to_look() -> int:
    here = os.path.relpath(FOLDER)
    holdfast = "holdfast" if shutil.which("holdfast") else os.path.relpath(BESIDE_PYTHON)
    say(f"\nWhat it wrote   {here}/palindrome and {here}/lcs")
    say(f"Look inside     {holdfast} serve --store {here}/.holdfast/holdfast.db")
    say("Your own task   set ANTHROPIC_API_KEY or OPENAI_API_KEY (or start Ollama), then")
    say(f'                {holdfast} run "…"')
    return 0


def command(*words: str) -> None:
    say(f"$ holdfast {shlex.join(words)}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
