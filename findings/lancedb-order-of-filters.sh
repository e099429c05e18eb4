#!/bin/sh
# LanceDB's full-text index stems before it leaves out stop words and before it folds accents.
#
# With lancedb 0.40.0 and the defaults of `FTS` (English, stem, stop words, ASCII folding):
# - a word whose stem is a stop word is never found: theses (these), willing (will), ins, buts;
# - "resume" finds no text with "résumé": the one has the stem "resum", the other "resume";
# - a word of 40 bytes or more is never found, such as a SHA-1 or a Russian word of 20 letters:
#   `max_token_length` counts bytes, and the length itself is left out.
# The control: without stems, and with a greater length, each is found.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet lancedb==0.40.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import asyncio

import lancedb
from lancedb.index import FTS

SHA = "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3"
# what is looked for, and the word of the text
CASES = [("theses", "theses"), ("willing", "willing"), ("ins", "ins"), ("buts", "buts")]
CASES += [("resume", "résumé"), (SHA, SHA), ("предпринимательского",) * 2]
# one byte less, and a stem that is no stop word
CONTROL = [(SHA[:39], SHA[:39]), ("notes", "notes"), ("предпринимательског",) * 2]


async def found(name: str, index: FTS) -> list[str]:
    database = await lancedb.connect_async("data")
    rows = [{"n": n, "text": f"see {word} here"} for n, (_, word) in enumerate(CASES + CONTROL)]
    table = await database.create_table(name, rows)
    await table.create_index("text", config=index)
    hits = []
    for n, (asked, _) in enumerate(CASES + CONTROL):
        query = table.query().nearest_to_text(asked, columns=["text"])
        if n in (await query.to_arrow())["n"].to_pylist():
            hits.append(asked)
    return hits


async def main() -> None:
    by_default = await found("defaults", FTS())
    exact = await found("exact", FTS(stem=False, remove_stop_words=False, max_token_length=200))
    print("lancedb", lancedb.__version__)
    print("found with the defaults:", by_default)
    print("found without stems and stop words:", exact)
    assert exact == [asked for asked, _ in CASES + CONTROL]
    missing = [asked for asked, _ in CASES if asked not in by_default]
    assert missing == [asked for asked, _ in CASES], "it changed: the finding is out of date"
    assert set(by_default) == {asked for asked, _ in CONTROL}


asyncio.run(main())
PY
