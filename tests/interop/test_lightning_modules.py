"""Lightning's modules as they are, and the checkpoints that its trainer writes."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from offline import offline  # noqa: F401 - for every test in here
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import brusle
from brusle.errors import VictimError

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # Lightning's advice on loaders and devices
]

X = torch.randint(0, 256, (8, 3, 32, 32), generator=torch.Generator().manual_seed(1)).float() / 255
Y = torch.arange(8) % 10

MODULE = """
import lightning
import torch
from torch.nn import functional as F

from brusle.zoo import build


class Lit(lightning.LightningModule):
    def __init__(self, rate=0.1, depth="resnet20"):
        super().__init__()
        self.save_hyperparameters()
        self.net = build(depth, 10)
        self.register_buffer("class_weights", torch.ones(10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self(x), y, self.class_weights)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.rate)


def victim(path):
    return Lit.load_from_checkpoint(path, map_location="cpu", weights_only=True)
"""


@pytest.fixture
def trained(
    torchvision: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Path]:
    """A module of the user's own file after two steps, and its checkpoint."""
    lightning: ModuleType = pytest.importorskip("lightning")
    (tmp_path / "litmodule.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "litmodule", raising=False)
    import litmodule

    torch.manual_seed(0)
    module = litmodule.Lit()
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", enable_model_summary=False, **silent
    )
    trainer.fit(module, DataLoader(TensorDataset(X, Y), batch_size=4))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    return module, tmp_path / "last.ckpt"


def logits(module: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return module.eval()(images)


def test_a_module_handed_over_as_it_is(trained) -> None:
    module, _ = trained
    module.train()
    victim = brusle.victims.as_victim(module, "cpu")
    scores = victim(X)
    assert module.training  # given back as it was
    assert torch.allclose(scores, logits(module, X), atol=1e-4)
    attack = brusle.attacks.BruSLe(pixels=20, queries=30)
    labels = scores.argmax(1)
    ours, bare = (attack(model, X, labels) for model in (module, module.net))
    assert torch.equal(ours.queries, bare.queries) and torch.equal(ours.images, bare.images)


def test_its_checkpoint_is_read_as_weights(trained) -> None:
    """Prefix and further state are taken off; what training keeps beside them does not matter."""
    module, path = trained
    content = torch.load(path, weights_only=True)
    assert {"optimizer_states", "hyper_parameters", "loops"} <= content.keys()
    victim = brusle.load_victim(f"checkpoint:{path}?arch=resnet20&prefix=net.", "cpu")
    assert torch.allclose(victim(X), logits(module, X), atol=1e-4)
    with pytest.raises(VictimError, match="class_weights|has no"):
        brusle.load_victim(f"checkpoint:{path}?arch=resnet20", "cpu")


def test_a_module_of_nothing_but_the_net_needs_no_prefix(trained, tmp_path) -> None:
    module, path = trained
    content = torch.load(path, weights_only=True)
    del content["state_dict"]["class_weights"]
    torch.save(content, tmp_path / "plain.ckpt")
    victim = brusle.load_victim(f"checkpoint:{tmp_path}/plain.ckpt?arch=resnet20", "cpu")
    assert torch.allclose(victim(X), logits(module, X), atol=1e-4)


def test_ones_own_class_through_a_function(trained) -> None:
    module, path = trained
    victim = brusle.load_victim(f"python:litmodule:victim?path={path}", "cpu")
    assert torch.allclose(victim(X), logits(module, X), atol=1e-4)


class Strange:
    """Something that only a pickle can hold."""


def test_a_checkpoint_with_objects_is_refused(trained, tmp_path) -> None:
    _, path = trained
    content = torch.load(path, weights_only=True)
    content["hyper_parameters"]["augment"] = Strange()
    torch.save(content, tmp_path / "objects.ckpt")
    with pytest.raises(VictimError, match=r"holds a .*Strange, which would run code"):
        brusle.load_victim(f"checkpoint:{tmp_path}/objects.ckpt?arch=resnet20", "cpu")
