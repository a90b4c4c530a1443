"""`External`: attacks of strangers are counted, stopped, judged and repeated like brusle's own."""

import os
import random
import threading

import numpy as np
import pytest
import torch
from models import Counting, integer_model, own_labels, random_images
from strangers import fewer_and_fewer, painted, patient, random_colours, unseeded

import brusle
from brusle import rng
from brusle.attacks import BruSLe, Ensemble, External, Restarts, make
from brusle.errors import InputError
from brusle.evaluation.record import Setting
from brusle.victims import wrap

SHAPE, CLASSES, N = (3, 8, 8), 4, 12
MODEL = integer_model(SHAPE, CLASSES)
IMAGES = random_images(N, SHAPE)
LABELS = own_labels(MODEL, IMAGES)


@pytest.fixture
def model() -> Counting:
    return Counting(MODEL.function)


def attack(model, function, pixels=3, queries=20, turn=slice(None), **options):
    """What `External` finds with ``function`` on the images of this module."""
    settings = {
        name: options.pop(name)
        for name in ("options", "needs", "shrinks", "levels", "arrays", "goals", "output")
        if name in options
    }
    external = External(function, pixels, queries, name="stranger", **settings)
    return external(model.victim(), IMAGES[turn], LABELS[turn], **options)


def row(result, i) -> tuple:
    return (
        result.status[i],
        result.queries[i].item(),
        result.images[i].numpy().tobytes(),
        repr(result.losses[i].item()),
    )


def own_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "brusle-external"]


def harmless(model, x):
    """An image that no model of these tests takes for another: a trace of a change."""
    return (x + 1e-4).clamp(0, 1)


def obeys(model, x, y, targets):
    while True:
        model(harmless(model, x))


def catches_exceptions(model, x, y, targets):
    while True:
        try:
            model(harmless(model, x))
        except Exception:
            continue


def catches_everything(model, x, y, targets):
    while True:
        try:
            model(harmless(model, x))
        except:  # noqa: E722
            continue


def catches_everything_once(model, x, y, targets):
    try:
        obeys(model, x, y, targets)
    except BaseException:
        return harmless(model, x)


def asks_in_batches(model, x, y, targets):
    while True:
        model(harmless(model, x.repeat(7, 1, 1, 1)))


def asks_for_more_than_there_is(model, x, y, targets):
    model(harmless(model, x.repeat(1000, 1, 1, 1)))
    raise AssertionError("it was answered")


GREEDY = [
    obeys,
    catches_exceptions,
    catches_everything,
    catches_everything_once,
    asks_in_batches,
    asks_for_more_than_there_is,
]


@pytest.mark.parametrize("function", GREEDY)
@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_greedy_attack_is_stopped_exactly_at_its_limit(model, function, batch_size) -> None:
    before = len(own_threads())
    result = attack(model, function, queries=17, batch_size=batch_size)
    assert result.queries.tolist() == [17] * N
    assert model.seen == N * (17 + 1)  # and the clean images
    assert result.status == ["failed"] * N
    left_alone = N if function is catches_everything else 0
    assert len(own_threads()) == before + left_alone


def test_threads_that_are_left_alone_are_not_too_many(model, monkeypatch) -> None:
    monkeypatch.setattr("brusle.attacks.external.talk._left", [])
    monkeypatch.setattr("brusle.attacks.external.talk._MOST_LEFT", 5)
    result = attack(model, catches_everything, queries=3, batch_size=1)
    assert result.status == ["failed"] * 5 + ["error"] * (N - 5)
    assert "catches the exception that ends it, and 5 of its threads wait" in result.errors[5]


def test_the_first_images_of_a_batch_that_can_be_paid_are_asked(model) -> None:
    asked = []
    watched = Counting(lambda images: asked.append(images.clone()) or MODEL.function(images))

    def batches(model, x, y, targets):
        steps = torch.arange(1, 8).view(7, 1, 1, 1) * 1e-4
        while True:
            model((x + steps).clamp(0, 1))

    attack(watched, batches, queries=10, turn=slice(1))
    steps = [round(float((one[0] - IMAGES[0]).amax()) * 1e4) for one in asked[1:]]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]


