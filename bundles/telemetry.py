"""Keep the runtimes' usage reporting out of the process. Standard library only.

Both reports start at import, before any call could switch them off, and both leave an identifier
in the home directory: openvino and nncf through ``openvino_telemetry`` (``~/intel``), ONNX Runtime
1.31 on Linux through a built-in client (``~/.cache/Microsoft/DeveloperTools/.onnxruntime``).
"""

import os
import sys


def block_telemetry() -> None:
    """Switch both reports off; call before the first import of openvino, nncf or onnxruntime.

    Opting out of Intel's would itself write into the home directory, so its client is made
    unimportable instead, for which openvino and nncf have silent stubs.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
