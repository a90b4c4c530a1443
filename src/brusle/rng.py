"""Random numbers as a pure function of (seed, problem id, restart, step, purpose).

There is no generator with a state that one image could advance for another: every number is a
hash of its coordinates (SplitMix64, Steele et al., OOPSLA 2014, used as a counter-based
generator). So a result cannot depend on the batch size, the order of the images, the number of
workers or an interruption, and integer arithmetic gives the same bits on CPU and CUDA.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum, auto, unique

import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # the golden ratio, as a signed 64-bit integer
_MULTIPLY = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
_SHIFT = (30, 27, 31)
_PURPOSES = 64  # numbers of one step for so many purposes lie beside each other


@unique
class Purpose(IntEnum):
    """What random numbers are for. No two draws share a purpose, and so none share numbers.

    An attack that lives elsewhere makes its own with `purpose`.
    """

    # pairs of images and targets; with these numbers, they are the ones that 0.1 chose
    IMAGE_ORDER = 1
    TARGET_ORDER = 2
    CLASS_ORDER = 3
    # starting images out of the data
    START_ORDER = auto()  # which images of a class are asked first
    START_CLASS = auto()
    START_IMAGE = auto()
    # the loop
    VICTIM_NOISE = auto()  # keys of a randomised victim
    START_NOISE = auto()  # images of noise to start from
    KEPT_EDITS = auto()  # which pixels a smaller budget begins with
    PALETTE = auto()  # synthetic colour images
    # attacks
    BRUSLE_INITIAL = auto()
    BRUSLE_COLOUR = auto()
    BRUSLE_SWAP = auto()
    SPARSE_RS_START = auto()
    SPARSE_RS_MOVE = auto()
    SPARSE_RS_AGAIN = auto()
    SPARSE_EVO_PARENTS = auto()
    SPARSE_EVO_CROSS = auto()
    SPARSE_EVO_FIRST = auto()
    SPARSE_EVO_SECOND = auto()
    SPARSE_EVO_LEAVE = auto()
    POINTWISE_ORDER = auto()
    HSJA_PROBE = auto()
    ONE_PIXEL_MEMBER = auto()
    ONE_PIXEL_PARENTS = auto()
    ONE_PIXEL_AGAIN = auto()
    ONE_PIXEL_CROSSOVER = auto()
    ONE_PIXEL_SCALE = auto()
    BAYES_OPT_START = auto()
    BAYES_OPT_COLOUR = auto()
    BAYES_OPT_SEARCH = auto()
    PGD0_START = auto()
    SIGMA_ZERO_START = auto()
    BANDIT_PLACE = auto()
    BANDIT_PAINT = auto()
    BANDIT_FIELD = auto()
    BANDIT_RESIDUAL = auto()
    BANDIT_NOISE = auto()
    BANDIT_CELL = auto()
    BANDIT_SIGN = auto()
    # images that are attacked until something is decided
    TURN = auto()


def purpose(name: str) -> int:
    """A purpose of its own for whoever says ``name``, apart from all in `Purpose`."""
    return content_id(name.encode()) | 1 << 32


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser of an int64 tensor: every input bit reaches every output bit."""
    return _mix_in_place(x.clone())


def _mix_in_place(x: Tensor) -> Tensor:
    scratch = torch.empty_like(x)
    for shift, factor in zip(_SHIFT, (*_MULTIPLY, 1), strict=True):
        # torch shifts signed integers arithmetically; the mask makes it a logical shift
        torch.bitwise_right_shift(x, shift, out=scratch)
        x.bitwise_xor_(scratch.bitwise_and_((1 << (64 - shift)) - 1))
        if factor != 1:
            x.mul_(factor)
    return x


def _signed(number: int) -> int:
    """A Python integer modulo 2**64, as a signed 64-bit one."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def content_id(*parts: bytes) -> int:
    """A 63-bit id of an image and what is asked of it: the same wherever it stands."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return int.from_bytes(digest.digest(), "little") >> 1


def streams(seed: int, ids: Tensor, restart: int = 0) -> Tensor:
    """One stream per problem, as an int64 key.

    Args:
        seed: the user's seed, any Python integer (taken modulo 2**64).
        ids: ``(n,)`` int64 problem ids.
        restart: number of the restart.
    """
    key = mix(torch.full_like(ids, _signed(seed)) + _GAMMA)
    key = mix((key ^ ids) + _GAMMA)
    return mix((key ^ restart) + _GAMMA)


def bits(stream: Tensor, step: Tensor | int, purpose: int, count: int) -> Tensor:
    """``(n, count)`` uniform integers below 2**31, as int32.

    Args:
        stream: ``(n,)`` keys from `streams`.
        step: ``(n,)`` or one number: which query of the problem the numbers are for.
        purpose: a `Purpose`, or one from `purpose`: tells apart several draws of one step.
        count: how many numbers per problem.
    """
    place = torch.as_tensor(step, device=stream.device) * _PURPOSES + purpose
    key = mix(stream + place * _GAMMA)
    # each 64-bit word is cut into two numbers; torch cannot cut one word of no problem at all
    words = max(2, (count + 1) // 2)
    counter = torch.arange(1, words + 1, device=stream.device) * _GAMMA
    halves = _mix_in_place(key[:, None] + counter).view(torch.int32)[:, :count]
    return halves.bitwise_and_(0x7FFFFFFF)


def seeds(stream: Tensor, step: Tensor) -> Tensor:
    """``(n,)`` 62-bit seeds for the generators of randomised victims."""
    high, low = bits(stream, step, Purpose.VICTIM_NOISE, 2).long().unbind(1)
    return (high << 31) | low


def uniform(numbers: Tensor) -> Tensor:
    """`bits` as float64 numbers in (0, 1), never 0 or 1."""
    return numbers.double().add_(0.5).mul_(2.0**-31)


def exponential(numbers: Tensor) -> Tensor:
    """`bits` as float32 numbers from the exponential distribution of mean 1.

    Divided by weights they are an exponential race: its first k `winners` are a draw of k elements
    without replacement with those weights.
    """
    # log1p keeps full precision for the small numbers, which are the ones that win a race;
    # the clamp only catches the one value in 2**25 that rounds to infinity
    minus_u = numbers.float().add_(0.5).mul_(-(2.0**-31))
    return minus_u.log1p_().neg_().clamp_(max=64.0)


def winners(race: Tensor, count: int) -> Tensor:
    """``(n, count)`` positions of the smallest numbers of each row, smallest first.

    Ties go to the lower position. `torch.topk` alone leaves them to chance, and a result could
    then depend on ``count``, which is shared by the rows of a batch.
    """
    values, index = race.topk(min(count + 1, race.shape[1]), largest=False)
    tied = (values[:, 1:] == values[:, :-1]).any(1)
    if bool(tied.any()):
        index[tied] = race[tied].sort(dim=1, stable=True).indices[:, : index.shape[1]]
    return index[:, :count]
