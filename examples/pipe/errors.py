#!/usr/bin/env python3
"""Writes the lines that contain ERROR. For `penstock pipe`: a line that begins with the byte 0x1E is a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator


def outputs(line: bytes) -> Iterator[bytes]:
    """Yield the output lines of a line."""
    if b"ERROR" in line:
        yield line


for line in sys.stdin.buffer:
    if line.startswith(b"\x1e"):
        sys.stdout.buffer.write(line)  # after the outputs of all lines before it
        sys.stdout.buffer.flush()
    else:
        sys.stdout.buffer.writelines(outputs(line))
