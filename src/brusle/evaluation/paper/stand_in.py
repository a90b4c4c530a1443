"""A service of this process that stands in for the one which the paper attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec

from brusle.evaluation.running.victim import VictimSpec
from brusle.serving import Server
from brusle.victim import Victim, traits
from brusle.victims.fingerprints import fingerprint
from brusle.victims.wrappers import VictimView


def quickest(model: str) -> str:
    """The name of a bundled model in the runtime that answers quickest, of those that are here."""
    return f"{model}?runtime=onnx" if find_spec("onnxruntime") is not None else model


def name_of(format: str, model: str) -> str:
    """What the stand-in is called, whatever its port."""
    return f"{format}:stand-in({model})"


@contextmanager
def stand_in(model: Victim, format: str, name: str, spec: VictimSpec) -> Iterator[Victim]:
    """A victim that asks ``model`` through a service on this machine, as long as the block lasts.

    It is known by the model and not by its port, which is another one each time: a run goes on.

    Args:
        model: what is behind the service; one whose classes have no names is ImageNet's.
        format: of the service, one of `brusle.serving.FORMATS`.
        name: what the victim is called.
        spec: how the service is asked; its victim does not matter.
    """
    if not traits(model).classes:
        model = _WithNames(model, model.name, traits(model).patience, imagenet_classes())
    with Server(model, format) as server:
        victim = replace(spec, victim=server.name).open()
        from brusle.victims.remote.client import RemoteVictim  # httpx is an extra

        assert isinstance(victim, RemoteVictim)
        victim.name, victim.service.fingerprint = name, fingerprint(model)
        try:
            yield victim
        finally:
            victim.close()


def imagenet_classes() -> tuple[str, ...]:
    """ImageNet's classes in torchvision's words, but that no two have the same name."""
    file = files("brusle.evaluation.paper").joinpath("imagenet-classes.txt")
    return tuple(file.read_text(encoding="utf-8").splitlines())


@dataclass(frozen=True)
class _WithNames(VictimView):
    """A victim whose classes have names.

    Attributes:
        classes: the names.
    """

    classes: Sequence[str]
