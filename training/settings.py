"""Every setting of a run, its default, its range and its meaning."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    field_validator,
    model_validator,
)

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
    "links",
    "mlm",
]
LossName = Literal["infonce", "nt_xent"]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
AtLeastTwo = Annotated[int, Field(ge=2)]


def _listed(given: object) -> object:
    return (given,) if isinstance(given, str) else given


T = TypeVar("T")
Several = Annotated[tuple[T, ...], BeforeValidator(_listed)]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


class DataSettings(_Section):
    """Where the documents come from."""

    path: str
    """file or folder (.parquet, .csv, .tsv, .jsonl, or any other kind that docsplit-index reads,
    each also with .gz, .bz2 or .zst), a folder written by Dataset.save_to_disk, or a dataset's name
    on the hub"""
    text_field: str = "text"
    """field or column that holds the text"""
    id_field: str = "id"
    """field that identifies a document; the text's digest if it is absent"""
    split: str = "train"
    """split of a Hugging Face dataset"""
    hub_config: str | None = None
    """configuration of a dataset on the hub"""
    revision: str | None = None
    """revision of a dataset on the hub"""
    language: str = "en"
    """language code for sentence segmentation"""
    mask_pattern: str | None = None
    """regular expression; the training first deletes its matches from every text, e.g. identifiers
    that would reveal an evaluation's answer"""
    limit: Count | None = None
    """maximum number of documents to read"""
    min_sentences: AtLeastTwo = 2
    """shorter documents are skipped and counted; a split needs two"""
    near_duplicates: Annotated[float, Field(ge=0, le=1)] = 0.8
    """of two documents whose word 5-grams' estimated Jaccard similarity reaches this, the training
    leaves out the later; 0 keeps all"""
    held_out: Share = 0.05
    """share of the documents, chosen by the digest of their ids, kept from training for
    validation"""
    links: str | None = None
    """table of links between the documents with the columns citing and cited, for the view links"""
    author_field: str | None = None
    """field with the authors of a document, a list or a text with semicolons; links between
    documents that share an author are left out"""
    cache: Path = Path(".cache/training")
    """folder of the token caches"""

    @field_validator("mask_pattern")
    @classmethod
    def _is_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a valid regular expression ({error})") from None
        return pattern


