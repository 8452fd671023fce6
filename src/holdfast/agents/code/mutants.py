"""Mutants of a program: the same text with one small mistake in it.

Tests that pass on a mutant accept a wrong program, unless the mistake changes nothing. The text
is changed in place, by the syntax tree, so that a mutant's diff is a line a person can read.
Nothing is changed where a mistake would not matter to a caller: docstrings, annotations, what an
exception says, what runs only as a script. Which mutants are taken if there are many depends on
the text alone, so that a score can be checked again elsewhere.
"""

from __future__ import annotations

import ast
import difflib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from holdfast.agents.code import javascript
from holdfast.agents.code.languages import Language

if TYPE_CHECKING:
    from tree_sitter import Node

_SEED = "holdfast mutants"


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of the text, in bytes, and what takes its place."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one mistake."""

    line: int
    code: str
    diff: str


def mutants(code: str, language: Language, most: int) -> tuple[list[Mutant], int]:
    """Up to `most` mutants of a program, spread over it; and how many there are."""
    raw = code.encode()
    if language.name == "python":
        edits = _python_edits(code, raw)
    else:
        edits = _javascript_edits(code, language.name)
    edits = sorted(set(edits), key=lambda edit: (edit.start, edit.end, edit.new))
    chosen = edits if len(edits) <= most else _spread(edits, raw, most)
    made = [_mutant(code, raw, edit) for edit in chosen]
    if language.name == "python":
        made = [mutant for mutant in made if _differs(code, mutant.code)]
    return made, len(edits)


def _spread(edits: list[Edit], raw: bytes, most: int) -> list[Edit]:
    """One of each line in turn, in an order that the text decides."""
    chance = random.Random(f"{_SEED}{raw!r}")  # noqa: S311 - the same wherever it is drawn
    lines: dict[int, list[Edit]] = {}
    for edit in edits:
        lines.setdefault(raw.count(b"\n", 0, edit.start), []).append(edit)
    for found in lines.values():
        chance.shuffle(found)
    chosen: list[Edit] = []
    left = list(lines.values())
    while left and len(chosen) < most:
        chance.shuffle(left)
        chosen += [found.pop() for found in left[: most - len(chosen)]]
        left = [found for found in left if found]
    return sorted(chosen, key=lambda edit: (edit.start, edit.end, edit.new))


def _mutant(code: str, raw: bytes, edit: Edit) -> Mutant:
    changed = (raw[: edit.start] + edit.new.encode() + raw[edit.end :]).decode()
    lines = difflib.unified_diff(code.splitlines(), changed.splitlines(), lineterm="", n=0)
    diff = "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
    return Mutant(raw.count(b"\n", 0, edit.start) + 1, changed, diff)


def _differs(code: str, changed: str) -> bool:
    """Whether the two compile, and to different code."""
    try:
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


# --- Python ---

_COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"), ast.Is: ("is", "is not"), ast.IsNot: (r"is\s+not", "is"),
}  # fmt: skip
_REVERSED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", ">"), ast.LtE: ("<=", ">="), ast.Gt: (">", "<"), ast.GtE: (">=", "<="),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "&"),
    ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
}  # fmt: skip
_CALLS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "append": "extend", "lower": "upper",
    "upper": "lower", "lstrip": "rstrip", "rstrip": "lstrip", "startswith": "endswith",
    "endswith": "startswith", "sorted": "list", "reversed": "iter", "ceil": "floor",
    "floor": "ceil",
}  # fmt: skip
_OF_DECLARATIONS = ("annotation", "returns", "decorator_list", "type_params", "bases")
_LEFT_OUT = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise)


class _Places:
    """Positions of nodes in bytes of the text."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._lines = [0]
        for line in raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)


def _python_edits(code: str, raw: bytes) -> list[Edit]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if b"\r" in raw or b"\f" in raw:
        return []  # its lines are not those of the tree
    places = _Places(raw)
    return [edit for node in _that_matter(tree) for edit in _edits_of(node, places)]


def _that_matter(root: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of annotations, docstrings, messages and of what runs as a script."""
    left = [root]
    while left:
        node = left.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if field in _OF_DECLARATIONS or (
                field == "keywords" and isinstance(node, ast.ClassDef)
            ):
                continue
            below = cast("list[Any]", value if isinstance(value, list) else [value])
            left += [
                each for each in below if isinstance(each, ast.AST) and not _no_matter(each, node)
            ]


