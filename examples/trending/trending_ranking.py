"""Prints rankings from the lines of `penstock category tail --json`: one line for each window and category."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from datetime import UTC, datetime

ranked: defaultdict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
for line in sys.stdin:
    value = json.loads(line)["value"]
    ranked[value["window_start"], value["category"]].append((value["score"], value["event"]))
for (start, category), events in sorted(ranked.items()):
    time = datetime.fromtimestamp(start / 1000, UTC)
    best = ", ".join(f"{event} {score:,}" for score, event in sorted(events, reverse=True))
    sys.stdout.write(f"{time:%H:%M} {category:<8} {best}\n")
