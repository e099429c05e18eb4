"""Words of many scripts and identifiers find their documents, by words and by hybrid."""

from __future__ import annotations

from typing import Any

import pytest

from docsplit.ranking.mentions import tokens
from docsplit.ranking.words import every, words
from tests.conftest import Server
from tests.index.conftest import call, upsert

# what is looked for, the text that has it, and one that is like it and lacks it
CASES: dict[str, list[tuple[str, str, str]]] = {
    "katakana": [
        ("ポンプ", "このポンプは古い。", "インターネットとコンピュータ"),
        ("データベース", "データベースを設計する。", "インターネットとコンピュータ"),
        ("コンピュータ", "インターネットとコンピュータ", "データベースを設計する。"),
    ],
    "Han": [
        ("自動車", "新しい自動車を買った。", "自転車で行く。"),
        ("研究生", "他是研究生", "生命的起源"),
        ("起源", "研究生命的起源", "他是研究生"),
        ("都庁舎", "東京都庁舎の中", "東京の寺"),
        ("犬", "私の犬は大きい", "私の猫は大きい"),
    ],
    "Thai": [
        ("โรงเรียน", "โรงเรียนเปิดเทอมวันจันทร์", "ธนาคารขึ้นดอกเบี้ย"),
        ("ธนาคาร", "ธนาคารขึ้นดอกเบี้ย", "โรงเรียนเปิดเทอมวันจันทร์"),
        ("ปี", "ราคาของปีนี้สูง", "ธนาคารขึ้นดอกเบย"),
    ],
    "Lao": [("ໂຮງຮຽນ", "ໂຮງຮຽນເປີດແລ້ວ", "ທະນາຄານປິດແລ້ວ")],
    "Khmer": [("សាលារៀន", "សាលារៀនបើកហើយ", "ធនាគារបិទហើយ")],
    "Burmese": [("ကျောင်း", "ကျောင်းဖွင့်ပြီ", "ဘဏ်ပိတ်ပြီ")],
    "Korean": [
        ("학교", "학교에서 배운다", "병원에서 일한다"),
        ("병원", "병원은 크다", "학교는 크다"),
        ("물", "찬 물을 마신다", "밥을 먹는다"),
    ],
    "Devanagari": [("विद्यालय", "विद्यालय खुला है", "विद्यार्थी पुस्तक पढ़ता है")],
    "single characters": [
        ("Article 6", "See Article 6 of the act", "See Article 5 of the act"),
        ("vitamin D", "Take vitamin D daily", "Take vitamin C daily"),
        ("vitamin A", "Take vitamin A daily", "Take vitamin C daily"),
        ("R", "Written in R and Python", "Written in Julia and Python"),
        ("type 1 diabetes", "One has type 1 diabetes", "She has type 2 diabetes"),
    ],
    "stems of stop words": [
        ("theses", "Two doctoral theses were defended.", "These are those."),
        ("willing", "A willing buyer met the seller.", "They will meet the seller."),
        ("ins", "The ins and outs of tax law.", "It is in the tax law."),
        ("buts", "No ifs and no buts were heard.", "But no one was heard."),
        ("wills", "A library of wills.", "A library will open."),
    ],
    "accents": [
        ("resume", "The résumé is long.", "The letter is long."),
        ("résumé", "The resume is long.", "The letter is long."),
        ("résumés", "The resume is long.", "The letter is long."),
        ("societe", "La société anonyme", "La maison anonyme"),
        ("strasse", "Die Straße ist neu.", "Der Weg ist neu."),
        ("Brucke", "Die Brücke ist neu.", "Der Weg ist neu."),
        ("αθηνα", "Η Αθήνα είναι πόλη", "Η Κρήτη είναι νησί"),
        ("Lodz", "Łódź lies in Poland", "Kraków lies in Poland"),
        ("محمد", "كتب مُحَمَّد كتابا", "كتب علي كتابا"),
        ("елка", "Зелёная ёлка", "Зелёная трава"),
    ],
    "long words": [
        ("a94a8fe5ccb19ba61c4c0873d391e987982fbbd3",) * 2
        + ("b94a8fe5ccb19ba61c4c0873d391e987982f",),
        ("высококвалифицированный", "высококвалифицированный инженер", "молодой инженер"),
        ("საქართველოსთვის", "ეს საქართველოსთვის არის", "ეს კარგი არის"),
        ("f" * 128, f"see {'f' * 128} here", f"see {'f' * 127} here"),
    ],
    "signs": [
        ("C#", "Use C# here.", "Use C here."),
        ("C++", "Use C++, please.", "Use C, please."),
        ("F#", "(F#) is a language", "(F) is a language"),
        ("R&D", "Our R&D grows.", "Our R grows, and D."),
        ("AT&T", "AT&T was founded", "At that time"),
        ("U.S.C.", "See 42 U.S.C. 1983.", "See 42 C.F.R. 1983."),
        ("USC", "See 42 U.S.C. 1983.", "See 42 C.F.R. 1983."),
        ("§ 6", "See § 6 of it", "See No. 6 of it"),
        ("snake", "a snake_case name", "a camelCase name"),
    ],
    "forms of Unicode": [
        ("résumé", "re\u0301sume\u0301", "reform"),
        ("Müller", "Mu\u0308ller", "Muster"),
        ("istanbul", "\u0130stanbul", "Ankara"),
        ("\u0130stanbul", "istanbul", "Ankara"),
        ("final efficiency", "The ﬁnal eﬃciency", "The first test"),
        ("½", "take ½ of it", "take ⅓ of it"),
        ("fullwidth", "ｆｕｌｌｗｉｄｔｈ letters", "wide letters"),
    ],
    "silent characters": [
        ("Donaudampfschiff", "Das Donau\u00addampf\u00adschiff legt ab.", "Der Zug fährt ab."),
        ("zerowidth", "a zero\u200bwidth thing", "a zero thing"),
        ("don't", "don\u2019t panic", "do panic"),
    ],
    "raised numbers": [
        ("results", "results¹² of it", "a result12 of it"),
        ("10", "10⁶ cells", "106 cells"),
        ("H2O", "H₂O boils", "HO boils"),
    ],
    "divided words": [
        (
            "committee proposal",
            "The commit-\ntee ap-\nproved the pro-\nposal.",
            "The train leaves.",
        ),
        ("known", "a well-\nknown fact", "a fact"),
    ],
}


