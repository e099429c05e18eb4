"""The classes for LangChain, on a running service."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
from langchain_core.documents import Document

from docsplit_client import Client
from docsplit_client.langchain import DocsplitEmbeddings, DocsplitRetriever, DocsplitVectorStore
from tests.conftest import ROOT, Server

TEXTS = ["The cat sat on the mat. It slept.", "Taxes are due in May.", "A kitten plays."]
# they change the other tests
PLUGINS = ("benchmark", "codspeed", "langsmith_plugin", "recording", "socket", "syrupy")


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, tries=1) as made:
        yield made


@pytest.fixture
def store(client: Client) -> Iterator[DocsplitVectorStore]:
    embeddings = DocsplitEmbeddings(client)
    made = DocsplitVectorStore.from_texts(
        TEXTS,
        embeddings,
        [{"year": 2000 + n} for n in range(3)],
        ids=["cat", "tax", "kitten"],
        client=client,
        index="chain",
        fields={"year": "integer"},
    )
    yield made
    client.delete_index("chain")


def test_embeddings_are_those_of_the_service(client: Client) -> None:
    embeddings = DocsplitEmbeddings(client)
    assert np.allclose(embeddings.embed_documents(TEXTS), client.embed(TEXTS))
    assert np.allclose(asyncio.run(embeddings.aembed_query(TEXTS[0])), client.embed(TEXTS[:1])[0])


def test_the_store_searches_filters_and_deletes(store: DocsplitVectorStore) -> None:
    [(best, score), *_] = store.similarity_search_with_relevance_scores("A cat sleeps.", k=2)
    assert best == Document(id="cat", page_content=TEXTS[0], metadata={"year": 2000})
    assert 0.5 < score <= 1
    late = {"field": "year", "gt": 2000}
    assert [one.id for one in store.similarity_search("A cat sleeps.", 1, late)] == ["kitten"]
    [new] = store.add_documents([Document(page_content="Another text.")])
    assert [one.page_content for one in store.get_by_ids([new, "none"])] == ["Another text."]
    assert store.delete([new, "none"])
    assert store.get_by_ids([new]) == []
    # of two texts with one id the last counts
    assert store.add_texts(["a", "b"], ids=["same", "same"]) == ["same", "same"]
    assert [one.page_content for one in store.get_by_ids(["same"])] == ["b"]
    with pytest.raises(ValueError, match="delete_index"):
        store.delete()


def test_marginal_relevance_leaves_out_copies(store: DocsplitVectorStore) -> None:
    store.add_texts([f"{TEXTS[0]} Copy {n}." for n in range(3)], ids=["one", "two", "three"])
    plain = store.as_retriever(search_kwargs={"k": 4}).invoke(TEXTS[0])
    assert {one.id for one in plain} == {"cat", "one", "two", "three"}
    few = store.as_retriever(search_type="mmr", search_kwargs={"k": 3}).invoke(TEXTS[0])
    assert few[0].id == "cat"
    assert len({one.id for one in few} & {"one", "two", "three"}) <= 1
    same = store.max_marginal_relevance_search(TEXTS[0], 4, lambda_mult=1)
    assert same == plain
    late = {"field": "year", "gt": 2000}
    found = store.max_marginal_relevance_search(TEXTS[0], 4, filter=late)
    assert {one.id for one in found} == {"tax", "kitten"}


async def test_the_retriever_returns_documents_or_passages(
    store: DocsplitVectorStore, client: Client
) -> None:
    # "A" would count as a word, as in "vitamin A", which the kitten's text has, too
    documents = DocsplitRetriever(client=client, index="chain", k=2).invoke("Cat asleep.")
    assert [one.id for one in documents] == ["cat", "kitten"]
    passages = DocsplitRetriever(client=client, index="chain", passages=True, k=1)
    [passage] = await passages.ainvoke("A cat sleeps.")
    assert passage.metadata.keys() == {"year", "document", "start", "end", "score"}
    span = slice(passage.metadata["start"], passage.metadata["end"])
    assert passage.page_content == TEXTS[0][span]
    narrowed = DocsplitRetriever(client=client, index="chain", filter={"field": "year", "eq": 2001})
    assert [one.id for one in narrowed.invoke("A cat sleeps.")] == ["tax"]


@pytest.mark.skipif(
    find_spec("langchain_tests") is None, reason="needs pip install langchain-tests"
)
def test_the_standard_suites_pass(server: Server) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    command += [f"--rootdir={ROOT}", "-o", "asyncio_mode=auto"]
    command += [part for name in PLUGINS for part in ("-p", f"no:{name}")]
    search = os.pathsep.join([str(ROOT / "client"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "client" / "langchain_suites.py")],
        env={**os.environ, "DOCSPLIT_URL": server.url, "PYTHONPATH": search},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    [passed] = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert int(passed) >= 40
