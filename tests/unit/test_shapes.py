"""The shape of the code as rules: how many things an object is made of, when it is complete, and
how long files and functions are. Whatever is excepted is listed with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("gateway", "protocols", "queue_core", "spark_etl")
FOLDERS = (*CODE, "bench", "examples", "migrations", "tests", "tools")

MOST_PARAMETERS = 7
MOST_FILE_LINES = 600
MOST_FUNCTION_LINES = 60

WIDE_CONSTRUCTORS = {
    "queue_core/message/message.py:Message": "the canonical record: a parameter is a property",
}
LONG_FUNCTIONS = {
    "protocols/mqtt/publish/fast_path.py:take_hot": "a hot loop: each call was measured",
    "protocols/amqp091/client.py:take_hot": "a hot loop: each call was measured",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files_of(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def functions_of(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield node


def constructors_of(path: Path) -> Iterator[tuple[str, Function]]:
    """The functions that make an object, each with the name of what it makes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, Function) and each.name == "__init__":
                    yield node.name, each
        elif isinstance(node, Function) and node.name.startswith(("make_", "open_")):
            yield node.name, node


def parameters_of(function: Function) -> int:
    """The number of parameters that a caller fills in."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in named)


def lines_of(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def named(path: Path, name: str) -> str:
    return f"{path.relative_to(ROOT)}:{name}"


def test_nothing_is_made_of_more_than_seven_things() -> None:
    found = {
        named(path, name): parameters_of(function)
        for path in files_of(*CODE)
        for name, function in constructors_of(path)
        if parameters_of(function) > MOST_PARAMETERS
    }
    assert found.keys() == WIDE_CONSTRUCTORS.keys(), found


def test_an_object_is_complete_when_it_is_made() -> None:
    found = [
        named(path, f"{name}.{statement.target.attr}")
        for path in files_of(*CODE)
        for name, function in constructors_of(path)
        for statement in ast.walk(function)
        if isinstance(statement, ast.AnnAssign) and statement.value is None
        if isinstance(statement.target, ast.Attribute)
    ]
    assert not found


def test_a_function_fits_on_a_screen() -> None:
    found = {
        named(path, function.name): lines_of(function)
        for path in files_of(*CODE)
        for function in functions_of(path)
        if lines_of(function) > MOST_FUNCTION_LINES
    }
    assert found.keys() == LONG_FUNCTIONS.keys(), found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_file_can_be_read_in_one_sitting(folder: str) -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in files_of(folder)
    }
    assert lengths, "the folder is gone"
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_FILE_LINES}
