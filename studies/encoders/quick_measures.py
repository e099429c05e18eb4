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
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression

from export.tasks.ranking import rank
from training.data.specials import whole_text_tokenizer
from windowing.batches import Wide
from windowing.documents import Window, document_vectors, read
from windowing.tokens import DocumentTokenizer

Vectors = npt.NDArray[np.float32]

EXAMPLES = 5
DRAWS = 25
# identifiers in the text would give the cited document away
_IDENTIFIERS = re.compile(r"\b(?:EIP|ERC|PEP|BIP|RFC)s?[ \-#]*\d+")
_CHARACTERS = 6000
_REPEATED, _COPIES = 60, 20
_BATCH_TOKENS = 32_768


class Measures:
    """The texts of the parts, cut into windows once for all encoders of one tokenizer.

    Args:
        folder: the parts.
        max_tokens: longest window.
    """

    def __init__(self, folder: Path, max_tokens: int) -> None:
        self._folder, self._max_tokens = folder, max_tokens
        self._windows: dict[str, list[list[Window]]] = {}

    def of(self, path: str) -> dict[str, float]:
        """The figures of the encoder in a folder, by name."""
        encode = self._encoder(path)
        found: dict[str, float] = {}
        for file in sorted(self._folder.glob("*.parquet")):
            found |= self._labelled(file, encode)
        for part in sorted(one for one in self._folder.iterdir() if one.is_dir()):
            found |= self._linked(part, encode)
        return found

    def _encoder(self, path: str) -> Callable[[str, Sequence[str]], Vectors]:
        model = SentenceTransformer(path).eval()
        tokenizer = DocumentTokenizer(whole_text_tokenizer(model.tokenizer), self._max_tokens)

        def windows(ids: Wide, mask: Wide) -> Vectors:
            inputs = {"input_ids": ids, "attention_mask": mask}
            with torch.inference_mode():
                on_device = {k: torch.from_numpy(v).to(model.device) for k, v in inputs.items()}
                vectors = model(on_device)["sentence_embedding"].float()
                unit: Vectors = torch.nn.functional.normalize(vectors, dim=-1).cpu().numpy()
            return unit

        def encode(name: str, texts: Sequence[str]) -> Vectors:
            if name not in self._windows:
                self._windows[name] = read(tokenizer, texts)
            return document_vectors(
                self._windows[name],
                windows,
                pad_token_id=int(model.tokenizer.pad_token_id),
                batch_tokens=_BATCH_TOKENS,
            )

        return encode

    def _labelled(
        self, file: Path, encode: Callable[[str, Sequence[str]], Vectors]
    ) -> dict[str, float]:
        rows = pq.read_table(file).to_pylist()
        texts = [row["text"][:_CHARACTERS] for row in rows]
        classes = np.unique([str(row["label"]) for row in rows], return_inverse=True)[1]
        vectors = encode(file.name, texts)
        found = {
            f"{file.stem}, {EXAMPLES} a class": _centroids(vectors, classes),
            f"{file.stem}, probe": _probe(vectors, classes),
        }
        if "title" in rows[0]:
            titles = encode(f"{file.name} titles", [row["title"] or "" for row in rows])
            found[f"{file.stem}, titles"] = _own_first(titles, vectors)
        copies = encode(
            f"{file.name} copies", [f"{text[:300]} " * _COPIES for text in texts[:_REPEATED]]
        )
        once = encode(f"{file.name} once", [text[:300] for text in texts[:_REPEATED]])
        found[f"{file.stem}, repeated"] = float((copies * once).sum(axis=1).mean())
        return found

    def _linked(
        self, folder: Path, encode: Callable[[str, Sequence[str]], Vectors]
    ) -> dict[str, float]:
        rows = pq.read_table(folder / "documents.parquet").to_pylist()
        numbers = {row["id"]: number for number, row in enumerate(rows)}
        links: dict[int, dict[int, float]] = {}
        for link in pq.read_table(folder / "citations.parquet").to_pylist():
            if link["citing"] != link["cited"] and {link["citing"], link["cited"]} <= set(numbers):
                cited = links.setdefault(numbers[link["citing"]], {})
                cited[numbers[link["cited"]]] = 1.0
        texts = [_IDENTIFIERS.sub("", row["text"])[:_CHARACTERS] for row in rows]
        vectors = encode(folder.name, texts)
        scores = vectors @ vectors.T
        np.fill_diagonal(scores, -np.inf)
        queries = sorted(links)
        ranked = rank(scores[queries], [links[query] for query in queries])
        return {
            f"{folder.name}, MRR": float(ranked.reciprocal_rank.mean()),
            f"{folder.name}, recall@10": float(ranked.recall.mean()),
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


def _own_first(queries: Vectors, documents: Vectors) -> float:
    """MRR of each query's own document."""
    scores = queries @ documents.T
    places = (scores > np.diagonal(scores)[:, None]).sum(axis=1)
    return float((1 / (1 + places)).mean())
