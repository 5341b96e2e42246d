"""The context that all AMQP 1.0 connections of a gateway share: services, settings, counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocols.amqp10.counters import Amqp10Counters
from protocols.amqp10.settings import Settings
from protocols.services import Services


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """Made once by the gateway; every connection and its machine are given the same one."""

    services: Services
    settings: Settings = field(default_factory=Settings)
    counters: Amqp10Counters = field(default_factory=Amqp10Counters)
