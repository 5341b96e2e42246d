"""Writes docs/interop.md from the rules that the adapters convert messages by.

Run by `make docs`; a test fails when the page is older than the rules.
"""

# ruff: noqa: E501 - the lines are those of the page

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from uuid import UUID

from gateway.commands.convert import print_conversion
from gateway.message_files.document import TAGS, parse
from gateway.message_files.protocols import PROTOCOLS
from protocols.amqp091.conversion import from_canonical as to_amqp091
from protocols.amqp091.conversion import to_canonical as from_amqp091
from protocols.amqp10.conversion import from_canonical as to_amqp10
from protocols.amqp10.conversion import to_canonical as from_amqp10
from protocols.mqtt.conversion import from_canonical as to_mqtt
from protocols.mqtt.conversion import to_canonical as from_mqtt
from queue_core.message import carried_headers as carried
from queue_core.message.conversion import MEANING, Envelope, Reading, Writing
from queue_core.message.message import Value
from queue_core.message.values_as_text import Dialect, separated

PAGE = Path(__file__).parents[1] / "docs" / "interop.md"

EXAMPLE = """\
{
  "topic": "plant/7/orders",
  "qos": 1,
  "payload": "{\\"id\\": 1}",
  "properties": {
    "content-type": "application/json",
    "response-topic": "plant/7/answers",
    "correlation-data": {"$binary": "AP8="},
    "message-expiry-interval": 60,
    "user-properties": [["subject", "order"], ["tenant", "a"], ["tenant", "b"]]
  }
}
"""
COMMAND = "howdah convert --from mqtt5 --to amqp091 message.json"

INTRODUCTION = """\
# Interop

Written by `make docs` from the tables in `protocols/*/conversion/to_canonical.py` and
`protocols/*/conversion/from_canonical.py`; change it there.

Whoever publishes, whoever consumes: a message keeps its body, its properties and its headers. A
consumer of the publisher's own protocol gets the publisher's bytes. For all others the properties are
converted when the first of them asks, once, by the rules below. What has no place of its own in a
protocol travels under a name of this page, and where it comes back to a protocol that has a place
for it, it stands there again. Tests send every message that a protocol can write through every
other one and through both others, and compare what comes back.

`howdah convert` shows what becomes of a message of yours: see the end of the page.
"""

TITLES = {"mqtt": "MQTT 5", "amqp091": "AMQP 0.9.1", "amqp10": "AMQP 1.0"}


