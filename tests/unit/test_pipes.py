"""Pipes: programs that read and write lines, and every way in which they fail."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock as ps
from penstock.processors import DeclarationError, Deferred, Halted, start
from penstock.processors.apps import load_app
from penstock.processors.declare import plan_of
from penstock.processors.lifecycle import end
from penstock.processors.pipes.line_batch import ATTEMPTS, MOST_FAILED, LineBatch
from penstock.processors.pipes.program import ProgramFailed
from penstock.testing import Driver

CLIENTS = Path(__file__).parents[2] / "examples/pipe"
DOCS = Path(__file__).parents[2] / "docs"
log = ps.Category("log", ps.Line, key="key", event_time="at", codec=ps.codecs.Lines())
found = ps.Category("found", ps.Line, key="key", event_time="at", codec=ps.codecs.Lines())
ACKNOWLEDGING = "import sys\nfor line in sys.stdin.buffer:\n    if line[:1] == b'\\x1e':\n        print(line.decode(), end='', flush=True)\n        continue\n"
"""The beginning of a program's loop; `line` is the line."""

MakePipe = Callable[..., ps.Pipe]


@pytest.fixture
def make() -> Iterator[MakePipe]:
    """Return a function that starts a pipe with a command and options; the pipes are closed at the end."""
    started: list[ps.Pipe] = []

    def made(*command: str, **options: Any) -> ps.Pipe:
        declared = {"reads": log, "writes": found, "command": command, **options}
        kind: type[ps.Pipe] = type("Subject", (ps.Pipe,), declared)
        plan_of(kind).check()
        pipe = kind()
        start(pipe)
        started.append(pipe)
        return pipe

    yield made
    for pipe in started:
        end(pipe)


def python(body: str) -> tuple[str, ...]:
    """Return the command of a program that acknowledges checkpoints and otherwise runs `body` for each line."""
    indented = "".join(f"    {each}\n" for each in body.splitlines())
    return (sys.executable, "-c", ACKNOWLEDGING + indented)


def outcomes(pipe: ps.Pipe, texts: Sequence[bytes]) -> list[list[bytes] | Exception]:
    """Return the output lines of each line, up to the one at which the processor stops, or its error."""
    events = [ps.Line(text, "k", at) for at, text in enumerate(texts)]
    process = pipe.for_batch(log, events)
    results: list[list[bytes] | Exception] = []
    for event in events:
        try:
            results.append([line.text for line in process(event)])
        except StopIteration:
            break
        except ps.PenstockError as error:
            results.append(error)
    return results


def written(pipe: ps.Pipe, texts: Sequence[bytes]) -> list[bytes]:
    """Return the output lines of a batch without failures."""
    results = outcomes(pipe, texts)
    assert not [result for result in results if isinstance(result, Exception)]
    return [line for lines in results if isinstance(lines, list) for line in lines]


LOG = [b"%s %d" % (b"ERROR" if n % 7 == 3 else b"fine", n) for n in range(2_000)]
ERRORS = [line for line in LOG if b"ERROR" in line]


@pytest.mark.parametrize("client", ["errors.py", "errors.pl", "errors.js", "errors.sh"])
def test_each_example_client_answers_batch_after_batch(make: MakePipe, client: str) -> None:
    """One process serves all batches, and each batch returns its own outputs."""
    pipe = make(str(CLIENTS / client))

    assert written(pipe, LOG) == ERRORS
    assert written(pipe, LOG[:5]) == ERRORS[:1]
    assert written(pipe, [b"fine"]) == []


@pytest.mark.parametrize("client", ["errors.py", "errors.pl", "errors.js", "errors.sh"])
@pytest.mark.parametrize(
    "line", ["ERROR\rERROR\r", "ERROR\u2028ERROR\x85", "-n ERROR  ", "ERROR \\n%s", "ERROR жук"], ids=ascii
)
def test_each_example_client_keeps_a_line_whole(make: MakePipe, client: str, line: str) -> None:
    """Only a line end separates lines, and no character has a meaning."""
    assert written(make(str(CLIENTS / client)), [line.encode()]) == [line.encode()]


