"""Workers on a real Kafka are killed between the steps of a checkpoint, and their guarantees hold.

The gaps come from the step tables, so each new step adds a test. `tests/unit/test_crashes.py` kills every kind in every gap of every row in memory.
These tests run each gap of each row once, and each kind in each row at least once; `make test-gaps` runs every combination.
"""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.plain import values
from support.subjects import CHAINED, EXACT, LEAST, LOCAL, MOST, REMOTE, STATELESS, TIMED, TWICE, Subject, events
from support.trials import Source, create_job, expect_guarantees, expect_remote_guarantees
from support.verdicts import state_of
from support.victims import LIMIT_S, Kill, fork_server

from penstock.processors.shard import Gap, Step, Steps, steps_of
from penstock.transport.kafka import KafkaBus

EVENTS = events(200)
Case = tuple[Subject, Steps, Gap]


def cases(subjects: list[Subject]) -> list[Any]:
    """Return each subject with each gap of its checkpoints, or a subset that covers every gap of every row and every subject."""
    every = [
        (subject, steps, Gap(before))
        for subject in subjects
        for steps in [steps_of(subject.make("any"))]
        for before in (*steps, None)
    ]
    chosen = every if "EVERY_GAP" in os.environ else covering(every)
    return [pytest.param(subject, gap, id=f"{subject}-{gap}".replace(" ", "_")) for subject, _, gap in chosen]


def covering(every: list[Case]) -> list[Case]:
    """Return the first case of each gap of a row, and one case of each other subject, also in other stores, with varying gaps."""
    firsts = {(steps, gap): (subject, steps, gap) for subject, steps, gap in reversed(every)}
    chosen = list(firsts.values())
    covered = {subject for subject, _, _ in chosen}
    left = [subject for subject in dict.fromkeys(subject for subject, _, _ in every) if subject not in covered]
    for number, subject in enumerate(left):
        own = [case for case in every if case[0] == subject]
        chosen.append(own[number % len(own)])
    return sorted(chosen, key=every.index)


def test_the_subset_covers_every_gap_of_every_row_and_every_subject() -> None:
    """It omits only combinations: no step, kind or write mode is missing."""
    subjects = STATELESS + LOCAL + TIMED + CHAINED + REMOTE
    every = [
        (one, steps_of(one.make("any")), Gap(before))
        for one in subjects
        for before in (*steps_of(one.make("any")), None)
    ]
    part = covering(every)

    assert {subject for subject, _, _ in part} == set(subjects)
    assert {case[1:] for case in part} == {case[1:] for case in every}
    assert len(part) < len(every)


