"""Merging normalisations must change nothing but the time."""

import copy

import pytest
import torch
from torch import nn

import brusle
from brusle.victims import TorchVictim
from brusle.victims.fusion import Fused


def trained(*layers: nn.Module) -> nn.Sequential:
    """Layers whose batch normalisations have statistics of their own."""
    torch.manual_seed(0)
    net = nn.Sequential(*layers)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.2, 3)
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return net.eval()


def small() -> nn.Sequential:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return trained(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *head)


IMAGES = torch.rand(16, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def normalisations(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


@pytest.mark.parametrize("name", brusle.zoo.names())
def test_zoo_models_answer_as_before(name) -> None:
    images = brusle.data.load("sample").images
    victim = brusle.load_victim(f"zoo:{name}", "cpu")
    with torch.inference_mode():
        expected = brusle.zoo.load(name)(images)
    scores = victim(images)
    assert torch.equal(scores.argmax(1), expected.argmax(1))
    assert (scores - expected).abs().max() < 1e-4


def test_all_normalisations_of_a_residual_net_are_merged_and_the_original_is_kept() -> None:
    net = brusle.zoo.load("cifar10-resnet20")
    before = copy.deepcopy(net.state_dict())
    twin = Fused(net).quick
    assert normalisations(net) == 21 and normalisations(twin) == 0
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_new_weights_are_noticed() -> None:
    net = small()
    victim = TorchVictim(net)
    victim(IMAGES)
    with torch.no_grad():
        net[0].weight.mul_(-2)
        net[1].running_mean.add_(1)
    with torch.inference_mode():
        assert torch.allclose(victim(IMAGES), net(IMAGES), atol=1e-5)


def test_a_convolution_that_others_read_is_left_alone() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = trained(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))

        def forward(self, x):
            x = self.conv(x)
            return (self.bn(x) + x).mean((2, 3))

    net = Shared().eval()
    assert normalisations(Fused(net).quick) == 1
    with torch.inference_mode():
        assert torch.equal(Fused(net).quick(IMAGES), net(IMAGES))


class Stateful(nn.Module):
    """Its answer depends on a counter, and it can be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.calls = small(), 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * self.calls


def test_a_module_with_a_state_runs_itself_and_is_not_called_before_the_first_query() -> None:
    net = Stateful().eval()
    victim = TorchVictim(net)
    first, second = victim(IMAGES), victim(IMAGES)
    assert net.calls == 2
    assert torch.equal(2 * first, second)


def test_a_module_with_hooks_runs_itself() -> None:
    net, seen = small(), []
    net[1].register_forward_hook(lambda *_: seen.append(1))
    TorchVictim(net)(IMAGES)
    assert seen == [1]


def test_a_random_forward_pass_stays_random() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, x):
            return self.net(x) + torch.randn(4)

    victim = TorchVictim(Noisy())
    assert not torch.equal(victim(IMAGES), victim(IMAGES))


def test_control_flow_that_cannot_be_traced_still_runs() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, x):
            return self.net(x) if x.mean() > 0 else self.net(1 - x)

    net = Branching().eval()
    images = (-IMAGES).contiguous(memory_format=torch.channels_last)  # as the victim gives them
    with torch.inference_mode():
        assert torch.equal(TorchVictim(net)(-IMAGES), net(images))