@pytest.mark.parametrize(
    "command",
    [("grep", "ERROR"), ("awk", "/ERROR/"), ("sed", "-n", "/ERROR/p"), (sys.executable, str(CLIENTS / "errors.py"))],
)
def test_ordinary_programs_run_in_simple_mode(make: MakePipe, command: tuple[str, ...]) -> None:
    """They read to the end of each group; `grep` may find nothing."""
    pipe = make(*command, acknowledges=False, checkpoint=ps.CheckpointInterval(events=300))

    assert written(pipe, LOG) == ERRORS
    assert written(pipe, [b"fine"]) == []


def test_jq_runs_in_simple_mode(make: MakePipe) -> None:
    """It reads and writes JSON."""
    pipe = make("jq", "-c", "{n: (.n * 2)}", acknowledges=False)

    assert written(pipe, [b'{"n": 1}', b'{"n": 2}']) == [b'{"n":2}', b'{"n":4}']


def test_the_documented_program_is_a_client(make: MakePipe) -> None:
    """It reads and answers line by line."""
    documented = re.search(r"^    command = (\(.*\))$", (DOCS / "services.md").read_text(), re.MULTILINE)
    assert documented is not None
    pipe = make(*ast.literal_eval(documented[1]), time_limit=timedelta(seconds=20))

    assert written(pipe, LOG) == ERRORS
    assert written(pipe, [b"fine", b"\xff ERROR"]) == [b"\xff ERROR"]


@pytest.mark.parametrize("command", [("sleep", "60"), ("head", "-n", "1")], ids=["hangs", "ends"])
def test_a_program_that_never_acknowledges_is_told_from_one_that_fails_later(
    make: MakePipe, command: tuple[str, ...]
) -> None:
    """The error names the two likely mistakes."""
    pipe = make(*command, time_limit=timedelta(seconds=0.3))

    with pytest.raises(ps.PenstockError, match=r"never repeated a checkpoint line: .*--simple"):
        raise next(each for each in outcomes(pipe, [b"x"]) if isinstance(each, Exception))


def test_cat_is_a_client(make: MakePipe) -> None:
    """It repeats checkpoint lines as all others, also where both directions exceed the buffers of the system."""
    lines = [b"%d " % n + b"x" * 100_000 for n in range(100)]

    assert written(make("cat", checkpoint=ps.CheckpointInterval(size_bytes=2**30)), lines) == lines


@pytest.mark.parametrize("line", [b"", b" \t ", b"\xff\x00\xfe", "жук".encode(), b"a\rb\r", b"x\x1e", b'{"a":"\\n"}'])
def test_lines_are_any_bytes_except_line_ends(make: MakePipe, line: bytes) -> None:
    """The program reads and writes the bytes of a message, unchanged."""
    assert written(make("cat"), [b"before", line, b"after"]) == [b"before", line, b"after"]


@pytest.mark.parametrize("line", [b"a\nb", b"\n", b"\x1echeckpoint 1"])
def test_a_message_that_is_no_line_is_rejected_alone(make: MakePipe, line: bytes) -> None:
    """Its neighbours are processed; it is neither torn apart nor taken for a checkpoint."""
    pipe = make("cat", on_error=ps.ErrorPolicy.DEAD_LETTER)
    before, rejected, after = outcomes(pipe, [b"before", line, b"after"])

    assert (before, after) == ([b"before"], [b"after"])
    assert isinstance(rejected, ps.PenstockError)


def test_a_stop_keeps_the_outputs_before_the_event(make: MakePipe) -> None:
    """Lines before a message that is not a line are processed, and later ones are not."""
    *before, stopped = outcomes(make("cat"), [b"a", b"b", b"c\nd", b"e"])

    assert [line for lines in before if isinstance(lines, list) for line in lines] == [b"a", b"b"]
    assert isinstance(stopped, ps.PenstockError)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if line == b'bad\\n': sys.exit(7)\nsys.stdout.write(line.decode())", "exit status 7"),
        ("import os\nif line == b'bad\\n': os.kill(os.getpid(), 9)\nsys.stdout.write(line.decode())", "SIGKILL"),
        ("if line == b'bad\\n': 1 / 0\nsys.stdout.write(line.decode())", "ZeroDivisionError"),
        ("sys.stdout.write(line.decode() * (10**6 if line == b'bad\\n' else 1))", "more than 1,000,000 bytes"),
        ("sys.stdout.write('\\x1echeckpoint 99\\n' if line == b'bad\\n' else line.decode())", "not the expected one"),
    ],
    ids=["ends", "killed", "raises", "floods", "wrong checkpoint"],
)
def test_the_line_at_which_a_program_fails_is_found(make: MakePipe, body: str, reason: str) -> None:
    """Exactly that line is rejected, with the reason; all others have their outputs once."""
    pipe = make(*python(body), on_error=ps.ErrorPolicy.DEAD_LETTER, max_output_bytes=10**6)
    lines = [b"%d" % n for n in range(20)]
    lines[13] = b"bad"
    results = outcomes(pipe, lines)
    [error] = [result for result in results if isinstance(result, Exception)]

    assert results.index(error) == 13
    assert reason in str(error)
    assert [line for lines in results if isinstance(lines, list) for line in lines] == [*lines[:13], *lines[14:]]