def test_nothing_is_asked_after_a_success(model) -> None:
    def goes_on(model, x, y, targets):
        for _ in range(3):
            model(harmless(model, x))
        other = random_images(1, SHAPE, seed=5)
        while True:
            try:
                model(other)
            except BaseException:
                model(other)

    result = attack(model, goes_on, pixels=64)
    hit = own_labels(MODEL, random_images(1, SHAPE, seed=5)) != LABELS
    assert hit.any()
    assert torch.equal(result.success, hit)
    assert result.queries[hit].tolist() == [4] * int(hit.sum())
    assert model.seen == int(result.ledger.total.sum())


class TestFaults:
    def test_an_exception_is_an_error_row_of_its_image_in_one_line(self, model) -> None:
        def breaks(model, x, y, targets):
            patient(model, x, y, targets, tries=2)
            if torch.equal(x[0], IMAGES[4]):
                raise ValueError("first line\nsecond line")
            return patient(model, x, y, targets, tries=100)

        def patient_twice(model, x, y, targets):
            patient(model, x, y, targets, tries=2)
            return patient(model, x, y, targets, tries=100)

        result, other = attack(model, breaks, pixels=1), attack(model, patient_twice, pixels=1)
        assert result.status[4] == "error"
        assert result.errors == {4: "the attack raised ValueError: first line"}
        assert result.queries[4] == 2
        assert [row(result, i) for i in range(N) if i != 4] == [
            row(other, i) for i in range(N) if i != 4
        ]
        assert result.robust_accuracy == result.status.count("failed") / (N - 1)

    @pytest.mark.parametrize(
        ("end", "reason"),
        [
            (lambda: exit(3), "the attack raised SystemExit: 3"),
            (lambda: os._exit(0), "the attack raised SystemExit: 0"),
            (lambda: 1 / 0, "the attack raised ZeroDivisionError: division by zero"),
            (lambda: (_ for _ in ()).throw(KeyboardInterrupt), "the attack raised Keyboard"),
        ],
    )
    def test_it_cannot_end_the_program(self, model, end, reason) -> None:
        def ends(model, x, y, targets):
            end()

        result = attack(model, ends)
        assert result.status == ["error"] * N
        assert result.errors[0].startswith(reason)
        assert result.queries.tolist() == [0] * N

    def test_an_exception_that_cannot_be_told_is_one_all_the_same(self, model) -> None:
        class MuteError(Exception):
            def __str__(self) -> str:
                raise SystemExit

        def ends(model, x, y, targets):
            raise MuteError

        assert attack(model, ends).status == ["error"] * N

    def test_an_exception_after_the_last_query_comes_too_late(self, model) -> None:
        def breaks(model, x, y, targets):
            model(harmless(model, x))
            raise ValueError("too late")

        assert attack(model, breaks, queries=1).status == ["failed"] * N
        assert attack(model, breaks, queries=2).status == ["error"] * N

    def test_asking_nothing_is_no_robustness(self, model) -> None:
        result = attack(model, lambda model, x, y, targets: x)
        assert result.status == ["error"] * N
        assert "asked nothing" in result.errors[0]
        assert np.isnan(result.robust_accuracy)

    @pytest.mark.parametrize(
        ("ask", "reason"),
        [
            (lambda model, x: model(x[0]), "shape (3, 8, 8): they must be (number, 3, 8, 8)"),
            (lambda model, x: model(x[:, :1]), "shape (1, 1, 8, 8)"),
            (lambda model, x: model(x * torch.nan), "NaN"),
            (lambda model, x: model("cat"), "a str, which is no array of images"),
            (lambda model, x: model(x.requires_grad_()), "wants gradients"),
        ],
    )
    def test_what_cannot_be_asked_says_why_and_costs_nothing(self, model, ask, reason) -> None:
        result = attack(model, lambda model, x, y, targets: ask(model, x))
        assert result.status == ["error"] * N
        assert result.errors[0].startswith("the attack failed: it ") and reason in result.errors[0]
        assert model.seen == N

    def test_another_thread_may_not_ask(self, model) -> None:
        def splits(model, x, y, targets):
            said = []

            def ask():
                try:
                    model(x)
                except InputError as error:
                    said.append(error)

            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
            raise said[0]

        assert "another thread" in attack(model, splits).errors[0]

    def test_a_wrong_image_that_is_returned_is_an_error(self, model) -> None:
        result = attack(model, lambda model, x, y, targets: (model(x), x[0])[1])
        assert "shape (3, 8, 8)" in result.errors[0]


