"""Apps: the processors that one file declares, and the order in which data passes through them."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from zlib import crc32

from ..errors import AppFileError, DeclarationError, PenstockError
from ..validation import is_class
from .alerts import Alert
from .categories import AnyCategory
from .processor import Processor

_PREFIX = "penstock_app_"


@dataclass(frozen=True)
class App:
    """The processors of one app file, checked, in the order in which data passes through them.

    Args:
        name: the app file's name without its ending.
        processors: upstream ones first.
        alerts: what its file wants to be told of.
    """

    name: str
    processors: tuple[type[Processor], ...]
    alerts: tuple[Alert, ...] = ()

    @staticmethod
    def of(name: str, processors: Iterable[type[Processor]]) -> App:
        """Check the processors and put them in order.

        Raises:
            DeclarationError: a processor that cannot work, two of one name, two different declarations of one
                category, or a circle.
        """
        given = list(processors)
        for processor in given:
            processor.check()
        _refuse_twins(given)
        writers: dict[str, list[type[Processor]]] = {}
        for processor in given:
            for category in processor.outputs():
                writers.setdefault(category.name, []).append(processor)
        upstream = {
            processor: [writer for category in processor.inputs() for writer in writers.get(category.name, [])]
            for processor in given
        }
        try:
            return App(name, tuple(TopologicalSorter(upstream).static_order()))
        except CycleError as error:
            circle = " -> ".join(processor.__name__ for processor in error.args[1])
            raise DeclarationError(f"The processors of {name} feed one another in a circle: {circle}.") from error

    def categories(self) -> list[AnyCategory]:
        """Return every category that is read or written, upstream ones first."""
        named = {c.name: c for processor in self.processors for c in (*processor.inputs(), *processor.outputs())}
        return list(named.values())

    def processor(self, name: str) -> type[Processor]:
        """Return a processor by its class's name or its own.

        Raises:
            AppFileError: there is none of that name.
        """
        for processor in self.processors:
            if name in (processor.__name__, processor.name):
                return processor
        names = ", ".join(processor.__name__ for processor in self.processors)
        raise AppFileError(f"There is no processor {name!r} in app {self.name}. It has: {names}.")


def _refuse_twins(processors: list[type[Processor]]) -> None:
    names: dict[str, type[Processor]] = {}
    categories: dict[str, AnyCategory] = {}
    for processor in processors:
        twin = names.setdefault(processor.name, processor)
        if twin is not processor:
            raise DeclarationError(
                f"Processors {twin.__name__} and {processor.__name__} are both called {processor.name!r} on the bus, "
                "where they would share their positions. Give one of them another `name`."
            )
        for category in (*processor.inputs(), *processor.outputs()):
            other = categories.setdefault(category.name, category)
            if other is not category and _shape(other) != _shape(category):
                raise DeclarationError(
                    f"Category {category.name} is declared twice, with different records, keys or buckets: declare it "
                    "once and import it."
                )


def _shape(category: AnyCategory) -> tuple[object, ...]:
    return (category.record, category.key, category.event_time, category.buckets, category.codec)


@dataclass(frozen=True)
class AppName:
    """Where an app is: a file, or a file and one processor of it, written ``path/app.py:Processor``."""

    path: Path
    processor: str | None = None

    @staticmethod
    def parse(text: str) -> AppName:
        """Read what a user typed."""
        path, _, processor = text.partition(":")
        return AppName(Path(path), processor or None)

    def load(self) -> App:
        """Import the file and return its app, or the app of the one processor that is named.

        Raises:
            AppFileError: the file is missing, does not import, declares no processor, or not the one named.
            DeclarationError: what it declares cannot work.
        """
        module = imported(self.path)
        app = replace(App.of(self.path.stem, processors_in(module)), alerts=alerts_in(module))
        if not app.processors:
            raise AppFileError(
                f"{self.path} declares no processor: derive a class from penstock.Stateless, Stateful or Aggregator."
            )
        return app if self.processor is None else replace(app, processors=(app.processor(self.processor),))

    def __str__(self) -> str:
        return f"{self.path}:{self.processor}" if self.processor else str(self.path)


def load_app(path: str | Path) -> App:
    """Import an app file and return its app; for tests, which may be anywhere.

    Raises:
        AppFileError: the file is missing, does not import or declares no processor.
        DeclarationError: what it declares cannot work.
    """
    return AppName(Path(path)).load()


def processors_in(module: ModuleType) -> list[type[Processor]]:
    """Return the concrete processors that a module itself declares."""
    return [
        member
        for member in vars(module).values()
        if is_class(member)
        and issubclass(member, Processor)
        and member.__module__ == module.__name__
        and not inspect.isabstract(member)
    ]


def alerts_in(module: ModuleType) -> tuple[Alert, ...]:
    """Return the alerts that a module has at its top level, by themselves or in lists and tuples."""
    found: dict[Alert, None] = {}
    for member in vars(module).values():
        several = member if isinstance(member, (list, tuple)) else [member]
        found |= dict.fromkeys(one for one in several if isinstance(one, Alert))
    return tuple(found)


def is_app(module: ModuleType) -> bool:
    """Tell whether a module is that of an app file."""
    return module.__name__.startswith(_PREFIX)


def imported(path: Path, what: str = "app file", example: str = "examples/flights/app.py") -> ModuleType:
    """Import a file as Python would run it: its folder can be imported from. One that has changed is imported anew.

    Args:
        path: the file.
        what: what a person calls it.
        example: how one may be called.

    Raises:
        AppFileError: it is missing, or does not import.
    """
    if not path.is_file():
        raise AppFileError(f"There is no {what} {path}. Give the path of a Python file, such as {example}.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"{_PREFIX}{path.stem}_{crc32(path.read_bytes(), crc32(str(path.resolve()).encode())):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppFileError(f"{path} is not a Python file: give one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise AppFileError(
            f"The {what} {path} cannot be imported: {where_in(path, error)}{type(error).__name__}: {error}. Nothing was "
            "started; mend the file and run the command again."
        ) from error
    return module


def where_in(path: Path, error: BaseException) -> str:
    """Return the last line of the user's file that an error passed through, as the beginning of what is said of it."""
    line = None
    if isinstance(error, SyntaxError) and error.lineno:
        line = error.lineno
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path.absolute():
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
