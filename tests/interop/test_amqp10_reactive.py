"""AMQP 1.0 with python-qpid-proton's reactive client: transactions, settle modes, reconnecting."""

from __future__ import annotations

import threading
from typing import Any

import pika
import pytest

from tests.interop.relay import Relay
from tests.support.amqp10_client import (
    Connections,
    Delivery,
    Message,
    content,
    data,
    nothing_comes,
    proton,
    reactor,
)
from tests.support.amqp10_reactor import Client, run
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

# --- transactions


class Transact(Client):
    """Sends some and accepts some in one transaction, then commits or aborts it."""

    def __init__(
        self, gateway: GatewayProcess, target: str, source: str, count: int, *, commits: bool
    ) -> None:
        super().__init__(gateway, prefetch=0, auto_accept=False)
        self.target, self.source, self.count, self.commits = target, source, count, commits
        self.ended = ""
        self.sent = self.got = 0
        self.transaction: Any = None

    def begin(self, event: Any) -> None:
        self.sender = self.container.create_sender(self.connection, self.target)
        self.receiver = self.container.create_receiver(self.connection, self.source)
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.receiver.flow(self.count)
        self.send()

    def on_sendable(self, event: Any) -> None:
        self.send()

    def send(self) -> None:
        while self.transaction and self.sender.credit and self.sent < self.count:
            self.sent += 1
            self.transaction.send(self.sender, data(b"in transaction"))

    def on_message(self, event: Any) -> None:
        self.transaction.accept(event.delivery)
        self.got += 1
        self.discharge()

    def on_accepted(self, event: Any) -> None:
        self.discharge()

    def discharge(self) -> None:
        if self.got == self.count and self.sent == self.count and not self.ended:
            self.ended = "discharging"
            if self.commits:
                self.transaction.commit()
            else:
                self.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self.ended = "committed"
        self.connection.close()

    def on_transaction_aborted(self, event: Any) -> None:
        self.ended = "aborted"
        self.connection.close()

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.failure = "declare failed"
        self.connection.close()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.ended = "failed"
        self.connection.close()


class LeaveFirst(Transact):
    """Closes the receiver before it commits: what it accepted is the transaction's."""

    def discharge(self) -> None:
        if self.got == self.count and self.receiver.state & proton.Endpoint.LOCAL_ACTIVE:
            self.receiver.close()

    def on_link_closed(self, event: Any) -> None:
        if event.link == self.receiver:
            super().discharge()


class LeaveOpen(Transact):
    """Closes the control link instead of discharging."""

    def discharge(self) -> None:
        control = self.connection._txn_ctrl
        if self.got == self.count and control.state & proton.Endpoint.LOCAL_ACTIVE:
            control.close()

    def on_link_closed(self, event: Any) -> None:
        if event.link == self.connection._txn_ctrl:
            self.ended = "aborted"
            self.connection.close()


@pytest.mark.parametrize("kind", [Transact, LeaveFirst])
def test_a_transaction_publishes_and_retires_together(
    shared_gateway: GatewayProcess, connect: Connections, kind: type[Transact]
) -> None:
    source, target, connection = fresh("from"), fresh("to"), connect()
    sender = connection.create_sender(f"queue://{source}")
    for _ in range(3):
        sender.send(data(b"before"))
    client = kind(shared_gateway, f"queue://{target}", f"queue://{source}", 3, commits=True)
    run(client)
    assert client.ended == "committed"
    receiver = connection.create_receiver(f"queue://{target}", credit=5)
    assert [content(receiver) for _ in range(3)] == [b"in transaction"] * 3
    assert nothing_comes(connection.create_receiver(f"queue://{source}"))


@pytest.mark.parametrize("kind", [Transact, LeaveOpen])
def test_an_aborted_transaction_leaves_no_trace(
    shared_gateway: GatewayProcess, connect: Connections, kind: type[Transact]
) -> None:
    source, target, connection = fresh("from"), fresh("to"), connect()
    sender = connection.create_sender(f"queue://{source}")
    for _ in range(3):
        sender.send(data(b"before"))
    client = kind(shared_gateway, f"queue://{target}", f"queue://{source}", 3, commits=False)
    run(client)
    assert client.ended == "aborted"
    assert nothing_comes(connection.create_receiver(f"queue://{target}"))
    receiver = connection.create_receiver(f"queue://{source}", credit=5)
    assert [content(receiver) for _ in range(3)] == [b"before"] * 3


