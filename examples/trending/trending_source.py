"""Half an hour of actions in a social network, as lines of JSON in the order of their arrival."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

START_MS = 1_717_264_800_000
"""2024-06-01 18:00 UTC."""
MINUTES, ACTIONS, LATE_MS = 30, 240, 8_000
_EVENTS = {
    "#final": ["match", "goal", "team"],
    "#derby": ["match", "coach"],
    "#marathon": ["team", "coach"],
    "#premiere": ["film", "actor"],
    "#sequel": ["film", "trailer"],
    "#festival": ["scene", "actor"],
    "#lullaby": ["baby", "sleep"],
    "#stroll": ["baby", "pram"],
    "#nappies": ["nappy", "baby"],
    "#lunch": ["soup", "salad"],
}
_FILLERS = ["today", "again", "what", "a", "never", "seen", "such"]


def actions(seed: int = 7) -> Iterator[dict[str, Any]]:
    """Yield actions. From the twelfth minute on, a goal is scored in the final; in the twentieth, a trailer appears."""
    dice = random.Random(seed)  # noqa: S311 - made-up events
    arriving = []
    for minute in range(MINUTES):
        bursts = ["#final"] * (12 <= minute < 18) * 90 + ["#sequel"] * (20 <= minute < 23) * 70
        for event in dice.choices(list(_EVENTS), k=ACTIONS) + bursts:
            at = START_MS + minute * 60_000 + dice.randrange(60_000)
            kind = "post" if dice.random() < 0.6 else dice.choice(["like", "share"])
            words = dice.sample(_EVENTS[event], k=dice.randrange(1, len(_EVENTS[event]) + 1))
            text = " ".join(dice.sample([*words, *dice.sample(_FILLERS, k=3)], k=len(words) + 3))
            action = {
                "event_time": at,
                "author": f"author-{dice.randrange(500)}",
                "event_type": kind,
                "event": event,
                "dim_id": f"page-{dice.randrange(40)}",
                "text": text,
            }
            arriving.append((at + dice.randrange(LATE_MS), action))
    arriving.sort(key=lambda pair: pair[0])
    yield from (action for _, action in arriving)


if __name__ == "__main__":
    for each in actions():
        sys.stdout.write(json.dumps(each) + "\n")
