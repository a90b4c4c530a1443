"""The user's own functions, plugins of other packages, and names that are wrong."""

import pickle
import sys
from pathlib import Path

import pytest
import torch
from installed import install

import brusle
from brusle.errors import InputError, VictimError
from brusle.victims import FunctionVictim, TorchVictim, known_victims
from brusle.victims.registry import REGISTRY

X = torch.rand(3, 3, 4, 4)
MODULE = """
import torch
from torch import nn
from brusle.defences import RandomNoise
from brusle.victims import wrap

class Net(nn.Module):
    def __init__(self, classes, factor):
        super().__init__()
        self.classes, self.factor = classes, factor

    def forward(self, x):
        return x.flatten(1)[:, :self.classes] * self.factor

def make(classes=4, factor=2.5):
    return Net(classes, factor)

def function():
    return wrap(lambda x: x.flatten(1)[:, :5], output="logits", name="mine")

def wrapped():
    return wrap(nn.Sequential(Net(4, 2.0)), output="logits", classes=list("abcd"))

def defended():
    return RandomNoise(wrap(Net(4, 2.0), output="logits"), 0.1)

class Own:
    output, device = "logits", torch.device("cpu")
    name = property(lambda self: "nobody can set this")

    def __call__(self, images):
        return images.flatten(1)[:, :4]

THE_ONE = Own()

def own(number=0):
    return THE_ONE

def number():
    return 3

def fail():
    value = {}
    return value["weights"]  # line 44
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, as the current one."""
    (tmp_path / "mymodels.py").write_text(MODULE)
    (tmp_path / "wrong.py").write_text("a = 1\nb = (\n")
    (tmp_path / "needy.py").write_text("import torch\nimport package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mymodels", "wrong", "needy"):
        sys.modules.pop(name, None)


def test_a_function_of_the_current_folder(folder: Path) -> None:
    before = list(sys.path)
    victim = brusle.load_victim("python:mymodels:make", device="cpu")
    assert isinstance(victim, TorchVictim)
    assert victim.name == "python:mymodels:make"
    assert torch.allclose(victim(X), X.flatten(1)[:, :4] * 2.5)
    told = brusle.load_victim("python:mymodels:make?classes=7&factor=-1", device="cpu")
    assert torch.allclose(told(X), -X.flatten(1)[:, :7])
    mine = brusle.load_victim("python:mymodels:function")
    assert isinstance(mine, FunctionVictim)
    assert mine(X).shape == (3, 5)
    assert sys.path == before


@pytest.mark.parametrize("factory", ["make", "function", "wrapped", "defended", "own"])
def test_a_victim_has_the_name_that_it_was_asked_for_by(folder: Path, factory: str) -> None:
    name = f"python:mymodels:{factory}"
    victim = brusle.load_victim(name, device="cpu")
    assert victim.name == name
    assert brusle.defences.make("jpeg:75", victim).name == f"{name} + jpeg:75"
    # all else is its own
    assert victim(X).shape == (3, 5 if factory == "function" else 4)
    known = brusle.oracle.traits(victim)
    assert known.randomised is (factory == "defended")
    assert known.classes == (list("abcd") if factory == "wrapped" else None)
    assert known.differentiable is (factory in ("make", "wrapped"))
    assert hasattr(victim, "draw") is (factory == "defended")
    twin = pickle.loads(pickle.dumps(victim)) if factory != "function" else victim
    assert twin.name == name


def test_the_name_is_that_of_the_request_and_not_of_the_object(folder: Path) -> None:
    one, other = (brusle.load_victim(f"python:mymodels:own?number={i}") for i in (1, 2))
    assert (one.name, other.name) == (
        "python:mymodels:own?number=1",
        "python:mymodels:own?number=2",
    )


@pytest.mark.parametrize(
    ("name", "error", "pattern"),
    [
        ("mymodels", InputError, "write python:package.module:factory"),
        ("nomodels:make", InputError, "there is no module nomodels here"),
        ("mymodels:mak", InputError, "mymodels has no function mak$"),
        ("mymodels:fail", VictimError, r"KeyError: 'weights' \(.*mymodels.py, line 44\)$"),
        ("mymodels:make?size=3", VictimError, "TypeError: .*unexpected keyword argument 'size'"),
        ("mymodels:number", VictimError, "returned something unusable: int is no victim"),
        ("wrong:make", VictimError, r"SyntaxError: .*wrong.py, line 2\)$"),
        ("needy:make", VictimError, r"No module named 'package_that.*needy.py, line 2\)$"),
    ],
)
def test_errors_of_the_users_code_say_where(folder, name, error, pattern) -> None:
    with pytest.raises(error, match=pattern) as caught:
        brusle.load_victim(f"python:{name}")
    assert "\n" not in str(caught.value)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers a kind of victims."""
    code = (
        "import torch\n"
        "def load(rest, device, bias=0.0):\n"
        "    if rest == 'none':\n"
        "        raise LookupError('no such rival')\n"
        "    layer = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, int(rest)))\n"
        "    torch.nn.init.constant_(layer[1].weight, 1.0)\n"
        "    torch.nn.init.constant_(layer[1].bias, bias)\n"
        "    return layer\n"
    )
    install(tmp_path, "rivals", code, victims={"rival": "load"})
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("rivals", None)


def test_plugins_are_kinds_of_their_own(plugin: None) -> None:
    victim = brusle.load_victim("rival:5?bias=1.5", device="cpu")
    assert victim.name == "rival:5?bias=1.5"
    expected = X.flatten(1).sum(1, keepdim=True).expand(3, 5) + 1.5
    assert torch.allclose(victim(X), expected, rtol=1e-5)
    assert known_victims()["rival"] == "From rivals:load"
    with pytest.raises(VictimError, match=r"in rivals:load: LookupError: no such rival \(.*line 4"):
        brusle.load_victim("rival:none")
    with pytest.raises(InputError, match="unknown victim 'rivals:5': did you mean 'rival'"):
        brusle.load_victim("rivals:5")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("torchvison:resnet18", "unknown victim .torchvison:resnet18.: did you mean 'torchvision'"),
        ("cifar10-resnet20", "did you mean 'zoo:cifar10-resnet20'"),
        ("zoo:cifar10-resnet2", "did you mean 'zoo:cifar10-resnet20'"),
        ("zoo:cifar10-resnet20?runtim=onnx", "no option 'runtim': did you mean 'runtime'"),
        ("zoo:cifar10-resnet20?runtime=tf", "choose from torch, onnx"),
        ("onnx:", "is not complete: write onnx:FILE"),
        ("onnx:a.onnx?runtime=onnx", "has no option 'runtime'"),
    ],
)
def test_wrong_names_get_a_hint(name: str, pattern: str) -> None:
    with pytest.raises(InputError, match=pattern):
        brusle.load_victim(name)


def test_every_kind_is_listed_by_its_form() -> None:
    known = known_victims()
    assert "zoo:cifar10-resnet20" in known and "zoo:NAME" not in known
    for kind, about in REGISTRY.kinds.items():
        assert about.form.startswith(f"{kind}:")
        assert kind == "zoo" or known[about.form] == about.summary