def test_a_program_that_fails_at_many_lines_does_not_fill_the_log(
    make: MakePipe, caplog: pytest.LogCaptureFixture
) -> None:
    """Its failures are logged once for each attempt with all lines, and each line has its error."""
    pipe = make(
        *python("sys.stdout.write('ok\\n') if line == b'good\\n' else sys.exit(3)"), on_error=ps.ErrorPolicy.DEAD_LETTER
    )
    results = outcomes(pipe, [b"good", *[b"bad", b"good"] * 3])

    assert sum(isinstance(result, ProgramFailed) for result in results) == 3
    assert len([record for record in caplog.records if "No line was lost" in record.message]) == 2


def test_an_output_without_a_line_end_is_no_output(make: MakePipe) -> None:
    """It would swallow the checkpoint line."""
    [error] = outcomes(make(*python("sys.stdout.write(line.decode().strip())")), [b"x"])

    assert "a checkpoint line that does not begin a line" in str(error)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            "for line in sys.stdin: print(line + 'more', flush=True) if line[0] == '\\x1e' else None",
            "after its checkpoint",
        ),
        (
            "for n in range(1, 9): print(f'\\x1echeckpoint {n}', flush=True)\ntime.sleep(60)",
            "had not read|not the expected",
        ),
    ],
    ids=["continues", "guesses"],
)
def test_an_acknowledgement_is_the_end_of_the_answer(make: MakePipe, program: str, reason: str) -> None:
    """Neither later lines nor a guessed acknowledgement count."""
    [error] = outcomes(make(sys.executable, "-c", f"import sys, time\n{program}"), [b"x" * 2**23])

    assert re.search(reason, str(error))


@pytest.mark.parametrize("size", [1, 4_096, 10**9])
def test_another_checkpoint_line_is_refused_at_once(make: MakePipe, size: int) -> None:
    """Its bytes may arrive in any pieces. The program would not write the expected one before the time limit."""
    body = f"answer = line.replace(b'checkpoint', b'checkpoints')\nfor at in range(0, len(answer), {size}):\n    sys.stdout.buffer.write(answer[at : at + {size}])\n    sys.stdout.flush()"
    indented = "".join(f"    {each}\n" for each in body.splitlines())
    pipe = make(sys.executable, "-c", "import sys\nfor line in sys.stdin.buffer:\n" + indented)
    [error] = outcomes(pipe, [b"x" * 9_999])

    assert "a checkpoint line that is not the expected one" in str(error)


@pytest.mark.parametrize("late", ["line\\n", "\\x1echeckpoint 1\\n"], ids=["output", "second acknowledgement"])
def test_output_after_an_acknowledgement_halts(
    make: MakePipe, tmp_path: Path, wait_until: Callable[..., None], late: str
) -> None:
    """Its lines count as processed already, so a failure would lose it. No line is blamed."""
    go, done = tmp_path / "go", tmp_path / "done"
    body = "if line[:1] == b'\\x1e':\n    while not os.path.exists({0!r}): time.sleep(0.01)\n    print('{2}', end='', flush=True)\n    open({1!r}, 'w').close()"
    program = (
        "import os, sys, time\nfor line in sys.stdin.buffer:\n    print(line.decode(), end='', flush=True)\n"
        + "".join(f"    {each}\n" for each in body.format(str(go), str(done), late).splitlines())
    )
    pipe = make(sys.executable, "-c", program, on_error=ps.ErrorPolicy.DEAD_LETTER)
    assert written(pipe, [b"a"]) == [b"a"]
    go.touch()
    wait_until(done.exists)

    with pytest.raises(Halted, match=r"after it had repeated its checkpoint line, .* its lines remain in Kafka"):
        outcomes(pipe, [b"b"])


