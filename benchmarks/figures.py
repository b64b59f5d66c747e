"""Figures of measurements, for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
COLORS = ("#2b5d8a", "#c9772b", "#4f8a4b")
"""Colors that color-blind readers can distinguish."""

# Any: the types of the names differ between releases of matplotlib.
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": "#dddddd",
    "legend.frameon": False,
    # The same numbers produce the same file.
    "svg.hashsalt": "penstock",
}


@contextmanager
def drawing(name: str, panels: int, *, rows: int = 1, width: float = 9.0, height: float) -> Iterator[list[Axes]]:
    """Yield panels side by side, in equal rows, and write them to docs/figures after the block.

    Args:
        name: the name of the file.
        panels: the number of panels.
        rows: the number of rows.
        width: the width of the figure, in inches.
        height: the height of the figure, in inches.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield list(figure.subplots(rows, panels // rows, squeeze=False).flat)
        FOLDER.mkdir(parents=True, exist_ok=True)
        figure.savefig(FOLDER / name, metadata={"Date": None})
    print(f"Drawn: {FOLDER / name}")
