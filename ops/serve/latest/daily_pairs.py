"""The pairs of a warehouse table's newest complete day.

newest complete day --load, in a thread--> a new database --swap--> requests, in the server's thread; the database of the earlier day is removed

A request reads one database, so it never mixes days. After a restart, the last loaded day is served at once.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from threading import Lock
from typing import cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from rocksdict import Options, Rdict, WriteBatch

from ....processors import BackgroundThread, PenstockError, counted
from ....state.files import make_private_folder, replace_file
from ...deploy import LOADED, LoadedDay, loaded_day
from ...shell import MachineClock
from .days import DailyTable, Day, DaysUnreadable, TableDays
from .pairs import NotServed
from .table import Pair, join_key

_LOG = logging.getLogger("penstock.laser")
LOOK_EVERY_S = 60.0
"""The interval between looks for a new day."""
_LOOKS = 2
"""The looks without a folder after which a day counts as removed: a job that writes it again may remove it for a moment."""
BATCH_ROWS = 20_000
_COPY = "reading.parquet"
"""The copy of a warehouse's file while it is read."""
EVENT_TIME = "_event_time"
"""The column of an archive with the event time, by which the last row of a key is chosen."""
_decode = msgspec.msgpack.Decoder(Pair).decode
_encode = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder(enc_hook=str).encode


