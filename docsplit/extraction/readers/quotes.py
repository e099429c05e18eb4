"""The earlier messages that a reply repeats at its end, as sections of their own."""

import re

from docsplit.extraction.content import Content, Heading

# messages that may stand in each other
_DEEPEST = 20
_MARK = re.compile(r"^>[ \t]?", re.M)
# the line or two before a quote that say who wrote
_WHO = re.compile(r"(?:^|\n)([^\n>][^\n]{0,200}(?:\n[^\n>][^\n]{0,200})?:)[ \t]*\Z")
# what Outlook and others write before a message, and the head that follows
_LINE = re.compile(
    r"^[ \t]*(?:-{2,}[^\n-]{1,60}-{2,}|_{8,})[ \t]*\n+(?=\*?[A-Z][\w ]{1,15}:\*?[ \t])", re.M
)


def last_quote(text: str, level: int) -> Content:
    """A text with a heading before each message that it repeats at its end, without ``>`` there.

    A reply between quotes is left as it is: there, only the mark tells who says what.

    Args:
        text: of a message.
        level: of the headings of the message that it repeats.
    """
    own, heading, rest = _divided(text)
    if not rest.strip():
        return Content(text)
    inner = last_quote(rest, level + 1) if level < _DEEPEST else Content(rest)
    start = len(own) + 2 if own else 0
    found = f"{own}\n\n" if own else ""
    title = " ".join(heading.split())
    after = start
    if heading:
        found += f"{title}\n\n"
        after = start + len(title) + 2
    else:
        title = rest.strip().split("\n")[0]
    headings = [Heading(start, level, title)]
    headings += [one._replace(start=after + one.start) for one in inner.headings]
    return Content(found + inner.text, headings=headings)


def _divided(text: str) -> tuple[str, str, str]:
    """A text before its first repeated message, the words that introduce it, and it."""
    line, quoted = _LINE.search(text), _quoted(text)
    if line is not None and line.start() < quoted:
        return text[: line.start()].rstrip(), "", text[line.end() :].strip()
    own, heading = text[:quoted].rstrip(), ""
    if quoted < len(text) and (who := _WHO.search(own)):
        own, heading = own[: who.start()].rstrip(), who[1]
    return own, heading, _MARK.sub("", text[quoted:]).strip()


def _quoted(text: str) -> int:
    """The first character of the quoted lines at the end of a text; its length without any."""
    first = place = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        place -= len(line)
        if line.startswith(">"):
            first = place
        elif line.strip():
            break
    return first
