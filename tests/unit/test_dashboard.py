"""The dashboard's server: access, event streams, states, dead letters and dry runs."""

from __future__ import annotations

import json
import queue
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from support.statuses import NOW_MS, cluster_status, processor_status, shard_status, worker_status
from typer.testing import CliRunner

from penstock.ops.http import Access, listening_at
from penstock.ops.http.access import AccessRefused, Token
from penstock.ops.http.guard import cookie_name
from penstock.ops.http.listening import AddressUnavailable
from penstock.ops.http.visitors import Role
from penstock.ops.serve.commands.server_options import DASHBOARD
from penstock.ops.serve.dashboard.broadcast import Broadcaster, MessageKind, PageMessage
from penstock.ops.serve.dashboard.dry_run_pool import DryRunner, DryRunPool
from penstock.ops.serve.dashboard.dry_run_process import DryRunRequest, run
from penstock.ops.serve.dashboard.history import HISTORY_MS, History, ProcessorSample, Sample
from penstock.ops.serve.dashboard.history_file import HistoryFile
from penstock.ops.serve.dashboard.poller import LazyPoller, PolledStatus, Poller
from penstock.ops.serve.dashboard.site import PAGE, SiteContent, create_site
from penstock.ops.shell.command_line.main import app as command
from penstock.ops.status import Alerts
from penstock.ops.status.alerts.alert_states import ActiveAlert
from penstock.processors import Counts, PenstockError
from penstock.processors.apps import AppName
from penstock.processors.declare import DeadLetter, plan_of
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.local import RocksStateFolder
from penstock.transport import BusUnreachable, CategorySpec, Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.codecs.dead_letters import DeadLetterCodec
from penstock.transport.memory import MemoryBus

TOKEN = "correct-horse-battery"  # noqa: S105 - of these tests only
APP = """
import os
import time
from datetime import timedelta
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Reading, key="meter", event_time="at", buckets=2)
packed = ps.Category("packed", Reading, key="meter", event_time="at", buckets=2, codec="avro")

class Unpacking(ps.Stateless):
    reads, writes = packed, totals
    def process(self, event):
        return [event]

class Totals(ps.Stateful):
    reads, writes, state = readings, totals, int
    def process(self, event, state, context):
        if event.litres < 0:
            raise ValueError("negative litres")
        return (state or 0) + event.litres, [event]

class Waiting(ps.Stateful):
    reads, state = readings, int
    def process(self, event, state, context):
        context.timer(event.at + 100, "later")
        return 1, []
    def on_timer(self, timer, state, context):
        return None, []

class Hours(ps.Aggregator):
    reads, writes, monoid = readings, totals, ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(hours=1))
    def observe(self, event):
        return event.litres
    def result(self, key, window, value):
        return Reading(key, window.start, value)

class Shared(ps.Aggregator):
    reads, monoid, store = readings, ps.monoids.Sum(), ps.RemoteStore()
    def observe(self, event):
        return event.litres

class Stuck(ps.Stateless):
    reads, writes = readings, totals
    def process(self, event):
        print("printed")
        if event.litres == 1:
            wait_for_ever()
        if event.litres == 2:
            os._exit(3)
        return [event]

def wait_for_ever():
    time.sleep(1_000)

class Careless(ps.Stateless):
    reads, writes = readings, totals
    def process(self, event):
        return [Reading(event.meter, event.at, "three")]

class Plain(ps.Stateless):
    reads, writes = readings, totals
    def process(self, event):
        return [event]
"""


OVER = BusUnreachable("the test is over")


class ScriptedSource:
    """Returns the statuses of a test, when the test adds them; raises its errors."""

    def __init__(self) -> None:
        self.results: queue.Queue[PolledStatus | Exception] = queue.Queue()

    def poll(self) -> PolledStatus:
        result = self.results.get()
        if result is OVER:
            self.results.put(OVER)  # of all further polls
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        return


class InProcess:
    """Runs dry runs in this process, which needs no second to start."""

    def run(self, request: DryRunRequest) -> bytes:
        return run(request)


