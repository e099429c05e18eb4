"""Does a search find a sentence in the middle of a long document? All modes of POST /passages.

    docsplit-index documents.jsonl --index papers --index-path data/papers
    python -m benchmarks.index.passages --index-path data/papers --index papers

The command works on a copy of the index. It takes some documents out of it, and plants one sentence
of each into every document of a second set: documents of the index, joined until they have 20,000
words. The sentences stand between a third and two thirds of the long documents. Nothing else in
the index contains them.

The queries are not written by people. ``reworded`` replaces words by those of a short list of
synonyms, puts what follows the first comma before it, and leaves out function words.
``half`` also leaves out every second of the other words. The command prints the share of the
sentence's words that a query keeps, function words aside.

A query is right if the first hit is the long document, and its first passage contains the planted
sentence.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import bootstrap

from benchmarks.rig import server
from benchmarks.rig.server import call

MODES = ("cosine", "words", "hybrid")
WORDS = 20_000
_FUNCTION = """
    a also an and are as at be been between both but by can could do does each for from had has
    have here how however if in into is it its may more most no not of on or our over such than
    that the their them then there these they this those thus to under use used using was we
    were what when where which while who will with would you your
"""
_SYNONYMS = """
    method:technique methods:techniques approach:strategy approaches:strategies show:demonstrate
    shows:demonstrates showed:demonstrated propose:suggest proposed:suggested present:describe
    presented:described results:outcomes result:outcome large:big small:little new:novel
    improve:enhance improves:enhances improved:enhanced performance:quality problem:issue
    problems:issues task:job tasks:jobs different:various several:multiple many:numerous
    important:crucial obtain:get obtained:got find:discover found:discovered based:founded
    system:program systems:programs paper:article work:research number:amount example:instance
    first:initial second:next evaluate:assess evaluated:assessed compare:contrast
    compared:contrasted achieve:reach achieved:reached train:fit trained:fitted
    information:knowledge simple:plain complex:complicated common:frequent often:frequently
    because:since requires:needs require:need contains:includes contain:include increase:raise
    reduce:lower reduces:lowers significant:substantial main:principal
"""
FUNCTION = frozenset(re.findall(r"\w+", _FUNCTION))
SYNONYMS = dict(re.findall(r"(\w+):(\w+)", _SYNONYMS))


def main() -> None:
    """Plant, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index-path", type=Path, required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--long", type=int, default=40, help="long documents")
    parser.add_argument("--each", type=int, default=5, help="sentences planted in each")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with server.on_copy(given.index_path) as client:
        content = measure(client, given.index, given.long, given.each)
    if given.json is not None:
        given.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def measure(client: httpx.Client, index: str, long: int, each: int) -> dict[str, Any]:
    """The share of first hits that are right, by kind of query and mode."""
    console = Console(highlight=False)
    draw = random.Random(1)
    names = list_names(client, index)
    draw.shuffle(names)
    texts = {name: read(client, index, name) for name in names}
    common = shared_runs(texts.values())
    planted: dict[str, tuple[str, str]] = {}
    # taken out before any document is joined: no long document may contain one of them
    chosen: list[str] = []
    while len(chosen) < long * each:
        name = names.pop()
        client.delete(f"/indexes/{index}/documents/{name}").raise_for_status()
        chosen += sentences_of(texts[name], common, draw)[:1]
    for number in range(long):
        sentences = chosen[number * each : (number + 1) * each]
        parts: list[str] = []
        while sum(len(part.split()) for part in parts) < WORDS:
            parts.append(texts[draw.choice(names)])
        text = "\n\n".join(parts)
        for place, sentence in enumerate(sentences):
            at = text.index(". ", int(len(text) * (0.34 + 0.33 * place / each))) + 2
            text = f"{text[:at]}{sentence} {text[at:]}"
            planted[sentence] = (f"long-{number}", "")
        body = {"documents": [{"id": f"long-{number}", "text": text}]}
        call(client, "POST", f"/indexes/{index}/documents", body)
        for sentence in sentences:
            planted[sentence] = (f"long-{number}", text)
    held = call(client, "GET", f"/indexes/{index}")["documents"]
    # after five quiet seconds the service merges and indexes what was written
    time.sleep(20)
    content: dict[str, Any] = {"documents": held, "queries": len(planted)}
    for kind in ("reworded", "half"):
        queries = {one: reworded(one, draw, halved=kind == "half") for one in planted}
        kept = np.mean([share_kept(one, query) for one, query in queries.items()])
        content[kind] = {"kept": float(kept)}
        table = Table(title=f"{kind}: {kept:.0%} of the words kept, {len(planted)} queries, {held}")
        for heading in (
            "mode",
            "right",
            "low",
            "high",
            "document first",
            "in ten",
            "p50 ms",
            "p99",
        ):
            table.add_column(heading, justify="right")
        for mode in MODES:
            figures = look(client, index, mode, queries, planted)
            right = figures["right"]
            low, high = bootstrap((right,), np.mean, method="percentile", rng=0).confidence_interval
            row = {
                "right": right.mean(),
                "low": low,
                "high": high,
                "document_first": figures["first"].mean(),
                "in_ten": figures["ten"].mean(),
                "p50_ms": np.percentile(figures["ms"], 50),
                "p99_ms": np.percentile(figures["ms"], 99),
            }
            content[kind][mode] = {key: float(value) for key, value in row.items()}
            table.add_row(mode, *(f"{value:.3f}" for value in row.values()))
        console.print(table)
    return content


