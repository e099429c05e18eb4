"""Uploads of files to a running service."""

from __future__ import annotations

import gzip
import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import docx
import httpx
import pytest

from docsplit.extraction.kinds import KINDS
from tests.conftest import Server, answered, connect, wait_until
from tests.index.conftest import call, count

Files = list[tuple[str, tuple[str, bytes]]]


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """The texts and their words matter."""
    return light_server


def form(files: dict[str, bytes]) -> Files:
    return [("files", (name, content)) for name, content in files.items()]


def word(heading: str, text: str) -> bytes:
    document = docx.Document()
    document.add_heading(heading, 1)
    document.add_paragraph(text)
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def packed(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return written.getvalue()


def upload(server: Server, index: str, files: dict[str, bytes], **query: str) -> str:
    """The id of the job."""
    answer = httpx.post(
        f"{server.url}/indexes/{index}/files", files=form(files), params=query, timeout=60
    )
    assert answer.status_code == 202, answer.text
    job: str = answer.json()["id"]
    assert answer.headers["location"] == f"/jobs/{job}"
    return job


def ended(server: Server, job: str) -> Any:
    """The job, once it has ended."""
    wait_until(lambda: call(server, "GET", f"/jobs/{job}")["ended"] is not None, 60)
    return call(server, "GET", f"/jobs/{job}")


def spooled(server: Server) -> list[str]:
    """Open files without names in the folder of uploads."""
    folder = str(server.log.with_name("index") / "scratch")
    found = []
    for path in Path(f"/proc/{server.process.pid}/fd").iterdir():
        # one that has just been closed
        with suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return [one for one in found if one.startswith(folder)]


def test_a_bad_file_takes_nothing_with_it(server: Server, index: str) -> None:
    files = {
        "2026/pens.docx": word("Pens", "Ink flows from a pen onto paper. " * 20),
        "torn.pdf": b"%PDF-1.7 torn",
        "plan.exe": b"MZ",
        "notes.txt": b"We met in May and spoke of wool.",
        "march.txt.gz": gzip.compress(b"We met in March and spoke of silk."),
        "rows.csv.gz": gzip.compress(b"id,text\n1,a\n"),
        "june.txt.zst": b"\x28\xb5\x2f\xfd",
        "all.zip": packed({"a.md": b"# Apples\n\nThey grow on trees.", "b.pdf": b"%PDF-"}),
        "pictures.zip": packed({"a.png": b"\x89PNG"}),
    }
    job = ended(server, upload(server, index, files))
    assert (job["state"], job["error"]) == ("succeeded", None)
    assert job["files"] == {"total": 9, "done": 4, "failed": 5}
    assert job["documents"] == {"written": 4, "unchanged": 0, "marked": 0}
    refused = {one["id"]: one["reason"] for one in job["refused"]}
    unknown = {"plan.exe", "rows.csv.gz", "june.txt.zst"}
    assert refused.keys() == {"torn.pdf", "all.zip/b.pdf", "pictures.zip"} | unknown
    assert refused["pictures.zip"].startswith("no file of a known kind in it")
    assert "docsplit-index" in refused["rows.csv.gz"]
    assert ".gz" in refused["june.txt.zst"]
    text = call(server, "GET", f"/indexes/{index}/documents/march.txt.gz")["text"]
    assert text == "We met in March and spoke of silk."
    assert refused["plan.exe"].endswith(", ".join(KINDS))
    [best] = call(server, "POST", "/passages", {"index": index, "text": "ink and pens", "top_k": 1})
    assert best["id"] == "2026/pens.docx"
    assert best["passages"][0]["heading"] == "Pens"
    # the same files again change nothing, and a changed one replaces its document
    again = ended(server, upload(server, index, files | {"notes.txt": b"We met in June."}))
    assert again["documents"] == {"written": 1, "unchanged": 3, "marked": 0}
    assert count(server, index) == 4
    listed = [one["id"] for one in call(server, "GET", "/jobs")["jobs"] if one["index"] == index]
    assert listed == [again["id"], job["id"]]
    # a near-duplicate under another name is left out only if the upload says so
    further = {"copy.md": b"# Apples\n\nThey grow on trees.", "new.md": b"Bread rises in an oven."}
    careful = ended(server, upload(server, index, further, on_duplicate="refuse"))
    assert careful["documents"]["written"] == 1
    assert [one["id"] for one in careful["refused"]] == ["copy.md"]
    assert ended(server, upload(server, index, further))["documents"]["written"] == 1
    assert spooled(server) == []


def test_near_duplicates_are_marked(server: Server, index: str) -> None:
    apples, bread = b"# Apples\n\nThey grow on old trees.", b"Bread rises in a warm oven."
    files = {"a.md": apples, "b.md": apples + b" We eat them.", "c.txt": bread}
    job = ended(server, upload(server, index, files, on_duplicate="mark"))
    assert job["documents"] == {"written": 3, "unchanged": 0, "marked": 1}
    # of two documents of one upload the later one is marked
    [marked] = job["duplicates"]
    assert marked["id"] == "b.md"
    assert [one["id"] for one in marked["duplicates"]] == ["a.md"]
    assert 0.4 <= marked["duplicates"][0]["resemblance"] < 1
    again = {"c.txt": bread, "d.txt": bread, "e.txt": b"Ships sail west."}
    job = ended(server, upload(server, index, again, on_duplicate="mark"))
    assert job["documents"] == {"written": 2, "unchanged": 1, "marked": 1}
    [marked] = job["duplicates"]
    assert marked == {"id": "d.txt", "duplicates": [{"id": "c.txt", "resemblance": 1.0}]}
    # a near-duplicate in the same upload is also refused
    grapes = b"Grapes ripen in the late summer sun."
    pair = {
        "g.txt": grapes,
        "h.txt": grapes + b" So they do.",
        "i.txt": b"Snow falls in the hills.",
    }
    job = ended(server, upload(server, index, pair, on_duplicate="refuse"))
    assert job["documents"] == {"written": 2, "unchanged": 0, "marked": 0}
    assert [one["id"] for one in job["refused"]] == ["h.txt"]
    assert "g.txt" in job["refused"][0]["reason"]
    # an upload that does not ask compares nothing
    job = ended(server, upload(server, index, {"f.txt": bread}))
    assert (job["documents"]["marked"], job["duplicates"]) == (0, [])


def test_links_are_found_in_the_files_and_to_them(server: Server, index: str) -> None:
    def links(files: dict[str, bytes], **query: str) -> Any:
        job = ended(server, upload(server, index, files, **query))
        assert (job["state"], job["error"]) == ("succeeded", None)
        return job["links"]

    files = {"pep-12.txt": b"See PEP 30 and AB-700.", "pep-20.txt": b"As PEP 12 says, and PEP 44."}
    assert links(files) is None
    call(server, "GET", f"/indexes/{index}/links", status=404)
    # "PEP 12" names the file pep-12.txt
    assert links(files, find_links="true") == 1
    asked = {"find_links": "true", "link_rule": "pep-2*.txt=AB-700"}
    assert links(files, **asked) == 2
    # the new file is cited by a former one
    assert links({"pep-30.txt": b"It stands for itself."}, **asked) == 3
    assert call(server, "GET", f"/indexes/{index}/links")["links"] == 3
    [link] = call(server, "GET", f"/indexes/{index}/documents/pep-30.txt/links")["links"]
    assert (link["id"], link["direction"], link["found"]) == ("pep-12.txt", "cited_by", True)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("find_links=true&link_rule=pep-*", "link_rule"),
        ("find_links=true&link_rule=a-**=A%20*", "link_rule"),
        ("find_links=true&" + "link_rule=a=b&" * 33, "link_rule"),
        ("find_links=true&" + "link_field=doi&" * 9, "link_field"),
        ("link_rule=pep-*=PEP%20*", "find_links=true"),
        ("link_field=doi", "find_links=true"),
        ("on_duplicate=forget", "on_duplicate"),
    ],
)
def test_wrong_options_of_an_upload_are_refused(
    server: Server, empty: str, query: str, said: str
) -> None:
    answer = httpx.post(f"{server.url}/indexes/{empty}/files?{query}", files=form({"a.txt": b"a"}))
    assert answer.status_code == 422, answer.text
    assert said in answer.json()["error"]


