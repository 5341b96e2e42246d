"""The plan for users, virtual hosts and permissions of a definitions file."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.access.accounts import Permission, User
from queue_core.access.passwords import is_hash_of
from queue_core.access.rabbitmq_passwords import ALGORITHMS, MD5, SHA256, rabbitmq_hash
from queue_core.definitions.plan import Account, Action, Step
from queue_core.errors import InvalidArgument
from tests.unit.queue_core.definitions.worlds import actions, done, exported, only_step, plan_of


def user(name: str = "ada", **more: Any) -> dict[str, Any]:
    return {"name": name, "tags": ["management"], **more}


def hashed(password: bytes = b"open sesame", algorithm: str = SHA256) -> dict[str, str]:
    return {
        "password_hash": rabbitmq_hash(password, algorithm),
        "hashing_algorithm": algorithm,
    }


def user_in(step: Step) -> User:
    assert isinstance(step.wanted, Account)
    return step.wanted.user


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_a_user_of_rabbitmq_is_taken_with_its_hash(algorithm: str) -> None:
    step = only_step({"users": [user(**hashed(algorithm=algorithm))]})
    assert step.action is Action.CREATE
    wanted = user_in(step)
    assert wanted.password_hash is not None
    assert is_hash_of(wanted.password_hash, b"open sesame")
    assert wanted.tags == {"management"}
    assert ("weak" in step.reason) is (algorithm == MD5)


def test_a_user_without_an_algorithm_has_md5() -> None:
    found = {"name": "ada", "password_hash": rabbitmq_hash(b"old", MD5), "tags": ""}
    step = only_step({"users": [found]})
    assert is_hash_of(user_in(step).password_hash or "", b"old")


def test_an_empty_hash_is_a_user_who_does_not_log_in_by_password() -> None:
    step = only_step({"users": [user(password_hash="", hashing_algorithm=SHA256)]})
    assert user_in(step) == User("ada", None, frozenset(("management",)))


def test_a_password_that_is_written_out_is_hashed_once_and_then_the_same() -> None:
    found = {"users": [user(password="open sesame")]}
    plan = plan_of(found)
    wanted = user_in(plan.steps[0])
    assert (wanted.password_hash or "").startswith("$argon2id$")
    assert wanted.verifier is not None
    assert actions(plan_of(found, done(plan)).steps) == {"same"}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param(user(password_hash="x", hashing_algorithm="my_bcrypt"), "my_bcrypt", id="a"),
        pytest.param(user(), "neither password_hash nor password", id="no secret at all"),
        pytest.param(user(password=""), "empty", id="an empty password"),
        pytest.param(user(password="2 short"), "fewer than 8 char", id="a short password"),
        pytest.param(user("adalovelace", password="adalovelace"), "user's name", id="own name"),
        pytest.param(user("", **hashed()), "1 to 255 bytes", id="no name"),
        pytest.param(user("a\nb", **hashed()), "printable", id="a line break"),
        pytest.param(
            user(password_hash="x", hashing_algorithm="howdah_argon2id"), "none of", id="no argon2"
        ),
        pytest.param(user(**hashed(), scram_verifier="x"), "scram_verifier", id="no verifier"),
        pytest.param(user("guest", **hashed(b"guest")), "from loopback only", id="guest"),
        pytest.param(user("guest", password="guest"), "from loopback only", id="guest in words"),
    ],
)
def test_a_user_that_cannot_be_taken_is_named_and_the_others_are_taken(
    found: dict[str, Any], why: str
) -> None:
    refused, taken = plan_of({"users": [found, user("bob", **hashed())]}).steps
    assert refused.action is Action.UNSUPPORTED
    assert why in refused.reason
    assert taken.action is Action.CREATE


def test_guest_with_a_password_of_its_own_is_a_user_like_any() -> None:
    assert only_step({"users": [user("guest", **hashed(b"else"))]}).action is Action.CREATE


def test_other_tags_and_another_hash_are_a_change() -> None:
    present = done(plan_of({"users": [user(**hashed())]}))
    same = exported(present)["users"][0]
    assert only_step({"users": [same]}, present).action is Action.SAME
    assert only_step({"users": [{**same, "tags": []}]}, present).reason == "other tags"
    changed = only_step({"users": [{**same, **hashed(b"new")}]}, present)
    assert (changed.action, changed.reason) == (Action.CHANGE, "other password")


def test_permissions_are_made_changed_or_the_same() -> None:
    permission = {"user": "ada", "vhost": "v", "configure": ".*", "write": "^a", "read": ""}
    topic = {"user": "ada", "vhost": "v", "exchange": "amq.topic", "write": "^a", "read": ""}
    found = {
        "users": [user(**hashed())],
        "vhosts": [{"name": "v"}],
        "permissions": [permission],
        "topic_permissions": [topic],
    }
    plan = plan_of(found)
    assert actions(plan.steps) == {"create"}
    present = done(plan)
    assert present.roll.permissions["ada", "v"] == Permission(".*", "^a", "")
    assert actions(plan_of(found, present).steps) == {"same"}
    changed = plan_of({"permissions": [{**permission, "read": ".*"}]}, present)
    assert actions(changed.steps) == {"change"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        pytest.param({"user": "bob"}, "there is no user 'bob'", id="nobody"),
        pytest.param({"vhost": "w"}, "there is no virtual host 'w'", id="nowhere"),
        pytest.param({"write": "("}, "no regular expression", id="no pattern"),
    ],
)
def test_a_permission_that_nobody_could_use_is_named(changed: dict[str, str], why: str) -> None:
    permission = {"user": "ada", "vhost": "/", "configure": "", "write": "", "read": "", **changed}
    plan = plan_of({"users": [user(**hashed())], "permissions": [permission]})
    assert plan.steps[-1].action is Action.UNSUPPORTED
    assert why in plan.steps[-1].reason
    with pytest.raises(InvalidArgument, match="nothing is imported, as strict is set"):
        plan.require_complete()


def test_who_is_not_taken_has_no_permissions_either() -> None:
    permission = {"user": "guest", "vhost": "/", "configure": "", "write": "", "read": ""}
    plan = plan_of({"users": [user("guest", **hashed(b"guest"))], "permissions": [permission]})
    assert actions(plan.steps) == {"unsupported"}
    assert len(plan.complaints) == 2


def test_an_item_that_a_file_has_twice_counts_once() -> None:
    vhosts = plan_of({"vhosts": [{"name": "v"}, {"name": "v"}]}).steps
    assert [step.action for step in vhosts] == [Action.CREATE, Action.SAME]
    users = plan_of({"users": [user(**hashed()), user(**hashed(b"else"))]}).steps
    assert [step.action for step in users] == [Action.CREATE, Action.CONFLICT]


def test_an_export_brings_back_hashes_and_verifiers_as_they_were() -> None:
    found = {
        "users": [
            user(**hashed()),
            user("bob", password="open sesame"),
            user("eve", password_hash=""),
        ]
    }
    present = done(plan_of(found))
    plan = plan_of(exported(present), present)
    assert actions(plan.steps) == {"same"}
    assert done(plan_of(exported(present))).roll.users == present.roll.users
