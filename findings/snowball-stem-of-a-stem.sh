#!/bin/sh
# The Snowball stemmer for English changes its own stems.
#
# With PyStemmer 3.1.0. Guess: a stem is final, so to stem twice does no harm. Seen: of common words one in twenty-five has
# another stem the second time, and two words of different stems can meet there: "callees" (calle) becomes "call".
# Where an index stems, and a program has stemmed before it, such as one that keeps a column of stems,
# searches for those words find nothing, or the wrong ones; most words work, so no short test shows it.
# Joined here: words of a program and an index over words that stems them too.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet PyStemmer==3.1.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import Stemmer

EXPECTED = {
    "accelerate": ("acceler", "accel"),
    "advertising": ("advertis", "adverti"),
    "agrees": ("agre", "agr"),
    "aliases": ("alias", "alia"),
    "browse": ("brows", "brow"),
    "callees": ("calle", "call"),
    "canonicalize": ("canonic", "canon"),
    "searching": ("search", "search"),
}
stem = Stemmer.Stemmer("english").stemWord
print("PyStemmer", Stemmer.version(), "word: its stem, the stem of that")
seen = {word: (stem(word), stem(stem(word))) for word in EXPECTED}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
