"""Arguments of queues: each is read, or refused by name; none is ignored."""

from __future__ import annotations

import pytest

from queue_core.errors import InvalidArgument, NotEquivalent, UnsupportedArgument
from queue_core.queues.ignored_arguments import MOST_NAMED_ARGUMENTS, IgnoredArguments
from queue_core.queues.spec import RULES, Overflow, QueueKind, QueueSpec

GOOD: list[tuple[str, object, str, object]] = [
    ("x-message-ttl", 1500, "message_ttl", 1.5),
    ("x-message-ttl", 0, "message_ttl", 0.0),
    ("x-expires", 60_000, "expires", 60.0),
    ("x-max-length", 0, "max_length", 0),
    ("x-max-length-bytes", 10, "max_bytes", 10),
    ("x-overflow", "reject-publish", "overflow", Overflow.REJECT_PUBLISH),
    ("x-dead-letter-exchange", "", "dead_letter_exchange", ""),
    ("x-max-priority", 255, "max_priority", 255),
    ("x-single-active-consumer", True, "single_active_consumer", True),
    ("x-delivery-limit", 0, "delivery_limit", 0),
    ("x-delivery-limit", -1, "delivery_limit", None),
    ("x-deduplication-window", 1000, "dedup_window", 1.0),
    ("x-consumer-timeout", 1000, "ack_timeout", 1.0),
]
BAD: list[tuple[str, object, str]] = [
    ("x-message-ttl", -1, "from 0 to"),
    ("x-message-ttl", "1000", "whole number"),
    ("x-message-ttl", True, "whole number"),
    ("x-message-ttl", 1.5, "whole number"),
    ("x-expires", 0, "from 1 to"),
    ("x-max-priority", 256, "from 0 to 255"),
    ("x-overflow", "drop-tail", "drop-head"),
    ("x-dead-letter-exchange", 5, "a string"),
    ("x-dead-letter-exchange", "a\0b", "a string"),
    ("x-single-active-consumer", "yes", "true or false"),
    ("x-delivery-limit", -2, "at least 0"),
    ("x-queue-mode", "fast", "default, lazy"),
    ("x-queue-version", 3, "use 1, 2"),
    ("x-queue-version", True, "use 1, 2"),
    ("x-queue-leader-locator", "odd", "use client-local, balanced"),
    ("x-queue-master-locator", 5, "use client-local"),
    ("x-quorum-initial-group-size", 0, "at least 1"),
    ("x-initial-cluster-size", "a", "whole number"),
    ("x-max-in-memory-length", -1, "at least 0"),
    ("x-dead-letter-strategy", "odd", "use at-most-once, at-least-once"),
    ("x-queue-type", "lazy", "classic, quorum or stream"),
    ("x-dead-letter-routing-key", "k", "needs x-dead-letter-exchange"),
    ("x-max-age", "7D", "no meaning for a classic queue"),
    ("x-stream-max-segment-size-bytes", 100_000, "no meaning for a classic queue"),
]


@pytest.mark.parametrize(("argument", "value", "field", "expected"), GOOD)
def test_an_argument_says_what_it_means(
    argument: str, value: object, field: str, expected: object
) -> None:
    assert getattr(QueueSpec.parse("q", {argument: value}), field) == expected


