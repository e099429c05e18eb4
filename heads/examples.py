"""Labelled documents: what may be learnt from them, and how they are stored."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from heads.bounds import MOST_LABELS

UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Examples:
    """Labelled texts, kept so that a head can be trained again for another bundle.

    Attributes:
        labels: those of each text; exactly one unless ``multi_label``.
        unlabelled: an index whose documents help, without labels.
    """

    inputs: list[str]
    labels: list[list[str]]
    multi_label: bool = False
    unlabelled: str | None = None

    @property
    def characters(self) -> int:
        """Code points of all texts."""
        return sum(map(len, self.inputs))

    def counts(self) -> dict[str, int]:
        """Examples of each label, sorted by label."""
        return count(self.labels)

    def digests(self) -> set[bytes]:
        """Of the texts."""
        return set(map(digest, self.inputs))

    def to_bytes(self) -> bytes:
        """Compressed JSON, made a text at a time, so that it takes little beside its result."""
        labels = self.labels if self.multi_label else [label for [label] in self.labels]
        packing = zlib.compressobj()
        parts = [packing.compress(b"[[")]
        for position, text in enumerate(self.inputs):
            parts.append(packing.compress((b"," if position else b"") + orjson.dumps(text)))
        rest = orjson.dumps([labels, self.unlabelled])
        parts.append(packing.compress(b"]," + rest[1:]))
        return b"".join((*parts, packing.flush()))

    @classmethod
    def from_bytes(cls, blob: bytes) -> Examples:
        """What ``to_bytes`` wrote."""
        inputs, labels, unlabelled = orjson.loads(zlib.decompress(blob))
        if isinstance(labels[0], list):
            return cls(inputs, labels, multi_label=True)
        return cls(inputs, [[label] for label in labels], unlabelled=unlabelled)


def digest(text: str) -> bytes:
    """16 bytes that tell texts apart."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def count(labels: Sequence[Sequence[str]]) -> dict[str, int]:
    """Examples of each label, sorted by label."""
    return dict(sorted(Counter(label for given in labels for label in given).items()))


def check(labels: Sequence[Sequence[str]], multi_label: bool) -> None:
    """Raise ValueError, with a remedy, where a classifier cannot be trained and tested on these."""
    counts = count(labels)
    if UNSURE in counts:
        raise ValueError(f"labels: {UNSURE!r} is what /classify answers below its threshold")
    if len(counts) > MOST_LABELS:
        raise ValueError(
            f"labels: there are {len(counts)} different labels, the limit is {MOST_LABELS}: give "
            "fewer, or train several classifiers"
        )
    if len(counts) < 2:
        held = "only one label" if counts else "no label"
        raise ValueError(f"labels: there is {held}: give examples of two or more")
    if min(counts.values()) < 2:
        raise ValueError(
            "labels: a label has a single example: give two or more of each, since every "
            "example is tested by a head that has not seen it"
        )
    if not multi_label:
        return
    for position, given in enumerate(labels):
        if len(set(given)) < len(given):
            raise ValueError(f"labels: item {position} names a label twice")
    if max(counts.values()) > len(labels) - 2:
        raise ValueError(
            "labels: all examples, or all but one, have the same label: give two or more "
            "without it, since there is nothing to tell apart otherwise"
        )
