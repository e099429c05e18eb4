"""The export turns checkpoints into bundles.

``docsplit.bundles.format`` is the format that the service reads. It needs only pydantic and the
standard library, so importing this package must not import torch.
"""

from docsplit.engines.telemetry import block_telemetry

# Set here, so that it applies before any part of this package imports a runtime.
block_telemetry()
