"""A headless Chromium, controlled through ChromeDriver's protocol: JSON over HTTP."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.ops.shell import free_port

START_LIMIT_S = 90.0
ANSWER_LIMIT_S = 240.0
# The browser connects only to the page.
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
)
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """One window of a browser.

    Args:
        address: where its session is.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def show(self, url: str) -> None:
        """Open a page."""
        _ask(f"{self._address}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Run JavaScript in the page with `arguments`, and return its result, or the value of its promise."""
        return _ask(f"{self._address}/execute/sync", {"script": script, "args": arguments})

    def text(self, selector: str) -> str:
        """Return the visible text of the first element that matches, or an empty text."""
        return str(self.run(f"return document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def look_like(self, width: int, height: int, scheme: str) -> None:
        """Set the size and the color scheme of the window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self._devtools("Emulation.setDeviceMetricsOverride", size)
        self._devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def keep_picture(self, path: Path) -> None:
        """Save a screenshot of the whole page."""
        taken = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def complaints(self) -> list[str]:
        """Return the errors and policy violations that the browser has logged since the last call."""
        found = _ask(f"{self._address}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] == "SEVERE"]

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return _ask(f"{self._address}/goog/cdp/execute", {"cmd": command, "params": parameters})


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Run a browser with its own profile. Without one on the machine, the test is skipped, and fails in CI."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        end = pytest.fail if os.environ.get("CI") else pytest.skip
        end("NO BROWSER: the dashboard's page was not tested. `apt-get install chromium chromium-driver` brings one.")
    port = free_port()
    with subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"http://127.0.0.1:{port}/status")
            session = _ask(f"http://127.0.0.1:{port}/session", _wanted(binary, folder))
            address = f"http://127.0.0.1:{port}/session/{session['sessionId']}"
            try:
                yield Browser(address)
            finally:
                _ask(address, None, "DELETE")
        finally:
            process.terminate()


def _wanted(binary: str, folder: Path) -> dict[str, Any]:
    options = {"binary": binary, "args": [*_ARGUMENTS, f"--user-data-dir={folder}"]}
    return {
        "capabilities": {
            "alwaysMatch": {
                "browserName": "chrome",
                "timeouts": {"script": int(ANSWER_LIMIT_S * 1000)},
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
            }
        }
    }


def _wait_for(url: str) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while True:
        try:
            _ask(url)
        except urllib.error.URLError:
            assert time.monotonic() < deadline_s, "ChromeDriver did not start"
            time.sleep(0.05)
        else:
            return


def _ask(url: str, content: Any = None, method: str | None = None) -> Any:
    request = urllib.request.Request(  # noqa: S310 - always of this machine
        url,
        None if content is None else json.dumps(content).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    try:
        with _direct.open(request, timeout=ANSWER_LIMIT_S) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error
