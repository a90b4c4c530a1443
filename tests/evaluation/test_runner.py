import csv
import json
from functools import partial

import pytest
import torch
from models import integer_model, own_labels, random_images
from PIL import Image

import brusle
from brusle.attacks import PGD0, BruSLe, Ensemble, Minimal
from brusle.data import Dataset
from brusle.errors import InputError
from brusle.evaluation.running.display import progress_text
from brusle.evaluation.running.engines import attack
from brusle.evaluation.storing.runs import checkpoints
from brusle.evaluation.storing.store import Store
from brusle.session import Progress

SHAPE = (3, 12, 12)


def small_run(out, **options) -> tuple[brusle.evaluation.Run, torch.Tensor]:
    model = integer_model(SHAPE, 5)
    images = random_images(20, SHAPE)
    data = (images, own_labels(model, images))
    return brusle.evaluate(model.victim(), data, [BruSLe(3, 30)], out=out, **options), images


def test_the_run_folder_holds_what_the_result_says(tmp_path) -> None:
    run, images = small_run(tmp_path / "run")
    rows = list(csv.DictReader((tmp_path / "run" / "rows.csv").open()))
    assert rows == [
        {k: "" if v is None else str(v) for k, v in row.items()}
        for row in json.loads((tmp_path / "run" / "rows.json").read_text())
    ]
    assert len(rows) == 40
    assert {row["goal"] for row in rows} == {"untargeted", "targeted"}
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    for setting, result in zip(about["settings"], run.results, strict=True):
        mine = [row for row in rows if row["goal"] == setting["goal"]]
        assert setting["summary"]["asr"]["hits"] == sum(r["status"] == "success" for r in mine)
        assert [int(r["queries"]) for r in mine] == result.queries.tolist()
        assert setting["pixels"] == 3
    # adversarial images on disk differ from the originals in the pixels that the row says
    for name, result in zip(
        ("01-brusle-untargeted-3-px", "02-brusle-targeted-3-px"), run.results, strict=True
    ):
        files = sorted((tmp_path / "run" / "adversarial" / name).glob("*.png"))
        assert len(files) == int(result.success.sum()) > 0
        for file in files:
            i = int(file.stem[:5])
            saved = torch.tensor(list(Image.open(file).tobytes())).view(12, 12, 3).permute(2, 0, 1)
            changed = (saved != (images[i] * 255).round()).any(0).sum()
            assert int(changed) == int(result.pixels[i])


def test_targets_depend_on_seed_and_image_only(tmp_path) -> None:
    first, _ = small_run(None, goal="targeted", seed=1)
    again, _ = small_run(None, goal="targeted", seed=1, batch_size=3)
    other, _ = small_run(None, goal="targeted", seed=2)
    targets = [run.results[0].problems.targets.tolist() for run in (first, again, other)]
    assert targets[0] == targets[1] != targets[2]
    assert list(first.rows()) == list(again.rows())


def test_an_image_that_occurs_twice_is_attacked_and_counted_once(tmp_path) -> None:
    model, images = integer_model(SHAPE, 5), random_images(12, SHAPE)
    images = torch.cat([images, images[:2]])
    labels = own_labels(model, images)
    labels[13] = (labels[13] + 1) % 5  # the same pixels with another label are another problem
    data = Dataset("twins", images, labels, (), tuple(f"{i:02d}" for i in range(14)))
    white_box = PGD0(3, 30)  # beside a black-box attack: the two are compared, problem by problem
    for _ in range(2):  # the second time, nothing is left to do
        run = brusle.evaluate(
            model.victim(), data, [BruSLe(3, 30), white_box], "untargeted", tmp_path
        )
        assert run.images == 13
        for rows in map(run.stored, run.settings):
            assert [row.image for row in rows] == [f"{i:02d}" for i in range(12)] + ["13"]
        assert "of 14 images, 13 are different" in " ".join(run.notes)
    assert run.resumed == 26
    opened = brusle.Run.open(tmp_path)
    assert opened.images == 13
    assert [s.images for s in opened.summaries()] == [s.images for s in run.summaries()] == [13, 13]
    assert opened.notes == run.notes


def test_what_is_asked_for_twice_is_run_once() -> None:
    model, images = integer_model(SHAPE, 5), random_images(3, SHAPE)
    data = (images, own_labels(model, images))
    attacks = [BruSLe(3, 5), BruSLe(3, 5), BruSLe(3, 5, palette="binary"), BruSLe(3, 6)]
    goals = ("untargeted", "untargeted")
    run = brusle.evaluate(model.victim(), data, attacks, goals, seed=(1, 1))
    assert [(s.queries, s.seed) for s in run.settings] == [(5, 1), (6, 1)]


def test_attacks_for_one_goal_of_two() -> None:
    model, images = integer_model(SHAPE, 5), random_images(3, SHAPE)
    data = (images, own_labels(model, images))
    run = brusle.evaluate(model.victim(), data, {"untargeted": [BruSLe(3, 5)]})
    assert [setting.goal for setting in run.settings] == ["untargeted"]
    assert len(run.results[0]) == 3


