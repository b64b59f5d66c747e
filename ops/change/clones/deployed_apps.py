"""The deployed workers of an app and of its clone, as a promotion stops, drains and starts them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ....processors.apps import AppName
from ....processors.declare import Processor, plan_of
from ....transport import Bucket, Bus, GroupInUse, Position
from ....transport.tables import require_idle
from ...deploy import (
    READY_LIMIT_S,
    DeploymentFiles,
    DeploymentPlan,
    DeploymentRequest,
    Target,
    Version,
    apply_plan,
    code_of,
    load_variables,
    plan_deployment,
    rollout_of,
    run_arguments,
)
from ...kernel import NodeCommand, RunLimits, penstock_command, run_together
from ...shell import free_port
from .promoting import ProcessorPair, PromotionPlan, PromotionProgress, PromotionRefused, RunToLimits

BEHIND_S = 1.0
"""How far the clone may be behind the app when the workers stop, in seconds."""
IDLE_LIMIT_S = 60.0
"""How long Kafka may count a worker that has died, in seconds: somewhat longer than its session."""
LOOK_EVERY_S = 0.2
REPORT_EVERY_S = 5.0

Report = Callable[[str], None]
"""Receives one line about the progress."""


@dataclass(frozen=True)
class PairedDeployment:
    """A deployed processor of the app or of the clone.

    Args:
        processor: the processor.
        files: the files of its deployment.
        version: its current version.
        workers: the number of its workers, also if it is stopped now.
    """

    processor: type[Processor]
    files: DeploymentFiles
    version: Version
    workers: int

    @property
    def runs(self) -> bool:
        """Whether it has workers."""
        return self.files.deployment() is not None


class DeployedApps:
    """The deployed workers of an app and of its clone. The caller holds `deployment_lock`.

    Args:
        plan: the promotion.
        name: the name of the clone, with the absolute path of its file.
        folder: the folder of the deployments.
        bus: the bus of both.
        report: receives the progress.
        drain_limit_s: how long the processors of one level may take to process what is on its way.

    Raises:
        PromotionRefused: one of them is not deployed from the folder, or not with this code.
    """

    def __init__(
        self, plan: PromotionPlan, name: AppName, folder: Path, bus: Bus, *, report: Report, drain_limit_s: float
    ) -> None:
        self._plan = plan
        self._name = name
        self._bus = bus
        self._report = report
        self._drain_limit_s = drain_limit_s
        self._originals = [_deployed(pair.original, folder) for pair in plan.pairs]
        # A promoted clone may be removed already.
        self._clones = (
            [] if plan.progress is PromotionProgress.SWAPPED else [_deployed(pair.clone, folder) for pair in plan.pairs]
        )
        self._stopped_s: float | None = None
        self.paused_s: float | None = None
        """How long no worker of the app ran, in seconds; None if it did not stop."""

    def expect_same_code(self) -> None:
        """Check that the app can be deployed with the code that the clone runs.

        Raises:
            PromotionRefused: the file of the clone has changed since, or its states have another type than those of the app.
            PenstockError: the app cannot be deployed from this file.
        """
        for pair, original, clone in zip(self._plan.pairs, self._originals, self._clones, strict=True):
            if clone.version.digest != code_of(self._name.path, pair.clone).digest:
                raise PromotionRefused(
                    f"{self._name.path} has changed since {pair.clone.name} was deployed, and the promotion deploys the file. Nothing was changed. "
                    f"Deploy the clone again, and watch it first: `penstock deploy {self._name}`."
                )
            if original.version.shape.state != clone.version.shape.state:
                raise PromotionRefused(
                    f"{pair.clone.name} and {pair.original.name} have states of different types. Nothing was changed. Migrate the state of the "
                    "app first (`penstock state migrate`), and make a new clone from a later snapshot."
                )
            self._planned(pair, original)

    def await_clone(self, limit_s: float) -> None:
        """Wait until the clone is less than `BEHIND_S` behind the app.

        Args:
            limit_s: how long to wait, in seconds.

        Raises:
            PromotionRefused: it still is further behind, or only the app runs.
        """
        if not any(one.runs for one in self._originals):
            return  # an earlier command was interrupted, or the user has stopped the app
        stopped = [one.processor.name for one in self._clones if not one.runs]
        if stopped:
            raise PromotionRefused(
                f"{', '.join(stopped)} does not run, so the clone does not catch up with the app. Nothing was changed. Start it first: `penstock deploy "
                f"{self._name}`."
            )
        began_s, reported_s = time.monotonic(), 0.0
        while (behind_s := self._behind_s()) >= BEHIND_S:
            now_s = time.monotonic()
            if now_s - began_s > limit_s:
                raise PromotionRefused(
                    f"{self._name.clone} is {behind_s:.1f} s behind the app, after {limit_s:.0f} s. Nothing was changed, and both continue. Give the clone "
                    "more workers (`penstock scale`), or wait longer with --wait."
                )
            if now_s - reported_s > REPORT_EVERY_S:
                self._report(
                    f"{self._name.clone} is {behind_s:.1f} s behind the app. Waiting until it is less than {BEHIND_S:.0f} s …"
                )
                reported_s = now_s
            time.sleep(LOOK_EVERY_S)

    def _behind_s(self) -> float:
        lags_s = [(lag_s(pair.clone, self._bus), lag_s(pair.original, self._bus)) for pair in self._plan.pairs]
        return max(of_clone_s - of_original_s for of_clone_s, of_original_s in lags_s)

    def stop(self) -> None:
        """Stop all workers after a last checkpoint: the clone's first, since readers do not wait for them."""
        for deployed in self._clones:
            self._stop(deployed)
        self._stopped_s = time.monotonic()
        for deployed in self._originals:
            self._stop(deployed)
        for deployed in (*self._clones, *self._originals):
            self._await_idle(deployed.processor)

    def _await_idle(self, processor: type[Processor]) -> None:
        """Wait until Kafka counts no worker of a processor, such as one of a killed command.

        Raises:
            GroupInUse: a worker runs that was not deployed from this folder.
        """
        deadline_s = time.monotonic() + IDLE_LIMIT_S
        while True:
            try:
                require_idle(processor, self._bus)
            except GroupInUse:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(LOOK_EVERY_S)
            else:
                return

    def _stop(self, deployed: PairedDeployment) -> None:
        if deployed.runs:
            rollout_of(deployed.files, deployed.version.settings, self._report, READY_LIMIT_S).stop()

    @property
    def run_to(self) -> RunToLimits:
        """Runs processors up to limits, each in a process with its deployed code and environment."""
        return self._run_to

    def _run_to(self, limits: Mapping[type[Processor], RunLimits]) -> None:
        deployed = {one.processor: one for one in (*self._originals, *self._clones)}
        self._report(f"Processing what is on its way to {', '.join(processor.name for processor in limits)} …")
        deadline_s = time.monotonic() + self._drain_limit_s

        def expect_in_time() -> None:
            if time.monotonic() > deadline_s:
                raise PromotionRefused(
                    f"{', '.join(processor.name for processor in limits)} did not process all that was on its way within {self._drain_limit_s:.0f} s, "
                    "such as events that wait for a retry. Nothing was changed. Try again, or allow more time with --drain-within."
                )

        run_together(
            list(limits), lambda processor: _bounded_run(deployed[processor], limits[processor]), expect_in_time
        )

    def start_again(self) -> None:
        """Start the workers of both apps as they were."""
        _at_once([partial(self._start, one) for one in (*self._originals, *self._clones) if not one.runs])
        self._note_pause()

    def _start(self, deployed: PairedDeployment) -> None:
        rollout = rollout_of(deployed.files, deployed.version.settings, self._report, READY_LIMIT_S)
        rollout.start(deployed.version, deployed.workers)

    def start_promoted(self) -> None:
        """Start the workers of the app with the code of the clone, where none run."""
        plans = [
            self._planned(pair, deployed)
            for pair, deployed in zip(self._plan.pairs, self._originals, strict=True)
            if not deployed.runs
        ]
        _at_once([partial(apply_plan, plan, self._report) for plan in plans])
        self._note_pause()

    def _planned(self, pair: ProcessorPair, deployed: PairedDeployment) -> DeploymentPlan:
        request = DeploymentRequest(
            AppName(self._name.path), pair.original, deployed.version.settings, workers=None, take_over=True
        )
        environment = {**os.environ, **load_variables(deployed.files.environment)}
        return plan_deployment(request, self._bus, environment, self._report)

    def _note_pause(self) -> None:
        if self._stopped_s is not None:
            self.paused_s = time.monotonic() - self._stopped_s


