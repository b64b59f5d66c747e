"""The base class of monoids: partial aggregates that combine in any grouping.

    observation --lift or fold--> partial --combine, in a worker, a Spark task or a store--> partial --value--> result

Partials travel between processes as MessagePack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, final

import msgspec

from .equality import alike

V = TypeVar("V")

_to_bytes = msgspec.msgpack.Encoder().encode
_from_bytes = msgspec.msgpack.Decoder().decode


class Monoid(ABC, Generic[V]):
    """An associative `combine` with an `identity`, over partials of type `V`.

    A subclass defines `identity` and `combine`, and overrides other methods where the defaults do not apply. Two rules apply:

    * `combine` changes neither argument; its result may share parts with them.
    * `fold` may change its accumulator in place. `identity` and `lift` must then return a new value on each call.

    `check_laws` checks these rules and the laws on samples.

    Examples:
        >>> class LongestName(Monoid[str]):
        ...     commutative = False  # of two equally long names, the earlier one wins
        ...
        ...     def identity(self) -> str:
        ...         return ""
        ...
        ...     def combine(self, left: str, right: str) -> str:
        ...         return right if len(right) > len(left) else left
        >>> longest = LongestName()
        >>> longest.combine(longest.fold(longest.identity(), "Ann"), longest.decode(longest.encode("Barbara")))
        'Barbara'
    """

    commutative: bool = False
    """Whether `combine(a, b)` equals `combine(b, a)`, so that partials need no order. Composite monoids derive it from their parts."""

    folds_in_place: bool = False
    """Whether `fold` changes its accumulator. Composite monoids then ensure that a failed observation changes nothing."""

    @abstractmethod
    def identity(self) -> V:
        """Return the partial of no observations."""

    @abstractmethod
    def combine(self, left: V, right: V, /) -> V:
        """Return the partial of `left`'s observations followed by `right`'s. Associative; changes neither argument."""

    def lift(self, observation: Any, /) -> V:
        """Return the partial of one observation. Default: the observation itself."""
        partial: V = observation
        return partial

    def fold(self, accumulator: V, observation: Any, /) -> V:
        """Return `combine(accumulator, lift(observation))`. It may change the accumulator in place, but not the observation.

        If it raises, the accumulator must be unchanged: the engine may reject the event and continue.
        """
        return self.combine(accumulator, self.lift(observation))

    def value(self, partial: V) -> Any:
        """Return the result of a partial. Default: the partial itself."""
        return partial

    def dump(self, value: V) -> Any:
        """Return the partial as None, bool, int (-2⁶³ to 2⁶⁴-1), float, str, bytes, list or dict."""
        return value

    def load(self, dumped: Any) -> V:
        """Return the partial from the result of `dump`. Tuples, except keys of dicts, arrive as lists."""
        partial: V = dumped
        return partial

    def same(self, left: V, right: V) -> bool:
        """Return whether two partials represent the same result; `check_laws` uses it. Default: `==`, with floats compared to nine digits."""
        return alike(left, right)

    def within_error(self, left: Any, right: Any, /) -> bool | None:  # noqa: ARG002 - an exact monoid has no error
        """Return whether two results differ by no more than the monoid's documented error; `penstock compare` uses it.

        Args:
            left: the result of `value`, or a number from it, as a record contains it: lists, dicts and plain values.
            right: the result of other partials.

        Returns:
            None if the monoid documents no error, or if these values do not determine the answer.
        """
        return None

    def keeps(self, method: str) -> bool:
        """Return whether `dump` or `value` returns each partial as it is, so that a call is not needed."""
        return getattr(type(self), method) is getattr(Monoid, method)

    @final
    def encode(self, value: V) -> bytes:
        """Return the partial as MessagePack. Equal partials may have different bytes, because dicts may have another order of keys.

        Raises:
            TypeError, OverflowError: MessagePack cannot encode the result of `dump`.
        """
        return _to_bytes(self.dump(value))

    @final
    def decode(self, data: bytes) -> V:
        """Return the partial of encoded bytes.

        Raises:
            msgspec.DecodeError: the bytes are not MessagePack. `load` may raise other errors for bytes of another monoid.
        """
        return self.load(_from_bytes(data))

    @final
    def encode_all(self, values: Iterable[V]) -> list[bytes]:
        """Return several partials as `encode` does, faster."""
        return list(map(_to_bytes, values if self.keeps("dump") else map(self.dump, values)))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({settings})"
