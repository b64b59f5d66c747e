"""The dashboard's server: who is let in, what browsers are told, and what it answers."""

from __future__ import annotations

import json
import queue
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.testclient import TestClient
from support.pictures import NOW_MS, picture, shard, standing, worker
from typer.testing import CliRunner

from penstock.ops.alerting.alert_states import ActiveAlert, Alerts
from penstock.ops.cli.main import app as command
from penstock.ops.dashboard.access import Access, AccessRefused
from penstock.ops.dashboard.broadcast import Broadcaster, Message
from penstock.ops.dashboard.dry_run_pool import DryRunPool, DryRunRequest
from penstock.ops.dashboard.dry_run_process import Asked, answer
from penstock.ops.dashboard.history import KEPT_MS, History, moment_of
from penstock.ops.dashboard.poller import PolledStatus
from penstock.ops.dashboard.serving import AddressRefused, listening_at
from penstock.ops.dashboard.site import PAGE, Shown, site_of
from penstock.processors.declare.apps import AppName
from penstock.processors.declare.dead_letters import DeadLetter
from penstock.processors.errors import PenstockError
from penstock.processors.shard.position import StatePosition
from penstock.state.local.folder import RocksStateFolder
from penstock.state.protocols import ShardIdentity
from penstock.transport.category_spec import CategorySpec
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.codecs.dead_letters import DeadLetterCodec
from penstock.transport.errors import BusUnreachable
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Outgoing

TOKEN = "correct-horse-battery"  # noqa: S105 - of nothing but these tests
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


class Scripted:
    """Sees what a test hands it, when it hands it; an error among that is raised."""

    def __init__(self) -> None:
        self.coming: queue.Queue[PolledStatus | Exception] = queue.Queue()
        self.closed = False

    def look(self) -> PolledStatus:
        coming = self.coming.get()
        if isinstance(coming, Exception):
            raise coming
        return coming

    def close(self) -> None:
        self.closed = True


class Here:
    """Tries in this process, which takes no second to start."""

    def answer(self, asked: Asked) -> bytes:
        return answer(asked)


class Site:
    """A site over a scripted watch."""

    def __init__(self, folder: Path, access: Access, app: AppName | None, trying: DryRunRequest) -> None:
        self.looks = Scripted()
        self.watch = Broadcaster(self.looks, every_s=0.0)
        self.bus = MemoryBus()
        self.state = folder / "state"
        self.app = site_of(Shown(self.bus, app, self.state, "a title"), self.watch, access, trying)
        self.client = TestClient(self.app, base_url="http://127.0.0.1:8710", raise_server_exceptions=True)

    def see(self, seen: PolledStatus | Exception) -> None:
        self.looks.coming.put(seen)


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    """An app of a stateful and a stateless processor."""
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


@pytest.fixture
def site(tmp_path: Path, app_file: Path) -> Iterator[Site]:
    """A site for this machine alone, with an app."""
    yield from open_site(tmp_path, Access(), AppName(app_file))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Site]:
    """A site that asks for a token."""
    yield from open_site(tmp_path, Access(TOKEN), None)


@pytest.fixture
def whole(tmp_path: Path, app_file: Path) -> Iterator[Site]:
    """A site that tries in processes of their own."""
    yield from open_site(tmp_path, Access(), AppName(app_file), DryRunPool())


def open_site(folder: Path, access: Access, app: AppName | None, trying: DryRunRequest | None = None) -> Iterator[Site]:
    site = Site(folder, access, app, trying or Here())
    with closing(site.watch):
        site.watch.start()
        yield site
        site.watch._ended.set()
        site.see(BusUnreachable("the test is over"))


def seen(at_ms: int = NOW_MS, *, alerts: tuple[ActiveAlert, ...] = (), **given: Any) -> PolledStatus:
    one = standing(shard(0, **given), workers=(worker(rate_in=5.0),))
    return PolledStatus(picture(one, at_ms=at_ms), Alerts({alert.subject: alert for alert in alerts}))


