"""Labelled documents: checks them for training, and stores them."""

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

# width of the network's hidden layer
HIDDEN = 128
# limits of the documents and labels of one training
MOST_EXAMPLES = 100_000
MOST_LABELS = 4096
# limit of the unlabelled documents; more add time and hardly any accuracy
MOST_UNLABELLED = 500
# limit of a training's peak memory, without its texts
MOST_BYTES = 500_000_000
# limit of the scores in one answer
MOST_SCORES = 200_000

# L-BFGS keeps 25 numbers of 8 bytes a parameter, plus points and gradients
_PARAMETER_BYTES = 32 * 8
# the vectors; those of all folds but one; and these with unlabelled documents
_VECTORS = 3 * 4
# for each example and label: a held-out logit; with several labels also the truth and the guess
_PAIR_BYTES = {False: 5, True: 8}
# examples while they pass through the network
_PARTS_BYTES = 64_000_000


def training_bytes(examples: int, labels: int, dimensions: int, multi_label: bool) -> int:
    """Peak memory of a training in bytes.

    Args:
        examples: labelled and unlabelled documents.
        labels: the network's outputs.
        dimensions: of the documents' vectors.
        multi_label: whether an example may have several.
    """
    parameters = (dimensions + 1) * HIDDEN + (HIDDEN + 1) * labels
    held = examples * (dimensions * _VECTORS + labels * _PAIR_BYTES[multi_label])
    return parameters * _PARAMETER_BYTES + held + _PARTS_BYTES


def check_training(examples: int, labels: int, dimensions: int, multi_label: bool) -> None:
    """Raise ValueError, with a remedy, if a training would take more than ``MOST_BYTES``."""
    size = training_bytes(examples, labels, dimensions, multi_label)
    if size > MOST_BYTES:
        raise ValueError(
            f"a training on {examples} examples x {labels} labels (vectors of {dimensions} "
            f"dimensions) takes {size // 1_000_000} MB, the limit is {MOST_BYTES // 1_000_000} MB: "
            "give fewer examples, or fewer labels"
        )


def check_answer(inputs: int, outputs: int, top_k: int | None) -> None:
    """Raise ValueError, with a remedy, if an answer would have more than ``MOST_SCORES``."""
    shown = outputs if top_k is None else min(top_k, outputs)
    if inputs * shown > MOST_SCORES:
        raise ValueError(
            f"top_k: {inputs} inputs x {shown} labels are {inputs * shown} scores, the limit is "
            f"{MOST_SCORES}: set top_k to {max(1, MOST_SCORES // inputs)} or less, or send fewer "
            "inputs"
        )


UNSURE = "unsure"
NONE = "none"

# a JSON string of a list, and the character after it; the quantifiers do not backtrack
_STRING = re.compile(rb'[\s\[]*+("(?:[^"\\]++|\\.)*+")\s*+([,\]])', re.DOTALL)
# bytes that are decompressed at once
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Examples:
    """Labelled texts, kept so that a head can be trained again for another bundle.

    Attributes:
        labels: of each text; exactly one unless ``multi_label``.
        unlabelled: index whose documents help without labels.
        model: name of the bundle whose vectors the head reads; None: the service's default one.
        labelled_in: of the last examples, which people labelled in indexes: the names by which they
            did, one for each example.
        replaced: for each of these, the labels of an example of the same text that it replaces.
    """

    inputs: list[str]
    labels: list[list[str]]
    multi_label: bool = False
    unlabelled: str | None = None
    model: str | None = None
    labelled_in: Sequence[str] = ()
    replaced: Sequence[list[str] | None] = ()

    @property
    def characters(self) -> int:
        """Code points of all texts."""
        return sum(map(len, self.inputs))

    def counts(self) -> dict[str, int]:
        """Examples of each label, sorted by label."""
        return count(self.labels)

    def distinct(self) -> list[int]:
        """Positions of the examples without copies, which have the text and labels of another."""
        firsts: dict[tuple[str, ...], int] = {}
        for place, (text, own) in enumerate(zip(self.inputs, self.labels, strict=True)):
            firsts.setdefault((text, *own), place)
        return [*firsts.values()]

    def check_texts(self) -> None:
        """Raise ValueError, with a remedy, if all examples of a label have the same text."""
        pairs = zip(self.inputs, self.labels, strict=True)
        different = {(text, label) for text, given in pairs for label in given}
        for label, texts in Counter(label for _, label in different).items():
            if texts < 2:
                raise ValueError(
                    f"labels: all examples of {label!r} have the same text: give two or more "
                    "different texts of each label, because a head that has not seen a text tests "
                    "it"
                )

    def to_bytes(self) -> bytes:
        """Compressed JSON, made one text at a time to save memory."""
        labels = self.labels if self.multi_label else [label for [label] in self.labels]
        packing = zlib.compressobj()
        parts = [packing.compress(b"[[")]
        for position, text in enumerate(self.inputs):
            parts.append(packing.compress((b"," if position else b"") + orjson.dumps(text)))
        # earlier versions read no fourth item
        further: list[Any] = [self.model]
        if self.labelled_in:
            further += [list(self.labelled_in), list(self.replaced)]
        rest = orjson.dumps([labels, self.unlabelled, *(further if any(further) else ())])
        parts.append(packing.compress(b"]," + rest[1:]))
        return b"".join((*parts, packing.flush()))

    @classmethod
    def from_bytes(cls, blob: bytes) -> "Examples":
        """Read the result of ``to_bytes``."""
        inputs, labels, unlabelled, *further = orjson.loads(zlib.decompress(blob))
        # earlier versions wrote fewer items
        model = further[0] if further else None
        labelled_in = further[1] if len(further) > 1 else ()
        replaced = further[2] if len(further) > 2 else (None,) * len(labelled_in)
        several = isinstance(labels[0], list)
        lists = labels if several else [[label] for label in labels]
        return cls(inputs, lists, several, unlabelled, model, labelled_in, replaced)


