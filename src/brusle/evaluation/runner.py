"""Run several attacks on one victim and one data set, and keep everything in a run folder."""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

import brusle
from brusle.attacks.base import AnyAttack
from brusle.data import Dataset, load, save_image, source
from brusle.defences import defend
from brusle.errors import DataError, InputError
from brusle.evaluation.metrics import Summary
from brusle.evaluation.pairs import Manifest, Targets, number_of_classes
from brusle.evaluation.pairs import manifest as make_manifest
from brusle.evaluation.starts import StartingImages
from brusle.evaluation.store import Store, result_of, rows_of
from brusle.loop import Progress, notes_on
from brusle.loop import run as run_attack
from brusle.oracle import Victim, traits
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.victims import as_victim, default_batch_size

GoalName = Literal["untargeted", "targeted"]
GOALS: tuple[GoalName, ...] = ("untargeted", "targeted")
DEFAULT_PIXELS: dict[GoalName, tuple[int, ...]] = {"untargeted": (2, 5), "targeted": (10, 20)}


@dataclass(frozen=True)
class Setting:
    """One line of the final table: an attack (with its budgets), a goal, and a seed."""

    attack: AnyAttack
    goal: GoalName
    seed: int = 0

    @property
    def name(self) -> str:
        """The attack, and the seed if it is not 0."""
        return f"{self.attack.label}, seed {self.seed}" if self.seed else self.attack.label

    @property
    def title(self) -> str:
        """For people."""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.attack.label} {self.goal}, {self.attack.pixels} px{seed}"

    @property
    def wants_start(self) -> bool:
        """Whether the attack should be given starting images for this goal."""
        return self.attack.wants_start(self.goal == "targeted")

    @property
    def slug(self) -> str:
        """For file names."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower())


@dataclass
class Run:
    """An evaluation, as far as it has come.

    Attributes:
        victim: the name of the victim.
        device: where it ran.
        data: the images, as attacked.
        manifest: the images and their targets, with hashes.
        seed: the seed.
        folder: where it is written, if anywhere.
        settings: what was run.
        results: one result for each setting.
        resumed: attacks that were stored before and not run again.
        start_queries: images that the victim was asked for to find starting images.
        seconds: wall-clock time.
    """

    victim: str
    device: str
    data: Dataset
    manifest: Manifest
    seed: int
    folder: Path | None
    settings: list[Setting] = field(default_factory=list)
    results: list[AttackResult] = field(default_factory=list)
    resumed: int = 0
    start_queries: int = 0
    seconds: float = 0.0

    @property
    def errors(self) -> int:
        """Images, over all settings, that the victim failed on or the check refused."""
        return sum(len(result.errors) for result in self.results)

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know, each once."""
        return list(dict.fromkeys(note for result in self.results for note in result.notes))

    def summaries(self) -> list[Summary]:
        """One summary for each setting, with the success rate at a few numbers of queries."""
        return [Summary.of(r, checkpoints(r.attack.queries)) for r in self.results]

    def rows(self) -> Iterable[dict[str, Any]]:
        """One row for each image and setting."""
        for setting, result in zip(self.settings, self.results, strict=True):
            yield from result_rows(setting, result)

    def as_dict(self) -> dict[str, Any]:
        """Settings, versions and summaries, for JSON."""
        settings = [
            {
                "goal": setting.goal,
                "seed": setting.seed,
                "attack": setting.attack.label,
                "options": asdict(setting.attack),  # type: ignore[call-overload]
                "summary": summary.as_dict(),
            }
            for setting, summary in zip(self.settings, self.summaries(), strict=True)
        ]
        return {
            "brusle": brusle.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": platform.machine(),
            "device": self.device,
            "victim": self.victim,
            "data": self.data.name,
            "images": len(self.data),
            "pairs": self.manifest.digest,
            "seed": self.seed,
            "resumed": self.resumed,
            "start_queries": self.start_queries,
            "seconds": round(self.seconds, 2),
            "notes": self.notes,
            "settings": settings,
        }


