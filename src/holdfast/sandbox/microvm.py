"""placeholder"""

from __future__ import annotations

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.base import Instance, Isolation, Probe
from holdfast.sandbox.spec import Spec
from holdfast.sandbox.state import HostFolder


class MicrovmBackend:
    name = "microvm"
    isolation = Isolation.MICROVM

    def __init__(self, folder: HostFolder) -> None:
        pass

    async def probe(self) -> Probe:
        return Probe(False, "not built yet")

    async def create(self, id: str, spec: Spec) -> Instance:
        raise SandboxUnavailable("not built yet")

    def close(self) -> None:
        pass
