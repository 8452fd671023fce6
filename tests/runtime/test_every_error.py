"""Whatever is raised, the step ends by its retry rules, and the record says what it was.

Every exception class that Python and our dependencies define, made in many ways, and hostile
ones. With HOLDFAST_FUZZ set (see `make crash`) each also goes through a run of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

from holdfast import RunFailed, open_engine, start, step, workflow
from holdfast.records import RUN_FAILED, STEP_FAILED, STEP_RETRYING, ErrorInfo
from holdfast.runtime import failures
from waiting import LIMIT

LONG = bool(os.environ.get("HOLDFAST_FUZZ"))
LIBRARIES = ("aiohttp", "pydantic", "fastapi", "starlette", "jinja2", "uvicorn", "yarl", "openai")
STANDARD = """
    argparse ast asyncio binascii bz2 codecs concurrent.futures configparser copy csv ctypes dbm
    decimal email.errors ftplib getopt gzip http.client http.cookies imaplib io json locale lzma
    mailbox multiprocessing nntplib optparse pickle plistlib poplib pstats pwd queue quopri re
    sched select shelve shutil smtplib socket sqlite3 ssl statistics string struct subprocess tarfile
    tempfile termios threading tokenize tomllib tty typing unittest urllib.error uuid warnings wave
    weakref webbrowser xml.dom xml.etree.ElementTree xml.parsers.expat xml.sax zipfile zipimport zlib
""".split()


class Model(pydantic.BaseModel):
    number: int


class BrokenText(Exception):
    def __str__(self) -> str:
        raise TypeError("no text")

    __repr__ = __str__


class TextThatExits(Exception):
    def __str__(self) -> str:  # noqa: PLE0307
        sys.exit("from __str__")


class TextOfNoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class NeedsArguments(Exception):
    def __new__(cls, code: int, detail: str) -> NeedsArguments:
        return super().__new__(cls, code)

    def __init__(self, code: int, detail: str) -> None:
        self.detail = detail


class NeedsNames(Exception):
    def __init__(self, *, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class WithSlots(Exception):
    __slots__ = ("code",)

    def __init__(self, code: Any) -> None:
        super().__init__("slots")
        self.code = code


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("don't compare me")

    def __hash__(self) -> int:
        raise RuntimeError("don't hash me")

    def __deepcopy__(self, memo: object) -> None:
        raise RuntimeError("don't copy me")

    def __repr__(self) -> str:
        raise RuntimeError("don't show me")


class HidesItself(Exception):
    """As hard to look at as a class can be."""

    args = property(lambda _self: 1 / 0)  # type: ignore[assignment]
    __cause__ = property(lambda _self: 1 / 0)  # type: ignore[assignment]
    __context__ = property(lambda _self: 1 / 0)  # type: ignore[assignment]
    __notes__ = property(lambda _self: 1 / 0)
    __class__ = property(lambda _self: 1 / 0)  # type: ignore[assignment]
    __dict__ = property(lambda _self: 1 / 0)  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"no {name}")


class Meta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no module")


class Nameless(Exception, metaclass=Meta):
    pass


def with_attribute(value: Any) -> Exception:
    error = ValueError("attribute")
    error.value = value  # type: ignore[attr-defined]
    return error


def recursive() -> Exception:
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__, other.__context__ = other, one, other
    return one


def long_chain() -> Exception:
    error = ValueError("first")
    for number in range(20_000):
        later = ValueError(number)
        later.__context__ = error
        error = later
    return error


def deep_group() -> Exception:
    error: Exception = ValueError("innermost")
    for _ in range(3_000):
        error = ExceptionGroup("deeper", [error])
    return error


def recursion() -> None:
    recursion()


def own_list() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


HOSTILE: dict[str, Callable[[], Any]] = {
    "ValidationError": lambda: Model.model_validate({"number": "no"}),
    "BrokenText": raising(BrokenText()),
    "TextThatExits": raising(TextThatExits()),
    "TextOfNoText": raising(TextOfNoText()),
    "NeedsArguments": lambda: raising(NeedsArguments(1, "x"))(),
    "NeedsNames": lambda: raising(NeedsNames(status=7))(),
    "WithSlots of a live object": lambda: raising(WithSlots(object()))(),
    "WithSlots": lambda: raising(WithSlots((1, 2)))(),
    "HidesItself": raising(HidesItself()),
    "Nameless": raising(Nameless()),
    "ValueError of what can't be compared": raising(ValueError(Unequal())),
    "ValueError with what can't be compared": raising(with_attribute(Unequal())),
    "ValueError with its own list": raising(with_attribute(own_list())),
    "ValueError with NaN": raising(with_attribute(float("nan"))),
    "ValueError with a large number": raising(with_attribute(10**10_000)),
    "ValueError with a lock": raising(with_attribute(asyncio.Lock())),
    "ValueError that is enormous": raising(ValueError("x" * 20_000_000)),
    "ValueError that comes from itself": lambda: raising(recursive())(),
    "ValueError of a long chain": lambda: raising(long_chain())(),
    "ExceptionGroup that is deep": lambda: raising(deep_group())(),
    "ExceptionGroup that is wide": raising(
        ExceptionGroup("wide", [ValueError(i) for i in range(500)])
    ),
    "RecursionError": recursion,
    "UnicodeDecodeError": lambda: b"\xff".decode(),
    "UnicodeEncodeError": lambda: "\ud800".encode(),
    "StopAsyncIteration": raising(StopAsyncIteration(3)),
    "SyntaxError": lambda: compile("1 +", "x.py", "exec"),
    "NULs": raising(ValueError("\0 \ud800 \x1b[31m")),
}


def import_all() -> None:
    for name in STANDARD:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                importlib.import_module(name)
            except ImportError:
                continue  # not on this Python, or this machine
    for library in LIBRARIES:
        package = pytest.importorskip(library)
        for found in pkgutil.iter_modules(package.__path__):
            if "err" in found.name or "exc" in found.name:
                importlib.import_module(f"{library}.{found.name}")


def classes(root: type[BaseException] = BaseException) -> Iterator[type[BaseException]]:
    for kind in type.__subclasses__(root):
        yield kind
        yield from classes(kind)


def foreign_classes() -> list[type[BaseException]]:
    ours = {id(each) for each in globals().values()}
    return [kind for kind in classes() if id(kind) not in ours]


WAYS: list[tuple[Any, ...]] = [
    (),
    ("text",),
    (2, "text"),
    (2, "text", "file", None, "other"),
    ("text", ("file", 1, 2, "line")),
    ("utf-8", b"\xff", 0, 1, "reason"),
    (object(),),
    (b"bytes", {"a": (1, float("inf"))}),
    ("text", [ValueError("member")]),
    (None, None),
    (Unequal(), Unequal(), Unequal()),
]


def made_of(kind: type[BaseException], place: int) -> Iterator[BaseException]:
    ways = WAYS if LONG else [WAYS[(place + i) % len(WAYS)] for i in range(3)]
    for arguments in ways:
        for make in (kind, kind.__new__, lambda *a, k=kind: k(message=a[0], detail="d")):
            try:
                made = make(kind, *arguments) if make == kind.__new__ else make(*arguments)
            except BaseException:
                continue  # it is not made that way
            if isinstance(made, BaseException):
                yield made


def check(error: BaseException) -> None:
    try:
        raise error
    except BaseException as raised:
        info = failures.describe(raised)
    text = json.dumps(info.as_json(), allow_nan=False)
    assert len(text) < 1_000_000
    read = ErrorInfo.from_json(json.loads(text))
    assert read == info
    again = failures.rebuild(read)
    assert isinstance(again, Exception)
    asyncio.Future(loop=LOOP).set_exception(again)  # nothing a future refuses
    if info.rebuild is not None and type(again) is type(error) and not info.members:
        assert failures.describe(again).rebuild == info.rebuild


class Loop(asyncio.SelectorEventLoop):
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody looks at are what this is about."""