def told(site: Site, wait_until: Callable[..., None], act: Callable[[], None]) -> list[tuple[str, Any]]:
    """Return what a browser is told that listens while something is done."""
    answers: list[httpx2.Response] = []
    listening = Thread(target=lambda: answers.append(site.client.get("/events")))
    listening.start()
    wait_until(lambda: len(site.watch._listeners) == 1)
    act()
    site.watch.end_streams()
    listening.join(timeout=30)
    assert answers[0].headers["content-type"].startswith("text/event-stream")
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", answers[0].text)
    return [(kind, json.loads(content)) for kind, content in found]


# what browsers are told


def test_a_browser_gets_the_history_then_each_picture(site: Site, wait_until: Callable[..., None]) -> None:
    """What was seen before it came, and what is seen from then on."""
    site.see(seen(NOW_MS, behind=7))
    wait_until(lambda: site.watch.newest is not None)

    def look_again() -> None:
        site.see(seen(NOW_MS + 2000, behind=9))
        wait_until(lambda: newest_ms(site) == NOW_MS + 2000)

    events = told(site, wait_until, look_again)

    assert [kind for kind, _ in events] == ["title", "history", "picture", "picture"]
    assert events[0][1] == "a title"
    assert events[1][1]["at_ms"] == [NOW_MS]
    assert events[1][1]["processors"]["scorer"]["behind"] == [7]
    assert [content["processors"][0]["behind"] for _, content in events[2:]] == [7, 9]


def newest_ms(site: Site) -> int | None:
    newest = site.watch.newest
    return newest.content["at_ms"] if newest and newest.kind == "picture" else None


def test_a_bus_that_does_not_answer_is_told_and_looked_at_again(site: Site, wait_until: Callable[..., None]) -> None:
    """The page says since when it is blind; the next picture comes when there is one."""

    def lose_and_find() -> None:
        for trouble in (BusUnreachable("nobody there"), RuntimeError("a bug"), BusUnreachable("still nobody")):
            site.see(trouble)
        site.see(seen())
        wait_until(lambda: newest_ms(site) == NOW_MS)

    _, _, *troubles, last = told(site, wait_until, lose_and_find)

    assert [kind for kind, _ in troubles] == ["trouble"] * 3
    assert [content["says"] for _, content in troubles][::2] == ["nobody there", "still nobody"]
    assert "RuntimeError: a bug" in troubles[1][1]["says"]
    assert len({content["since_ms"] for _, content in troubles}) == 1
    assert last[0] == "picture"


