"""A machine that lacks something is told what, in one line, with the command that brings it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "preflight.sh"

# Stands in for python3; the numbers say what each of the script's questions gets for an answer.
PYTHON = """#!/bin/sh
case "$2" in
*version_info*) exit {new_enough} ;;
*ensurepip*) exit {venv} ;;
*Python.h*) exit {headers} ;;
esac
echo 'Python 3.9.2'
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with next to nothing on it."""
    for name in ("sh", "id"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    return tmp_path


def program(machine: Path, name: str, text: str = "#!/bin/sh\n") -> None:
    (machine / name).write_text(text)
    (machine / name).chmod(0o755)


def python(machine: Path, *, new_enough: int = 0, venv: int = 0, headers: int = 0) -> None:
    program(machine, "python3", PYTHON.format(new_enough=new_enough, venv=venv, headers=headers))


def preflight(machine: Path) -> tuple[int, str]:
    environ = {"PATH": str(machine)}
    done = subprocess.run(["/bin/sh", SCRIPT], env=environ, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_complete_machine_gets_no_word(machine: Path) -> None:
    python(machine)
    program(machine, "cc")
    assert preflight(machine) == (0, "")


def test_a_bare_machine_is_told_everything_in_one_line(machine: Path) -> None:
    code, words = preflight(machine)
    assert code == 1
    assert words.count("\n") == 1
    packages = "python3 python3-venv python3-dev gcc libc6-dev libssl-dev pkg-config"
    assert f"apt-get install -y {packages}'" in words


@pytest.mark.parametrize(
    ("venv", "headers", "packages"),
    [(1, 0, "python3-venv"), (0, 1, "python3-dev"), (1, 1, "python3-venv python3-dev")],
)
def test_only_what_is_missing_is_named(
    machine: Path, venv: int, headers: int, packages: str
) -> None:
    python(machine, venv=venv, headers=headers)
    program(machine, "gcc")
    code, words = preflight(machine)
    assert code == 1
    assert f"apt-get install -y {packages}'" in words


def test_an_old_python_is_told_how_to_name_another(machine: Path) -> None:
    python(machine, new_enough=1)
    program(machine, "cc")
    code, words = preflight(machine)
    assert code == 1
    assert "Python 3.9.2 is too old" in words
    assert "PYTHON=" in words


def test_whoever_is_not_root_is_told_to_use_sudo(machine: Path) -> None:
    code, words = preflight(machine)
    assert code == 1
    assert ("sudo apt-get" in words) == (os.geteuid() != 0)
