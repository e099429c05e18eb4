"""Office files of single parts, written by hand: what programs write and libraries do not."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest

from tests.extraction.conftest import Read, content_of, reason_of

WORD = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)


def packed(**parts: str | bytes) -> bytes:
    """A zip archive of parts, whose names have ``__`` for a slash and end with ``.xml``."""
    return archived({f"{name.replace('__', '/')}.xml": held for name, held in parts.items()})


def archived(parts: Mapping[str, str | bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target.getvalue()


def relations(**targets: str) -> str:
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    return "".join(
        [
            "<Relationships>",
            *(
                f'<Relationship Id="{name}" Type="{kinds}/{name}" Target="{target}"/>'
                for name, target in targets.items()
            ),
            "</Relationships>",
        ]
    )


def word(body: str, **parts: str) -> bytes:
    main = f"<w:document {WORD}><w:body>{body}</w:body></w:document>"
    return packed(word__document=main, **parts)


def opendocument(body: str, kind: str = "text", styles: str = "") -> bytes:
    spaces = " ".join(
        f'xmlns:{name}="urn:{name}"'
        for name in ("office", "text", "draw", "svg", "presentation", "manifest", "style")
    )
    whole = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    whole = f"<office:automatic-styles>{styles}</office:automatic-styles>{whole}"
    return packed(content=f"<office:document-content {spaces}>{whole}</office:document-content>")


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


def test_text_boxes_stand_apart_from_the_words_around_them(read: Read) -> None:
    box = "".join(map(paragraph, ["Box one", "Box two"]))
    shape = (
        f"<mc:AlternateContent><mc:Choice><w:txbxContent>{box}</w:txbxContent></mc:Choice>"
        f"<mc:Fallback><w:txbxContent>{box}</w:txbxContent></mc:Fallback></mc:AlternateContent>"
    )
    body = f"<w:p><w:r><w:t>before</w:t></w:r><w:r>{shape}</w:r><w:r><w:t>after</w:t></w:r></w:p>"
    assert content_of(read(".docx", word(body))).text == "before\nBox one\nBox two\nafter"
    frame = (
        "<draw:frame><draw:text-box><text:p>Box one</text:p><text:p>Box two</text:p>"
        "</draw:text-box></draw:frame>"
    )
    found = content_of(read(".odt", opendocument(f"<text:p>before{frame}after</text:p>")))
    assert found.text == "before\nBox one\nBox two\nafter"
    image = (
        "<draw:frame><draw:image/><svg:title>A chart</svg:title><svg:desc>of sales</svg:desc>"
        "</draw:frame>"
    )
    found = content_of(read(".odt", opendocument(f"<text:p>before{image}after</text:p>")))
    assert found.text == "before\nA chart\nof sales\nafter"


def test_a_tab_to_the_margin_separates_words(read: Read) -> None:
    body = "<w:p><w:r><w:t>Offer</w:t><w:ptab/><w:t>No. 7</w:t></w:r></w:p>"
    assert content_of(read(".docx", word(body))).text == "Offer\tNo. 7"


def test_words_do_not_mix_with_their_pronunciation(read: Read) -> None:
    ruby = (
        "<w:ruby><w:rt><w:r><w:t>とうきょう</w:t></w:r></w:rt>"
        "<w:rubyBase><w:r><w:t>東京</w:t></w:r></w:rubyBase></w:ruby>"
    )
    body = f"<w:p><w:r>{ruby}</w:r><w:r><w:t>に</w:t></w:r></w:p>"
    assert content_of(read(".docx", word(body))).text == "東京に"
    ruby = (
        "<text:ruby><text:ruby-base>東京</text:ruby-base>"
        "<text:ruby-text>とうきょう</text:ruby-text></text:ruby>"
    )
    found = content_of(read(".odt", opendocument(f"<text:p>{ruby}に</text:p>")))
    assert found.text == "東京に"


def test_a_number_above_the_line_is_no_part_of_the_word_before(read: Read) -> None:
    said = "Results¹², 10⁻⁶ and x², but the 19th and results[3]"
    html = (
        "<p>Results<sup>12</sup>, 10<sup>-6</sup> and x<sup><i>2</i></sup>, but the "
        "19<sup>th</sup> and results<sup>[3]</sup></p>"
    )
    assert content_of(read(".html", html.encode())).text == said
    above = '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
    runs = [
        f"<w:r>{above if number % 2 else ''}<w:t xml:space='preserve'>{text}</w:t></w:r>"
        for number, text in enumerate(
            ("Results", "12", ", 10", "-6", " and x", "2", ", but the 19", "th", " and results[3]")
        )
    ]
    assert content_of(read(".docx", word(f"<w:p>{''.join(runs)}</w:p>"))).text == said
    styles = [("up", "super 58%"), ("per", "33% 58%"), ("low", "sub 58%"), ("less", "-8% 58%")]
    automatic = "".join(
        f'<style:style style:name="{name}"><style:text-properties style:text-position="{held}"/>'
        "</style:style>"
        for name, held in styles
    )
    body = (
        'Results<text:span text:style-name="up">12</text:span>, 10<text:span text:style-name="per">'
        '-6</text:span> and x<text:span text:style-name="up"><text:span>2</text:span></text:span>, '
        'but the 19<text:span text:style-name="up">th</text:span> and results[3], H<text:span '
        'text:style-name="low">2</text:span>O<text:span text:style-name="less">3</text:span>'
    )
    odt = opendocument(f"<text:p>{body}</text:p>", styles=automatic)
    assert content_of(read(".odt", odt)).text == f"{said}, H2O3"
    slide = "<p:sp><a:p>" + "".join(
        f'<a:r><a:rPr baseline="{30000 if number % 2 else 0}"/><a:t>{text}</a:t></a:r>'
        for number, text in enumerate(("Results", "12", ", 10", "-6", " and x", "2", ", but"))
    )
    found = content_of(read(".pptx", powerpoint(f"{slide}</a:p></p:sp>")))
    assert found.text == "Results¹², 10⁻⁶ and x², but"
    # the control: the same runs on the line
    plain = "".join(runs).replace(above, "")
    text = content_of(read(".docx", word(f"<w:p>{plain}</w:p>"))).text
    assert text.startswith("Results12, 10-6")


def test_the_parts_of_a_file_may_have_other_names(read: Read) -> None:
    parts = {
        "_rels/.rels": relations(officeDocument="word/document2.xml"),
        "word/_rels/document2.xml.rels": relations(styles="styles2.xml", footnotes="/word/n.xml"),
        "word/document2.xml": (
            f"<w:document {WORD}><w:body>{paragraph('Steel', 'Own')}</w:body></w:document>"
        ),
        "word/styles2.xml": (
            f'<w:styles {WORD}><w:style w:styleId="Own"><w:name w:val="heading 1"/></w:style>'
            "</w:styles>"
        ),
        "word/n.xml": f"<w:footnotes {WORD}>{paragraph('A note')}</w:footnotes>",
    }
    found = content_of(read(".docx", archived(parts)))
    assert found.text == "Steel\n\nA note"
    assert [one.title for one in found.headings] == ["Steel"]
    # slides are no document
    assert "lacks ppt/presentation.xml" in reason_of(read(".pptx", archived(parts)))


def test_a_style_has_the_level_and_the_number_of_the_style_it_is_based_on(read: Read) -> None:
    def style(name: str, base: str, more: str = "") -> str:
        based = f'<w:basedOn w:val="{base}"/>' if base else ""
        inner = f'<w:name w:val="{name}"/>{based}<w:pPr>{more}</w:pPr>'
        return f'<w:style w:styleId="{name}">{inner}</w:style>'

    numbers = '<w:numPr><w:numId w:val="1"/></w:numPr>'
    styles = [
        style("Base", "", f'<w:outlineLvl w:val="0"/>{numbers}'),
        style("House", "Base"),
        style("Client", "House"),
        style("Body", "Base", '<w:outlineLvl w:val="9"/><w:numPr><w:numId w:val="0"/></w:numPr>'),
        style("Round", "About"),
        style("About", "Round"),
    ]
    numbering = (
        f'<w:numbering {WORD}><w:abstractNum w:abstractNumId="5"><w:lvl w:ilvl="0">'
        '<w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="§ %1"/></w:lvl>'
        '</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="5"/></w:num></w:numbering>'
    )
    names = ["Base", "House", "Client", "Body", "Round"]
    found = content_of(
        read(
            ".docx",
            word(
                "".join(paragraph(f"of {name}", name) for name in names),
                word__styles=f"<w:styles {WORD}>{''.join(styles)}</w:styles>",
                word__numbering=numbering,
            ),
        )
    )
    assert found.text == "§ 1 of Base\n\n§ 2 of House\n\n§ 3 of Client\n\nof Body\n\nof Round"
    assert [one.title for one in found.headings] == ["§ 1 of Base", "§ 2 of House", "§ 3 of Client"]


POWERPOINT = " ".join(f'xmlns:{name}="urn:{name}"' for name in ("p", "a", "mc", "c"))


def powerpoint(shapes: str, chart: str = "") -> bytes:
    parts = {
        "ppt/presentation.xml": f'<p:presentation {POWERPOINT}><p:sldId id="slide"/>'
        "</p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(slide="slides/slide1.xml"),
        "ppt/slides/slide1.xml": f"<p:sld {POWERPOINT}><p:spTree>{shapes}</p:spTree></p:sld>",
    }
    if chart:
        parts["ppt/slides/_rels/slide1.xml.rels"] = relations(chart="../charts/chart1.xml")
        parts["ppt/charts/chart1.xml"] = f"<c:chartSpace {POWERPOINT}>{chart}</c:chartSpace>"
    return archived(parts)


def shape(text: str, kind: str = "") -> str:
    place = f'<p:ph type="{kind}"/>' if kind else ""
    return f"<p:sp>{place}<a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sp>"


def test_the_title_of_a_slide_comes_before_the_shapes_that_are_drawn_first(read: Read) -> None:
    found = content_of(read(".pptx", powerpoint(shape("body") + shape("Steel", "title"))))
    assert found.text == "Steel\n\nbody"
    assert [(one.start, one.title) for one in found.headings] == [(0, "Steel")]
    frames = [
        f"<draw:frame{stated}><draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame>"
        for stated, text in [("", "body"), (' presentation:class="title"', "Steel")]
    ]
    slide = f"<draw:page>{''.join(frames)}</draw:page>"
    found = content_of(read(".odp", opendocument(slide, "presentation")))
    assert found.text == "Steel\n\nbody"
    assert [(one.start, one.title) for one in found.headings] == [(0, "Steel")]


def test_a_slide_has_no_copies_of_shapes_for_older_versions(read: Read) -> None:
    both = (
        f"<mc:AlternateContent><mc:Choice>{shape('new')}</mc:Choice>"
        f"<mc:Fallback>{shape('old')}</mc:Fallback></mc:AlternateContent>"
    )
    assert content_of(read(".pptx", powerpoint(both + shape("other")))).text == "new\n\nother"


def test_the_values_of_a_chart_stand_below_their_categories(read: Read) -> None:
    def cached(*values: str) -> str:
        points = "".join(
            f'<c:pt idx="{place}"><c:v>{value}</c:v></c:pt>'
            for place, value in enumerate(values)
            if value
        )
        return f'<c:ptCount val="{len(values)}"/>{points}'

    def series(name: str, **parts: str) -> str:
        whole = "".join(f"<c:{part}>{held}</c:{part}>" for part, held in parts.items())
        return f"<c:ser><c:tx><c:v>{name}</c:v></c:tx>{whole}</c:ser>"

    months = cached("Jan", "Feb", "Mar")
    chart = series("Rome", cat=months, val=cached("1", "", "3"))
    chart += series("Bonn", cat=months, val=cached("", "5"))
    found = content_of(read(".pptx", powerpoint("", chart)))
    assert found.text == "\tJan\tFeb\tMar\nRome\t1\t\t3\nBonn\t\t5"
    levels = [cached("Q1", "Q2", "Q1", "Q2"), cached("2024", "", "2025")]
    groups = "".join(f"<c:lvl>{level}</c:lvl>" for level in levels)
    chart = series("Rome", cat=groups, val=cached("1", "2", "3", "4"))
    found = content_of(read(".pptx", powerpoint("", chart)))
    assert found.text == "\t2024 Q1\t2024 Q2\t2025 Q1\t2025 Q2\nRome\t1\t2\t3\t4"
    chart = series("Rome", xVal=cached("1", "2"), yVal=cached("10", "20"))
    chart += series("Bonn", xVal=cached("3"), yVal=cached("30"))
    found = content_of(read(".pptx", powerpoint("", chart)))
    assert found.text == "\t1\t2\nRome\t10\t20\n\t3\nBonn\t30"


def test_charts_and_diagrams_of_word_stand_after_their_paragraphs(read: Read) -> None:
    def drawn(what: str) -> str:
        return f"<w:p><w:r><w:drawing>{what}</w:drawing></w:r></w:p>"

    values = "<c:ser><c:tx><c:v>Rome</c:v></c:tx><c:val><c:pt idx='0'><c:v>3</c:v></c:pt></c:val>"
    body = (
        paragraph("Sales")
        + drawn('<c:chart r:id="chart"/>')
        + f"<w:tbl><w:tr><w:tc>{paragraph('A cell')}</w:tc></w:tr></w:tbl>"
        + paragraph("Steps")
    )
    parts = {
        "word/document.xml": f'<w:document {WORD} xmlns:c="urn:c" xmlns:r="urn:r"><w:body>{body}'
        "</w:body></w:document>",
        "word/_rels/document.xml.rels": relations(chart="c.xml", diagramData="d.xml"),
        "word/c.xml": f"<c:chartSpace {POWERPOINT}>{values}</c:ser></c:chartSpace>",
        "word/d.xml": f"<d {POWERPOINT}><a:p><a:t>Buy</a:t></a:p><a:p><a:t>Sell</a:t></a:p></d>",
    }
    found = content_of(read(".docx", archived(parts)))
    # nothing refers to the diagram
    assert found.text == "Sales\n\nRome\t3\n\nA cell\n\nSteps\n\nBuy\nSell"


@pytest.mark.parametrize(
    ("kind", "name"),
    [(".odt", "content.xml"), (".ods", "content.xml"), (".odp", "encrypted-package")],
)
def test_an_encrypted_file_is_refused_with_the_remedy(read: Read, kind: str, name: str) -> None:
    manifest = (
        '<m:manifest xmlns:m="urn:m"><m:file-entry><m:encryption-data/></m:file-entry></m:manifest>'
    )
    file = archived({"META-INF/manifest.xml": manifest, name: bytes(range(256))})
    assert reason_of(read(kind, file)) == "encrypted; save it without a password"


def epub(encrypted: str) -> bytes:
    items = [("a.xhtml", "application/xhtml+xml"), ("cover.jpg", "image/jpeg")]
    held = "".join(f'<item id="{name}" href="{name}" media-type="{kind}"/>' for name, kind in items)
    spine = "".join(f'<itemref idref="{name}"/>' for name, _ in reversed(items))
    return archived(
        {
            "META-INF/container.xml": '<c><rootfile full-path="O/book.opf"/></c>',
            "META-INF/encryption.xml": f'<e><CipherReference URI="{encrypted}"/></e>',
            "O/book.opf": f"<package><manifest>{held}</manifest><spine>{spine}</spine></package>",
            "O/a.xhtml": "<html><body><p>A chapter</p></body></html>",
            "O/cover.jpg": bytes(range(256)),
        }
    )


def test_a_book_may_have_pictures_as_chapters_and_encrypted_fonts(read: Read) -> None:
    assert content_of(read(".epub", epub("O/font.otf"))).text == "A chapter"
    assert reason_of(read(".epub", epub("O/a.xhtml"))) == "encrypted; save it without protection"


def test_rtf_has_its_notes_and_text_boxes_after_the_text(read: Read) -> None:
    # LibreOffice marks the group of a note as one that readers may leave out, Word does not
    source = r"""{\rtf1\ansi{\fonttbl{\f0\fcharset0 Arial;}}{\header page{\footnote no}}Late
 delivery costs 1 %{\super\chftn{\*\footnote\chftn\pard\plain {\loch of \{net\} price, caf\'e9}}}
 a week.\par
Paid{\footnote \pard in euros} in May{\shp{\*\shpinst{\sp{\sn x}}{\shptxt \pard boxed\par}}}.\par}
"""
    assert content_of(read(".rtf", source.encode())).text.split("\n") == [
        "Late delivery costs 1 % a week.",
        "Paid in May.",
        "",
        "of {net} price, café",
        "in euros",
        "boxed",
    ]


def test_rtf_has_characters_beyond_16_bits(read: Read) -> None:
    # two numbers for one character, as Word writes an emoji
    source = rb"{\rtf1{\info{\title \u-10179?\u-8703?}}Well \u-10179?\u-8703? done.}"
    content = content_of(read(".rtf", source))
    assert (content.text, content.title) == ("Well \U0001f601 done.", "\U0001f601")


def test_names_in_an_archive_are_in_utf_8_or_that_of_dos(read: Read) -> None:
    # as macOS and old programs for Windows write them: without the mark of UTF-8
    content = archived({"Gr____e.txt": "one", "Gr_.txt": "two"})
    for name, other in [(b"Gr____e", "Größe".encode()), (b"Gr_.", "Grö.".encode("cp437"))]:
        content = content.replace(name, other)
    assert [name for name, _ in read(".zip", content)] == ["Größe.txt", "Grö.txt"]


@pytest.mark.parametrize("parts", [{}, {"a.png": b"\x89PNG", "__MACOSX/._b.txt": "resource"}])
def test_an_archive_without_a_readable_file_is_refused(
    read: Read, parts: dict[str, str | bytes]
) -> None:
    reason = reason_of(read(".zip", archived(parts)))
    assert reason.startswith("no file of a known kind in it; known are .pdf, ")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (rb"{\v hidden }must {\deleted not }may {\revised pay}", "must may pay"),
        (rb"must \deleted not \deleted0 may \v secretly \v0 pay", "must may pay"),
        (rb"\deleted not \plain pay{\*\annotation a remark}{\*\unknown no}{\xe no}", "pay"),
        (rb"First {\i0\*\cs7\cf0 second words} third", "First second words third"),
        (rb"{\field{\*\fldinst HYPERLINK \"http://x.example\"}{\fldrslt a link}} ends", "a link ends"),  # noqa: E501
        (rb"Results{\super 12}, 10\super -6\nosupersub  and the 19{\super th}", "Results¹², 10⁻⁶ and the 19th"),  # noqa: E501
        (rb"{\pntext\'b7\tab}Beam\par{\listtext 1.\tab}Rope", "Beam\n1. Rope"),
        (rb"\trowd Item\cell Price\cell\row\trowd Beam\cell 10\cell\row", "Item\tPrice\nBeam\t10"),
        (rb"\uc1 Launch \u-10179?\u-8576? today", "Launch 🚀 today"),
        (rb"\uc2 a\u252\'81\'82b {\uc0\u252}c", "aüb üc"),
        (rb"{\upr{Gr?n}{\*\ud{Gr\u252 ?n}}}", "Grün"),
        (rb"Bun\-des\~tag{\pict abcdef}{\*\blipuid 12}{\pict\bin4 }}{{}!", "Bundes\xa0tag!"),
        (rb"{\fonttbl{\f1\fcharset204 A;}{\f2\fcharset128 B;}}{\f1 \'cf\'eb\'e0\'ed} {\f2\'83e}", "План テ"),  # noqa: E501
    ],
)  # fmt: skip
def test_rtf_is_read_as_accepted(read: Read, source: bytes, text: str) -> None:
    assert content_of(read(".rtf", rb"{\rtf1\ansi\deff0 " + source + b"}")).text == text


@pytest.mark.parametrize(
    ("head", "title", "right"),
    [
        (rb"\ansi\ansicpg1251", rb"\'cf\'eb\'e0\'ed", "План"),
        (rb"\ansi\ansicpg932", rb"\'83\'65\'83\'58\'83\'67", "テスト"),
        (rb"\mac\ansicpg10000", rb"Caf\'8e", "Café"),
        (rb"\pc", rb"Caf\'82", "Café"),
        (rb"\ansi", rb"Caf\'e9 {\*\x no}\u8211?", "Café –"),
    ],
)
def test_rtf_states_title_and_author_in_its_encoding(
    read: Read, head: bytes, title: bytes, right: str
) -> None:
    info = rb"{\info{\title " + title + rb"}{\author " + title + rb"}{\doccomm no}}"
    found = content_of(read(".rtf", rb"{\rtf1" + head + info + rb"\pard " + title + rb"\par}"))
    assert (found.title, found.author, found.text) == (right, right, right)


def test_rtf_has_the_headings_of_its_outline(read: Read) -> None:
    source = (
        rb"{\rtf1{\stylesheet{\s1\outlinelevel0 heading 1;}}\pard\s1 One\par\pard a\par b\par"
        rb"\pard\outlinelevel1 Two\par\pard c\par}"
    )
    found = content_of(read(".rtf", source))
    assert found.text == "One\n\na\nb\n\nTwo\n\nc"
    assert [(one.level, one.title) for one in found.headings] == [(1, "One"), (2, "Two")]


def run(text: str, look: str = "") -> str:
    return f"<w:r><w:rPr>{look}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


def test_a_document_is_read_as_accepted(read: Read) -> None:
    body = (
        f"<w:p>{run('The buyer must ')}<w:del><w:r><w:delText>not </w:delText></w:r></w:del>"
        f"<w:ins>{run('now ')}</w:ins>{run('secretly ', '<w:vanish/>')}"
        f"{run('and always ', '<w:vanish w:val=&quot;0&quot;/>'.replace('&quot;', chr(34)))}"
        f"{run('really ', '<w:rStyle w:val=' + chr(34) + 'Secret' + chr(34) + '/>')}"
        f"<w:moveFrom>{run('moved ')}</w:moveFrom>{run('pay.')}</w:p>"
        f"<w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr>{run('Part ')}</w:p><w:p>{run('one.')}</w:p>"
        f"<w:tbl><w:tr>{cell('a')}</w:tr><w:tr><w:trPr><w:del/></w:trPr>{cell('b')}</w:tr></w:tbl>"
        f"{paragraph('Hidden words', 'Ghost')}"
    )
    styles = "".join(
        f'<w:style w:styleId="{name}"><w:basedOn w:val="{base}"/>{held}</w:style>'
        for name, base, held in [
            ("Base", "", "<w:rPr><w:vanish/></w:rPr>"),
            ("Secret", "Base", ""),
            ("Ghost", "Base", ""),
        ]
    )
    file = word(body, word__styles=f"<w:styles {WORD}>{styles}</w:styles>")
    found = content_of(read(".docx", file)).text
    assert found == "The buyer must now and always pay.\n\nPart one.\n\na"
    hidden = "".join(
        f'<style:style style:name="{name}"><style:{kind} text:display="none"/></style:style>'
        for name, kind in [("no", "text-properties"), ("part", "section-properties")]
    )
    body = (
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>not</text:p>"
        "</text:deletion></text:changed-region></text:tracked-changes><text:p>The buyer must "
        '<text:change/><text:span text:style-name="no">secretly </text:span>pay.</text:p>'
        '<text:section text:style-name="part"><text:p>gone</text:p></text:section>'
        '<text:section text:display="none"><text:p>gone</text:p></text:section>'
        '<text:p><text:hidden-text text:is-hidden="true">gone</text:hidden-text>End.</text:p>'
    )
    found = content_of(read(".odt", opendocument(body, styles=hidden))).text
    assert found == "The buyer must pay.\n\nEnd."


def numbered(
    levels: list[tuple[str, str, str]], items: list[tuple[int, str]], more: str = ""
) -> bytes:
    own = "".join(
        f'<w:lvl w:ilvl="{n}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>{further}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
        for n, (form, text, further) in enumerate(levels)
    )
    body = "".join(
        f'<w:p><w:pPr><w:numPr><w:ilvl w:val="{n}"/><w:numId w:val="1"/></w:numPr></w:pPr>'
        f"{run(words)}</w:p>"
        for n, words in items
    )
    numbering = (
        f'<w:numbering {WORD}><w:abstractNum w:abstractNumId="0">{own}</w:abstractNum>'
        f'<w:num w:numId="1"><w:abstractNumId w:val="0"/>{more}</w:num></w:numbering>'
    )
    return word(body, word__numbering=numbering)


@pytest.mark.parametrize(
    ("levels", "items", "texts"),
    [
        (
            [("upperRoman", "Article %1", ""), ("decimal", "%1.%2", "<w:isLgl/>")],
            [(0, "A"), (0, "B"), (1, "C"), (1, "D"), (0, "E")],
            ["Article I A", "Article II B", "2.1 C", "2.2 D", "Article III E"],
        ),
        (
            [("decimal", "%1", ""), ("lowerRoman", "%1.%2", ""), ("decimal", "%1.%2.%3", "<w:isLgl/>")],  # noqa: E501
            [(0, "A"), (1, "B"), (1, "C"), (2, "D")],
            ["1 A", "1.i B", "1.ii C", "1.2.1 D"],
        ),
        (
            [("decimal", "%1", ""), ("decimal", "%1.%2", ""), ("decimal", "%1.%2.%3", "")],
            [(0, "A"), (2, "B"), (1, "C"), (2, "D"), (0, "E"), (1, "F")],
            ["1 A", "1.1.1 B", "1.2 C", "1.2.1 D", "2 E", "2.1 F"],
        ),
        (
            [("decimal", "%1.", ""), ("lowerLetter", "(%2)", '<w:lvlRestart w:val="0"/>')],
            [(0, "A"), (1, "B"), (1, "C"), (0, "D"), (1, "E")],
            ["1. A", "(a) B", "(b) C", "2. D", "(c) E"],
        ),
        (
            [("decimal", "%1", ""), ("decimal", "%2", ""), ("decimal", "%3", '<w:lvlRestart w:val="1"/>')],  # noqa: E501
            [(0, "A"), (1, "B"), (2, "C"), (1, "D"), (2, "E"), (0, "F"), (2, "G")],
            ["1 A", "1 B", "1 C", "2 D", "2 E", "2 F", "1 G"],
        ),
        (
            [("ordinal", "%1", ""), ("bullet", "\uf0a8", '<w:rPr><w:rFonts w:ascii="Wingdings"/></w:rPr>')],  # noqa: E501
            [(0, "A"), (1, "B"), (0, "C")],
            ["1st A", "☐ B", "2nd C"],
        ),
    ],
)  # fmt: skip
def test_lists_of_word_are_numbered_as_word_shows_them(
    read: Read, levels: list[tuple[str, str, str]], items: list[tuple[int, str]], texts: list[str]
) -> None:
    found = content_of(read(".docx", numbered(levels, items)))
    assert found.text.split("\n\n") == texts


def test_a_list_may_have_levels_of_its_own_and_begin_again(read: Read) -> None:
    own = (
        '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/><w:lvl w:ilvl="0"><w:start w:val="1"/>'  # noqa: E501
        '<w:numFmt w:val="decimal"/><w:lvlText w:val="§ %1"/></w:lvl></w:lvlOverride>'
    )
    found = content_of(read(".docx", numbered([("decimal", "%1.", "")], [(0, "A"), (0, "B")], own)))
    assert found.text == "§ 5 A\n\n§ 6 B"


def test_symbols_boxes_and_formulas_of_word_are_read(read: Read) -> None:
    body = (
        '<w:p><w:r><w:sym w:font="Symbol" w:char="F061"/><w:sym w:font="Wingdings" w:char="F0FC"/>'
        "</w:r><w:r><w:ffData><w:checkBox><w:checked/></w:checkBox></w:ffData></w:r>"
        "<w:oMath><w:f><w:num><w:r><w:t>a</w:t></w:r></w:num><w:den><w:r><w:t>b</w:t></w:r></w:den>"
        "</w:f><w:sSup><w:r><w:t>x</w:t></w:r><w:sup><w:r><w:t>2</w:t></w:r></w:sup></w:sSup>"
        "</w:oMath></w:p>"
    )
    assert content_of(read(".docx", word(body))).text == "α✓☒a/bx²"


@pytest.mark.parametrize(
    ("name", "chunk"),
    [
        ("c.html", b"<p>The fee is <b>5</b> euros.</p>"),
        ("c.txt", b"The fee is 5 euros."),
        ("c.rtf", rb"{\rtf1 The fee is {\deleted 4 }5 euros.}"),
        ("c.mht", b"MIME-Version: 1.0\nContent-Type: text/html\n\n<p>The fee is 5 euros."),
        ("c.docx", word(paragraph("The fee is 5 euros."))),
    ],
)
def test_documents_within_a_document_are_read(read: Read, name: str, chunk: bytes) -> None:
    body = f"{paragraph('Intro.')}<w:altChunk w:id='aFChunk'/>{paragraph('End.')}"
    parts: dict[str, str | bytes] = {
        "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
        "word/_rels/document.xml.rels": relations(aFChunk=name),
        f"word/{name}": chunk,
    }
    found = content_of(read(".docx", archived(parts)))
    assert found.text == "Intro.\n\nThe fee is 5 euros.\n\nEnd."
