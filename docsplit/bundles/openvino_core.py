"""The OpenVINO runtime of a process."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

from docsplit.bundles.telemetry import block_telemetry

if TYPE_CHECKING:
    import openvino

_lock = threading.Lock()


def openvino_core() -> openvino.Core:
    """The only ``Core`` of the process; it is never released.

    The CPU plugin of each ``Core`` gives the thread that loads it another stack for signal
    handlers. If two plugins are released in the order in which they were loaded, the second one
    restores the stack of the first, which is freed memory. The next signal then ends the process
    by SIGSEGV.

    Raises:
        ImportError: openvino is not installed.
    """
    with _lock:
        return _core()


@cache
def _core() -> openvino.Core:
    block_telemetry()
    import openvino

    return openvino.Core()