def test_long_error_output_is_cut_in_errors(make: MakePipe) -> None:
    """A program may dump its memory."""
    command = (sys.executable, "-c", "import sys; print('x' * 10**6, file=sys.stderr); sys.exit(3)")
    [error] = outcomes(make(*command), [b"a"])

    assert 500 < len(str(error)) < 1_000


def test_a_process_that_outlives_the_program_and_keeps_its_output_open_is_named(make: MakePipe) -> None:
    """The end of the output cannot come."""
    pipe = make("sh", "-c", "sleep 100 & cat", acknowledges=False, time_limit=timedelta(seconds=3))

    with pytest.raises(Deferred, match="a process that it has started kept its output open"):
        outcomes(pipe, [b"a", b"b"])


def test_the_exit_status_is_the_answer_in_simple_mode(make: MakePipe) -> None:
    """Other statuses than zero are failures, unless they are declared."""
    command = ("sh", "-c", "cat; exit 4")
    [error] = outcomes(make(*command, acknowledges=False), [b"x"])

    assert "exit status 4" in str(error)
    assert written(make(*command, acknowledges=False, success=(0, 4)), [b"x"]) == [b"x"]


def test_a_program_that_is_killed_once_loses_and_repeats_nothing(make: MakePipe, tmp_path: Path) -> None:
    """A new process gets the same lines; outputs of the dead one are dropped."""
    once = tmp_path / "once"
    body = f"import os, pathlib\nmark = pathlib.Path({str(once)!r})\nsys.stdout.write(line.decode())\nsys.stdout.flush()\nif line == b'5\\n' and not mark.exists():\n    mark.touch()\n    os.kill(os.getpid(), 9)"
    lines = [b"%d" % n for n in range(10)]

    assert written(make(*python(body)), lines) == lines
    assert once.exists()


