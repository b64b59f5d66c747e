"""What can go wrong with deployments, by what the person at the terminal does next."""

from ...processors.errors import PenstockError


class DeployError(PenstockError):
    """A deployment was not changed: `str()` says why, and what to do."""


class NotDeployed(DeployError):
    """There is no deployment of that name: choose one of those there are."""


class NameTaken(DeployError):
    """Another app's processor of that name is deployed: rename one of them, or say that this one takes its place."""


class IncompatibleState(DeployError):
    """State that was saved does not fit what is declared now: keep the old declaration, or go another way."""


class SupervisorUnavailable(DeployError):
    """What is to keep workers alive cannot be had, or refuses: look at what it says."""


class WorkerFailed(DeployError):
    """A worker did not come up: read what it said last."""


class UpdateFailed(DeployError):
    """A version did not come up, and what ran before was put back."""
