"""What /mcp refuses: other keys' indexes, scripts of other web origins, too much, and nonsense."""

from __future__ import annotations

import json
from typing import Any

import httpx
import httpx2
import pytest
from mcp.client.client import Client as Agent
from mcp.shared.exceptions import MCPError

from features.mcp.tools import TOOLS, Caller, offered
from service.keys.file import Rights
from service.server.edge.rights import KEY, RIGHTS
from tests.conftest import Server, wait_until
from tests.mcp.conftest import MODES, TOKENS, Site

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "find_documents": {"text": "a"},
    "find_passages": {"text": "a"},
    "find_citations": {"id": "cats"},
    "explain_pair": {"document": "cats", "text": "a"},
    "get_document": {"id": "cats"},
    "upsert_documents": {"documents": [{"id": "cats", "text": "changed"}]},
    "delete_documents": {"ids": ["cats"]},
}

NONSENSE: list[tuple[str, dict[str, Any]]] = [
    ("find_documents", {"index": "mine", "text": "\ud800"}),
    ("get_document", {"index": "mine", "id": "\ud800"}),
    ("get_document", {"index": "mine", "id": "a", "start": 10**30}),
    ("find_documents", {"index": "mine", "text": "a", "filter": {"not": 1}}),
    ("find_documents", {"index": "mine", "text": "a", "no": 1}),
    ("find_documents", {"index": "mine", "text": "a", "top_k": float("nan")}),
    ("classify", {"text": "   "}),
    ("no_such_tool", {}),
]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ARGUMENTS)
def test_no_tool_reaches_another_index(site: Site, tool: str, mode: str) -> None:
    for name in ("writer", "stranger", "blind"):
        if tool.endswith("_documents") and tool != "find_documents" and name == "stranger":
            continue
        answer = site.tool(name, tool, mode, index="theirs", **ARGUMENTS[tool])
        assert "no right of the kind" in answer, name
    with site.client("boss") as boss:
        assert boss.document("theirs", "cats")["text"].startswith("The cat")


@pytest.mark.parametrize("tool", ["upsert_documents", "delete_documents"])
def test_a_key_that_only_reads_cannot_write(site: Site, tool: str) -> None:
    answer = site.post("reader", call(tool, index="mine", **ARGUMENTS[tool])).json()
    assert "no such tool" in answer["error"]["message"]
    with site.client("boss") as boss:
        assert boss.document("mine", "cats")["text"].startswith("The cat")


def test_without_keys_nobody_writes() -> None:
    async def app(*_: Any) -> None:
        raise AssertionError

    writing = {tool.name for tool in TOOLS if tool.writes}
    assert writing
    assert not writing & offered(Caller(app, {})).keys()


async def test_a_tool_has_the_key_and_the_deadline_of_its_request() -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Any, _: Any, send: Any) -> None:
        seen.update(scope)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"{}"})

    own = {KEY: "reader", RIGHTS: Rights({}), "docsplit.deadline": 7.0, "method": "POST"}
    await Caller(app, own).get("indexes", "a b")
    assert {name: seen[name] for name in (KEY, RIGHTS, "docsplit.deadline")} == {
        name: own[name] for name in (KEY, RIGHTS, "docsplit.deadline")
    }
    assert (seen["method"], seen["raw_path"]) == ("GET", b"/indexes/a%20b")


@pytest.mark.parametrize(
    "index", ["mine/documents", "mine/../theirs", "../aliases", "mine?a=b", "mine\n", "", "%6dine"]
)
def test_a_name_cannot_lead_to_another_route(site: Site, index: str) -> None:
    for tool, more in ARGUMENTS.items():
        assert "index: " in site.tool("boss", tool, index=index, **more)


def test_keys_are_those_of_the_service(site: Site) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert site.post(None, listing).status_code == 401
    assert site.post("revoked", listing).status_code == 403
    assert site.post("boss", listing).status_code == 200
    assert site.post("boss", listing, {"authorization": "Bearer wrong"}).status_code == 401


def test_rates_hold(site: Site) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert site.post("narrow", listing).status_code == 200
    late = site.post("narrow", listing)
    assert late.status_code == 429
    assert int(late.headers["retry-after"]) > 60


@pytest.mark.parametrize(("name", "version"), [("thrifty", None), ("thrifty-too", "2026-07-28")])
def test_a_tool_is_charged_for_its_tokens(site: Site, name: str, version: str | None) -> None:
    body = call("find_documents", index="mine", text="word " * 200)
    headers = {}
    if version is not None:
        body["params"]["_meta"] = MODERN
        headers = {
            "mcp-protocol-version": version,
            "mcp-method": "tools/call",
            "mcp-name": "find_documents",
        }
    first = site.post(name, body, headers)
    assert first.json()["result"]["structuredContent"]["hits"]
    assert site.post(name, body, headers).status_code == 429


