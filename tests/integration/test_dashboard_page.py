"""The dashboard in a real browser, for processors at work on a real Kafka."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.browser import Browser
from support.cli import Cli
from support.exactness import large_readings
from support.meters import APP, readings

from penstock.ops.shell import free_port
from penstock.transport import Outgoing
from penstock.transport.kafka import KafkaBus

PICTURES = Path(__file__).parents[2] / "artifacts" / "dashboard"
SIZES = {"desktop": (1280, 900), "tablet": (800, 1000), "phone": (390, 844)}
BAD = b'<img src=x onerror="document.title=1">'
Wait = Callable[[Callable[[], bool]], None]


def serve(cli: Cli, *options: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """Start a dashboard; return its process and the address that it prints."""
    process = cli.start("serve", "dashboard", *options, **environment)
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:  # the code of the app may log something first
        lines.append(line)
        if found := re.search(r"http://\S+", line):
            return process, found[0]
    raise AssertionError("".join(lines))


def stop(process: subprocess.Popen[str]) -> int:
    """Terminate a dashboard; return its exit code."""
    process.terminate()
    return process.wait(timeout=90)


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
    # The page looks for the restarted server at the same port, which no outgoing connection may take meanwhile.
    process, address = serve(cli, "app.py", "--port", str(free_port()))
    browser.show(address)
    wait_until(lambda: browser.text("table tbody").count(prefix) == 3)
    wait_until(lambda: "not running" in browser.text(".graph"))  # drawn once the browser knows its size

    negative = '{"meter": "m1", "at": 1, "litres": -7}'
    cli.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin=readings(2000) + negative)
    writer = kafka_bus.writer()
    writer.send(f"{prefix}.readings", [Outgoing(b"m2", BAD)])
    writer.flush()
    cli.start("run", "app.py")
    # The page reads a state once, and shows no backlog also before the first processor has written anything.
    totals = (f"{prefix}.totals", f"{prefix}.large")
    wait_until(lambda: sum(kafka_bus.catalog.committed(*totals).values()) >= len(large_readings(2000)))
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
    refused = cli("serve", "dashboard", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - must be refused

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


def test_an_operator_rolls_back_on_the_page(browser: Browser, cli: Cli, prefix: str, wait_until: Wait) -> None:
    """The page shows logs and versions, marks the rollback in the history, and the audit log names the operator."""
    app, name = cli.folder / "app.py", f"{prefix}.large"
    app.write_text(APP.replace("{prefix}", prefix))
    cli.ok("category", "create", "app.py")
    cli.ok("deploy", "app.py:Large")
    app.write_text(
        app.read_text().replace(
            "class Large(ps.Stateless):", "import logging\nlogging.warning('version two')\n\nclass Large(ps.Stateless):"
        )
    )
    cli.ok("deploy", "app.py:Large")
    token = {"PENSTOCK_DASHBOARD_TOKEN": "a-token-for-this-test"}
    process, address = serve(cli, "app.py", "--port", "0", **token)
    browser.look_like(*SIZES["desktop"], "light")
    browser.show(f"{address}?token=a-token-for-this-test")
    wait_until(lambda: browser.text("#live").startswith("as of"))
    browser.run(f"location.hash = '#/processor/{name}'")
    wait_until(lambda: "version two" in browser.text('[aria-label="Log lines"]'))
    wait_until(lambda: re.search(r"2\s+runs.*\n1\s", browser.text('[aria-label="Versions"]')) is not None)
    press = "return [...document.querySelectorAll('.actions button')].find((one) => one.textContent === '{}').click()"
    browser.run(press.format("Roll back"))

    assert versions_in(cli, name) == [2]

    browser.run(press.format("Really roll back?"))
    wait_until(lambda: "@1 runs again" in browser.text('[aria-label="Operate"] pre'))
    wait_until(lambda: "back to version 1" in str(browser.run("return document.querySelector('canvas').ariaLabel")))

    assert versions_in(cli, name) == [1]
    look_at_all(browser, "deployment")
    operations = json.loads(cli.ok("audit", "--json", "--command", "rollback"))
    assert [
        one["arguments"]["name"]
        for one in operations
        if one["user"].startswith("operator with the token, by the dashboard")
    ] == [name]
    assert browser.complaints() == []
    assert stop(process) == 0
    cli.ok("undeploy", name)


def versions_in(cli: Cli, name: str) -> list[int]:
    """Return the current version of a deployment."""
    return [each["version"] for each in json.loads(cli.ok("deployments", "--json")) if each["name"] == name]