def test_while_a_look_takes_long_browsers_hear_that_there_is_nothing_new(
    site: Site, wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that hears nothing at all takes the connection for lost."""
    monkeypatch.setattr("penstock.ops.dashboard.broadcast.QUIET_S", 0.01)
    heard = Event()
    encoded = Message.encoded

    def noted(message: Message) -> bytes:
        if message.kind == "nothing":
            heard.set()
        return encoded(message)

    monkeypatch.setattr(Message, "encoded", noted)
    events = told(site, wait_until, lambda: wait_until(heard.is_set))

    assert [kind for kind, _ in events][:3] == ["title", "history", "nothing"]


def test_the_newest_picture_is_there_for_programs(site: Site, wait_until: Callable[..., None]) -> None:
    """With alerts about what is shown, and no others."""
    early = site.client.get("/api/picture")
    mine = ActiveAlert("lag", "scorer", "behind_s", "over 5 min", 400.0, NOW_MS - 1000, firing=True)
    other = ActiveAlert("lag", "somebody", "behind_s", "over 5 min", 400.0, NOW_MS - 1000)
    site.see(seen(behind=3, behind_s=400.0, alerts=(mine, other)))
    wait_until(lambda: newest_ms(site) == NOW_MS)
    content = site.client.get("/api/picture").json()

    assert (early.status_code, "Nothing was seen yet" in early.json()["says"]) == (503, True)
    assert [(alert["processor"], alert["firing"], alert["silenced"]) for alert in content["alerts"]] == [
        ("scorer", True, False)
    ]
    assert content["findings"][0]["kind"] == "lag"


def test_history_keeps_an_hour() -> None:
    """And says nothing of a processor for the time when it was not there."""
    history = History()
    later = standing(shard(low_ms=None))
    history.add(moment_of(picture(standing(shard(behind=1)), at_ms=0)))
    history.add(moment_of(picture(at_ms=KEPT_MS)))
    history.add(moment_of(picture(later, at_ms=KEPT_MS + 1)))
    columns = history.columns()

    assert columns["at_ms"] == [KEPT_MS, KEPT_MS + 1]
    assert columns["processors"]["scorer"]["behind"] == [None, 0]
    assert columns["processors"]["scorer"]["watermark_lag_s"] == [None, None]


# who is let in


def test_without_a_token_only_this_machines_names_lead_here(site: Site) -> None:
    """A name from elsewhere that was made to lead to this machine is refused, whatever is asked for."""
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


@pytest.mark.parametrize("path", ["/", "/events", "/api/picture", "/page/app.js", "/api/processors/x/letters"])
def test_with_a_token_nothing_is_shown_to_who_does_not_know_it(guarded: Site, path: str) -> None:
    """Neither the page nor anything else."""
    for given in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Cookie": f"{Access(TOKEN).cookie}=wrong"},
        {"Cookie": ";;=="},
    ):
        answer = guarded.client.get(path, headers=given)
        assert answer.status_code == 401
        assert TOKEN not in answer.text


def test_the_first_visit_brings_a_cookie_and_leads_away_from_the_token(guarded: Site) -> None:
    """It is not in the cookie either; from then on the cookie does."""
    first = guarded.client.get(f"/?token={TOKEN}", follow_redirects=False)
    again = guarded.client.get("/")

    assert (first.status_code, first.headers["location"]) == (303, "./")
    assert "HttpOnly" in first.headers["set-cookie"]
    assert TOKEN not in first.headers["set-cookie"]
    assert again.status_code == 200


def test_programs_give_the_token_in_a_header(guarded: Site) -> None:
    """By whatever name they came: a foreign page has no token."""
    answer = guarded.client.get("/page/app.js", headers={"Authorization": f"Bearer {TOKEN}", "Host": "box.example"})

    assert answer.status_code == 200


def test_beyond_this_machine_a_token_is_a_must() -> None:
    """And one that cannot be guessed."""
    assert Access.at("127.0.0.1", None) == Access.at("::1", None) == Access.at("localhost", None) == Access(None)
    for host in ("0.0.0.0", "::", "192.168.0.7", "box.example"):  # noqa: S104 - what is to be refused
        with pytest.raises(AccessRefused, match="PENSTOCK_DASHBOARD_TOKEN"):
            Access.at(host, None)
    with pytest.raises(AccessRefused, match="could be guessed"):
        Access.at("0.0.0.0", "short")  # noqa: S104 - likewise

    assert Access.at("0.0.0.0", TOKEN).token == TOKEN  # noqa: S104 - likewise
    assert TOKEN not in repr(Access(TOKEN))


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://127.0.0.1:9999"])
def test_only_our_own_pages_may_try_a_letter(site: Site, origin: str | None) -> None:
    """A page of somebody else's, open in the same browser, may not."""
    headers = {} if origin is None else {"Origin": origin}
    answer = site.client.post("/api/processors/totals/letters/0/trial", headers=headers)

    assert answer.status_code == 403


def test_browsers_are_told_to_be_careful(site: Site) -> None:
    """Nothing but our own files is loaded or run, and nobody else may frame or read it."""
    for path in ("/", "/page/app.js", "/api/picture", "/nowhere"):
        headers = site.client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; frame-ancestors 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_the_page_fetches_nothing_from_elsewhere() -> None:
    """All that it names is there, and what comes from the bus is never taken for markup."""
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    sources = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
    linked = set(re.findall(r'(?:src|href)="page/([^"]+)"', page))
    imported = {name for source in sources.values() for name in re.findall(r'from "\./([^"]+)"', source)}

    assert all((PAGE / name).is_file() for name in linked | imported)
    for source in (page, *sources.values(), (PAGE / "style.css").read_text(encoding="utf-8")):
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", source) == []
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source) == []


