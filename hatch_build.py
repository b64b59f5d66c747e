"""Compiles `gather.c` when Penstock is installed, if there is a C compiler. Without it, everything works, and reading is slower."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("transport", "kafka", "gather.c")


class GatherBuildHook(BuildHookInterface[Any]):
    """Adds the compiled library to a wheel; for an editable installation, puts it beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile."""
        source = Path(self.root, self.config.get("tree", "."), SOURCE)
        is_editable = version == "editable"
        library = source.with_suffix(".so") if is_editable else Path(mkdtemp(), "gather.so")
        compiler = os.environ.get("CC", "cc")
        try:
            subprocess.run(
                [compiler, "-O2", "-pthread", "-shared", "-fPIC", "-o", library, source],
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"gather.c was not compiled ({error}). Penstock will read Kafka more slowly.")
            return
        if not is_editable:
            build_data["force_include"][str(library)] = str(Path("penstock", SOURCE.with_suffix(".so")))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
