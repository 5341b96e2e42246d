"""Reasons in words: what clients are told, and what the log says of those who come and go."""

from __future__ import annotations

import pytest

from protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeRequest,
    UnsubAck,
    Unsubscribe,
    Will,
)
from protocols.mqtt.wire.websocket_codec import UpgradeRefused, answer_upgrade
from queue_core.access.auth import Auth, Credentials, Identity, NotChecked, Peer
from queue_core.errors import AccessRefused
from tests.support.fake_services import Everything
from tests.unit.protocols.mqtt.wire.test_websocket_codec import REQUEST, anybody
from tests.unit.protocols.mqtt.wired import Anybody, Broking

REFUSED = [
    (Subscribe(1, (SubscribeRequest("$queue/", 1),)), SubAck),
    (Unsubscribe(1, ("nothing",)), UnsubAck),
    (Publish("$SYS/x", b"", 1, packet_id=5), PubAck),
    (Publish("$SYS/x", b"", 2, packet_id=5), PubRec),
    (PubRel(9), PubComp),
    (Connect("again"), Disconnect),
]


@pytest.mark.parametrize("are_on", [True, False])
@pytest.mark.parametrize(("packet", "answer"), REFUSED, ids=lambda each: type(each).__name__)
async def test_reason_strings_are_in_every_refusal_or_in_none(
    packet: Packet, answer: type[Packet], are_on: bool
) -> None:
    client = await Broking(reason_strings=are_on).client("s")
    client.gets(packet)
    await client.until(answer)
    assert bool(client.of(answer)[0].properties.reason_string) is are_on


@pytest.mark.parametrize("are_on", [True, False])
async def test_reason_strings_are_in_a_connack_that_refuses_or_not(are_on: bool) -> None:
    here = Broking(reason_strings=are_on)
    client = here.wire()
    client.gets(Connect("s", will=Will("$SYS/x", b"")))
    said = await client.until(ConnAck)
    assert isinstance(said, ConnAck)
    assert said.reason >= 0x80
    assert bool(said.properties.reason_string) is are_on


class Judge(Anybody):
    def __init__(self, error: AccessRefused) -> None:
        self._error = error

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        raise self._error


@pytest.mark.parametrize("error", [AccessRefused("wrong"), NotChecked("too many")], ids=str)
async def test_a_login_that_fails_is_one_line_of_the_log(
    error: AccessRefused, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    here = Broking()
    here.use(Auth([Judge(error)], [Everything()]))
    client = here.wire()
    client.gets(Connect("s", username="ann", password=b"guess"))
    await client.until(ConnAck)
    assert [str(error) in record.getMessage() for record in caplog.records] == [True]


async def test_a_takeover_is_for_those_who_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    here = Broking()
    first = await here.client("s")
    await here.client("s")
    await first.until(Disconnect)
    [record] = [each for each in caplog.records if "another connection" in each.getMessage()]
    assert record.levelname == "DEBUG"


@pytest.mark.parametrize("path", ["/", "/?x=1", "/there"])
def test_a_websocket_is_to_be_had_at_its_path_and_at_the_root(path: str) -> None:
    request = REQUEST.replace("GET /mqtt ", f"GET {path} ").encode()
    assert answer_upgrade(request, "/there", anybody).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("path", ["/mqtt", "/there/", "//", "/other"])
def test_a_websocket_is_to_be_had_nowhere_else(path: str) -> None:
    request = REQUEST.replace("GET /mqtt ", f"GET {path} ").encode()
    with pytest.raises(UpgradeRefused):
        answer_upgrade(request, "/there", anybody)
