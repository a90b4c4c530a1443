"""Attacks as strangers write them: functions of a model and an image, with habits of their own."""

# ruff: noqa: NPY002 - strangers draw from the generators that everybody shares

import random

import numpy as np
import torch


def random_colours(model, x, y, targets):
    """As many random pixels as the budget allows, in random corner colours, for ever."""
    while True:
        model(painted(model, x))


def painted(model, x):
    """``x`` with random pixels in random corner colours."""
    c, h, w = model.shape
    image = x.clone()
    where = torch.randperm(h * w)[: model.pixels]
    image.flatten(2)[0, :, where] = torch.randint(2, (c, len(where))).float()
    return image


def fewer_and_fewer(model, x, y, targets):
    """Noise on more or fewer pixels, two images at a time, with NumPy's and Python's numbers."""
    c, h, w = model.shape
    while True:
        images = np.repeat(x, 2, 0).reshape(2, c, h * w)
        for image in images:
            count = random.randint(1, 3 * model.pixels)
            where = np.random.permutation(h * w)[:count]
            image[:, where] = np.random.randint(0, 2, (c, len(where)))
        model(images.reshape(2, c, h, w))


def patient(model, x, y, targets, tries=7):
    """Gives up after some tries, and returns the last one."""
    for _ in range(tries):
        image = painted(model, x)
        model(image)
    return image


def unseeded(model, x, y, targets):
    """Draws from generators of its own that it does not seed."""
    c, h, w = model.shape
    old, new = np.random.RandomState(), np.random.default_rng()
    while True:
        image = x.copy().reshape(1, c, h * w)
        where = new.permutation(h * w)[: model.pixels]
        image[0, :, where] = old.randint(0, 2, (len(where), c))
        model(image.reshape(1, c, h, w))
