"""The client's types from the service's OpenAPI document; ``make client-types`` writes them.

Generators for whole documents write 1,100 lines: also what only the dialects of other servers have,
and all fields of a request, of which some are arguments of their own here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "docsplit_client" / "types.py"
HEAD = '''"""The shapes of requests and answers, by ``make client-types`` (client/generate.py).

docs/reference/api/index.md explains the fields. Offsets count Unicode code points.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Filter = dict[str, Any]
'''
# options of a method: the schema of its request, without the fields that are arguments
OPTIONS = {
    "Query": ("QueryIn", ""),
    "SearchOptions": ("SimilarRequest", "index queries facets text id"),
    "SimilarOptions": ("SimilarRequest", "index queries facets"),
    "EmbedOptions": ("EmbedRequest", "inputs encoding_format windows"),
    "SimilarityOptions": ("SimilarityRequest", "inputs parameters"),
    "RerankOptions": ("TextsRequest", "query texts"),
    "ClassifyOptions": ("ClassifyRequest", "inputs explain"),
    "PassagesOptions": ("PassagesRequest", "index"),
    "NewDocument": ("DocumentIn", ""),
    "UpsertOptions": ("UpsertRequest", "documents"),
    "Patch": ("PatchRequest", ""),
    "CompareOptions": ("CompareRequest", "other"),
    "DuplicatesOptions": ("DuplicatesRequest", ""),
    "FindLinksOptions": ("FindRequest", ""),
    "TrainOptions": ("TrainRequest", "labels"),
    "SuggestOptions": ("SuggestRequest", "index"),
    "LabelsOf": ("LabelIn", ""),
}
# schemas of answers; those that they name follow them
ANSWERS = """
Span DocumentHead IndexHead JobHead UsageOut routes__embed__WindowOut DetailedOut
RankOut Explained CompareOut HitOut FacetsOut PassagesOut Info KeysOut IndexOut AliasOut UpsertOut
DocumentOut PageOut GetOut DeleteOut PatchOut MatchOut GroupsOut FoundOut LinksOut
WindowsOut MissingPageOut JobOut JobsOut MapOut TopicsOut CitationOut ClassifierOut SuggestionOut
LabelledPageOut TextOut
"""
# of schemas whose name here is not theirs without its ending
NAMES = {
    "CitationOut": "CitationHead",
    "CompareOut": "Compared",
    "ComparedOut": "ComparedPair",
    "DeleteOut": "Deleted",
    "FacetsOut": "Faceted",
    "FormerOut": "FormerTraining",
    "FoundOut": "FoundLinks",
    "GetOut": "Got",
    "HeadingOut": "FileHeading",
    "LabelsOut": "MapLabels",
    "ManyOut": "DocumentText",
    "MapOut": "DocumentMap",
    "PatchOut": "Patched",
    "PlaceOut": "LinkPlace",
    "RerankerInfo": "Ranker",
    "RuleIn": "LinkRule",
    "TextOut": "FileText",
    "UpsertOut": "Upserted",
    "ValuesOut": "FieldValues",
    "routes__classify__WindowOut": "Share",
}
# a type that has all fields of one of these inherits them
BASES = ("SearchOptions", "Query", "DocumentHead", "IndexHead", "JobHead", "Span")
# sets of values
CHOICES = {
    '"cites", "cited_by"': "Direction",
    '"given", "found", "both"': "LinksFrom",
    '"allow", "mark", "refuse"': "OnDuplicate",
    '"cosine", "words", "hybrid"': "Mode",
    '"string", "integer", "number", "boolean", "date", "strings"': "FieldType",
}
# what the client decodes, and plain objects
FIELDS = {"embedding": "Vectors", "embeddings": "Vectors", "metadata": "dict[str, Any]"}
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class Types:
    """The types of an OpenAPI document.

    Raises:
        ValueError: the document lacks a schema, or two schemas would have one name.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._schemas: dict[str, Any] = document["components"]["schemas"]
        self._sources: dict[str, str] = {}
        # the lines of each type, those with all fields optional apart
        self._types: dict[str, list[str]] = {}
        self._optional: set[str] = set()
        for name, (schema, own) in OPTIONS.items():
            self._add(name, self._found(schema), own.split())
        for schema in ANSWERS.split():
            self._named(self._found(schema))

    def module(self) -> str:
        """The text of the module."""
        choices = [f"{name} = Literal[{values}]" for values, name in CHOICES.items()]
        # a base stands before what inherits it
        names = [*BASES, *(name for name in self._types if name not in BASES)]
        return "\n".join([HEAD + "\n".join(choices), *map(self._written, names), ""])

    def _written(self, name: str) -> str:
        lines, bases, partial = self._types[name], [], name in self._optional
        for base in BASES:
            shared = self._types[base]
            if base != name and partial == (base in self._optional) and {*shared} <= {*lines}:
                lines = [line for line in lines if line not in shared]
                bases.append(base)
        heads = ", ".join([*(bases or ["TypedDict"]), *(["total=False"] if partial else [])])
        return "\n".join([f"\nclass {name}({heads}):", *(lines or ["    pass"])])

    def _found(self, name: str) -> str:
        # a name that several modules use has the module's as a prefix
        [found] = [one for one in self._schemas if f"__{one}".endswith(f"__{name}")]
        return found

    def _named(self, schema: str) -> str:
        """The name of a schema's type, which is added at its first use."""
        ends = [name for end, name in NAMES.items() if f"__{schema}".endswith(f"__{end}")]
        plain = re.sub("(?<=.)(Out|In|Info)$", "", schema.rpartition("__")[2])
        name = ends[0] if ends else plain
        self._add(name, schema, ())
        return name

    def _add(self, name: str, schema: str, own: Collection[str]) -> None:
        if self._sources.setdefault(name, schema) != schema:
            raise ValueError(f"{name}: name {schema} or {self._sources[name]} in NAMES")
        if name in self._types:
            return
        lines = self._types[name] = []
        described = self._schemas[schema]
        required = {*described.get("required", ())}.difference(own)
        if not required:
            self._optional.add(name)
        for field, one in described["properties"].items():
            if field in own:
                continue
            kind = self._type(one)
            if field in FIELDS:
                kind = FIELDS[field] + (" | None" if kind.endswith(" | None") else "")
            if required and field not in required:
                kind = f"NotRequired[{kind}]"
            lines.append(f"    {field}: {kind}")

    def _type(self, schema: dict[str, Any]) -> str:
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2])
        if "oneOf" in schema:
            # only filters have kinds
            return "Filter"
        if "anyOf" in schema:
            return " | ".join(self._type(one) for one in schema["anyOf"])
        if "enum" in schema:
            values = ", ".join(f'"{one}"' for one in schema["enum"])
            return CHOICES.get(values, f"Literal[{values}]")
        if schema.get("type") == "array":
            return f"list[{self._type(schema['items'])}]"
        if schema.get("type") == "object":
            inner = schema["additionalProperties"]
            return f"dict[str, {'Any' if inner is True else self._type(inner)}]"
        return PLAIN[schema["type"]]
