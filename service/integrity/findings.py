"""The results of a check."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a stored file or document.

    Attributes:
        table: database and table, such as ``indexes/papers.0123456789ab.89abcdef``.
        what: the fault.
        file: relative to the table's folder; a file of the ledger relative to ``index_path``.
        document: its id.
        part: the damaged part of the document.
    """

    table: str
    what: str
    file: str | None = None
    document: str | None = None
    part: str | None = None

    def __str__(self) -> str:
        place = f"{self.table}: "
        if self.file is not None:
            place += f"file {self.file}: "
        if self.document is not None:
            place += f"document {self.document!r}: "
        return f"{place}{self.part}: {self.what}" if self.part else place + self.what


@dataclass(slots=True)
class Report:
    """The extent of a check, and its findings.

    Attributes:
        unverified: rows of an earlier version, without checksums.
        unrecorded: files without a recorded digest.
        quoted: documents that versions up to 0.1.0 may have confused with others.
    """

    tables: int = 0
    rows: int = 0
    unverified: int = 0
    files: int = 0
    unrecorded: int = 0
    findings: list[Finding] = field(default_factory=list)
    quoted: list[Finding] = field(default_factory=list)