def _no_matter(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
        named = isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__"
        return named or _is_type_checking(node.test)
    if isinstance(node, ast.If):
        return _is_type_checking(node.test)
    if isinstance(parent, ast.Raise) and isinstance(node, ast.Call):
        return True  # what an exception says
    return isinstance(parent, ast.JoinedStr) and isinstance(node, ast.Constant)


def _is_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in ast.unparse(test)


def _edits_of(node: ast.AST, at: _Places) -> Iterator[Edit]:
    match node:
        case ast.Compare():
            sides = [node.left, *node.comparators]
            for place, operator in enumerate(node.ops):
                for table in (_COMPARE, _REVERSED):
                    yield from _between(
                        at, sides[place], sides[place + 1], table.get(type(operator))
                    )
        case ast.BinOp():
            if not (isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant)):
                yield from _between(at, node.left, node.right, _ARITHMETIC.get(type(node.op)))
        case ast.AugAssign():
            known = _ARITHMETIC.get(type(node.op))
            if known is not None:
                spelled = (f"{known[0]}=", f"{known[1]}=")
                yield from _between(at, node.target, node.value, spelled)
        case ast.BoolOp():
            new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for one, other in zip(node.values, node.values[1:], strict=False):
                yield from _between(at, one, other, new)
        case ast.UnaryOp(op=ast.Not()):
            yield Edit(at.start(node), at.start(node.operand), "")
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield Edit(at.start(node), at.start(node.operand), "")
        case ast.Constant():
            yield from _constant_edits(node, at)
        case ast.If() | ast.While() | ast.IfExp():
            test = at.raw[at.start(node.test) : at.end(node.test)].decode()
            if not isinstance(node.test, ast.Constant):
                yield Edit(at.start(node.test), at.end(node.test), f"not ({test})")
        case ast.comprehension():
            for test in node.ifs:
                yield Edit(at.start(test), at.end(test), "True")
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield Edit(at.start(value), at.end(value), "None")
        case ast.Break():
            yield Edit(at.start(node), at.end(node), "continue")
        case ast.Continue():
            yield Edit(at.start(node), at.end(node), "break")
        case ast.Call(func=ast.Name() | ast.Attribute() as called):
            name = called.id if isinstance(called, ast.Name) else called.attr
            if name in _CALLS:
                end = at.end(called)
                yield Edit(end - len(name.encode()), end, _CALLS[name])
        case ast.Subscript(slice=ast.Slice() as part):
            yield from _slice_edits(part, at)
        case _:
            pass
    if isinstance(node, _LEFT_OUT) and at.raw[: at.start(node)].rpartition(b"\n")[2].strip() == b"":
        yield Edit(at.start(node), at.end(node), "pass")


def _between(
    at: _Places, left: ast.expr, right: ast.expr, spelled: tuple[str, str] | None
) -> Iterator[Edit]:
    """The operator between two operands, replaced; brackets and comments around it stay."""
    if spelled is None:
        return
    old, new = spelled
    start = at.end(left)
    text = at.raw[start : at.start(right)].decode()
    if "#" in text:
        return
    pattern = old if "\\" in old else re.escape(old)
    found = re.search(rf"\b{pattern}\b" if old[0].isalpha() else pattern, text)
    if found is not None:
        yield Edit(start + found.start(), start + found.end(), new)


def _constant_edits(node: ast.Constant, at: _Places) -> Iterator[Edit]:
    start, end, value = at.start(node), at.end(node), node.value
    if isinstance(value, bool):
        yield Edit(start, end, str(not value))
    elif isinstance(value, int):
        yield Edit(start, end, str(value + 1))
        if value > 1:
            yield Edit(start, end, str(value - 1))
    elif isinstance(value, float):
        yield Edit(start, end, repr(value + 1.0))
    elif isinstance(value, str) and not node.kind and at.raw[start : start + 1] in (b"'", b'"'):
        yield Edit(start, end, '"XX"' if not value else '""')


def _slice_edits(part: ast.Slice, at: _Places) -> Iterator[Edit]:
    for bound in (part.lower, part.upper, part.step):
        if bound is not None:
            yield Edit(at.start(bound), at.end(bound), "")


