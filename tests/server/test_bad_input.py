"""Whatever is sent, the answer says what is wrong with it: 4xx, never 500."""

from __future__ import annotations

import http.client
import json
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .process import JOBS, Process

FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    found = Process(tmp_path_factory.mktemp("served"), JOBS)
    try:
        yield found
        assert found.ask("GET", "/healthz")[0] == 200
        log = found.errors.read_text()
        assert "Traceback" not in log and "Error" not in log, log
    finally:
        found.end()


def asked(
    process: Process, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    connection = process.connection()
    try:
        connection.putrequest(method, path)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        reply = connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text else None
    finally:
        connection.close()


def posted(process: Process, path: str, body: bytes) -> tuple[int, Any]:
    return asked(process, "POST", path, body, content_type="application/json")


def refused(found: tuple[int, Any], status: int, words: str) -> None:
    assert found[0] == status, found
    error = found[1]["error"]
    assert error.keys() == {"kind", "message", "hint"}
    assert words in error["message"], error


START = "/api/workflows/anything/runs"
BAD_JSON = [
    (b"", "body: Field required"),
    (b"null", "body: "),
    (b"{", "the body is no JSON"),
    (b"[]", "body: "),
    (b'"x"', "body: "),
    (b'{"input": {"value": NaN}}', "NaN is not part of JSON"),
    (b'{"input": {"value": -Infinity}}', "-Infinity is not part of JSON"),
    (b'{"input": {"value": 1e999}}', "1e999 is too large a number"),
    (b'{"input": {"value": ' + b"9" * 5000 + b"}}", "the body is no JSON"),
    (b'{"input": {"value": "\xff"}}', "no UTF-8"),
    (b'{"input": {"value": "\\ud800"}}', "half of a surrogate pair"),
    (b'{"input": {"\\udfff": 1}}', "half of a surrogate pair"),
    (b'{"input": {"value": 1, "value": 2}}', "'value' is there twice"),
    (b'{"input": {"value": "a\nb"}}', "the body is no JSON"),
    (b'{"input": {"value": ' + b"[" * 200 + b"]" * 200 + b"}}", "nested more than 100 deep"),
    (b'{"input": {"value": ' + b'{"a":' * 100_000 + b"1", "nested more than 100 deep"),
    (b"[" * 1_000_000, "nested more than 100 deep"),
    (b'{"input": ' + b'"\\"' * 100_000, "the body is no JSON"),
    (b'{"input": {"value": 1}} x', "the body is no JSON"),
    (b"\xef\xbb\xbf{}", "the body is no JSON"),
    (b'{"input": []}', "body.input: "),
    (b'{"input": {"nothing": 1}}', "nothing: Unexpected keyword argument"),
    (b'{"input": {"number": "x"}}', "$.number: Input should be a valid integer"),
    (b'{"input": {"number": 1.5}}', "$.number: "),
    (b'{"inputs": {}}', "body.inputs: Extra inputs are not permitted"),
    (b'{"attributes": {"a": null}}', "body.attributes.a"),
    (b'{"attributes": {"a": [1]}}', "body.attributes.a"),
    (b'{"attributes": {"": 1}}', "body.attributes"),
    (b'{"delay": "soon"}', "'soon' is no duration"),
    (b'{"delay": -1}', "is no duration"),
    (b'{"delay": true}', "body.delay"),
    (b'{"delay": 1e300}', "body.delay"),
]


@pytest.mark.parametrize(("body", "words"), BAD_JSON[2:])
def test_a_body_that_is_no_use_is_refused_with_the_reason(
    process: Process, body: bytes, words: str
) -> None:
    refused(posted(process, START, body), 400, words)


@pytest.mark.parametrize(("body", "words"), BAD_JSON[:20])
def test_the_code_agent_refuses_them_too(process: Process, body: bytes, words: str) -> None:
    refused(posted(process, "/api/evaluate", body), 400, words)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"prompt": ""}, 400, "body.prompt"),
        ({"prompt": " \n\t"}, 400, "the task is empty"),
        ({"prompt": "x" * 100_001}, 400, "body.prompt"),
        ({"prompt": 7}, 400, "body.prompt"),
        ({"prompt": None}, 400, "body.prompt"),
        ({"prompt": "x", "language": "cobol"}, 400, "body.language"),
        ({"prompt": "x", "attempts": 0}, 400, "body.attempts"),
        ({"prompt": "x", "attempts": 21}, 400, "body.attempts"),
        ({"prompt": "x", "attempts": True}, 400, "body.attempts"),
        ({"prompt": "x", "attempts": 10**30}, 400, "body.attempts"),
        ({"prompt": "x", "budget": "much"}, 400, "body.budget"),
        ({"prompt": "x", "budget": "NaN"}, 400, "body.budget"),
        ({"prompt": "x", "budget": "-1"}, 400, "body.budget"),
        ({"prompt": "x", "budget": -0.01}, 400, "body.budget"),
        ({"prompt": "x", "budget": "1e100000000"}, 400, "body.budget"),
        ({"prompt": "x", "budget": [1]}, 400, "body.budget"),
        ({"prompt": "x", "packages": "numpy"}, 400, "body.packages"),
        ({"prompt": "x", "packages": ["a b"]}, 400, "body.packages"),
        ({"prompt": "x", "packages": [""]}, 400, "body.packages"),
        ({"prompt": "x", "packages": ["a"] * 51}, 400, "body.packages"),
        ({"prompt": "x", "model": "nobody/nothing"}, 404, "nobody"),
        ({"prompt": "x", "model": ""}, 400, "body.model"),
        ({"prompt": "x", "test_model": "a\nb"}, 400, "body.test_model"),
        ({"prompt": "x", "promt": "x"}, 400, "body.promt"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(
    process: Process, fields: dict[str, Any], status: int, words: str
) -> None:
    refused(posted(process, "/api/evaluate", json.dumps(fields).encode()), status, words)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", "query.limit"),
        ("limit=1001", "query.limit"),
        ("limit=x", "query.limit"),
        ("limit=" + "9" * 5000, "query.limit"),
        ("status=done", "query.status"),
        ("attribute=x", "'x' is no attribute"),
        ("created_after=yesterday", "query.created_after"),
        ("created_after=2026-01-01T00:00:00", "query.created_after"),
        ("created_before=99999-01-01T00:00:00Z", "query.created_before"),
        ("cursor=x", "the cursor is no cursor"),
        ("cursor=run_../../x", "the cursor is no cursor"),
        ("cursor=", "the cursor is no cursor"),
        ("statsu=failed", "query.statsu"),
        ("q=" + "x" * 201, "query.q"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(process: Process, query: str, words: str) -> None:
    refused(asked(process, "GET", f"/api/runs?{query}"), 400, words)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("GET", "/api", 404),
        ("GET", "/api/runs/", 404),
        ("GET", "/nothing", 404),
        ("GET", "/api/runs/run_01", 404),
        ("GET", "/api/runs/%00", 404),
        ("GET", "/api/runs/%ff%fe", 404),
        ("GET", "/api/runs/" + "x" * 5000, 404),
        ("GET", "/api/runs/run_01/events", 404),
        ("GET", "/api/runs/run_01/stream", 404),
        ("POST", "/api/runs/run_01/cancel", 404),
        ("POST", "/api/workflows/nothing/runs", 404),
        ("POST", "/api/workflows/%F0%9F%92%A9/runs", 404),
        ("DELETE", "/api/runs", 405),
        ("PUT", "/api/evaluate", 405),
        ("GET", "/api/evaluate", 405),
        ("OPTIONS", "/api/evaluate", 405),
        ("GET", "/hooks/x", 405),
    ],
)
def test_what_is_not_there_is_said_in_json(
    process: Process, method: str, path: str, status: int
) -> None:
    body = b"" if method in ("POST", "PUT") else None
    refused(asked(process, method, path, body), status, "")


