"""Watermarks of a processor's inputs: one for all of them, or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import DeclarationError
from ..time.watermarks import Confidence, Watermark
from ..validation import fits, suggestion, type_in_words
from ..wording import as_code
from .categories import AnyCategory


def by_input(
    declared: Watermark | Mapping[AnyCategory, Watermark], inputs: Sequence[AnyCategory]
) -> dict[str, Watermark]:
    """Return the watermark of each input by its name; `Confidence()` where a dict declares none."""
    each = _for_each(declared, inputs)
    watermarks = {category.name: watermark for category, watermark in each.items()}
    return {category.name: watermarks.get(category.name, Confidence()) for category in inputs}


def expect_watermarks(
    owner: str, declared: Watermark | Mapping[AnyCategory, Watermark], inputs: Sequence[AnyCategory]
) -> None:
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


def _for_each(
    declared: Watermark | Mapping[AnyCategory, Watermark], inputs: Sequence[AnyCategory]
) -> Mapping[AnyCategory, Watermark]:
    return declared if isinstance(declared, Mapping) else dict.fromkeys(inputs, declared)
