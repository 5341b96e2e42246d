"""Each configured key arrives: none is read and then forgotten."""

from __future__ import annotations

import pytest

from gateway.adapters import (
    FORMS,
    amqp091_settings,
    amqp10_settings,
    manager_settings,
    mqtt_settings,
)
from gateway.config.keys import Config, load_config

OTHERWISE = [
    ("BROKER__MAX_MESSAGE_SIZE", "1MiB"),
    ("BROKER__MAX_QOS", "1"),
    ("BROKER__MAX_BINDINGS_PER_QUEUE", "7"),
    ("BROKER__MAX_BINDINGS_PER_EXCHANGE", "7"),
    ("BROKER__MAX_HEADER_BINDINGS_PER_EXCHANGE", "7"),
    ("BROKER__ASYNC_FAN_OUT", "true"),
    ("SESSION__MAX_INFLIGHT_MESSAGES", "7"),
    ("SESSION__INFLIGHT_OVERFLOW", "pending"),
    ("SESSION__PENDING_QUEUE_SIZE", "7"),
    ("SESSION__STALL_TIMEOUT", "7s"),
    ("SESSION__MAX_OFFLINE_QUEUE_SIZE", "7"),
    ("MQTT__MAX_TOPIC_LEVELS", "7"),
    ("SESSION__MAX_SUBSCRIPTIONS", "7"),
    ("SESSION__MAX_SESSIONS", "7"),
    ("SESSION__MAX_LIVE_QUEUE_SIZE", "7"),
    ("SESSION__MAX_LIVE_QUEUE_BYTES", "7KiB"),
    ("RETAINED__MAX_TOPICS", "7"),
    ("RETAINED__MAX_BYTES", "7MiB"),
    ("RETAINED__CACHE_BYTES", "7MiB"),
    ("AMQP10__IDLE_TIMEOUT", "7s"),
    ("AMQP10__LINK_CREDIT", "7"),
    ("AMQP10__MAX_LINKS", "7"),
    ("AMQP10__MAX_PARTIAL_SIZE", "32MiB"),
    ("BROKER__MAX_TRANSACTION_SIZE", "32MiB"),
    ("BROKER__MAX_CONNECTION_TRANSACTIONS", "256MiB"),
    ("BROKER__MAX_UNSENT_SIZE", "1MiB"),
    ("AMQP091__MAX_PARTIAL_SIZE", "32MiB"),
    ("MEMORY__HIGH_WATERMARK", "333MiB"),
    ("MEMORY__GRACE", "7s"),
    ("MEMORY__PARTIAL_TIMEOUT", "7s"),
    ("MEMORY__UNREAD_TIMEOUT", "7s"),
    ("STORAGE__EPHEMERAL_BYTES", "64MiB"),
    ("STORAGE__MAX_DEDUP_IDS", "7"),
    ("AMQP091__STRICT", "true"),
    ("STORAGE__SEGMENT_BYTES", "64MiB"),
    ("STORAGE__SEGMENT_AGE", "7s"),
    ("STORAGE__CACHE_BYTES", "64MiB"),
    ("STORAGE__WRITE_BUFFER_BYTES", "32MiB"),
    ("STORAGE__OUTBOX_POLL_INTERVAL", "7s"),
    ("DATABASE__POOL_SIZE", "7"),
    ("LISTENERS__MQTT_WS__PATH", "/other"),
]
SECTIONS = ("broker", "session", "retained", "amqp091", "amqp10", "storage", "memory")


def everything(config: Config) -> tuple[object, ...]:
    return (
        manager_settings(config),
        mqtt_settings(config),
        amqp091_settings(config),
        amqp10_settings(config),
    )


@pytest.mark.parametrize(("key", "value"), OTHERWISE)
def test_a_key_that_is_set_otherwise_makes_a_difference(key: str, value: str) -> None:
    changed = load_config(None, {f"HOWDAH_{key}": value})
    assert everything(changed) != everything(load_config(None, {}))


def test_the_size_of_a_transaction_holds_for_both_versions_of_amqp() -> None:
    config = load_config(None, {"HOWDAH_BROKER__MAX_TRANSACTION_SIZE": "32MiB"})
    both = (amqp091_settings(config), amqp10_settings(config))
    assert [each.max_transaction_size for each in both] == [32 * 1024 * 1024] * 2


def test_what_stays_in_memory_for_good_leaves_room_below_the_mark() -> None:
    settings = manager_settings(load_config(None, {"HOWDAH_MEMORY__HIGH_WATERMARK": "64MiB"}))
    stays = settings.ephemeral_bytes + settings.cache_bytes + settings.sessions.retained.cache_bytes
    assert stays < settings.memory.mark * 7 / 8, "publishers wait until there is less than that"


def test_limits_of_a_connection_hold_one_of_the_largest_messages() -> None:
    config = load_config(
        None,
        {
            "HOWDAH_BROKER__MAX_CONNECTION_TRANSACTIONS": "1MiB",
            "HOWDAH_AMQP091__MAX_PARTIAL_SIZE": "1MiB",
        },
    )
    settings = amqp091_settings(config)
    assert settings.max_connection_transactions == config.broker.max_transaction_size
    assert settings.max_partial_size == config.broker.max_message_size


def test_workers_make_a_difference_where_they_are_used() -> None:
    some, more = (
        load_config(None, {"HOWDAH_BROKER__ASYNC_FAN_OUT": "true", **extra})
        for extra in ({}, {"HOWDAH_BROKER__FAN_OUT_WORKERS": "3"})
    )
    assert mqtt_settings(some) != mqtt_settings(more)


def test_no_key_of_these_sections_is_left_out_here() -> None:
    config = load_config(None, {})
    keys = {
        f"{section}__{key}".upper()
        for section in SECTIONS
        for key in getattr(config, section).__struct_fields__
    }
    assert keys - {key for key, _ in OTHERWISE} == {"BROKER__FAN_OUT_WORKERS"}


def test_every_form_has_a_code_of_its_own() -> None:
    assert sorted(form.code for form in FORMS) == [1, 2, 3, 4]
