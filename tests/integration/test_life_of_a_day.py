"""A day of operations on the flights pipeline, one command after another; the example program checks each step itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "flights" / "day.py"
LIMIT_S = 1100.0


@pytest.mark.exhaustive
def test_a_day_of_operations(tmp_path: Path) -> None:
    """The steps are deploy, load, lag, scale out, kill, update, fail an update, roll back, replay, reset and take down."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )

    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
    assert "Every step had the expected result." in done.stdout
