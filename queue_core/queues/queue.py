"""The base of all kinds of queues: everything that a virtual host, its transactions, sessions and
adapters may ask of a queue without knowing its kind.

The kinds are classic and ephemeral queues (`classic`, `ephemeral`, with what they share in
`competing`), streams (`stream`) and the memories of exchanges (`exchange_state_queues`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from queue_core.errors import NotSupported, QueueFull
from queue_core.traffic import Traffic

if TYPE_CHECKING:
    from queue_core.commit.queue_log import Log
    from queue_core.counters import QueueCounts
    from queue_core.delivery.consumer import Consumer, ConsumerSpec, Entry, Sink
    from queue_core.delivery.cursor import Cursor
    from queue_core.errors import CoreError
    from queue_core.message.message import Message
    from queue_core.queues.backpressure import Backpressure
    from queue_core.queues.context import QueueContext
    from queue_core.queues.deduplication_by_message_id import Repetitions
    from queue_core.queues.spec import QueueSpec

Appends = list[tuple["Log", "Entry"]]  # entries that one unit of the writer commits


class Queue(ABC):
    """A queue of any kind. A method that a kind has no use for does nothing there, or raises
    NotSupported with the way out."""

    is_stored: ClassVar[bool] = False  # its messages are in PostgreSQL
    is_ephemeral: ClassVar[bool] = False  # its messages wait in this process: no commit to wait for
    is_stream: ClassVar[bool] = False
    is_memory: ClassVar[bool] = False  # an exchange's own, which no client sees
    judges_repetitions: ClassVar[bool] = False  # a deduplication exchange decides by it

    def __init__(self, spec: QueueSpec, context: QueueContext, owner: object = None) -> None:
        self.spec = spec
        self.name = spec.name
        self.context = context
        self.traffic = Traffic(context.vhost_name, spec.name, context.changed)
        self.owner = owner  # of an exclusive queue: the connection that declared it
        self.created_by: str | None = None  # the user who declared it
        self.is_deleted = False
        self.is_paused = False  # an operator has stopped deliveries
        # The virtual host's: the last consumer of an auto-delete queue left, or the time that an
        # unused queue may live is over.
        self.on_idle: Callable[[Queue], None] | None = None
        self.window: Repetitions | None = None  # the record that tells repetitions
        self.backpressure: Backpressure | None = None  # with consumers: nothing is dropped
        self.judges_each = False  # each message is looked at: no run is passed on as it came
        self.may_expire = False  # something in it has, or had, an end
        self.has_told_overflow = False  # the log has a line about messages that were dropped

    # --- publishing

    @abstractmethod
    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        """Takes a message that was routed here; False: the queue is full, and refuses it. Entries
        for the writer are added to `appends`. `stays`: a refused message stays where it comes
        from, and is no dead letter."""

    @property
    @abstractmethod
    def takes_runs(self) -> bool:
        """Tells whether `take_run` is worth asking. False: it would take no run at the moment."""

    @abstractmethod
    def take_run(self, messages: list[Message], options: tuple[object, ...]) -> Appends | None:
        """Takes messages without times of their own that came in a row, and gives the entries for
        the writer. None: nothing was done, and the messages are to be taken one by one."""

    def refuses(self, coming: int = 0, coming_bytes: int = 0) -> bool:
        """Tells whether a queue in memory would refuse a message, with so many others on their way
        to it. A stored queue answers by `take`."""
        return False

    def is_full(self, coming: int = 0, coming_bytes: int = 0) -> bool:
        """Tells whether the queue's own limits leave no room, with so many on their way to it."""
        return False

    def full_error(self) -> QueueFull:
        """Makes the error that tells a publisher that this queue has refused its message."""
        return QueueFull(
            f"queue '{self.name}' is full and set to {self.spec.overflow}; "
            "consume from it, or raise its x-max-length or x-max-length-bytes"
        )

    def is_held(self) -> bool:
        """Tells whether whoever publishes here now has to wait for the queue's consumers."""
        return False

    def is_repeated(self, message: Message, taken: set[Log]) -> bool:
        """Tells whether the queue did not take a message because it repeats another one. `taken`:
        the logs of the queues that did take it."""
        return False

    def replay(self, now: float) -> list[Message]:
        """Gives the messages that an exchange's history hands to what is bound later."""
        return []

    @property
    def pending(self) -> int:
        """Messages for this queue that are on their way to the disk."""
        return 0

    @property
    def next_offset(self) -> int:
        """The offset of the next message that a stored queue will take: those on their way to the
        disk have theirs below it."""
        return 0

    def is_half_full(self) -> bool:
        """Tells whether half of the room that the queue's limits leave is taken."""
        return False

    # --- consuming

    async def find_start(self, spec: ConsumerSpec) -> int:
        """Finds the offset where a new reader of a stream starts; other kinds have no positions."""
        return 0

    @abstractmethod
    def consume(self, sink: Sink, spec: ConsumerSpec, start: int = 0) -> Consumer:
        """Adds a consumer, which gets nothing before its first `wake`. `start` comes from
        `find_start`."""

    @abstractmethod
    def consume_one(self, sink: Sink, spec: ConsumerSpec) -> Consumer:
        """Adds a consumer that takes one message and goes, beside an exclusive one, too."""

    @abstractmethod
    def on_consumer_gone(self) -> None:
        """Tells the queue that a consumer of it was closed or cancelled."""

    def consumers(self) -> list[Consumer]:
        """Lists the consumers, of all groups."""
        return []

    def ready_bytes(self) -> int:
        """Gives the bytes of the messages that wait for a consumer, as far as that is counted."""
        return 0

    def first_consumer(self) -> Consumer | None:
        """Gives the consumer that has been here longest."""
        return None

    def direct_consumer(self) -> Consumer | None:
        """Gives the consumer that takes a message at once, as it came: the only one, with credit,
        nothing waiting before it, and nothing to settle later. None: there is no such short way.
        Hot: asked for each message."""
        return None

    def commit_cursor(self, group: str, offset: int) -> None:
        """Settles everything up to and with `offset` for a consumer group of a stream."""
        raise NotSupported(f"queue '{self.name}' is no stream: it has no positions and no groups")

    def cursors(self) -> list[Cursor]:
        """Lists all cursors by which messages are, or may be, in consumers' hands."""
        return []

    def pause(self) -> None:
        """Stops deliveries. Messages still come in, and those in flight may be settled."""
        self.is_paused = True
        for cursor in self.cursors():
            cursor.consumer_set.pause()

    def resume(self) -> None:
        """Lets deliveries go on."""
        self.is_paused = False
        for cursor in self.cursors():
            cursor.consumer_set.resume()

    # --- the queue itself

    def apply(self, spec: QueueSpec) -> None:
        """Takes over the values of a spec that policies have changed; limits act at once on what
        is in the queue."""
        self.spec = spec

    @property
    def lacks_bytes(self) -> bool:
        """Tells whether a limit counts bytes of messages that were never counted: they were in the
        database before the limit was."""
        return False

    def touch(self) -> None:
        """Starts the time anew that an unused queue has to live."""
        return  # not all kinds end by not being used

    @abstractmethod
    def counts(self) -> QueueCounts:
        """Counts messages and consumers, for people and for declarations."""

    def memory(self) -> int:
        """Gives the bytes that messages of a queue in memory take. Those of stored queues are
        in the account of the messages that are kept ready."""
        return 0

    @abstractmethod
    def peek(self, start: int, limit: int) -> list[Entry]:
        """Gives ready messages that are in memory, from an offset on, without any effect."""

    @abstractmethod
    def purge(self) -> int:
        """Drops the messages that no consumer has, due or not, and gives their number. What is in
        flight stays."""

    @abstractmethod
    def end(self, reason: CoreError) -> None:
        """Ends the consumers, and lets publishers go that wait: the queue is gone."""


async def wait_for_room(queues: Iterable[Queue]) -> None:
    """Returns when each queue that holds its publishers has room, one after the other."""
    for queue in queues:
        if queue.backpressure is not None:
            await queue.backpressure.room()


def is_bound(route: Iterable[tuple[Queue, tuple[object, ...]]]) -> bool:
    """Tells whether a route leads to a queue that is bound, and not only to memories."""
    return any(not queue.is_memory for queue, _ in route)
