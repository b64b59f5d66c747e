"""Pipes: stateless processors whose code is a program in any language.

events of a batch --LineFormat--> lines --LineBatch, in groups--> Program --LineFormat--> outputs
"""

from __future__ import annotations

import logging
import shutil
import sys
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

from ..declare import AnyCategory, BatchOutcomes, ErrorAction, Stateless, StatelessPlan, engine_method, plan_of
from ..errors import DeclarationError, Deferred, Halted, UserCodeError
from ..wording import counted
from .line_batch import ATTEMPTS, LineBatch
from .lines import InvalidLine, LineFormat, format_of
from .program import PipeProgram, ProgramCommand, ProgramFailed, ProgramSlow

_LOG = logging.getLogger("penstock.pipe")

FIND_NOTHING = frozenset({"grep", "egrep", "fgrep", "zgrep", "rg"})
"""Programs whose exit status 1 means that no line matched."""
SLOWER = 4
"""After a time limit, a batch contains this fraction of its lines."""


class Pipe(Stateless[Any, Any]):
    """Runs each event through a program in any language: lines in on its standard input, lines out on its standard output.

    The program reads a line for each event, and writes any number of lines. It repeats each line that begins with the byte 0x1E, a
    checkpoint line, when it has written all outputs of the lines before, and flushes its output. A record of `Line` is its line; other
    records are JSON objects. Outputs are on Kafka as often as `output_semantics` declares; other effects of the program happen at least once.

    Class attributes:
        command: the program and its arguments. Relative paths start at the folder of the file that declares the class.
        acknowledges: whether the program repeats checkpoint lines. If False, the program is started for each group of lines, and reads to the
            end of its input, as `jq` and `grep` do.
        success: the exit statuses without an error of a program that does not acknowledge. Default: 0, and 1 for `grep`.
        time_limit: how long the program may take for a group of lines.
        max_output_bytes: how much the program may write for a group of lines.
        output_key: returns the key of an output line in a category of `Line`. Default: a checksum of the line.

    The limits `events` and `size_bytes` of `checkpoint` are also the limits of a group of lines.

    Examples:
        >>> import penstock as ps
        >>> class Errors(ps.Pipe):
        ...     reads = ps.Category("log", ps.Line, key="key", event_time="at", codec=ps.codecs.Lines())
        ...     writes = ps.Category("errors", ps.Line, key="key", event_time="at", codec=ps.codecs.Lines())
        ...     command = ("grep", "ERROR")
        ...     acknowledges = False
        >>> [line.text for line in Errors().process(ps.Line(b"ERROR 7", "", 0))]
        [b'ERROR 7']
    """

    command: ClassVar[tuple[str, ...]]
    acknowledges: ClassVar[bool] = True
    success: ClassVar[tuple[int, ...] | None] = None
    time_limit: ClassVar[timedelta] = timedelta(minutes=1)
    max_output_bytes: ClassVar[int] = 64 * 2**20
    output_key: ClassVar[Callable[[bytes], str] | None] = None
    _most_lines: int | None = None
    _stalls = 0

    def open(self) -> None:
        """Check that the program exists. An override must call `super().open()`."""
        program, folder = self.command[0], self.folder()
        found = (folder / program).is_file() if "/" in program else shutil.which(program) is not None
        if not found:
            raise DeclarationError(
                f"Pipe {type(self).__name__}: there is no program {program!r} {f'in {folder}' if '/' in program else 'on the PATH'}. Nothing was read. "
                "Install it on this machine, or correct `command`."
            )

    def close(self) -> None:
        """End the program. An override must call `super().close()`."""
        if "_program" in vars(self):
            self._program.close()
            del self._program

    @classmethod
    def folder(cls) -> Path:
        """Return the working folder of the program: the folder of the file that declares the class."""
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        return Path(file).absolute().parent if file else Path.cwd()

    @classmethod
    @engine_method
    def scripts(cls) -> list[Path]:
        """Return the files that the command names by relative paths: deployments contain them, too."""
        return [
            cls.folder() / word
            for word in cls.command
            if not Path(word).is_absolute() and (cls.folder() / word).is_file()
        ]

    @cached_property
    def _program(self) -> PipeProgram:
        usual = (0, 1) if Path(self.command[0]).name in FIND_NOTHING else (0,)
        program = PipeProgram(
            ProgramCommand(
                self.command,
                self.folder(),
                self.acknowledges,
                self.success or usual,
                self.time_limit.total_seconds(),
                self.max_output_bytes,
            )
        )
        weakref.finalize(self, program.close)  # test drivers and Spark's workers close no processor
        return program

    @cached_property
    def _output_format(self) -> LineFormat | None:
        outputs = plan_of(self).outputs
        return format_of(outputs[0], type(self).output_key) if outputs else None

    @final
    def process(self, event: Any) -> list[Any]:
        """Return the outputs of one event. The engine processes whole batches."""
        return list(self.for_batch(plan_of(self).sources[0], [event])(event))

    def max_batch(self) -> int | None:
        """Return the limit of a checkpoint; fewer lines while the program is slow."""
        limits = (self.checkpoint.events, self._most_lines)
        return min(limit for limit in limits if limit is not None)

    @final
    def for_batch(self, category: AnyCategory, events: Sequence[Any]) -> Callable[[Any], Any]:
        """Run a batch through the program, up to the first event that stops the processor, and return the function that returns the outputs of its events in order.

        Raises:
            Deferred: the program was too slow; retry with fewer lines.
            Halted: the program cannot be started, fails for each line, or hangs again and again.
        """
        batch = LineBatch(self._outputs, lambda error: plan_of(self).error_action(error).stops)
        times = category.event_times_of(events)
        lines = format_of(category).lines_of(events)
        try:
            batch.run(lines, times, self._most_of_group, self.checkpoint.size_bytes)
        except ProgramSlow as error:
            raise self._too_slow(error, len(events)) from error
        self._record_success(len(events))
        return BatchOutcomes(iter(batch.outcomes))

    def _most_of_group(self) -> int:
        """Return one before the first acknowledgement: a program that does not answer one line in time never will, and is not merely slow."""
        return self.checkpoint.events if self._program.has_acknowledged else 1

    def _outputs(self, lines: Sequence[bytes], at_ms: int) -> list[Any]:
        """Return the outputs of a group of lines.

        Raises:
            ProgramFailed: the program failed, or wrote a line that is no output.
            Halted: it wrote lines, and no output is declared.
        """
        written = self._program.outputs(lines)
        if not written:
            return []
        if self._output_format is None:
            raise Halted(  # true for each line, so halves of the group are not tried
                f"`{' '.join(self.command)}` wrote {counted(len(written), 'line')}, but {type(self).__name__} declares no output. No line was lost: they remain in "
                "Kafka. Name the category of its lines in `writes` (--to), or let the program write nothing."
            )
        try:
            return self._output_format.records_of(written, at_ms)
        except InvalidLine as error:
            raise ProgramFailed(f"`{' '.join(self.command)}` {error}") from error

    def _too_slow(self, error: ProgramSlow, lines: int) -> Deferred | Halted:
        if not self._program.has_acknowledged:
            return Halted(
                f"{error}. No line was lost: all remain in Kafka. If the program needs longer for its start and the first line, raise `time_limit` (--time-limit)."
            )
        self._stalls = self._stalls + 1 if lines == 1 else 0
        if self._stalls >= ATTEMPTS:
            return Halted(
                f"{error}, {ATTEMPTS} times for one line. No line was lost: this one and all later ones remain in Kafka. Correct the program, or raise "
                "`time_limit` (--time-limit)."
            )
        self._most_lines = max(1, lines // SLOWER)
        _LOG.warning(
            "%s, and was ended. No line was lost: they are passed to a new process, at most %d at a time.",
            error,
            self._most_lines,
        )
        return Deferred(str(error))

    def _record_success(self, lines: int) -> None:
        self._stalls = 0
        if self._most_lines is not None and lines >= self._most_lines:
            self._most_lines = self._most_lines * 2 if self._most_lines < self.checkpoint.events else None


class PipePlan(StatelessPlan, of=Pipe):
    """The plan of a `Pipe`."""

    declaration: type[Pipe]

    def error_action(self, error: UserCodeError) -> ErrorAction:
        """Return how to handle an event at which the program fails, or that is no line."""
        action = super().error_action(error)
        return action._replace(reason=str(error)) if isinstance(error, ProgramFailed | InvalidLine) else action

    def _expect_retries(self) -> None:
        """Raise DeclarationError: a program answers lines in order, and ends when one fails."""
        super(StatelessPlan, self)._expect_retries()

    def check(self) -> None:
        """Also check the command, its limits and the output."""
        cls = self.declaration
        super().check()
        command: object = getattr(cls, "command", None)
        if not isinstance(command, tuple) or not command or not all(type(word) is str and word for word in command):
            raise DeclarationError(
                f"Pipe {cls.__name__}: `command = {command!r}` is no command. Nothing was read. Declare a tuple of the program and its arguments, such as "
                '("./filter.pl", "--verbose").'
            )
        if cls.time_limit <= timedelta() or cls.max_output_bytes < 1:
            raise DeclarationError(
                f"Pipe {cls.__name__}: `time_limit` and `max_output_bytes` must be greater than zero."
            )
        if self.sinks:
            raise DeclarationError(
                f"Pipe {cls.__name__} writes {self.sinks[0].name}, but lines are messages of a category. Nothing was read. Declare a category in `writes`, "
                "and let a stateless processor copy it to the sink."
            )
        if len(self.outputs) > 1:
            names = ", ".join(category.name for category in self.outputs)
            raise DeclarationError(
                f"Pipe {cls.__name__} writes {names}, but a line does not name its category. Declare one category in `writes`."
            )
        if any(written.name == read.name for written in self.outputs for read in self.sources):
            raise DeclarationError(
                f"Pipe {cls.__name__} writes {self.outputs[0].name}, which it reads: each output would be its input again, without end. Nothing was "
                "read. Name another category for its lines in `writes` (--to)."
            )
        if cls.trace_context:
            raise DeclarationError(
                f"Pipe {cls.__name__}: `trace_context` is unavailable, because an output line does not name the event that caused it. Remove it."
            )
