"""Compiles the C sources when Penstock is installed, if there is a C compiler. Without one, everything works, and is slower."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = {
    Path("processors", "declare", "key_hashes.c"): "Penstock will compute the buckets of keys more slowly.",
    Path("transport", "kafka", "gather.c"): "Penstock will read Kafka more slowly.",
    Path(
        "transport", "kafka", "plugin.c"
    ): "Penstock will read Kafka more slowly, and use a whole core while a broker does not answer.",
    Path("transport", "codecs", "flat_json.c"): "Penstock will decode JSON without columns.",
}
"""The sources, and what is missing without each of them."""


class CompileBuildHook(BuildHookInterface[Any]):
    """Adds the compiled libraries to a wheel; for an editable installation, puts each beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile."""
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if not compiler or shutil.which(compiler[0]) is None:
            self.app.display_warning(
                f"No C compiler was found ({' '.join(compiler)}), so the C code of Penstock was not compiled. Everything works; Kafka, JSON and keys "
                "take more CPU time. Install a compiler, or name one in CC, and install Penstock again. `penstock --version` shows what is compiled."
            )
            return
        is_editable = version == "editable"
        folder = Path(mkdtemp())
        for place, without in SOURCES.items():
            source = Path(self.root, self.config.get("tree", "."), place)
            library = source.with_suffix(".so") if is_editable else folder / place.with_suffix(".so").name
            if not self._compiled(compiler, source, library, without) or is_editable:
                continue
            build_data["force_include"][str(library)] = str(Path("penstock", place.with_suffix(".so")))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compiled(self, compiler: list[str], source: Path, library: Path, without: str) -> bool:
        try:
            subprocess.run(
                [*compiler, "-O2", "-pthread", "-shared", "-fPIC", "-o", library, source, "-lm"],
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"{source.name} was not compiled ({error}). {without}")
            return False
        return True
