"""Photographs in folders: labels from folder names or from a labels.csv, and framing."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from brusle.data import Framing, load, read_image, source
from brusle.errors import DataError, InputError

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "imagenet"


@dataclass
class Wants:
    """What a victim says of itself."""

    classes: tuple[str, ...] | None = None
    shape: tuple[int, int, int] | None = None
    framing: Framing | None = None


def write(path: Path, grey: int, size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size[1], size[0]), (grey, grey, grey)).save(path)


def greys(images: torch.Tensor) -> list[int]:
    return (images[:, 0, 0, 0] * 255).round().int().tolist()


@pytest.fixture
def pets(tmp_path) -> Path:
    folder = tmp_path / "pets"
    for grey, name in enumerate(["dog/b.png", "dog/a.PNG", "cat/x 1.bmp", "cat/deep/y.png"]):
        write(folder / name, grey)
    (folder / "cat" / "notes.txt").write_text("not an image")
    (folder / "cat" / "._x.png").write_text("what some archivers leave behind")
    (folder / ".hidden").mkdir()
    (folder / "readme.md").write_text("beside the folders")
    return folder


def test_folders_in_sorted_order_are_the_classes(pets) -> None:
    data = load(f"folder:{pets}")
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.names == ("cat-deep-y", "cat-x-1", "dog-a", "dog-b")
    assert greys(data.images) == [3, 2, 1, 0]
    assert data.images.shape == (4, 3, 8, 8)
    assert load(f"folder:{pets}", limit=3).names == ("cat-deep-y", "dog-a", "cat-x-1")


def test_names_of_images_are_different_even_where_paths_collide(tmp_path) -> None:
    for path in ("a/b-c.png", "a-b/c.png", "a/b/c.png", "a/B-C.png"):
        write(tmp_path / path, 0)
    names = source(f"folder:{tmp_path}").names
    assert len({name.lower() for name in names}) == 4
    assert sorted(names)[0].lower() == "a-b-c"


def test_folder_names_find_the_classes_of_the_victim(pets) -> None:
    data = load(f"folder:{pets}", like=Wants(classes=("bird", "Dog", "cow", "Cat")))
    assert data.labels.tolist() == [3, 3, 1, 1]
    assert data.classes == ("bird", "Dog", "cow", "Cat")
    with pytest.raises(
        InputError, match="folder 'cat' of .* is no class .* did you mean 'coat' or 'cart'"
    ):
        load(f"folder:{pets}", like=Wants(classes=("cart", "coat", "dog")))
    with pytest.raises(InputError, match="folder 'cat' of .* could be class 0 or 2"):
        load(f"folder:{pets}", like=Wants(classes=("cat", "dog", "Cat")))


def test_sizes_must_agree_unless_they_are_framed(pets) -> None:
    write(pets / "dog" / "c.png", 9, size=(20, 10))
    odd = f"{pets / 'dog' / 'c.png'} is 20 x 10 pixels, but y.png is 8 x 8: add ?size=N"
    with pytest.raises(InputError) as caught:
        load(f"folder:{pets}")
    assert str(caught.value).startswith(odd)
    data = load(f"folder:{pets}?size=6")
    assert data.images.shape == (5, 3, 6, 6)
    assert greys(data.images) == [3, 2, 1, 0, 9]
    framed = load(f"folder:{pets}", like=Wants(framing=Framing(7, (5, 4))))
    assert framed.images.shape == (5, 3, 5, 4)
    with pytest.raises(InputError, match="c.png is 20 x 10 pixels, the victim takes 8 x 8"):
        load(f"folder:{pets}", like=Wants(shape=(3, 8, 8)))
    assert load(f"folder:{pets}?size=6", like=Wants(shape=(1, 8, 8))).images.shape == (5, 1, 6, 6)


@pytest.mark.parametrize("size", ["0", "-3", "big", "2.5"])
def test_a_size_that_is_none(pets, size) -> None:
    with pytest.raises(InputError, match=f"option size of .* is '{size}': give a whole number"):
        load(f"folder:{pets}?size={size}")


def test_only_chosen_images_are_decoded(pets) -> None:
    (pets / "dog" / "b.png").write_bytes(b"\x89PNG but no more")
    assert len(load(f"folder:{pets}", limit=2)) == 2
    with pytest.raises(DataError, match="dog/b.png is no image that can be read"):
        load(f"folder:{pets}")


def test_folders_without_images(tmp_path) -> None:
    with pytest.raises(DataError, match="nowhere is no folder"):
        load(f"folder:{tmp_path}/nowhere")
    with pytest.raises(InputError, match="names no folder: write folder:DIR"):
        load("folder")
    with pytest.raises(DataError, match="no folder for each class and no labels.csv"):
        load(f"folder:{tmp_path}")
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="there are no images in"):
        load(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="there are no images in"):
        load(f"imagenet:{tmp_path}")


# imagenet


def test_imagenet_folders_are_numbered_in_sorted_order(tmp_path) -> None:
    for grey, wnid in enumerate(["n03", "n01", "n02"]):
        write(tmp_path / wnid / "x.png", grey, size=(300, 260))
    data = load(f"imagenet:{tmp_path}")
    assert data.images.shape == (3, 3, 224, 224)
    assert data.labels.tolist() == [0, 1, 2]
    assert greys(data.images) == [1, 2, 0]
    assert data.classes == ("n01", "n02", "n03")
    # as many classes as the victim has: its names serve better
    named = load(f"imagenet:{tmp_path}", like=Wants(classes=("tench", "shark", "ray")))
    assert named.classes == ("tench", "shark", "ray")
    assert named.labels.tolist() == [0, 1, 2]
    # fewer: the place among them is not the victim's number
    with pytest.raises(InputError, match="3 class folders and the victim 1000 classes: add a lab"):
        load(f"imagenet:{tmp_path}", like=Wants(classes=("x",) * 1000))


def test_photographs_are_framed_as_the_victim_wants(tmp_path) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    (tmp_path / "n01").mkdir()
    Image.fromarray(levels).save(tmp_path / "n01" / "x.png")

    def image(like: Wants | None) -> torch.Tensor:
        return load(f"imagenet:{tmp_path}", like=like).images[0]

    def framed(framing: Framing) -> torch.Tensor:
        picture = framing.apply(Image.fromarray(levels))
        return torch.from_numpy(np.asarray(picture).transpose(2, 0, 1) / np.float32(255))

    assert torch.equal(image(None), framed(Framing(256, (224, 224), "bilinear")))
    own = Framing(60, (48, 50), "bicubic")
    assert torch.equal(image(Wants(framing=own)), framed(own))
    assert torch.equal(image(Wants(framing=own, shape=(3, 48, 50))), framed(own))
    # a victim that names its size only: the usual proportion of 256 to 224
    assert torch.equal(image(Wants(shape=(3, 56, 56))), framed(Framing(64, (56, 56))))


@pytest.fixture
def listed(tmp_path) -> Path:
    for grey, name in enumerate(["a.png", "b.png", "c.png"]):
        write(tmp_path / name, grey)
    lines = "file,class_index,class_name\nb.png,2,shark\na.png,0,tench\nc.png,2,shark\n"
    (tmp_path / "labels.csv").write_text("\ufeff" + lines, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("kind", ["imagenet", "folder"])
def test_labels_from_a_csv_file(listed, kind) -> None:
    data = load(f"{kind}:{listed}")
    assert data.labels.tolist() == [2, 0, 2]
    assert data.names == ("b", "a", "c")
    assert greys(data.images) == [1, 0, 2]
    assert data.classes == ("tench", "class 1", "shark")
    victim = Wants(classes=("t", "u", "v", "w"))
    assert load(f"{kind}:{listed}", like=victim).classes == victim.classes
    with pytest.raises(DataError, match=r"image b of .* has label 2: labels must be 0 \.\.\. 1"):
        load(f"{kind}:{listed}", like=Wants(classes=("t", "u")))


def test_a_csv_file_that_names_all_classes_is_believed(listed) -> None:
    (listed / "labels.csv").write_text("class_name,file,class_index\nno,a.png,0\nyes,b.png,1\n")
    data = load(f"folder:{listed}", like=Wants(classes=("zero", "one")))
    assert data.classes == ("no", "yes")
    (listed / "labels.csv").write_text("file,class_index\na.png,0\nb.png,1\n")
    assert load(f"folder:{listed}").classes == ()
    assert load(f"folder:{listed}", like=Wants(classes=("zero", "one"))).classes == ("zero", "one")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,0\n", "has no column 'class_index'"),
        ("name,class_index\na.png,0\n", "has no column 'file'"),
        ("", "has no column 'file'"),
        ("file,class_index\n", "there are no images in"),
        ("file,class_index\na.png,0\nz.png,1\n", "line 3 lists z.png, which does not exist"),
        ("file,class_index\na.png,cat\n", "line 2 has class_index 'cat'"),
        ("file,class_index\na.png,-1\n", "line 2 has class_index '-1'"),
        ("file,class_index\na.png\n", "line 2 has class_index ''"),
        ("file,class_index\n,1\n", "line 2 lists , which does not exist"),
        ("file,class_index\na.png,1\ufffe".encode("utf-16"), "labels.csv cannot be read"),
    ],
)
def test_bad_csv_files(listed, text, message) -> None:
    (listed / "labels.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as caught:
        load(f"imagenet:{listed}")
    assert message in str(caught.value)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no ImageNet photographs in {SHARED}")
def test_real_photographs() -> None:
    whole = source(f"imagenet:{SHARED}")
    assert len(whole) == 200
    assert whole.labels.tolist() == list(range(0, 1000, 5))
    assert (whole.classes[0], whole.classes[985]) == ("tench", "daisy")
    data = whole.take(whole.order()[:2])
    assert data.images.shape == (2, 3, 224, 224)
    first = sorted(SHARED.glob("*.jpg"))[0]
    again = read_image(first, (3, 224, 224), Framing(256, (224, 224), "bilinear"))
    assert torch.equal(data.images[0], again)
    assert 0.1 < float(data.images.mean()) < 0.9
