"""Watermarks of a processor's inputs: one for all of them, or one for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from ..errors import DeclarationError
from ..time import Confidence, UpstreamWatermark, Watermark
from ..validation import fits, suggestion, type_in_words
from ..wording import as_code
from .categories import AnyCategory

Declared = Watermark | Mapping[AnyCategory, Watermark] | None
"""One watermark for all inputs, one for each of some inputs, or the default."""


def by_input(
    declared: Declared, inputs: Sequence[AnyCategory], written_in_app: Collection[str] = ()
) -> dict[str, Watermark]:
    """Return the watermark of each input by its name.

    Args:
        declared: the declaration.
        inputs: the inputs.
        written_in_app: the names of the categories that have the watermark of their writers if none is declared.
    """
    watermarks = {category.name: watermark for category, watermark in _for_each(declared, inputs).items()}
    defaults = {each.name: UpstreamWatermark() if each.name in written_in_app else Confidence() for each in inputs}
    return {name: watermarks.get(name, default) for name, default in defaults.items()}


def expect_watermarks(owner: str, declared: Declared, inputs: Sequence[AnyCategory]) -> None:
    """Raise DeclarationError for a watermark of a category that is no input, and for a value that is no watermark."""
    read = {category.name for category in inputs}
    for category, watermark in _for_each(declared, inputs).items():
        if getattr(category, "name", None) not in read:
            raise DeclarationError(
                f"Processor {owner} declares a `watermark` for {as_code(category)}, which is none of its inputs. Nothing was read. The keys of the dict "
                f"are categories that it reads: {', '.join(sorted(read))}."
            )
        if not fits(watermark, Watermark):
            raise DeclarationError(
                f"Processor {owner}: the watermark of {category.name} is {as_code(watermark)}. Nothing was read. Declare {type_in_words(Watermark)}."
                f"{suggestion(Watermark, watermark)}"
            )


def expect_silence(owner: str, close_after: timedelta | None, idle_after: timedelta | None) -> None:
    """Raise DeclarationError if inputs would have to be silent before they can be idle."""
    if close_after is not None and (idle_after is None or close_after < idle_after):
        raise DeclarationError(
            f"Processor {owner} declares `close_after_silence = {close_after}`, but its inputs count as silent after `idle_after = {idle_after}`. Nothing was read. "
            "Declare an `idle_after` that is not longer."
        )


def _for_each(declared: Declared, inputs: Sequence[AnyCategory]) -> Mapping[AnyCategory, Watermark]:
    if declared is None:
        return {}
    return declared if isinstance(declared, Mapping) else dict.fromkeys(inputs, declared)
