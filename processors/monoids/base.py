"""What a monoid promises: partial aggregates that merge in any grouping.

An observation is lifted to a partial or folded into one; partials of the same key and window are combined, wherever they were
made (a worker, a Spark task, a shared store); bytes carry them between; `value` reads the result off the last one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, final

import msgspec

from .equality import alike

V = TypeVar("V")

_to_bytes = msgspec.msgpack.Encoder().encode
_from_bytes = msgspec.msgpack.Decoder().decode


class Monoid(ABC, Generic[V]):
    """An associative `combine` with an `identity`, over partials of type `V`.

    A subclass gives `identity` and `combine`, and whatever of the rest differs from the defaults. Two rules make it fast and safe:

    * `combine` changes neither argument; its result may share parts with them.
    * `fold` may change its accumulator in place. That belongs to the caller alone: made by `identity`, `lift`, `fold` or `decode`, or by
      a `combine` whose arguments the caller has dropped. Hence `identity` and `lift` return fresh values where `fold` works in place.

    `laws.check_laws` tests both rules and the laws on samples.

    Examples:
        >>> class LongestName(Monoid[str]):
        ...     commutative = False  # of two equally long names the earlier stays
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
    """Whether partials may also change places, so that nobody need keep their order. Containers take it from what they contain."""

    folds_in_place: bool = False
    """Whether `fold` changes its accumulator. Containers then take care that an observation that cannot be folded leaves no trace."""

    @abstractmethod
    def identity(self) -> V:
        """Return the partial of no observations."""

    @abstractmethod
    def combine(self, left: V, right: V, /) -> V:
        """Return the partial of `left`'s observations followed by `right`'s. Associative; changes neither argument."""

    def lift(self, observation: Any, /) -> V:
        """Return the partial of one observation; by default the observation is one already."""
        partial: V = observation
        return partial

    def fold(self, accumulator: V, observation: Any, /) -> V:
        """Return `combine(accumulator, lift(observation))`, perhaps by changing `accumulator`, never the observation.

        Where it raises, the accumulator is as it was: the engine may reject the event and go on.
        """
        return self.combine(accumulator, self.lift(observation))

    def value(self, partial: V) -> Any:
        """Return what the user reads off a partial; by default the partial itself."""
        return partial

    def dump(self, value: V) -> Any:
        """Return the partial as None, bool, int (-2⁶³ to 2⁶⁴-1), float, str, bytes, list or dict."""
        return value

    def load(self, dumped: Any) -> V:
        """Return the partial that `dump` was given. Tuples, except keys of dicts, arrive as lists."""
        partial: V = dumped
        return partial

    def same(self, left: V, right: V) -> bool:
        """Whether two partials stand for the same result; `laws.check_laws` asks. By default `==`, floats to nine digits."""
        return alike(left, right)

    def within_error(self, left: Any, right: Any, /) -> bool | None:  # noqa: ARG002 - a monoid that is exact looks at neither
        """Whether two results may be the same but for the error that the monoid states; `penstock compare` asks.

        Args:
            left: what `value` returned, or a number of it, as a record carries it: lists, dicts, plain values.
            right: the same of other partials.

        Returns:
            None where the monoid states no error, or these values alone do not tell.
        """
        return None

    @final
    def encode(self, value: V) -> bytes:
        """Return the partial as MessagePack. Partials that are the same may have different bytes (the order of a dict's keys).

        Raises:
            TypeError, OverflowError: `dump` returned what MessagePack cannot carry.
        """
        return _to_bytes(self.dump(value))

    @final
    def decode(self, data: bytes) -> V:
        """Return the partial that was encoded.

        Raises:
            msgspec.DecodeError: not MessagePack. `load` may raise errors of its own for bytes of another monoid.
        """
        return self.load(_from_bytes(data))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({settings})"