class ObjectiveSettings(_Section):
    """The objective: the two views of a document and their losses."""

    view: ViewName = "docsplit"
    """how a document's two views are made"""
    mix: Several[ViewName] = ()
    """further kinds of views, which some documents get instead; repeatable"""
    mix_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """probability that a document gets one of the further kinds, each as often as the others"""
    loss: Literal["auto", "infonce", "nt_xent"] = "auto"
    """auto is nt_xent for span, slice and span+slice and infonce for the others, as in their
    papers"""
    temperature: PositiveFloat = 0.05
    """tau of the contrastive loss"""
    symmetric: bool = False
    """average InfoNCE from first to second view (eq. 1) with second to first"""
    mlm_weight: NonNegativeFloat = 0.1
    """weight of the masked language model's loss; 0 leaves it out"""
    mlm_rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """share of tokens chosen for prediction"""
    mlm_inputs: Literal["separate", "shared"] = "separate"
    """separate masks a second copy, two passes through the encoder; shared contrasts the masked
    inputs themselves, one pass"""
    negatives_below: Annotated[float, Field(gt=0, le=1)] = 1.0
    """a pair is not used as negatives if its cosine by the start weights reaches this; 1 uses every
    pair"""
    windows: Count = 1
    """maximum windows of max_tokens of a view; several are pooled by their token-weighted mean and
    renormalised"""
    hard_negatives: Count | None = None
    """for the view links, documents that are negatives of each document besides the batch's: at
    ranks 20 to 99 of a search for it by the start weights' vectors and words, and not linked to
    it"""
    span_tokens: AtLeastTwo = 64
    """length of a span (span, slice, span+slice)"""
    slice_rate: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """share of words masked in each copy (slice, span+slice)"""
    anchor: Literal["first", "random"] = "first"
    """which sentence is the anchor (laser-self, laser-intra)"""
    elongation: NonNegativeInt = 0
    """times the anchor is repeated (laser-self, laser-intra); 0 draws it each time, up to what the
    window holds"""

    teacher: Several[str] = ()
    """folder or hub name of a frozen encoder, whose vectors of first views both views approach; its
    vocabulary must have all tokens of the start weights; repeatable with similarities, whose mean
    over the teachers then counts"""
    teacher_match: Literal["vectors", "similarities"] = "vectors"
    """what approaches the teacher's: vectors by 1 - cosine, which needs the same width, or the
    distribution of similarities to the other documents of the batch by KL divergence"""
    teacher_temperature: PositiveFloat = 0.05
    """tau of the distributions of similarities"""
    teacher_weight: PositiveFloat = 1.0
    """weight of the distance to the teacher"""

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
        if self.mix and "mlm" in (self.view, *self.mix):
            raise ValueError("mix needs two kinds of views; mlm makes only one view of a document")
        if self.teacher and self.view == "mlm":
            raise ValueError("teacher needs two views; mlm makes only one view of a document")
        if len(self.teacher) > 1 and self.teacher_match == "vectors":
            raise ValueError("several teachers need teacher_match similarities")
        if self.symmetric and self.contrastive == "nt_xent":
            raise ValueError("symmetric has no meaning for nt_xent, which is symmetric already")
        if "links" in self.mix:
            raise ValueError("name links as view, and the views of documents without links as mix")
        if self.view == "links" and self.contrastive == "nt_xent":
            raise ValueError("loss must be infonce for the view links")
        if self.hard_negatives and self.view != "links":
            raise ValueError("hard_negatives needs the view links")
        return self


class BackboneSettings(_Section):
    """The encoder that is trained."""

    path: str
    """folder or hub name of the start weights"""
    revision: str | None = None
    """revision of the start weights on the hub"""
    pooling: Literal["auto", "mean", "cls"] = "auto"
    """auto is what 1_Pooling of the start weights says, and mean without it"""
    max_tokens: Annotated[int, Field(ge=8)] = 256
    """longest input, special tokens included; longer views are cut"""
    extend_to: Annotated[int | None, Field(ge=16)] = None
    """extend a BERT or RoBERTa checkpoint: sliding-window attention, global first token, a position
    table of this many rows"""
    attention_window: Annotated[int | None, Field(ge=4)] = None
    """tokens that a token of an extended model sees on either side; the short model's length by
    default, which keeps the vectors of all texts that it can read"""
    dropout: Share | None = None
    """hidden dropout; the checkpoint's by default"""
    attention_dropout: Share | None = 0.0
    """dropout of attention weights; none keeps the checkpoint's. At 0 torch can use its fused
    attention on a CPU too"""
    trust_remote_code: bool = False
    """run modelling code in the folder of the start weights"""
    static_width: Annotated[int | None, Field(ge=8)] = None
    """width of the static branch: the run trains one vector for each token, whatever its context,
    and appends their weighted mean to the vector of the encoder, which stays as it is"""
    static_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """share of the joined vectors in the cosine of the result"""


