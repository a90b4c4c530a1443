"""docs/design.md and docs/extending.md speak of what is there: files, names, and an order to read in."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "brusle"
DESIGN = (ROOT / "docs" / "design.md").read_text()
EXTENDING = (ROOT / "docs" / "extending.md").read_text()
SOURCE = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("page", [DESIGN, EXTENDING], ids=["design", "extending"])
def test_every_file_that_is_named_exists(page) -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.(?:py|md))`", page))
    assert len(named) > 2
    there = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    last = {Path(name).name for name in there}
    for name in named:
        inside = name in there or ("/" not in name and name in last)
        assert inside or (ROOT / name).exists() or (ROOT / "src" / name).exists(), name


@pytest.mark.parametrize("page", [DESIGN, EXTENDING], ids=["design", "extending"])
def test_every_class_that_is_named_exists(page) -> None:
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", page)) - {"Literal"}
    for name in named:
        assert re.search(rf"^(class {name}\b|{name}\b.* = |    {name} = )", SOURCE, re.M), name


def test_the_walk_names_the_files_of_a_query_in_the_order_of_their_calls() -> None:
    walk = re.findall(r"^\| `([a-z_/]+\.py)`", DESIGN, re.M)
    assert walk[0] == "cli/evaluate.py" and walk[-1] == "evaluation/storing/runs.py"
    assert len(walk) > 20 and all((PACKAGE / name).exists() for name in walk)
    calls = ["evaluation/running/runner.py", "evaluation/running/engines.py", "session.py"]
    calls += ["batching.py", "oracle.py", "verify.py", "evaluation/storing/store.py"]
    assert [name for name in walk if name in calls] == calls
