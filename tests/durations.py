"""How long each test takes, as recorded in durations.tsv, and what follows from it.

- A test that takes longer than `FAST` is marked `slow`: `make test-fast` leaves it out. One that is
  not recorded yet counts as fast. `make test` runs all of them.
- With several workers the long tests come first, and each worker begins with its share of them: so
  none is left alone with a long one at the end. Tests of one file stay together unless the file
  is long by itself, so that what a module sets up is set up once.

`make durations` records them anew. A line is a test function's seconds for one of its cases.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).with_name("durations.tsv")
FAST = 0.2
"""Seconds on a quiet machine."""
RECORDED = 0.05
"""What takes less is not recorded."""


def function_of(nodeid: str) -> str:
    """The test without its parameters."""
    path, _, name = nodeid.partition("::")
    return f"{path}::{name.partition('[')[0]}"


def read(text: str) -> dict[str, float]:
    """Seconds by test function."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        seconds, _, function = line.partition("\t")
        found[function] = float(seconds)
    return found


def written(known: dict[str, float], cases: dict[str, float]) -> str:
    """The file's text: what was known, and in its place the cases (by node id) that ran now."""
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for nodeid, seconds in cases.items():
        total[function_of(nodeid)] += seconds
        count[function_of(nodeid)] += 1
    now = {function: total[function] / count[function] for function in count}
    merged = {**known, **now}
    lines = [f"{s:.2g}\t{function}\n" for function, s in sorted(merged.items()) if s >= RECORDED]
    return "".join(lines)


def is_slow(nodeid: str, known: dict[str, float]) -> bool:
    return known.get(function_of(nodeid), 0.0) > FAST


def dealt(nodeids: Sequence[str], known: dict[str, float], workers: int) -> list[int]:
    """An order (of places in `nodeids`) whose equal parts, one after the other, take equally long.

    xdist's `worksteal` gives each worker one such part, and a worker that has done with its own
    takes from the end of another's. So each part begins with its longest files.
    """
    cost = [known.get(function_of(nodeid), RECORDED / 2) for nodeid in nodeids]
    room = _sizes(len(nodeids), workers)
    busy = [0.0] * workers
    parts: list[list[int]] = [[] for _ in range(workers)]
    # The longest by the test first; the many short ones at the end fill the parts up.
    files = _files(nodeids, cost, limit=sum(cost) / workers / 8)
    waiting = sorted(files, key=lambda unit: _mean(unit, cost), reverse=True)
    while waiting:
        unit = waiting.pop(0)
        part = min((n for n in range(workers) if room[n]), key=lambda n: busy[n])
        now, later = unit[: room[part]], unit[room[part] :]
        if later:
            waiting.insert(0, later)
        parts[part] += now
        room[part] -= len(now)
        busy[part] += sum(cost[place] for place in now)
    return [place for part in parts for place in _by_file(part, nodeids, cost)]


def _sizes(tests: int, workers: int) -> list[int]:
    """How many tests xdist gives to each worker at first."""
    sizes: list[int] = []
    for n in range(workers):
        sizes.append((tests - sum(sizes)) // (workers - n))
    return sizes


def _files(nodeids: Sequence[str], cost: Sequence[float], limit: float) -> list[list[int]]:
    """What one worker gets: a file, or of a long file each of its tests."""
    files: defaultdict[str, list[int]] = defaultdict(list)
    for place, nodeid in enumerate(nodeids):
        files[nodeid.partition("::")[0]].append(place)
    units: list[list[int]] = []
    for places in files.values():
        long = sum(cost[place] for place in places) > limit
        units += [[place] for place in places] if long else [places]
    return units


def _by_file(part: list[int], nodeids: Sequence[str], cost: Sequence[float]) -> list[int]:
    """The tests of a file one after the other, the longest files by the test first."""
    files = _files([nodeids[place] for place in part], [cost[place] for place in part], math.inf)
    units = [[part[n] for n in unit] for unit in files]
    units.sort(key=lambda unit: _mean(unit, cost), reverse=True)
    return [place for unit in units for place in sorted(unit)]


def _mean(unit: list[int], cost: Sequence[float]) -> float:
    return sum(cost[place] for place in unit) / len(unit)
