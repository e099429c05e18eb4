"""The source of an answer: its page, its passage, and the lines of PDFs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.files.pdf import pdf
from benchmarks.files.source import Source
from tests.conftest import ROOT, Server, wait_until
from tests.page.browser import Tab, command
from tests.page.conftest import HEADERS

CLAUSE = (
    "The tenant pays the rent in advance, on or before the third working day of each month, by "
    "transfer to the account that the landlord names. Late payment bears interest from then on. "
)
ANSWER = (
    "The landlord returns the deposit within six months after the keys were handed back, less any "
    "sums that the tenant owes at that time."
)
# two pages of lines; the answer stands on the second
LEASE = Source(
    "A lease",
    "2024-03-07",
    [(1, "Rent"), *[(0, CLAUSE * 6)] * 5, (1, "Deposit"), (0, f"{ANSWER} {CLAUSE * 3}")],
)


@pytest.fixture(scope="module")
def lease(service: Server) -> Iterator[str]:
    """The name of an index with a PDF, and with a note of common words."""
    with httpx.Client(base_url=service.url, headers=HEADERS, timeout=60) as client:
        assert client.put("/indexes/leases", json={}).is_success
        note = b"The tenant has the keys of the house."
        files = [("files", ("lease.pdf", pdf(LEASE)[0])), ("files", ("note.txt", note))]
        job = client.post("/indexes/leases/files", files=files)
        wait_until(lambda: client.get(f"/jobs/{job.json()['id']}").json()["ended"], 60)
        yield "leases"
        client.delete("/indexes/leases")


@pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)
def test_an_answer_opens_at_its_page_with_the_passage_marked(
    tab: Tab, service: Server, lease: str
) -> None:
    tab.open(f"{service.url}/#/{lease}/search?q=the+deposit+is+returned")
    tab.wait("document.querySelector('.best .where a')")
    # the passage begins above the heading
    assert tab.text(".best .where") == "Deposit · page 2"
    assert not tab.text(".best blockquote").startswith("Deposit")
    quoted = " ".join(tab.text(".best blockquote").removesuffix(" …").split())
    tab.click(".best .where a")
    tab.wait("document.querySelector('.words mark')")
    marks = "[...document.querySelectorAll('.words mark')].map((e) => e.textContent)"
    passage = "".join(tab.run(marks))
    assert " ".join(passage.split()) == quoted
    # the lines of a paragraph are one
    before, heading, answer = passage.split("\n")
    assert before.endswith("from then on.")
    assert heading == "Deposit"
    assert ANSWER.startswith(answer)
    assert len(answer) > 50
    seen = "document.querySelector('.words mark').getBoundingClientRect()"
    tab.wait(f"{seen}.top >= 0 && {seen}.top < innerHeight")
    # page 2 begins above the passage, in the middle of a part
    assert tab.text(".page-start") == "page 2"
    above = "document.querySelector('.page-start').compareDocumentPosition("
    above += "document.querySelector('.words mark')) & Node.DOCUMENT_POSITION_FOLLOWING"
    assert tab.run(above)
    edges = tab.run("[...document.querySelectorAll('.edge span')].map((e) => e.textContent)")
    assert {edge.split(" · ")[-1] for edge in edges} == {"page 1", "page 2"}
    # the control: without an answer nothing is marked
    tab.open(f"{service.url}/#/{lease}/document?id=lease.pdf")
    tab.wait("document.querySelector('.words')")
    assert tab.run(marks) == []


WRAPPED = [
    # a paragraph of a PDF, the next one, and a heading
    "The tenant pays the rent in advance, on or before the third",
    "working day of each month, by transfer to the account that",
    "the landlord names in writing to the tenants.",
    "Either party may end this lease by a notice in writing, three",
    "months before the end of a quarter; mail is none in this lease.",
    "Termination",
    "The landlord returns it within six months after the keys were",
    "handed back.",
]
JOINED = [
    " ".join(WRAPPED[:3]),
    " ".join(WRAPPED[3:5]),
    "Termination",
    " ".join(WRAPPED[6:]),
]
PARAGRAPHS = "\n".join([f"{CLAUSE * 3}".strip(), f"{CLAUSE * 2}".strip()])
LIST = "apples\npears and plums\n- nuts\n"
CODE = "    a_long_call_of_a_function_with_several_arguments(one, two)\n    return"
COLUMN = "A column of a journal has short lines\nthat go on in the next ones."


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("\n".join(WRAPPED), JOINED),
        (COLUMN, [COLUMN.replace("\n", " ")]),
        *((text, text.split("\n")) for text in (PARAGRAPHS, LIST, CODE, "", "\n\n")),
    ],
    ids=["PDF", "column", "paragraphs", "list", "code", "empty", "breaks"],
)
def test_lines_of_a_paragraph_are_joined_in_place(text: str, lines: list[str]) -> None:
    script = 'import { joined } from "./texts.js"; console.log(JSON.stringify(joined('
    script += f"{json.dumps(text)})))"
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        cwd=ROOT / "features/page/ui",
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found.split("\n") == lines
    # links and marks stand at places of the text as it is stored
    assert len(found) == len(text)
