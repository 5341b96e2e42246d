"""Links out of the gateway: the part that taking and browsing links have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocols.amqp10.addressing.nodes import Supply
from protocols.amqp10.engine import proton as engine
from protocols.amqp10.engine.flow_echo import largest_payload
from protocols.amqp10.engine.proton import Attach
from queue_core.message.message import Message

if TYPE_CHECKING:
    from protocols.amqp10.client import Client


class SendingLink:
    """A link on which the gateway sends, as its receiver asked for it in its attach."""

    def __init__(
        self,
        client: Client,
        asked: Attach,
        supply: Supply,
        test: Callable[[Message], bool] | None,
    ) -> None:
        self.client = client
        self.handle = asked.handle
        self.name = asked.name
        self.session = engine.session_of(asked.handle)
        self.supply = supply
        self.is_open = True
        self._max_size = asked.max_message_size  # that the receiver takes; 0: any
        self._frame = largest_payload(client.engine)  # that fits into one; 0: any
        self._test = test  # of its filter; None: all
        self._clock = client.terms.clock
        self._vhost = client.terms.vhost
        self._next = 0
        self._drained = 0

    @property
    def sent_count(self) -> int:
        return self._next

    @property
    def delivery_count(self) -> int:
        """The delivery-count of the protocol: credit that was drained is spent, too."""
        return self._next + self._drained

    def _drain(self) -> None:
        """Spends the rest of the receiver's credit: nothing is left to send."""
        self._drained += engine.drained(self.handle)
        self.client.wake()
