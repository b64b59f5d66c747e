"""The time of starts, beside the start of Python alone.

    python benchmarks/start_times.py [--rounds 11]

Measures `import penstock`, `penstock --help`, `penstock status` without a broker and with one, and `penstock run` up to its first event.
All run in turn. Starts its own broker. Prints the median of each in milliseconds, and the ratio to `python -c pass`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from rounds import HERE, broker, fill, in_turn, medians, round_options, unique
from start_times_app import Started, started

from penstock.transport.kafka import KafkaBus, KafkaSettings

YARDSTICK = "python -c pass"
PENSTOCK = str(Path(sys.executable).with_name("penstock"))
APP = str(HERE / "start_times_app.py")
FIRST_EVENT_LIMIT_S = 120.0
POLL_EVERY_S = 0.002

Start = Callable[[], float]
"""Starts a process, and returns the seconds."""


def main() -> None:
    """Measure and print."""
    given = round_options(__doc__, rounds=11).parse_args()
    with broker() as bootstrap, TemporaryDirectory() as folder:
        fill(KafkaBus(KafkaSettings(bootstrap)), [started], iter([Started("one", 0)]))
        starts = _starts(bootstrap, Path(folder))
        # The first start of each compiles modules, and loads them from the disk.
        in_turn(list(starts), 1, lambda name: starts[name]())
        show(medians(list(starts), given.rounds, lambda name: starts[name]()))


def show(found_s: Mapping[str, float]) -> None:
    """Print the table."""
    print(f"{'start':<40}{'ms':>8}{'ratio':>8}")
    for name, took_s in found_s.items():
        print(f"{name:<40}{took_s * 1000:>8,.0f}{took_s / found_s[YARDSTICK]:>8.1f}")


def _starts(bootstrap: str, folder: Path) -> dict[str, Start]:
    """Return the measured starts by name.

    Args:
        bootstrap: the address of the broker.
        folder: an empty folder without a local cluster, in which all processes run.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    with_broker = {**environment, "PENSTOCK_KAFKA": bootstrap}

    def until_end(code: int, environment: Mapping[str, str], *command: str) -> Start:
        def start() -> float:
            began_s = time.perf_counter()
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            took_s = time.perf_counter() - began_s
            if done.returncode != code:
                raise RuntimeError(
                    f"{' '.join(command)} ended with code {done.returncode}:\n{done.stdout}{done.stderr}"
                )
            return took_s

        return start

    return {
        YARDSTICK: until_end(0, environment, sys.executable, "-c", "pass"),
        "import penstock": until_end(0, environment, sys.executable, "-c", "import penstock"),
        "penstock --help": until_end(0, environment, PENSTOCK, "--help"),
        "penstock status, without a broker": until_end(1, environment, PENSTOCK, "status"),
        "penstock status, with a broker": until_end(0, with_broker, PENSTOCK, "status"),
        "penstock run, to the first event": lambda: _first_event(folder, with_broker),
    }


def _first_event(folder: Path, environment: Mapping[str, str]) -> float:
    """Return the seconds from the start of a worker to its first event."""
    name = unique("first")
    mark = folder / name
    own = {**environment, "FIRST_EVENT_NAME": name, "FIRST_EVENT_FILE": str(mark)}
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        began_s = time.perf_counter()
        worker = subprocess.Popen([PENSTOCK, "run", APP], cwd=folder, env=own, stdout=out, stderr=subprocess.STDOUT)
        try:
            while not mark.exists():
                if worker.poll() is not None or time.perf_counter() - began_s > FIRST_EVENT_LIMIT_S:
                    raise RuntimeError(f"The worker handled no event:\n{log.read_text(encoding='utf-8')}")
                time.sleep(POLL_EVERY_S)
            return time.perf_counter() - began_s
        finally:
            worker.terminate()
            worker.wait()


if __name__ == "__main__":
    main()
