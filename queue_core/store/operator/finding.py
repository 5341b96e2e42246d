"""Findings of `howdah doctor`: how bad each is, what it is, and the way out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    way_out: str = ""


def ok(what: str) -> list[Finding]:
    return [Finding(Level.OK, what)]


def warn(what: str, way_out: str) -> Finding:
    return Finding(Level.WARN, what, way_out)


def fail(what: str, way_out: str) -> Finding:
    return Finding(Level.FAIL, what, way_out)
