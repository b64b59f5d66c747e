"""The transfer of bytes to and from a program: both directions at the same time, and its error output."""

from __future__ import annotations

import fcntl
import os
import selectors
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

PIPE_BYTES = 2**20
"""The size of the pipes to and from a program, where the system allows it: fewer switches between two processes."""
OTHER_MARK = "wrote a checkpoint line that is not the expected one"
_POLL_S = 0.05


@dataclass
class Transfer:
    """One group of lines on its way through a process."""

    process: subprocess.Popen[bytes]
    given: bytes
    mark: bytes
    max_output_bytes: int
    output: bytearray = field(default_factory=bytearray)
    failure: str = ""
    is_complete: bool = False
    has_ended: bool = False
    dropped_bytes: int = 0
    _errors: bytearray = field(default_factory=bytearray)

    def __enter__(self) -> Self:
        self._left = memoryview(self.given)
        self._selector = selectors.DefaultSelector()
        stdin, stdout, stderr = self.process.stdin, self.process.stdout, self.process.stderr
        assert stdin and stdout and stderr  # noqa: S101, PT018 - all three are pipes
        for file in (stdin, stdout, stderr):
            os.set_blocking(file.fileno(), False)
            with suppress(OSError, AttributeError):  # only on Linux, and up to the limit of the user
                fcntl.fcntl(file.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._selector.register(stdin, selectors.EVENT_WRITE, self._write)
        self._selector.register(stdout, selectors.EVENT_READ, self._read)
        self._selector.register(stderr, selectors.EVENT_READ, self._read_errors)
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    @property
    def remaining(self) -> int:
        """The number of bytes that the process has not accepted."""
        return len(self._left)

    def wait(self, limit_s: float) -> None:
        """Wait until the process accepts or writes something, and transfer it."""
        for key, _ in self._selector.select(limit_s):
            key.data(key.fd)

    def drop_output(self, limit_s: float) -> bool:
        """Read and drop output until the process has ended, at most for some seconds. Return whether it has ended."""
        end_s = time.monotonic() + limit_s
        while self.process.poll() is None and (left_s := end_s - time.monotonic()) > 0:
            self._drop(min(left_s, _POLL_S))
        self._drop(0.0)  # one read returns all that a pipe contains
        return self.process.returncode is not None

    def _drop(self, limit_s: float) -> None:
        self.wait(limit_s)
        self.dropped_bytes += len(self.output)
        self.output.clear()

    def take_errors(self) -> list[bytes]:
        """Return the new lines of error output."""
        with suppress(OSError, ValueError):
            self._read_errors(self.process.stderr.fileno() if self.process.stderr else -1)
        *lines, rest = self._errors.split(b"\n")
        self._errors = bytearray() if self.has_ended else bytearray(rest[-PIPE_BYTES:])
        return [bytes(line) for line in ([*lines, rest] if self.has_ended else lines)]

    def _write(self, stdin: int) -> None:
        try:
            self._left = self._left[os.write(stdin, self._left) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._selector.unregister(stdin)  # the end of the output follows
            return
        if not self._left:
            self._selector.unregister(stdin)
            if not self.mark and self.process.stdin is not None:
                self.process.stdin.close()

    def _read(self, stdout: int) -> None:
        try:
            read = os.read(stdout, PIPE_BYTES)
        except BlockingIOError:
            return
        if not read:
            self._selector.unregister(stdout)
            self.is_complete = self.has_ended = True
            return
        searched = max(0, len(self.output) - len(self.mark))
        self.output += read
        if self.mark and self.output.find(self.mark, searched) >= 0:
            self._acknowledge()
        elif self.mark and self._has_other_mark(searched):
            self.failure = OTHER_MARK
        elif len(self.output) > self.max_output_bytes:
            self.failure = f"wrote more than {self.max_output_bytes:,} bytes for its lines"

    def _has_other_mark(self, searched: int) -> bool:
        """Return whether the output contains a checkpoint line that is not the expected one, nor its beginning."""
        first, end = self.mark[:1], b"\n" + self.mark[:1]
        at = 0 if self.output.startswith(first) else self.output.find(end, searched) + 1
        line = self.output[at : at + len(self.mark)]
        return line.startswith(first) and not self.mark.startswith(line)

    def _acknowledge(self) -> None:
        if self._left or not self.output.endswith(self.mark):
            self.failure = (
                "wrote lines after its checkpoint line" if not self._left else "acknowledged lines that it had not read"
            )
        self.is_complete = True

    def _read_errors(self, stderr: int) -> None:
        try:
            read = os.read(stderr, PIPE_BYTES)
        except BlockingIOError:
            return
        self._errors += read
        if not read:
            with suppress(KeyError):
                self._selector.unregister(stderr)
