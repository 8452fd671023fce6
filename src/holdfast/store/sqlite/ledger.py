"""The ledger of model calls in SQLite: calls, spend, limits and virtual keys.

Every call is committed as `started`, with its worst case held against its budgets, before its
first byte is sent; and once more when it ends. Both are one transaction each, so that limits
hold across processes, and calls of a process that died are found and settled by the others.
What a call costs and which scopes it counts against is the gateway's to say.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast.errors import BudgetExceeded, HoldfastError, StoreError
from holdfast.records.calls import Call, CallEnd, CallStart, Spend, SpendLimit, VirtualKey
from holdfast.store.base import Change
from holdfast.store.connection import Connection, DatabaseFault
from holdfast.store.ledger import KEPT_SECONDS, Begun, CallTotals, Earlier, Rate
from holdfast.store.sqlite import ledger_batch, ledger_rows, ledger_spend
from holdfast.store.sqlite.database import MEMORY, Database, Result, Transaction
from holdfast.store.sqlite.ledger_batch import OfCalls
from holdfast.store.sqlite.ledger_rows import Hold
from holdfast.store.sqlite.ledger_spend import Line, Waiter
from holdfast.store.sqlite.process_locks import FileOwner, Owner, owners_folder

T = TypeVar("T")
_POLL, _LONGEST_POLL = 0.02, 0.25
"""How often the first in line looks whether another process has made room."""


@dataclass(frozen=True, slots=True)
class _InLine:
    """The call waits for room, at this place, for this reason."""

    number: int
    scopes: Sequence[str]
    full: BudgetExceeded


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a call, to be written: by itself, or with others of its batch at once."""

    call_id: str
    run: Callable[[Connection], Sequence[str]]
    at_once: Callable[[Transaction], Sequence[str] | None]


