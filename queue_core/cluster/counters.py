"""Counts what a node does in its cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ClusterCounters:
    beats: int = 0
    missed_beats: int = 0
    fenced_nodes: int = 0
    takeovers: int = 0
    rewinds: int = 0
