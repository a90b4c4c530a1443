import struct
import zlib
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
import train
from adversaries import pgd, project
from bundle import bundle
from safetensors.torch import save, save_file
from train import RECIPES, Recipe, Trainer, augment, robust_accuracy

import brusle
from brusle import zoo
from brusle.data import cifar10
from brusle.errors import DataError
from brusle.zoo.planes import joined, split
from brusle.zoo.vit import SmallViT

NAMES = zoo.names()


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_what_the_card_says(name) -> None:
    card, net = zoo.card(name), zoo.load(name)
    assert sum(p.numel() for p in net.parameters()) == card["parameters"]
    weights = files("brusle.zoo").joinpath("models", f"{name}.safetensors").read_bytes()
    header = struct.unpack("<Q", weights[:8])[0]
    assert weights[8 : 8 + header].startswith(b"{")  # safetensors: a JSON header, no pickle
    assert asdict(RECIPES[name]).items() >= card["recipe"].items()
    program, script, trained = card["repeat"].partition("&& ")[2].split(" ")[:3]
    assert (program, trained) == ("python", name)
    assert Path(__file__).parents[1] / script == Path(train.__file__)  # beside the package


def test_the_package_holds_no_training_code() -> None:
    modules = {path.name for path in Path(zoo.__file__).parent.glob("*.py")}
    assert modules == {"__init__.py", "planes.py", "resnet.py", "vit.py"}


@pytest.mark.parametrize("name", NAMES)
def test_a_net_that_is_bundled_again_is_the_same_to_the_bit(tmp_path, name) -> None:
    weights, models = zoo.load(name).state_dict(), tmp_path / "models"
    models.mkdir()
    save_file({k: v.contiguous() for k, v in weights.items()}, tmp_path / f"{name}.safetensors")
    card = files("brusle.zoo").joinpath("models", f"{name}.json").read_bytes()
    (tmp_path / f"{name}.json").write_bytes(card)
    bundle(tmp_path / f"{name}.json", models)
    for file in (f"{name}.safetensors", f"{name}.json"):
        bundled = files("brusle.zoo").joinpath("models", file).read_bytes()
        assert (models / file).read_bytes() == bundled


def test_planes_are_packed_as_well_as_they_say() -> None:
    nets = [zoo.load(name).state_dict() for name in NAMES]
    whole = sum(len(save(weights)) for weights in nets)
    plain = sum(len(zlib.compress(save(weights))) for weights in nets)
    planes = sum(len(zlib.compress(save(split(weights)))) for weights in nets)
    assert f"{planes / whole:.0%} instead of {plain / whole:.0%}".replace("%", " %") in (
        " ".join((brusle.zoo.planes.__doc__ or "").split())
    )


def test_planes_keep_every_number() -> None:
    odd = torch.tensor([0.0, -0.0, 1.0, -1e-45, torch.inf, torch.nan, 3.4e38])
    tensors = {"odd": odd, "scalar": torch.tensor(1.5), "count": torch.tensor(7)}
    planes = split(tensors)
    assert planes["odd"].shape == (4, 7) and planes["odd"].dtype == torch.uint8
    assert planes["odd"][:, 2].tolist() == [0x00, 0x00, 0x80, 0x3F]  # IEEE 754: 1 is 0x3F800000
    for name, tensor in joined(planes).items():
        assert tensor.dtype == tensors[name].dtype and tensor.shape == tensors[name].shape
        assert tensor.numpy().tobytes() == tensors[name].numpy().tobytes()


def test_the_zoo_is_complete_and_small() -> None:
    threats = {zoo.card(name).get("threat") for name in NAMES}
    assert threats == {None, "linf", "l2", "l1", "l0"}
    assert zoo.card("cifar10-resnet20")["test_accuracy"] >= 0.905
    assert zoo.card("cifar10-vit")["test_accuracy"] >= 0.8
    folder = files("brusle.zoo").joinpath("models")
    size = sum(len(f.read_bytes()) for f in folder.iterdir() if f.name.endswith(".safetensors"))
    page = (Path(__file__).parents[1] / "docs" / "zoo.md").read_text(encoding="utf-8")
    assert f"bundled as safetensors ({size / 1e6:.1f} MB in all)" in page


