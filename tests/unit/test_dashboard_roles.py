"""Roles of the dashboard's visitors: by token, by a proxy, and without either."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from penstock.ops.http import Access, TrustedProxy
from penstock.ops.http.visitors import Role
from penstock.ops.serve.commands.server_options import DASHBOARD
from penstock.ops.serve.dashboard.broadcast import Broadcaster
from penstock.ops.serve.dashboard.operations import OperationResult
from penstock.ops.serve.dashboard.poller import PolledStatus
from penstock.ops.serve.dashboard.site import SiteContent, create_site
from penstock.transport.memory import MemoryBus

OPERATOR_TOKEN = "correct-horse-battery"  # noqa: S105 - of these tests only
VIEWER_TOKEN = "staple-staple-staple"  # noqa: S105 - as above
SECRET = "only-the-proxy-knows"  # noqa: S105 - as above
PROXY = TrustedProxy(SECRET, operators=frozenset({"sre"}), viewers=frozenset({"dev", "sre"}))
OPERATIONS = [
    ("rollback", None, ["rollback", "--", "totals"]),
    ("scale", {"workers": 3}, ["scale", "--workers", "3", "--", "totals"]),
    (
        "silence",
        {"rule": "lag", "span": "2h", "reason": "known"},
        ["alerts", "silence", "--processor", "totals", "--for", "2h", "--why", "known", "--", "lag"],
    ),
]


class NeverPolled:
    """A source that no test starts."""

    def poll(self) -> PolledStatus:
        raise AssertionError

    def close(self) -> None:
        return


class Recorder:
    """Records operations, and runs none."""

    def __init__(self) -> None:
        self.ran: list[tuple[list[str], str]] = []

    def run(self, words: Sequence[str], user: str) -> OperationResult:
        self.ran.append((list(words), user))
        return OperationResult(done=True, output="done")


@contextmanager
def opened(folder: Path, access: Access, host: str = "127.0.0.1:8710") -> Iterator[tuple[TestClient, Recorder]]:
    """Yield a client of a dashboard, and its operations."""
    recorder = Recorder()
    with closing(Broadcaster(NeverPolled())) as broadcaster:
        site = create_site(SiteContent(MemoryBus(), None, folder, "a title"), broadcaster, access, operator=recorder)
        yield TestClient(site, base_url=f"http://{host}"), recorder


def post(client: TestClient, operation: str, body: object, **headers: str) -> httpx2.Response:
    origin = str(client.base_url).rstrip("/")
    return client.post(f"/api/processors/totals/{operation}", json=body, headers={"Origin": origin, **headers})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def from_proxy(user: str, groups: str) -> dict[str, str]:
    return {"X-Penstock-Proxy-Secret": SECRET, "X-Forwarded-User": user, "X-Forwarded-Groups": groups}


@pytest.mark.parametrize(("operation", "body", "words"), OPERATIONS)
def test_operators_operate_and_are_named(tmp_path: Path, operation: str, body: object, words: list[str]) -> None:
    """They have the token, or are users of the proxy. The command runs for the user, whom the audit log names."""
    with opened(tmp_path, Access(DASHBOARD, OPERATOR_TOKEN, viewer_token=VIEWER_TOKEN, proxy=PROXY)) as (
        client,
        operations,
    ):
        assert post(client, operation, body, **bearer(OPERATOR_TOKEN)).json() == {"done": True, "output": "done"}
        assert post(client, operation, body, **from_proxy("ann@example.org", "dev, sre")).status_code == 200

    assert operations.ran == [(words, "operator with the token"), (words, "ann@example.org")]


@pytest.mark.parametrize(("operation", "body", "words"), OPERATIONS)
def test_viewers_only_read(tmp_path: Path, operation: str, body: object, words: list[str]) -> None:
    """A token or a group makes a visitor a viewer, who may neither operate nor run the app's code."""
    with opened(tmp_path, Access(DASHBOARD, OPERATOR_TOKEN, viewer_token=VIEWER_TOKEN, proxy=PROXY)) as (
        client,
        operations,
    ):
        for headers in (bearer(VIEWER_TOKEN), from_proxy("bob", "dev")):
            assert client.get("/", headers=headers).status_code == 200
            refused = post(client, operation, body, **headers)
            assert (refused.status_code, "Nothing was changed" in refused.text) == (403, True)
            assert post(client, "dead-letters/0/dry-run", None, **headers).status_code == 403
            letters = client.get("/api/processors/totals/dead-letters", headers=headers).json()
            assert letters["can_dry_run"] is False

    assert (operations.ran, bool(words)) == ([], True)


def test_a_visitors_role_is_checked_before_a_body_is_read(tmp_path: Path) -> None:
    """A viewer could otherwise fill the memory. Operators have a limit."""
    with opened(tmp_path, Access(DASHBOARD, OPERATOR_TOKEN, viewer_token=VIEWER_TOKEN)) as (client, operations):
        statuses = {
            token: [
                client.post(
                    f"/api/processors/totals/{name}",
                    content=b"x" * 2_000_000,
                    headers={"Content-Type": "application/json", **bearer(token)},
                ).status_code
                for name in ("scale", "silence")
            ]
            for token in (VIEWER_TOKEN, OPERATOR_TOKEN)
        }

    assert statuses == {VIEWER_TOKEN: [403, 403], OPERATOR_TOKEN: [413, 413]}
    assert operations.ran == []


