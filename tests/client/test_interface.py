"""The client's types and routes, compared with the service's OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest

from docsplit_client import Client, answers, calls, learnt, maps, options, stored
from docsplit_client.calls.call import Call, Steps
from service.settings import Settings
from tests.conftest import Server

# other names of native routes, other interfaces, and what balancers and scrapers ask
ELSEWHERE = {"/", "/predict", "/health", "/livez", "/readyz", "/metrics"}
# a schema of its own that clients write as a plain object, and what the client decodes
OPAQUE = {"filter", "metadata", "engine", "embedding", "embeddings"}

ANSWERS = {
    "routes__embed__UsageOut": answers.Usage,
    "routes__embed__WindowOut": answers.Window,
    "routes__classify__WindowOut": answers.Share,
    "DetailedOut": answers.Detailed,
    "RankOut": answers.Rank,
    "Prediction": answers.Prediction,
    "Explained": answers.Explained,
    "PairOut": answers.Pair,
    "HitOut": answers.Hit,
    "ComparedOut": answers.ComparedPair,
    "CompareOut": answers.Compared,
    "FacetOut": answers.Facet,
    "FacetsOut": answers.Faceted,
    "PassagesOut": answers.Passages,
    "IndexHead": stored.IndexHead,
    "IndexOut": stored.Index,
    "AliasOut": stored.Alias,
    "UpsertOut": stored.Upserted,
    "DocumentHead": stored.DocumentHead,
    "document_bodies__DocumentOut": stored.Document,
    "PageOut": stored.Page,
    "GetOut": stored.Got,
    "DeleteOut": stored.Deleted,
    "PatchOut": stored.Patched,
    "MatchOut": stored.Match,
    "GroupsOut": stored.Groups,
    "FoundOut": stored.FoundLinks,
    "LinksOut": stored.Links,
    "WindowsOut": stored.Windows,
    "MissingPageOut": stored.MissingPage,
    "JobOut": stored.Job,
    "JobsOut": stored.Jobs,
    "MapOut": maps.DocumentMap,
    "TopicsOut": maps.Topics,
    "CitationOut": stored.CitationHead,
    "ClassifierOut": learnt.Classifier,
    "SuggestionOut": learnt.Suggestion,
    "LabelledPageOut": learnt.LabelledPage,
    "TextOut": stored.FileText,
    "Info": answers.Info,
    "KeysOut": answers.Keys,
}
# with the fields that are arguments of their own
REQUESTS: dict[str, tuple[Any, set[str]]] = {
    "EmbedRequest": (options.EmbedOptions, {"inputs", "encoding_format", "windows"}),
    "SimilarityRequest": (options.SimilarityOptions, {"inputs", "parameters"}),
    "TextsRequest": (options.RerankOptions, {"query", "texts"}),
    "ClassifyRequest": (options.ClassifyOptions, {"inputs", "explain"}),
    "SimilarRequest": (options.SimilarOptions, {"index", "queries", "facets"}),
    "QueryIn": (options.Query, set()),
    "PassagesRequest": (options.PassagesOptions, {"index"}),
    "DocumentIn": (options.NewDocument, set()),
    "UpsertRequest": (options.UpsertOptions, {"documents"}),
    "PatchRequest": (options.Patch, set()),
    "CompareRequest": (options.CompareOptions, {"other"}),
    "DuplicatesRequest": (options.DuplicatesOptions, set()),
    "FindRequest": (options.FindLinksOptions, set()),
    "TrainRequest": (options.TrainOptions, {"labels"}),
    "SuggestRequest": (options.SuggestOptions, {"index"}),
    "LabelIn": (options.LabelsOf, set()),
}
# every request, with the path parameters of the document and every query parameter
CALLS: list[Call[Any]] = [
    calls.embedding.embed(["a"]),
    calls.lines.lines(
        ["a"],
        normalize=False,
        truncate=True,
        truncation_direction="left",
        dimensions=8,
        prompt_name="a",
        model="a",
    ),
    calls.embedding.similarity("a", ["b"]),
    calls.embedding.rerank("a", ["b"]),
    calls.embedding.info(),
    calls.embedding.keys(),
    calls.search.similar("a", text="b"),
    calls.search.passages("a", text="b"),
    calls.search.compare("{name}", "a", text="b"),
    calls.search.duplicates("{name}", text="b"),
    calls.search.duplicate_groups("{name}", 0.5, 10),
    calls.indexes.create_index("{name}"),
    calls.indexes.indexes(),
    calls.indexes.index("{name}"),
    calls.indexes.delete_index("{name}"),
    calls.indexes.delete_generation("{name}", "{revision}"),
    calls.indexes.set_alias("{alias}", "a"),
    calls.indexes.aliases(),
    calls.indexes.alias("{alias}"),
    calls.indexes.delete_alias("{alias}"),
    calls.indexes.train_citation_head("{name}", "features", "both"),
    calls.indexes.citation_head("{name}"),
    calls.indexes.citation_network("{name}"),
    calls.documents.upsert("{name}", []),
    calls.documents.list_documents("{name}", "a", 10),
    calls.documents.document("{name}", "{document_id}"),
    calls.documents.document_windows("{name}", "{document_id}"),
    calls.documents.get_documents("{name}", ["a"]),
    calls.documents.patch_document("{name}", "{document_id}", {}),
    calls.documents.delete_document("{name}", "{document_id}"),
    calls.documents.delete_documents("{name}", ["a"]),
    calls.jobs.upload("{name}", {"a.txt": b"text"}, "refuse", True, ["doi"], ["a-*=A *"]),
    calls.jobs.read_file({"a.txt": b"text"}),
    calls.jobs.jobs(10),
    calls.jobs.job("{job_id}"),
    calls.jobs.cancel_job("{job_id}"),
    calls.maps.compute_map("{name}"),
    calls.maps.document_map("{name}", "a", 10, True, "a", "a"),
    calls.maps.topics("{name}"),
    calls.links.find_links("{name}"),
    calls.links.found_links("{name}"),
    calls.links.forget_found_links("{name}"),
    calls.links.document_links("{name}", "{document_id}", "a", 10),
    calls.links.missing_citations("{name}", "a", 10, 0.5, "given"),
    calls.classifiers.classify(["a"]),
    calls.classifiers.train_classifier("{name}", ["a"]),
    calls.classifiers.retrain_classifier("{name}", True),
    calls.classifiers.classifiers(),
    calls.classifiers.classifier("{name}"),
    calls.classifiers.classifier_network("{name}"),
    calls.classifiers.suggest("{name}", "a"),
    calls.classifiers.give_labels("{name}", "a", []),
    calls.classifiers.labels("{name}", "a", "b", 10),
    calls.classifiers.delete_classifier("{name}"),
]


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/openapi.json").json()
    return found


def plain(schema: dict[str, Any], components: dict[str, Any]) -> Any:
    """A schema's types and fields, without limits, descriptions and names."""
    if "$ref" in schema:
        return plain(components[schema["$ref"].rpartition("/")[2]], components)
    if "anyOf" in schema:
        return "any", frozenset(plain(one, components) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return "one of", frozenset(schema.get("enum") or [schema["const"]])
    if "properties" in schema:
        return "object", frozenset(fields(schema, components).items())
    if schema.get("type") == "array":
        return "list", plain(schema["items"], components)
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "map", plain(schema["additionalProperties"], components)
    return schema.get("type")


def fields(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Whether a field is required, and its type, by name."""
    required = schema.get("required", ())
    return {
        name: (name in required, None if name in OPAQUE else plain(one, components))
        for name, one in schema["properties"].items()
    }


NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def typed(hint: Any) -> Any:
    """What ``plain`` makes of the schema of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return "object", frozenset(of_type(hint).items())
    if origin is list:
        return "list", typed(arguments[0])
    if origin is dict:
        return "object" if arguments[1] is Any else ("map", typed(arguments[1]))
    if origin is Literal:
        return "one of", frozenset(arguments)
    if origin in (Union, UnionType):
        return "any", frozenset(typed(one) for one in arguments)
    return NAMES[hint]


def of_type(kind: Any) -> dict[str, Any]:
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        inner = get_args(hint)[0] if optional else hint
        required = kind.__total__ and not optional
        found[name] = (required, None if name in OPAQUE else typed(inner))
    return found


def of_document(document: dict[str, Any], name: str) -> dict[str, Any]:
    components = document["components"]["schemas"]
    # a name that several modules use has the module's as a prefix
    [found] = [one for one in components if f"__{one}".endswith(f"__{name}")]
    return fields(components[found], components)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_the_fields_of_the_document(document: dict[str, Any], name: str) -> None:
    assert of_type(ANSWERS[name]) == of_document(document, name)


@pytest.mark.parametrize("name", REQUESTS)
def test_options_have_the_fields_of_the_document(document: dict[str, Any], name: str) -> None:
    kind, own = REQUESTS[name]
    offered = of_document(document, name)
    assert own <= offered.keys()
    assert of_type(kind) == {key: kind for key, kind in offered.items() if key not in own}


def test_every_native_route_has_a_method(document: dict[str, Any]) -> None:
    sent = {(one.method.lower(), unquote(urlsplit(one.path).path)) for one in CALLS}
    offered = {
        (method, path)
        for path, methods in document["paths"].items()
        if path not in ELSEWHERE and not path.startswith(("/v1/", "/v2/"))
        for method in methods
    }
    assert sent == offered


def test_queries_have_the_parameters_of_the_document(document: dict[str, Any]) -> None:
    sent: dict[tuple[str, str], set[str]] = {}
    for one in CALLS:
        parts = urlsplit(one.path)
        route = unquote(parts.path), one.method.lower()
        sent[route] = sent.get(route, set()) | set(parse_qs(parts.query))
    for (place, method), given in sent.items():
        parameters = document["paths"][place][method].get("parameters", ())
        asked = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
        assert given == asked, place


@pytest.mark.parametrize("field", ["inputs", "documents"])
def test_older_processors_have_time_for_each_batch(field: str) -> None:
    characters_a_second = 16_000  # two cores with AVX2 only
    texts = ["x" * 90_000] * 7
    documents: list[options.NewDocument] = [{"id": str(n), "text": t} for n, t in enumerate(texts)]
    sends: dict[str, Steps[Any]] = {
        "inputs": calls.batches.embed_all(texts),
        "documents": calls.batches.upsert_all("papers", documents),
    }
    sent = next(sends[field])
    assert isinstance(sent, Call)
    assert sent.body is not None
    batch = sent.body[field]
    assert 1 < len(batch) < len(texts)
    assert len(batch) * 90_000 / characters_a_second < Settings().request_timeout / 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: calls.embedding.similarity("a text", "one"),
        lambda: calls.embedding.rerank("a query", "one"),
        lambda: calls.classifiers.classify("one"),
        lambda: calls.classifiers.explain_labels("one"),
        lambda: calls.classifiers.train_classifier("topics", "one"),
        lambda: calls.search.similar_faceted("papers", "year"),
        lambda: calls.documents.get_documents("papers", "ab"),
        lambda: calls.documents.delete_documents("papers", "ab"),
        lambda: calls.jobs.upload("papers", "guide.pdf"),
        lambda: next(calls.batches.embed_all("one")),
        lambda: next(calls.batches.get_all("papers", "ab")),
        lambda: next(Client("http://127.0.0.1:9").embed_stream("one")),
    ],
)
def test_one_text_in_place_of_a_list_is_refused(make: Callable[[], Call[Any] | Steps[Any]]) -> None:
    with pytest.raises(TypeError, match="give a list of strings"):
        make()
