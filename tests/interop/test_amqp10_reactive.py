"""AMQP 1.0 with python-qpid-proton's reactive client: transactions, settle modes, reconnecting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess
from tests.interop.amqp10_client import (
    PATIENCE,
    Connections,
    Delivery,
    Message,
    content,
    data,
    fresh,
    nothing_comes,
    proton,
    reactor,
)

handlers: Any = __import__("proton.handlers", fromlist=["x"])


@pytest.fixture
def connect(shared_gateway: GatewayProcess) -> Iterator[Connections]:
    connections = Connections(shared_gateway)
    yield connections
    connections.close()


def run(handler: Any) -> None:
    """Until the handler has closed its connection."""
    container = reactor.Container(handler)
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the client did not come to its end"
    if getattr(handler, "failure", None):
        raise AssertionError(handler.failure)


class Client(handlers.MessagingHandler, handlers.TransactionHandler):  # type: ignore[misc]
    """Connects, and remembers what went wrong."""

    def __init__(self, gateway: GatewayProcess, **options: Any) -> None:
        super().__init__(**options)
        self.url = f"amqp://guest:guest@127.0.0.1:{gateway.ports['amqp']}"
        self.failure = ""
        self.connection: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, allowed_mechs="PLAIN", reconnect=False)
        self.begin(event)

    def begin(self, event: Any) -> None:
        """What the test wants first."""

    def on_transport_error(self, event: Any) -> None:
        self.failure = str(event.transport.condition)
        super().on_transport_error(event)

    def on_link_error(self, event: Any) -> None:
        self.failure = str(event.link.remote_condition)
        self.connection.close()


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


def test_a_transaction_publishes_and_retires_together(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    source, target, connection = fresh("from"), fresh("to"), connect()
    sender = connection.create_sender(f"queue://{source}")
    for _ in range(3):
        sender.send(data(b"before"))
    client = Transact(shared_gateway, f"queue://{target}", f"queue://{source}", 3, commits=True)
    run(client)
    assert client.ended == "committed"
    receiver = connection.create_receiver(f"queue://{target}", credit=5)
    assert [content(receiver) for _ in range(3)] == [b"in transaction"] * 3
    assert nothing_comes(connection.create_receiver(f"queue://{source}"))


def test_an_aborted_transaction_leaves_no_trace(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    source, target, connection = fresh("from"), fresh("to"), connect()
    sender = connection.create_sender(f"queue://{source}")
    for _ in range(3):
        sender.send(data(b"before"))
    client = Transact(shared_gateway, f"queue://{target}", f"queue://{source}", 3, commits=False)
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


# --- reconnecting


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
