"""Answers that clients of the responses format go on from, by `previous_response_id` or item.

Where such a client is served by a provider that keeps no conversations, we keep them: what was said
and answered, encrypted by the answer's id, which only the client has. A request that goes on from
one is made whole before anything else is done with it, so that budgets, hooks and every provider
see all of it. Ids that are not ours are left to the provider they came from.
"""

from __future__ import annotations

import json
import time
from typing import Any, cast

from holdfast.errors import UsageError
from holdfast.gateway.formats.json_fields import Json, dumps, items
from holdfast.gateway.formats.responses_items import KEPT_HERE, encode_output, item_stem
from holdfast.gateway.reply import Completion
from holdfast.gateway.secrets import decrypt, encrypt, key_hash, reply_key
from holdfast.ids import new_token
from holdfast.store.ledger import Ledger

_IDS = 24
"""Letters of an id that name the answer: it is the key to what is kept."""


class Conversations:
    """The answers kept for one virtual key's clients."""

    def __init__(self, ledger: Ledger, owner: str, seconds: float) -> None:
        self._ledger, self._owner, self._seconds = ledger, owner, seconds

    @property
    def keeps(self) -> bool:
        return self._seconds > 0

    async def whole(self, body: Json) -> Json:
        """The request with all that it goes on from; the same object if that is nothing of ours."""
        before = body.get("previous_response_id")
        given: Any = body.get("input")
        ours = isinstance(before, str) and before.startswith(KEPT_HERE)
        refers = isinstance(given, list) and any(
            _reference(one) for one in cast("list[Any]", given)
        )
        if not ours and not refers:
            return body
        said = _as_items(body.get("input"))
        if refers:
            said = [await self._item(one) for one in said]
        if ours:
            said = [*await self._kept(cast(str, before)), *said]
        left = {name: value for name, value in body.items() if name != "previous_response_id"}
        return {**(left if ours else body), "input": said}

    def new_id(self) -> str:
        """An id for an answer that will be kept."""
        return KEPT_HERE + "".join(c for c in new_token() if c.isalnum())[:_IDS]

    async def keep(self, body: Json, completion: Completion) -> None:
        """Keep what was said and answered, under the answer's id."""
        assert completion.id is not None
        said = [*_as_items(body.get("input")), *encode_output(completion)]
        await self._ledger.keep(
            self._name(completion.id),
            encrypt(reply_key(completion.id, self._owner.encode()), dumps(said)),
            until=time.time() + self._seconds,
        )

    async def _kept(self, response_id: str) -> list[Any]:
        found = await self._ledger.kept(self._name(response_id))
        if found is None:
            raise UsageError(
                f"response {response_id} is not kept here, or no longer",
                hint="send the conversation itself as input",
            )
        kept = decrypt(reply_key(response_id, self._owner.encode()), found)
        return items(json.loads(kept), "kept")

    async def _item(self, item: Any) -> Any:
        response_id = _reference(item)
        if response_id is None:
            return item
        wanted = cast(Json, item)["id"]
        for one in await self._kept(response_id):
            if isinstance(one, dict) and cast(Json, one).get("id") == wanted:
                return cast(Json, one)
        raise UsageError(f"item {wanted} is not kept here")

    def _name(self, response_id: str) -> str:
        return f"response:{key_hash(f'{self._owner}:{response_id}')}"


def _reference(item: Any) -> str | None:
    """The answer that an item refers to, if it is one of ours."""
    if not isinstance(item, dict) or cast(Json, item).get("type") != "item_reference":
        return None
    _, _, rest = str(cast(Json, item).get("id")).partition("_")
    response_id = "resp_" + rest.rpartition("_")[0]
    return response_id if item_stem(response_id) else None


def _as_items(given: object) -> list[Any]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return items(given, "input")
