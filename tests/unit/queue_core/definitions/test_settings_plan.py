"""The plan for facts and limits of virtual hosts, limits of users, policies and parameters."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.definitions.plan import Action
from queue_core.definitions.present import VhostFacts
from tests.unit.queue_core.definitions.worlds import actions, done, exported, only_step, plan_of

POLICY = {
    "vhost": "/",
    "name": "p",
    "pattern": "^q",
    "apply-to": "queues",
    "definition": {"max-length": 10},
    "priority": 3,
}
OPERATOR_POLICY = {
    "vhost": "/",
    "component": "operator_policy",
    "name": "o",
    "value": {"pattern": ".*", "apply-to": "queues", "definition": {"expires": 5}, "priority": 1},
}
LIMITS = {
    "vhost": "/",
    "component": "vhost-limits",
    "name": "limits",
    "value": {"max-queues": 10, "max-connections": -1},
}
SHOVEL = {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://"}}
USER = {"name": "ada", "password_hash": "", "tags": "", "limits": {"max-channels": 10}}
EVERYTHING: dict[str, Any] = {
    "users": [USER],
    "vhosts": [
        {"name": "/"},
        {
            "name": "v",
            "description": "for tests",
            "tags": ["a", "b"],
            "default_queue_type": "quorum",
            "metadata": {"description": "for tests", "tags": ["a", "b"], "owner": "ada"},
            "limits": [],
        },
    ],
    "policies": [POLICY],
    "parameters": [OPERATOR_POLICY, LIMITS, SHOVEL],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit@host"}],
}


def test_all_settings_are_taken_and_come_back_in_an_export() -> None:
    plan = plan_of(EVERYTHING)
    assert actions(plan.steps) == {"create", "same"}
    present = done(plan)
    assert present.settings.vhosts["v"] == VhostFacts(
        "for tests", ("a", "b"), "quorum", {"owner": "ada"}
    )
    assert present.settings.vhosts["/"].limits == {"max-queues": 10}
    assert present.settings.user_limits["ada"] == {"max-channels": 10}
    assert actions(plan_of(EVERYTHING, present).steps) == {"same"}
    found = exported(present)
    assert found["policies"] == [POLICY]
    assert found["parameters"] == [
        SHOVEL,
        OPERATOR_POLICY,
        {**LIMITS, "value": {"max-queues": 10}},
    ]
    assert actions(plan_of(found, present).steps) == {"same"}
    assert exported(done(plan_of(found))) == found


def test_what_a_file_does_not_say_of_a_virtual_host_stays() -> None:
    present = done(plan_of(EVERYTHING))
    assert only_step({"vhosts": [{"name": "v"}]}, present).action is Action.SAME
    changed = only_step({"vhosts": [{"name": "v", "description": "else"}]}, present)
    assert changed.action is Action.CHANGE
    assert changed.wanted == VhostFacts("else", ("a", "b"), "quorum", {"owner": "ada"})


def test_another_policy_of_the_same_name_is_a_change() -> None:
    present = done(plan_of(EVERYTHING))
    changed = only_step({"policies": [{**POLICY, "priority": 4}]}, present)
    assert changed.action is Action.CHANGE


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param({"policies": [{**POLICY, "pattern": "("}]}, "regular", id="no pattern"),
        pytest.param({"policies": [{**POLICY, "definition": {}}]}, "no keys", id="nothing"),
        pytest.param({"policies": [{**POLICY, "apply-to": "all of it"}]}, "apply-to", id="to"),
        pytest.param({"policies": [{**POLICY, "vhost": "w"}]}, "no virtual host", id="nowhere"),
        pytest.param(
            {"policies": [{**POLICY, "definition": {"federation-upstream": "u"}}]},
            "federation",
            id="a key that there is not",
        ),
        pytest.param(
            {"parameters": [{**OPERATOR_POLICY, "value": "x"}]}, "definition", id="no object"
        ),
        pytest.param({"parameters": [{**SHOVEL, "vhost": "w"}]}, "no virtual host", id="no vhost"),
        pytest.param({"global_parameters": [{"name": "", "value": 1}]}, "a name is", id="no name"),
    ],
)
def test_a_setting_that_cannot_be_taken_is_named(found: dict[str, Any], why: str) -> None:
    step = only_step(found)
    assert step.action is Action.UNSUPPORTED
    assert why in step.reason


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param({"parameters": [SHOVEL]}, "kept", id="a shovel"),
        pytest.param({"users": [{**USER, "limits": {"max-queues": 1}}]}, "limit", id="a limit"),
        pytest.param({"users": [{**USER, "limits": {"max-channels": "x"}}]}, "limit", id="no int"),
        pytest.param({"vhosts": [{"name": "w", "tracing": True}]}, "tracing", id="tracing"),
        pytest.param({"vhosts": [{"name": "w", "default_queue_type": "x"}]}, "type", id="a type"),
        pytest.param(
            {"policies": [{**POLICY, "definition": {"max-length": 1, "ha-mode": "all"}}]},
            "ha-mode",
            id="a key without effect",
        ),
        pytest.param(
            {"global_parameters": [{"name": "mqtt_default_vhosts", "value": {}}]}, "kept", id="mqtt"
        ),
    ],
)
def test_a_setting_without_effect_is_kept_and_named(found: dict[str, Any], why: str) -> None:
    step = only_step(found)
    assert step.is_made
    assert why in step.notes[0]
