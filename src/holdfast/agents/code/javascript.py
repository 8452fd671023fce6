"""JavaScript and TypeScript by the syntax tree: tests of a file, what they assert, what it defines.

tree-sitter reads the text, also text with mistakes in it; nothing is run. Strings, templates,
comments, regular expressions and types are what the grammar says they are. What an assertion is
worth follows the same rules as for Python, see `test_strength.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from holdfast.agents.code.records import Strength

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Dialect = Literal["javascript", "typescript"]

_ASSERT_MODULES = frozenset(
    f"{prefix}assert{suffix}" for prefix in ("", "node:") for suffix in ("", "/strict")
)
_TESTS = frozenset({"test", "it", "specify"})
_SUITES = frozenset({"describe", "suite", "context"})
_SILENT = frozenset({"xit", "xtest", "xdescribe", "xcontext"})
_CONTEXTS = frozenset({"t", "ctx", "context", "this"})
"""What a test's argument is usually called: `t.test(…)` is a test within, `t.skip()` skips."""
_OFF = ("skip", "todo")
_EXACT = re.compile(
    r"(\w*[eE]quals?|eql?|throws|rejects|match|toBe|toThrow\w*|toMatch\w*|toHaveLength|toBeCloseTo"
    r"|toBe(?:Null|Undefined|NaN|True|False)|true|false|null|undefined|throw)$"
)
"""Assertions that allow one value only, or one kind of error."""
_SAME_HOLDS = re.compile(r"(?!not)\w*[eE]quals?$|eql?$|toBe$")
"""Assertions that hold by themselves if both sides are the same expression."""
_SAME_OPERATORS = ("===", "==", "<=", ">=")
_FIXED_NAMES = frozenset({"undefined", "NaN", "Infinity"})
_LEAVING = ("return_statement", "throw_statement", "break_statement", "continue_statement")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_DECLARATIONS = frozenset({
    "function_declaration", "generator_function_declaration", "class_declaration",
    "abstract_class_declaration", "interface_declaration", "type_alias_declaration",
    "enum_declaration", "function_signature",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Test:
    """One test, where it stands in its file, in bytes."""

    __test__ = False

    title: str
    start: int
    end: int
    text: str
    strength: Strength


# --- what is asked of a file ---


def is_whole(code: str, dialect: Dialect) -> bool:
    """Whether it parses: no bracket, string, template or comment is left open."""
    root = parsed(code, dialect)
    return root.named_child_count > 0 and not root.has_error


def defined_names(code: str, dialect: Dialect) -> frozenset[str]:
    """The names that a file defines at its top, types included."""
    found: set[str] = set()
    for statement in parsed(code, dialect).named_children:
        node = statement
        while node.type in ("export_statement", "ambient_declaration"):
            inner = node.child_by_field_name("declaration")
            if inner is None:
                inner = next((c for c in node.named_children if c.type != "comment"), None)
            if inner is None:
                break
            node = inner
        if node.type in _DECLARATIONS:
            found |= {_text(name) for name in node.children_by_field_name("name")}
        elif node.type in ("lexical_declaration", "variable_declaration"):
            for declarator in node.named_children:
                name = declarator.child_by_field_name("name")
                found |= set(_bound(name)) if name is not None else set()
    return frozenset(found)


def titles(code: str, dialect: Dialect) -> set[str]:
    """The titles of a file's tests."""
    return {title for title, _ in _test_calls(parsed(code, dialect))}


def tests(code: str, dialect: Dialect) -> dict[str, Test] | None:
    """Each test by its title; None if they can't be told apart."""
    root = parsed(code, dialect)
    names = _Names(root)
    found: dict[str, Test] = {}
    for title, call in _test_calls(root):
        if title in found:
            return None
        counted = _strength(call, names)
        found[title] = Test(title, call.start_byte, call.end_byte, _text(call), counted)
    return None if root.has_error else found


def strength(code: str, dialect: Dialect) -> Strength:
    """How much a whole file of tests checks."""
    root = parsed(code, dialect)
    return _strength(root, _Names(root))


def skipped(code: str, dialect: Dialect) -> int:
    """How many tests or suites are skipped, or skip others by being the only ones to run."""
    root = parsed(code, dialect)
    only = [call for call in _calls(root) if (path := _path(call)) and _is_only(path)]
    return sum(map(_is_silencing, _calls(root))) + len(only)


def replaced(
    code: str, dialect: Dialect, known: Mapping[str, Test], texts: Mapping[str, str], new: str
) -> str:
    """The file with the texts of some tests replaced, and with the imports of `new` it lacks."""
    raw = code.encode()
    outer = [known[title] for title in texts]
    for test in sorted(outer, key=lambda test: -test.start):
        if not any(each.start < test.start and test.end <= each.end for each in outer):
            # One within another that is replaced is replaced with it.
            raw = raw[: test.start] + texts[test.title].encode() + raw[test.end :]
    text = raw.decode()
    had = {line.rstrip(";") for line in _imports(text, dialect)}
    missing = [line for line in _imports(new, dialect) if line.rstrip(";") not in had]
    return "\n".join([*missing, text])


def extended(code: str, dialect: Dialect, new: str) -> str | None:
    """The file with the tests of `new` whose titles it lacks; None if there are none."""
    had, found = titles(code, dialect), tests(new, dialect)
    if found is None:
        return None
    more = [test for test in found.values() if test.title not in had]
    outer = [t for t in more if not any(o.start < t.start and t.end <= o.end for o in more)]
    if not outer:
        return None
    whole = "\n".join([code.rstrip(), "", *(f"{test.text};" for test in outer)])
    return replaced(f"{whole}\n", dialect, {}, {}, new)


# --- reading ---


@cache
def _parser(dialect: Dialect) -> Parser:
    # Loaded by the first JavaScript that is judged, not with the agent: see decision 0303.
    import tree_sitter

    if dialect == "javascript":
        import tree_sitter_javascript

        return tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))
    import tree_sitter_typescript

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_typescript.language_typescript()))


