"""Messages that programs wrote wrongly, and mailboxes."""

from __future__ import annotations

import base64
import codecs
import quopri

import pytest

from tests.extraction.conftest import Read, content_of

HEAD = "From: Ana <ana@example.org>\r\nSubject: Plan\r\nMIME-Version: 1.0\r\n"
PART = "\r\n--{}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nThe meeting moves.\r\n--{}--\r\n"


@pytest.mark.parametrize(
    ("stated", "own"),
    [
        ('; boundary="xyz"', "abc"),
        ("", "abc"),
        ("; boundary=", "abc"),
        ('; boundary=""', "=_Next Part(1)"),
        ("; boundary=----=_Next:Part", "----=_Next:Part"),
        ("; boundary=a/b c", "a/b c"),
    ],
)
def test_parts_without_a_usable_boundary_are_read(read: Read, stated: str, own: str) -> None:
    whole = f"{HEAD}Content-Type: multipart/mixed{stated}\r\n{PART.format(own, own)}"
    found = content_of(read(".eml", whole.encode()))
    assert found.text == "Plan\n\nFrom: Ana <ana@example.org>\n\nThe meeting moves."


def test_a_multipart_of_no_parts_is_a_text(read: Read) -> None:
    whole = f"{HEAD}Content-Type: multipart/alternative\r\n\r\nThe meeting moves.\r\n"
    assert content_of(read(".eml", whole.encode())).text.endswith("\n\nThe meeting moves.")


INNER = "From: Cy <cy@example.org>\nSubject: Inner\nContent-Type: text/plain; charset=utf-8\n\n{}"
CAFE = INNER.format("The café = the place where all of us shall meet on Friday at noon, said he.\n")


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [("base64", base64.encodebytes), ("quoted-printable", quopri.encodestring), ("8bit", bytes)],
)
def test_an_attached_message_may_be_encoded(read: Read, encoding: str, encode) -> None:  # type: ignore[no-untyped-def]
    whole = (
        f'{HEAD}Content-Type: multipart/mixed; boundary="abc"\r\n\r\n--abc\r\n\r\nSee below.\r\n'
        f"--abc\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    ).encode()
    found = content_of(read(".eml", whole + encode(CAFE.encode()) + b"\r\n--abc--\r\n"))
    assert found.text.endswith(
        "See below.\n\nInner\n\nFrom: Cy <cy@example.org>\n\n" + CAFE.split("\n\n")[1].strip()
    )


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: b"\r\n \r\n" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-le"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    ],
)
def test_marks_and_blank_lines_may_stand_before_the_head(read: Read, encode) -> None:  # type: ignore[no-untyped-def]
    found = content_of(read(".eml", encode(f"{HEAD}\r\nGrüße aus Köln.\r\n")))
    assert (found.title, found.text.split("\n")[-1]) == ("Plan", "Grüße aus Köln.")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_a_head_may_have_raw_letters(read: Read, encoding: str) -> None:
    head = "From: Jörg Müller <j@example.org>\r\nSubject: Pläne für März\r\n"
    whole = f"{head}Content-Type: text/plain; charset=iso-8859-1\r\n\r\nx\r\n".encode(encoding)
    found = content_of(read(".eml", whole))
    assert (found.title, found.author) == ("Pläne für März", "Jörg Müller <j@example.org>")


def test_a_stub_in_plain_text_gives_way_to_the_page(read: Read) -> None:
    def alternative(plain: str, page: str) -> bytes:
        parts = [f"--b\r\nContent-Type: text/plain\r\n\r\n{plain}\r\n"]
        parts.append(f"--b\r\nContent-Type: text/html\r\n\r\n<p>{page}</p>\r\n--b--\r\n")
        head = f'{HEAD}Content-Type: multipart/alternative; boundary="b"\r\n\r\n'
        return (head + "".join(parts)).encode()

    news = "The news of the week: " + "a bridge opened, and the town was glad. " * 5
    found = content_of(read(".eml", alternative("This mail needs a reader of HTML.", news)))
    assert found.text.endswith(news.strip())
    # a plain text that says as much
    found = content_of(read(".eml", alternative("A bridge opened.", "A <b>bridge</b> opened.")))
    assert found.text.endswith("\n\nA bridge opened.")


def test_a_mailbox_has_a_heading_for_each_message(read: Read) -> None:
    message = "From a@example.org Tue Mar  3 10:00:00 2026\n{}\n>From here on.\n\n"
    box = "".join(
        message.format(f"From: A <a@example.org>\nSubject: {name}\n\n{name} text.\n")
        for name in ("One", "Two")
    )
    found = content_of(read(".mbox", box.encode()))
    assert [(one.level, one.title) for one in found.headings] == [(1, "One"), (1, "Two")]
    assert found.text.count("\n\nFrom here on.") == 2
    assert "Two text." in found.text
    # the line that begins a message is none of the former one's
    assert "Tue Mar" not in found.text


def test_a_page_that_a_browser_saved_is_read_as_a_page(read: Read) -> None:
    whole = (
        "From: <Saved by Blink>\r\nSubject: Shop\r\nMIME-Version: 1.0\r\nContent-Type: multipart/"
        'related; type="text/html"; boundary="b"\r\n\r\n--b\r\nContent-Type: text/html\r\n'
        "Content-Transfer-Encoding: quoted-printable\r\n\r\n<title>Caf=C3=A9</title><h1>Our caf=C3="
        "=A9</h1>\r\n--b\r\nContent-Type: text/css\r\n\r\nh1 {}\r\n--b--\r\n"
    )
    whole = whole.replace("C3=\r\n=A9", "C3=A9").replace("C3==A9", "C3=A9")
    found = content_of(read(".mhtml", whole.encode()))
    assert (found.title, found.text) == ("Café", "Our café")
