"""An AMQP 1.0 connection on a transport without a network."""

from __future__ import annotations

from protocols.amqp10.connection import Connection
from protocols.amqp10.context import Context
from protocols.amqp10.wire.sasl import HEADER as SASL
from tests.support.amqp091_conversation import anns_gateway
from tests.support.fake_transport import Transport
from tests.support.until import turns


async def test_a_connection_before_its_login_is_named_by_its_address() -> None:
    """The account of memory names the connections that it ends, whatever state they are in."""
    connection, transport = Connection(Context(anns_gateway())), Transport()
    transport.protocol = connection
    connection.connection_made(transport)
    connection.data_received(SASL)
    await turns(3)
    assert connection.who() == "'' at 127.0.0.1"
    connection.connection_lost(None)
    await turns(3)
