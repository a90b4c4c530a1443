"""Evaluation pairs: even, correct, reproducible, and tied to the pixels."""

import json
from collections import Counter

import pytest
import torch
from models import integer_model, own_labels, random_images

import brusle
from brusle.attacks import BruSLe
from brusle.data import Dataset, as_source
from brusle.errors import DataError, InputError
from brusle.evaluation import Manifest, choose
from brusle.evaluation.running.workload import Workload
from brusle.problems import Problems

SHAPE = (3, 10, 10)


def dataset(n: int = 120, wrong: int = 3) -> tuple[brusle.victims.FunctionVictim, Dataset]:
    """Images with the model's own labels, except that every ``wrong``-th label is another."""
    model = integer_model(SHAPE, 5)
    images = random_images(n, SHAPE)
    labels = own_labels(model, images)
    labels[::wrong] = (labels[::wrong] + 1) % 5
    names = tuple(f"image-{i}" for i in range(n))
    return model.victim(), Dataset("made", images, labels, tuple("abcde"), names)


def test_images_are_correct_and_even_over_the_classes() -> None:
    victim, data = dataset()
    manifest = choose(data, victim, images=12, seed=3)
    rows = [data.names.index(entry.name) for entry in manifest.entries]
    assert torch.equal(victim(data.images[rows]).argmax(1), data.labels[rows])
    counts = Counter(entry.label for entry in manifest.entries)
    assert sorted(counts.values()) == [3, 3, 3, 3]  # the model knows 4 of the 5 classes
    assert len(set(rows)) == 12


def test_targets_that_an_attack_can_start_at() -> None:
    """Of 5 classes the model knows 4: the fifth has images, but none to start at."""
    victim, data = dataset()
    known = set(victim(data.images).argmax(1).tolist())
    anything = choose(data, victim, images=12, targets="all")
    startable = choose(data, victim, images=12, targets="all", with_starts=True)
    assert len(known) == 4
    assert {t for entry in anything.entries for t in entry.targets} == set(range(5))
    assert {t for entry in startable.entries for t in entry.targets} == known
    assert [e.name for e in startable.entries] == [e.name for e in anything.entries]
    assert startable.queries > anything.queries


def test_queries_of_the_choice_are_counted() -> None:
    model = integer_model(SHAPE, 5)
    images = random_images(60, SHAPE)
    names = tuple(map(str, range(60)))
    data = Dataset("made", images, torch.arange(60) % 5, tuple("abcde"), names)
    manifest = choose(data, model.victim(), images=4)
    assert manifest.queries == model.seen > 0


def test_a_class_that_runs_out_leaves_its_turn_to_the_others() -> None:
    victim, data = dataset()
    rare = int(data.labels.mode().values)
    right = victim(data.images).argmax(1) == data.labels
    keep = (data.labels != rare) | (torch.cumsum((data.labels == rare) & right, 0) <= 1)
    rows = keep.nonzero()[:, 0].tolist()
    names = tuple(data.names[r] for r in rows)
    few = Dataset("made", data.images[rows], data.labels[rows], data.classes, names)
    counts = Counter(entry.label for entry in choose(few, victim, images=14).entries)
    assert counts[rare] == 1
    assert sorted(counts.values()) == [1, 4, 4, 5]


def test_targets() -> None:
    _, data = dataset()
    every = choose(data, images=10, targets="all")
    assert every.pairs == 40
    assert all(set(e.targets) == set(range(5)) - {e.label} for e in every.entries)
    some = choose(data, targets=2)
    assert len(some.entries) == 120
    assert all(len(set(e.targets) - {e.label}) == 2 for e in some.entries)
    # every class is drawn about as often: 240 targets over 5 classes, standard deviation below 7
    counts = Counter(t for e in some.entries for t in e.targets)
    expected = {c: sum(e.label != c for e in some.entries) / 2 for c in range(5)}
    assert all(abs(counts[c] - expected[c]) < 21 for c in range(5))
    with pytest.raises(InputError, match="targets is 5: give 'all' or a number from 1 to 4"):
        choose(data, targets=5)


