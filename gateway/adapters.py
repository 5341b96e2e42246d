"""Makes the adapters from the configuration: which class serves which listener, with which
settings.

Answers for turning our configuration into the settings of each adapter and of the manager. It must
not know how any of them works.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.acceptor import ProtocolFactory
from gateway.amqp_port import AMQP_091, AMQP_10, AMQP_10_SASL, AmqpPort
from gateway.config.keys import Config
from gateway.connections import Connections
from gateway.machine_memory import default_mark
from protocols.amqp091 import connection as amqp091
from protocols.amqp091.context import Context as Amqp091Context
from protocols.amqp091.conversion.properties import FORM as AMQP_091_FORM
from protocols.amqp091.settings import Settings as Amqp091Settings
from protocols.amqp10 import connection as amqp10
from protocols.amqp10.context import Context as Amqp10Context
from protocols.amqp10.conversion.properties import FORM as AMQP_10_FORM
from protocols.amqp10.settings import Settings as Amqp10Settings
from protocols.mqtt import connection as mqtt
from protocols.mqtt import websocket_transport
from protocols.mqtt.context import Context as MqttContext
from protocols.mqtt.conversion.properties import FORMS as MQTT_FORMS
from protocols.mqtt.settings import Settings as MqttSettings
from queue_core.access.browser_origins import AllowedOrigins
from queue_core.delivery.delayed_messages_limit import DELAY_BYTES
from queue_core.manager import Manager, ManagerSettings
from queue_core.memory_account import MemorySettings
from queue_core.queues.exchange_history import MOST_HISTORY_BYTES
from queue_core.routing.bindings import BindingLimits
from queue_core.sessions.retained import RetainedSettings
from queue_core.sessions.session import SessionSettings
from queue_core.store.database import StoreSettings
from queue_core.store.write.segments import SegmentLimits

logger = logging.getLogger(__name__)

STOP_SECONDS = 10.0

# How each protocol writes properties, for messages that are read back.
FORMS = (*MQTT_FORMS, AMQP_091_FORM, AMQP_10_FORM)


# What queues in memory and caches may take of the high-water mark at most: what stays there for
# good must leave room for what comes and goes, or publishers would wait for ever.
EPHEMERAL_SHARE = 2
CACHE_SHARE = 8


def memory_settings(config: Config) -> MemorySettings:
    chosen = config.memory
    return MemorySettings(
        mark=chosen.high_watermark or default_mark(),
        partial_timeout=chosen.partial_timeout,
        unread_timeout=chosen.unread_timeout,
        grace=chosen.grace,
    )


def manager_settings(config: Config) -> ManagerSettings:
    storage, memory = config.storage, memory_settings(config)
    return ManagerSettings(
        cache_bytes=min(storage.cache_bytes, memory.mark // CACHE_SHARE),
        ephemeral_bytes=min(storage.ephemeral_bytes, memory.mark // EPHEMERAL_SHARE),
        history_bytes=min(MOST_HISTORY_BYTES, memory.mark // CACHE_SHARE),
        delays=memory.mark // CACHE_SHARE // DELAY_BYTES,
        memory=memory,
        dedup_ids=storage.max_dedup_ids,
        poll_interval=storage.outbox_poll_interval,
        bindings=BindingLimits(
            to_one=config.broker.max_bindings_per_queue,
            from_one=config.broker.max_bindings_per_exchange,
            from_one_headers=config.broker.max_header_bindings_per_exchange,
        ),
        store=StoreSettings(
            write_buffer_bytes=storage.write_buffer_bytes,
            pool_size=config.database.pool_size,
            max_message_size=config.broker.max_message_size,
            segments=SegmentLimits(bytes=storage.segment_bytes, age=storage.segment_age),
            record_folder=Path(config.data_dir).absolute(),
        ),
        sessions=SessionSettings(
            offline_messages=config.session.max_offline_queue_size,
            max_subscriptions=config.session.max_subscriptions,
            max_sessions=config.session.max_sessions,
            live_messages=config.session.max_live_queue_size,
            live_bytes=config.session.max_live_queue_bytes,
            holds_publishers=config.session.inflight_overflow == "backpressure",
            stall_seconds=config.session.stall_timeout,
            retained=RetainedSettings(
                max_topics=config.retained.max_topics,
                max_bytes=config.retained.max_bytes,
                cache_bytes=min(config.retained.cache_bytes, memory.mark // CACHE_SHARE),
            ),
        ),
    )


class Adapters:
    """The protocol adapters of one manager. `start` them before the first connection, `stop` them
    after the last."""

    def __init__(self, config: Config, manager: Manager, connections: Connections) -> None:
        self._mqtt = MqttContext(manager, mqtt_settings(config))
        amqp091_context = Amqp091Context(manager, amqp091_settings(config))
        amqp10_context = Amqp10Context(manager, amqp10_settings(config))
        self.counters: dict[str, object] = {
            "mqtt": self._mqtt.counters,
            "amqp091": amqp091_context.counters,
            "amqp10": amqp10_context.counters,
        }

        def factory(name: str, kind: type[Any], *arguments: object) -> Callable[[], Any]:
            tracked = connections.tracked(name, kind)
            return lambda: tracked(*arguments)

        old = factory("amqp091", amqp091.Connection, amqp091_context)
        new = factory("amqp10", amqp10.Connection, amqp10_context)
        by_header = {AMQP_091: old, AMQP_10: new, AMQP_10_SASL: new}
        self.factories: dict[str, ProtocolFactory] = {
            "mqtt": factory("mqtt", mqtt.Connection, self._mqtt),
            "mqtt_ws": factory("mqtt_ws", websocket_transport.Connection, self._mqtt),
            "amqp": lambda: AmqpPort(by_header, connections.undecided),
        }

    def start(self) -> None:
        self._mqtt.start()

    async def stop(self, reason: str) -> None:
        """Stops the adapters; returns when what the last connections left behind is written."""
        try:
            await asyncio.wait_for(self._mqtt.stop(reason), STOP_SECONDS)
        except TimeoutError:
            logger.warning("MQTT sessions could not be detached in %.0f s", STOP_SECONDS)


def mqtt_settings(config: Config) -> MqttSettings:
    listener, chosen = config.listeners.mqtt_ws, config.mqtt
    return MqttSettings(
        max_message_size=config.broker.max_message_size,
        max_qos=config.broker.max_qos,
        async_fan_out=config.broker.async_fan_out,
        fan_out_workers=config.broker.fan_out_workers,
        max_inflight=config.session.max_inflight_messages,
        pends_overflow=config.session.inflight_overflow == "pending",
        pending_queue_size=config.session.pending_queue_size,
        topic_alias_maximum=chosen.topic_alias_maximum,
        max_keep_alive=int(chosen.max_keep_alive),
        max_session_expiry=chosen.max_session_expiry,
        retained_messages=chosen.retained_messages,
        wildcard_subscriptions=chosen.wildcard_subscriptions,
        shared_subscriptions=chosen.shared_subscriptions,
        subscription_identifiers=chosen.subscription_identifiers,
        reason_strings=chosen.reason_strings,
        server_reference=chosen.server_reference,
        max_subscriptions=config.session.max_subscriptions,
        max_topic_levels=chosen.max_topic_levels,
        certificate_login=config.auth.mqtt_certificate_login,
        path=listener.path if listener is not None else "/mqtt",
        origins=AllowedOrigins(listener.allowed_origins if listener is not None else ()),
        write_buffer_bytes=config.broker.max_unsent_size,
    )


def most_transactions(config: Config) -> int:
    """Returns the bytes that the open transactions of one connection may hold: one of the largest
    always fits."""
    broker = config.broker
    return max(broker.max_connection_transactions, broker.max_transaction_size)


def amqp091_settings(config: Config) -> Amqp091Settings:
    return Amqp091Settings(
        strict=config.amqp091.strict,
        max_message_size=config.broker.max_message_size,
        max_transaction_size=config.broker.max_transaction_size,
        max_connection_transactions=most_transactions(config),
        max_partial_size=max(config.amqp091.max_partial_size, config.broker.max_message_size),
        max_unsent_size=config.broker.max_unsent_size,
    )


def amqp10_settings(config: Config) -> Amqp10Settings:
    chosen = config.amqp10
    return Amqp10Settings(
        max_message_size=config.broker.max_message_size,
        idle_seconds=chosen.idle_timeout,
        link_credit=chosen.link_credit,
        max_links=chosen.max_links,
        max_partial_size=chosen.max_partial_size,
        max_transaction_size=config.broker.max_transaction_size,
        max_connection_transactions=most_transactions(config),
        max_unsent_size=config.broker.max_unsent_size,
    )
