"""Quality by length, for whole documents and for their first windows."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import Labelled, Linked
from export.tasks import rank
from training.evaluation.encoders.interface import Reading, Representation
from training.evaluation.probes.classifier import classify
from training.evaluation.results import Figure, Measured, Series
from training.evaluation.tasks.citation_retrieval import cosines
from training.evaluation.tasks.task import Options, Task

_LEAST = 10
# The papers' buckets (SimLTE, appendix A) end with "more than 300"; long documents need more.
_EDGES = (50, 100, 200, 300, 600, 1200, 2400)
BUCKETS = ("0-50", "51-100", "101-200", "201-300", "301-600", "601-1200", "1201-2400", "> 2400")


class Length(Task):
    """Probe accuracy, or reciprocal rank by cosine, of the documents of each length."""

    name = "length"
    title = "Quality by length"
    source = "LA(SER)³, section 1 (length generalisability); buckets of SimLTE, appendix A"
    differences = (
        "No paper has a figure to compare with. Labelled sets: accuracy of the probe, with one "
        "initialisation, trained on documents read in the same way. Linked sets: MRR by cosine, "
        "by the citing document's length. The curve leaves out buckets of fewer than ten "
        "documents. First window: the tokens from the start of a document that fill a window."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "whole": "whole",
        "first": "first window",
        "difference": "whole − first",
        "difference_long": "the same, over 300 words",
    }
    kinds = (Labelled, Linked)
    uses = ("seed", "epochs", "steps")
    version = 2

    def run(
        self, representation: Representation, data: Labelled | Linked, options: Options
    ) -> Measured:
        """Quality of each document, averaged by bucket."""
        texts = data.test if isinstance(data, Labelled) else data.documents
        found: dict[str, npt.NDArray[np.float64]] = {}
        for reading in representation.readings:
            if isinstance(data, Labelled):
                found[reading] = _right(representation, data, reading, options)
            else:
                found[reading] = _reciprocal_ranks(representation, data, reading)
        if isinstance(data, Linked):
            texts = [data.documents[i] for i in sorted(data.links)]
        buckets = bucket_of(texts)
        long = buckets > BUCKETS.index("201-300")
        figures = {name: Figure(value=float(values.mean())) for name, values in found.items()}
        if "first" in found:
            gain = found["whole"] - found["first"]
            figures["difference"] = Figure(value=float(gain.mean()))
            if long.any():
                figures["difference_long"] = Figure(value=float(gain[long].mean()))
        shown = [i for i in range(len(BUCKETS)) if (buckets == i).sum() >= _LEAST]
        series = {
            name: Series(
                x=[BUCKETS[i] for i in shown],
                y=[float(values[buckets == i].mean()) for i in shown],
            )
            for name, values in found.items()
        }
        counts = {f"{BUCKETS[i]} words": int((buckets == i).sum()) for i in range(len(BUCKETS))}
        return Measured(
            figures=figures,
            series=series,
            counts=counts,
            items=self.items(data, options, texts, found),
        )


def _right(
    representation: Representation, data: Labelled, reading: Reading, options: Options
) -> npt.NDArray[np.float64]:
    own = representation.fitted(data.train)
    [predicted] = classify(
        own.features(data.train, reading),
        data.train_labels,
        [np.arange(len(data.train))],
        own.features(data.test, reading),
        classes=len(data.classes),
        seed=options.seed,
        schedule=options.schedule,
        choose=True,
    )
    return np.asarray(predicted == data.test_labels, dtype=np.float64)


def _reciprocal_ranks(
    representation: Representation, data: Linked, reading: Reading
) -> npt.NDArray[np.float64]:
    own = representation.fitted(data.documents)
    queries = np.asarray(sorted(data.links))
    relevant = [dict.fromkeys(data.links[int(query)], 1.0) for query in queries]
    similar = cosines(own.features(data.documents, reading), queries)
    return rank(similar, relevant).reciprocal_rank


def bucket_of(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Number of the bucket of each text by its words, int64 ``[texts]``."""
    words = np.asarray([len(text.split()) for text in texts])
    return np.asarray(np.searchsorted(_EDGES, words, side="left"), dtype=np.int64)
