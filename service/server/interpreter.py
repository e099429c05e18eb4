"""How the threads of a process share the interpreter without blocking the event loop."""

import asyncio
import gc
import sys

# Seconds that a thread waits before it asks for the interpreter. A short request asks about ten
# times on its way through the threads; beside a busy thread, Python's own 5 ms add up to 50 ms.
SWITCH_SECONDS = 0.001
_PAUSE_SECONDS = 1.0


async def tend() -> None:
    """Switch threads often, and exclude the objects of modules from garbage collection for good.

    A full collection visits every object and blocks all threads: for 0.2 s once LanceDB and
    scikit-learn are imported, which happens late. A body of 130,000 lists starts two collections.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    modules = 0
    while True:
        if len(sys.modules) != modules:
            modules = len(sys.modules)
            gc.freeze()
        await asyncio.sleep(_PAUSE_SECONDS)
