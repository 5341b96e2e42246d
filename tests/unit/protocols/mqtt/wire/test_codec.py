"""The codec: one list of vectors, both ways and cut everywhere; any bytes decode or are refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.encoder import ENCODERS, encode
from protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
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
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import (
    FLAG,
    RULES,
    PacketType,
    PropertySet,
    encode_properties,
)
from protocols.mqtt.wire.reasons import (
    REASONS,
    MqttError,
    ReasonCode,
    connack_reason,
    disconnect_reason,
    reason_of,
)
from queue_core import errors
from tests.unit.protocols.mqtt.vectors import VECTORS

LIMIT = 1 << 20


def all_of(buffer: bytes, version: int) -> tuple[list[Packet], int]:
    """Every whole packet in the buffer, and where the rest begins."""
    packets, position = [], 0
    while (frame := split(buffer, position, LIMIT)) is not None:
        packets.append(decode(frame.head, buffer[frame.start : frame.end], version))
        position = frame.end
    return packets, position


def outcome(head: int, body: bytes, version: int) -> Packet | ReasonCode:
    """The packet, or the code that refuses it."""
    try:
        return decode(head, body, version)
    except MqttError as error:
        return error.reason


@pytest.mark.parametrize(("version", "octets", "packet"), VECTORS)
def test_a_packet_is_written_as_the_standard_says(
    version: int, octets: str, packet: Packet
) -> None:
    assert encode(packet, version).hex(" ") == bytes.fromhex(octets).hex(" ")


@pytest.mark.parametrize(("version", "octets", "packet"), VECTORS)
def test_a_packet_is_read_as_the_standard_says(version: int, octets: str, packet: Packet) -> None:
    raw = bytes.fromhex(octets)
    assert all_of(raw, version) == ([packet], len(raw))


@pytest.mark.parametrize(("version", "octets", "packet"), VECTORS)
def test_a_packet_that_is_not_all_here_is_waited_for(
    version: int, octets: str, packet: Packet
) -> None:
    raw = bytes.fromhex(octets)
    for cut in range(len(raw)):
        assert split(raw[:cut], 0, LIMIT) is None


@pytest.mark.parametrize(("version", "octets", "packet"), VECTORS)
def test_a_body_that_ends_early_is_malformed_or_another_packet(
    version: int, octets: str, packet: Packet
) -> None:
    raw = bytes.fromhex(octets)
    frame = split(raw, 0, LIMIT)
    assert frame is not None
    body = raw[frame.start : frame.end]
    for cut in range(len(body)):
        assert outcome(frame.head, body[:cut], version) != packet


@pytest.mark.parametrize(("version", "octets", "packet"), VECTORS)
def test_bytes_behind_a_body_are_malformed_unless_they_are_payload(
    version: int, octets: str, packet: Packet
) -> None:
    raw = bytes.fromhex(octets)
    frame = split(raw, 0, LIMIT)
    assert frame is not None
    body = raw[frame.start : frame.end] + b"\xff"
    if isinstance(packet, Publish):
        assert decode(frame.head, body, version) != packet
        return
    with pytest.raises(MqttError) as caught:
        decode(frame.head, body, version)
    assert caught.value.reason is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("version", list(Version))
def test_a_stream_reads_the_same_wherever_it_is_cut(version: Version) -> None:
    chosen = [vector.values for vector in VECTORS if vector.values[0] == version]
    raw = b"".join(bytes.fromhex(str(octets)) for _, octets, _ in chosen)
    expected = [packet for _, _, packet in chosen]
    for cut in range(len(raw) + 1):
        first, used = all_of(raw[:cut], version)
        second, rest = all_of(raw[used:], version)
        assert first + second == expected
        assert used + rest == len(raw)


MALFORMED = [
    pytest.param(5, "0000", 0x81, id="type 0"),
    pytest.param(4, "f000", 0x81, id="AUTH in 3.1.1 [MQTT-3.15]"),
    pytest.param(4, "3600010000", 0x81, id="[MQTT-3.3.1-4] QoS 3"),
    pytest.param(4, "38000161", 0x81, id="[MQTT-3.3.1-2] DUP with QoS 0"),
    pytest.param(5, "300001230000", 0x90, id="[MQTT-3.3.2-2] wildcard in a topic name"),
    pytest.param(4, "300000", 0x81, id="[MQTT-4.7.3-1] empty topic"),
    pytest.param(5, "30000000", 0x82, id="neither topic nor alias"),
    pytest.param(4, "320001610000", 0x82, id="[MQTT-2.3.1-1] packet identifier 0"),
    pytest.param(4, "9000018f", 0x81, id="[MQTT-3.9.3-2] SUBACK with a reason of 5.0"),
    pytest.param(5, "3000016103010102", 0x81, id="property value cut off"),
    pytest.param(5, "30000161020102", 0x82, id="payload format 2"),
    pytest.param(5, "300001610401010100", 0x82, id="a property given twice"),
    pytest.param(5, "3000016105110000000a", 0x81, id="a property that has no place here"),
    pytest.param(5, "300001610170", 0x81, id="a property that does not exist"),
    pytest.param(5, "3000016105", 0x81, id="property length beyond the end"),
    pytest.param(5, "30000161820026", 0x81, id="[MQTT-1.5.5-1] length in more bytes than needed"),
    pytest.param(5, "300001618080808001", 0x81, id="length in five bytes"),
    pytest.param(5, "3000016105230000" + "00", 0x81, id="alias cut off"),
    pytest.param(4, "300001ff", 0x81, id="[MQTT-1.5.4-1] no UTF-8"),
    pytest.param(4, "300003eda080", 0x81, id="[MQTT-1.5.4-1] a surrogate"),
    pytest.param(4, "30000100", 0x81, id="[MQTT-1.5.4-2] NUL"),
    pytest.param(4, "600007", 0x81, id="[MQTT-3.6.1-1] PUBREL flags"),
    pytest.param(4, "800001000161" + "00", 0x81, id="[MQTT-3.8.1-1] SUBSCRIBE flags"),
    pytest.param(4, "820001", 0x82, id="[MQTT-3.8.3-3] no filter"),
    pytest.param(4, "82000100016104", 0x81, id="[MQTT-3-8.3-4] reserved bits, 3.1.1"),
    pytest.param(5, "82000100000161c0", 0x81, id="[MQTT-3.8.3-5] reserved bits"),
    pytest.param(5, "8200010000016103", 0x82, id="subscription with QoS 3"),
    pytest.param(5, "8200010000016130", 0x82, id="retain handling 3"),
    pytest.param(
        5, "82000100000a" + b"$share/g/t".hex() + "04", 0x82, id="[MQTT-3.8.3-4] no-local"
    ),
    pytest.param(5, "820001020b00000161" + "00", 0x82, id="subscription identifier 0"),
    pytest.param(5, "820001040b010b02000161" + "00", 0x82, id="two subscription identifiers"),
    pytest.param(4, "a00001000161", 0x81, id="[MQTT-3.10.1-1] UNSUBSCRIBE flags"),
    pytest.param(4, "a20001", 0x82, id="[MQTT-3.10.3-2] nothing to unsubscribe"),
    pytest.param(4, "8200010000" + "00", 0x81, id="[MQTT-4.7.3-1] empty filter, 3.1.1"),
    pytest.param(5, "820001000000" + "00", 0x81, id="[MQTT-4.7.3-1] empty filter"),
    pytest.param(4, "8200010005" + b"a/#/b".hex() + "00", 0x81, id="[MQTT-4.7.1-1] on after #"),
    pytest.param(5, "820001000002" + b"a#".hex() + "00", 0x81, id="[MQTT-4.7.1-1] # in a level"),
    pytest.param(3, "8200010002" + b"a+".hex() + "00", 0x81, id="[MQTT-4.7.1-2] + in a level"),
    pytest.param(5, "820001000009" + b"$share//x".hex() + "00", 0x81, id="[MQTT-4.8.2-1] no group"),
    pytest.param(5, "82000100000a" + b"$share/+/x".hex() + "00", 0x81, id="[MQTT-4.8.2-2] group +"),
    pytest.param(
        5, "820001000008" + b"$share/g".hex() + "00", 0x81, id="[MQTT-4.8.2-2] group alone"
    ),
    pytest.param(4, "a200010000", 0x81, id="[MQTT-4.7.3-1] UNSUBSCRIBE from an empty filter"),
    pytest.param(5, "a2000100000261" + "2b", 0x81, id="[MQTT-4.7.1-2] UNSUBSCRIBE from a+"),
    pytest.param(4, "1400044d515454040200000000", 0x81, id="[MQTT-2.2.2-2] CONNECT flags"),
    pytest.param(5, "14", 0x81, id="CONNECT flags, and nothing more"),
    pytest.param(5, "40000742", 0x81, id="[MQTT-3.4.2-1] no such PUBACK reason"),
    pytest.param(5, "6200070011", 0x81, id="PUBREL properties cut off"),
    pytest.param(5, "e002", 0x81, id="[MQTT-3.14.2-1] no such DISCONNECT reason"),
    pytest.param(5, "f0010000", 0x81, id="[MQTT-3.15.2-1] no such AUTH reason"),
    pytest.param(4, "c100", 0x81, id="[MQTT-2.2.2-2] PINGREQ flags"),
    pytest.param(4, "c000", 0x81, id="PINGREQ with a body"),
    pytest.param(4, "1000044d5154540403000000", 0x81, id="[MQTT-3.1.2-3] reserved connect flag"),
    pytest.param(4, "1000044d51545404000a", 0x81, id="CONNECT without a client id"),
    pytest.param(4, "1000044d515454041c000000", 0x81, id="[MQTT-3.1.2-14] will with QoS 3"),
    pytest.param(4, "1000044d5154540422000000", 0x81, id="[MQTT-3.1.2-15] will retain, no will"),
    pytest.param(4, "1000044d515454040a000000", 0x81, id="[MQTT-3.1.2-13] will QoS, no will"),
    pytest.param(4, "1000044d51545404420000000000", 0x81, id="[MQTT-3.1.2-22] password alone"),
    pytest.param(4, "1000044d51545406020000000000", 0x84, id="[MQTT-3.1.2-2] level 6"),
    pytest.param(4, "1000064d514973647004020000", 0x84, id="MQIsdp with level 4"),
    pytest.param(4, "1000044d51545603020000", 0x84, id="[MQTT-3.1.2-1] MQTV"),
    pytest.param(5, "1000044d515454050200000321000000" + "00", 0x82, id="receive maximum 0"),
    pytest.param(5, "1000044d5154540502000005270000000000", 0x82, id="maximum packet size 0"),
    pytest.param(5, "1000044d515454050200000416000164" + "00", 0x82, id="auth data, no method"),
]


@pytest.mark.parametrize(("version", "octets", "reason"), MALFORMED)
def test_what_the_standard_forbids_is_refused_with_its_code(
    version: int, octets: str, reason: int
) -> None:
    raw = bytes.fromhex(octets)
    with pytest.raises(MqttError) as caught:
        decode(raw[0], raw[1:], version)
    assert caught.value.reason == reason


@pytest.mark.parametrize("head", [0x10, 0x12, 0x14, 0x18, 0x1F])
def test_version_3_1_uses_no_flags_of_connect_whatever_a_client_sets(head: int) -> None:
    body = encode(Connect("c", Version.V31), 3)[2:]
    assert decode(head, body, 5) == Connect("c", Version.V31)


@pytest.mark.parametrize("packet", [PingReq(), Disconnect(), PubAck(7), PubRel(7)])
def test_version_3_1_uses_no_flags_but_those_of_publish(packet: Packet) -> None:
    raw = encode(packet, 3)
    assert decode(raw[0] ^ 0x04, raw[2:], 3) == packet


def test_mqtt_3_2_2_15_the_declared_length_is_refused_before_the_body_is_here() -> None:
    with pytest.raises(MqttError) as caught:
        split(bytes.fromhex("30ffffff7f"), 0, 1000)
    assert caught.value.reason is ReasonCode.PACKET_TOO_LARGE


def test_a_packet_of_just_the_limit_is_taken() -> None:
    raw = encode(Publish("a", b"x" * 95), 4)
    assert len(raw) == 100
    assert split(raw, 0, 100) is not None
    with pytest.raises(MqttError):
        split(raw, 0, 99)


def test_a_remaining_length_of_five_bytes_is_malformed() -> None:
    with pytest.raises(MqttError) as caught:
        split(bytes.fromhex("30ffffffff01"), 0, LIMIT)
    assert caught.value.reason is ReasonCode.MALFORMED_PACKET


def test_a_client_of_3_1_may_repeat_a_subscribe_with_dup() -> None:
    raw = bytes.fromhex("8a06000100016101")
    assert all_of(raw, 3)[0] == [Subscribe(1, (SubscribeRequest("a", 1),))]
    with pytest.raises(MqttError):
        all_of(raw, 4)


@given(st.binary(max_size=300), st.sampled_from(list(Version)))
def test_any_bytes_decode_or_raise_our_own_error(raw: bytes, version: Version) -> None:
    with contextlib.suppress(MqttError):
        all_of(raw, version)


@given(st.integers(0, 255), st.binary(max_size=200), st.sampled_from(list(Version)))
def test_any_body_decodes_to_what_encodes_again_or_is_refused(
    head: int, body: bytes, version: Version
) -> None:
    try:
        packet = decode(head, body, version)
    except MqttError:
        return
    again = encode(packet, version)
    frame = split(again, 0, LIMIT)
    assert frame is not None
    assert decode(frame.head, again[frame.start : frame.end], version) == packet


# --- round trips

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
TOPIC = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20)
PACKET_ID = st.integers(1, 65_535)
KINDS = {
    "byte": st.integers(0, 255),
    "short": st.integers(1, 65_535),
    "long": st.integers(1, 0xFFFF_FFFF),
    "varint": st.integers(1, 268_435_455),
    "text": TEXT,
    "binary": st.binary(max_size=20),
}


def properties_of(packet: PacketType) -> st.SearchStrategy[PropertySet]:
    """Any properties that this packet may have."""
    fields: dict[str, st.SearchStrategy[object]] = {}
    for rule in RULES.values():
        if packet not in rule.packets:
            continue
        if rule.field == "user":
            fields["user"] = st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple)
        elif rule.field == "subscription_identifiers":
            most = 3 if packet is PacketType.PUBLISH else 1
            fields[rule.field] = st.lists(KINDS["varint"], max_size=most).map(tuple)
        elif rule.values is FLAG:
            fields[rule.field] = st.none() | st.integers(0, 1)
        else:
            kind = getattr(rule.kind.read, "__name__", "text")
            fields[rule.field] = st.none() | KINDS[kind]
    return st.fixed_dictionaries({}, optional=fields).map(lambda found: PropertySet(**found))  # type: ignore[arg-type]


def packets() -> st.SearchStrategy[Packet]:
    def reasoned(kind: type, packet: PacketType, reasons: list[int]) -> st.SearchStrategy[Packet]:
        return st.builds(kind, PACKET_ID, st.sampled_from(reasons), properties_of(packet))

    request = st.builds(
        SubscribeRequest, TOPIC, st.integers(0, 2), st.just(False), st.booleans(), st.integers(0, 2)
    )
    publish = st.tuples(
        TOPIC, st.binary(), st.integers(0, 2), st.booleans(), st.booleans(), PACKET_ID
    ).flatmap(
        lambda given: properties_of(PacketType.PUBLISH).map(
            lambda properties: Publish(
                given[0],
                given[1],
                given[2],
                given[3],
                given[4] and given[2] > 0,
                given[5] if given[2] else 0,
                properties,
            )
        )
    )
    will = st.builds(
        Will, TOPIC, st.binary(max_size=9), st.integers(0, 2), st.booleans(),
        properties_of(PacketType.WILL),
    )  # fmt: skip
    connect = st.builds(
        Connect, TEXT, st.just(Version.V5), st.booleans(), st.integers(0, 65_535),
        st.none() | TEXT, st.none() | st.binary(max_size=9), st.none() | will,
        properties_of(PacketType.CONNECT).filter(
            lambda p: p.authentication_data is None or p.authentication_method is not None
        ),
    )  # fmt: skip
    reasons = [0x00, 0x10, 0x80, 0x97]
    return st.one_of(
        connect,
        st.builds(ConnAck, st.booleans(), st.integers(0, 255), properties_of(PacketType.CONNACK)),
        publish,
        reasoned(PubAck, PacketType.PUBACK, reasons),
        reasoned(PubRec, PacketType.PUBREC, reasons),
        reasoned(PubRel, PacketType.PUBREL, [0, 0x92]),
        reasoned(PubComp, PacketType.PUBCOMP, [0, 0x92]),
        st.builds(
            Subscribe,
            PACKET_ID,
            st.lists(request, min_size=1, max_size=3).map(tuple),
            properties_of(PacketType.SUBSCRIBE),
        ),
        st.builds(
            SubAck,
            PACKET_ID,
            st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1).map(tuple),
            properties_of(PacketType.SUBACK),
        ),
        st.builds(
            Unsubscribe,
            PACKET_ID,
            st.lists(TOPIC, min_size=1, max_size=3).map(tuple),
            properties_of(PacketType.UNSUBSCRIBE),
        ),
        st.builds(
            UnsubAck,
            PACKET_ID,
            st.lists(st.sampled_from([0, 0x11]), min_size=1).map(tuple),
            properties_of(PacketType.UNSUBACK),
        ),
        st.just(PingReq()),
        st.just(PingResp()),
        st.builds(Disconnect, st.sampled_from([0, 4, 0x8B]), properties_of(PacketType.DISCONNECT)),
        st.builds(Auth, st.sampled_from([0, 0x18, 0x19]), properties_of(PacketType.AUTH)),
    )


@given(packets())
def test_every_packet_comes_back_as_it_was(packet: Packet) -> None:
    raw = encode(packet, Version.V5)
    assert all_of(raw, Version.V5) == ([packet], len(raw))


def test_every_packet_has_an_encoder_and_a_vector() -> None:
    assert {type(vector.values[2]) for vector in VECTORS} == set(ENCODERS)


def test_every_property_has_a_vector() -> None:
    said: set[str] = set()
    for vector in VECTORS:
        packet = vector.values[2]
        sets = [getattr(packet, "properties", None), getattr(packet, "will", None)]
        for properties in (sets[0], getattr(sets[1], "properties", None)):
            if isinstance(properties, PropertySet):
                said |= {f for f in PropertySet.__struct_fields__ if getattr(properties, f)}
                said |= {f for f in PropertySet.__struct_fields__ if getattr(properties, f) == 0}
    assert said == {rule.field for rule in RULES.values()}


def test_properties_of_nothing_are_one_byte() -> None:
    assert encode_properties(PropertySet()) == b"\0"


def test_every_error_of_the_core_has_its_reason_code() -> None:
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.CoreError)
    } - {errors.CoreError}
    assert kinds <= set(REASONS)
    assert reason_of(errors.CoreError("unnamed")) is ReasonCode.UNSPECIFIED_ERROR


@pytest.mark.parametrize(
    ("flags", "rest", "username"),
    [(0x80, b"", None), (0xC0, b"", None), (0xC0, b"\0\3ada", "ada")],
)
def test_3_1_lets_a_client_leave_out_what_its_flags_announce(
    flags: int, rest: bytes, username: str | None
) -> None:
    """The remaining length counts more than the flags; later versions want both to agree."""
    body = bytes((flags | 0x02, 0, 60)) + b"\0\2id" + rest
    packet = decode(0x10, b"\0\6MQIsdp\3" + body, Version.V31)
    assert packet == Connect("id", Version.V31, True, 60, username)
    with pytest.raises(MqttError):
        decode(0x10, b"\0\4MQTT\4" + body, Version.V311)


# Tables 3-1 and 3-10, as they are printed.
CONNACK_CODES = "00 80 81 82 83 84 85 86 87 88 89 8A 8C 90 95 97 99 9A 9B 9C 9D 9F"
DISCONNECT_CODES = (
    "00 04 80 81 82 83 87 89 8B 8D 8E 8F 90 93 94 95 96 97 98 99 9A 9B 9C 9D 9E 9F A0 A1 A2"
)


def test_mqtt_3_2_2_8_and_3_14_2_1_whatever_ends_a_connection_is_said_by_a_code_of_the_table() -> (
    None
):
    for table, said in ((CONNACK_CODES, connack_reason), (DISCONNECT_CODES, disconnect_reason)):
        codes = set(bytes.fromhex(table))
        for reason in ReasonCode:
            assert said(reason) in codes
            assert said(reason) == reason or reason not in codes
            assert (said(reason) < 0x80) == (reason in codes and reason < 0x80)
    assert connack_reason(ReasonCode.SERVER_SHUTTING_DOWN) == ReasonCode.SERVER_UNAVAILABLE
    assert disconnect_reason(ReasonCode.SERVER_UNAVAILABLE) == ReasonCode.SERVER_BUSY
