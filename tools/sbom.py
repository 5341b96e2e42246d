"""`make sbom`: lists what a gateway is made of, as CycloneDX JSON, from the lock alone.

The same lock gives the same bytes: no time, no serial number, nothing of the machine it ran on.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "requirements.lock"
GATEWAY: Final = "howdah"
_PIN: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+))?"
)
_HASH: Final = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")
_DIRECT: Final = "-r requirements.in"
_VIA: Final = re.compile(r"^    # (?:via )?(?:  )?(?P<name>[A-Za-z0-9._-]+)$")


@dataclass
class Package:
    """One pinned package of the lock."""

    name: str
    version: str
    marker: str = ""
    hashes: list[str] = field(default_factory=list)
    needed_by: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(lock: str) -> Iterator[Package]:
    """Yields every pin with its hashes and with the packages that need it."""
    package: Package | None = None
    for line in lock.splitlines():
        pinned = _PIN.match(line)
        if pinned is not None:
            if package is not None:
                yield package
            marker = (pinned["marker"] or "").strip()
            package = Package(pinned["name"].lower(), pinned["version"], marker)
        elif package is not None:
            package.hashes += _HASH.findall(line)
            via = _VIA.match(line)
            if _DIRECT in line:
                package.needed_by.append(GATEWAY)
            elif via is not None and via["name"] != "via":
                package.needed_by.append(via["name"].lower())
    if package is not None:
        yield package


def bill(lock: str, version: str) -> dict[str, Any]:
    """Makes the CycloneDX document."""
    found = sorted(packages(lock), key=lambda package: package.name)
    root = {"type": "application", "bom-ref": GATEWAY, "name": GATEWAY, "version": version}
    refs = {GATEWAY: GATEWAY, **{package.name: package.url for package in found}}
    needs: dict[str, list[str]] = {ref: [] for ref in refs.values()}
    for package in found:
        for parent in package.needed_by:
            needs[refs[parent]].append(package.url)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": [_component(package) for package in found],
        "dependencies": [{"ref": ref, "dependsOn": below} for ref, below in needs.items()],
    }


def _component(package: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.url,
        "name": package.name,
        "version": package.version,
        "purl": package.url,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
    }
    if package.marker:
        component["properties"] = [{"name": "howdah:marker", "value": package.marker}]
    return component


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    document = bill(LOCK.read_text(), project["version"])
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
