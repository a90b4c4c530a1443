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
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PositiveInt,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from brusle import attacks, data, defaults, defences, victims
from brusle.attacks import make, standard
from brusle.errors import InputError
from brusle.evaluation.record import GoalName
from brusle.evaluation.storing.manifest import Manifest
from brusle.files import slug
from brusle.names import hint
from brusle.outcomes import Success
from brusle.search import Attack
from brusle.text import brief, storable
from brusle.version import RESULTS
from brusle.victim import Victim
from brusle.victims.fingerprints import fingerprint
from brusle.yaml_files import read_yaml


def _several(value: Any) -> Any:
    """One thing where several may stand."""
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return tuple(value)
    return (value,) if isinstance(value, str | int) else value


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is given twice is wanted once, so that the plan is the same plan."""
    return tuple(dict.fromkeys(values))


def _goal(value: Any) -> Any:
    if value not in defaults.GOALS:
        raise PydanticCustomError("goal", f"choose from {', '.join(defaults.GOALS)}")
    return value


def _named_or_made(value: Any) -> Any:
    """A name, or an object that somebody has made in Python; not what else a file may hold."""
    if value is None or isinstance(value, int | float | bytes | list | set | date | Mapping):
        raise PydanticCustomError("name", "Input should be a name")
    return value


def _attacks(value: Any) -> Any:
    """Names of attacks and attacks, for all goals or for each; names each once."""
    if isinstance(value, Mapping):
        return {_goal(goal): _attacks(mine) for goal, mine in value.items()}
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not all(isinstance(one, str) or is_attack(one) for one in several):
        raise PydanticCustomError("attack", "Input should be names of attacks, or attacks")
    first = {one if isinstance(one, str) else id(one): one for one in several}
    return tuple(first.values())


def is_attack(thing: object) -> bool:
    """Whether this is an attack, and not its class."""
    return hasattr(thing, "conduct") and not isinstance(thing, type)


def _in_words(value: Any) -> Any:
    """A part of a plan as JSON has it: what was made in Python is only described."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {name: _in_words(mine) for name, mine in value.items()}
    if isinstance(value, tuple) and all(isinstance(one, str) or is_attack(one) for one in value):
        return [_in_words(one) for one in value]
    if is_attack(value):
        return storable(repr(value))
    if isinstance(value, tuple):
        return "arrays"
    if isinstance(value, Path):
        return storable(str(value))
    if isinstance(value, Manifest):
        return f"{len(value.entries)} images of digest {value.digest}"
    return storable(str(getattr(value, "name", type(value).__name__)))


