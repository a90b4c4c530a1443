"""Attacks by name, as the command line gives them: ``brusle?palette=uniform&colours=2``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from importlib.metadata import EntryPoint
from inspect import getmodule, signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

from brusle.attacks.base import SparseAttack
from brusle.attacks.bayes_opt import BayesOpt
from brusle.attacks.brusle import BruSLe
from brusle.attacks.combined import Restarts
from brusle.attacks.external.from_art import ART, art
from brusle.attacks.external.from_foolbox import FOOLBOX, foolbox
from brusle.attacks.external.libraries import Library
from brusle.attacks.l0_hsja import L0HSJA
from brusle.attacks.minimal import Minimal
from brusle.attacks.one_pixel import OnePixel
from brusle.attacks.options import check_count
from brusle.attacks.pgd0 import PGD0
from brusle.attacks.pixel_bandit import PixelBandit
from brusle.attacks.pointwise import Pointwise
from brusle.attacks.sigma_zero import SigmaZero
from brusle.attacks.sparse_evo import SparseEvo
from brusle.attacks.sparse_rs import SparseRS
from brusle.errors import InputError
from brusle.foreign import foreign_code, load_plugin
from brusle.names import Name, plain_value
from brusle.registry import Kind, Registry

ATTACKS: dict[str, type[SparseAttack]] = {
    "brusle": BruSLe,
    "pixel-bandit": PixelBandit,
    "sparse-rs": SparseRS,
    "sparse-evo": SparseEvo,
    "pointwise": Pointwise,
    "l0-hsja": L0HSJA,
    "one-pixel": OnePixel,
    "bayes-opt": BayesOpt,
    "pgd0": PGD0,
    "sigma-zero": SigmaZero,
}


BUDGETS = ("pixels", "queries")  # of every attack, and no options


def make(
    spec: str, pixels: int, queries: int, minimal: bool = False
) -> SparseAttack | Restarts | Minimal:
    """Build the attack that ``spec`` describes.

    Args:
        spec: a name of `known_attacks`, optionally with ``?option=value&option=value`` or, which
            is the same, ``:option=value,option=value``; the option ``restarts`` is known to all.
        pixels: the pixel budget.
        queries: the query limit, over all restarts or tries.
        minimal: look for the fewest pixels, with a fifth of the queries for each try.
    """
    name = Name.parse(spec)
    kind = REGISTRY.find(name)
    name.take_commas()
    times = plain_value(name.take("restarts", "1") or "")
    check_count("restarts", times)
    if times > queries:
        raise InputError(f"{queries} queries are not enough for {times} restarts")
    if minimal and times > 1:
        raise InputError("a minimal search restarts by itself: leave restarts out")
    each = max(1, queries // 5) if minimal else queries // times
    attack = kind.open(name, pixels, each)
    if minimal:
        return Minimal(attack, queries)
    return Restarts(attack, times) if times > 1 else attack


def known_attacks() -> dict[str, str]:
    """Names that `make` takes, with a line about each: its paper, what it needs, its options."""
    own = {name: f"{REGISTRY.kinds[name].summary} {_needs(kind)}" for name, kind in ATTACKS.items()}
    return REGISTRY.summaries() | own


def risk(spec: str) -> str:
    """What making the attack ``spec`` does beyond computing; empty if nothing."""
    return REGISTRY.risk(spec)


def _made(kind: type[SparseAttack], name: Name, pixels: int, queries: int) -> SparseAttack:
    options = _options(name, signature(kind).parameters)
    return kind(pixels=pixels, queries=queries, **options)


def _of_library(
    library: Library, make: Callable[..., SparseAttack], name: Name, pixels: int, queries: int
) -> SparseAttack:
    wanted = name.take_word(f"attack of {library.title}", library.sparse)
    return make(wanted, pixels=pixels, queries=queries, **name.take_all())


def _library(library: Library, make: Callable[..., SparseAttack]) -> Kind[Any]:
    return Kind(
        partial(_of_library, library, make),
        f"{library.kind}:NAME",
        f"An attack of {library.title} that needs no gradients, as {' or '.join(library.sparse)}; "
        f"docs/external.md lists them",
        risk=f"runs code of the installed package {library.kind}",
    )


def _from_plugin(point: EntryPoint, name: Name, pixels: int, queries: int) -> SparseAttack:
    build = load_plugin(point, "the attack", InputError)
    failure = f"{name.text} failed in {point.value}"
    with foreign_code(failure, InputError):
        known = signature(build).parameters
    options = _options(name, known)
    with foreign_code(failure, InputError):
        attack = build(pixels=pixels, queries=queries, **options)
    if not isinstance(attack, SparseAttack):
        raise InputError(
            f"the plugin {point.value} returned a {type(attack).__name__}: it must return an "
            f"attack, which derives from brusle.attacks.base.SparseAttack"
        )
    return attack


def _options(name: Name, known: Iterable[str]) -> dict[str, Any]:
    """The options in ``name``, each of which must be ``known``."""
    given = {option: name.take(option) for option in known if option not in BUDGETS}
    name.done()
    return {option: plain_value(text) for option, text in given.items() if text is not None}


def _needs(attack: type[SparseAttack]) -> str:
    kinds = get_type_hints(attack)
    options = [
        f"{field.name}={field.default}{_others(kinds[field.name], field.default)}"
        for field in fields(attack)
        if field.name not in BUDGETS
    ]
    return f"Needs {attack(pixels=1).behaviour.needs}. Options: {', '.join(options)}"


def _others(kind: Any, default: object) -> str:
    """The other values of an option that has a few, as `` (or uniform, gaussian)``."""
    if get_origin(kind) is not Literal:
        return ""
    return f" (or {', '.join(value for value in get_args(kind) if value != default)})"


def _paper(attack: type[SparseAttack]) -> str:
    """The first line of the attack's file, which cites its paper."""
    return (getattr(getmodule(attack), "__doc__", "") or "").splitlines()[0]


REGISTRY: Registry[Callable[[Name, int, int], SparseAttack]] = Registry(
    "attack",
    "attacks",
    {
        name: Kind(partial(_made, kind), name, _paper(kind), risk="")
        for name, kind in ATTACKS.items()
    }
    | {"foolbox": _library(FOOLBOX, foolbox), "art": _library(ART, art)},
    _from_plugin,
)
