"""The process of one dry run: it runs the user's code, so that a failure of that code does not affect the dashboard.

    standard input: a request --> the app from its current files --> standard output: the result, both as JSON

After the time limit, a thread outside of Python's interpreter ends the process and writes the traceback to standard error.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from ....processors import PenstockError
from ....processors.apps import AppName
from ....processors.declare import DeadLetter
from ....transport.memory import MemoryBus
from ....transport.tables import Schemas
from .dry_run import DryRun, dry_run


class DryRunRequest(msgspec.Struct, frozen=True):
    """A request for a dry run.

    Args:
        app: the app file.
        processor: the name of one of its processors.
        letter: one of its dead letters.
        schemas: the Avro schemas of the message, by hexadecimal fingerprint.
        root: the folder of states.
        limit_s: the time limit in seconds.
    """

    app: str
    processor: str
    letter: DeadLetter
    schemas: dict[str, dict[str, Any]]
    root: str
    limit_s: float


def run(request: DryRunRequest) -> bytes:
    """Return the result of a dry run in this process, as JSON."""
    bus = MemoryBus()
    schemas = Schemas(bus)
    for fingerprint, schema in request.schemas.items():
        schemas.add(bytes.fromhex(fingerprint), schema)
    try:
        processor = AppName.parse(request.app).load().processor(request.processor)
        result = dry_run(processor, request.letter, bus, Path(request.root))
    except PenstockError as error:
        result = DryRun(processed=False, message=str(error))
    return msgspec.json.encode(result)


def main() -> None:
    """Answer one request, and exit."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=DryRunRequest)
    result = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of the user's code must not mix with the result
    faulthandler.dump_traceback_later(request.limit_s, exit=True)
    result.write(run(request))
    result.close()
    os._exit(0)  # do not wait for threads of the user's code


if __name__ == "__main__":
    main()
