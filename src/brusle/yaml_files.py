"""YAML files that people write: keys and values, read so that a file cannot do harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from brusle.errors import DataError
from brusle.text import brief, shortened


def read_yaml(path: str | Path, what: str) -> dict[str, Any]:
    """A YAML file of keys and values.

    Args:
        path: the file.
        what: what it is, for messages.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        _check_yaml(yaml.compose(text, yaml.SafeLoader), path, set())
        values = yaml.safe_load(text)
    except OSError as error:
        raise DataError(f"cannot read the {what} {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = shortened(" ".join(str(error).split()), 200)
        raise DataError(f"{path} is no YAML: {problem}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} is no {what}: it must be keys and values, as in 'key: value'")
    return values


def _check_yaml(node: yaml.Node | None, path: str | Path, seen: set[int]) -> None:
    """Raise if a key is given twice, or if there is an alias: a few can stand for billions."""
    if id(node) in seen:
        raise DataError(f"{path} has an alias (*NAME): write out what it stands for")
    seen.add(id(node))
    parts: list[Any] = list(node.value) if isinstance(node, yaml.CollectionNode) else []
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = [key for at, key in enumerate(keys) if key in keys[:at]]
        if twice:
            raise DataError(f"{path} has the key {brief(twice[0])} twice: give it once")
        parts = [part for pair in node.value for part in pair]
    for part in parts:
        _check_yaml(part, path, seen)
