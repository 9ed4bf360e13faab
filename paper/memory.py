"""Memory of a training on a CPU: blocks that were freed are kept for the next step."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of settings, as glibc's malloc.h has them
_NEVER, _NONE = -1, 0


def keep_freed_memory() -> bool:
    """Let this process keep memory that it has freed, however large the blocks are; return whether that could be set.

    By default the C library hands large blocks back to the system, and every step of a training fetches its activations
    anew, page by page. Kept, they are there at once (``benchmarks/freed_memory.py``). The process then holds its peak
    until it ends, so this is for programs that only train, not for libraries to call. It works with glibc
    (Linux), and does nothing elsewhere.

    Examples
    --------
    >>> from paper.memory import keep_freed_memory
    >>> keep_freed_memory() in (True, False)
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return all(mallopt(name, value) == 1 for name, value in ((_TRIM_THRESHOLD, _NEVER), (_MMAP_MAX, _NONE)))
