"""An evaluation must say what is plainly wrong with a victim, and change nothing by looking."""

import json
import warnings

import pytest
import torch
from models import integer_model, own_labels, random_images
from stored import stored
from torch import nn

import brusle
from brusle.attacks import BruSLe, Pointwise
from brusle.evaluation import Run
from brusle.evaluation.running import runner
from brusle.evaluation.running.first_look import IMAGES
from brusle.report.content import gather
from brusle.report.markdown import report_markdown
from brusle.report.page import report_page
from brusle.victims import wrap

SHAPE, COUNT = (3, 6, 6), 100
SETUP = {"attacks": [BruSLe(2, 8)], "goal": "untargeted"}


def problem():
    model = integer_model(SHAPE, 4)
    images = random_images(COUNT, SHAPE)
    return model, images, own_labels(model, images)


def broken():
    """The data of a linear net that wants 0 to 255, and the net."""
    torch.manual_seed(0)
    images = random_images(COUNT, SHAPE)
    weights = torch.randn(108, 4) * 3

    def scores(x):
        return ((x / 255).flatten(1) @ weights).sin()

    labels = scores(images * 255).argmax(1)
    return wrap(scores, output="logits", name="levels"), (images, labels)


def collect(*arguments, **options) -> tuple[Run, list[str]]:
    said: list[str] = []
    run = brusle.evaluate(*arguments, **(SETUP | options), on_warning=said.append)
    return run, said


def test_a_sound_victim_is_asked_a_little_and_nothing_is_said() -> None:
    model, images, labels = problem()
    run, said = collect(model.victim(), (images, labels))
    assert said == [] and run.warnings == {}
    spent = sum(int(result.ledger.total.sum()) for result in run.results)
    assert run.preflight_queries == IMAGES
    assert spent + IMAGES == model.seen  # booked, and to no image
    assert run.results[0].ledger.clean.tolist() == [1] * COUNT


def test_a_broken_model_is_named_before_the_attack_and_wherever_results_are_shown(tmp_path) -> None:
    victim, data = broken()
    happened: list[str] = []
    run = brusle.evaluate(
        victim,
        data,
        **SETUP,
        out=tmp_path,
        on_warning=happened.append,
        on_progress=lambda *_: happened.append("attack"),
    )
    first, second, *rest = happened
    assert first.startswith("accuracy: ") and "no better than guessing among 4 classes" in first
    assert second.startswith("input range: 100 % accuracy") and "values from 0 to 255" in second
    assert set(rest) == {"attack"}
    assert [f"{topic}: {text}" for topic, text in run.warnings.items()] == [first, second]
    for told in (run.as_dict(), json.loads((tmp_path / "run.json").read_text())):
        assert told["warnings"] == run.warnings
        # once for the accuracy, and once for each of three other ranges
        assert told["preflight_queries"] == 4 * IMAGES and told["preflight_lost"] == 0
    with Run.open(tmp_path).store as store:
        opened = Run(store, tmp_path)
        content = gather(opened)
        assert content.as_dict()["warnings"] == run.warnings
        for text in (report_markdown(content), report_page(content, opened)):
            assert "Warning: accuracy" in text and "Warning: input range" in text
            assert "values from 0 to 255" in text and "No flag was raised" not in text


def test_a_later_session_says_it_once_and_a_finished_run_asks_nothing(tmp_path) -> None:
    victim, data = broken()
    first, _ = collect(victim, data, out=tmp_path, limit=40)
    more, said = collect(victim, data, out=tmp_path)
    assert len(said) == 2 and list(more.warnings) == list(first.warnings)
    assert report_markdown(gather(Run.open(tmp_path))).count("Warning: accuracy") == 1
    assert "of 60 images" in more.warnings["accuracy"]  # those that were not stored yet
    asked = 0

    def silent(x):
        nonlocal asked
        asked += 1
        return victim.function(x)

    again, said = collect(wrap(silent, output="logits", name="levels"), data, out=tmp_path)
    assert asked == 0 and said == [] and again.preflight_queries == 0
    assert again.warnings == more.warnings


