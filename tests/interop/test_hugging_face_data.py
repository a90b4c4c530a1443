"""`hf-data:`, with data sets that the real package has written to the disk."""

import json
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from entry import run
from offline import offline  # noqa: F401 - for every test in here
from PIL import Image
from torch import nn

import brusle
from brusle.data import Framing, read_image
from brusle.errors import DataError, InputError
from brusle.victims import wrap

pytestmark = pytest.mark.interop

NAMES = ["cat", "dog", "elk"]
LABELS = [2, 0, 1, 1, 0, 2, 0]


@pytest.fixture(scope="module")
def datasets() -> ModuleType:
    return pytest.importorskip("datasets")


def levels(row: int, size: tuple[int, int] = (8, 8)) -> np.ndarray:
    return np.random.default_rng(row).integers(0, 256, (*size, 3), dtype=np.uint8)


def table(datasets: Any, **columns: Any) -> Any:
    """Rows 0 to 6, an image and a label each."""
    pictures = [Image.fromarray(levels(row)) for row in range(len(LABELS))]
    labels = datasets.ClassLabel(names=NAMES)
    features = {"img": datasets.Image(), "fine": labels, "size": datasets.Value("int64")}
    content = {"img": pictures, "fine": LABELS, "size": [8] * len(LABELS)}
    return datasets.Dataset.from_dict(content, features=datasets.Features(features))


def victim(classes: list[str] | None = None, **options: Any) -> Any:
    """Three classes, 8 x 8 images."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    return wrap(net, output="logits", classes=classes, shape=(3, 8, 8), **options)


def exactly(image: torch.Tensor, row: int) -> bool:
    return np.array_equal((image * 255).numpy().transpose(1, 2, 0), levels(row).astype(np.float32))


def test_a_saved_table_comes_back_to_the_bit(datasets, tmp_path) -> None:
    table(datasets).save_to_disk(tmp_path)
    found = brusle.data.load(f"hf-data:{tmp_path}")
    assert found.labels.tolist() == LABELS and found.classes == tuple(NAMES)
    assert found.images.shape == (7, 3, 8, 8) and found.names[6] == "00006"
    assert all(exactly(found.images[row], row) for row in range(7))


def test_parquet_files_and_image_folders(datasets, tmp_path) -> None:
    (tmp_path / "tables").mkdir()
    table(datasets).to_parquet(tmp_path / "tables" / "test-0.parquet")
    found = brusle.data.load(f"hf-data:{tmp_path / 'tables'}")
    assert found.labels.tolist() == LABELS and found.names[0] == "test-00000"
    assert all(exactly(found.images[row], row) for row in range(7))
    for row, label in enumerate(LABELS):
        place = tmp_path / "folder" / NAMES[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels(row)).save(place / f"{row}.png")
    found = brusle.data.load(f"hf-data:{tmp_path / 'folder'}")
    whole = brusle.data.load(f"folder:{tmp_path / 'folder'}")
    assert torch.equal(found.images, whole.images) and torch.equal(found.labels, whole.labels)
    assert found.classes == whole.classes


def test_splits_and_columns_are_chosen(datasets, tmp_path) -> None:
    whole = table(datasets).add_column("coarse", [1, 0, 0, 0, 0, 1, 0])
    other = whole.rename_column("fine", "label")
    datasets.DatasetDict(train=other, test=other.select([3, 5])).save_to_disk(tmp_path / "two")
    name = f"hf-data:{tmp_path / 'two'}"
    test = brusle.data.load(f"{name}?split=test&image=img&label=label")
    assert test.labels.tolist() == [1, 2] and test.names == ("test-00000", "test-00001")
    assert exactly(test.images[1], 5)
    coarse = brusle.data.load(f"{name}?split=test&label=coarse")
    assert coarse.labels.tolist() == [0, 1] and coarse.classes == ()
    for rest, pattern in (
        ("", "has several splits: add split= and one of 'train', 'test'"),
        ("?split=tset", "no split 'tset': did you mean 'test'"),
        ("?split=test&label=lable", "no column 'lable': did you mean 'label'"),
        ("?split=test&crop=3", "no option 'crop'"),
        ("?split=test&revision=main", "leave config= and revision= out"),
    ):
        with pytest.raises(InputError, match=pattern):
            brusle.data.load(name + rest)
    whole.save_to_disk(tmp_path / "one")
    with pytest.raises(InputError, match="has no splits: leave split= out"):
        brusle.data.load(f"hf-data:{tmp_path / 'one'}?split=test")


def test_only_what_is_chosen_is_decoded(datasets, tmp_path, monkeypatch) -> None:
    """A broken image that nobody asks for does not matter; `datasets` decodes none itself."""
    content = [{"bytes": _png(row), "path": None} for row in range(7)]
    content[0]["bytes"] = b"no picture"
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict({"image": content, "label": LABELS}, features).save_to_disk(tmp_path)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("decoded by datasets")

    monkeypatch.setattr(datasets.Image, "decode_example", refuse)
    source = brusle.data.source(f"hf-data:{tmp_path}", like=victim())
    found = source.take([4, 2])
    assert exactly(found.images[0], 4) and exactly(found.images[1], 2)
    assert found.labels.tolist() == [0, 1]
    with pytest.raises(DataError, match=r"row 0 of hf-data:.* is no image that can be read"):
        source.take([0])


def _png(row: int) -> bytes:
    file = BytesIO()
    Image.fromarray(levels(row)).save(file, "PNG")
    return file.getvalue()


def test_odd_pictures_are_read_as_all_image_files_are(datasets, tmp_path) -> None:
    odd = {
        "grey": Image.fromarray(levels(1)).convert("L"),
        "palette": Image.fromarray(levels(2)).convert("P"),
        "opaque": Image.fromarray(levels(3)).convert("RGBA"),
        "wide": Image.fromarray(levels(4)[..., 0].astype(np.uint16) * 257),
        "turned": Image.fromarray(levels(5)),
    }
    exif = Image.Exif()
    exif[274] = 6  # upright is a quarter turn
    for word, picture in odd.items():
        picture.save(tmp_path / f"{word}.png", exif=exif if word == "turned" else None)
    content = [
        {"bytes": (tmp_path / f"{word}.png").read_bytes(), "path": f"{word}.png"} for word in odd
    ]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    kept = datasets.Dataset.from_dict({"image": content, "label": [0] * 5}, features)
    kept.save_to_disk(tmp_path / "data")
    for like, shape in ((victim(), (3, 8, 8)), (_grey_victim(), (1, 8, 8))):
        found = brusle.data.load(f"hf-data:{tmp_path / 'data'}", like=like)
        for image, word in zip(found.images, odd, strict=True):
            assert torch.equal(image, read_image(tmp_path / f"{word}.png", shape)), word
    clear = Image.fromarray(levels(3)).convert("RGBA")
    clear.putpixel((0, 0), (0, 0, 0, 0))
    clear.save(tmp_path / "clear.png")
    content[0] = {"bytes": (tmp_path / "clear.png").read_bytes(), "path": None}
    datasets.Dataset.from_dict({"image": content, "label": [0] * 5}, features).save_to_disk(
        tmp_path / "clear"
    )
    with pytest.raises(DataError, match="row 0 of .*transparent pixels"):
        brusle.data.load(f"hf-data:{tmp_path / 'clear'}", like=victim())


def _grey_victim() -> Any:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    return wrap(net, output="logits", shape=(1, 8, 8))


def test_labels_are_the_victims(datasets, tmp_path) -> None:
    """Names are looked up among the victim's; numbers are taken as they are if asked."""
    table(datasets).save_to_disk(tmp_path)
    name = f"hf-data:{tmp_path}"
    known = ["Elk", "ant", "Dog", "Cat"]
    found = brusle.data.load(name, like=victim(known))
    assert found.labels.tolist() == [known.index(NAMES[one].title()) for one in LABELS]
    assert found.classes == tuple(known)
    other = ["tench, Tinca tinca", "goldfish", "shark"]
    with pytest.raises(InputError, match=r"class 'cat' of .* is no class of the victim.*by=number"):
        brusle.data.load(name, like=victim(other))
    found = brusle.data.load(f"{name}?by=number", like=victim(other))
    assert found.labels.tolist() == LABELS and found.classes == tuple(other)
    with pytest.raises(InputError, match="could be class 0 or 1 of the victim: by=number"):
        brusle.data.load(name, like=victim(["cat", "CAT", "dog"]))


