"""The command line: parsing of options and output of results."""

from __future__ import annotations

import signal
import sys

from .start import uncollected


def main() -> None:
    """Run the command `penstock`. Ctrl-C ends it silently, also while its code is still being imported."""
    try:
        with uncollected():
            from .command_line import main as run_command  # noqa: PLC0415 - takes most of the time of a start
            from .commands import import_command  # noqa: PLC0415 - as above

            import_command(sys.argv[1:])

        run_command()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


__all__ = ["main"]
