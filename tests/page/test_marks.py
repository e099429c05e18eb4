"""The page marks the words that searches find."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from docsplit.ranking.words import placed, words
from tests.conftest import ROOT
from tests.index.test_languages import CASES

SCRIPT = """
import { spans, wordsOf } from "./texts.js";
const cases = JSON.parse(process.argv[1]);
console.log(JSON.stringify(cases.map(([query, text]) => spans(text, wordsOf(query)))));
"""
# the page marks neither signs nor words of one letter, and knows no endings and no divided words
KINDS = ["katakana", "Han", "Thai", "Lao", "Khmer", "Burmese", "Korean", "Devanagari", "accents"]
KINDS += ["forms of Unicode", "silent characters"]
# by their ending, or in the places of two words
OTHERWISE = {"résumés", "don't", "½"}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_page_marks_what_searches_find() -> None:
    cases = [case for kind in KINDS for case in CASES[kind] if case[0] not in OTHERWISE]
    asked = [(query, text) for query, *texts in cases for text in texts]
    command = ["node", "--input-type=module", "-e", SCRIPT, json.dumps(asked)]
    folder = ROOT / "features/page/ui"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    for (query, text), spans in zip(asked, found, strict=True):
        wanted = {at for _, *place in placed(text, set(words(query))) for at in range(*place)}
        assert {at for start, end in spans for at in range(start, end)} == wanted, (query, text)
    # the second text of a case is the control
    assert all(found[::2])
    assert not any(found[1::2])
