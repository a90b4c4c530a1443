"""Random damage to a real store: what a command still shows is what was stored.

`TRIED` files are damaged, each in a place and way of its own; a tenth of them in the quick suite.
"""

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from entry import run
from tampering import damage

from brusle.evaluation.storing.recheck import recheck
from brusle.evaluation.storing.store import FILE, Store

pytestmark = pytest.mark.slow

TRIED = 400
PARTS = 10


def flat(found: Any) -> dict[tuple[str, str], tuple]:
    """Every row as `rows.csv` has it, by its attack and id."""
    return {(row["attack"], row["id"]): tuple(row.items()) for row in found}


def exported(folder: Path) -> dict[tuple[str, str], tuple] | None:
    """The rows that an export shows; None if it refuses."""
    path = folder / "exported.csv"
    answer = run("export", folder, "--to", path)
    assert answer.returncode in (0, 2), answer
    if answer.returncode:
        check_line(answer)
        return None
    with path.open(newline="") as file:
        return flat(csv.DictReader(file))


def check_line(answer: Any) -> None:
    assert answer.returncode == 2 and answer.stdout == "", answer
    assert answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1, answer
    assert "bug in brusle" not in answer.stderr, answer


def numbers(answer: Any) -> list[dict[str, Any]] | None:
    """The settings that a command shows in JSON; None if it refuses."""
    if answer.returncode:
        check_line(answer)
        return None
    found: list[dict[str, Any]] = json.loads(answer.stdout)["settings"]
    return found


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, PARTS))]
)
def test_damage_is_noticed_or_does_no_harm(part, folder) -> None:
    with Store.write(folder):
        pass  # all in one file
    path = folder / FILE
    content = path.read_bytes()
    whole = exported(folder)
    status = numbers(run("status", folder, "--json"))
    report = numbers(run("report", folder, "--json"))
    with Store.read(folder) as store:
        numbers_of = [record.number for record in store.settings()]
        known = {(n, row.problem): row for n in numbers_of for row in store.rows(n)}
    assert whole is not None and len(whole) == len(known) == 36
    outcomes: Counter[str] = Counter()
    for seed in range(part * TRIED // PARTS, (part + 1) * TRIED // PARTS):
        for beside in folder.glob(f"{FILE}-*"):
            beside.unlink()
        path.write_bytes(damage(content, seed))
        rows = exported(folder)
        assert rows is None or rows.items() <= whole.items(), seed
        for shown, expected in (
            (numbers(run("status", folder, "--json")), status),
            (numbers(run("report", folder, "--json")), report),
        ):
            assert shown is None or rows is None or len(rows) < len(whole) or shown == expected
        outcomes[judged(folder, known, seed)] += 1
    shutil.rmtree(folder)
    assert outcomes["refused"] + outcomes["found"] > 0 and sum(outcomes.values()) == TRIED // PARTS


def judged(folder: Path, known: Any, seed: int) -> str:
    """What `verify` says of a damaged store, and whether it has missed a changed row."""
    answer = run("verify", folder, "--json")
    if answer.returncode == 2:
        check_line(answer)
        return "refused"
    with Store.read(folder) as store:
        now = {
            (s.number, f.row.problem): f.row
            for s in store.settings()
            for f in store.examine(s.number)
            if f.row is not None
        }
    changed = any(known.get(key) != row for key, row in now.items())
    said = json.loads(answer.stdout)
    assert answer.returncode == (3 if said["failed"] else 0), seed
    assert said["failed"] or not changed, seed
    return "found" if said["failed"] else "unharmed"


def test_damage_that_sqlite_cannot_even_tell(folder) -> None:
    """Its message would quote bytes that are no text."""
    with Store.write(folder):
        pass
    path = folder / FILE
    content = path.read_bytes()
    schema = content.replace(b"tablerowsrows", b"table\xff\xfewsrows")
    schema = schema.replace(b"CREATE TABLE rows", b"CREATE TABEL rows")
    assert schema != content
    path.write_bytes(schema)
    for command in ("status", "report", "compare", "verify"):
        check_line(run(command, folder))


def test_a_sound_store_passes(folder) -> None:
    assert not recheck(folder).failed
