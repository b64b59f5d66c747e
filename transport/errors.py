"""Errors of the bus, by what the caller does next."""

from ..processors.errors import PenstockError


class BusError(PenstockError):
    """The bus did not do what was asked; nothing that was saved before is affected."""


class BusUnreachable(BusError):
    """No broker answers: retry later, or mend the address or credentials."""


class BusRefuses(BusUnreachable):
    """A broker answers and does not let this client in: mend the credentials, or what is said of TLS."""


class SettingsRefused(BusError):
    """The client library does not take the settings: mend them; nobody was asked."""


class MissingCategory(BusError):
    """A category is not on the bus: create it."""


class BucketMismatch(BusError):
    """A category on the bus has another number of buckets than declared, or than its co-partitioned inputs."""


class CompactedInput(BusError):
    """A category keeps the latest event of each key only, from which a lost state could not be built again: a person must choose."""


class CategoryExists(BusError):
    """A category of that name is on the bus already."""


class DeliveryFailed(BusError):
    """Messages handed over did not reach the bus: stop before saving the position that covers them."""


class Fenced(BusError):
    """A newer owner has taken over: discard what is not saved and rejoin."""


class MembershipLost(BusError):
    """A membership in a group has ended for good: close the reader, and join with another."""


class CommitUnconfirmed(BusError):
    """Ownership is changing just now: keep what is owned, go on polling, and save the position again later."""


class Aborted(BusError):
    """A transaction did not take place: go on from the last committed position."""


class GroupInUse(BusError):
    """A group has members, whose positions nobody else may set: stop its workers."""


class OffsetOutOfRange(BusError):
    """A position lies before what the bus still keeps, or after its end: events are gone; a person must choose."""


class TopicRecreated(BusError):
    """A category was deleted and created again since it was read: positions in it mean nothing any more; a person must choose."""


class BatchesRefused(BusError):
    """A category takes smaller batches than this client sends: raise the category's limit."""


class MessageRefused(BusError):
    """A message is larger than the bus takes, or of a form it refuses: change the processor or the category's limits."""