LOOP = Loop()


# Some of what is made in a way it was not meant to be fails when it is thrown away.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_error_that_can_be_imported_is_recorded_and_rebuilt() -> None:
    import_all()
    kinds = list(dict.fromkeys(foreign_classes()))
    assert len(kinds) > 300
    number = 0
    for place, kind in enumerate(kinds):
        for error in made_of(kind, place):
            check(error)
            number += 1
    assert number > 1_000


@step(retries=1, backoff="1ms")
async def hostile(name: str) -> None:
    HOSTILE[name]()


@step(retries=1, backoff="1ms")
def hostile_in_a_thread(name: str) -> None:
    HOSTILE[name]()


@workflow
async def raising_in_a_step(name: str) -> None:
    await hostile(name)


@workflow
async def raising_in_a_thread(name: str) -> None:
    await hostile_in_a_thread(name)


@workflow
async def raising_in_the_body(name: str) -> None:
    HOSTILE[name]()


async def ends(run: Any) -> ErrorInfo:
    async with asyncio.timeout(LIMIT):
        with pytest.raises(RunFailed):
            await run.result()
    return ErrorInfo.from_json((await run.events())[-1].facts["error"])


async def test_a_hostile_error_ends_its_step_after_its_retries(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db"):
        for flow in (raising_in_a_step, raising_in_a_thread, raising_in_the_body):
            runs = {name: await start(flow, name) for name in HOSTILE}
            for name, run in runs.items():
                info = await ends(run)
                events = [event.type for event in await run.events()]
                expected = name.partition(" ")[0]
                assert expected == "NULs" or expected in (info.type, info.message.partition(":")[0])
                assert events[-1] == RUN_FAILED
                if flow is not raising_in_the_body:
                    assert (events.count(STEP_RETRYING), events.count(STEP_FAILED)) == (1, 1)


FOUND: list[BaseException] = []


@step(retries=0)
async def raise_found(number: int) -> None:
    raise FOUND[number]


@workflow
async def raise_found_in_a_step(number: int) -> None:
    await raise_found(number)


@pytest.mark.skipif(not LONG, reason="long: make crash runs it")
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_every_error_ends_its_run(tmp_path: Path) -> None:
    import_all()
    for kind in foreign_classes():
        FOUND.extend(made_of(kind, 0))
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    async with open_engine(tmp_path / "store.db"):
        for first in range(0, len(FOUND), 500):
            numbers = range(first, min(first + 500, len(FOUND)))
            for run in [await start(raise_found_in_a_step, number) for number in numbers]:
                await ends(run)