class TestWhatCounts:
    def test_the_returned_image_costs_a_query_unless_it_was_asked(self, model) -> None:
        other = random_images(1, SHAPE, seed=5)
        hit = own_labels(MODEL, other) != LABELS

        def transferred(model, x, y, targets):
            return other

        result = attack(model, transferred, pixels=64)
        assert torch.equal(result.success, hit)
        assert result.queries.tolist() == [1] * N

        def asked(model, x, y, targets):
            image = harmless(model, x)
            model(image)
            return image

        assert attack(model, asked).queries.tolist() == [1] * N

        def beyond(model, x, y, targets):
            model(harmless(model, x))
            return other

        assert attack(model, beyond, pixels=64, queries=1).status == ["failed"] * N
        assert attack(model, beyond, pixels=64, queries=2).success.tolist() == hit.tolist()

    def test_what_changes_too_many_pixels_is_no_success(self, model) -> None:
        other = random_images(1, SHAPE, seed=5)
        hit = own_labels(MODEL, other) != LABELS
        for shrinks in (True, False):
            result = attack(model, lambda *given: other, pixels=63, shrinks=shrinks)
            assert result.status == ["failed"] * N
            kept = (result.images == other).flatten(1).all(1)
            # what comes from above shows how far it came
            assert torch.equal(kept, hit if shrinks else torch.zeros_like(hit))
            assert result.losses[hit].tolist() == [64.0 if shrinks else torch.inf] * int(hit.sum())

    def test_the_fewest_pixels_are_kept_whatever_it_returns(self, model) -> None:
        result = attack(model, fewer_and_fewer, pixels=1, queries=60, arrays="numpy")
        failed = torch.tensor([status == "failed" for status in result.status])
        reached = own_labels(MODEL, result.images) != LABELS
        assert (failed & reached).any()
        assert (result.losses[failed & reached] == result.pixels[failed & reached]).all()
        more = attack(model, fewer_and_fewer, pixels=1, queries=15, arrays="numpy")
        both = failed & (own_labels(MODEL, more.images) != LABELS)
        assert both.any()
        assert (result.pixels[both] <= more.pixels[both]).all()

    def test_of_what_keeps_within_the_budget_the_lowest_loss_is_kept(self, model) -> None:
        few = attack(model, random_colours, pixels=1, queries=5, shrinks=False)
        many = attack(model, random_colours, pixels=1, queries=25, shrinks=False)
        failed = torch.tensor([status == "failed" for status in many.status])
        assert failed.any()
        assert (many.losses[failed] <= few.losses[failed]).all()
        assert (many.losses[failed] < few.losses[failed]).any()

    def test_traces_of_arithmetic_are_no_changes(self, model) -> None:
        def scaled(model, x, y, targets):
            image = painted(model, x)
            model((image * 2 - 1) / 2 + 0.5 + 1e-7)

        result = attack(model, scaled, pixels=2)
        changed = (result.images != IMAGES).any(1).flatten(1).sum(1)
        assert result.status.count("success") > 0
        assert max(changed[result.success].tolist()) <= 2

    def test_values_are_taken_to_the_bounds(self, model) -> None:
        def far(model, x, y, targets):
            image = painted(model, x)
            model(torch.where(image == x, x, image * 9 - 4))

        result = attack(model, far, pixels=6)
        assert "success" in result.status and "unverified" not in result.status
        assert result.images.min() >= 0 and result.images.max() <= 1

    @pytest.mark.parametrize(("levels", "status"), [(False, "unverified"), (True, "failed")])
    def test_between_two_levels(self, levels, status) -> None:
        def between(images):
            level = images[:, 0, 0, 0].double() * 255
            return torch.stack([torch.full_like(level, 0.1), (level - level.round()).abs()], 1)

        def half_a_level(model, x, y, targets):
            x[0, 0, 0, 0] += 0.4 / 255 if x[0, 0, 0, 0] < 0.5 else -0.4 / 255
            model(x)

        external = External(half_a_level, 1, 5, name="half", levels=levels)
        result = external(wrap(between, output="logits"), IMAGES, [0] * N)
        assert result.status == [status] * N


