"""How often are the links right that the texts' identifiers and titles give?

    python -m studies.links_from_text data/specs_cite --mask --rule "eip-*=ERC *" \\
        --rule "rust-rfc-*=RFC *@rust-rfc-*"
    python -m studies.links_from_text data/aan_scisumm

A folder has the tables ``documents`` (id, title, text) and ``citations`` (citing, cited). Links
between two values of the column ``collection`` do not count, if the table of citations has none.

With ``--mask`` the command repeats the search by titles in texts without identifiers, for which it
deletes the matches of the set's pattern in ``corpora.catalogue``. "plain" is the match of every
title of 20 characters as it stands there.
"""

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from docsplit.corpora.catalogue import MASKS
from docsplit.corpora.documents import read_links
from docsplit.corpora.tables import is_table, rows
from docsplit.ranking.references import Named, References, Rule
from service.bulk.link_flags import rule

Pairs = set[tuple[str, str]]
# characters of a title
_PLAIN = 20


def main() -> None:
    """Find links and print how many are right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rule", type=rule, action="append", default=[])
    parser.add_argument("--mask", action="store_true")
    given = parser.parse_args()
    files = {path.name.split(".")[0]: path for path in given.folder.iterdir() if is_table(path)}
    documents = [
        row for _, row in rows(files["documents"], ["id", "text"], ["title", "collection"])
    ]
    right = {pair for pair in read_links(files["citations"]) if pair[0] != pair[1]}
    judge = Judge(documents, right)
    table = Table("names", "links found", "right", "precision", "recall", "seconds")
    judge.add(table, "identifiers and titles", documents, given.rule)
    judge.add(table, "identifiers", documents, given.rule, titles=False)
    if given.mask:
        mask = re.compile(MASKS[given.folder.resolve().name])
        documents = [
            {**row, "text": mask.sub("", row["text"]), "title": mask.sub("", row["title"] or "")}
            for row in documents
        ]
    judge.add(table, "titles", documents, (), ids=False)
    judge.plain(table, documents)
    Console().print(table)


class Judge:
    """Compares found links with the right ones.

    Args:
        documents: rows with ``id`` and perhaps ``collection``.
        right: pairs of citing and cited ids.
    """

    def __init__(self, documents: Sequence[Mapping[str, str]], right: Pairs) -> None:
        self._right = right
        self._collection = {row["id"]: row.get("collection") for row in documents}
        self._within = all(self._same(pair) for pair in right)

    def add(
        self,
        table: Table,
        name: str,
        documents: Sequence[Mapping[str, str]],
        rules: Sequence[Rule],
        *,
        ids: bool = True,
        titles: bool = True,
    ) -> None:
        """Find links by identifiers, titles or both, and add a row for each to the table."""
        named = [Named(row["id"], row["title"] or "") for row in documents]
        started = time.perf_counter()
        references = References(named, rules, ids=ids, titles=titles)
        found = {
            (row["id"], named[one.cited].id)
            for row in track(documents, name)
            for one in references.find(row["text"], row["id"])[0]
        }
        self._row(table, name, found, time.perf_counter() - started)

    def plain(self, table: Table, documents: Sequence[Mapping[str, str]]) -> None:
        """Find titles as they stand, without regard to what is around them."""
        from ahocorasick_rs import AhoCorasick

        started = time.perf_counter()
        titles = {row["title"].lower(): row["id"] for row in documents if row["title"]}
        long = {title: name for title, name in titles.items() if len(title) >= _PLAIN}
        owners = list(long.values())
        automaton = AhoCorasick(list(long))
        found = {
            (row["id"], owners[number])
            for row in documents
            for number, _, _ in automaton.find_matches_as_indexes(row["text"].lower(), True)
        }
        self._row(table, "plain titles", found, time.perf_counter() - started)

    def _row(self, table: Table, name: str, found: Pairs, seconds: float) -> None:
        judged = {pair for pair in found if pair[0] != pair[1] and self._judged(pair)}
        hits = len(judged & self._right)
        precision, recall = hits / max(1, len(judged)), hits / len(self._right)
        numbers = (f"{precision:.3f}", f"{recall:.3f}", f"{seconds:.1f}")
        table.add_row(name, str(len(judged)), str(hits), *numbers)

    def _judged(self, pair: tuple[str, str]) -> bool:
        return not self._within or self._same(pair)

    def _same(self, pair: tuple[str, str]) -> bool:
        return self._collection.get(pair[0]) == self._collection.get(pair[1])


if __name__ == "__main__":
    main()
