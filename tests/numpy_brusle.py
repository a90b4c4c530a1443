"""BruSLeAttack (ICLR 2024), one image at a time: the yardstick for the batched implementation.

Written for legibility, not speed, and deliberately sharing no code with the package: the tests
compare the two statistically, so a common mistake would go unnoticed if they shared helpers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Result:
    """Outcome of one attack; `image`, `mask` and `loss` belong together."""

    success: bool
    queries: int
    image: Floats
    mask: Mask
    loss: float


def attack_loss(logits: Floats, label: int, target: int | None) -> float:
    """Cross-entropy to the target, or the margin of softmax probabilities when untargeted."""
    shifted = logits - logits.max()
    log_probabilities = shifted - np.log(np.exp(shifted).sum())
    if target is not None:
        return float(-log_probabilities[target])
    probabilities = np.exp(log_probabilities)
    return float(probabilities[label] - np.delete(probabilities, label).max())


def draw(weights: Floats, among: Mask, count: int, rng: np.random.Generator) -> Mask:
    """Draw `count` pixels of `among` without replacement, one by one in proportion to weight."""
    drawn = np.zeros(among.shape, dtype=bool)
    if count > 0:
        p = np.where(among, weights, 0.0).ravel()
        drawn.flat[rng.choice(p.size, size=count, replace=False, p=p / p.sum())] = True
    return drawn


def generate(theta: Floats, m: Floats, u: Mask, rate: float, rng: np.random.Generator) -> Mask:
    """Generation: keep the pixels believed to matter, replace k of them by unselected ones."""
    budget = int(u.sum())
    # At least one, since with few pixels the decaying rate would otherwise stall the search.
    k = min(max(1, int(np.floor(rate * budget))), budget, int((~u).sum()))
    weights = theta * m
    # Pixels whose colour would not change weigh nothing; too few others means M cannot be used.
    if np.count_nonzero(weights[~u] > 0) < k:
        weights = theta
    return draw(theta, u, budget - k, rng) | draw(weights, ~u, k, rng)


def posterior_mean(a: Floats, n: Floats, alpha_prior: float, z: float) -> Floats:
    """Theta, the mean of the Dirichlet posterior."""
    alpha = alpha_prior + (a + z) / (n + z) - 1
    return alpha / alpha.sum()


def brusle(
    query: Callable[[Floats], Floats],
    x: Floats,
    label: int,
    target: int | None,
    pixels: int,
    queries: int,
    rng: np.random.Generator,
    variant: str = "paper",
    lambda_0: float | None = None,
    m1: float = 0.24,
    m2: float = 0.997,
    z: float = 0.01,
    alpha_prior: float = 1.0,
    initial: int = 10,
    dissimilarity: bool = True,
    synthetic: Floats | None = None,
) -> Result:
    """Attack one image by replacing `pixels` of its pixels.

    `variant="reference"` differs from `"paper"` as the authors' code does: one fixed synthetic
    image per shape, success not checked on the initial queries (so a success takes at least
    `initial` + 1), and the last candidate instead of the best mask on failure. It departs from
    that code in that the query limit is never exceeded: it stops at exactly `queries` calls and
    makes no uncounted final query for the label. Where that code would break (non-square images,
    too few pixels of positive weight), both variants behave alike.

    Args:
        query: Maps one (c, h, w) image in [0, 1] to logits; each call is one query.
        target: Class to reach, or None for an untargeted attack.
        lambda_0: Initial changing rate; None for the paper's choice by goal and image size.
        alpha_prior: Concentration of the Dirichlet prior, at least 1 to keep weights positive.
        initial: Number of random masks tried first.
        synthetic: The synthetic colour image; drawn here if None. A comparison of the reference
            variant must hand in the other side's, since all its attacks share the one draw.
    """
    x = np.asarray(x, dtype=np.float64)
    shape = x.shape[1:]
    if variant not in ("paper", "reference"):
        raise ValueError(f"unknown variant: {variant!r}")
    if not 1 <= pixels <= shape[0] * shape[1] or queries < 1 or initial < 1 or alpha_prior < 1:
        raise ValueError("pixels, queries, initial or alpha_prior out of range")
    if lambda_0 is None:
        small = shape[0] * shape[1] <= 128 * 128
        lambda_0 = 0.3 if target is None else 0.15 if small else 0.05
    reference = variant == "reference"

    if synthetic is None:
        colours = np.random.default_rng(0) if reference else rng
        synthetic = colours.integers(0, 2, size=x.shape).astype(np.float64)
    m = np.abs(x - synthetic).mean(axis=0) if dissimilarity else np.ones(shape)

    def evaluate(mask: Mask, spent: int) -> Result:
        image = np.where(mask, synthetic, x)
        # The callee gets a copy, so that a model working in place cannot alter the result.
        logits = np.asarray(query(image.copy()), dtype=np.float64)
        best = int(logits.argmax())
        success = best != label if target is None else best == target
        return Result(success, spent, image, mask, attack_loss(logits, label, target))

    a, n = np.zeros(shape), np.zeros(shape)
    current: Result | None = None
    for spent in range(1, min(initial, queries) + 1):
        candidate = evaluate(draw(np.ones(shape), np.ones(shape, dtype=bool), pixels, rng), spent)
        if candidate.success and not reference:
            return candidate
        n += candidate.mask
        if current is None or candidate.loss < current.loss:
            current = candidate
    assert current is not None

    for spent in range(initial + 1, queries + 1):
        theta = posterior_mean(a, n, alpha_prior, z)
        # The paper's text has t^m1, which grows; only the negative power, halved, decays from
        # lambda_0. The clock is the query count, so it has advanced during initialisation too.
        rate = lambda_0 * (spent**-m1 + m2**spent) / 2
        candidate = evaluate(generate(theta, m, current.mask, rate, rng), spent)
        # The candidate is what was classified: it counts even if its loss would be rejected.
        if candidate.success:
            return candidate
        n += current.mask | candidate.mask
        if candidate.loss < current.loss:
            current = candidate
        else:
            # Removing these pixels did not help, so they are worth keeping.
            a += current.mask & ~candidate.mask
    end = candidate if reference else current
    return replace(end, success=False, queries=candidate.queries)
