"""Concurrent decoding of backup manifests."""

from __future__ import annotations

import subprocess
import sys

FIRST_READ = """
import sys, threading
from penstock.processors.shard.position import StatePosition
from penstock.state.backups.manifest import FORMAT, Manifest
from penstock.state.protocols import ShardIdentity

position = StatePosition({"lines/3": 17})
manifest = Manifest(FORMAT, ShardIdentity("scorer", 3, "float by route"), position, 1, 2, 3, ())
encoded = manifest.encode()
together = threading.Barrier(8)
read = []

def decode():
    together.wait()
    read.append(Manifest.decode(encoded))

sys.setswitchinterval(1e-6)
readers = [threading.Thread(target=decode) for _ in range(8)]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
assert read == [manifest] * 8, read
"""


def test_several_threads_can_decode_the_first_manifest_of_a_process() -> None:
    """A worker opens several buckets in parallel. Each repetition needs a new process, since only the first decoding matters."""
    for _ in range(12):
        ended = subprocess.run([sys.executable, "-c", FIRST_READ], capture_output=True, check=False, text=True)

        assert ended.returncode == 0, ended.stderr
