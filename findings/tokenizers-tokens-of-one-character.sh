#!/bin/sh
# Several tokens of tokenizers have the same offsets, so a text cut between tokens can be cut into nothing.
#
# With tokenizers 0.23.3. Guess: the offsets of tokens follow each other, and each covers a part of the text of its own. Seen: the
# bytes of an emoji are four tokens with the offsets of the whole emoji, and a character that NFKC spells out (one sign for
# four Arabic words) is eight tokens at (0, 1). Cuts by offsets give the same character to two windows, or an empty window, and a
# limit on tokens cannot be kept by cutting there. A cut must go to the first token of the next character.
# Joined here: tokenizers, normal forms and offsets.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tokenizers==0.23.3
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

EXPECTED = {
    "emoji": [(0, 1), (1, 2), (2, 3), (2, 3), (2, 3), (2, 3)],
    "sign": [(0, 1)] * 8 + [(1, 3)],
}
letters = pre_tokenizers.ByteLevel.alphabet()
of_bytes = Tokenizer(models.BPE())
of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
of_bytes.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=letters, show_progress=False))
of_words = Tokenizer(models.Unigram([("<unk>", 0), ("\u2581", -2), ("\u2581a", -1)], 0, False))
of_words.normalizer = normalizers.NFKC()
of_words.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
print("tokenizers", tokenizers.__version__)
seen = {
    "emoji": of_bytes.encode("a \U0001f600").offsets,
    "sign": of_words.encode("\ufdfa a").offsets,
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