class TestRandomNumbers:
    def test_the_globals_of_the_process_are_as_they_were(self, model) -> None:
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(7)
        expected = random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(7)
        attack(model, fewer_and_fewer, arrays="numpy")
        attack(model, random_colours)
        got = random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
        assert got == expected

    @pytest.mark.parametrize("function", [fewer_and_fewer, unseeded])
    def test_what_ran_before_and_beside_makes_no_difference(self, model, function) -> None:
        whole = attack(model, function, arrays="numpy", seed=3)
        torch.manual_seed(99)
        random.seed(99)
        np.random.seed(99)  # noqa: NPY002
        for i in range(N):
            alone = attack(model, function, arrays="numpy", seed=3, turn=slice(i, i + 1))
            assert row(alone, 0) == row(whole, i)
        others = attack(model, function, arrays="numpy", seed=4)
        assert [row(others, i) for i in range(N)] != [row(whole, i) for i in range(N)]

    def test_generators_that_nobody_seeds_differ_again_afterwards(self, model) -> None:
        attack(model, unseeded, arrays="numpy")
        random.seed(3)
        first = np.random.default_rng().random(4).tolist()
        random.seed(3)
        assert np.random.default_rng().random(4).tolist() != first

    def test_every_image_and_restart_has_a_seed_of_its_own(self, model) -> None:
        seeds = []

        def notes(model, x, y, targets):
            seeds.append(model.seed)
            model(harmless(model, x))

        victim = model.victim()
        restarts = Restarts(External(notes, 3, 5, name="notes"), 2)
        restarts(victim, IMAGES, LABELS)
        first = list(seeds)
        assert len(set(first)) == 2 * N
        restarts(victim, IMAGES, LABELS)
        assert seeds[2 * N :] == first

    def test_two_sessions_at_once_do_not_disturb_each_other(self) -> None:
        expected = attack(Counting(MODEL.function), fewer_and_fewer, arrays="numpy")
        found = []

        def one() -> None:
            found.append(attack(Counting(MODEL.function), fewer_and_fewer, arrays="numpy"))

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in found:
            assert [row(result, i) for i in range(N)] == [row(expected, i) for i in range(N)]
        assert len(found) == 4


class TestWhatTheFunctionGets:
    def test_image_label_target_and_what_may_be_known(self, model) -> None:
        seen = []

        def looks(model, x, y, targets, tries=0):
            seen.append((x.shape, int(y), None if targets is None else int(targets)))
            known = (model.shape, model.classes, model.pixels, model.bounds, model.targeted)
            assert known == (SHAPE, CLASSES, 3, (0.0, 1.0), targets is not None)
            assert tries == 4
            for left in range(5, 0, -1):
                assert model.left == left
                assert model(harmless(model, x)).shape == (1, CLASSES)

        targets = (LABELS + 1) % CLASSES
        for aims in (None, targets):
            result = attack(model, looks, queries=5, options={"tries": 4}, targets=aims)
            assert result.status == ["failed"] * N
        of_images = [(1, *SHAPE)] * N
        aims = [None] * N, targets.tolist()
        assert seen == [
            one for some in aims for one in zip(of_images, LABELS.tolist(), some, strict=True)
        ]

    def test_scores_are_those_of_the_victim(self, model) -> None:
        said = {}

        def listens(model, x, y, targets):
            images = torch.cat([harmless(model, x), (x + 2e-4).clamp(0, 1), x])
            said[int(model.seed)] = images, model(images)

        attack(model, listens)
        assert len(said) == N
        for images, scores in said.values():
            assert scores.dtype == torch.float32 and not scores.requires_grad
            assert torch.equal(scores, MODEL.function(images).float())

    @pytest.mark.parametrize("output", ["logits", "probabilities"])
    def test_scores_of_another_kind(self, output) -> None:
        logits = MODEL.function(IMAGES).float()
        victim = wrap(lambda x: MODEL.function(x).softmax(1), output="probabilities")

        def listens(model, x, y, targets):
            at = int((x == IMAGES).flatten(1).all(1).nonzero())
            expected = logits[at].log_softmax(0) if output == "logits" else logits[at].softmax(0)
            assert torch.allclose(model(x)[0], expected, atol=1e-4)

        external = External(listens, 3, 5, name="listens", output=output)
        assert external(victim, IMAGES, LABELS).status == ["failed"] * N

    def test_only_the_label_if_it_needs_no_more(self, model) -> None:
        def listens(model, x, y, targets):
            (scores,) = model(harmless(model, x))
            assert sorted(scores.tolist()) == [0.0] * (CLASSES - 1) + [1.0]
            assert int(scores.argmax()) == int(y)

        assert attack(model, listens, needs="labels").status == ["failed"] * N
        of_labels = brusle.defences.make("label", model.victim())
        external = External(listens, 3, 5, name="listens", needs="labels")
        assert external(of_labels, IMAGES, LABELS).status == ["failed"] * N
        with pytest.raises(InputError, match="gives only the label"):
            External(listens, 3, 5, name="listens")(of_labels, IMAGES, LABELS)

    def test_absent_labels_are_numbers(self, model) -> None:
        of_lists = brusle.defences.make("topk:2", model.victim())

        def listens(model, x, y, targets):
            (scores,) = model(harmless(model, x))
            assert scores.isfinite().all() and sorted(scores.tolist())[:2] == [-1.0, -1.0]
            assert int(scores.argmax()) == int(y)

        external = External(listens, 3, 5, name="listens")
        assert external(of_lists, IMAGES, LABELS).status == ["failed"] * N

    def test_a_draw_of_a_randomised_victim_is_a_query_and_the_mean_is_heard(self, model) -> None:
        noisy = brusle.defences.make("rnd:0.02", model.victim())
        lefts = []

        def listens(model, x, y, targets):
            while True:
                lefts.append(model.left)
                model(harmless(model, x))

        external = External(listens, 3, 22, name="listens")
        result = external(noisy, IMAGES, LABELS, eot=4)
        failed = torch.tensor([status == "failed" for status in result.status])
        assert failed.any()
        assert result.queries[failed].tolist() == [20] * int(failed.sum())
        assert max(lefts) == 5 and min(lefts) >= 1

    def test_it_works_inside_inference_mode(self, model) -> None:
        def changes(model, x, y, targets):
            scores = model(harmless(model, x))
            scores += 1
            x += 1
            torch.ones(1, requires_grad=True).sum().backward()

        with torch.inference_mode():
            result = attack(model, changes)
        assert result.status == ["failed"] * N

    def test_it_may_attack_another_model_itself(self, model) -> None:
        """A surrogate, under a ledger of its own."""

        def transfers(model, x, y, targets):
            surrogate = integer_model(SHAPE, CLASSES).victim()
            inner = External(random_colours, model.pixels, 30, shrinks=False)
            return torch.as_tensor(inner(surrogate, x, y).images)

        result = attack(model, transfers, pixels=6)
        assert "success" in result.status
        assert result.queries.max() == 1

    def test_options_are_as_they_were_for_every_image(self, model) -> None:
        def counts(model, x, y, targets, seen):
            seen.append(int(y))
            assert len(seen) == 1
            model(harmless(model, x))

        options = {"seen": []}
        assert attack(model, counts, options=options).status == ["failed"] * N
        assert options == {"seen": []}