def test_the_same_seed_gives_the_same_choice_and_another_another() -> None:
    victim, data = dataset()
    first = choose(data, victim, images=15, targets=2, seed=1, batch_size=4)
    assert choose(data, victim, images=15, targets=2, seed=1, batch_size=64) == first
    assert choose(data, victim, images=15, targets=2, seed=2).digest != first.digest


def test_targets_of_an_image_do_not_depend_on_the_others() -> None:
    _, data = dataset()
    some, all_of_them = (choose(data, images=n, targets=2, seed=1) for n in (7, 120))
    targets = {entry.name: entry.targets for entry in all_of_them.entries}
    assert all(targets[entry.name] == entry.targets for entry in some.entries)


def test_a_manifest_is_read_back_and_selects_the_same_pixels(tmp_path) -> None:
    victim, data = dataset()
    manifest = choose(data, victim, images=6, targets=3)
    manifest.write(tmp_path / "pairs.json")
    again = Manifest.read(tmp_path / "pairs.json")
    assert again == manifest
    work = Workload.of_manifest(again, as_source(data))
    pairs = [(e, target) for e in manifest.entries for target in e.targets]
    some = range(2, 11)
    assert len(work.list_of("targeted")) == len(pairs) == 18
    problems = work.problems("targeted", some)
    assert problems.targets.tolist() == [pairs[at][1] for at in some]
    assert work.names("targeted", some) == [pairs[at][0].name for at in some]
    rows = [data.names.index(pairs[at][0].name) for at in some]
    assert torch.equal(problems.images, data.images[rows])
    assert torch.equal(
        problems.ids, Problems.make(problems.images, problems.labels, problems.targets).ids
    )


def test_says_when_data_or_manifest_were_changed(tmp_path) -> None:
    _, data = dataset()
    manifest = choose(data, images=6)
    row = data.names.index(manifest.entries[2].name)
    data.images[row, 0, 0, 0] = 1 - data.images[row, 0, 0, 0]
    with pytest.raises(DataError, match=f"image {data.names[row]} of made is not the one"):
        Workload.of_manifest(manifest, as_source(data))
    path = tmp_path / "pairs.json"
    manifest.write(path)
    content = json.loads(path.read_text())
    content["entries"][0]["targets"] = [4]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="was changed or is of another version"):
        Manifest.read(path)
    path.write_text("{}")
    with pytest.raises(DataError, match="is no manifest of evaluation pairs"):
        Manifest.read(path)
    with pytest.raises(DataError, match="cannot read the manifest"):
        Manifest.read(tmp_path / "none.json")


def test_an_evaluation_attacks_the_pairs_and_a_second_one_the_same(tmp_path) -> None:
    victim, data = dataset()
    manifest = choose(data, victim, images=5, targets="all")
    run = brusle.evaluate(
        victim, data, [BruSLe(3, 20)], "targeted", tmp_path / "run", pairs=manifest
    )
    result = run.results[0]
    assert len(result) == 20 and "skipped" not in result.status
    assert result.problems.targets.tolist() == [t for e in manifest.entries for t in e.targets]
    folder = tmp_path / "run" / "adversarial" / "01-brusle-targeted-3-px"
    assert len(list(folder.iterdir())) == int(result.success.sum()) > 1
    again = Manifest.read(tmp_path / "run" / "pairs.json")
    assert again.digest == manifest.digest
    second = brusle.evaluate(victim, data, [BruSLe(3, 20)], "targeted", pairs=again)
    assert list(second.rows()) == list(run.rows())


def test_pairs_of_arrays_are_found_by_their_place() -> None:
    victim, data = dataset(12, wrong=13)
    arrays = (data.images, data.labels)
    first = brusle.evaluate(victim, arrays, [BruSLe(3, 10)], "targeted", targets=2)
    again = brusle.evaluate(victim, arrays, [BruSLe(3, 10)], "targeted", pairs=first.manifest)
    assert list(again.rows()) == list(first.rows()) and len(list(again.rows())) == 24


def test_an_evaluation_with_all_targets_has_a_row_for_each() -> None:
    victim, data = dataset(12)
    run = brusle.evaluate(victim, data, [BruSLe(3, 10)], targets="all")
    untargeted, targeted = run.results
    assert (len(untargeted), len(targeted)) == (12, 48)
