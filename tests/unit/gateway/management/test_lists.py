"""Lists of the HTTP API: slices of the loop, order, pages, columns, and what a long list sends."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from gateway.management.dispatch import errors_as_json
from gateway.management.lists import (
    MOST_PAGE_ROWS,
    MOST_SORT_COLUMNS,
    Listing,
    ListQuery,
    chosen,
    send_list,
)
from gateway.management.loop_share import LoopShare
from tests.support.until import turns


class Row(Struct):
    name: str
    size: int | None = None
    inner: dict[str, Any] = {}


def app_of(rows: list[Row], query: ListQuery, row: Any = None) -> web.Application:
    async def handler(request: web.Request) -> web.StreamResponse:
        listing = Listing(rows, row or (lambda item: item))
        return await send_list(request, LoopShare(), listing, query)

    app = web.Application(middlewares=[errors_as_json])
    app.router.add_get("/", handler)
    return app


async def listed(rows: list[Row], **query: Any) -> Any:
    async with TestClient(TestServer(app_of(rows, ListQuery(**query)))) as client:
        return await (await client.get("/")).json()


async def test_a_long_list_is_sent_whole_packed_or_not() -> None:
    rows = [Row(f"q{number}", number) for number in range(3 * MOST_PAGE_ROWS)]
    wanted: list[Any] = [{"name": row.name, "size": row.size, "inner": {}} for row in rows]
    async with TestClient(TestServer(app_of(rows, ListQuery())), auto_decompress=False) as client:
        plain = await client.get("/", headers={"Accept-Encoding": "identity"})
        packed = await client.get("/", headers={"Accept-Encoding": "gzip"})
        assert json.loads(await plain.read()) == wanted
        assert json.loads(gzip.decompress(await packed.read())) == wanted
        head = await client.head("/")
        assert (head.status, await head.read()) == (200, b"")


async def test_half_a_list_does_not_look_like_a_whole_one() -> None:
    rows = [Row(f"q{number}", number) for number in range(3 * MOST_PAGE_ROWS)]

    def row(item: Row) -> Row:
        if item.size == 2 * MOST_PAGE_ROWS:
            raise ValueError("a bug")
        return item

    async with TestClient(TestServer(app_of(rows, ListQuery(), row))) as client:
        answer = await client.get("/")
        with pytest.raises(Exception, match=r"payload|disconnected|reset"):
            await answer.read()


@pytest.mark.parametrize("count", [10, 7000])  # of which the latter is sorted in parts
@pytest.mark.parametrize("is_reversed", [False, True])
async def test_a_list_is_sorted_whole_and_those_without_a_value_come_first(
    count: int, is_reversed: bool
) -> None:
    rows = [Row(f"q{n}", None if n % 10 == 0 else n * 7919 % count) for n in range(count)]
    found = await listed(
        rows, sort="size", sort_reverse=is_reversed, page=1, page_size=min(count, 500)
    )
    order = sorted(rows, key=lambda row: -1 if row.size is None else row.size, reverse=is_reversed)
    assert [each["size"] for each in found["items"]] == [row.size for row in order[:500]]


async def test_a_list_is_sorted_by_several_columns_and_inner_ones() -> None:
    rows = [Row("b", 1, {"x": 2}), Row("a", 1, {"x": 1}), Row("c", 0, {"x": 1})]
    found = await listed(rows, sort="inner.x,name")
    assert [each["name"] for each in found] == ["a", "c", "b"]


async def test_columns_that_are_not_there_are_left_out() -> None:
    row = Row("a", 1, {"x": {"y": 2, "z": 3}})
    assert chosen(row, [["name"], ["inner", "x", "y"], ["no"], ["name", "inner"]]) == {
        "name": "a",
        "inner": {"x": {"y": 2}},
    }


@given(st.lists(st.lists(st.sampled_from(["name", "inner", "x", "y", ""]), min_size=1, max_size=3)))
def test_any_columns_can_be_asked_for(columns: list[list[str]]) -> None:
    found = chosen(Row("a", None, {"x": {"y": 2}}), columns)
    assert found.keys() <= {"name", "size", "inner"}


async def test_others_get_their_turn_while_a_long_list_is_written() -> None:
    share, taken = LoopShare(), 0

    async def take_turns() -> None:
        nonlocal taken
        while True:
            taken += 1
            await turns()

    def work(number: int) -> int:
        return sum(range(2000)) + number  # some twenty microseconds

    other = asyncio.create_task(take_turns())
    found = await share.all(range(2000), work)
    other.cancel()
    assert len(found) == 2000
    assert taken > 2


async def test_a_page_beyond_the_end_is_out_of_range_and_the_first_never_is() -> None:
    assert (await listed([], page=1))["items"] == []
    error = await listed([Row("a")], page=2)
    assert error["error"] == "page_out_of_range"


async def test_a_list_is_sorted_by_few_columns_because_each_is_kept_for_every_row() -> None:
    rows = [Row("b", 1), Row("a", 1)]
    columns = ["size", "name"] * (MOST_SORT_COLUMNS // 2)
    assert [row["name"] for row in await listed(rows, sort=",".join(columns))] == ["a", "b"]
    query = ListQuery(sort=",".join([*columns, "name"]))
    async with TestClient(TestServer(app_of(rows, query))) as client:
        assert (await client.get("/")).status == 400
