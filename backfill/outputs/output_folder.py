"""The output of a batch run: written aside, then moved to its place whole.

<output>/_aside-<run>/category=…/ds=…   while nodes write
<output>/category=…/ds=…                once the last node that writes the category has succeeded
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from ..errors import BackfillRefused
from ..spark.hadoop import Folders
from ..warehouse.columns import DAY_COLUMN
from ..warehouse.layout import Days, folder_of
from .stale_runs import ASIDE, RunOwner, clear_up, old_of, sign

_LOG = logging.getLogger("penstock.backfill")


class OutputFolder:
    """Where a batch run writes.

    Args:
        folders: the folders of its categories.
        overwrite: replace categories that are there.
        writer: who writes; None for this process.
    """

    def __init__(self, folders: Folders, *, overwrite: bool, writer: RunOwner | None = None) -> None:
        self._folders = folders
        self._overwrite = overwrite
        self._writer = writer or RunOwner.this()
        self._aside = f"{folders.root}/{ASIDE}{uuid4().hex}"
        self.published: set[str] = set()

    def begin(self, categories: Iterable[str]) -> None:
        """Clear up after runs that died here, see that nothing is overwritten unasked, and note who writes from now on.

        Raises:
            BackfillRefused: a category would be overwritten; nothing was started.
        """
        for said in clear_up(self._folders):
            _LOG.warning("%s", said)
        self._refuse_existing(categories)
        sign(self._folders, self._aside, self._writer)

    def _refuse_existing(self, categories: Iterable[str]) -> None:
        taken = [] if self._overwrite else [name for name in categories if self._folders.has(name)]
        if taken:
            raise BackfillRefused(
                f"{self._folders.root} has {', '.join(sorted(set(taken)))} already. Nothing was started and nothing "
                "changed. Choose another output folder, or ask to overwrite."
            )

    def add(self, frame: DataFrame, category: str) -> None:
        """Compute rows and write them aside, by day, beside what other nodes wrote of the same category.

        A day is written by one task, in one file: on local disk Hadoop starts a process for each file that it makes.
        """
        frame.repartition(DAY_COLUMN).write.mode("append").partitionBy(DAY_COLUMN).parquet(self.aside(category))

    def aside(self, category: str) -> str:
        """Return where a category lies until it is published."""
        return f"{self._aside}/{folder_of(category)}"

    def keep(self, category: str, days: Days) -> None:
        """Leave only some days of a category that is not published yet."""
        for name in self._folders.within(self.aside(category)):
            day = name.removeprefix(f"{DAY_COLUMN}=")
            if day != name and not str(days.first) <= day <= str(days.last):
                self._folders.remove(f"{self.aside(category)}/{name}")

    def publish(self, category: str) -> None:
        """Move a category to its place."""
        place = self._folders.of(category)
        if self._folders.has(category):
            self._folders.move(place, old_of(self._aside, category))
        self._folders.move(self.aside(category), place)
        self.published.add(category)

    def discard(self) -> None:
        """Remove what was not published, and what was replaced."""
        try:
            self._folders.remove(self._aside)
        except Py4JError:  # said beside the failure that led here, not instead of it
            _LOG.warning("%s could not be removed; readers pass over it, and it may be removed by hand", self._aside)
