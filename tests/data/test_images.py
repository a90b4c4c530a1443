import pytest
import torch
from PIL import Image

from brusle.data import load, read_image, save_image
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


def test_unknown_data() -> None:
    with pytest.raises(InputError, match="known are sample"):
        load("imagenet")
