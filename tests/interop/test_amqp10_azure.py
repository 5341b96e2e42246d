"""AMQP 1.0 with the client inside azure-servicebus: a third implementation, in pure Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.interop.relay import Relay
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

pyamqp: Any = pytest.importorskip(
    "azure.servicebus._pyamqp", reason="azure-servicebus is not installed"
)
outcomes: Any = pytest.importorskip("azure.servicebus._pyamqp.outcomes")
constants: Any = pytest.importorskip("azure.servicebus._pyamqp.constants")
messages: Any = pytest.importorskip("azure.servicebus._pyamqp.message")
authentication: Any = pytest.importorskip("azure.servicebus._pyamqp.authentication")


def options() -> dict[str, Any]:
    return {"auth": authentication.SASLPlainAuth("guest", "guest"), "use_tls": False}


def message(body: bytes) -> Any:
    properties = messages.Properties(message_id=body[:20].decode(errors="replace"), subject="s")
    return messages.Message(data=[body], properties=properties, application_properties={"a": 1})


def send(port: int, queue: str, *bodies: bytes) -> None:
    with pyamqp.SendClient(f"127.0.0.1:{port}", f"queue://{queue}", **options()) as sender:
        for body in bodies:
            sender.send_message(message(body), timeout=PATIENCE_SECONDS)


class Receiver:
    """A receiving link: all that has come, with the ids by which it is settled."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.got: list[tuple[Any, Any]] = []

    @property
    def link(self) -> Any:
        return self.client._link

    def on_transfer(self, frame: Any, found: Any) -> None:
        self.got.append((frame, found))

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, "it did not come"
            self.client._connection.listen(wait=0.05)

    def bodies(self) -> list[bytes]:
        return [b"".join(found.data) for _, found in self.got]

    def settle(self, place: int, outcome: Any, **more: Any) -> None:
        frame, _ = self.got[place]
        self.link.send_disposition(
            first_delivery_id=frame[1],
            delivery_tag=frame[2],
            settled=None if more else True,
            delivery_state=outcome,
            **more,
        )


@contextmanager
def receiving(port: int, queue: str, credit: int, **more: Any) -> Iterator[Receiver]:
    client = pyamqp.ReceiveClient(
        f"127.0.0.1:{port}", f"/queues/{queue}", link_credit=credit, **options(), **more
    )
    receiver = Receiver(client)
    client._message_received = receiver.on_transfer
    client.open()
    transport = client._connection._transport
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not client.client_ready():
            assert time.monotonic() < deadline, "the client does not get ready"
        receiver.link.flow(link_credit=credit)
        yield receiver
    finally:
        with suppress(Exception):  # its connection may be lost
            client.close()
        transport.close()


def test_azure_sends_and_receives(shared_gateway: GatewayProcess) -> None:
    port, queue = shared_gateway.ports["amqp"], fresh("azure")
    send(port, queue, b"0", b"1")
    with receiving(port, queue, 4) as receiver:
        receiver.until(lambda: len(receiver.got) == 2)
        assert receiver.bodies() == [b"0", b"1"]
        found = receiver.got[0][1]
        assert found.application_properties == {b"a": 1}
        assert found.properties.subject == b"s"


def test_azure_settles_in_every_way(shared_gateway: GatewayProcess) -> None:
    port, queue = shared_gateway.ports["amqp"], fresh("azure")
    send(port, queue, b"0", b"1", b"2", b"3", b"4")
    ways = (
        outcomes.Accepted(),
        outcomes.Released(),
        outcomes.Rejected(),
        outcomes.Modified(),
        outcomes.Modified(delivery_failed=True),
    )
    with receiving(port, queue, 5) as receiver:
        receiver.until(lambda: len(receiver.got) == 5)
        for place, outcome in enumerate(ways):
            receiver.settle(place, outcome)
    with receiving(port, queue, 5) as receiver:
        receiver.until(lambda: len(receiver.got) == 3)
        headers = [found.header for _, found in receiver.got]
        assert receiver.bodies() == [b"1", b"3", b"4"]
        assert [header.first_acquirer for header in headers] == [False] * 3
        assert [header.delivery_count or 0 for header in headers] == [0, 0, 1]


