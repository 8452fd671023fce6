"""The process behind `local/…`: llama.cpp's server on a loopback port, until stdin closes.

    python -m holdfast.gateway.local_server MODEL.gguf NAME

Prints its address once it is ready. Run in a process of its own, so that nothing of it is in
ours: not its threads, not its memory, not its logs.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

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