class TestInOtherAttacks:
    def test_restarts_and_ensembles_add_up(self, model) -> None:
        external = External(patient, 1, 20, options={"tries": 6})
        once = external(model.victim(), IMAGES, LABELS)
        thrice = Restarts(external, 3)(model.victim(), IMAGES, LABELS)
        assert (thrice.queries[~thrice.success] == 18).all() and not thrice.success.all()
        assert torch.equal(thrice.queries[once.success], once.queries[once.success])
        both = Ensemble([external, BruSLe(1, 20)])(model.victim(), IMAGES, LABELS)
        assert set(both.found_by) <= {"", "strangers.patient tries=6", "BruSLe"}
        assert int(both.ledger.total.sum() + thrice.ledger.total.sum()) == model.seen - int(
            once.ledger.total.sum()
        )

    @pytest.mark.parametrize("function", [random_colours, patient])
    def test_the_fewest_pixels_within_the_budget(self, model, function) -> None:
        fixed = External(function, 6, 30, shrinks=False)
        once = fixed(model.victim(), IMAGES, LABELS)
        fewest = brusle.minimise(fixed, model.victim(), IMAGES, LABELS, queries=200)
        assert int(fewest.queries.max()) <= 200
        assert int(fewest.pixels[once.success].sum()) < int(once.pixels[once.success].sum())

    def test_the_fewest_pixels_from_above(self, model) -> None:
        above = External(fewer_and_fewer, 6, 30, arrays="numpy")
        once = above(model.victim(), IMAGES, LABELS)
        fewest = brusle.minimise(above, model.victim(), IMAGES, LABELS, queries=200)
        assert int(fewest.pixels[once.success].sum()) < int(once.pixels[once.success].sum())

    @pytest.mark.parametrize("shrinks", [False, True])
    def test_the_fewest_pixels_of_what_asks_nothing(self, model, shrinks) -> None:
        idle = External(lambda model, x, y, targets: x, 6, 30, name="idle", shrinks=shrinks)
        result = brusle.minimise(idle, model.victim(), IMAGES, LABELS, queries=200)
        assert result.status == ["error"] * N

    def test_traces(self, model) -> None:
        result = attack(model, fewer_and_fewer, arrays="numpy", levels=True, trace=True)
        assert set(result.traces) == set(range(N))
        for i, trace in result.traces.items():
            assert len(trace.improvements[-1].positions) == int(result.pixels[i])

    def test_progress_says_that_what_gave_up_is_finished(self, model) -> None:
        seen = []
        attack(model, patient, pixels=1, queries=50, on_progress=seen.append)
        assert (seen[-1].finished, seen[-1].remaining) == (N, 0)


