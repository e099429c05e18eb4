"""The requests to the service: the methods that ``Client`` and ``AsyncClient`` share.

Each describes its request, or several, as a value; ``route`` lets a client send it.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import httpx2
import numpy as np

from docsplit_client import types
from docsplit_client.call import Call, Steps, Work, nothing, path, raw, several
from docsplit_client.types import Filter, LinksFrom, Mode, NewDocument, OnDuplicate, Vectors

if TYPE_CHECKING:
    from docsplit_client.clients import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")
X = TypeVar("X")

# a batch takes two older processor cores some 16 of the 60 seconds that a request may take
MOST_ITEMS = 64
MOST_CHARACTERS = 250_000
# ids in one request, and documents in one answer of POST /passages
MOST_IDS = 1000
MOST_PASSAGES = 100

Progress = Callable[[int], object]
"""Receives the number of items that are done."""


class route(Generic[P, T]):  # noqa: N801
    """A method of ``Calls`` that a client sends.

    ``Client`` returns the result, ``AsyncClient`` a coroutine of it, ``CALLS`` what to send.
    """

    def __init__(self, make: Callable[Concatenate[Any, P], Work[T]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, caller: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, caller: Client, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, caller: AsyncClient, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, caller: Calls, owner: Any) -> Callable[P, Work[T]]: ...
    def __get__(self, caller: Any, owner: Any) -> Any:
        if caller is None:
            return self

        @functools.wraps(self._make)
        def send(*arguments: P.args, **options: P.kwargs) -> Any:
            work = self._make(CALLS, *arguments, **options)
            return work if caller is CALLS else caller.send(work)

        return send


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A document or a passage that fits a query.

    Attributes:
        id: of the document.
        text: of the document or the passage.
        metadata: of the document, its title included. That of a passage also has ``document``,
            the id, and the offsets ``start`` and ``end``.
        score: by the mode of the search.
    """

    id: str
    text: str
    metadata: dict[str, Any]
    score: float


