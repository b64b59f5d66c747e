"""New projects: the files of a template, with the names of the app."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ....processors import PenstockError
from .filling import filled
from .images import image_recipe

_FOLDER = Path(__file__).parent
_SUFFIX = ".tmpl"


class ProjectRefused(PenstockError):
    """A project cannot be created. Nothing was written: choose another name or folder."""


@dataclass(frozen=True)
class Template:
    """A kind of app.

    Args:
        name: its name, and its folder.
        description: what the app does.
        output: the category of its outputs.
        examples: an event of each input category, as JSON.
    """

    name: str
    description: str
    output: str
    examples: dict[str, str]


TEMPLATES = {
    template.name: template
    for template in (
        Template(
            "counts",
            "views per page and hour",
            "hourly_views",
            {"views": '{"page": "/", "at": 1700000000000, "user": "ann"}'},
        ),
        Template(
            "join",
            "orders joined with their payments",
            "settled",
            {
                "orders": '{"number": "17", "at": 1700000000000, "cents": 250}',
                "payments": '{"number": "17", "at": 1700000060000, "method": "card"}',
            },
        ),
        Template(
            "lookup",
            "departures enriched from a table",
            "enriched",
            {"departures": '{"airport": "JFK", "at": 1700000000000, "flight": "B6 1"}'},
        ),
    )
}


def package_of(name: str) -> str:
    """Return the name of the Python package of a project.

    Raises:
        ProjectRefused: the name cannot be a package, or a package of Python or Penstock has it.
    """
    package = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package) or keyword.iskeyword(package):
        raise ProjectRefused(
            f"{name!r} cannot be the name of a Python package. Nothing was written. Use lower-case letters, digits and hyphens, such as page-views."
        )
    owner = "the project's" if package == "tests" else "Penstock's" if package == "penstock" else "Python's"
    if package in sys.stdlib_module_names or package in {"penstock", "tests"}:
        raise ProjectRefused(
            f"A package named {package} would hide {owner} own. Nothing was written. Choose another name, such as my-{name}."
        )
    return package


def create_project(folder: Path, template: Template) -> list[Path]:
    """Write a project and return its files, relative to its folder. The name of the folder is the name of the project.

    Raises:
        ProjectRefused: the folder exists, or its name cannot be a package.
    """
    name = folder.name
    package = package_of(name)
    if folder.exists():
        raise ProjectRefused(f"{folder} exists already. Nothing was written. Choose another name, or remove it first.")
    values = {"name": name, "package": package, "output": f"{name}.{template.output}"}
    values["send"] = "\n".join(
        f"    echo '{event}' | penstock category send {name}.{category} --app {package}.app"
        for category, event in template.examples.items()
    )
    written = {}
    for source in (_FOLDER / "common", _FOLDER / template.name):
        for path in sorted(source.rglob(f"*{_SUFFIX}")):
            written[_target(path.relative_to(source), package)] = filled(path.read_text(encoding="utf-8"), values)
    for target, text in written.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(text, encoding="utf-8")
    recipe = image_recipe(folder / package / "app.py", lock=None)
    recipe.write()
    return sorted([*written, *map(Path, recipe.files)])


def _target(path: Path, package: str) -> Path:
    parts = [re.sub("^dot_", ".", part) for part in path.parts]
    return Path(*(package if part == "_package_" else part for part in parts)).with_suffix("")