def test_scripts_of_other_origins_have_no_access(site: Site) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for origin in ("https://evil.example", "null", "https://app.example.evil.example", ""):
        refused = site.post("boss", listing, {"origin": origin})
        assert refused.status_code == 403, origin
    # after DNS rebinding the page's own origin names the attacker's host
    host = {"host": "evil.example:8080", "origin": "http://evil.example:8080"}
    assert site.post("boss", listing, host).status_code == 403
    assert site.post("boss", listing, {"origin": "https://app.example"}).status_code == 200
    # a browser asks first which headers a script may send
    asked = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,mcp-protocol-version",
    }
    assert httpx.options(site.url, headers=asked).status_code == 200
    foreign = httpx.options(site.url, headers={**asked, "origin": "https://evil.example"})
    assert foreign.status_code == 400
    # a form of any page can send this without asking
    assert site.post("boss", listing, {"content-type": "text/plain"}).status_code == 415


def test_bounds_of_bodies_and_time_hold(site: Site) -> None:
    large = site.post("boss", call("classify", text="a" * (1 << 18)))
    assert large.status_code == 413
    assert "262144 bytes" in large.text
    values = site.post("boss", b'{"a": [' + b"0," * 262_144 + b"0]}")
    assert values.status_code == 413
    search = {"index": "mine", "text": "late " * 99}
    late = site.post("boss", call("find_documents", **search), {"x-request-timeout": "1e-6"})
    # 408: not even the body arrived in time
    assert late.status_code == 408 or "deadline" in late.text
    long = site.post("boss", call("list_indexes"), {"x-request-timeout": "1e6"})
    assert long.status_code == 422
    assert "hits" in site.tool("boss", "find_documents", **search, top_k=50)
    assert site.tool("boss", "find_documents", **search, top_k=51).startswith("top_k:")


@pytest.mark.parametrize(("version", "part"), [("2025-11-25", 0), ("2026-07-28", 1)])
def test_the_work_of_a_client_that_left_ends(
    site: Site, peps: dict[str, str], version: str, part: int
) -> None:
    # seconds of work, and other texts for each version, so that none is in the cache
    text = "".join(peps.values())[200_000 * part :][:200_000]
    body = call("classify", text=text)
    body["params"]["_meta"] = MODERN
    headers = {
        "mcp-protocol-version": version,
        "mcp-method": "tools/call",
        "mcp-name": "classify",
    }
    before = site.server.metric("docsplit_tokens_total")
    with pytest.raises(httpx2.ReadTimeout):
        site.post("boss", body, headers, timeout=httpx2.Timeout(60, read=0.4))
    wait_until(lambda: site.server.metric("docsplit_queue_tokens") == 0, 10)
    # a token has fewer than eight characters
    assert site.server.metric("docsplit_tokens_total") - before < len(text) / 8


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_only_post_is_accepted(site: Site, method: str) -> None:
    headers = {"authorization": f"Bearer {TOKENS['boss']}", "accept": "text/event-stream"}
    answer = httpx.request(method, f"{site.server.url}/mcp", headers=headers)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-28", "1999-01-01", "none"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b"[" * 5000,
        b'{"a":' * 5000,
        b"[" + json.dumps(call("list_indexes")).encode() + b"]",
        b'{"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": {}}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}',
        b'{"jsonrpc": "2.0", "id": 1e400, "method": "tools/list"}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}',
        *(json.dumps(call(tool, **more)).encode() for tool, more in NONSENSE),
    ],
)
def test_nonsense_is_refused(site: Site, body: bytes, version: str | None) -> None:
    headers = {} if version is None else {"mcp-protocol-version": version}
    answer = site.post("boss", body, headers)
    assert answer.status_code < 500
    if answer.status_code == 200:
        said = answer.json()
        assert "error" in said or said["result"]["isError"]
        assert "internal" not in answer.text.lower()
        assert "\\ud800" not in answer.text


def test_errors_name_the_arguments(site: Site) -> None:
    said = site.tool("boss", "find_documents", index="mine", txt="a")
    assert said == '"txt" is not known; did you mean text?'
    assert site.tool("boss", "get_document", index="mine") == "id: Field required"
    assert site.tool("boss", "list_indexes", no="a") == '"no" is not known; give after'


def test_refusals_of_http_reach_the_agent(site: Site) -> None:
    async def ask(agent: Agent) -> str:
        with pytest.raises(MCPError) as caught:
            await agent.call_tool("classify", {"text": "a" * (1 << 18)})
        assert (await agent.list_tools()).tools
        return str(caught.value)

    assert "262144 bytes: send less" in site.asked("boss", ask)
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    refused = site.post("revoked", listing).json()
    assert (refused["jsonrpc"], refused["id"], refused["error"]["code"]) == ("2.0", None, -32600)
    assert "revoked" in refused["error"]["message"]


@pytest.mark.parametrize(
    "address", ["docsplit://[mine", "docsplit://mine/caf%E9", "http://[::1", "x", "mine"]
)
def test_a_wrong_address_says_its_form(site: Site, address: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": address}}
    error = site.post("boss", body).json()["error"]
    assert error["code"] == -32602
    assert "docsplit://{index}/{id}" in error["message"]


def test_without_the_setting_the_answer_names_it(light_server: Server) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = httpx.request(method, f"{light_server.url}/mcp")
        assert answer.status_code == 404
        assert "--mcp" in answer.json()["error"]["message"]
    assert "--mcp" not in httpx.post(f"{light_server.url}/mpc").text