class Noisy(nn.Module):
    """Draws from torch's own numbers, which go on from one call to the next."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.Parameter(torch.randn(108, 4))

    def forward(self, x):
        return (x - 0.5).flatten(1) @ self.weights + 0.1 * torch.randn(len(x), 4)


def keyed():
    return brusle.defences.make("rnd:0.05", integer_model(SHAPE, 4).victim())


def stateful():
    return wrap(Noisy(), output="logits", randomised=True)


@pytest.mark.parametrize("make", [lambda: problem()[0].victim(), keyed, stateful])
def test_rows_are_the_same_with_and_without_the_look(make, tmp_path, monkeypatch) -> None:
    images = random_images(40, SHAPE)
    attacks = [BruSLe(2, 8), Pointwise(2, 12)]
    setup = {"attacks": attacks, "goal": ("untargeted", "targeted"), "limit": 10, "batch_size": 7}

    def rows(name):
        victim = make()
        torch.manual_seed(1)
        labels = victim(images).argmax(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            brusle.evaluate(victim, (images, labels), out=tmp_path / name, **setup)
        return stored(tmp_path / name)

    looked = rows("with")
    monkeypatch.setattr(runner, "look_first", lambda *_: None)
    assert looked == rows("without") and len(looked) == 40


@pytest.mark.parametrize("batch_size", [1, 64])
def test_warnings_do_not_depend_on_the_batch(batch_size) -> None:
    victim, data = broken()
    few = {"limit": 30}
    said = collect(victim, data, batch_size=batch_size, **few)[1]
    assert len(said) == 2 and said == collect(victim, data, **few)[1]


def test_every_class_is_looked_at_though_data_are_sorted_by_class() -> None:
    """A victim that always says the same would look perfect on the first images."""
    _, images, labels = problem()
    order = labels.sort(stable=True).indices
    assert len(set(labels[order][:IMAGES].tolist())) < 4
    victim = wrap(lambda x: torch.eye(4)[[int(labels[order][0])] * len(x)] * 9, output="logits")
    _, said = collect(victim, (images[order], labels[order]))
    assert len(said) == 1 and "no better than guessing" in said[0]


class Declares:
    """A victim of the user's own, which nobody checks but the look."""

    name, device = "own", torch.device("cpu")

    def __init__(self, function, output) -> None:
        self.function, self.output = function, output

    def __call__(self, images):
        return self.function(images)


def test_scores_of_another_kind_than_declared() -> None:
    model, images, labels = problem()
    images, labels = images[:30], labels[:30]
    _, said = collect(Declares(lambda x: model.function(x), "probabilities"), (images, labels))
    assert len(said) == 1 and said[0].startswith("output kind: own is declared to give probab")
    _, said = collect(Declares(lambda x: model.function(x).softmax(1), "logits"), (images, labels))
    assert len(said) == 1 and "its scores are probabilities" in said[0]
    defended = [
        brusle.defences.make(spec, model.victim()) for spec in ("round:1", "topk:2", "label")
    ]
    for victim in defended[:2]:  # their probabilities need not sum to one
        assert collect(victim, (images, labels))[1] == []
    assert collect(defended[2], (images, labels), attacks=[Pointwise(2, 8)])[1] == []


def test_nan_is_said_and_what_raised_is_left_to_the_run() -> None:
    model, images, labels = problem()

    def nan(x):
        scores = model.function(x)
        scores[(x == images[5]).flatten(1).all(1)] = torch.nan
        return scores

    run, said = collect(wrap(nan, output="logits"), (images[:20], labels[:20]))
    assert said == ["finite scores: 1 of 20 images of the data got no usable scores: the victim "
                    "answered NaN or infinite scores"]  # fmt: skip
    assert run.as_dict()["preflight_lost"] == 1

    def raises(x):
        if (x == images[5]).flatten(1).all(1).any():
            raise RuntimeError("no power")
        return model.function(x)

    run, said = collect(wrap(raises, output="logits"), (images[:20], labels[:20]))
    assert said == [] and run.errors == 1


@pytest.mark.parametrize("error", [RuntimeError("no power"), brusle.VictimError("no power")])
def test_a_victim_that_fails_stops_the_run_with_its_own_error(error, tmp_path) -> None:
    _, images, labels = problem()

    def dead(x):
        raise error

    said: list[str] = []
    with pytest.raises(brusle.VictimError, match="no power") as caught:
        brusle.evaluate(
            wrap(dead, output="logits"), (images, labels), **SETUP, on_warning=said.append
        )
    assert caught.value.__context__ is None and said == []


def test_labels_in_another_order_are_named() -> None:
    model, images, labels = problem()
    _, said = collect(model.victim(), (images, (labels + 1) % 4))
    assert len(said) == 1 and "labels are in another order" in said[0]


def test_python_users_get_python_warnings_that_point_at_their_line() -> None:
    model, images, labels = problem()
    with pytest.warns(UserWarning, match="no better than guessing") as caught:
        brusle.evaluate(model.victim(), (images, (labels + 1) % 4), **SETUP)
    assert caught[0].filename == __file__
