"""A service with the protocol, keys of several rights and two indexes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import httpx2
import pytest
from mcp import types
from mcp.client.client import Client as Agent
from mcp.client.streamable_http import streamable_http_client

from docsplit_client import Client
from docsplit_client.types import NewDocument
from service.keys import file
from tests.conftest import Server, serving

T = TypeVar("T")

RIGHTS = {
    "boss": "",
    "reader": 'read_indexes = ["mine"]\nuse_classifiers = ["topics"]',
    "writer": 'read_indexes = ["mine"]\nwrite_indexes = ["mine"]',
    "blind": 'write_indexes = ["mine"]',
    "stranger": 'read_indexes = ["nothing"]',
    "revoked": "revoked = true",
    "narrow": "requests_per_second = 0.01",
    "thrifty": "tokens_per_second = 2",
    "thrifty-too": "tokens_per_second = 2",
}
TOKENS = {name: file.new_token() for name in RIGHTS}
ODD = "o''d\\'/../id"
TEXTS = {
    "cats": "The cat sat on the mat. It slept all day.",
    "tax": "Taxes are due in May. The tax office sends a letter.",
    "kitten": "A kitten plays with wool. Its mother is a cat.",
    ODD: "Money is what the tax office wants.",
}
# of the two protocols that clients speak: with and without a handshake
MODES = ("auto", "legacy")


@dataclass
class Site:
    """A running service, with the keys of ``RIGHTS``."""

    server: Server

    @property
    def url(self) -> str:
        return f"{self.server.url}/mcp"

    def client(self, name: str) -> Client:
        return Client(self.server.url, key=TOKENS[name], tries=1)

    @asynccontextmanager
    async def agent(self, name: str, mode: str = "auto", **headers: str) -> AsyncIterator[Agent]:
        given = {"authorization": f"Bearer {TOKENS[name]}", **headers}
        async with (
            httpx2.AsyncClient(headers=given, timeout=60) as http,
            Agent(streamable_http_client(self.url, http_client=http), mode=mode) as agent,
        ):
            yield agent

    def asked(self, name: str, ask: Callable[[Agent], Awaitable[T]], mode: str = "auto") -> T:
        async def run() -> T:
            async with self.agent(name, mode) as agent:
                return await ask(agent)

        return asyncio.run(run())

    def tool(self, name: str, tool: str, mode: str = "auto", **arguments: Any) -> Any:
        """The structured result of a tool, or the text of its error."""
        found = self.asked(name, lambda agent: agent.call_tool(tool, arguments), mode)
        [content] = found.content
        assert isinstance(content, types.TextContent)
        return content.text if found.is_error else found.structured_content

    def post(
        self,
        name: str | None,
        body: Any,
        headers: Mapping[str, str] = MappingProxyType({}),
        timeout: httpx2.Timeout = httpx2.Timeout(60),  # noqa: B008
    ) -> httpx2.Response:
        given = {} if name is None else {"authorization": f"Bearer {TOKENS[name]}"}
        given["accept"] = "application/json, text/event-stream"
        given["content-type"] = "application/json"
        content = body if isinstance(body, bytes) else json.dumps(body)
        with httpx2.Client(timeout=timeout) as http:
            return http.post(self.url, headers={**given, **headers}, content=content)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("mcp")
    keys = folder / "keys.toml"
    digests = {name: file.digest(token.encode()).hex() for name, token in TOKENS.items()}
    keys.write_text(
        "".join(f'[keys.{n}]\nsha256 = "{digests[n]}"\n{more}\n' for n, more in RIGHTS.items())
    )
    flags = ("--mcp", "--keys-file", str(keys), "--cors-origins", "https://app.example")
    # not the light bundle: a test needs an engine that stays busy
    with serving(folder / "log", *flags) as server:
        made = Site(server)
        with made.client("boss") as boss:
            documents: list[NewDocument] = [
                {"id": name, "text": text, "metadata": {"kind": name[:3]}, "links": ["cats"]}
                for name, text in TEXTS.items()
            ]
            for index in ("mine", "theirs"):
                boss.create_index(index, {"kind": "string"})
                boss.upsert_all(index, documents)
            labels = ["cat", "tax", "cat", "tax"]
            boss.train_classifier("topics", labels, inputs=[*TEXTS.values()])
        yield made