def test_an_unnamed_visitor_of_this_machine_does_not_operate(tmp_path: Path) -> None:
    """Any user of the machine could be it."""
    with opened(tmp_path, Access(DASHBOARD)) as (client, operations):
        assert client.get("/").status_code == 200
        assert [post(client, name, body).status_code for name, body, _ in OPERATIONS] == [403] * 3

    assert operations.ran == []


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-User": "mallory", "X-Forwarded-Groups": "sre"},
        {**from_proxy("mallory", "sre"), "X-Penstock-Proxy-Secret": "guessed"},
        {**from_proxy("mallory", "sre"), "X-Penstock-Proxy-Secret": ""},
        {"Authorization": "Basic " + base64.b64encode(b"mallory:guessed").decode(), "X-Forwarded-Groups": "sre"},
        {"Authorization": "Basic %%%", "X-Forwarded-User": "mallory", "X-Forwarded-Groups": "sre"},
        {"Authorization": f"Bearer {SECRET}", "X-Forwarded-User": "mallory", "X-Forwarded-Groups": "sre"},
    ],
)
@pytest.mark.parametrize("token", [None, OPERATOR_TOKEN])
def test_the_headers_of_a_proxy_count_only_with_its_secret(
    tmp_path: Path, headers: dict[str, str], token: str | None
) -> None:
    """Another client's headers do not count, even on this machine."""
    with opened(tmp_path, Access(DASHBOARD, token, proxy=PROXY)) as (client, operations):
        assert client.get("/", headers=headers).status_code == 401
        assert post(client, "rollback", None, **headers).status_code == 401

    assert operations.ran == []


def test_without_a_proxy_its_headers_are_ignored(tmp_path: Path) -> None:
    """A visitor of this machine stays unnamed."""
    with opened(tmp_path, Access(DASHBOARD)) as (client, operations):
        assert post(client, "rollback", None, **from_proxy("mallory", "sre")).status_code == 403

    assert operations.ran == []


def test_oauth2_proxy_proves_itself_with_its_basic_password(tmp_path: Path) -> None:
    """It needs no other header than the ones it sends by itself; the page has the name of the proxy."""
    basic = base64.b64encode(f"ann@example.org:{SECRET}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "X-Forwarded-Email": "ann@example.org", "X-Forwarded-Groups": "sre"}
    with opened(tmp_path, Access(DASHBOARD, proxy=PROXY), "streams.example.org") as (client, operations):
        assert client.get("/", headers=headers).status_code == 200
        assert post(client, "rollback", None, **headers).status_code == 200

    assert operations.ran == [(["rollback", "--", "totals"], "ann@example.org")]


def test_a_foreign_page_cannot_operate(tmp_path: Path) -> None:
    """The page runs in the browser of an operator whom the proxy has logged in."""
    with opened(tmp_path, Access(DASHBOARD, proxy=PROXY), "streams.example.org") as (client, operations):
        headers = from_proxy("ann", "sre")
        assert post(client, "rollback", None, **{**headers, "Origin": "https://evil.example"}).status_code == 403

    assert operations.ran == []


def test_a_proxy_may_send_another_host_than_the_browser(tmp_path: Path) -> None:
    """It names the browser's host in a header, which counts only with the secret."""
    forwarded = {"Origin": "https://streams.example.org", "X-Forwarded-Host": "streams.example.org"}
    with opened(tmp_path, Access(DASHBOARD, OPERATOR_TOKEN, proxy=PROXY)) as (client, operations):
        assert post(client, "rollback", None, **{**from_proxy("ann", "sre"), **forwarded}).status_code == 200
        assert post(client, "rollback", None, **{**bearer(OPERATOR_TOKEN), **forwarded}).status_code == 403

    assert len(operations.ran) == 1


def test_a_user_in_no_group_has_no_access(tmp_path: Path) -> None:
    """A request without a user has no access either."""
    with opened(tmp_path, Access(DASHBOARD, proxy=PROXY)) as (client, _):
        assert client.get("/", headers=from_proxy("eve", "guests")).status_code == 403
        assert client.get("/", headers=from_proxy("", "sre")).status_code == 403
        assert client.get("/api/status", headers=from_proxy("eve", "")).status_code == 403


@given(groups=st.lists(st.sampled_from(["sre", "dev", "sr", "SRE", "x", ""]), max_size=4))
def test_the_role_follows_from_whole_names_of_groups(groups: list[str]) -> None:
    """A part of a name, or another case, is another group."""
    found = PROXY.visitor(Headers({"x-forwarded-user": "ann", "x-forwarded-groups": ",".join(groups)}))

    expected = Role.OPERATOR if "sre" in groups else Role.VIEWER if "dev" in groups else None
    assert (None if found is None else found.role) == expected


@pytest.mark.parametrize("body", [{"workers": 0}, {"workers": 1_001}, {"workers": "2"}, {}, None])
def test_a_wrong_number_of_workers_is_refused(tmp_path: Path, body: object) -> None:
    """It is refused before any command runs."""
    with opened(tmp_path, Access(DASHBOARD, OPERATOR_TOKEN)) as (client, operations):
        answer = post(client, "scale", body, **bearer(OPERATOR_TOKEN))

    assert (answer.status_code, "Nothing was changed" in answer.text) == (409, True)
    assert operations.ran == []


def test_no_secret_is_shown() -> None:
    """Tracebacks and logs do not contain it."""
    shown = repr(Access(DASHBOARD, OPERATOR_TOKEN, viewer_token=VIEWER_TOKEN, proxy=PROXY))

    assert not [secret for secret in (OPERATOR_TOKEN, VIEWER_TOKEN, SECRET) if secret in shown]