def _at_once(starts: Sequence[Callable[[], None]]) -> None:
    """Start several deployments at once, since outputs wait until the last one is ready. Raise the first error when all are over."""
    with ThreadPoolExecutor(max(1, len(starts))) as threads:
        started = [threads.submit(start) for start in starts]
    for each in started:
        each.result()


def _deployed(processor: type[Processor], folder: Path) -> PairedDeployment:
    """Return the deployment of a processor, which may be stopped.

    Raises:
        PromotionRefused: it was never deployed from the folder, or a promotion cannot stop or drain it.
    """
    files = DeploymentFiles(folder, processor.name)
    desired = files.desired_state()
    if desired is None:
        raise PromotionRefused(
            f"{processor.name} is not deployed from {folder}, so the promotion cannot stop and start it. Nothing was changed. Deploy the app and its "
            "clone with `penstock deploy`, and promote with the same --dir."
        )
    version = files.version(desired.version)
    if version.server is not None or version.settings.target is Target.KUBERNETES:
        place = "on Kubernetes" if version.server is None else "in a server, which contains its worker"
        raise PromotionRefused(
            f"{processor.name} runs {place}, and a promotion needs its state and its workers on this machine. Nothing was changed. Stop the app, and "
            "deploy it with `penstock deploy` on this machine."
        )
    return PairedDeployment(processor, files, version, desired.last_count)


def lag_s(processor: type[Processor], bus: Bus) -> float:
    """Return how long the oldest event of a processor's inputs has waited, in seconds. Events that wait for a retry are behind nothing."""
    positions = []
    for category in plan_of(processor).sources:
        committed = bus.catalog.committed(processor.name, category.name)
        starts = bus.catalog.describe(category.name).starts
        positions += [
            Position(Bucket(category.name, number), committed.get(number, start)) for number, start in starts.items()
        ]
    waiting = bus.catalog.waiting_since(positions)
    return max(0.0, time.time() - min(waiting.values()) / 1000) if waiting else 0.0


def _bounded_run(deployed: PairedDeployment, limits: RunLimits) -> NodeCommand:
    """Return a run of a deployed processor that ends at limits."""
    version, files = deployed.version, deployed.files
    words = run_arguments(version, files.code(version.number), str(free_port()), "0")
    words += [word for bucket, offset in limits.offsets.items() for word in ("--until", f"{bucket}={offset}")]
    words += [word for number, time_ms in limits.times_ms.items() for word in ("--event-time", f"{number}={time_ms}")]
    return NodeCommand(
        penstock_command(*words), load_variables(files.environment), Path(version.settings.working_folder)
    )
