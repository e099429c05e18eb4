"""Links in sentences written for each family of identifiers, and for titles.

    python -m tests.ranking.test_families

prints how many of the links are found and right, by family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from docsplit.ranking.references import Named, References

SENTENCES = Path(__file__).with_name("families.txt")
LEAST = 40


@dataclass(frozen=True)
class Family:
    """The documents and sentences of a family, each sentence with the documents that it cites."""

    name: str
    documents: dict[str, Named]
    sentences: list[tuple[str, frozenset[str]]]

    def found(self, sentence: str) -> frozenset[str]:
        """The documents that links lead to from a sentence."""
        documents = list(self.documents.values())
        references, _ = References(documents).find(sentence, "citing")
        return frozenset(documents[one.cited].id for one in references)


def families() -> Iterator[Family]:
    """What the table of sentences has."""
    for part in SENTENCES.read_text(encoding="utf-8").split("\n## ")[1:]:
        name, *lines = part.strip().split("\n")
        family = Family(name, {}, [])
        for line in lines:
            left, _, right = line.replace("\\n", "\n").partition(
                " = " if " = " in line[:10] else " | "
            )
            if " = " in line[:10]:
                title = right.startswith("~ ")
                family.documents[left] = (
                    Named(left, right[2:]) if title else Named(left, "", (right,))
                )
            else:
                cited = frozenset(left.split()) - {"-"}
                family.sentences.append((right.replace("\\u00ad", "\u00ad"), cited))
        yield family


FAMILIES = {family.name: family for family in families()}


@pytest.mark.parametrize(
    ("family", "sentence", "cited"),
    [(name, *one) for name, family in FAMILIES.items() for one in family.sentences],
)
def test_sentences(family: str, sentence: str, cited: frozenset[str]) -> None:
    assert FAMILIES[family].found(sentence) == cited


def test_each_family_has_sentences_with_and_without_links() -> None:
    assert FAMILIES.keys() == {"doi", "arxiv", "series", "law", "patent", "isbn", "eu", "title"}
    for family in FAMILIES.values():
        citing = sum(bool(cited) for _, cited in family.sentences)
        assert len(family.sentences) >= LEAST
        assert LEAST / 4 <= citing <= len(family.sentences) - LEAST / 4
        # the control: without the documents nothing is found
        assert not References([]).find(family.sentences[0][0], "citing")[0]


def main() -> None:
    """Print precision and recall of each family."""
    table = Table("family", "sentences", "links", "found", "right", "precision", "recall")
    for family in FAMILIES.values():
        links = found = right = 0
        for sentence, cited in family.sentences:
            own = family.found(sentence)
            links, found, right = links + len(cited), found + len(own), right + len(own & cited)
        shares = f"{right / max(1, found):.3f}", f"{right / max(1, links):.3f}"
        table.add_row(family.name, *map(str, (len(family.sentences), links, found, right)), *shares)
    Console().print(table)


if __name__ == "__main__":
    main()
