"""A definitions file as bytes: which are read, and which are refused as a whole, with the place."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.definitions.document import MOST_BYTES, Document, read_document
from queue_core.definitions.items import (
    BindingItem,
    ExchangeItem,
    QueueItem,
    Section,
    UserItem,
    VhostItem,
    table,
    words,
)
from queue_core.errors import InvalidArgument


def read(found: object, vhost: str | None = None) -> Document:
    return read_document(json.dumps(found).encode(), vhost)


def test_a_file_of_rabbitmq_3_is_read_with_its_tags_as_text_and_empty_objects_as_lists() -> None:
    document = read(
        {
            "rabbit_version": "3.6.16",
            "users": [{"name": "ada", "password_hash": "", "tags": "administrator, monitoring"}],
            "queues": [
                {
                    "name": "q",
                    "vhost": "/",
                    "durable": True,
                    "auto_delete": False,
                    "arguments": [],
                }
            ],
        }
    )
    (user,), (queue,) = document.of(UserItem), document.of(QueueItem)
    assert words(user.tags) == ["administrator", "monitoring"]
    assert table(queue.arguments) == {}
    assert document.notes == ()


def test_a_file_of_rabbitmq_4_is_read_with_its_types_and_metadata() -> None:
    document = read(
        {
            "rabbitmq_version": "4.1.0",
            "rabbitmq_definition_format": "cluster",
            "original_cluster_name": "rabbit@host",
            "explanation": "Definitions of cluster 'rabbit@host'",
            "vhosts": [
                {
                    "name": "v",
                    "description": "d",
                    "metadata": {"tags": ["a"]},
                    "tags": ["a"],
                    "default_queue_type": "quorum",
                    "limits": [],
                }
            ],
            "queues": [{"name": "q", "vhost": "v", "type": "quorum", "arguments": {}}],
        }
    )
    (vhost,), (queue,) = document.of(VhostItem), document.of(QueueItem)
    assert (vhost.default_queue_type, queue.type) == ("quorum", "quorum")
    assert document.notes == ()


def test_the_file_of_one_virtual_host_may_go_into_another() -> None:
    document = read(
        {
            "rabbit_version": "3.10.8",
            "exchanges": [{"name": "x", "type": "fanout"}],
            "bindings": [
                {
                    "source": "x",
                    "vhost": "old",
                    "destination": "q",
                    "destination_type": "queue",
                    "routing_key": "",
                    "arguments": {},
                }
            ],
        },
        vhost="new",
    )
    assert [each.vhost for each in document.of(ExchangeItem)] == ["new"]
    assert [each.vhost for each in document.of(BindingItem)] == ["new"]


def test_what_a_file_says_and_nobody_here_reads_is_named() -> None:
    document = read(
        {
            "shards": [],
            "queues": [{"name": "q", "vhost": "/", "colour": "red", "cluster_state": {}}],
        }
    )
    assert document.notes == (
        "'shards' is no list of definitions that is known here",
        "queues[0] 'q': the key 'colour' is not known here",
    )


def test_of_the_file_of_all_only_what_names_a_virtual_host_is_read_for_it() -> None:
    queues = [{"name": name, "vhost": name} for name in ("here", "there")]
    users = [{"name": "ada", "password_hash": ""}]
    document = read({"users": users, "vhosts": [], "queues": queues}, vhost="here")
    assert not document.of(UserItem)
    assert [(each.vhost, each.name) for each in document.of(QueueItem)] == [("here", "here")]
    assert document.notes == ()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "no JSON", id="nothing"),
        pytest.param(b"{", "no JSON", id="half a file"),
        pytest.param(b"\xff\xfe", "no JSON", id="no text"),
        pytest.param(b"[]", "must be a JSON object", id="a list"),
        pytest.param(b"null", "must be a JSON object", id="null"),
        pytest.param(b'{"queues": {}}', "'queues' in the definitions must be a list", id="a map"),
        pytest.param(b'{"queues": [1]}', r"queues\[0\] .* must be an object", id="a number"),
        pytest.param(b'{"queues": [{"vhost": "/"}]}', r"queues\[0\].*missing.*name", id="no name"),
        pytest.param(
            b'{"queues": [{"name": "q"}]}', r"queues\[0\] 'q'.*missing.*vhost", id="no vhost"
        ),
        pytest.param(
            b'{"queues": [{"name": "q", "vhost": "/", "durable": "yes"}]}',
            r"queues\[0\] 'q'.*Expected `bool`",
            id="a wrong type",
        ),
        pytest.param(
            b'{"bindings": [{"source": "x", "vhost": "/", "destination": "q", '
            b'"destination_type": "topic"}]}',
            r"bindings\[0\].*Invalid enum value",
            id="a destination of no kind",
        ),
        pytest.param(
            b'{"policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {}, '
            b'"priority": "high"}]}',
            r"policies\[0\] 'p'.*Expected `int`",
            id="a priority in words",
        ),
    ],
)
def test_a_file_of_another_shape_is_refused_with_the_place(data: bytes, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        read_document(data)


@pytest.mark.parametrize("depth", [40, 5_000, 200_000])
def test_a_file_that_is_nested_too_deeply_is_refused(depth: int) -> None:
    value = b'{"a":' * depth + b"1" + b"}" * depth
    with pytest.raises(InvalidArgument, match=r"nested|no JSON"):
        read_document(b'{"queues": [{"name": "q", "vhost": "/", "arguments": {"x": %b}}]}' % value)


def test_a_file_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidArgument, match="67108864 are the most"):
        read_document(b" " * (MOST_BYTES + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
NAMES = st.sampled_from(["name", "vhost", "type", "arguments", "source", "user", "tags", "value"])


@given(
    st.dictionaries(
        st.sampled_from(sorted(Section)) | st.text(max_size=6),
        st.lists(st.dictionaries(NAMES | st.text(max_size=4), JSON, max_size=6), max_size=3) | JSON,
        max_size=4,
    ),
    st.sampled_from([None, "/"]),
)
def test_any_json_is_read_or_refused_in_our_own_words(
    found: dict[str, Any], vhost: str | None
) -> None:
    with suppress(InvalidArgument):
        assert set(read(found, vhost).items) <= set(Section)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_our_own_words(data: bytes) -> None:
    with suppress(InvalidArgument):
        read_document(data)
