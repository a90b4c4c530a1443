"""brusle: how robust is an image classifier to a handful of changed pixels?

    import brusle
    attack = brusle.attacks.BruSLe(pixels=20, queries=500)
    result = attack(model, images, labels)
    result.success, result.queries, result.asr(at=[100, 500])

Names are imported when they are first used, so that ``import brusle`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brusle.adapting import adapt_with
from brusle.finishing import finish_with

if TYPE_CHECKING:
    from brusle import attacks, data, defences, evaluation, report, victims, zoo
    from brusle.attacks import minimise
    from brusle.errors import BrusleError, DataError, InputError, VictimError, VictimUnavailable
    from brusle.evaluation import Run, check, evaluate
    from brusle.evaluation.running.engines import Local
    from brusle.evaluation.running.plan import Plan
    from brusle.evaluation.running.ray_engine import Ray
    from brusle.results import AttackResult
    from brusle.trouble import Patience
    from brusle.victims import load_victim

__version__ = "0.2.0.dev0"

_HOME = {
    "AttackResult": "brusle.results",
    "BrusleError": "brusle.errors",
    "DataError": "brusle.errors",
    "InputError": "brusle.errors",
    "Local": "brusle.evaluation.running.engines",
    "Patience": "brusle.trouble",
    "Plan": "brusle.evaluation.running.plan",
    "Ray": "brusle.evaluation.running.ray_engine",
    "Run": "brusle.evaluation.storing.runs",
    "VictimError": "brusle.errors",
    "VictimUnavailable": "brusle.errors",
    "check": "brusle.evaluation",
    "evaluate": "brusle.evaluation",
    "load_victim": "brusle.victims",
    "minimise": "brusle.attacks",
}
_MODULES = ("attacks", "data", "defences", "evaluation", "report", "victims", "zoo")

__all__ = [
    "AttackResult",
    "BrusleError",
    "DataError",
    "InputError",
    "Local",
    "Patience",
    "Plan",
    "Ray",
    "Run",
    "VictimError",
    "VictimUnavailable",
    "__version__",
    "attacks",
    "check",
    "data",
    "defences",
    "evaluate",
    "evaluation",
    "load_victim",
    "minimise",
    "report",
    "victims",
    "zoo",
]


adapt_with(lambda model, device: import_module("brusle.victims").as_victim(model, device))
finish_with(lambda run, folder: import_module("brusle.report.run_folder").write_files(run, folder))


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"brusle.{name}")
    raise AttributeError(f"module 'brusle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