def test_words_and_bare_numbers_as_labels(datasets, tmp_path) -> None:
    words = table(datasets).remove_columns("fine").add_column("label", [NAMES[i] for i in LABELS])
    words.save_to_disk(tmp_path / "words")
    found = brusle.data.load(f"hf-data:{tmp_path / 'words'}")
    assert found.labels.tolist() == LABELS and found.classes == tuple(NAMES)
    bare = table(datasets).cast_column("fine", datasets.ClassLabel(num_classes=3))
    bare.save_to_disk(tmp_path / "bare")
    found = brusle.data.load(f"hf-data:{tmp_path / 'bare'}", like=victim(["x", "y", "z"]))
    assert found.labels.tolist() == LABELS and found.classes == ("x", "y", "z")


def test_what_cannot_be_labels_or_images_is_refused(datasets, tmp_path) -> None:
    start = table(datasets)
    for word, made, pattern in (
        ("hidden", start.add_column("label", [0, -1, 0, 0, 0, 0, 0]), "has label -1"),
        ("missing", start.add_column("label", [0, None, 0, 0, 0, 0, 0]), "row 1 .*has no label"),
        ("many", start.add_column("label", [[0, 1]] * 7), "give a column of class labels, whole"),
        ("part", start.add_column("label", [0.5] * 7), "give a column of class labels, whole"),
    ):
        made.save_to_disk(tmp_path / word)
        with pytest.raises(DataError, match=pattern) as said:
            brusle.data.load(f"hf-data:{tmp_path / word}?label=label")
        assert "\n" not in str(said.value)
    start.remove_columns("img").save_to_disk(tmp_path / "blind")
    with pytest.raises(InputError, match="has no columns of images: say which with image=, of 'f"):
        brusle.data.load(f"hf-data:{tmp_path / 'blind'}")
    empty = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict({"image": [None], "label": [0]}, empty).save_to_disk(
        tmp_path / "empty"
    )
    with pytest.raises(DataError, match="row 0 of .* has no image"):
        brusle.data.load(f"hf-data:{tmp_path / 'empty'}", like=victim())


