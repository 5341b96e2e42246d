"""The report: medians, ratios first, losses by name, a page that needs nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from bench.__main__ import BEGIN, END, beside, chosen, put_between_marks
from bench.guard import FLOORS, shares
from bench.page import page
from bench.profile import flame_graph, read, top
from bench.report import latency_rows, markdown, text
from bench.results import Failure, Results, Sample, load, merged, save
from bench.runner import LoadFailed, judge
from bench.scenarios import SCENARIOS, TENTH


def results(howdah: float, peer: float) -> Results:
    """Three rounds of MQTT QoS 0, one of them far off."""
    name = "mqtt-1to1-qos0"
    samples = [
        Sample(name, broker, number, per_second=speed * share, cpu_us=1e6 / speed)
        for broker, speed in (("howdah", howdah), ("mosquitto", peer))
        for number, share in enumerate((1.0, 0.1, 1.1))
    ]
    return Results("today", {}, 3, 1.0, 0.001, {name: "MQTT"}, {}, [], samples)


def test_a_figure_is_the_median_of_its_rounds() -> None:
    ours = results(200.0, 100.0)
    assert ours.median("mqtt-1to1-qos0", "howdah", "", lambda s: s.per_second) == 200.0
    assert ours.ratio("mqtt-1to1-qos0", "mosquitto", lambda s: s.per_second) == 2.0


def test_where_howdah_loses_every_report_says_so() -> None:
    ours = results(50.0, 100.0)
    for report in (text(ours), markdown(ours), page(ours)):
        assert "0.50x as fast (behind)" in report
    assert "behind" not in text(results(200.0, 100.0))


@pytest.mark.parametrize(("howdah", "is_met"), [(210.0, True), (190.0, False)])
def test_a_goal_is_judged_by_its_ratio(howdah: float, is_met: bool) -> None:
    verdicts = judge([SCENARIOS["mqtt-1to1-qos0"]], results(howdah, 100.0))
    assert [verdict.is_met for verdict in verdicts] == [is_met, is_met]


def test_a_goal_that_could_not_be_taken_is_not_met() -> None:
    (faster, _cheaper) = judge([SCENARIOS["mqtt-1to1-qos0"]], Results())
    assert faster.value is None
    assert not faster.is_met


def test_time_to_confirm_is_judged_in_fsyncs() -> None:
    times = (0.001, 0.002, 0.0025, 0.01)
    sample = Sample("latency-amqp091", "howdah", 0, TENTH, rate=100.0, confirm_seconds=times)
    ours = Results(fsync_seconds=0.001, samples=[sample])
    (verdict,) = judge([SCENARIOS["latency-amqp091"]], ours)
    assert verdict.value == pytest.approx(2.5)
    assert verdict.is_met


def test_how_late_the_load_itself_was_stands_beside_the_times() -> None:
    sample = Sample(
        "latency-amqp091",
        "howdah",
        0,
        TENTH,
        rate=100.0,
        send_seconds=(0.001,) * 5,
        confirm_seconds=(0.002,) * 5,
    )
    rows = list(latency_rows(Results(samples=[sample]), "latency-amqp091"))
    assert [(row[1], row[3]) for row in rows] == [
        (f"send at {TENTH}", "1.00"),
        (f"confirm at {TENTH}", "2.00"),
    ]


def test_the_page_loads_nothing_and_escapes_what_it_shows() -> None:
    ours = results(200.0, 100.0)
    ours.failures.append(Failure("mqtt-1to1-qos0", "amqtt", "<script>"))
    html = page(ours)
    assert not re.search(r"(src|href)=|url\(|@import|<script", html)
    assert "&lt;script&gt;" in html


def test_results_survive_their_file(tmp_path: Path) -> None:
    ours = results(200.0, 100.0)
    save(ours, tmp_path / "results.json")
    assert load(tmp_path / "results.json") == ours


def test_of_a_scenario_that_was_run_again_the_later_run_counts() -> None:
    other = Results(titles={"idle": "idle"}, samples=[Sample("idle", "howdah", 0)])
    whole = merged([results(50.0, 100.0), other, results(300.0, 100.0)])
    assert list(whole.titles) == ["mqtt-1to1-qos0", "idle"]
    assert whole.ratio("mqtt-1to1-qos0", "mosquitto", lambda s: s.per_second) == 3.0
    assert len(whole.of("idle", "howdah")) == 1


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_between_marks(document, results(200.0, 100.0))
    written = document.read_text()
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "old" not in written
    assert "2.00x as fast" in written


def test_scenarios_are_named_by_their_first_words() -> None:
    assert [each.name for each in chosen(["mqtt-1to1"])] == [
        "mqtt-1to1-qos0",
        "mqtt-1to1-qos1",
        "mqtt-1to1-qos2",
    ]
    assert chosen([]) == list(SCENARIOS.values())
    with pytest.raises(LoadFailed, match="no scenario is called mqtt-1to2"):
        chosen(["mqtt-1to2"])


def test_a_run_may_leave_peers_out_but_not_howdah() -> None:
    kept = beside(SCENARIOS["mqtt-1to1-qos0"], ["mosquitto"])
    assert kept.brokers == ("howdah", "mosquitto")
    with pytest.raises(LoadFailed, match="no broker is called mosquito;"):
        beside(SCENARIOS["mqtt-1to1-qos0"], ["mosquito"])


def test_the_guard_fails_on_a_collapse_and_bears_one_bad_round() -> None:
    fine, bad = (100.0, 100.0), (0.1, 100.0)
    assert not any(each.is_collapse for each in shares({f: [fine, bad, fine] for f in FLOORS}))
    assert all(each.is_collapse for each in shares({f: [bad, bad, fine] for f in FLOORS}))


def test_a_profile_counts_own_time_and_leaves_out_who_waits() -> None:
    idle = "x;_worker (concurrent/futures/thread.py:81) 9"
    stacks = read(f"run (a.py:1);parse (a.py:2) 3\nrun (a.py:1) 1\n{idle}")
    assert stacks == Counter({("run (a.py:1)", "parse (a.py:2)"): 3, ("run (a.py:1)",): 1})
    assert [line.split() for line in top(stacks)[1:]] == [
        ["75.0%", "75.0%", "parse", "(a.py)"],
        ["25.0%", "100.0%", "run", "(a.py)"],
    ]
    assert "parse (a.py:2): 75.0%" in flame_graph(stacks, "one")