def render() -> str:
    """Renders the whole page."""
    return "\n".join(
        (
            INTRODUCTION,
            "## At a glance\n",
            _glance(),
            _direction("From MQTT 5", _mqtt_readings(), to_mqtt),
            _way_out("To MQTT 5", _mqtt_writings(), "user property"),
            _direction("From AMQP 0.9.1", from_amqp091.READING, to_amqp091),
            _way_out("To AMQP 0.9.1", to_amqp091.WRITING, "header"),
            _direction("From AMQP 1.0", from_amqp10.READING, to_amqp10),
            _way_out("To AMQP 1.0", to_amqp10.WRITING, "annotation"),
            _headers(),
            _types(),
            _names(),
            LIMITS,
            _convert(),
        )
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _shown(place: str) -> str:
    return LONG_NAMES.get(place, place.replace("_", "-"))


LONG_NAMES = {"payload_format": "payload-format-indicator"}


# --- the rules


def _mqtt_readings() -> list[Reading]:
    user = [rule._replace(place=f"user property {rule.place}") for rule in from_mqtt.USER_READING]
    return [*from_mqtt.READING, *user]


def _mqtt_writings() -> list[Writing]:
    user = [rule._replace(place=f"user property {rule.place}") for rule in to_mqtt.USER_WRITING]
    return [*to_mqtt.WRITING, *user]


def _glance() -> str:
    places = [
        _places(_mqtt_writings(), to_mqtt.ENVELOPE, "user property"),
        _places(to_amqp091.WRITING, to_amqp091.ENVELOPE, "header"),
        _places(to_amqp10.WRITING, to_amqp10.ENVELOPE, "annotation"),
    ]
    flag = carried.TEXT_FLAG
    places[0] |= {"headers": "user properties, in their order", flag: "payload-format-indicator"}
    places[1] |= {"headers": "headers, typed", flag: f"header {flag}, or a content type with UTF-8"}
    places[2] |= {
        "headers": "application-properties, typed; `x-...` names: message annotations",
        flag: "content-type with charset; an amqp-value string when the source was one",
    }
    rows = [
        (f"**{_shown(field)}**: {meaning}", *(place[field] for place in places))
        for field, meaning in MEANING.items()
    ]
    return _table(("canonical", *TITLES.values()), rows)


def _places(
    writings: Sequence[Writing], envelopes: Sequence[Envelope], otherwise: str
) -> dict[str, str]:
    found = {rule.field: _place(rule, otherwise) for rule in writings}
    return found | {rule.field: _with_note(rule.place, rule.note) for rule in envelopes}


def _with_note(place: str, note: str) -> str:
    return f"{place} ({note})" if note else place


def _place(rule: Writing, otherwise: str) -> str:
    if not rule.place:
        return f"{otherwise} {rule.otherwise}"
    return _shown(rule.place)


def _direction(title: str, readings: Sequence[Reading], module: ModuleType) -> str:
    rows = [(_shown(rule.place), _field(rule.field), _note(rule)) for rule in readings]
    told = {place for place, _, _ in rows}
    rows += [
        (rule.place, _shown(rule.field), rule.note)
        for rule in module.ENVELOPE
        if rule.read and rule.place not in told
    ]
    return f"## {title}\n\n" + _table(("there", "canonical", "note"), rows)


def _field(field: str) -> str:
    return f"header `{field}`" if field.startswith("x-") else _shown(field)


def _note(rule: Reading) -> str:
    if not rule.otherwise or rule.otherwise == rule.field:
        return rule.note
    other = f"of another type: header `{rule.otherwise}`"
    return f"{rule.note}; {other}" if rule.note else other


def _way_out(title: str, writings: Sequence[Writing], otherwise: str) -> str:
    rows = []
    for rule in writings:
        other = f"{otherwise} `{rule.otherwise}`" if rule.otherwise else ""
        rows.append((_shown(rule.field), _shown(rule.place) or "none", other, rule.note))
    return f"## {title}\n\n" + _table(("canonical", "there", "where it does not fit", "note"), rows)


# --- headers


def _headers() -> str:
    return f"""\
## Headers

Application headers keep their names and types. MQTT's user properties keep their order and may
repeat a name; in the maps of AMQP the first value of a name stands under it, and all of them, in
order, in `{carried.REPEATED}`: a list of lists of name and value. It is also there when a name is too
long for AMQP 0.9.1 (255 bytes), when the order cannot be told from the sections of AMQP 1.0, and when
a header has the name of one of the gateway's own.

A value of a type that a protocol lacks travels as text, with its type in `{carried.TYPES}`: a JSON
list such as `[{{"name":"n","type":"integer"}}]`. A client that passes it on gives the next one the
type back. One that changes a value on the way, or does not pass these two on, is taken at its word:
the header has the value that it wrote.
"""


SAMPLES: dict[str, Value] = {
    "text": "a",
    "text with a NUL": "a\0b",
    "whole number up to 63 bits": 5,
    "whole number up to 64 bits": (1 << 64) - 1,
    "floating point": 1.5,
    "infinity": float("inf"),
    "true, false": True,
    "nothing": None,
    "bytes": b"\xff",
    "time in whole seconds": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "time in milliseconds": datetime(2026, 1, 31, 12, 0, 0, 1000, tzinfo=UTC),
    "time in microseconds": datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC),
    "decimal of 32 bits": Decimal("1.5"),
    "any other decimal": Decimal("12345678901.5"),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "list": [1, "a"],
    "map": {"a": 1},
}


def _types() -> str:
    dialects = (to_mqtt.DIALECT, from_amqp091.DIALECT, from_amqp10.DIALECT)
    rows = [
        (name, *(_written(value, dialect) for dialect in dialects))
        for name, value in SAMPLES.items()
    ]
    return (
        "## Types\n\nOf AMQP's whole numbers and of its floating point numbers only the value is kept, "
        "not the width; a symbol or a char is text to all others.\n\n"
        + _table(("value of a header", *TITLES.values()), rows)
    )


def _written(value: Value, dialect: Dialect) -> str:
    written, kind = separated(value, dialect)
    if kind is None:
        return "as it is"
    return f"`{written}`, type `{json.dumps(kind)}`"


