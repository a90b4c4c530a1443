"""A report reads stores: nothing in it asks a victim, runs an attack or an evaluation."""

import ast
from pathlib import Path

import pytest

import brusle.report

MODULES = sorted(Path(brusle.report.__file__).parent.rglob("*.py"))
ASKS = (
    "brusle.attacks", "brusle.batching", "brusle.defences", "brusle.evaluation.running",
    "brusle.oracle", "brusle.search", "brusle.session", "brusle.victims", "brusle.zoo",
)  # fmt: skip
MAPS = {"brusle.attacks.pixel_bandit.effects": {"EffectMaps", "Moment"}}  # arrays, to be drawn


def imported(module: Path) -> list[tuple[str, str]]:
    """Modules and names that are imported anywhere in a file."""
    found = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found += [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_nothing_that_runs_is_imported(module) -> None:
    for source, name in imported(module):
        whole = f"{source}.{name}"
        asks = [part for part in ASKS if f"{whole}.".startswith(f"{part}.")]
        assert not asks or name in MAPS.get(source, ()), f"{module.name} imports {whole}"


def test_the_public_names_are_there() -> None:
    for name in brusle.report.__all__:
        assert getattr(brusle.report, name).__doc__
