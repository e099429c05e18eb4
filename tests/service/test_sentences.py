"""Sentence boundaries: correct on prose, linear on hostile text."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from docsplit.windowing import sentences
from docsplit.windowing.sentences import LONGEST_PARAGRAPH, sentence_starts


def split(text: str) -> list[str]:
    edges = [0, *sentence_starts(text), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def test_abbreviations_do_not_end_sentences() -> None:
    text = (
        "Dr. Smith went to Washington, D.C. on Jan. 5th. They met Mr. Doe (cf. Fig. 3). It ended."
    )
    assert [s.strip() for s in split(text)] == [
        "Dr. Smith went to Washington, D.C. on Jan. 5th.",
        "They met Mr. Doe (cf. Fig. 3).",
        "It ended.",
    ]


def test_numbers_of_provisions_do_not_begin_sentences() -> None:
    text = (
        "We use Eq. 5 and Tab. 3 here. Approx. 20 % of them, see para. 4 and Art. 5 of the act. "
        "Under Civ. 2 and Abs. 3 it ends. The cat sat on the mat. 20 others came."
    )
    assert [s.strip() for s in split(text)] == [
        "We use Eq. 5 and Tab. 3 here.",
        "Approx. 20 % of them, see para. 4 and Art. 5 of the act.",
        "Under Civ. 2 and Abs. 3 it ends.",
        # the controls: a word that only ends like one of them, and another one
        "The cat sat on the mat.",
        "20 others came.",
    ]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Wir sahen z. B. einen Hund.", "Er wohnt in der Bachstr. 5, d. h. am Rhein."]),
        ("de", ["Im 19. Jahrhundert war das anders.", "Nach Abs. 2 gilt dies bzw. das."]),
        ("en", ["Siehe Abb. 4 und Nr. 12 und S. 3.", "Im 19. Jahrhundert war das anders."]),
        ("en", ["Le par. 4 et l'al. 2 suffisent.", "Voir fig. 3."]),
        ("en", ["The cat sat on the mat.", "It is 19.", "Jim came with Dr. Smith.", "20 came."]),
    ],
)
def test_abbreviations_before_numbers_and_ordinals_end_no_sentence(
    language: str, sentences: list[str]
) -> None:
    text = " ".join(sentences)
    edges = [0, *sentence_starts(text, language), len(text)]
    assert [text[a:b].strip() for a, b in pairwise(edges)] == sentences


def test_the_mark_of_a_note_belongs_to_the_sentence_before() -> None:
    sentences = ["He said so.¹ ", "She said “no.”¹² ", "It ended.[^3] ", "2³ is 8."]
    assert split("".join(sentences)) == sentences


def test_lines_without_marks_end_sentences_unless_they_are_wrapped() -> None:
    lines = [f"item {number} of a list\n" for number in range(100)]
    assert split("".join(lines)) == lines
    assert split("The items are\n" + "".join(lines) + "and no other.")[:2] == [
        "The items are\n",
        lines[0],
    ]
    wrapped = "A sentence that an author\nhas wrapped at some\nwidth ends here. "
    assert split(wrapped * 100) == [wrapped] * 100


def test_paragraphs_and_other_scripts() -> None:
    assert [
        s.strip() for s in split("A heading\n\nSome text\nwrapped. 这是一个句子。这是另一个。")
    ] == [
        "A heading",
        "Some text\nwrapped.",
        "这是一个句子。",
        "这是另一个。",
    ]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "one", "\x00", "a.\n\n\n\nb", "\n" * 50])
def test_sentences_joined_are_the_text(text: str) -> None:
    assert "".join(split(text)) == text


def test_paragraph_beyond_the_limit_is_still_split() -> None:
    text = "A sentence of some words stands here. " * (LONGEST_PARAGRAPH // 20)
    assert len(split(text)) == LONGEST_PARAGRAPH // 20


@pytest.mark.parametrize(
    "sentence",
    [
        "यह एक छोटा वाक्य है। ",
        "এটি একটি ছোট বাক্য।",
        "یہ ایک چھوٹا جملہ ہے۔ ",
        "هل هذه جملة قصيرة؟ ",
        "Սա կարճ նախադասություն է։ ",
        "ဒါက ဝါကျတိုပါ။ ",
        "ይህ አጭር ዓረፍተ ነገር ነው። ",
        "这是一个句子。",
    ],
)
def test_a_long_paragraph_of_any_script_has_its_sentences(sentence: str) -> None:
    for count in (3, LONGEST_PARAGRAPH // 5):
        assert split(sentence * count) == [sentence] * count


@pytest.mark.parametrize("unit", ["“a. b", '"', "(", ". ", "word ", "a\n"])
def test_hostile_text_reaches_the_quadratic_library_only_in_small_pieces(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [0]
    segment = sentencex.segment

    def spy(language: str, text: str) -> list[str]:
        lengths.append(len(text))
        return segment(language, text)

    monkeypatch.setattr(sentencex, "segment", spy)
    sentence_starts(unit * (300_000 // len(unit)))
    assert max(lengths) <= LONGEST_PARAGRAPH
    sentence_starts("the control: an ordinary paragraph is given to the library")
    assert len(lengths) > 1


def test_an_unclosed_quote_moves_no_boundary_in_other_paragraphs(long_document: str) -> None:
    text = long_document[:20_000]
    plain = sentence_starts("She said so.\n\n" + text)
    quoted = sentence_starts("She s“id so.\n\n" + text)
    assert quoted == plain
    assert len(plain) > 100


# the rules as single expressions, which hold the GIL for the whole text
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*|(?<=[.!?:;。！？।])[^\S\n]*\n\s*")
_PLAIN_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？।])\s*|\n+")


@given(st.text(alphabet="ab.!。।: \n\t\r\u3000", max_size=30))
@pytest.mark.parametrize("step", [1, 3, sentences._STEP])
def test_steps_find_what_single_expressions_find(step: int, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "_STEP", step)
        paragraphs = list(sentences._paragraph_ends(text))
        plain = set(sentences._plain_ends(text))
    ends = [found.end() for found in _PARAGRAPH_END.finditer(text)]
    assert paragraphs == ends
    assert plain == {found.end() for found in _PLAIN_END.finditer(text)}
