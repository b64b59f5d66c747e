"""The process that tries one message: the user's code runs here, and whatever becomes of it, the dashboard goes on.

    standard input: what is asked --> the app as its files are now --> standard output: a trial, both as JSON

It ends itself, by a thread that needs nothing of Python, when the code takes too long, and says on standard error where it was.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from ...processors.declare.apps import AppName
from ...processors.declare.dead_letters import DeadLetter
from ...processors.errors import PenstockError
from ...transport.memory import MemoryBus
from ...transport.tables.schemas import Schemas
from .dry_run import DryRun, dry_run


class Asked(msgspec.Struct, frozen=True):
    """What is to be tried.

    Args:
        app: the app file.
        processor: the name of one of its processors.
        letter: a message that it has set aside.
        schemas: the Avro schemas that the message names, by fingerprint in hexadecimal digits.
        root: the folder of states.
        limit_s: how long it may take.
    """

    app: str
    processor: str
    letter: DeadLetter
    schemas: dict[str, dict[str, Any]]
    root: str
    limit_s: float


def answer(asked: Asked) -> bytes:
    """Return what would become of the message, as JSON."""
    bus = MemoryBus()
    schemas = Schemas(bus)
    for prints, schema in asked.schemas.items():
        schemas.add(bytes.fromhex(prints), schema)
    try:
        processor = AppName(Path(asked.app)).load().processor(asked.processor)
        trial = dry_run(processor, asked.letter, bus, Path(asked.root))
    except PenstockError as error:
        trial = DryRun(processed=False, says=str(error))
    return msgspec.json.encode(trial)


def main() -> None:
    """Answer one question, and end."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the user's code prints is no answer
    faulthandler.dump_traceback_later(asked.limit_s, exit=True)
    answers.write(answer(asked))
    answers.close()
    os._exit(0)  # whatever threads the user's code has left


if __name__ == "__main__":
    main()
