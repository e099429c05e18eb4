#!/bin/sh
# selectolax's `text()` of a page has its scripts and styles, glues paragraphs, and lacks what is in a template.
#
# With selectolax 1.0.2 (Lexbor). Guess: `body.text()` is about what a browser shows, as the name and the examples suggest.
# Seen: it is the DOM's textContent: the source of scripts and styles is in it, the last word of a paragraph and the first
# of the next are one word, `<br>` leaves nothing, and the title of a drawing is a part of the sentence. The content of
# `<template>` is missing, and selectors do not find it. Remove scripts and styles, and put separators, before.
# Joined here: a parser of pages and an index over words.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet selectolax==1.0.2
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata

from selectolax.lexbor import LexborHTMLParser

EXPECTED = {
    "text": "one twothreefourvar five = 5p {}",
    "separator": "one two|three|four|var five = 5|p {}",
    "paragraphs": 2,
}
page = LexborHTMLParser(
    "<body><p>one two<br>three</p><p>four</p><script>var five = 5</script><style>p {}</style>"
    "<template><p>six</p></template></body>"
)
print("selectolax", importlib.metadata.version("selectolax"))
seen = {
    "text": page.body.text(),
    "separator": page.body.text(separator="|"),
    "paragraphs": len(page.css("p")),
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
