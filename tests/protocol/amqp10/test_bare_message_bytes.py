"""The bare message reaches a 1.0 receiver byte for byte, in whatever encoding it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.protocol.amqp10.test_frames import flow
from tests.support.amqp10_wire import DISPOSITION, TRANSFER, Wire, transfer
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

# Every constructor of the standard's type system, with a value [1.6].
ENCODINGS = {
    "null": "40",
    "boolean": "5601",
    "true": "41",
    "false": "42",
    "ubyte": "50ff",
    "ushort": "60fffe",
    "uint": "70fffffffe",
    "smalluint": "52ff",
    "uint0": "43",
    "ulong": "80fffffffffffffffe",
    "smallulong": "53ff",
    "ulong0": "44",
    "byte": "5180",
    "short": "618000",
    "int": "7180000000",
    "smallint": "5480",
    "long": "818000000000000000",
    "smalllong": "5580",
    "float": "723fc00000",
    "double": "824002000000000000",
    "decimal32": "7422500005",
    "decimal64": "843180000000000005",
    "decimal128": "9430400000000000000000000000000005",
    "char": "730001f600",
    "timestamp": "830000018bcfe56800",
    "uuid": "98" + "12345678123456781234567812345678",
    "vbin8": "a00300ff01",
    "vbin32": "b00000000300ff01",
    "str8": "a1026869",
    "str32": "b1000000026869",
    "sym8": "a3026869",
    "sym32": "b3000000026869",
    "list0": "45",
    "list8": "c003024142",
    "list32": "d000000006000000024142",
    "map8": "c10702a1016ba10176",
    "map32": "d10000000a00000002a1016ba10176",
    "array8": "e0040254ff01",
    "array32": "f0000000070000000254ff01",
    "described": "0053ff41",
    "described by a symbol": "00a3036f776e5401",
}
# Values of application properties are simple ones [3.2.5].
SIMPLE = [name for name in ENCODINGS if name[:3] not in ("lis", "map", "arr", "des")]


def long_map(pairs: list[bytes]) -> bytes:
    content = b"".join(pairs)
    return b"\xd1" + (len(content) + 4).to_bytes(4) + (2 * len(pairs)).to_bytes(4) + content


def named(name: str, *, is_symbol: bool) -> bytes:
    return bytes((0xA3 if is_symbol else 0xA1, len(name))) + name.encode()


def value(name: str) -> bytes:
    return bytes.fromhex(ENCODINGS[name])


ANNOTATIONS = [named(f"x-{name}", is_symbol=True) + value(name) for name in ENCODINGS]
# message-id 0, written at full length, and no user-id
PROPERTIES = bytes.fromhex("005373d00000000e00000002" + "800000000000000000" + "40")
APPLICATION = b"\x00\x53\x74" + long_map(
    [named(name, is_symbol=False) + value(name) for name in SIMPLE]
)
FOOTER = b"\x00\x53\x78" + long_map([named("x-sum", is_symbol=True) + value("vbin32")])
DATA8, DATA32 = b"\x00\x53\x75\xa0\x02hi", b"\x00\x53\x75\xb0\x00\x00\x00\x02hi"
LONG_DESCRIPTOR = b"\x00\x80" + (0x75).to_bytes(8) + b"\xa0\x02hi"
NAMED_DESCRIPTOR = b"\x00\xa3\x10amqp:data:binary\xa0\x02hi"
SEQUENCE = b"\x00\x53\x76" + value("list8")
BODIES = {
    "one short data": DATA8,
    "one long data": DATA32,
    "data with a long descriptor": LONG_DESCRIPTOR,
    "data with a name": NAMED_DESCRIPTOR,
    "many data": DATA8 + DATA32 + DATA8,
    "empty data": b"\x00\x53\x75\xa0\x00",
    "one sequence": SEQUENCE,
    "many sequences": SEQUENCE
    + b"\x00\x53\x76"
    + value("list32")
    + b"\x00\x53\x76"
    + value("list0"),
    **{f"value {name}": b"\x00\x53\x77" + value(name) for name in ENCODINGS},
}


NUMBERS = count()  # of the transfers on the one link


@pytest.fixture(scope="module")
def wire(shared_gateway: GatewayProcess) -> Iterator[Wire]:
    """One link in and one out, for all of them in turn."""
    made = Wire(shared_gateway)
    made.open()
    made.begin()
    queue = fresh("queue://bytes")
    made.attach_sender(queue, 0)
    made.attach_receiver(queue, 1)
    made.send(flow(1, 1000))
    yield made
    made.close()


def there_and_back(wire: Wire, payload: bytes) -> bytes:
    """Sends a payload, and returns the one that a receiver gets for it."""
    wire.send(transfer(0, next(NUMBERS), payload))
    got = None
    is_accepted = False
    while got is None or not is_accepted:
        found = wire.frame()
        assert found is not None
        if found[0] == DISPOSITION:
            is_accepted = True
            assert found[1][4].descriptor == 0x24, found
        elif found[0] == TRANSFER:
            got = found[2]
    return got


@pytest.mark.parametrize("footer", [b"", FOOTER], ids=["", "footer"])
@pytest.mark.parametrize("kind", BODIES)
def test_a_body_of_any_kind_is_the_same(wire: Wire, kind: str, footer: bytes) -> None:
    bare = PROPERTIES + APPLICATION + BODIES[kind] + footer
    assert there_and_back(wire, bare).endswith(bare)


@pytest.mark.parametrize("name", SIMPLE)
def test_an_application_property_of_any_type_is_the_same(wire: Wire, name: str) -> None:
    pairs = [named("p", is_symbol=False) + value(name)]
    bare = b"\x00\x53\x74" + long_map(pairs) + DATA8
    assert there_and_back(wire, bare).endswith(bare)


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_annotation_of_any_type_is_the_same(wire: Wire, name: str) -> None:
    pair = named("x-opt-own", is_symbol=True) + value(name)
    got = there_and_back(wire, b"\x00\x53\x72" + long_map([pair]) + DATA8)
    assert pair in got
    assert got.endswith(DATA8)


def test_all_of_them_at_once(wire: Wire) -> None:
    bare = PROPERTIES + APPLICATION + DATA8 + DATA32 + FOOTER
    got = there_and_back(wire, b"\x00\x53\x72" + long_map(ANNOTATIONS) + bare)
    assert got.endswith(bare)
    assert b"".join(ANNOTATIONS) in got