@pytest.mark.parametrize("name", ["Accepted", "Released", "Rejected", "Modified"])
def test_azure_waits_for_the_outcome_that_it_asked_for(
    shared_gateway: GatewayProcess, name: str
) -> None:
    port, queue = shared_gateway.ports["amqp"], fresh("azure")
    send(port, queue, b"x")
    second = constants.ReceiverSettleMode.Second
    with receiving(port, queue, 1, receive_settle_mode=second) as receiver:
        receiver.until(lambda: len(receiver.got) == 1)
        outcome = getattr(outcomes, name)()
        receiver.settle(0, outcome, await_outcome=True, outcome_timeout=PATIENCE_SECONDS)


def test_azure_gets_what_its_credit_allows_and_the_rest_by_draining(
    shared_gateway: GatewayProcess,
) -> None:
    port, queue = shared_gateway.ports["amqp"], fresh("azure")
    send(port, queue, *(str(number).encode() for number in range(5)))
    with receiving(port, queue, 2) as receiver:
        receiver.until(lambda: len(receiver.got) == 2)
        send(port, queue, b"behind them")
        receiver.client._connection.listen(wait=0.1)
        assert len(receiver.got) == 2
        drained: list[Any] = []
        link = receiver.link
        before = link._incoming_flow

        def on_flow(frame: Any) -> None:
            drained.append(frame)
            before(frame)

        link._incoming_flow = on_flow
        link.current_link_credit = 10
        link._outgoing_flow(drain=True)
        receiver.until(lambda: bool(drained))
        assert len(receiver.got) == 6
        assert (drained[0][5], drained[0][6]) == (12, 0)  # all credit is spent


def test_azure_sends_and_receives_a_mebibyte(shared_gateway: GatewayProcess) -> None:
    port, queue = shared_gateway.ports["amqp"], fresh("azure")
    body = bytes(number * 31 % 251 for number in range(1 << 16)) * 16
    send(port, queue, body)
    with receiving(port, queue, 1, max_message_size=2 << 20) as receiver:
        receiver.until(lambda: len(receiver.got) == 1)
        assert receiver.bodies() == [body]


def test_azure_has_a_thousand_links_on_one_connection(shared_gateway: GatewayProcess) -> None:
    port, queue = shared_gateway.ports["amqp"], fresh("azure")
    send(port, queue, b"x")
    client = pyamqp.SendClient(f"127.0.0.1:{port}", f"/queues/{queue}", **options())
    with client:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not client.client_ready():
            assert time.monotonic() < deadline, "the client does not get ready"
        session, connection = client._session, client._connection
        unsettled = constants.SenderSettleMode.Unsettled
        links = [
            session.create_sender_link(f"/queues/{queue}", send_settle_mode=unsettled)
            for _ in range(1000)
        ]
        answers: list[dict[str, Any]] = []
        for number, link in enumerate(links):
            link.attach()
            if number % 100 == 99:
                connection.listen(wait=False)
        deadline = time.monotonic() + 3 * PATIENCE_SECONDS
        while not all(link.state.value == 3 for link in links):  # attached
            assert time.monotonic() < deadline, "some links are not attached"
            connection.listen(wait=0.05)
        for link in links:
            link.send_transfer(
                message(b"x"),
                on_send_complete=lambda reason, state: answers.append(state),
                timeout=PATIENCE_SECONDS,
            )
        while len(answers) < len(links):
            assert time.monotonic() < deadline, f"{len(answers)} answers"
            connection.listen(wait=0.05)
        assert all("accepted" in state for state in answers)


def test_azure_comes_back_after_a_cut_and_finds_what_it_had(
    shared_gateway: GatewayProcess,
) -> None:
    queue = fresh("azure")
    with Relay(shared_gateway.ports["amqp"]) as relay:
        send(relay.port, queue, b"kept")
        with receiving(relay.port, queue, 1) as receiver:
            receiver.until(lambda: len(receiver.got) == 1)
            relay.cut()
        with receiving(relay.port, queue, 2) as receiver:
            receiver.until(lambda: len(receiver.got) == 1)
            assert receiver.bodies() == [b"kept"]
            assert receiver.got[0][1].header.delivery_count == 1
            send(relay.port, queue, b"after")
            receiver.until(lambda: len(receiver.got) == 2)