class Site:
    """A site with a scripted status."""

    def __init__(self, folder: Path, access: Access, app: AppName | None, dry_runner: DryRunner) -> None:
        self.source = ScriptedSource()
        self.broadcaster = Broadcaster(self.source, interval_s=0.0)
        self.bus = MemoryBus()
        self.state = folder / "state"
        content = SiteContent(self.bus, app, folder, "a title")
        self.client = TestClient(
            create_site(content, self.broadcaster, access, dry_runner),
            base_url="http://127.0.0.1:8710",
            raise_server_exceptions=True,
        )

    def add(self, result: PolledStatus | Exception) -> None:
        """Add the result of the next poll."""
        self.source.results.put(result)


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    """An app file with processors of several kinds."""
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


@pytest.fixture
def site(tmp_path: Path, app_file: Path) -> Iterator[Site]:
    """A site for this machine only, with an app."""
    yield from open_site(tmp_path, Access(DASHBOARD), AppName(app_file))


@pytest.fixture
def protected_site(tmp_path: Path) -> Iterator[Site]:
    """A site with a token, without an app."""
    yield from open_site(tmp_path, Access(DASHBOARD, TOKEN), None)


@pytest.fixture
def site_with_processes(tmp_path: Path, app_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site that runs dry runs in separate processes, which may start slowly and import an app slowly."""
    for limit in ("START_LIMIT_S", "RUN_LIMIT_S"):
        monkeypatch.setattr(f"penstock.ops.serve.dashboard.dry_run_pool.{limit}", 120.0)
    yield from open_site(tmp_path, Access(DASHBOARD), AppName(app_file), DryRunPool())


def open_site(folder: Path, access: Access, app: AppName | None, dry_runner: DryRunner | None = None) -> Iterator[Site]:
    site = Site(folder, access, app, dry_runner or InProcess())
    with closing(site.broadcaster):
        site.broadcaster.start()
        yield site
        site.add(OVER)


def polled(at_ms: int = NOW_MS, *, alerts: tuple[ActiveAlert, ...] = (), **fields: Any) -> PolledStatus:
    status = processor_status(shard_status(0, **fields), workers=(worker_status(per_s=Counts(events_in=5.0)),))
    return PolledStatus(cluster_status(status, at_ms=at_ms), Alerts({alert.key: alert for alert in alerts}))


def events_during(site: Site, wait_until: Callable[..., None], act: Callable[[], None]) -> list[tuple[str, Any]]:
    """Return the events that a browser receives while `act` runs."""
    answers: list[httpx2.Response] = []
    request = Thread(target=lambda: answers.append(site.client.get("/events")))
    request.start()
    wait_until(lambda: len(site.broadcaster._subscriptions) == 1)
    act()
    site.broadcaster.end_streams()
    request.join(timeout=120)
    assert answers[0].headers["content-type"].startswith("text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", answers[0].text)
    return [(kind, json.loads(content)) for kind, content in events]


# event streams


def test_a_browser_receives_the_history_and_each_status(site: Site, wait_until: Callable[..., None]) -> None:
    """The history contains the statuses before its connection."""
    site.add(polled(NOW_MS, backlog_events=7))
    wait_until(lambda: site.broadcaster.latest is not None)

    def poll_again() -> None:
        site.add(polled(NOW_MS + 2000, backlog_events=9))
        wait_until(lambda: latest_ms(site) == NOW_MS + 2000)

    events = events_during(site, wait_until, poll_again)

    assert [kind for kind, _ in events] == ["visitor", "title", "columns", "history", "status", "status"]
    assert events[1][1] == "a title"
    assert (events[2][1]["worker"]["memory_bytes"], events[2][1]["shard"]["state_bytes"]) == ("memory", "state")
    assert events[3][1]["at_ms"] == [NOW_MS]
    assert events[3][1]["processors"]["scorer"]["backlog_events"] == [7]
    assert [content["processors"][0]["backlog_events"] for _, content in events[4:]] == [7, 9]


def latest_ms(site: Site) -> int | None:
    latest = site.broadcaster.latest
    return latest.content["at_ms"] if latest and latest.kind is MessageKind.STATUS else None


def test_a_failed_poll_is_reported_and_retried(site: Site, wait_until: Callable[..., None]) -> None:
    """Each failure contains the time of the first one. The next status follows when a poll succeeds."""

    def fail_and_recover() -> None:
        for error in (BusUnreachable("no broker"), RuntimeError("a bug"), BusUnreachable("still no broker")):
            site.add(error)
        site.add(polled())
        wait_until(lambda: latest_ms(site) == NOW_MS)

    _, _, _, _, *failures, last = events_during(site, wait_until, fail_and_recover)

    assert [kind for kind, _ in failures] == ["failure"] * 3
    assert [content["message"] for _, content in failures][::2] == ["no broker", "still no broker"]
    assert "RuntimeError: a bug" in failures[1][1]["message"]
    assert len({content["since_ms"] for _, content in failures}) == 1
    assert last[0] == "status"


def test_a_page_that_is_opened_during_an_outage_shows_the_last_known_status(
    site: Site, wait_until: Callable[..., None]
) -> None:
    """The page says why and since when it has no newer status. Programs get the same."""
    site.add(polled(NOW_MS, backlog_events=7))
    site.add(BusUnreachable("no broker"))
    wait_until(lambda: site.broadcaster.latest is not None and site.broadcaster.latest.kind is MessageKind.FAILURE)

    events = events_during(site, wait_until, lambda: None)
    answer = site.client.get("/api/status")

    assert [kind for kind, _ in events] == ["visitor", "title", "columns", "history", "status", "failure"]
    (_, status), (_, failure) = events[4:]
    assert (status["at_ms"], status["processors"][0]["backlog_events"]) == (NOW_MS, 7)
    assert failure["message"] == "no broker"
    assert NOW_MS < failure["since_ms"] <= failure["at_ms"]
    assert (answer.status_code, answer.json()["message"], answer.json()["last_status"]["at_ms"]) == (
        503,
        "no broker",
        NOW_MS,
    )


def test_a_dashboard_that_is_started_during_an_outage_shows_the_last_known_status(
    tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """An earlier dashboard of the same cluster and app stored the status. A damaged file is ignored."""
    before, after = ScriptedSource(), LazyPoller(unreachable)
    shown = HistoryFile(tmp_path, "broker:9092", "app.py")
    with closing(Broadcaster(before, interval_s=0.0, history=History(shown))) as first:
        first.start()
        for at_ms in (NOW_MS, NOW_MS + 2_000):
            before.results.put(polled(at_ms))
        before.results.put(OVER)
        wait_until(lambda: first.latest is not None and first.latest.kind is MessageKind.FAILURE)
    with closing(Broadcaster(after, interval_s=0.01, history=History(shown))) as second:
        at_start = list(second._known())
        second.start()
        wait_until(lambda: second.latest is not None)
        later = list(second._known())
    [file] = (tmp_path / "dashboard").glob("status-*.json")
    others = [HistoryFile(tmp_path, *of).read_status() for of in (("broker:9092", None), ("other:9092", "app.py"))]
    file.write_bytes(b"{")

    assert (
        [message.kind for message in at_start]
        == [message.kind for message in later]
        == [MessageKind.STATUS, MessageKind.FAILURE]
    )
    assert at_start[0].content["at_ms"] == later[0].content["at_ms"] == NOW_MS + 2_000
    assert later[1].content["message"] == "no broker"
    assert others == [None, None]
    assert shown.read_status() is None


def unreachable() -> Poller:
    raise BusUnreachable("no broker")


def test_browsers_receive_heartbeats_during_a_slow_poll(
    site: Site, wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any event, the page would report a lost connection."""
    monkeypatch.setattr("penstock.ops.serve.dashboard.broadcast.HEARTBEAT_S", 0.01)
    sent = Event()
    encoded = PageMessage.encoded

    def recording(message: PageMessage) -> bytes:
        if message.kind is MessageKind.HEARTBEAT:
            sent.set()
        return encoded(message)

    monkeypatch.setattr(PageMessage, "encoded", recording)
    events = events_during(site, wait_until, lambda: wait_until(sent.is_set))

    assert [kind for kind, _ in events][:5] == ["visitor", "title", "columns", "history", "heartbeat"]


def test_programs_read_the_latest_status(site: Site, wait_until: Callable[..., None]) -> None:
    """The status contains the alerts about its own processors only."""
    early = site.client.get("/api/status")
    own = ActiveAlert("lag", "scorer", "lag_seconds", "above 300", 400.0, NOW_MS - 1000, firing=True)
    other = ActiveAlert("lag", "ranker", "lag_seconds", "above 300", 400.0, NOW_MS - 1000)
    site.add(polled(backlog_events=3, lag_s=400.0, alerts=(own, other)))
    wait_until(lambda: latest_ms(site) == NOW_MS)
    content = site.client.get("/api/status").json()

    assert (early.status_code, "not there yet" in early.json()["message"]) == (503, True)
    assert [(alert["processor"], alert["firing"], alert["silenced"]) for alert in content["alerts"]] == [
        ("scorer", True, False)
    ]
    assert content["findings"][0]["kind"] == "lag"


def test_the_history_covers_an_hour() -> None:
    """A processor has no figures for the time before its first status."""
    history = History()
    later = processor_status(shard_status(low_watermark_ms=None))
    history.add(Sample.of(cluster_status(processor_status(shard_status(backlog_events=1)), at_ms=0)))
    history.add(Sample.of(cluster_status(at_ms=HISTORY_MS)))
    history.add(Sample.of(cluster_status(later, at_ms=HISTORY_MS + 1)))
    columns = history.to_json()

    assert columns["at_ms"] == [HISTORY_MS, HISTORY_MS + 1]
    assert columns["processors"]["scorer"]["backlog_events"] == [None, 0]
    assert columns["processors"]["scorer"]["watermark_lag_s"] == [None, None]


def figures(*lags_s: float) -> dict[str, ProcessorSample]:
    """Return the figures of processors by their lags."""
    return {f"p{number}": ProcessorSample(1.0, 2.5, None, lag_s, None) for number, lag_s in enumerate(lags_s)}


@given(
    steps=st.lists(st.tuples(st.integers(1, HISTORY_MS), st.floats(0, 1_000)), max_size=12), restart=st.integers(0, 12)
)
def test_the_history_survives_a_restart(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float]], restart: int
) -> None:
    """It has the samples of the last hour, and no older one. Another cluster has its own history."""
    folder, now_ms, sent = tmp_path_factory.mktemp("dir"), 0, []
    history = History(HistoryFile(folder, "broker:9092"))
    for number, (pause_ms, lag_s) in enumerate(steps):
        if number == restart:
            history = History(HistoryFile(folder, "broker:9092"))
        now_ms += pause_ms
        sent.append(Sample(now_ms, figures(lag_s)))
        history.add(sent[-1])
    expected = History()
    for sample in sent:
        expected.add(sample)

    assert history.to_json() == expected.to_json()
    assert History(HistoryFile(folder, "other:9092")).to_json()["at_ms"] == []


