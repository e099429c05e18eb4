"""Every setting of a run, its default, its range and its meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
        description="field that identifies a document; the text's digest where it is absent",
    )
    split: str = Field(default="train", description="split of a Hugging Face dataset")
    hub_config: str | None = Field(
        default=None, description="configuration of a dataset on the hub"
    )
    revision: str | None = Field(default=None, description="revision of a dataset on the hub")
    language: str = Field(default="en", description="language code for sentence segmentation")
    mask_pattern: str | None = Field(
        default=None,
        description="regular expression; what it matches is deleted from every text before "
        "anything else, e.g. identifiers that would give an evaluation's answer away",
    )
    limit: int | None = Field(default=None, ge=1, description="read this many documents at most")
    min_sentences: int = Field(
        default=2, ge=2, description="shorter documents are skipped and counted; a split needs two"
    )
    near_duplicates: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="of two documents whose word 5-grams' estimated Jaccard similarity reaches "
        "this, the later is left out; 0 keeps all",
    )
    held_out: Share = Field(
        default=0.05,
        description="share of the documents, chosen by the digest of their ids, that is never "
        "trained on and serves for validation",
    )
    cache: Path = Field(default=Path(".cache/training"), description="folder of the token caches")


class ObjectiveSettings(_Section):
    """What is learnt: the two views of a document and the losses over them."""

    view: ViewName = Field(default="docsplit", description="how a document's two views are made")
    mix: ViewName | None = Field(
        default=None, description="a second kind of views, drawn instead for some of the documents"
    )
    mix_share: float = Field(
        default=0.5, gt=0, lt=1, description="probability with which a document gets them"
    )
    loss: Literal["auto", "infonce", "nt_xent"] = Field(
        default="auto",
        description="auto is nt_xent for span, slice and span+slice and infonce for the others, "
        "as in their papers",
    )
    temperature: float = Field(default=0.05, gt=0, description="tau of the contrastive loss")
    symmetric: bool = Field(
        default=False,
        description="InfoNCE from second to first view too, averaged with eq. 1's direction",
    )
    mlm_weight: float = Field(
        default=0.1, ge=0, description="weight of the masked language model's loss; 0 leaves it out"
    )
    mlm_rate: float = Field(
        default=0.15, gt=0, lt=1, description="share of tokens chosen for prediction"
    )
    mlm_inputs: Literal["shared", "separate"] = Field(
        default="shared",
        description="shared contrasts the same inputs that are masked, one pass through the "
        "encoder; separate masks a second copy, two passes",
    )
    windows: int = Field(
        default=1,
        ge=1,
        description="windows of max_tokens kept of a view that is longer; more than one are "
        "pooled by their token-weighted mean and renormalised",
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
        "whose vector of the first view both views are drawn to",
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
        """Weight of the masked LM loss in the sum; 1 where it is the only loss."""
        return 1.0 if self.view == "mlm" else self.mlm_weight

    @model_validator(mode="after")
    def _consistent(self) -> ObjectiveSettings:
        if self.mix is not None and "mlm" in (self.view, self.mix):
            raise ValueError("mix takes two kinds of views; mlm makes only one view of a document")
        if self.teacher is not None and self.view == "mlm":
            raise ValueError("teacher takes two views; mlm makes only one view of a document")
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
        default="auto", description="auto takes what the folder's 1_Pooling says, else mean"
    )
    max_tokens: int = Field(
        default=256, ge=8, description="longest input, special tokens included; views are cut there"
    )
    extend_to: int | None = Field(
        default=None,
        ge=16,
        description="make a BERT or RoBERTa checkpoint long: sliding-window attention, global "
        "first token, a position table of this many rows",
    )
    attention_window: int | None = Field(
        default=None,
        ge=4,
        description="tokens seen to either side by an extended model; default the short model's "
        "own length, with which both agree on every text the short one can read",
    )
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="hidden dropout; default the checkpoint's"
    )
    attention_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="dropout of attention weights; default the checkpoint's. At 0 torch's fused "
        "attention serves on a CPU too",
    )
    trust_remote_code: bool = Field(
        default=False, description="run modelling code from the folder of the start weights"
    )


class OptimisationSettings(_Section):
    """How it is learnt."""

    batch_size: int = Field(
        default=36, ge=2, description="documents contrasted with each other, over all processes"
    )
    accumulate: int = Field(default=1, ge=1, description="batches per step of the optimiser")
    epochs: float = Field(default=1.0, gt=0, description="passes over the training documents")
    max_steps: int | None = Field(
        default=None, ge=1, description="stop after this many optimiser steps"
    )
    learning_rate: float = Field(default=5e-5, gt=0, description="peak learning rate of AdamW")
    warmup: Share = Field(default=0.1, description="share of the steps over which the rate climbs")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's, on matrices only")
    clip_norm: float = Field(
        default=1.0, gt=0, description="gradients are scaled down to this L2 norm"
    )
    precision: Literal["fp32", "bf16"] = Field(
        default="fp32", description="bf16 runs the encoder under autocast; weights stay fp32"
    )
    gradient_cache: bool = Field(
        default=False,
        description="keep no activations but one chunk's: each chunk is encoded twice, memory no "
        "longer grows with the batch",
    )
    chunk_tokens: int = Field(
        default=0,
        ge=0,
        description="padded tokens encoded at once; 0 chooses by the device (CPU 2,048, else "
        "65,536)",
    )
    length_group: int = Field(
        default=16,
        ge=1,
        description="batches whose documents are sorted by length together; 1 is off",
    )


class RunSettings(_Section):
    """What is kept, how often, and when to stop."""

    output: Path = Field(description="folder of the run: checkpoints, curve, plot, model")
    seed: int = Field(default=0, ge=0, description="seeds views, masks, dropout and order")
    checkpoint_every: int = Field(default=200, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(default=2, ge=1, description="older checkpoints are removed")
    resume: bool = Field(
        default=True,
        description="go on from the newest checkpoint in output; else output must be new",
    )
    evaluate_every: int = Field(default=100, ge=1, description="steps between validations")
    evaluate_documents: int = Field(
        default=256, ge=2, description="held-out documents used in a validation, at most"
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
        description="the model written at the end is the best validated, not the last",
    )
    divergence_window: int = Field(
        default=50, ge=2, description="steps whose median loss is watched for divergence"
    )
    tensorboard: bool = Field(default=True, description="write TensorBoard events below output")
    workers: int = Field(default=1, ge=0, description="threads that prepare batches ahead; 0 none")


class Settings(_Section):
    """A training run."""

    data: DataSettings
    backbone: BackboneSettings
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    optimisation: OptimisationSettings = Field(default_factory=OptimisationSettings)
    run: RunSettings

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.backbone.extend_to and self.backbone.extend_to < self.backbone.max_tokens:
            raise ValueError(
                f"backbone.extend_to ({self.backbone.extend_to}) is shorter than "
                f"backbone.max_tokens ({self.backbone.max_tokens})"
            )
        return self
