"""Packages are installed in a sandbox from where this machine installs them."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from holdfast.errors import SandboxError, SandboxUnavailable, UsageError
from holdfast.sandbox import AllowedHost, Sandbox, Snapshot
from holdfast.sandbox.registries import (
    Access,
    Address,
    configured,
    default_index,
    merged,
    npm_network,
    pip_network,
)
from holdfast.sandbox.runtimes import has_node
from holdfast.sandbox.templates import prune_templates
from sandbox.registry import Registry
from sandbox.support import create, observed, serving, shared_host

needs_node = pytest.mark.skipif(not has_node(), reason="no node here")
BASIC = f"Basic {b64encode(b'me:pass word').decode()}"


async def installed(access: Access, *command: str) -> Snapshot:
    """The state of a sandbox in which this was installed."""
    async with await create(network=access.network, env=access.env) as sandbox:
        result = await sandbox.run(*command, timeout=120)
        assert result.ok, result.stdout + result.stderr
        return await sandbox.snapshot()


async def offline(state: Snapshot) -> Sandbox:
    sandbox = await create(source=state)
    assert sandbox.record.network == ()
    return sandbox


async def test_pip_installs_from_this_machines_index_into_a_snapshot() -> None:
    try:
        pip = await pip_network()
    except SandboxUnavailable as reason:
        pytest.skip(f"this machine's index: {reason.message}")
    state = await installed(pip, "python", "-m", "pip", "install", "-q", "six")
    async with await offline(state) as sandbox:
        result = await sandbox.run("python", "-c", "import six; print(six.text_type.__name__)")
        assert result.stdout == "str\n", result.stderr
    state.delete()


async def test_a_template_installs_from_this_machines_index_and_works_without_a_network() -> None:
    steps = Sandbox.template("six", backend="namespace", host=shared_host()).install("six>=1.16")
    try:
        made = await steps.save()
    except SandboxUnavailable as reason:
        pytest.skip(f"this machine's index: {reason.message}")
    try:
        async with await create(source="template:six") as sandbox:
            assert sandbox.record.network == ()
            result = await sandbox.run("python", "-c", "import six; print(six.text_type.__name__)")
            assert result.stdout == "str\n", result.stderr
        assert await steps.save() == made
        nothing = Sandbox.template("six", backend="namespace", host=shared_host())
        with pytest.raises(SandboxError, match="could not be built"):
            await nothing.install("there-is-no-such-package-0x5f3").save()
    finally:
        prune_templates(shared_host().state, keep=0)


@needs_node
async def test_npm_installs_from_this_machines_registry_into_a_snapshot() -> None:
    try:
        npm = await npm_network()
    except SandboxUnavailable as reason:
        pytest.skip(f"this machine's registry: {reason.message}")
    state = await installed(npm, "npm", "install", "is-number")
    async with await offline(state) as sandbox:
        result = await sandbox.run("node", "-p", "require('is-number')('6')")
        assert result.stdout == "true\n", result.stderr
    state.delete()


async def test_the_password_of_an_index_never_enters_the_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, files = Registry(BASIC), Registry()
    with serving(index.handler()) as port, serving(files.handler()) as other:
        index.files_at = f"http://127.0.0.1:{other}"
        monkeypatch.setenv("PIP_INDEX_URL", f"http://me:pass%20word@localhost:{port}/simple/")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///no/such/folder")
        pip = await pip_network("tiny")
        assert pip.env["PIP_INDEX_URL"] == f"http://127.0.0.1:{port}/simple/"
        assert "pass" not in repr(pip)
        assert [(host.name, host.ports) for host in pip.allow] == [
            ("127.0.0.1", (port,)),
            ("127.0.0.1", (other,)),  # where the index says that its files are
        ]
        async with await create(network=pip.network, env=pip.env) as sandbox:
            result = await sandbox.run("python", "-m", "pip", "install", "-q", "tiny", timeout=60)
            assert result.ok, result.stderr
            assert (await sandbox.run("python", "-c", "import tiny; print(tiny.X)")).stdout == "7\n"
            assert "pass" not in (await sandbox.shell("env; cat ~/.* 2>/dev/null")).stdout
    assert index.requests and all(given == BASIC for _, given in index.requests)
    assert files.requests and all(given is None for _, given in files.requests)


@needs_node
async def test_the_token_of_a_registry_never_enters_the_sandbox(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry = Registry("Bearer t0ken")
    with serving(registry.handler()) as port:
        place = f"127.0.0.1:{port}"
        settings = f"registry=http://{place}/\n//{place}/:_authToken=${{TINY_TOKEN}}\n"
        (tmp_path / "npmrc").write_text(settings)
        monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(tmp_path / "npmrc"))
        monkeypatch.setenv("TINY_TOKEN", "t0ken")
        npm = await npm_network("tiny")
        assert npm.env["npm_config_registry"] == f"http://{place}/"
        with observed(shared_host()) as observer:
            async with await create(network=npm.network, env=npm.env) as sandbox:
                result = await sandbox.run("npm", "install", "tiny", timeout=60)
                assert result.ok, result.stdout + result.stderr
                answer = await sandbox.run("node", "-p", "require('tiny')")
                assert answer.stdout == "7\n"
                assert "t0ken" not in (await sandbox.shell("env; cat ~/.npmrc")).stdout
        assert observer.attempts and all(attempt.allowed for attempt in observer.attempts)
        assert "t0ken" not in repr((observer.attempts, observer.sandboxes, observer.commands))
    assert registry.requests and all(given == "Bearer t0ken" for _, given in registry.requests)


async def test_nothing_but_the_registry_can_be_reached() -> None:
    registry = Registry()
    with serving(registry.handler()) as port, serving(registry.handler()) as other:
        pip = await pip_network(
            "tiny", index_url=f"http://127.0.0.1:{port}/simple", extra_index_urls=()
        )
        async with await create(network=pip.network, env=pip.env) as sandbox:
            get = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:{}/tiny').status)"
            allowed = await sandbox.run("python", "-c", get.format(port))
            assert allowed.stdout == "200\n", allowed.stderr
            assert not (await sandbox.run("python", "-c", get.format(other))).ok


async def test_an_index_that_does_not_answer_is_said_to_be_out_of_reach() -> None:
    with serving() as port:
        pass
    with pytest.raises(SandboxUnavailable, match="can't be reached"):
        await pip_network(index_url=f"http://127.0.0.1:{port}/simple", extra_index_urls=())
    closed = Registry("Basic x")
    with serving(closed.handler()) as port:
        with pytest.raises(SandboxUnavailable, match="answers 401"):
            await npm_network(registry=f"http://127.0.0.1:{port}")


def test_pips_settings_are_weighed_as_pip_does() -> None:
    listing = (
        "global.index-url='https://a.example/simple'\n"
        ":env:.index-url='https://c.example/simple'\n"
        "install.index-url='https://b.example/simple'\n"
        "global.extra-index-url='https://x.example\\nhttps://y.example'\n"
        "download.index-url='https://z.example/simple'\n"
    )
    found = configured(listing)
    assert found["index-url"] == "https://c.example/simple"
    assert found["extra-index-url"].split() == ["https://x.example", "https://y.example"]


def test_pips_own_help_tells_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    words = [sys.executable, "-m", "pip", "install", "--help"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert default_index(text).startswith("https://")
    with pytest.raises(SandboxUnavailable):
        default_index("no such thing")


def test_an_address_is_taken_apart() -> None:
    address = Address.of("https://me:s%40id@packages.example:8443/simple")
    assert address is not None
    assert (address.url, address.host, address.port) == (
        "https://packages.example:8443/simple",
        "packages.example",
        8443,
    )
    assert address.authorization == f"Basic {b64encode(b'me:s@id').decode()}"
    assert "s@id" not in repr(address)
    assert Address.of("file:///srv/wheels") is None
    for bad in ("https://me:secret@:443/x", "https://me:secret@host:99999/x"):
        with pytest.raises(UsageError) as told:
            Address.of(bad)
        assert "secret" not in str(told.value)


def test_two_rules_of_one_host_become_the_one_that_adds_headers() -> None:
    plain = AllowedHost("a.example", ports=(443,), ca="/x")
    added = AllowedHost("a.example", ports=(443,), headers={"authorization": "b"})
    (rule,) = merged([plain, added, plain])
    assert (rule.headers, rule.ca) == ({"authorization": "b"}, "/x")
    assert len(merged([plain, AllowedHost("a.example", ports=(80,))])) == 2
