"""Options of the pods of deployments on Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ...shell import OptionGroup
from ..version import PodSettings, Target

PodMemory = Annotated[str, typer.Option("--memory", help="For Kubernetes: the memory of a pod.")]


@dataclass(frozen=True)
class PodOptions(OptionGroup):
    """The pods of workers and servers. Their memory is an option of its own, or follows from others."""

    image: Annotated[
        str | None,
        typer.Option(
            "--image", help="For Kubernetes: an image with Penstock and the app's dependencies.", show_default=False
        ),
    ] = None
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="For Kubernetes: the namespace.", show_default=False)
    ] = None
    cpu: Annotated[str, typer.Option("--cpu", help="For Kubernetes: the CPU request of a pod.")] = "500m"
    disk: Annotated[str, typer.Option("--disk", help="For Kubernetes: the size of a pod's volume.")] = "10Gi"
    storage_class: Annotated[
        str | None,
        typer.Option("--storage-class", help="For Kubernetes: the class of these volumes.", show_default=False),
    ] = None

    def settings(self, where: Target, memory: str) -> PodSettings | None:
        """Return the settings of pods; None elsewhere than on Kubernetes.

        Args:
            where: the supervisor.
            memory: the memory of a pod, in Kubernetes' notation.
        """
        if where is not Target.KUBERNETES:
            return None
        if self.image is None:
            raise typer.BadParameter(
                "--target kubernetes needs --image: an image with Python, Penstock, and the app's dependencies."
            )
        return PodSettings(self.image, self.namespace, self.cpu, memory, self.disk, self.storage_class)