@pytest.mark.parametrize(("argument", "value", "said"), BAD)
def test_a_value_that_an_argument_cannot_have_is_refused_with_what_it_could_be(
    argument: str, value: object, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        QueueSpec.parse("q", {argument: value})


def test_an_argument_without_effect_is_kept_and_named_and_refused_where_that_is_wanted() -> None:
    given = {"x-odd": 1, "x-queue-mode": "lazy", "x-max-length": 5}
    spec = QueueSpec.parse("q", given)
    assert (spec.arguments, spec.max_length) == (given, 5)
    assert (spec.inert, spec.unknown) == (("x-odd", "x-queue-mode"), ("x-odd",))
    with pytest.raises(UnsupportedArgument, match="'x-odd' has no effect here"):
        spec.require_effect()
    QueueSpec.parse("q", {"x-max-length": 5, "x-queue-type": "quorum"}).require_effect()


def test_declared_again_only_arguments_count_that_are_known_to_do_something() -> None:
    spec = QueueSpec.parse("q", {"x-odd": 1, "x-queue-mode": "lazy", "x-ha-policy": "all"})
    spec.check_equivalent(QueueSpec.parse("q", {"x-odd": 2, "x-queue-mode": "lazy"}))
    with pytest.raises(NotEquivalent, match="'x-queue-mode'='lazy'"):
        spec.check_equivalent(QueueSpec.parse("q", {"x-odd": 1}))


def test_a_small_segment_is_made_as_large_as_segments_are_at_least() -> None:
    spec = QueueSpec.parse("s", {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1000})
    assert spec.segment_bytes == 65_536


def test_unknown_arguments_are_named_in_the_log_once_and_not_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inert = IgnoredArguments()
    for _ in range(3):
        inert.report("queue", "q", ["x-odd"])
    assert [record.getMessage().count("'x-odd'") for record in caplog.records] == [1]
    inert.report("queue", "q", [f"x-{number}" for number in range(2000)])
    assert len(caplog.records) == MOST_NAMED_ARGUMENTS + 1
    assert inert.count == 2003


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_must_be_text_that_a_database_can_hold(name: str) -> None:
    with pytest.raises(InvalidArgument, match="without NUL"):
        QueueSpec.parse(name)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, QueueKind.CLASSIC),
        ({"durable": False}, QueueKind.EPHEMERAL),
        ({"exclusive": True}, QueueKind.EPHEMERAL),
        ({"auto_delete": True}, QueueKind.EPHEMERAL),
    ],
)
def test_what_need_not_survive_lives_in_memory(options: dict[str, bool], kind: QueueKind) -> None:
    assert QueueSpec.parse("q", None, **options).kind is kind


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_what_is_stored_must_be_durable(kind: str) -> None:
    with pytest.raises(InvalidArgument, match="needs a durable queue"):
        QueueSpec.parse("q", {"x-queue-type": kind}, exclusive=True)


def test_a_quorum_queue_is_classic_with_its_delivery_limit() -> None:
    spec = QueueSpec.parse("q", {"x-queue-type": "quorum"})
    assert (spec.kind, spec.delivery_limit) == (QueueKind.CLASSIC, 20)
    given = QueueSpec.parse("q", {"x-queue-type": "quorum", "x-delivery-limit": 5})
    assert given.delivery_limit == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7D", 604_800.0),
        ("1h", 3600.0),
        ("30s", 30.0),
        (f"1{'0' * 299}Y", 31_536_000e299),
    ],
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    spec = QueueSpec.parse("s", {"x-queue-type": "stream", "x-max-age": text})
    assert spec.max_age == seconds


@pytest.mark.parametrize("text", ["", "7", "D", "7 D", "-7D", "7d", "\u0667D", f"{'9' * 400}D"])
def test_an_age_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="for example 7D"):
        QueueSpec.parse("s", {"x-queue-type": "stream", "x-max-age": text})


def test_an_argument_without_meaning_for_a_stream_is_refused() -> None:
    for argument, rule in RULES.items():
        if QueueKind.STREAM in rule.kinds:
            continue
        with pytest.raises(InvalidArgument, match="no meaning for a stream queue"):
            QueueSpec.parse("s", {"x-queue-type": "stream", argument: 1})


def test_an_argument_without_meaning_for_a_queue_in_memory_is_refused() -> None:
    for argument, rule in RULES.items():
        if QueueKind.EPHEMERAL in rule.kinds:
            continue
        with pytest.raises(InvalidArgument, match="no meaning for an ephemeral queue"):
            QueueSpec.parse("q", {argument: 1}, durable=False)


def test_the_same_words_are_equivalent() -> None:
    spec = QueueSpec.parse("q", {"x-max-length": 5})
    spec.check_equivalent(QueueSpec.parse("q", {"x-max-length": 5}))
    QueueSpec.parse("q").check_equivalent(QueueSpec.parse("q", {"x-queue-type": "classic"}))


def test_other_words_are_named() -> None:
    spec = QueueSpec.parse("q", {"x-max-length": 5})
    with pytest.raises(NotEquivalent, match="'x-max-length'='5', declared again with '6'"):
        spec.check_equivalent(QueueSpec.parse("q", {"x-max-length": 6}))
    with pytest.raises(NotEquivalent, match="durable='True', declared again with 'False'"):
        QueueSpec.parse("q").check_equivalent(QueueSpec("q", QueueKind.CLASSIC, durable=False))
