"""`holdfast inspect`: says where the pages are, serves them, and finds a server that is there."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request

from waiting import LIMIT

from .conftest import Holdfast


def fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=LIMIT) as answer:
        return answer.read()


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    process.communicate(timeout=LIMIT)
    return process.returncode


def test_it_serves_the_store_it_was_given_and_stops_when_told(shop: Holdfast) -> None:
    process = shop.spawn("inspect", "--no-browser", "--port", "0", "--json")
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert told["opened"] is False
    assert told["serving"] is True
    assert told["url"].endswith("/runs")
    assert b"lengthy" in fetch(told["url"])
    found = json.loads(fetch(f"{told['url']}.json"))
    assert len(found["runs"]) == 3
    assert end(process, signal.SIGINT) == 0


def test_where_there_is_no_browser_it_prints_the_address(shop: Holdfast) -> None:
    shop.environment.pop("DISPLAY", None)
    shop.environment.pop("WAYLAND_DISPLAY", None)
    process = shop.spawn("inspect", "models", "--port", "0")
    assert process.stdout is not None
    assert process.stdout.readline().strip().endswith("/models")
    assert process.stderr is not None
    assert process.stderr.readline().strip() == "open this in a browser"
    end(process)


def test_an_id_leads_to_its_page(shop: Holdfast) -> None:
    run = shop("runs", "list", "--json").json["runs"][0]["id"]
    process = shop.spawn("inspect", run, "--no-browser", "--port", "0")
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url.endswith(f"/runs/{run}")
    assert run.encode() in fetch(url)
    end(process)


def test_a_server_of_the_store_that_is_there_already_is_used(shop: Holdfast) -> None:
    serving = shop.spawn("inspect", "--no-browser", "--port", "0", "--json")
    assert serving.stdout is not None
    url = json.loads(serving.stdout.readline())["url"]
    shop.environment["HOLDFAST_SERVER_PORT"] = url.rpartition(":")[2].partition("/")[0]
    try:
        done = shop("inspect", "workers", "--no-browser", "--json")
        assert done.code == 0
        assert done.json == {
            "url": url.replace("/runs", "/workers"),
            "opened": False,
            "serving": False,
        }
        newest = shop("runs", "list", "--json").json["runs"][0]["id"]
        done = shop("inspect", "latest", "--no-browser", "--json")
        assert done.json["url"] == f"{url}/{newest}"
    finally:
        del shop.environment["HOLDFAST_SERVER_PORT"]
        end(serving)


def test_what_can_not_be_inspected_is_refused(shop: Holdfast) -> None:
    done = shop("inspect", "nonsense", "--json")
    assert (done.code, done.error["kind"]) == (2, "UsageError")
    done = shop("inspect", "--store", str(shop.folder / "none.db"), "--json")
    assert (done.code, done.error["kind"]) == (4, "StoreError")
