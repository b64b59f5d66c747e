"""Runs the tests of the C code with AddressSanitizer and UndefinedBehaviorSanitizer.

sources --gcc -fsanitize--> libraries in a temporary folder --this module as a plugin of pytest--> LIBRARY of each module

A sanitizer ends the process at the first access outside of an allocation, and at the first operation without a defined result.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from penstock.processors.declare import partitioner
from penstock.transport.codecs import json_columns
from penstock.transport.kafka import client_handle, column_queue

FOLDER = "SANITIZED_LIBRARIES"
"""The environment variable with the folder of the compiled libraries."""
MODULES: tuple[ModuleType, ...] = (partitioner, json_columns, column_queue, client_handle)
TESTS = (
    "tests/unit/test_keys.py",
    "tests/unit/test_json_columns.py",
    "tests/unit/test_gather.py",
    "tests/unit/test_client_handle.py",
    "tests/contract/test_column_reader.py",
)
PROGRAM = """
import numpy as np
from support import sanitizers
from penstock.processors.declare import partitioner
sanitizers.use_libraries()
hash_of = partitioner._compiled_hashes()[partitioner.Partitioner.MURMUR2]
memory, sizes, found = np.zeros(10, np.uint8), np.array([11]), np.zeros(1, np.uint32)
hash_of.argtypes = None
hash_of(*(np.ctypeslib.as_ctypes(array) for array in (memory, sizes)), 1, np.ctypeslib.as_ctypes(found))
"""
"""A program that reads one byte too many."""


def compile_sources(folder: Path) -> None:
    """Compile each source with sanitizers."""
    for module in MODULES:
        source = module.LIBRARY.with_suffix(".c")
        sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
        # A copy of eight bytes would become one access, of which only the first byte is checked.
        options = [
            "-g",
            "-O1",
            "-fno-builtin",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-shared",
            "-fPIC",
            *sanitize,
        ]
        subprocess.run(["gcc", *options, "-o", folder / module.LIBRARY.name, source, "-lm"], check=True)


def use_libraries() -> None:
    """Let each module load its library from the folder. The services that tests start run without sanitizers."""
    folder = Path(os.environ[FOLDER])
    for module in MODULES:
        vars(module)["LIBRARY"] = folder / module.LIBRARY.name
    del os.environ["LD_PRELOAD"]


def pytest_configure() -> None:
    """Let the tests use the libraries."""
    use_libraries()


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a Python that loads the libraries."""
    # Python is not linked to the runtimes, which must come first. AddressSanitizer looks for the functions of C++ exceptions when it is loaded.
    runtimes = [
        subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    return {
        **os.environ,
        FOLDER: str(folder),
        "LD_PRELOAD": ":".join(runtimes),
        # Python itself keeps some memory until it ends.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # Each object has its own allocation, whose borders the sanitizer watches.
        "PYTHONMALLOC": "malloc",
    }


def main() -> int:
    """Compile, check that an error would be found, and run the tests, with further arguments for pytest."""
    tracked = subprocess.run(["git", "ls-files", "*.c"], check=True, capture_output=True, text=True).stdout.split()
    sources = {module.LIBRARY.with_suffix(".c").resolve() for module in MODULES}
    if {Path(name).resolve() for name in tracked} != sources:
        sys.exit(f"The sources are {shlex.join(tracked)}. Name the module of each one in MODULES.")
    with TemporaryDirectory() as name:
        compile_sources(Path(name))
        variables = environment(Path(name))
        faulty = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=False
        )
        if "AddressSanitizer: heap-buffer-overflow" not in faulty.stderr:
            sys.exit(f"The sanitizer does not find a read outside of an allocation:\n{faulty.stderr}")
        # A report goes to the standard error of the process, which ends then.
        options = ["-p", "support.sanitizers", "-p", "no:cacheprovider", "--capture=sys", "--timeout", "1200"]
        pytest = [sys.executable, "-m", "pytest", *options]
        return subprocess.run([*pytest, *(sys.argv[1:] or TESTS)], env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