def test_a_damaged_or_unwritable_history_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The line that a crash cut off is skipped, and the file is private. What cannot be stored is in memory."""
    history = History(HistoryFile(tmp_path, "broker:9092"))
    history.add(Sample(1, figures(1.0)))
    [file] = (tmp_path / "dashboard").iterdir()
    with file.open("ab") as cut_off:
        cut_off.write(b'[2,{"p0":[1.0')
    after = History(HistoryFile(tmp_path, "broker:9092")).to_json()
    assert (after["at_ms"], stat.S_IMODE(file.stat().st_mode)) == ([1], 0o600)
    (tmp_path / "blocked").write_text("a file in place of the folder")
    blocked = History(HistoryFile(tmp_path / "blocked", "broker:9092"))
    for at_ms in (3, 4):
        blocked.add(Sample(at_ms, figures(1.0)))

    assert blocked.to_json()["at_ms"] == [3, 4]
    assert caplog.text.count("cannot be used") == 1


def test_a_full_history_file_is_shortened(tmp_path: Path) -> None:
    """It contains two hours at most."""
    history = History(HistoryFile(tmp_path, "broker:9092"))
    for minute in range(0, 300, 10):
        history.add(Sample(minute * 60_000, figures(1.0)))
    [file] = (tmp_path / "dashboard").iterdir()

    assert len(file.read_bytes().splitlines()) <= 13


# access


def test_without_a_token_only_names_of_this_machine_are_accepted(site: Site) -> None:
    """A foreign name that resolves to this machine is refused."""
    answers = {
        host: site.client.get("/", headers={"Host": host}).status_code
        for host in (
            "127.0.0.1:8710",
            "localhost:1",
            "[::1]:8710",
            "evil.example",
            "evil.example:8710",
            "127.0.0.1.evil",
            "",
        )
    }

    assert answers == {
        "127.0.0.1:8710": 200,
        "localhost:1": 200,
        "[::1]:8710": 200,
        "evil.example": 403,
        "evil.example:8710": 403,
        "127.0.0.1.evil": 403,
        "": 403,
    }


@pytest.mark.parametrize("path", ["/", "/events", "/api/status", "/page/app.js", "/api/processors/x/dead-letters"])
def test_requests_without_the_token_are_refused(protected_site: Site, path: str) -> None:
    """The page and everything else require it."""
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Cookie": f"{cookie_name(Token(TOKEN, Role.OPERATOR), DASHBOARD)}=wrong"},
        {"Cookie": ";;=="},
    ):
        answer = protected_site.client.get(path, headers=headers)
        assert answer.status_code == 401
        assert TOKEN not in answer.text


def test_the_first_visit_sets_a_cookie_and_removes_the_token_from_the_url(protected_site: Site) -> None:
    """The cookie does not contain the token. Later requests need only the cookie."""
    first = protected_site.client.get(f"/?token={TOKEN}", follow_redirects=False)
    again = protected_site.client.get("/")

    assert (first.status_code, first.headers["location"]) == (303, "./")
    assert "HttpOnly" in first.headers["set-cookie"]
    assert TOKEN not in first.headers["set-cookie"]
    assert again.status_code == 200


def test_programs_send_the_token_in_a_header(protected_site: Site) -> None:
    """The host name does not matter, because a foreign page has no token."""
    answer = protected_site.client.get(
        "/page/app.js", headers={"Authorization": f"Bearer {TOKEN}", "Host": "box.example"}
    )

    assert answer.status_code == 200


def test_an_address_that_other_machines_reach_requires_a_token() -> None:
    """A proxy is the alternative. The error names the variable, and the command that generates a token."""
    for host in ("127.0.0.1", "::1", "localhost"):
        assert Access(DASHBOARD).for_host(host) == Access(DASHBOARD)
    for host in ("0.0.0.0", "::", "192.168.0.7", "box.example"):  # noqa: S104 - to be refused
        with pytest.raises(AccessRefused, match=r"token_urlsafe.*PENSTOCK_DASHBOARD_TOKEN"):
            Access(DASHBOARD).for_host(host)
        assert Access(DASHBOARD, TOKEN).for_host(host).token == TOKEN


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://127.0.0.1:9999", "http://[::1"])
def test_only_the_dashboards_own_pages_may_start_a_dry_run(site: Site, origin: str | None) -> None:
    """A foreign page in the same browser may not."""
    headers = {} if origin is None else {"Origin": origin}
    answer = site.client.post("/api/processors/totals/dead-letters/0/dry-run", headers=headers)

    assert answer.status_code == 403


def test_answers_have_security_headers(site: Site) -> None:
    """Browsers load and run only the dashboard's own files, and no other site may frame or read them."""
    for path in ("/", "/page/app.js", "/api/status", "/nowhere"):
        headers = site.client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; frame-ancestors 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_the_page_fetches_nothing_from_elsewhere() -> None:
    """All linked files exist, and data from Kafka is never parsed as markup."""
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    sources = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
    linked = set(re.findall(r'(?:src|href)="page/([^"]+)"', page))
    imported = {name for source in sources.values() for name in re.findall(r'from "\./([^"]+)"', source)}

    assert all((PAGE / name).is_file() for name in linked | imported)
    for source in (page, *sources.values(), (PAGE / "style.css").read_text(encoding="utf-8")):
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", source) == []
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source) == []


