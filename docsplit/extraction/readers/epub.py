"""EPUB: its chapters in reading order, each as HTML."""

from typing import BinaryIO

from docsplit.extraction.building import Builder
from docsplit.extraction.content import Content, Limits, UnreadableError
from docsplit.extraction.office.package import Package, attribute, below, child, local, path
from docsplit.extraction.readers.html import content_of

_MAIN = "META-INF/container.xml"
_LOCKED = "META-INF/encryption.xml"


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the parts in the order of the spine."""
    package = Package(stream, limits, _MAIN, "EPUB")
    main = attribute(next(below(package.xml(_MAIN), "rootfile"), None), "full-path")
    book = package.xml(main)
    folder = main.rpartition("/")[0]
    held = {
        attribute(item, "id"): path(folder, attribute(item, "href"))
        for item in below(book, "item")
        if not attribute(item, "media-type").startswith("image/")
    }
    # fonts may be encrypted in any book
    locked = {
        path("", attribute(one, "URI")) for one in below(package.xml(_LOCKED), "CipherReference")
    }
    builder = Builder(limits)
    for item in below(book, "itemref"):
        name = held.get(attribute(item, "idref"), "")
        if name in locked:
            raise UnreadableError("encrypted; save it without protection")
        builder.append(content_of(package.content(name), limits, xml=True))
    metadata = child(book, "metadata")
    stated: dict[str, str] = {}
    for one in metadata if metadata is not None else ():
        stated.setdefault(local(one), one.text or "")
    return builder.content(stated.get("title"), stated.get("creator"), stated.get("date"))
