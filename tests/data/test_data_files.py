"""CIFAR-10, STL-10 and npz: known answers from small files in the official formats."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from brusle.data import load, source
from brusle.data.stored import cache_dir
from brusle.errors import DataError, InputError


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def levels(images: torch.Tensor) -> np.ndarray:
    """Images in [0, 1] as the bytes that they came from."""
    assert images.dtype == torch.float32
    return (images * 255).round().to(torch.uint8).numpy()


# CIFAR-10


def write_binary(folder: Path, images: np.ndarray, labels: list[int], batches: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = np.concatenate([np.array(labels, np.uint8)[:, None], images.reshape(-1, 3072)], 1)
    for name, part in zip(batches, np.split(records, len(batches)), strict=True):
        (folder / f"{name}.bin").write_bytes(part.tobytes())


def write_pictures(folder: Path, images: np.ndarray, labels: list[int], batches: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = images.transpose(0, 2, 3, 1).reshape(-1, 1024, 3)
    for name, part in zip(batches, np.split(rows, len(batches)), strict=True):
        Image.fromarray(part).save(folder / f"{name}.png")
    split = "test" if batches == ["test_batch"] else "train"
    (folder / f"{split}_lables.json").write_text(json.dumps(labels))


TRAIN = [f"data_batch_{i}" for i in range(1, 6)]


@pytest.mark.parametrize("write", [write_binary, write_pictures])
def test_cifar10_in_both_forms(tmp_path, write) -> None:
    images, labels = noise(20, 3, 32, 32), [i * 3 % 10 for i in range(20)]
    write(tmp_path, images, labels, TRAIN)
    write(tmp_path, images[:4], labels[:4], ["test_batch"])
    train = load(f"cifar10:train?dir={tmp_path}")
    assert np.array_equal(levels(train.images), images)
    assert train.labels.tolist() == labels
    assert train.classes[3] == "cat"
    assert train.names[:2] == ("train-00000", "train-00001")
    test = load(f"cifar10:test?dir={tmp_path}")
    assert np.array_equal(levels(test.images), images[:4])
    assert test.names == ("test-0000", "test-0001", "test-0002", "test-0003")
    # rows in any order and over several files
    rows = [19, 0, 7, 7, 3, 12]
    assert np.array_equal(levels(source(train.name).take(rows).images), images[rows])


def test_cifar10_from_the_cache_and_from_the_folder_of_the_archive(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BRUSLE_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    message = f"CIFAR-10 is not in {tmp_path / 'cifar10'}: run `brusle data fetch cifar10`, or give"
    with pytest.raises(DataError, match=message):
        load("cifar10:test")
    images = noise(3, 3, 32, 32)
    write_binary(tmp_path / "cifar10" / "cifar-10-batches-bin", images, [1, 2, 3], ["test_batch"])
    assert np.array_equal(levels(load("cifar10:test").images), images)
    outer = tmp_path / "cifar10"
    assert load(f"cifar10:test?dir={outer}").labels.tolist() == [1, 2, 3]


def test_only_the_chosen_files_are_decoded(tmp_path) -> None:
    images, labels = noise(20, 3, 32, 32), [0, 1, 2, 3] * 5
    write_pictures(tmp_path, images, labels, TRAIN)
    last = tmp_path / "data_batch_5.png"
    last.write_bytes(last.read_bytes()[:2000])  # whole header, half an image
    few = load(f"cifar10:train?dir={tmp_path}", limit=4)
    assert few.labels.tolist() == [0, 1, 2, 3]
    assert np.array_equal(levels(few.images), images[:4])
    with pytest.raises(DataError, match="data_batch_5.png cannot be read"):
        load(f"cifar10:train?dir={tmp_path}")


def test_damaged_cifar10(tmp_path) -> None:
    name = f"cifar10:test?dir={tmp_path}"
    with pytest.raises(DataError, match="no CIFAR-10 files in"):
        load(name)
    with pytest.raises(DataError, match="nowhere is no folder"):
        load("cifar10:test?dir=nowhere")
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073 * 2 - 1))
    with pytest.raises(DataError, match="test_batch.bin has 6145 bytes, .* no multiple of 3073"):
        load(name)
    (tmp_path / "test_batch.bin").write_bytes(b"")
    with pytest.raises(DataError, match="test_batch.bin has 0 bytes"):
        load(name)
    write_binary(tmp_path, noise(2, 3, 32, 32), [3, 10], ["test_batch"])
    with pytest.raises(DataError, match=r"test-0001 of .* has label 10: labels must be 0 \.\.\. 9"):
        load(name)
    write_binary(tmp_path, noise(5, 3, 32, 32), [0] * 5, TRAIN)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match="cannot open .*data_batch_4.bin: No such file"):
        load(f"cifar10:train?dir={tmp_path}")


def test_damaged_pictures_of_cifar10(tmp_path) -> None:
    name = f"cifar10:test?dir={tmp_path}"
    write_pictures(tmp_path, noise(3, 3, 32, 32), [1, 2], ["test_batch"])
    with pytest.raises(DataError, match="3 test images and 2 labels"):
        load(name)
    for text in ("[1, 2, 0.5]", "[[1, 2, 3]]", "[1, 2", "null"):
        (tmp_path / "test_lables.json").write_text(text)
        with pytest.raises(DataError, match="test_lables.json"):
            load(name)
    Image.new("L", (1024, 3)).save(tmp_path / "test_batch.png")
    with pytest.raises(DataError, match="1024 pixels wide in mode L, not 1024 in RGB"):
        load(name)


def test_the_sample_is_part_of_the_test_set() -> None:
    try:
        whole = source("cifar10:test")
    except DataError:
        pytest.skip("CIFAR-10 is not in the cache: run `brusle data fetch cifar10`")
    sample, at = load("sample"), {name: row for row, name in enumerate(whole.names)}
    same = whole.take([at[name] for name in sample.names])
    assert torch.equal(same.images, sample.images)
    assert torch.equal(same.labels, sample.labels)


# STL-10


def write_stl10(folder: Path, images: np.ndarray, labels: list[int]) -> None:
    """As the authors describe it: channel by channel, each column by column; labels from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = bytearray()
    for image in images:
        for channel in image:
            for column in range(96):
                stored += channel[:, column].tobytes()
    (folder / "test_X.bin").write_bytes(stored)
    (folder / "test_y.bin").write_bytes(bytes(label + 1 for label in labels))
    names = "airplane bird car cat deer dog horse monkey ship truck"
    (folder / "class_names.txt").write_text(names.replace(" ", "\n") + "\n")


