"""Our attacks in ART, the real package: same images, successes and queries as natively."""

import numpy as np
import pytest
import torch
from art.attacks.attack import EvasionAttack
from art.defences.postprocessor import Rounded
from art.defences.preprocessor import SpatialSmoothing
from art.estimators.classification import BlackBoxClassifier, PyTorchClassifier
from art.exceptions import EstimatorError
from art.utils import compute_accuracy, to_categorical
from ours_in_theirs import (
    CLASSES,
    IDS,
    IMAGES,
    LABELS,
    MATRIX,
    MEAN,
    SHAPE,
    STD,
    TARGETS,
    TRUE,
    CountingNet,
    asked,
    assert_same,
    native,
    starts_for,
)

import brusle
from brusle.attacks import BruSLe, PixelBandit, Pointwise, SigmaZero

pytestmark = pytest.mark.interop

X, Y = IMAGES.numpy(), LABELS.numpy()
ENDS = {"clip_values": (0.0, 1.0)}


def torch_classifier(net: CountingNet, **options) -> PyTorchClassifier:
    shape = (*SHAPE[1:], SHAPE[0]) if net.last else SHAPE
    options = {"channels_first": not net.last, "clip_values": (0, 1), **options}
    loss = torch.nn.CrossEntropyLoss()
    return PyTorchClassifier(net, loss, shape, CLASSES, device_type="cpu", **options)


def black_box(net: CountingNet, shape=SHAPE, **options) -> BlackBoxClassifier:
    def predict(x: np.ndarray) -> np.ndarray:
        return net(torch.tensor(x)).detach().numpy()

    return BlackBoxClassifier(predict, shape, CLASSES, **{**ENDS, **options})


def last(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 2, 3, 1)


@pytest.mark.parametrize(("attack", "targeted"), MATRIX, ids=IDS)
def test_does_what_the_native_call_does(attack, targeted) -> None:
    net = CountingNet()
    classifier = torch_classifier(net)
    theirs = brusle.interop.art(attack, classifier, output="logits", targeted=targeted, seed=5)
    assert isinstance(theirs, EvasionAttack) and theirs.targeted is targeted
    y, starts = (TARGETS.numpy() if targeted else Y), starts_for(attack, targeted)
    init = {} if starts is None else {"x_adv_init": starts.numpy()}
    adversarial = theirs.generate(X, to_categorical(y, CLASSES), **init)
    expected = native(attack, targeted, TRUE if targeted else LABELS, seed=5)
    assert_same(theirs.result, expected)
    assert net.seen == asked(expected)
    assert isinstance(adversarial, np.ndarray) and adversarial.dtype == np.float32
    assert np.array_equal(adversarial, expected.images.numpy())
    assert expected.success.any() and not expected.success.all()
    # what a user of ART looks at next
    said = classifier.predict(adversarial).argmax(1)
    reached = (said == y) if targeted else (said != Y)
    keeps = (expected.pixels <= attack.pixels).numpy()
    mine = (expected.success | ((LABELS != TRUE) & (not targeted))).numpy()
    assert np.array_equal(reached & keeps, mine)
    if keeps.all():
        accuracy, _ = compute_accuracy(classifier.predict(adversarial), to_categorical(y, CLASSES))
        assert accuracy == pytest.approx(reached.mean() if targeted else 1 - reached.mean())


@pytest.mark.parametrize("y", [Y, Y[:, None], to_categorical(Y, CLASSES), Y.astype(np.float32)])
def test_labels_are_numbers_or_one_hot(y) -> None:
    theirs = brusle.interop.art(BruSLe(1, 60), torch_classifier(CountingNet()), output="logits")
    theirs.generate(x=X, y=y)
    assert_same(theirs.result, native(BruSLe(1, 60), False, LABELS))


def test_without_labels_the_predictions_are_meant_and_asked_once() -> None:
    net = CountingNet()
    theirs = brusle.interop.art(BruSLe(1, 60), torch_classifier(net), output="logits")
    theirs.generate(X)
    assert_same(theirs.result, native(BruSLe(1, 60), False, TRUE))
    assert net.seen == asked(theirs.result)
    assert theirs.result.ledger.clean.tolist() == [1] * 10


@pytest.mark.parametrize("ends", [(0, 1), (0, 255), (-1, 1)])
@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("attack", [PixelBandit(1, 60), SigmaZero(1, 60)], ids=["black", "white"])
def test_ranges_orders_and_preprocessing_are_the_classifiers_own(attack, order, ends) -> None:
    low, high = ends
    net = CountingNet(low, high, last=order == "last", mean=(10.0,), std=(0.5,))
    classifier = torch_classifier(net, clip_values=ends, preprocessing=(10.0, 0.5))
    x = (last(X) if net.last else X) * np.float32(high - low) + np.float32(low)
    theirs = brusle.interop.art(attack, classifier, output="logits")
    adversarial = theirs.generate(x, Y)
    expected = native(attack, False, LABELS)
    assert_same(theirs.result, expected)
    assert net.seen == asked(expected)
    changed = (expected.images != IMAGES).numpy()
    changed = last(changed) if net.last else changed
    assert adversarial.shape == x.shape and np.array_equal(adversarial != x, changed)
    found = last(expected.images.numpy()) if net.last else expected.images.numpy()
    assert np.allclose((adversarial - low) / (high - low), found, atol=1e-6)
    fooled = classifier.predict(adversarial).argmax(1) != Y
    few = (expected.pixels <= attack.pixels).numpy()
    assert np.array_equal(fooled & few, (expected.success | (LABELS != TRUE)).numpy())


