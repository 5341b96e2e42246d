"""Messages and their deaths."""

from __future__ import annotations

from queue_core.message.message import Death, Message, Properties, count_death
from queue_core.queues.deduplication_by_message_id import Window


def test_topic_and_key_are_two_forms_of_one_name() -> None:
    assert Message(b"", topic="a/b.c/d").routing_key == "a.b/c.d"
    assert Message(b"", routing_key="a.b/c.d").topic == "a/b.c/d"


def test_properties_are_read_once_from_the_form() -> None:
    class Form:
        code = 9
        reads = 0

        def properties(self, native: bytes) -> Properties:
            self.reads += 1
            return Properties(subject=native.decode())

    form = Form()
    message = Message(b"", routing_key="k", form=form, native=b"s")
    assert (message.properties.subject, message.properties.subject) == ("s", "s")
    assert form.reads == 1


def test_of_a_repeated_header_the_first_counts() -> None:
    properties = Properties(headers=(("a", 1), ("b", 2), ("a", 3)))
    assert properties.header_map() == {"a": 1, "b": 2}


def test_deaths_of_one_kind_are_counted_and_come_to_the_front() -> None:
    first = Death(queue="a", reason="rejected", time=1.0)
    second = Death(queue="b", reason="expired", time=2.0)
    deaths = count_death(count_death(count_death((), first), second), first)
    assert [(d.queue, d.reason, d.count, d.time) for d in deaths] == [
        ("a", "rejected", 2, 1.0),
        ("b", "expired", 1, 2.0),
    ]
    other = count_death(deaths, Death(queue="a", reason="expired"))
    assert (other[0].queue, other[0].reason) == ("a", "expired")
    assert len(other) == 3


def test_a_dead_letter_has_no_expiry_and_the_same_content() -> None:
    message = Message(b"b", "x", routing_key="k", native=b"n", expires_at=5.0, priority=2)
    moved = message.moved("dlx", "dead", Death(queue="q", reason="expired"))
    assert (moved.body, moved.native, moved.priority) == (b"b", b"n", 2)
    assert (moved.exchange, moved.routing_key, moved.expires_at) == ("dlx", "dead", None)


def with_id(message_id: str | None) -> Message:
    return Message(b"", routing_key="q", properties=Properties(message_id=message_id))


def test_a_window_remembers_for_its_time_and_no_longer() -> None:
    window = Window(10.0)
    message = with_id("m")
    assert not window.has_seen(message, 0.0)
    window.remember(message, 0.0)
    assert window.has_seen(message, 9.9)
    assert not window.has_seen(message, 10.0)
    assert not window.seen


def test_a_window_knows_nothing_of_messages_without_an_id() -> None:
    window = Window(10.0)
    window.remember(with_id(None), 0.0)
    assert not window.has_seen(with_id(None), 1.0)


def test_what_was_not_stored_is_forgotten() -> None:
    window = Window(10.0)
    window.remember(with_id("m"), 0.0)
    window.forget(with_id("m"))
    assert not window.has_seen(with_id("m"), 1.0)