# states and dead letters


def post(site: Site, path: str) -> httpx2.Response:
    return site.client.post(path, headers={"Origin": "http://127.0.0.1:8710"})


def reject(site: Site, value: bytes | None, category: str = "readings", processor: str = "totals") -> None:
    """Write a dead letter."""
    letters = f"{processor}.dead_letters"
    if letters not in site.bus.names():
        site.bus.create(CategorySpec(letters, 1))
    letter = DeadLetter(category, 1, 41, "it was rejected", b"m1", value, NOW_MS)
    site.bus.writer().send(letters, [Outgoing(None, DeadLetterCodec(lambda: 10_000).encode([letter])[0])])


def save_total(site: Site, litres: int) -> None:
    with closing(RocksStateFolder(site.state).open(ShardIdentity("totals", 1, shape(site)))) as state:
        state.save_together({b"m1": msgspec.msgpack.encode(litres)}, StatePosition({"readings": 1234}))


def shape(site: Site) -> str:
    processor = AppName(site.state.parent / "app.py").load().processor("Totals")
    found = plan_of(processor).state_shape
    assert found is not None
    return found


READING = b'{"meter": "m1", "at": 5, "litres": 3}'


def test_states_are_decoded(site: Site) -> None:
    """The state of a bucket is shown for one key or for all keys."""
    save_total(site, 40)
    [shard] = site.client.get("/api/processors/totals/state").json()["shards"]
    [without_key] = site.client.get("/api/processors/totals/state?key=m2&limit=5").json()["shards"]

    assert (shard["bucket"], shard["state"]["position"]) == (1, {"offsets": {"readings": 1234}})
    assert [(entry["key"], entry["value"]) for entry in shard["state"]["entries"]] == [("m1", 40)]
    assert without_key["state"]["entries"] == []


