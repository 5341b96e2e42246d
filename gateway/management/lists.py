"""Lists of the HTTP API: filtered by name, sorted, cut to pages and to columns as in RabbitMQ, and
written in slices of the loop.

A handler hands over what it has, unformatted, and how to make a row of it: only the rows of the
page are made, unless somebody sorts by what only a row has.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta

from gateway.management.answers import HEADERS, JSON, Gzip, Reply, encoded, respond, takes_gzip
from gateway.management.api_errors import ApiError, bad_request
from gateway.management.loop_share import LoopShare
from gateway.management.routes import Query
from queue_core.access.permission_patterns import PatternTooSlow, found_in, pattern_in_time

MOST_PAGE_ROWS: Final = 500  # as in RabbitMQ
SORTED_AT_ONCE: Final = 20_000  # in about 5 ms
FILTERED_AT_ONCE: Final = 100  # names, in some ten microseconds
MOST_PATTERN_CHARACTERS: Final = 1000
MOST_SORT_COLUMNS: Final = 8  # each is kept for every row while they are sorted
MOST_COLUMNS: Final = 200

T = TypeVar("T")


class ColumnsQuery(Query, frozen=True):
    """What every answer takes."""

    columns: Annotated[
        str, Meta(description="fields to give, by commas; a.b is field b of object a")
    ] = ""


class ListQuery(ColumnsQuery, frozen=True):
    """What every list takes."""

    sort: Annotated[str, Meta(description="field to sort by; several by commas")] = ""
    sort_reverse: Annotated[bool, Meta(description="the greatest first")] = False
    name: Annotated[str, Meta(description="only names with this in them, in any case")] = ""
    use_regex: Annotated[bool, Meta(description="name is a regular expression")] = False
    page: Annotated[int, Meta(ge=1, le=2**31, description="page to give, as an object")] | None = (
        None
    )
    page_size: Annotated[int, Meta(ge=1, le=MOST_PAGE_ROWS, description="rows of a page")] = 100
    pagination: Annotated[bool, Meta(description="has no effect; `page` asks for pages")] = False
    disable_stats: Annotated[bool, Meta(description="leave out what is counted")] = False
    enable_queue_totals: Annotated[
        bool, Meta(description="with disable_stats: give the numbers of messages")
    ] = False


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Everything that a list has before it is filtered. `items` come in the usual order."""

    items: Sequence[T]
    row: Callable[[T], Any]
    name: Callable[[T], str] = attrgetter("name")
    sort_keys: Mapping[str, Callable[[T], Any]] = field(default_factory=dict)  # without a row


class Page(msgspec.Struct, frozen=True):
    """One page of a list, as RabbitMQ describes it."""

    filtered_count: int
    item_count: int
    items: Sequence[Any]
    page: int
    page_count: int
    page_size: int
    total_count: int


async def send_list(
    request: web.Request, share: LoopShare, listing: Listing[Any], query: ListQuery
) -> web.StreamResponse:
    """Answers with a list: a bare array, or a page of it."""
    row = row_with(listing.row, columns_of(query))
    items = await _filtered(share, listing, query)
    items = await _sorted(share, listing, items, query)
    if query.page is not None:
        page = _page(query, len(listing.items), items)
        rows = await share.all(page, row)
        reply = Reply(200, _described(query, len(listing.items), len(items), rows))
        return await respond(request, share, reply)
    if len(items) <= MOST_PAGE_ROWS:
        rows = await share.all(items, lambda item: msgspec.Raw(encoded(row(item))))
        return await respond(request, share, Reply(200, rows))
    return await _stream(request, share, items, row)


def columns_of(query: msgspec.Struct) -> list[list[str]]:
    """Returns the paths of the columns that a query asks for; none: all. Raises 400."""
    columns = getattr(query, "columns", "")
    paths = [path.strip().split(".") for path in columns.split(",") if path.strip()]
    if len(paths) > MOST_COLUMNS:
        raise bad_request(f"an answer is cut to {MOST_COLUMNS} columns at most")
    return paths


def row_with(row: Callable[[T], Any], columns: list[list[str]]) -> Callable[[T], Any]:
    """Returns a function that makes a row with only these columns."""
    if not columns:
        return row
    return lambda item: chosen(row(item), columns)


def chosen(value: Any, columns: list[list[str]]) -> dict[str, Any]:
    """Cuts an object to some columns, each a path of names; what it does not have is left out."""
    whole = msgspec.to_builtins(value, enc_hook=str)
    kept: dict[str, Any] = {}
    for path in columns:
        found = _at(whole, path)
        if found is not None:
            place = kept
            for name in path[:-1]:
                inner = place.setdefault(name, {})
                if not isinstance(inner, dict):
                    break  # the whole object is there already
                place = inner
            else:
                place[path[-1]] = found
    return kept