def test_preprocessing_per_channel() -> None:
    net = CountingNet(mean=MEAN, std=STD)
    mean, std = (np.array(v, dtype=np.float32)[:, None, None] for v in (MEAN, STD))
    classifier = torch_classifier(net, preprocessing=(mean, std))
    theirs = brusle.interop.art(SigmaZero(1, 60), classifier, output="logits")
    theirs.generate(X, Y)
    assert_same(theirs.result, native(SigmaZero(1, 60), False, LABELS))


def test_defences_of_the_classifier_are_asked_and_have_no_gradient() -> None:
    net = CountingNet()
    classifier = torch_classifier(net, postprocessing_defences=Rounded(decimals=1))
    theirs = brusle.interop.art(BruSLe(1, 30), classifier, output="logits")
    theirs.generate(X, Y)
    assert torch.equal(
        theirs.result.scores.float(), (theirs.result.scores * 10).round().float() / 10
    )
    assert net.seen == asked(theirs.result)
    smooth = SpatialSmoothing(window_size=3, channels_first=True)
    for options in (
        {"postprocessing_defences": Rounded(decimals=1)},
        {"preprocessing_defences": smooth},
    ):
        classifier = torch_classifier(net, **options)
        theirs = brusle.interop.art(SigmaZero(1, 30), classifier, output="logits")
        with pytest.raises(brusle.InputError, match="is a white-box attack and needs gradients"):
            theirs.generate(X, Y)


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_black_box_shows_its_order_and_is_asked_through_predict(order) -> None:
    net = CountingNet(last=order == "last")
    shape = (8, 8, 3) if net.last else SHAPE
    classifier = black_box(net, shape)
    batches = []
    predict = classifier.predict

    def counting(x, **options):
        batches.append(len(x))
        return predict(x, **options)

    classifier.predict = counting
    attack = brusle.interop.art(PixelBandit(1, 60), classifier, output="logits", batch_size=1)
    adversarial = attack.generate(last(X) if net.last else X, Y)
    expected = native(PixelBandit(1, 60), False, LABELS)
    assert_same(attack.result, expected)
    assert adversarial.shape == (10, *shape)
    assert set(batches) == {1} and len(batches) == net.seen == asked(expected)


def test_probabilities_are_declared() -> None:
    net = CountingNet()

    def predict(x):
        return net(torch.tensor(x)).softmax(1).detach().numpy()

    classifier = BlackBoxClassifier(predict, SHAPE, CLASSES, **ENDS)
    theirs = brusle.interop.art(BruSLe(1, 60), classifier, output="probabilities")
    theirs.generate(X, Y)
    same = brusle.victims.wrap(predict, output="probabilities", arrays="numpy")
    assert_same(theirs.result, BruSLe(1, 60)(same, IMAGES, LABELS))
    wrong = brusle.interop.art(BruSLe(1, 60), classifier, output="logits")
    with pytest.raises(brusle.VictimError, match="declared to give logits"):
        wrong.generate(X, Y)
    with pytest.raises(TypeError, match="output"):
        brusle.interop.art(BruSLe(1, 60), classifier)
    with pytest.raises(brusle.InputError, match="is a white-box attack and needs gradients"):
        brusle.interop.art(SigmaZero(1), classifier, output="probabilities").generate(X, Y)


def test_an_order_that_does_not_show_is_asked_for() -> None:
    for shape in [(3, 8, 3), (8, 8, 8), (192,)]:
        with pytest.raises(brusle.InputError, match="give channels_first=True or False"):
            brusle.interop.art(BruSLe(1), black_box(CountingNet(), shape), output="logits")
    wide = torch.zeros(2, 3, 8, 3)
    wide[1] = 1

    def predict(x):
        total = x.reshape(len(x), -1).sum(1, keepdims=True)
        return np.concatenate([total, 36 - total], axis=1)

    for first in (True, False):
        classifier = BlackBoxClassifier(predict, (3, 8, 3), 2, **ENDS)
        theirs = brusle.interop.art(BruSLe(1, 5), classifier, output="logits", channels_first=first)
        theirs.generate(wide, np.array([1, 0]))
        assert theirs.result.problems.shape == ((3, 8, 3) if first else (3, 3, 8))
    with pytest.raises(brusle.InputError, match="but the classifier says True"):
        brusle.interop.art(
            BruSLe(1), torch_classifier(CountingNet()), output="logits", channels_first=False
        )


