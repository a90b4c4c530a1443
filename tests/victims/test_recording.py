"""Victims behind a journal: asked once, and answered from it ever after."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import Counting, integer_model, own_labels, random_images
from torch import Tensor, nn

import brusle
from brusle.attacks import BruSLe
from brusle.books import Books, BooksInMemory, SpendingLimit
from brusle.data.images import Framing
from brusle.defences import RandomNoise
from brusle.errors import DataError, InputError, VictimError, VictimUnavailable
from brusle.journal import Journal, image_hashes
from brusle.replies import Consultation, KeepsBooks, Reply
from brusle.terms import Terms
from brusle.trouble import NO_PATIENCE, Patience
from brusle.victim import traits
from brusle.victims import recorded, wrap
from brusle.victims.recording import Recorded
from brusle.vocabulary import Vocabulary

SHAPE, CLASSES = (3, 8, 8), 4


def keys_of(images: Tensor, start: int = 0) -> Tensor:
    return torch.arange(start, start + len(images))


def consult(victim: Recorded, images: Tensor, again: bool = False) -> Consultation:
    return victim.consult(images, keys_of(images), again)


@pytest.fixture
def model() -> Counting:
    return integer_model(SHAPE, CLASSES)


@pytest.fixture
def images() -> Tensor:
    return random_images(6, SHAPE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


# a victim of this process


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_answers_are_the_same_to_the_last_bit(model, images, path, kind) -> None:
    victim = wrap(lambda x: (model(x) / 3).to(kind), output="logits", name="v")
    expected = victim(images)
    model.seen = 0
    for life in range(2):
        mine = recorded(victim, path)
        for _ in range(2):
            answers = mine(images)
            assert answers.dtype == kind and torch.equal(answers, expected)
        assert model.seen == 6
        accounts = mine.summary()
        assert (accounts.asked, accounts.replayed) == (12, 12 if life else 6)
        assert (accounts.sent, accounts.answered, accounts.lost) == (6, 6, 0)
        mine.close()


def test_narrow_numbers_become_wider_at_once(model, images, path) -> None:
    victim = wrap(lambda x: model(x).to(torch.bfloat16), output="logits", name="v")
    expected = victim(images)
    mine = recorded(victim, path)
    for _ in range(2):
        assert mine(images).dtype == torch.float32 and torch.equal(
            mine(images).bfloat16(), expected
        )
    mine.close()


def test_an_image_is_asked_once_in_a_call(model, images, path) -> None:
    victim = recorded(model.victim(), path)
    answers = consult(victim, images[[0, 1, 0, 0, 1]])
    assert model.batches == [2]
    assert answers.replayed.tolist() == [False, False, True, True, True]
    assert torch.equal(answers.scores[[0, 1, 0, 0, 1]], answers.scores)
    assert consult(victim, images[:3]).replayed.tolist() == [True, True, False]
    assert model.batches == [2, 1]
    victim.close()


def test_a_second_look_is_asked_anew_once(model, images, path) -> None:
    victim = recorded(model.victim(), path)
    for again, seen in ((False, 6), (True, 12), (True, 12), (False, 12)):
        consult(victim, images, again)
        assert model.seen == seen
    victim.close()


def test_what_a_victim_raises_is_passed_on_and_booked(model, images, path) -> None:
    fails = [True]

    def answer(x: Tensor) -> Tensor:
        if fails[0]:
            raise ZeroDivisionError("as it is")
        return model(x)

    victim = recorded(wrap(answer, output="logits", name="v"), path)
    with pytest.raises(ZeroDivisionError, match="as it is"):
        consult(victim, images)
    fails[0] = False
    assert not consult(victim, images).replayed.any()
    assert (victim.summary().sent, victim.summary().lost) == (12, 6)
    victim.close()


@pytest.mark.parametrize("answer", [None, torch.zeros(6), torch.zeros(5, 3), torch.zeros(6, 1)])
def test_what_is_no_answer_is_not_recorded(images, path, answer) -> None:
    @dataclass
    class Odd:
        name, output, device = "odd", "logits", torch.device("cpu")

        def __call__(self, images: Tensor) -> Any:
            return answer

    victim = recorded(Odd(), path)
    with pytest.raises(VictimError, match="scores must be"):
        victim(images)
    assert not victim.journal.find([(h, 0) for h in image_hashes(images)])
    victim.close()


def test_two_threads_ask_once(model, images, path) -> None:
    inside, go = threading.Event(), threading.Event()

    def answer(x: Tensor) -> Tensor:
        inside.set()
        assert go.wait(30)
        return model(x)

    victim = recorded(wrap(answer, output="logits", name="v"), path)
    answers: dict[int, Consultation] = {}

    def ask(number: int) -> None:
        answers[number] = consult(victim, images[number : number + 5])

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(30)
    assert model.seen == 6 and sorted(model.batches) == [1, 5]
    assert torch.equal(answers[0].scores[1:], answers[1].scores[:4])
    assert answers[1].replayed.tolist() == [True] * 4 + [False]
    victim.close()


def test_who_waits_for_a_call_that_fails_asks_itself(model, images, path) -> None:
    inside, go = threading.Event(), threading.Event()

    def answer(x: Tensor) -> Tensor:
        if not inside.is_set():
            inside.set()
            assert go.wait(30)
            raise ValueError("the first call")
        return model(x)

    victim = recorded(wrap(answer, output="logits", name="v"), path)
    failures: list[ValueError] = []

    def fail() -> None:
        try:
            consult(victim, images)
        except ValueError as error:
            failures.append(error)

    first = threading.Thread(target=fail)
    second = threading.Thread(target=consult, args=(victim, images))
    first.start()
    assert inside.wait(30)
    second.start()
    go.set()
    first.join(30)
    second.join(30)
    assert len(failures) == 1 and model.seen == 6
    assert consult(victim, images).replayed.all()
    victim.close()


def test_draws_of_a_randomised_victim_are_known_by_their_keys(model, images, path) -> None:
    defended = RandomNoise(model.victim(), 0.1)
    victim = recorded(defended, path)
    first = victim.draw(images, keys_of(images))
    other = victim.draw(images, keys_of(images, 100))
    assert model.seen == 12 and not torch.equal(first, other)
    assert torch.equal(first, defended.draw(images, keys_of(images)))
    victim.close()
    again = recorded(None, path, replay=True)
    assert again.randomised and torch.equal(again.draw(images, keys_of(images, 100)), other)
    with pytest.raises(VictimUnavailable, match="the journal has no answer to this image"):
        again.draw(images, keys_of(images, 200))
    again.close()


def test_averages_are_of_different_draws(images, path) -> None:
    """A function that draws by itself has no keys, so the journal gets them from the loop."""
    model = integer_model(SHAPE, CLASSES)
    asked: list[int] = []

    def answer(x: Tensor) -> Tensor:
        asked.append(len(x))
        return model(x) + len(asked)

    victim = recorded(wrap(answer, output="logits", name="v", randomised=True), path)
    labels = own_labels(model, images)
    one = BruSLe(2, 12)(victim, images, labels, eot=3)
    before = sum(asked)
    two = BruSLe(2, 12)(victim, images, labels, eot=3)
    assert sum(asked) == before > 18
    assert torch.equal(one.images, two.images) and torch.equal(one.scores, two.scores)
    victim.close()


def test_an_attack_is_the_same_without_the_victim(model, images, path) -> None:
    labels, attack = own_labels(model, images), BruSLe(3, 40)
    expected = attack(model.victim(), images, labels, seed=1)
    model.seen = 0
    victim = recorded(model.victim(), path)
    results = [attack(victim, images, labels, seed=1)]
    asked = model.seen
    victim.close()
    for inner in (None, model.victim()):
        stand_in = recorded(inner, path, replay=True)
        results.append(attack(stand_in, images, labels, seed=1))
        assert stand_in.summary().asked == stand_in.summary().replayed > 0
        stand_in.close()
    assert model.seen == asked
    for result in results:
        assert torch.equal(result.images, expected.images)
        assert torch.equal(result.scores, expected.scores)
        assert result.status == expected.status
    another = recorded(None, path, replay=True)
    with pytest.raises(VictimUnavailable, match="^the journal has no answer"):
        attack(another, images, labels, seed=2)
    another.close()


def test_traits_are_passed_on_and_stored(model, path) -> None:
    framing, patience = Framing(9, (8, 8), "bicubic"), Patience(waits=1)
    classes = ["a", "b", "c", "d"]
    inner: Any = wrap(
        model, output="logits", name="v", classes=classes, shape=SHAPE, patience=patience
    )
    inner.framing = framing
    victim = recorded(inner, path)
    assert isinstance(victim, KeepsBooks) and traits(victim) == traits(inner)
    assert (victim.name, victim.output, victim.device) == ("v", "logits", torch.device("cpu"))
    victim.close()
    said = traits(recorded(None, path, replay=True))
    assert said == replace(traits(inner), classes=tuple(classes), patience=NO_PATIENCE)


def test_gradients_are_the_victims_own(model, images, path) -> None:
    victim = recorded(model.victim(), path)
    assert victim.differentiable and torch.equal(victim.graph(images), model.function(images))
    victim.close()
    assert not recorded(model.victim(), path, replay=True).differentiable


def test_a_journal_is_of_one_victim(model, images, path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    recorded(wrap(net, output="logits", name="net"), path).close()
    with pytest.raises(DataError, match=r"another victim \(net, not counting\)"):
        recorded(model.victim(), path)
    with pytest.raises(DataError, match="another victim"):
        recorded(model.victim(), path, replay=True)
    with torch.no_grad():
        net[1].bias += 1
    with pytest.raises(DataError, match=r"another victim \(weights '\w{16}', not '\w{16}'\)"):
        recorded(wrap(net, output="logits", name="net"), path)


def test_what_cannot_be_replayed(tmp_path, path) -> None:
    with pytest.raises(InputError, match="replay=True"):
        recorded(None, path)
    with pytest.raises(DataError, match="there is no journal"):
        recorded(None, path, replay=True)
    Journal(path).close()
    with pytest.raises(DataError, match="holds no answers"):
        recorded(None, tmp_path, replay=True)  # the folder does as well


def test_an_evaluation_may_be_recorded(model, images, path) -> None:
    labels = own_labels(model, images)
    victim = recorded(model.victim(), path)
    results, sent = [], []
    for _ in range(2):
        run = brusle.evaluate(victim, (images, labels), [BruSLe(2, 20)], "untargeted", None)
        results.append(run.results[0])
        sent.append(victim.summary().sent)
    assert sent == [model.seen, model.seen] and model.seen > 20
    assert results[0].status == results[1].status
    assert torch.equal(results[0].images, results[1].images)
    victim.close()


# a victim behind an API


@dataclass
class Service:
    """A service in this process: it answers with the best labels of a model, one by one.

    It keeps books as a remote victim does, and every image that arrives is in ``arrived``.
    """

    model: Counting
    terms: Terms = field(default_factory=Terms)
    books: Books = field(default_factory=BooksInMemory)
    vocabulary: Vocabulary | None = None
    randomised: bool = False
    arrived: list[bytes] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    name = "service"
    output = "logits"
    gives = "partial"
    device = torch.device("cpu")
    patience = NO_PATIENCE

    def keeping(self, books: Books) -> "Service":
        return replace(self, books=books)

    def stream(self, images: Tensor) -> Iterator[tuple[int, Reply]]:
        for at in reversed(range(len(images))):
            call = self.books.open(1, self.terms)
            self.arrived += image_hashes(images[at : at + 1])
            reply = self.state.get("broken") or self.reply(images[at])
            if isinstance(reply, Exception):
                self.books.close(call, "lost")
                raise reply
            self.books.close(call, "refused" if reply.error else "answered")
            yield at, reply

    def reply(self, image: Tensor) -> Reply:
        version = self.state.get("version", "")
        if float(image.mean()) < 0.1:
            return Reply(error="too dark", version=version)
        scores = self.model.function(image[None])[0] * self.state.get("scale", 1.0)
        best = scores.topk(3)
        labels = tuple(f"/m/{i}" for i in best.indices.tolist())
        titles = tuple(f"class {i}" for i in best.indices.tolist())
        return Reply(best.values.numpy(), labels, titles, version=version)

    def __call__(self, images: Tensor) -> Tensor:
        raise AssertionError("a recorded service is streamed")


def by_name(victim: Recorded, images: Tensor) -> list[dict[str, float]]:
    scores = consult(victim, images).scores
    names = victim.vocabulary.names
    return [{names[i]: s for i, s in enumerate(row) if s != -np.inf} for row in scores.tolist()]


def test_labels_come_back_by_name_in_any_order(model, images, path) -> None:
    aliases = {"/m/0": ["/m/1"]}
    victim = recorded(Service(model, vocabulary=Vocabulary(aliases)), path)
    expected = by_name(victim, images)
    assert len(victim.vocabulary) == 3, "two of four mean the same"
    victim.close()
    for order in ([5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 2, 4]):
        stand_in = recorded(None, path, replay=True)
        assert stand_in.gives == "partial" and len(stand_in.vocabulary) == 0
        assert by_name(stand_in, images[order]) == [expected[i] for i in order]
        stand_in.close()


def test_refused_images_are_not_sent_again(model, images, path) -> None:
    images[2] = 0
    service = Service(model, Terms(price=0.5), vocabulary=Vocabulary())
    for replayed in (False, True):
        victim = recorded(service, path)
        answers = consult(victim, images)
        assert answers.errors == {2: "too dark"} and answers.scores[2].isnan().all()
        assert answers.replayed.tolist() == [replayed] * 6
        accounts = victim.summary()
        assert (accounts.asked, accounts.replayed) == (5, 5 * replayed)
        assert (accounts.sent, accounts.answered, accounts.refused) == (6, 5, 1)
        assert accounts.money == 3.0
        victim.close()
    assert len(service.arrived) == 6
    assert service.books.totals.sent == 0, "the journal keeps the books"


def test_what_has_arrived_before_trouble_is_kept(model, images, path) -> None:
    service = Service(model, Terms(requests=4), vocabulary=Vocabulary())
    victim = recorded(service, path)
    with pytest.raises(SpendingLimit, match="4 images were sent"):
        consult(victim, images)
    victim.close()
    assert len(service.arrived) == 4
    service.terms = Terms()
    victim = recorded(service, path)
    assert consult(victim, images).replayed.tolist() == [False] * 2 + [True] * 4
    assert len(service.arrived) == len(set(service.arrived)) == 6
    service.state["broken"] = VictimUnavailable("down")
    with pytest.raises(VictimUnavailable, match="down"):
        consult(victim, 1 - images)
    assert victim.summary().lost == 1
    victim.close()


def test_a_journal_that_cannot_be_written_stops_the_sending(model, images, path) -> None:
    service = Service(model, vocabulary=Vocabulary())
    victim = recorded(service, path)
    consult(victim, images[:1])
    path.rename(path.with_name("away"))
    with pytest.raises(DataError, match="was removed or renamed"):
        consult(victim, images)
    assert len(service.arrived) == 1
    victim.close()


def watched(model: Counting, path: Path, **options: Any) -> tuple[Service, Recorded, list[str]]:
    service, told = Service(model, Terms(canary=10), vocabulary=Vocabulary(), **options), []
    return service, recorded(service, path, on_change=told.append), told


def ask_many(victim: Recorded, count: int, seed: int) -> None:
    for image in random_images(count, SHAPE, seed):
        consult(victim, image[None])


def test_the_canary_is_asked_now_and_then(model, images, path) -> None:
    service, victim, told = watched(model, path)
    consult(victim, images[:1])
    canary = image_hashes(images[:1])[0]
    ask_many(victim, 25, 1)
    assert [at for at, h in enumerate(service.arrived) if h == canary] == [0, 11, 22]
    assert victim.summary().sent == 28 and victim.summary().asked == 26
    victim.close()
    victim = recorded(service, path, on_change=told.append)  # it lies in the journal
    ask_many(victim, 25, 2)
    assert [at for at, h in enumerate(service.arrived) if h == canary] == [0, 11, 22, 33, 44]
    assert victim.warnings == told == []
    service.state["scale"] = 1.005
    ask_many(victim, 20, 3)
    assert told == [], "rounding"
    service.state["scale"] = 0.9
    ask_many(victim, 60, 4)
    (line,) = told
    assert victim.warnings == told
    assert line.startswith("the service's answer to the canary image has changed after ")
    assert line.endswith("; rows before and after are of different models") and "\n" not in line
    victim.close()
    stand_in, before = recorded(None, path, replay=True), len(service.arrived)
    ask_many(stand_in, 25, 1)
    assert len(service.arrived) == before
    stand_in.close()


def test_another_label_on_top_is_told(model, images, path) -> None:
    service, victim, told = watched(model, path)
    consult(victim, images[:1])
    service.state["scale"] = -1.0
    ask_many(victim, 12, 1)
    scores = model.function(images[:1])[0]
    top, last = int(scores.argmax()), int(scores.argmin())
    changed = f"label class {top} {scores[top]:.3g} -> class {last} {-scores[last]:.3g};"
    assert f"after 12 images: {changed}" in told[0]
    victim.close()


def test_another_version_is_told_also_to_a_later_life(model, images, path) -> None:
    service, victim, told = watched(model, path)
    service.state["version"] = "3.0"
    consult(victim, images[:2])
    victim.close()
    service.state["version"] = "3.1\n\ud800"
    victim = recorded(service, path, on_change=told.append)
    consult(victim, images)
    consult(victim, images[:1], again=True)
    (line,) = told
    assert "after 3 images: version 3.0 -> 3.1\\n\\ud800; rows" in line
    victim.close()


def test_no_canary_for_a_randomised_service_or_a_local_victim(model, images, path) -> None:
    service, victim, told = watched(model, path, randomised=True)
    ask_many(victim, 30, 1)
    assert len(service.arrived) == 30 and not told
    victim.close()
    local = recorded(model.victim(), path.with_name("local"))
    local.victim.terms = Terms(canary=1)
    model.seen = 0
    ask_many(local, 5, 1)
    assert model.seen == 5
    local.close()


def test_a_service_that_forgets_an_image_is_told_of(model, images, path) -> None:
    class Forgetful(Service):
        def stream(self, images: Tensor) -> Iterator[tuple[int, Reply]]:
            yield from (pair for pair in super().stream(images) if pair[0])

    victim = recorded(Forgetful(model, vocabulary=Vocabulary()), path)
    with pytest.raises(VictimError, match="without an answer"):
        consult(victim, images)
    assert len(victim.journal.find([(h, 0) for h in image_hashes(images)])) == 5
    victim.close()


def test_a_function_that_names_its_labels_is_recorded_by_their_names(tmp_path) -> None:
    def labels(images: Tensor) -> list[dict[str, float]]:
        return [{f"level {level}": 0.9, "rest": 0.5} for level in (images[:, 0, 0, 0] * 255).int()]

    images = torch.arange(4).view(4, 1, 1, 1).expand(4, 1, 2, 2) / 255
    first = recorded(
        wrap(labels, output="confidences", named=True, name="f"), tmp_path / "j.sqlite"
    )
    forwards = first(images)
    first.close()
    # in another life, other images come first
    again = recorded(
        wrap(labels, output="confidences", named=True, name="f"), tmp_path / "j.sqlite"
    )
    backwards = again(images.flip(0))
    names, others = first.vocabulary.names, again.vocabulary.names
    assert names != others and again.summary().replayed == 4
    order = [others.index(name) for name in names]
    assert torch.equal(backwards.flip(0)[:, order], forwards)
