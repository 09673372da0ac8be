"""How the C library hands out memory to the programs that XLA runs on the CPU."""

import ctypes
import functools

import jax

# Names and numbers of glibc's malloc.h; mallopt(3) describes them.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


@functools.cache
def keep_freed_memory() -> bool:
    """Lets this process keep the memory it frees, so that a step finds that of the step before.

    XLA on CPU allocates one buffer for all temporary values of a program's run. glibc takes one
    of more than 32 MB from the kernel and gives it back each time, and the kernel clears it page
    by page: a third of a training step of `configs/gpt_char.py` (49 to 33 ms, two cores). The
    price: the process stays as large as it ever was.

    To be called before JAX is first used: in other threads than the main one glibc's heaps are
    limited to 64 MB, so programs have to run in the thread that calls them.

    Returns:
        Whether the C library has these settings, as glibc has.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError):  # another C library, Windows
        return False
    # No allocation by mmap, and nothing is cut off the end of the heap.
    return all([mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, -1)])
