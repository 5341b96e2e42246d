"""A conversation without a socket: bytes go into a machine, packets and commands come out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from protocols.mqtt.machine import Command, HoldBack, Machine, Perform
from protocols.mqtt.opening.handshake import Accepted
from protocols.mqtt.output import Output
from protocols.mqtt.states import State
from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeRequest,
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import PropertySet
from protocols.mqtt.wire.reasons import ReasonCode
from queue_core.access.accounts import Roll
from queue_core.access.auth import Auth, Peer
from tests.support.until import turns
from tests.support.user_auth import HERE, auth_of
from tests.unit.protocols.mqtt.wired import Broking


class Carrier:
    """Stands in for the socket's side, and keeps what it hears."""

    def __init__(self) -> None:
        self.opened: list[Accepted] = []
        self.endings = 0
        self.whence = Peer("here")

    def peer(self) -> Peer:
        return self.whence

    def on_opened(self, accepted: Accepted) -> None:
        self.opened.append(accepted)

    def on_ended(self) -> None:
        self.endings += 1


class Conversation:
    """One machine, and whoever talks to it."""

    def __init__(self, broking: Broking) -> None:
        self.carrier = Carrier()
        self.output = Output(lambda: None, lambda: None, lambda: 0)
        self.machine = Machine(broking.context, self.output, self.carrier)

    def say(self, *packets: Packet) -> Command | None:
        return self.machine.receive(b"".join(encode(packet, Version.V5) for packet in packets))

    def heard(self) -> list[Any]:
        """The packets since the last time."""
        raw, found, position = b"".join(self.output.pieces), [], 0
        self.output.pieces.clear()
        while (frame := split(raw, position, 1 << 20)) is not None:
            found.append(decode(frame.head, raw[frame.start : frame.end], Version.V5))
            position = frame.end
        return found

    async def carry_out(self, command: Command | None) -> Command | None:
        """Does what a connection does with a command, and with the input behind it."""
        assert command is not None
        await self.machine.perform(command)
        return self.machine.receive(b"") if self.machine.proceed() else None


async def connected(broking: Broking, client_id: str = "c") -> Conversation:
    talk = Conversation(broking)
    await talk.carry_out(talk.say(Connect(client_id, Version.V5)))
    assert [type(each) for each in talk.heard()] == [ConnAck]
    return talk


async def test_connect_is_a_command_and_what_comes_behind_it_waits_for_connack() -> None:
    talk = Conversation(Broking())
    command = talk.say(Connect("c", Version.V5), PingReq())
    assert isinstance(command, Perform)
    assert talk.machine.command is command
    assert talk.heard() == []
    await talk.carry_out(command)
    assert [type(each) for each in talk.heard()] == [ConnAck, PingResp]
    assert talk.machine.state is State.CONNECTED
    assert len(talk.carrier.opened) == 1


async def test_however_the_bytes_are_cut_the_same_packets_come_out() -> None:
    talk = await connected(Broking())
    raw = encode(PingReq(), 5) + encode(Publish("a", b"body", 1, packet_id=7), 5) + b"\xc0\0"
    for cut in range(1, len(raw)):
        for piece in (raw[:cut], raw[cut:]):
            if talk.machine.must_keep(len(piece)):
                talk.machine.keep(piece)
            else:
                assert talk.machine.receive(piece) is None
        assert [type(each) for each in talk.heard()] == [PingResp, PubAck, PingResp], cut


async def test_a_large_packet_is_kept_until_it_is_whole_and_its_size_is_known_before() -> None:
    talk = await connected(Broking())
    raw = encode(Publish("a", bytes(100_000), 1, packet_id=7), 5)
    talk.machine.receive(raw[:1000])
    assert facts(talk) == (False, len(raw))
    assert talk.machine.must_keep(1000)
    assert not talk.machine.must_keep(len(raw) - 1000)
    talk.machine.receive(raw[1000:])
    assert facts(talk) == (True, 0)


def facts(talk: Conversation) -> tuple[bool, int]:
    """Whether a packet was handled, and the bytes to reserve for the next."""
    return talk.machine.has_handled, talk.machine.expected_bytes


async def test_the_machine_stops_when_its_time_is_over_and_goes_on_where_it_was() -> None:
    talk = await connected(Broking())
    talk.machine.receive(encode(PingReq(), 5) * 3, lambda: True)
    assert len(talk.heard()) == 1
    assert talk.machine.is_unfinished
    talk.machine.receive(b"")
    assert len(talk.heard()) == 2
    assert not talk.machine.is_unfinished


async def test_mqtt_3_1_0_1_a_first_packet_that_is_no_connect_ends_the_connection() -> None:
    talk = Conversation(Broking())
    talk.say(PingReq())
    assert talk.machine.state is State.CLOSED
    assert talk.carrier.endings == 1


