"""Writes docs/conformance/mqtt-clients.md from what the tests say that they prove.

Run by `make docs`; a test fails when the page is older than the tests. No client is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from protocols.mqtt.wire.packets import Version
from protocols.mqtt.wire.property_set import PacketType
from tests.interop.mqtt import test_features, test_properties
from tests.interop.mqtt.columns import COLUMNS, NOT_SENT, VERSIONS, Column
from tests.interop.mqtt.proving import FEATURES
from tests.interop.mqtt.proving import ROWS as PROVEN
from tests.interop.mqtt.rows import CLIENT, ROWS, SENDS, Row

PAGE: Final = Path(__file__).parents[3] / "docs" / "conformance" / "mqtt-clients.md"
WIRES: Final = {"tcp": "TCP", "ws": "WebSocket"}
VERSION_NAMES: Final = {Version.V31: "3.1", Version.V311: "3.1.1", Version.V5: "5.0"}

INTRODUCTION: Final = """\
# MQTT: client by client

Written by `make docs` from the tests in `tests/interop/mqtt`; change it there.

Clients of four makes do everything that MQTT has, over every transport and in every version that
they speak. Each test runs once for each column. Its client speaks through a relay that reads along:

- **yes**: a property that the client says was seen on the wire, and the gateway took it; one that
  it hears was seen on the wire, and the client's own interface, or what the client did, showed it.
- **taken**: it was on the wire, and the client went on, but its interface shows nothing of it.
- **no**: the client's own interface cannot say it, or be brought to hear it.

The reasons are below the tables. They were seen in these versions:
"""


MANNERS: Final = """\
## Their manners

Seen by the same tests, and good to know for whoever uses these clients with any broker:

- libmosquitto 2.0.11 takes a PUBLISH with an alias and without a topic for a protocol error: give
  mosquitto_sub no topic alias maximum where topics repeat.
- paho-mqtt shows a message that came by its alias with an empty topic, and the alias as a property.
- mosquitto_sub of 5.0 leaves with reason 0x04, which asks for its will, when a signal ends it.
- paho-mqtt answers a PUBREC that refuses with PUBREL all the same, and hears 0x92 in PUBCOMP.
- MQTT.js shows a message of QoS 2 when PUBREL came, and what came meanwhile before it.
"""


def render() -> str:
    """The whole page."""
    notes = Notes()
    parts = [INTRODUCTION, _versions(), _features(notes)]
    for sender, packets in SENDS.items():
        whose = "from the client" if sender == CLIENT else "from the gateway"
        parts.append(f"## Properties of 5.0, {whose}\n")
        parts += [_packet(sender, packet, notes) for packet in packets]
    return "\n".join((*parts, notes.render(), MANNERS))


class Notes:
    """Reasons, numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, reason: str) -> int:
        return self._numbers.setdefault(reason, len(self._numbers) + 1)

    def render(self) -> str:
        lines = [f"{number}. {reason}." for reason, number in self._numbers.items()]
        return "## Reasons\n\n" + "\n".join(lines) + "\n"


def _versions() -> str:
    return "\n".join(f"- {name} {version}" for name, version in VERSIONS.values()) + "\n"


def _title(column: Column) -> str:
    return f"{VERSIONS[column.client][0]}, {WIRES[column.transport]}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join((*lines, *("| " + " | ".join(row) + " |" for row in rows))) + "\n"


# --- features


def _features(notes: Notes) -> str:
    rows = [
        (name, VERSION_NAMES[version], *(_does(c, version, notes) for c in COLUMNS), f"`{test}`")
        for name, test in features().items()
        for version in Version
    ]
    titles = map(_title, COLUMNS)
    return "## Features\n\n" + _table(("", "version", *titles, "held by"), rows)


def features() -> dict[str, str]:
    """The test that holds each."""
    return {
        feature: test.__name__
        for test in _tests(test_features)
        for feature in getattr(test, FEATURES, ())
    }


def _does(column: Column, version: Version, notes: Notes) -> str:
    if version in column.versions:
        return "yes"
    assert column.unversed, f"{column.name} has no reason for the versions that it lacks"
    return f"no ({notes.number(_reason(column, column.unversed))})"


# --- properties


def _packet(sender: str, packet: PacketType, notes: Notes) -> str:
    own = [row for row in ROWS if row[:2] == (sender, packet)]
    rows = [(_shown(row.field), *_cells(row, notes)) for row in own]
    name = "Will, in CONNECT" if packet is PacketType.WILL else packet.name
    return f"### {name}\n\n" + _table(("property", *map(_title, COLUMNS), "held by"), rows)


def _shown(field: str) -> str:
    return LONG_NAMES.get(field, field.replace("_", " "))


LONG_NAMES: Final = {
    "payload_format": "payload format indicator",
    "message_expiry": "message expiry interval",
    "subscription_identifiers": "subscription identifier",
    "session_expiry": "session expiry interval",
    "assigned_client_id": "assigned client identifier",
    "request_problem": "request problem information",
    "will_delay": "will delay interval",
    "request_response": "request response information",
    "user": "user property",
    "wildcard_available": "wildcard subscription available",
    "identifiers_available": "subscription identifiers available",
    "shared_available": "shared subscription available",
}


def _cells(row: Row, notes: Notes) -> list[str]:
    if row in NOT_SENT:
        number = notes.number(NOT_SENT[row])
        return [*(f"no ({number})" for _ in COLUMNS), ""]
    test = proven().get(row)
    cells = [_cell(row, column, notes) for column in COLUMNS]
    assert test or not any(cell == "yes" for cell in cells), f"no test proves {row}"
    return [*cells, f"`{test}`" if test else "the codec's unit tests"]


def _cell(row: Row, column: Column, notes: Notes) -> str:
    for word, reasons in (("no", column.cannot), ("taken", column.silent)):
        if row in reasons:
            return f"{word} ({notes.number(_reason(column, reasons[row]))})"
    return "yes"


def _reason(column: Column, reason: str) -> str:
    return f"{VERSIONS[column.client][0]} {reason}"


def proven() -> dict[Row, str]:
    """The test that proves each property."""
    return {
        row: test.__name__
        for test in _tests(test_properties)
        for row in sorted(getattr(test, PROVEN, ()))
    }


def _tests(module: ModuleType) -> list[Callable[..., object]]:
    return [test for name, test in vars(module).items() if name.startswith("test_")]


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"wrote {PAGE}")
