#!/bin/sh
# orjson reads an integer beyond 64 bits as a floating-point number; json and pydantic read it exactly.
#
# With orjson 3.13.0 and pydantic 2.14.3. Guess: it is exact, or an error, as `orjson.dumps` raises one for such a number.
# Seen: 2^64 + 1 becomes 1.8446744073709552e+19 without a word, and equal to 2^64. A service that validates by
# `model_validate_json` and one that parses by orjson before `model_validate` then store different ids, and the
# second refuses a field of type int that the first takes.
# Joined here: two parsers that web frameworks use in one process.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet orjson==3.13.0 pydantic==2.14.3
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json

import orjson
import pydantic
import pydantic_core

EXPECTED = {
    "json": 2**64 + 1,
    "pydantic": 2**64 + 1,
    "orjson": 1.8446744073709552e19,
    "equal to 2^64": True,
    "orjson.dumps": "refused",
    "field of type int": "refused",
}


class Row(pydantic.BaseModel):
    id: int


def refused(call, *given) -> object:
    try:
        return call(*given)
    except (TypeError, ValueError):
        return "refused"


text = str(2**64 + 1)
print("orjson", orjson.__version__, "pydantic", pydantic.VERSION)
seen = {
    "json": json.loads(text),
    "pydantic": pydantic_core.from_json(text),
    "orjson": orjson.loads(text),
    "equal to 2^64": orjson.loads(text) == orjson.loads(str(2**64)),
    "orjson.dumps": refused(orjson.dumps, 2**64 + 1),
    "field of type int": refused(Row.model_validate, orjson.loads(f'{{"id": {text}}}')),
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
