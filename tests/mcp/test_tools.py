"""The tools and resources, with the SDK's own client, which checks results by their schemas."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp import types
from mcp.client.client import Client as Agent
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from docsplit_client import Client, stdio
from tests.conftest import ROOT, free_port, serving
from tests.fault_proxy import FaultProxy
from tests.mcp.conftest import MODES, ODD, TEXTS, TOKENS, Site

READING = [
    "list_indexes",
    "find_documents",
    "find_passages",
    "find_citations",
    "explain_pair",
    "classify",
    "get_document",
]
SCHEME = "docsplit://"


@pytest.mark.parametrize("mode", MODES)
def test_searches_are_those_of_the_routes(site: Site, mode: str) -> None:
    query = "Where do cats sleep?"
    listed = site.tool("reader", "list_indexes", mode)
    assert listed["indexes"] == ["mine"]
    assert listed["described"][0]["fields"] == {"kind": "string"}
    kind = {"field": "kind", "eq": "cat"}
    with site.client("reader") as client:
        found = site.tool("reader", "find_documents", mode, index="mine", text=query, top_k=2)
        assert found["hits"] == client.similar("mine", text=query, top_k=2, mode="hybrid")
        narrowed = site.tool("reader", "find_documents", mode, index="mine", text="a", filter=kind)
        assert [hit["id"] for hit in narrowed["hits"]] == ["cats"]
        passages = site.tool("reader", "find_passages", mode, index="mine", text=query)
        assert passages["documents"] == client.passages("mine", text=query)
    snippet = passages["documents"][0]["passages"][0]["snippet"]
    assert TEXTS["cats"][snippet["start"] : snippet["end"]] == snippet["text"]


def test_indexes_come_in_pages(tmp_path: Path, light: tuple[str, ...]) -> None:
    names = [f"page-{number:03}" for number in range(51)]

    async def resources(agent: Agent) -> list[str]:
        first = await agent.list_resources()
        assert first.next_cursor is not None
        second = await agent.list_resources(cursor=first.next_cursor)
        assert second.next_cursor is None
        return [one.name for one in (*first.resources, *second.resources)]

    # in a service of its own, since deleting an index takes longer than making it
    with serving(tmp_path / "log", "--mcp", *light) as server:
        site = Site(server)
        with Client(server.url) as client:
            for name in reversed(names):
                client.create_index(name)
        first = site.tool("boss", "list_indexes")
        assert len(first["indexes"]) == len(first["described"]) == 50
        second = site.tool("boss", "list_indexes", after=first["next"])
        assert [*first["indexes"], *second["indexes"]] == names
        assert second["next"] is None
        assert site.asked("boss", resources) == names


@pytest.mark.parametrize("tool", ["find_documents", "find_passages", "find_citations"])
@pytest.mark.parametrize("given", [{}, {"text": "a", "id": "cats"}])
def test_a_search_needs_a_text_or_an_id(site: Site, tool: str, given: dict[str, str]) -> None:
    assert site.tool("reader", tool, index="mine", **given) == "give either text or id"


def test_hits_are_as_diverse_as_asked(site: Site) -> None:
    every: dict[str, Any] = {"index": "mine", "text": TEXTS["cats"], "top_k": 4}
    plain = site.tool("reader", "find_documents", **every)["hits"]
    chosen = site.tool("reader", "find_documents", **every, diversity=1)["hits"]
    with site.client("reader") as client:
        assert chosen == client.similar(**every, mode="hybrid", diversity=1)
    assert [hit["id"] for hit in chosen] != [hit["id"] for hit in plain]
    assert {hit["id"] for hit in chosen} == {hit["id"] for hit in plain}


def test_a_pair_is_explained_by_places(site: Site) -> None:
    before = site.server.metric("docsplit_tokens_total")
    by_id = site.tool("reader", "explain_pair", index="mine", document="kitten", id="cats")
    # the stored windows are compared
    assert site.server.metric("docsplit_tokens_total") == before
    by_text = site.tool(
        "reader", "explain_pair", index="mine", document="kitten", text=TEXTS["cats"]
    )
    places = [
        [(pair["query"]["text"], pair["document"]["text"]) for pair in found["pairs"]]
        for found in (by_id, by_text)
    ]
    assert places[0] == places[1]
    with site.client("reader") as client:
        compared = client.compare("mine", id="cats", other="kitten", top_k=3)
    assert by_id["cosine"] == compared["cosine"]
    assert [one["cosine"] for one in by_id["pairs"]] == [one["cosine"] for one in compared["pairs"]]
    first = by_id["pairs"][0]
    assert (
        TEXTS["kitten"][first["document"]["start"] : first["document"]["end"]]
        == (first["document"]["text"])
    )
    other = site.tool("reader", "explain_pair", index="mine", document="tax", id="cats")
    assert other["cosine"] < by_id["cosine"]
    assert "either" in site.tool("reader", "explain_pair", index="mine", document="tax")


def test_a_text_is_classified_with_its_reasons(site: Site) -> None:
    found = site.tool("reader", "classify", text="A cat plays.", top_k=1)
    assert found["labels"][0]["label"] == "cat"
    assert found["windows"]


def test_a_document_is_read_in_parts(site: Site) -> None:
    whole = TEXTS[ODD]
    first = site.tool("reader", "get_document", index="mine", id=ODD, characters=10)
    rest = site.tool("reader", "get_document", index="mine", id=ODD, start=first["end"])
    assert first["text"] + rest["text"] == whole
    assert (rest["end"], first["characters"]) == (len(whole), len(whole))
    assert first["links"] == ["cats"]
    past = site.tool("reader", "get_document", index="mine", id="cats", start=10_000)
    assert past["text"] == ""


def test_the_links_of_a_document_are_read_in_parts(site: Site) -> None:
    links = [f"paper-{place:03}" for place in range(150)]
    document = {"id": "survey", "text": "It cites many papers.", "links": links}
    site.tool("writer", "upsert_documents", index="mine", documents=[document])
    asked = {"index": "mine", "id": "survey"}
    first = site.tool("reader", "get_document", **asked)
    rest = site.tool("reader", "get_document", **asked, links_start=len(first["links"]))
    site.tool("writer", "delete_documents", index="mine", ids=["survey"])
    assert len(first["links"]) == 100
    assert first["links"] + rest["links"] == links
    assert first["link_count"] == rest["link_count"] == 150


def test_citations_are_predicted_once_the_index_has_a_head(site: Site) -> None:
    hint = site.tool("reader", "find_citations", index="mine", id="tax")
    assert hint == ("the index has no citation head: train one with POST /indexes/mine/citation")


@pytest.mark.parametrize("mode", MODES)
def test_resources_are_indexes_and_documents(site: Site, mode: str) -> None:
    async def ask(agent: Agent) -> tuple[list[str], list[str], str, str]:
        listed = [one.uri for one in (await agent.list_resources()).resources]
        templates = await agent.list_resource_templates()
        index = await agent.read_resource(f"{SCHEME}mine")
        document = await agent.read_resource(f"{SCHEME}mine/{quote(ODD, safe='')}")
        named = [one.uri_template for one in templates.resource_templates]
        texts = [one.contents[0] for one in (index, document)]
        assert all(isinstance(one, types.TextResourceContents) for one in texts)
        return listed, named, texts[0].text, texts[1].text  # type: ignore[union-attr]

    listed, named, index, document = site.asked("reader", ask, mode)
    assert listed == [f"{SCHEME}mine"]
    assert named == [f"{SCHEME}{{index}}/{{id}}"]
    assert '"documents": 4' in index
    assert document == TEXTS[ODD]


@pytest.mark.parametrize("address", ["theirs", "theirs/cats", "mine/none", "MINE", "mine/cats?a=b"])
def test_other_resources_are_refused(site: Site, address: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        site.asked("reader", lambda agent: agent.read_resource(f"{SCHEME}{address}"))
    assert caught.group_contains(MCPError)


@pytest.mark.parametrize("name", ["cats/links", "cats/windows", "none"])
def test_an_id_that_ends_as_a_route_names_no_document(site: Site, name: str) -> None:
    address = f"{SCHEME}mine/{name.replace('/', '%2F')}"
    with pytest.raises(BaseExceptionGroup) as caught:
        site.asked("reader", lambda agent: agent.read_resource(address))
    assert caught.group_contains(MCPError, match="no document")
    given = {"index": "mine", "id": name}
    answer = site.asked("reader", lambda agent: agent.call_tool("get_document", given))
    assert answer.is_error
    assert "no document" in str(answer.content)


def test_a_key_that_may_write_sees_tools_for_that(site: Site) -> None:
    def names(name: str) -> list[str]:
        found = site.asked(name, lambda agent: agent.list_tools())
        return [tool.name for tool in found.tools]

    assert names("reader") == READING
    writing = ["upsert_documents", "delete_documents"]
    assert names("writer") == names("boss") == READING + writing
    new = [{"id": "new", "text": "A new document.", "metadata": {"kind": "new"}}]
    stored = site.tool("writer", "upsert_documents", index="mine", documents=new)
    assert stored == {"documents": 1, "done": "stored"}
    read = site.tool("reader", "get_document", index="mine", id="new")
    assert read["metadata"] == {"kind": "new"}
    deleted = site.tool("writer", "delete_documents", index="mine", ids=["new", "none"])
    assert deleted == {"documents": 1, "done": "deleted"}


def test_a_program_passes_everything_on_and_outlives_an_absence(site: Site) -> None:
    proxy = FaultProxy(int(site.server.url.rpartition(":")[2]))
    command = ["-m", "docsplit_client.stdio", f"http://127.0.0.1:{proxy.port}"]
    env = {"PYTHONPATH": f"{ROOT}/client", "DOCSPLIT_KEY": TOKENS["reader"]}
    program = StdioServerParameters(command=sys.executable, args=command, env=env)

    async def run() -> None:
        async with Agent(stdio_client(program)) as agent:
            assert [tool.name for tool in (await agent.list_tools()).tools] == READING
            found = await agent.call_tool("get_document", {"index": "mine", "id": "cats"})
            assert found.structured_content["text"] == TEXTS["cats"]
            refused = await agent.call_tool("get_document", {"index": "theirs", "id": "cats"})
            assert refused.is_error
            read = await agent.read_resource(f"{SCHEME}mine/tax")
            assert read.contents[0].uri == f"{SCHEME}mine/tax"
            proxy.mode = "refuse"
            with pytest.raises(MCPError, match="no answer came from the service"):
                await asyncio.wait_for(agent.call_tool("list_indexes", {}), 20)
            proxy.mode = "pass"
            assert (await agent.call_tool("list_indexes", {})).structured_content

    try:
        asyncio.run(run())
    finally:
        proxy.close()


def test_the_program_says_why_it_has_no_connection(capsys: pytest.CaptureFixture[str]) -> None:
    assert stdio.main([f"http://127.0.0.1:{free_port()}"]) == 1
    assert "check the address" in capsys.readouterr().err


def test_the_program_refuses_what_cannot_be_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(stdio.KEY, "dsk-\u00fc")
    with pytest.raises(SystemExit) as caught:
        stdio.main([])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "DOCSPLIT_KEY: key: an API key has only ASCII" in said
    assert "dsk-" not in said