def test_a_program_that_ends_between_batches_is_started_again(
    make: MakePipe, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., None], tmp_path: Path
) -> None:
    """The end is logged, and no line is lost."""
    pid = tmp_path / "pid"
    pipe = make("sh", "-c", f"echo $$ > {shlex.quote(str(pid))}; exec cat")
    assert written(pipe, [b"a"]) == [b"a"]
    os.kill(int(pid.read_text()), signal.SIGKILL)
    wait_until(lambda: "Z" in Path(f"/proc/{pid.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0])
    caplog.clear()

    assert written(pipe, [b"b"]) == [b"b"]
    assert "SIGKILL between two checkpoints" in caplog.text


def test_garbage_for_a_category_of_records_is_found_by_its_line(make: MakePipe) -> None:
    """An output that is not a record of the category counts as a failure at the line that caused it."""

    class Found(ps.Record, frozen=True):
        key: str
        at: ps.EventTime

    records = ps.Category("records", Found, key="key", event_time="at")
    pipe = make("cat", writes=records, on_error=ps.ErrorPolicy.DEAD_LETTER)
    lines = [json.dumps({"key": f"k{n}", "at": n}).encode() for n in range(8)]
    lines[5] = b'{"key": 7}'
    events = [ps.Line(text, "k", at) for at, text in enumerate(lines)]
    process = pipe.for_batch(log, events)
    made: list[Any] = []
    for at, event in enumerate(events):
        if at == 5:
            with pytest.raises(ProgramFailed, match="which is no Found in JSON for records"):
                process(event)
        else:
            made += process(event)

    assert made == [Found(f"k{n}", n) for n in range(8) if n != 5]


def test_records_are_json_lines(make: MakePipe) -> None:
    """A text with a line end is one line of JSON, whatever the codec of the category."""

    class Note(ps.Record, frozen=True):
        key: str
        at: ps.EventTime
        text: str

    notes = ps.Category("notes", Note, key="key", event_time="at", codec="avro")
    copies = ps.Category("copies", Note, key="key", event_time="at", codec="avro")
    note = Note("k", 1, "two\nlines")

    assert make("cat", reads=notes, writes=copies).process(note) == [note]


def test_a_program_that_hangs_defers_with_fewer_lines_and_then_halts(make: MakePipe) -> None:
    """The batch is read again, smaller and smaller; a single line that hangs three times stops the worker."""
    # A shell starts quickly on a busy machine, too.
    body = r"""while IFS= read -r line; do case "$line" in good) ;; "$(printf '\036')"*) printf '%s\n' "$line" ;; *) sleep 1000 ;; esac; done"""
    pipe = make("sh", "-c", body, time_limit=timedelta(seconds=2))
    assert written(pipe, [b"good"]) == []
    limits: list[int | None] = []
    size = 100
    while size > 1:
        with pytest.raises(Deferred, match="did not acknowledge its lines within"):
            outcomes(pipe, [b"x"] * size)
        size = pipe.max_batch() or 0
        limits.append(size)
    for _ in range(ATTEMPTS - 1):
        with pytest.raises(Deferred):
            outcomes(pipe, [b"x"])

    assert limits == [25, 6, 1]
    with pytest.raises(Halted, match="No line was lost"):
        outcomes(pipe, [b"x"])


def test_a_program_that_never_acknowledges_halts_after_one_line(make: MakePipe, tmp_path: Path) -> None:
    """It does not know the protocol, or does not flush its output: fewer lines change nothing."""
    copy = tmp_path / "copy"
    pipe = make("sh", "-c", f"cat > {copy}; true", time_limit=timedelta(seconds=3))

    with pytest.raises(Halted, match=r"never repeated a checkpoint line.*--simple.*No line was lost"):
        outcomes(pipe, [b"x"] * 100)
    assert copy.read_bytes() == b"x\n\x1echeckpoint 1\n"


def test_a_program_gets_all_lines_after_its_first_acknowledgement(make: MakePipe, tmp_path: Path) -> None:
    """Later lines of the first batch are among them."""
    copy = tmp_path / "copy"
    copying = (  # each line before it is answered; `tee` would answer first
        f"import sys\nwith open({str(copy)!r}, 'ab', buffering=0) as copy:\n    for line in sys.stdin.buffer:\n        copy.write(line)\n"
        "        sys.stdout.buffer.write(line)\n        sys.stdout.buffer.flush()\n"
    )
    assert written(make(sys.executable, "-c", copying), [b"x"] * 4) == [b"x"] * 4

    assert copy.read_bytes() == b"x\n\x1echeckpoint 1\nx\nx\nx\n\x1echeckpoint 2\n"


def test_a_slow_program_gets_small_batches_that_grow_again(make: MakePipe, tmp_path: Path) -> None:
    """It is slow until a file exists; afterwards, the limit rises to the one of the checkpoint."""
    fast = tmp_path / "fast"
    body = f"import os, time\nif not os.path.exists({str(fast)!r}): time.sleep(60)\nsys.stdout.write(line.decode())"
    pipe = make(*python(body), time_limit=timedelta(seconds=5), checkpoint=ps.CheckpointInterval(events=8))
    fast.touch()
    assert written(pipe, [b"x"]) == [b"x"]
    fast.unlink()
    with pytest.raises(Deferred):
        outcomes(pipe, [b"x"] * 8)
    assert pipe.max_batch() == 2
    fast.touch()
    sizes = [len(written(pipe, [b"x"] * (pipe.max_batch() or 0))) for _ in range(4)]

    assert sizes == [2, 4, 8, 8]


def test_a_broken_program_halts_instead_of_rejecting_everything(make: MakePipe) -> None:
    """A program that fails for each line is not the fault of the lines."""
    pipe = make("sh", "-c", "exit 3", on_error=ps.ErrorPolicy.DEAD_LETTER)

    with pytest.raises(Halted, match=f"failed for each of {MOST_FAILED} lines: .*exit status 3.*No line was lost"):
        outcomes(pipe, [b"x"] * 100)


def test_error_output_is_logged_and_part_of_errors(make: MakePipe, caplog: pytest.LogCaptureFixture) -> None:
    """The program may write much of it, which does not block the program."""
    caplog.set_level(logging.WARNING)
    pipe = make(*python("sys.stderr.write('noise\\n' * 50_000 + 'the disk is full\\n')\nsys.exit(2)"))
    [error] = outcomes(pipe, [b"x"])

    assert "the disk is full" in str(error)
    assert "the disk is full" in caplog.text


def test_a_missing_program_is_refused_before_the_first_event(make: MakePipe) -> None:
    """The error names it and the place where it was sought."""
    with pytest.raises(DeclarationError, match=r"there is no program 'nonesuch' on the PATH"):
        make("nonesuch")
    with pytest.raises(DeclarationError, match=r"there is no program './nonesuch.pl' in /"):
        make("./nonesuch.pl")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"command": "cat"}, "Declare a tuple"),
        ({"command": ()}, "Declare a tuple"),
        ({"writes": (log, found)}, "does not name its category"),
        ({"writes": log}, "writes log, which it reads"),
        ({"trace_context": True}, "trace_context"),
        ({"time_limit": timedelta()}, "greater than zero"),
    ],
)
def test_declarations_that_cannot_work_are_refused(options: dict[str, Any], reason: str) -> None:
    """The error names the attribute."""
    kind: type[ps.Pipe] = type("Subject", (ps.Pipe,), {"reads": log, "writes": found, "command": ("cat",), **options})

    with pytest.raises(DeclarationError, match=reason):
        plan_of(kind).check()


