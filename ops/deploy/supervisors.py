"""Which keeper a deployment has on this machine."""

from __future__ import annotations

from pathlib import Path

from .process_supervisor import ProcessSupervisor
from .supervisord import Supervisord
from .systemd import Systemd
from .version import DeploymentSettings, Target


def supervisor_of(settings: DeploymentSettings) -> ProcessSupervisor:
    """Return what keeps the workers of a deployment alive on this machine."""
    folder = Path(settings.folder)
    return Systemd(folder) if settings.target is Target.SYSTEMD else Supervisord(folder)