class DailyPairs:
    """Serves the newest complete day of a table. Start it, and close it.

    Args:
        table: the table.
        folder: contains its databases.
        look_every_s: the interval between looks for a new day.
        clock: the wall clock; days after tomorrow are not served.
    """

    def __init__(
        self, table: DailyTable, folder: Path, look_every_s: float = LOOK_EVERY_S, clock: MachineClock | None = None
    ) -> None:
        self.problem = ""
        """Why no newer day is served; empty without a reason."""
        self._table = table
        self._folder = folder
        self._look_every_s = look_every_s
        self._days = TableDays(table.files, clock)
        self._lock = Lock()
        self._database: Rdict | None = None
        self._loaded: LoadedDay | None = None
        self._looks_without = 0  # in a row, at which the served day had no folder
        self._thread = BackgroundThread("laser-days", self._run)

    def start(self) -> None:
        """Serve the last loaded day, and look for new ones in a thread.

        Raises:
            OSError: the folder cannot be written.
        """
        make_private_folder(self._folder)
        loaded = loaded_day(self._folder)
        if loaded is not None and (loaded.key, loaded.value) == (self._table.key, self._table.value):
            with suppress(OSError):
                self._database, self._loaded = _opened(self._folder / loaded.folder), loaded
        self._thread.start()

    def close(self) -> None:
        """Stop looking, and close the database."""
        self._thread.close()
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None

    def _run(self) -> None:
        while not self._thread.is_closed:
            try:
                self.load_newest()
                self.problem = self._skipped()
            except (PenstockError, OSError, pa.ArrowException) as error:
                self.problem = str(error)
                _LOG.warning("Table %s stays at its day. %s", self._table.name, error)
            except Exception as error:  # noqa: BLE001 - without this thread, the table would stay at its day for ever
                self.problem = (
                    f"A later day cannot be loaded: {type(error).__name__}: {error}. The last day is still served."
                )
                _LOG.exception("Table %s stays at its day, and the load is repeated.", self._table.name)
            self._thread.wait(self._look_every_s if self._loaded else min(1.0, self._look_every_s))

    def _skipped(self) -> str:
        if not self._days.skipped:
            return ""
        return f"{', '.join(self._days.skipped)} in {self._table.files.location} is no day until tomorrow and is not served. Correct the name or remove the folder."

    def load_newest(self) -> None:
        """Load the newest complete day, if another one is served, and serve it: an earlier one if the folder of the served one was removed.

        Raises:
            DaysUnreadable: the days, or the columns of one, cannot be read.
        """
        day = self._days.newest()
        self._looks_without = self._looks_without + 1 if self._loaded and not self._days.has(self._loaded.day) else 0
        if day is None or (self._loaded and (self._loaded.day, self._loaded.listing) == (day.name, day.listing)):
            return
        if self._loaded is not None and day.name < self._loaded.day:
            if self._looks_without < _LOOKS:
                return  # it is written again, or is about to be
            _LOG.warning(
                "Table %s returns to day %s: day %s was removed.", self._table.name, day.name, self._loaded.day
            )
        # A day that is written again gets another folder, since its earlier database is still read.
        served = "" if self._loaded is None else self._loaded.folder
        name = next(name for name in (day.name, f"{day.name}-again") if name != served)
        target = self._folder / name
        shutil.rmtree(target, ignore_errors=True)
        database = _opened(target)
        try:
            rows, is_text = self._write(database, day)
            self._expect_unchanged(day)
        except (OverflowError, ValueError) as error:
            database.close()
            shutil.rmtree(target, ignore_errors=True)
            raise DaysUnreadable(
                f"Day {day.name} in {self._table.files.location} contains a value that Python does not have, such as a date after the year 9999: {error}. "
                "The last day is still served. Correct the day; it is read again at the next look."
            ) from error
        except BaseException:
            database.close()
            shutil.rmtree(target, ignore_errors=True)
            raise
        loaded = LoadedDay(day.name, name, dict(day.listing), self._table.key, self._table.value, is_text)
        replace_file(self._folder / LOADED, msgspec.json.encode(loaded))
        with self._lock:
            former, self._database, self._loaded = self._database, database, loaded
            if former is not None:
                former.close()
        for path in self._folder.iterdir():
            if path.is_dir() and path != target:
                shutil.rmtree(path, ignore_errors=True)
        _LOG.info("Table %s is at day %s: %s.", self._table.name, day.name, counted(rows, "row"))

    def _expect_unchanged(self, day: Day) -> None:
        if not self._days.is_unchanged(day):
            raise DaysUnreadable(
                f"Day {day.name} in {self._table.files.location} was written again while it was read. The last day is still served. The new files "
                "are read at the next look."
            )

    def _write(self, database: Rdict, day: Day) -> tuple[int, bool]:
        """Write the pairs of a day; return the number of rows, and whether values are texts.

        Of several rows of a key, the last one counts: by event time if the table has it, else by file and row.
        """
        rows, is_text = 0, False
        for table in self._batches(day):
            is_text = len(self._table.value) == 1 and _is_text(table.column(self._table.value[0]).type)
            times = (
                table.column(EVENT_TIME).to_pylist()
                if EVENT_TIME in table.column_names
                else range(rows, rows + len(table))
            )
            newest: dict[bytes, Pair] = {}
            for key, value, at in zip(self._keys(table, day), self._values(table), times, strict=True):
                pair = Pair(value, cast("int", at or 0))
                if key is not None and (key not in newest or newest[key].at <= pair.at):
                    newest[key] = pair
            saved = cast("list[bytes | None]", database.get(list(newest))) if newest else []
            batch = WriteBatch(raw_mode=True)
            for (key, pair), earlier in zip(newest.items(), saved, strict=True):
                if earlier is None or _decode(earlier).at <= pair.at:
                    batch.put(key, _encode(pair))
            database.write(batch)
            rows += len(table)
        database.flush()  # to files, so that no crash after the swap loses a pair
        return rows, is_text

    def _batches(self, day: Day) -> Iterator[pa.Table]:
        columns = [*dict.fromkeys([*self._table.key, *self._table.value])]
        for path in day.listing:
            with self._copied(path) as copy, pq.ParquetFile(copy) as file:
                present = file.schema_arrow.names
                missing = [column for column in columns if column not in present]
                if missing:
                    raise DaysUnreadable(
                        f"{path} in {self._table.files.location} has no column {', '.join(map(repr, missing))}; it has: {', '.join(present)}. The last "
                        "day is still served. Name other columns with --key and --value, or correct the file."
                    )
                wanted = [*columns, *([EVENT_TIME] if EVENT_TIME in present else [])]
                for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
                    yield pa.Table.from_batches([batch])

    @contextmanager
    def _copied(self, path: str) -> Iterator[Path]:
        """Copy a file for the block: Parquet is read from its end, and the warehouse may be far away."""
        copy = self._folder / _COPY
        try:
            with copy.open("wb") as out:
                out.writelines(self._table.files.read(path))
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def _keys(self, table: pa.Table, day: Day) -> Iterator[bytes | None]:
        """Yield the key of each row; None for a row whose key has a NULL."""
        columns = [table.column(name) for name in self._table.key]
        for name, column in zip(self._table.key, columns, strict=True):
            if not (_is_text(column.type) or pa.types.is_integer(column.type)):
                raise DaysUnreadable(
                    f"Column {name!r} of day {day.name} in {self._table.files.location} has the type {column.type}, so it cannot be part of a key. The last "
                    "day is still served. Name columns of texts or whole numbers with --key."
                )
        for values in zip(*(column.to_pylist() for column in columns), strict=True):
            if None in values:
                yield None
            else:
                texts = [str(value) for value in values]
                yield (texts[0] if len(texts) == 1 else join_key(texts)).encode()

    def _values(self, table: pa.Table) -> Iterator[bytes]:
        names = self._table.value
        for values in zip(*(table.column(name).to_pylist() for name in names), strict=True):
            if len(names) > 1:
                yield _to_json(dict(zip(names, values, strict=True)))
            else:
                yield values[0].encode() if isinstance(values[0], str) else _to_json(values[0])

    @property
    def day(self) -> str | None:
        """The day that is served; None before the first."""
        return None if self._loaded is None else self._loaded.day

    @property
    def is_complete(self) -> bool:
        """Whether a day is served."""
        return self._database is not None

    @property
    def is_text(self) -> bool:
        """Whether values are texts; otherwise they are JSON."""
        return self._loaded is not None and self._loaded.is_text

    def fetch(self, keys: Sequence[bytes]) -> list[Pair | None]:
        """Return the pair of each key, all of one day.

        Raises:
            NotServed: no day is loaded.
        """
        with self._lock:
            saved = cast("list[bytes | None]", self._opened().get(list(keys)))
        return [None if each is None else _decode(each) for each in saved]

    def scan(self, number: int, start: bytes, limit: int) -> tuple[list[bytes], tuple[int, bytes] | None]:
        """Return keys from `start` on, and where to go on. The number of a scan is its day, since all of its keys are of one day.

        Raises:
            NotServed: no day is loaded, or the scan began on an earlier day.
        """
        with self._lock:
            database, ordinal = self._opened(), date.fromisoformat(self.day or "").toordinal()
            if number not in (0, ordinal):
                raise NotServed("the table has a new day since this scan began; start again at cursor 0")
            found: list[bytes] = []
            for key in cast("Iterator[bytes]", database.keys(from_key=start or None)):
                found.append(key)
                if len(found) == limit:
                    return found, (ordinal, key + b"\x00")
        return found, None

    def remaining_ms(self, pair: Pair) -> int | None:  # noqa: ARG002 - pairs end with their day
        """Return None: pairs are served until the next day."""
        return None

    def events_behind(self) -> int:
        """Return 0: a day is complete.

        Raises:
            NotServed: no day is loaded.
        """
        with self._lock:
            self._opened()
        return 0

    def _opened(self) -> Rdict:
        if self._database is None:
            raise NotServed(f"{self._table.name} has no complete day yet{': ' + self.problem if self.problem else ''}")
        return self._database


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(plain) or pa.types.is_large_string(plain)


def _opened(folder: Path) -> Rdict:
    return Rdict(str(folder), Options(raw_mode=True))
