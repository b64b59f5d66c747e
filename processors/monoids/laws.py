"""Checks of a monoid's laws on sample observations: by the engine before the first event, and by users in tests.

The sample partials are the lifted observations and the combinations of each half of them. Each law is checked on all pairs and triples of
these partials. The first violation is reported with its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import permutations, product
from typing import Any, Generic, TypeVar

import msgspec

from .base import Monoid

V = TypeVar("V")

_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Law:
    """A law: its name, its condition, and the change that fixes a violation."""

    name: str
    condition: str
    change: str


ENCODING = Law(
    "encoding",
    "MessagePack can encode dump(partial), and load() accepts the decoded value",
    "Define a dump() that returns None, bool, int of 64 bits, float, str, bytes, list or dict, and a load() that reverses it.",
)
ROUND_TRIP = Law(
    "round trip",
    "decode(encode(partial)) is the same partial",
    "Make load() reverse dump(): tuples are decoded as lists, and sets, dates and objects need their own dump() and load().",
)
ARGUMENTS = Law(
    "unchanged arguments",
    "combine(left, right) changes neither left nor right",
    "Make combine() change a copy (left.copy(), [*left, *right]). Only fold() may change its argument in place.",
)
LEFT_IDENTITY = Law(
    "left identity",
    "combine(identity(), partial) is the same partial",
    "Return the partial of no observations from identity(): 0 for a sum, 1 for a product, None for a minimum.",
)
RIGHT_IDENTITY = Law("right identity", "combine(partial, identity()) is the same partial", LEFT_IDENTITY.change)
FOLD = Law(
    "fold",
    "fold(accumulator, observation) is the same as combine(accumulator, lift(observation))",
    "Remove fold() (the default is correct, but slower), or correct it. A subclass that overrides lift() or combine() needs its own fold().",
)
FRESH_IDENTITY = Law(
    "fresh identity",
    "identity() returns the same partial after a fold into its earlier result",
    "Create a new value in every call of identity() ({} or [] in its body). Do not return a value stored on the class or the module.",
)
OBSERVATION = Law(
    "unchanged observation",
    "fold(accumulator, observation) changes no observation",
    "Copy the mutable parts of an observation in lift() and fold(): later folds may change them in place.",
)
REJECTION = Law(
    "unchanged accumulator",
    "fold(accumulator, observation) that raises leaves the accumulator as it was",
    "Check the observation before the first change in fold(), or remove fold() (the default is correct, but slower).",
)
ASSOCIATIVITY = Law(
    "associativity",
    "combine(combine(a, b), c), called ab_c, is the same as combine(a, combine(b, c)), called a_bc",
    "Store values in the partial that combine in any grouping, and compute the result in value(): for a mean, store (sum, count). "
    "If only rounding differs, override same().",
)
COMMUTATIVITY = Law(
    "commutativity",
    "combine(a, b) is the same as combine(b, a)",
    "Set commutative = False, so that partials are combined in the order of their events; or make combine() independent of the order.",
)


class BrokenLaw(AssertionError):
    """A monoid breaks a law, so its results would depend on the grouping of events. The message contains the fix."""

    def __init__(self, monoid: Monoid[Any], law: Law, /, **values: object) -> None:
        shown = "".join(f"\n  {name} = {_shown(value)}" for name, value in values.items())
        super().__init__(
            f"{monoid!r} breaks the law of {law.name}: {law.condition}. These values violate it:{shown}\n"
            "A stream, its restarts and a batch run combine partials in different groups, so their results would differ. "
            f"{law.change}"
        )
        self.law = law


def check_laws(
    monoid: Monoid[V], observations: Sequence[Any], *, same: Callable[[V, V], bool] | None = None, limit: int = 6
) -> None:
    """Check the laws of a monoid on sample observations. The check is deterministic.

    Args:
        monoid: the monoid. Commutativity is checked only if it is declared.
        observations: samples, as `observe` returns them. Without any, only the identity is checked.
        same: compares two partials. Default: `monoid.same`.
        limit: the number of samples to use, evenly spread. The time grows with its cube; 6 samples take 1 to 10 ms.

    Raises:
        BrokenLaw: the monoid breaks a law; the message contains the values and the fix.

    Examples:
        >>> class MeanOfMeans(Monoid[float]):
        ...     def identity(self) -> float:
        ...         return 0.0
        ...
        ...     def combine(self, left: float, right: float) -> float:
        ...         return (left + right) / 2
        >>> check_laws(MeanOfMeans(), [1.0, 2.0, 6.0])
        Traceback (most recent call last):
        ...
        penstock.processors.monoids.laws.BrokenLaw: MeanOfMeans() breaks the law of left identity: ...
    """
    step = max(1, -(-len(observations) // limit))
    _Check(monoid, observations[::step], same or monoid.same).run()


def check_rejection(monoid: Monoid[V], partial: V, observation: Any) -> None:
    """Check that a monoid which rejects an observation leaves the partial as it was.

    Raises:
        BrokenLaw: it does not.
    """
    before = monoid.encode(partial)
    accumulator = monoid.decode(before)
    with suppress(Exception):
        monoid.fold(accumulator, observation)
        return  # it accepts the observation
    was = monoid.decode(before)
    if not monoid.same(was, accumulator):
        raise BrokenLaw(monoid, REJECTION, observation=observation, before=was, after=accumulator)


class _Check(Generic[V]):
    """A check of one monoid on its samples."""

    def __init__(self, monoid: Monoid[V], observations: Sequence[Any], same: Callable[[V, V], bool]) -> None:
        self._monoid = monoid
        self._observations = observations
        self._same = same

    def run(self) -> None:
        """Check the laws in order. Later checks assume earlier laws: a combine that changes its arguments would falsify them."""
        lifted = [self._monoid.lift(observation) for observation in self._observations]
        self._encoding([self._monoid.identity(), *lifted])
        middle = len(lifted) // 2
        combined = [reduce(self._monoid.combine, half) for half in (lifted[:middle], lifted[middle:]) if len(half) > 1]
        partials = [*lifted, *combined]
        self._encoding(combined)
        self._arguments([self._monoid.identity(), *partials])
        self._identity([self._monoid.identity(), *partials])
        self._fold()
        self._associativity(partials)

    def _require(self, law: Law, left: V, right: V, /, **values: object) -> None:
        if not self._same(left, right):
            raise BrokenLaw(self._monoid, law, **values)

    def _encoding(self, partials: Sequence[V]) -> None:
        for partial in partials:
            try:
                decoded = self._monoid.decode(self._monoid.encode(partial))
            except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
                raise BrokenLaw(self._monoid, ENCODING, partial=partial, error=error) from error
            self._require(ROUND_TRIP, decoded, partial, partial=partial, decoded=decoded)

    def _arguments(self, partials: Sequence[V]) -> None:
        encode, decode = self._monoid.encode, self._monoid.decode
        # Not a partial with itself: a combine that appends its right argument to its left one would never end.
        for left, right in permutations(partials, 2):
            before = encode(left), encode(right)
            self._monoid.combine(left, right)
            for name, encoded, after in (("left", before[0], left), ("right", before[1], right)):
                was = decode(encoded)
                self._require(ARGUMENTS, was, after, argument=name, before=was, after=after)

    def _identity(self, partials: Sequence[V]) -> None:
        for partial in partials:
            left = self._monoid.combine(self._monoid.identity(), partial)
            self._require(LEFT_IDENTITY, left, partial, partial=partial, combined=left)
            right = self._monoid.combine(partial, self._monoid.identity())
            self._require(RIGHT_IDENTITY, right, partial, partial=partial, combined=right)

    def _fold(self) -> None:
        monoid = self._monoid
        identity = monoid.encode(monoid.identity())
        lifted = [monoid.encode(monoid.lift(observation)) for observation in self._observations]
        self._fold_into(monoid.identity(), self._observations)
        if self._observations:
            self._fold_into(monoid.lift(self._observations[0]), self._observations[1:])
        was, now = monoid.decode(identity), monoid.identity()
        self._require(FRESH_IDENTITY, was, now, before=was, after=now)
        for encoded, observation in zip(lifted, self._observations, strict=True):
            self._require(OBSERVATION, monoid.decode(encoded), monoid.lift(observation), after=observation)

    def _fold_into(self, accumulator: V, observations: Sequence[Any]) -> None:
        monoid = self._monoid
        expected = monoid.decode(monoid.encode(accumulator))
        for observation in observations:
            before = monoid.encode(accumulator)
            expected = monoid.combine(expected, monoid.lift(observation))
            accumulator = monoid.fold(accumulator, observation)
            values = {"accumulator": monoid.decode(before), "observation": observation}
            self._require(FOLD, accumulator, expected, **values, folded=accumulator, combined=expected)

    def _associativity(self, partials: Sequence[V]) -> None:
        combine = self._monoid.combine
        pairs = {(i, j): combine(partials[i], partials[j]) for i, j in product(range(len(partials)), repeat=2)}
        for i, j, k in product(range(len(partials)), repeat=3):
            ab_c, a_bc = combine(pairs[i, j], partials[k]), combine(partials[i], pairs[j, k])
            values = {"a": partials[i], "b": partials[j], "c": partials[k]}
            self._require(ASSOCIATIVITY, ab_c, a_bc, **values, ab_c=ab_c, a_bc=a_bc)
        if self._monoid.commutative:
            for (i, j), ab in pairs.items():
                ba = pairs[j, i]
                self._require(COMMUTATIVITY, ab, ba, a=partials[i], b=partials[j], ab=ab, ba=ba)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