def test_a_script_without_the_permission_runs_by_its_first_line(make: MakePipe, tmp_path: Path) -> None:
    """Archives of deployments do not store permissions."""
    script = tmp_path / "copy.sh"
    script.write_text("#!/bin/sh\nexec cat\n")

    assert written(make(str(script)), [b"a"]) == [b"a"]


def test_the_example_app_names_its_script() -> None:
    """The command is relative to the app file, and deployments contain the script."""
    [errors] = load_app(CLIENTS / "app.py").processors
    assert issubclass(errors, ps.Pipe)

    assert errors.scripts() == [CLIENTS / "./errors.pl"]


def test_close_ends_the_program(make: MakePipe, tmp_path: Path) -> None:
    """It sees the end of its input, and can clean up."""
    ended = tmp_path / "ended"
    pipe = make("sh", "-c", f"cat; echo done > {shlex.quote(str(ended))}")
    written(pipe, [b"a"])
    end(pipe)

    assert ended.read_text() == "done\n"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets little time to end after its input."""
    monkeypatch.setattr("penstock.processors.pipes.program.END_WITHIN_S", 0.2)


def test_close_terminates_a_program_that_ignores_the_end_of_its_input(
    make: MakePipe, tmp_path: Path, caplog: pytest.LogCaptureFixture, hurried: None
) -> None:
    """SIGTERM lets it clean up."""
    ended = tmp_path / "ended"
    trap = f"trap 'echo done > {shlex.quote(str(ended))}; exit' TERM"
    pipe = make("sh", "-c", f'{trap}; while read -r line; do echo "$line"; done; while :; do sleep 0.01; done')
    written(pipe, [b"a"])
    end(pipe)

    assert ended.read_text() == "done\n"
    assert "was terminated. No line was lost" in caplog.text


def test_close_kills_a_program_that_ignores_all(
    make: MakePipe, tmp_path: Path, caplog: pytest.LogCaptureFixture, hurried: None
) -> None:
    """Neither the end of its input nor SIGTERM ends it."""
    pid = tmp_path / "pid"
    pipe = make("sh", "-c", f"echo $$ > {shlex.quote(str(pid))}; trap '' TERM; cat; while :; do sleep 0.01; done")
    written(pipe, [b"a"])
    end(pipe)

    assert not psutil.pid_exists(int(pid.read_text()))
    assert "did not react to SIGTERM" in caplog.text


@pytest.mark.parametrize("stream", ["", ">&2"], ids=["output", "error output"])
def test_close_reads_to_the_end(make: MakePipe, tmp_path: Path, caplog: pytest.LogCaptureFixture, stream: str) -> None:
    """A program with much to write at its end does not block, and the log reports it."""
    ended = tmp_path / "ended"
    flood = f"yes late | head -c 5000000 {stream}"
    pipe = make("sh", "-c", f"cat; {flood}; echo done > {shlex.quote(str(ended))}")
    written(pipe, [b"a"])
    end(pipe)

    assert ended.read_text() == "done\n"
    assert ("reports: late" if stream else "5,000,000 bytes. It is in no category") in caplog.text


def test_close_reports_a_program_that_fails_at_its_end(make: MakePipe, caplog: pytest.LogCaptureFixture) -> None:
    """It may not have saved something of its own."""
    pipe = make("sh", "-c", "cat; echo the disk is full >&2; exit 3")
    written(pipe, [b"a"])
    end(pipe)

    assert "ended with exit status 3 after its input. Its last error output: the disk is full" in caplog.text


STUBBORN = "trap '' TERM; sleep 1000 & echo $$ $! > pids; cat; while :; do sleep 0.01; done"
"""A program that ignores the end of its input and SIGTERM, and starts another process."""
WORKER = """
import sys, time
from pathlib import Path
from penstock.processors.pipes import process_group
from penstock.processors.pipes.program import PipeProgram, ProgramCommand
process_group.END_WITHIN_S = process_group.TERMINATE_WITHIN_S = 0.2
program = PipeProgram(ProgramCommand(("sh", "-c", sys.argv[1]), Path(), True, (0,), 60.0, 10**6))
print(program.outputs([b"a"]), flush=True)
time.sleep(600)
"""


def guards_of(worker: int, wait_until: Callable[..., None]) -> tuple[psutil.Process, psutil.Process]:
    """Return the guard that a worker has started, and its deputy."""
    [guard] = [each for each in psutil.Process(worker).children() if "killpg" in " ".join(each.cmdline())]
    wait_until(guard.children)
    return guard, guard.children()[0]


def is_running(pid: str) -> bool:
    """Return whether a process runs. A zombie has ended."""
    try:
        return psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("with_guard", [False, True], ids=["worker", "worker and guard"])
def test_no_process_of_a_program_survives_a_killed_worker(
    tmp_path: Path, wait_until: Callable[..., None], *, with_guard: bool
) -> None:
    """The program ignores the end of its input and SIGTERM, and the guard may be killed at the same time."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, STUBBORN], cwd=tmp_path, stdout=subprocess.PIPE)
    with worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"[b'a']\n"
        pids = (tmp_path / "pids").read_text().split()
        assert all(map(is_running, pids))
        guard, deputy = guards_of(worker.pid, wait_until)
        for killed in (worker, guard) if with_guard else (worker,):
            killed.kill()

    wait_until(lambda: not any(map(is_running, [*pids, str(guard.pid), str(deputy.pid)])))


