"""`python -m bench.flatness SCENARIO`: measures if the gateway's memory stays level over a million
messages.

One gateway, one load after the other, until so many have passed. Tells its memory after each tenth.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Final

from bench.results import HOWDAH
from bench.runner import LoadFailed, Stage, measured, spec_for
from bench.scenarios import SCENARIOS, Kind

MOST_MESSAGES: Final = 10_000_000
MOST_SECONDS: Final = 900.0  # of load, however slow it is
SECONDS: Final = 5.0  # of one load
STEPS: Final = 10
MIB: Final = 2**20


def main() -> int:
    loads = [name for name, each in SCENARIOS.items() if each.kind is Kind.THROUGHPUT]
    parser = argparse.ArgumentParser(prog="python -m bench.flatness", description=__doc__)
    parser.add_argument("scenario", choices=sorted(loads), metavar="scenario")
    parser.add_argument("--messages", type=int, default=1_000_000)
    arguments = parser.parse_args()
    try:
        show(arguments.scenario, min(arguments.messages, MOST_MESSAGES))
    except LoadFailed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def show(name: str, messages: int) -> None:
    with Stage() as stage:
        broker = stage.broker(HOWDAH)
        spec = replace(spec_for(SCENARIOS[name], HOWDAH), seconds=SECONDS)
        passed, loaded, shown = 0, 0.0, 0
        while passed < messages and loaded < MOST_SECONDS:
            sample = measured(broker, name, spec)
            passed += round(sample.per_second * sample.seconds)
            loaded += sample.seconds
            if passed >= shown * messages // STEPS:
                shown = passed * STEPS // messages + 1
                size = broker.resident_bytes() / MIB
                print(f"{passed:>10,} messages  {size:6.1f} MiB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
