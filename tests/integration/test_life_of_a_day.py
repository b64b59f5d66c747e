"""What those who run the flights pipeline do in a day, one command after another; the program itself looks after each whether it is so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "flights" / "day.py"
LIMIT_S = 600.0


def test_the_life_of_a_day(tmp_path: Path) -> None:
    """Deployed, loaded, behind, scaled out, killed, updated, badly updated, put back, replayed, reset, taken down."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )

    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
    assert "Every step had the expected result." in done.stdout
