"""Reads settings from a YAML file and the environment, each value with its place.

Answers for reading both into one tree. It must not know which keys exist or what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

PREFIX = "HOWDAH_"
SEPARATOR = "__"


class ConfigError(Exception):
    """The configuration cannot be used; each line of the text is one thing to correct."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Node:
    """A value as somebody wrote it, with the file and line; a mapping holds nodes again."""

    content: object
    origin: str

    @property
    def children(self) -> dict[str, Node] | None:
        return self.content if isinstance(self.content, dict) else None

    def plain(self) -> object:
        """Returns the value without its places."""
        if self.children is None:
            return self.content
        return {key: child.plain() for key, child in self.children.items()}


def read_file(path: Path) -> Node:
    """Reads the tree of a YAML file; an empty one is an empty mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from error
    node = parse_yaml(text, str(path), with_lines=True)
    if node.content is None:
        return Node({}, str(path))
    if node.children is None:
        raise ConfigError([f"{path}: expected sections with keys, got {shown(node.content)}"])
    return node


def parse_yaml(text: str, origin: str, *, with_lines: bool) -> Node:
    """Parses one document; a key that is written twice is an error, as YAML itself has it."""
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return Node(None, origin)
        return _TreeBuilder(loader, origin, with_lines).build(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{origin}:{mark.line + 1}" if mark is not None and with_lines else origin
        raise ConfigError([f"{place}: not valid YAML: {error.problem}"]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([f"{origin}: not valid YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{origin}: nested too deeply, or within itself"]) from error
    finally:
        loader.dispose()


class _TreeBuilder:
    """Keeps the line of every value, which yaml.safe_load throws away."""

    def __init__(self, loader: yaml.SafeLoader, origin: str, with_lines: bool) -> None:
        self._loader = loader
        self._origin = origin
        self._with_lines = with_lines

    def build(self, node: yaml.Node) -> Node:
        place = self._place(node)
        if not isinstance(node, yaml.MappingNode):
            return Node(self._loader.construct_object(node, deep=True), place)
        children: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key = self._loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConfigError([f"{self._place(key_node)}: expected a name, got {shown(key)}"])
            if key in children:
                raise ConfigError([f"{self._place(key_node)}: {key}: is given twice"])
            value = self.build(value_node)
            children[key] = Node(value.content, self._place(key_node))
        return Node(children, place)

    def _place(self, node: yaml.Node) -> str:
        if not self._with_lines:
            return self._origin
        return f"{self._origin}:{node.start_mark.line + 1}"


def environment_values(environ: Mapping[str, str]) -> dict[tuple[str, ...], tuple[str, str]]:
    """Returns all variables with our prefix: key path -> (variable, text)."""
    found = {}
    for name in sorted(environ):
        if name.startswith(PREFIX):
            path = tuple(name.removeprefix(PREFIX).lower().split(SEPARATOR))
            found[path] = (name, environ[name])
    return found


def variable_name(path: tuple[str, ...]) -> str:
    """Names the environment variable of a key."""
    return PREFIX + SEPARATOR.join(path).upper()


def shown(value: object) -> str:
    """Shows a value in an error message, as the person wrote it and never at length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
