"""What a run folder says: about itself, its sessions, its settings, and its rows.

These are the types of what is stored, and there are no others: what is read from a folder, which
may be anybody's, becomes one of them or is refused.

A setting is known by its `Setting.key`: the attack's class name, its budgets, and those of its
options that differ from their defaults. An option that a later version adds, with a default that
changes nothing, leaves the results under their keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)

from brusle.data.images import Filter, Framing, Half
from brusle.files import slug
from brusle.outcomes import Status, Success
from brusle.search import Attack, Needs
from brusle.text import storable
from brusle.victim import Traits, Victim, traits

FORMAT = "brusle-results-7"
GoalName = Literal["untargeted", "targeted"]
Shape = tuple[PositiveInt, PositiveInt, PositiveInt]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Spending(_Stored):
    """What a victim that keeps books was sent in one session, in images.

    Attributes:
        sent: how many; what became of them follows.
        answered: with a usable answer.
        refused: with an error about the image.
        lost: without a usable answer.
        replayed: answered from the journal instead of being sent.
        price: of one image.
    """

    sent: NonNegativeInt = 0
    answered: NonNegativeInt = 0
    refused: NonNegativeInt = 0
    lost: NonNegativeInt = 0
    replayed: NonNegativeInt = 0
    price: NonNegativeFloat = 0.0

    @property
    def money(self) -> float:
        """What that costs at most: a service may charge for what it does not answer."""
        return self.sent * self.price

    def told(self) -> str:
        """For people, in one line."""
        fates = ((self.refused, "refused"), (self.lost, "lost"))
        others = "".join(f", {count} {fate}" for count, fate in fates if count)
        text = f"{self.sent} images were sent: {self.answered} answered{others}"
        if self.replayed:
            text += f"; {self.replayed} answers came from the journal"
        return text + (f"; cost {self.money:.2f} at most" if self.price else "")


class Session(_Stored):
    """One call of `brusle.evaluate` that wrote to the folder.

    Attributes:
        began: when, in UTC.
        plan: what was asked for, in the user's words.
        pairs: digest of the manifest.
        provenance: software and machine.
        preflight_queries: images that the victim was asked for before the attacks.
        preflight_lost: those of them that had to be sent again.
        spending: what was sent to a service; None of other victims.
        until: what it was to decide, and ended by; empty if it attacked all that was asked for.
    """

    began: str
    plan: dict[str, Any]
    pairs: str
    provenance: dict[str, Any]
    preflight_queries: NonNegativeInt = 0
    preflight_lost: NonNegativeInt = 0
    spending: Spending | None = None
    until: tuple[str, ...] = ()


class StoredFraming(_Stored):
    """A `brusle.data.Framing`."""

    resize: PositiveInt | tuple[PositiveInt, PositiveInt] | None
    crop: tuple[PositiveInt, PositiveInt]
    filter: Filter
    half: Half = "even"  # folders that do not say so are older than the choice


class StoredTraits(_Stored):
    """What data sets ask a victim for, which need not be there when they are read again.

    Attributes:
        framing: how photographs are framed.
        shape: of its images.
        classes: what its classes are called.
    """

    framing: StoredFraming | None = None
    shape: Shape | None = None
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, victim: Victim) -> StoredTraits:
        """Those of ``victim``."""
        known = traits(victim)
        framing = known.framing if isinstance(known.framing, Framing) else None
        return cls(
            framing=None if framing is None else StoredFraming(**vars(framing)),
            shape=known.shape,
            classes=None if known.classes is None else tuple(map(str, known.classes)),
        )

    def traits(self) -> Traits:
        """They stand in for the victim when data are opened."""
        framing = None if self.framing is None else Framing(**dict(self.framing))
        return Traits(classes=self.classes, shape=self.shape, framing=framing)


class About(_Stored):
    """What a run folder says about itself.

    Attributes:
        format: version of this schema.
        brusle: version of brusle.
        results: which results it gets (`brusle.version.RESULTS`).
        victim: name of the victim, without its defences.
        defences: these, the innermost first.
        weights: fingerprint of the victim's weights; empty if it cannot be told.
        data: name of the data.
        traits: what data sets need to know of the victim.
        shape: channels, height and width of an image.
        classes: what the data call the classes; empty if they have no names.
        labels_from: whose word the labels of the images are. The victim's are those of its answers
            to the clean images (`brusle.evaluation.running.listed_targets`), and so are
            ``classes``.
        vocabulary: what the victim calls its labels, where their number grew while it was asked:
            the classes of the data, then the others as they were met; empty of other victims.
        randomised: whether the victim says that its answers vary.
        notes: what a reader of the numbers should know.
        warnings: what is plainly wrong with the victim, by topic (docs/check.md).
        sessions: the calls of `brusle.evaluate`, in their order.
    """

    format: str = FORMAT
    brusle: str
    results: PositiveInt
    victim: str
    defences: tuple[str, ...] = ()
    weights: str
    data: str
    traits: StoredTraits = StoredTraits()
    shape: Shape
    classes: tuple[str, ...]
    labels_from: Literal["data", "victim"] = "data"
    vocabulary: tuple[str, ...] = ()
    randomised: bool
    notes: tuple[str, ...] = ()
    warnings: dict[str, str] = Field(default_factory=dict)
    sessions: Annotated[tuple[Session, ...], Field(min_length=1)]

    @property
    def defended_victim(self) -> str:
        """Name of the victim and its defences, for people."""
        return " + ".join([self.victim, *self.defences])

    @property
    def spending(self) -> Spending | None:
        """What was sent to a service in all sessions that ended; None of other victims."""
        spent = [session.spending for session in self.sessions if session.spending is not None]
        if not spent:
            return None
        counts = {n: sum(getattr(one, n) for one in spent) for n in Spending.model_fields}
        return Spending(**counts | {"price": spent[-1].price})

    @property
    def names(self) -> tuple[str, ...]:
        """What labels are called; empty if they have no names."""
        return self.vocabulary or self.classes

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``victim`` is named with its defences."""
        return self.model_dump(mode="json") | {"victim": self.defended_victim}


