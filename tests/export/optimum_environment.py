"""An environment with optimum, and programs that behave as optimum-cli does in part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.comparison.peers.environments import CACHE

PROGRAMS = CACHE / "optimum" / "bin"
CLI = PROGRAMS / "optimum-cli"
needs_optimum = pytest.mark.skipif(
    not CLI.is_file(),
    reason="no optimum here: python -m benchmarks.comparison.peers.environments optimum makes one",
)
# arguments: a folder, a file with a text per line, a file for the vectors
_ENCODE = """
import sys
import numpy as np
{setup}
folder, texts, dest = sys.argv[1:]
with open(texts, encoding="utf-8") as lines:
    texts = lines.read().splitlines()
np.save(dest, encode(folder, texts))
"""
_SENTENCE_TRANSFORMERS = """
from sentence_transformers import SentenceTransformer
def encode(folder, texts):
    model = SentenceTransformer(folder, backend={backend!r}, model_kwargs={options!r}, device="cpu")
    return model.encode(texts, prompt="")
"""
_CUSTOM_TASKS = """
from onnxruntime import InferenceSession
from optimum.onnxruntime import ORTModelForCustomTasks
from transformers import PreTrainedTokenizerFast, PretrainedConfig
def encode(folder, texts):
    session = InferenceSession(folder + "/model.fp16.onnx", providers=["CPUExecutionProvider"])
    model = ORTModelForCustomTasks(session=session, config=PretrainedConfig())
    file = folder + "/tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=file, pad_token="[PAD]")
    inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    return model(**inputs)["sentence_embedding"].numpy()
"""


def by_sentence_transformers(
    folder: Path, texts: list[str], scratch: Path, backend: str, **options: str
) -> np.ndarray:
    """Vectors by a backend of sentence-transformers, in the environment."""
    code = _SENTENCE_TRANSFORMERS.format(backend=backend, options=options)
    return _encode(code, folder, texts, scratch)


def by_custom_tasks(bundle: Path, texts: list[str], scratch: Path) -> np.ndarray:
    """Vectors of a bundle's graph in optimum's ``ORTModelForCustomTasks``, in the environment."""
    return _encode(_CUSTOM_TASKS, bundle, texts, scratch)


def _encode(setup: str, folder: Path, texts: list[str], scratch: Path) -> np.ndarray:
    listed, dest = scratch / "texts.txt", scratch / "vectors.npy"
    listed.write_text("\n".join(texts), encoding="utf-8")
    command: list[str | Path] = [PROGRAMS / "python", "-c", _ENCODE.format(setup=setup)]
    command += [folder, listed, dest]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert done.returncode == 0, done.stderr
    vectors: np.ndarray = np.load(dest)
    return vectors


def program(path: Path, body: str) -> Path:
    """A program with the name ``path``, whose arguments are in ``sys.argv``."""
    path.write_text(f"#!{sys.executable}\nimport pathlib, shutil, sys\n{body}\n")
    path.chmod(0o755)
    return path
