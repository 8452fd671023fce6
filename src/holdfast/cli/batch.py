"""`holdfast batch`: the tasks of a file, so many at once, resumable, with a table at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.options import add_common, store_name
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from decimal import Decimal

    from holdfast.agents.batch import Batch, BatchTask, Result

_SHOWN_BAD = 20


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file",
        metavar="TASKS.jsonl",
        help='one task a line: {"prompt": …, "language": …} or {"repo": …, "task": …}; - is stdin',
    )
    parser.add_argument(
        "--concurrency", type=int, default=4, metavar="N", help="so many at once (4)"
    )
    parser.add_argument(
        "--name", help="what the batch is known by, to go on with it (the file's name)"
    )
    parser.add_argument("--model", metavar="PROVIDER/MODEL", help="for lines that name none")
    parser.add_argument("--language", metavar="NAME", help="for lines that name none")
    parser.add_argument("--attempts", type=int, metavar="N", help="for lines that name none")
    parser.add_argument("--budget", metavar="USD", help="the most that the batch may spend")
    parser.add_argument(
        "--retry", action="store_true", help="go on with runs that failed, where they failed"
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out lines that are no task")
    parser.add_argument("--out", metavar="FILE", help="write the results, a JSON object a line")
    add_common(parser, _batch)


def _batch(options: argparse.Namespace) -> int:
    from holdfast.agents.batch import read
    from holdfast.cli.run import amount

    budget = amount(options.budget)
    defaults = {name: getattr(options, name) for name in ("model", "language", "attempts")}
    tasks, bad = read(_lines(options.file), defaults)
    for line in bad[:_SHOWN_BAD]:
        output.note(output.plain(f"{options.file}, {line}"))
    if bad and not options.skip_bad:
        raise UsageError(
            f"{len(bad)} of {len(bad) + len(tasks)} lines are no task "
            f"(line {', '.join(str(each.line) for each in bad[:_SHOWN_BAD])})",
            hint="mend them, or leave them out with --skip-bad; nothing was begun",
        )
    if not tasks:
        raise UsageError(f"{options.file} holds no task", hint="one JSON object a line")
    done: list[Result] = []
    began = time.monotonic()
    try:
        asyncio.run(_work(options, tasks, budget, done))
    except KeyboardInterrupt:
        _detached(options, tasks, done)
        raise
    _write(options.out, done)
    _show(options, tasks, done, time.monotonic() - began)
    return 0 if all(result.ending == "passed" for result in done) else 1


def _lines(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} can't be read: {error}") from error
    return text.split("\n")


async def _work(
    options: argparse.Namespace, tasks: list[BatchTask], budget: Decimal | None, done: list[Result]
) -> None:
    from holdfast.agents.batch import Batch
    from holdfast.runtime.app import open_engine

    name = options.name or ("stdin" if options.file == "-" else Path(options.file).stem)
    async with open_engine(store_name(options)) as engine:
        batch = Batch(
            engine, name, tasks, concurrency=options.concurrency, retry=options.retry,
            budget=budget,
        )  # fmt: skip
        live = None if options.json else _Live(len(tasks), batch)
        results = batch.results()
        try:
            async for result in results:
                done.append(result)
                if live is not None:
                    live.ended(result, len(done))
        finally:
            if live is not None:
                live.close()
            await results.aclose()


class _Live:
    """A line for each task that has ended; on a terminal, below them, how many are under way."""

    def __init__(self, count: int, batch: Batch) -> None:
        self._count, self._batch = count, batch
        self._live = sys.stderr.isatty()
        self._ended = 0
        self._drawing = asyncio.get_running_loop().create_task(self._draw()) if self._live else None

    async def _draw(self) -> None:
        while True:
            waiting = self._count - self._ended - len(self._batch.running)
            words = f" … {len(self._batch.running)} under way, {max(waiting, 0)} to come"
            print(f"\r\x1b[K{output.dim(words, sys.stderr)}", end="", file=sys.stderr, flush=True)
            await asyncio.sleep(0.25)

    def ended(self, result: Result, number: int) -> None:
        self._ended = number
        again = "  ended before" if result.again else ""
        cost = "$?" if result.usd is None else f"${result.usd:.3f}"
        symbol = output.mark(output.SYMBOLS[result.ending])
        head = f" {symbol} {number:>{len(str(self._count))}}/{self._count}"
        facts = f"{output.duration(result.seconds):>8}  {result.tokens / 1000:>6.1f}k  {cost:>7}"
        words = f"{output.short(result.title, 40):<40}  {output.short(result.summary, 40)}"
        clear = "\r\x1b[K" if self._live else ""
        output.note(f"{clear}{head}  {facts}   {words}{again}".rstrip())

    def close(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _write(file: str | None, done: list[Result]) -> None:
    if file is None:
        return
    rows = sorted(done, key=lambda result: result.line)
    text = "".join(f"{json.dumps(row.as_json(), ensure_ascii=False)}\n" for row in rows)
    try:
        draft = Path(f"{file}.draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        raise UsageError(
            f"the results can't be written: {error}", hint="the same command again shows them"
        ) from error


def _show(
    options: argparse.Namespace, tasks: list[BatchTask], done: list[Result], took: float
) -> None:
    from holdfast.agents.batch import totals

    rows = sorted(done, key=lambda result: result.line)
    summed = totals(rows, len(tasks))
    if options.json:
        facts = {**summed.as_json(), "seconds": round(took, 3)}
        output.show_json({"results": [row.as_json() for row in rows], "totals": facts})
        return
    output.table(
        ("LINE", "RESULT", "ATTEMPTS", "TOOK", "TOKENS", "COST", "RUN", "TASK"),
        [
            (
                str(row.line),
                row.ending,
                str(row.attempts or ""),
                output.duration(row.seconds),
                f"{row.tokens / 1000:.1f}k",
                "$?" if row.usd is None else f"${row.usd:.3f}",
                row.run_id,
                output.short(row.title, 60),
            )
            for row in rows
        ],
        states="RESULT",
    )
    words = [f"{summed.passed} of {summed.tasks} passed"]
    words += [f"{summed.failed} failed"] if summed.failed else []
    words += [f"{summed.again} ended before"] if summed.again else []
    words += [output.duration(took), f"{summed.tokens / 1000:.1f}k tokens"]
    words.append(f"${summed.usd:.3f}{'+?' if summed.unpriced else ''}")
    words += [options.out] if options.out else []
    print(" · ".join(words))


def _detached(options: argparse.Namespace, tasks: list[BatchTask], done: list[Result]) -> None:
    _write(options.out, done)
    if options.json:
        output.show_json({"detached": True, "results": [row.as_json() for row in done]})
        return
    left = len(tasks) - len(done)
    output.note(f"\ndetached: {len(done)} of {len(tasks)} tasks have ended, {left} are left")
    output.note("  go on    the same command again; what has ended is not done again")
    output.note("  watch    holdfast runs list")
