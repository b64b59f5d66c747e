"""The program of a pipe: a child process that reads lines from its standard input and writes lines to its standard output.

lines, checkpoint line --stdin--> program --stdout--> output lines, the same checkpoint line

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 2.3 (Swift).
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import Halted, PenstockError
from ..retry import LogRateLimiter
from ..user_code import record_awaited_line
from ..wording import counted
from .process_group import END_WITHIN_S, TERMINATE_WITHIN_S, Guard, close_pipes, kill_group, signal_group
from .transfer import OTHER_MARK, PIPE_BYTES, Transfer

_LOG = logging.getLogger("penstock.pipe")

MARK = b"\x1e"
"""The first byte of a checkpoint line: ASCII's record separator, which no text contains."""
NEVER_ACKNOWLEDGED = " (it has never repeated a checkpoint line: let it flush its output, or run it with `acknowledges = False`, --simple)"
"""The likely reason why a program does not acknowledge its first lines."""
REPORT_AFTER_S = 10.0
"""How long a program may take for a checkpoint before the log mentions it."""
KEPT_ERROR_LINES = 5
"""The number of lines of error output in an error."""
LONGEST_ERROR = 500
"""The number of bytes of a line of error output that are logged."""
_SHEBANG_BYTES = 256


class ProgramFailed(PenstockError):
    """A program ended, or wrote something that is no answer to its lines. It may succeed with a new process or with other lines."""


class ProgramSlow(PenstockError):
    """A program did not acknowledge its lines in time."""


