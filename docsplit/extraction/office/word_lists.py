"""The numbers that Word shows before paragraphs: its file has only how to count them."""

from xml.etree.ElementTree import Element

from docsplit.extraction.office.numbers import LEVELS, Counter, Level
from docsplit.extraction.office.package import attribute, below, child, number

# by Word's names; others are shown as digits
_STYLES = {
    "lowerLetter": "a",
    "upperLetter": "A",
    "lowerRoman": "i",
    "upperRoman": "I",
    "decimalZero": "01",
}
_WITHOUT = {"bullet", "none"}
# styles that a style is based on, one after the other
_MOST_BASES = 20


def lineages(styles: Element) -> dict[str, list[str]]:
    """For the id of each style itself, and then the styles that it is based on in turn."""
    based = {
        attribute(style, "styleId"): attribute(child(style, "basedOn"), "val")
        for style in below(styles, "style")
    }
    found = {}
    for name in based:
        line = [name]
        while len(line) < _MOST_BASES and line[-1] in based and based[line[-1]]:
            line.append(based[line[-1]])
        found[name] = line
    return found


class Lists:
    """Counts the numbered paragraphs of a document in their order.

    Args:
        numbering: the part that defines the lists.
        styles: the part that defines the styles, which may belong to lists.
    """

    def __init__(self, numbering: Element, styles: Element) -> None:
        counters = {
            attribute(one, "abstractNumId"): Counter(_levels(one))
            for one in below(numbering, "abstractNum")
        }
        self._counters: dict[str, Counter] = {}
        self._starts: dict[tuple[str, int], int] = {}
        for one in below(numbering, "num"):
            name, kind = attribute(one, "numId"), attribute(child(one, "abstractNumId"), "val")
            if kind in counters:
                # lists of one kind go on counting
                self._counters[name] = counters[kind]
            for override in below(one, "lvlOverride"):
                if start := attribute(child(override, "startOverride"), "val"):
                    self._starts[name, number(attribute(override, "ilvl")) + 1] = number(start, 1)
        own = {
            attribute(style, "styleId"): _place(child(style, "pPr", "numPr"))
            for style in below(styles, "style")
        }
        numbered = {name for name, (listed, _) in own.items() if listed}
        self._styles = {
            name: (base, *own[base])
            for name, line in lineages(styles).items()
            if (base := next((one for one in line if one in numbered), None)) is not None
        }
        # a level may name the style of the headings that it numbers
        self._of_style = {
            attribute(child(level, "pStyle"), "val"): number(attribute(level, "ilvl")) + 1
            for level in below(numbering, "lvl")
        }

    def before(self, paragraph: Element) -> str:
        """What stands before a paragraph, with a blank after it; "" without a number."""
        style = attribute(child(paragraph, "pPr", "pStyle"), "val")
        name, level = _place(child(paragraph, "pPr", "numPr"))
        if not name:
            base, name, stated = self._styles.get(style, ("", "", 0))
            level = level or self._of_style.get(style, 0) or self._of_style.get(base, 0) or stated
        counter = self._counters.get(name)
        if counter is None:
            return ""
        level = level or 1
        # an own start counts for the first paragraph of the list only
        return counter.next(level, self._starts.pop((name, level), None))


def _levels(kind: Element) -> dict[int, Level]:
    found: dict[int, Level] = {}
    for one in below(kind, "lvl"):
        level = number(attribute(one, "ilvl")) + 1
        style = attribute(child(one, "numFmt"), "val")
        if level <= LEVELS:
            text = "" if style in _WITHOUT else attribute(child(one, "lvlText"), "val")
            start = number(attribute(child(one, "start"), "val"))
            found[level] = Level(text, _STYLES.get(style, "1"), start)
    return found


def _place(numbering: Element | None) -> tuple[str, int]:
    """The list of a paragraph or a style and the level in it, from 1; "" and 0 if unstated."""
    if numbering is None:
        return "", 0
    level = attribute(child(numbering, "ilvl"), "val")
    return attribute(child(numbering, "numId"), "val"), number(level) + 1 if level else 0
