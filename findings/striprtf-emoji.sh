#!/bin/sh
# striprtf gives an emoji as two halves that no encoding takes, and drops footnotes but keeps hidden text.
#
# With striprtf 0.0.35. RTF writes characters beyond 16 bits as two numbers, and Word does so for each emoji. Guess: the text
# has the emoji. Seen: it has two surrogates, so writing it to a file, a database or JSON in UTF-8 fails later, far from the
# reader. Guess: text that a reader of the page sees is kept and hidden text is not. Seen: the reverse, for footnotes and
# hidden text.
# Joined here: a reader of files and what stores its text.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet striprtf==0.0.35
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata

from striprtf.striprtf import rtf_to_text

EXPECTED = {"emoji": r"'\ud83d\ude01'", "in UTF-8": "refused", "footnote": "ab", "hidden": "ahiddenb"}
emoji = rtf_to_text(r"{\rtf1 \u-10179?\u-8703?}")
try:
    stored = emoji.encode().decode()
except UnicodeEncodeError:
    stored = "refused"
print("striprtf", importlib.metadata.version("striprtf"))
seen = {
    "emoji": ascii(emoji),
    "in UTF-8": stored,
    "footnote": rtf_to_text(r"{\rtf1 a{\footnote note}b}"),
    "hidden": rtf_to_text(r"{\rtf1 a\v hidden\v0 b}"),
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
