"""Sizes and durations, as people write them."""

from __future__ import annotations

import pytest

from gateway.config.quantities import Duration, Size


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("16MiB", 16 * 1024**2),
        ("16 mib", 16 * 1024**2),
        ("1.5KiB", 1536),
        ("2MB", 2_000_000),
        ("512B", 512),
        ("1024", 1024),
        (1024, 1024),
        (0, 0),
    ],
)
def test_a_size_is_a_number_of_bytes(written: object, count: int) -> None:
    assert Size.parse(written) == count


@pytest.mark.parametrize(
    "written",
    [
        *("", "big", "16 parsecs", "-1", -1, True, None, 1.5, "16M iB"),
        *(2**63, "8388608TiB", "9" * 400),
    ],
)
def test_anything_else_is_no_size(written: object) -> None:
    with pytest.raises(ValueError, match="not a size"):
        Size.parse(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s", 30), ("250ms", 0.25), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("0.5s", 0.5)],
)
def test_a_duration_is_a_number_of_seconds(written: str, seconds: float) -> None:
    assert Duration.parse(written) == seconds


@pytest.mark.parametrize("written", ["", "30", 30, "soon", "s", "-1s", None, "5 minutes"])
def test_a_bare_number_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        Duration.parse(written)


@pytest.mark.parametrize("written", ["36501d", "876000h1s", f"{'9' * 400}s"])
def test_a_duration_ends_after_a_hundred_years(written: str) -> None:
    assert Duration.parse("36500d") == 3_153_600_000.0
    with pytest.raises(ValueError, match="longer than 36500d"):
        Duration.parse(written)


@pytest.mark.parametrize("written", ["16MiB", "1GiB", "3KiB", "1000"])
def test_a_size_is_written_as_it_is_read(written: str) -> None:
    assert str(Size.parse(written)) == written


@pytest.mark.parametrize("written", ["30s", "250ms", "90m", "1h", "2d"])
def test_a_duration_is_written_as_it_is_read(written: str) -> None:
    assert str(Duration.parse(written)) == written