async def test_mqtt_3_1_0_2_a_second_connect_ends_the_connection() -> None:
    talk = await connected(Broking())
    talk.say(Connect("c", Version.V5), PingReq())
    (last,) = talk.heard()
    assert isinstance(last, Disconnect)
    assert last.reason == ReasonCode.PROTOCOL_ERROR
    assert talk.carrier.endings == 1


async def test_a_machine_that_has_ended_says_nothing_more() -> None:
    talk = await connected(Broking())
    talk.machine.fail(ReasonCode.SERVER_SHUTTING_DOWN, "bye")
    talk.machine.fail(ReasonCode.QUOTA_EXCEEDED, "too much")
    talk.machine.close()
    assert [each.reason for each in talk.heard()] == [ReasonCode.SERVER_SHUTTING_DOWN]
    assert talk.carrier.endings == 1


async def test_a_name_that_no_session_can_have_is_refused_before_anything_is_judged_with_it() -> (
    None
):
    broking = Broking()
    broking.use(Auth((), ()))  # asked, it would refuse for another reason
    talk = Conversation(broking)
    await talk.carry_out(talk.say(Connect("x" * 65_535, Version.V5, will=Will("plant/gone"))))
    (answer,) = talk.heard()
    assert answer.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        pytest.param(["anybody"], ReasonCode.NO_MATCHING_SUBSCRIBERS, id="its own"),
        pytest.param(["root"], ReasonCode.NOT_AUTHORIZED, id="another's"),
        pytest.param(["anybody", "root"], ReasonCode.NOT_AUTHORIZED, id="another's beside its own"),
    ],
)
async def test_a_message_names_nobody_else_as_its_user(users: list[str], reason: int) -> None:
    """Consumers over AMQP get it as a user-id, which is proven there."""
    talk = await connected(Broking())
    properties = PropertySet(user=tuple(("user-id", user) for user in users))
    for _ in range(2):  # by the fast path, too
        talk.say(Publish("a/b", b"x", qos=1, packet_id=1, properties=properties))
        (answer,) = talk.heard()
        assert answer.reason == reason


async def test_a_will_names_nobody_else_as_its_user() -> None:
    talk = Conversation(Broking())
    will = Will("a/b", properties=PropertySet(user=(("user-id", "root"),)))
    await talk.carry_out(talk.say(Connect("c", Version.V5, will=will)))
    (answer,) = talk.heard()
    assert answer.reason == ReasonCode.NOT_AUTHORIZED


@pytest.mark.parametrize(
    ("has_certificate", "reason"),
    [(False, ReasonCode.SUCCESS), (True, ReasonCode.NOT_AUTHORIZED)],
    ids=["without a certificate", "with one that names nobody"],
)
async def test_a_certificate_that_names_nobody_is_no_login(
    has_certificate: bool, reason: int
) -> None:
    """Clients without credentials come in here, and whoever shows a certificate is none."""
    broking = Broking(certificate_login=True)
    auth, _ = await auth_of(Roll())
    broking.use(auth)
    talk = Conversation(broking)
    talk.carrier.whence = dataclasses.replace(HERE, has_certificate=has_certificate)
    await talk.carry_out(talk.say(Connect("c", Version.V5)))
    (answer,) = talk.heard()
    assert answer.reason == reason


async def test_a_client_that_is_lost_during_its_login_is_never_let_in() -> None:
    broking = Broking()
    talk = Conversation(broking)
    command = talk.say(Connect("c", Version.V5))
    talk.machine.lost()
    await talk.carry_out(command)
    await broking.settle()
    assert talk.heard() == []
    assert talk.carrier.opened == []
    assert ("/", "c") not in broking.world.sessions._attached


@pytest.mark.parametrize("overtakes", [True, False])
async def test_acknowledgements_overtake_while_subscribers_are_behind(overtakes: bool) -> None:
    broking = Broking(max_inflight=1)
    slow = await connected(broking, "slow")
    await subscribed(slow)
    live = broking.world.vhost.queues["$live/session/slow"]
    live.spec = dataclasses.replace(live.spec, max_length=1)
    publisher = await connected(broking, "p")
    many = [Publish("t", b"%d" % number, 1, packet_id=number) for number in range(1, 6)]
    command = publisher.say(*many)
    assert isinstance(command, HoldBack)
    assert len(publisher.heard()) < len(many)
    publisher.say(PingReq() if overtakes else Publish("t", b"6", 1, packet_id=6))
    assert [type(each) for each in publisher.heard()] == [PingResp] * overtakes


async def subscribed(talk: Conversation) -> None:
    talk.say(Subscribe(1, (SubscribeRequest("t", 1),)))
    await turns(50)
    assert [type(each) for each in talk.heard()] == [SubAck]