# insides


def post(site: Site, path: str) -> httpx2.Response:
    return site.client.post(path, headers={"Origin": "http://127.0.0.1:8710"})


def set_aside(site: Site, value: bytes | None, category: str = "readings", processor: str = "totals") -> None:
    """Write a dead letter."""
    letters = f"{processor}.dead_letters"
    if letters not in site.bus.names():
        site.bus.create(CategorySpec(letters, 1))
    letter = DeadLetter(category, 1, 41, "it was bad", b"m1", value, NOW_MS)
    site.bus.writer().send(letters, [Outgoing(None, DeadLetterCodec(lambda: 10_000).encode([letter])[0])])


def save_total(site: Site, litres: int) -> None:
    with closing(RocksStateFolder(site.state).open(ShardIdentity("totals", 1, shape(site)))) as state:
        state.save_together({b"m1": msgspec.msgpack.encode(litres)}, StatePosition({"readings": 1234}))


def shape(site: Site) -> str:
    processor = AppName(site.state.parent / "app.py").load().processor("Totals")
    found = processor.state_shape()
    assert found is not None
    return found


READING = b'{"meter": "m1", "at": 5, "litres": 3}'


def test_state_is_shown_decoded(site: Site) -> None:
    """By bucket, of one key or of all."""
    save_total(site, 40)
    [one] = site.client.get("/api/processors/totals/state").json()["shards"]
    [none] = site.client.get("/api/processors/totals/state?key=m2&limit=5").json()["shards"]

    assert (one["bucket"], one["seen"]["position"]) == (1, {"offsets": {"readings": 1234}})
    assert [(entry["key"], entry["value"]) for entry in one["seen"]["entries"]] == [("m1", 40)]
    assert none["seen"]["entries"] == []


def test_what_has_no_state_here_says_so(site: Site, guarded: Site) -> None:
    """Also where there is no app, or no such processor."""
    stateless = site.client.get("/api/processors/plain/state")
    missing = site.client.get("/api/processors/nobody/state")
    blind = guarded.client.get("/api/processors/totals/state", headers={"Authorization": f"Bearer {TOKEN}"})

    assert (stateless.json()["shards"], "has no state" in stateless.json()["says"]) == ([], True)
    assert (missing.status_code, "no processor 'nobody'" in missing.json()["says"]) == (404, True)
    assert (blind.status_code, "penstock dashboard APP" in blind.json()["says"]) == (404, True)


def test_the_newest_letters_come_first(site: Site) -> None:
    """With what they hold: decoded, or as text."""
    none = site.client.get("/api/processors/totals/letters").json()
    for value in (b"old", READING, b"\xff{", None):
        set_aside(site, value)
    found = site.client.get("/api/processors/totals/letters?limit=3").json()["letters"]

    assert none == {"letters": [], "can_try": True}
    assert [letter["number"] for letter in found] == [3, 2, 1]
    assert [letter["value"] for letter in found] == [None, "\\xff{", {"meter": "m1", "at": 5, "litres": 3}]
    assert (found[0]["category"], found[0]["bucket"], found[0]["offset"], found[0]["key"]) == ("readings", 1, 41, "m1")


