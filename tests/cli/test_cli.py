"""The command line as a script sees it: standard output, standard error and exit code."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import brusle
from brusle.attacks import make
from brusle.data import load, read_image, save_image


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from brusle.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    victim, data = brusle.load_victim("zoo:cifar10-resnet20"), load("sample")
    right = (victim(data.images).argmax(1) == data.labels).nonzero()[:, 0].tolist()
    save_image(data.images[right[0]], folder / "plane.png")
    save_image(data.images[100], folder / "other.png")
    (folder / "broken.png").write_bytes(b"\x89PNG but no more")
    return folder


def test_help_names_every_command_and_the_exit_codes() -> None:
    answer = run("--help")
    assert answer.returncode == 0
    commands = ("attack", "check", "data", "evaluate", "list", "pairs")
    for word in (*commands, "Exit codes", "authorised"):
        assert word in answer.stdout
    assert "\b" not in answer.stdout


def test_help_and_import_do_not_load_torch() -> None:
    code = (
        "import sys, brusle, brusle.cli\n"
        "try: brusle.cli.cli(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_attack_writes_a_verified_png(photos) -> None:
    answer = run("attack", "plane.png", "--pixels", "30", "--json", cwd=photos)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert said["status"] == "success"
    assert said["before"] == "airplane" != said["after"]
    assert said["ledger"]["clean"] == 2  # once for the label, once by the attack
    before, after = read_image(photos / "plane.png"), read_image(photos / said["out"])
    changed = (before != after).any(0).nonzero().tolist()
    assert changed == [[e["row"], e["column"]] for e in said["edits"]]
    assert len(changed) == said["pixels"] <= 30
    victim = brusle.load_victim("zoo:cifar10-resnet20")
    assert victim.classes[int(victim(after[None]).argmax())] == said["after"]


def test_attack_to_a_target_and_with_a_picture(photos) -> None:
    request = ("attack", "plane.png", "--target", "Ship", "--pixels", "60", "--queries", "1000")
    answer = run(*request, "--out", "out.png", "--picture", "p.png", cwd=photos)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("airplane -> ship: ")
    assert (photos / "out.png").exists()
    assert (photos / "p.png").exists()


def test_attack_with_an_explanation(photos) -> None:
    request = ("attack", "plane.png", "--target", "ship", "--pixels", "1", "--queries", "30")
    alone = json.loads(run(*request, "--json", cwd=photos).stdout)
    more = ("--effects", "theta.png", "--explain", "why", "--trace", "trace.json")
    answer = run(*request, "--json", *more, cwd=photos)
    assert json.loads(answer.stdout) == alone  # not a query more
    assert (photos / "theta.png").read_bytes().startswith(b"\x89PNG")
    parts = {path.name for path in (photos / "why" / "plane-to-8").iterdir()}  # 8 is ship
    assert {"original.png", "look-after.png", "loss.png", "theta-1.png", "trace.json"} <= parts
    trace = (photos / "why" / "plane-to-8" / "trace.json").read_text()
    assert trace == (photos / "trace.json").read_text()
    assert f"explained in {Path('why') / 'plane-to-8.png'}" in answer.stderr.splitlines()
    assert "GradCAM" in answer.stderr


def test_attack_with_the_expected_effects(photos) -> None:
    request = ("attack", "plane.png", "--target", "ship", "--pixels", "1", "--queries", "30")
    request = (*request, "--attack", "pixel-bandit", "--json")
    alone = json.loads(run(*request, cwd=photos).stdout)
    answer = run(*request, "--effects", "effects.npz", cwd=photos)
    assert json.loads(answer.stdout) == alone  # not a query more
    with np.load(photos / "effects.npz") as stored:
        last = alone["queries"]
        assert stored["queries"].tolist() == sorted({5, last} | ({20} if last > 20 else set()))
        assert stored["values"].shape == (len(stored["queries"]), 32, 32)
        assert np.ptp(stored["values"]) > 0 and stored["meaning"] == "effect"
        original = stored["original"]
        np.testing.assert_array_equal(original, read_image(photos / "plane.png"))
        changed = (stored["best"][-1] != original).any(0)
        assert np.argwhere(changed).tolist() == [[e["row"], e["column"]] for e in alone["edits"]]


def test_attack_with_the_colours_of_another_image(photos) -> None:
    request = ("attack", "plane.png", "--attack", "brusle:palette=image", "--pixels", "400")
    answer = run(*request, "--start", "other.png", "--json", cwd=photos)
    assert answer.returncode == 0, answer.stderr
    other = (read_image(photos / "other.png") * 255).round()
    for edit in json.loads(answer.stdout)["edits"]:
        assert edit["colour"] == other[:, edit["row"], edit["column"]].tolist()
    assert "brusle attack --start FILE" in run(*request, cwd=photos).stderr


def test_attack_that_finds_nothing_exits_with_1(photos) -> None:
    request = ("attack", "plane.png", "--pixels", "1", "--queries", "1", "--target", "frog")
    answer = run(*request, "--out", "none.png", cwd=photos)
    assert answer.returncode == 1
    assert answer.stdout == (
        "still airplane: no adversarial image found within 1 pixels and 1 queries\n"
    )
    assert not (photos / "none.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("attack", "missing.png"), "error: cannot open missing.png: No such file or directory"),
        (("attack", "broken.png"), "error: broken.png is no image that can be read"),
        (("attack", "plane.png", "--target", "unicorn"), "error: unknown class 'unicorn': known"),
        (("attack", "plane.png", "--target", "airplan"), "did you mean 'airplane'?"),
        (("attack", "plane.png", "--defence", "rdn:1"), "did you mean 'rnd'?"),
        (("attack", "plane.png", "--target", "12"), "error: target 12 of image 0 is out of range"),
        (("attack", "plane.png", "--target", "airplane"), "error: the target of image 0 equals"),
        (("attack", "plane.png", "--pixels", "2000"), "error: pixels is 2000, but an image of 32"),
        (("attack", "plane.png", "--pixels", "0"), "0 is not in the range x>=1"),
        (("attack", "plane.png", "--victim", "zoo:x"), "error: unknown victim 'zoo:x': known are"),
        (("attack", "plane.png", "--attack", "brusle:colors=2"), "did you mean 'colours'?"),
        (("attack", "plane.png", "--attack", "bruslee"), "did you mean 'brusle'?"),
        (("attack", "plane.png", "--attack", "brusle:z"), "write z=VALUE"),
        (("attack", "plane.png", "--device", "abacus"), "error: device 'abacus' cannot be used"),
        (("attack", "plane.png", "--attack", "pgd0:restarts=900"), "not enough for 900 restarts"),
        (("attack", "plane.png", "--attack", "pgd0", "--defence", "jpeg:75"), "needs gradients"),
        (
            ("attack", "plane.png", "--attack", "sparse-rs", "--effects", "e.png"),
            "error: SparseRS keeps no map of what it expects of each pixel: take brusle and pixel",
        ),
        (("attack", "plane.png", "--look", "gradcam"), "say what --explain draws"),
        (
            ("attack", "plane.png", "--attack", "pixel-bandit", "--effects", "e.svg"),
            "error: cannot write e.svg in the format of its name: name it .png, .npz",
        ),
        (
            ("attack", "plane.png", "--out", "a.jpg"),
            "error: cannot write a.jpg in the format of its name: name it .png",
        ),
        (("attack", "plane.png", "--picture", "a.svg"), "name it .png, .jpg, .jpeg, .webp, .pdf"),
        (("pairs", "--out", "pairs.csv"), "error: cannot write pairs.csv in the format of its"),
        (("evaluate", "--standard", "--minimal"), "standard chooses the attacks"),
        (("evaluate", "--queries", "0"), "0 is not in the range x>=1"),
        (("evaluate", "--data", "nothing"), "error: unknown data 'nothing': known are sample"),
        (("evaluate", "--frobnicate"), "No such option"),
        (("frobnicate",), "No such command"),
    ],
)
def test_bad_requests_get_one_line_and_exit_code_2(photos, arguments, message) -> None:
    answer = run(*arguments, cwd=photos)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
    if message.startswith("error: "):
        assert answer.stderr.count("\n") == 1


def test_evaluate_prints_a_table_and_writes_a_run_folder(tmp_path) -> None:
    options = ("--limit", "10", "--queries", "20", "--pixels", "8", "--json", "--out", "run")
    answer = run("evaluate", *options, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert [(s["goal"], s["attack"]) for s in said["settings"]] == [
        (goal, attack)
        for goal in ("untargeted", "targeted")
        for attack in ("BruSLe", "PixelBandit")
    ]
    assert all(s["summary"]["images"] == 10 for s in said["settings"])
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "adversarial", "curve.png", "gallery.png", "pairs.json", "results.lock",
        "results.sqlite", "rows.csv", "rows.json", "run.json",
    }  # fmt: skip
    assert "robust" in answer.stderr  # the table goes to people
    lines = answer.stderr.splitlines()
    assert sum(line.startswith(" PixelBandit ") for line in lines) == 2  # not folded
    assert max(map(len, lines)) <= 80
    assert "…" not in answer.stderr  # nothing was cut at 80 columns
    again = run("evaluate", *options, cwd=tmp_path)
    assert "40 attacks were stored already and not run again" in again.stderr
    assert json.loads(again.stdout)["settings"] == said["settings"]


def test_evaluate_several_attacks_and_the_standard_ensemble(tmp_path) -> None:
    options = ("--goal", "targeted", "--limit", "10", "--queries", "12", "--pixels", "8", "--json")
    several = ("--attack", "sparse-rs", "--attack", "pointwise", "--attack", "brusle:restarts=2")
    answer = run("evaluate", *options, *several, "--out", "a", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    names = ["SparseRS", "Pointwise", "BruSLe x 2"]
    assert [s["attack"] for s in said["settings"]] == names
    assert said["start_queries"] > 0  # Pointwise begins at images of the target class
    assert all(name in answer.stderr for name in ("SparseRS", "Pointwise", "BruSLe x 2"))
    answer = run("evaluate", *options, "--standard", "--out", "b", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    setting = json.loads(answer.stdout)["settings"][0]
    assert setting["attack"] == "Standard" and len(setting["options"]["attacks"]) == 5
    assert max(map(len, answer.stderr.splitlines())) <= 80


def test_evaluate_the_fewest_pixels(tmp_path) -> None:
    options = (
        "--goal",
        "untargeted",
        "--limit",
        "6",
        "--queries",
        "60",
        "--pixels",
        "20",
        "--json",
    )
    answer = run("evaluate", *options, "--minimal", "--out", "run", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    settings = json.loads(answer.stdout)["settings"]
    assert [s["attack"] for s in settings] == ["minimal BruSLe", "minimal PixelBandit"]
    assert all(s["summary"]["mean_pixels"] < 20 for s in settings)


def test_attack_with_labels_only_begins_at_the_given_image(photos) -> None:
    options = ("attack", "plane.png", "--pixels", "1000", "--queries", "60", "--defence", "label")
    refused = run(*options, cwd=photos)
    assert refused.returncode == 2 and "take an attack that needs labels only" in refused.stderr
    decided = (*options, "--attack", "pointwise", "--target", "5", "--json")
    answer = run(*decided, cwd=photos)
    assert answer.returncode == 2 and "--start FILE" in answer.stderr
    data = load("sample")
    dogs = data.images[data.labels == 5]
    victim = brusle.load_victim("zoo:cifar10-resnet20")
    save_image(dogs[victim(dogs).argmax(1) == 5][0], photos / "dog.png")
    answer = run(*decided, "--start", "dog.png", cwd=photos)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["after"] == "dog"


def test_list_as_json() -> None:
    said = json.loads(run("list", "--json").stdout)
    assert set(said) == {"attacks", "victims", "data", "defences", "presets"}
    assert "zoo:cifar10-resnet20" in said["victims"]
    assert "palette=binary" in said["attacks"]["brusle"]


def test_list_says_which_values_options_take() -> None:
    said = json.loads(run("list", "attacks", "--json").stdout)
    for name, option, others in (
        ("brusle", "palette=binary", "uniform gaussian inverted inverted-levels image"),
        ("brusle", "schedule=power-step", "printed step-decay cosine constant"),
        ("l0-hsja", "projection=l0", "authors l2"),
        ("one-pixel", "variant=paper", "torchattacks"),
    ):
        assert f"{option} (or {others.replace(' ', ', ')})" in said["attacks"][name]
        key = option.partition("=")[0]
        for value in others.split():  # what is listed is taken
            attack = make(f"{name}:{key}={value}", pixels=1, queries=10)
            assert getattr(attack, key) == value


def test_check_says_what_fits_and_exits_with_3_when_it_does_not(tmp_path) -> None:
    good = run("check", "--limit", "20", "--batch-size", "20", "--json")
    assert good.returncode == 0, good.stderr
    said = json.loads(good.stdout)
    assert all(f["verdict"] == "ok" for f in said["findings"])
    assert said["effort"] == {"images": 20, "queries": 71, "most": 131}
    assert said["queries"] == 71 and said["lost"] == 0
    assert good.stderr == "looks at 20 images with 71 queries, or 131 if accuracy is low\n"
    few = run("check", "--queries", "60", "--planned-images", "7", "--planned-queries", "9")
    assert few.stdout.startswith("looks at 8 images with 35 queries, or 59 if accuracy is low\n")
    assert few.stdout.endswith("this check took 35 queries\n"), few.stderr
    assert "at most 63 queries for each goal" in few.stdout
    np.savez(tmp_path / "d.npz", images=np.zeros((20, 3, 16, 16), np.uint8), labels=np.arange(20))
    bad = run("check", "--data", "npz:d.npz", cwd=tmp_path)
    assert bad.returncode == 2  # CIFAR-10 has no class 19
    assert "has label 19: labels must be 0 ... 9" in bad.stderr
    labels = np.arange(20) % 10
    np.savez(tmp_path / "d.npz", images=np.zeros((20, 3, 16, 16), np.uint8), labels=labels)
    bad = run("check", "--data", "npz:d.npz", cwd=tmp_path)
    assert bad.returncode == 3
    assert "FAIL  shape and classes" in bad.stdout and "3 x 16 x 16" in bad.stdout
    assert "see docs/check.md#shape-and-classes" in bad.stdout


def test_evaluate_warns_of_a_broken_model_before_and_under_the_table(tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        "import brusle\n"
        "def make():\n"
        "    return brusle.victims.normalised(brusle.zoo.load('cifar10-resnet20'), [0], [50])\n"
    )
    common = ("--victim", "python:mine:make", "--limit", "12", "--queries", "2", "--pixels", "1")
    attack = ("--attack", "brusle", "--goal", "untargeted", "--out", "run")
    answer = run("evaluate", *common, *attack, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    text = " ".join(answer.stdout.split())
    before, _, under = text.partition("ASR: of the")
    for part in (before, under):
        assert part.count("warning: accuracy:") == 1 and part.count("warning: input range:") == 1
    assert before.index("warning: accuracy") < before.index("fooled")
    again = run("evaluate", *common, *attack, "--json", cwd=tmp_path)  # all is stored
    told = json.loads(again.stdout)
    assert set(told["warnings"]) == {"accuracy", "input range"} and told["preflight_queries"] == 0
    assert again.stderr.count("warning: accuracy") == 1  # under the table
    assert "without brusle.victims.normalised around it" in told["warnings"]["input range"]


def test_pairs_are_chosen_and_evaluated(tmp_path) -> None:
    options = ("--images", "10", "--targets", "2", "--out", "pairs.json", "--json")
    answer = run("pairs", *options, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert (said["images"], said["classes"], said["pairs"]) == (10, 10, 20)
    options = ("--pairs", "pairs.json", "--goal", "targeted", "--pixels", "5", "--queries", "3")
    answer = run("evaluate", *options, "--json", "--out", "run", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    about = json.loads(answer.stdout)
    assert about["pairs"] == said["digest"]
    assert about["settings"][0]["summary"]["attacked"] == 20  # all are classified correctly


def test_defences_are_put_before_the_victim(photos) -> None:
    options = ("--pixels", "60", "--defence", "median:3", "--defence", "rnd:0.01", "--eot", "2")
    answer = run("attack", "plane.png", *options, "--queries", "40", "--json", cwd=photos)
    assert answer.returncode in (0, 1), answer.stderr
    ledger = json.loads(answer.stdout)["ledger"]
    assert ledger["clean"] == 1 + 2  # one look at the label, two draws by the attack
    assert (ledger["initial"] + ledger["search"]) % 2 == 0


def test_an_interrupted_evaluation_prints_the_command_that_goes_on(tmp_path) -> None:
    """In a terminal of its own, as somebody would stop it: after some attacks are stored."""
    words = ["evaluate", "--attack", "brusle", "--goal", "untargeted", "--limit", "30"]
    words += ["--pixels", "1", "--queries", "40", "--batch-size", "8", "--out", "my run"]
    code = (
        "import os, signal\n"
        # whoever runs the tests in the background may have switched it off
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from brusle.evaluation.storing import store\n"
        "add = store.Store.add_rows\n"
        "def interrupt(*given):\n"
        "    add(*given)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "store.Store.add_rows = interrupt\n"
        "from brusle.cli import main; main()"
    )
    command = [sys.executable, "-c", code, *words]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert answer.returncode == 130
    first, stored, again = answer.stderr.splitlines()[-3:]
    assert first == "interrupted"
    assert re.fullmatch(r"([1-9]|[12]\d) of 30 attacks are stored in my run", stored)
    line = shlex.join(["brusle", *words])
    assert again == f"the same command goes on: {line}"
    rest = run(*shlex.split(again.partition(": brusle ")[2]), cwd=tmp_path)
    assert rest.returncode == 0, rest.stderr
    assert f"{stored.split()[0]} attacks were stored already" in rest.stdout


def test_attack_shows_its_progress_to_a_person_only(photos) -> None:
    words = ("attack", "plane.png", "--pixels", "1", "--queries", "12", "--out", "x.png")
    silent = run(*words, cwd=photos)
    assert "queries/s" not in silent.stdout + silent.stderr
    master, terminal = pty.openpty()
    command = [sys.executable, "-c", "from brusle.cli import main; main()", *words]
    shown = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=terminal, text=True, cwd=photos, check=False
    )
    os.close(terminal)
    text = os.read(master, 65536).decode()
    os.close(master)
    assert "BruSLe" in text and "/12 queries" in text
    assert shown.stdout == silent.stdout and shown.returncode == silent.returncode