class Calls:
    """The requests to the service."""

    # vectors, similarities and ranks of texts

    @route
    def embed(self, texts: Sequence[str], **options: Unpack[types.EmbedOptions]) -> Call[Vectors]:
        """Vectors ``[texts, dimensions]`` of whole documents."""
        return Call("POST", "/embed", _vectors, _inputs(texts, options))

    @route
    def embed_windows(
        self, texts: Sequence[str], **options: Unpack[types.EmbedOptions]
    ) -> Call[types.Detailed]:
        """Vectors of whole documents and of their windows, with offsets and tokens."""
        return Call("POST", "/embed", _detailed, {**_inputs(texts, options), "windows": True})

    @route
    def embed_all(
        self,
        texts: Iterable[str],
        progress: Progress | None = None,
        **options: Unpack[types.EmbedOptions],
    ) -> Steps[Vectors]:
        """``embed`` for any number of texts, in batches."""
        parts: list[Vectors] = []
        done = 0
        for batch in batches(texts, len):
            parts.append((yield self.embed(batch, **options)))
            done += len(batch)
            if progress is not None:
                progress(done)
        return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)

    @route
    def similarity(
        self, source: str, sentences: Sequence[str], **options: Unpack[types.SimilarityOptions]
    ) -> Call[Vectors]:
        """Cosines ``[sentences]`` of one text to others."""
        inputs = {"source_sentence": source, "sentences": [*several(sentences, "sentences")]}
        return Call("POST", "/similarity", _floats, {"inputs": inputs, **options})

    @route
    def rerank(
        self, query: str, texts: Sequence[str], **options: Unpack[types.RerankOptions]
    ) -> Call[list[types.Rank]]:
        """Texts by their relevance to a query, the best first."""
        body = {"query": query, "texts": [*several(texts, "texts")], **options}
        return Call("POST", "/rerank", body=body)

    @route
    def keys(self) -> Call[types.Keys]:
        """All API keys and their use for a key that may do everything, otherwise only its own."""
        return Call("GET", "/keys")

    @route
    def info(self) -> Call[types.Info]:
        """The served model and the limits of the service."""
        return Call("GET", "/info")

    # searches of an index

    @route
    def similar(self, index: str, **options: Unpack[types.SimilarOptions]) -> Call[list[types.Hit]]:
        """Documents that resemble a ``text`` or a stored document (``id``), the best first."""
        return Call("POST", "/similar", body={"index": index, **options})

    @route
    def similar_each(
        self, index: str, queries: Sequence[types.Query], **options: Unpack[types.SearchOptions]
    ) -> Call[list[list[types.Hit]]]:
        """The hits of each of up to 100 queries."""
        return Call("POST", "/similar", body={"index": index, "queries": [*queries], **options})

    @route
    def similar_faceted(
        self, index: str, facets: Sequence[str], **options: Unpack[types.SimilarOptions]
    ) -> Call[types.Faceted]:
        """Hits, and how many documents have each value of the declared fields ``facets``."""
        body = {"index": index, "facets": [*several(facets, "facets")], **options}
        return Call("POST", "/similar", body=body)

    @route
    def passages(
        self, index: str, **options: Unpack[types.PassagesOptions]
    ) -> Call[list[types.Passages]]:
        """Passages of documents that fit a ``text``, a stored document (``id``) or a part of it."""
        return Call("POST", "/passages", body={"index": index, **options})

    @route
    def retrieve(
        self,
        index: str,
        query: str,
        top_k: int = 10,
        *,
        passages: bool = False,
        mode: Mode = "hybrid",
        filter: Filter | None = None,  # noqa: A002
        diversity: float = 0,
    ) -> Steps[list[Retrieved]]:
        """Documents or passages of an index that fit a query, the best first, with their texts.

        It leaves out what is deleted between its two requests.

        Raises:
            ValueError: passages with ``diversity``, which is for documents.
        """
        if passages and diversity:
            raise ValueError("diversity: the service has it for documents, not for passages")
        if not passages:
            hits = yield self.similar(
                index, text=query, top_k=top_k, mode=mode, filter=filter, diversity=diversity
            )
            found = yield self.get_all(index, [hit["id"] for hit in hits])
            return [
                Retrieved(one["id"], one.get("text") or "", described(one), hit["score"])
                for hit in hits
                if (one := found.get(hit["id"])) is not None
            ]
        most = min(top_k, MOST_PASSAGES)
        groups = yield self.passages(index, text=query, top_k=most, mode=mode, filter=filter)
        found = yield self.get_all(index, [group["id"] for group in groups])
        result = []
        for group in groups:
            document = found.get(group["id"])
            if document is None:
                continue
            for passage in group["passages"]:
                start, end = passage["start"], passage["end"]
                place = {"document": group["id"], "start": start, "end": end}
                text = (document.get("text") or "")[start:end]
                metadata = {**described(document), **place}
                result.append(Retrieved(group["id"], text, metadata, passage["score"]))
        return sorted(result, key=lambda one: -one.score)[:top_k]

    @route
    def compare(
        self, index: str, other: str, **options: Unpack[types.CompareOptions]
    ) -> Call[types.Compared]:
        """The windows that make a ``text`` or a stored document (``id``) resemble another one."""
        place = path("indexes", index, "compare")
        return Call("POST", place, body={"other": other, **options})

    @route
    def duplicates(
        self, index: str, **options: Unpack[types.DuplicatesOptions]
    ) -> Call[list[types.Match]]:
        """Near-duplicates of a ``text`` or of a stored document (``id``)."""
        return Call("POST", path("indexes", index, "duplicates"), body={**options})

    @route
    def duplicate_groups(
        self, index: str, threshold: float | None = None, limit: int | None = None
    ) -> Call[types.Groups]:
        """All groups of near-duplicates. The service reads every text: use ``with_timeout``."""
        place = path("indexes", index, "duplicates", threshold=threshold, limit=limit)
        return Call("GET", place)

    # indexes, their aliases and their citation heads

    @route
    def create_index(
        self,
        index: str,
        fields: Mapping[str, types.FieldType] | None = None,
        model: str | None = None,
    ) -> Call[types.Index | types.IndexHead]:
        """Create an index whose filters may name ``fields``, or accept one with the same fields.

        ``model`` names the bundle that embeds its documents, the default one without it.
        """
        body: dict[str, Any] = {"fields": {**(fields or {})}}
        if model is not None:
            body["model"] = model
        return Call("PUT", path("indexes", index), body=body)

    @route
    def indexes(self) -> Call[list[str]]:
        """The names of all indexes that the key may use."""
        return Call("GET", "/indexes", lambda answer: [*answer.json()["indexes"]])

    @route
    def index(self, index: str) -> Call[types.Index]:
        """The number of documents of an index, its fields and generations."""
        return Call("GET", path("indexes", index))

    @route
    def delete_index(self, index: str) -> Call[None]:
        """Delete an index with its documents."""
        return Call("DELETE", path("indexes", index), nothing)

    @route
    def delete_generation(self, index: str, revision: str) -> Call[None]:
        """Delete what another bundle embedded."""
        return Call("DELETE", path("indexes", index, "generations", revision), nothing)

    @route
    def set_alias(self, alias: str, index: str) -> Call[types.Alias]:
        """Create an alias of an index, or switch it to another index."""
        return Call("PUT", path("aliases", alias), body={"index": index})

    @route
    def aliases(self) -> Call[list[types.Alias]]:
        """All aliases of indexes that the key may use."""
        return Call("GET", "/aliases", lambda answer: [*answer.json()["aliases"]])

    @route
    def alias(self, alias: str) -> Call[types.Alias]:
        """The index that an alias names."""
        return Call("GET", path("aliases", alias))

    @route
    def delete_alias(self, alias: str) -> Call[None]:
        """Remove an alias. Its index stays."""
        return Call("DELETE", path("aliases", alias), nothing)

    @route
    def train_citation_head(
        self,
        index: str,
        inputs: Literal["features", "vectors"] | None = None,
        links: LinksFrom | None = None,
    ) -> Call[types.CitationHead]:
        """Learn from the links of the documents who cites whom: use ``with_timeout``."""
        place = path("indexes", index, "citation", inputs=inputs, links=links)
        return Call("POST", place, idempotent=False)

    @route
    def citation_head(self, index: str) -> Call[types.CitationHead]:
        """The quality of the citation head of an index."""
        return Call("GET", path("indexes", index, "citation"))

    @route
    def citation_network(self, index: str) -> Call[bytes]:
        """The weights of the citation head, an ``.npz`` archive."""
        return Call("GET", path("indexes", index, "citation", "network"), raw)

    # documents of an index

    @route
    def upsert(
        self, index: str, documents: Sequence[NewDocument], **options: Unpack[types.UpsertOptions]
    ) -> Call[types.Upserted]:
        """Embed and store documents; the answer comes when all are durable."""
        conditional = any(one.get("if_version") is not None for one in documents)
        # `refuse` would refuse what its own first try wrote
        safe = not conditional and options.get("on_duplicate") != "refuse"
        body = {"documents": [*documents], **options}
        return Call("POST", path("indexes", index, "documents"), body=body, idempotent=safe)

    @route
    def upsert_all(
        self,
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
            yield self.upsert(index, batch, force=force)
            done += len(batch)
            if progress is not None:
                progress(done)
        return done

    @route
    def list_documents(
        self, index: str, after: str | None = None, limit: int | None = None
    ) -> Call[types.Page]:
        """One page of documents in the order of their ids, without texts."""
        return Call("GET", path("indexes", index, "documents", after=after, limit=limit))

    @route
    def document(self, index: str, id: str) -> Call[types.Document]:  # noqa: A002
        """One document."""
        return Call("GET", path("indexes", index, "documents", id))

    @route
    def document_windows(self, index: str, id: str) -> Call[types.Windows]:  # noqa: A002
        """The windows of one document, with the page and the heading where each begins."""
        return Call("GET", path("indexes", index, "documents", id, "windows"))

    @route
    def get_documents(self, index: str, ids: Sequence[str], text: bool = True) -> Call[types.Got]:
        """Documents of up to 1,000 ids, as far as the answer has room."""
        body = {"ids": [*several(ids, "ids")], "text": text}
        return Call("POST", path("indexes", index, "documents", "get"), body=body)

    @route
    def get_all(
        self, index: str, ids: Iterable[str], text: bool = True
    ) -> Steps[dict[str, types.DocumentText]]:
        """Documents of any number of ids, by id; without missing and damaged ones."""
        found: dict[str, types.DocumentText] = {}
        waiting = [*dict.fromkeys(several(ids, "ids"))]
        while waiting:
            got = yield self.get_documents(index, waiting[:MOST_IDS], text)
            found |= {one["id"]: one for one in got["documents"]}
            waiting = got["remaining"] + waiting[MOST_IDS:]
        return found

    @route
    def patch_document(
        self,
        index: str,
        id: str,  # noqa: A002
        patch: types.Patch,
        if_version: str | None = None,
    ) -> Call[types.Patched]:
        """Change the title, metadata or links of a document, over ``if_version`` if it is given."""
        return Call(
            "PATCH",
            path("indexes", index, "documents", id),
            body=patch,
            headers=_condition(if_version),
            idempotent=if_version is None,
        )

    @route
    def delete_document(
        self,
        index: str,
        id: str,  # noqa: A002
        if_version: str | None = None,
    ) -> Call[None]:
        """Delete one document, in the version ``if_version`` if it is given."""
        place = path("indexes", index, "documents", id)
        return Call("DELETE", place, nothing, headers=_condition(if_version))

    @route
    def delete_documents(
        self,
        index: str,
        ids: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002
        dry_run: bool = False,
    ) -> Call[types.Deleted]:
        """Delete the documents of up to 1,000 ids, or all that pass a filter."""
        named = None if ids is None else [*several(ids, "ids")]
        body = {"ids": named, "filter": filter, "dry_run": dry_run}
        # a second try counts only the rest
        place = path("indexes", index, "documents", "delete")
        return Call("POST", place, body=body, idempotent=dry_run)

    # files to index, and jobs

    @route
    def upload(
        self,
        index: str,
        files: Mapping[str, bytes | Path] | Iterable[str | PathLike[str]],
        on_duplicate: OnDuplicate | None = None,
        find_links: bool | None = None,
        link_field: Sequence[str] | None = None,
        link_rule: Sequence[str] | None = None,
    ) -> Call[types.Job]:
        """Send files; the answer is a job, which reads and indexes them.

        Args:
            index: its name.
            files: contents or paths by name, or paths, whose last parts are the names. The name of
                a file is the id of its document.
            on_duplicate: what happens with documents of which the index has near-duplicates:
                ``mark`` names them in the job, ``refuse`` leaves them out.
            find_links: whether to find the links in all texts of the index when the files are
                indexed.
            link_field: with ``find_links``, metadata with identifiers.
            link_rule: with ``find_links``, further names of documents, such as ``eip-*=ERC *``.
        """
        if not isinstance(files, Mapping):
            files = _named([Path(one) for one in several(files, "files")])
        place = path(
            *("indexes", index, "files"),
            on_duplicate=on_duplicate,
            find_links=find_links,
            link_field=link_field,
            link_rule=link_rule,
        )
        # a second job finds the documents of the first unchanged
        return Call("POST", place, files=files)

    @route
    def read_file(
        self, file: str | PathLike[str] | Mapping[str, bytes | Path]
    ) -> Call[types.FileText]:
        """The text of a file with its pages and headings; the service stores nothing.

        Args:
            file: its path, or its content or path by name. The end of the name says its kind.
        """
        named = file if isinstance(file, Mapping) else _named([Path(file)])
        return Call("POST", "/read", files=named)

    @route
    def jobs(self, limit: int | None = None) -> Call[types.Jobs]:
        """The newest jobs."""
        return Call("GET", path("jobs", limit=limit))

    @route
    def job(self, id: str) -> Call[types.Job]:  # noqa: A002
        """A job and its progress."""
        return Call("GET", path("jobs", id))

    @route
    def wait_for_job(
        self,
        id: str,  # noqa: A002
        progress: Callable[[types.Job], object] | None = None,
        seconds: float = 1.0,
    ) -> Steps[types.Job]:
        """Ask every ``seconds`` until a job has ended; returns its last state.

        ``progress`` receives each state before that.
        """
        while True:
            state: types.Job = yield self.job(id)
            if state["ended"] is not None:
                return state
            if progress is not None:
                progress(state)
            yield float(seconds)

    @route
    def cancel_job(self, id: str) -> Call[types.Job]:  # noqa: A002
        """End a job; what it has indexed stays."""
        return Call("DELETE", path("jobs", id))

    # maps of indexes in two dimensions, and their topics

    @route
    def compute_map(self, index: str) -> Call[types.Job]:
        """Compute the map and the topics of an index in a job; ``wait_for_job`` waits for it."""
        return Call("POST", path("indexes", index, "map"))

    @route
    def document_map(
        self,
        index: str,
        after: str | None = None,
        limit: int | None = None,
        sample: bool | None = None,
        field: str | None = None,
        classifier: str | None = None,
    ) -> Call[types.DocumentMap]:
        """One page of the documents on the map of an index, or a random sample of them.

        ``positions`` of the answer is base64 of float32, x and y of each document in turn, and
        ``topics`` of int32, the number of each document's topic or -1; ``codes`` of values and
        labels are base64 of int32, positions in them or -1, and ``scores`` of float32. All are
        little-endian.

        Args:
            index: its name.
            after: ``next`` of the page before.
            limit: of documents.
            sample: whether to get a random sample in place of a page.
            field: whose values to add.
            classifier: whose labels to add; it reads vectors of the index's bundle.
        """
        page = {"after": after, "limit": limit, "sample": sample}
        return Call(
            "GET", path("indexes", index, "map", **page, field=field, classifier=classifier)
        )

    @route
    def topics(self, index: str) -> Call[types.Topics]:
        """The topics of the map of an index."""
        return Call("GET", path("indexes", index, "topics"))

    # links of documents, and those that stand in their texts

    @route
    def find_links(
        self, index: str, **options: Unpack[types.FindLinksOptions]
    ) -> Call[types.FoundLinks]:
        """Find the links that stand in the texts. The service reads all: use ``with_timeout``."""
        return Call("POST", path("indexes", index, "links", "find"), body={**options})

    @route
    def found_links(self, index: str) -> Call[types.FoundLinks]:
        """What the last search for links in texts found."""
        return Call("GET", path("indexes", index, "links"))

    @route
    def forget_found_links(self, index: str) -> Call[None]:
        """Forget the links that stand in texts; those that users gave stay."""
        return Call("DELETE", path("indexes", index, "links"), nothing)

    @route
    def document_links(
        self,
        index: str,
        id: str,  # noqa: A002
        after: str | None = None,
        limit: int | None = None,
    ) -> Call[types.Links]:
        """One page of the links from and to a document, given ones and those in texts."""
        place = path("indexes", index, "documents", id, "links", after=after, limit=limit)
        return Call("GET", place)

    @route
    def missing_citations(
        self,
        index: str,
        after: str | None = None,
        documents: int | None = None,
        threshold: float | None = None,
        links: LinksFrom | None = None,
    ) -> Call[types.MissingPage]:
        """One page of citations that seem missing: those of some documents, the likeliest first."""
        page = {"after": after, "documents": documents}
        place = path("indexes", index, "links", "missing", **page, threshold=threshold, links=links)
        return Call("GET", place)

    @route
    def all_missing_citations(
        self, index: str, threshold: float | None = None, links: LinksFrom | None = None
    ) -> Steps[list[types.Missing]]:
        """The citations of all documents that seem missing, the likeliest first."""
        found: list[types.Missing] = []
        after: str | None = None
        while True:
            page = yield self.missing_citations(index, after, None, threshold, links)
            found += page["citations"]
            if (after := page["next"]) is None:
                return sorted(found, key=lambda one: -one["link_probability"])

    # classifiers: train, use, describe and delete them

    @route
    def classify(
        self, texts: Sequence[str], **options: Unpack[types.ClassifyOptions]
    ) -> Call[list[list[types.Prediction]]]:
        """The labels of whole documents, the most probable first."""
        return Call("POST", "/classify", body={"inputs": [*several(texts, "texts")], **options})

    @route
    def explain_labels(
        self, texts: Sequence[str], **options: Unpack[types.ClassifyOptions]
    ) -> Call[list[types.Explained]]:
        """The labels of whole documents, and the windows that decided."""
        body = {"inputs": [*several(texts, "texts")], "explain": True, **options}
        return Call("POST", "/classify", body=body)

    @route
    def train_classifier(
        self,
        name: str,
        labels: Sequence[str] | Sequence[list[str]],
        **options: Unpack[types.TrainOptions],
    ) -> Call[types.Classifier]:
        """Train or replace a classifier; ``training`` in the answer shows one that still runs."""
        body = {"labels": [*several(labels, "labels")], **options}
        return Call("PUT", path("classifiers", name), body=body, idempotent=False)

    @route
    def retrain_classifier(
        self, name: str, multi_label: bool | None = None
    ) -> Call[types.Classifier]:
        """Train a classifier again from its stored examples and given labels.

        Args:
            name: of the classifier.
            multi_label: for the first training: whether a document may have several labels, or
                none.
        """
        place = path("classifiers", name, "retrain", multi_label=multi_label)
        return Call("POST", place, idempotent=False)

    @route
    def classifiers(self) -> Call[list[str]]:
        """The names of all classifiers that the key may use."""
        return Call("GET", "/classifiers", lambda answer: [*answer.json()["classifiers"]])

    @route
    def classifier(self, name: str) -> Call[types.Classifier]:
        """The quality of a classifier, and the progress of its training."""
        return Call("GET", path("classifiers", name))

    @route
    def classifier_network(self, name: str) -> Call[bytes]:
        """The weights of a classifier, an ``.npz`` archive."""
        return Call("GET", path("classifiers", name, "network"), raw)

    @route
    def wait_for_classifier(
        self, name: str, progress: Progress | None = None, seconds: float = 1.0
    ) -> Steps[types.Classifier]:
        """Ask every ``seconds`` until no training of a classifier runs; returns its last state."""
        while True:
            state: types.Classifier = yield self.classifier(name)
            training = state.get("training")
            if training is None or training["state"] == "failed":
                return state
            if progress is not None:
                progress(training["done"])
            yield float(seconds)

    @route
    def suggest(
        self, name: str, index: str, **options: Unpack[types.SuggestOptions]
    ) -> Call[list[types.Suggestion]]:
        """Documents of an index whose labels would help the classifier most."""
        return Call("POST", path("classifiers", name, "suggest"), body={"index": index, **options})

    @route
    def give_labels(self, name: str, index: str, documents: Sequence[types.LabelsOf]) -> Call[int]:
        """Label documents of an index; returns how many of all indexes have labels."""
        body = {"index": index, "documents": [*documents]}
        place = path("classifiers", name, "labels")
        return Call("POST", place, lambda answer: int(answer.json()["labelled"]), body)

    @route
    def labels(
        self,
        name: str,
        index: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Call[types.LabelledPage]:
        """Documents with the labels that people gave, in the order of time."""
        return Call(
            "GET", path("classifiers", name, "labels", index=index, after=after, limit=limit)
        )

    @route
    def delete_classifier(self, name: str) -> Call[None]:
        """Delete a classifier and its examples, and stop its training."""
        return Call("DELETE", path("classifiers", name), nothing)


CALLS = Calls()
"""Describes requests without a client."""


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


def described(document: types.DocumentHead) -> dict[str, Any]:
    """The metadata of a document, with its title if it has one."""
    title = {} if document["title"] is None else {"title": document["title"]}
    return {**title, **document["metadata"]}


def _condition(version: str | None) -> dict[str, str]:
    if version is None:
        return {}
    return {"if-match": version if version == "*" else f'"{version}"'}


def _named(paths: Sequence[Path]) -> dict[str, bytes | Path]:
    named: dict[str, bytes | Path] = {one.name: one for one in paths}
    if len(named) < len(paths):
        raise ValueError("two files have the same name: give a mapping of names to paths")
    return named


def _inputs(texts: Sequence[str], options: types.EmbedOptions) -> dict[str, Any]:
    return {"inputs": [*several(texts, "texts")], "encoding_format": "base64", **options}


def decoded(row: str) -> Vectors:
    """A vector from base64."""
    return np.frombuffer(base64.b64decode(row), "<f4").astype(np.float32)


def _vectors(response: httpx2.Response) -> Vectors:
    return np.stack([decoded(row) for row in response.json()])


def _floats(response: httpx2.Response) -> Vectors:
    return np.array(response.json(), np.float32)


def _detailed(response: httpx2.Response) -> types.Detailed:
    answer: dict[str, Any] = response.json()
    answer["embeddings"] = np.stack([decoded(row) for row in answer["embeddings"]])
    for windows in answer["windows"]:
        for window in windows:
            window["embedding"] = decoded(window["embedding"])
    return cast(types.Detailed, answer)
