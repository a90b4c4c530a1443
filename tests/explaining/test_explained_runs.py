"""Explanations of runs: which victim is asked, and what is shown without one."""

import json
import shutil

import numpy as np
import pytest
import torch
from entry import run as command
from models import integer_model, own_labels, random_images
from PIL import Image
from stored import stored

import brusle
from brusle.errors import DataError, InputError
from brusle.evaluation.storing.store import Store
from brusle.explaining.drawing import sheet_of
from brusle.serving import Server
from brusle.victims import wrap

SHAPE = (3, 8, 6)
ATTACKS = (
    brusle.attacks.BruSLe(pixels=4, queries=40),
    brusle.attacks.PixelBandit(pixels=4, queries=40),
)
OPTIONS = {"goal": "untargeted", "on_progress": None}


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A run of the bundled net, which can be opened by its name."""
    folder = tmp_path_factory.mktemp("explained") / "run"
    brusle.evaluate(attacks=ATTACKS, limit=6, out=folder, trace=True, **OPTIONS)
    return folder


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    """Images of an integer model, a file with them, and runs of it without traces."""
    model, images = integer_model(SHAPE, 5), random_images(4, SHAPE)
    labels = own_labels(model, images)
    folder = tmp_path_factory.mktemp("arrays")
    np.savez(folder / "data.npz", images=images.numpy(), labels=labels.numpy())
    return model, f"npz:{folder / 'data.npz'}"


def panels(explained) -> list[str]:
    return [panel.name for band in sheet_of(explained).bands for panel in band]


def test_a_folder_and_the_run_in_it_are_explained_alike(traced) -> None:
    run = brusle.Run.open(traced)
    one, other = brusle.explain(traced), brusle.explain(run)
    assert (one.name, one.attack) == (other.name, other.attack)
    assert one.fooled and one.look.how == "gradcam" and one.asked == 0
    assert one.victim == "zoo:cifar10-resnet20" and one.classes[0] == "airplane"
    setting = run.settings[0]
    row = next(row for row in run.stored(setting) if row.image == one.name)
    result = run.result(setting)
    at = list(result.names).index(row.image)
    np.testing.assert_array_equal(one.adversarial, result.images[at])
    assert one.labels == (row.clean_label, row.final_label)


def test_attacks_are_made_again_from_their_settings(traced) -> None:
    one, other = (brusle.explain(traced, attack=name) for name in ("brusle", "pixel-bandit"))
    assert one.synthetic is not None and other.synthetic is None
    assert one.trace.meaning == "theta" and other.trace.meaning == "effect"
    np.testing.assert_array_equal(one.synthetic[:, one.changed], one.adversarial[:, one.changed])
    # the scale of effects is around 0, that of theta is not
    scales = [
        {panel.scale.diverging for panel in sheet_of(each).bands[-1] if panel.scale is not None}
        for each in (one, other)
    ]
    assert scales == [{False}, {True}]


def test_a_victim_of_python_is_left_out_unless_it_is_given(arrays, tmp_path) -> None:
    model, data = arrays
    brusle.evaluate(model.victim(), data, ATTACKS[0], out=tmp_path / "run", **OPTIONS)
    before = model.seen
    without = brusle.explain(tmp_path / "run")
    assert model.seen == before and without.look is None and without.tops is None
    assert "made in Python" in without.notes[0] and "--victim" in without.notes[0]
    assert "--trace" in without.notes[-1] and without.synthetic is not None
    given = brusle.explain(tmp_path / "run", model.victim())
    assert given.asked == model.seen - before == 2 + 2 * 49 and given.look.how == "occlusion"
    assert [top[0][0] for top in given.tops] == list(given.labels)
    with pytest.raises(InputError, match="made in Python"):
        brusle.explain(tmp_path / "run", look="occlusion")


def test_a_victim_that_runs_code_is_not_opened_by_what_a_folder_says(
    arrays, tmp_path, monkeypatch
) -> None:
    model, data = arrays
    (tmp_path / "evil.py").write_text("def make():\n    raise SystemExit('I was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    victim = wrap(model.function, output="logits", name="python:evil:make")
    folder = tmp_path / "run"
    brusle.evaluate(victim, data, ATTACKS[0], out=folder, **OPTIONS)
    with Store.write(folder) as store:
        about = store.about()
        store.write_about(about.model_copy(update={"victim": "python:evil:make"}))
    explained = brusle.explain(folder)
    assert explained.look is None and "runs a function of Python" in explained.notes[0]


def test_another_victim_than_the_run_had_is_refused(traced) -> None:
    with pytest.raises(DataError, match="has weights"):
        brusle.explain(traced, "zoo:cifar10-vit")


def test_an_onnx_victim_is_opened_and_occluded(arrays, tmp_path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 5))
    torch.nn.init.normal_(net[1].weight, generator=torch.Generator().manual_seed(1))
    torch_victim = brusle.victims.TorchVictim(net.eval(), shape=SHAPE)
    path = brusle.victims.export_onnx(torch_victim, tmp_path / "net.onnx", shape=SHAPE)
    images = random_images(3, SHAPE)
    labels = net(images).argmax(1)
    np.savez(tmp_path / "own.npz", images=images.numpy(), labels=labels.numpy())
    data = f"npz:{tmp_path / 'own.npz'}"
    brusle.evaluate(f"onnx:{path}", data, ATTACKS[0], out=tmp_path / "run", trace=True, **OPTIONS)
    explained = brusle.explain(tmp_path / "run")
    assert explained.look.how == "occlusion" and explained.asked == 2 * 49


def test_a_service_is_asked_only_by_name_and_with_a_way_to_look(tmp_path) -> None:
    net = brusle.load_victim("zoo:cifar10-resnet20")
    with Server(net, "google-vision") as server:
        folder = tmp_path / "run"
        brusle.evaluate(
            server.name, "sample", ATTACKS[0], limit=2, out=folder, trace=True, **OPTIONS
        )
        before = server.books.as_dict()["received"]
        unasked = brusle.explain(folder)
        assert unasked.look is None and "--victim" in unasked.notes[0]
        quiet = brusle.explain(folder, server.name)
        assert quiet.look is None and "--look occlusion" in quiet.notes[0]
        assert server.books.as_dict()["received"] == before
        loud = brusle.explain(folder, server.name, look="occlusion")
        assert server.books.as_dict()["received"] - before == loud.asked == 2 * 65
    # lists of labels, from the trace: no more than the service names, by its names
    assert loud.tops == unasked.tops and len(loud.tops[0]) <= 10
    assert loud.named(loud.tops[0][0][0]) in net.classes


def test_a_run_whose_images_are_gone_says_so(tmp_path) -> None:
    model, images = integer_model(SHAPE, 5), random_images(2, SHAPE)
    given = (images, own_labels(model, images))
    brusle.evaluate(model.victim(), given, ATTACKS[0], out=tmp_path / "run", **OPTIONS)
    with pytest.raises(DataError, match="give --data"):
        brusle.explain(tmp_path / "run")


def test_the_command_writes_sheets_and_panels_and_changes_nothing_else(
    traced, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("brusle.cli.explain._FEW", 2)
    before = stored(traced)
    done = command("explain", traced, "--json", "--dark", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["setting"] for one in told] == [1, 2] and stored(traced) == before
    assert {one["status"] for one in told} == {"success"}
    for one in told:
        *panels, trace = one["files"]
        assert trace.endswith("trace.json")
        for path in (one["sheet"], *panels):
            with Image.open(path) as picture:
                picture.load()
        assert one["notes"] == ["GradCAM of the class's logit at layers.8.conv2 (8 x 8 places)"]
    written = {str(path) for path in (tmp_path / "out").rglob("*.*")}
    assert written == {path for one in told for path in (one["sheet"], *one["files"])}


def test_the_command_takes_images_by_name(traced, tmp_path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(traced, copy)
    name = brusle.Run.open(copy).stored(brusle.Run.open(copy).settings[0])[1].image
    options = ("--image", name, "--look", "none", "--setting", 2)
    done = command("explain", copy, *options)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    slug = brusle.Run.open(copy).settings[1].slug
    assert line.endswith(f"{copy}/explain/{slug}/{name}.png")
    assert sorted(path.name for path in (copy / "explain").rglob("*.png"))[0] == "adversarial.png"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--image", "nobody"), "the run has no image 'nobody'"),
        (("--setting", "7"), "the run has no setting 7"),
        (("--attack", "l0-hsja"), "the run has no attack 'l0-hsja'"),
        (("--target", "unicorn"), "unknown class 'unicorn'"),
        (("--target", "ship"), "no attack has the target 8: there are None"),
        (("--look", "attention"), "attention"),
        (("--look", "occlusion", "--layer", "x"), "layer='x' is for GradCAM"),
        (("--layer", "nowhere"), "nowhere"),
        (("--victim", "zoo:nobody"), "unknown victim"),
    ],
)
def test_refusals_of_the_command_are_one_line(traced, tmp_path, options, message) -> None:
    done = command("explain", traced, "--out", tmp_path / "out", *options)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_leads_elsewhere_is_refused(traced, tmp_path) -> None:
    copy, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(traced, copy)
    elsewhere.mkdir()
    (copy / "explain").symlink_to(elsewhere)
    done = command("explain", copy, "--look", "none")
    assert done.returncode == 2 and "is no plain file but a link" in done.stderr
    assert not list(elsewhere.iterdir())


def test_a_run_that_is_not_finished_is_explained_as_far_as_it_is(arrays, tmp_path) -> None:
    model, data = arrays
    seen = []

    def stops(images):
        seen.append(len(images))
        if len(seen) == 30:
            raise KeyboardInterrupt
        return model.function(images)

    victim = wrap(stops, output="logits", name="stops")
    options = {**OPTIONS, "batch_size": 1, "trace": True}
    with pytest.raises(KeyboardInterrupt):
        brusle.evaluate(victim, data, ATTACKS, out=tmp_path / "run", **options)
    run = brusle.Run.open(tmp_path / "run")
    assert 0 < sum(len(run.stored(setting)) for setting in run.settings) < 8
    explained = brusle.explain(tmp_path / "run")
    assert explained.trace is not None and "original" in panels(explained)
