"""The configuration keys of the log.

Answers for the contract with whoever runs the gateway. It must not act on any of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from gateway.config.section import Section


class Log(Section, frozen=True, kw_only=True):
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severity shown")
    ] = "info"
    format: Annotated[
        Literal["text", "json"], Meta(description="for people, or one JSON object a line")
    ] = "text"
