"""Limits of connections and channels, as numbers: who still comes in, and who does not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.access.occupancy import NO_LIMITS, Occupancy, UserLimits
from queue_core.errors import QuotaReached

USERS, VHOSTS = ["ada", "bob"], ["/", "plant"]


@dataclass(eq=False)
class Connection:
    channel_count: int = 0


def refuses_connection(occupancy: Occupancy, user: str, vhost: str, *limits: int | None) -> bool:
    try:
        occupancy.require_connection(user, UserLimits(limits[0]), vhost, limits[1])
    except QuotaReached:
        return True
    return False


def refuses_channel(occupancy: Occupancy, user: str, limit: int | None) -> bool:
    try:
        occupancy.require_channel(user, UserLimits(max_channels=limit))
    except QuotaReached:
        return True
    return False


steps = st.tuples(st.booleans(), st.sampled_from(USERS), st.sampled_from(VHOSTS), st.integers(0, 3))
some_limit = st.none() | st.integers(-1, 4)


@given(st.lists(steps, max_size=20), some_limit, some_limit)
def test_a_limit_counts_those_who_are_there(
    given_steps: list[tuple[bool, str, str, int]], limit: int | None, other: int | None
) -> None:
    occupancy = Occupancy()
    there: list[tuple[Connection, str, str]] = []
    for comes, user, vhost, channels in given_steps:
        if comes or not there:
            there.append((Connection(channels), user, vhost))
            occupancy.add(*there[-1])
        else:
            occupancy.remove(*there.pop(channels % len(there)))
    for user in USERS:
        for vhost in VHOSTS:
            own = sum(each[1] == user for each in there)
            inside = sum(each[2] == vhost for each in there)
            is_full = any(
                bound is not None and bound >= 0 and count >= bound
                for bound, count in ((limit, own), (other, inside))
            )
            assert refuses_connection(occupancy, user, vhost, limit, other) is is_full
        channels = sum(each[0].channel_count for each in there if each[1] == user)
        is_full = limit is not None and limit >= 0 and channels >= limit
        assert refuses_channel(occupancy, user, limit) is is_full


def test_a_refusal_says_whose_limit_it_is_and_how_large() -> None:
    occupancy = Occupancy()
    occupancy.add(Connection(2), "ada", "/")
    with pytest.raises(QuotaReached, match=r"vhost '/' refused for user 'ada'.*\(1\)"):
        occupancy.require_connection("ada", UserLimits(1), "/", 1)
    with pytest.raises(QuotaReached, match=r"refused for user 'ada': user connection limit \(1\)"):
        occupancy.require_connection("ada", UserLimits(1), "plant", None)
    with pytest.raises(QuotaReached, match=r"limit of \(2\)"):
        occupancy.require_channel("ada", UserLimits(max_channels=2))
    occupancy.require_connection("bob", NO_LIMITS, "plant", None)
