"""The kind that combines observations, for each key and window."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import DeclarationError
from ..monoids import Monoid
from ..time.watermarks import NEVER_MS
from ..time.windows import GlobalWindow, Session, Sliding, Window, WindowAssigner
from .categories import AnyCategory
from .emission import AtCheckpoint, AtWatermark, Emission, OnLate
from .processor import KeyedProcessor, as_tuple, expect_columns, expect_lateness, key_name
from .records import Record, fields_of
from .semantics import expect_pair
from .stores import LocalStore, RemoteStore, WriteMode

if TYPE_CHECKING:
    import pyarrow as pa


class Aggregator(KeyedProcessor):
    """Monoid processor: observations of events, combined per key and window.

    What it writes are updates, when `emit` says: the last record of one key and event time is the one that counts. Where `emit`
    asks for differences, all of them together are.

    Class attributes:
        monoid: how observations combine.
        window: the windows of event time; by default one that never ends.
        emit: when a window's result is written: `AtCheckpoint()`, or `AtWatermark()` when it is complete.
        late: what becomes of events that come when their windows are done: `OnLate.INTO_WINDOW`, where they never are;
            `OnLate.DROP`; or a category of the input's record type, to which they go.
        allowed_lateness: how long after a window is complete it still takes events, in event time.
        store: where its state is kept, `LocalStore()` or `RemoteStore(…)`.
        estimates: for a monoid that is made of several, which fields of its records are estimates of which, such as
            `{"visitors": penstock.monoids.Distinct()}`: `penstock compare` says whether differences lie within the errors they state. Where the
            monoid itself is a sketch, that is known.
        columns: which fields of its input `observe_columns` looks at, beside the key and the event time; by default all. Others are not
            read from the warehouse.
    """

    monoid: ClassVar[Monoid[Any]]
    window: ClassVar[WindowAssigner] = GlobalWindow()
    emit: ClassVar[Emission] = AtCheckpoint()
    late: ClassVar[OnLate | AnyCategory] = OnLate.INTO_WINDOW
    allowed_lateness: ClassVar[timedelta] = timedelta()
    store: ClassVar[LocalStore | RemoteStore] = LocalStore()
    estimates: ClassVar[Mapping[str, Monoid[Any]]] = {}
    columns: ClassVar[tuple[str, ...] | None] = None

    @classmethod
    def output_watermark_ms(cls, low_ms: int) -> int:
        """Return where the earliest window begins that is not complete: all that it writes lies in its window.

        Windows that follow events have no such beginning: results of sessions are taken to have their ends as event times, those of
        sliding windows the time of the last event; if not, declare `max_output_delay`.
        """
        if low_ms == NEVER_MS or cls.windows_follow_events():
            return super().output_watermark_ms(low_ms)
        return super().output_watermark_ms(min(cls.window.assign([low_ms]).starts))

    @classmethod
    def checks_keys(cls) -> bool:
        """Whether events are to lie in the bucket of their key; a store that merges what it is sent takes them from any."""
        return super().checks_keys() and cls.store != RemoteStore(WriteMode.APPEND)

    @classmethod
    def uses_event_time(cls) -> bool:
        """Whether its windows are ever complete or done."""
        return cls.windows_end()

    @classmethod
    def emits_without_input(cls) -> bool:
        """Whether its windows are ever complete or done."""
        return cls.windows_end()

    @classmethod
    def windows_follow_events(cls) -> bool:
        """Whether the events of a key say which windows there are, and not time alone."""
        return isinstance(cls.window, (Session, Sliding))

    @classmethod
    def windows_end(cls) -> bool:
        """Whether its windows are ever complete or done."""
        return (
            cls.windows_follow_events()
            or isinstance(cls.emit, AtWatermark)
            or cls.late is not OnLate.INTO_WINDOW
            or cls.emit.differences
        )

    def observe(self, event: Any) -> Any:
        """Return what the event adds, as the monoid's `lift` takes it; None where it adds nothing.

        By default the event itself.
        """
        return event

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        """Return what each of many events adds: for backfills, which take it in place of `observe` where a class defines it.

        An observation for each event, null where it adds nothing: numbers and text as they are, tuples as structs, dicts as maps. The beginning
        of each task is tried in both ways. No event may raise in it. The category's key is a field then, not a function.

        Args:
            events: a column for each field, or for those in `columns`.
        """
        raise DeclarationError(
            f"Aggregator {type(self).__name__} has no `observe_columns` (asked for {events.num_rows} events)."
        )

    @classmethod
    def has_columns_step(cls) -> bool:
        """Whether it defines `observe_columns`."""
        return cls.observe_columns is not Aggregator.observe_columns

    def result(self, key: str, window: Window, value: Any) -> Record | None:
        """Return the record to write for a key and window, or None for no record.

        Args:
            key: the key.
            window: the window; give the record an event time that lies in it.
            value: the monoid's value of all observations so far.
        """
        raise DeclarationError(
            f"Aggregator {type(self).__name__} writes {type(self).writes!r} but has no `result` (asked for {key!r}, "
            f"{window}, {value!r}): define it, or declare `writes = ()`."
        )

    @classmethod
    def state_shape(cls) -> str:
        """Return the monoid, the windows, and what the key is."""
        what = f"{cls.monoid!r} in {cls.window!r} by {key_name(cls)}"
        return f"{what}, not yet written" if cls.emit.differences else what

    @classmethod
    def check(cls) -> None:
        """Also: semantics that go together, a monoid, windows, and a result where there is output."""
        super().check()
        expect_pair(f"Aggregator {cls.__name__}", cls.state_semantics, cls.output_semantics)
        if not isinstance(getattr(cls, "monoid", None), Monoid):
            raise DeclarationError(
                f"Aggregator {cls.__name__}: declare `monoid = …`, such as `penstock.monoids.Count()`."
            )
        if cls.writes and cls.result is Aggregator.result:
            raise DeclarationError(
                f"Aggregator {cls.__name__} writes {as_tuple(cls.writes)[0].name} but does not say what: define "
                "`result(self, key, window, value)`."
            )
        if len(as_tuple(cls.writes)) > 1:
            raise DeclarationError(f"Aggregator {cls.__name__}: its results go to one category, not to several.")
        if cls.writes and cls.store == RemoteStore(WriteMode.APPEND):
            raise DeclarationError(
                f"Aggregator {cls.__name__} writes its results to {as_tuple(cls.writes)[0].name}, but appends to a remote store "
                "without reading it, so it never knows a result. Use Writing.READ_MERGE_WRITE, or declare `writes = ()` and ask the "
                "store with `penstock query`."
            )
        _check_ends(cls)
        _check_estimates(cls)
        if cls.has_columns_step():
            _check_columns(cls)


def _check_columns(cls: type[Aggregator]) -> None:
    """Raise DeclarationError where `observe_columns` is given no column that it could go by."""
    expect_columns(cls, "observe_columns", cls.columns)
    [category] = cls.inputs()
    if not isinstance(category.key, str):
        raise DeclarationError(
            f"Aggregator {cls.__name__} has `observe_columns`, but {category.name} is keyed by a function of whole records. Leave it out, or key "
            "the category by one of its fields."
        )


def _check_estimates(cls: type[Aggregator]) -> None:
    """Raise DeclarationError where an estimate is of no field, or of no monoid."""
    known = [name for category in as_tuple(cls.writes) for name in fields_of(category.record)]
    for name, monoid in cls.estimates.items():
        if name not in known or not isinstance(monoid, Monoid):
            raise DeclarationError(
                f"Aggregator {cls.__name__}: `estimates` gives {name!r} as {monoid!r}, but it takes fields of the records that are written "
                f"({', '.join(known) or 'none are'}), and for each the monoid it comes from, such as penstock.monoids.Distinct()."
            )


def _check_ends(cls: type[Aggregator]) -> None:
    """Raise DeclarationError where windows are to end that cannot, or events to be late that cannot be."""
    expect_lateness(cls, cls.allowed_lateness)
    if cls.late is OnLate.INTO_WINDOW and cls.allowed_lateness:
        raise DeclarationError(
            f"Aggregator {cls.__name__} allows a lateness of {cls.allowed_lateness}, but does not say what becomes of later events: "
            "declare `late = penstock.OnLate.DROP`, or a category that they go to. As it is, all go into their windows, however late."
        )
    if not cls.windows_end():
        return
    if isinstance(cls.window, GlobalWindow) and not cls.emit == AtCheckpoint(differences=True):
        raise DeclarationError(
            f"Aggregator {cls.__name__}: its one window holds all of time, so it is never complete and no event is late for it. "
            "Declare a `window`, such as penstock.windows.Tumbling(timedelta(hours=1))."
        )
    if isinstance(cls.store, RemoteStore):
        raise DeclarationError(
            f"Aggregator {cls.__name__}: windows end where one shard alone knows all of them, and a remote store is shared. Keep the "
            "state local, or leave `emit` and `late` as they are and ask the store for the window with `penstock query`."
        )
    if cls.windows_follow_events():
        _check_written_once(cls)
    if isinstance(cls.emit, AtWatermark) and not cls.writes:
        raise DeclarationError(f"Aggregator {cls.__name__} writes at the watermark, but no category: declare `writes`.")


def _check_written_once(cls: type[Aggregator]) -> None:
    """Raise DeclarationError where windows that follow events could not be written once and whole."""
    is_session = isinstance(cls.window, Session)
    if cls.emit != AtWatermark():
        why = (
            "how long a session is, and whether two are one, is known when it is complete"
            if is_session
            else "a sliding window lies before its last event, and what else lies there is known when it is complete"
        )
        raise DeclarationError(
            f"Aggregator {cls.__name__}: {why}. Declare `emit = penstock.AtWatermark()`, without early results and differences."
        )
    if cls.late is OnLate.INTO_WINDOW or cls.allowed_lateness:
        why = (
            "an event that comes when its session was written would make another of it, perhaps of two"
            if is_session
            else "an event that comes when its window was written would change that and all others that reach back to it"
        )
        raise DeclarationError(
            f"Aggregator {cls.__name__}: {why}. Declare `late = penstock.OnLate.DROP`, or a category that such events go to; to wait "
            "longer for them, a `watermark` that lies further behind."
        )
