import numpy as np
import pytest
import torch
from PIL import Image

from brusle.data import Framing, read_image, save_image
from brusle.errors import DataError, InputError


def test_a_saved_image_comes_back(tmp_path) -> None:
    image = torch.randint(0, 256, (3, 5, 7)).float() / 255
    save_image(image, tmp_path / "x.png")
    assert torch.equal(read_image(tmp_path / "x.png", (3, 5, 7)), image)
    grey = image[:1]
    save_image(grey, tmp_path / "g.png")
    assert torch.equal(read_image(tmp_path / "g.png", (1, 5, 7)), grey)
    # a colour victim gets a grey image in three equal channels
    assert torch.equal(read_image(tmp_path / "g.png", (3, 5, 7)), grey.expand(3, 5, 7))


def test_files_that_are_no_images(tmp_path) -> None:
    with pytest.raises(DataError, match="cannot open.*No such file"):
        read_image(tmp_path / "missing.png")
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(DataError, match="is no image that can be read"):
        read_image(tmp_path / "text.png")
    Image.new("RGB", (64, 64)).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is no image that can be read"):
        read_image(tmp_path / "cut.png")


def test_the_size_must_fit(tmp_path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "wide.png")
    with pytest.raises(InputError, match="30 x 40 pixels, the victim takes 32 x 32: resize"):
        read_image(tmp_path / "wide.png", (3, 32, 32))


def by_the_book(size: tuple[int, int], resize: int, crop: tuple[int, int]) -> tuple[int, ...]:
    """torchvision's Resize and CenterCrop: the resized (height, width), and where the crop is."""
    height, width = size
    short, long = min(size), max(size)
    new_long = int(resize * long / short)
    new = (resize, new_long) if height <= width else (new_long, resize)
    top = round((new[0] - crop[0]) / 2.0)
    left = round((new[1] - crop[1]) / 2.0)
    return (*new, top, left)


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(40, 40), (31, 57), (57, 31), (90, 33), (39, 36), (32, 128)])
def test_framing_is_resize_and_centre_crop(size, how) -> None:
    levels = np.random.default_rng(size[0]).integers(0, 256, (*size, 3), dtype=np.uint8)
    picture = Image.fromarray(levels)
    height, width, top, left = by_the_book(size, 36, (32, 29))
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    resized = np.asarray(picture.resize((width, height), filters[how]))
    got = np.asarray(Framing(36, (32, 29), how).apply(picture))
    assert np.array_equal(got, resized[top : top + 32, left : left + 29])


FILTERS = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]


@pytest.mark.parametrize("how", FILTERS)
def test_framing_to_a_height_and_a_width_squashes(how) -> None:
    levels = np.random.default_rng(1).integers(0, 256, (31, 57, 3), dtype=np.uint8)
    picture = Image.fromarray(levels)
    resized = np.asarray(picture.resize((22, 40), getattr(Image.Resampling, how.upper())))
    got = np.asarray(Framing((40, 22), (36, 22), how).apply(picture))
    assert np.array_equal(got, resized[2:38])


def test_half_of_an_odd_margin() -> None:
    """Rounded to even, or down: 3 pixels are cut off as 2 and 1, or as 1 and 2."""
    levels = np.arange(35 * 33 * 3).reshape(35, 33, 3).astype(np.uint8)
    picture = Image.fromarray(levels)
    even = np.asarray(Framing(None, (32, 32)).apply(picture))
    floor = np.asarray(Framing(None, (32, 32), half="floor").apply(picture))
    assert np.array_equal(even, levels[2:34, :32])
    assert np.array_equal(floor, levels[1:33, :32])


def test_neither_side_is_enlarged_beyond_reason() -> None:
    with pytest.raises(InputError, match="3 x 90 pixels would be enlarged more than 32 times"):
        Framing((99, 90), (90, 90)).apply(Image.new("RGB", (90, 3)))


def test_framing_leaves_images_of_the_right_size_alone(tmp_path) -> None:
    image = torch.randint(0, 256, (3, 8, 8)).float() / 255
    save_image(image, tmp_path / "x.png")
    # an adversarial image that was saved must come back as it was
    assert torch.equal(read_image(tmp_path / "x.png", (3, 8, 8), Framing(10, (8, 8))), image)


def test_framing_does_not_invent_a_border(tmp_path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "small.png")
    with pytest.raises(InputError, match="small.png: 30 x 40 pixels are less than the crop of 32"):
        read_image(tmp_path / "small.png", None, Framing(None, (32, 32)))


def test_a_picture_of_absurd_size_is_refused(tmp_path, monkeypatch) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match="large.png is no image that can be read.*bomb"):
        read_image(tmp_path / "large.png")
