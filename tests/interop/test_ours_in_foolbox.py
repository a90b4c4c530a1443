"""Our attacks in Foolbox, the real package: same images, successes and queries as natively."""

import eagerpy as ep
import foolbox
import numpy as np
import pytest
import torch
from ours_in_theirs import (
    CLASSES,
    IDS,
    IMAGES,
    LABELS,
    MATRIX,
    MEAN,
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
from brusle.attacks import (
    BruSLe,
    Ensemble,
    Minimal,
    PixelBandit,
    Pointwise,
    Restarts,
    SigmaZero,
    SparseRS,
)
from brusle.interop.foolbox_attack import FoolboxAttack

pytestmark = pytest.mark.interop

Targeted = foolbox.criteria.TargetedMisclassification


def model_of(net: CountingNet, **options) -> foolbox.PyTorchModel:
    return foolbox.PyTorchModel(net.eval(), bounds=(0, 1), device="cpu", **options)


@pytest.mark.parametrize(("attack", "targeted"), MATRIX, ids=IDS)
def test_does_what_the_native_call_does(attack, targeted) -> None:
    net = CountingNet()
    criterion = Targeted(TARGETS) if targeted else LABELS
    theirs = brusle.interop.foolbox(attack, seed=5)
    assert isinstance(theirs, foolbox.Attack)
    raw, clipped, success = theirs(
        model_of(net),
        IMAGES,
        criterion,
        epsilons=None,
        starting_points=starts_for(attack, targeted),
    )
    expected = native(attack, targeted, TRUE if targeted else LABELS, seed=5)
    assert_same(theirs.result, expected)
    assert net.seen == asked(expected)
    assert torch.equal(raw, expected.images)
    # the image that the model gets wrong anyway is adversarial as it is
    assert torch.equal(success, expected.success | (LABELS != TRUE) * (not targeted))
    few = expected.pixels <= attack.pixels
    assert torch.equal(clipped[few], raw[few]) and torch.equal(clipped[~few], IMAGES[~few])
    # what a user of Foolbox looks at next
    adversarial = criterion if targeted else foolbox.criteria.Misclassification(LABELS)
    assert torch.equal(adversarial(clipped, model_of(net)(clipped)), success)
    if not targeted:
        left = foolbox.accuracy(model_of(net), clipped, LABELS)
        assert left == pytest.approx(1 - success.float().mean().item())
    values = foolbox.distances.l0(IMAGES, clipped)
    pixels = (clipped != IMAGES).any(1).flatten(1).sum(1)
    assert (values <= 3 * pixels).all() and (pixels <= attack.pixels).all()
    assert success.any() and not success.all()


@pytest.mark.parametrize("bounds", [(0, 1), (0, 255), (-1, 1), (-2.5, 7)])
@pytest.mark.parametrize("attack", [BruSLe(4, 60), SigmaZero(4, 60)], ids=["BruSLe", "SigmaZero"])
def test_bounds_and_preprocessing_are_the_models_own(attack, bounds) -> None:
    net = CountingNet(mean=MEAN, std=STD)
    model = model_of(net, preprocessing={"mean": MEAN, "std": STD, "axis": -3})
    model = model.transform_bounds(bounds)
    low, high = bounds
    inputs = IMAGES * (high - low) + low
    theirs = brusle.interop.foolbox(attack)
    raw, clipped, success = theirs(model, inputs, LABELS, epsilons=attack.pixels)
    expected = native(attack, False, LABELS)
    assert_same(theirs.result, expected)
    assert net.seen == asked(expected)
    assert torch.allclose((raw - low) / (high - low), expected.images, atol=1e-6)
    # values that the attack left alone are the caller's own
    changed = expected.images != IMAGES
    assert torch.equal(raw[~changed], inputs[~changed])
    assert torch.equal(foolbox.distances.l0(inputs, raw), changed.flatten(1).sum(1).float())
    assert torch.equal(model(clipped).argmax(1) != LABELS, success)
    if bounds == (0, 255):
        assert torch.equal(raw, raw.round())


def test_wrappers_of_foolbox_are_asked_through_their_own_call() -> None:
    net = CountingNet()
    model = foolbox.models.ExpectationOverTransformationWrapper(model_of(net), n_steps=3)
    theirs = brusle.interop.foolbox(BruSLe(4, 60), data_format="channels_first")
    theirs(model, IMAGES, LABELS, epsilons=4)
    assert_same(theirs.result, native(BruSLe(4, 60), False, LABELS))
    assert net.seen == 3 * asked(theirs.result)
    with pytest.raises(brusle.InputError, match="does not say where its channels are"):
        brusle.interop.foolbox(BruSLe(4, 60))(model, IMAGES, LABELS, epsilons=4)


def test_every_epsilon_is_a_budget_of_pixels() -> None:
    net = CountingNet()
    theirs = brusle.interop.foolbox(BruSLe(4, 60))
    raw, clipped, success = theirs(model_of(net), IMAGES, LABELS, epsilons=[1, None, 6.0, 1])
    assert isinstance(raw, list) and isinstance(clipped, list) and success.shape == (4, 10)
    for at, pixels in enumerate([1, 4, 6, 1]):
        expected = native(BruSLe(pixels, 60), False, LABELS)
        assert_same(theirs.results[at], expected)
        assert torch.equal(raw[at], expected.images) and torch.equal(clipped[at], raw[at])
    assert theirs.result is theirs.results[-1] is theirs.results[0]  # and is not run twice
    assert net.seen == sum(asked(result) for result in theirs.results[:3])
    # as Foolbox's own attacks return them
    own = foolbox.attacks.LinfAdditiveUniformNoiseAttack()
    for epsilons in (0.1, [0.1], [0.1, 0.2]):
        ours = np.ceil(epsilons) if isinstance(epsilons, float) else np.ceil(epsilons).tolist()
        one = own(model_of(net), IMAGES, LABELS, epsilons=epsilons)
        two = theirs(model_of(net), IMAGES, LABELS, epsilons=ours)
        for a, b in zip(one, two, strict=True):
            assert type(a) is type(b) and len(a) == len(b)
            if isinstance(a, torch.Tensor):
                assert a.shape == b.shape and a.dtype == b.dtype and a.device == b.device


def test_combined_attacks_take_the_budget_of_the_epsilon() -> None:
    parts = [BruSLe(4, 30), SparseRS(4, 30)]
    for attack, other in (
        (Restarts(BruSLe(4, 30), 2), Restarts(BruSLe(2, 30), 2)),
        (Ensemble(parts), Ensemble([BruSLe(2, 30), SparseRS(2, 30)])),
    ):
        theirs = brusle.interop.foolbox(attack)
        theirs(model_of(CountingNet()), IMAGES, LABELS, epsilons=2)
        assert_same(theirs.result, native(other, False, LABELS))


def test_a_search_for_the_fewest_pixels_runs_once_for_all_epsilons() -> None:
    net, attack = CountingNet(), Minimal(BruSLe(6, 40), 200)
    theirs = brusle.interop.foolbox(attack)
    raw, clipped, success = theirs(model_of(net), IMAGES, LABELS, epsilons=[1, 3, None])
    expected = native(attack, False, LABELS)
    assert_same(theirs.result, expected)
    assert net.seen == asked(expected)
    for at, pixels in enumerate([1, 3, 6]):
        assert torch.equal(raw[at], expected.images)
        few = expected.success & (expected.pixels <= pixels)
        assert torch.equal(success[at], few | (LABELS != TRUE))
        assert torch.equal(model_of(net)(clipped[at]).argmax(1) != LABELS, success[at])
    assert 0 < success[0].sum() < success[2].sum()
    with pytest.raises(brusle.InputError, match="looks for 6 pixels at most"):
        theirs(model_of(net), IMAGES, LABELS, epsilons=7)


def test_eagerpy_in_and_out() -> None:
    theirs = brusle.interop.foolbox(BruSLe(4, 60))
    inputs, labels = ep.astensors(IMAGES, LABELS)
    found = theirs(model_of(CountingNet()), inputs, labels, epsilons=4)
    plain = theirs(model_of(CountingNet()), IMAGES, LABELS, epsilons=4)
    for a, b in zip(found, plain, strict=True):
        assert isinstance(a, ep.PyTorchTensor) and torch.equal(a.raw, b)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_numpy_models_in_both_orders_of_channels(last) -> None:
    net = CountingNet(last=last)

    def forward(x: np.ndarray) -> np.ndarray:
        return net(torch.tensor(x)).detach().numpy()

    order = "channels_last" if last else "channels_first"
    model = foolbox.NumPyModel(forward, bounds=(0, 1), data_format=order)
    inputs = (IMAGES.permute(0, 2, 3, 1) if last else IMAGES).numpy()
    theirs = brusle.interop.foolbox(BruSLe(4, 60))
    raw, _, success = theirs(model, inputs, LABELS.numpy(), epsilons=[4])
    assert_same(theirs.result, native(BruSLe(4, 60), False, LABELS))
    assert net.seen == asked(theirs.result)
    assert isinstance(raw[0], np.ndarray) and raw[0].dtype == np.float32
    assert success.shape == (1, 10) and success.dtype == bool
    assert np.array_equal(model(raw[0]).argmax(1) != LABELS.numpy(), success[0])
    assert raw[0].shape == inputs.shape
    with pytest.raises(brusle.InputError, match="is a white-box attack and needs gradients"):
        brusle.interop.foolbox(SigmaZero(4, 60))(model, inputs, LABELS.numpy(), epsilons=4)


def test_float64_stays_float64() -> None:
    theirs = brusle.interop.foolbox(PixelBandit(4, 60))
    raw, _, _ = theirs(model_of(CountingNet()), IMAGES.double(), LABELS, epsilons=4)
    assert raw.dtype == torch.float64
    assert_same(theirs.result, native(PixelBandit(4, 60), False, LABELS))
    assert torch.equal(raw, theirs.result.images.double())


def test_images_that_are_their_target_already_are_successes_and_not_attacked() -> None:
    targets = TARGETS.clone()
    targets[[0, 7]] = TRUE[[0, 7]]
    net = CountingNet()
    theirs = brusle.interop.foolbox(BruSLe(4, 60))
    raw, _, success = theirs(model_of(net), IMAGES, Targeted(targets), epsilons=4)
    expected = native(BruSLe(4, 60), True)
    for at in range(10):
        if at in (0, 7):
            assert success[at] and torch.equal(raw[at], IMAGES[at])
            assert theirs.result.status[at] == "skipped" and theirs.result.queries[at] == 0
        else:
            assert success[at] == expected.success[at]
            assert torch.equal(raw[at], expected.images[at])
    assert net.seen == asked(theirs.result)


def test_an_error_is_no_success_and_is_counted() -> None:
    class Failing(CountingNet):
        def forward(self, images):
            scores = super().forward(images)
            bad = (images == IMAGES[2]).flatten(1).all(1)
            return scores.masked_fill(bad[:, None], torch.nan)

    for criterion in (LABELS, Targeted(TARGETS)):
        net = Failing()
        theirs = brusle.interop.foolbox(BruSLe(4, 60))
        _, _, success = theirs(model_of(net), IMAGES, criterion, epsilons=4)
        assert theirs.result.status[2] == "error" and not success[2]
        assert net.seen == asked(theirs.result)


def test_repeat_means_other_random_numbers() -> None:
    theirs = brusle.interop.foolbox(BruSLe(4, 20), seed=3).repeat(3)
    assert isinstance(theirs, FoolboxAttack)
    theirs(model_of(CountingNet()), IMAGES, LABELS, epsilons=4)
    assert_same(theirs.result, native(Restarts(BruSLe(4, 20), 3), False, LABELS, seed=3))
    with pytest.raises(brusle.InputError, match="is several searches already"):
        theirs.repeat(2)


def test_the_gradient_of_the_caller_is_left_alone() -> None:
    inputs = IMAGES.clone().requires_grad_()
    raw, _, _ = brusle.interop.foolbox(SigmaZero(4, 60))(
        model_of(CountingNet()), inputs, LABELS, epsilons=4
    )
    assert inputs.grad is None and not raw.requires_grad


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epsilons": 0.03}, "epsilon is 0.03: here it counts pixels"),
        ({"epsilons": [1, 0]}, "epsilon is 0: here it counts pixels"),
        ({"epsilons": float("inf")}, "epsilon is inf: here it counts pixels"),
        ({"epsilons": "5"}, "epsilon is 5: here it counts pixels"),
        ({"epsilons": []}, "epsilons are empty"),
        ({"epsilons": 65}, "pixels is 65, but an image of 8 x 8 has 64"),
        ({"model": CountingNet()}, "CountingNet is no Foolbox model: give one"),
        (
            {"criterion": Targeted(TARGETS) & Targeted(TARGETS)},
            "the criterion _And is none that brusle knows",
        ),
        ({"criterion": LABELS.float()}, "labels have dtype torch.float32"),
        ({"criterion": LABELS[:3]}, "labels have shape"),
        ({"inputs": IMAGES * 2}, "images reach from 0 to 2, but are declared to lie in"),
        ({"inputs": IMAGES[0]}, "images have shape"),
        ({"inputs": (IMAGES * 255).byte()}, "images have dtype torch.uint8"),
        ({"mc": 3}, "mc is unknown to attacks of brusle"),
        ({"criterion": Targeted(TARGETS + CLASSES)}, "out of range: the victim has 4 classes"),
    ],
)
def test_refuses_with_a_line(change, reason) -> None:
    given = {"model": model_of(CountingNet()), "inputs": IMAGES, "criterion": LABELS}
    with pytest.raises(brusle.InputError) as error:
        brusle.interop.foolbox(BruSLe(4, 60))(**{**given, "epsilons": 4, **change})
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_refuses_what_is_no_attack_and_what_is_no_order() -> None:
    with pytest.raises(brusle.InputError, match="is no attack of brusle: give one"):
        brusle.interop.foolbox("brusle")
    with pytest.raises(brusle.InputError, match="choose from channels_first, channels_last"):
        brusle.interop.foolbox(BruSLe(4), data_format="nchw")


def test_what_cannot_be_run_costs_nothing() -> None:
    net = CountingNet()
    with pytest.raises(brusle.InputError, match="starts at an image of the target class"):
        brusle.interop.foolbox(Pointwise(4))(model_of(net), IMAGES, Targeted(TARGETS), epsilons=4)
    assert net.seen == 0


def test_a_model_of_probabilities_must_be_declared() -> None:
    class Soft(CountingNet):
        def forward(self, images):
            return super().forward(images).softmax(1)

    with pytest.raises(brusle.VictimError, match="declared to give logits"):
        brusle.interop.foolbox(BruSLe(4, 60))(model_of(Soft()), IMAGES, LABELS, epsilons=4)
    theirs = brusle.interop.foolbox(BruSLe(4, 60), output="probabilities")
    theirs(model_of(Soft()), IMAGES, LABELS, epsilons=4)
    assert theirs.result.success.any()


def test_it_says_what_it_is() -> None:
    theirs = brusle.interop.foolbox(BruSLe(4, 60))
    assert repr(theirs).startswith("FoolboxAttack(BruSLe(pixels=4, queries=60")
    assert theirs.result is None
