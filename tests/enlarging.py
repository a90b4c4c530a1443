"""How maps of few cells become as large as images, written out in NumPy."""

import numpy as np


def bilinear(cells: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """``(n, rows, columns)`` cells at another size, linear between their centres."""
    for axis, length in ((1, size[0]), (2, size[1])):
        count = cells.shape[axis]
        at = np.clip((np.arange(length) + 0.5) * count / length - 0.5, 0, count - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, count - 1)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(3)])
        cells = cells.take(low, axis) * (1 - share) + cells.take(high, axis) * share
    return cells
