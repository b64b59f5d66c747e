"""The command `penstock`: catches Ctrl-C before anything else is imported, and runs the command line."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the number of SIGINT, as in shells."""


def main() -> None:
    """Run the command `penstock`. Ctrl-C ends it silently, also while its code is still being imported."""
    try:
        from .ops.shell import uncollected  # noqa: PLC0415 - nothing is imported before Ctrl-C is caught

        with uncollected():
            from .ops.shell import import_command  # noqa: PLC0415 - as above
            from .ops.shell import main as run_command  # noqa: PLC0415 - takes most of the time of a start

            import_command(sys.argv[1:])

        run_command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
