"""Topic aliases, in either direction: numbers that stand for topics on one connection."""

from __future__ import annotations

from typing import Final

from protocols.mqtt.deliver.frames import topic_octets
from protocols.mqtt.wire.reasons import MqttError, ReasonCode

EMPTY_TOPIC = b"\0\0"
MOST_ALIASED_CHARACTERS: Final = 262_144  # in all aliased topics of a connection, each way


class IncomingAliases:
    """Topics by the client's numbers for them. Forgotten with the connection [MQTT-3.3.2-7]."""

    __slots__ = ("_maximum", "_size", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._size = 0  # characters of all topics
        self._topics: dict[int, str] = {}

    def resolve(self, alias: int, topic: str) -> str:
        """Returns the topic that is meant; with a topic given, the number means that from now on.
        Raises MqttError."""
        if not 0 < alias <= self._maximum:  # [MQTT-3.3.2-8], [MQTT-3.3.2-9]
            raise MqttError(
                ReasonCode.TOPIC_ALIAS_INVALID, f"topic alias {alias}; 1 to {self._maximum} exist"
            )
        if topic:
            self._size += len(topic) - len(self._topics.get(alias, ""))
            if self._size > MOST_ALIASED_CHARACTERS:
                raise MqttError(
                    ReasonCode.QUOTA_EXCEEDED,
                    f"topics with an alias have {MOST_ALIASED_CHARACTERS} characters together "
                    "at most",
                )
            self._topics[alias] = topic
            return topic
        known = self._topics.get(alias)
        if known is None:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was never given one")
        return known


class OutgoingAliases:
    """Our numbers for topics, as many as the client allows [MQTT-3.1.2-26]: the first topics get
    them, and keep them."""

    __slots__ = ("_maximum", "_numbers", "_size")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._size = 0  # characters of all topics
        self._numbers: dict[str, int] = {}

    def write(self, topic: str) -> tuple[bytes, bytes]:
        """Returns the topic field and the alias property to send."""
        number = self._numbers.get(topic)
        if number is not None:
            return EMPTY_TOPIC, b"\x23" + number.to_bytes(2, "big")
        is_full = self._size + len(topic) > MOST_ALIASED_CHARACTERS
        if is_full or len(self._numbers) >= self._maximum:
            return topic_octets(topic), b""
        self._size += len(topic)
        number = self._numbers[topic] = len(self._numbers) + 1
        return topic_octets(topic), b"\x23" + number.to_bytes(2, "big")

    def take_back(self, topic: str) -> None:
        """Frees the topic's number: the packet that was to introduce it is not sent after all."""
        if self._numbers.get(topic) == len(self._numbers):
            del self._numbers[topic]
            self._size -= len(topic)
