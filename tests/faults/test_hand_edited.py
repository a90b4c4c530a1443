"""JSON in a store that was edited by hand, with fitting checksums: every command says one line."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from entry import run
from tampering import tamper

from brusle.errors import DataError
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.locking import is_written

pytestmark = pytest.mark.slow

DAMAGES = {
    "cut": '{"a": ',
    "empty": "",
    "no JSON": "victim",
    "null": "null",
    "number": "7",
    "not a number": "NaN",
    "huge number": "9" * 5000,
    "truth": "true",
    "text": '"x"',
    "half a character": '"\\ud800"',
    "list": "[]",
    "list of lists": "[[]]",
    "list of texts": '["x", "y", "z"]',
    "list of numbers": "[0, -1, 2]",
    "large numbers": "[3, 100000000000000000000, 4]",
    "object": "{}",
    "object of objects": '{"a": {"b": {}}}',
    "deep": "[" * 100_000,
    "deep and whole": "[" * 500 + "]" * 500,
    "deep in an object": '{"a": ' * 190 + "1" + "}" * 190,
}
QUICK = ("cut", "null", "object of objects")
ALL = [d if d in QUICK else pytest.param(d, marks=pytest.mark.slow) for d in DAMAGES]
FACTS = (
    "format",
    "brusle",
    "victim",
    "defences",
    "weights",
    "data",
    "traits",
    "shape",
    "classes",
    "randomised",
    "notes",
    "sessions",
    "warnings",
    "unknown",
)
COMMANDS = (
    "status",
    "status --json",
    "report",
    "report --md",
    "report --json",
    "compare",
    "compare --json",
    "export --to rows.json",
    "export --images images",
    "export --npz images.npz",
    "verify",
    "evaluate --out",
)


def read(folder, command: str):
    name, *options = command.split(" ")
    if name != "evaluate":
        return run(name, folder, *options)
    budget = ("--goal", "untargeted", "--attack", "brusle", "--pixels", 1, "--queries", 2)
    return run(name, *budget, "--limit", 2, *options, folder)


def check_all(folder, tmp_path) -> int:
    """Run all commands on copies; return how many said that something is wrong."""
    refused = 0
    for command in COMMANDS:
        copy = shutil.copytree(folder, tmp_path / "copy")
        answer = read(copy, command)
        said = f"{command}: {answer.stdout} {answer.stderr}"
        assert answer.returncode in (0, 2, 3) and "Traceback" not in answer.stderr, said
        if answer.returncode == 2:
            assert answer.stderr.startswith("error: ") and len(answer.stderr) < 1000, said
            assert len(answer.stderr.splitlines()) == 1, said
            refused += 1
        shutil.rmtree(copy)
    return refused


@pytest.mark.parametrize("damage", ALL)
@pytest.mark.parametrize("name", FACTS)
def test_a_fact_that_was_edited(name, damage, folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "unknown":
        tamper(folder, "about", "key = 'warnings'", key=name)
    tamper(folder, "about", f"key = '{name}'", value=DAMAGES[damage])
    refused = check_all(folder, tmp_path)
    if damage in ("cut", "empty", "no JSON", "deep", "half a character"):
        assert refused == len(COMMANDS)


@pytest.mark.parametrize("name", FACTS[:-2])
def test_a_fact_that_is_gone(name, folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    tamper(folder, "about", f"key = '{name}'", key="another")
    check_all(folder, tmp_path)


@pytest.mark.parametrize("damage", ALL)
def test_a_description_that_was_edited(damage, folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    tamper(folder, "settings", "id = 1", description=DAMAGES[damage])
    assert check_all(folder, tmp_path) == len(COMMANDS)


@pytest.mark.parametrize("damage", ["none", "null", "text", "list", "object", "large numbers"])
@pytest.mark.parametrize(
    "name",
    ["attack", "kind", "goal", "pixels", "queries", "seed", "eot", "needs", "problems", "options"],
)
def test_a_part_of_a_description_that_was_edited(
    name, damage, folder, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.read(folder) as store:
        described = store.settings()[0].model_dump(exclude={"number", name})
    if damage != "none":
        described[name] = json.loads(DAMAGES[damage])
    tamper(folder, "settings", "id = 1", description=json.dumps(described))
    refused = check_all(folder, tmp_path)
    fine = (name, damage) in {("attack", "text"), ("kind", "text"), ("options", "object")}
    assert (refused > 0) is not fine


@pytest.mark.parametrize("strange", ["number", "colour"])
def test_a_description_with_a_strange_key(strange, folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.read(folder) as store:
        described = store.settings()[0].model_dump(exclude={"number"})
    described[strange] = 1
    tamper(folder, "settings", "id = 1", description=json.dumps(described))
    assert check_all(folder, tmp_path) == len(COMMANDS)


def test_a_run_is_read_from_other_threads(folder) -> None:
    opened = Run.open(folder)
    here = Run.open(folder)
    expected = [summary.as_dict() for summary in here.summaries()]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: list(opened.rows()), range(8)))
        there = pool.submit(opened.summaries).result()
        images = pool.submit(lambda: [image.sum() for *_, image in opened.adversarial()]).result()
    assert answers == [list(here.rows())] * 8
    assert [summary.as_dict() for summary in there] == expected
    assert images == [image.sum() for *_, image in here.adversarial()]


def test_rows_are_written_from_other_threads(folder) -> None:
    with Store.write(folder) as store:
        first = store.rows(1)[0]
        more = [replace(first, problem=i, image=f"{i}") for i in range(40)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda row: store.add_rows(1, [row]), more))
            abouts = [store.about().model_copy(update={"data": str(i)}) for i in range(4)]
            threads = [threading.Thread(target=store.write_about, args=(one,)) for one in abouts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert {row.problem for row in more} <= {row.problem for row in store.rows(1)}
        assert store.about() in abouts


def test_a_damaged_store_is_let_go_of(folder) -> None:
    tamper(folder, "about", "key = 'victim'", value="7")
    for _ in range(2):  # the second time, nobody is taken for another run
        with pytest.raises(DataError, match="what it says about 'victim' cannot be read"):
            Store.write(folder)
    assert not is_written(folder)


def test_a_closed_run_is_not_called_damaged(folder) -> None:
    opened = Run.open(folder)
    opened.store.close()
    with pytest.raises(DataError, match="open the run again") as found:
        opened.store.rows(1)
    assert "damaged" not in str(found.value)
    assert "nothing to read" in repr(opened)
