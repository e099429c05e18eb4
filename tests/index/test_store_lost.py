"""A store that is gone, full or read-only while the service runs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.errors import StoreError
from service.index.storage.database import connect
from service.index.storage.volume import Volume
from tests.conftest import Server, serving, wait_until
from tests.index.conftest import call, upsert

GONE = "the store at index_path is gone"


def mounted(path: Path, size: str = "6m") -> bool:
    """Whether a new, small file system in memory is now mounted at a path.

    Existing folders are never mounted again, because pytest removes the contents of its folders.
    """
    path.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def remounted(path: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(path)], check=True)


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mounted file system of a few MB; a test that unmounts it mounts it again."""
    path = tmp_path_factory.mktemp("volume") / "index"
    if os.geteuid() or not mounted(path):
        pytest.skip("mounting a small file system takes root")
    try:
        yield path
    finally:
        while path.is_mount():
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture(scope="module")
def server(volume: Path, light: tuple[str, ...]) -> Iterator[Server]:
    """A service whose store is on this volume and has two indexes."""
    log = volume.with_name("log")
    with serving(log, "--index-path", str(volume), *light) as running:
        for name in ("kept", "freed"):
            call(running, "PUT", f"/indexes/{name}", {}, status=201)
            upsert(running, name, {"id": "a", "text": "a text"})
        yield running


def events(server: Server, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line[:1] == "{"]
    return [line for line in lines if line["event"] == name]


def ready(server: Server) -> tuple[int, bool, list[str]]:
    answer = httpx.get(f"{server.url}/readyz")
    return answer.status_code, answer.json()["degraded"], answer.json()["reasons"]


def errors(server: Server, reason: str) -> float:
    for line in httpx.get(f"{server.url}/metrics").text.splitlines():
        if line.startswith(f'docsplit_store_errors_total{{reason="{reason}"}}'):
            return float(line.split()[1])
    return 0.0


def fill(volume: Path) -> Path:
    """Fill the volume completely."""
    path = volume / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return path


def test_a_full_volume_refuses_writes_until_there_is_room(server: Server, volume: Path) -> None:
    filler = fill(volume)
    body = {"documents": [{"id": "b", "text": "b text"}]}
    answer = call(server, "POST", "/indexes/kept/documents", body, status=503)
    assert answer["error_type"] == "Store"
    assert "full" in answer["error"]
    call(server, "PUT", "/indexes/another", {}, status=503)
    assert errors(server, "ENOSPC") == 2
    assert events(server, "store_failed")[-1]["reason"] == "ENOSPC"
    assert ready(server) == (200, True, ["store_enospc"])
    # existing documents can be read, and vectors are computed
    assert call(server, "GET", "/indexes/kept/documents/a")["text"] == "a text"
    call(server, "POST", "/embed", {"inputs": "a text"})
    filler.unlink()
    call(server, "DELETE", "/indexes/freed", status=204)
    assert call(server, "GET", "/indexes") == {"indexes": ["kept"]}
    upsert(server, "kept", {"id": "b", "text": "b text"})
    assert ready(server) == (200, False, [])


def test_a_read_only_volume_can_be_read(
    server: Server, volume: Path, light: tuple[str, ...]
) -> None:
    remounted(volume, "ro")
    try:
        # a service that starts on this volume also reads it
        flags = ("--index-path", str(volume), *light)
        with serving(volume.with_name("log2"), *flags) as started:
            for one in (server, started):
                assert call(one, "GET", "/indexes") == {"indexes": ["kept"]}
                assert call(one, "GET", "/indexes/kept/documents/a")["text"] == "a text"
                query = {"index": "kept", "text": "a text"}
                assert call(one, "POST", "/similar", query)[0]["id"] == "a"
                # it has created no table for them
                assert call(one, "GET", "/classifiers") == {"classifiers": [], "untrained": []}
                body = {"documents": [{"id": "c", "text": "c text"}]}
                answer = call(one, "POST", "/indexes/kept/documents", body, status=503)
                assert "read-only" in answer["error"]
                call(one, "DELETE", "/indexes/kept", status=503)
    finally:
        remounted(volume, "rw")
    upsert(server, "kept", {"id": "c", "text": "c text"})


