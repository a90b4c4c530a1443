"""Gradients through the oracle: the right ones, for the right rows, and honestly booked."""

from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brusle import defences
from brusle.answers import SEVERAL
from brusle.attacks.pgd0 import PGD0
from brusle.attacks.sigma_zero import SigmaZero
from brusle.errors import InputError, VictimError
from brusle.goals import Goal
from brusle.oracle import Oracle
from brusle.problems import Problems, flatten_pixels
from brusle.scores import Loss, Scores
from brusle.search import Feedback
from brusle.victims import wrap

N, SHAPE, CLASSES = 9, (3, 5, 4), 4
losses = pytest.mark.parametrize("loss", get_args(Loss))
goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


def make_net(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(), nn.Linear(36, CLASSES)
        )
        for _ in range(5):  # running statistics that are not the trivial ones
            net(torch.rand(16, *SHAPE))
    return net.eval()


def make_images(seed: int = 1) -> Tensor:
    return torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(seed))


def labels_and_targets(targeted: bool) -> tuple[Tensor, Tensor | None]:
    labels = torch.arange(N) % CLASSES
    return labels, (labels + 1 + torch.arange(N) % 3) % CLASSES if targeted else None


def loss_by_hand(logits: Tensor, label: int, target: int | None, loss: str) -> Tensor:
    """One image's loss, in plain terms."""
    aim = label if target is None else target
    values = logits.softmax(0) if loss == "margin" else logits
    others = torch.cat([values[:aim], values[aim + 1 :]]).max()
    towards = F.cross_entropy(logits[None], torch.tensor([aim]))
    if loss != "ce":
        towards = others - values[aim]
    return -towards if target is None else towards


def slope_of(labels: Tensor, targets: Tensor | None, loss: str):
    goal = Goal(targets is not None, loss)

    def of_rows(scores: Scores, rows: Tensor) -> Tensor:
        return goal.losses(scores, labels[rows], None if targets is None else targets[rows])

    return of_rows


def gradient_by_hand(net, images, labels, targets, loss) -> Tensor:
    rows = []
    for i in range(len(images)):
        leaf = images[i : i + 1].clone().requires_grad_()
        target = None if targets is None else int(targets[i])
        loss_by_hand(net(leaf)[0].double(), int(labels[i]), target, loss).backward()
        rows.append(leaf.grad)
    return torch.cat(rows)


