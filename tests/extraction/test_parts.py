"""Office files of single parts, written by hand: what programs write and libraries do not."""

from __future__ import annotations

import io
import zipfile

from tests.extraction.conftest import Read, content_of

WORD = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)


def packed(**parts: str | bytes) -> bytes:
    """A zip archive of parts, whose names have ``__`` for a slash and end with ``.xml``."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in parts.items():
            archive.writestr(f"{name.replace('__', '/')}.xml", content)
    return target.getvalue()


def word(body: str, **parts: str) -> bytes:
    main = f"<w:document {WORD}><w:body>{body}</w:body></w:document>"
    return packed(word__document=main, **parts)


def paragraph(text: str, style: str = "") -> str:
    stated = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{stated}<w:r><w:t>{text}</w:t></w:r></w:p>"


def cell(text: str) -> str:
    return f"<w:tc>{paragraph(text)}</w:tc>"


def test_only_the_cells_of_a_row_take_columns(read: Read) -> None:
    rows = [
        cell("Item") + cell("Price"),
        f"<w:tblPrEx/><w:trPr/>{cell('Beam')}{cell('10')}",
        f'<w:bookmarkStart w:id="1"/>{cell("Rope")}<w:bookmarkEnd w:id="1"/>{cell("11")}',
        f"<w:sdt><w:sdtContent>{cell('Nail')}{cell('12')}</w:sdtContent></w:sdt>",
    ]
    table = "".join(f"<w:tr>{row}</w:tr>" for row in rows)
    found = content_of(read(".docx", word(f"<w:tbl>{table}</w:tbl>")))
    assert found.text == "Item\tPrice\nBeam\t10\nRope\t11\nNail\t12"
