"""The categories of an app, and the creation of missing ones, for the commands that run apps."""

from __future__ import annotations

from collections.abc import Collection

from ....processors import counted, did_you_mean
from ....processors.apps import AppName
from ....processors.declare import dead_letters_of, plan_of
from ....transport import Bus, CategoryExists, CategorySpec
from ...shell import note


def specs_of(name: AppName) -> list[CategorySpec]:
    """Return the specifications of an app's categories, with those of dead letters and of retries.

    Of a file without processors, they are all of its categories.
    """
    declared = name.load_declarations()
    letters = [dead_letters_of(processor) for processor in declared.processors]
    retries = [category for processor in declared.processors for category in plan_of(processor).retry_categories]
    return [CategorySpec.of(category) for category in (*declared.categories(), *letters, *retries)]


def missing_specs(bus: Bus, name: AppName) -> list[CategorySpec]:
    """Return the specifications of an app's categories that the bus does not have."""
    return _missing(name, set(bus.catalog.names()))


def create_missing(bus: Bus, name: AppName) -> None:
    """Create an app's missing categories and dead letter categories."""
    existing = set(bus.catalog.names())
    missing = _missing(name, existing)
    for spec in missing:
        _create(bus, spec)
    note_similar(name, missing, existing)


def note_similar(name: AppName, created: Collection[CategorySpec], existing: Collection[str]) -> None:
    """Note created inputs that are probably misspelled.

    Args:
        name: the app.
        created: the created categories.
        existing: the names of the categories that existed before.
    """
    processors = name.load_declarations().processors
    written = {category.name for processor in processors for category in plan_of(processor).outputs}
    external = {category.name for processor in processors for category in plan_of(processor).inputs} - written
    for spec in created:
        if spec.name in external and (similar := did_you_mean(spec.name, existing)):
            note(f"{spec.name} is empty: no processor of the app writes it.{similar}")


def _missing(name: AppName, existing: Collection[str]) -> list[CategorySpec]:
    return [spec for spec in specs_of(name) if spec.name not in existing]


def _create(bus: Bus, spec: CategorySpec) -> None:
    try:
        bus.catalog.create(spec)
    except CategoryExists:
        return  # another process has created it
    note(f"Created category {spec.name} with {counted(spec.buckets, 'bucket')}.")
