"""Every client, over every transport and in every version that it speaks: QoS 0, 1 and 2, retained
messages, wills, sessions that are resumed, shared subscriptions, queues."""

from __future__ import annotations

from protocols.mqtt.wire.packets import Publish, Version, Will
from protocols.mqtt.wire.property_set import PropertySet
from tests.interop.mqtt.plans import Plan
from tests.interop.mqtt.proving import Case, does
from tests.support.names import fresh

QOS = (0, 1, 2)


def plan_for(version: Version, *filters: str) -> Plan:
    return Plan(version, fresh("client"), filters=filters, qos=2)


@does("QoS 0", "QoS 1", "QoS 2")
def test_messages_of_every_qos_come_through_in_order(case: Case, version: Version) -> None:
    topic = fresh("qos")
    seat = case.listen(plan_for(version, f"{topic}/#"))
    sent = [Publish(f"{topic}/{qos}", b"payload %d" % qos, qos) for qos in (*QOS, *QOS)]
    case.publish(*sent, plan=Plan(version, fresh("client")))
    received = [seat.message() for _ in sent]
    for qos in QOS:
        own = [message[:4] for message in received if message.qos == qos]
        assert own == [(f"{topic}/{qos}", b"payload %d" % qos, qos, False)] * 2
    case.leave(seat)


@does("retained message")
def test_a_retained_message_comes_to_who_subscribes_later(case: Case, version: Version) -> None:
    topic, publisher = fresh("retained"), Plan(version, fresh("client"))
    case.publish(Publish(topic, b"kept", 1, retain=True), plan=publisher)
    seat = case.listen(plan_for(version, topic))
    assert seat.message()[:4] == (topic, b"kept", 1, True)
    case.leave(seat)
    case.publish(Publish(topic, b"", 1, retain=True), plan=publisher)
    seat = case.listen(plan_for(version, topic))
    case.publish(Publish(topic, b"fresh", 1), plan=publisher)
    assert seat.message()[:4] == (topic, b"fresh", 1, False)
    case.leave(seat)


@does("will")
def test_the_will_of_a_lost_client_is_published(case: Case, version: Version) -> None:
    topic = fresh("will")
    witness = case.listen(plan_for(version, topic))
    leaving = Plan(version, fresh("client"), will=Will(topic, b"left", 1))
    case.publish(Publish("nothing", b"", 1), plan=leaving)
    staying = Plan(version, fresh("client"), will=Will(topic, b"lost", 1), filters=("nothing",))
    case.lose(case.listen(staying))
    assert witness.message()[:3] == (topic, b"lost", 1)
    case.leave(witness)


@does("session resumed")
def test_a_session_is_resumed(case: Case, version: Version) -> None:
    topic, name = fresh("session"), fresh("client")
    expiry = PropertySet(session_expiry=300 if version is Version.V5 else None)
    lasting = Plan(version, name, is_clean=False, connect=expiry, filters=(topic,), qos=2)
    seat = case.listen(lasting)
    assert not seat.heard.is_resumed
    case.leave(seat)
    sent = [Publish(topic, b"while away %d" % qos, qos) for qos in (1, 2)]
    case.publish(*sent, plan=Plan(version, fresh("client")))
    seat = case.listen(
        Plan(version, name, False, connect=expiry, filters=(topic,), qos=2, resumes=True)
    )
    # 3.1 has no such flag, and mosquitto_sub does not show it
    assert seat.heard.is_resumed or version is Version.V31 or case.column.client == "mosquitto"
    received = [seat.message()[:3] for _ in sent]
    assert received == [(topic, message.payload, message.qos) for message in sent]
    case.leave(seat)
    ending = case.listen(Plan(version, name, filters=("nothing",)))  # a clean one ends it
    case.leave(ending)


@does("shared subscription")
def test_a_shared_subscription_divides_the_work(case: Case, version: Version) -> None:
    topic = fresh("shared")
    members = [case.listen(plan_for(version, f"$share/workers/{topic}")) for _ in range(2)]
    sent = [Publish(topic, b"%d" % number, 1) for number in range(4)]
    case.publish(*sent, plan=Plan(version, fresh("client")))
    shares = [[member.message().payload for _ in range(2)] for member in members]
    assert sorted(shares[0] + shares[1]) == [b"0", b"1", b"2", b"3"]
    case.leave(*members)


@does("queue")
def test_a_queue_is_filled_and_emptied(case: Case, version: Version) -> None:
    queue = fresh("$queue/clients")
    sent = [Publish(queue, b"%d" % number, 1) for number in range(3)]
    case.publish(*sent, plan=Plan(version, fresh("client")))
    seat = case.listen(Plan(version, fresh("client"), filters=(queue,), qos=1))
    assert [seat.message()[:2] for _ in sent] == [(queue, message.payload) for message in sent]
    case.leave(seat)
