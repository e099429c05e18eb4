"""How the threads of a process share the interpreter: none may keep the event loop waiting."""

from __future__ import annotations

import asyncio
import gc
import sys

# A thread that wants the interpreter asks for it after so long. A short request asks some ten times
# on its way through the threads; Python's own 5 ms would add up to 50 ms beside a busy thread.
SWITCH_SECONDS = 0.001
_PAUSE_SECONDS = 1.0


async def tend() -> None:
    """Switch threads often, and keep what modules hold out of garbage collections, for good.

    A full collection looks at every object and lets no other thread run meanwhile: 0.2 s once
    LanceDB and scikit-learn are imported, which happens late. A body of 130,000 lists starts two.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    modules = 0
    while True:
        if len(sys.modules) != modules:
            modules = len(sys.modules)
            gc.freeze()
        await asyncio.sleep(_PAUSE_SECONDS)
