"""Keep freed memory for the next round.

Every round allocates and frees the same tensors of a few megabytes. By default glibc hands such
blocks back to the kernel and has them mapped and zeroed anew the next time, which can cost a CPU
victim half of its speed. Two limits, raised once per process, keep the memory.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MOST = 2**30  # larger blocks are still mapped on their own and given back


@cache
def keep_freed_memory() -> bool:
    """Raise glibc's limits; True if it could be done (Linux with glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MOST)) and bool(mallopt(_M_TRIM_THRESHOLD, _MOST))
