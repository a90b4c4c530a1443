"""The search of PixelBandit: propose a mask, hear what it scores, learn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.pixel_bandit.best import Answer, Best
from brusle.attacks.pixel_bandit.elements import Chance, Elements
from brusle.attacks.pixel_bandit.log_odds import LogOdds
from brusle.attacks.pixel_bandit.masks import MaskProposals
from brusle.attacks.pixel_bandit.prior import Prior, colours_at
from brusle.attacks.pixel_bandit.swaps import SwapProposals
from brusle.problems import Candidates, Edits
from brusle.rng import Purpose
from brusle.search import Feedback, Search

Proposals = MaskProposals | SwapProposals  # in small images, and in large ones


@dataclass
class Bandit(Search):
    """The best mask so far, and who proposes others."""

    initial_masks: int  # random ones, to begin with
    prior: Prior
    images: Tensor  # (n, pixels, c)
    stream: Tensor  # (n,): of random numbers
    log_odds: LogOdds
    best: Best
    new: Elements  # (n, B): the mask just asked
    proposals: Proposals

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the first masks are random."""
        return step < self.initial_masks

    def ask(self, step: Tensor) -> Edits:
        """Random masks first, then swaps by drawn effects."""
        initial = self.initial(step)
        rows = initial.nonzero()[:, 0]
        if len(rows) < len(step):
            chance = Chance(self.stream, step)
            self.new = self.proposals.propose(chance, self.images, self.best, self.slope)
        else:
            self.new = self.new.clone()  # the masks asked before are not ours to change
        if len(rows):
            chance = Chance(self.stream[rows], step[rows])
            masks = random_masks(self.prior, chance, self.images[rows], self.new.pixel.shape[1])
            self.new.replace(rows, masks)
        return Edits(self.new.pixel, self.prior.colours[self.new.colour])

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Learn what the mask scores; it may be the best."""
        z = self.log_odds.hear(feedback.scores, first=self.best.loss == torch.inf)
        answer = Answer(self.new, z, feedback.loss, random=self.initial(step))
        self.proposals.learn(step, self.images, answer, self.best)
        self.best.take(answer)
        if feedback.randomised:
            self.proposals.reconsider(step + 1, self.best, self.slope)

    def resume(self, edits: Edits) -> Candidates:
        """Take the pixels as the best mask, in the nearest corner colours."""
        distance = (edits.colour[:, :, None] - self.prior.colours).abs().sum(3)
        self.best.mask = Elements(edits.index, distance.argmin(2))
        self.new = self.best.mask.clone()
        return Edits(self.new.pixel, self.prior.colours[self.new.colour])

    @property
    def slope(self) -> Tensor:
        """``(n, classes, 1)``: of the log-odds, at the best mask."""
        return self.log_odds.slope(self.best.z)

    @property
    def best_pixel(self) -> Tensor:
        """``(n, B)``: pixels of the best mask."""
        return self.best.mask.pixel

    @property
    def best_colour(self) -> Tensor:
        """``(n, B)``: which of `Prior.colours` they have."""
        return self.best.mask.colour

    def belief(self) -> Tensor:
        """The expected effect on the log-odds of every pixel in the colour that has the largest."""
        return self.expected_effects().nan_to_num(nan=-torch.inf).amax(1)

    def expected_effects(self) -> Tensor:
        """``(n, k, pixels)``: the posterior mean of the effect of every pixel in every colour.

        It is for people to look at; the search itself draws. NaN where a colour is the pixel's own.
        """
        model = self.proposals.model
        weight = model.posterior.mean(model.observed(self.slope))
        scale = self.prior.scales(self.images, self.prior.everywhere(len(weight)))
        effect = model.memory.effects(weight.float())[:, :, self.prior.cell_of] * scale
        return effect.masked_fill(scale == -torch.inf, torch.nan)


def random_masks(prior: Prior, chance: Chance, images: Tensor, b: int) -> Elements:
    """Pixels by the square of their prior scale, and colours that are not their own."""
    weight = prior.centre.square()
    race = rng.exponential(chance.bits(Purpose.BANDIT_PLACE, prior.pixels)) / weight
    pixel = rng.winners(race, b)
    count = len(prior.colours)
    colour = chance.bits(Purpose.BANDIT_PAINT, b).long() % count
    same = (prior.colours[colour] == colours_at(images, pixel)).all(2)
    return Elements(pixel, torch.where(same, count - 1 - colour, colour))  # the opposite corner
