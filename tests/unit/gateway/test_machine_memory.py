"""How much memory there is: the machine's, or less where a container says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.machine_memory import FALLBACK_BYTES, available_bytes, default_mark

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:  8388608 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8 * GIB, id="a machine without groups"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GIB}\n"},
            GIB,
            id="a container that sees its own group",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"},
            8 * GIB,
            id="a group without a limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/system.slice/howdah.service\n",
                "sys/fs/cgroup/system.slice/howdah.service/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{2 * GIB}\n",
            },
            2 * GIB,
            id="the limit of a group above",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/docker/1\n",
                "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": f"{GIB}\n",
            },
            GIB,
            id="groups of the first version",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            8 * GIB,
            id="a limit larger than the machine",
        ),
    ],
)
def test_the_least_of_machine_and_groups_counts(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    root = machine(tmp_path, files)
    assert available_bytes(root) == expected
    assert default_mark(root) == int(expected * 0.4)


def test_where_nobody_says_there_is_a_mark_all_the_same(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    assert default_mark(tmp_path) == FALLBACK_BYTES
