"""Which policy acts on a queue or an exchange, held against a plain reading of RabbitMQ's rules."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import InvalidArgument, UnsupportedArgument
from queue_core.policies.policy import ApplyTo, Policy
from queue_core.policies.policy_keys import ACTING_KEYS, INERT_KEYS, OPERATOR_KEYS, REFUSED_KEYS
from queue_core.policies.policy_set import PolicySet
from queue_core.queues.applied_policy import NO_POLICY
from queue_core.queues.spec import QueueSpec

NAMES = ["orders", "orders.eu", "mail", "$session/ada", ""]
PATTERNS = ["", ".*", "^orders", "eu$", "^mail$", "r.*s", r"^\$session/"]
VALUES: dict[str, list[object]] = {
    "max-length": [1, 5],
    "message-ttl": [0, 1000],
    "delivery-limit": [-1, 2],
    "max-age": ["1D", "7D"],
    "overflow": ["drop-head", "reject-publish"],
    "queue-mode": ["lazy"],
}
TYPES = ["classic", "quorum", "stream"]

definitions = st.dictionaries(
    st.sampled_from(sorted(VALUES)), st.integers(0, 1), min_size=1, max_size=3
).map(
    lambda chosen: {key: VALUES[key][number % len(VALUES[key])] for key, number in chosen.items()}
)
operator_definitions = definitions.map(
    lambda d: {key: value for key, value in d.items() if key in OPERATOR_KEYS} or {"expires": 5}
)


@st.composite
def policies(draw: st.DrawFn) -> list[Policy]:
    made = {}
    for _ in range(draw(st.integers(0, 6))):
        is_operator = draw(st.booleans())
        policy = Policy.parse(
            draw(st.sampled_from("abcd")),
            draw(st.sampled_from(PATTERNS)),
            draw(operator_definitions if is_operator else definitions),
            apply_to=draw(st.sampled_from(list(ApplyTo))),
            priority=draw(st.integers(-1, 2)),
            is_operator=is_operator,
        )
        made[policy.name, is_operator] = policy
    return list(made.values())


# What RabbitMQ's types of queues do not support, of the keys that are drawn here.
NOT_FOR = {
    "classic": {"max-age", "delivery-limit"},
    "quorum": {"max-age", "queue-mode"},
    "stream": {"max-length", "message-ttl", "expires", "delivery-limit", "overflow", "queue-mode"},
}
ALONE = {"classic": {"delivery-limit"}, "stream": {"max-length"}, "quorum": set[str]()}
FAMILY = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


def plain_choice(policies: Sequence[Policy], name: str, queue_type: str) -> Policy | None:
    best: Policy | None = None
    for policy in policies:
        if policy.apply_to not in ("all", "queues", FAMILY[queue_type]):
            continue
        not_for = NOT_FOR[queue_type]
        if policy.apply_to == FAMILY[queue_type]:
            not_for = not_for - ALONE[queue_type]
        if not_for & set(policy.definition) or not re.search(policy.pattern, name):
            continue
        is_tie = best is not None and policy.priority == best.priority
        if best is None or policy.priority > best.priority or (is_tie and policy.name < best.name):
            best = policy
    return best


@given(policies(), st.sampled_from([name for name in NAMES if name]), st.sampled_from(TYPES))
def test_one_policy_and_one_operator_policy_act_on_a_queue(
    given_policies: list[Policy], name: str, queue_type: str
) -> None:
    spec = QueueSpec.parse(name, {"x-queue-type": queue_type})
    applied = PolicySet(given_policies).of_queue(spec)
    ordinary = plain_choice([p for p in given_policies if not p.is_operator], name, queue_type)
    operator = plain_choice([p for p in given_policies if p.is_operator], name, queue_type)
    assert applied.policy == (ordinary and ordinary.name)
    assert applied.operator_policy == (operator and operator.name)
    mine = dict(ordinary.definition) if ordinary else {}
    theirs = dict(operator.definition) if operator else {}
    assert applied.definition.keys() == mine.keys() | theirs.keys()
    for key, value in applied.definition.items():
        both = [values[key] for values in (mine, theirs) if key in values]
        if len(both) == 1 or key == "overflow":
            assert value == both[-1]
        else:
            limits: list[Any] = [each for each in both if isinstance(each, int) and each >= 0]
            assert value == min(limits, default=both[-1])


@given(policies(), st.sampled_from(NAMES))
def test_policies_for_all_and_for_exchanges_act_on_exchanges(
    given_policies: list[Policy], name: str
) -> None:
    applied = PolicySet(given_policies).of_exchange(name)
    fitting = [
        policy
        for policy in given_policies
        if not policy.is_operator
        and policy.apply_to in ("all", "exchanges")
        and re.search(policy.pattern, name)
    ]
    best = min(fitting, key=lambda policy: (-policy.priority, policy.name), default=None)
    assert applied.policy == (best.name if best and name else None)


@given(policies(), st.sampled_from(TYPES), st.integers(0, 9) | st.none())
def test_of_a_number_that_was_declared_too_the_smaller_counts(
    given_policies: list[Policy], queue_type: str, declared: int | None
) -> None:
    arguments: dict[str, object] = {"x-queue-type": queue_type}
    if declared is not None:
        arguments["x-max-length"] = declared
    spec = QueueSpec.parse("orders", arguments)
    applied = PolicySet(given_policies).of_queue(spec)
    under = spec.under(applied)
    limits = [each for each in (declared, applied.definition.get("max-length")) if each is not None]
    assert under.max_length == min(limits, default=None)  # type: ignore[type-var]
    assert under.arguments == spec.arguments
    assert under.under(NO_POLICY) == spec


def test_what_is_no_number_and_was_declared_stays() -> None:
    declared = {"x-overflow": "drop-head", "x-dead-letter-exchange": "mine"}
    policy = Policy.parse(
        "p", ".*", {"overflow": "reject-publish", "dead-letter-exchange": "theirs"}
    )
    spec = QueueSpec.parse("q", declared)
    under = spec.under(PolicySet([policy]).of_queue(spec))
    assert (under.overflow, under.dead_letter_exchange) == ("drop-head", "mine")


def test_the_delivery_limit_of_a_quorum_queue_that_declared_none_is_the_policys() -> None:
    spec = QueueSpec.parse("q", {"x-queue-type": "quorum"})
    policy = Policy.parse("p", "", {"delivery-limit": 50})
    assert spec.under(PolicySet([policy]).of_queue(spec)).delivery_limit == 50


def test_a_queue_of_a_session_ends_with_its_session_whatever_a_policy_says() -> None:
    spec = QueueSpec.parse("$session/ada")
    policy = Policy.parse("p", "", {"expires": 1000, "message-ttl": 1000})
    under = spec.under(PolicySet([policy]).of_queue(spec))
    assert (under.expires, under.message_ttl) == (None, 1.0)


def test_a_pattern_that_takes_too_long_is_told_once_and_matches_nothing_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Policy.parse("slow", r"^(\w+\.?)*$", {"max-length": 1}, priority=9)
    quick = Policy.parse("quick", "", {"max-length": 2})
    found = PolicySet([slow, quick])
    with caplog.at_level(logging.WARNING):
        for name in ("a" * 60 + "!", "b" * 60 + "!", "plain"):
            assert found.of_queue(QueueSpec.parse(name)).policy == "quick"
    assert caplog.text.count("policy 'slow' matches nothing from now on") == 1


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("has no keys", {"definition": {}}),
        ("object of keys", {"definition": [1]}),
        ("'colour' is not known", {"definition": {"colour": "red"}}),
        ("'message-ttl' must be a whole number", {"definition": {"message-ttl": "1s"}}),
        ("at least 0", {"definition": {"max-length": -1}}),
        ("use drop-head", {"definition": {"overflow": "explode"}}),
        ("for example 7D", {"definition": {"max-age": "soon"}}),
        ("name of an exchange", {"definition": {"alternate-exchange": 7}}),
        ("regular expression", {"pattern": "("}),
        ("must be text", {"pattern": 7}),
        ("may have 2000", {"pattern": "a" * 2001}),
        ("apply-to is 'topics'", {"apply_to": "topics"}),
        ("whole number", {"priority": "high"}),
        ("whole number", {"priority": True}),
        ("its priority is from", {"priority": 2**31}),
        ("1 to 255 bytes", {"name": ""}),
        ("1 to 255 bytes", {"name": "a\0b"}),
        ("is for ordinary policies", {"is_operator": True, "definition": {"max-age": "1D"}}),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_the_reason(
    word: str, changes: dict[str, Any]
) -> None:
    words: dict[str, Any] = {"name": "p", "pattern": "", "definition": {"max-length": 1}, **changes}
    name, pattern, definition = words.pop("name"), words.pop("pattern"), words.pop("definition")
    with pytest.raises((InvalidArgument, UnsupportedArgument), match=re.escape(word)):
        Policy.parse(name, pattern, definition, **words)


@pytest.mark.parametrize("key", sorted(REFUSED_KEYS))
def test_a_key_that_cannot_be_honoured_is_refused_by_name(key: str) -> None:
    with pytest.raises(UnsupportedArgument, match=f"key '{key}' cannot be in a policy: "):
        Policy.parse("p", "", {key: "x"})


def test_no_key_is_in_two_lists() -> None:
    every = [*ACTING_KEYS, *INERT_KEYS, *REFUSED_KEYS]
    assert len(set(every)) == len(every)
