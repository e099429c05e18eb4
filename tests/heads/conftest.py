"""Python's proposals on two subjects, and an index of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Server
from tests.index.conftest import call

PACKAGING = [241, 301, 314, 345, 376, 381, 425, 426, 427, 438, 449, 458, 459, 470]
TYPING = [484, 544, 585, 586, 589, 591, 604, 613, 647, 673, 675, 677, 692, 695]
TRAINED = 6
# characters of each proposal, which make several windows
CHARACTERS = 1200


@pytest.fixture(scope="session")
def proposals(peps: dict[str, str]) -> list[dict[str, Any]]:
    """Documents ``{id, text, title, metadata: {subject, number}}``."""
    return [
        {
            "id": f"pep-{number}",
            "text": peps[f"pep-{number}"][:CHARACTERS],
            "title": f"PEP {number}",
            "metadata": {"subject": subject, "number": number},
        }
        for subject, numbers in (("packaging", PACKAGING), ("typing", TYPING))
        for number in numbers
    ]


@pytest.fixture(scope="session")
def labelled(proposals: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Ids and labels of the first proposals of each subject."""
    chosen = proposals[:TRAINED] + proposals[len(PACKAGING) : len(PACKAGING) + TRAINED]
    return {
        "ids": [document["id"] for document in chosen],
        "labels": [document["metadata"]["subject"] for document in chosen],
    }


@pytest.fixture(scope="module")
def library(server: Server, proposals: list[dict[str, Any]]) -> Iterator[str]:
    """The name of an index of all proposals."""
    fields = {"subject": "string", "number": "integer"}
    call(server, "PUT", "/indexes/proposals", {"fields": fields}, status=201)
    call(server, "POST", "/indexes/proposals/documents", {"documents": proposals})
    yield "proposals"
    httpx.delete(f"{server.url}/indexes/proposals")


@pytest.fixture(scope="module")
def subjects(server: Server, library: str, labelled: dict[str, list[str]]) -> Iterator[str]:
    """The name of a classifier of the proposals' subjects, trained from the index."""
    call(server, "PUT", "/classifiers/subjects", {"index": library, **labelled})
    yield "subjects"
    httpx.delete(f"{server.url}/classifiers/subjects")
