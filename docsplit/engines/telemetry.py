"""Block the runtimes' usage reports. Uses only the standard library.

Both reports start at import, before any call could switch them off, and both write an identifier
into the home directory: openvino and nncf through ``openvino_telemetry`` (``~/intel``), ONNX
Runtime 1.31 on Linux through a built-in client
(``~/.cache/Microsoft/DeveloperTools/.onnxruntime``).
"""

import os
import sys


def block_telemetry() -> None:
    """Switch both reports off. Call it before the first import of openvino, nncf or onnxruntime.

    Opting out of Intel's report would itself write into the home directory. So its client is made
    unimportable; openvino and nncf have silent stubs for that case.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
