"""Geometry of the vectors of documents and sentences."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from training.data.sentences import split_sentences
from training.evaluation.encoders.interface import Representation
from training.evaluation.metrics.geometry import (
    alignment,
    mean_cosine,
    partition_isotropy,
    uniformity,
)
from training.evaluation.results import Figure, Measured
from training.evaluation.tasks.same_document import span_pairs
from training.evaluation.tasks.task import Options, Task, UnfitError, sampled

_SENTENCES = 20
_LEAST_WORDS = 4


class Geometry(Task):
    """Isotropy, alignment and uniformity, and similarities within and between documents."""

    name = "geometry"
    title = "Geometry"
    source = (
        "LA(SER)³, section 2 (isotropy, intra-document similarity; Figures 3 and 4); DocSplit, "
        "appendix A.2 (Table 5: sentence similarity); Wang & Isola 2020 (alignment, uniformity)"
    )
    differences = (
        "The task reads a sample of --sample documents. Anisotropy: mean cosine of all pairs of "
        "documents (0 is isotropic). Isotropy: by the partition function of Mu & Viswanath 2018 "
        "(1 is isotropic). Intra-document similarity: cosine of sentences to their document's "
        "vector, minus that to another document's; the paper uses tokens, which an encoder does "
        "not show. Alignment: of two spans of 48 words of a document. Sentence similarity: of up "
        "to 20 sentences spread over each document, by the encoder itself; the paper's Table 5 "
        "uses SimCSE."
    )
    version = 2
    columns: ClassVar[Mapping[str, str]] = {
        "anisotropy": "anisotropy",
        "isotropy": "isotropy",
        "intra": "intra-document",
        "alignment": "alignment",
        "uniformity": "uniformity",
        "inner": "sentences, inner",
        "inter": "sentences, inter",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "reading")

    def suits(self, representation: Representation) -> bool:
        """Only dense vectors: the space of words differs between sets."""
        return not representation.sparse

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """All measures on one sample."""
        cut = [_sentences(text) for text in data.documents]
        long = [i for i, sentences in enumerate(cut) if len(sentences) >= 2]
        if len(long) < 4:
            raise UnfitError(f"{data.name}: fewer than four documents have two sentences")
        chosen = [long[i] for i in sampled(len(long), options.sample, options.seed)]
        documents = representation.features([data.documents[i] for i in chosen], options.reading)
        sentences = representation.features([s for i in chosen for s in cut[i]])
        owner = np.repeat(np.arange(len(chosen)), [len(cut[i]) for i in chosen])
        inner, inter = similarities(sentences, owner)
        to_all = sentences @ documents.T
        own = to_all[np.arange(len(owner)), owner]
        other = to_all[np.arange(len(owner)), (owner + 1) % len(chosen)]
        first, second = span_pairs(data.documents, options.sample, options.seed)
        aligned = alignment(representation.features(first), representation.features(second))
        found = {
            "anisotropy": mean_cosine(documents),
            "isotropy": partition_isotropy(documents),
            "intra": float(own.mean() - other.mean()),
            "alignment": aligned,
            "uniformity": uniformity(documents),
            "inner": inner,
            "inter": inter,
        }
        return Measured(
            figures={name: Figure(value=value) for name, value in found.items()},
            counts={"documents": len(chosen), "sentences": len(owner)},
        )


def similarities(
    sentences: npt.NDArray[np.float32], owner: npt.NDArray[np.int64]
) -> tuple[float, float]:
    """Mean cosine of pairs of sentences from one document, and from two documents.

    Args:
        sentences: unit vectors ``[sentences, dimensions]``.
        owner: the document of each, ``[sentences]``.
    """
    cosines = sentences @ sentences.T
    one, two = np.triu_indices(len(owner), 1)
    pairs = cosines[one, two].astype(np.float64)
    same = owner[one] == owner[two]
    return float(pairs[same].mean()), float(pairs[~same].mean())


def _sentences(text: str) -> Sequence[str]:
    found = [s for s in split_sentences(text) if len(s.split()) >= _LEAST_WORDS]
    if not found:
        return []
    places = np.linspace(0, len(found) - 1, min(len(found), _SENTENCES)).round().astype(int)
    return [found[i] for i in places]