NAMES = {
    carried.TYPES: "the types of values that travel as text, and what else is to be known of them",
    carried.REPEATED: "all headers in order, where a map cannot say them",
    carried.PUBLISHER: "who published: stamped by the gateway for consumers of other protocols",
    carried.TEXT_FLAG: "1: the body is text though the content type does not say UTF-8; 0: MQTT's "
    "publisher said that it is bytes; false: it said nothing, in spite of the content type",
    carried.CREATED: "the time of creation, where the protocol's own place is coarser, or as MQTT's "
    "publisher wrote it",
    carried.REPLY_ADDRESS: "the reply address as the publisher wrote it, where the name or key alone "
    "says less",
    from_mqtt.ORDER: "the order of MQTT's user properties, where it is not the one of this page",
    from_amqp091.CLUSTER_ID: "0.9.1's cluster-id",
    from_amqp091.TIMESTAMP: "0.9.1's timestamp, when no calendar holds it",
    from_amqp091.ROUTING_KEY: "the routing key, when it is over 255 bytes; 1.0 always has it",
    "x-to": "1.0's to",
    "x-absolute-expiry-time": "1.0's absolute-expiry-time",
    "x-group-sequence": "1.0's group-sequence",
    "x-reply-to-group-id": "1.0's reply-to-group-id",
    from_amqp10.ADDED: "the content type is the gateway's: the publisher named none",
    from_amqp10.BODY: '"value": the body was an amqp-value string',
    from_amqp10.DATA: "the sizes of several data sections, which the others get as one body",
    from_amqp10.FOOTER: "1.0's footer",
    from_amqp10.CONTENT_TYPE: f"the content type of a body that travels as `{from_amqp10.VALUE_TYPE}`",
    from_amqp10.PLACES: "names that stand in another section than `x-...` names do",
}


def _names() -> str:
    rows = [(f"`{name}`", meaning) for name, meaning in NAMES.items()]
    return (
        "## The gateway's own names\n\nHeaders, user properties and annotations with these names are "
        "read as what they say here.\n\n" + _table(("name", "carries"), rows)
    )


LIMITS = """\
## What changes all the same

- QoS 2 is between a client and the gateway: from other protocols MQTT gets QoS 1, or 0 for what is not
  durable. The retain flag, too, is MQTT's own.
- MQTT counts an expiry in whole seconds: one that has begun counts whole.
- MQTT 3.1.1 has no properties: its consumers get topic, QoS, retain flag and payload.
- SQL reads the typed columns: ids as text, headers as JSON, of a repeated name the first. What was
  published is kept beside them, so consumers get all of it.
- Delivery annotations of AMQP 1.0 are for the next hop, and end at the gateway. So do 0.9.1's BCC and
  MQTT's topic alias.
- A topic's levels and a key's words: see [topics](semantics/topics.md).
"""


# --- the command


def _convert() -> str:
    return f"""\
## howdah convert

`{COMMAND}` shows what a consumer of the one protocol gets of a message of the other, what travels
under another name, and what not at all. The protocols are {", ".join(f"`{p}`" for p in PROTOCOLS)};
`-` reads standard input, `--json` is for machines. No gateway has to run.

With this in `message.json`:

```json
{EXAMPLE}```

it says:

```
{_example_output()}```

### The format of message.json

A JSON object. All keys may be left out.

| protocol | keys |
|---|---|
| `mqtt311` | `topic`, `qos`, `retain`, `payload` |
| `mqtt5` | the same, and `properties` with `payload-format-indicator`, `message-expiry-interval` (s), `content-type`, `response-topic`, `correlation-data`, `user-properties` (`[["name", "value"], ...]` or an object) |
| `amqp091` | `exchange`, `routing-key`, `body`, `properties` with the names of the standard, among them `headers` |
| `amqp10` | `address`, `header` (`durable`, `priority`, `ttl`), `message-annotations`, `properties` with the names of the standard, `application-properties`, `footer`, `body`: text, or `{{"data": ...}}`, `{{"data": [...]}}`, `{{"value": ...}}`, `{{"sequence": [...]}}` |
| `sql` | `exchange`, `routing_key`, `body`, `expires_in` (s), and the columns of a message: `priority`, `durable`, `content_type`, ..., `headers` |

Each may also have `publisher`. What JSON has no type for is an object with one key:
{", ".join(f"`{tag}`" for tag in TAGS)}, each with a text: `{{"$binary": "AP8="}}` is base64.
"""


def _example_output() -> str:
    words = COMMAND.split()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        print_conversion(parse(EXAMPLE), words[3], words[5])
    return output.getvalue()
