"""Write the resulting sentence-transformers folder and its record."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from safetensors import SafetensorError
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from export.errors import ExportError
from export.requirements import licence, read_card
from export.source import save_with_code
from export.static_branch import StaticBranch
from training.encoder import Encoder, StaticBackbone, open_saved
from training.errors import OutputError
from training.settings import BackboneSettings

RECORD = "training.json"


def save_result(
    encoder: Encoder, tokenizer: PreTrainedTokenizerBase, settings: BackboneSettings, folder: Path
) -> None:
    """Write what a run trained as a folder that ``docsplit-export`` opens: the encoder, or the
    encoder at ``settings.path`` with the trained vectors of tokens. Replaces ``folder``."""
    if isinstance(encoder.backbone, StaticBackbone):
        save_joined(encoder.backbone.vectors(), settings, folder)
    else:
        save_model(encoder, tokenizer, settings.max_tokens, folder)


def save_model(
    encoder: Encoder, tokenizer: PreTrainedTokenizerBase, max_tokens: int, folder: Path
) -> None:
    """Write an encoder as a folder that ``SentenceTransformer`` and ``docsplit-export`` open.

    The folder is complete or absent: the function writes it under a temporary name and renames it.

    Args:
        encoder: the model.
        tokenizer: its tokenizer.
        max_tokens: longest input, special tokens included.
        folder: the target. The function replaces an existing model.
    """
    with complete(folder) as draft:
        _save(encoder, tokenizer, max_tokens, draft)


def _save(
    encoder: Encoder, tokenizer: PreTrainedTokenizerBase, max_tokens: int, draft: Path
) -> None:
    encoder.backbone.save_pretrained(draft)
    # Programs that read only tokenizer.json should get whole texts; max_seq_length is below.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(draft)
    config = encoder.backbone.config
    _write(
        draft / "modules.json",
        [
            {
                "idx": number,
                "name": str(number),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
            for number, (path, kind) in enumerate(
                [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
            )
        ],
    )
    _write(
        draft / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False}
    )
    _write(
        draft / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": config.hidden_size,
            "pooling_mode_cls_token": encoder.pooling == "cls",
            "pooling_mode_mean_tokens": encoder.pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    (draft / "2_Normalize").mkdir()


def save_joined(vectors: Tensor, settings: BackboneSettings, folder: Path) -> None:
    """Write the encoder at ``settings.path`` with vectors of tokens as its static branch.

    The folder opens in ``SentenceTransformer`` with ``trust_remote_code=True``, and without it in
    ``docsplit-export`` and ``docsplit-evaluate``.

    Args:
        vectors: float ``[tokens, width]``, a row for each token; zero for special tokens.
        settings: path of the encoder, window and share of the branch.
        folder: the target. The function replaces an existing model.
    """
    with complete(folder) as draft:
        model = open_saved(
            settings.path,
            trusted=settings.trust_remote_code,
            revision=settings.revision,
            device="cpu",
        )
        model.max_seq_length = settings.max_tokens
        branch = StaticBranch(len(vectors), vectors.shape[1], settings.static_share)
        branch.fill(vectors)
        model.append(branch)
        model.append(Normalize())
        save_with_code(model, draft)


@contextmanager
def complete(folder: Path, *, replaces: bool = True) -> Iterator[Path]:
    """A folder to write into, which becomes ``folder`` when all is written, and else goes away.

    Args:
        folder: the target.
        replaces: remove a ``folder`` that exists by then.

    Raises:
        OutputError: the disk is full or not writable.
        OSError: the same, or ``folder`` holds files and is not replaced.
    """
    draft = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        if replaces and folder.exists():
            shutil.rmtree(folder)
        os.replace(draft, folder)
    except SafetensorError as error:
        raise OutputError(
            f"{folder}: could not be written ({error}); free space or correct the path, then "
            "repeat the command"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_record(folder: Path, starts: Sequence[str], how: str, record: dict[str, Any]) -> None:
    """Write ``training.json``: objective, data, hyper-parameters, seed, revision, metrics; and the
    model card, with the licence of the start weights if all of them name the same.

    Args:
        folder: of the model.
        starts: folders or hub names of the start weights.
        how: what made the model of them.
        record: plain values.
    """
    licences = set(map(_licence, starts))
    known = ModelCardData(
        license=licences.pop() if len(licences) == 1 else None,
        base_model=[one for one in starts if not Path(one).exists()] or None,
        library_name="sentence-transformers",
    )
    names = " and ".join(Path(one).name if Path(one).exists() else one for one in starts)
    text = f"docsplit-train made this encoder of {names}: {how}. `{RECORD}` has the details."
    ModelCard(f"---\n{known.to_yaml()}\n---\n\n{text}\n").save(folder / "README.md")
    packages = ("docsplit", "torch", "transformers", "tokenizers", "accelerate", "sentencex")
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    _write(folder / RECORD, {**record, "code_revision": code_revision(), "packages": versions})


def _licence(source: str) -> str | None:
    """As cards write it; None if that of the source names none, or the hub does not answer."""
    try:
        card = read_card(source)
        return licence(source, card).lower() if card else None
    except (ExportError, OSError):
        return None


def code_revision() -> str | None:
    """Commit of the git checkout of this code; None outside a checkout, or without git."""
    try:
        said = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607 - the user's own git
            cwd=Path(__file__).parent,
            capture_output=True,
            check=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
