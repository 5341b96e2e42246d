"""The cyclic garbage collector, set for a server.

Messages are freed by their reference counts; they are in no cycles. The collector's default makes
it look at everything that is alive again and again, because some hundred messages are: with a few
thousand on their way that was a sixth of the gateway's time.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (100_000, 20, 100)


def tune_collector() -> None:
    """Call once everything is set up: what exists then is not looked at any more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