def test_a_letter_is_tried_over_the_state_and_nothing_is_written(site: Site) -> None:
    """It tells what would be written and what would change; bus and state stay as they are."""
    save_total(site, 40)
    set_aside(site, READING)
    before = contents(site)
    trial = post(site, "/api/processors/totals/letters/0/trial").json()

    assert (trial["processed"], trial["says"]) == (True, "It would be processed, and give 1 record.")
    assert trial["over"] == "its state as it is saved now, at readings 1,234"
    assert trial["written"] == [{"category": "totals", "key": "m1", "record": {"meter": "m1", "at": 5, "litres": 3}}]
    [change] = trial["changes"]
    assert [entry["value"] for entry in (*change["before"], *change["after"])] == [40, 43]
    assert contents(site) == before


def contents(site: Site) -> tuple[Any, ...]:
    """Return all that the bus and the state hold."""
    found = {name: dict(site.bus.describe(name).ends) for name in site.bus.names()}
    state = site.client.get("/api/processors/totals/state").json()
    return found, state, sorted(path.name for path in site.state.rglob("*.sst"))


def test_a_trial_shows_windows_and_timers(site: Site) -> None:
    """Of whatever kind the processor is; where there is no state here, or it is in a store, over none."""
    trials = {}
    for processor in ("hours", "waiting", "shared", "plain"):
        set_aside(site, READING, processor=processor)
        trials[processor] = post(site, f"/api/processors/{processor}/letters/0/trial").json()

    assert all(trial["processed"] for trial in trials.values())
    [hour] = trials["hours"]["changes"]
    assert (hour["before"][0]["value"], hour["after"][0]["value"]) == (None, 3)
    assert hour["after"][0]["window"] == [0, 3_600_000]
    assert trials["hours"]["written"][0]["record"] == {"meter": "m1", "at": 0, "litres": 3}
    assert trials["waiting"]["timers"] == [["m1", [105, "later", "event time"]]]
    assert "none of this bucket on this machine" in trials["waiting"]["over"]
    assert "in a store" in trials["shared"]["over"]
    assert (trials["plain"]["over"], trials["plain"]["changes"], len(trials["plain"]["written"])) == ("", [], 1)


@pytest.mark.parametrize(
    ("value", "category", "says", "trace"),
    [
        (b'{"meter": "m1", "at": 5, "litres": -3}', "readings", "ValueError: negative litres", 'raise ValueError("neg'),
        (b"{", "readings", "does not decode", ""),
        (None, "readings", "the message is empty", ""),
        (READING, "elsewhere", "reads no more", ""),
    ],
)
def test_a_letter_that_would_fail_again_says_why(
    site: Site, value: bytes | None, category: str, says: str, trace: str
) -> None:
    """What would become of it, and where the processor's code failed."""
    set_aside(site, value, category)
    trial = post(site, "/api/processors/totals/letters/0/trial").json()

    assert not trial["processed"]
    assert says in trial["says"]
    assert (trace in trial["trace"]) if trace else trial["trace"] == ""
    assert "penstock/processors" not in trial["trace"]


def test_a_record_that_does_not_fit_its_type_is_told(site: Site) -> None:
    """The worker would stop at it, too."""
    set_aside(site, READING, processor="careless")
    trial = post(site, "/api/processors/careless/letters/0/trial").json()

    assert (trial["processed"], "does not fit its own type" in trial["says"]) == (False, True)


def test_a_mended_app_is_tried_as_it_is_now(site: Site, app_file: Path) -> None:
    """The button is how one sees whether a change helps."""
    set_aside(site, b'{"meter": "m1", "at": 5, "litres": -3}')
    before = post(site, "/api/processors/totals/letters/0/trial").json()
    app_file.write_text(APP.replace("event.litres < 0", "event.litres < -5"))
    after = post(site, "/api/processors/totals/letters/0/trial").json()

    assert (before["processed"], after["processed"]) == (False, True)


