"""Stores that earlier versions have written, brought to the schema of this one.

Each step takes a store from one format to the next. It reads what the store holds as data: keys
that were Python expressions are taken apart, never evaluated.
"""

from __future__ import annotations

import ast
import json
import sqlite3
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from brusle.attacks import ATTACKS
from brusle.attacks.combined import Ensemble, Restarts
from brusle.attacks.minimal import Minimal
from brusle.database import (
    Damaged,
    require_text,
    require_unchanged,
    stated_format,
    with_checksum,
)
from brusle.evaluation.record import FORMAT, canonical, defaults, described_as
from brusle.evaluation.storing.schema import SEQUENCE, TABLES, TRACES, require_sound

_UNREADABLE = (SyntaxError, ValueError, TypeError, LookupError, RecursionError, MemoryError)
_CLASSES = {kind.__name__: kind for kind in (*ATTACKS.values(), Ensemble, Minimal, Restarts)}


def is_old(connection: sqlite3.Connection) -> bool:
    """Whether this is a store that `migrate` knows."""
    return stated_format(connection) in _STEPS


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a store to this version's format, in one transaction that the caller ends.

    What is damaged is refused first: a migrated store has new checksums, which would hide it.
    """
    require_old(connection)
    while (found := stated_format(connection)) != FORMAT:
        _STEPS[found or ""](connection)


def require_old(connection: sqlite3.Connection) -> None:
    """Raise unless these are the tables of an older store, whole and in order."""
    traces = TRACES if stated_format(connection) in _TRACED else ""
    require_sound(connection, TABLES + traces)


def _from_3(connection: sqlite3.Connection) -> None:
    """0.1: a victim's name held its defences, and settings were known by ``repr(attack)``."""
    facts, settings = _unchanged(connection)
    now = _about_from_3({name: _read(text, f"fact {name!r}") for name, text, _ in facts})
    connection.execute("DELETE FROM about")
    connection.executemany(
        "INSERT INTO about VALUES (?, ?, ?)",
        [with_checksum(name, json.dumps(value)) for name, value in now.items()],
    )
    for number, key, text, _ in settings:
        changed = _setting_from_3(key, _read(text, f"setting {number}"))
        connection.execute(
            "UPDATE settings SET key = ?, description = ?, checksum = ? WHERE id = ?",
            (*with_checksum(*changed), number),
        )


def _from_4(connection: sqlite3.Connection) -> None:
    """0.2 before lists of labels: no vocabulary, and one kind of success."""
    facts, settings = _unchanged(connection)
    news: dict[str, Any] = {"format": "brusle-results-5"}
    if len(facts) > 1:  # something has begun
        news |= {"vocabulary": [], "labels_from": "data"}
    connection.executemany(
        "INSERT OR REPLACE INTO about VALUES (?, ?, ?)",
        [with_checksum(name, json.dumps(value)) for name, value in news.items()],
    )
    for number, key, text, _ in settings:
        description = _read(text, f"setting {number}")
        if not isinstance(description, dict):
            raise Damaged(f"setting {key[:80]!r} is none that brusle makes")
        said = json.dumps(description | {"success": "top1"})
        connection.execute(
            "UPDATE settings SET description = ?, checksum = ? WHERE id = ?",
            (*with_checksum(key, said)[1:], number),
        )


def _from_5(connection: sqlite3.Connection) -> None:
    """0.2 before traces."""
    connection.execute(TRACES.strip().rstrip(";"))
    connection.execute(
        "INSERT OR REPLACE INTO about VALUES (?, ?, ?)",
        with_checksum("format", json.dumps("brusle-results-6")),
    )


def _from_6(connection: sqlite3.Connection) -> None:
    """0.2 before runs that stop when something is decided."""
    connection.execute(SEQUENCE.strip().rstrip(";"))
    connection.execute(
        "INSERT OR REPLACE INTO about VALUES (?, ?, ?)",
        with_checksum("format", json.dumps("brusle-results-7")),
    )


