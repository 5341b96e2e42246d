"""Reads file and environment into typed sections: strictly, with all errors at once.

Answers for laying the environment over the file and checking every key. It must not know what a key
is for: the sections are an argument.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gateway.config.file_and_environment import (
    ConfigError,
    Node,
    environment_values,
    parse_yaml,
    read_file,
    shown,
    variable_name,
)
from gateway.config.key_types import Field, fields_of

Section = TypeVar("Section", bound=msgspec.Struct)
KeyPath = tuple[str, ...]


def read_config(schema: type[Section], path: Path | None, environ: Mapping[str, str]) -> Section:
    """Reads the whole configuration, or raises a ConfigError with every problem in it."""
    root = read_file(path) if path is not None else Node({}, "defaults")
    reader = _Reader(schema)
    root = reader.with_environment(root, environ)
    config = reader.section(schema, root, (), None)
    if reader.problems or config is None:
        raise ConfigError(reader.problems)
    return config


def with_least(config: Section, keys: Mapping[str, tuple[str, ...]], least: object) -> Section:
    """Raises keys that have their default to at least `least`, and returns the changed
    configuration; `keys` names them by section."""
    raised = {}
    for section, names in keys.items():
        chosen = getattr(config, section)
        default = type(chosen)()
        small = {n: least for n in names if getattr(chosen, n) == getattr(default, n) < least}
        raised[section] = msgspec.structs.replace(chosen, **small)
    return msgspec.structs.replace(config, **raised)


def all_keys(schema: type[msgspec.Struct], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Field]]:
    """Yields every key with its path, sections before their own keys."""
    for field in fields_of(schema):
        here = (*path, field.name)
        yield here, field
        if field.section is not None:
            yield from all_keys(field.section, here)


class _Reader:
    def __init__(self, schema: type[msgspec.Struct]) -> None:
        self._keys = dict(all_keys(schema))
        self.problems: list[str] = []

    # --- the environment

    def with_environment(self, root: Node, environ: Mapping[str, str]) -> Node:
        for path, (variable, text) in environment_values(environ).items():
            field = self._keys.get(path)
            if field is None:
                self._unknown_variable(path, variable)
            else:
                root = _put(root, path, _from_text(field, text, variable))
        return root

    def _unknown_variable(self, path: KeyPath, variable: str) -> None:
        """Reports a variable that names no key. With two underscores it is ours; with one, it may
        be a neighbour's (HOWDAH_SERVICE_HOST in Kubernetes), unless it is nearly one of ours."""
        names = [variable_name(known) for known in self._keys]
        folded = {name.replace("__", "_"): name for name in names}
        meant = folded.get(variable.replace("__", "_"))
        if meant is None and len(path) == 1:
            meant = _nearest(variable, self._top_level_variables(), cutoff=0.85)
            if meant is None:
                return
        meant = meant or _nearest(variable, names)
        self.problems.append(f"environment: {variable}: unknown key{_suggestion(meant)}")

    def _top_level_variables(self) -> list[str]:
        """Returns the variables of keys that belong to no section and are no section themselves."""
        keys = self._keys.items()
        return [variable_name(path) for path, field in keys if len(path) == 1 and not field.section]

    # --- the tree

    def section(
        self, schema: type[Section], node: Node, path: KeyPath, defaults: Section | None
    ) -> Section | None:
        """Reads a typed section; None when there are problems in it. A place may have defaults of
        its own, as the ports of the listeners are."""
        children = node.children
        if children is None:
            self._complain(node, path, f"expected a section with keys, got {shown(node.content)}")
            return None
        before = len(self.problems)
        fields = {field.name: field for field in fields_of(schema)}
        values: dict[str, object] = {}
        for name, child in children.items():
            if name in fields:
                values[name] = self._value(fields[name], child, (*path, name))
            else:
                self._complain(child, (*path, name), self._unknown((*path, name), list(fields)))
        if defaults is None:
            self._require_all(fields, values, node, path)
        if len(self.problems) > before:
            return None
        attributes = dict(
            zip(schema.__struct_encode_fields__, schema.__struct_fields__, strict=True)
        )
        given = {attributes[name]: value for name, value in values.items()}
        return schema(**given) if defaults is None else replace(defaults, **given)

    def _require_all(
        self, fields: Mapping[str, Field], values: Mapping[str, object], node: Node, path: KeyPath
    ) -> None:
        for name, field in fields.items():
            if field.is_required and name not in values:
                missing = f"is missing, expected {field.expectation()}"
                self._complain(node, (*path, name), missing)

    def _value(self, field: Field, node: Node, path: KeyPath) -> object:
        if node.content is None and field.is_optional:
            return None
        if field.section is not None:
            defaults = field.default if isinstance(field.default, field.section) else None
            return self.section(field.section, node, path, defaults)
        try:
            return field.convert(node.plain())
        except ValueError:
            expected = f"expected {field.expectation()}, got {shown(node.content)}"
            self._complain(node, path, expected)
            return None

    def _unknown(self, path: KeyPath, siblings: list[str]) -> str:
        near = self._of_that_name(path) or _nearest(path[-1], siblings)
        if near is None:
            names = [known[-1] for known in self._keys]
            found = _nearest(path[-1], names, cutoff=0.8)
            near = self._of_that_name((*path[:-1], found)) if found is not None else None
        if near is None:
            return f"unknown key, expected one of {', '.join(siblings)}"
        return f"unknown key{_suggestion(near)}"

    def _of_that_name(self, path: KeyPath) -> str | None:
        """Returns the key in another section that has the last name of `path`, which was written
        in a wrong place or has moved; of several, the one whose place is most alike."""
        same = [".".join(known) for known in self._keys if known[-1] == path[-1]]
        return _nearest(".".join(path), same, cutoff=0.0)

    def _complain(self, node: Node, path: KeyPath, what: str) -> None:
        key = ".".join(path)
        self.problems.append(f"{node.origin}: {key}: {what}" if key else f"{node.origin}: {what}")


def _from_text(field: Field, text: str, variable: str) -> Node:
    """Reads a variable's text. The environment knows texts only: for a key that takes no text it is
    read as YAML, so null disables."""
    origin = f"environment {variable}"
    if field.takes_text:
        is_null = field.is_optional and text in ("", "null")
        return Node(None if is_null else text, origin)
    return parse_yaml(text, origin, with_lines=False)


def _put(node: Node, path: KeyPath, value: Node) -> Node:
    """Lays one value over a tree; a section that was switched off comes back."""
    if not path:
        return value
    if node.children is None and node.content is not None:
        return node  # no section at all: what was written there is to be complained about
    children = dict(node.children or {})
    below = children.get(path[0], Node({}, value.origin))
    children[path[0]] = _put(below, path[1:], value)
    return Node(children, node.origin)


def _nearest(name: str, known: list[str], cutoff: float = 0.6) -> str | None:
    found = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return found[0] if found else None


def _suggestion(meant: str | None) -> str:
    return f", did you mean {meant}?" if meant else ""
