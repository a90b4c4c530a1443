"""brusle: how robust is an image classifier to a handful of changed pixels?

import brusle
attack = brusle.attacks.BruSLe(pixels=20, queries=500)
result = attack(model, images, labels)
result.success, result.queries, result.asr(at=[100, 500])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from brusle import lazy
from brusle.adapting import adapt_with
from brusle.finishing import finish_with, log_with
from brusle.notebooks import show_with
from brusle.version import __version__ as __version__

# The public names. Type checkers read the list as it stands; at run time each is imported when it
# is first used, from where the list says, so that ``import brusle`` is quick.
if TYPE_CHECKING:
    from brusle import attacks as attacks
    from brusle import data as data
    from brusle import defences as defences
    from brusle import evaluation as evaluation
    from brusle import explaining as explaining
    from brusle import interop as interop
    from brusle import looking as looking
    from brusle import report as report
    from brusle import serving as serving
    from brusle import studio as studio
    from brusle import testing as testing
    from brusle import victims as victims
    from brusle import zoo as zoo
    from brusle.attacks import minimise as minimise
    from brusle.errors import BrusleError as BrusleError
    from brusle.errors import DataError as DataError
    from brusle.errors import InputError as InputError
    from brusle.errors import VictimError as VictimError
    from brusle.errors import VictimUnavailable as VictimUnavailable
    from brusle.evaluation import check as check
    from brusle.evaluation import evaluate as evaluate
    from brusle.evaluation.running.engines import Local as Local
    from brusle.evaluation.running.plan import Plan as Plan
    from brusle.evaluation.running.ray_engine import Ray as Ray
    from brusle.evaluation.storing.runs import Run as Run
    from brusle.explaining import Explanation as Explanation
    from brusle.explaining import explain as explain
    from brusle.interop import AutoAttack as AutoAttack
    from brusle.results import AttackResult as AttackResult
    from brusle.terms import Pace as Pace
    from brusle.terms import Terms as Terms
    from brusle.trouble import Patience as Patience
    from brusle.victims import load_victim as load_victim
else:
    _names, __getattr__ = lazy.public_names(__name__)
    __all__ = ["__version__", *_names]

    def __dir__() -> list[str]:
        return __all__


# Parts that must not import each other are put together here.
adapt_with(lambda model, device: import_module("brusle.victims").as_victim(model, device))
finish_with(lambda run, folder: import_module("brusle.report.run_folder").write_files(run, folder))
log_with(lambda names: import_module("brusle.report.tracking").open_trackers(names))
show_with(lambda thing: import_module("brusle.report.notebooks").in_notebooks(thing))
