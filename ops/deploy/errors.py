"""Errors of deployments, by the action that they require of the user."""

from ...processors import DeclarationChanged, PenstockError


class DeployError(PenstockError):
    """A deployment was not changed. The message states the reason and the action."""


class NotDeployed(DeployError):
    """No deployment has this name: choose an existing one."""


class NameTaken(DeployError):
    """Another app's processor of this name is deployed: rename one of them, or replace the deployment."""


class IncompatibleState(DeclarationChanged, DeployError):
    """The saved state does not match the declaration: restore the declaration, or convert the state."""


class SupervisorUnavailable(DeployError):
    """The supervisor of the workers is unavailable, or rejects a request: read its message."""


class WorkerFailed(DeployError):
    """A worker did not become ready: read the end of its log."""


class UpdateFailed(DeployError):
    """A version did not become ready, and the previous version was restored."""
