"""The software bill of materials: all locked packages, valid, and without addresses."""

from __future__ import annotations

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

LOCK = """\
alpha==1.2 ; python_full_version < '3.11' \\
    --hash=sha256:{a}
    # via penstock-core (pyproject.toml)
alpha==1.3 ; python_full_version >= '3.11' \\
    --hash=sha256:{b} \\
    --hash=sha256:{c}
    # via penstock-core (pyproject.toml)
beta==2.0 \\
    --hash=sha256:{c}
    # via
    #   alpha
    #   gamma
gamma==3.0 \\
    --hash=sha256:{a}
    # via penstock-core (pyproject.toml)
""".format(a="a" * 64, b="b" * 64, c="c" * 64)


def script() -> Any:
    """Return the module of the script, which is in no package."""
    spec = spec_from_file_location("sbom", ROOT / "packaging" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bill_has_hashes_scopes_and_dependencies(tmp_path: Path) -> None:
    """Each version of a package has its own."""
    (tmp_path / "lock").write_text(LOCK)
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["Alpha>=1"]\n')
    bill = script().bill_of(tmp_path / "lock", tmp_path / "pyproject.toml")
    scopes = {each["purl"]: each["scope"] for each in bill["components"]}
    hashes = [entry["content"][0] for entry in bill["components"][1]["externalReferences"][0]["hashes"]]
    edges = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}

    assert scopes == {
        "pkg:pypi/alpha@1.2": "required",
        "pkg:pypi/alpha@1.3": "required",
        "pkg:pypi/beta@2.0": "required",
        "pkg:pypi/gamma@3.0": "optional",
    }
    assert hashes == ["b", "c"]
    assert edges["penstock-core"] == ["pkg:pypi/alpha@1.2", "pkg:pypi/alpha@1.3", "pkg:pypi/gamma@3.0"]
    assert edges["pkg:pypi/gamma@3.0"] == ["pkg:pypi/beta@2.0"]


def test_the_bill_of_the_lock_is_complete_and_valid() -> None:
    """It names no index, and is the same at each run."""
    sbom = script()
    bill = sbom.bill_of(sbom.LOCK, sbom.PROJECT)
    locked = set(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", sbom.LOCK.read_text(), re.MULTILINE))

    assert {(each["name"], each["version"]) for each in bill["components"]} == locked
    assert sbom.problems_of(bill) == ""
    assert "://" not in json.dumps(bill)
    assert all(each["externalReferences"][0]["hashes"] for each in bill["components"])


def test_an_invalid_bill_is_noticed() -> None:
    """A component without a name contradicts the schema."""
    assert "name" in script().problems_of(
        {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "library"}]}
    )