def parsed(code: str, dialect: Dialect) -> Node:
    """The syntax tree of a file."""
    return _parser(dialect).parse(code.encode("utf-8", "replace")).root_node


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def walk(root: Node) -> Iterator[Node]:
    """All nodes, in the order of the text; without recursion, however deep the code is nested."""
    left = [root]
    while left:
        node = left.pop()
        yield node
        left += reversed(node.named_children)


def _calls(root: Node) -> Iterator[Node]:
    return (node for node in walk(root) if node.type == "call_expression")


def _arguments(call: Node) -> list[Node]:
    given = call.child_by_field_name("arguments")
    if given is None or given.type != "arguments":
        return []
    return [node for node in given.named_children if node.type != "comment"]


def _path(call: Node) -> list[str] | None:
    """What is called, as names: `assert.strict.equal(…)`; None if it begins with no name.

    Of `test.each([…])("title", …)` it is `test.each`.
    """
    names: list[str] = []
    node = call.child_by_field_name("function")
    while node is not None:
        match node.type:
            case "identifier" | "this":
                return [_text(node), *reversed(names)]
            case "member_expression":
                name = node.child_by_field_name("property")
                names.append("" if name is None else _text(name))
                node = node.child_by_field_name("object")
            case "call_expression" if not names:
                node = node.child_by_field_name("function")
            case "non_null_expression":
                node = node.named_children[0]
            case _:
                return None
    return None


def _string(node: Node) -> str | None:
    """The value of a string or template without places to fill; None for anything else."""
    if node.type not in ("string", "template_string"):
        return None
    parts = node.named_children
    if any(part.type not in ("string_fragment", "escape_sequence") for part in parts):
        return None
    return "".join(
        _unescaped(_text(part)) if part.type == "escape_sequence" else _text(part) for part in parts
    )


