"""The nets for checkpoints against the code bases whose names they use."""

from types import ModuleType

import pytest
import torch
from conftest import randomise
from torch import Tensor, nn

import brusle
from brusle.victims.architectures import ARCHITECTURES, CifarResNet18, ResNet9, VisionTransformer


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize(
    ("arch", "name"),
    [("resnet50", "resnet50"), ("resnet50-sin", "resnet50"), ("vit-b-16", "vit_b_16")],
)
def test_names_and_shapes_are_torchvisions(torchvision: ModuleType, arch: str, name: str) -> None:
    with torch.device("meta"):
        ours = ARCHITECTURES[arch].build(1000)
        theirs = torchvision.models.get_model(name)
    assert shapes(ours) == shapes(theirs)
    assert ARCHITECTURES[arch].head in shapes(ours)


def test_resnet50_answers_as_torchvisions(torchvision: ModuleType) -> None:
    theirs = randomise(torchvision.models.resnet50(num_classes=7))
    ours = ARCHITECTURES["resnet50"].build(7).eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs(images)
        assert expected.std() > 1e-3
        assert torch.allclose(ours(images), expected, rtol=1e-4, atol=1e-4)


def test_vit_answers_as_torchvisions(torchvision: ModuleType) -> None:
    sizes = {"image_size": 64, "patch_size": 16, "num_layers": 3, "num_heads": 4}
    theirs = torchvision.models.VisionTransformer(
        **sizes, hidden_dim=32, mlp_dim=128, num_classes=7
    )
    randomise(theirs)
    ours = VisionTransformer(7, size=64, patch=16, width=32, depth=3, heads=4).eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs(images)
        assert expected.std() > 1e-3
        assert torch.allclose(ours(images), expected, rtol=1e-4, atol=1e-4)


def test_cifar_resnet18_is_torchvisions_with_another_stem(torchvision: ModuleType) -> None:
    """An independent net: torchvision's layers, the stem exchanged, the pooling left out."""
    theirs = torchvision.models.resnet18(num_classes=10)
    theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    theirs.maxpool = nn.Identity()
    randomise(theirs)
    names = {"downsample": "shortcut", "fc.": "linear."}
    state = {}
    for name, tensor in theirs.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = tensor
    ours = CifarResNet18(10).eval()
    ours.load_state_dict(state)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(ours(images), theirs(images), rtol=1e-4, atol=1e-4)


def published_resnet9(pool: int) -> nn.Module:
    """The usual ResNet-9, laid out as its many copies lay it out."""

    def block(before: int, after: int, pooled: bool = False) -> nn.Sequential:
        layers = [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pooled else []))

    class Usual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = block(3, 64), block(64, 128, pooled=True)
            self.res1 = nn.Sequential(block(128, 128), block(128, 128))
            self.conv3, self.conv4 = block(128, 256, pooled=True), block(256, 512, pooled=True)
            self.res2 = nn.Sequential(block(512, 512), block(512, 512))
            self.classifier = nn.Sequential(
                nn.MaxPool2d(pool), nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 10)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv2(self.conv1(x))
            x = self.conv4(self.conv3(self.res1(x) + x))
            return self.classifier(self.res2(x) + x)

    return randomise(Usual())


def test_resnet9_reads_the_usual_checkpoint(tmp_path) -> None:
    usual = published_resnet9(pool=12)
    torch.save(usual.state_dict(), tmp_path / "stl.pth")
    victim = brusle.load_victim(f"checkpoint:{tmp_path}/stl.pth?arch=resnet9-stl", "cpu")
    assert isinstance(victim.module[1], ResNet9)
    assert victim.shape == (3, 96, 96)
    assert victim.classes[7] == "monkey"
    images = torch.rand(2, 3, 96, 96)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normal = (images - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        assert torch.allclose(victim(images), usual(normal), rtol=1e-4, atol=1e-4)
