"""The colours that BruSLe had to choose from, and its dissimilarity map, drawn once more.

Both follow from options, seed and problem: no attack is run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from brusle.attacks import BruSLe, Minimal, Restarts
from brusle.attacks.palettes import SyntheticImage
from brusle.explaining.cases import Case
from brusle.problems import Problems


@dataclass(frozen=True)
class Synthetic:
    """What is drawn of it.

    Attributes:
        image: ``(c, h, w)``, x'; if a pixel has several colours, the one that differs most.
        dissimilarity: ``(h, w)``, M of these colours; None if the attack does not use it.
        colours: how many a pixel has.
    """

    image: NDArray[np.float32]
    dissimilarity: NDArray[np.float32] | None
    colours: int


def synthetic_of(case: Case) -> tuple[Synthetic | None, str]:
    """X' and M of a case, or why they are not known; neither of attacks that have none."""
    attack = case.attack
    if isinstance(attack, Minimal) and isinstance(attack.attack, BruSLe):
        return None, "x' and M are left out: a search for the fewest pixels has several"
    inner, times = (attack.attack, attack.times) if isinstance(attack, Restarts) else (attack, 1)
    if not isinstance(inner, BruSLe):
        return None, ""
    if inner.palette == "image" and case.problem.starts is None:
        return None, "x' and M are left out: the image that colours came from is not stored"
    drawn = [inner.synthetic(case.problem, case.seed, restart) for restart in range(times)]
    fitting = [one for one in drawn if fits(one, case.problem, case.adversarial)]
    if len(fitting) != 1:
        why = "of no restart alone" if fitting else "not those of x'; another version drew them"
        return None, f"x' and M are left out: the new colours are {why}"
    return _pictured(fitting[0], case.problem, inner.dissimilarity), ""


def fits(synthetic: SyntheticImage, problem: Problems, adversarial: Tensor) -> bool:
    """Whether every changed pixel of an image has one of the pixel's colours in x'."""
    channels = len(adversarial)
    own = synthetic.colour[0].view(-1, synthetic.colours, channels)
    new = adversarial.flatten(1).T[:, None]
    changed = (problem.flat_images[0] != new[:, 0]).any(1)
    return bool((own == new).all(2).any(1)[changed].all())


def _pictured(synthetic: SyntheticImage, problem: Problems, uses_m: bool) -> Synthetic:
    channels, height, width = problem.shape
    m = synthetic.dissimilarity(problem)[0].view(-1, synthetic.colours)
    most = m.max(1)
    own = synthetic.colour[0].view(-1, synthetic.colours, channels)
    chosen = own.gather(1, most.indices[:, None, None].expand(-1, 1, channels))[:, 0]
    image = chosen.T.reshape(channels, height, width).contiguous().numpy()
    m_map = most.values.view(height, width).float().numpy() if uses_m else None
    return Synthetic(image, m_map, synthetic.colours)