# --- JavaScript and TypeScript ---

_SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===", "==": "!=",
    "!=": "==", "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "**": "*", "&&": "||",
    "||": "&&", "??": "&&", "&": "|", "|": "&", "^": "&", "<<": ">>", ">>": "<<", "+=": "-=",
    "-=": "+=", "*=": "/=", "/=": "*=", "++": "--", "--": "++", "in": "instanceof",
}  # fmt: skip
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JS_CALLS = {
    "min": "max", "max": "min", "some": "every", "every": "some", "push": "unshift",
    "unshift": "push", "pop": "shift", "shift": "pop", "ceil": "floor", "floor": "ceil",
    "toLowerCase": "toUpperCase", "toUpperCase": "toLowerCase", "startsWith": "endsWith",
    "endsWith": "startsWith", "trimStart": "trimEnd", "trimEnd": "trimStart", "indexOf":
    "lastIndexOf", "lastIndexOf": "indexOf",
}  # fmt: skip
_NO_MATTER = frozenset({
    "comment", "import_statement", "interface_declaration", "type_alias_declaration",
    "type_annotation", "type_arguments", "type_parameters", "throw_statement", "export_clause",
    "ambient_declaration", "function_signature",
})  # fmt: skip
_OPERATED = ("binary_expression", "augmented_assignment_expression", "update_expression")


def _javascript_edits(code: str, dialect: javascript.Dialect) -> list[Edit]:
    root = javascript.parsed(code, dialect)
    if root.has_error:
        return []
    found: list[Edit] = []
    left = [root]
    while left:
        node = left.pop()
        found += _node_edits(node)
        for each in node.named_children:
            if each.type not in _NO_MATTER:
                left.append(each)
            elif each.type == "throw_statement":
                found.append(_instead(each, ";"))  # what it says is of no matter, that it throws is
    return found


def _node_edits(node: Node) -> Iterator[Edit]:
    match node.type:
        case kind if kind in _OPERATED:
            yield from _operator_edits(node)
        case "unary_expression":
            operator, operand = (node.child_by_field_name(n) for n in ("operator", "argument"))
            if operator is not None and operand is not None and operator.type in ("!", "-"):
                yield Edit(operator.start_byte, operand.start_byte, "")
        case "number":
            text = (node.text or b"").decode()
            if text.isdecimal():
                yield _instead(node, str(int(text) + 1))
                if int(text) > 1:
                    yield _instead(node, str(int(text) - 1))
            elif text.replace(".", "", 1).isdecimal():
                yield _instead(node, repr(float(text) + 1.0))
        case "true" | "false":
            yield _instead(node, "false" if node.type == "true" else "true")
        case "string" if node.parent is None or node.parent.type != "literal_type":
            yield _instead(node, '"XX"' if not node.named_children else '""')
        case "if_statement" | "while_statement" | "ternary_expression":
            test = node.child_by_field_name("condition")
            if test is not None:
                text = (test.text or b"").decode()
                inner = f"!({text})"
                yield _instead(test, f"({inner})" if text.startswith("(") else inner)
        case "return_statement" if node.named_children:
            yield _instead(node, "return undefined;")
        case "break_statement" if not _in_switch(node):
            yield _instead(node, "continue;")
        case "continue_statement":
            yield _instead(node, "break;")
        case "expression_statement":
            yield _instead(node, ";")
        case "call_expression":
            yield from _call_edits(node)
        case _:
            pass


def _operator_edits(node: Node) -> Iterator[Edit]:
    operator = node.child_by_field_name("operator")
    if operator is None:
        return
    for table in (_SWAPPED, _TURNED):
        if operator.type in table:
            yield _instead(operator, table[operator.type])


def _call_edits(node: Node) -> Iterator[Edit]:
    called = node.child_by_field_name("function")
    name = called.child_by_field_name("property") if called is not None else None
    spelled = (name.text or b"").decode() if name is not None else ""
    if name is not None and spelled in _JS_CALLS:
        yield _instead(name, _JS_CALLS[spelled])


def _in_switch(node: Node) -> bool:
    parent = node.parent
    while parent is not None and "function" not in parent.type:
        if parent.type == "switch_statement":
            return True
        if parent.type.startswith(("for", "while", "do")):
            return False
        parent = parent.parent
    return False


def _instead(node: Node, new: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, new)