def test_a_killed_guard_is_replaced(make: MakePipe, wait_until: Callable[..., None]) -> None:
    """The next lines start another guard, and the program continues."""
    pipe = make("cat")
    written(pipe, [b"a"])
    [program] = [each for each in psutil.Process().children() if each.name() == "cat"]
    guard, deputy = guards_of(os.getpid(), wait_until)
    guard.kill()
    psutil.wait_procs([guard])
    written(pipe, [b"b"])
    replaced, _ = guards_of(os.getpid(), wait_until)
    wait_until(lambda: not is_running(str(deputy.pid)))

    assert program.is_running()
    assert guard != replaced
    assert written(pipe, [b"c"]) == [b"c"]


def test_a_guard_without_its_deputy_still_guards(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    """Either of them suffices."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, STUBBORN], cwd=tmp_path, stdout=subprocess.PIPE)
    with worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"[b'a']\n"
        pids = (tmp_path / "pids").read_text().split()
        guard, deputy = guards_of(worker.pid, wait_until)
        deputy.kill()
        worker.kill()

    wait_until(lambda: not any(map(is_running, [*pids, str(guard.pid)])))


def test_close_leaves_no_process(make: MakePipe, wait_until: Callable[..., None]) -> None:
    """Both the program and its guard have ended."""
    pipe = make("cat")
    written(pipe, [b"a"])
    # Services of other tests may start and end processes meanwhile.
    [program] = [each for each in psutil.Process().children() if each.name() == "cat"]
    started = [program, *guards_of(os.getpid(), wait_until)]
    end(pipe)

    assert [each for each in started if each.is_running()] == []


def test_the_test_driver_runs_pipes() -> None:
    """It runs them like any other processor, with the codecs of their categories."""

    class Subject(ps.Pipe):
        reads, writes = log, found
        command = ("grep", "ERROR")
        acknowledges = False

    driver = Driver(Subject)
    driver.send(log, [ps.Line(text, "k", at) for at, text in enumerate(LOG)])
    driver.run()

    assert sorted(line.text for line in driver.read(found)) == sorted(ERRORS)


def test_groups_have_limits() -> None:
    """No group exceeds either limit, except for one line that is too large by itself."""
    groups: list[Sequence[bytes]] = []

    def run(lines: Sequence[bytes], at_ms: int) -> list[object]:
        groups.append(lines)
        return []

    lines = [b"aaa", b"bbb", b"x" * 50, b"c", b"d", b"e", b"f"]
    LineBatch(run, lambda _: True).run(lines, range(len(lines)), lambda: 3, 20)

    assert groups == [[b"aaa", b"bbb"], [b"x" * 50], [b"c", b"d", b"e"], [b"f"]]