class Setting(_Stored):
    """An attack with its budgets and options, a goal and a seed: what one table line is about.

    Attributes:
        number: in its store; 0 if it is in none.
        attack: the attack, for people.
        kind: name of its class.
        options: its options that differ from their defaults. An attack among them is a dictionary
            of ``kind``, ``pixels``, ``queries`` and ``options``.
        goal: "untargeted" or "targeted".
        pixels: pixel budget.
        queries: query limit.
        seed: the seed.
        eot: answers that are averaged for every candidate.
        success: what counts as one, see `brusle.goals.Goal`.
        needs: what the attack needs of a victim: labels, scores or gradients.
        problems: how many problems the last plan has that asked for it.
    """

    number: NonNegativeInt = 0
    attack: str
    kind: str
    options: dict[str, Any] = Field(default_factory=dict)
    goal: GoalName
    pixels: PositiveInt
    queries: PositiveInt
    seed: int = 0
    eot: PositiveInt = 1
    success: Success = "top1"
    needs: Needs
    problems: NonNegativeInt = 0

    @classmethod
    def of(
        cls,
        attack: Attack,
        goal: GoalName,
        seed: int = 0,
        eot: int = 1,
        problems: int = 0,
        success: Success = "top1",
    ) -> Setting:
        """The setting of an attack."""
        return cls(
            attack=attack.label,
            needs=attack.behaviour.needs,
            **describe(attack),
            goal=goal,
            seed=seed,
            eot=eot,
            success=success,
            problems=problems,
        )

    def __hash__(self) -> int:
        return hash((self.number, self.attack, self.goal, self.pixels, self.queries, self.seed))

    @cached_property
    def key(self) -> str:
        """Tells it from all others, also in a store that another version has written."""
        attack = {name: getattr(self, name) for name in ("kind", "pixels", "queries", "options")}
        facts = {name: getattr(self, name) for name in ("goal", "seed", "eot")}
        if self.success != "top1":  # which it was before there was a choice
            facts["success"] = self.success
        return canonical({"attack": attack, **facts})

    @property
    def name(self) -> str:
        """The attack, and what else is not as usual."""
        return self.attack + self._unusual

    @property
    def minimal(self) -> bool:
        """Whether this is a search for the fewest pixels (`brusle.attacks.Minimal`)."""
        return self.kind == "Minimal"

    @property
    def fewest(self) -> int | None:
        """Pixel limit of a search for the fewest pixels; None of other attacks."""
        return self.pixels if self.minimal else None

    @property
    def family(self) -> tuple[object, ...]:
        """What is equal in settings that differ in their seed alone."""
        budgets = (self.pixels, self.queries, self.eot)
        return self.attack, self.goal, *budgets, self.minimal, self.success

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.attack} {self.goal}, {self.pixels} px{self._unusual}"

    @property
    def _unusual(self) -> str:
        eot = f", eot {self.eot}" if self.eot > 1 else ""
        success = f", success {self.success}" if self.success != "top1" else ""
        return eot + success + (f", seed {self.seed}" if self.seed else "")

    @property
    def slug(self) -> str:
        """For names of folders; different for all settings of a store."""
        return f"{self.number:02d}-{slug(self.title)[:100]}"


