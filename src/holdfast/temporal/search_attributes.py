"""What Temporal's own list of workflows can be searched by: key, version, parent, attributes.

They are custom search attributes, which a server has to know. We register them where we may; where
we may not (Temporal Cloud, a server with its own authorizer) somebody else does, or runs are
started without them. Temporal never encrypts them, so with an encryption key only what says
nothing about the data is told: version and parent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.common import (
    SearchAttributeIndexedValueType,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)
from temporalio.service import RPCError

from holdfast.records import ATTRIBUTES_SET, Event, Run

log = logging.getLogger("holdfast")

KEY = SearchAttributeKey.for_keyword("HoldfastKey")
VERSION = SearchAttributeKey.for_keyword("HoldfastVersion")
PARENT = SearchAttributeKey.for_keyword("HoldfastParent")
ATTRIBUTES = SearchAttributeKey.for_keyword_list("HoldfastAttributes")
"""As `name=value`, for values that are no objects or lists."""
ALL = (KEY, VERSION, PARENT, ATTRIBUTES)
LONGEST_WORD = 255


async def registered(client: Client) -> bool:
    """Whether the server knows them all, after we have registered what was missing."""
    service, namespace = client.operator_service, client.namespace
    listing = ListSearchAttributesRequest(namespace=namespace)
    try:
        known = (await service.list_search_attributes(listing)).custom_attributes
        missing = {key.name: _type(key.indexed_value_type) for key in ALL if key.name not in known}
        if missing:
            adding = AddSearchAttributesRequest(namespace=namespace, search_attributes=missing)  # pyright: ignore[reportArgumentType] - numbers of an enum
            await service.add_search_attributes(adding)
    except RPCError as error:
        log.warning("runs can't be searched for on Temporal: %s", error)
        return False
    return True


def _type(of: SearchAttributeIndexedValueType) -> int:
    return int(of)


def of_run(run: Run, created: Event, *, private: bool) -> TypedSearchAttributes:
    """What a run is found by. `private`: nothing that may be about its data."""
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(VERSION, run.version)]
    if run.parent_id is not None:
        pairs.append(SearchAttributePair(PARENT, run.parent_id))
    if not private:
        if run.key is not None and len(run.key) <= LONGEST_WORD:
            pairs.append(SearchAttributePair(KEY, run.key))
        words = attribute_words(attributes_in([created]))
        if words:
            pairs.append(SearchAttributePair(ATTRIBUTES, words))
    return TypedSearchAttributes(pairs)


def attributes_in(journal: Sequence[Event]) -> dict[str, Any]:
    """A run's attributes, by what its journal says."""
    found: dict[str, Any] = dict(journal[0].facts.get("attributes", {}))
    for event in journal:
        if event.type == ATTRIBUTES_SET:
            found.update(json.loads(event.value or b"{}"))
    return {name: value for name, value in found.items() if value is not None}


def attribute_words(attributes: dict[str, Any]) -> list[str]:
    """Attributes as words to search by."""
    words = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in attributes.items()
        if isinstance(value, str | int | float | bool)
    ]
    return sorted(word for word in words if len(word) <= LONGEST_WORD)
