"""Each kind of file, made from PEPs by other programs' writers, gives its text back."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile

import docx
import pytest
from docx.oxml import OxmlElement

from benchmarks.files.fidelity import fidelity, right_pages
from benchmarks.files.making import KINDS, made, packed
from benchmarks.files.pdf import pdf
from benchmarks.files.source import AUTHOR, Source, sources
from docsplit.extraction.content import Content, UnreadableError
from docsplit.extraction.kinds import ARCHIVES, READERS, kind_of
from docsplit.extraction.kinds import KINDS as READ
from docsplit.extraction.kinds import SOURCES as PLAIN
from tests.extraction.conftest import LIBREOFFICE, Read, content_of

SOURCES = list(sources(3))
LONG = max(SOURCES, key=lambda source: len(source.text))


def test_every_kind_is_made_here() -> None:
    stored = {path.suffix for path in LIBREOFFICE.iterdir()}
    made_or_stored = {*KINDS, *ARCHIVES, *stored}
    # other ends of names of the same kinds, and kinds that tests write by hand
    own = {".mbox", ".mhtml", ".mht", ".xml", ".nxml", ".tex"}
    readers = {READERS[kind] for kind in made_or_stored if kind in READERS}
    for kind in set(READ) - made_or_stored - own:
        assert kind in PLAIN or READERS[kind].partition(".")[0] in {
            one.partition(".")[0] for one in readers
        }


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_its_text_pages_and_headings(read: Read, kind: str) -> None:
    for source in SOURCES:
        file = made(kind, source)
        found = content_of(read(kind, file.content))
        # a header cannot be known as one on a single page, and stays once if few pages have it
        least = {1: 0.95, 2: 0.99, 3: 0.99, 4: 0.99}.get(len(file.pages or []), 0.995)
        assert fidelity(file.text, found.text) >= least
        assert right_pages(file.pages or [], found.text, found.pages) == len(file.pages or [])
        for heading in found.headings:
            words = found.text[heading.start :].split()
            assert words[: len(heading.title.split())] == heading.title.split() or kind == ".md"
        if file.headings and kind != ".md":
            assert [heading.title for heading in found.headings] == file.headings


def test_another_text_has_less_fidelity(read: Read) -> None:
    first, second = (made(".docx", source) for source in SOURCES[:2])
    assert fidelity(second.text, content_of(read(".docx", first.content)).text) < 0.5
    found = content_of(read(".pdf", pdf(LONG)[0]))
    pages = pdf(LONG)[1]
    assert right_pages(pages[::-1], found.text, found.pages) < len(pages)


@pytest.mark.parametrize(
    ("kind", "date"),
    [
        (".docx", "2012-03-07T00:00:00+00:00"),
        (".odt", "2012-03-07T10:00:00"),
        (".epub", "2012-03-07"),
        (".html", "2012-03-07"),
        (".eml", "2012-03-07T00:00:00+00:00"),
        (".rtf", "2012-03-07"),
        (".pdf", None),
        (".xlsx", None),
    ],
)
def test_a_file_states_title_author_and_date(read: Read, kind: str, date: str | None) -> None:
    source = Source("Tags & Wheels", "2012-03-07", SOURCES[0].blocks)
    found = content_of(read(kind, made(kind, source).content))
    assert found.title == source.title
    assert found.author is not None
    assert found.author.startswith(AUTHOR)
    assert found.date == date if date else found.date is not None


@pytest.mark.parametrize("kind", [".md", ".rst"])
def test_the_first_heading_is_the_title_of_a_text(read: Read, kind: str) -> None:
    source = Source("Not stated", "2012-03-07", [(1, "The first"), (0, "A text."), (2, "Second")])
    assert content_of(read(kind, made(kind, source).content)).title == "The first"


def test_columns_are_read_one_after_the_other(read: Read) -> None:
    content, pages = pdf(LONG, columns=2)
    found = content_of(read(".pdf", content))
    # the header of few pages stays once
    assert fidelity("\n".join(pages), found.text) >= 0.99
    assert right_pages(pages, found.text, found.pages) == len(pages)


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "cp1252", "cp1251", "cp932", "iso2022_jp"]
)
def test_a_text_in_any_common_encoding(read: Read, encoding: str) -> None:
    text = "Größe und Maß für schöne Übungen, naïve café – “so”. " * 5
    if encoding == "cp1251":
        text = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5
    elif encoding in ("cp932", "iso2022_jp"):
        text = "日本語のテキストです。これは長い文章の例です。" * 5
    assert content_of(read(".txt", text.encode(encoding))).text == text


@pytest.mark.parametrize("text", ["Größe und Übung der schönen Straße", "東京に行きました。" * 9])
def test_a_few_wrong_bytes_leave_the_others_in_utf_8(read: Read, text: str) -> None:
    # cut within the last letter, which has two bytes or three
    cut = f"{text} €".encode()[:-1]
    assert content_of(read(".txt", cut)).text == f"{text} \ufffd"
    mixed = f"{text}\n".encode() * 9 + b"caf\xe9\n" + text.encode()
    assert content_of(read(".txt", mixed)).text == f"{text}\n" * 9 + f"caf\ufffd\n{text}"


def mail(kind: str, charset: str, body: bytes) -> bytes:
    """An e-mail in 8 bits."""
    head = f"Subject: Hi\nMIME-Version: 1.0\nContent-Type: text/{kind}; charset={charset}\n"
    return f"{head}Content-Transfer-Encoding: 8bit\n\n".encode() + body


@pytest.mark.parametrize("kind", ["plain", "html", "html; name=a.html"])
@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("koi8-r", "Привет, как дела?"),
        ("iso-8859-2", "Zażółć gęślą jaźń"),
        ("iso-2022-jp", "会議は明日です"),
        ("iso-2022-jp", "会議ｱｲｳ"),
        ("iso-2022-kr", "내일 회의"),
        ("us-ascii", "会議は明日です"),
        ("hz", "你好"),
        ("utf-7", "Grüße"),
    ],
)
def test_a_mail_is_read_in_the_encoding_of_its_header(
    read: Read, kind: str, charset: str, text: str
) -> None:
    encoding = {"iso-2022-jp": "iso2022_jp_ext", "us-ascii": "iso2022_jp"}.get(charset, charset)
    found = content_of(read(".eml", mail(kind, charset, text.encode(encoding))))
    assert found.text.endswith(f"\n\n{text}")


@pytest.mark.parametrize(
    ("charset", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "“Yes” – it’s 5 €"),
        ("latin1", "cp1252", "“Naïve”"),
        ("us-ascii", "cp1252", "It’s ready"),
        ("iso-8859-9", "cp1254", "“Şişli” – İstanbul"),
        ("shift_jis", "cp932", "①会議"),
        ("gb2312", "gb18030", "朱镕基"),
        # bytes that cp1252 lacks
        ("iso-8859-1", "latin-1", "é\x81"),
    ],
)
def test_a_label_means_what_browsers_take_it_for(
    read: Read, charset: str, encoding: str, text: str
) -> None:
    body = text.encode(encoding)
    assert content_of(read(".eml", mail("plain", charset, body))).text.endswith(f"\n\n{text}")
    page = f'<meta charset="{charset}"><p>'.encode() + body
    assert content_of(read(".html", page)).text == text


def test_one_wrong_shift_spoils_no_more_than_its_letter(read: Read) -> None:
    # the second letter is one of NEC's, which Python's encoding lacks
    body = b"\x1b$B2q-!F|\x1b(B, then ASCII"
    assert content_of(read(".eml", mail("plain", "iso-2022-jp", body))).text.endswith(
        "会\ufffd日, then ASCII"
    )
    # what only looks like a shift to Japanese stays
    assert content_of(read(".txt", b"\x1b$B\xc3\xa9")).text == "\x1b$Bé"


def test_a_page_in_a_mail_may_state_what_its_header_does_not_know(read: Read) -> None:
    page = '<meta charset="koi8-r"><p>Привет, как дела?'.encode("koi8-r")
    found = content_of(read(".eml", mail("html", "us-ascii", page)))
    assert found.text.endswith("Привет, как дела?")
    page = "<meta charset='koi8-r'><p>Zażółć".encode("iso-8859-2")
    assert content_of(read(".eml", mail("html", "iso-8859-2", page))).text.endswith("Zażółć")


def test_a_page_begins_where_word_laid_it_out(read: Read) -> None:
    document = docx.Document()
    document.add_paragraph("First page")
    paragraph = document.add_paragraph("still the first, ")
    run = paragraph.add_run()
    run._r.append(OxmlElement("w:lastRenderedPageBreak"))
    run.add_text("then the second.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    target = io.BytesIO()
    document.save(target)
    found = content_of(read(".docx", target.getvalue()))
    assert found.text == "First page\n\nstill the first, then the second.\n\nleft\tright"
    assert found.pages == [0, found.text.index("then")]


@pytest.mark.parametrize("kind", [".txt", ".md", ".rst", ".html"])
@pytest.mark.parametrize("text", [b"", b"\xef\xbb\xbf", b" \n\t\n"])
def test_a_file_of_blanks_is_refused(read: Read, kind: str, text: bytes) -> None:
    [(_, found)] = read(kind, text)
    assert isinstance(found, UnreadableError)
    assert str(found) == "it holds no text"
    assert content_of(read(kind, text + b"a")).text.strip() == "a"


def test_headings_of_markdown_and_restructured_text(read: Read) -> None:
    text = "# One #\n\n```\n# code\n```\n\nTwo\n---\n\n- item\n\n####### no\n"
    found = content_of(read(".md", text.encode()))
    assert [(h.level, h.title, text[h.start :][:3]) for h in found.headings] == [
        (1, "One", "# O"),
        (2, "Two", "Two"),
    ]
    text = "=====\nTitle\n=====\n\nPart\n====\n\nlast line\nof a text\n---------\n"
    text += "\nSub\n---\n\nPart 2\n======\n"
    found = content_of(read(".rst", text.encode()))
    assert [(h.level, h.title, text[h.start :][:3]) for h in found.headings] == [
        (1, "Title", "Tit"),
        (2, "Part", "Par"),
        (3, "Sub", "Sub"),
        (2, "Part 2", "Par"),
    ]


@pytest.mark.parametrize(("mark", "means"), [("---", ":"), ("+++", " =")])
def test_markdown_may_state_title_author_and_date_before_the_text(
    read: Read, mark: str, means: str
) -> None:
    stated = {"title": '"Notes"', "author": "Ada Example", "tags": "[a, b]", "date": "2026-03-07"}
    lines = [mark, *(f"{name}{means} {value}" for name, value in stated.items()), mark, ""]
    text = "\n".join([*lines, "One", "---", ""])
    found = content_of(read(".md", text.encode()))
    assert (found.title, found.author, found.date) == ("Notes", "Ada Example", "2026-03-07")
    assert found.text == text
    # the line above the second mark is no heading
    [heading] = found.headings
    assert text[heading.start :] == "One\n---\n"
    # other texts state nothing so
    assert content_of(read(".txt", text.encode())).title is None


@pytest.mark.parametrize("kind", [".md", ".rst"])
def test_a_long_line_costs_linear_time(read: Read, kind: str) -> None:
    # in quadratic time this would take hours
    text = f"# a{' ' * 3_000_000}b\n{'=' * 3_000_000} x\n\nOne\n===\n"
    assert [h.title for h in content_of(read(kind, text.encode())).headings] == ["One"]


def test_html_shows_what_a_reader_of_the_page_sees(read: Read) -> None:
    page = (
        "<title>T</title><body><h1>One <i>two</i></h1><p>a<b>b</b>\n c<p>d<pre> x\n  y</pre>"
        "<table><tr><th>1<td>2<tr><td>3<td>4</table><script>no()</script><!-- no --><ul><li>e<li>f"
    )
    found = content_of(read(".html", page.encode()))
    assert found.text == "One two\n\nab c\n\nd\n\n x\n  y\n\n1\t2\n3\t4\n\ne\n\nf"


CHAPTER = "<html><head>{}</head><body><p>Chapter {}.<br/><i id='a/b'/>Its text.</p></body></html>"


@pytest.mark.parametrize(
    "element", ["<title/>", '<script src="a/r.js" />', "<style title='/>'/>", "<template/>"]
)
def test_an_element_that_xml_closes_at_once_hides_no_text(read: Read, element: str) -> None:
    container = '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
    book = '<package><item id="a" href="1"/><item id="b" href="2"/><itemref idref="a"/>'
    chapters = [CHAPTER.format(element, number) for number in ("one", "two")]
    second = f'<?xml version="1.0"?>{chapters[1]}'
    parts: dict[str, str | bytes] = {
        "META-INF/container.xml": container,
        "book.opf": f'{book}<itemref idref="b"/></package>',
        "1": chapters[0],
        "2": second,
    }
    texts = ["Chapter one.\nIts text.", "Chapter two.\nIts text."]
    assert content_of(read(".epub", packed(parts))).text == "\n\n".join(texts)
    formula = "<p>of <m:math><m:mi>n</m:mi><m:annotation>n</m:annotation></m:math></p>"
    parts["1"] = f"<html><body>{formula}</body></html>"
    assert content_of(read(".epub", packed(parts))).text == f"of n\n\n{texts[1]}"
    assert content_of(read(".xhtml", chapters[0].encode())).text == texts[0]
    assert content_of(read(".html", f"\ufeff\n{second}".encode())).text == texts[1]


def test_other_slashes_of_xml_stay(read: Read) -> None:
    page = (
        "<?xml version='1.0'?><!-- <title/> --><title>A/B <i/></title><p title='<br/>'>One<br/>two"
        "<script>write(\"<script src='x'/>\")</script><script>//<![CDATA[\n<style/>\n//]]></script>"
    )
    found = content_of(read(".html", page.encode()))
    assert (found.title, found.text) == ("A/B <i/>", "One\ntwo")


@pytest.mark.parametrize("unit", ["a", "<a ", "<a b='", "<script ", "<!--", "<title>", "/", "'"])
def test_hostile_xhtml_costs_linear_time(read: Read, unit: str) -> None:
    page = "<p>One</p><b" + unit * (1_000_000 // len(unit))
    assert content_of(read(".xhtml", page.encode())).text.startswith("One")


def test_an_archive_gives_its_files_and_names_those_it_refuses(read: Read) -> None:
    parts: dict[str, str | bytes] = {
        "a.txt": "A text.",
        "deep/b.docx": made(".docx", SOURCES[0]).content,
        "c.pdf": b"no PDF",
        "d.png": b"\x89PNG",
        "e.csv": "id,text\n1,a\n",
        "../f.txt": "outside",
        "__MACOSX/._a.txt": "resource",
        "g.zip": packed({"h.txt": "inner"}),
        "i.doc": "old",
    }
    found = read(".zip", packed(parts))
    assert [name for name, one in found if isinstance(one, Content)] == ["a.txt", "deep/b.docx"]
    assert {name: str(one) for name, one in found if isinstance(one, UnreadableError)} == {
        "c.pdf": "no PDF file",
        "e.csv": "a table or an archive within an archive; unpack the outer one",
        "../f.txt": "its name leaves the archive",
        "g.zip": "a table or an archive within an archive; unpack the outer one",
        "i.doc": "an old format of Word: save it as .docx",
        "*.png": "1 left out, of no kind that is read: d.png",
    }


def test_a_packed_file_gives_the_same_as_the_unpacked_one(read: Read) -> None:
    plain, word = b"A text.", made(".docx", SOURCES[0]).content
    archive = packed({"a.txt": plain, "b.docx": word})
    for name, content in {"a.txt": plain, "b.docx": word, "c.zip": archive}.items():
        for end, pack in ((".gz", gzip.compress), (".BZ2", bz2.compress)):
            kind, packing = kind_of(name + end)
            assert read(kind + packing, pack(content)) == read(kind_of(name)[0], content)
    # the content is not read without its packing, nor the packing without a kind
    assert read(".txt", gzip.compress(plain)) != read(".txt", plain)
    assert kind_of("deep.zip/a.tgz") == (".tar", ".gz")
    assert kind_of("a.txt.gz.gz") == (".gz", ".gz")
    assert kind_of("a.gz") == ("", ".gz")


def test_a_tar_archive_gives_its_files_without_links(read: Read) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo("./a.txt")
        member.size = 7
        archive.addfile(member, io.BytesIO(b"A text."))
        link = tarfile.TarInfo("b.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert read(".tar", target.getvalue()) == [("a.txt", Content("A text."))]


def test_templates_and_other_ends_of_names_are_read_as_their_kinds(read: Read) -> None:
    for kind, others in {
        ".docx": (".dotx", ".dotm"),
        ".pptx": (".ppsx", ".potx"),
        ".xlsx": (".xltx",),
        ".odt": (".ott",),
        ".md": (".markdown",),
    }.items():
        file = made(kind, SOURCES[0]).content
        for other in others:
            assert read(other, file) == read(kind, file)


def test_headings_and_title_of_tex(read: Read) -> None:
    text = (
        "\\title{On \\emph{Steel} \\thanks{A fund}}\n\\author{Ada Example}\n% \\section{No}\n"
        "\\section{One}\nText.\n\\subsection*{Two {\\it and} half}\n"
    )
    found = content_of(read(".tex", text.encode()))
    assert (found.title, found.author, found.text) == ("On Steel", "Ada Example", text)
    assert [(one.level, one.title) for one in found.headings] == [(1, "One"), (2, "Two and half")]
    assert text[found.headings[0].start :].startswith("\\section{One}")


ARTICLE = """<?xml version="1.0"?><!DOCTYPE article><article><front><journal-meta>
<journal-title>J</journal-title></journal-meta><article-meta><article-id>1</article-id><title-group>
<article-title>On
<italic>steel</italic></article-title></title-group><contrib-group><contrib><name>
<surname>Example</surname><given-names>Ada</given-names></name></contrib></contrib-group><pub-date><day>7</day>
<month>3</month><year>2026</year></pub-date>
<abstract><p>In short.</p></abstract></article-meta></front>
<body>
<sec><label>1</label><title>Intro</title><p>Results<sup>2</sup> fall<xref>1</xref>.</p>
<sec><title>Part</title><p>By <math><mi>n</mi><mo>=</mo><mn>4</mn></math>.</p></sec></sec>
<table-wrap><table><tr><td>a</td><td>b</td></tr></table></table-wrap></body><back><ref-list><title>References</title><ref>
<label>1.</label><mixed-citation>Lee. Iron.</mixed-citation></ref></ref-list></back></article>"""


@pytest.mark.parametrize("kind", [".nxml", ".xml"])
def test_an_article_in_xml_is_read(read: Read, kind: str) -> None:
    found = content_of(read(kind, ARTICLE.encode()))
    assert (found.title, found.author, found.date) == ("On steel", "Ada Example", "2026-03-07")
    assert found.text.split("\n\n") == [
        "On steel", "Abstract", "In short.", "1 Intro", "Results² fall1.", "Part", "By n=4.",
        "a\tb", "References", "1. Lee. Iron.",
    ]  # fmt: skip
    assert [(one.level, one.title) for one in found.headings] == [
        (1, "On steel"), (2, "Abstract"), (2, "1 Intro"), (3, "Part"), (2, "References"),
    ]  # fmt: skip
    [(_, error)] = read(kind, b"<config><a/></config>")
    assert "save it as HTML" in str(error)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (
            "<p>falls by <math alttext='3.2'><semantics><mrow><mn>3.2</mn><mo>%</mo></mrow>"
            "<annotation encoding='application/x-tex'>3.2\\%</annotation></semantics></math>, to "
            "<math><mfrac><mi>a</mi><mi>b</mi></mfrac></math> or <math><msup><mi>x</mi><mn>2</mn>"
            "</msup></math>; <math alttext='y=1'></math>.",
            "falls by 3.2%, to a/b or x²; y=1.",
        ),
        (
            "<p>明日<ruby>東<rp>(</rp><rt>とう</rt><rp>)</rp>京<rp>(</rp><rt>きょう</rt><rp>)</rp>"
            "</ruby>に行く。",
            "明日東京に行く。",
        ),
        ("<h3><button>What is it?</button></h3><div>A fee.</div>", "What is it?\n\nA fee."),
        ("<dl><dt><button>Who?</button></dt><dd>Residents.</dd></dl>", "Who?\n\nResidents."),
        (
            "<div><button aria-expanded=false aria-controls=a>What does it cost?</button></div>"
            "<div id=a>5 euros.<button>Send</button></div>",
            "What does it cost?\n\n5 euros.",
        ),
        ("<p>See the <a class=anchor href=x>terms</a> first.", "See the terms first."),
        ("<h2>One<a class=anchor href='#one'>#</a> <a href='#one'>¶</a></h2>", "One"),
        ("<p>A note<a href='#fn'>*</a>, and <a href='#r'>[1]</a>", "A note*, and [1]"),
        ("<p>Bundes&shy;tag, zero&#8203;width and Mu&#776;ller", "Bundestag, zerowidth and Müller"),
    ],
)
def test_formulas_readings_buttons_and_marks_of_html(read: Read, page: str, text: str) -> None:
    assert content_of(read(".html", page.encode())).text == text


@pytest.mark.parametrize(
    "title",
    [
        "Untitled spreadsheet",
        "10811.exe",
        "PowerPoint Presentation",
        "PowerPoint-Präsentation",
        "Présentation PowerPoint",
        "Microsoft Word - a.doc",
        "Document1",
        "report_final.docx",
        "(unspecified)",
    ],
)
def test_what_programs_state_in_place_of_a_title_is_none(read: Read, title: str) -> None:
    page = f"<title>{title}</title><h1>Water in Spring</h1>"
    assert content_of(read(".html", page.encode())).title == "Water in Spring"
    # words that only begin alike
    page = "<title>Documents of the PowerPoint presentation court</title><h1>Other</h1>"
    assert content_of(read(".html", page.encode())).title != "Other"
