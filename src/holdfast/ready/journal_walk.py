"""A run's journal as a walk through the graph of its body: which way it went, and where it is.

Each task of a run has its own commands, in order; the body's own task begins at the beginning,
every other at a task that the graph spawns. A journal that is no walk of the graph means that the
picture is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.ready.body_graph import BodyGraph, EdgeKind
from holdfast.records import COMMANDS, PATCH_MARKED, RUN_COMPLETED, UPDATE_ANSWERED, Event
from holdfast.store.inspection import JournalRow

_BODY = "0"
_FOLLOWED: tuple[EdgeKind, ...] = ("control", "recovery", "deferred")
_UNDRAWN = frozenset({PATCH_MARKED, UPDATE_ANSWERED})


@dataclass
class Walk:
    """The way of one run."""

    nodes: dict[str, int] = field(default_factory=dict[str, int])
    """The node of each command, by its key."""
    edges: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """The edges that were gone along."""
    problem: str = ""
    """The first command for which there is no way; empty if the journal is a walk."""


class Walker:
    """Follows journals through one graph."""

    def __init__(self, graph: BodyGraph) -> None:
        self.graph = graph
        self._next: dict[int, list[int]] = {node.id: [] for node in graph.nodes}
        for edge in graph.edges:
            if edge.kind in _FOLLOWED:
                self._next[edge.source].append(edge.target)
        self._tasks = [
            node.id for node in graph.nodes if node.kind in ("task", "agent", "dynamic", "model")
        ]

    def walk(self, journal: Sequence[Event | JournalRow]) -> Walk:
        """The way of a run through the graph."""
        found = Walk()
        tasks: dict[str, list[tuple[str, str, str]]] = {}
        for event in journal:
            if event.type in COMMANDS - _UNDRAWN:
                path = event.key.rpartition("/")[0]
                asked = (event.key, event.type, str(event.facts.get("name", "")))
                tasks.setdefault(path, []).append(asked)
        completed = any(event.type == RUN_COMPLETED for event in journal)
        for path, asked in tasks.items():
            self._follow(found, path, asked, ends=completed and path == _BODY)
        if completed and _BODY not in tasks and self._way([0], self.graph.end.id) is None:
            found.problem = found.problem or "it completed, and no way leads to the end"
        return found

    def _follow(
        self, found: Walk, path: str, asked: list[tuple[str, str, str]], *, ends: bool
    ) -> None:
        # For each command the nodes it may be, each with the one before and the way between.
        begun = [0] if path == _BODY else self._tasks
        layer: dict[int, tuple[int | None, tuple[int, ...]]] = dict.fromkeys(begun, (None, ()))
        layers = [layer]
        for number, (key, type, name) in enumerate(asked):
            after: dict[int, tuple[int | None, tuple[int, ...]]] = {}
            for node in layer:
                itself = self.graph.nodes[node]
                stays = itself.repeats and (number > 0 or path != _BODY)
                if stays and itself.allows(type, name):
                    after.setdefault(node, (node, ()))
                for reached, way in self._asked_next(node, type, name):
                    after.setdefault(reached, (node, way))
            if not after:
                if not found.problem:
                    found.problem = f"no way leads to {type} {name!r} at {key}"
                return
            layers.append(after)
            layer = after
        last = next(iter(layer))
        if ends:
            ways = {node: self._way([node], self.graph.end.id) for node in layer}
            reached = [node for node, way in ways.items() if way is not None]
            if not reached:
                found.problem = (
                    found.problem or f"it completed, and no way leads on from {asked[-1][0]}"
                )
                return
            last = reached[0]
            self._note(found, (last, *(ways[last] or ())))
        for number in range(len(asked), 0, -1):
            before, way = layers[number][last]
            found.nodes[asked[number - 1][0]] = last
            assert before is not None
            if before != last or way:
                self._note(found, (before, *way, last))
            last = before

    @staticmethod
    def _note(found: Walk, way: tuple[int, ...]) -> None:
        found.edges.update(pairwise(way))

    def _asked_next(self, node: int, type: str, name: str) -> list[tuple[int, tuple[int, ...]]]:
        """Nodes for such a command that can be come to without another command in between."""
        reached: list[tuple[int, tuple[int, ...]]] = []
        seen = {node}
        open_: list[tuple[int, tuple[int, ...]]] = [(node, ())]
        while open_:
            here, way = open_.pop(0)
            for each in self._next[here]:
                if self.graph.nodes[each].accepts:
                    if self.graph.nodes[each].allows(type, name):
                        reached.append((each, way))
                elif each not in seen:
                    seen.add(each)
                    open_.append((each, (*way, each)))
        return reached

    def _way(self, begun: list[int], end: int) -> tuple[int, ...] | None:
        seen = set(begun)
        open_: list[tuple[int, tuple[int, ...]]] = [(each, ()) for each in begun]
        while open_:
            here, way = open_.pop(0)
            if here == end:
                return way
            for each in self._next[here]:
                if each not in seen and not self.graph.nodes[each].accepts:
                    seen.add(each)
                    open_.append((each, (*way, each)))
        return None