def test_a_wrong_method_is_answered_with_the_right_ones(process: Process) -> None:
    connection = process.connection()
    connection.request("DELETE", "/api/events")
    reply = connection.getresponse()
    assert (reply.status, reply.getheader("allow")) == (405, "GET, POST")
    connection.close()


@pytest.mark.parametrize("key", ["", "x" * 256, "ü"])
def test_a_key_that_can_not_be_used_is_refused(process: Process, key: str) -> None:
    found = asked(process, "POST", START, b"{}", content_type="application/json", idempotency_key=key)  # fmt: skip
    refused(found, 400, "Idempotency-Key")


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 100, "٣", ""])
def test_a_place_that_is_none_is_taken_for_none(process: Process, last: str) -> None:
    _, run = posted(process, START, b'{"input": {"value": 1}}')
    headers = {"accept": "application/json", "last_event_id": last.encode().decode("latin-1")}
    status, page = asked(process, "GET", f"/api/runs/{run['id']}/events", **headers)
    assert status == 200 and page["events"][0]["seq"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": "@run/x"},
        {"name": "a\x00b"},
        {"name": "x" * 201},
        {"name": "x", "id": ""},
        {"name": "x", "id": 7},
        {"name": "x", "run": "run_nothing"},
        {"name": "x", "extra": 1},
        {},
    ],
)
def test_an_event_that_makes_no_sense_is_refused(process: Process, body: Any) -> None:
    status, answer = posted(process, "/api/events", json.dumps(body).encode())
    assert status in (400, 404) and answer["error"]["message"]