def test_a_missing_state_is_explained(site: Site, protected_site: Site) -> None:
    """The explanation also covers a missing app and an unknown processor."""
    stateless = site.client.get("/api/processors/plain/state")
    unknown = site.client.get("/api/processors/unknown/state")
    without_app = protected_site.client.get(
        "/api/processors/totals/state", headers={"Authorization": f"Bearer {TOKEN}"}
    )

    assert (stateless.json()["shards"], "has no state" in stateless.json()["message"]) == ([], True)
    assert (unknown.status_code, "no processor 'unknown'" in unknown.json()["message"]) == (404, True)
    assert (without_app.status_code, "penstock serve dashboard APP" in without_app.json()["message"]) == (404, True)


def test_the_newest_dead_letters_come_first(site: Site) -> None:
    """Their messages are decoded, or shown as text."""
    none = site.client.get("/api/processors/totals/dead-letters").json()
    for value in (b"old", READING, b"\xff{", None):
        reject(site, value)
    found = site.client.get("/api/processors/totals/dead-letters?limit=3").json()["dead_letters"]

    assert none == {"dead_letters": [], "can_dry_run": True}
    assert [letter["dead_letter_offset"] for letter in found] == [3, 2, 1]
    assert [letter["value"] for letter in found] == [None, "\\xff{", {"meter": "m1", "at": 5, "litres": 3}]
    assert (found[0]["category"], found[0]["bucket"], found[0]["offset"], found[0]["key"]) == ("readings", 1, 41, "m1")


