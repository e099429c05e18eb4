"""The text of charts and diagrams (SmartArt) in Office files."""

from xml.etree.ElementTree import Element

from docsplit.extraction.building import Builder
from docsplit.extraction.office.package import Package, attribute, below, child, local, number

# of a series, as in Excel
_MOST_POINTS = 32_000


class Drawings:
    """The charts and diagrams that a part of a file shows, each added once.

    Args:
        package: of the file.
        name: of the part.
        builder: gets the texts.
    """

    def __init__(self, package: Package, name: str, builder: Builder) -> None:
        self._package = package
        self._builder = builder
        self._charts = package.related(name, "/chart")
        self._left = self._charts | package.related(name, "/diagramData")

    def add(self, element: Element) -> None:
        """Add those that an element refers to."""
        if self._left:
            for one in element.iter():
                for value in one.attrib.values() if local(one) in ("chart", "relIds") else ():
                    self._add(value)

    def rest(self) -> None:
        """Add the others."""
        for reference in list(self._left):
            self._add(reference)

    def _add(self, reference: str) -> None:
        part = self._left.pop(reference, None)
        if part is None:
            return
        drawn = self._package.xml(part)
        if reference in self._charts:
            _chart(drawn, self._builder)
        else:
            self._builder.add("\n".join(map(paragraph, below(drawn, "p"))))


def paragraph(element: Element) -> str:
    """The text of a paragraph of DrawingML."""
    return "".join(
        "\n" if local(one) == "br" else one.text or ""
        for one in element.iter()
        if local(one) in ("t", "br")
    )


def _chart(chart: Element, builder: Builder) -> None:
    """The title of a chart, and its values as a table with a row for each series."""
    title = child(chart, "chart", "title")
    builder.add("" if title is None else "\n".join(map(paragraph, below(title, "p"))))
    rows: list[str] = []
    former: list[str] = []
    for series in below(chart, "ser"):
        columns = _values(series, "cat", "xVal")
        if columns and columns != former:
            rows.append("\t".join(["", *columns]))
            former = columns
        name = " ".join(_values(series, "tx"))
        rows.append("\t".join([name, *_values(series, "val", "yVal")]).rstrip("\t"))
    builder.add("\n".join(rows))


def _values(series: Element, *names: str) -> list[str]:
    """The values of a part of a series that has one of some names, each in its place."""
    part = next((found for name in names if (found := child(series, name)) is not None), None)
    if part is None:
        return []
    # categories may have groups, the inmost ones first
    levels = [_points(level) for level in below(part, "lvl")] or [_points(part)]
    count = 1 + max((place for level in levels for place in level), default=-1)
    for groups in levels[1:]:
        for place in range(count):
            groups.setdefault(place, groups.get(place - 1, ""))
    levels.reverse()
    return [" ".join(level.get(place, "") for level in levels).strip() for place in range(count)]


def _points(part: Element) -> dict[int, str]:
    """Values by their places; a place without one is empty."""
    found = {}
    # a name may be a value without a place
    for point in list(below(part, "pt")) or [part]:
        place = number(attribute(point, "idx"))
        value = next(below(point, "v"), None)
        if value is not None and place < _MOST_POINTS:
            found[place] = " ".join((value.text or "").split())
    return found