@pytest.mark.folder
def test_a_cancelled_job_ends(server: Server, index: str, peps: dict[str, str]) -> None:
    files = {f"{name}.txt": text.encode() for name, text in list(peps.items())[:200]}
    job = upload(server, index, files)
    waiting = upload(server, index, {"late.txt": b"late"})
    assert call(server, "DELETE", f"/jobs/{waiting}")["state"] == "cancelled"
    wait_until(lambda: call(server, "GET", f"/jobs/{job}")["state"] == "running", 30)
    assert spooled(server) != []
    cancelled = call(server, "DELETE", f"/jobs/{job}")
    assert cancelled["state"] == "cancelled"
    assert cancelled["ended"] is not None
    assert cancelled["documents"]["written"] < 200
    assert spooled(server) == []
    assert server.metric("docsplit_upload_bytes") == 0
    # what it has indexed stays, and nothing comes later
    assert count(server, index) == cancelled["documents"]["written"]
    assert call(server, "DELETE", f"/jobs/{job}")["state"] == "cancelled"
    assert call(server, "GET", f"/jobs/{waiting}")["documents"]["written"] == 0


def test_the_name_of_a_file_may_have_quotes(server: Server, index: str) -> None:
    names = {'12" of "ink" \\ \'.txt', "100%.txt", "%2522;a=b.txt", "</p>{}.txt", "\u202eé.txt"}
    assert ended(server, upload(server, index, dict.fromkeys(names, b"Ink.")))["refused"] == []
    found = call(server, "GET", f"/indexes/{index}/documents?limit=1000")["documents"]
    assert names <= {one["id"] for one in found}