def test_a_dry_run_uses_the_saved_state_and_writes_nothing(site: Site) -> None:
    """It returns the outputs and the state changes. Kafka and the state stay unchanged."""
    save_total(site, 40)
    reject(site, READING)
    before = stored(site)
    result = post(site, "/api/processors/totals/dead-letters/0/dry-run").json()

    assert (result["processed"], result["message"]) == (True, "It would be processed, and write 1 record.")
    assert result["state_source"] == "the saved state at readings 1,234"
    assert result["outputs"] == [{"category": "totals", "key": "m1", "record": {"meter": "m1", "at": 5, "litres": 3}}]
    [change] = result["state_changes"]
    assert [entry["value"] for entry in (*change["before"], *change["after"])] == [40, 43]
    assert stored(site) == before


def stored(site: Site) -> tuple[Any, ...]:
    """Return the content of the bus and of the state."""
    found = {name: dict(site.bus.describe(name).ends) for name in site.bus.names()}
    state = site.client.get("/api/processors/totals/state").json()
    return found, state, sorted(path.name for path in site.state.rglob("*.sst"))


def test_a_dry_run_reports_windows_and_timers(site: Site) -> None:
    """It does so for every kind of processor. Without a state on this machine, or with a remote store, it begins with an empty state."""
    results = {}
    for processor in ("hours", "waiting", "shared", "plain"):
        reject(site, READING, processor=processor)
        results[processor] = post(site, f"/api/processors/{processor}/dead-letters/0/dry-run").json()

    assert all(result["processed"] for result in results.values())
    [hour] = results["hours"]["state_changes"]
    assert (hour["before"][0]["value"], hour["after"][0]["value"]) == (None, 3)
    assert hour["after"][0]["window"] == [0, 3_600_000]
    assert results["hours"]["outputs"][0]["record"] == {"meter": "m1", "at": 0, "litres": 3}
    assert results["waiting"]["timers"] == [["m1", [105, "later", "event time"]]]
    assert "no state of the bucket" in results["waiting"]["state_source"]
    assert "in a remote store" in results["shared"]["state_source"]
    assert (results["plain"]["state_source"], results["plain"]["state_changes"], len(results["plain"]["outputs"])) == (
        "",
        [],
        1,
    )