@pytest.mark.parametrize("inner", [".", "stl10_binary"])
def test_stl10(tmp_path, inner) -> None:
    images = noise(4, 3, 96, 96)
    write_stl10(tmp_path / inner, images, [9, 0, 7, 0])
    data = load(f"stl10:test?dir={tmp_path}")
    assert np.array_equal(levels(data.images), images)
    assert data.labels.tolist() == [9, 0, 7, 0]
    assert [data.classes[label] for label in (0, 2, 9)] == ["airplane", "car", "truck"]
    two = load(f"stl10:test?dir={tmp_path}", limit=2)
    assert two.labels.tolist() == [0, 7]
    assert two.names == ("test-0001", "test-0002")
    assert np.array_equal(levels(two.images), images[[1, 2]])


def test_damaged_stl10(tmp_path, monkeypatch) -> None:
    name = f"stl10:test?dir={tmp_path}"
    with pytest.raises(DataError, match="no STL-10 files in .* needs test_X.bin"):
        load(name)
    write_stl10(tmp_path, noise(2, 3, 96, 96), [1, 2])
    with pytest.raises(DataError, match="needs train_X.bin"):
        load(f"stl10:train?dir={tmp_path}")
    (tmp_path / "test_y.bin").write_bytes(bytes([1]))
    with pytest.raises(DataError, match="2 test images and 1 labels"):
        load(name)
    (tmp_path / "test_y.bin").write_bytes(bytes([1, 0]))
    with pytest.raises(DataError, match="test-0001 of .* has label -1"):
        load(name)
    (tmp_path / "test_y.bin").write_bytes(bytes([1, 11]))
    with pytest.raises(DataError, match="test-0001 of .* has label 10"):
        load(name)
    (tmp_path / "class_names.txt").unlink()
    with pytest.raises(DataError, match="class_names.txt: No such file"):
        load(name)
    (tmp_path / "test_X.bin").write_bytes(bytes(27647))
    with pytest.raises(DataError, match="27647 bytes, which is no multiple of 27648"):
        load(name)
    monkeypatch.setenv("BRUSLE_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="STL-10 is not in .*: run `brusle data fetch stl10`"):
        load("stl10:test")


# npz


@pytest.mark.parametrize("keys", [("images", "labels"), ("x", "y")])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_npz(tmp_path, keys, layout, dtype, channels) -> None:
    bytes_ = noise(4, channels, 5, 6)
    images = bytes_ if dtype == np.uint8 else (bytes_ / 255).astype(dtype)
    stored = images if layout == "nchw" else images.transpose(0, 2, 3, 1)
    np.savez(tmp_path / "x.npz", **{keys[0]: stored, keys[1]: np.array([2, 0, 2, 1], np.uint8)})
    data = load(f"npz:{tmp_path}/x.npz")
    assert np.array_equal(levels(data.images), bytes_)
    assert data.images.numpy() == pytest.approx(bytes_ / 255, abs=1e-7)
    assert data.labels.dtype == torch.int64
    assert data.labels.tolist() == [2, 0, 2, 1]
    assert data.names == ("00000", "00001", "00002", "00003")
    assert load(data.name, limit=3).labels.tolist() == [0, 1, 2]
    assert np.array_equal(levels(load(data.name, limit=3).images), bytes_[[1, 3, 0]])


def test_npz_with_names_and_classes(tmp_path) -> None:
    path = tmp_path / "x.npz"
    arrays = {"images": noise(3, 3, 8, 8), "labels": np.array([1, 0, 1])}
    np.savez_compressed(path, classes=["no", "yes"], names=["a/b", "a b", "c"], **arrays)
    data = load(f"npz:{path}")
    assert data.classes == ("no", "yes")
    assert data.names == ("a-b", "a-b-2", "c")
    np.savez(path, names=["a"], **arrays)
    with pytest.raises(DataError, match="3 images and 1 names"):
        load(f"npz:{path}")
    np.savez(path, classes=["no"], **arrays)
    with pytest.raises(DataError, match=r"00000 of .* has label 1: labels must be 0 \.\.\. 0"):
        load(f"npz:{path}")
    np.savez(path, classes=[1, 2], **arrays)
    with pytest.raises(DataError, match="classes of .* is int64"):
        load(f"npz:{path}")


def test_npz_whose_layout_is_not_clear(tmp_path) -> None:
    path = tmp_path / "x.npz"
    both = noise(2, 3, 5, 4)
    np.savez(path, images=both, labels=[0, 1])
    with pytest.raises(InputError, match=r"either the first or the last .* add \?layout=nchw"):
        load(f"npz:{path}")
    assert np.array_equal(levels(load(f"npz:{path}?layout=nchw").images), both)
    turned = levels(load(f"npz:{path}?layout=nhwc").images)
    assert np.array_equal(turned, both.transpose(0, 3, 1, 2))
    np.savez(path, images=noise(2, 5, 6, 7), labels=[0, 1])
    with pytest.raises(InputError, match="neither the first nor the last could be channels"):
        load(f"npz:{path}")
    with pytest.raises(InputError, match="choose from auto, nchw, nhwc"):
        load(f"npz:{path}?layout=hwc")


GOOD = {"images": np.zeros((2, 3, 8, 8), np.uint8), "labels": np.array([0, 1])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "no array 'images' (or 'x')"),
        ({"labels": None}, "no array 'labels' (or 'y')"),
        ({"images": np.zeros((2, 8, 8), np.uint8)}, "have shape (2, 8, 8)"),
        ({"images": np.zeros((2, 3, 8, 8), np.int64)}, "are int64: give uint8"),
        ({"images": np.zeros((2, 3, 8, 8), np.uint16)}, "are uint16: give uint8 in 0 ... 255 or"),
        ({"images": np.zeros((2, 3, 8, 8), np.uint16)}, "as in x / 65535"),
        (
            {"images": np.full((2, 3, 8, 8), 254.5)},
            "floats from 254.5 to 254.5, outside of 0 ... 1",
        ),
        ({"images": np.full((2, 3, 8, 8), 254.5)}, "as in x / 255"),
        ({"images": np.full((2, 3, 8, 8), -0.1)}, "floats from -0.1 to -0.1, outside of 0 ... 1"),
        ({"images": np.full((2, 3, 8, 8), np.nan)}, "have NaN: give finite numbers"),
        ({"images": np.full((2, 3, 8, 8), np.inf)}, "have infinite values: give finite numbers"),
        ({"labels": np.array([0, -1])}, "has label -1: labels must be 0 ... 999999"),
        ({"labels": np.array([0.0, 1.0])}, "labels of"),
        ({"labels": np.array([0, 1, 2])}, "one whole number for each of its 2 images"),
        ({"labels": np.array([{}, {}])}, "could run code"),
        ({"names": np.array(["a", None])}, "could run code"),
        ({"images": np.zeros((0, 3, 8, 8)), "labels": np.zeros(0, int)}, "there are no images"),
    ],
)
def test_bad_arrays(tmp_path, change, message) -> None:
    arrays = {key: value for key, value in (GOOD | change).items() if value is not None}
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError) as caught:
        load(f"npz:{tmp_path}/x.npz")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_npz(tmp_path) -> None:
    with pytest.raises(DataError, match="cannot open .*x.npz: No such file"):
        load(f"npz:{tmp_path}/x.npz")
    with pytest.raises(DataError, match="cannot open .*: Is a directory"):
        load(f"npz:{tmp_path}")
    with pytest.raises(InputError, match="names no file: write npz:FILE"):
        load("npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="one.npy is no .npz file"):
        load(f"npz:{tmp_path}/one.npy")
    np.savez_compressed(tmp_path / "x.npz", images=noise(2, 3, 32, 32), labels=[0, 1])
    whole = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cut.npz is no .npz file"):
        load(f"npz:{tmp_path}/cut.npz")
    flipped = bytearray(whole)
    flipped[1000] ^= 255
    (tmp_path / "flipped.npz").write_bytes(flipped)
    with pytest.raises(DataError, match="flipped.npz is damaged"):
        load(f"npz:{tmp_path}/flipped.npz")
