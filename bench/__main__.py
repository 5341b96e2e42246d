"""The command line of the bench: `python -m bench` runs scenarios side by side with other brokers,
profiles, and the guard for CI."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import guard
from bench.page import page
from bench.peers import Missing
from bench.profile import profile
from bench.report import markdown, progress, text
from bench.results import HOWDAH, Failure, Results, Sample, load, merged, save
from bench.runner import LoadFailed, Options, judge, run
from bench.scenarios import SCENARIOS, Scenario

FOLDER: Final = Path(__file__).resolve().parent.parent / ".cache" / "bench"
QUICK: Final = Options(rounds=1, seconds=1.0, share=0.1)
BROKER_NAMES: Final = {name for each in SCENARIOS.values() for name in each.brokers}
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def main() -> int:
    arguments = make_parser().parse_args(sys.argv[1:] or ["run"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # on the way out brokers are stopped
    try:
        return int(arguments.run(arguments))
    except (LoadFailed, Missing) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    listing = commands.add_parser("list", help="the scenarios and what each is held to")
    listing.set_defaults(run=list_scenarios)

    running = commands.add_parser("run", help="run scenarios (all of them, if none is named)")
    running.add_argument("scenario", nargs="*", help="a name from `list`, or its first words")
    running.add_argument("--rounds", type=int, help=f"unless quick: {Options().rounds}")
    running.add_argument("--seconds", type=float, help=f"of each load: {Options().seconds:g}")
    running.add_argument("--quick", action="store_true", help="one short round: does it work?")
    running.add_argument("--only", nargs="+", metavar="BROKER", help="Howdah beside these alone")
    running.add_argument("--output", type=Path, help="folder for results.json and report.html")
    running.set_defaults(run=run_scenarios)

    profiling = commands.add_parser("profile", help="a scenario under py-spy: a flame graph")
    profiling.add_argument("scenario", choices=sorted(SCENARIOS), metavar="scenario")
    profiling.add_argument("--seconds", type=float, default=10.0)
    profiling.add_argument("--output", type=Path, help="the SVG file")
    profiling.set_defaults(run=profile_scenario)

    reporting = commands.add_parser("report", help="results.json as HTML or Markdown")
    reporting.add_argument("results", type=Path, nargs="+", help="several are taken as one run")
    reporting.add_argument("--html", type=Path, help="write the page here")
    reporting.add_argument("--markdown", type=Path, help="put the tables into this page")
    reporting.set_defaults(run=write_report)

    guarding = commands.add_parser("guard", help="fail if speed has collapsed; under 2 minutes")
    guarding.set_defaults(run=run_guard)
    return parser


def list_scenarios(arguments: argparse.Namespace) -> int:
    for scenario in SCENARIOS.values():
        print(f"{scenario.name:18} {scenario.title}")
        print(f"{'':18}   on {', '.join(scenario.brokers)}")
        for goal in scenario.goals:
            print(f"{'':18}   goal: {goal.text}")
    return 0


def chosen(names: list[str]) -> list[Scenario]:
    """Chooses scenarios by name or by the words that names begin with, in the table's order."""

    def is_meant(name: str, by: str) -> bool:
        return f"{name}-".startswith(f"{by}-")

    for by in names:
        if not any(is_meant(name, by) for name in SCENARIOS):
            raise LoadFailed(f"no scenario is called {by}; `python -m bench list` has them")
    return [
        scenario
        for name, scenario in SCENARIOS.items()
        if not names or any(is_meant(name, by) for by in names)
    ]


def beside(scenario: Scenario, names: list[str]) -> Scenario:
    """Limits a scenario to the named peers. Raises LoadFailed for a broker that nobody knows."""
    unknown = set(names) - BROKER_NAMES
    if unknown:
        known = ", ".join(sorted(BROKER_NAMES))
        raise LoadFailed(f"no broker is called {', '.join(sorted(unknown))}; there are {known}")
    kept = tuple(each for each in scenario.brokers if each == HOWDAH or each in names)
    return replace(scenario, brokers=kept)


def run_scenarios(arguments: argparse.Namespace) -> int:
    base = QUICK if arguments.quick else Options()
    options = Options(
        arguments.rounds or base.rounds, arguments.seconds or base.seconds, base.share
    )
    scenarios = chosen(arguments.scenario)
    if arguments.only:
        scenarios = [beside(scenario, arguments.only) for scenario in scenarios]
    started = time.monotonic()
    turns = options.rounds * sum(len(each.brokers) for each in scenarios)
    done: set[tuple[str, str, int]] = set()

    def show(outcome: Sample | Failure) -> None:
        number = outcome.round if isinstance(outcome, Sample) else 0
        done.add((outcome.scenario, outcome.broker, number))
        minutes = (time.monotonic() - started) / 60
        print(f"[{len(done):3}/{turns} {minutes:4.1f} min] {progress(outcome)}", flush=True)

    results = run(scenarios, options, show)
    folder = arguments.output or FOLDER / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    save(results, folder / "results.json")
    (folder / "report.html").write_text(page(results))
    print()
    print(text(results))
    print(f"\n{folder / 'report.html'}\n{folder / 'results.json'}")
    return 0


def write_report(arguments: argparse.Namespace) -> int:
    results = merged([load(path) for path in arguments.results])
    order = [name for name in SCENARIOS if name in results.titles]
    results.titles = {name: results.titles[name] for name in order}
    results.verdicts = judge([SCENARIOS[name] for name in order], results)
    if arguments.html:
        arguments.html.write_text(page(results))
    if arguments.markdown:
        put_between_marks(arguments.markdown, results)
    if not arguments.html and not arguments.markdown:
        print(text(results))
    return 0


def put_between_marks(path: Path, results: Results) -> None:
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n\n{END}{after}")


def profile_scenario(arguments: argparse.Namespace) -> int:
    output = arguments.output or FOLDER / f"profile-{arguments.scenario}.svg"
    print(profile(SCENARIOS[arguments.scenario], arguments.seconds, output))
    print(output)
    return 0


def run_guard(arguments: argparse.Namespace) -> int:
    findings = guard.run()
    for finding in findings:
        print(finding.line())
    return 1 if any(finding.is_collapse for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
