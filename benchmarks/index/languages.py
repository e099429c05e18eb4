"""Does each word of a short text find it among 200 others of its language? In 20 languages.

    python -m benchmarks.index.languages

``languages.json`` holds ten sentences in each language, which were written for this benchmark and
are in the public domain (CC0). Blanks divide the words there, and the texts of Thai, Japanese and
Chinese have none. Five sentences are looked for among 200 texts of words of the other five, then
the other way round.

A word of at least two characters that one sentence has is looked for by itself. ``forms`` are other
forms of words, for English and Korean. The command prints the share for which the first hit is the
sentence with the word.
"""

import json
import random
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import httpx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rig import server
from benchmarks.rig.server import call

OTHERS = 200
# words of one of them
WORDS = 7
WITHOUT_BLANKS = ("Thai", "Japanese", "Chinese")
MODES = ("words", "hybrid")


def main() -> None:
    """Index, search and print."""
    held = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    table = Table("language", "words", *MODES, "forms", *MODES, title="first hits that are right")
    with (
        tempfile.TemporaryDirectory() as folder,
        server.started(f"--index-path={folder}") as service,
        httpx.Client(base_url=service.url, timeout=600) as client,
    ):
        for number, (language, given) in enumerate(track(held.items(), "languages")):
            table.add_row(language, *measured(client, f"l{number}", language, given))
    Console(width=120).print(table)


def measured(client: httpx.Client, index: str, language: str, given: dict[str, Any]) -> list[str]:
    """The number of words and their shares by each mode, then those of other forms."""
    between = "" if language in WITHOUT_BLANKS else " "
    sentences = [[word.strip(".,。") for word in text.split()] for text in given["texts"]]
    counts = Counter(word.lower() for words in sentences for word in set(words))
    half = len(sentences) // 2
    right: dict[tuple[bool, str], list[bool]] = defaultdict(list)
    for number, chosen in enumerate((slice(half), slice(half, None))):
        inside = {word.lower() for words in sentences[chosen] for word in words}
        others = composed(sorted(counts.keys() - inside), between)
        texts = [between.join(text.split(" ")) for text in given["texts"][chosen]]
        documents = [{"id": f"{at}", "text": text} for at, text in enumerate([*texts, *others])]
        call(client, "PUT", f"/indexes/{index}-{number}", {})
        call(client, "POST", f"/indexes/{index}-{number}/documents", {"documents": documents})
        for at, words in enumerate(sentences[chosen]):
            own = [word for word in words if counts[word.lower()] == 1]
            own = [word for word in own if len(word) > 1 or not between]
            forms = [form for form, word in given.get("forms", {}).items() if word in words]
            for text, other in [(word, False) for word in own] + [(form, True) for form in forms]:
                for mode in MODES:
                    hit = first(client, f"{index}-{number}", text, mode)
                    right[other, mode].append(hit == str(at))
    row = []
    for other in (False, True):
        row.append(str(len(right[other, MODES[0]]) or ""))
        row += [f"{mean(found):.3f}" if (found := right[other, mode]) else "" for mode in MODES]
    return row


def composed(words: list[str], between: str) -> list[str]:
    """Texts of some of the words."""
    draw = random.Random(0)
    return [between.join(draw.sample(words, WORDS)) for _ in range(OTHERS)]


def first(client: httpx.Client, index: str, text: str, mode: str) -> str | None:
    """The id of the first hit, if any."""
    body = {"index": index, "text": text, "mode": mode, "top_k": 1}
    hits = call(client, "POST", "/similar", body)
    return hits[0]["id"] if hits else None


if __name__ == "__main__":
    main()
