"""The configuration keys of the definitions file that is imported at the start.

Answers for the contract with whoever runs the gateway. It must not act on any of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.config.section import Section


class DefinitionsFile(Section, frozen=True, kw_only=True):
    """A file in the form of RabbitMQ's definitions."""

    import_: Annotated[
        Path | None,
        Meta(
            description="definitions file to import at the start, before the listeners open; one "
            "that has not changed since the last start is skipped"
        ),
    ] = msgspec.field(name="import", default=None)
    strict: Annotated[
        bool,
        Meta(
            description="whether the gateway refuses to start where the file has something in it "
            "that cannot be taken; false: that is named in the log"
        ),
    ] = False