class SqlLedger:
    """Calls, spend and keys in a database; `owner` stands for this process."""

    def __init__(self, database: Database, owner: Owner, *, replays_for: float) -> None:
        self._database, self._owner = database, owner
        self._closed = False
        self._replays_for = replays_for
        self._holds: dict[str, Hold] = {}
        """What calls begun here hold, as far as we know: it saves looking it up at their end."""
        self._line = Line()
        self._owed: list[_Ending] = []
        """Ends of calls that the store could not take."""
        self._ending_soon: set[Future[Sequence[str]]] = set()
        """Ends of calls that nobody waits for."""
        try:
            self._start(self._sign_on).result()
            self._start(self._sweep).result()
        except BaseException:
            self._owner.close()
            self._database.close()
            raise

    def _sign_on(self, connection: Connection) -> None:
        self._owner.hold(connection)
        ledger_rows.add_owner(connection, self._owner.id)

    @property
    def owner(self) -> str:
        """This ledger's id as an owner of calls."""
        return self._owner.id

    async def begin(
        self,
        start: CallStart,
        *,
        scopes: Sequence[str],
        limits: Sequence[SpendLimit] = (),
        usd: int | None,
        tokens: int,
        durable: bool = True,
        wait: float = 0.0,
    ) -> Begun | Earlier:
        """Record the call as started and hold its worst case (`usd` None: price unknown).

        Where calls in flight hold the room it needs, it waits for them, in the order of coming,
        for `wait` seconds. Raises BudgetExceeded if a limit could be passed whatever they turn out
        to cost, or the time is up; CallMismatch if the key was used for another request.
        """
        number: int | None = None

        def run(connection: Connection) -> Begun | Earlier | _InLine:
            found = attempt(connection)
            if number is not None and not isinstance(found, _InLine):
                ledger_spend.leave_queue(connection, start.id)
            return found

        def attempt(connection: Connection) -> Begun | Earlier | _InLine:
            if start.key is not None:
                earlier = ledger_rows.by_key(connection, start)
                if (
                    earlier
                    and earlier.status == "started"
                    and self._owner.is_dead(connection, earlier.owner)
                ):
                    self._sweep(connection)
                    earlier = ledger_rows.by_key(connection, start)
                if earlier is not None:
                    return Earlier(earlier, ledger_rows.replay(connection, earlier.start.id))
            linked, limited = ledger_spend.in_use(connection)
            every = ledger_spend.with_parents(connection, scopes) if linked else scopes
            found: list[SpendLimit] = []
            if limited or limits:
                found = ledger_spend.merged_limits(connection, every, limits)
            if found and (full := self._full(connection, found, (usd, tokens), number)):
                if wait <= 0:
                    raise full
                limited_scopes = [limit.scope for limit in found]
                place = number or ledger_spend.join_queue(
                    connection, limited_scopes, start.id, self._owner.id
                )
                return _InLine(place, limited_scopes, full)
            ledger_rows.insert(
                connection, start, self._owner.id, scopes=every, usd=usd or 0, tokens=tokens
            )
            ledger_spend.hold(connection, every, usd or 0, tokens)
            return Begun(bool(found), every)

        def at_once(tx: Transaction) -> Begun | None:
            began = not limits and ledger_batch.begin(
                tx, start, self._owner.id, scopes, usd or 0, tokens
            )
            return Begun(False, scopes) if began else None

        if self._owed:
            self._pay_owed()
        begun = await self._write(run, durable=durable, at_once=at_once, key=start.key)
        if isinstance(begun, _InLine):
            number = begun.number
            begun = await self._wait_in_line(start.id, begun, run, durable=durable, wait=wait)
        if isinstance(begun, Begun):
            self._holds[start.id] = Hold(begun.scopes, usd or 0, tokens)
        return begun

    def _full(
        self,
        connection: Connection,
        limits: Sequence[SpendLimit],
        needed: tuple[int | None, int],
        number: int | None,
    ) -> BudgetExceeded | None:
        """Why a call can't begin now, if it may later; raises if it never will."""
        ledger_spend.check(connection, limits, *needed, settled=True)
        scopes = [limit.scope for limit in limits]
        for swept in (False, True):
            try:
                ledger_spend.check(connection, limits, *needed)
                if ledger_spend.is_turn(connection, scopes, number):
                    return None
                full = BudgetExceeded(
                    f"other calls wait for room in {scopes[0]}",
                    hint="wait for them: [gateway.timeouts] budget",
                    scope=scopes[0],
                )
            except BudgetExceeded as error:
                full = error
            if not swept:
                self._sweep(connection)  # the dead may hold what is missing, or stand in line
        ledger_spend.check(connection, limits, *needed, settled=True)  # now with what they spent
        return full

    async def _wait_in_line(
        self,
        call_id: str,
        line: _InLine,
        run: Callable[[Connection], Begun | Earlier | _InLine],
        *,
        durable: bool,
        wait: float,
    ) -> Begun | Earlier:
        waiter, ends = Waiter(line.scopes), time.monotonic() + wait
        self._line.join(waiter)
        pause, done = _POLL, False
        try:
            while True:
                left = ends - time.monotonic()
                if left <= 0:
                    full = line.full
                    full.message = f"{full.message}; waited {wait:g} s for calls in flight"
                    full.args = (full.message,)
                    raise full
                # Others of this process need not look: who leaves wakes the next.
                first = self._line.is_first(waiter)
                woken = await waiter.sleep(min(left, pause) if first else left)
                pause = _POLL if woken else min(pause * 2, _LONGEST_POLL)
                found = await self._write(run, durable=durable)
                if not isinstance(found, _InLine):
                    done = True
                    return found
                line = found
        finally:
            self._line.leave(waiter)
            if not done:
                self._start(lambda c: ledger_spend.leave_queue(c, call_id), durable=False)

    async def hold(
        self,
        call_id: str,
        *,
        limits: Sequence[SpendLimit] = (),
        usd: int | None,
        tokens: int,
        keep: tuple[int, int] = (0, 0),
        wait: float = 0.0,
    ) -> None:
        """Change what a call in flight holds; raises BudgetExceeded.

        Where others hold the room it waits for them, `wait` seconds, and holds but `keep` of
        nanodollars and tokens meanwhile: two that wait for one another would wait for ever.
        """

        def run(connection: Connection) -> BudgetExceeded | None:
            held = ledger_rows.held(connection, call_id)
            if held is None:
                return None
            scopes, held_usd, held_tokens = held
            found = ledger_spend.merged_limits(connection, scopes, limits)
            ledger_spend.check(connection, found, usd, tokens, settled=True)
            more = None if usd is None else usd - held_usd
            full, now = None, (usd or 0, tokens)
            try:
                ledger_spend.check(connection, found, more, tokens - held_tokens)
            except BudgetExceeded as error:
                full, now = error, (min(keep[0], held_usd), min(keep[1], held_tokens))
            ledger_spend.hold(connection, scopes, now[0] - held_usd, now[1] - held_tokens)
            ledger_rows.set_hold(connection, call_id, *now)
            return full

        ends, pause = time.monotonic() + wait, _POLL
        while (full := await self._write(run, durable=False)) is not None:
            if time.monotonic() >= ends:
                raise full
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_POLL)

    async def finish(self, call_id: str, end: CallEnd, *, durable: bool = True) -> None:
        """Record how the call ended and settle its hold; a second end changes nothing."""
        ending = self._ending(call_id, end)
        try:
            scopes = await asyncio.shield(
                asyncio.wrap_future(self._start_ending(ending, durable=durable, soon=True))
            )
        except StoreError:
            self._owed.append(ending)
            raise
        if self._line:
            self._line.wake(scopes)

    def finish_soon(self, call_id: str, end: CallEnd) -> Future[Sequence[str]]:
        """`finish` without waiting; the order of what is sent is kept."""
        return self._send(self._ending(call_id, end))

    def _send(self, ending: _Ending) -> Future[Sequence[str]]:
        future = self._start_ending(ending)
        self._ending_soon.add(future)

        def done(ended: Future[Sequence[str]]) -> None:
            self._ending_soon.discard(ended)
            if ended.exception() is not None:
                self._owed.append(ending)
            elif self._line:
                self._line.wake(ended.result())

        future.add_done_callback(done)
        return future

    def _start_ending(
        self, ending: _Ending, *, durable: bool = True, soon: bool = False
    ) -> Future[Sequence[str]]:
        return self._start(
            ending.run, durable=durable, soon=soon, at_once=ending.at_once, ending=ending.call_id
        )

    def _pay_owed(self) -> None:
        """Try again what the store could not take before: a full disk, say."""
        owed, self._owed = self._owed, []
        for ending in owed:
            self._send(ending)

    def _ending(self, call_id: str, end: CallEnd) -> _Ending:
        """Settles the call; gives the scopes where that made room."""
        known = self._holds.pop(call_id, None)

        def run(connection: Connection) -> Sequence[str]:
            held = known
            if held is None or not ledger_rows.finish(
                connection, call_id, end, held, self._replays_for
            ):
                held = ledger_rows.held(connection, call_id)  # it changed, or has ended already
                if held is None:
                    return ()
                ledger_rows.finish(connection, call_id, end, held, self._replays_for)
            ledger_spend.settle(
                connection, held.scopes, (held.usd, held.tokens), (end.charge, end.charge_tokens)
            )
            return held.scopes

        def at_once(tx: Transaction) -> Sequence[str] | None:
            if known is None or not ledger_batch.finish(tx, call_id, end, known, self._replays_for):
                return None
            return known.scopes

        return _Ending(call_id, run, at_once)

    async def restore(self, call: Call) -> None:
        """Keep a call of another store that has ended; it counts against no budget of this one."""

        def run(connection: Connection) -> None:
            if ledger_rows.by_id(connection, call.start.id) is not None or call.end is None:
                return
            ledger_rows.insert(connection, call.start, self._owner.id, scopes=(), usd=0, tokens=0)
            held = ledger_rows.Hold((), 0, 0)
            ledger_rows.finish(connection, call.start.id, call.end, held, 0.0)

        await self._write(run)

    async def recover(self) -> list[Call]:
        """Settle the calls of processes that died; they are `unknown` from now on."""
        return await self._write(self._sweep)

    def _sweep(self, connection: Connection) -> list[Call]:
        settled: list[Call] = []
        for owner in ledger_rows.owners(connection):
            if not self._owner.is_dead(connection, owner):
                continue
            for call_id, scopes, usd, tokens in ledger_rows.in_flight(connection, owner):
                # It may have been sent and paid for: it counts in full until someone knows more.
                ledger_rows.lose(connection, call_id, usd, tokens)
                ledger_spend.settle(connection, scopes, (usd, tokens), (usd, tokens))
                call = ledger_rows.by_id(connection, call_id)
                assert call is not None
                settled.append(call)
            ledger_spend.leave_all_queue(connection, owner)
            ledger_rows.remove_owner(connection, owner)
            self._owner.forget(connection, owner)
        ledger_rows.prune(connection)
        return settled

    async def supersede(self, call_id: str, *, release: bool = False) -> None:
        """Let the key of a call of unknown outcome be used again: the caller decided to.

        With `release` what it counted is given back: the new call is the same one, taken up.
        """

        def run(connection: Connection) -> None:
            if release:
                scopes, usd, tokens = ledger_rows.release(connection, call_id)
                ledger_spend.settle(connection, scopes, (0, 0), (-usd, -tokens))
            ledger_rows.drop_key(connection, call_id)

        await self._write(run)

    async def call(self, call_id: str) -> Call | None:
        """One call by its id."""
        return await self._read_after_ends(lambda c: ledger_rows.by_id(c, call_id))

    async def calls(
        self, *, run_id: str | None = None, status: str | None = None, limit: int = 100
    ) -> list[Call]:
        """The latest calls first, of one run or of all."""
        return await self._read_after_ends(lambda c: ledger_rows.latest(c, run_id, status, limit))

    async def totals(self, run_ids: Sequence[str]) -> CallTotals:
        """What all model calls of these runs came to, however many they are."""
        return await self._read_after_ends(
            lambda c: sum((ledger_rows.totals(c, run_id) for run_id in run_ids), CallTotals())
        )

    async def spend(self, scope: str) -> Spend:
        """What a scope has spent, holds, and may spend."""
        return await self._read_after_ends(lambda c: ledger_spend.read(c, scope))

    async def take_turn(self, rates: Sequence[Rate]) -> float:
        """Take from these rates, shared by all on this store; returns the seconds to wait."""
        return await self._write(
            lambda c: ledger_spend.take_rates(c, rates, time.time()), durable=False
        )

    def give_back(self, rates: Sequence[Rate]) -> None:
        """Give back what was taken and not used."""
        self._start(lambda c: ledger_spend.give_back_rates(c, rates, time.time()), durable=False)

    async def set_limit(self, limit: SpendLimit) -> None:
        """Limit a scope from now on; a limit without amounts lifts it."""
        await self._write(lambda c: ledger_spend.set_limit(c, limit))

    async def link(self, child: str, parent: str) -> None:
        """Count the child scope's calls against the parent scope as well."""
        await self._write(lambda c: ledger_spend.link(c, child, parent))

    async def add_key(self, key: VirtualKey) -> None:
        await self._write(lambda c: ledger_rows.add_key(c, key))

    async def find_key(self, hash: str) -> VirtualKey | None:
        return await self._read(lambda c: ledger_rows.find_key(c, hash))

    async def keys(self) -> list[VirtualKey]:
        return await self._read(ledger_rows.every_key)

    async def revoke_key(self, id: str, at: float) -> bool:
        """Revoke a key by its id; False if there is none."""
        return await self._write(lambda c: ledger_rows.revoke_key(c, id, at))

    async def keep(self, name: str, data: bytes, *, until: float, replace: bool = True) -> bool:
        """Keep data under a name until that time; without `replace`, False if it is taken."""
        return await self._write(
            lambda c: ledger_rows.keep(c, name, data, until=until, replace=replace)
        )

    async def kept(self, name: str) -> bytes | None:
        """What is kept under a name, unless its time is over."""
        return await self._read(lambda c: ledger_rows.kept(c, name))

    async def _write(
        self,
        run: Callable[[Connection], T],
        *,
        durable: bool = True,
        at_once: Callable[[Transaction], T | None] | None = None,
        key: str | None = None,
    ) -> T:
        """The operation's result, after its commit.

        `durable` waits for the disk; without it the commit survives the death of the process
        but not a power cut.
        """
        # Shielded: what was sent is carried out, whether or not its caller is cancelled meanwhile.
        started = self._start(run, durable=durable, soon=True, at_once=at_once, key=key)
        return await asyncio.shield(asyncio.wrap_future(started))

    def _start(
        self,
        run: Callable[[Connection], T],
        *,
        durable: bool = True,
        soon: bool = False,
        at_once: Callable[[Transaction], T | None] | None = None,
        key: str | None = None,
        ending: str | None = None,
    ) -> Future[T]:
        """Start the operation; usable from any thread. `soon`: with this turn of the loop.

        `at_once`: how it is done together with others of its batch, if it is as simple as that; it
        is looked up for all of them by the `key` of a call that begins, or the id of one `ending`.

        An operation looks first and writes last: what it has written when it refuses (the calls of
        the dead, settled) is meant to stay.
        """
        if self._closed:
            raise StoreError(f"the ledger at {self._database.name} is closed")
        future: Future[T] = Future()

        def operation(tx: Transaction) -> Exception | None:
            nonlocal value
            try:
                if at_once is not None and (done := at_once(tx)) is not None:
                    value = [done]
                    return None
                if tx.gathers:
                    tx.flush()  # what others of the batch have written is to be seen
                    tx.calls = None  # and what was looked up for them may change
                value = [run(tx.connection)]
            except (sqlite3.Error, DatabaseFault):
                raise  # the store's fault: nobody's work in this batch is done
            except Exception as refusal:  # noqa: BLE001  it belongs to the caller
                return refusal
            return None

        def report(results: list[Result], _change: Change) -> None:
            [(_, refusal, error)] = results
            if not future.set_running_or_notify_cancel():
                return
            failure = error or refusal
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(value[0])

        value: list[T] = []
        submit = self._database.submit_soon if soon else self._database.submit
        submit([(OfCalls("ledger", operation, key, ending), _reported)], report, durable=durable)
        return future

    async def _read_after_ends(self, question: Callable[[Connection], T]) -> T:
        """Ask once the ends that were sent before are committed."""
        if ends := list(self._ending_soon):
            await asyncio.wait([asyncio.wrap_future(end) for end in ends])
        return await self._read(question)

    async def _read(self, question: Callable[[Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"the ledger at {self._database.name} is closed")
        return await asyncio.wrap_future(self._database.read(question))

    def close(self) -> None:
        """Finish what was sent, and let go of the file and of this owner's name."""
        if self._closed:
            return
        self._pay_owed()
        self._start(lambda c: ledger_spend.leave_all_queue(c, self._owner.id), durable=False)
        left = self._start(lambda c: ledger_rows.remove_idle_owner(c, self._owner.id))
        self._closed = True
        try:
            left.result()
        finally:
            self._owner.close()
            self._database.close()


class SqliteLedger(SqlLedger):
    """Calls, spend and keys in the store at `path`; `:memory:` keeps them in this process."""

    def __init__(self, path: Path | str, *, replays_for: float = KEPT_SECONDS) -> None:
        self.path = Path(path)
        owner = FileOwner(None if str(path) == MEMORY else owners_folder(self.path))
        super().__init__(Database.open(path), owner, replays_for=replays_for)


def _reported(_value: object, _error: HoldfastError | None) -> None:
    """The whole batch is reported at once."""