def unpacked(blob: bytes) -> int:
    """Bytes of the texts and labels in a result of ``to_bytes``; holds a few of them at once.

    Raises:
        zlib.error: the blob is damaged.
    """
    unpacking = zlib.decompressobj()
    size = 0
    while part := unpacking.decompress(blob, _CHUNK):
        size += len(part)
        blob = unpacking.unconsumed_tail
    return size


def digests(blob: bytes) -> set[bytes]:
    """Digests of the texts in a result of ``to_bytes``; holds one text at a time.

    Raises:
        ValueError, zlib.error: the blob is damaged.
    """
    return set(map(digest, _texts(blob)))


def _texts(blob: bytes) -> Iterator[str]:
    unpacking = zlib.decompressobj()
    packed, held, start = blob, b"", 0
    while True:
        found = _STRING.match(held, start)
        if found is not None:
            yield orjson.loads(found[1])
            start = found.end()
            if found[2] == b"]":
                return
            continue
        held, start = held[start:], 0
        # the steps double, so that a long text is not searched too often
        more = unpacking.decompress(packed, max(_CHUNK, len(held)))
        packed = unpacking.unconsumed_tail
        if not (more or packed):
            raise ValueError("the texts are cut off")
        held += more


def digest(text: str) -> bytes:
    """A text's digest of 16 bytes."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def count(labels: Sequence[Sequence[str]]) -> dict[str, int]:
    """Examples of each label, sorted by label."""
    return dict(sorted(Counter(label for given in labels for label in given).items()))


def check(labels: Sequence[Sequence[str]], multi_label: bool) -> None:
    """Raise ValueError, with a remedy, if these labels cannot train and test a classifier."""
    counts = count(labels)
    if UNSURE in counts:
        raise ValueError(f"labels: {UNSURE!r} is the answer of /classify below its threshold")
    if len(counts) > MOST_LABELS:
        raise ValueError(
            f"labels: there are {len(counts)} different labels, the limit is {MOST_LABELS}: give "
            "fewer, or train several classifiers"
        )
    if len(counts) < 2:
        held = "only one label" if counts else "no label"
        raise ValueError(f"labels: there is {held}: give examples of two or more")
    if single := [label for label, examples in counts.items() if examples < 2]:
        raise ValueError(
            f"labels: {single[0]!r} has a single example: give two or more of each label, because "
            "a head that has not seen an example tests it"
        )
    if not multi_label:
        return
    for position, given in enumerate(labels):
        if len(set(given)) < len(given):
            raise ValueError(f"labels: item {position} names a label twice")
    if max(counts.values()) > len(labels) - 2:
        raise ValueError(
            "labels: all examples, or all but one, have the same label: give two or more "
            "without it, so that the head can learn a difference"
        )
