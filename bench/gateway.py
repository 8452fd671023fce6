"""The gateway against its peers, in one run: added latency, throughput, CPU per library call.

    make bench-gateway

An instant fake upstream; one client at a time for latency, 32 at once for throughput. Peers
(LiteLLM's proxy and library, pydantic-ai, the openai SDK) live in .bench-venv, which `make` makes,
and are left out without it. Rounds are interleaved, so that a noisy machine is noisy for all.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvloop

HERE = Path(__file__).parent
ROOT = HERE.parent
PEERS = ROOT / ".bench-venv"
ROUNDS, ONE_BY_ONE, AT_ONCE, CLIENTS = 5, 300, 1500, 32
MESSAGES = [{"role": "user", "content": "Why is the sky blue? Answer in a few sentences."}]


def peer_python() -> Path | None:
    """The peers' own environment, if `make` has made it."""
    return PEERS / "bin" / "python" if (PEERS / ".ready").exists() else None


@contextmanager
def upstream() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "gateway_upstream.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout and process.stdin
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    process.stdin.close()
    process.wait()


@contextmanager
def our_gateway(url: str, folder: Path, **more: Any) -> Iterator[str]:
    keep = "true" if more.get("keep", True) else "false"
    (folder / "holdfast.toml").write_text(
        f"[gateway]\nkeep_content = {keep}\n"
        f'[gateway.providers.chat]\nbase_url = "{url}"\nformats = ["chat"]\nfree = true\n'
        f'[gateway.providers.other]\nbase_url = "{url}"\nformats = ["anthropic"]\nfree = true\n'
    )
    env = {**os.environ, "HOLDFAST_STORE": str(folder / "s.db"),
           "HOLDFAST_CONFIG": str(folder / "holdfast.toml")}  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", "gateway", "serve", "--port", "0", "--json",
         "--open"],
        stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert process.stdout
    yield json.loads(process.stdout.readline())["openai_base_url"]
    process.terminate()
    process.wait()


@contextmanager
def litellm_proxy(python: Path, url: str, folder: Path) -> Iterator[str]:
    (folder / "litellm.yaml").write_text(
        "model_list:\n  - model_name: bench\n    litellm_params:\n"
        f"      model: openai/bench\n      api_base: {url}\n      api_key: k\n"
        "litellm_settings:\n  telemetry: false\n"
    )
    port = 41873
    process = subprocess.Popen(
        [str(python.with_name("litellm")), "--config", str(folder / "litellm.yaml"), "--port",
         str(port), "--num_workers", "1", "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
             "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"},
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=1).close()
            break
        except OSError:
            time.sleep(0.5)
    if process.poll() is not None:
        raise SystemExit(f"LiteLLM's proxy ended with {process.returncode} before it was ready")
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


async def measure(url: str, model: str, one_by_one: int, at_once: int) -> dict[str, float]:
    """Latency one by one, then requests per second with many at once."""
    import aiohttp

    body = json.dumps({"model": model, "messages": MESSAGES}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-x"}
    times: list[float] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def one() -> float:
            began = time.perf_counter()
            async with session.post(f"{url}/chat/completions", data=body) as reply:
                text = await reply.read()
                assert reply.status == 200, text[:300]
            return time.perf_counter() - began

        for _ in range(20):
            await one()
        for _ in range(one_by_one):
            times.append(await one())
        left = at_once

        async def client() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await one()

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        rate = at_once / (time.perf_counter() - began)
    times.sort()
    return {"p50": times[len(times) // 2] * 1e3, "p99": times[int(len(times) * 0.99)] * 1e3,
            "rate": rate}  # fmt: skip


def http_bench(python: Path | None, url: str, folder: Path) -> dict[str, Any]:
    results: dict[str, list[dict[str, float]]] = {}
    with ExitStack() as stack:
        ours = stack.enter_context(our_gateway(url, folder))
        targets: list[tuple[str, str, str, int]] = [
            ("direct", url, "bench", 1),
            ("ours, pass-through", ours, "chat/bench", 1),
            ("ours, translated", ours, "other/bench", 1),
        ]
        if python is not None:
            proxy = stack.enter_context(litellm_proxy(python, url, folder))
            targets.append(("LiteLLM proxy", proxy, "bench", 5))
        for _ in range(ROUNDS):
            for name, target, model, slower in targets:
                found = uvloop.run(measure(target, model, ONE_BY_ONE // slower, AT_ONCE // slower))
                results.setdefault(name, []).append(found)
    return {
        name: {key: statistics.median(r[key] for r in rounds) for key in ("p50", "p99", "rate")}
        for name, rounds in results.items()
    }


def library_bench(python: Path | None, url: str, folder: Path) -> dict[str, Any]:
    ours = Path(sys.executable)
    targets = [("ours, SQLite ledger", ours, f"ours:{folder / 'l.db'}", 600),
               ("ours, ledger in memory", ours, "ours", 600),
               ("aiohttp alone", ours, "aiohttp", 600),
               ("openai SDK", ours, "openai", 300)]  # fmt: skip
    if python is not None:
        targets += [("pydantic-ai", python, "pydantic-ai", 200),
                    ("litellm", python, "litellm", 200)]  # fmt: skip
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(5):
        for name, interpreter, who, calls in targets:
            done = subprocess.run(
                [str(interpreter), str(HERE / "gateway_library.py"), who, url, str(calls)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                results.setdefault(name, []).append(json.loads(done.stdout.splitlines()[-1]))
            else:
                print(f"{name}: {done.stderr[-400:]}", file=sys.stderr)
    return {
        name: {key: statistics.median(r[key] for r in rounds) for key in ("cpu_us", "wall_us")}
        for name, rounds in results.items()
    }


def import_bench() -> dict[str, float]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def once(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=env)
        return time.perf_counter() - began

    found: dict[str, float] = {}
    for name, code in (("python alone", "pass"), ("holdfast.gateway", "import holdfast.gateway"),
                       ("all a call needs of ours", "import holdfast.gateway.calls")):  # fmt: skip
        found[name] = min(once(code) for _ in range(7)) * 1e3
    return found


def main() -> None:
    python = peer_python()
    with tempfile.TemporaryDirectory() as name, upstream() as url:
        folder = Path(name)
        http = http_bench(python, url, folder)
        library = library_bench(python, url, folder)
    imports = import_bench()
    load = os.getloadavg()[0]
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the end\n"
    )
    base = http["direct"]
    print(
        f"{'HTTP, instant upstream':28} {'p50 ms':>8} {'p99 ms':>8} {'added p50':>10} {'req/s':>8}"
    )
    for label, r in http.items():
        added = r["p50"] - base["p50"]
        print(f"{label:28} {r['p50']:8.2f} {r['p99']:8.2f} {added:10.2f} {r['rate']:8.0f}")
    print(f"\n{'library call':28} {'CPU µs':>8} {'wall µs':>8} {'of the SDK':>11}")
    for label, r in library.items():
        share = r["cpu_us"] / library["openai SDK"]["cpu_us"]
        print(f"{label:28} {r['cpu_us']:8.0f} {r['wall_us']:8.0f} {share:11.2f}")
    print(f"\n{'import':28} {'ms':>8}")
    for label, ms in imports.items():
        print(f"{label:28} {ms:8.0f}")


if __name__ == "__main__":
    main()