# --- anything at all ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
FIELDS = st.sampled_from(
    ["input", "attributes", "delay", "prompt", "model", "attempts", "budget", "packages", "name",
     "payload", "id", "run", "step", "result", "approved", "comment", "language", "value", "by", "note", "x"]
)  # fmt: skip
OBJECTS = st.dictionaries(FIELDS, JSON, max_size=5)
POSTS = st.sampled_from(
    [START, "/api/evaluate", "/api/events", "/hooks/x", "/hooks/x/y", "/api/approvals/x", "/login",
     *(f"/api/runs/RUN/{verb}" for verb in ("cancel", "pause", "resume", "retry", "fork", "approve"))]
)  # fmt: skip


@pytest.fixture(scope="module")
def run_id(process: Process) -> str:
    status, run = posted(process, START, b'{"input": {"value": 1}}')
    assert status == 202
    return str(run["id"])


def fine(status: int, body: Any) -> None:
    """Answered as it should be: done, or refused with the reason."""
    assert 200 <= status < 500, (status, body)
    if status >= 400 and isinstance(body, dict):
        assert body["error"]["kind"] and body["error"]["message"]
        assert body["error"]["kind"] != "InternalError"


def answered(process: Process, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:  # fmt: skip
    connection = process.connection()
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        reply = connection.getresponse()
        if reply.getheader("content-type", "").startswith("text/event-stream"):
            assert reply.status == 200
            return
        text = reply.read()
        kind = reply.getheader("content-type", "")
        fine(reply.status, json.loads(text) if text and kind == "application/json" else text)
    finally:
        connection.close()


@FUZZ
@given(path=POSTS, body=OBJECTS | JSON)
def test_any_json_is_answered(process: Process, run_id: str, path: str, body: Any) -> None:
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    answered(process, "POST", path.replace("RUN", run_id), data, headers)


@FUZZ
@given(
    path=POSTS,
    body=st.binary(max_size=300) | st.text(alphabet='{}[]",:\\u0d8eE+-. 1', max_size=100).map(str.encode),
    kind=st.sampled_from(["application/json", "application/json; charset=x", "text/plain",
                          "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", ""]),
)  # fmt: skip
def test_any_bytes_are_answered(
    process: Process, run_id: str, path: str, body: bytes, kind: str
) -> None:
    answered(process, "POST", path.replace("RUN", run_id), body, {"content-type": kind})


SAFE = string.ascii_letters + string.digits + "-._~%/"
NAMES = st.sampled_from(
    ["limit", "cursor", "status", "attribute", "q", "after", "type", "start", "name", "workflow",
     "created_after", "created_before", "parent", "all", "token", "next", "x"]
)  # fmt: skip
GETS = st.sampled_from(
    ["/api/runs", "/api/runs/RUN", "/api/runs/RUN/events", "/api/runs/RUN/events/1", "/api/events",
     "/api/runs/RUN/stream", "/api/workflows", "/api/models", "/api/health", "/login", "/runs", "/api/approvals", "/api/approvals/x"]
)  # fmt: skip


@FUZZ
@given(
    path=GETS,
    query=st.lists(st.tuples(NAMES, st.text(max_size=20) | st.integers().map(str)), max_size=4),
    last=st.none() | st.integers().map(str),
)
def test_any_query_is_answered(
    process: Process, run_id: str, path: str, query: list[tuple[str, str]], last: str | None
) -> None:
    from urllib.parse import quote

    pairs = "&".join(f"{name}={quote(value.encode('utf-8', 'replace'))}" for name, value in query)
    headers = {"accept": "application/json"} | ({"last-event-id": last} if last else {})
    answered(process, "GET", f"{path.replace('RUN', run_id)}?{pairs}", None, headers)


@FUZZ
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]),
    path=st.text(alphabet=SAFE, max_size=30),
    prefix=st.sampled_from(["/", "/api/", "/api/runs/", "/hooks/", "/api/workflows/", "/%"]),
)
def test_any_path_is_answered(process: Process, method: str, path: str, prefix: str) -> None:
    try:
        answered(process, method, prefix + path, None, {"accept": "application/json"})
    except http.client.RemoteDisconnected:
        pytest.fail(f"{method} {prefix + path}: no answer")


@FUZZ
@given(
    name=st.sampled_from(
        ["authorization", "cookie", "origin", "sec-fetch-site", "idempotency-key", "accept",
         "content-type", "x-csrf-token", "last-event-id", "accept-language", "range", "x-y"]
    ),
    value=st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=50),
    method=st.sampled_from(["GET", "POST"]),
)  # fmt: skip
def test_any_header_is_answered(process: Process, name: str, value: str, method: str) -> None:
    path = "/api/runs" if method == "GET" else START
    answered(process, method, path, b"{}" if method == "POST" else None, {name: value})


def test_the_folder_is_not_served(process: Process) -> None:
    for path in ("/../../etc/passwd", "/static/../app.py", "/%2e%2e/%2e%2e/etc/passwd"):
        assert asked(process, "GET", path)[0] == 404
