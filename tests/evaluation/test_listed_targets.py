"""Images and targets in a victim's own words: who is chosen, what is asked, and what is kept."""

from dataclasses import replace

import pytest
import torch

import brusle
from brusle.attacks import BruSLe
from brusle.errors import DataError, InputError, VictimError
from brusle.evaluation import Manifest
from brusle.evaluation.running.journalling import continuing
from brusle.evaluation.running.listed_targets import choose_listed
from brusle.evaluation.storing.recheck import recheck
from brusle.evaluation.storing.runs import Run
from brusle.serving import Server

NET = "zoo:cifar10-resnet20"


@pytest.fixture
def server():
    with Server(NET, "google-vision") as started:
        yield started


def listed_by(victim, images):
    """What the service says of images, as the vocabulary names it: best first."""
    names = victim.vocabulary.names
    for row in victim(images).tolist():
        order = sorted(range(len(row)), key=lambda n: -row[n])
        yield [names[n] for n in order if row[n] > -torch.inf]


def test_labels_and_targets_are_of_the_lists(server) -> None:
    victim = brusle.load_victim(server.name)
    found = choose_listed("sample", victim, images=5, seed=3)
    manifest = found.manifest
    images = manifest.dataset(victim).images
    assert len(manifest.entries) == 5 and manifest.vocabulary == victim.vocabulary.names
    for entry, said in zip(manifest.entries, listed_by(victim, images), strict=True):
        assert manifest.vocabulary[entry.label] == said[0]
        assert manifest.vocabulary[entry.targets[0]] in said[1:]
        assert [manifest.vocabulary[number] for number, _ in found.lists[entry.name]] == said
    asked = server.books.as_dict()["answered"] - 5  # these were ours
    assert manifest.queries == asked == 5 + found.passed_over
    again = choose_listed("sample", brusle.load_victim(server.name), images=3, seed=3).manifest
    assert again.entries == manifest.entries[:3]
    other = choose_listed("sample", brusle.load_victim(server.name), images=5, seed=4).manifest
    assert {e.name for e in other.entries} != {e.name for e in manifest.entries}


def test_short_lists_are_passed_over(server) -> None:
    victim = brusle.load_victim(server.name)
    few = choose_listed("sample", victim, images=2, targets=1)
    more = choose_listed("sample", victim, images=2, targets=3)
    assert [len(entry.targets) for entry in more.manifest.entries] == [3, 3]
    assert more.passed_over > few.passed_over
    every = choose_listed("sample", victim, images=2, targets="all").manifest
    assert all(
        (entry.label, *entry.targets) == tuple(number for number, _ in few.lists[entry.name])
        for entry in every.entries
    )
    with pytest.raises(InputError, match="no list of .* has 11 labels: give other images"):
        choose_listed("sample", victim, targets=10)


def test_a_victim_of_all_scores_has_long_lists() -> None:
    victim = brusle.load_victim(NET)
    found = choose_listed("sample", victim, images=4)
    assert found.manifest.vocabulary == tuple(victim.classes) and not found.passed_over
    assert {len(labels) for labels in found.lists.values()} == {10}
    with pytest.raises(VictimError, match="gives no list of labels: .*broken"):
        choose_listed("sample", brusle.victims.wrap(broken, output="logits"), images=4)


def broken(images):
    raise ValueError("broken")


def test_the_manifest_can_be_written_down(server, tmp_path) -> None:
    manifest = choose_listed("sample", brusle.load_victim(server.name), images=3).manifest
    manifest.write(tmp_path / "pairs.json")
    assert Manifest.read(tmp_path / "pairs.json") == manifest
    first, *others = manifest.vocabulary
    renamed = replace(manifest, vocabulary=(f"another {first}", *others))
    assert renamed.digest != manifest.digest
    moved = replace(manifest, vocabulary=(*manifest.vocabulary, "met later"))
    assert moved.digest == manifest.digest  # the same images, labels and targets


def test_an_evaluation_can_be_opened_again(server, tmp_path) -> None:
    victim = brusle.load_victim(server.name)
    with continuing(victim, tmp_path) as asked:
        manifest = choose_listed("sample", asked, images=3).manifest
    attack = BruSLe(pixels=40, queries=40)
    run = brusle.evaluate(victim, attacks=attack, goal="targeted", pairs=manifest, out=tmp_path)
    assert run.summaries()[0].asr.hits and run.about.labels_from == "victim"
    asked = server.books.as_dict()
    assert asked["answered"] == asked["distinct"] + len(asked["answered_again"])  # verified once
    with Run.open(tmp_path).store as store:
        assert Run(store).results[0].status == run.results[0].status
    checked = recheck(tmp_path, replay=True)
    assert not checked.failed and checked.held == run.summaries()[0].asr.hits
    with pytest.raises(InputError, match="for the victim: open .*, and choose another --out"):
        brusle.evaluate(server.name, "sample", attack, "targeted", tmp_path, limit=2)


def test_labels_of_data_and_victim_are_not_mixed(tmp_path) -> None:
    attack = BruSLe(pixels=40, queries=5)
    manifest = choose_listed("sample", NET, images=2).manifest
    brusle.evaluate(NET, attacks=attack, goal="targeted", pairs=manifest, out=tmp_path)
    with pytest.raises(DataError, match="results of labels from victim, and this is data"):
        brusle.evaluate(NET, "sample", attack, "targeted", tmp_path, limit=2)


def test_numbers_of_labels_are_those_of_the_run(server, tmp_path) -> None:
    """Another choice meets labels in another order, and takes the numbers that they have."""
    attack = BruSLe(pixels=40, queries=5)
    entries = {}
    for seed in (0, 1, 0):
        victim = brusle.load_victim(server.name)
        with continuing(victim, tmp_path) as asked:
            manifest = choose_listed("sample", asked, images=3, seed=seed).manifest
        run = brusle.evaluate(
            victim, attacks=attack, goal="targeted", pairs=manifest, seed=seed, out=tmp_path
        )
        assert entries.setdefault(seed, manifest.entries) == manifest.entries
    assert run.resumed == 3
    assert len(Run.open(tmp_path).results[0].status) == 3
