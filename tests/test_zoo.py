import re
import struct
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

import brusle
from brusle import zoo
from brusle.data import cifar10
from brusle.errors import DataError
from brusle.zoo.train import Recipe, augment, train


def test_the_bundled_net_is_what_its_card_says() -> None:
    card = zoo.card("cifar10-resnet20")
    net = zoo.load("cifar10-resnet20")
    assert sum(p.numel() for p in net.parameters()) == card["parameters"]
    assert card["test_accuracy"] >= 0.905
    weights = files("brusle.zoo").joinpath("models", "cifar10-resnet20.safetensors").read_bytes()
    assert len(weights) < 1.2e6
    header = struct.unpack("<Q", weights[:8])[0]
    assert weights[8 : 8 + header].startswith(b"{")  # safetensors: a JSON header, no pickle


def test_the_bundled_net_classifies_the_bundled_images() -> None:
    victim, data = brusle.load_victim("zoo:cifar10-resnet20"), brusle.data.load("sample")
    right = int((victim(data.images).argmax(1) == data.labels).sum())
    # fixed weights and images; the card says how many, and round-off cannot move more than one
    assert abs(right - zoo.card("cifar10-resnet20")["sample_correct"]) <= 1


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


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, monkeypatch) -> None:
    write_cifar(tmp_path)
    recipe = Recipe(epochs=2, small_epochs=1, batch=10)
    train(recipe, tmp_path, tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop_after_first_epoch(text: str, **_: object) -> None:
        if re.match("epoch 1/", text):
            raise Stop

    monkeypatch.setattr("builtins.print", stop_after_first_epoch)
    with pytest.raises(Stop):
        train(recipe, tmp_path, tmp_path / "parts")
    monkeypatch.undo()
    train(recipe, tmp_path, tmp_path / "parts")
    name = "cifar10-resnet20.safetensors"
    whole, parts = ((tmp_path / d / name).read_bytes() for d in ("whole", "parts"))
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