def look(
    client: httpx.Client,
    index: str,
    mode: str,
    queries: dict[str, str],
    planted: dict[str, tuple[str, str]],
) -> dict[str, Any]:
    """For each query whether the first hit is right, and the milliseconds of the request."""
    found: dict[str, list[float]] = {"right": [], "first": [], "ten": [], "ms": []}
    for sentence, query in queries.items():
        name, text = planted[sentence]
        # its vector is cached, so that the time below leaves it out
        call(client, "POST", "/embed", {"inputs": query})
        began = time.monotonic()
        hits = call(client, "POST", "/passages", {"index": index, "text": query, "mode": mode})
        found["ms"].append((time.monotonic() - began) * 1000)
        best = hits[0]["passages"][0] if hits else {"start": 0, "end": 0}
        first = bool(hits) and hits[0]["id"] == name
        # a window may end within the sentence: half of it must be inside
        at = text.index(sentence)
        shared = min(best["end"], at + len(sentence)) - max(best["start"], at)
        found["right"].append(first and shared * 2 >= len(sentence))
        found["first"].append(first)
        found["ten"].append(any(hit["id"] == name for hit in hits))
    return {key: np.array(values, dtype=np.float64) for key, values in found.items()}


def runs(text: str) -> set[tuple[str, ...]]:
    """All runs of three words."""
    words = re.findall(r"\w+", text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))


def shared_runs(texts: Iterable[str]) -> set[tuple[str, ...]]:
    """Runs of three words that several texts have."""
    once: set[tuple[str, ...]] = set()
    several: set[tuple[str, ...]] = set()
    for text in texts:
        own = runs(text)
        several |= own & once
        once |= own
    return several


def sentences_of(text: str, common: Set[tuple[str, ...]], draw: random.Random) -> list[str]:
    """Sentences of 12 to 40 words from the first half of a text, in random order.

    Most of their runs of three words occur in no other text: some papers exist in two versions.
    """
    found = [one.strip() for one in re.split(r"(?<=[.!?])\s+", text[: len(text) // 2])]
    whole = [one for one in found if one[:1].isupper() and one.endswith(".") and "\n" not in one]
    fitting = [one for one in whole if 12 <= len(re.findall(r"[A-Za-z]{2,}", one)) <= 40]
    own = [one for one in fitting if len(runs(one) & common) < len(runs(one)) / 2]
    return draw.sample(own, len(own))


def reworded(sentence: str, draw: random.Random, *, halved: bool) -> str:
    """The query for a sentence, see above."""
    head, comma, tail = sentence.rstrip(".").partition(", ")
    words = re.findall(r"[\w'-]+", f"{tail} {head}" if comma else head)
    words = [SYNONYMS.get(word.lower(), word) for word in words if word.lower() not in FUNCTION]
    if halved:
        words = [words[i] for i in sorted(draw.sample(range(len(words)), (len(words) + 1) // 2))]
    return " ".join(words)


def share_kept(sentence: str, query: str) -> float:
    """The share of the sentence's words, function words aside, that the query has."""
    words = {w for w in re.findall(r"[\w'-]+", sentence.lower()) if w not in FUNCTION}
    return len(words & set(re.findall(r"[\w'-]+", query.lower()))) / max(1, len(words))


def list_names(client: httpx.Client, index: str) -> list[str]:
    """Ids of all documents."""
    names: list[str] = []
    after = ""
    while True:
        page = call(client, "GET", f"/indexes/{index}/documents?after={after}&limit=500")
        names += [document["id"] for document in page["documents"]]
        if page["next"] is None:
            return names
        after = page["next"]


def read(client: httpx.Client, index: str, name: str) -> str:
    """The text of a document."""
    return str(call(client, "GET", f"/indexes/{index}/documents/{name}")["text"])


if __name__ == "__main__":
    main()
