"""Runs: messages to one address that came one behind the other, and differ by body alone.

A fast publisher sends them by the hundred: a queue takes them together, and subscribers that speak
the publisher's own protocol may take its very bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from queue_core.message.message import Form, Message


class Run(ABC):
    """Messages in the order in which they came, without times of their own."""

    __slots__ = ()
    count: int  # of its messages: an attribute, as short runs feel a call of `__len__`

    @abstractmethod
    def messages(self) -> list[Message]:
        """Returns the messages, which are the same ones each time."""


class MessageRun(Run):
    """A run whose messages are there."""

    __slots__ = ("_messages", "count")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self.count = len(messages)

    def messages(self) -> list[Message]:
        return self._messages


class EncodedRun(Run):
    """A run in the bytes of its publisher's protocol. Messages are made of it only when a queue
    asks for them."""

    __slots__ = ()
    is_durable: bool
    octets: bytes

    @property
    @abstractmethod
    def form(self) -> Form:
        """The form that its publisher writes messages in."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The bytes of the largest of its packets."""
