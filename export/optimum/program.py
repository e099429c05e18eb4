"""Run ``optimum-cli``.

optimum-onnx needs an older transformers than this project, so it lives in an environment of its
own, and only its command is called.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from export.errors import ExportError
from export.graphs.graph import OPSET

# optimum finds no settings of this project's environment
_LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_VERSION = re.compile(r"`(\w+)` version: (\S+)")
# its last line may only say that something failed
_SAID_LINES = 3


class Optimum:
    """The program ``optimum-cli``.

    Args:
        program: its name on ``PATH``, or its path.

    Raises:
        ExportError: there is no such program.
    """

    def __init__(self, program: str) -> None:
        found = shutil.which(Path(program).expanduser())
        if found is None:
            raise ExportError(
                f"{program}: no such program; install optimum in an environment of its own "
                "(python -m venv optimum; optimum/bin/pip install 'docsplit[optimum]') and name "
                "its program: --optimum-cli optimum/bin/optimum-cli"
            )
        self._program = found

    def versions(self) -> dict[str, str]:
        """Versions of its packages, by names for a bundle's lineage."""
        found = dict(_VERSION.findall(self._run("env")))
        return {f"optimum's {name}" if name != "optimum" else name: v for name, v in found.items()}

    def export(self, model: str, folder: Path, *, trusted: bool) -> Path:
        """Export a transformer with optimum's configuration for its architecture.

        Args:
            model: folder or hub name of the transformer.
            folder: gets the graph, which returns token vectors in fp32, and its settings.
            trusted: run model code in the folder of the weights.

        Raises:
            ExportError: optimum fails, or writes no graph.
        """
        options = ["--task", "feature-extraction", "--library-name", "transformers"]
        options += ["--opset", str(OPSET), "--dtype", "fp32"]
        options += ["--trust-remote-code"] if trusted else []
        self._run("export", "onnx", "--model", model, *options, str(folder))
        return _graph(folder)

    def optimise(self, folder: Path, dest: Path) -> Path:
        """Optimise the graph of a folder at optimum's level O3.

        Raises:
            ExportError: optimum fails, for instance because it knows no fusions for the
                architecture.
        """
        self._run(
            "onnxruntime", "optimize", "--onnx_model", str(folder), "-O3", "--output", str(dest)
        )
        return _graph(dest)

    def _run(self, *arguments: str) -> str:
        settings = {name: v for name, v in os.environ.items() if name not in _LEFT_OUT}
        done = subprocess.run(  # noqa: S603 - the user names the program
            [self._program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=settings,
        )
        if done.returncode:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise ExportError(
                f"optimum-cli {' '.join(arguments[:2])} failed: "
                f"{' '.join(said[-_SAID_LINES:]) or f'exit code {done.returncode}'}"
            )
        return done.stdout


def _graph(folder: Path) -> Path:
    found = sorted(folder.glob("*.onnx"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "no graph"
        raise ExportError(f"optimum-cli wrote {names}, but an encoder needs one graph")
    return found[0]