@dataclass(frozen=True)
class ProgramCommand:
    """How to run a program.

    Args:
        words: the program and its arguments.
        folder: the working folder, in which relative paths are found.
        acknowledges: whether the program repeats checkpoint lines. Otherwise, each group of lines has a process of its own.
        success: the exit statuses without an error, for a program without acknowledgements.
        time_limit_s: how long the program may take for a group of lines.
        max_output_bytes: how much it may write for a group of lines.
    """

    words: tuple[str, ...]
    folder: Path
    acknowledges: bool
    success: tuple[int, ...]
    time_limit_s: float
    max_output_bytes: int

    @property
    def name(self) -> str:
        """The command as text, for errors."""
        return " ".join(self.words)

    def start(self) -> subprocess.Popen[bytes]:
        """Start a process, in a process group of its own: Ctrl-C in a terminal reaches only the worker, which then saves a checkpoint.

        Raises:
            Halted: the program cannot be started.
        """
        try:
            return subprocess.Popen(
                self._with_interpreter(),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise Halted(
                f"The program `{self.name}` cannot be started in {self.folder}: {error.strerror or error}. No line was lost: they remain in "
                "Kafka. Install the program on this machine, or correct the command."
            ) from error

    def _with_interpreter(self) -> Sequence[str]:
        """Return the words, after the interpreter that a script's first line names if the script is not executable.

        Archives of deployments do not store permissions.
        """
        script = self.folder / self.words[0]
        if "/" not in self.words[0] or not script.is_file() or os.access(script, os.X_OK):
            return self.words
        with script.open("rb") as file:
            first = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
        if not first.startswith(b"#!"):
            return self.words
        return [*first[2:].decode(errors="replace").split(maxsplit=1), *self.words]


class PipeProgram:
    """Runs groups of lines through a program. Starts it for the first group, and again after a failure. One thread.

    Args:
        command: how to run it.
    """

    def __init__(self, command: ProgramCommand) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = Guard()
        self._checkpoint = 0
        self.has_acknowledged = not command.acknowledges
        """Whether it has answered lines. Otherwise, it may not know checkpoint lines, or not flush its output."""
        self._errors: deque[str] = deque(maxlen=KEPT_ERROR_LINES)
        self._slow_log = LogRateLimiter()
        self._error_log = LogRateLimiter(every_s=1.0)

    def outputs(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines that the program writes for a group of lines, when it has acknowledged all of them.

        After an error, no process is left, and the lines can be passed again.

        Args:
            lines: at least one, without line ends.

        Raises:
            ProgramFailed: the program ended early, or its output is invalid.
            ProgramSlow: the time limit has passed.
            Halted: the program cannot be started, or acknowledges lines before it has written their outputs.
        """
        self._expect_quiet()
        self._checkpoint += 1
        mark = b"%bcheckpoint %d\n" % (MARK, self._checkpoint) if self._command.acknowledges else b""
        try:
            with record_awaited_line(
                lambda: f"the program `{self._command.name}`, which has {counted(len(lines), 'line')}"
            ):
                output = self._exchange(b"\n".join(lines) + b"\n" + mark, mark)
        except BaseException:
            self.kill()
            raise
        self.has_acknowledged = True
        return self._lines_of(output, mark)

    def _expect_quiet(self) -> None:
        """Raise Halted if the program has written anything since its last checkpoint line."""
        late = self._written_late()
        if late:
            self.kill()
            raise Halted(
                f"`{self._command.name}` wrote {late[:200].decode(errors='backslashreplace')!r} after it had repeated its checkpoint line, so a failure in between "
                "would lose that output. It is in no category; its lines remain in Kafka. Let the program write and flush all outputs of its lines, "
                "and then repeat the checkpoint line once."
            )

    def _written_late(self) -> bytes:
        """Return what the program has written while it had no lines."""
        stdout = None if self._process is None else self._process.stdout
        return b"" if stdout is None else stdout.read(PIPE_BYTES) or b""

    def _exchange(self, given: bytes, mark: bytes) -> bytes:
        """Write to the program and read from it at the same time, up to the acknowledgement or the end of its output."""
        process = self._running()
        transfer = Transfer(process, given, mark, self._command.max_output_bytes)
        began_s = time.monotonic()
        with transfer:
            while not transfer.is_complete:
                waited_s = time.monotonic() - began_s
                if waited_s > self._command.time_limit_s:
                    raise ProgramSlow(
                        f"`{self._command.name}` {self._unfinished(transfer)} within {waited_s:.0f} s{self._likely_reason()}"
                    )
                self._report_slow(waited_s)
                transfer.wait(min(self._command.time_limit_s - waited_s + 0.01, 1.0))
                self._report_errors(transfer.take_errors())
                if transfer.failure:
                    raise self._failed(transfer.failure)
        if transfer.has_ended:
            self._expect_success(transfer)
        return bytes(transfer.output)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            _LOG.warning(
                "`%s` ended %s between two checkpoints. It is started again; no line was lost.",
                self._command.name,
                _status(self._process.returncode),
            )
            self.kill()
        if self._process is None:
            self._errors.clear()
            self._process = self._guard.start(self._command.start)
        self._guard.ensure()
        return self._process

    def _expect_success(self, transfer: Transfer) -> None:
        """Check the end of a process. A program that acknowledges must not end before."""
        process, self._process = self._process, None
        assert process is not None  # noqa: S101 - the transfer belongs to it
        try:
            status = process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process = process
            raise self._failed("closed its output, but did not end") from None
        self._guard.release()
        self._report_errors(transfer.take_errors())
        close_pipes(process)
        if self._command.acknowledges:
            raise self._failed(
                f"ended {_status(status)} before it acknowledged its lines{self._likely_reason() if status >= 0 else ''}"
            )
        if status not in self._command.success:
            raise self._failed(f"ended {_status(status)}")
        if transfer.remaining:
            raise self._failed("ended before it had read all of its lines")

    def _unfinished(self, transfer: Transfer) -> str:
        if transfer.process.poll() is not None:
            return "ended, but a process that it has started kept its output open, and did not answer"
        if transfer.remaining:
            return f"left {counted(transfer.remaining, 'byte')} of its lines unread"
        return "did not acknowledge its lines" if self._command.acknowledges else "did not end"

    def _likely_reason(self) -> str:
        return NEVER_ACKNOWLEDGED if not self.has_acknowledged else ""

    def _failed(self, reason: str) -> ProgramFailed:
        tail = f". Its last error output: {' | '.join(self._errors).rstrip('.')}" if self._errors else ""
        return ProgramFailed(f"`{self._command.name}` {reason}{tail}")

    def _report_slow(self, waited_s: float) -> None:
        if waited_s > REPORT_AFTER_S and self._slow_log.is_due():
            _LOG.warning(
                "`%s` has been busy with its lines for %.0f s%s. It is ended after %.0f s.",
                self._command.name,
                waited_s,
                self._likely_reason(),
                self._command.time_limit_s,
            )

    def _report_errors(self, lines: Sequence[bytes]) -> None:
        """Log error output: the last line of each second, and the number of lines before it."""
        texts = [line[:LONGEST_ERROR].decode(errors="backslashreplace") for line in lines if line]
        self._errors.extend(texts)
        if texts and self._error_log.is_due():
            others = f" ({counted(len(texts) - 1, 'line')} before this one)" if len(texts) > 1 else ""
            _LOG.warning("`%s` reports: %s%s", self._command.name, texts[-1], others)

    def _lines_of(self, output: bytes, mark: bytes) -> list[bytes]:
        body = output[: len(output) - len(mark)]
        if not body:
            return []
        if mark and not body.endswith(b"\n"):
            self.kill()
            raise self._failed("wrote a checkpoint line that does not begin a line")
        if body.startswith(MARK) or b"\n" + MARK in body:
            self.kill()
            raise self._failed(OTHER_MARK)
        return body.removesuffix(b"\n").split(b"\n")

    def kill(self) -> None:
        """End the process at once, with the processes that it has started. Repeatable."""
        process, self._process = self._process, None
        if process is not None:
            kill_group(process)
            self._guard.release()

    def close(self) -> None:
        """End the input of the process, and wait for its end: after a time limit, terminate it, and then kill it. Repeatable."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
        self._guard.close()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with Transfer(process, b"", b"", self._command.max_output_bytes) as transfer:
            ended = transfer.drop_output(END_WITHIN_S) or self._terminate(process, transfer)
        self._report_errors(transfer.take_errors())
        if transfer.dropped_bytes:
            _LOG.warning(
                "`%s` wrote output after it had repeated its last checkpoint line: %s. It is in no category.",
                self._command.name,
                counted(transfer.dropped_bytes, "byte"),
            )
        if ended and process.returncode:
            _LOG.warning("%s. No line was lost.", self._failed(f"ended {_status(process.returncode)} after its input"))
        kill_group(process)  # also the processes that it has started

    def _terminate(self, process: subprocess.Popen[bytes], transfer: Transfer) -> bool:
        """End a process that ignores the end of its input. Return False: it did not end by itself."""
        signal_group(process, signal.SIGTERM)
        _LOG.warning(
            "`%s` did not end within %.0f s after its input, and was %s. No line was lost.",
            self._command.name,
            END_WITHIN_S,
            "terminated" if transfer.drop_output(TERMINATE_WITHIN_S) else "killed, because it did not react to SIGTERM",
        )
        return False


def _status(status: int) -> str:
    if status >= 0:
        return f"with exit status {status}"
    try:
        return f"by signal {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
