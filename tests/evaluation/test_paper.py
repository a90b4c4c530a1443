import csv
import math
from collections import Counter
from importlib.resources import files

import pytest

from brusle.errors import InputError
from brusle.evaluation.paper.results import paper_results, pixels_of, tables


def value(table, **filters) -> float:
    (number,) = paper_results(table, **filters)
    return number.value


def test_every_line_of_the_file_is_a_number() -> None:
    with files("brusle.evaluation.paper").joinpath("results.csv").open() as file:
        lines = Counter(line["table"] for line in csv.DictReader(file))
    assert {t.name: len(paper_results(t.name)) for t in tables()} == lines
    assert len(paper_results()) == lines.total() == 690


# Table "ASR ... against ResNet18 ... 9,000 pairs ... CIFAR-10", copied by hand.
@pytest.mark.parametrize(
    ("attack", "percent", "values"),
    [
        ("Sparse-RS", 1.0, [36.22, 50.6, 58.17, 62.59, 66.26]),
        ("BruSLe", 1.0, [42.32, 54.73, 61.49, 65.33, 68.21]),
        ("Sparse-RS", 2.0, [60.51, 76.1, 83.13, 86.89, 89.21]),
        ("BruSLe", 2.0, [66.01, 79.19, 84.84, 88.27, 90.24]),
        ("Sparse-RS", 2.9, [71.29, 85.67, 91.21, 94.28, 95.78]),
        ("BruSLe", 2.9, [75.54, 88.22, 92.91, 95.2, 96.59]),
        ("Sparse-RS", 3.9, [75.91, 90.21, 94.78, 96.97, 97.98]),
        ("BruSLe", 3.9, [80.44, 91.24, 95.43, 97.4, 98.48]),
    ],
)
def test_cifar10_targeted_as_printed(attack, percent, values) -> None:
    found = paper_results("cifar10-targeted", attack=attack, sparsity_percent=percent)
    assert [(n.queries, n.value) for n in found] == list(
        zip([100, 200, 300, 400, 500], values, strict=True)
    )
    assert {(n.metric, n.setting, n.model) for n in found} == {("asr", "targeted", "ResNet-18")}


def test_numbers_of_other_tables_as_printed() -> None:
    stl = {"attack": "Sparse-RS", "sparsity_percent": 0.54, "queries": 3000}
    assert value("stl10-targeted", **stl) == 89.64
    one_pixel = {"attack": "BruSLe", "variant": "5 pixels"}
    assert value("cifar10-one-pixel", **one_pixel) == 86.4
    assert value("cifar10-l0-hsja", queries=4000) == 93.66
    assert value("cifar10-seeds", variant="10 seeds: std", sparsity_percent=2.9) == 0.11
    linf = "Gowal2021Improving_70_16_ddpm_100m (linf)"
    defended = {"model": linf, "attack": "BruSLe", "sparsity_percent": 0.78}
    assert value("cifar10-defended", **defended) == 46.0


def test_the_transformer_is_the_least_fragile_on_imagenet() -> None:
    """What docs/zoo.md says of the paper, with its numbers, and in every place of both tables."""
    for table, percent, queries, values in (
        ("imagenet-targeted", 0.4, 10_000, (49.0, 82.7)),
        ("imagenet-untargeted", 0.2, 2000, (84.4, 96.6)),
    ):
        place = {"attack": "BruSLe", "sparsity_percent": percent, "queries": queries}
        models = ("ViT-B/16", "ResNet-50")
        assert tuple(value(table, model=model, **place) for model in models) == values
        vit = paper_results(table, attack="BruSLe", model="ViT-B/16")
        for other in ("ResNet-50", "ResNet-50 (SIN)"):
            resnet = paper_results(table, attack="BruSLe", model=other)
            assert all(v.value < r.value for v, r in zip(vit, resnet, strict=True))


def test_an_attack_that_did_not_succeed_took_infinitely_many_queries() -> None:
    found = paper_results("google-cloud-vision", attack="Sparse-RS")
    assert sum(n.value == math.inf for n in found) == 5
    assert all(math.isfinite(n.value) for n in paper_results(attack="BruSLe"))


def test_tables_say_what_they_are_about() -> None:
    found = {t.name: t for t in tables()}
    assert found["stl10-targeted"].models == ("ResNet-9",)
    assert found["stl10-targeted"].dataset == "STL-10"
    assert found["imagenet-untargeted"].models == ("ResNet-50", "ResNet-50 (SIN)", "ViT-B/16")
    assert found["imagenet-untargeted"].setting == "untargeted"
    for name, table in found.items():
        one = {(n.dataset, n.setting) for n in paper_results(name)}
        assert one == {(table.dataset, table.setting)}


def test_one_value_per_place_in_a_table() -> None:
    places = Counter(tuple(vars(n).items())[:-1] for n in paper_results())
    assert set(places.values()) == {1}


SIDES = {"CIFAR-10": 32, "STL-10": 96, "ImageNet": 224}


def test_every_percentage_of_the_paper_is_a_number_of_pixels() -> None:
    seen = {(n.dataset, n.sparsity_percent) for n in paper_results() if n.dataset in SIDES}
    pairs = [(dataset, percent) for dataset, percent in seen if percent is not None]
    assert len(pairs) == 8 + 4 + 9
    for dataset, percent in pairs:
        exact = percent / 100 * SIDES[dataset] ** 2
        assert pixels_of(dataset, percent) == pytest.approx(exact, rel=0.025)


def test_percentages_that_the_paper_spells_out() -> None:
    assert [pixels_of("CIFAR-10", p) for p in (1.0, 2.0, 2.9, 3.9)] == [10, 20, 30, 40]
    assert [pixels_of("STL-10", p) for p in (0.11, 0.54)] == [10, 50]
    assert [pixels_of("ImageNet", p) for p in (0.04, 0.2, 0.4, 1.0)] == [20, 100, 200, 500]


def test_what_the_paper_does_not_have() -> None:
    with pytest.raises(InputError, match="no 5 % on CIFAR-10: give one of 0.39, 0.78, 1, 1.17"):
        pixels_of("CIFAR-10", 5)
    with pytest.raises(InputError, match="no percentages for 'CIFAR10': did you mean 'CIFAR-10'"):
        pixels_of("CIFAR10", 1.0)
    with pytest.raises(InputError, match="table 'cifar10-targetted': did you mean 'cifar10-tar"):
        paper_results("cifar10-targetted")
    with pytest.raises(InputError, match="have no 'atack': did you mean 'attack'"):
        paper_results(atack="BruSLe")
    with pytest.raises(InputError, match="attack 'SparseRS': did you mean 'Sparse-RS'"):
        paper_results(attack="SparseRS")
    assert paper_results("stl10-targeted", model="ViT-B/16") == []