def test_sizes_are_framed_or_refused(datasets, tmp_path) -> None:
    pictures = [Image.fromarray(levels(i, (20 + 2 * i, 31))) for i in range(3)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict({"image": pictures, "label": [0, 1, 2]}, features).save_to_disk(
        tmp_path
    )
    name = f"hf-data:{tmp_path}"
    with pytest.raises(InputError, match=r"row 1 of .* is 22 x 31 pixels, but row 0 .*size=N"):
        brusle.data.load(name)
    framing = Framing((10, 9), (8, 8), "bicubic", "floor")
    framed = brusle.data.load(name, like=_Framed(framing))
    expected = [np.asarray(framing.apply(picture)) for picture in pictures]
    assert np.array_equal((framed.images * 255).numpy().transpose(0, 2, 3, 1), expected)
    assert brusle.data.load(f"{name}?size=16").images.shape == (3, 3, 16, 16)


class _Framed:
    name, output, device = "framed", "logits", torch.device("cpu")
    shape = (3, 8, 8)

    def __init__(self, framing: Framing) -> None:
        self.framing = framing

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, :3]


def test_programs_beside_the_data_are_not_run(datasets, tmp_path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    mark = tmp_path / "it-ran"
    (folder / "mine.py").write_text(f"open({str(mark)!r}, 'w')\n")
    with pytest.raises(DataError, match="cannot be opened") as said:
        brusle.data.load(f"hf-data:{folder}")
    assert not mark.exists() and "\n" not in str(said.value)


def test_names_that_lead_nowhere(datasets, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("x")
    for name, error, pattern in (
        ("hf-data:somebody/something", DataError, "cannot be opened"),
        ("hf-data:/no/such/place", DataError, "is no folder: check the path"),
        (f"hf-data:{tmp_path}/file", InputError, "names no folder or repository"),
        ("hf-data:", InputError, "names no folder or repository"),
    ):
        with pytest.raises(error, match=pattern) as said:
            brusle.data.load(name)
        assert "\n" not in str(said.value)
    monkeypatch.setattr(datasets, "__version__", "3.6.0")
    with pytest.raises(DataError, match="datasets 3.6.0 is too old, 4 or later runs no"):
        brusle.data.load(f"hf-data:{tmp_path}")


def test_a_run_by_name(datasets, tmp_path, monkeypatch, capfd) -> None:
    """evaluate, report and verify; the same attack as on the same images in an `npz:`."""
    sample = brusle.data.load("sample", limit=6)
    pictures = [
        Image.fromarray((image.numpy().transpose(1, 2, 0) * 255).round().astype(np.uint8))
        for image in sample.images
    ]
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=list(sample.classes))}
    )
    kept = datasets.Dataset.from_dict(
        {"img": pictures, "label": sample.labels.tolist()}, features=features
    )
    datasets.DatasetDict(test=kept).save_to_disk(tmp_path / "data")
    np.savez(
        tmp_path / "same.npz",
        images=np.stack([np.asarray(picture).transpose(2, 0, 1) for picture in pictures]),
        labels=sample.labels.numpy(),
        classes=np.array(sample.classes),
    )
    capfd.readouterr()
    asked = ["--attack", "brusle", "--goal", "untargeted", "--pixels", 3, "--queries", 60]
    name = f"hf-data:{tmp_path / 'data'}?split=test"
    done = run("evaluate", "--data", name, *asked, "--out", tmp_path / "run")
    assert done.returncode == 0 and "it/s" not in done.stderr
    net = brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    attack = brusle.attacks.BruSLe(3, 60)
    found, same = (brusle.data.load(one) for one in (name, f"npz:{tmp_path / 'same.npz'}"))
    ours, theirs = (attack(net, data.images, data.labels) for data in (found, same))
    assert torch.equal(ours.queries, theirs.queries) and torch.equal(ours.images, theirs.images)
    assert int(ours.queries.max()) > 0
    refused = run("verify", tmp_path / "run")
    assert refused.returncode == 2
    assert "may fetch data from anybody's repository" in refused.stderr
    assert run("verify", tmp_path / "run", "--data", name).returncode == 0
    assert json.loads((tmp_path / "data" / "dataset_dict.json").read_text()) == {"splits": ["test"]}


def test_nothing_is_printed(datasets, tmp_path, capfd) -> None:
    table(datasets).to_parquet(Path(tmp_path / "test.parquet"))
    capfd.readouterr()
    brusle.data.load(f"hf-data:{tmp_path}")
    assert capfd.readouterr() == ("", "")