def _unescaped(sequence: str) -> str:
    body = sequence[1:]
    if len(body) > 1 and body[0] in "xu":
        try:
            return chr(int(body[1:].strip("{}"), 16))
        except (ValueError, OverflowError):
            return sequence
    return _ESCAPES.get(body, body)


def _bound(pattern: Node) -> Iterator[str]:
    """The names that a pattern binds: `a`, `{ b, c: [d] }`."""
    for node in walk(pattern):
        if node.type in ("identifier", "shorthand_property_identifier_pattern"):
            yield _text(node)


def _imports(code: str, dialect: Dialect) -> list[str]:
    nodes = parsed(code, dialect).named_children
    return [_text(node) for node in nodes if node.type == "import_statement"]


# --- tests ---


def _test_calls(root: Node) -> Iterator[tuple[str, Node]]:
    """The calls that declare a test, with their titles; one made up of values as it is written."""
    for call in _calls(root):
        path, given = _path(call), _arguments(call)
        if path is None or not given or given[0].type not in ("string", "template_string"):
            continue
        inner = call.child_by_field_name("function")
        if path[-1] == "each" and inner is not None and inner.type != "call_expression":
            continue  # the table, not the test
        own = path[0] in _TESTS or path[0] in ("xit", "xtest")
        # `pattern.test("…")` looks like a test within a test, but is given no function.
        within = path[-1] in _TESTS and len(given) > 1 and len(path) == 2
        if own or within:
            title = _string(given[0])
            yield (_text(given[0])[1:-1] if title is None else title), call


def _is_silencing(call: Node) -> bool:
    """Whether a call skips a test or suite, or itself is one that is skipped."""
    path = _path(call)
    if path is None:
        return False
    if path[0] in _SILENT:
        return True
    known = _TESTS | _SUITES | _CONTEXTS
    if path[0] in known and path[-1] in _OFF and len(path) > 1:
        return True
    if path[0] not in _TESTS | _SUITES and path[-1] not in _TESTS:
        return False
    options = [node for node in _arguments(call) if node.type == "object"]
    pairs = [pair for each in options for pair in each.named_children if pair.type == "pair"]
    return any(_switches_off(pair) for pair in pairs)


def _switches_off(pair: Node) -> bool:
    key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
    named = key is not None and _text(key).strip("'\"") in _OFF
    return named and value is not None and _text(value) not in ("false", "undefined", "null")


def _is_only(path: Sequence[str]) -> bool:
    return path[0] in _TESTS | _SUITES and path[-1] == "only"


# --- assertions ---


class _Names:
    """What a file calls the assertions it imports; `assert` and `expect` need no import."""

    def __init__(self, root: Node) -> None:
        self.modules = {"assert"}
        self.functions: dict[str, str] = {}
        """Functions of the module by the names they have here: `import { equal as same } …`."""
        for node in root.named_children:
            if node.type == "import_statement":
                self._take_import(node)
            elif node.type in ("lexical_declaration", "variable_declaration"):
                for declarator in node.named_children:
                    self._take_require(declarator)

    def _take_import(self, statement: Node) -> None:
        source = statement.child_by_field_name("source")
        if source is None or _string(source) not in _ASSERT_MODULES:
            return
        for node in walk(statement):
            if node.type == "import_specifier":
                name = node.child_by_field_name("name")
                alias = node.child_by_field_name("alias") or name
                if name is not None and alias is not None:
                    self._add(_text(name).strip("'\""), _text(alias))
            elif node.type in ("import_clause", "namespace_import"):
                self.modules |= {_text(c) for c in node.named_children if c.type == "identifier"}

    def _take_require(self, declarator: Node) -> None:
        name, value = (declarator.child_by_field_name(each) for each in ("name", "value"))
        while value is not None and value.type == "member_expression":
            value = value.child_by_field_name("object")
        if name is None or value is None or value.type != "call_expression":
            return
        given = _arguments(value)
        if _path(value) != ["require"] or not given or _string(given[0]) not in _ASSERT_MODULES:
            return
        if name.type == "identifier":
            self.modules.add(_text(name))
        for part in name.named_children if name.type == "object_pattern" else ():
            key, alias = (part.child_by_field_name(each) for each in ("key", "value"))
            if key is not None and alias is not None:
                self._add(_text(key), _text(alias))
            else:
                self._add(_text(part), _text(part))

    def _add(self, exported: str, local: str) -> None:
        if exported in ("strict", "default", "assert"):
            self.modules.add(local)
        else:
            self.functions[local] = exported

    def assertion(self, path: Sequence[str]) -> str | None:
        """The assertion that is called by this path: `equal`, `ok`; None if it is none."""
        head = 0
        if len(path) > 1 and path[1] == "assert" and path[0] != "console":
            head = 1  # t.assert, chai.assert
        elif path[0] not in self.modules:
            return self.functions.get(path[0]) if len(path) == 1 else None
        return path[-1] if len(path) > head + 1 else "ok"