@pytest.mark.parametrize("name", NAMES)
def test_bundled_nets_classify_the_bundled_images(name) -> None:
    victim, data = brusle.load_victim(f"zoo:{name}"), brusle.data.load("sample")
    right = int((victim(data.images).argmax(1) == data.labels).sum())
    # fixed weights and images; the card says how many, and round-off cannot move more than one
    assert abs(right - zoo.card(name)["sample_correct"]) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if "threat" in zoo.card(n)])
def test_robust_nets_are_robust_and_the_plain_net_is_not(name) -> None:
    """Ten steps of PGD on the 200 bundled images; the card has the stronger attack on more."""
    data, recipe = brusle.data.load("sample"), RECIPES[name]
    images = (data.images * 255).round().byte()
    robust = robust_accuracy(zoo.load(name), images, data.labels, recipe, steps=10)
    plain = robust_accuracy(zoo.load("cifar10-resnet20"), images, data.labels, recipe, steps=10)
    # ten steps are weaker than the card's attack, 200 images have a standard error of 0.035
    assert robust > zoo.card(name)["robust_accuracy"] - 0.1
    assert robust > plain + 0.2


def test_the_sample_is_20_real_images_of_each_class() -> None:
    data = brusle.data.load("sample")
    assert data.images.shape == (200, 3, 32, 32)
    assert data.labels.bincount().tolist() == [20] * 10
    assert len(set(data.names)) == 200
    assert torch.equal((data.images * 255).round() / 255, data.images)
    few = data.balanced(25)
    assert few.labels.bincount(minlength=10).tolist() == [3] * 5 + [2] * 5


def write_cifar(folder: Path, per_batch: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10's binary format with a few images of noise."""
    generator = np.random.default_rng(0)
    records = generator.integers(0, 256, (6, per_batch, 3073), dtype=np.uint8)
    records[:, :, 0] %= 10
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for name, batch in zip(names, records, strict=True):
        batch.tofile(folder / name)
    return records[:5, :, 1:].reshape(-1, 3, 32, 32), records[:5, :, 0].ravel()


def test_cifar_is_read_from_both_of_its_forms(tmp_path) -> None:
    import json

    from PIL import Image

    images, labels = write_cifar(tmp_path)
    got, got_labels = cifar10.read(tmp_path, "train")
    assert np.array_equal(got, images)
    assert got_labels.tolist() == labels.tolist()
    png = tmp_path / "png"
    png.mkdir()
    for i in range(5):
        rows = images[6 * i : 6 * i + 6].transpose(0, 2, 3, 1).reshape(6, 1024, 3)
        Image.fromarray(rows).save(png / f"data_batch_{i + 1}.png")
    (png / "train_lables.json").write_text(json.dumps(labels.tolist()))
    again, again_labels = cifar10.read(png, "train")
    assert np.array_equal(again, images)
    assert again_labels.tolist() == labels.tolist()
    with pytest.raises(DataError, match="no CIFAR-10 files in"):
        cifar10.read(tmp_path / "nothing", "test")


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(epochs=2, small_epochs=1, batch=10),
        Recipe("vit", epochs=2, small_epochs=1, batch=10, optimiser="adamw", peak_lr=1e-3),
        Recipe(
            start="cifar10-resnet20", epochs=2, small_epochs=0, batch=10, threat="linf", radius=0.03
        ),
    ],
    ids=["plain", "vit", "linf"],
)
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, monkeypatch, recipe) -> None:
    write_cifar(tmp_path)
    name = "cifar10-resnet20"

    def train(out: str) -> None:
        Trainer(name, recipe, tmp_path, tmp_path / out, compiled=False).run()

    train("whole")

    class Stop(Exception):
        pass

    def stop_after_first_epoch(text: str, **_: object) -> None:
        if "epoch 1/" in text:
            raise Stop

    monkeypatch.setattr("builtins.print", stop_after_first_epoch)
    with pytest.raises(Stop):
        train("parts")
    monkeypatch.undo()
    train("parts")
    whole, parts = ((tmp_path / d / f"{name}.safetensors").read_bytes() for d in ("whole", "parts"))
    assert whole == parts


