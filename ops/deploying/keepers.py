"""Which keeper a deployment has on this machine."""

from __future__ import annotations

from pathlib import Path

from .keeper import Keeper
from .supervisord import Supervisord
from .systemd import Systemd
from .version import Settings, Target


def keeper_of(settings: Settings) -> Keeper:
    """Return what keeps the workers of a deployment alive on this machine."""
    folder = Path(settings.folder)
    return Systemd(folder) if settings.target is Target.SYSTEMD else Supervisord(folder)