@losses
@goals
@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_gradient_is_that_of_each_image_alone(loss, targeted, batch_size) -> None:
    net, images = make_net(), make_images()
    labels, targets = labels_and_targets(targeted)
    victim = wrap(net, output="logits")
    oracle = Oracle(victim, N, limit=3, batch_size=batch_size)
    turn = torch.tensor([8, 2, 5, 0, 7, 1])  # not all problems, and not in order
    answers = oracle.ask(turn, images[turn], "search", slope_of(labels, targets, loss))
    expected = gradient_by_hand(net, images, labels, targets, loss)[turn]
    assert answers.gradient.shape == (6, *SHAPE)
    assert float(expected.abs().amax((1, 2, 3)).min()) > 1e-4  # there is something to compare
    torch.testing.assert_close(answers.gradient, expected, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(answers.values, net(images[turn]).detach())
    assert not answers.values.requires_grad and not answers.gradient.requires_grad
    asked = torch.zeros(N, dtype=torch.int64)
    asked[turn] = 1
    assert torch.equal(oracle.ledger.backward, asked)
    assert torch.equal(oracle.ledger.search, asked)


@losses
@goals
def test_a_victim_of_probabilities_has_the_gradient_of_its_logits(loss, targeted) -> None:
    net, images = make_net(), make_images()
    labels, targets = labels_and_targets(targeted)
    victim = wrap(nn.Sequential(net, nn.Softmax(1)), output="probabilities")
    oracle = Oracle(victim, N, limit=3, batch_size=5)
    slope = slope_of(labels, targets, loss)
    answers = oracle.ask(torch.arange(N), images, "search", slope)
    expected = gradient_by_hand(net, images, labels, targets, loss)
    torch.testing.assert_close(answers.gradient, expected, rtol=1e-3, atol=1e-6)


@losses
@goals
def test_the_loop_hands_each_search_its_own_gradient(loss, targeted, monkeypatch) -> None:
    """From the loop's side: candidates leave and join the batch, layouts change."""
    net, images = make_net(), make_images()
    labels = net(images).argmax(1)
    targets = (labels + 1 + torch.arange(N) % 3) % CLASSES if targeted else None
    seen = []

    class Spying(type(PGD0(1).start(Problems.make(images, labels), 0, 0))):
        def tell(self, step: Tensor, feedback: Feedback) -> None:
            which = (self.original[:, None] == flatten_pixels(images)).flatten(2).sum(2).argmax(1)
            seen.extend(zip(which.tolist(), self.candidate.clone(), feedback.gradient, strict=True))
            super().tell(step, feedback)

    monkeypatch.setattr("brusle.attacks.pgd0._PGD0Search", Spying)
    PGD0(1, 6, loss=loss)(net, images, labels, targets, batch_size=4)
    assert {problem for problem, _, _ in seen} == set(range(N))
    for problem, candidate, gradient in seen:
        image = candidate.T.reshape(1, *SHAPE)
        aim = None if targets is None else targets[problem : problem + 1]
        expected = gradient_by_hand(net, image, labels[problem : problem + 1], aim, loss)
        torch.testing.assert_close(
            gradient.T.reshape(1, *SHAPE), expected, rtol=1e-3, atol=1e-6, check_stride=False
        )


class Cliff(torch.autograd.Function):
    """The identity, with an infinite slope where it is told."""

    @staticmethod
    def forward(ctx, x, where):
        ctx.save_for_backward(where)
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return slope.masked_fill(ctx.saved_tensors[0][:, None, None, None], torch.inf), None


class Faulty(nn.Module):
    """A net that does something odd to the images whose first value says so."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += len(x)
        mark = x[:, 0, 0, 0].detach()
        if bool((mark == 0.25).any()):
            raise RuntimeError("will not look at this")
        scores = self.net(Cliff.apply(x, mark == 0.75))
        return scores.masked_fill((mark == 0.5)[:, None], torch.nan)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 64])
def test_errors_and_bad_gradients_are_rows_of_their_own(batch_size) -> None:
    images = make_images()
    images[:, 0, 0, 0] = 0.9
    images[2, 0, 0, 0], images[4, 0, 0, 0], images[5, 0, 0, 0] = 0.25, 0.5, 0.75
    labels, _ = labels_and_targets(False)
    module = Faulty()
    victim = wrap(module, output="logits")
    oracle = Oracle(victim, N, limit=9, batch_size=batch_size)
    answers = oracle.ask(torch.arange(N), images, "search", slope_of(labels, None, "ce"))
    assert answers.errors == {
        2: "the victim raised RuntimeError: will not look at this",
        4: "the victim answered NaN or infinite scores",
        5: "the gradient of the victim is NaN or infinite",
    }
    good = torch.tensor([0, 1, 3, 6, 7, 8])
    expected = gradient_by_hand(module.net, images[good], labels[good], None, "ce")
    torch.testing.assert_close(answers.gradient[good], expected, rtol=1e-4, atol=1e-7)
    assert answers.values[good].isfinite().all()
    assert answers.values[[2, 4, 5]].isnan().all()
    counted = torch.zeros(N, dtype=torch.int64)
    counted[good] = 1
    assert torch.equal(oracle.ledger.search, counted)
    assert torch.equal(oracle.ledger.backward, counted)
    assert bool((oracle.ledger.lost[[2, 4, 5]] > 0).all())
    assert int(oracle.ledger.search.sum() + oracle.ledger.lost.sum()) == module.calls


@pytest.mark.parametrize("attack", [PGD0(1, 12), SigmaZero(1, 12)], ids=["pgd0", "sigma-zero"])
def test_an_infinite_gradient_is_an_error_row_and_the_rest_finish(attack) -> None:
    module, images = Faulty(), make_images()
    images[3, 0, 0, 0] = 0.75
    labels = module.net(images).argmax(1)
    result = attack(wrap(module, output="logits"), images, labels, batch_size=4)
    assert [i for i, s in enumerate(result.status) if s == "error"] == [3]
    assert result.errors[3] == "the gradient of the victim is NaN or infinite"
    assert torch.equal(result.ledger.backward, result.queries)


class Wavering(nn.Module):
    """Adds a slope that changes from call to call: 1, 2, 3, ... times a fixed direction."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.linspace(-1, 1, 60).view(1, -1)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        score = (x.flatten(1) * self.weight * self.calls).sum(1)
        return torch.stack([score, -score, score - 9], 1)


def test_eot_averages_gradients_and_books_every_draw() -> None:
    module, images = Wavering(), make_images()
    victim = wrap(module, output="logits", randomised=True)
    oracle = Oracle(victim, N, limit=8, batch_size=64, eot=4)
    labels = torch.zeros(N, dtype=torch.int64)

    def first_score(scores: Scores, rows: Tensor) -> Tensor:
        return scores.values[:, 0] * (rows + 1)

    answers = oracle.ask(torch.arange(N), images, "search", first_score)
    expected = torch.arange(1, N + 1)[:, None] * module.weight * (1 + 2 + 3 + 4) / 4
    torch.testing.assert_close(answers.gradient.flatten(1), expected)
    assert oracle.ledger.backward.tolist() == [4] * N
    assert oracle.ledger.search.tolist() == [4] * N
    result = PGD0(1, 9)(victim, images, labels, eot=4)
    assert set(result.queries.tolist()) <= {0, 4, 8}
    assert torch.equal(result.ledger.backward, result.queries)


@pytest.mark.parametrize("attack", [PGD0(2, 12), SigmaZero(2, 12)], ids=["pgd0", "sigma-zero"])
def test_victims_without_gradients_are_refused_before_any_query(attack) -> None:
    net, images, asked = make_net(), make_images(), []

    def scores(x: Tensor) -> Tensor:
        asked.append(len(x))
        return net(x)

    def numbers(x):
        asked.append(len(x))
        return net(torch.from_numpy(x)).detach().numpy()

    inner = wrap(scores, output="logits", differentiable=True)
    blind = [
        wrap(scores, output="logits", name="blind"),
        wrap(numbers, output="logits", arrays="numpy", name="blind"),
        defences.make("rnd:0.02", inner),
        defences.make("median:3", inner),
    ]
    for victim in blind:
        with pytest.raises(InputError, match="white-box attack and needs gradients, which") as said:
            attack(victim, images, torch.zeros(N, dtype=torch.int64))
        assert victim.name in str(said.value) and "brusle" in str(said.value)
    with pytest.raises(InputError, match="no gradient"):
        wrap(numbers, output="logits", arrays="numpy", differentiable=True)
    assert asked == []


def test_a_module_that_autograd_cannot_follow_is_an_error() -> None:
    class Rounding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.detach().flatten(1)[:, :CLASSES] * 3

    images = make_images()
    labels = images.flatten(1)[:, :CLASSES].argmax(1)
    few = SEVERAL - 1
    result = PGD0(1, 5)(Rounding(), images[:few], labels[:few])
    assert result.status == ["error"] * few
    assert "RuntimeError" in result.errors[0]
    assert int(result.ledger.backward.sum()) == 0
    assert result.queries.tolist() == [0] * few
    assert len(images) >= SEVERAL
    with pytest.raises(VictimError, match=f"none of {N} images was answered: .* RuntimeError"):
        PGD0(1, 5)(Rounding(), images, labels)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_do_not_depend_on_the_mode_of_the_caller(mode) -> None:
    net = make_net()
    for attack in (PGD0(1, 10), SigmaZero(1, 10)):
        results = []
        for around in (torch.enable_grad, mode):
            with around():
                images = make_images()
                labels = net(images).argmax(1)
                results.append(attack(net, images, labels))
        one, other = results
        assert one.status == other.status and "error" not in one.status
        assert torch.equal(one.images, other.images)
    assert all(p.grad is None for p in net.parameters())