def test_augmentation_shifts_and_flips() -> None:
    image = torch.zeros(200, 1, 9, 9)
    image[:, 0, 4, 3] = 1  # one bright pixel, left of the middle
    out = augment(image, 2, torch.Generator().manual_seed(0))
    assert out.sum((1, 2, 3)).tolist() == [1.0] * 200
    columns = out.sum((1, 2)).argmax(1)
    rows = out.sum((1, 3)).argmax(1)
    assert set(rows.tolist()) == {2, 3, 4, 5, 6}
    assert set(columns.tolist()) == {1, 2, 3, 4, 5, 6, 7}


def test_attention_maps_are_those_that_the_transformer_uses() -> None:
    net = SmallViT(width=24, depth=2, heads=3).eval()
    images = torch.rand(2, 3, 32, 32)
    maps = net.attention_maps(images)
    assert maps.shape == (2, 2, 3, 64, 64)
    assert torch.allclose(maps.sum(4), torch.ones(2, 2, 3, 64), atol=1e-5)
    # from the first layer's own weights, head by head
    block, tokens = net.blocks[0], net._tokens(images)
    query, key, value = block.attention.qkv(block.norm1(tokens)).chunk(3, dim=2)
    parts = []
    for head in range(3):
        at = slice(8 * head, 8 * head + 8)
        weights = (query[..., at] @ key[..., at].transpose(1, 2) / 8**0.5).softmax(2)
        assert torch.allclose(weights, maps[:, 0, head], atol=1e-6)
        parts.append(weights @ value[..., at])
    mixed = block.attention.out(torch.cat(parts, 2))
    assert torch.allclose(mixed, block.attention(block.norm1(tokens)), atol=1e-6)


def test_projections_are_the_nearest_points_of_the_ball() -> None:
    delta = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    for threat, norm in (("l2", 2), ("l1", 1)):
        near = project(delta, threat, 2.0)
        assert torch.allclose(near.flatten(1).norm(norm, dim=1), torch.tensor(2.0), atol=1e-5)
        # no other point of the ball is nearer: compare with many, and with small moves
        distance = (near - delta).flatten(1).norm(dim=1)
        for seed in range(200):
            noise = torch.randn(delta.shape, generator=torch.Generator().manual_seed(seed))
            other = near + 0.3 * noise
            size = other.flatten(1).norm(norm, dim=1).clamp_min(2.0).view(-1, 1, 1, 1)
            assert ((2 * other / size - delta).flatten(1).norm(dim=1) >= distance - 1e-5).all()
        inside = 0.01 * delta
        assert torch.equal(project(inside, threat, 2.0), inside)


class Linear(torch.nn.Module):
    """Two classes, whose difference is a weighted sum of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(3, 6, 6, generator=generator))

    def forward(self, x):
        gain = (x * self.weight).sum((1, 2, 3))
        return torch.stack([torch.zeros_like(gain), gain], 1)


@pytest.mark.parametrize(
    ("threat", "radius"), [("linf", 0.1), ("l2", 0.4), ("l1", 0.45), ("l0", 3)]
)
def test_pgd_finds_the_known_optimum_of_a_linear_model(threat, radius) -> None:
    """In the middle of the box the optimum of a linear loss in a ball has a closed form."""
    net, x = Linear(), torch.full((2, 3, 6, 6), 0.5)
    worst = pgd(net, x, torch.zeros(2).long(), threat, radius, 60, torch.Generator().manual_seed(0))
    w, change = net.weight.detach(), worst - x
    best = {
        "linf": radius * w.abs().sum(),
        "l2": radius * w.norm(),
        "l1": radius * w.abs().max(),
        "l0": 0.5 * w.abs().sum(0).flatten().topk(3).values.sum(),
    }[threat]
    size = {
        "linf": change.abs().amax((1, 2, 3)),
        "l2": change.flatten(1).norm(dim=1),
        "l1": change.abs().sum((1, 2, 3)),
        "l0": (change != 0).any(1).sum((1, 2)),
    }[threat]
    assert (size <= radius * (1 + 1e-5)).all()
    gain = (change * w).sum((1, 2, 3))
    assert (gain > 0.97 * best).all() and (gain < 1.0001 * best).all()
