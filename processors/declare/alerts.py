"""Alerts, as an app file declares them: a figure of processors, a limit, and for how long it has to be crossed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ..errors import DeclarationError


@dataclass(frozen=True)
class Alert:
    """Tells somebody when a figure of a processor has been beyond a limit for a while.

    Args:
        name: how it is called where it is sent.
        measure: the figure, by its name in the documentation: "behind_seconds", "dead_letters_per_second", …
        above: the limit that it must not be above; or
        below: the limit that it must not be below.
        lasting: for how long it has to be beyond the limit before anybody is told, and within it before that is called resolved.
        processors: which processors, by name; "*" stands for anything.

    Raises:
        DeclarationError: not exactly one of the limits is given, or `lasting` is negative.
    """

    name: str
    measure: str
    above: float | None = None
    below: float | None = None
    lasting: timedelta = timedelta(minutes=2)
    processors: str = "*"

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise DeclarationError(f"Alert {self.name!r} needs one limit, `above` or `below`.")
        if self.lasting < timedelta(0):
            raise DeclarationError(f"Alert {self.name!r} cannot last for less than no time: {self.lasting}.")

    def is_beyond(self, figure: float | None) -> bool:
        """Tell whether a figure is beyond the limit; one that is not known is not."""
        if figure is None:
            return False
        return figure > self.above if self.above is not None else figure < (self.below or 0.0)

    @property
    def limit(self) -> str:
        """The limit in words."""
        return f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
