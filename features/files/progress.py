"""What a job that indexes an upload has done so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from docsplit.corpora.documents import Refused
from service.index.query.duplicates import Match
from service.index.rows import fields

# refusals that a job keeps, the first ones
MOST_REFUSALS = 100
_REASON_CHARACTERS = 500
# documents with near-duplicates that a job keeps, the first ones, and the most similar of each
MOST_MARKED = 100
MOST_MATCHES = 3

Why = Literal["kind", "unreadable", "invalid", "duplicate", "engine"]


@dataclass(slots=True)
class Progress:
    """What a job has done.

    Attributes:
        done, failed: files that were read, and files that could not be.
        written, unchanged: documents that the index has now, and had before.
        marked: written documents with near-duplicates.
        refused: the first refusals of files, files in archives, and documents.
        refusals: numbers of all refusals, by reason.
        duplicates: the first marked documents, and ids and resemblances of their near-duplicates.
        links: pairs of documents that a search for links found; None before its end.
    """

    files: int
    done: int = 0
    failed: int = 0
    written: int = 0
    unchanged: int = 0
    marked: int = 0
    refused: list[Refused] = field(default_factory=list)
    refusals: dict[Why, int] = field(default_factory=dict)
    duplicates: list[tuple[str, list[tuple[str, float]]]] = field(default_factory=list)
    links: int | None = None

    def refuse(self, name: str, why: Why, reason: str) -> None:
        """Count a refusal; names in archives may hold anything."""
        self.refusals[why] = self.refusals.get(why, 0) + 1
        if len(self.refused) < MOST_REFUSALS:
            shown = name.encode(errors="replace").decode()[: fields.ID_CHARACTERS]
            self.refused.append(Refused(shown, reason[:_REASON_CHARACTERS]))

    def mark(self, name: str, matches: Sequence[Match]) -> None:
        """Count a written document with near-duplicates, the most similar first."""
        self.marked += 1
        if len(self.duplicates) < MOST_MARKED:
            named = [(one.hit.id, one.resemblance) for one in matches[:MOST_MATCHES]]
            self.duplicates.append((name, named))

    def counts(self) -> dict[str, int]:
        """The numbers of files, documents and refusals."""
        return {
            "files": self.files,
            "done": self.done,
            "failed": self.failed,
            "written": self.written,
            "unchanged": self.unchanged,
            "marked": self.marked,
            "refused": sum(self.refusals.values()),
        }

    def details(self) -> dict[str, Any]:
        """The first refusals, the first documents with near-duplicates, and the found links."""
        return {
            "refused": [[one.id, one.reason] for one in self.refused],
            "duplicates": self.duplicates,
            "links": self.links,
        }
