"""Apps: the processors of an app file, in topological order."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from ..declare import Alert, AnyCategory, Category, Processor, in_phases, misspelled_methods, plan_of
from ..errors import AppFileError, DeclarationError
from ..validation import did_you_mean, is_class
from .app_modules import APPLICATION_NAME, CLONE_MARK, SQL_SUFFIX, file_of, imported, split_clone
from .clones import cloned
from .loops import Loop, in_topological_order, loops_of


@dataclass(frozen=True)
class App:
    """The validated processors and alerts of an app file.

    Args:
        name: the name of the file without its extension, or the name in CREATE APPLICATION.
        processors: the processors, upstream ones first.
        alerts: the alert rules.
        loops: the loops, also those of which `processors` contains only a part.
        other_categories: categories of the file that no processor reads or writes; only of `AppName.load_declarations`.
    """

    name: str
    processors: tuple[type[Processor], ...]
    alerts: tuple[Alert, ...] = ()
    loops: tuple[Loop, ...] = ()
    other_categories: tuple[AnyCategory, ...] = ()

    @staticmethod
    def of(name: str, processors: Iterable[type[Processor]]) -> App:
        """Validate the processors and sort them topologically. An aggregator in two phases is two processors. Each learns which inputs others write.

        Raises:
            DeclarationError: a processor cannot work; two processors have one name; a category has two different declarations; or the
                processors form a loop that is not declared, or cannot work.
        """
        given = list(processors)
        for processor in given:
            plan_of(processor).check()
        given = in_phases(given)
        _expect_unique(given)
        ordered = in_topological_order(name, given)
        for processor in ordered:
            plan_of(processor).set_app(ordered)
        return App(name, tuple(ordered), loops=loops_of(ordered))

    def loop_of(self, processor: type[Processor]) -> Loop | None:
        """Return the loop that a processor is a member of; None without one."""
        return next((loop for loop in self.loops if processor in loop.members), None)

    def categories(self) -> list[AnyCategory]:
        """Return all input, side input and output categories, upstream ones first; without processors, the other categories."""
        if not self.processors:
            return list(self.other_categories)
        named = {
            category.name: category
            for processor in self.processors
            for category in (*plan_of(processor).sources, *plan_of(processor).side_inputs, *plan_of(processor).outputs)
        }
        return list(named.values())

    def declared_categories(self) -> dict[str, AnyCategory]:
        """Return the categories of the processors and the other ones, by name."""
        return {category.name: category for category in (*self.other_categories, *self.categories())}

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
        raise AppFileError(
            f"App {self.name} has no processor {name!r}.", f"It has: {names}.{did_you_mean(name, known)}"
        )


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
        for category in (*plan_of(processor).sources, *plan_of(processor).outputs):
            other = categories.setdefault(category.name, category)
            if other is not category and _shape(other) != _shape(category):
                raise DeclarationError(
                    f"Category {category.name} is declared twice, with different records, keys, buckets, partitioners or clusters. Declare "
                    "it once and import it."
                )


def _shape(category: AnyCategory) -> tuple[object, ...]:
    return (category.record, category.key, category.event_time, category.codec, category.partitioning, category.cluster)


@dataclass(frozen=True)
class AppName:
    """The location of an app: a file, or one processor of it as `shop/app.py:Processor`; of a clone, `shop/app.py@staging:Processor`."""

    path: Path
    processor: str | None = None
    clone: str | None = None

    @staticmethod
    def parse(text: str) -> AppName:
        """Parse a command-line argument: a file or a module, and perhaps a processor, as `shop/app.py` or `shop.app:Processor`.

        Raises:
            AppFileError: no module has this name, or the text is not of this form.
        """
        named, _, processor = text.partition(":")
        if not named or ":" in processor:
            intended = f"{named or 'app.py'}:{processor.strip(':')}"
            raise AppFileError(
                f"{text} is not the name of an app or a processor.", f"Write APP:PROCESSOR: `{intended}`."
            )
        app, clone = split_clone(named)
        return AppName(file_of(app), processor or None, clone)

    @staticmethod
    def of_processor(processor: type[Processor]) -> AppName:
        """Return the app that declares a processor, for a command to copy: relative to the working folder if it is below."""
        path = Path(str(getattr(sys.modules.get(processor.__module__), "__file__", None) or "APP.py"))
        clone = None if processor.cloned_from is None else processor.name.partition(".")[0]
        return AppName(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path, None, clone)

    @property
    def whole(self) -> AppName:
        """The name of the app with all of its processors."""
        return replace(self, processor=None)

    def of(self, processor: type[Processor]) -> AppName:
        """Return the name of one processor of the app."""
        return replace(self, processor=processor.__name__)

    def load(self) -> App:
        """Import the file and return its app, restricted to the named processor if there is one.

        Raises:
            AppFileError: the file is missing, does not import, or does not declare the processor.
            DeclarationError: a declaration cannot work.
        """
        module, app = self._imported()
        expect_processors(app, self.path, _imported_processors(module))
        if self.clone is not None:
            app = App.of(f"{app.name}{CLONE_MARK}{self.clone}", cloned(app.processors, self.clone))
        return app if self.processor is None else replace(app, processors=(app.processor(self.processor),))

    def load_declarations(self) -> App:
        """Return the app with its other categories. A whole app without processors may declare only categories.

        Raises:
            AppFileError: the file is missing, does not import, or declares neither a processor nor a category.
            DeclarationError: a declaration cannot work.
        """
        module, app = self._imported()
        others = tuple(member for member in vars(module).values() if isinstance(member, Category))
        if self.clone is not None or self.processor is not None or not (app.processors or others):
            return self.load()
        return replace(app, other_categories=others)

    def _imported(self) -> tuple[ModuleType, App]:
        module = imported(self.path)
        _expect_complete(module)
        name = getattr(module, APPLICATION_NAME, None) or self.path.stem
        return module, replace(App.of(name, processors_in(module)), alerts=alerts_in(module))

    def __str__(self) -> str:
        app = f"{self.path}{CLONE_MARK}{self.clone}" if self.clone else str(self.path)
        return f"{app}:{self.processor}" if self.processor else app


def expect_processors(app: App, path: Path, elsewhere: str = "") -> None:
    """Raise AppFileError if an app has no processor.

    Args:
        app: the app.
        path: its file.
        elsewhere: where it may be declared instead, to append to the error.
    """
    if not app.processors:
        how = (
            "Add a query: CREATE TABLE name AS SELECT …"
            if path.suffix == SQL_SUFFIX
            else f"Derive a class from penstock.Stateless, Stateful or Aggregator{elsewhere}."
        )
        raise AppFileError(f"{path} declares no processor.", how)


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


def _imported_processors(module: ModuleType) -> str:
    """Return the modules from which a module imports processors, to append to an error; empty if it imports none."""
    found = {
        member.__module__: None
        for member in vars(module).values()
        if is_class(member) and issubclass(member, Processor) and not inspect.isabstract(member)
    }
    return f", or name the module that declares the processors: {', '.join(found)}" if found else ""


def _expect_complete(module: ModuleType) -> None:
    """Raise DeclarationError for a processor that lacks a method, such as one with a misspelled name. Base classes of others may lack some."""
    for member in vars(module).values():
        if is_class(member) and issubclass(member, Processor) and member.__module__ == module.__name__:
            misspelled = misspelled_methods(member)
            if misspelled or (inspect.isabstract(member) and _reads(member) and not member.__subclasses__()):
                missing = ", ".join(sorted(getattr(member, "__abstractmethods__", ())))
                raise DeclarationError(
                    f"Processor {member.__name__} does not define `{missing}`. Nothing was read. {misspelled or 'Define it, or remove the class.'}"
                )


def _reads(processor: type[Processor]) -> bool:
    """Return whether a class declares an input."""
    return any(hasattr(processor, name) for name in ("reads", "left", "right", "stream", "table"))


def alerts_in(module: ModuleType) -> tuple[Alert, ...]:
    """Return the top-level alerts of a module, including alerts in lists and tuples."""
    found: dict[Alert, None] = {}
    for member in vars(module).values():
        several = member if isinstance(member, (list, tuple)) else [member]
        found |= dict.fromkeys(one for one in several if isinstance(one, Alert))
    return tuple(found)
