"""Work of several requests, for any number of texts or documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar, Unpack

import numpy as np

from docsplit_client.answers import Vectors
from docsplit_client.calls.call import Steps, several
from docsplit_client.calls.classifiers import classifier
from docsplit_client.calls.documents import get_documents, upsert
from docsplit_client.calls.embedding import embed
from docsplit_client.calls.jobs import job
from docsplit_client.calls.links import missing_citations
from docsplit_client.learnt import Classifier
from docsplit_client.options import EmbedOptions, NewDocument
from docsplit_client.stored import DocumentText, Job, Missing

X = TypeVar("X")

# a batch takes two older processor cores some 16 of the 60 seconds that a request may take
MOST_ITEMS = 64
MOST_CHARACTERS = 250_000
# ids in one request
MOST_IDS = 1000

Progress = Callable[[int], object]
"""Receives the number of items that are done."""


def embed_all(
    texts: Iterable[str], progress: Progress | None = None, **options: Unpack[EmbedOptions]
) -> Steps[Vectors]:
    """``embed`` for any number of texts, in batches."""
    parts: list[Vectors] = []
    done = 0
    for batch in batches(texts, len):
        parts.append((yield embed(batch, **options)))
        done += len(batch)
        if progress is not None:
            progress(done)
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def upsert_all(
    index: str,
    documents: Iterable[NewDocument],
    progress: Progress | None = None,
    force: bool = False,
) -> Steps[int]:
    """Store any number of documents in batches; returns their number.

    Repeat it after an error: the service computes nothing for unchanged documents.
    """
    done = 0
    for batch in batches(documents, lambda one: len(one["text"])):
        yield upsert(index, batch, force=force)
        done += len(batch)
        if progress is not None:
            progress(done)
    return done


def get_all(index: str, ids: Iterable[str], text: bool = True) -> Steps[dict[str, DocumentText]]:
    """Documents of any number of ids, by id; without missing and damaged ones."""
    found: dict[str, DocumentText] = {}
    waiting = [*dict.fromkeys(several(ids, "ids"))]
    while waiting:
        got = yield get_documents(index, waiting[:MOST_IDS], text)
        found |= {one["id"]: one for one in got["documents"]}
        waiting = got["remaining"] + waiting[MOST_IDS:]
    return found


def all_missing_citations(
    index: str,
    threshold: float | None = None,
    links: Literal["given", "found", "both"] | None = None,
) -> Steps[list[Missing]]:
    """The citations of all documents that seem missing, the likeliest first."""
    found: list[Missing] = []
    after: str | None = None
    while True:
        page = yield missing_citations(index, after, None, threshold, links)
        found += page["citations"]
        if (after := page["next"]) is None:
            return sorted(found, key=lambda one: -one["link_probability"])


def wait_for_classifier(
    name: str, progress: Progress | None = None, seconds: float = 1.0
) -> Steps[Classifier]:
    """Ask every ``seconds`` until no training of the classifier runs; returns its last state."""
    while True:
        state: Classifier = yield classifier(name)
        training = state.get("training")
        if training is None or training["state"] == "failed":
            return state
        if progress is not None:
            progress(training["done"])
        yield float(seconds)


def wait_for_job(
    id: str,  # noqa: A002
    progress: Callable[[Job], object] | None = None,
    seconds: float = 1.0,
) -> Steps[Job]:
    """Ask every ``seconds`` until a job has ended; returns its last state.

    ``progress`` receives each state before that.
    """
    while True:
        state: Job = yield job(id)
        if state["ended"] is not None:
            return state
        if progress is not None:
            progress(state)
        yield float(seconds)


def batches(
    items: Iterable[X],
    characters: Callable[[X], int],
    most_items: int = MOST_ITEMS,
    most_characters: int = MOST_CHARACTERS,
) -> Iterator[list[X]]:
    """Items in lists of at most so many items and characters; a larger one by itself."""
    batch: list[X] = []
    size = 0
    for item in several(items, "texts"):
        length = characters(item)
        if batch and (len(batch) == most_items or size + length > most_characters):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch
