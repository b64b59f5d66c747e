"""A software bill of materials: the packages of requirements.lock as CycloneDX JSON.

    requirements.lock --cyclonedx-py--> components with hashes --here--> scopes and dependencies, without addresses

    python packaging/sbom.py FILE

Packages that an installation without extras needs have the scope "required", and the others "optional": extras, tests and documents. A lock does
not name the extra of a package that requires another, so a few optional ones count as required. The hashes of all files of a version that the lock accepts. The text is the same at each run with the same lock.

Source: CycloneDX 1.6.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penstock

ROOT = Path(__file__).parents[1]
LOCK, PROJECT = ROOT / "requirements.lock", ROOT / "pyproject.toml"
ITSELF = "penstock-core"
Components = list[dict[str, Any]]


def bill_of(lock: Path, project: Path) -> dict[str, Any]:
    """Return the bill of the packages that a lock pins.

    Args:
        lock: requirements with hashes, and comments that name the package that requires each, as uv writes them.
        project: the pyproject.toml of the lock.
    """
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "requirements",
        str(lock),
        "--sv",
        "1.6",
        "--output-reproducible",
        "--no-validate",
    ]
    bill: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    children = _children(lock.read_text(encoding="utf-8"))
    required = _closure({canonicalize_name(Requirement(text).name) for text in declared}, children)
    components = [_component(each, required) for each in bill["components"]]
    itself = {"bom-ref": ITSELF, "type": "library", "name": ITSELF, "version": penstock.__version__}
    del bill["$schema"]
    return {
        **bill,
        "metadata": {"component": itself},
        "components": components,
        "dependencies": _dependencies(components, children),
    }


def problems_of(bill: Mapping[str, Any]) -> str:
    """Return what contradicts the schema of CycloneDX; empty for a valid bill."""
    return str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) or "")


def _component(found: dict[str, Any], required: set[str]) -> dict[str, Any]:
    """Return a component that is identified by its package URL, without the address of an index."""
    files = [
        {"type": "distribution", "url": found["purl"], "hashes": each["hashes"]} for each in found["externalReferences"]
    ]
    scope = "required" if found["name"] in required else "optional"
    kept = {name: found[name] for name in ("type", "name", "version", "purl")}
    return {"bom-ref": found["purl"], **kept, "scope": scope, "externalReferences": files}


def _children(lock: str) -> dict[str, set[str]]:
    """Return the packages that each package requires, from the comments of a lock; those of the project by its own name."""
    children: dict[str, set[str]] = {}
    for block in re.split(r"^(?=\S)", lock, flags=re.MULTILINE):
        name = re.match(r"[\w.-]+", block)
        for parent in re.findall(r"^ +# +(?:via +)?([\w.-]+)", block, re.MULTILINE) if name else ():
            if name and parent != "via":
                children.setdefault(parent, set()).add(name[0])
    return children


def _closure(names: set[str], children: Mapping[str, set[str]]) -> set[str]:
    """Return packages, and all that they require."""
    found, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += children.get(name, ())
    return found


def _dependencies(components: Components, children: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    """Return the graph of the requirements. A package has several versions if they depend on Python's."""
    versions: dict[str, list[str]] = {}
    for each in components:
        versions.setdefault(each["name"], []).append(each["bom-ref"])

    def refs(names: Iterable[str]) -> list[str]:
        return sorted(ref for name in names for ref in versions.get(name, ()))

    parents = [(ITSELF, ITSELF), *((each["bom-ref"], each["name"]) for each in components)]
    return [{"ref": ref, "dependsOn": refs(children.get(name, ()))} for ref, name in parents]


def main() -> None:
    """Write the bill to the file of the command line."""
    bill = bill_of(LOCK, PROJECT)
    problems = problems_of(bill)
    if problems:
        sys.exit(f"The bill contradicts CycloneDX 1.6: {problems}. Nothing was written.")
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    required = sum(each["scope"] == "required" for each in bill["components"])
    print(f"{file}: {len(bill['components'])} components, {required} of them required")


if __name__ == "__main__":
    main()
