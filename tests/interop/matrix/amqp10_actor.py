"""AMQP 1.0 with python-qpid-proton's blocking client."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from tests.interop.matrix.letters import (
    ALL,
    PREFETCH,
    Actor,
    Kind,
    Letter,
    Place,
    Received,
    Verdict,
    told,
)
from tests.support.amqp10_client import (
    BlockingConnection,
    Delivery,
    Filter,
    Message,
    cut,
    proton,
    symbol,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS

FIRST = {symbol("rabbitmq:stream-offset-spec"): "first"}
QUEUE = re.compile(r"^(/queues/|\$queue/)")  # two ways to address one
OUTCOMES = {
    Verdict.ACCEPT: Delivery.ACCEPTED,
    Verdict.RELEASE: Delivery.RELEASED,
    Verdict.FAIL: Delivery.MODIFIED,
    Verdict.REJECT: Delivery.REJECTED,
}


def address(place: Place) -> str:
    if place.kind is Kind.TOPIC:
        return f"topic://{place.name}"
    return f"/queues/{quote(place.name, safe='')}"


class Amqp10(Actor):
    says = hears = ALL
    verdicts = frozenset(Verdict)

    def __init__(self, gateway: GatewayProcess, credit: int = PREFETCH) -> None:
        super().__init__(gateway, credit)
        url = f"amqp://guest:guest@127.0.0.1:{gateway.ports['amqp']}"
        self.connection = BlockingConnection(url, timeout=PATIENCE_SECONDS, allowed_mechs="PLAIN")
        self._senders: dict[str, Any] = {}
        self.receiver: Any = None

    def publish(self, place: Place, letter: Letter) -> None:
        reply_to = None if letter.reply_to is None else f"/queues/{letter.reply_to}"
        message = Message(
            body=letter.body,
            inferred=True,
            durable=True,
            content_type=letter.content_type,
            content_encoding=letter.content_encoding,
            correlation_id=letter.correlation_id,
            reply_to=reply_to,
            id=letter.message_id,
            subject=letter.subject,
            properties=dict(letter.headers) or None,
        )
        if letter.priority is not None:
            message.priority = letter.priority
        self.send(address(place), message)

    def send(self, target: str, message: Any) -> None:
        if target not in self._senders:
            self._senders[target] = self.connection.create_sender(target)
        self._senders[target].send(message)

    def consume(self, place: Place) -> None:
        self.listen(address(place), *([Filter(FIRST)] if place.kind is Kind.STREAM else []))

    def listen(self, source: str, *options: Any) -> None:
        # the client would give what it is asked for twice, and more with each message
        self.receiver = self.connection.create_receiver(source, credit=0, options=list(options))
        self.receiver.link.flow(self.credit)
        self.settled()  # so that the credit, too, has gone out

    def receive(self) -> Received:
        message = self.receiver.receive(timeout=PATIENCE_SECONDS)
        token = self.receiver.fetcher.unsettled[-1]
        said = message.annotations or {}
        deaths = said.get(symbol("x-opt-deaths")) or [{}]
        reply_to = message.reply_to
        letter = Letter(
            bytes(message.body),
            _text(message.content_type),
            _text(message.content_encoding),
            _text(message.correlation_id),
            None if reply_to is None else QUEUE.sub("", reply_to),
            _text(message.id),
            message.subject,
            message.priority,
            told((message.properties or {}).items()),
        )
        return Received(
            letter,
            not message.first_acquirer,
            message.delivery_count,
            token,
            deaths[0].get("queue"),
            deaths[0].get("reason"),
        )

    def settle(self, received: Received, verdict: Verdict) -> None:
        delivery = received.token
        self.receiver.fetcher.unsettled.remove(delivery)
        if verdict is Verdict.FAIL:
            delivery.local.failed = True
        delivery.update(OUTCOMES[verdict])
        delivery.settle()

    def stop(self) -> None:
        self.receiver.link.drain(0)
        self.connection.wait(lambda: self.receiver.link.credit == 0, timeout=PATIENCE_SECONDS)

    def settled(self) -> None:
        """A link is made behind them."""
        self.connection.create_sender(None).close()

    def cut(self) -> None:
        cut(self.connection)
        self.connection.timeout = 0.05  # nobody is there to answer its close

    def close(self) -> None:
        with suppress(proton.ProtonException, OSError):
            self.connection.close()


def _text(value: object) -> str | None:
    """proton reads an absent symbol as one that says None."""
    if value is None or value == "None":
        return None
    return bytes(value).decode() if isinstance(value, bytes | memoryview) else str(value)