def test_an_attack_alone_and_things_that_are_none() -> None:
    model, images = integer_model(SHAPE, 5), random_images(3, SHAPE)
    data = (images, own_labels(model, images))
    run = brusle.evaluate(model.victim(), data, BruSLe(3, 5), "untargeted")
    assert [setting.attack for setting in run.settings] == ["BruSLe"]
    alone = {"untargeted": BruSLe(3, 5)}
    assert len(brusle.evaluate(model.victim(), data, alone, "untargeted").settings) == 1  # type: ignore[arg-type]
    for wrong in (BruSLe, "brusle", ["brusle"], [BruSLe], 20):
        with pytest.raises(InputError, match="is no attack: give attacks with their budgets"):
            brusle.evaluate(model.victim(), data, wrong)  # type: ignore[arg-type]


def test_a_run_says_what_it_found(tmp_path) -> None:
    run, _ = small_run(tmp_path / "run")
    said = repr(run).splitlines()
    assert said[0] == f"<Run of counting on 20 images of arrays, in {tmp_path / 'run'}"
    asr = run.results[0].asr()
    assert said[1].startswith(f"  BruSLe untargeted, 3 px: ASR {100 * asr:.0f} % [")
    assert "of 30 queries (median)" in said[2] and said[2].endswith(">")
    run.store.close()
    again = brusle.Run(run.store, run.folder, run.settings)
    assert repr(again) == f"<Run in {tmp_path / 'run'}, nothing to read>"
    assert "in memory" in repr(small_run(None)[0])


def test_the_run_folder_has_pictures(tmp_path) -> None:
    small_run(tmp_path / "run")
    for name in ("curve.png", "gallery.png"):
        assert Image.open(tmp_path / "run" / name).size > (100, 100)


def test_what_is_shown_as_finished_is_stored(tmp_path) -> None:
    shown = []

    def look(setting, progress) -> None:
        with Store.read(tmp_path / "run") as store:
            counts = store.counts().get(setting.number, {})
        stored = sum(counts.values())
        assert progress.finished == stored
        assert progress.successes == counts.get("success", 0)
        shown.append(stored)

    small_run(tmp_path / "run", goal="untargeted", on_progress=look, limit=8, batch_size=3)
    assert shown[-1] == 8
    shown.clear()
    small_run(tmp_path / "run", goal="untargeted", on_progress=look, batch_size=3)
    assert shown[0] >= 8 and shown[-1] == 20 and shown == sorted(shown)


@pytest.mark.parametrize(
    "attack", [BruSLe(3, 30), Minimal(BruSLe(6, 10), 60), Ensemble([BruSLe(3, 10), PGD0(3, 9)])]
)
def test_the_last_progress_has_nothing_left(attack) -> None:
    model, images = integer_model(SHAPE, 5), random_images(9, SHAPE)
    seen: dict[str, Progress] = {}
    brusle.evaluate(
        model.victim(),
        (images, own_labels(model, images)),
        attack,
        batch_size=2,
        on_progress=lambda setting, progress: seen.update({setting.goal: progress}),
    )
    assert set(seen) == {"untargeted", "targeted"}
    for progress in seen.values():
        assert (progress.finished, progress.total, progress.remaining) == (9, 9, 0)
        assert "took" in progress_text(progress, 1.0)


def test_an_ended_run_says_what_is_stored(tmp_path) -> None:
    model, images = integer_model(SHAPE, 5), random_images(20, SHAPE)
    victim, data = model.victim(), (images, own_labels(model, images))

    def end(setting, progress) -> None:
        if progress.finished >= 4:
            raise KeyboardInterrupt

    attack = BruSLe(3, 30)
    with pytest.raises(KeyboardInterrupt) as ended:
        brusle.evaluate(victim, data, attack, out=tmp_path, batch_size=4, on_progress=end)
    with Store.read(tmp_path) as store:
        stored = sum(sum(counts.values()) for counts in store.counts().values())
    assert 4 <= stored < 40
    assert ended.value.__notes__ == [f"{stored} of 40 attacks are stored in {tmp_path}"]


def test_bad_requests() -> None:
    with pytest.raises(InputError, match="there is no attack to run"):
        brusle.evaluate(attacks={})
    with pytest.raises(InputError, match="choose from untargeted, targeted"):
        brusle.evaluate(goal="sideways")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="limit is 0"):
        brusle.evaluate(limit=0)


def test_checkpoints_end_at_the_limit() -> None:
    assert checkpoints(300) == (50, 100, 200, 300)
    assert checkpoints(5) == (5,)
    assert checkpoints(500) == (50, 100, 200, 500)


def test_rows_do_not_depend_on_how_an_engine_cuts_its_shards() -> None:
    """An engine takes shards of any size, and hands rows to one sink; nobody is asked back."""
    sizes: list[list[int]] = []

    class Cut:
        def __init__(self, *size: int) -> None:
            self.size = size

        def run(self, supply, sink) -> None:
            sizes.append([])
            for shard in supply.shards(*self.size):
                sizes[-1].append(len(shard))
                attack(supply.victim, shard, partial(sink.keep, shard))

    runs = [small_run(None, goal="untargeted", engine=Cut(*size))[0] for size in ((7,), (9, 4))]
    assert sizes == [[7, 7, 6], [5, 5, 5, 5]]
    whole = list(small_run(None, goal="untargeted")[0].rows())
    assert all(list(run.rows()) == whole for run in runs)
