"""Write ``model.onnx`` with fused operators into a checkpoint's folder.

Runs in infinity's environment.
"""

import sys

from optimum.exporters.onnx import main_export

if __name__ == "__main__":
    [folder] = sys.argv[1:]
    main_export(
        folder, folder, task="feature-extraction", library_name="transformers", optimize="O2"
    )
