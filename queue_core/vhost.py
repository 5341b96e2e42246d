"""One virtual host: its exchanges, queues and topic space, and the primitives that adapters call.

    publish                  routes a message; the publisher is told when it is committed
    publish_to, publish_run  publish one message, or a run, to a route that was looked up before
    declare, delete, purge   queues and exchanges; bind and subscribe
    consume, get, browse     with credit
    settle                   one of four verdicts; `transaction` for all or nothing

Nothing here knows a protocol, a socket or SQL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from queue_core.access.occupancy import is_reached
from queue_core.commit.unit import Publisher, Record, Unit
from queue_core.delivery.consumer import NOBODY, Consumer, ConsumerSpec, Delivery, Entry, Origin
from queue_core.delivery.cursor import settle
from queue_core.delivery.single_get import SingleGet
from queue_core.errors import (
    CoreError,
    LimitExceeded,
    NameReserved,
    QueueFull,
    QueueInUse,
    QueueNotEmpty,
    QueueNotFound,
    ResourceLocked,
)
from queue_core.exchange_states import ExchangeStates
from queue_core.keyed_lock import Turns
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, Published, Verdict
from queue_core.policies.application import PolicyApplication
from queue_core.policies.vhost_settings import PLAIN_SETTINGS
from queue_core.queues.context import QueueContext
from queue_core.queues.duplicate_publishes import forget_live, still_there
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.queue import Appends, Queue, is_bound
from queue_core.queues.reserved_names import (
    LIVE_PREFIX,
    MEMORY_PREFIXES,
    OWN_PREFIXES,
    SERVER_NAMED_PREFIX,
    is_own,
    is_reserved,
)
from queue_core.queues.spec import Overflow, QueueKind, QueueSpec, require_short_name
from queue_core.routing.bindings import Binding, BindingLimits, ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.route import Route
from queue_core.routing.router import WIDE_ROUTE, Router
from queue_core.topology import Topology
from queue_core.transaction import Transaction

if TYPE_CHECKING:
    from queue_core.commit.ports import Keeper, Writer
    from queue_core.delivery.consumer import Sink
    from queue_core.message.message_run import Run
    from queue_core.queues.live_run_consumers import RunTakers
    from queue_core.queues.ports import StoredQueues

log = logging.getLogger(__name__)

NOT_PRESSED: list[Queue] = []  # shared, and never changed: this is asked once a chunk


class Vhost:
    def __init__(
        self,
        name: str,
        router: Router[Queue],
        context: QueueContext,
        writer: Writer,
        keeper: Keeper,
        stored: StoredQueues,
        binding_limits: BindingLimits | None = None,
    ) -> None:
        self.name = name
        self.router = router
        self.queues: dict[str, Queue] = {}
        self._owned: dict[int, dict[str, Queue]] = {}  # exclusive queues by their connection
        self.context = context
        self.counters = context.counters
        # Queues of subscribers that this turn's publishes found full; see `take_pressed`.
        self.pressed = context.pressed
        self.writer = writer
        self._keeper = keeper
        self._stored = stored
        self._turns = Turns()  # a queue is declared, bound or deleted by one at a time
        self.policies = PolicyApplication(router, self.queues, stored, keeper)
        self.settings = PLAIN_SETTINGS  # as operators have last set them
        self._making = 0  # queues that are being stored
        self._live = 0  # queues of connected MQTT clients, which go with their connections
        self.topology = Topology(
            router,
            context,
            keeper,
            ExchangeStates(router, context, writer, stored),
            self._turns,
            binding_limits or BindingLimits(),
            self.policies.apply_to_exchange,
        )

    # --- publishing

    def publish(
        self,
        message: Message,
        publisher: Publisher | None = None,
        token: int = 0,
        records: tuple[Record, ...] = (),
        extra_keys: Sequence[str] = (),
    ) -> Published:
        """Publishes a message by its exchange and routing key; a topic is a key of the topic
        exchange. `records` are committed together with the message; `extra_keys` route it as well
        (CC, BCC). Raises ExchangeNotFound."""
        route: Route[Queue] | None
        if extra_keys:
            keys = (message.routing_key, *extra_keys)
            route = self.router.route_keys(
                message.exchange, keys, _headers_of(message), message.deciding_property
            )
        else:
            route = self.router.routes.get((message.exchange, message.routing_key))
            if route is None:
                route = self.router.route(
                    message.exchange,
                    message.routing_key,
                    _headers_of(message),
                    message.deciding_property,
                )
        return self.publish_to(message, route, publisher, token, records)

    def publish_run(
        self,
        run: Run,
        publisher: Publisher | None = None,
        token: int = 0,
        route: Route[Queue] | None = None,
        takers: RunTakers | None = None,
    ) -> Published | None:
        """Publishes a run, by its first message's exchange and routing key where no route is given;
        tokens count on from the first one's. `takers`: the route ends at these, who take the run as
        it came. None: it is not that simple, nothing was done, and the messages are to be published
        one by one. Measured on 50 messages for an ephemeral queue: 0.3 us each, against 2.6."""
        counters = self.counters
        if takers is not None:
            count = run.count
            for consumer, sink in takers.takers:
                sink.deliver_run(consumer, run)
                consumer.cursor.traffic.count_passed_on(count)
            counters.published += count
            return Published.DONE
        messages = run.messages()
        if route is None:
            route = self.router.routes.get((messages[0].exchange, messages[0].routing_key))
        if route is None or len(route) != 1:
            return None
        ((queue, options),) = route
        appends = queue.take_run(messages, options)
        if appends is None:
            return None
        counters.published += len(messages)
        if not appends:
            return Published.DONE
        self.writer.submit(Unit(appends, publisher, token, is_run=True))
        return Published.PENDING

    def publish_to(
        self,
        message: Message,
        route: Route[Queue],
        publisher: Publisher | None,
        token: int,
        records: tuple[Record, ...],
    ) -> Published:
        """Publishes a message to the queues of a route that was looked up before. Hot."""
        counters = self.counters
        counters.published += 1
        if len(route) > WIDE_ROUTE:
            self.router.effort.spent += len(route)
        if message.not_before is not None and route and self._refuses_delay(message, records):
            return Published.REFUSED
        appends: Appends = []
        is_refused, has_window, duplicates = False, False, counters.duplicates
        for queue, options in route:
            # A repetition is acknowledged no sooner than what it repeats: it goes through the
            # writer, behind it.
            if queue.window is not None:
                has_window = True
            if is_refused and queue.is_memory:
                continue  # it may be published again, and is no repetition then
            if not queue.take(message, options, appends):
                is_refused = True
        if appends or records or (publisher is not None and has_window):
            unit = Unit(appends, None if is_refused else publisher, token, None, records)
            if has_window:
                unit.holds = still_there(message, route, appends)
                unit.undo = partial(forget_live, message, route)
            self.writer.submit(unit)
            if is_refused:
                return Published.REFUSED
            if has_window and not records and not is_bound(route):
                counters.unroutable += counters.duplicates == duplicates
                return Published.REMEMBERED
            return Published.PENDING
        if has_window and not is_bound(route):
            counters.unroutable += counters.duplicates == duplicates
            return Published.NOWHERE
        if is_refused:
            return Published.REFUSED
        if route:
            return Published.DONE
        counters.unroutable += 1
        return Published.NOWHERE

    def _refuses_delay(self, message: Message, records: tuple[Record, ...]) -> bool:
        """Tells whether too many messages are delayed; one that comes with records is stored
        already."""
        if records or not self.context.delays.refuses(message.not_before):
            return False
        self.context.delays.count_refused()
        return True

    def take_pressed(self) -> list[Queue]:
        """Queues of subscribers that the last publishes found full. Whoever published them waits
        for room, see `backpressure`; one that is about to publish throws away what others left."""
        pressed = self.pressed
        if not pressed:
            return NOT_PRESSED
        found = list(pressed)
        pressed.clear()
        return found

    def take_crowded(self) -> bool:
        """Tells whether the last publishes brought many messages into a queue in memory that has
        many already: then whoever published rests for a moment, so that consumers get theirs."""
        is_crowded, self.context.is_crowded = self.context.is_crowded, False
        return is_crowded

    def why_refused(self, message: Message) -> CoreError:
        """Makes the error for a publisher whose message was refused."""
        delays = self.context.delays
        if delays.refuses(message.not_before):
            return delays.error()
        route = self.router.route(
            message.exchange, message.routing_key, _headers_of(message), message.deciding_property
        )
        for queue, _ in route:
            if queue.spec.overflow is not Overflow.DROP_HEAD or queue.is_full():
                return queue.full_error()
        return QueueFull(
            "a queue that it was routed to is full; consume from it, or raise its limits"
        )

    def report_inert(self, what: str, name: str, arguments: Iterable[str]) -> None:
        """Tells people once of arguments that have no effect."""
        self.context.ignored_arguments.report(what, name, arguments)

    def transaction(self) -> Transaction:
        return Transaction(self.router, self.context, self.writer, self.queues)

    # --- queues

    def queue(self, name: str, owner: object = None) -> Queue:
        """Finds the queue of that name for a connection; `owner` tells connections apart."""
        queue = self.queues.get(name)
        if queue is None:
            way_out = "declare it first"
            if name.startswith(MEMORY_PREFIXES):
                way_out = "an exchange remembers by it, and deleting the exchange ends it"
            raise QueueNotFound(f"no queue '{name}' in vhost '{self.name}'; {way_out}")
        if queue.owner is not None and queue.owner is not owner:
            raise ResourceLocked(
                f"queue '{name}' is exclusive to another connection; "
                "use it there, or declare one of your own"
            )
        return queue

    async def declare_queue(
        self,
        spec: QueueSpec,
        owner: object = None,
        created_by: str | None = None,
        *,
        inside: bool = False,
    ) -> Queue:
        """Makes the queue, or checks that the one that is there was declared with the same words.
        A durable one is in the database when this returns. `inside`: the gateway chose the
        name, and may use those that are its own."""
        if not inside:
            self.check_declarable(spec.name)
        async with self._turns.of(spec.name):
            existing = self.queues.get(spec.name)
            spec = self._with_default_type(spec, existing)
            if existing is not None:
                queue = self.queue(spec.name, owner)
                queue.spec.check_equivalent(spec)
                queue.touch()
                self.counters.queues_declared += 1
                return queue
            self._check_room(spec.name)
            if spec.kind is QueueKind.EPHEMERAL:
                queue = EphemeralQueue(spec, self.context, owner if spec.exclusive else None)
                if spec.exclusive:
                    self._owned.setdefault(id(owner), {})[queue.name] = queue
            else:
                require_short_name(spec.name)
                self._making += 1
                try:
                    queue = await self._stored.create(self.context, spec, created_by)
                finally:
                    self._making -= 1
            queue.created_by = created_by
            self.context.ignored_arguments.report("queue", spec.name, spec.unknown)
            self.add_queue(queue)
            self.counters.queues_declared += 1
            return queue

    def _with_default_type(self, spec: QueueSpec, existing: Queue | None) -> QueueSpec:
        """Gives a declaration that says no type the one that queues here have by default; one that
        was made while that was another keeps its own."""
        default = self.settings.default_queue_type
        if default is None or is_own(spec.name):
            return spec
        return spec.with_type(default if existing is None else existing.spec.queue_type)

    @property
    def queue_count(self) -> int:
        """Counts the queues that the limit of queues is for: all but those that connected MQTT
        clients have for as long as they are connected."""
        return len(self.queues) - self._live

    def _check_room(self, name: str) -> None:
        limit = self.settings.max_queues
        if is_reached(limit, self.queue_count + self._making):
            raise LimitExceeded(
                f"cannot declare queue '{name}' in vhost '{self.name}': queue limit in vhost "
                f"'{self.name}' ({limit}) is reached; delete others, or raise max-queues"
            )

    def add_queue(self, queue: Queue) -> None:
        """Makes a new queue known by its name, to clients and to routes."""
        self.counters.queues_created += 1
        self.restore_queue(queue)

    def restore_queue(self, queue: Queue) -> None:
        """Makes a queue known that was there before the gateway started."""
        self._live += queue.name.startswith(LIVE_PREFIX)
        queue.on_idle = self._on_idle
        self.policies.apply_to_queue(queue)
        self.queues[queue.name] = queue
        self.router.register_queue(queue.name, queue)

    def new_name(self, prefix: str = "amq.gen-") -> str:
        """Invents a name that no queue has."""
        while (name := prefix + token_urlsafe(16)) in self.queues:
            pass
        return name

    def check_declarable(self, name: str) -> None:
        """Tells whether a client may declare a queue of that name; an existing one may be declared
        again."""
        self.check_usable(name)
        if name.startswith(SERVER_NAMED_PREFIX) and name not in self.queues:
            raise NameReserved(
                f"queue name '{name}' contains reserved prefix '{SERVER_NAMED_PREFIX}*'"
            )

    @staticmethod
    def check_usable(name: str) -> None:
        """Tells whether a client may use a queue by its name. Queues of sessions and subscriptions
        hold what one user may read, whoever else may read a queue of that name."""
        if is_own(name):
            raise NameReserved(
                f"queue '{name}': names that begin with {' or '.join(OWN_PREFIXES)} are the "
                "gateway's own; choose another"
            )

    async def delete_queue(
        self,
        name: str,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        owner: object = None,
        inside: bool = False,
    ) -> int:
        """Deletes a queue, and returns the number of messages that were in it."""
        if not inside and is_reserved(name):
            raise NameReserved(f"queue '{name}' is the gateway's own: its session ends it")
        async with self._turns.of(name):
            queue = self.queue(name, owner)
            counts = queue.counts()
            if if_unused and counts.consumers:
                raise QueueInUse(f"queue '{name}' has {counts.consumers} consumers")
            # as in RabbitMQ: what is in consumers' hands does not count, and goes with the queue
            if if_empty and counts.waiting:
                raise QueueNotEmpty(f"queue '{name}' has {counts.waiting} messages; purge it first")
            await self._end_queue(queue, QueueNotFound(f"queue '{name}' was deleted"))
            return counts.waiting

    async def _end_queue(self, queue: Queue, reason: CoreError) -> None:
        if queue.is_stored:
            await self._stored.delete(queue)
        self._forget_queue(queue, reason)

    def end_ephemeral(self, queue: Queue, reason: CoreError) -> None:
        """Ends a queue of which nothing is stored, at once; nothing happens if it has ended."""
        if not queue.is_deleted:
            self._forget_queue(queue, reason)

    def end(self) -> None:
        """Ends all queues of a virtual host that was removed: the queues in memory, and the stored
        ones that keep the state of its exchanges. It has no other stored queues by then."""
        gone = QueueNotFound(f"virtual host '{self.name}' was removed")
        for queue in [each for each in self.queues.values() if not each.is_stored]:
            self._forget_queue(queue, gone)
        self._later(self.topology.memories.end_all())

    def _forget_queue(self, queue: Queue, reason: CoreError) -> None:
        queue.is_deleted = True
        queue.traffic.note()
        self.counters.queues_deleted += 1
        del self.queues[queue.name]
        self._live -= queue.name.startswith(LIVE_PREFIX)
        if queue.owner is not None:
            self._owned.get(id(queue.owner), {}).pop(queue.name, None)
        removal = self.router.unregister_queue(queue.name)
        queue.end(reason)
        for name in removal.unused_exchanges:
            self._later(self.delete_exchange(name, if_unused=True))

    async def purge_queue(self, name: str, owner: object = None) -> int:
        """Removes the messages of a queue that are with no consumer, due or not, and returns their
        number. Messages in flight stay. Committed on return."""
        count = self.queue(name, owner).purge()
        await self.writer.flushed()
        return count

    async def pause_queue(self, name: str, *, is_paused: bool = True) -> None:
        """Stops deliveries from a queue, or lets them go on. A durable queue stays paused over a
        restart."""
        self.check_usable(name)
        async with self._turns.of(name):
            queue = self.queue(name)
            if queue.is_stored:
                await self._keeper.set_paused(self.name, name, is_paused=is_paused)
            if is_paused:
                queue.pause()
            else:
                queue.resume()

    # --- exchanges, bindings, subscriptions

    async def declare_exchange(self, spec: ExchangeSpec) -> None:
        """Makes the exchange, or checks that the one that is there was declared with the same
        words."""
        await self.topology.declare_exchange(spec)

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        await self.topology.delete_exchange(name, if_unused=if_unused)

    async def bind(
        self,
        source: str,
        destination: Queue | ExchangeRef,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Binds a queue or an exchange to an exchange, durably when both ends are durable. Raises
        LimitExceeded where there are too many bindings."""
        await self.topology.bind(Binding(source, destination, key, arguments))

    async def unbind(
        self,
        source: str,
        destination: Queue | ExchangeRef,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> bool:
        """Removes a binding; False: there was no such binding."""
        return await self.topology.unbind(Binding(source, destination, key, arguments))

    def subscribe(self, topic_filter: str, queue: Queue, options: object = None) -> bool:
        """Has a queue take what matches a filter in slash form. False: it did already, and gets new
        options. `sessions` writes down what is to survive a restart."""
        return self.router.subscribe(topic_filter, queue, options)

    def unsubscribe(self, topic_filter: str, queue: Queue) -> bool:
        return self.router.unsubscribe(topic_filter, queue)

    # --- consuming

    async def consume(
        self, name: str, sink: Sink, spec: ConsumerSpec, owner: object = None
    ) -> Consumer:
        """Makes a consumer, which gets nothing before its first `wake`. `end_consumer` ends it."""
        queue = self.queue(name, owner)
        start = await queue.find_start(spec)
        return queue.consume(sink, spec, start)

    def end_consumer(self, consumer: Consumer, verdict: Verdict | None) -> None:
        """Ends a consumer, and settles its open deliveries by the verdict; None: the client may
        still settle them."""
        if verdict is None:
            consumer.cancel()
        else:
            consumer.close(verdict)
        queue = self.queues.get(consumer.cursor.queue_name)
        if queue is not None:
            queue.on_consumer_gone()

    async def get(
        self,
        name: str,
        *,
        auto_settle: bool = False,
        owner: object = None,
        origin: Origin = NOBODY,
    ) -> Delivery | None:
        """Takes one message from a queue, if one is ready."""
        queue = self.queue(name, owner)
        queue.touch()
        getter = SingleGet()
        spec = ConsumerSpec(
            credit=1,
            replenish=False,
            auto_settle=auto_settle,
            is_passing=True,
            priority=-(1 << 31),
            origin=origin,
        )
        consumer = queue.consume_one(getter, spec)
        consumer.drain(getter.on_drained)
        try:
            delivery = await getter.answer
            if delivery is None:
                queue.traffic.count_empty_get()
            return delivery
        finally:
            self.end_consumer(consumer, None)  # the last other one may have left meanwhile

    async def browse(self, name: str, start: int, limit: int, owner: object = None) -> list[Entry]:
        """Reads messages that are not settled, from an offset on, without any effect on them."""
        queue = self.queue(name, owner)
        if queue.is_stored:
            return await self._stored.browse(queue, start, limit)
        return queue.peek(start, limit)

    def settle(
        self,
        deliveries: Iterable[Delivery],
        verdict: Verdict = ACCEPTED,
        publisher: Publisher | None = None,
        token: int = 0,
        records: tuple[Record, ...] = (),
    ) -> None:
        """Ends deliveries. With a publisher, it is told when that is committed."""
        settle(deliveries, verdict)
        if publisher is not None or records:
            self.writer.submit(Unit([], publisher, token, None, records))

    # --- queues that nobody uses

    def _on_idle(self, queue: Queue) -> None:
        self._later(self._delete_idle(queue))

    async def _delete_idle(self, queue: Queue) -> None:
        async with self._turns.of(queue.name):
            if not queue.is_deleted and not queue.counts().consumers:
                await self._end_queue(queue, QueueNotFound(f"queue '{queue.name}' has expired"))

    def release_owner(self, owner: object) -> None:
        """Deletes the exclusive queues of a connection that has ended."""
        for queue in self._owned.pop(id(owner), {}).values():
            if not queue.is_deleted:
                gone = QueueNotFound(f"queue '{queue.name}' ended with its owner")
                self._forget_queue(queue, gone)

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        self._keeper.later(work)


def _headers_of(message: Message) -> Callable[[], Mapping[str, object]]:
    return lambda: message.properties.header_map()
