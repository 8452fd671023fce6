"""The conformance suite of stores: what every store has to do, whatever it keeps its records in.

For authors of stores. Make a test class of `StoreConformance`, give it a `parts` fixture, and run
pytest with pytest-asyncio; each test gets an empty store of its own. Needs pytest-asyncio.

>>> class TestMyStore(StoreConformance):
...     @pytest.fixture
...     def parts(self, tmp_path):
...         return MyParts(tmp_path / "store")

`parts` has to be picklable: what is said about the death of a process is tested with a process that
is killed, which opens the same store.
"""

import pytest

# Before they are loaded: so that a failed assertion in them says what the values were.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "approvals",
            "changes",
            "death",
            "inspection",
            "journal",
            "ledger",
            "listing",
            "messages",
            "ownership",
            "pacing",
            "records",
            "retention",
            "sandboxes",
            "schedules",
            "steering",
            "subscriptions",
        )
    )
)

from holdfast.testing.store_conformance.approvals import ApprovalConformance  # noqa: E402
from holdfast.testing.store_conformance.changes import ChangeConformance  # noqa: E402
from holdfast.testing.store_conformance.death import DeathConformance  # noqa: E402
from holdfast.testing.store_conformance.inspection import InspectionConformance  # noqa: E402
from holdfast.testing.store_conformance.journal import JournalConformance  # noqa: E402
from holdfast.testing.store_conformance.ledger import (  # noqa: E402
    LedgerConformance,
    SharedLedgerConformance,
)
from holdfast.testing.store_conformance.listing import ListingConformance  # noqa: E402
from holdfast.testing.store_conformance.messages import MessageConformance  # noqa: E402
from holdfast.testing.store_conformance.ownership import OwnershipConformance  # noqa: E402
from holdfast.testing.store_conformance.pacing import PacingConformance  # noqa: E402
from holdfast.testing.store_conformance.retention import RetentionConformance  # noqa: E402
from holdfast.testing.store_conformance.sandboxes import SandboxConformance  # noqa: E402
from holdfast.testing.store_conformance.schedules import ScheduleConformance  # noqa: E402
from holdfast.testing.store_conformance.steering import SteeringConformance  # noqa: E402
from holdfast.testing.store_conformance.subscriptions import (  # noqa: E402
    SubscriptionConformance,
)


class RunConformance(
    JournalConformance,
    OwnershipConformance,
    MessageConformance,
    SteeringConformance,
    ListingConformance,
    ApprovalConformance,
    ScheduleConformance,
    SubscriptionConformance,
    PacingConformance,
    RetentionConformance,
):
    """What is asked of a store's runs."""


class StoreConformance(
    RunConformance,
    LedgerConformance,
    SharedLedgerConformance,
    SandboxConformance,
    InspectionConformance,
    ChangeConformance,
    DeathConformance,
):
    """Everything that is asked of a store."""


__all__ = [
    "ApprovalConformance",
    "ChangeConformance",
    "DeathConformance",
    "InspectionConformance",
    "JournalConformance",
    "LedgerConformance",
    "ListingConformance",
    "MessageConformance",
    "OwnershipConformance",
    "RetentionConformance",
    "RunConformance",
    "SandboxConformance",
    "ScheduleConformance",
    "SharedLedgerConformance",
    "SteeringConformance",
    "StoreConformance",
    "SubscriptionConformance",
]