def test_an_interrupted_session_leaves_no_thread_behind(model) -> None:
    before = len(own_threads())

    def stop(progress) -> None:
        if progress.queries > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack(model, random_colours, pixels=1, batch_size=5, on_progress=stop)
    assert len(own_threads()) == before


def test_a_run_that_was_interrupted_goes_on_and_asks_nothing_twice(tmp_path) -> None:
    external = External(fewer_and_fewer, 2, 30, arrays="numpy", levels=True)
    whole = Counting(MODEL.function)
    options = {"goal": "untargeted", "batch_size": 4}
    data = IMAGES, LABELS
    expected = brusle.evaluate(whole.victim(), data, external, out=tmp_path / "a", **options)
    asked = 0

    def breaks(images):
        nonlocal asked
        asked += len(images)
        if asked > 100:
            raise KeyboardInterrupt
        return MODEL.function(images)

    first = wrap(breaks, output="logits", name="counting")
    with pytest.raises(KeyboardInterrupt):
        brusle.evaluate(first, data, external, out=tmp_path / "b", **options)
    again = Counting(MODEL.function)
    got = brusle.evaluate(again.victim(), data, external, out=tmp_path / "b", **options)

    def rows(run):
        found = [{**one, "seconds": 0} for one in run.rows()]
        return sorted(found, key=lambda one: one["image"])

    assert rows(got) == rows(expected)
    assert again.seen < whole.seen
    got.store.close()
    expected.store.close()


class TestNames:
    def test_a_function_of_a_module_has_its_own(self) -> None:
        external = External(patient, 3, 20, options={"tries": 9})
        assert external.label == "strangers.patient tries=9"
        assert Setting.of(external, "untargeted").key == (
            '{"attack":{"kind":"External","options":{"name":"strangers.patient","options":{"tries":9}},'
            '"pixels":3,"queries":20},"eot":1,"goal":"untargeted","seed":0}'
        )

    def test_others_need_one(self) -> None:
        for function in (lambda *given: None, patient.__call__, Counting(print)):
            with pytest.raises(InputError, match=r"give name=, by which its results are known"):
                External(function, 3, 20)
            assert External(function, 3, 20, name="mine").label == "mine"

    def test_options_that_change_from_run_to_run_are_refused(self) -> None:
        with pytest.raises(InputError, match="option tries of strangers.patient is <object object"):
            External(patient, 3, 20, options={"tries": object()})

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"function": "patient"}, "function is a str"),
            ({"pixels": 0}, "pixels is 0"),
            ({"needs": "gradients"}, "choose from scores, labels"),
            ({"arrays": "jax"}, "choose from torch, numpy"),
            ({"levels": 3}, "levels is 3"),
        ],
    )
    def test_bad_requests(self, arguments, message) -> None:
        with pytest.raises(InputError, match=message):
            External(**{"function": patient, "pixels": 3, "queries": 5, **arguments})

    def test_a_goal_that_it_does_not_know_is_refused_before_the_first_query(self, model) -> None:
        with pytest.raises(InputError, match="stranger knows targeted attacks only"):
            attack(model, patient, goals="targeted")
        assert model.seen == 0

    @pytest.mark.parametrize("spec", ["foolbox", "art:?restarts=2"])
    def test_a_library_alone_is_no_attack(self, spec) -> None:
        with pytest.raises(InputError, match=r"does not say which attack of .*: write \w+:NAME"):
            make(spec, 3, 20)


def test_the_purpose_of_its_seeds_is_its_own() -> None:
    assert rng.purpose("external: seed") not in list(rng.Purpose)
