"""Filters in the address of the page."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.conftest import ROOT

SCRIPT = """
import { compile, equals } from "./filters.js";
const [field, value] = JSON.parse(process.argv[1]);
console.log(JSON.stringify(compile([equals(field, value, "string")], { [field]: "string" })));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("field", ["author", "dc:date", "Stand (Jahr)", "100 %", "größe"])
def test_a_filter_of_any_field_is_read_from_the_address(field: str) -> None:
    value = "10:30 = 50 %"
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT, json.dumps([field, value])],
        cwd=ROOT / "features/page/ui",
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"field": field, "eq": value}
