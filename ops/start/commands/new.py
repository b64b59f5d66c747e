"""`penstock new`: creates a project with an app."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ...shell import note, out
from ..templates import TEMPLATES, create_project, package_of

TemplateName = Enum("TemplateName", {name: name for name in TEMPLATES}, type=str)  # type: ignore[misc]  # the templates define it
_HELP = "; ".join(f"{template.name}: {template.description}" for template in TEMPLATES.values())


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME", help="The new folder; its name is the name of the project.")
    ],
    template: Annotated[TemplateName, typer.Option("--template", help=f"The app. {_HELP}.")] = TemplateName("counts"),  # noqa: B008 - a constant
) -> None:
    """Create a project: a package with an app, its test, and files for containers, Kubernetes and CI.

    Example: penstock new page-views --template counts
    """
    for file in create_project(folder, TEMPLATES[template.value]):
        out.print(str(folder / file), markup=False, highlight=False)
    note(
        f"Next: cd {folder}; python -m pytest; penstock dev up kafka; penstock run {package_of(folder.name)}.app --create --until-end"
    )
