"""What becomes of the events of a batch that cannot be processed, decided from values alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..processors.cores import Fed
from ..processors.kinds import OnBad, Processor
from ..transport.codecs import Decoded, Undecodable


class Refusal(NamedTuple):
    """An event that is not processed.

    Args:
        at: its index in the batch.
        reason: why, in words.
        policy: the processor's attribute that decides what becomes of it.
        stops: whether the worker stops there.
        cause: what was raised, if anything was.
    """

    at: int
    reason: str
    policy: str
    stops: bool
    cause: Exception | None = None


def until_stop(decoded: Decoded, processor: Processor) -> Decoded:
    """Cut a batch off at the first message that does not decode and stops the worker; that one is kept as the last."""
    stop = next((bad for bad in decoded.bad if _policy(bad, processor)[1] is OnBad.STOP), None)
    if stop is None:
        return decoded
    events = [event for event, at in zip(decoded.events, decoded.at, strict=True) if at < stop.at]
    return Decoded(events, decoded.at[: len(events)], [bad for bad in decoded.bad if bad.at <= stop.at])


def refusals(decoded: Decoded, fed: Fed, processor: Processor) -> Iterator[Refusal]:
    """Give the refused events of a batch in order, up to the first that stops the worker."""
    refused = [_undecodable(bad, processor) for bad in decoded.bad]
    for index, error in fed.rejected:
        reason = f"{type(processor).__name__} raised {type(error).__name__}: {error}"
        refused.append(Refusal(decoded.at[index], reason, "raising", processor.raising is OnBad.STOP, error))
    for refusal in sorted(refused, key=lambda refusal: refusal.at):
        yield refusal
        if refusal.stops:
            return


def _undecodable(bad: Undecodable, processor: Processor) -> Refusal:
    attribute, policy = _policy(bad, processor)
    return Refusal(bad.at, f"the message does not decode: {bad.reason}", attribute, policy is OnBad.STOP)


def _policy(bad: Undecodable, processor: Processor) -> tuple[str, OnBad]:
    return ("untimed", processor.untimed) if bad.untimed else ("undecodable", processor.undecodable)
