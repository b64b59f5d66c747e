"""Apps: the processors of an app file, in topological order."""

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
from ..validation import did_you_mean, is_class
from .alerts import Alert
from .categories import AnyCategory
from .processor import Processor

_PREFIX = "penstock_app_"


@dataclass(frozen=True)
class App:
    """The validated processors and alerts of an app file.

    Args:
        name: the name of the file without its extension.
        processors: the processors, upstream ones first.
        alerts: the alert rules.
    """

    name: str
    processors: tuple[type[Processor], ...]
    alerts: tuple[Alert, ...] = ()

    @staticmethod
    def of(name: str, processors: Iterable[type[Processor]]) -> App:
        """Validate the processors and sort them topologically.

        Raises:
            DeclarationError: a processor cannot work; two processors have one name; a category has two different declarations; or the
                processors form a cycle.
        """
        given = list(processors)
        for processor in given:
            processor.check()
        _expect_unique(given)
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
            cycle = " -> ".join(processor.__name__ for processor in error.args[1])
            raise DeclarationError(
                f"The processors of {name} form a cycle: {cycle}. Remove one of these connections."
            ) from error

    def categories(self) -> list[AnyCategory]:
        """Return all input and output categories, upstream ones first."""
        named = {c.name: c for processor in self.processors for c in (*processor.inputs(), *processor.outputs())}
        return list(named.values())

    def processor(self, name: str) -> type[Processor]:
        """Return the processor with a class name or a declared name.

        Raises:
            AppFileError: the app has no such processor.
        """
        for processor in self.processors:
            if name in (processor.__name__, processor.name):
                return processor
        names = ", ".join(processor.__name__ for processor in self.processors)
        known = [known for processor in self.processors for known in (processor.__name__, processor.name)]
        raise AppFileError(f"App {self.name} has no processor {name!r}. It has: {names}.{did_you_mean(name, known)}")


def _expect_unique(processors: list[type[Processor]]) -> None:
    names: dict[str, type[Processor]] = {}
    categories: dict[str, AnyCategory] = {}
    for processor in processors:
        twin = names.setdefault(processor.name, processor)
        if twin is not processor:
            raise DeclarationError(
                f"Processors {twin.__name__} and {processor.__name__} have the same name {processor.name!r} on the bus and "
                "would share their positions. Declare another `name` for one of them."
            )
        for category in (*processor.inputs(), *processor.outputs()):
            other = categories.setdefault(category.name, category)
            if other is not category and _shape(other) != _shape(category):
                raise DeclarationError(
                    f"Category {category.name} is declared twice, with different records, keys, buckets or partitioners. Declare it "
                    "once and import it."
                )


def _shape(category: AnyCategory) -> tuple[object, ...]:
    return (category.record, category.key, category.event_time, category.codec, category.partitioning)


@dataclass(frozen=True)
class AppName:
    """The location of an app: a file, or one processor of it as `path/app.py:Processor`."""

    path: Path
    processor: str | None = None

    @staticmethod
    def parse(text: str) -> AppName:
        """Parse a command-line argument."""
        path, _, processor = text.partition(":")
        return AppName(Path(path), processor or None)

    def load(self) -> App:
        """Import the file and return its app, restricted to the named processor if there is one.

        Raises:
            AppFileError: the file is missing, does not import, or does not declare the processor.
            DeclarationError: a declaration cannot work.
        """
        module = imported(self.path)
        app = replace(App.of(self.path.stem, processors_in(module)), alerts=alerts_in(module))
        if not app.processors:
            raise AppFileError(
                f"{self.path} declares no processor. Derive a class from penstock.Stateless, Stateful or Aggregator."
            )
        return app if self.processor is None else replace(app, processors=(app.processor(self.processor),))

    def __str__(self) -> str:
        return f"{self.path}:{self.processor}" if self.processor else str(self.path)


def load_app(path: str | Path) -> App:
    """Import an app file from any folder and return its app, for tests.

    Raises:
        AppFileError: the file is missing, does not import, or declares no processor.
        DeclarationError: a declaration cannot work.
    """
    return AppName(Path(path)).load()


def processors_in(module: ModuleType) -> list[type[Processor]]:
    """Return the concrete processors that a module declares itself."""
    return [
        member
        for member in vars(module).values()
        if is_class(member)
        and issubclass(member, Processor)
        and member.__module__ == module.__name__
        and not inspect.isabstract(member)
    ]


def alerts_in(module: ModuleType) -> tuple[Alert, ...]:
    """Return the top-level alerts of a module, including alerts in lists and tuples."""
    found: dict[Alert, None] = {}
    for member in vars(module).values():
        several = member if isinstance(member, (list, tuple)) else [member]
        found |= dict.fromkeys(one for one in several if isinstance(one, Alert))
    return tuple(found)


def is_app(module: ModuleType) -> bool:
    """Return whether a module is an imported app file."""
    return module.__name__.startswith(_PREFIX)


def imported(path: Path, what: str = "app file", example: str = "examples/flights/app.py") -> ModuleType:
    """Import a Python file with its folder on the path. A changed file is imported again.

    Args:
        path: the file.
        what: what to call the file in errors.
        example: an example path for errors.

    Raises:
        AppFileError: the file is missing or does not import.
    """
    if not path.is_file():
        raise AppFileError(f"The {what} {path} does not exist. Give the path of a Python file, such as {example}.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"{_PREFIX}{path.stem}_{crc32(path.read_bytes(), crc32(str(path.resolve()).encode())):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppFileError(f"{path} is not a Python file. Give a file that ends in .py.")
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
            "started. Correct the file and run the command again."
        ) from error
    return module


def where_in(path: Path, error: BaseException) -> str:
    """Return the last line of the file in the traceback of an error, as the prefix of a message."""
    line = None
    if isinstance(error, SyntaxError) and error.lineno:
        line = error.lineno
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path.absolute():
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