# --- settle modes


class Second(reactor.LinkOption):  # type: ignore[misc]
    """receiver-settle-mode second."""

    def apply(self, link: Any) -> None:
        link.rcv_settle_mode = proton.Link.RCV_SECOND


class AcceptSecond(Client):
    """A receiver that settles only after the gateway has."""

    def __init__(self, gateway: GatewayProcess, source: str) -> None:
        super().__init__(gateway, prefetch=1, auto_accept=False, auto_settle=False)
        self.source = source
        self.steps: list[str] = []

    def begin(self, event: Any) -> None:
        self.container.create_receiver(self.connection, self.source, options=Second())

    def on_message(self, event: Any) -> None:
        event.delivery.update(Delivery.ACCEPTED)
        self.steps.append("accepted, not settled")

    def on_settled(self, event: Any) -> None:
        self.steps.append("the gateway settled")
        event.delivery.settle()
        self.connection.close()


def test_with_settle_mode_second_the_gateway_settles_first(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    queue, connection = fresh("second"), connect()
    connection.create_sender(f"queue://{queue}").send(data(b"x"))
    client = AcceptSecond(shared_gateway, f"queue://{queue}")
    run(client)
    assert client.steps == ["accepted, not settled", "the gateway settled"]
    assert nothing_comes(connection.create_receiver(f"queue://{queue}"))


class SendSecond(Client):
    """A sender that asks the gateway to settle after it."""

    def __init__(self, gateway: GatewayProcess, target: str) -> None:
        super().__init__(gateway, auto_settle=False)
        self.target = target
        self.steps: list[str] = []

    def begin(self, event: Any) -> None:
        self.sender = self.container.create_sender(self.connection, self.target, options=Second())

    def on_sendable(self, event: Any) -> None:
        if not self.steps:
            self.steps.append("sent")
            event.sender.send(data(b"x"))

    def on_accepted(self, event: Any) -> None:
        mode = event.sender.remote_rcv_settle_mode
        is_first = mode == proton.Link.RCV_FIRST
        self.steps.append(f"mode first: {is_first}, settled: {event.delivery.settled}")
        event.delivery.settle()
        self.connection.close()


def test_a_sender_that_asks_for_settle_mode_second_is_told_first_and_answered_at_once(
    shared_gateway: GatewayProcess,
) -> None:
    client = SendSecond(shared_gateway, f"queue://{fresh('second-in')}")
    run(client)
    assert client.steps == ["sent", "mode first: True, settled: True"]


# --- many


class Pump(Client):
    """Sends and receives so many at full speed."""

    def __init__(self, gateway: GatewayProcess, address: str, count: int) -> None:
        super().__init__(gateway, prefetch=200)
        self.address, self.count = address, count
        self.sent = self.accepted = 0
        self.got: list[int] = []

    def begin(self, event: Any) -> None:
        self.container.create_sender(self.connection, self.address)
        self.container.create_receiver(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(Message(id=self.sent, body="x"))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        self.end()

    def on_message(self, event: Any) -> None:
        self.got.append(event.message.id)
        self.end()

    def end(self) -> None:
        if self.accepted == self.count and len(self.got) == self.count:
            self.connection.close()


def test_thousands_of_messages_arrive_once_and_in_order(shared_gateway: GatewayProcess) -> None:
    client = Pump(shared_gateway, f"queue://{fresh('pump')}", 5000)
    run(client)
    assert client.got == list(range(5000))


# --- one conversation after the other


class Receive(Client):
    """Credit by hand: what a test does with each message is its own."""

    def __init__(self, gateway: GatewayProcess, source: str, **options: Any) -> None:
        super().__init__(gateway, prefetch=0, auto_accept=False, **options)
        self.source = source
        self.got: list[Any] = []

    def begin(self, event: Any) -> None:
        self.receiver = self.container.create_receiver(self.connection, self.source)
        self.ask()

    def ask(self) -> None:
        self.receiver.flow(1)

    def on_message(self, event: Any) -> None:
        self.got.append(event.message)
        self.take(event.delivery)

    def take(self, delivery: Any) -> None:
        self.accept(delivery)


class Starve(Receive):
    """Takes two for a credit of two, and by a barrier of its own learns that no more come."""

    def ask(self) -> None:
        self.receiver.flow(2)

    def take(self, delivery: Any) -> None:
        self.accept(delivery)
        if len(self.got) == 2:
            self.container.create_sender(self.connection, self.source)

    def on_sendable(self, event: Any) -> None:
        if not getattr(self, "is_sent", False):
            self.is_sent = True
            event.sender.send(data(b"behind them"))

    def on_accepted(self, event: Any) -> None:
        self.starved = len(self.got) == 2
        self.receiver.drain(10)

    def on_link_flow(self, event: Any) -> None:
        is_asked = getattr(self, "starved", False) and event.link == self.receiver
        if is_asked and not event.link.draining():
            self.credit = event.link.credit
            self.connection.close()


def filled(connect: Connections, count: int, name: str) -> str:
    address = f"queue://{fresh(name)}"
    sender = connect().create_sender(address)
    for number in range(count):
        sender.send(data(str(number).encode()))
    return address


def test_a_reactive_client_gets_what_its_credit_allows_and_the_rest_by_draining(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    client = Starve(shared_gateway, filled(connect, 5, "starve"))
    run(client)
    assert client.starved
    assert (len(client.got), client.credit) == (6, 0)


class Settle(Receive):
    """Settles each message in the next of these ways."""

    WAYS = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)

    def take(self, delivery: Any) -> None:
        number = len(self.got)
        if number <= len(self.WAYS):
            if self.WAYS[number - 1] == Delivery.MODIFIED:
                delivery.local.failed = True
            delivery.update(self.WAYS[number - 1])
            delivery.settle()
        else:
            self.accept(delivery)
        if number == len(self.WAYS) + 1:
            self.connection.close()
        else:
            self.receiver.flow(1)


def test_a_reactive_client_settles_in_every_way(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    client = Settle(shared_gateway, filled(connect, 3, "ways"))
    run(client)
    found = [(bytes(each.body), each.delivery_count) for each in client.got]
    assert found == [(b"0", 0), (b"1", 0), (b"2", 0), (b"2", 0), (b"2", 1)]


class Large(Client):
    """Sends one message and gets it back."""

    def __init__(self, gateway: GatewayProcess, address: str, body: bytes) -> None:
        super().__init__(gateway, prefetch=1)
        self.address, self.body = address, body
        self.is_sent = self.is_same = False

    def begin(self, event: Any) -> None:
        self.container.create_sender(self.connection, self.address)
        self.container.create_receiver(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        if not self.is_sent:
            self.is_sent = True
            event.sender.send(data(self.body))

    def on_message(self, event: Any) -> None:
        self.is_same = bytes(event.message.body) == self.body

    def on_settled(self, event: Any) -> None:
        if self.is_same:
            self.connection.close()

    def on_link_flow(self, event: Any) -> None:
        if self.is_same:
            self.connection.close()


def test_a_reactive_client_sends_and_receives_a_mebibyte(shared_gateway: GatewayProcess) -> None:
    client = Large(shared_gateway, f"queue://{fresh('large')}", b"0123456789abcdef" * 65_536)
    run(client)
    assert client.is_same


class ManyLinks(Client):
    """One message on each of a thousand links."""

    def __init__(self, gateway: GatewayProcess, address: str) -> None:
        super().__init__(gateway)
        self.address = address
        self.used: set[str] = set()
        self.accepted = 0

    def begin(self, event: Any) -> None:
        for number in range(1000):
            self.container.create_sender(self.connection, self.address, name=f"link-{number}")

    def on_sendable(self, event: Any) -> None:
        if event.sender.name not in self.used:
            self.used.add(event.sender.name)
            event.sender.send(data(b"x"))

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == 1000:
            self.connection.close()


def test_a_reactive_client_has_a_thousand_links_on_one_connection(
    shared_gateway: GatewayProcess,
) -> None:
    client = ManyLinks(shared_gateway, f"queue://{fresh('links')}")
    run(client)
    assert client.accepted == 1000


# --- reconnecting


class Repeat(Client):
    """Sends some messages with an id each; what it never saw settled it sends again when it is
    back, as a careful sender does."""

    def __init__(self, gateway: GatewayProcess, relay: Relay, address: str, count: int) -> None:
        super().__init__(gateway)
        self.url = f"amqp://guest:guest@127.0.0.1:{relay.port}"
        self.address = address
        self.unsettled = dict.fromkeys(range(count))
        self.unsent = list(self.unsettled)
        self.tags: dict[str, int] = {}
        self.lives = 0
        self.on_flight = threading.Event()  # all of one life are sent

    def on_start(self, event: Any) -> None:
        self.container = event.container
        backoff = reactor.Backoff(initial=0.05, max_delay=0.2)
        self.connection = event.container.connect(
            self.url, allowed_mechs="PLAIN", reconnect=backoff
        )
        self.container.create_sender(self.connection, self.address)

    def on_transport_error(self, event: Any) -> None:
        """Does nothing: the container connects again by itself."""

    def on_link_opened(self, event: Any) -> None:
        self.lives += 1
        self.unsent = list(self.unsettled)

    def on_sendable(self, event: Any) -> None:
        while self.unsent and event.sender.credit:
            number = self.unsent.pop(0)
            delivery = event.sender.send(Message(id=f"id-{number}", body=number, durable=True))
            self.tags[delivery.tag] = number
        if not self.unsent:
            self.on_flight.set()

    def on_accepted(self, event: Any) -> None:
        self.unsettled.pop(self.tags[event.delivery.tag], None)
        if not self.unsettled:
            self.connection.close()


def test_what_was_committed_but_not_answered_is_not_stored_again(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    """The wire is cut between the commit and the disposition."""
    count, queue = 20, fresh("dedup")
    channel = pika.BlockingConnection(pika.URLParameters(shared_gateway.amqp_url())).channel()
    channel.queue_declare(queue, durable=True, arguments={"x-deduplication-window": 60_000})
    with Relay(shared_gateway.ports["amqp"]) as relay:
        client = Repeat(shared_gateway, relay, f"/queues/{queue}", count)
        relay.silence_when(b"\x00\x53\x15")  # from the first disposition on
        thread = threading.Thread(target=reactor.Container(client).run, daemon=True)
        thread.start()
        assert client.on_flight.wait(PATIENCE_SECONDS)
        browser = connect().create_receiver(
            f"/queues/{queue}", credit=count, options=reactor.Copy()
        )
        for _ in range(count):
            browser.receive()  # they are committed
        assert len(client.unsettled) == count
        relay.cut()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "the client did not come to its end"
    assert (client.lives, client.unsettled) == (2, {})
    receiver = connect().create_receiver(f"/queues/{queue}", credit=2 * count)
    assert [receiver.receive().body for _ in range(count)] == list(range(count))
    assert nothing_comes(receiver)
    channel.connection.close()


def annotate(receiver: Any, **annotations: Any) -> None:
    """Gives the oldest delivery back, with something added to its message."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = True
    delivery.local.annotations = {proton.symbol(name): each for name, each in annotations.items()}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()


def test_what_was_accepted_or_annotated_survives_kill_and_restart(gateway: GatewayProcess) -> None:
    connection = Connections(gateway)()
    work = connection.create_sender("queue://annotated")
    work.send(Message(body="work", annotations={proton.symbol("x-mine"): 1}))
    worker = connection.create_receiver("queue://annotated", credit=1)
    worker.receive()
    annotate(worker, step="one", who=proton.uint(5))
    worker.link.flow(1)
    worker.receive()
    annotate(worker, step="two")
    sender = connection.create_sender("queue://survives")
    accepted = []
    for number in range(50):
        sender.send(Message(id=number, body="x"))
        accepted.append(number)
    gateway.kill()
    gateway.start()
    connections = Connections(gateway)
    receiver = connections().create_receiver("queue://survives", credit=100)
    assert [receiver.receive().id for _ in accepted] == accepted
    again = connections().create_receiver("queue://annotated", credit=1).receive()
    assert (again.body, again.delivery_count) == ("work", 2)
    found = {str(name): value for name, value in again.annotations.items()}
    assert (found["x-mine"], found["step"], found["who"]) == (1, "two", 5)
    assert isinstance(again.annotations[proton.symbol("who")], proton.uint)
    connections.close()
