"""The content of ``bundle.json``, of an encoder or a re-ranker."""

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)


class Strict(BaseModel):
    """Rejects unknown fields and numbers that are not finite; cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# what writes the fp32 graph of a checkpoint
Exporter = Literal["torch", "optimum"]


class ComparedGraph(Strict):
    """One of two graphs of the same encoder, on the same passages."""

    kernels: dict[str, int]
    figures: dict[str, float] = Field(description="of its parity")
    seconds: float = Field(gt=0, description="time for the passages, both graphs in turns")

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:.6f}" for name, value in self.figures.items())
        held = ", ".join(f"{count} {kernel}" for kernel, count in self.kernels.items())
        return f"{figures}; {self.seconds:.2f} s; {held or 'no fused kernels'}"


class Comparison(Strict):
    """The graph that was written, and the one that another exporter makes."""

    written: Exporter
    recommended: Exporter
    reason: str
    graphs: dict[Exporter, ComparedGraph]
    failed: dict[Exporter, str] = Field(default_factory=dict, description="why there is no graph")

    def lines(self) -> list[str]:
        """The comparison in words."""
        said = [f"through {name}: {graph}" for name, graph in self.graphs.items()]
        said += [f"through {name}: none, because {why}" for name, why in self.failed.items()]
        return [*said, f"recommended: {self.recommended}, because {self.reason}"]


# with more, a document of many windows would be little else than its first one
MOST_FIRST_WINDOW = 16.0

WeightUnit = Literal["tokens", "letters"]


class WindowWeights(Strict):
    """How much each window of a document counts in its vector."""

    unit: WeightUnit = Field(
        default="tokens", description="what is counted: a table has few letters for its tokens"
    )
    first: float = Field(
        default=1.0,
        gt=0,
        le=MOST_FIRST_WINDOW,
        description="how many times those of the first window count",
    )


FORMAT = 1
MANIFEST = "bundle.json"
TOKENIZER = "tokenizer.json"
HEADS = "heads"
HEAD_NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

PrecisionName = Literal["fp16", "packed", "int8"]
# graph: inside a graph that the source brought along
Pooling = Literal["mean", "cls", "max", "lasttoken", "graph"]
TaskName = Literal["retrieval", "probe"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BundleError(Exception):
    """A folder is not a valid bundle; the message names the file and the reason."""


class FileEntry(Strict):
    """Content of one file of the bundle."""

    sha256: Sha256
    bytes: int = Field(ge=0)


class TaskParity(Strict):
    """The loss of one precision against the fp32 source, in a task on held-out data."""

    task: TaskName
    data: str = Field(description="name of the file or folder")
    data_sha256: Sha256 = Field(description="digest of everything that was read from it")
    documents: int = Field(ge=1)
    cases: int = Field(ge=1, description="number of answers behind each mean")
    metric: str
    source: float = Field(ge=0, le=1)
    graph: float = Field(ge=0, le=1)
    threshold: float = Field(ge=0, description="largest loss allowed")

    @property
    def loss(self) -> float:
        """The source's figure minus the graph's; negative if the graph is better."""
        return round(self.source - self.graph, 7)

    def __str__(self) -> str:
        return (
            f"{self.task} on {self.data}, {self.cases} answers: {self.metric} {self.graph:.4f}, "
            f"the source's {self.source:.4f}, loss {self.loss:.4f} of {self.threshold}"
        )


class Parity(Strict):
    """How closely one precision's vectors agree with the fp32 source's, on real paragraphs.

    ``neighbour_agreement`` is the share of paragraphs for which both encoders find the same nearest
    paragraph. ``tasks`` is empty without held-out data.
    """

    paragraphs: int = Field(ge=200)
    cosine_mean: float
    cosine_min: float
    neighbour_agreement: float = Field(ge=0, le=1)
    engine: str = Field(description="runtime and device that computed the vectors")
    thresholds: dict[str, float]
    tasks: list[TaskParity] = Field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"cosine to the source mean {self.cosine_mean:.6f}, min {self.cosine_min:.6f}; same "
            f"nearest neighbour {self.neighbour_agreement:.1%} of {self.paragraphs} paragraphs "
            f"({self.engine})"
        )


class RankParity(Strict):
    """How closely one precision's scores agree with the fp32 source's, on pairs of real text.

    A score is the logistic function of the graph's output, so it lies between 0 and 1.
    """

    queries: int = Field(ge=1)
    pairs: int = Field(ge=200)
    kendall_tau: float = Field(
        ge=-1, le=1, description="tau-b between the two orders of a query's texts, mean of queries"
    )
    same_first: float = Field(
        ge=0, le=1, description="share of queries for which both put the same text first"
    )
    score_error_mean: float = Field(ge=0, le=1, description="absolute difference of scores")
    score_error_max: float = Field(ge=0, le=1)
    engine: str = Field(description="runtime and device that computed the scores")
    thresholds: dict[str, float]

    def __str__(self) -> str:
        return (
            f"Kendall's tau to the source {self.kendall_tau:.4f}; same first text for "
            f"{self.same_first:.1%} of {self.queries} queries; error of a score mean "
            f"{self.score_error_mean:.5f}, max {self.score_error_max:.5f} of {self.pairs} pairs "
            f"({self.engine})"
        )


class WideNode(Strict):
    """A node that computes in fp32 because fp16 is too narrow."""

    kernel: str
    magnitude: float = Field(description="largest absolute value that it reads, holds or writes")
    of: Literal["activation", "weight"]


class Ranges(Strict):
    """Largest values of the fused graph in fp32, on the calibration passages."""

    passages: int = Field(ge=1)
    limit: float = Field(description="magnitude beyond which a node stays fp32")
    largest: float = Field(description="largest magnitude of all activations")
    largest_at: str = Field(description="name of a node that reads, holds or writes it")
    fp32_nodes: dict[str, WideNode]


class KeptOperator(Strict):
    """An operator that stays in floating point because its rounding costs too much."""

    kernel: str
    error: float = Field(
        description="rise of 1 - cosine by the rounding of its values, mean over a few passages"
    )


class Repair(Strict):
    """What the export kept in floating point until the graph held its thresholds."""

    before: dict[str, float] = Field(description="figures of the graph without kept operators")
    kept: dict[str, KeptOperator]
    multiplications: float = Field(
        ge=0,
        le=1,
        description="share of the multiplications with weights that the kept operators do",
    )


ParityT = TypeVar("ParityT", Parity, RankParity)


class Form(Strict, Generic[ParityT]):
    """One numeric form of a model."""

    runtime: Literal["onnx", "openvino"]
    file: str = Field(description="the graph; its weights may be in further files of the bundle")
    kernels: dict[str, int] = Field(
        description="number of each fused or quantised operator in the graph"
    )
    parity: ParityT
    ranges: Ranges | None = Field(
        default=None, description="only for the fp16 forms; older bundles have none"
    )
    repair: Repair | None = None
    comparison: Comparison | None = Field(
        default=None, description="only if the graph was exported through optimum"
    )
    accepted: list[str] = Field(
        default_factory=list, description="missed thresholds that the exporting user accepted"
    )

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        for name in ("ranges", "repair", "comparison", "accepted"):
            if not getattr(self, name):
                fields.pop(name, None)
        return fields


class Precision(Form[Parity]):
    """One numeric form of an encoder."""


class Lineage(Strict):
    """The origin of the weights, and the tools that made this bundle from them."""

    source: str
    source_sha256: Sha256 = Field(description="digest of the source's weights")
    settings: dict[str, str | int | float | bool]
    packages: dict[str, str]


class Head(Strict):
    """A network on the vectors of whole documents.

    A classifier reads the document's vector. A citation scorer reads ``[u; v; u * v; signals]``:
    the vectors of two documents, and the signals of a search about the pair.
    """

    file: str
    kind: Literal["classifier", "citation"]
    activation: Literal["softmax", "sigmoid"]
    labels: list[str] = Field(min_length=2, description="outputs in order")
    report: dict[str, Any] = Field(description="measurements of the training")


FormT = TypeVar("FormT", bound=Form[Any], covariant=True)


class Contents(Strict, Generic[FormT]):
    """What every ``bundle.json`` holds."""

    format: Literal[1] = 1
    name: str = Field(pattern=NAME)
    revision: Sha256
    max_tokens: int = Field(ge=8, description="longest window, with special tokens")
    pad_token_id: int = Field(ge=0)
    precisions: dict[PrecisionName, FormT]
    licence: str
    lineage: Lineage
    files: dict[str, FileEntry]

    @field_validator("files")
    @classmethod
    def _paths_stay_inside(cls, files: dict[str, FileEntry]) -> dict[str, FileEntry]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or name == MANIFEST:
                raise ValueError(f"{name!r} is not a path inside the bundle")
        return files

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        missing = [name for name in self.needed_files() if name not in self.files]
        if missing:
            raise ValueError(f"files has no digest of {', '.join(missing)}")
        # no digest of a file there is part of the revision
        for form in self.precisions.values():
            if form.file.startswith(f"{HEADS}/"):
                raise ValueError(f"the graph {form.file!r} is among the heads")
        if not self.precisions:
            raise ValueError("a bundle needs at least one precision")
        self.check_settings()
        if self.revision != self.content_hash():
            raise ValueError("revision is not the hash of the content")
        return self

    def check_settings(self) -> None:
        """Raise a ValueError if settings contradict each other."""

    def needed_files(self) -> list[str]:
        """Files that the manifest names."""
        return [TOKENIZER, *(form.file for form in self.precisions.values())]

    def shape(self) -> dict[str, Any]:
        """The settings that change an output, besides those of every bundle."""
        raise NotImplementedError

    def content_hash(self) -> str:
        """SHA-256 of everything that shapes an output: the files' digests and the settings.

        It leaves out name, licence, lineage, the parity report and heads. These can change without
        changing a vector or a score, and then the caches, indexes and heads of the revision should
        stay valid.
        """
        content = self.shape() | {
            "format": self.format,
            "max_tokens": self.max_tokens,
            "pad_token_id": self.pad_token_id,
            "precisions": {k: (p.runtime, p.file) for k, p in self.precisions.items()},
            "files": {k: f.sha256 for k, f in self.files.items() if not k.startswith(f"{HEADS}/")},
        }
        encoded = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(encoded.encode()).hexdigest()


class Manifest(Contents[Precision]):
    """``bundle.json`` of an encoder."""

    dimensions: int = Field(ge=1)
    pooling: Pooling
    normalised: Literal[True] = True
    window_weights: WindowWeights = Field(default_factory=WindowWeights)
    prompts: dict[str, str] = Field(default_factory=dict)
    default_prompt: str | None = None
    matryoshka: list[int] = Field(
        default_factory=list, description="shorter lengths that the vectors were trained for"
    )
    heads: dict[Annotated[str, Field(pattern=HEAD_NAME)], Head] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        if not self.matryoshka:
            fields.pop("matryoshka", None)
        if self.window_weights == WindowWeights():
            fields.pop("window_weights", None)
        return fields

    def check_settings(self) -> None:
        """Raise a ValueError if settings contradict each other."""
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            raise ValueError(f"default_prompt {self.default_prompt!r} is not among the prompts")
        for name, head in self.heads.items():
            if not head.file.startswith(f"{HEADS}/"):
                raise ValueError(f"the file of the head {name!r} is not below {HEADS}")

    def needed_files(self) -> list[str]:
        """Files that the manifest names."""
        return [*super().needed_files(), *(head.file for head in self.heads.values())]

    def shape(self) -> dict[str, Any]:
        """The settings that change a vector, besides those of every bundle."""
        found: dict[str, Any] = {
            "dimensions": self.dimensions,
            "pooling": self.pooling,
            "normalised": self.normalised,
            "prompts": self.prompts,
            "default_prompt": self.default_prompt,
        }
        # bundles from before this setting keep their revision
        if self.window_weights == WindowWeights():
            return found
        return found | {"window_weights": self.window_weights.model_dump()}


class RankedPrecision(Form[RankParity]):
    """One numeric form of a re-ranker."""


class RerankerManifest(Contents[RankedPrecision]):
    """``bundle.json`` of a re-ranker: a cross-encoder that scores a query and a text together."""

    kind: Literal["reranker"] = "reranker"
    segment_offset: int = Field(
        ge=0,
        description="what the ids of the second segment are raised by, so that a graph with token "
        "types recognises them; 0 for a graph without",
    )

    def shape(self) -> dict[str, Any]:
        """The settings that change a score, besides those of every bundle."""
        return {"kind": self.kind, "segment_offset": self.segment_offset}