def _strength(root: Node, names: _Names) -> Strength:
    asserts = exact = cases = 0
    silenced = False
    for node in _reached(root):
        if node.type == "member_expression":
            name = node.child_by_field_name("property")
            found = _chained(node) if name is not None and _text(name) == "should" else None
        elif node.type == "call_expression":
            silenced = silenced or _is_silencing(node)
            cases += _cases(node)
            found = _asserted(node, names)
        else:
            continue
        asserts += found is not None
        exact += found or False
    return Strength(asserts, exact, cases, silenced)


def _reached(root: Node) -> Iterator[Node]:
    """All nodes but those in statements that are never reached, or whose errors are swallowed."""
    left = [root]
    while left:
        node = left.pop()
        yield node
        left += reversed(list(_live(node)))


def _live(node: Node) -> Iterator[Node]:
    parts = node.named_children
    match node.type:
        case "statement_block":
            for part in parts:
                yield part
                if part.type in _LEAVING:
                    return
        case "if_statement":
            condition = node.child_by_field_name("condition")
            known = "" if condition is None else _text(condition).strip("() \n\t")
            dead = {"false": "consequence", "0": "consequence", "true": "alternative"}.get(known)
            left_out = node.child_by_field_name(dead) if dead else None
            yield from (part for part in parts if part != left_out)
        case "try_statement" if _swallows(node.child_by_field_name("handler")):
            yield from (part for part in parts if part != node.child_by_field_name("body"))
        case "call_expression" if (path := _catching(node)) is not None:
            yield from (part for part in parts if part != path)
        case _:
            yield from parts


def _swallows(handler: Node | None) -> bool:
    return handler is not None and all(node.type != "throw_statement" for node in walk(handler))


def _catching(call: Node) -> Node | None:
    """Of `promise.catch(() => {})` the part whose errors are swallowed."""
    function = call.child_by_field_name("function")
    if function is None or function.type != "member_expression":
        return None
    name, given = function.child_by_field_name("property"), _arguments(call)
    is_catch = name is not None and _text(name) == "catch"
    return function if is_catch and given and _swallows(given[0]) else None


def _cases(call: Node) -> int:
    """The rows of the table of `test.each`."""
    path = _path(call)
    inner = call.child_by_field_name("function")
    if not path or path[0] not in _TESTS | _SUITES or path[-1] != "each":
        return 0
    if inner is None or inner.type == "call_expression":
        return 0  # counted where the table is
    given = call.child_by_field_name("arguments")
    if given is not None and given.type == "template_string":
        return max(len(_text(given).strip("`").strip().splitlines()) - 1, 0)
    tables = [node for node in _arguments(call) if node.type == "array"]
    return sum(
        len([row for row in table.named_children if row.type != "comment"]) for table in tables
    )