@dataclass(frozen=True)
class Row:
    """One finished attack on one problem.

    There are many, so this is a plain dataclass; what is read from a folder is validated.

    Attributes:
        problem: id of the problem, a hash of image, label and target.
        image: what the image is called.
        label: true label.
        target: label to reach; None if untargeted.
        status: as in `brusle.results.AttackResult`.
        stable: the success can be repeated.
        queries: queries of the attack.
        clean: ledger; so are ``initial``, ``search``, ``verify``, ``lost`` and ``backward``.
        pixels: changed pixels of the final image.
        clean_label: what the victim says to the clean image; -1 if unknown.
        final_label: what it says to the final image.
        loss: of the final image; NaN if there was no attack.
        scores: of the final image, as float64 bytes.
        edits: changed pixels of the final image, see `brusle.evaluation.storing.rows.pack_edits`.
        found_by: which attack of an ensemble was successful.
        error: reason of the statuses "error" and "unverified".
        seconds: wall-clock time of the attack, beside others in its batch.
    """

    problem: int
    image: str
    label: int
    target: int | None
    status: Status
    stable: bool
    queries: int
    clean: int
    initial: int
    search: int
    verify: int
    lost: int
    backward: int
    pixels: int
    clean_label: int
    final_label: int
    loss: float
    scores: bytes
    edits: bytes
    found_by: str
    error: str
    seconds: float

    def __eq__(self, other: object) -> bool:
        """Whether they hold the same. What Python 3.13 generates would find NaN unlike itself."""
        if not isinstance(other, Row):
            return NotImplemented
        return tuple(vars(self).values()) == tuple(vars(other).values())


def describe(attack: Any) -> dict[str, Any]:
    """Class name, budgets and unusual options of an attack, as JSON has them."""
    budgets = {"pixels": attack.pixels, "queries": attack.queries}
    return described_as(type(attack).__name__, _values(attack) | budgets, defaults(type(attack)))


def described_as(kind: str, values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The same from the values of all options, of which some may be as ``usual``."""
    plain = {name: _plain(value) for name, value in values.items()}
    unusual = {
        name: value
        for name, value in plain.items()
        if name not in usual or canonical(value) != canonical(_plain(usual[name]))
    }
    budgets = {name: plain.get(name) for name in _BUDGETS}
    options = {name: value for name, value in unusual.items() if name not in _BUDGETS}
    return {"kind": kind, **budgets, "options": options}


def defaults(kind: type) -> dict[str, Any]:
    """The defaults of the options of a class of attacks."""
    if not is_dataclass(kind):
        return {}
    found = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    made = {f.name: f.default_factory for f in fields(kind)}
    return found | {name: make() for name, make in made.items() if make is not MISSING}


def canonical(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_BUDGETS = ("pixels", "queries")


def _values(attack: Any) -> dict[str, Any]:
    """All options of an attack; those of a class that is no dataclass are what it holds.

    Fields that do not compare do not tell it from others.
    """
    if is_dataclass(attack):
        return {f.name: getattr(attack, f.name) for f in fields(attack) if f.init and f.compare}
    return {name: value for name, value in vars(attack).items() if not name.startswith("_")}


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if all(hasattr(value, name) for name in _BUDGETS):
        return describe(value)
    return storable(repr(value))
