"""The dashboard in a real browser, for processors at work on a real Kafka."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser, chromium
from support.cli import Cli
from support.meters import APP, readings

from penstock.transport.kafka import KafkaBus
from penstock.transport.messages import Outgoing

PICTURES = Path(__file__).parents[2] / "artifacts" / "dashboard"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
BAD = b'<img src=x onerror="document.title=1">'
Wait = Callable[[Callable[[], bool]], None]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium."""
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def serve(cli: Cli, *options: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """Start a dashboard; return its process and the address that it prints."""
    process = cli.start("dashboard", *options, **environment)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://\S+", line)
    assert found is not None, line + process.stderr.read()
    return process, found[0]


def stop(process: subprocess.Popen[str]) -> int:
    """Terminate a dashboard; return its exit code."""
    process.terminate()
    return process.wait(timeout=20)


def test_the_dashboard_shows_a_running_app(
    browser: Browser, cli: Cli, prefix: str, kafka_bus: KafkaBus, wait_until: Wait
) -> None:
    """It shows the graph, plots, alerts, a processor's state and dead letters, on desktop and phone, light and dark."""
    path = cli.folder / "app.py"
    # A user's processor: it raises for negative readings, which become dead letters.
    path.write_text(
        APP.replace("{prefix}", prefix).replace(
            "class Large(ps.Stateless):", "class Large(ps.Stateless):\n    on_error = ps.ErrorPolicy.DEAD_LETTER"
        )
    )
    cli.ok("category", "create", "app.py")
    process, address = serve(cli, "app.py", "--port", "0")
    browser.show(address)
    wait_until(lambda: browser.text("table tbody").count(prefix) == 3)

    assert "not running" in browser.text(".graph")

    negative = '{"meter": "m1", "at": 1, "litres": -7}'
    cli.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin=readings(2000) + negative)
    writer = kafka_bus.writer()
    writer.send(f"{prefix}.readings", [Outgoing(b"m2", BAD)])
    writer.flush()
    cli.start("run", "app.py")
    wait_until(lambda: browser.text(".graph").count("no backlog") == 3)
    look_at_all(browser, "overview")

    browser.run(f"document.querySelector('tbody a[href$=\"{prefix}.totals\"]').click()")
    wait_until(lambda: "Bucket 0" in browser.text('[aria-label="State"]'))
    wait_until(lambda: "worker" in browser.text('[aria-label="Workers"]'))

    assert re.search(r"m\d\s+\d+", browser.text('[aria-label="Values"]'))

    look_at_all(browser, "stateful")
    run_dry_runs(browser, prefix, wait_until)
    look_at_all(browser, "dead-letters")

    assert browser.complaints() == []

    lose_and_restart_the_server(browser, cli, process, address, wait_until)


def look_at_all(browser: Browser, name: str) -> None:
    """Take screenshots in all sizes and colour schemes, and expect that no page scrolls sideways."""
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            browser.look_like(width, height, scheme)
            # Two frames: canvases are redrawn for the new size and colours.
            browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            browser.keep_picture(PICTURES / f"{name}-{size}-{scheme}.png")

            assert browser.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    browser.look_like(*SIZES["desktop"], "light")


def run_dry_runs(browser: Browser, prefix: str, wait_until: Wait) -> None:
    """Expect a dead letter and its dry run to show the same reason, and its content as text, even if it is markup."""
    browser.run(f"location.hash = '#/processor/{prefix}.large'")
    wait_until(lambda: browser.text(".dead-letters").count("Dry run") == 2)
    browser.run("document.querySelectorAll('.dead-letter button').forEach((button) => button.click())")
    wait_until(lambda: browser.run("return document.querySelectorAll('.dry-run .verdict').length") == 2)
    text = browser.text(".dead-letters")

    assert "It would become a dead letter again: " in text
    assert "ValueError: -7 litres" in text
    assert BAD.decode() in text
    assert browser.run("return document.querySelectorAll('main img').length") == 0


def lose_and_restart_the_server(
    browser: Browser, cli: Cli, process: subprocess.Popen[str], address: str, wait_until: Wait
) -> None:
    """Expect the page to report a lost server and to continue by itself after the restart."""
    assert stop(process) == 0
    wait_until(lambda: "connection to the dashboard is lost" in browser.text("#banner"))
    again, _ = serve(cli, "app.py", "--port", address.rstrip("/").rpartition(":")[2])
    wait_until(lambda: browser.text("#banner") == "")

    assert browser.text("#live").startswith("as of")
    assert stop(again) == 0


def test_a_dashboard_beyond_loopback_requires_a_token(browser: Browser, cli: Cli, wait_until: Wait) -> None:
    """Without a token it does not start; with one, a visitor enters it once."""
    refused = cli("dashboard", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - must be refused

    assert (refused.returncode, "PENSTOCK_DASHBOARD_TOKEN" in refused.stderr) == (1, True)

    token: dict[str, Any] = {"PENSTOCK_DASHBOARD_TOKEN": "a-token-for-this-test"}
    process, address = serve(cli, "--host", "0.0.0.0", "--port", "0", **token)  # noqa: S104 - guarded
    here = address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - guarded by the token
    browser.show(here)
    asked = browser.text("main")
    browser.run("const box = document.querySelector('input'); box.value = 'a-token-for-this-test'; box.form.submit()")
    wait_until(lambda: browser.text("#live").startswith("as of"))

    assert "Token" in asked
    assert browser.run("return location.href") == here
    assert browser.run("return document.cookie") == ""
    assert stop(process) == 0
