"""`penstock deployments`: lists deployments with their health. It imports little, because people call it often."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ....processors.apps import AppName
from ...shell import DEFAULT_FOLDER, AsJson, Folder, note, print_error, print_json, print_table, processor_name
from ..deployment_status import DeployedWorker, DeploymentStatus, deployment_status
from ..registry import Deployment, DeploymentFiles, all_deployments, find_deployment
from ..version import Version


def list_deployments(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One deployment, with its workers and versions.",
            show_default=False,
            callback=processor_name,
        ),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show the deployments and their status, or one deployment with its workers and versions.

    Example: penstock deployments scorer
    """
    if name is None:
        statuses = [deployment_status(folder, deployment) for deployment in all_deployments(folder)]
        if not statuses and not json:
            note(f"Nothing is deployed from {folder}. Deploy with `penstock deploy APP[:PROCESSOR]`.")
            return
        show_deployments(statuses, json=json)
        return
    _show_one(folder, name, json=json)


def _show_one(folder: Path, name: str, *, json: bool) -> None:
    deployment = find_deployment(folder, name)
    files, status = DeploymentFiles(folder, name), deployment_status(folder, deployment)
    versions = [files.version(number) for number in files.version_numbers()]
    if json:
        print_json({**_described(status), "versions": [msgspec.to_builtins(version) for version in versions]})
        return
    show_deployments([status], json=False)
    if status.workers:
        print_table(
            ["worker", "version", "process", "up", "buckets", ""], [_worker_row(worker) for worker in status.workers]
        )
    columns = ["version", "", "deployed (UTC)", "by", "code", "class", "state"]
    print_table(columns, [_version_row(version, deployment) for version in reversed(versions)])


def show_deployments(statuses: list[DeploymentStatus], *, json: bool) -> None:
    """Print deployments, and their problems."""
    if json:
        print_json([_described(status) for status in statuses])
        return
    columns = ["name", "version", "workers", "target", "deployed (UTC)", "app"]
    print_table(columns, [_row(status) for status in statuses])
    for status in statuses:
        for problem in status.problems:
            print_error(f"{status.deployment.name}: {problem}")


def _row(status: DeploymentStatus) -> list[object]:
    deployment, version = status.deployment, status.deployment.version
    ready = f"{status.ready} of {deployment.workers} ready" if status.workers else str(deployment.workers)
    cells = deployment.name, str(version.number), ready, deployment.target.value, _time(version), _app(deployment)
    return list(cells)


def _app(deployment: Deployment) -> str:
    app = Path(deployment.app)
    path = app.relative_to(Path.cwd()) if app.is_relative_to(Path.cwd()) else app
    server = deployment.version.server
    if server is not None:
        return f"{path} at {' and '.join(server.urls)}"
    return str(AppName(path, deployment.processor, deployment.version.clone or None))


def _worker_row(worker: DeployedWorker) -> list[object]:
    up = "" if worker.up_s is None else f"{timedelta(seconds=round(worker.up_s))}"
    state = "ready" if worker.is_ready else "not ready"
    return [
        worker.worker,
        worker.version,
        "" if worker.pid is None else worker.pid,
        up,
        ", ".join(map(str, worker.buckets)),
        state,
    ]


def _version_row(version: Version, deployment: Deployment) -> list[object]:
    desired = deployment.desired
    status = "runs" if version.number == desired.version else "failed" if version.number in desired.failed else ""
    state = version.shape.state or "none"
    return [str(version.number), status, _time(version), version.by, version.digest, version.processor, state]


def _described(status: DeploymentStatus) -> dict[str, Any]:
    deployment = status.deployment
    return {
        "name": deployment.name,
        "version": deployment.version.number,
        "workers": deployment.workers,
        "ready": status.ready,
        "target": deployment.target.value,
        "app": deployment.app,
        "processor": deployment.processor,
        "urls": [] if deployment.version.server is None else deployment.version.server.urls,
        "digest": deployment.version.digest,
        "time_ms": deployment.version.time_ms,
        "by": deployment.version.by,
        "rolled_out": deployment.desired.is_rolled_out,
        "failed": deployment.desired.failed,
        "worker_status": [asdict(worker) for worker in status.workers],
        "problems": status.problems,
    }


def _time(version: Version) -> str:
    return datetime.fromtimestamp(version.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
