"""Quick measures of an encoder on development parts, without training a network.

``studies.encoders.development_parts`` writes the parts. A part is a Parquet file with labels, or a
folder with ``documents.parquet`` and ``citations.parquet``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch
from sklearn.linear_model import LogisticRegression

from docsplit.corpora.documents import read_links
from docsplit.corpora.reading import links_among
from training.evaluation.citations import citation_retrieval
from training.evaluation.encoders.interface import Vectors
from training.evaluation.validation import mean_reciprocal_rank

EXAMPLES = 5
DRAWS = 25
# identifiers in the text would give the cited document away
_IDENTIFIERS = re.compile(r"\b(?:EIP|ERC|PEP|BIP|RFC)s?[ \-#]*\d+")
_CHARACTERS = 6000
_REPEATED, _COPIES = 60, 20

Encode = Callable[[Sequence[str]], Vectors]


def measures(encode: Encode, folder: Path) -> dict[str, float]:
    """The figures of an encoder, by name.

    Args:
        encode: unit vectors of texts.
        folder: the parts.
    """
    found: dict[str, float] = {}
    for file in sorted(folder.glob("*.parquet")):
        found |= _labelled(file, encode)
    for part in sorted(one for one in folder.iterdir() if one.is_dir()):
        found |= _linked(part, encode)
    return found


def _labelled(file: Path, encode: Encode) -> dict[str, float]:
    rows = pq.read_table(file).to_pylist()
    texts = [row["text"][:_CHARACTERS] for row in rows]
    classes = np.unique([str(row["label"]) for row in rows], return_inverse=True)[1]
    vectors = encode(texts)
    found = {
        f"{file.stem}, {EXAMPLES} a class": _centroids(vectors, classes),
        f"{file.stem}, probe": _probe(vectors, classes),
    }
    if "title" in rows[0]:
        titles = encode([row["title"] or "" for row in rows])
        found[f"{file.stem}, titles"] = mean_reciprocal_rank(
            torch.from_numpy(titles), torch.from_numpy(vectors)
        )
    copies = encode([f"{text[:300]} " * _COPIES for text in texts[:_REPEATED]])
    once = encode([text[:300] for text in texts[:_REPEATED]])
    found[f"{file.stem}, repeated"] = float((copies * once).sum(axis=1).mean())
    return found


def _linked(folder: Path, encode: Encode) -> dict[str, float]:
    rows = pq.read_table(folder / "documents.parquet").to_pylist()
    links, _ = links_among([row["id"] for row in rows], read_links(folder / "citations.parquet"))
    vectors = encode([_IDENTIFIERS.sub("", row["text"])[:_CHARACTERS] for row in rows])
    found = citation_retrieval(torch.from_numpy(vectors), links)
    return {
        f"{folder.name}, MRR": found.mrr,
        f"{folder.name}, recall@10": found.recall_at_10,
    }


def _centroids(vectors: Vectors, classes: npt.NDArray[np.int64]) -> float:
    """Accuracy of the nearest centroid of a few examples a class; mean of the draws."""
    counts = np.bincount(classes)
    shares = []
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(len(classes))
        chosen = [order[classes[order] == one][:EXAMPLES] for one in range(len(counts))]
        centroids = np.stack([vectors[few].mean(axis=0) for few in chosen])
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
        rest = np.setdiff1d(order, np.concatenate(chosen))
        nearest = (vectors[rest] @ centroids.T).argmax(axis=1)
        shares.append(float((nearest == classes[rest]).mean()))
    return float(np.mean(shares))


def _probe(vectors: Vectors, classes: npt.NDArray[np.int64]) -> float:
    """Accuracy of a logistic regression that learns from one half of the documents."""
    order = np.random.default_rng(0).permutation(len(classes))
    learnt, asked = np.array_split(order, 2)
    model = LogisticRegression(C=10, max_iter=200).fit(vectors[learnt], classes[learnt])
    return float((model.predict(vectors[asked]) == classes[asked]).mean())
