"""What a run writes: its curve and plot, the sentence-transformers folder, ``training.json``."""

import csv
import json
import os
import resource
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
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
from training.settings import BackboneSettings, Settings
from training.trainer.opening import Opened
from training.trainer.validation import Validation

# The record of each step of a run, as JSON lines, CSV and TensorBoard files.

STEPS = "steps.jsonl"
VALIDATIONS = "validations.jsonl"


class Curve:
    """The record of a run in its output folder.

    Each step appends a line. A run that resumes at a checkpoint first drops the later lines, so
    the record equals that of a run without interruption.
    """

    def __init__(self, folder: Path, *, tensorboard: bool, resume_at: int = 0) -> None:
        """Record into ``folder`` and keep its lines up to step ``resume_at``."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in (STEPS, VALIDATIONS):
            path = folder / name
            kept = [r for r in read_lines(path) if r["step"] <= resume_at]
            path.write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")
        self._steps = (folder / STEPS).open("a", encoding="utf-8", buffering=1)
        self._validations = (folder / VALIDATIONS).open("a", encoding="utf-8", buffering=1)
        self._board: Any = None
        if tensorboard:
            with warnings.catch_warnings():
                # The event writer uses deprecated calls of numpy and protobuf.
                warnings.simplefilter("ignore")
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=resume_at + 1)

    def step(self, record: Mapping[str, float]) -> None:
        """Record a step; ``record`` holds ``step``."""
        self._write(self._steps, "train", record)

    def validation(self, record: Mapping[str, float]) -> None:
        """Record a validation; ``record`` holds ``step``."""
        self._write(self._validations, "validation", record)

    def close(self) -> None:
        """Close the files and also write both records as CSV."""
        self._steps.close()
        self._validations.close()
        if self._board is not None:
            self._board.close()
        for name in (STEPS, VALIDATIONS):
            write_csv(self._folder / name)

    def _write(self, stream: Any, group: str, record: Mapping[str, float]) -> None:
        stream.write(json.dumps(record) + "\n")
        if self._board is not None:
            for key, value in record.items():
                if key != "step":
                    self._board.add_scalar(f"{group}/{key}", value, int(record["step"]))


def read_lines(path: Path) -> list[dict[str, float]]:
    """Records of a JSON lines file, without a last line that a kill left incomplete."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def write_csv(path: Path) -> None:
    """Write the records of a JSON lines file as a CSV file next to it."""
    records = read_lines(path)
    if not records:
        return
    with path.with_suffix(".csv").open("w", newline="", encoding="utf-8") as stream:
        # an interrupted run of an older version has fewer figures in its first records
        names = dict.fromkeys(name for record in records for name in record)
        writer = csv.DictWriter(stream, fieldnames=list(names))
        writer.writeheader()
        writer.writerows(records)


PLOT = "run.png"
_SMOOTHING = 0.9


def plot_run(folder: Path, chance: float | None) -> Path:
    """Plot loss, learning rate and gradient norm, validation, and speed of a recorded run.

    Args:
        folder: the folder of ``steps.jsonl`` and ``validations.jsonl``.
        chance: contrastive loss of an encoder with one vector for all texts, shown as a line.

    Returns:
        The path of the plot.
    """
    from matplotlib.figure import Figure

    steps = read_lines(folder / STEPS)
    validations = read_lines(folder / VALIDATIONS)
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    _losses(axes[0][0], steps, chance)
    _validation(axes[0][1], validations)
    _optimiser(axes[1][0], steps)
    _speed(axes[1][1], steps)
    for axis in axes.flat:
        axis.set_xlabel("optimiser step")
        axis.grid(alpha=0.3)
    path = folder / PLOT
    figure.savefig(path, dpi=110)
    return path


def _losses(axis: Any, steps: list[dict[str, float]], chance: float | None) -> None:
    axis.set_title("loss (thin: each step, thick: running mean)")
    x = [s["step"] for s in steps]
    for key, colour in (("contrastive", "tab:blue"), ("mlm", "tab:orange")):
        values = [s[key] for s in steps]
        if not any(values):
            continue
        axis.plot(x, values, color=colour, alpha=0.25, linewidth=0.8)
        axis.plot(x, _smooth(values), color=colour, label=key)
    if chance is not None:
        axis.axhline(chance, color="grey", linestyle=":", label="contrastive, chance")
    axis.set_ylim(bottom=0)
    axis.legend()


def _validation(axis: Any, validations: list[dict[str, float]]) -> None:
    axis.set_title("held-out documents")
    x = [v["step"] for v in validations]
    for key, label in (
        ("discrimination", "same-document discrimination, accuracy"),
        ("mrr", "retrieval of the other half, MRR"),
    ):
        axis.plot(x, [v[key] for v in validations], marker="o", markersize=3, label=label)
    axis.legend()


def _optimiser(axis: Any, steps: list[dict[str, float]]) -> None:
    axis.set_title("learning rate and gradient norm")
    x = [s["step"] for s in steps]
    lines = axis.plot(x, [s["learning_rate"] for s in steps], color="tab:green", label="rate")
    right = axis.twinx()
    norms = [s["gradient_norm"] for s in steps]
    lines += right.plot(x, norms, color="tab:red", alpha=0.5, linewidth=0.8, label="norm")
    axis.legend(handles=lines)


def _speed(axis: Any, steps: list[dict[str, float]]) -> None:
    axis.set_title("documents per second, and share of tokens that are not padding")
    x = [s["step"] for s in steps]
    rates = [s["documents"] / max(s["seconds"], 1e-9) for s in steps]
    lines = axis.plot(x, _smooth(rates), color="tab:purple", label="documents/s")
    right = axis.twinx()
    right.set_ylim(0, 1.05)
    useful = [s["tokens"] / max(s["padded_tokens"], 1) for s in steps]
    lines += right.plot(x, useful, color="tab:grey", alpha=0.6, linewidth=0.8, label="useful share")
    axis.set_ylim(bottom=0)
    axis.legend(handles=lines)


def _smooth(values: list[float]) -> list[float]:
    """Exponential running mean, corrected for its start."""
    out, mean, mass = [], 0.0, 0.0
    for value in values:
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * value
        mass = _SMOOTHING * mass + (1 - _SMOOTHING)
        out.append(mean / mass)
    return out


def run_record(
    settings: Settings,
    opened: Opened,
    *,
    steps: int,
    stopped_early: bool,
    seen: dict[str, int],
    processes: int,
    device: torch.device,
    seconds: float,
    before: Validation | None,
    after: Validation | None,
) -> dict[str, Any]:
    """The record of a finished run, as plain values.

    Args:
        seen: documents and tokens of all steps.
        seconds: time since the run was opened or last resumed.
        before: validation of the start weights.
        after: validation of the written model.
    """
    objective = settings.objective
    return {
        "settings": json.loads(settings.model_dump_json()),
        "objective": {
            "view": objective.view,
            "contrastive_loss": objective.contrastive,
            "mlm_weight": objective.mlm_factor,
            "mlm_head": opened.head_origin,
        },
        "data": {
            **asdict(opened.cache.counts),
            "training_documents": len(opened.train),
            "held_out_documents": len(opened.held),
            "links": opened.graph.counts if opened.graph else None,
            "cache": opened.cache.root.name,
        },
        "seed": settings.run.seed,
        "steps": steps,
        "stopped_early": stopped_early,
        "seen": seen,
        "processes": processes,
        "device": _device_name(device),
        "seconds": seconds,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "metrics": {
            "before": asdict(before) if before else None,
            "after": asdict(after) if after else None,
        },
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


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
