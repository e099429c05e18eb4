"""Sentence segmentation.

The project uses ``sentencex``, not blingfire or pysbd. ``studies/sentence_segmentation.py``
compares their speed and how they treat abbreviations; ``docs/explanation/decisions.md`` has the
figures.
"""

from sentencex import segment


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Non-empty sentences of ``text`` in order, without surrounding white space.

    Args:
        text: any text.
        language: ISO 639-1 code. A language without its own rules uses those of a related
            language or of English.
    """
    return [piece for piece in map(str.strip, segment(language, text)) if piece]