@pytest.mark.parametrize(
    ("value", "category", "message", "traceback"),
    [
        (b'{"meter": "m1", "at": 5, "litres": -3}', "readings", "ValueError: negative litres", 'raise ValueError("neg'),
        (b"{", "readings", "does not decode", ""),
        (None, "readings", "the message is empty", ""),
        (READING, "elsewhere", "no longer reads", ""),
    ],
)
def test_a_dry_run_explains_another_rejection(
    site: Site, value: bytes | None, category: str, message: str, traceback: str
) -> None:
    """The result contains the traceback of the processor's code."""
    reject(site, value, category)
    result = post(site, "/api/processors/totals/dead-letters/0/dry-run").json()

    assert not result["processed"]
    assert message in result["message"]
    assert (traceback in result["traceback"]) if traceback else result["traceback"] == ""
    assert "penstock/processors" not in result["traceback"]


def test_a_dry_run_reports_an_output_of_the_wrong_type(site: Site) -> None:
    """A worker would stop because of it."""
    reject(site, READING, processor="careless")
    result = post(site, "/api/processors/careless/dead-letters/0/dry-run").json()

    assert (result["processed"], "does not fit its own type" in result["message"]) == (False, True)


def test_a_dry_run_uses_the_current_app_file(site: Site, app_file: Path) -> None:
    """A user corrects the app, and checks the correction without a restart."""
    reject(site, b'{"meter": "m1", "at": 5, "litres": -3}')
    before = post(site, "/api/processors/totals/dead-letters/0/dry-run").json()
    app_file.write_text(APP.replace("event.litres < 0", "event.litres < -5"))
    after = post(site, "/api/processors/totals/dead-letters/0/dry-run").json()

    assert (before["processed"], after["processed"]) == (False, True)


def test_a_dry_run_decodes_avro_with_the_schema_of_the_message(site: Site, app_file: Path) -> None:
    """The schema comes from Kafka. An unknown schema is reported."""
    [packed] = plan_of(AppName(app_file).load().processor("Unpacking")).inputs
    [value] = Codecs(site.bus).of(packed).encode([packed.record("m1", 5, 3)])
    for written in (value, value[:2] + b"unheard." + value[10:]):
        reject(site, written, "packed", "unpacking")
    known, unknown = (post(site, f"/api/processors/unpacking/dead-letters/{n}/dry-run").json() for n in (0, 1))

    assert (known["processed"], known["outputs"][0]["record"]) == (True, {"meter": "m1", "at": 5, "litres": 3})
    assert (unknown["processed"], "schema 756e68656172642e, which is not in" in unknown["message"]) == (False, True)


