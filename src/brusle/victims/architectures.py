"""Nets whose weights come from the user's own file, under the names that such files use.

ResNet-50 and ViT-B/16 are torchvision's own. The others are in no package that can be installed, so
they are written out, with the names of layers of the code bases that the files come from: the
widely used CIFAR ResNet-18 with a 3x3 stem, and the ResNet-9 of blocks ``conv1`` to ``conv4`` with
``res1`` and ``res2``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from brusle import zoo
from brusle.data.cifar10 import CLASSES as CIFAR10
from brusle.packages import need
from brusle.victims.options import IMAGENET, Normalisation
from brusle.zoo.resnet import CIFAR10_MEAN, BasicBlock

STL10 = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")


class CifarResNet18(nn.Module):
    """ResNet-18 with a 3x3 stem and no pooling before the first stage, for small images."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.linear = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


class ResNet9(nn.Module):
    """Four convolutions, each with pooling, and two residual pairs in between.

    At 96 x 96 the four leave 48, 24, 12 and 6. Many copies of this net do not pool after the first
    one; their weights have the same names and shapes, but mean another net. The last features are
    pooled to one by their maximum whatever the image size, which is what ``MaxPool2d(6)`` in front
    of the classifier does at 96 x 96.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = _convolution(3, 64, pool=True)
        self.conv2 = _convolution(64, 128, pool=True)
        self.res1 = nn.Sequential(_convolution(128, 128), _convolution(128, 128))
        self.conv3 = _convolution(128, 256, pool=True)
        self.conv4 = _convolution(256, 512, pool=True)
        self.res2 = nn.Sequential(_convolution(512, 512), _convolution(512, 512))
        self.classifier = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x))
        x = self.conv4(self.conv3(self.res1(x) + x))
        logits: Tensor = self.classifier((self.res2(x) + x).amax(dim=(2, 3)))
        return logits


@dataclass(frozen=True)
class Architecture:
    """A net and what is known of the checkpoints for it.

    Attributes:
        build: makes an untrained net with a number of classes.
        size: height and width of its images.
        head: the weight whose rows are the classes.
        normalisation: what it usually wants; None if the net does it itself.
        labels: names of the classes, where their number tells.
        rename: from other names of layers to those of the net.
    """

    build: Callable[[int], nn.Module]
    size: int
    head: str
    normalisation: Normalisation | None
    labels: tuple[str, ...] = ()
    rename: Callable[[str], str] = str


def _without_number(name: str) -> str:
    """``classifier.3.weight`` as ``classifier.weight``: with and without dropout in front."""
    return re.sub(r"^classifier\.\d+\.", "classifier.", name)


def _new_mlp(name: str) -> str:
    """``mlp.linear_1`` and ``mlp.linear_2``, torchvision's names before 0.13, as of today."""
    return name.replace("mlp.linear_1.", "mlp.0.").replace("mlp.linear_2.", "mlp.3.")


def _convolution(channels_in: int, channels_out: int, pool: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(channels_in, channels_out, 3, padding=1),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


def _torchvisions(name: str) -> Callable[[int], nn.Module]:
    """A net of torchvision, which is imported when one is built."""

    def build(classes: int) -> nn.Module:
        models = need("torchvision.models", f"torchvision's {name}")
        net: nn.Module = models.get_model(name, weights=None, num_classes=classes)
        return net

    return build


# What the checkpoints of the BruSLe paper were trained with. These deviations are the mean of each
# image's own, and not those of all pixels (0.2470 0.2435 0.2616 and 0.2603 0.2566 0.2713).
_CIFAR10_NORMALISATION = Normalisation(CIFAR10_MEAN, (0.2023, 0.1994, 0.2010))
_STL10_NORMALISATION = Normalisation((0.4467, 0.4398, 0.4066), (0.2241, 0.2215, 0.2239))
_RESNET50 = Architecture(_torchvisions("resnet50"), 224, "fc.weight", IMAGENET)

ARCHITECTURES = {
    "resnet18-cifar": Architecture(
        CifarResNet18, 32, "linear.weight", _CIFAR10_NORMALISATION, CIFAR10
    ),
    "resnet9-stl": Architecture(
        ResNet9, 96, "classifier.weight", _STL10_NORMALISATION, STL10, _without_number
    ),
    "resnet50": _RESNET50,
    "resnet50-sin": _RESNET50,  # trained on Stylized-ImageNet: the same net
    "vit-b-16": Architecture(
        _torchvisions("vit_b_16"), 224, "heads.head.weight", IMAGENET, rename=_new_mlp
    ),
    "resnet20": Architecture(partial(zoo.build, "resnet20"), 32, "head.weight", None, CIFAR10),
    "vit": Architecture(partial(zoo.build, "vit"), 32, "head.weight", None, CIFAR10),
}