def checkpoints(limit: int) -> tuple[int, ...]:
    """Numbers of queries, up to the limit, at which tables give the success rate."""
    marks = (10, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
    return (*[q for q in marks if q < limit][-3:], limit)


def evaluate(
    victim: Any = "zoo:cifar10-resnet20",
    data: str | Dataset | tuple[Any, Any] = "sample",
    attacks: Sequence[AnyAttack] | Mapping[GoalName, Sequence[AnyAttack]] | None = None,
    goal: GoalName | Sequence[GoalName] = GOALS,
    out: str | Path | None = None,
    *,
    pairs: str | Path | Manifest | None = None,
    targets: Targets = 1,
    defences: Sequence[str] = (),
    limit: int | None = None,
    seed: int | Sequence[int] = 0,
    batch_size: int | None = None,
    eot: int = 1,
    device: str = "auto",
    on_progress: Callable[[Setting, Progress], None] | None = None,
    plan: Mapping[str, Any] | None = None,
) -> Run:
    """Attack a victim on a data set and write a run folder.

    Args:
        victim: a name, an ``nn.Module`` that returns logits, or a victim.
        data: a name, a `Dataset`, or a pair of images and labels.
        attacks: attacks with their budgets, for each goal or for all; None is BruSLe with the
            `DEFAULT_PIXELS` and 300 queries.
        goal: ``"untargeted"``, ``"targeted"``, or both.
        out: a folder for rows, summary and adversarial images; nothing is written if None. What
            it holds already is not run again: the same call goes on after an interruption, and
            other attacks, budgets or seeds are added. Results of another victim are refused.
        pairs: a manifest (or its file) of images and targets, instead of ``targets`` and
            ``limit``. It names its data itself, unless ``data`` is more than a name.
        targets: for a targeted goal, ``"all"`` other classes or so many random ones per image.
        defences: defences before the victim, as in ``["rnd:0.02"]``; the first is the innermost.
        limit: most images, evenly over the classes.
        seed: same seed, same result. With several, every attack runs once for each, on the same
            images, and targets are drawn with the first.
        batch_size: most images in one call of the victim; None chooses by image size.
        eot: answers of a randomised victim that are averaged for every candidate.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        on_progress: called after every round.
        plan: what was asked for, in the user's words, to be kept with the results.
    """
    began = time.monotonic()
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    seed = seeds[0]
    settings = _settings(attacks, (goal,) if isinstance(goal, str) else goal, seeds)
    model = defend(as_victim(victim, device), defences)
    dataset, manifest = _images_and_targets(data, pairs, targets, limit, seed, model, settings)
    check_fit(dataset, model)
    shape = Problems.make(dataset.images, dataset.labels).shape
    batch_size = batch_size or default_batch_size(shape, model.device)
    folder = None if out is None else Path(out)
    run = Run(model.name, str(model.device), dataset, manifest, seed, folder)
    starting = None
    if any(setting.wants_start for setting in settings):
        pool = source(manifest.data, like=model) if isinstance(data, str) else dataset
        starting = StartingImages(pool, model, seed, batch_size)
    with Store.memory() if folder is None else Store.write(folder) as store:
        _check_same_victim(store, model)
        facts = {"data": dataset.name, "pairs": manifest.digest, "shape": list(shape)}
        store.note({"plan": dict(plan or {})} | facts)
        if folder is not None:
            manifest.write(folder / "pairs.json")
        for setting in settings:
            watch = None if on_progress is None else _watcher(on_progress, setting)
            images, aims = dataset, None
            if setting.goal == "targeted":
                images, aims = manifest.targeted(dataset)
            problems = Problems.make(images.images, images.labels, aims)
            stored = _Stored(store, setting, problems, images.names, eot)
            run.resumed += len(stored)
            todo = stored.todo()
            if len(todo):
                some = problems[todo]
                if starting is not None and setting.wants_start:
                    some = replace(some, starts=starting.choose(some))
                run_attack(
                    setting.attack,
                    model,
                    some,
                    seed=setting.seed,
                    batch_size=batch_size,
                    eot=eot,
                    on_progress=watch,
                    on_settled=partial(stored.add, todo),
                )
            run.settings.append(setting)
            run.results.append(stored.result(model))
            run.start_queries = 0 if starting is None else starting.queries
            run.seconds = time.monotonic() - began
            if folder is not None:
                _write_images(folder / "adversarial" / setting.slug, run.results[-1])
                _write(run, folder)
    return run


class _Stored:
    """The stored part of one setting."""

    def __init__(
        self,
        store: Store,
        setting: Setting,
        problems: Problems,
        names: Sequence[str],
        eot: int,
    ) -> None:
        self.store, self.setting, self.problems = store, setting, problems
        self.names = names
        key = f"{setting.attack!r} {setting.goal} seed={setting.seed} eot={eot}"
        description = {
            "attack": setting.attack.label,
            "goal": setting.goal,
            "pixels": setting.attack.pixels,
            "queries": setting.attack.queries,
            "seed": setting.seed,
            "eot": eot,
            "problems": len(set(problems.ids.tolist())),
        }
        self.number = store.setting(key, description)
        self.done = {row.problem for row in store.rows(self.number)}

    def __len__(self) -> int:
        return sum(number in self.done for number in self.problems.ids.tolist())

    def todo(self) -> Tensor:
        """Rows of the problems that are not stored; of equal problems, the first."""
        first: dict[int, int] = {}
        for row, number in enumerate(self.problems.ids.tolist()):
            if number not in self.done:
                first.setdefault(number, row)
        return torch.tensor(list(first.values()), dtype=torch.int64)

    def add(self, todo: Tensor, result: AttackResult, which: list[int]) -> None:
        """Store what a running attack has settled."""
        names = [self.names[row] for row in todo.tolist()]
        self.store.add(self.number, rows_of(result, which, names))

    def result(self, victim: Victim) -> AttackResult:
        """The result of the whole setting, as it is stored."""
        return result_of(
            self.store.rows(self.number),
            self.problems,
            self.setting.attack,
            self.setting.seed,
            traits(victim).randomised,
            self.names,
            notes_on(self.setting.attack, victim),
        )


def _check_same_victim(store: Store, victim: Victim) -> None:
    """Results of two victims, or of two versions of brusle, must not mix."""
    now = {"victim": victim.name, "weights": fingerprint(victim), "brusle": brusle.__version__}
    before = store.about()
    for name, value in now.items():
        if before.get(name, value) != value:
            raise DataError(
                f"the run folder holds results of {name} {before[name]}, and this is {value}: "
                f"choose another --out"
            )
    store.note(now | {"python": platform.python_version(), "torch": torch.__version__})


def fingerprint(victim: Any) -> str:
    """A hash of the weights of a torch victim, behind its defences; empty for other victims."""
    while hasattr(victim, "victim"):
        victim = victim.victim
    module = getattr(victim, "module", None)
    if not isinstance(module, torch.nn.Module):
        return ""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _settings(
    attacks: Sequence[AnyAttack] | Mapping[GoalName, Sequence[AnyAttack]] | None,
    goals: Sequence[GoalName],
    seeds: Sequence[int],
) -> list[Setting]:
    for goal in goals:
        if goal not in GOALS:
            raise InputError(f"goal is {goal!r}: choose from {', '.join(GOALS)}")
    if attacks is None:
        attacks = {g: [brusle.attacks.BruSLe(p, 300) for p in DEFAULT_PIXELS[g]] for g in goals}
    if not isinstance(attacks, Mapping):
        attacks = dict.fromkeys(goals, attacks)
    pairs = [(attack, goal) for goal in goals for attack in attacks.get(goal, ())]
    return [Setting(attack, goal, seed) for attack, goal in pairs for seed in seeds]


def result_rows(setting: Setting, result: AttackResult) -> Iterable[dict[str, Any]]:
    """The per-image rows of one setting, for CSV and JSON."""
    problems, pixels = result.problems, result.pixels.tolist()
    for i in range(len(result)):
        target = None if problems.targets is None else int(problems.targets[i])
        yield {
            "attack": result.attack.label,
            "goal": setting.goal,
            "pixel_budget": result.attack.pixels,
            "query_limit": result.attack.queries,
            "seed": result.seed,
            "image": result.names[i],
            "id": int(problems.ids[i]),
            "label": int(problems.labels[i]),
            "target": target,
            "clean_label": int(result.clean_labels[i]),
            "status": result.status[i],
            "stable": bool(result.stable[i]),
            "queries": int(result.queries[i]),
            "pixels": pixels[i],
            "final_label": int(result.labels[i]),
            "loss": float(result.losses[i]) if result.losses[i].isfinite() else None,
            "found_by": result.found_by[i],
            **{f"queries_{name}": count for name, count in result.ledger.row(i).items()},
            "error": result.errors.get(i, ""),
        }


def check_fit(data: Dataset, victim: Victim) -> None:
    """Raise if the victim cannot mean what the data means: other shape, or other classes."""
    known = traits(victim)
    shape = tuple(data.images.shape[1:])
    if known.shape is not None and shape != tuple(known.shape):
        have, want = (" x ".join(map(str, s)) for s in (shape, known.shape))
        raise InputError(f"images of {data.name} are {have}, {victim.name} takes {want}")
    if not known.classes:
        return
    top = int(data.labels.max())
    if top >= len(known.classes):
        raise InputError(
            f"{data.name} has label {top}, but {victim.name} has {len(known.classes)} classes: "
            f"take data and victim that belong together"
        )
    present = [c for c in sorted(set(data.labels.tolist())) if c < len(data.classes)]
    differ = [c for c in present if _plain(data.classes[c]) != _plain(known.classes[c])]
    # a name or two may be spelled otherwise; most of them cannot
    if 2 * len(differ) > len(present):
        c = differ[0]
        raise InputError(
            f"class {c} is {data.classes[c]!r} in {data.name} but {known.classes[c]!r} for "
            f"{victim.name}: take data and victim that belong together"
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _images_and_targets(
    data: str | Dataset | tuple[Any, Any],
    pairs: str | Path | Manifest | None,
    targets: Targets,
    limit: int | None,
    seed: int,
    victim: Victim,
    settings: Sequence[Setting],
) -> tuple[Dataset, Manifest]:
    if pairs is None:
        dataset = load_data(data, limit, victim)
        classes = number_of_classes(dataset, victim)
        targeted = any(setting.goal == "targeted" for setting in settings)
        if targeted and classes < 2:
            raise InputError("a targeted evaluation needs at least 2 classes in the data")
        return dataset, make_manifest(dataset, targets if targeted else 0, seed, classes)
    manifest = pairs if isinstance(pairs, Manifest) else Manifest.read(pairs)
    if isinstance(data, str):
        return manifest.dataset(victim), manifest
    return manifest.select(load_data(data, None, victim)), manifest


def load_data(data: str | Dataset | tuple[Any, Any], limit: int | None, victim: Victim) -> Dataset:
    """What a user gives as ``data``, as a data set; photographs framed as the victim wants."""
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}: it must be at least 1")
    if isinstance(data, str):
        return load(data, limit, victim)
    if not isinstance(data, Dataset):
        images, labels = (torch.as_tensor(part) for part in data)
        names = tuple(f"{i:05d}" for i in range(len(labels)))
        data = Dataset("arrays", images, labels, (), names)
    return data if limit is None else data.balanced(limit)


def _watcher(
    on_progress: Callable[[Setting, Progress], None], setting: Setting
) -> Callable[[Progress], None]:
    return lambda progress: on_progress(setting, progress)


def _write_images(folder: Path, result: AttackResult) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if result.images.shape[1] not in (1, 3, 4):  # no picture format has them
        return
    several = len(set(result.names)) < len(result)
    for i in result.success.nonzero()[:, 0].tolist():
        aim = f"-to-{int(result.problems.targets[i])}" if several else ""  # type: ignore[index]
        save_image(result.images[i], folder / f"{result.names[i]}{aim}.png")


def _write(run: Run, folder: Path) -> None:
    rows = list(run.rows())
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (folder / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "run.json").write_text(json.dumps(run.as_dict(), indent=2) + "\n")
