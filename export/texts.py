"""Real passages, pairs of them, and their token ids."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau
from tokenizers import Tokenizer

from docsplit.bundles.manifest import TOKENIZER
from docsplit.corpora.documents import text_of
from docsplit.corpora.fields import Fields
from docsplit.corpora.files import lines, suffix
from docsplit.corpora.tables import is_table, rows
from docsplit.windowing.pairs import PairTokenizer
from docsplit.windowing.tokens import LONGEST, DocumentTokenizer
from docsplit.windowing.vectors import pad
from docsplit.windowing.windows import Ids
from export.engines import Inputs
from export.errors import ExportError
from export.requirements import SAMPLES
from export.source import Checkpoint, Pair, Source

# Real passages of mixed length to calibrate int8 and to measure parity.

PEPS = Path(__file__).parent.parent / "examples" / "peps" / "documents.jsonl.gz"
CALIBRATION = 256
# Passages grow by paragraphs until they reach one of these numbers of words. The shortest are one
# paragraph, often a single line. The longest exceed a window of 512 tokens.
WORDS = (1, 1, 24, 48, 96, 192, 384)
# A lower bound of words per token. It gives longer windows longer passages.
_WORDS_PER_TOKEN = 0.75
_WORD = re.compile(r"[^\W\d_]{2,}")


class Passages(NamedTuple):
    """Two sets of passages that share no passage and, if there are enough, no document."""

    calibration: list[str]
    parity: list[str]


def read_passages(
    path: Path | None, *, parity: int, calibration: int | None = None, max_tokens: int = 512
) -> Passages:
    """Cut ``calibration`` + ``parity`` passages from the documents of a file; deterministic.

    Args:
        path: a table with a column ``text``, or UTF-8 text with one document per line, compressed
            or not. None means the Python Enhancement Proposals of ``examples/peps``.
        calibration: by default ``CALIBRATION``.
        max_tokens: the window that the longest passages should fill.

    Raises:
        DataError: the file cannot be read.
        ExportError: the file holds too few different passages.
    """
    path = path or PEPS
    calibration = CALIBRATION if calibration is None else calibration
    wanted = calibration + parity
    found = list(dict.fromkeys(_passages(list(documents(path)), wanted, _lengths(max_tokens))))
    if len(found) < wanted:
        raise ExportError(
            f"{path}: {len(found)} different passages, but {wanted} are needed "
            f"({calibration} to calibrate, {parity} to measure)"
        )
    return Passages(found[:calibration], found[calibration:wanted])


def documents(path: Path) -> Iterator[str]:
    """Stream the texts of a file; raises like ``read_passages``."""
    if path == PEPS and not path.is_file():
        raise ExportError(f"{path}: no such file; give real text with --calibration FILE")
    if is_table(path) or suffix(path) == ".json":
        for where, row in rows(path, ["text"], []):
            yield text_of(row, where, Fields()).text
    else:
        yield from (line.strip() for _, line in lines(path) if line.strip())


def _lengths(max_tokens: int) -> tuple[int, ...]:
    """``WORDS``, and multiples of the longest by powers of two up to the length of a window."""
    lengths: tuple[int, ...] = WORDS
    while 2 * lengths[-1] <= max_tokens * _WORDS_PER_TOKEN:
        lengths = (*lengths, 2 * lengths[-1])
    return lengths


def _passages(documents: list[str], wanted: int, lengths: tuple[int, ...]) -> Iterator[str]:
    """One passage of each document, then a second of each, until no passage is left."""
    chance = random.Random(0)  # noqa: S311  the same choice every time, no secret
    chance.shuffle(documents)
    cursors = [_paragraphs(text, chance) for text in documents]
    turn = 0
    # A later step drops duplicates, so this one yields more than needed.
    while cursors and turn < 4 * wanted + len(documents):
        for cursor in list(cursors):
            passage = _grow(cursor, lengths[turn % len(lengths)])
            turn += 1
            if passage:
                yield passage
            else:
                cursors.remove(cursor)


def _paragraphs(text: str, chance: random.Random) -> Iterator[str]:
    """Paragraphs from a random place on, then those before it, so not all are abstracts."""
    found = [p.strip("\n") for p in re.split(r"\n\s*\n", text) if _WORD.search(p)]
    start = chance.randrange(len(found)) if found else 0
    return iter(found[start:] + found[:start])


def _grow(paragraphs: Iterator[str], words: int) -> str:
    taken: list[str] = []
    while sum(len(p.split()) for p in taken) < words:
        paragraph = next(paragraphs, None)
        if paragraph is None:
            break
        taken.append(paragraph)
    return "\n\n".join(taken)


# of a batch; a long model takes gigabytes for eight of its windows at once
PADDED_TOKENS = 8_192


def write_tokenizer(source: Checkpoint, folder: Path, texts: list[str]) -> Tokenizer:
    """Write ``tokenizer.json`` and check on ``texts`` that it gives the same ids as the source, and
    of long ones in pieces.

    The service truncates and pads. A bundle that truncated would cut texts silently.

    Raises:
        ExportError: the ids differ.
    """
    path = folder / TOKENIZER
    tokenizer = Tokenizer.from_str(source.tokenizer.backend_tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    content = tokenizer.to_str(pretty=True)
    if source.tokenizer.split_special_tokens:
        # the file has no setting for it; the ids around a text stay in its post-processor
        fields = json.loads(content)
        fields["added_tokens"] = [one for one in fields["added_tokens"] if not one["special"]]
        content = json.dumps(fields, ensure_ascii=False, indent=2)
    # the tokenizer's own save raises no OSError on a full disk
    path.write_text(content, encoding="utf-8")
    written = Tokenizer.from_file(str(path))
    expected = source.tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]
    for text, ids, encoding in zip(texts, expected, written.encode_batch(texts), strict=True):
        if encoding.ids != ids:
            raise ExportError(
                f"{source.name}: tokenizer.json does not reproduce the source's ids, "
                f"for instance of {text[:60]!r}"
            )
    pieces, parts = DocumentTokenizer(written, source.max_tokens), [*texts, *SAMPLES.values()]
    for joint in ("\n", " "):
        long = joint.join(parts * (1 + 4 * LONGEST // sum(map(len, parts))))
        if pieces.encode(long).ids.tolist() != pieces.whole(long).ids:
            raise ExportError(
                f"{source.name}: the tokenizer does not split a long text in pieces as it splits "
                "the whole; its pre-tokenizer must split at white space and punctuation, as those "
                "of BERT, RoBERTa or SentencePiece do"
            )
    return written


def check_prompts(source: Source, tokenizer: Tokenizer) -> None:
    """Refuse a prompt that fills a window, as the service does when it starts.

    Raises:
        ExportError: the message names the prompt.
    """
    try:
        counted = DocumentTokenizer(tokenizer, source.max_tokens)
    except ValueError as error:
        raise ExportError(f"{source.name}: {error}; give more --max-tokens") from error
    for name, text in source.prompts.items():
        if counted.count(text) >= counted.capacity:
            raise ExportError(
                f"{source.name}: the prompt {name!r} of {counted.count(text)} tokens leaves no "
                f"room for text in a window of {source.max_tokens}; give more --max-tokens"
            )


def batches(
    tokenizer: Tokenizer, texts: list[str], *, max_tokens: int, pad_token_id: int, size: int
) -> list[dict[str, np.ndarray]]:
    """Model inputs of ``texts`` in order, cut to ``max_tokens``.

    A batch has at most ``size`` texts, and fewer if it would exceed ``PADDED_TOKENS``.

    Returns:
        ``input_ids`` and ``attention_mask``, int64 ``[batch, tokens]``, padded to the longest.
    """
    cut = Tokenizer.from_str(tokenizer.to_str())
    cut.enable_truncation(max_tokens)
    cut.no_padding()
    rows = [np.array(encoding.ids) for encoding in cut.encode_batch(texts)]
    return padded(rows, size, pad_token_id)


def padded(rows: Sequence[NDArray[np.integer[Any]]], size: int, pad_token_id: int) -> list[Inputs]:
    """Model inputs of rows of token ids, in order; see ``batches``."""
    groups: list[list[NDArray[np.integer[Any]]]] = []
    longest = 0
    for row in rows:
        longest = max(longest, len(row))
        group = groups[-1] if groups else []
        if not group or len(group) == size or longest * (len(group) + 1) > PADDED_TOKENS:
            longest = len(row)
            groups.append([row])
        else:
            group.append(row)
    names = ("input_ids", "attention_mask")
    return [dict(zip(names, pad(group, pad_token_id), strict=True)) for group in groups]


# texts of one query
TEXTS = 10
# lengths of queries in words, and at most
_WORDS = (3, 5, 8, 12)
_TOKENS = 32


def make_pairs(passages: Sequence[str], tokenizer: PairTokenizer) -> list[Pair]:
    """One pair for each passage. ``TEXTS`` passages in a row share a query.

    The query is a run of words from the middle of one of them, so one text answers it well and the
    others hardly do. It is short, so that a pair over the window only loses the end of its text.
    """
    most = min(_TOKENS, tokenizer.room // 4)
    pairs: list[Pair] = []
    for number, start in enumerate(range(0, len(passages), TEXTS)):
        texts = passages[start : start + TEXTS]
        words = texts[number % len(texts)].split()
        length = _WORDS[number % len(_WORDS)]
        first = max(0, (len(words) - length) // 2)
        query = " ".join(words[first : first + length])
        starts = tokenizer.documents.encode(query).starts
        query = query if len(starts) <= most else query[: starts[most]]
        pairs += [(query, text) for text in texts]
    return pairs


def pair_rows(tokenizer: PairTokenizer, pairs: Sequence[Pair]) -> list[Ids]:
    """The model's input for each pair, cut at the window."""
    return [tokenizer.row(query, text) for query, text in pairs]


def same_order(scores: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Agreement of two orders of each query's texts.

    Args:
        scores: of pairs as ``make_pairs`` gives them, float ``[pairs]``.
        reference: the same.

    Returns:
        Kendall's tau-b (Kendall 1945), the mean of the queries, and the share of queries for which
        both put the same text first.
    """
    taus, first = [], []
    for start in range(0, len(scores), TEXTS):
        mine, theirs = scores[start : start + TEXTS], reference[start : start + TEXTS]
        if len(mine) < 2:
            continue
        tau = float(kendalltau(mine, theirs).statistic)
        # not a number: one side scores all texts alike, so it has no order
        both = np.ptp(mine) == np.ptp(theirs)
        taus.append(tau if np.isfinite(tau) else float(both))
        first.append(mine.argmax() == theirs.argmax())
    return float(np.mean(taus)), float(np.mean(first))
