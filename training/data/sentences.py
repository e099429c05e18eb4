"""Sentence segmentation.

``sentencex`` was chosen over blingfire and pysbd. ``studies/sentence_segmentation.py``
compares their speed and how they treat abbreviations; ``docs/explanation/decisions.md`` has the
figures.
"""

from __future__ import annotations

from sentencex import segment


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Sentences of ``text`` in order, without surrounding white space, none of them empty.

    Args:
        text: any text.
        language: ISO 639-1 code; a language without rules of its own falls back to a related one
            or to English.
    """
    return [piece for piece in map(str.strip, segment(language, text)) if piece]
