"""Names of documents in texts: identifiers and titles, without a service."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docsplit.ranking import mentions
from docsplit.ranking.mentions import Matcher, tokens
from docsplit.ranking.references import Named, Pattern, References, Rule
from service.bulk.command_settings import rule

ERC = rule("eip-*=ERC *")
RFC = rule("rust-rfc-*=RFC *@rust-*")
EU = rule("eu-*=Regulation (EU) *")


def found(
    text: str, *documents: Named, rules: tuple[Rule, ...] = (), citing: str = "here"
) -> list[tuple[str, str]]:
    """The ids of the cited documents, and the characters that name them."""
    references = References(documents, rules)
    return [
        (documents[one.cited].id, text[one.start : one.end])
        for one in references.find(text, citing)[0]
    ]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("pep-484", "as in :pep:`484`.", "pep:`484"),
        ("pep-484", "as in PEP\n  0484, section 2", "PEP\n  0484"),
        ("pep-484", "see ../pep-484.md#x", "pep-484"),
        ("pep-484", "PEPs 484 and 526", "PEPs 484"),
        ("2101.00001", "arXiv:2101.00001v2.", "arXiv:2101.00001v2"),
        ("10.1145/12.34", "https://doi.org/10.1145/12.34.", "10.1145/12.34"),
        ("P05-1033", "(Chiang P05-1033)", "P05-1033"),
        ("eip-20", "the ERC-20 tokens", "ERC-20"),
        ("a.*b-(x+)+$12", "in A.*B-(x+)+$12.", "A.*B-(x+)+$12"),
        ("10.1016/S0140-6736(20)3", "doi:10.1016/S0140-6736(20)3.", "10.1016/S0140-6736(20)3"),
        ("eu-2016/679", "under Regulation (EU) 2016/679,", "Regulation (EU) 2016/679"),
        ("eu-2016/679", "this Regulation: (EU) 2016/679", None),
        ("Roe v. Wade 1973", "as Roe v. Wade (1973)", None),
        ("Roe v. Wade 1973", "as Roe v. Wade 1973 says", "Roe v. Wade 1973"),
        ("a.*b-12", "in A.*B-12.", "A.*B-12"),
        ("a.*b-12", "in axxb-12.", None),
        ("pep-484", "PEP 4840, PEP 484b, xPEP 484, PEP 48", None),
        ("pep-3", "PEP 3.11", None),
        ("pep-3", "this PEP [3]_ says", None),
        ("pep-20", "the next PEP. 20 documents", None),
        ("10.1145/12", "doi 10.1145/12.34", None),
        ("2020/117", "contract 2020/117", "2020/117"),
        ("2020/117", "in 2020 117 people", None),
        ("pep-484", "参见PEP 484的规定", "PEP 484"),
        ("案-2020", "见案2020年", "案2020"),
        ("परिपत्र-2020", "जैसा परिपत्र 2020 में", "परिपत्र 2020"),
        ("1234", "1234", None),
        ("introduction", "introduction", None),
    ],
)
def test_identifiers(name: str, text: str, named: str | None) -> None:
    places = found(text, Named(name), rules=(ERC, RFC, EU))
    assert places == ([] if named is None else [(name, named)])


def test_a_rule_counts_in_some_texts_only() -> None:
    documents = (Named("rust-rfc-2119"), Named("rfc-2119"))
    assert found("RFC 2119", *documents, rules=(RFC,)) == [("rfc-2119", "RFC 2119")]
    assert found("RFC 2119", *documents, rules=(RFC,), citing="rust-rfc-1") == [
        ("rust-rfc-2119", "RFC 2119")
    ]


HINTS = Named("h", "Type Hints for the Curious Reader")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[1] Type Hints for the Curious Reader. 2014.", True),
        ('* "Type Hints\n  for the Curious Reader"', True),
        ("see TYPE HINTS – for  the ‘curious’ reader", True),
        ("Type Hints\n\nfor the Curious Reader", False),
        ("we need type hints. For the curious reader we add", False),
        ("Type Hints for the Curious Readers", False),
    ],
)
def test_titles(text: str, named: bool) -> None:
    assert bool(found(text, HINTS)) == named


def test_ordinary_words_are_no_title() -> None:
    short = Named("s", "prior art")
    assert found("there is prior art in this area", short) == []
    assert found("# Prior Art\n\nNone.", short) == []
    assert found("* `0123-prior-art.md`", short) == [("s", "prior-art")]


def test_a_name_of_two_documents_counts_for_neither_and_hides_shorter_ones() -> None:
    one, other, part = (
        Named(name, title)
        for name, title in (
            ("a", "The Semantics of Pattern Matching in Python"),
            ("b", "the semantics of pattern-matching in Python"),
            ("c", "Pattern Matching in Python"),
        )
    )
    text = "[2] The Semantics of Pattern Matching in Python, 2020"
    assert found(text, one, other, part) == []
    assert [name for name, _ in found(text, one, part)] == ["a"]
    assert References([one, other, part]).ambiguous == 1


def test_a_document_does_not_cite_itself() -> None:
    assert found("PEP 484", Named("pep-484"), citing="pep-484") == []
    assert len(found("PEP 484", Named("pep-484"), citing="pep-526")) == 1


def test_places_are_right_where_folding_changes_lengths() -> None:
    matcher = Matcher([" ".join(tokens("Straße İstanbul 深度学习")), "pep 484"])
    text = "ﬁne İİİ ßß ﷺ 🙂 STRASSE i̇stanbul:深度学习, PEP-484"
    places = [text[one.start : one.end] for one in matcher.find(text)]
    assert places == ["STRASSE i̇stanbul:深度学习", "PEP-484"]


@given(
    st.lists(
        st.sampled_from(["pep 484", "深度", "ß-x 3", "\n ", "İ", "a" * 70, "9", "٣", "_", "."])
    )
)
def test_each_place_has_the_tokens_of_its_name(parts: list[str]) -> None:
    names = ["pep 484", "深 度", "ss x 3", "3 ss", "9 9", "9"]
    text = "".join(parts)
    for one in Matcher(names).find(text):
        assert " ".join(tokens(text[one.start : one.end])) == names[one.name]


def test_a_name_is_found_wherever_a_step_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    text = "".join(
        draw.choice(["pep 484 ", "x ", "pep-4840 ", "type hints ", "type "]) for _ in range(900)
    )
    matcher = Matcher(["pep 484", "type hints", "type hints type"])
    whole = list(matcher.find(text))
    monkeypatch.setattr(mentions, "_STEP", 64)
    monkeypatch.setattr(mentions, "_MOST_LENGTH", 32)
    assert list(matcher.find(text)) == whole
    assert len(whole) > 100
    # a name that is longer than a step may be missed
    monkeypatch.setattr(mentions, "_STEP", 8)
    monkeypatch.setattr(mentions, "_MOST_LENGTH", 4)
    assert list(matcher.find(text)) != whole


def test_many_names_of_one_letter_or_of_all_words_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    letters = [Named(f"n{i}", "abcdefghij"[i % 10]) for i in range(1000)]
    assert References(letters, ids=False).names == 0
    monkeypatch.setattr("docsplit.ranking.references.MOST_NAME_TOKENS", 100)
    titled = [Named(f"doc-{i}", f"a title of number {i}") for i in range(1000)]
    references = References(titled)
    assert (references.names, references.left_out) == (50, 1950)


def test_a_text_of_names_only_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docsplit.ranking.references.MOST_READ", 10)
    references = References([Named("pep-484")])
    for number, cut in ((10, False), (11, True)):
        found, more = references.find("PEP 484 " * number, "here")
        assert (len(found), more) == (10, cut)


def test_forms_have_no_other_wildcards() -> None:
    assert Pattern("a*c").rest("abbc") == "bb"
    assert Pattern("a*c").rest("ac") == ""
    assert Pattern("ab*ba").rest("aba") is None
    assert Pattern("[a-z]?*").rest("abc") is None
    assert Pattern("abc").rest("abc") == ""