HEAD = '--x\r\ncontent-disposition: form-data; name="files"{}\r\n\r\n'
NAMED = HEAD.format('; filename="a.txt"')


@pytest.mark.parametrize(
    ("kind", "body", "status", "said"),
    [
        ("application/json", "{}", 415, "multipart/form-data"),
        ("multipart/form-data", NAMED, 415, "boundary"),
        (f"multipart/form-data; boundary={'x' * 300}", NAMED, 415, "boundary"),
        ("multipart/form-data; boundary=x", NAMED + "half", 400, "could not be read"),
        ("multipart/form-data; boundary=x", "no form", 400, "could not be read"),
        ("multipart/form-data; boundary=x", "", 400, "could not be read"),
        ("multipart/form-data; boundary=x", "--x--\r\n", 422, "at least one"),
        ("multipart/form-data; boundary=x", HEAD.format("") + "a\r\n--x--", 422, "part 1"),
        ("multipart/form-data; boundary=x", (NAMED + "\r\n") * 1001, 413, "1000 files"),
    ],
)
def test_a_body_that_is_no_form_of_files_is_refused(
    server: Server, empty: str, kind: str, body: str, status: int, said: str
) -> None:
    answer = httpx.post(
        f"{server.url}/indexes/{empty}/files",
        content=body,
        headers={"content-type": kind},
        timeout=60,
    )
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]
    assert spooled(server) == []


def started(server: Server, index: str, length: int) -> Any:
    """A connection on which an upload has begun."""
    connection = connect(server)
    head = f"POST /indexes/{index}/files HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n"
    connection.sendall(f"{head}content-type: multipart/form-data; boundary=x\r\n\r\n".encode())
    return connection


def test_a_body_over_the_limit_is_refused_before_it_comes(server: Server, empty: str) -> None:
    with started(server, empty, 600_000_000) as connection:
        answer = answered(connection)
        assert answer.status == 413
        assert b"max_upload_bytes" in answer.read()
    # a route that is not there needs no body either
    with started(server, "no-such-index", 1000) as connection:
        assert answered(connection).status == 404


@pytest.mark.folder
def test_a_client_that_leaves_half_way_leaves_nothing(server: Server, index: str) -> None:
    with started(server, index, 3_000_000) as connection:
        connection.sendall(NAMED.encode() + b"a" * 2_000_000)
        wait_until(lambda: server.metric("docsplit_upload_bytes") > 1_000_000, 10)
        assert spooled(server) != []
    wait_until(lambda: server.metric("docsplit_upload_bytes") == 0, 10)
    assert spooled(server) == []
    jobs = call(server, "GET", "/jobs?limit=1000")["jobs"]
    assert index not in {job["index"] for job in jobs}