def test_a_dry_run_in_a_separate_process_returns_the_same(site_with_processes: Site) -> None:
    """Output that the processor prints is not part of the result."""
    reject(site_with_processes, READING, processor="stuck")
    result = post(site_with_processes, "/api/processors/stuck/dead-letters/0/dry-run").json()

    assert (result["processed"], result["message"]) == (True, "It would be processed, and write 1 record.")
    assert result["outputs"] == [{"category": "totals", "key": "m1", "record": {"meter": "m1", "at": 5, "litres": 3}}]


def test_a_dry_run_that_hangs_is_stopped(site_with_processes: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result contains the traceback. Meanwhile, other requests are answered."""
    monkeypatch.setattr("penstock.ops.serve.dashboard.dry_run_pool.RUN_LIMIT_S", 12.0)
    reject(site_with_processes, b'{"meter": "m1", "at": 5, "litres": 1}', processor="stuck")
    answers: list[httpx2.Response] = []
    request = Thread(
        target=lambda: answers.append(post(site_with_processes, "/api/processors/stuck/dead-letters/0/dry-run"))
    )
    request.start()
    others = [site_with_processes.client.get("/api/processors/stuck/dead-letters").status_code for _ in range(3)]
    is_running = request.is_alive()
    request.join()
    result = answers[0].json()

    assert (is_running, others) == (True, [200] * 3)
    assert (result["processed"], "stopped after 12 s" in result["message"]) == (False, True)
    assert re.fullmatch(
        r'Innermost call first:\n  File ".*app\.py", line \d+ in wait_for_ever\n  File ".*app\.py", line \d+ in process',
        result["traceback"],
    )


def test_a_dry_run_that_ends_its_process_is_reported(site_with_processes: Site) -> None:
    """The dashboard continues."""
    reject(site_with_processes, b'{"meter": "m1", "at": 5, "litres": 2}', processor="stuck")
    result = post(site_with_processes, "/api/processors/stuck/dead-letters/0/dry-run").json()

    assert (result["processed"], result["message"]) == (False, "It ended the process of the dry run with exit code 3.")


def test_a_dry_run_of_a_removed_processor_is_explained(site: Site, app_file: Path) -> None:
    """An app file that does not import is explained, too."""
    for name in ("totals", "removed"):
        reject(site, READING, processor=name)
    removed = post(site, "/api/processors/removed/dead-letters/0/dry-run").json()
    app_file.write_text("import nothing_of_that_name")
    broken = post(site, "/api/processors/totals/dead-letters/0/dry-run").json()

    assert (removed["processed"], "no processor 'removed'" in removed["message"]) == (False, True)
    assert (broken["processed"], "nothing_of_that_name" in broken["message"]) == (False, True)


def test_an_expired_dead_letter_is_reported(site: Site) -> None:
    """It may expire after it was listed."""
    reject(site, READING)
    answer = post(site, "/api/processors/totals/dead-letters/7/dry-run")

    assert (answer.status_code, "no dead letter at offset 7" in answer.json()["message"]) == (404, True)


# the command


def test_a_port_in_use_is_reported() -> None:
    """The error names the option that changes it."""
    with listening_at("127.0.0.1", 0, "The dashboard") as first:
        port = first.getsockname()[1]
        with pytest.raises(AddressUnavailable, match="--port"), listening_at("127.0.0.1", port, "The dashboard"):
            pass


def test_a_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this command needs a web server."""
    for name in [name for name in sys.modules if name.startswith("penstock.ops.serve.dashboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(command, ["serve", "dashboard"])

    assert isinstance(done.exception, PenstockError)
    assert "pip install 'penstock[dashboard]'" in str(done.exception)
