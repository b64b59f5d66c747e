"""`penstock image`: writes the recipe of a container image for an app."""

from __future__ import annotations

from typing import Annotated

import typer

from ....processors.apps import AppName, import_root
from ...shell import Target, note, out
from ..templates import ImageRefused, existing_lock, image_recipe, locked, requirements_of

DEFAULT_EXTRAS = ("dashboard",)


def image(
    target: Target,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="The base image, best with its digest: python:3.12-slim@sha256:…; the default is the slim image of this Python.",
            show_default=False,
        ),
    ] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option(
            "--extra",
            metavar="NAME",
            help="An extra of Penstock, such as postgres, redis, otel or serve; repeatable. The default is dashboard.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files, and lock the requirements again.")
    ] = False,
) -> None:
    """Write the recipe of a container image for an app: Containerfile, .dockerignore and requirements.lock.

    The image is slim and runs without root. The requirements have the versions that are installed here, with the hashes of their files; an existing
    requirements.lock is used as it is. The files are in the folder from which the app is imported. Nothing is built.

    Example: penstock image shop.app --extra postgres
    """
    app = AppName.parse(target)
    app.load()  # an app that does not load would not run in the image either
    path = app.path.absolute()
    lock = None if overwrite else existing_lock(path)
    if lock is None:
        requirements = requirements_of(path, extra or DEFAULT_EXTRAS)
        note(f"Locking {', '.join(requirements)} …")
        lock = locked(requirements, import_root(path) / "wheels")
    recipe = image_recipe(path, lock, base)
    changed = recipe.changed()
    if changed and not overwrite:
        raise ImageRefused(
            f"{' and '.join(changed)} in {recipe.folder} would change. No file was written. Add --overwrite, or move the files away."
        )
    for written in recipe.write():
        out.print(str(written), markup=False, highlight=False)
    note(f"Next: docker build -f {recipe.folder / 'Containerfile'} -t NAME:VERSION {recipe.folder}")
