"""The folders of deployments. Commands that only look for deployments import no more than this."""

from __future__ import annotations

from pathlib import Path


def deployments_folder(folder: Path) -> Path:
    """Return the folder of all deployments in a folder (`--dir`)."""
    return folder / "deployments"


def names_of_deployments(folder: Path) -> list[str]:
    """Return the names of all processors that were deployed from a folder (`--dir`) and not purged, in ascending order."""
    return sorted(path.parent.name for path in deployments_folder(folder).glob("*/desired.json"))