def test_a_lost_mount_does_not_count_as_an_empty_store(server: Server, volume: Path) -> None:
    subprocess.run(["umount", "--lazy", str(volume)], check=True)
    refused(server)
    assert list(volume.iterdir()) == []
    # another store in its place is also refused
    assert mounted(volume)
    (volume / "docsplit-store.json").write_text('{"id": "another", "format": 1}')
    refused(server)


def test_to_connect_again_creates_no_folder_without_the_volume(tmp_path: Path) -> None:
    async def scenario() -> None:
        root = tmp_path / "index"
        volume = Volume(str(root), "fsync", lambda _: None)
        await volume.claim()
        database = await connect(f"{root}/indexes", volume)
        # as after the caches are replaced
        database.disconnect()
        assert await database.open() is not None
        database.disconnect()
        aside = root.rename(tmp_path / "aside")
        root.mkdir()
        with pytest.raises(StoreError, match=GONE):
            await database.open()
        assert list(root.iterdir()) == []
        root.rmdir()
        aside.rename(root)
        assert await database.open() is not None
        volume.close()

    asyncio.run(scenario())


def refused(server: Server) -> None:
    """Check that every route of the store reports its loss and creates nothing."""
    body = {"documents": [{"id": "z", "text": "z text"}]}
    examples = {"inputs": ["a", "b", "c", "d"], "labels": list("xxyy")}
    for method, path, json_body in (
        ("GET", "/indexes", None),
        ("GET", "/indexes/kept", None),
        ("PUT", "/indexes/fresh", {}),
        ("DELETE", "/indexes/kept", None),
        ("POST", "/indexes/kept/documents", body),
        ("GET", "/indexes/kept/documents/a", None),
        ("POST", "/similar", {"index": "kept", "text": "a"}),
        ("GET", "/classifiers", None),
        ("PUT", "/classifiers/fresh", examples),
        ("POST", "/classify", {"inputs": "a cat", "classifier": "c"}),
    ):
        answer = httpx.request(method, f"{server.url}{path}", json=json_body, timeout=60)
        assert answer.status_code == 503, (method, path, answer.text)
        assert GONE in answer.json()["error"], (method, path, answer.text)
    assert ready(server) == (200, True, ["store_gone"])
    assert server.metric("docsplit_store_up") == 0
    call(server, "POST", "/embed", {"inputs": "a text"})


def test_an_emptied_store_is_not_created_again(tmp_path: Path, light: tuple[str, ...]) -> None:
    folder = tmp_path / "index"
    with serving(tmp_path / "log", *light) as server:
        assert call(server, "GET", "/indexes") == {"indexes": []}
        assert server.metric("docsplit_store_up") == 1
        call(server, "PUT", "/indexes/kept", {}, status=201)
        aside = tmp_path / "aside"
        aside.mkdir()
        for path in folder.iterdir():
            shutil.move(path, aside / path.name)
        refused(server)
        assert list(folder.iterdir()) == []
        for path in aside.iterdir():
            shutil.move(path, folder / path.name)
        wait_until(lambda: httpx.get(f"{server.url}/indexes").status_code == 200, 10)
        assert call(server, "GET", "/indexes") == {"indexes": ["kept"]}
        assert server.metric("docsplit_store_up") == 1
        # and the folder itself
        folder.rename(tmp_path / "away")
        refused(server)
        assert not folder.exists()


def test_a_store_of_a_former_version_gets_an_identity(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    with serving(tmp_path / "log", *light) as server:
        call(server, "PUT", "/indexes/kept", {}, status=201)
    identity = tmp_path / "index" / "docsplit-store.json"
    first = identity.read_text()
    identity.unlink()
    with serving(tmp_path / "log", *light) as server:
        assert call(server, "GET", "/indexes") == {"indexes": ["kept"]}
        assert json.loads(identity.read_text())["id"] != json.loads(first)["id"]
        # a damaged identity in its old place does not count as another store
        identity.write_text("")
        assert call(server, "GET", "/indexes") == {"indexes": ["kept"]}
        time.sleep(1.5)
        assert call(server, "GET", "/indexes") == {"indexes": ["kept"]}
        assert json.loads(identity.read_text())["format"] == 1