def _asserted(call: Node, names: _Names) -> bool | None:
    """Whether an assertion is exact; None for a call that asserts nothing."""
    path = _path(call)
    function = call.child_by_field_name("function")
    if path is None or function is None or function.type == "call_expression":
        return None
    if path[-1] in ("expect", "should") and len(path) <= 2:
        return _chained(call, *_arguments(call)[:1])
    name = names.assertion(path)
    if name is None:
        return None
    given = _arguments(call)
    if name == "ok":
        condition = given[0] if given else None
        if condition is None or _holds_anyway(condition):
            return None
        return _is_exact_condition(condition)
    if name == "fail":
        return False
    if all(map(_is_constant, given[:2])):
        return None
    if _SAME_HOLDS.match(name) and len(given) > 1 and _is_same(given[0], given[1]):
        return None
    return _EXACT.match(name) is not None and not name.startswith("not")


def _chained(start: Node, *actual: Node) -> bool | None:
    """Of `expect(x).not.toBe(y)` or `x.should.equal(y)`, from its first part on."""
    words: list[str] = []
    expected: list[Node] = []
    node, parent = start, start.parent
    while parent is not None:
        if parent.type == "member_expression" and parent.child_by_field_name("object") == node:
            name = parent.child_by_field_name("property")
            words.append("" if name is None else _text(name))
        elif parent.type == "call_expression" and parent.child_by_field_name("function") == node:
            expected = _arguments(parent)
        elif parent.type != "non_null_expression":
            break
        node, parent = parent, parent.parent
    if not words:
        return None  # `expect(x)` alone asserts nothing
    sides = [*actual, *expected[:1]]
    if start.type == "call_expression":
        if all(map(_is_constant, sides)):
            return None
        if _SAME_HOLDS.match(words[-1]) and len(sides) == 2 and _is_same(*sides):
            return None
    return _EXACT.match(words[-1]) is not None and "not" not in words


def _holds_anyway(condition: Node) -> bool:
    """Whether a condition holds whatever the program does."""
    condition = _bare(condition)
    if condition.type == "binary_expression":
        left, right = (condition.child_by_field_name(side) for side in ("left", "right"))
        operator = condition.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return False
        if _text(operator) == "||":
            sides = (_bare(left), _bare(right))
            return any(_is_constant(s) and _text(s) not in ("false", "0", '""', "''", "null",
                       "undefined", "NaN") for s in sides)  # fmt: skip
        if _text(operator) in _SAME_OPERATORS and _is_same(left, right):
            return True
    return _is_constant(condition)


def _is_exact_condition(condition: Node) -> bool:
    condition = _bare(condition)
    operator = condition.child_by_field_name("operator")
    if operator is None:
        return False
    if condition.type == "unary_expression":
        return _text(operator) == "!"
    if condition.type == "binary_expression" and _text(operator) == "&&":
        sides = [condition.child_by_field_name(side) for side in ("left", "right")]
        return any(side is not None and _is_exact_condition(side) for side in sides)
    return condition.type == "binary_expression" and _text(operator) in ("===", "==")


def _bare(node: Node) -> Node:
    """An expression without the brackets and types around it."""
    while node.named_children and node.type in (
        "parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression",
    ):  # fmt: skip
        node = node.named_children[0]
    return node


def _is_constant(node: Node) -> bool:
    """Whether nothing in it is worked out by anything but the text itself."""
    return all(
        each.type not in ("identifier", "this", "shorthand_property_identifier")
        or _text(each) in _FIXED_NAMES
        for each in walk(_bare(node))
    )


def _is_same(one: Node, other: Node) -> bool:
    """Whether two expressions are the same but for spaces, comments and types around them."""
    return _tokens(_bare(one)) == _tokens(_bare(other))


