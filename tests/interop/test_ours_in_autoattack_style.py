"""`brusle.AutoAttack` is called as AutoAttack is, and does what ``--standard`` does."""

import inspect

import pytest
import torch
from ours_in_theirs import (
    IMAGES,
    LABELS,
    TARGETS,
    TRUE,
    CountingNet,
    asked,
    assert_same,
    native,
)

import brusle
from brusle.attacks import BruSLe, Ensemble, Pointwise, SparseRS, standard

TWO = {"version": "custom", "attacks_to_run": ["brusle", "sparse-rs"], "queries": 30}


def adversary(net, **options) -> brusle.AutoAttack:
    return brusle.AutoAttack(net, **{"norm": "L0", "eps": 1, "verbose": False, **options})


def test_keywords_are_those_that_users_of_autoattack_type() -> None:
    def keywords(function) -> list[str]:
        return [name for name in inspect.signature(function).parameters if name != "self"]

    # of autoattack, in its order; ours has one more
    assert keywords(brusle.AutoAttack) == [
        "model", "norm", "eps", "seed", "verbose", "attacks_to_run", "version", "is_tf_model",
        "device", "log_path", "queries",
    ]  # fmt: skip
    run = ["x_orig", "y_orig", "bs", "return_labels"]
    assert keywords(brusle.AutoAttack.run_standard_evaluation) == [*run, "state_path"]
    assert keywords(brusle.AutoAttack.run_standard_evaluation_individual) == run


def test_standard_is_what_the_standard_ensemble_does() -> None:
    net = CountingNet()
    mine = adversary(net, queries=30, seed=4)
    assert mine.attacks_to_run == ["sigma-zero", "pgd0", "pixel-bandit", "brusle", "sparse-rs"]
    images, labels = mine.run_standard_evaluation(IMAGES, LABELS, bs=3, return_labels=True)
    ensemble = standard(brusle.victims.as_victim(CountingNet()), 1, 30)
    expected = ensemble(CountingNet(), IMAGES, LABELS, seed=4)
    assert_same(mine.result, expected)
    assert mine.result.found_by == expected.found_by
    assert net.seen == asked(expected)
    hits = expected.success
    assert hits.any() and not hits.all()
    assert torch.equal(images[hits], expected.images[hits])
    assert torch.equal(images[~hits], IMAGES[~hits])  # as AutoAttack has it
    assert torch.equal(net(images).argmax(1), labels)
    robust = (labels == LABELS).float().mean()
    assert mine.result.robust_accuracy == pytest.approx(float(robust))


def test_a_victim_meets_what_it_gives_cause_for() -> None:
    net = CountingNet()
    scores = brusle.victims.wrap(lambda x: net(x), output="logits")
    assert adversary(scores).attacks_to_run == ["pixel-bandit", "brusle", "sparse-rs"]
    label = brusle.defences.make("label", scores)
    assert adversary(label).attacks_to_run == ["sparse-evo", "pointwise"]
    mine = adversary(label, queries=100)
    mine.run_standard_evaluation(IMAGES, LABELS)
    assert net.seen == asked(mine.result)


def test_a_plain_function_returns_logits_with_a_graph() -> None:
    net = CountingNet()
    mine = adversary(lambda images: net(images), queries=20)
    mine.run_standard_evaluation(IMAGES, LABELS)
    assert mine.attacks_to_run[0] == "sigma-zero"
    other = adversary(CountingNet(), queries=20)
    other.run_standard_evaluation(IMAGES, LABELS)
    assert_same(mine.result, other.result)


def test_one_by_one() -> None:
    net = CountingNet()
    mine = adversary(net, **TWO)
    found = mine.run_standard_evaluation_individual(IMAGES, LABELS, bs=4)
    assert list(found) == list(mine.results) == ["brusle", "sparse-rs"]
    for name, attack in (("brusle", BruSLe(1, 30)), ("sparse-rs", SparseRS(1, 30))):
        expected = native(attack, False, LABELS)
        assert_same(mine.results[name], expected)
        assert torch.equal(found[name][expected.success], expected.images[expected.success])
        assert torch.equal(found[name][~expected.success], IMAGES[~expected.success])
    assert mine.result is mine.results["sparse-rs"]
    assert net.seen == sum(asked(result) for result in mine.results.values())
    pairs = mine.run_standard_evaluation_individual(IMAGES, LABELS, return_labels=True)
    assert torch.equal(net(pairs["brusle"][0]).argmax(1), pairs["brusle"][1])


def test_attacks_may_be_named_later_and_with_options() -> None:
    mine = adversary(CountingNet(), version="custom", queries=40)
    mine.attacks_to_run = ["brusle:palette=uniform", "pointwise"]
    mine.run_standard_evaluation(IMAGES, LABELS)
    parts = [BruSLe(1, 40, palette="uniform"), Pointwise(1, 40)]
    assert_same(mine.result, native(Ensemble(parts), False, LABELS))