def test_parameters_are_set_and_shown_as_in_art() -> None:
    theirs = brusle.interop.art(BruSLe(4, 60), torch_classifier(CountingNet()), output="logits")
    theirs.set_params(targeted=True, seed=7)
    theirs.generate(X, TARGETS.numpy())
    assert_same(theirs.result, native(BruSLe(4, 60), True, seed=7))
    theirs.set_params(targeted=False, attack=PixelBandit(1, 60), seed=0)
    theirs.generate(X, Y)
    assert_same(theirs.result, native(PixelBandit(1, 60), False, LABELS))
    assert repr(theirs).startswith("ArtAttack(attack=PixelBandit(pixels=1, queries=60")
    assert "seed=0" in repr(theirs)
    for wrong in ({"targeted": 1}, {"channels_first": "yes"}, {"attack": "brusle"}):
        with pytest.raises(brusle.InputError):
            theirs.set_params(**wrong)
        theirs.set_params(targeted=False, channels_first=None, attack=BruSLe(4, 60))
    with pytest.raises(ValueError, match='"eps" cannot be set'):
        theirs.set_params(eps=0.1)


def test_only_classifiers() -> None:
    with pytest.raises(EstimatorError):
        brusle.interop.art(BruSLe(4), CountingNet(), output="logits")
    with pytest.raises(brusle.InputError, match="is no attack of brusle"):
        brusle.interop.art(EvasionAttack, torch_classifier(CountingNet()), output="logits")


def test_targets_that_are_predicted_already_are_left_alone() -> None:
    net, targets = CountingNet(), TARGETS.clone()
    targets[4] = TRUE[4]
    theirs = brusle.interop.art(
        BruSLe(4, 60), torch_classifier(net), output="logits", targeted=True
    )
    adversarial = theirs.generate(X, targets.numpy())
    assert theirs.result.status[4] == "skipped" and np.array_equal(adversarial[4], X[4])
    rest = [i for i in range(10) if i != 4]
    expected = native(BruSLe(4, 60), True)
    assert torch.equal(theirs.result.success[rest], expected.success[rest])
    assert torch.equal(theirs.result.queries[rest], expected.queries[rest])
    assert net.seen == asked(theirs.result)


def test_bytes_are_taken_as_arts_own_attacks_take_them() -> None:
    classifier = torch_classifier(CountingNet(0, 255), clip_values=(0, 255))
    theirs = brusle.interop.art(BruSLe(1, 60), classifier, output="logits")
    adversarial = theirs.generate((X * 255).round().astype(np.uint8), Y)
    assert adversarial.dtype == np.float32 and adversarial.max() > 1
    assert_same(theirs.result, native(BruSLe(1, 60), False, LABELS))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"y": None}, "a targeted attack needs y"),
        ({"y": np.full((10, CLASSES), 0.25)}, "y has rows that are not one-hot"),
        ({"y": TARGETS.numpy() + 0.5}, "labels have dtype torch.float"),
        ({"y": TARGETS.numpy()[:4]}, "labels have shape (4,)"),
        ({"y": TARGETS.numpy() + CLASSES}, "out of range: the victim has 4 classes"),
        ({"x": X * 3}, "images reach from 0 to 3, but are declared to lie in [0, 1]"),
        ({"x": X[0]}, "images have shape"),
        ({"mask": None}, "mask is unknown to attacks of brusle"),
    ],
)
def test_refuses_with_a_line(change, reason) -> None:
    theirs = brusle.interop.art(
        BruSLe(4, 60), torch_classifier(CountingNet()), output="logits", targeted=True
    )
    with pytest.raises(brusle.InputError) as error:
        theirs.generate(**{"x": X, "y": TARGETS.numpy(), **change})
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_a_targeted_walk_needs_starts_and_costs_nothing_without() -> None:
    net = CountingNet()
    theirs = brusle.interop.art(
        Pointwise(4, 60), torch_classifier(net), output="logits", targeted=True
    )
    with pytest.raises(brusle.InputError, match="starts at an image of the target class"):
        theirs.generate(X, TARGETS.numpy())
    assert net.seen == 0


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (None, "has no clip_values"),
        ((np.zeros(SHAPE), np.arange(192).reshape(SHAPE) + 1), "clip_values differ"),
    ],
)
def test_a_range_must_be_known(ends, reason) -> None:
    classifier = torch_classifier(CountingNet(), clip_values=ends)
    with pytest.raises(brusle.InputError, match=reason):
        brusle.interop.art(BruSLe(4), classifier, output="logits")


def test_equal_ends_for_all_values_are_one_range() -> None:
    ends = (np.zeros(SHAPE), np.ones(SHAPE))
    classifier = torch_classifier(CountingNet(), clip_values=ends)
    theirs = brusle.interop.art(BruSLe(1, 60), classifier, output="logits")
    theirs.generate(X, Y)
    assert_same(theirs.result, native(BruSLe(1, 60), False, LABELS))