_ONE_OR_SEVERAL, _EACH_ONCE = BeforeValidator(_several), AfterValidator(_each_once)
_IN_WORDS = PlainSerializer(_in_words)
_Made = Annotated[Any, BeforeValidator(_named_or_made), _IN_WORDS]
_Attacks = tuple[Any, ...] | dict[GoalName, tuple[Any, ...]]
Goal = Annotated[GoalName, BeforeValidator(_goal)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what tables of whole numbers hold
Names = Annotated[tuple[str, ...], _ONE_OR_SEVERAL]
Counts = Annotated[tuple[PositiveInt, ...], _ONE_OR_SEVERAL, _EACH_ONCE]


class Plan(BaseModel):
    """What to evaluate; see the top of this file.

    In a file everything has a name. In Python, victim, data, pairs and attacks may be objects.

    Attributes:
        victim: name of the victim, or the victim, as `brusle.evaluate` takes it.
        defences: defences before it, the innermost first.
        data: name of the data, or the data.
        pairs: manifest of images and targets, instead of ``data``, ``limit`` and ``targets``.
        limit: most images, evenly over the classes; None takes all.
        targets: targets per image: a number, or "all".
        goals: untargeted, targeted, or both.
        attacks: attacks by name, with options, or attacks with their own budgets; for all goals
            or for each.
        standard: instead of ``attacks``, the standard ensemble.
        minimal: look for the fewest pixels, with the attacks that are named.
        pixels: budgets of the attacks that are named, for all goals or for each; None takes the
            defaults.
        queries: most queries per image of each attack that is named.
        seeds: every attack runs once for each; targets are drawn with the first.
        eot: answers that are averaged for every candidate.
        success: what counts as one, of untargeted attacks on victims that give lists of labels;
            see `brusle.goals.Goal`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    victim: _Made = defaults.VICTIM
    defences: Names = ()
    data: _Made = defaults.DATA
    pairs: Annotated[Path | Manifest | None, _IN_WORDS] = None
    limit: PositiveInt | None = defaults.LIMIT
    targets: PositiveInt | Literal["all"] = defaults.TARGETS
    goals: Annotated[tuple[Goal, ...], _ONE_OR_SEVERAL, _EACH_ONCE] = defaults.GOALS
    attacks: Annotated[_Attacks, BeforeValidator(_attacks), _IN_WORDS] = defaults.ATTACKS
    standard: bool = False
    minimal: bool = False
    pixels: Counts | dict[GoalName, Counts] | None = None
    queries: PositiveInt = defaults.QUERIES
    seeds: Annotated[tuple[Seed, ...], _ONE_OR_SEVERAL, _EACH_ONCE, Field(min_length=1)] = (0,)
    eot: PositiveInt = 1
    success: Success = "top1"

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
            key = first["loc"][0] if first["loc"] else "it"
            raise InputError(
                f"{where}: {key} is {brief(first['input'])}: {first['msg']}"
            ) from error
        if plan.standard and (plan.minimal or plan.attacks != defaults.ATTACKS):
            raise InputError(f"{where}: standard chooses the attacks: leave attacks, minimal out")
        return plan

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """A plan from a YAML file."""
        return cls.of(read_yaml(path, "plan"), str(path))

    @property
    def digest(self) -> str:
        """A short hash that names the plan: the same for the same plan, however it was written."""
        # what was the only way before leaves the names of folders as they were
        usual = {"success"} if self.success == "top1" else set()
        return hashlib.sha256(self.model_dump_json(exclude=usual).encode()).hexdigest()[:12]

    def folder(self, victim: Victim, manifest: Manifest) -> Path:
        """Where results go if nobody says: another folder for all that must not be mixed.

        Its name is for people, with a hash of the plan, the images and the version of results, and
        the first digits of the victim's `fingerprint`: the same command goes on with the same
        weights, and begins anew with others.
        """
        facts = f"{self.digest} {manifest.digest} {RESULTS}"
        title = slug(_in_words(self.victim))[-40:].strip("-")
        parts = (title, hashlib.sha256(facts.encode()).hexdigest()[:12], fingerprint(victim)[:8])
        return Path("runs") / "-".join(filter(None, parts))

    def risks(self) -> list[tuple[str, str]]:
        """What it names that does more than read data: the key, and a line for people."""
        named = [
            ("victim", self.victim, victims.risk),
            *(("defences", spec, defences.risk) for spec in self.defences),
            ("data", self.data, data.risk),
            *(("attacks", spec, attacks.risk) for spec in self._all_attacks),
        ]
        return [
            (key, f"{key.removesuffix('s')} {name}, which {risk(name)}")
            for key, name, risk in named
            if isinstance(name, str) and risk(name)
        ]

    @property
    def _all_attacks(self) -> list[Any]:
        """Names and attacks, of all goals."""
        by_goal = self.attacks.values() if isinstance(self.attacks, dict) else [self.attacks]
        return [attack for some in by_goal for attack in some]

    @property
    def targeted(self) -> bool:
        """Whether targets are wanted: one of the goals that have attacks is targeted."""
        attacks = self.attacks if isinstance(self.attacks, dict) else {"targeted": self.attacks}
        return "targeted" in self.goals and bool(attacks.get("targeted"))

    def attacks_on(self, victim: Victim) -> dict[GoalName, list[Attack]]:
        """The attacks for each goal; what the standard ensemble is depends on the victim."""
        return {goal: self._attacks_on(victim, goal) for goal in self.goals}

    def _attacks_on(self, victim: Victim, goal: GoalName) -> list[Attack]:
        pixels = self.pixels.get(goal) if isinstance(self.pixels, dict) else self.pixels
        budgets = pixels or defaults.PIXELS[goal]
        if self.standard:
            return [standard(victim, budget, self.queries) for budget in budgets]
        wanted = self.attacks.get(goal, ()) if isinstance(self.attacks, dict) else self.attacks
        named = [spec for spec in wanted if isinstance(spec, str)]
        made = [attack for attack in wanted if not isinstance(attack, str)]
        return made + [
            make(spec, budget, self.queries, self.minimal) for budget in budgets for spec in named
        ]
