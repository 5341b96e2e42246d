"""Packets and their bytes: one list, tested both ways."""

from __future__ import annotations

import pytest

from protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
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
from protocols.mqtt.wire.property_set import PropertySet
from protocols.mqtt.wire.reasons import ReasonCode

P = PropertySet
V31, V311, V5 = Version.V31, Version.V311, Version.V5

VECTORS = [
    pytest.param(
        V31,
        "10 10 00 06 4d 51 49 73 64 70 03 02 00 3c 00 02 69 64",
        Connect("id", V31, True, 60),
        id="v3.1 connect",
    ),
    pytest.param(
        V311,
        "10 0e 00 04 4d 51 54 54 04 02 00 0a 00 02 69 64",
        Connect("id", V311, True, 10),
        id="v3.1.1 connect",
    ),
    pytest.param(
        V311,
        "10 1c 00 04 4d 51 54 54 04 ee 00 00 00 01 63 00 01 77 00 02 62 79 00 01 75 00 03 70 00 77",
        Connect("c", V311, True, 0, "u", b"p\0w", Will("w", b"by", 1, True)),
        id="v3.1.1 connect with everything",
    ),
    pytest.param(
        V5,
        "10 10 00 04 4d 51 54 54 05 02 00 3c 00 00 03 61 62 63",
        Connect("abc", V5, True, 60),
        id="v5 connect",
    ),
    pytest.param(
        V5,
        "10 4a 00 04 4d 51 54 54 05 cc 00 05"
        " 23 11 00 00 00 0a 15 00 01 6d 16 00 01 64 17 00 19 01 21 00 14 22 00 0a"
        " 26 00 01 61 00 01 62 27 00 00 10 00"
        " 00 01 63"
        " 0b 01 01 03 00 01 74 18 00 00 00 07"
        " 00 01 77 00 02 62 79"
        " 00 01 75 00 01 70",
        Connect(
            "c",
            V5,
            False,
            5,
            "u",
            b"p",
            Will("w", b"by", 1, False, P(payload_format=1, will_delay=7, content_type="t")),
            P(
                session_expiry=10,
                authentication_method="m",
                authentication_data=b"d",
                request_problem=0,
                request_response=1,
                receive_maximum=20,
                topic_alias_maximum=10,
                user=(("a", "b"),),
                maximum_packet_size=4096,
            ),
        ),
        id="v5 connect with everything",
    ),
    pytest.param(V311, "20 02 01 00", ConnAck(True), id="v3.1.1 connack, session present"),
    pytest.param(V311, "20 02 00 05", ConnAck(False, 5), id="v3.1.1 connack refused"),
    pytest.param(V5, "20 03 00 00 00", ConnAck(), id="v5 connack"),
    pytest.param(
        V5,
        "20 40 01 00 3d 11 00 00 00 01 12 00 02 69 64 13 00 1e 15 00 01 6d 16 00 01 64 1a 00 01 72"
        " 1c 00 01 73 1f 00 01 77 21 00 05 22 00 09 24 01 25 00 26 00 01 6b 00 01 76 27 00 00 00 64"
        " 28 01 29 01 2a 01",
        ConnAck(
            True,
            0,
            P(
                session_expiry=1,
                assigned_client_id="id",
                server_keep_alive=30,
                authentication_method="m",
                authentication_data=b"d",
                response_information="r",
                server_reference="s",
                reason_string="w",
                receive_maximum=5,
                topic_alias_maximum=9,
                maximum_qos=1,
                retain_available=0,
                user=(("k", "v"),),
                maximum_packet_size=100,
                wildcard_available=1,
                identifiers_available=1,
                shared_available=1,
            ),
        ),
        id="v5 connack with everything",
    ),
    pytest.param(V311, "30 05 00 01 61 68 69", Publish("a", b"hi"), id="v3.1.1 publish qos 0"),
    pytest.param(V31, "30 05 00 01 61 68 69", Publish("a", b"hi"), id="v3.1 publish qos 0"),
    pytest.param(
        V311, "3d 07 00 01 61 00 0a 68 69", Publish("a", b"hi", 2, True, True, 10), id="qos 2"
    ),
    pytest.param(V311, "32 05 00 01 61 00 0a", Publish("a", b"", 1, packet_id=10), id="no payload"),
    pytest.param(V5, "30 06 00 01 61 00 68 69", Publish("a", b"hi"), id="v5 publish qos 0"),
    pytest.param(
        V5,
        "30 06 00 00 03 23 00 07",
        Publish("", properties=P(topic_alias=7)),
        id="v5 publish by alias",
    ),
    pytest.param(
        V5,
        "3b 2c 00 03 61 2f 62 00 0a"
        " 23 01 01 02 00 00 00 3c 03 00 01 74 08 00 01 72 09 00 02 00 ff 0b 81 01 0b 02 23 00 01"
        " 26 00 01 6b 00 01 76 78",
        Publish(
            "a/b",
            b"x",
            1,
            True,
            True,
            10,
            P(
                payload_format=1,
                message_expiry=60,
                content_type="t",
                response_topic="r",
                correlation_data=b"\0\xff",
                subscription_identifiers=(129, 2),
                topic_alias=1,
                user=(("k", "v"),),
            ),
        ),
        id="v5 publish with everything",
    ),
    pytest.param(V311, "40 02 00 07", PubAck(7), id="v3.1.1 puback"),
    pytest.param(V5, "40 02 00 07", PubAck(7), id="v5 success is implied"),
    pytest.param(
        V5,
        "40 03 00 07 10",
        PubAck(7, ReasonCode.NO_MATCHING_SUBSCRIBERS),
        id="v5 puback with a reason",
    ),
    pytest.param(
        V5,
        "40 0f 00 07 87 0b 1f 00 01 72 26 00 01 61 00 01 62",
        PubAck(7, 0x87, P(reason_string="r", user=(("a", "b"),))),
        id="v5 puback with properties",
    ),
    pytest.param(V311, "50 02 00 07", PubRec(7), id="v3.1.1 pubrec"),
    pytest.param(V5, "50 03 00 07 97", PubRec(7, 0x97), id="v5 pubrec"),
    pytest.param(V311, "62 02 00 07", PubRel(7), id="v3.1.1 pubrel"),
    pytest.param(V5, "62 03 00 07 92", PubRel(7, 0x92), id="v5 pubrel"),
    pytest.param(V311, "70 02 00 07", PubComp(7), id="v3.1.1 pubcomp"),
    pytest.param(V5, "70 03 00 07 92", PubComp(7, 0x92), id="v5 pubcomp"),
    pytest.param(
        V311,
        "82 0c 00 01 00 01 61 01 00 03 62 2f 23 02",
        Subscribe(1, (SubscribeRequest("a", 1), SubscribeRequest("b/#", 2))),
        id="v3.1.1 subscribe",
    ),
    pytest.param(
        V5,
        "82 10 00 01 09 0b 05 26 00 01 61 00 01 62 00 01 61 2d",
        Subscribe(
            1,
            (SubscribeRequest("a", 1, True, True, 2),),
            P(subscription_identifiers=(5,), user=(("a", "b"),)),
        ),
        id="v5 subscribe with everything",
    ),
    pytest.param(V311, "90 05 00 01 00 02 80", SubAck(1, (0, 2, 0x80)), id="v3.1.1 suback"),
    pytest.param(V5, "90 06 00 01 00 01 87 8f", SubAck(1, (1, 0x87, 0x8F)), id="v5 suback"),
    pytest.param(
        V311, "a2 08 00 02 00 01 61 00 01 62", Unsubscribe(2, ("a", "b")), id="v3.1.1 unsubscribe"
    ),
    pytest.param(V5, "a2 06 00 02 00 00 01 61", Unsubscribe(2, ("a",)), id="v5 unsubscribe"),
    pytest.param(V311, "b0 02 00 02", UnsubAck(2), id="v3.1.1 unsuback"),
    pytest.param(V5, "b0 05 00 02 00 00 11", UnsubAck(2, (0, 0x11)), id="v5 unsuback"),
    pytest.param(V311, "c0 00", PingReq(), id="pingreq"),
    pytest.param(V5, "d0 00", PingResp(), id="pingresp"),
    pytest.param(V311, "e0 00", Disconnect(), id="v3.1.1 disconnect"),
    pytest.param(V5, "e0 00", Disconnect(), id="v5 normal disconnect"),
    pytest.param(V5, "e0 01 04", Disconnect(4), id="v5 disconnect with will"),
    pytest.param(
        V5,
        "e0 0f 00 0d 11 00 00 00 00 1c 00 01 73 1f 00 01 72",
        Disconnect(0, P(session_expiry=0, server_reference="s", reason_string="r")),
        id="v5 disconnect with properties",
    ),
    pytest.param(V5, "f0 00", Auth(), id="v5 auth, success implied"),
    pytest.param(
        V5,
        "f0 0a 18 08 15 00 01 6d 16 00 01 64",
        Auth(0x18, P(authentication_method="m", authentication_data=b"d")),
        id="v5 auth",
    ),
]