def _at(value: Any, path: Iterable[str]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


# --- names


async def _filtered(share: LoopShare, listing: Listing[T], query: ListQuery) -> Sequence[T]:
    if not query.name:
        return listing.items
    if not query.use_regex:
        wanted = query.name.lower()
        flags = await share.all(listing.items, lambda item: wanted in listing.name(item).lower())
        return [item for item, is_in in zip(listing.items, flags, strict=True) if is_in]
    pattern = _pattern(query.name)

    def matching(part: Sequence[T]) -> list[T]:
        flags = found_in(pattern, [listing.name(item) for item in part])
        return [item for item, is_in in zip(part, flags, strict=True) if is_in]

    try:
        parts = await share.all(_parts(listing.items, FILTERED_AT_ONCE), matching)
    except PatternTooSlow:
        raise _too_slow() from None
    return [item for part in parts for item in part]


def _pattern(text: str) -> Any:
    if len(text) > MOST_PATTERN_CHARACTERS:
        raise bad_request(f"a regular expression has at most {MOST_PATTERN_CHARACTERS} characters")
    try:
        return pattern_in_time(text, ignore_case=True)
    except PatternTooSlow:
        raise _too_slow() from None
    except ValueError as error:
        raise bad_request(f"name is not a regular expression: {error}") from None


def _too_slow() -> ApiError:
    return bad_request(
        "the regular expression takes too long; write it without repetitions of what may be "
        "repeated inside, and without large classes of characters"
    )


def _parts(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))


# --- order


async def _sorted(
    share: LoopShare, listing: Listing[T], items: Sequence[T], query: ListQuery
) -> Sequence[T]:
    """Sorts by the asked columns, in parts that are merged. Rows that lack a column come first, as
    in RabbitMQ, and equal ones stay in the usual order."""
    names = [name.strip() for name in query.sort.split(",") if name.strip()]
    if len(names) > MOST_SORT_COLUMNS:
        raise bad_request(f"a list is sorted by {MOST_SORT_COLUMNS} columns at most")
    if not names:
        return items[::-1] if query.sort_reverse else items
    keys = _comparable_all(await share.all(items, _sort_key(listing, names)))
    by_key, reverse = keys.__getitem__, query.sort_reverse
    parts = list(_parts(range(len(items)), SORTED_AT_ONCE))
    runs = await share.all(parts, lambda part: sorted(part, key=by_key, reverse=reverse))
    if len(runs) == 1:
        return [items[at] for at in runs[0]]
    merged = heapq.merge(*runs, key=by_key, reverse=reverse)
    return await share.all(merged, items.__getitem__)


def _comparable_all(keys: list[Any]) -> list[Any]:
    """Makes keys comparable. Most columns have values of one kind, which are left as they are: a
    wrapping for each of ten thousand takes longer than to sort them."""
    kinds = set(map(type, keys))
    if kinds <= {int, float} or kinds == {str}:
        return keys
    return [
        [_comparable(each) for each in key] if isinstance(key, list) else _comparable(key)
        for key in keys
    ]


def _sort_key(listing: Listing[T], names: Sequence[str]) -> Callable[[T], Any]:
    keys = [listing.sort_keys.get(name) for name in names]
    if len(keys) == 1 and keys[0] is not None:
        return keys[0]
    if all(keys):
        return lambda item: [key(item) for key in keys if key is not None]
    paths = [name.split(".") for name in names]

    def of_row(item: T) -> Any:
        whole = msgspec.to_builtins(listing.row(item), enc_hook=str)
        return [_at(whole, path) for path in paths]

    return of_row


def _comparable(value: Any) -> tuple[int, Any]:
    """Makes values of different kinds comparable: none, then numbers, then text."""
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    return (2, value if isinstance(value, str) else encoded(value).decode())


# --- pages


def _page(query: ListQuery, total: int, items: Sequence[T]) -> Sequence[T]:
    assert query.page is not None
    first = (query.page - 1) * query.page_size
    if first >= len(items) and query.page > 1:
        raise ApiError(
            400,
            "page_out_of_range",
            f"page out of range: page {query.page} of {query.page_size} rows, and there are "
            f"{len(items)} rows",
        )
    return items[first : first + query.page_size]


def _described(query: ListQuery, total: int, filtered: int, rows: Sequence[Any]) -> Page:
    assert query.page is not None
    return Page(
        filtered_count=filtered,
        item_count=len(rows),
        items=rows,
        page=query.page,
        page_count=max(1, -(-filtered // query.page_size)),
        page_size=query.page_size,
        total_count=total,
    )


# --- long lists


async def _stream(
    request: web.Request, share: LoopShare, items: Sequence[T], row: Callable[[T], Any]
) -> web.StreamResponse:
    """Sends a long list as it is written: it is never in memory as a whole, and waits for its
    reader between two slices."""
    gzip = Gzip() if takes_gzip(request) else None
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": f"{JSON}; charset=utf-8"})
    if gzip is not None:
        response.headers["Content-Encoding"] = "gzip"
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        await _write_rows(response, share, items, row, gzip)
    except Exception:
        if request.transport is not None:
            request.transport.abort()  # half a list must not look like a whole one
        raise
    await response.write_eof()
    return response


async def _write_rows(
    response: web.StreamResponse,
    share: LoopShare,
    items: Sequence[T],
    row: Callable[[T], Any],
    gzip: Gzip | None,
) -> None:
    opening = b"["
    async for rows in share.slices(items, lambda item: encoded(row(item))):
        text = opening + b",".join(rows)
        opening = b","
        part = text if gzip is None else gzip.add(text)
        if part:
            await response.write(part)
    await response.write(b"]" if gzip is None else gzip.add(b"]") + gzip.end())