def test_says_what_autoattack_says(capsys, tmp_path) -> None:
    log = tmp_path / "log.txt"
    mine = adversary(CountingNet(), **TWO, verbose=True, log_path=log)
    mine.run_standard_evaluation(IMAGES, LABELS)
    first = native(BruSLe(1, 30), False, LABELS).robust_accuracy
    last = mine.result.robust_accuracy
    assert 0 < last < first < 0.9
    queries = int(mine.result.ledger.total.sum())
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "using custom version including brusle, sparse-rs",
        "initial accuracy: 90.00%",
        f"robust accuracy after BRUSLE: {first:.2%}",
        f"robust accuracy after SPARSE-RS: {last:.2%}",
    ]
    assert lines[4].startswith(f"max L0 perturbation: 1 of 1 pixels, {queries} queries (total time")
    assert lines[5:] == [f"robust accuracy: {last:.2%}"]
    assert log.read_text().splitlines() == lines
    mine.run_standard_evaluation_individual(IMAGES, LABELS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["robust", "accuracy", "by", "BRUSLE"],
        ["robust", "accuracy", "by", "SPARSE-RS"],
    ]
    assert f"{first:.2%}" in lines[1]


def test_errors_are_in_no_figure(capsys) -> None:
    class Failing(CountingNet):
        def forward(self, images):
            bad = (images == IMAGES[2]).flatten(1).all(1)
            return super().forward(images).masked_fill(bad[:, None], torch.nan)

    mine = adversary(Failing(), **TWO, verbose=True)
    images, labels = mine.run_standard_evaluation(IMAGES, LABELS, return_labels=True)
    said = capsys.readouterr().out
    assert "initial accuracy: 88.89%" in said and "errors, in no figure: 1 of 10 images" in said
    assert labels[2] == -1 and torch.equal(images[2], IMAGES[2])


def test_silent_if_it_shall_be(capsys) -> None:
    adversary(CountingNet(), **TWO).run_standard_evaluation(IMAGES, LABELS)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"norm": "Linf"}, "norm is 'Linf': brusle changes few pixels"),
        ({"eps": 8 / 255}, "eps is 0.03137254901960784: here it counts pixels"),
        ({"eps": None}, "eps is None: here it counts pixels"),
        ({"version": "rand"}, "version is 'rand': choose 'standard' or 'custom'"),
        ({"is_tf_model": True}, "is_tf_model is for AutoAttack's own wrappers"),
        ({"attacks_to_run": ["brusle"]}, "attacks_to_run is for version='custom'"),
        ({"model": 3}, "int is no victim"),
    ],
)
def test_refuses_with_a_line(options, reason) -> None:
    with pytest.raises(brusle.InputError) as error:
        adversary(options.pop("model", CountingNet()), **options)
    assert reason in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([], "must be names of single attacks, at least one"),
        (["brusle?restarts=2"], "must be names of single attacks"),
        (["apgd-ce"], "unknown attack"),
    ],
)
def test_refuses_names_that_are_none(names, reason) -> None:
    mine = adversary(CountingNet(), version="custom", attacks_to_run=names)
    with pytest.raises(brusle.InputError, match=reason):
        mine.run_standard_evaluation(IMAGES, LABELS)


def test_refuses_a_state_file() -> None:
    with pytest.raises(brusle.InputError, match="out=FOLDER"):
        adversary(CountingNet()).run_standard_evaluation(IMAGES, LABELS, state_path="state.json")


@pytest.mark.parametrize("targeted", [False, True])
def test_attackbench_calls_by_keyword(targeted) -> None:
    net, attack = CountingNet(), BruSLe(4 if targeted else 1, 60)
    theirs = brusle.interop.attackbench(attack, seed=5)
    adversarial = theirs(
        model=net,
        inputs=IMAGES,
        labels=TRUE if targeted else LABELS,
        targeted=targeted,
        targets=TARGETS if targeted else None,
    )
    expected = native(attack, targeted, TRUE if targeted else LABELS, seed=5)
    assert_same(theirs.result, expected)
    assert torch.equal(adversarial, expected.images) and net.seen == asked(expected)


def test_attackbench_may_give_one_target_for_all() -> None:
    theirs = brusle.interop.attackbench(BruSLe(4, 60))
    adversarial = theirs(CountingNet(), IMAGES, TRUE, targets=int(TRUE[0]), targeted=True)
    there = TRUE[0] == TRUE
    assert [status == "skipped" for status in theirs.result.status] == there.tolist()
    assert torch.equal(adversarial[there], IMAGES[there]) and theirs.result.success.any()


@pytest.mark.parametrize(
    ("name", "package", "install"),
    [
        ("foolbox", "foolbox", 'pip install "brusle[foolbox]"'),
        ("art", "art", 'pip install "brusle[art]"'),
        ("torchattacks", "torchattacks", "pip install --no-deps torchattacks"),
    ],
)
def test_a_missing_package_is_named_with_what_brings_it(
    name, package, install, monkeypatch
) -> None:
    import sys

    for module in list(sys.modules):
        if module.partition(".")[0] == package or module.startswith(f"brusle.interop.{name}_"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    given = () if name == "foolbox" else (CountingNet(),)
    options = {"output": "logits"} if name == "art" else {}
    with pytest.raises(brusle.InputError) as error:
        getattr(brusle.interop, name)(BruSLe(4), *given, **options)
    assert str(error.value).endswith(install) and f"brusle.interop.{name}" in str(error.value)
