"""Every setting of a run, its default, its range and its meaning."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ViewName = Literal[
    "docsplit",
    "simcse",
    "span",
    "slice",
    "span+slice",
    "laser-self",
    "laser-intra",
    "laser-window",
    "coco",
    "mlm",
]
LossName = Literal["infonce", "nt_xent"]
Share = Annotated[float, Field(ge=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DataSettings(_Section):
    """Where the documents come from."""

    path: str = Field(
        description="file or folder (.parquet, .csv, .tsv, .jsonl, .txt, .md, .rst, each also with "
        ".gz, .bz2 or .zst), a folder written by Dataset.save_to_disk, or a dataset's name on the "
        "hub"
    )
    text_field: str = Field(default="text", description="field or column that holds the text")
    id_field: str = Field(
        default="id",
        description="field that identifies a document; the text's digest if it is absent",
    )
    split: str = Field(default="train", description="split of a Hugging Face dataset")
    hub_config: str | None = Field(
        default=None, description="configuration of a dataset on the hub"
    )
    revision: str | None = Field(default=None, description="revision of a dataset on the hub")
    language: str = Field(default="en", description="language code for sentence segmentation")
    mask_pattern: str | None = Field(
        default=None,
        description="regular expression; the training first deletes its matches from every text, "
        "e.g. identifiers that would reveal an evaluation's answer",
    )
    limit: int | None = Field(default=None, ge=1, description="maximum number of documents to read")
    min_sentences: int = Field(
        default=2, ge=2, description="shorter documents are skipped and counted; a split needs two"
    )
    near_duplicates: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="of two documents whose word 5-grams' estimated Jaccard similarity reaches "
        "this, the training leaves out the later; 0 keeps all",
    )
    held_out: Share = Field(
        default=0.05,
        description="share of the documents, chosen by the digest of their ids, kept from training "
        "for validation",
    )
    cache: Path = Field(default=Path(".cache/training"), description="folder of the token caches")


class ObjectiveSettings(_Section):
    """The objective: the two views of a document and their losses."""

    view: ViewName = Field(default="docsplit", description="how a document's two views are made")
    mix: ViewName | None = Field(
        default=None, description="a second kind of views, which some documents get instead"
    )
    mix_share: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="probability that a document gets the second kind of views",
    )
    loss: Literal["auto", "infonce", "nt_xent"] = Field(
        default="auto",
        description="auto is nt_xent for span, slice and span+slice and infonce for the others, "
        "as in their papers",
    )
    temperature: float = Field(default=0.05, gt=0, description="tau of the contrastive loss")
    symmetric: bool = Field(
        default=False,
        description="average InfoNCE from first to second view (eq. 1) with second to first",
    )
    mlm_weight: float = Field(
        default=0.1, ge=0, description="weight of the masked language model's loss; 0 leaves it out"
    )
    mlm_rate: float = Field(
        default=0.15, gt=0, lt=1, description="share of tokens chosen for prediction"
    )
    mlm_inputs: Literal["shared", "separate"] = Field(
        default="shared",
        description="shared contrasts the masked inputs themselves, one pass through the encoder; "
        "separate masks a second copy, two passes",
    )
    windows: int = Field(
        default=1,
        ge=1,
        description="maximum windows of max_tokens of a view; several are pooled by their "
        "token-weighted mean and renormalised",
    )
    span_tokens: int = Field(
        default=64, ge=2, description="length of a span (span, slice, span+slice)"
    )
    slice_rate: float = Field(
        default=0.4,
        gt=0,
        lt=1,
        description="share of words masked in each copy (slice, span+slice)",
    )
    anchor: Literal["first", "random"] = Field(
        default="first", description="which sentence is the anchor (laser-self, laser-intra)"
    )
    elongation: int = Field(
        default=0,
        ge=0,
        description="times the anchor is repeated (laser-self, laser-intra); 0 draws it each "
        "time, up to what the window holds",
    )

    teacher: str | None = Field(
        default=None,
        description="folder or hub name of a frozen encoder with the same vocabulary and width, "
        "whose vector of the first view both views approach",
    )
    teacher_weight: float = Field(
        default=1.0, gt=0, description="weight of 1 - cosine to the teacher's vector"
    )

    @property
    def contrastive(self) -> LossName | None:
        """The contrastive loss; None for plain masked language modelling."""
        if self.view == "mlm":
            return None
        if self.loss == "auto":
            return "nt_xent" if self.view in ("span", "slice", "span+slice") else "infonce"
        return self.loss

    @property
    def mlm_factor(self) -> float:
        """Weight of the masked LM loss in the sum; 1 if it is the only loss."""
        return 1.0 if self.view == "mlm" else self.mlm_weight

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mix is not None and "mlm" in (self.view, self.mix):
            raise ValueError("mix needs two kinds of views; mlm makes only one view of a document")
        if self.teacher is not None and self.view == "mlm":
            raise ValueError("teacher needs two views; mlm makes only one view of a document")
        if self.symmetric and self.contrastive == "nt_xent":
            raise ValueError("symmetric has no meaning for nt_xent, which is symmetric already")
        return self


class BackboneSettings(_Section):
    """The encoder that is trained."""

    path: str = Field(description="folder or hub name of the start weights")
    revision: str | None = Field(
        default=None, description="revision of the start weights on the hub"
    )
    pooling: Literal["auto", "mean", "cls"] = Field(
        default="auto", description="auto uses the folder's 1_Pooling if it exists, otherwise mean"
    )
    max_tokens: int = Field(
        default=256,
        ge=8,
        description="longest input, special tokens included; longer views are cut",
    )
    extend_to: int | None = Field(
        default=None,
        ge=16,
        description="extend a BERT or RoBERTa checkpoint: sliding-window attention, global "
        "first token, a position table of this many rows",
    )
    attention_window: int | None = Field(
        default=None,
        ge=4,
        description="tokens that a token of an extended model sees on either side; the short "
        "model's length by default, which keeps the vectors of all texts that it can read",
    )
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="hidden dropout; the checkpoint's by default"
    )
    attention_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="dropout of attention weights; the checkpoint's by default. At 0 torch can use "
        "its fused attention on a CPU too",
    )
    trust_remote_code: bool = Field(
        default=False, description="run modelling code in the folder of the start weights"
    )


class OptimisationSettings(_Section):
    """Batches, optimiser and precision."""

    batch_size: int = Field(
        default=36, ge=2, description="documents contrasted with each other, over all processes"
    )
    accumulate: int = Field(default=1, ge=1, description="batches per step of the optimiser")
    epochs: float = Field(default=1.0, gt=0, description="passes over the training documents")
    max_steps: int | None = Field(
        default=None, ge=1, description="stop after this many optimiser steps"
    )
    learning_rate: float = Field(default=5e-5, gt=0, description="peak learning rate of AdamW")
    warmup: Share = Field(default=0.1, description="share of the steps during which the rate rises")
    weight_decay: float = Field(
        default=0.01, ge=0, description="weight decay of AdamW, only on matrices"
    )
    clip_norm: float = Field(
        default=1.0,
        gt=0,
        description="maximum L2 norm of the gradients; larger ones are scaled down",
    )
    precision: Literal["fp32", "bf16"] = Field(
        default="fp32", description="bf16 runs the encoder under autocast; weights stay fp32"
    )
    gradient_cache: bool = Field(
        default=False,
        description="keep only one chunk's activations: the training encodes each chunk twice, and "
        "memory no longer grows with the batch",
    )
    chunk_tokens: int = Field(
        default=0,
        ge=0,
        description="padded tokens encoded at once; 0 chooses by the device (CPU 2,048, others "
        "65,536)",
    )
    length_group: int = Field(
        default=16,
        ge=1,
        description="number of batches whose documents are sorted by length together; 1 is off",
    )


class RunSettings(_Section):
    """The output, how often to write it, and when to stop."""

    output: Path = Field(description="folder of the run: checkpoints, curve, plot, model")
    seed: int = Field(default=0, ge=0, description="seeds views, masks, dropout and order")
    checkpoint_every: int = Field(default=200, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(default=2, ge=1, description="newest checkpoints to keep")
    resume: bool = Field(
        default=True,
        description="continue from the newest checkpoint in output; otherwise output must be new",
    )
    evaluate_every: int = Field(default=100, ge=1, description="steps between validations")
    evaluate_documents: int = Field(
        default=256, ge=2, description="maximum held-out documents in a validation"
    )
    metric: Literal["discrimination", "mrr"] = Field(
        default="mrr", description="validation metric that early stopping and the best model follow"
    )
    patience: int = Field(
        default=0,
        ge=0,
        description="stop after this many validations without a better metric; 0 never",
    )
    keep_best: bool = Field(
        default=False,
        description="write the best validated model at the end, not the last",
    )
    divergence_window: int = Field(
        default=50, ge=2, description="number of steps whose median loss reveals divergence"
    )
    tensorboard: bool = Field(default=True, description="write TensorBoard events below output")
    workers: int = Field(default=1, ge=0, description="threads that prepare batches in advance")


class Settings(_Section):
    """A training run."""

    data: DataSettings
    backbone: BackboneSettings
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    optimisation: OptimisationSettings = Field(default_factory=OptimisationSettings)
    run: RunSettings

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.backbone.extend_to and self.backbone.extend_to < self.backbone.max_tokens:
            raise ValueError(
                f"backbone.extend_to ({self.backbone.extend_to}) is shorter than "
                f"backbone.max_tokens ({self.backbone.max_tokens})"
            )
        return self
