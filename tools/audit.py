"""`make audit`: looks up known vulnerabilities of what both locks pin, by pip-audit.

pip-audit counts a package of which nobody could tell as fine. Here that is an answer of its own: 0:
all were looked up and none is known to be vulnerable, 1: some are, 2: some or all were not looked
up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PLACE: Final = ROOT / ".cache" / "audit"
LOCKS: Final = ("requirements.lock", "requirements-dev.lock")
OPTIONS: Final = (
    *("--require-hashes", "--disable-pip"),
    *("--progress-spinner", "off", "--format", "json"),
)
FINE, VULNERABLE, UNKNOWN = 0, 1, 2


@dataclass(frozen=True)
class Verdict:
    code: int
    lines: tuple[str, ...]


def judge(report: dict[str, Any]) -> Verdict:
    """Makes a verdict of pip-audit's JSON."""
    found = report.get("dependencies", [])
    skipped = sorted(each["name"] for each in found if "skip_reason" in each)
    holes = [
        f"{each['name']} {each['version']}: {hole['id']}, mended in "
        f"{', '.join(hole.get('fix_versions', [])) or 'no version yet'}"
        for each in found
        for hole in each.get("vulns", [])
    ]
    looked_up = len(found) - len(skipped)
    lines = [*holes, f"{looked_up} of {len(found)} packages were looked up, {len(holes)} findings"]
    if skipped or not found:
        names = ", ".join(skipped) or "everything"
        lines.append(f"NOT AUDITED, the advisory service had no answer: {names}")
    if holes:
        return Verdict(VULNERABLE, tuple(lines))
    return Verdict(UNKNOWN if skipped or not found else FINE, tuple(lines))


def audit(locks: Sequence[str] = LOCKS) -> Verdict:
    program = _pip_audit()
    if program is None:
        return Verdict(
            UNKNOWN, ("NOT AUDITED: no package index answers, so there is no pip-audit",)
        )
    arguments = [part for lock in locks for part in ("-r", str(ROOT / lock))]
    done = subprocess.run(
        [program, *arguments, *OPTIONS],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return judge(json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Verdict(UNKNOWN, (f"NOT AUDITED: no advisory service answers: {last}",))


def _pip_audit() -> Path | None:
    """Installs pip-audit in an environment of its own: what checks the gateway is no part of it."""
    program = PLACE / "bin" / "pip-audit"
    if not program.exists():
        venv.create(PLACE, with_pip=True, clear=True)
        pip = [str(PLACE / "bin" / "python"), "-m", "pip", "install", "--quiet", "pip-audit"]
        subprocess.run(pip, check=False, stderr=subprocess.DEVNULL)
    return program if program.exists() else None


def main() -> int:
    verdict = audit()
    print("\n".join(verdict.lines))
    return verdict.code


if __name__ == "__main__":
    sys.exit(main())
