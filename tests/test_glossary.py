"""The glossary holds the terms that the documents use."""

from __future__ import annotations

import re

from tests.conftest import ROOT

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


def test_every_term_of_the_glossary_is_used() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page != GLOSSARY]
    said = " ".join("\n".join(p.read_text(encoding="utf-8") for p in pages).lower().split())
    assert len(terms) > 20
    assert [term for term in terms if term.lower() not in said] == []