def _tokens(root: Node) -> list[str]:
    found: list[str] = []
    left = [root]
    while left:
        node = left.pop()
        if node.type == "comment":
            continue
        if node.child_count == 0:
            found.append(_text(node))
        left += reversed(node.children)
    return found


# --- which tests can be judged apart from the program, as far as their text tells ---

_APART = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "node:")
    for name in ("test", "assert", "assert/strict", "util", "path", "timers/promises", "buffer")
)
"""Modules that mean the same whether or not the program is in the tests' process."""
_SOLUTION = re.compile(r"(^|/)solution(\.[cm]?[jt]sx?)?$")
_LOOKS_INTO = {
    "process": "looks at the process",
    "globalThis": "looks at globals",
    "global": "looks at globals",
    "eval": "runs text as code",
    "Function": "runs text as code",
    "performance": "measures time",
    "fetch": "uses the network",
    "WebSocket": "uses the network",
    "Worker": "uses threads",
    "WeakRef": "looks into the program's memory",
    "FinalizationRegistry": "looks into the program's memory",
    "SharedArrayBuffer": "shares memory with the program",
    "Proxy": "hands over objects that answer by themselves",
    "__dirname": "uses files",
    "__filename": "uses files",
}
_REPLACES = frozenset({"method", "getter", "setter", "module", "timers", "property"})
"""What `mock` does beside making functions."""
_CLOCKS = frozenset({("Date", "now"), ("console", "time"), ("console", "timeEnd")})


def needs_one_process(tests: str, dialect: Dialect) -> str | None:
    """What the tests do that needs the program in their process; None if nothing tells of it."""
    for node in walk(parsed(tests, dialect)):
        why = _why_one_process(node)
        if why is not None:
            return why
    return None


def _why_one_process(node: Node) -> str | None:
    match node.type:
        case "import_statement" | "export_statement":
            source = node.child_by_field_name("source")
            return None if source is None else _why_module(source)
        case "call_expression":
            called, given = node.child_by_field_name("function"), _arguments(node)
            loads = called is not None and (called.type == "import" or _text(called) == "require")
            return _why_module(given[0]) if loads and given else None
        case "identifier":
            return _LOOKS_INTO.get(_text(node))
        case "meta_property":
            return "uses files" if _text(node) == "import.meta" else None
        case "member_expression":
            return _why_member(node)
        case "assignment_expression" | "augmented_assignment_expression":
            left = node.child_by_field_name("left")
            return _why_assigned(left) if left is not None else None
        case _:
            return None


def _why_module(source: Node) -> str | None:
    name = _string(source)
    if name is None:
        return "imports what only a run tells"
    return None if name in _APART or _SOLUTION.search(name) else f"imports {name}"


def _why_member(node: Node) -> str | None:
    held, name = (node.child_by_field_name(each) for each in ("object", "property"))
    if held is None or name is None:
        return None
    path = (_text(held).rpartition(".")[2], _text(name))
    if path in _CLOCKS:
        return "measures time"
    if path[0] == "mock" and path[1] in _REPLACES:
        return "replaces what the program may use"
    return None


def _why_assigned(left: Node) -> str | None:
    """Assigning to what the language or the platform holds changes it for one process only."""
    while left.type in ("member_expression", "subscript_expression"):
        held = left.child_by_field_name("object")
        if held is None:
            return None
        name = left.child_by_field_name("property")
        if name is not None and _text(name) in ("prototype", "__proto__"):
            return "changes a prototype"
        left = held
        if left.type == "identifier" and _text(left) in _HELD_BY_THE_LANGUAGE:
            return f"replaces what {_text(left)} holds"
    return None


_HELD_BY_THE_LANGUAGE = frozenset({
    "console", "Math", "Date", "JSON", "Object", "Array", "String", "Number", "Promise", "Error",
    "Reflect", "Intl", "Symbol", "RegExp", "Map", "Set",
})  # fmt: skip