class OptimisationSettings(_Section):
    """Batches, optimiser and precision."""

    batch_size: AtLeastTwo = 36
    """documents contrasted with each other, over all processes"""
    accumulate: Count = 1
    """batches per step of the optimiser"""
    epochs: PositiveFloat = 1.0
    """passes over the training documents; has no effect with max_steps"""
    max_steps: Count | None = None
    """optimiser steps of the run, in place of epochs: more steps than an epoch has read documents
    again"""
    learning_rate: PositiveFloat = 5e-5
    """peak learning rate of AdamW"""
    warmup: Share = 0.1
    """share of the steps during which the rate rises"""
    weight_decay: NonNegativeFloat = 0.01
    """weight decay of AdamW, only on matrices"""
    clip_norm: PositiveFloat = 1.0
    """maximum L2 norm of the gradients; larger ones are scaled down"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 runs the encoder under autocast; weights stay fp32. auto is bf16 on a GPU or
    processor that computes in it, else fp32"""
    gradient_cache: bool = False
    """keep only one chunk's activations: the training encodes each chunk twice, and memory no
    longer grows with the batch"""
    chunk_tokens: NonNegativeInt = 0
    """padded tokens encoded at once; 0 chooses: 2,048 on a CPU, and on a GPU by its memory and the
    encoder, at most 65,536"""
    length_group: Count = 16
    """number of batches whose documents are sorted by length together; 1 is off"""
    cluster_size: NonNegativeInt = 0
    """average number of documents in a cluster of similar vectors by the start weights; the
    documents of a batch come from one cluster, so that they are hard negatives. 0 draws from all
    documents, in groups of similar length"""


class RunSettings(_Section):
    """The output, how often to write it, and when to stop."""

    output: Path
    """folder of the run: checkpoints, curve, plot, model"""
    seed: NonNegativeInt = 0
    """seeds views, masks, dropout and order"""
    checkpoint_every: Count = 200
    """steps between checkpoints"""
    keep_checkpoints: Count = 2
    """newest checkpoints to keep"""
    resume: bool = True
    """continue from the newest checkpoint in output; otherwise output must be new"""
    evaluate_every: Count = 100
    """steps between validations"""
    evaluate_documents: AtLeastTwo = 256
    """maximum held-out documents in a validation"""
    metric: Literal["discrimination", "mrr"] = "mrr"
    """validation metric that early stopping and the best model follow"""
    patience: NonNegativeInt = 0
    """stop after this many validations without a better metric, that of the start weights included;
    0 never"""
    keep_best: bool = False
    """write the best validated model at the end, not the last; the start weights are validated
    too"""
    divergence_window: AtLeastTwo = 50
    """number of steps whose median loss reveals divergence"""
    tensorboard: bool = True
    """write TensorBoard events below output"""
    workers: NonNegativeInt = 1
    """threads that prepare batches in advance"""


class Settings(_Section):
    """A training run."""

    data: DataSettings
    backbone: BackboneSettings
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    optimisation: OptimisationSettings = Field(default_factory=OptimisationSettings)
    run: RunSettings

    def in_precision(self, precision: Literal["fp32", "bf16"]) -> Self:
        """A copy with the precision in which the run computes."""
        changed = self.optimisation.model_copy(update={"precision": precision})
        return self.model_copy(update={"optimisation": changed})

    @model_validator(mode="after")
    def _links(self) -> Self:
        if (self.objective.view == "links") != (self.data.links is not None):
            raise ValueError("objective.view links needs data.links, which nothing else reads")
        if self.data.author_field is not None and self.data.links is None:
            raise ValueError("data.author_field needs data.links")
        if self.objective.view == "links" and self.optimisation.cluster_size:
            raise ValueError(
                "optimisation.cluster_size does not group linked documents; set "
                "objective.hard_negatives instead"
            )
        return self

    @model_validator(mode="after")
    def _static(self) -> Self:
        if self.backbone.static_width is None:
            return self
        if self.objective.mlm_factor:
            raise ValueError(
                "backbone.static_width: vectors without context predict no masked words; set "
                "objective.mlm_weight to 0"
            )
        for name, given in (
            ("objective.teacher", self.objective.teacher),
            ("backbone.extend_to", self.backbone.extend_to),
        ):
            if given:
                raise ValueError(f"backbone.static_width trains no encoder; leave out {name}")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.backbone.attention_window and not self.backbone.extend_to:
            raise ValueError("backbone.attention_window needs backbone.extend_to")
        if self.backbone.extend_to and self.backbone.extend_to < self.backbone.max_tokens:
            raise ValueError(
                f"backbone.extend_to ({self.backbone.extend_to}) is shorter than "
                f"backbone.max_tokens ({self.backbone.max_tokens})"
            )
        return self