@pytest.mark.parametrize("kind", CASES)
def test_a_word_finds_its_text_first(server: Server, index: str, kind: str) -> None:
    for number, (_, text, other) in enumerate(CASES[kind]):
        held = {"id": f"right {number}", "text": text}, {"id": f"other {number}", "text": other}
        upsert(server, index, *held, *({"id": f"{n}", "text": "Filler."} for n in range(3)))
        for route in ("/similar", "/passages"):
            body: dict[str, Any] = {"index": index, "text": CASES[kind][number][0], "top_k": 3}
            for mode in ("words", "hybrid"):
                [first, *_] = call(server, "POST", route, body | {"mode": mode})
                assert first["id"] == f"right {number}", (route, mode, text)
        call(server, "POST", f"/indexes/{index}/documents/delete", {"ids": [h["id"] for h in held]})


@pytest.mark.parametrize(
    ("query", "text"),
    [("विद्यालय", "विद्यार्थी पुस्तक"), ("Kiel", "Köln"), ("C#", "C++"), ("ポンプ", "コンピュータ")],
)
def test_another_word_shares_nothing(query: str, text: str) -> None:
    assert set(words(query)).isdisjoint(every(text))
    # the control
    assert not set(words(query)).isdisjoint(every(query))


def test_words_of_scripts_above_u_ffff_keep_their_vowels_and_lose_their_marks() -> None:
    # Chakma: two words, and the mark that ends a sentence
    first, second = "\U00011103\U00011133\U00011127", "\U00011104\U00011127"
    text = f"{first} {second}\U00011141"
    assert [*words(text)] == tokens(text) == [first, second]
