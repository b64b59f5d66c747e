"""The command line: parsing of options and output of results."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the number of SIGINT, as in shells."""


def main() -> None:
    """Run the command `penstock`. Ctrl-C ends it silently, also while its code is still being imported."""
    try:
        from .start import uncollected  # noqa: PLC0415 - nothing is imported before Ctrl-C is caught

        with uncollected():
            from .command_line import main as run_command  # noqa: PLC0415 - takes most of the time of a start
            from .commands import import_command  # noqa: PLC0415 - as above

            import_command(sys.argv[1:])

        run_command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


__all__ = ["main"]
