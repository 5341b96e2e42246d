"""The plan for exchanges, queues and bindings of a definitions file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.access.accounts import Roll
from queue_core.definitions.comparison import only_here
from queue_core.definitions.document import read_object
from queue_core.definitions.document_export import export_vhost
from queue_core.definitions.plan import Action
from queue_core.definitions.present import Present, PresentBinding, PresentVhost
from queue_core.queues.spec import QueueKind, QueueSpec
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from tests.unit.queue_core.definitions.worlds import actions, done, exported, only_step, plan_of


def queue(name: str = "q", **more: Any) -> dict[str, Any]:
    base = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    return {"name": name, **base, **more}


def exchange(name: str = "x", kind: str = "topic", **more: Any) -> dict[str, Any]:
    base = {"vhost": "/", "durable": True, "auto_delete": False, "internal": False}
    return {"name": name, "type": kind, **base, "arguments": {}, **more}


def binding(source: str = "x", destination: str = "q", **more: Any) -> dict[str, Any]:
    base = {"vhost": "/", "destination_type": "queue", "routing_key": "k", "arguments": {}}
    return {"source": source, "destination": destination, **base, **more}


def test_what_is_there_already_in_the_same_words_stays() -> None:
    found = {
        "exchanges": [exchange(), exchange("e2", "headers", internal=True)],
        "queues": [queue(arguments={"x-message-ttl": 5})],
        "bindings": [
            binding(),
            binding("x", "e2", destination_type="exchange"),
            binding("e2", arguments={"x-match": "any", "a": 1}),
            binding("amq.topic"),
        ],
    }
    plan = plan_of(found)
    assert actions(plan.steps) == {"create"}
    assert actions(plan_of(found, done(plan)).steps) == {"same"}


def test_a_queue_or_exchange_in_other_words_is_a_conflict_and_stays_as_it_is() -> None:
    present = done(plan_of({"queues": [queue()], "exchanges": [exchange()]}))
    step = only_step({"queues": [queue(arguments={"x-max-length": 5})]}, present)
    assert (step.action, "x-max-length" in step.reason) == (Action.CONFLICT, True)
    step = only_step({"exchanges": [exchange(kind="fanout")]}, present)
    assert (step.action, "kind" in step.reason) == (Action.CONFLICT, True)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        pytest.param(queue(type="quorum"), QueueKind.CLASSIC, id="RabbitMQ 4 says quorum"),
        pytest.param(queue(type="stream"), QueueKind.STREAM, id="RabbitMQ 4 says stream"),
        pytest.param(queue(type="classic"), QueueKind.CLASSIC, id="RabbitMQ 4 says classic"),
        pytest.param(
            queue(type="classic", arguments={"x-queue-type": "stream"}),
            QueueKind.STREAM,
            id="the argument wins",
        ),
        pytest.param(queue("amq.gen-abc"), QueueKind.CLASSIC, id="a name that RabbitMQ gave"),
    ],
)
def test_the_type_of_a_queue_is_taken(found: dict[str, Any], kind: QueueKind) -> None:
    step = only_step({"queues": [found]})
    assert step.action is Action.CREATE
    assert isinstance(step.wanted, QueueSpec)
    assert step.wanted.kind is kind


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param({"queues": [queue(durable=False)]}, "not durable", id="a passing queue"),
        pytest.param({"queues": [queue(auto_delete=True)]}, "last consumer", id="auto-delete"),
        pytest.param({"queues": [queue(exclusive=True)]}, "exclusive", id="exclusive"),
        pytest.param({"queues": [queue("")]}, "1 to 255 bytes", id="no name"),
        pytest.param({"queues": [queue("$session/a")]}, "gateway's own", id="a reserved name"),
        pytest.param({"queues": [queue(vhost="w")]}, "no virtual host 'w'", id="nowhere"),
        pytest.param({"queues": [queue(type="mqtt")]}, "'mqtt' is unknown", id="a strange type"),
        pytest.param(
            {"queues": [queue(arguments={"x-max-length": "a"})]}, "whole number", id="an argument"
        ),
        pytest.param({"exchanges": [exchange(durable=False)]}, "not durable", id="passing"),
        pytest.param({"exchanges": [exchange(kind="x-jms-topic")]}, "x-jms-topic", id="a kind"),
        pytest.param({"exchanges": [exchange("amq.mine")]}, "amq.", id="a reserved exchange"),
        pytest.param({"bindings": [binding("amq.topic")]}, "no durable queue 'q'", id="no queue"),
        pytest.param({"bindings": [binding(source="")]}, "no durable queue", id="the default"),
        pytest.param(
            {"bindings": [binding(destination_type="exchange")]}, "no exchange 'x'", id="no source"
        ),
    ],
)
def test_what_this_gateway_cannot_take_is_named(found: dict[str, Any], why: str) -> None:
    step = only_step(found)
    assert step.action is Action.UNSUPPORTED
    assert why in step.reason
    assert step.complaints


def test_a_binding_to_what_was_not_taken_is_named_too() -> None:
    found = {
        "exchanges": [exchange("x", "x-jms-topic"), exchange("h", "headers")],
        "queues": [queue()],
        "bindings": [binding("x"), binding("h", arguments={"x-match": "most"})],
    }
    plan = plan_of(found)
    assert [step.action for step in plan.steps[-2:]] == [Action.UNSUPPORTED] * 2
    assert "x-match" in plan.steps[-1].reason


def test_an_argument_without_effect_is_kept_and_named() -> None:
    step = only_step({"queues": [queue(arguments={"x-queue-mode": "lazy", "x-colour": 1})]})
    assert step.action is Action.CREATE
    assert [note.partition(" is kept")[0] for note in step.notes] == [
        "argument 'x-queue-mode'",
        "argument 'x-colour'",
    ]


def test_a_built_in_exchange_in_a_file_is_the_same() -> None:
    assert only_step({"exchanges": [exchange("amq.topic")]}).action is Action.SAME
    assert only_step({"exchanges": [exchange("amq.topic", "fanout")]}).action is Action.CONFLICT


def test_a_binding_that_every_queue_has_is_the_same() -> None:
    found = {"queues": [queue()], "bindings": [binding("", routing_key="q")]}
    assert plan_of(found).steps[-1].action is Action.SAME


def test_passing_things_are_not_exported_and_their_bindings_neither() -> None:
    vhost = PresentVhost(
        {
            "x": ExchangeSpec("x", ExchangeKind.FANOUT),
            "passing": ExchangeSpec("passing", ExchangeKind.FANOUT, durable=False),
        },
        {"q": QueueSpec.parse("q"), "live": QueueSpec.parse("live", durable=False)},
        dict.fromkeys(
            PresentBinding(source, "queue", name, "")
            for source in ("x", "passing")
            for name in ("q", "live")
        ),
    )
    found = export_vhost(Present(Roll(), {"/": vhost}), "/", "4.1.0", "0.1.0")
    assert [each["name"] for each in found["queues"]] == ["q"]
    assert [each["name"] for each in found["exchanges"]] == ["x"]
    assert [(each["source"], each["destination"]) for each in found["bindings"]] == [("x", "q")]


def test_arguments_of_types_that_json_has_not_come_back_as_they_were() -> None:
    arguments = {"bytes": b"\x00\xff", "time": datetime(2026, 1, 31, 12, tzinfo=UTC), "n": None}
    bound = PresentBinding("amq.headers", "queue", "q", "", arguments)
    present = Present(Roll(), {"/": PresentVhost({}, {"q": QueueSpec.parse("q")}, {bound: None})})
    again = done(plan_of(exported(present)))
    assert again.vhosts["/"].bindings == present.vhosts["/"].bindings
    (found,) = again.vhosts["/"].bindings
    assert found.arguments == arguments


def test_a_difference_is_told_in_both_directions() -> None:
    present = done(plan_of({"queues": [queue("here"), queue("both")]}))
    document = read_object({"queues": [queue("both"), queue("there")], "vhosts": [{"name": "/"}]})
    found = [each.label for each in only_here(document, exported(present), None)]
    assert found == ["queue 'here' in '/'"]


NAMES = st.sampled_from(["a", "b", "c", "amq.topic", "q 1", "ü~/%", "$session/x", ""])
VHOSTS = st.sampled_from(["/", "v", "missing"])
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [1, 1.5, True, None, "text", [1, {"a": 2}], {"b": []}, "\0"]
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(
        ["x-max-length", "x-queue-type", "x-match", "alternate-exchange", "x-delayed-type", "n"]
    ),
    VALUES | st.sampled_from(["stream", "quorum", "all", "any", "direct", "topic", 10]),
    max_size=3,
)
KINDS = st.sampled_from([*ExchangeKind, "x-jms-topic"])
FLAGS = st.sampled_from([True, True, False])
DOCUMENTS = st.fixed_dictionaries(
    {
        "vhosts": st.just([{"name": "v"}]),
        "exchanges": st.lists(
            st.builds(exchange, NAMES, KINDS, vhost=VHOSTS, durable=FLAGS, arguments=ARGUMENTS),
            max_size=5,
        ),
        "queues": st.lists(
            st.builds(queue, NAMES, vhost=VHOSTS, durable=FLAGS, arguments=ARGUMENTS), max_size=5
        ),
        "bindings": st.lists(
            st.builds(
                binding,
                NAMES,
                NAMES,
                vhost=VHOSTS,
                destination_type=st.sampled_from(["queue", "exchange"]),
                routing_key=st.sampled_from(["", "a.*", "#", "5"]),
                arguments=ARGUMENTS,
            ),
            max_size=8,
        ),
    }
)


@given(DOCUMENTS)
def test_what_a_plan_makes_needs_no_second_one_and_survives_an_export(
    found: dict[str, Any],
) -> None:
    first = plan_of(found)
    assert len(first.steps) == sum(map(len, found.values()))
    present = done(first)
    second = plan_of(found, present)
    assert not list(second.changes)
    assert len(second.complaints) == len(first.complaints)
    whole = exported(present)
    assert actions(plan_of(whole, present).steps) <= {"same"}
    again = done(plan_of(whole))
    assert exported(again) == whole