@pytest.mark.parametrize(("subject", "gap"), cases(STATELESS + LOCAL + TIMED + CHAINED))
def test_guarantees_hold_after_a_kill(
    subject: Subject, gap: Gap, kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """After a kill in the gap and a restart, state and outputs are equal to the expected ones, at least, or at most, as guaranteed."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path)

    assert job.run(Kill(gap)) == -signal.SIGKILL
    assert job.run() == 0
    expect_guarantees(job, EVENTS)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("subject", "gap"), cases(LOCAL + TIMED + CHAINED))
def test_guarantees_hold_without_the_disk(
    subject: Subject, gap: Gap, kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """The disk is lost, too, and another machine continues from Kafka."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path)

    assert job.run(Kill(gap)) == -signal.SIGKILL
    shutil.rmtree(tmp_path / f"{prefix}.subject")
    assert job.run() == 0
    expect_guarantees(job, EVENTS)


@pytest.mark.parametrize("subject", TWICE, ids=str)
def test_guarantees_hold_after_two_kills(
    subject: Subject, kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """The first kill follows the commit, and the disk is lost. The second kill precedes the commit of the successor's first checkpoint."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path)

    assert job.run(Kill(Gap(Step.APPLY_STATE))) == -signal.SIGKILL
    shutil.rmtree(tmp_path / f"{prefix}.subject")
    assert job.run(Kill(Gap(Step.COMMIT_TRANSACTION), checkpoint=1)) == -signal.SIGKILL
    assert job.run() == 0
    expect_guarantees(job, EVENTS)


@pytest.mark.parametrize(
    ("subject", "operation", "keeps_disk"),
    [
        pytest.param(Subject("stateful", EXACT, EXACT), "apply", True, id="settling"),
        pytest.param(Subject("forgetting_unsure", EXACT, EXACT), "save_position", False, id="replaying"),
    ],
)
def test_guarantees_hold_after_a_kill_during_recovery(
    subject: Subject,
    operation: str,
    keeps_disk: bool,
    kafka: str,
    kafka_bus: KafkaBus,
    tmp_path: Path,
    prefix: str,
) -> None:
    """The recovering worker is killed while it applies the committed delta or replays the changelog."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path)

    assert job.run(Kill(Gap(Step.APPLY_STATE))) == -signal.SIGKILL
    if not keeps_disk:
        shutil.rmtree(tmp_path / f"{prefix}.subject")
    assert job.run(Kill(None, operation=operation)) == -signal.SIGKILL
    assert job.run() == 0
    expect_guarantees(job, EVENTS)


@pytest.mark.parametrize(("subject", "gap"), cases([Subject("timers", EXACT, EXACT)]))
def test_watermarks_of_a_killed_worker_stay_valid(
    subject: Subject, gap: Gap, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """A downstream processor writes no window too early meanwhile, and all complete windows in the end."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path)
    downstream = create_job(Subject("downstream", EXACT, EXACT), [], prefix, kafka_bus, tmp_path)

    assert job.run(Kill(gap)) == -signal.SIGKILL
    assert downstream.run() == 0
    assert job.run() == 0
    assert downstream.run() == 0
    expect_guarantees(job, EVENTS)
    expect_guarantees(downstream, EVENTS)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same_disk", "other_disk"])
@pytest.mark.parametrize(("subject", "gap"), cases([Subject("injected", EXACT, EXACT)]))
def test_a_checkpoint_without_events_counts_once(
    subject: Subject, gap: Gap, elsewhere: bool, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """Windows that a watermark alone completes do not move the position, so it does not show whether they were written."""
    job = create_job(subject, [], prefix, kafka_bus, tmp_path / "0")
    source = Source(subject, prefix, kafka_bus)
    source.write(EVENTS)
    other = replace(job, folder=tmp_path / "1") if elsewhere else job
    assert (job.run(), other.run()) == (0, 0)
    source.advance()

    assert job.run(Kill(gap, checkpoint=1)) == -signal.SIGKILL
    source.send(events(100, start=len(EVENTS)))
    assert other.run() == 0
    expect_guarantees(other, source.sent)


@pytest.mark.parametrize("gap", [Gap(Step.LOG_CHANGES), Gap(Step.APPLY_STATE)], ids=str)
def test_a_changelog_that_begins_late_contains_the_earlier_state(
    gap: Gap, kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """A processor with state gets a changelog, is killed in its first checkpoint, and loses its disk later."""
    job = create_job(Subject("stateful", EXACT, EXACT), EVENTS, prefix, kafka_bus, tmp_path)
    logged, source = replace(job, subject=Subject("unsure", EXACT, EXACT)), Source(job.subject, prefix, kafka_bus)
    source.sent += EVENTS
    assert job.run() == 0
    source.send(events(8, start=len(source.sent)))

    assert logged.run(Kill(gap, checkpoint=1)) == -signal.SIGKILL
    assert logged.run() == 0
    shutil.rmtree(tmp_path / f"{prefix}.subject")
    source.send(events(80, start=len(source.sent)))
    assert logged.run() == 0
    expect_guarantees(job, source.sent)


def stored_cases() -> list[Any]:
    """Return the cases of remote state, each with a store: with EVERY_GAP both stores, otherwise alternating ones."""
    stores = ["postgres", "redis_server"]
    found = []
    for number, case in enumerate(cases(REMOTE)):
        chosen = stores if "EVERY_GAP" in os.environ else [stores[number % 2]]
        found += [pytest.param(*case.values, store, id=f"{case.id}-{store}") for store in chosen]
    return found


@pytest.mark.parametrize(("subject", "gap", "store"), stored_cases())
def test_guarantees_hold_in_a_remote_store(
    subject: Subject,
    gap: Gap,
    store: str,
    request: pytest.FixtureRequest,
    kafka_bus: KafkaBus,
    tmp_path: Path,
    prefix: str,
) -> None:
    """State is merged into PostgreSQL or Redis, in each write mode."""
    url = request.getfixturevalue(store).url
    job = replace(create_job(subject, EVENTS, prefix, kafka_bus, tmp_path), store=url)

    assert job.run(Kill(gap)) == -signal.SIGKILL
    assert job.run() == 0
    expect_remote_guarantees(job, EVENTS)


def test_worker_processes_are_forked_with_their_imports() -> None:
    """The harness is fast: a new process imports nothing again."""
    already = fork_server().Process(target=exec, args=("import sys; sys.exit('support.victims' not in sys.modules)",))
    already.start()
    already.join(LIMIT_S)

    assert already.exitcode == 0


def outputs_of(subject: Subject, before: Step, prefix: str, kafka: str, kafka_bus: KafkaBus, folder: Path) -> list[int]:
    """Kill a worker before a step and start it again; return the numbers in its outputs."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, folder)
    assert job.run(Kill(Gap(before))) == -signal.SIGKILL
    assert job.run() == 0
    return [output["number"] for output in values(kafka, f"{prefix}.out")]


def test_at_least_once_really_repeats(kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str) -> None:
    """The harness detects repeats: outputs that were flushed before the position was saved come twice and count twice in the state."""
    subject = Subject("stateful", LEAST, LEAST)
    found = outputs_of(subject, Step.SAVE_POSITION, prefix, kafka, kafka_bus, tmp_path)
    counted = sum(sums["count"] for sums in state_of(tmp_path, f"{prefix}.subject").values())

    assert len(found) > len(EVENTS)
    assert counted > len(EVENTS)


def test_at_most_once_really_loses(kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str) -> None:
    """The harness detects losses: events whose offset was committed first are missing from outputs and state."""
    subject = Subject("stateful", MOST, MOST)
    found = outputs_of(subject, Step.SAVE_STATE, prefix, kafka, kafka_bus, tmp_path)
    counted = sum(sums["count"] for sums in state_of(tmp_path, f"{prefix}.subject").values())

    assert len(found) < len(EVENTS)
    assert counted < len(EVENTS)


def test_exactly_once_state_may_still_repeat_outputs(
    kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """State and output guarantees are independent: at-least-once outputs repeat although the state counts each event once."""
    subject = Subject("stateful", EXACT, LEAST)
    found = outputs_of(subject, Step.SAVE_TOGETHER, prefix, kafka, kafka_bus, tmp_path)
    counted = sum(sums["count"] for sums in state_of(tmp_path, f"{prefix}.subject").values())

    assert len(found) > len(EVENTS)
    assert counted == len(EVENTS)
