"""The methods of both clients: each sends the request that one function of ``calls`` makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from docsplit_client import calls
from docsplit_client.calls.call import Call, Steps

if TYPE_CHECKING:
    from docsplit_client.clients import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")


class Route(Generic[P, T]):
    """A method that takes the arguments of a function of ``calls`` and sends what it asks for.

    ``Client`` returns the result, ``AsyncClient`` a coroutine of it.
    """

    def __init__(self, make: Callable[P, Call[T] | Steps[T]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        if client is None:
            return self

        @functools.wraps(self._make)
        def send(*arguments: P.args, **options: P.kwargs) -> Any:
            return client.send(self._make(*arguments, **options))

        return send


class Routes:
    """The routes of the service, see the functions."""

    embed = Route(calls.embedding.embed)
    embed_windows = Route(calls.embedding.embed_windows)
    similarity = Route(calls.embedding.similarity)
    rerank = Route(calls.embedding.rerank)
    info = Route(calls.embedding.info)
    keys = Route(calls.embedding.keys)
    embed_all = Route(calls.batches.embed_all)

    similar = Route(calls.search.similar)
    similar_each = Route(calls.search.similar_each)
    similar_faceted = Route(calls.search.similar_faceted)
    passages = Route(calls.search.passages)
    retrieve = Route(calls.retrieval.retrieve)
    compare = Route(calls.search.compare)
    duplicates = Route(calls.search.duplicates)
    duplicate_groups = Route(calls.search.duplicate_groups)

    create_index = Route(calls.indexes.create_index)
    indexes = Route(calls.indexes.indexes)
    index = Route(calls.indexes.index)
    delete_index = Route(calls.indexes.delete_index)
    delete_generation = Route(calls.indexes.delete_generation)
    set_alias = Route(calls.indexes.set_alias)
    aliases = Route(calls.indexes.aliases)
    alias = Route(calls.indexes.alias)
    delete_alias = Route(calls.indexes.delete_alias)
    train_citation_head = Route(calls.indexes.train_citation_head)
    citation_head = Route(calls.indexes.citation_head)
    citation_network = Route(calls.indexes.citation_network)

    upsert = Route(calls.documents.upsert)
    list_documents = Route(calls.documents.list_documents)
    document = Route(calls.documents.document)
    document_windows = Route(calls.documents.document_windows)
    get_documents = Route(calls.documents.get_documents)
    patch_document = Route(calls.documents.patch_document)
    delete_document = Route(calls.documents.delete_document)
    delete_documents = Route(calls.documents.delete_documents)
    upsert_all = Route(calls.batches.upsert_all)
    get_all = Route(calls.batches.get_all)

    upload = Route(calls.jobs.upload)
    read_file = Route(calls.jobs.read_file)
    jobs = Route(calls.jobs.jobs)
    job = Route(calls.jobs.job)
    wait_for_job = Route(calls.batches.wait_for_job)
    cancel_job = Route(calls.jobs.cancel_job)

    compute_map = Route(calls.maps.compute_map)
    document_map = Route(calls.maps.document_map)
    topics = Route(calls.maps.topics)

    find_links = Route(calls.links.find_links)
    found_links = Route(calls.links.found_links)
    forget_found_links = Route(calls.links.forget_found_links)
    document_links = Route(calls.links.document_links)
    missing_citations = Route(calls.links.missing_citations)
    all_missing_citations = Route(calls.batches.all_missing_citations)

    classify = Route(calls.classifiers.classify)
    explain_labels = Route(calls.classifiers.explain_labels)
    train_classifier = Route(calls.classifiers.train_classifier)
    retrain_classifier = Route(calls.classifiers.retrain_classifier)
    classifiers = Route(calls.classifiers.classifiers)
    classifier = Route(calls.classifiers.classifier)
    classifier_network = Route(calls.classifiers.classifier_network)
    suggest = Route(calls.classifiers.suggest)
    give_labels = Route(calls.classifiers.give_labels)
    labels = Route(calls.classifiers.labels)
    wait_for_classifier = Route(calls.batches.wait_for_classifier)
    delete_classifier = Route(calls.classifiers.delete_classifier)
