"""A plan: what an evaluation does, as data that can be written down, checked, and hashed.

    victim: zoo:cifar10-resnet20
    data: sample
    goals: [targeted]
    attacks: [brusle, "sparse-rs:alpha_init=0.8"]
    pixels: [10, 20]
    queries: 500
    seeds: [0, 1, 2]

What does not change results (device, batch size, folder) is not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
)

import brusle
from brusle import attacks, data, defences, victims
from brusle.attacks import make, standard
from brusle.attacks.base import AnyAttack
from brusle.errors import DataError, InputError
from brusle.evaluation.running.provenance import fingerprint
from brusle.evaluation.running.runner import DEFAULT_PIXELS, evaluate
from brusle.evaluation.running.workload import GOALS
from brusle.evaluation.storing.manifest import Manifest
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import GoalName
from brusle.files import slug
from brusle.names import DEFAULT_ATTACKS, hint
from brusle.oracle import Victim
from brusle.text import brief, shortened


def _several(value: Any) -> Any:
    """One thing where several may stand."""
    return (value,) if isinstance(value, str | int) else value


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is given twice is wanted once, so that the plan is the same plan."""
    return tuple(dict.fromkeys(values))


_ONE_OR_SEVERAL, _EACH_ONCE = BeforeValidator(_several), AfterValidator(_each_once)
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what tables of whole numbers hold
Names = Annotated[tuple[str, ...], _ONE_OR_SEVERAL]
Counts = Annotated[tuple[PositiveInt, ...], _ONE_OR_SEVERAL, _EACH_ONCE]


class Plan(BaseModel):
    """What to evaluate; see the top of this file.

    Attributes:
        victim: name of the victim.
        defences: defences before it, the innermost first.
        data: name of the data.
        pairs: manifest of images and targets, instead of ``data``, ``limit`` and ``targets``.
        limit: most images, evenly over the classes; None takes all.
        targets: targets per image: a number, or "all".
        goals: untargeted, targeted, or both.
        attacks: attacks by name, with options.
        standard: instead of ``attacks``, the standard ensemble.
        minimal: look for the fewest pixels.
        pixels: budgets, for all goals or for each; None takes the defaults.
        queries: most queries per image and attack.
        seeds: every attack runs once for each; targets are drawn with the first.
        eot: answers that are averaged for every candidate.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    victim: str = "zoo:cifar10-resnet20"
    defences: Names = ()
    data: str = "sample"
    pairs: Path | None = None
    limit: PositiveInt | None = 100
    targets: PositiveInt | Literal["all"] = 1
    goals: Annotated[tuple[GoalName, ...], _ONE_OR_SEVERAL, _EACH_ONCE] = GOALS
    attacks: Annotated[Names, _EACH_ONCE] = DEFAULT_ATTACKS
    standard: bool = False
    minimal: bool = False
    pixels: Counts | dict[GoalName, Counts] | None = None
    queries: PositiveInt = 300
    seeds: Annotated[tuple[Seed, ...], _ONE_OR_SEVERAL, _EACH_ONCE, Field(min_length=1)] = (0,)
    eot: PositiveInt = 1

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "the plan") -> Plan:
        """A plan of these values; what is wrong with them is one short error."""
        unknown = [key for key in values if key not in cls.model_fields]
        if unknown:
            close = hint(str(unknown[0]), cls.model_fields)
            raise InputError(f"{where} has no key {brief(unknown[0])}{close}")
        try:
            plan = cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            place = first["loc"][0] if first["loc"] else "it"
            raise InputError(
                f"{where}: {place} is {brief(first['input'])}: {first['msg']}"
            ) from error
        if plan.standard and (plan.minimal or plan.attacks != DEFAULT_ATTACKS):
            raise InputError(f"{where}: standard chooses the attacks: leave attacks, minimal out")
        return plan

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """A plan from a YAML file."""
        return cls.of(read_yaml(path), str(path))

    @property
    def digest(self) -> str:
        """A short hash that names the plan: the same for the same plan, however it was written."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]

    def folder(self, victim: Victim, manifest: Manifest) -> Path:
        """Where results go if nobody says: another folder for all that must not be mixed.

        Its name is for people, with a hash of the plan, the images and the version of brusle, and
        the first digits of the victim's `fingerprint`: the same command goes on with the same
        weights, and begins anew with others.
        """
        facts = f"{self.digest} {manifest.digest} {brusle.__version__}"
        title = slug(self.victim)[-40:].strip("-")
        parts = (title, hashlib.sha256(facts.encode()).hexdigest()[:12], fingerprint(victim)[:8])
        return Path("runs") / "-".join(filter(None, parts))

    def risks(self) -> list[tuple[str, str]]:
        """What it names that does more than read data: the key, and a line for people."""
        named = [("victim", self.victim, victims.risk(self.victim))]
        named += [("defences", spec, defences.risk(spec)) for spec in self.defences]
        named.append(("data", self.data, data.risk(self.data)))
        named += [("attacks", spec, attacks.risk(spec)) for spec in self.attacks]
        return [
            (key, f"{key.removesuffix('s')} {name}, which {risk}")
            for key, name, risk in named
            if risk
        ]

    def evaluate(
        self,
        out: str | Path | Callable[[Victim, Manifest], Path] | None = None,
        **options: Any,
    ) -> Run:
        """Do it.

        Args:
            out: as in `brusle.evaluate`, for example `folder`.
            **options: arguments of `brusle.evaluate` that do not change results: ``device``,
                ``batch_size``, ``engine``, ``on_progress``, ``on_warning``.
        """
        return evaluate(
            self.victim,
            self.data,
            self.attacks_on,
            self.goals,
            out,
            pairs=self.pairs,
            targets=self.targets,
            defences=self.defences,
            limit=self.limit,
            seed=self.seeds,
            eot=self.eot,
            plan=self.model_dump(mode="json"),
            **options,
        )

    def attacks_on(self, victim: Victim) -> dict[GoalName, list[AnyAttack]]:
        """The attacks for each goal; what the standard ensemble is depends on the victim."""
        return {goal: self._attacks(victim, goal) for goal in self.goals}

    def _attacks(self, victim: Victim, goal: GoalName) -> list[AnyAttack]:
        pixels = self.pixels
        if isinstance(pixels, dict):
            pixels = pixels.get(goal)
        attacks: list[AnyAttack] = []
        for budget in pixels or DEFAULT_PIXELS[goal]:
            if self.standard:
                attacks.append(standard(victim, budget, self.queries))
            else:
                attacks += [make(s, budget, self.queries, self.minimal) for s in self.attacks]
        return attacks


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file of keys and values."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        _check_yaml(yaml.compose(text, yaml.SafeLoader), path, set())
        values = yaml.safe_load(text)
    except OSError as error:
        raise DataError(f"cannot read the plan {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = shortened(" ".join(str(error).split()), 200)
        raise DataError(f"{path} is no YAML: {problem}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} is no plan: it must be keys and values, as in 'queries: 500'")
    return values


def _check_yaml(node: yaml.Node | None, path: str | Path, seen: set[int]) -> None:
    """Raise if a key is given twice, or if there is an alias: a few can stand for billions."""
    if id(node) in seen:
        raise DataError(f"{path} has an alias (*NAME): write out what it stands for")
    seen.add(id(node))
    parts: list[Any] = list(node.value) if isinstance(node, yaml.CollectionNode) else []
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = [key for at, key in enumerate(keys) if key in keys[:at]]
        if twice:
            raise DataError(f"{path} has the key {brief(twice[0])} twice: give it once")
        parts = [part for pair in node.value for part in pair]
    for part in parts:
        _check_yaml(part, path, seen)
