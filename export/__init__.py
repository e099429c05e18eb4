"""The export room: checkpoints become bundles.

``bundles.format`` is the format that the service reads; it needs pydantic and the
standard library only, so importing this package must stay free of torch.
"""

from bundles.telemetry import block_telemetry

# Here, so that it holds for every import of a runtime after any part of this package.
block_telemetry()
