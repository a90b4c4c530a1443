"""What is called what: kinds, options, plugins, and the order of images."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from installed import install

from brusle.data import Dataset, known_data, load, source
from brusle.data.sets import balanced_order, different_names
from brusle.errors import DataError, InputError


@dataclass
class Wants:
    classes: tuple[str, ...]


def test_every_kind_is_listed() -> None:
    kinds = [name.partition(":")[0] for name in known_data()]
    assert kinds[:7] == ["sample", "cifar10", "stl10", "imagenet", "folder", "hf-data", "npz"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "unknown data 'nothing': known are sample, cifar10, stl10, imagenet"),
        ("cifar:test", "unknown data 'cifar:test': did you mean 'cifar10'?"),
        ("cifar10", "names no split: write cifar10:test or cifar10:train"),
        ("stl10:unlabeled", "names no split: write stl10:test or stl10:train"),
        ("sample:test", "the sample has no parts"),
        ("sample?size=3", "'sample?size=3' has no option 'size'"),
        ("sample:?size=3", "has no option 'size'"),
        ("cifar10:test?folder=x", "has no option 'folder'"),
        ("imagenet:.?size=3", "has no option 'size'"),
        ("folder:.?sise=3", "did you mean 'size'?"),
    ],
)
def test_wrong_names(name, message) -> None:
    with pytest.raises(InputError) as caught:
        load(name)
    assert message in str(caught.value)


@pytest.mark.parametrize("limit", [0, -1])
def test_wrong_limits(limit) -> None:
    with pytest.raises(InputError, match="it must be at least 1"):
        load("sample", limit=limit)


def test_a_limit_takes_one_of_each_class_in_turn() -> None:
    data = load("sample", limit=23)
    assert data.labels.tolist() == [*range(10), *range(10), 0, 1, 2]
    same = load("sample").balanced(23)
    assert data.names == same.names
    assert torch.equal(data.images, same.images)
    assert len(load("sample", limit=1000)) == 200


@pytest.mark.parametrize("seed", range(20))
def test_the_balanced_order(seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 1 + seed % 7, (1 + 3 * seed,), generator=generator)
    order = balanced_order(labels)
    assert sorted(order) == list(range(len(labels)))
    whole = Counter(labels.tolist())
    for end in range(len(order) + 1):
        part = Counter(labels[order[:end]].tolist())
        # no class is ahead of another by more than one, unless the other has no more images
        for label, count in whole.items():
            assert part[label] == count or part[label] >= max(part.values(), default=0) - 1
    for label in whole:  # and each class comes in the order of the files
        mine = [row for row in order if labels[row] == label]
        assert mine == sorted(mine)


def test_names_become_different() -> None:
    assert different_names(["a/b", "a:b", "A-B", "..", "", "é_1.2"]) == (
        "a-b", "a-b-2", "A-B-3", "image", "image-2", "é_1.2",
    )  # fmt: skip
    # a name that looks like the second of another
    assert len(set(different_names(["a-2", "a", "a", "a-2"]))) == 4


def test_the_victim_must_have_enough_classes() -> None:
    assert len(load("sample", like=Wants(tuple("abcdefghij")))) == 200
    with pytest.raises(InputError, match="has label 9, but the victim has 3 classes"):
        load("sample", like=Wants(tuple("abc")))


# plugins

PLUGIN = """
import torch
from brusle.data import Dataset

def squares(rest, like):
    n = int(rest.partition("?")[0])
    images = torch.full((n, 3, 4, 4), 0.5)
    names = tuple(map(str, range(n)))
    return Dataset(rest, images, torch.arange(n) % 2, tuple(like or "ab"), names)

def wrong(rest, like):
    return [1, 2, 3]

def leaves(rest, like):
    raise SystemExit(0)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch) -> Path:
    """An installed package, as pip would leave it."""
    points = {kind: kind for kind in ("squares", "wrong", "gone", "leaves")} | {"sample": "wrong"}
    install(tmp_path, "brusle_squares", PLUGIN, data=points)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("brusle_squares", None)


def test_a_plugin_brings_data(plugin) -> None:
    assert load("squares:5").names == tuple("01234")
    data = load("squares:5?colour=grey", limit=3)
    assert isinstance(data, Dataset)
    assert data.name == "squares:5?colour=grey"
    assert data.labels.tolist() == [0, 1, 0]
    assert data.names == ("0", "1", "2")
    assert torch.equal(data.images, torch.full((3, 3, 4, 4), 0.5))
    assert source("squares:4", like=("no", "yes")).classes == ("no", "yes")
    assert known_data()["squares"] == "From brusle_squares:squares"
    with pytest.raises(InputError, match="unknown data 'square:3': did you mean 'squares'"):
        load("square:3")


def test_plugins_that_do_not_work(plugin) -> None:
    with pytest.raises(DataError, match="brusle_squares:wrong returned a list: it must return"):
        load("wrong:1")
    with pytest.raises(DataError, match="brusle_squares:gone for data 'gone' cannot be loaded"):
        load("gone:1")
    with pytest.raises(DataError, match="failed in brusle_squares:squares: ValueError"):
        load("squares:many")
    with pytest.raises(DataError, match="leaves:1 failed in brusle_squares:leaves: SystemExit"):
        load("leaves:1")
    assert len(load("sample")) == 200  # a plugin cannot replace what brusle has itself
    assert known_data()["sample"].startswith("200 CIFAR-10")
