#!/bin/sh
# PDFium replaces a hyphen at the end of a line by a character that is none, and which one depends on the call.
#
# With pypdfium2 5.15.2. Guess: the text of "exam-" and "ple" on two lines is `exam-`, a line end, `ple`. Seen: hyphen and line
# end together are U+FFFE by `get_text_range` and U+0002 by `get_text_bounded`. U+FFFE is not a character, so programs drop it or
# refuse the text, and real hyphens ("EU-" and "wide") are lost with the divided words. Searches for "example" find nothing,
# and counts of characters no longer fit the page.
# Joined here: a reader of files and an index over words.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pypdfium2==5.15.2 reportlab==5.1.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata
import io

import pypdfium2
from reportlab.pdfgen import canvas

EXPECTED = {"get_text_range": "exam\ufffeple, EU\ufffewide", "get_text_bounded": "exam\x02ple, EU\x02wide"}
made = io.BytesIO()
drawn = canvas.Canvas(made)
for number, line in enumerate(("exam-", "ple, EU-", "wide")):
    drawn.drawString(50, 700 - 14 * number, line)
drawn.save()
text = pypdfium2.PdfDocument(made.getvalue())[0].get_textpage()
print("pypdfium2", importlib.metadata.version("pypdfium2"))
seen = {"get_text_range": text.get_text_range(), "get_text_bounded": text.get_text_bounded()}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