def test_a_letter_in_avro_is_decoded_by_the_schema_that_it_names(site: Site, app_file: Path) -> None:
    """Which is fetched from the bus; where nobody knows it, that is said."""
    [packed] = AppName(app_file).load().processor("Unpacking").inputs()
    [value] = Codecs(site.bus).of(packed).encode([packed.record("m1", 5, 3)])
    for written in (value, value[:2] + b"unheard." + value[10:]):
        set_aside(site, written, "packed", "unpacking")
    known, unknown = (post(site, f"/api/processors/unpacking/letters/{n}/trial").json() for n in (0, 1))

    assert (known["processed"], known["written"][0]["record"]) == (True, {"meter": "m1", "at": 5, "litres": 3})
    assert (unknown["processed"], "schema 756e68656172642e, which is not in" in unknown["says"]) == (False, True)


def test_a_trial_in_a_process_of_its_own_tells_the_same(whole: Site) -> None:
    """Whatever the processor prints is no part of it."""
    set_aside(whole, READING, processor="stuck")
    trial = post(whole, "/api/processors/stuck/letters/0/trial").json()

    assert (trial["processed"], trial["says"]) == (True, "It would be processed, and give 1 record.")
    assert trial["written"] == [{"category": "totals", "key": "m1", "record": {"meter": "m1", "at": 5, "litres": 3}}]


def test_a_trial_that_hangs_is_broken_off(whole: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where the processor's code was; meanwhile everything else is answered."""
    monkeypatch.setattr("penstock.ops.dashboard.dry_run_pool.LIMIT_S", 0.5)
    set_aside(whole, b'{"meter": "m1", "at": 5, "litres": 1}', processor="stuck")
    answers: list[httpx2.Response] = []
    trying = Thread(target=lambda: answers.append(post(whole, "/api/processors/stuck/letters/0/trial")))
    trying.start()
    beside = [whole.client.get("/api/processors/stuck/letters").status_code for _ in range(3)]
    waits = trying.is_alive()
    trying.join()
    trial = answers[0].json()

    assert (waits, beside) == (True, [200] * 3)
    assert (trial["processed"], "broken off after 0.5 s" in trial["says"]) == (False, True)
    assert re.fullmatch(
        r'Innermost call first:\n  File ".*app\.py", line \d+ in wait_for_ever\n  File ".*app\.py", line \d+ in process',
        trial["trace"],
    )


def test_a_trial_that_ends_its_process_ends_no_other(whole: Site) -> None:
    """It is told."""
    set_aside(whole, b'{"meter": "m1", "at": 5, "litres": 2}', processor="stuck")
    trial = post(whole, "/api/processors/stuck/letters/0/trial").json()

    assert (trial["processed"], trial["says"]) == (False, "It ended the process in which it was tried, with 3.")


def test_a_trial_of_what_the_app_has_no_more_says_so(site: Site, app_file: Path) -> None:
    """Also where the file does not import."""
    for name in ("totals", "gone"):
        set_aside(site, READING, processor=name)
    gone = post(site, "/api/processors/gone/letters/0/trial").json()
    app_file.write_text("import nothing_of_that_name")
    broken = post(site, "/api/processors/totals/letters/0/trial").json()

    assert (gone["processed"], "no processor 'gone'" in gone["says"]) == (False, True)
    assert (broken["processed"], "nothing_of_that_name" in broken["says"]) == (False, True)


def test_a_letter_that_is_gone_says_so(site: Site) -> None:
    """It may have left the bus since it was listed."""
    set_aside(site, READING)
    answer = post(site, "/api/processors/totals/letters/7/trial")

    assert (answer.status_code, "no dead letter at offset 7" in answer.json()["says"]) == (404, True)


# the command


def test_a_port_that_somebody_has_is_named() -> None:
    """With what to do."""
    with listening_at("127.0.0.1", 0) as first:
        taken = first.getsockname()[1]
        with pytest.raises(AddressRefused, match="--port"), listening_at("127.0.0.1", taken):
            pass


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Penstock does without a web server, but for this command."""
    for name in [name for name in sys.modules if name.startswith("penstock.ops.dashboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(command, ["dashboard"])

    assert isinstance(done.exception, PenstockError)
    assert "pip install 'penstock[dashboard]'" in str(done.exception)
