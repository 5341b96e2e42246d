"""The context that all AMQP 0.9.1 connections of a gateway share: services, settings, counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp091.settings import Settings
from protocols.services import Services


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """Made once by the gateway; every connection and its machine are given the same one."""

    services: Services
    settings: Settings = field(default_factory=Settings)
    counters: Amqp091Counters = field(default_factory=Amqp091Counters)
