"""The bounded memory that everything shares which works out the same again and again."""

from __future__ import annotations

from queue_core.message.memo import Memo


def test_what_was_kept_is_found_until_the_memory_is_full() -> None:
    memo: Memo[str, int] = Memo(2)
    assert memo.keep("a", 1) == 1
    assert memo.keep("b", 2) == 2
    assert memo.get("a") == 1
    memo.keep("c", 3)
    assert memo == {"c": 3}
    assert memo.get("a") is None


def test_a_memory_never_holds_more_than_its_limit() -> None:
    memo: Memo[int, int] = Memo(3)
    for number in range(100):
        memo.keep(number, number)
        assert 0 < len(memo) <= 3
        assert memo.get(number) == number
