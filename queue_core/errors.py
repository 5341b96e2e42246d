"""The errors of the core: a request that cannot be met, named by what happened.

Each message says the cause and the way out. What a protocol answers on the wire is decided by that
protocol's own table; nothing here knows a reply code.
"""


class CoreError(Exception):
    """A request that the core cannot meet; the message names the cause and the way out."""


class AccessRefused(CoreError):
    """The user may not do this to that resource."""


class QueueNotFound(CoreError):
    """No queue has that name."""


class ExchangeNotFound(CoreError):
    """No exchange has that name."""


class QueueInUse(CoreError):
    """The queue still has consumers, and the request asked for one without."""


class QueueNotEmpty(CoreError):
    """The queue still holds messages, and the request asked for an empty one."""


class ExchangeInUse(CoreError):
    """The exchange still has bindings, and the request asked for one without."""


class NotEquivalent(CoreError):
    """Declared again with other arguments than those it was made with."""


class UnsupportedArgument(CoreError):
    """An argument that this kind of resource does not support."""


class InvalidArgument(CoreError):
    """An argument that is supported, with a value that it cannot have."""


class InvalidTopic(CoreError):
    """A topic name or filter that breaks the rules of its form."""


class QueueFull(CoreError):
    """The queue is at its limit and its policy is to refuse."""


class MessageTooLarge(CoreError):
    """The message is larger than the limit that applies to it."""


class ResourceLocked(CoreError):
    """The resource is exclusive to another connection or consumer."""


class SessionNotFound(CoreError):
    """No session has that identifier."""


class VhostNotFound(CoreError):
    """No virtual host has that name."""


class StoreUnavailable(CoreError):
    """The database cannot be reached, and the request cannot wait for it any longer."""


class NameReserved(CoreError):
    """The name belongs to the gateway and cannot be declared, bound or deleted."""


class LimitExceeded(CoreError):
    """A configured limit on a number or size of things has been reached."""


class QuotaReached(CoreError):
    """An operator's limit on connections or channels of a user or a virtual host is reached."""


class NotSupported(CoreError):
    """The resource cannot do that, by its kind."""


class ConsumerStalled(CoreError):
    """The consumer took nothing for too long while publishers waited for it, and has to go."""


class DeliveryFailed(CoreError):
    """A bug of the gateway's: it could not write a message for this consumer, which has ended."""
