"""What a PDF's pages repeat goes, what only looks alike stays; divided words become whole."""

from __future__ import annotations

import pytest

from docsplit.extraction.building import HYPHEN, joined, without_repeated


def test_headers_footers_and_page_numbers_go() -> None:
    pages = [
        ["A header", f"{n + 7} Chapter", f"{letter} begins", f"{letter} ends", f"Page {n + 1} of 6"]
        for n, letter in enumerate("abcdef")
    ]
    assert without_repeated(pages) == [[f"{one} begins", f"{one} ends"] for one in "abcdef"]


def test_left_and_right_pages_may_have_other_headers() -> None:
    headers = ["A title of the book", "The author's name"]
    pages = [[headers[n % 2], f"Words {chr(97 + n)}"] for n in range(10)]
    assert without_repeated(pages) == [[f"Words {letter}"] for letter in "abcdefghij"]


def test_what_few_pages_repeat_stays_once() -> None:
    pages = [["A header", f"Words {letter}", f"More {letter}", "Signed by"] for letter in "abcd"]
    words = [page[1:3] for page in pages]
    assert without_repeated(pages) == [["A header", *words[0], "Signed by"], *words[1:]]
    # a fifth one shows that these are no text
    pages.append(["A header", "Words e", "More e", "Signed by"])
    assert without_repeated(pages) == [*words, ["Words e", "More e"]]


def test_the_header_of_a_short_chapter_goes_if_it_counts_the_pages() -> None:
    heads = ["Chapter 1: One", "Chapter 2: Two", "Chapter 3: Three", "Chapter 4: Four"]
    pages = [[f"{heads[n // 3]} {n + 9}", f"Words {chr(97 + n)}"] for n in range(12)]
    assert without_repeated(pages) == [[words] for _, words in pages]
    # without the number it may be the beginning of the text
    pages = [[heads[n // 3], words] for n, (_, words) in enumerate(pages)]
    assert without_repeated(pages) == pages


def test_no_line_goes_that_is_nowhere_else() -> None:
    steps = ["The plan", "A first point", "A second point", "A third point"]
    # a slide that is shown in steps, tickets, and a line above a header
    assert without_repeated([steps[:2], steps[:3], steps, ["The end"]]) == [
        steps[:2],
        steps[2:3],
        steps[3:],
        ["The end"],
    ]
    assert without_repeated([["Ticket to the fair", "Row seven, seat five"]] * 2) == [
        ["Ticket to the fair", "Row seven, seat five"],
        [],
    ]
    pages = [[f"Part {letter}", "A header", f"Words {letter}"] for letter in "abcde"]
    assert without_repeated(pages) == [[f"Part {one}", f"Words {one}"] for one in "abcde"]


@pytest.mark.parametrize(
    "pages",
    [
        # numbers that do not count the pages
        [["12 apples", "3 pears"], ["12 plums", "9 figs"], ["4 kiwis", "3 limes"]],
        # the same short line at the edge of two pages, as in code
        [["a = {", "}"], ["b = {", "}"]],
        # a year that happens to open the first page
        [["1999", "was warm"], ["and then", "it rained"]],
    ],
)
def test_lines_that_only_look_alike_stay(pages: list[list[str]]) -> None:
    assert without_repeated(pages) == pages


def test_a_single_page_loses_its_number_only() -> None:
    assert without_repeated([["A header", "Text", "- 1 -"]]) == [["A header", "Text"]]


def test_a_divided_word_is_whole_and_a_hyphen_stays_where_it_belongs() -> None:
    divided = [
        f"para{HYPHEN}graph",
        f"well{HYPHEN}known",
        f"pages 12{HYPHEN}34",
        f"non{HYPHEN}English",
        f"EU{HYPHEN}wide",
        f"e{HYPHEN}mail",
        f"a{HYPHEN} b",
    ]
    whole = ["paragraph", "well-known", "pages 12-34", "non-English", "EU-wide", "e-mail", "a-\n b"]
    assert joined([*divided, "It is well-known."]) == [*whole, "It is well-known."]


@pytest.mark.parametrize(
    "footer",
    [
        "Version 2.1 Page {0} of 8",
        "(c) 2024 Acme Water Page {0} of 8",
        "Vol. 85, No. 152 {1} Proposed Rules 2020",
        "VerDate 2014 Jkt 250001 PO 00000 Frm {0:05} Fmt 4702",
        "Sheet {0}, printed after {2} minutes",
        "{0} of 8, {3} to go",
        "Folio {0} | {1} | Rev 3",
    ],
)
def test_a_footer_may_have_several_numbers(footer: str) -> None:
    pages = [
        [f"{letter} begins", f"{letter} ends", footer.format(n + 1, n + 700, 7 * n * n % 60, 7 - n)]
        for n, letter in enumerate("abcdefgh")
    ]
    assert without_repeated(pages) == [page[:2] for page in pages]
