"""What the trending example must answer, worked out from its actions in another way.

Polars filters, joins and counts whole columns; scores come from arrays of minutes. Nothing here is shared with the example's processors or with
Penstock, so that they cannot be wrong together.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

MINUTE, WINDOW = 60_000, 300_000
TOPICS = {
    "goal": "sports",
    "match": "sports",
    "team": "sports",
    "coach": "sports",
    "film": "movies",
    "actor": "movies",
    "scene": "movies",
    "trailer": "movies",
    "baby": "babies",
    "nappy": "babies",
    "sleep": "babies",
    "pram": "babies",
}
BEST, LATEST = 3, 10_000


def answer(actions: Iterable[dict[str, Any]], pages: Path) -> list[tuple[int, str, str, int]]:
    """Return the window, topic, event and score of each ranked event, from the windows that the watermark has passed."""
    table = pl.DataFrame(list(actions))
    # Every author's bucket has actions up to the last second or so; the last complete minute ends long before.
    passed = int(table["event_time"].max()) - LATEST  # type: ignore[arg-type]  # an int
    posts = (
        table.filter(pl.col("event_type") == "post")
        .join(pl.read_csv(pages), on="dim_id")
        .filter(pl.col("language") == "en")
        .with_columns(
            topic=pl.col("text")
            .str.split(" ")
            .list.eval(pl.element().replace_strict(TOPICS, default=None).drop_nulls())
            .list.first()
        )
        .drop_nulls("topic")
    )
    scores = []
    for (topic, event), of_event in posts.group_by("topic", "event"):
        minutes = (of_event["event_time"] // MINUTE).to_list()
        counts = [minutes.count(minute) for minute in range(min(minutes), passed // MINUTE)]
        average = 0
        for at, count in enumerate(counts):
            recent = sum(counts[max(at - 4, 0) : at + 1])
            score = 100_000 * recent // (5_000 + 5 * average)
            scores.append(((min(minutes) + at) * MINUTE // WINDOW * WINDOW, topic, event, score))
            average = (9 * average + 1_000 * count) // 10
    summed = pl.DataFrame(scores, ["window", "topic", "event", "score"], orient="row").filter(
        pl.col("window") + WINDOW <= passed // MINUTE * MINUTE
    )
    ranked = (
        summed.group_by("window", "topic", "event")
        .agg(pl.col("score").sum())
        .filter(pl.col("score").rank("ordinal", descending=True).over("window", "topic") <= BEST)
    )
    return sorted(ranked.iter_rows())
