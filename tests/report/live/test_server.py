"""The watched page: read-only, for this machine and its own page only, and never behind."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.report.live.access import AccessGuard, host_of, is_loopback
from fedgsp.report.live.feed import LiveRuns
from fedgsp.report.live.server import WatchServer
from tests.support import fake_runs


@contextmanager
def serving(*places: Path, host: str = "127.0.0.1") -> Iterator[WatchServer]:
    with WatchServer(places, host, port=0) as server:
        server.in_background()
        try:
            yield server
        finally:
            server.shutdown()


def ask(server: WatchServer, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def updates(server: WatchServer, have: dict[str, Any] | None = None, federations: int = 0) -> dict[str, Any]:
    status, _, body = ask(server, f"/updates?have={quote(json.dumps(have or {}))}&federations={federations}")
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_runs.write_run(tmp_path / "run", rounds=4)


def test_the_page_is_served_and_says_what_it_may_do(run: Path) -> None:
    with serving(run) as server:
        status, headers, body = ask(server)
    assert status == 200
    assert '<script type="application/json" id="data">' in body
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": ""},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/updates"])
def test_requests_of_others_are_refused(run: Path, headers: dict[str, str], path: str) -> None:
    with serving(run) as server:
        status, _, body = ask(server, path, **headers)
    assert status == 403
    assert "fedgsp" not in body


def test_its_own_names_and_origin_are_let_in(run: Path) -> None:
    with serving(run) as server:
        here = f"127.0.0.1:{server.server_port}"
        assert ask(server, "/updates", Origin=f"http://{here}", Sec_Fetch_Site="same-origin")[0] == 200
        assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(run: Path, method: str) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with serving(run) as server:
        assert ask(server, "/", method)[0] == 405
        updates(server)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("path", ["/config.toml", "/../config.toml", "/run/journal.jsonl", "/favicon.ico"])
def test_there_is_nothing_else_to_read(run: Path, path: str) -> None:
    with serving(run) as server:
        assert ask(server, path)[0] == 404


@pytest.mark.parametrize("query", ["have=nonsense", "have=[1]", 'have={"a":1}', "federations=x", 'have={"a":["e","x"]}'])
def test_nonsense_is_refused(run: Path, query: str) -> None:
    with serving(run) as server:
        assert ask(server, f"/updates?{quote(query, safe='=')}")[0] == 400


def test_an_open_address_asks_for_a_token(run: Path) -> None:
    with serving(run, host="0.0.0.0") as server:
        asked = urlsplit(server.url)
        assert ask(server)[0] == 401
        assert ask(server, "/updates")[0] == 401
        assert ask(server, "/?token=wrong")[0] == 401
        assert ask(server, "/", Cookie="fedgsp-watch=wrong")[0] == 401
        status, headers, _ = ask(server, f"/?{asked.query}")
        assert (status, headers["Location"]) == (303, "/")
        assert all(word in headers["Set-Cookie"] for word in ("HttpOnly", "SameSite=Strict"))
        assert ask(server, "/updates", Cookie=headers["Set-Cookie"].split(";")[0])[0] == 200
        assert ask(server, "/", Host="evil.example", Cookie=headers["Set-Cookie"].split(";")[0])[0] == 403
    with serving(run) as server:
        assert server.guard.token is None


def test_who_is_local() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"))
    assert AccessGuard.at("192.168.1.5").token != AccessGuard.at("192.168.1.5").token
    assert [host_of(text) for text in ("a:80", "A", "[::1]:80", "[::1]", "")] == ["a", "a", "[::1]", "[::1]", ""]


def test_a_port_that_is_taken_is_a_sentence(run: Path) -> None:
    with serving(run) as server, pytest.raises(InputError, match="choose others with `host=` and `port=`"):
        WatchServer([run], port=server.server_port)


def test_a_page_that_slept_gets_exactly_what_it_lacks(run: Path) -> None:
    with serving(run) as server:
        first = updates(server)
        (body,) = first["runs"]
        assert (body["after"], body["last"], len(first["federations"])) == (0, 4, 1)
        for r in range(5, 30):
            fake_runs.add_round(run, r, np.random.default_rng(r), 10)
        news = updates(server, {body["id"]: [body["epoch"], 4]}, 1)
        assert news["runs"][0]["columns"]["round"] == list(range(5, 30))
        assert news["runs"][0]["plans"]["rounds"] == list(range(5, 30))
        assert (news["federations"], news["federationsFrom"]) == ([], 1)
        nothing = updates(server, {body["id"]: [body["epoch"], 29]}, 1)
        assert nothing["runs"][0]["columns"]["round"] == []


def test_another_server_on_the_same_directory_tells_the_same(run: Path) -> None:
    with serving(run) as server:
        before = updates(server)["runs"][0]
    with serving(run) as server:
        after = updates(server, {before["id"]: [before["epoch"], 4]})["runs"][0]
    assert after["after"] == 0  # it cannot know what the page was told by another server, so it tells everything
    assert {**before, "epoch": ""} == {**after, "epoch": ""}


def test_a_run_that_begins_anew_in_the_same_place_is_told_from_the_start(run: Path) -> None:
    with serving(run) as server:
        old = updates(server)["runs"][0]
        shutil.rmtree(run)
        fake_runs.write_run(run, rounds=2, seed=7)
        new = updates(server, {old["id"]: [old["epoch"], 4]}, 1)["runs"][0]
    assert (new["after"], new["last"], new["seed"]) == (0, 2, 7)
    assert new["epoch"] != old["epoch"]


def test_runs_that_begin_later_appear_and_stand_side_by_side(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert updates(server)["runs"] == []
        assert "no run here yet" in ask(server)[2]
        fake_runs.write_run(tmp_path / "a", rounds=2, method="fedavg")
        fake_runs.write_run(tmp_path / "b", rounds=3, method="fedgsp")
        news = updates(server)
    assert [(body["method"], body["last"]) for body in news["runs"]] == [("fedavg", 2), ("fedgsp", 3)]
    assert [group["label"] for group in news["groups"]] == ["fedavg", "fedgsp"]


def test_a_directory_being_written_does_not_stop_the_page(tmp_path: Path) -> None:
    live = LiveRuns([tmp_path])
    run = fake_runs.write_run(tmp_path / "run", rounds=1)
    assert len(live.everything()["runs"]) == 1
    (run / "journal.jsonl").write_text("{")
    (run / "config.toml").write_text("not = [toml")
    assert len(live.everything()["runs"]) == 1