def _unchanged(connection: sqlite3.Connection) -> tuple[list[Any], list[Any]]:
    """Facts and settings as they were stored; raises if they were changed since."""
    facts = connection.execute("SELECT * FROM about").fetchall()
    settings = connection.execute("SELECT * FROM settings").fetchall()
    described = [columns for _, *columns in settings]
    require_unchanged(facts, "fact")
    require_unchanged(described, "setting")
    require_text([*facts, *described])
    return facts, settings


def _about_from_3(facts: Mapping[str, Any]) -> dict[str, Any]:
    if facts.keys() <= {"format"}:  # nothing has begun
        return {"format": "brusle-results-4"}
    now: dict[str, Any] = {"defences": [], "traits": {}, "notes": [], "warnings": {}, "results": 1}
    now |= {"traits" if name == "like" else name: value for name, value in facts.items()}
    if isinstance(victim := facts.get("victim"), str):
        now["victim"], *now["defences"] = victim.split(" + ")
    return now | {"format": "brusle-results-4"}


def _setting_from_3(key: str, description: Any) -> tuple[str, str]:
    """Key and description. Each follows from its own, so that `verify` sees if they differ."""
    parts = key.rsplit(" ", 3)
    if len(parts) < 4 or not isinstance(description, dict):
        raise Damaged(f"setting {key[:80]!r} is none that brusle makes")
    text, goal, seed, eot = parts
    budgets = {name: description.get(name) for name in ("pixels", "queries")}
    attack = _attack_from_3(text, budgets)
    meant = {"attack": attack, "goal": goal, "seed": _number(seed), "eot": _number(eot)}
    same = {name: value for name, value in description.items() if name != "options"}
    said = same | {"kind": attack["kind"], "options": attack["options"]}
    return canonical(meant), json.dumps(said)


def _number(stated: str) -> int:
    """The number in ``name=number``."""
    try:
        return int(stated.partition("=")[2])
    except ValueError as error:
        raise Damaged(f"{stated[:80]!r} is no number") from error


def _attack_from_3(text: str, budgets: Mapping[str, Any]) -> dict[str, Any]:
    """The attack whose ``repr`` is given; one that cannot be read is known by it as a whole."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of what is strange in the text
            described = _described(ast.parse(text, mode="eval").body)
    except _UNREADABLE:
        described = {"kind": text.partition("(")[0], "options": {"repr": text}}
    return described | {
        name: budgets[name] if described.get(name) is None else described[name] for name in budgets
    }


def _described(node: ast.expr) -> dict[str, Any]:
    """``Kind(option=value, ...)`` as `brusle.evaluation.record.describe` describes attacks."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)) or node.args:
        raise ValueError("no attack")
    kind = node.func.id
    values = {option.arg or "": _value(option.value) for option in node.keywords}
    usual = defaults(_CLASSES[kind]) if kind in _CLASSES else {}
    return described_as(kind, _budgets(kind, values) | values, usual)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        return _described(node)
    if isinstance(node, ast.Tuple | ast.List):
        return [_value(part) for part in node.elts]
    if isinstance(node, ast.Name) and node.id in ("nan", "inf"):
        return float(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    return ast.literal_eval(node)


def _budgets(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Pixels and queries of an attack that consists of others."""
    if kind == "Minimal":
        return {"pixels": values["attack"]["pixels"], "queries": values["total"]}
    if kind == "Restarts":
        attack, times = values["attack"], values["times"]
        return {"pixels": attack["pixels"], "queries": _whole(times) * _whole(attack["queries"])}
    if kind == "Ensemble":
        attacks = values["attacks"]
        queries = sum(_whole(attack["queries"]) for attack in attacks)
        return {"pixels": attacks[0]["pixels"], "queries": queries}
    return {}


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("no number")
    return value


def _read(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{what} is no JSON") from error


_STEPS: dict[str, Callable[[sqlite3.Connection], None]] = {
    "brusle-results-3": _from_3,
    "brusle-results-4": _from_4,
    "brusle-results-5": _from_5,
    "brusle-results-6": _from_6,
}
_TRACED = ("brusle-results-6",)  # earlier ones have no traces
