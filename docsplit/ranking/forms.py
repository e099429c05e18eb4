"""Identifiers that a field has a standard for, as people write them.

``read`` gives each place of a text the keys that it may stand for, and ``key`` that of a stored
identifier. Both ends of a link are compared by their keys, so it does not matter which form stands
where. A key is the family, the work and perhaps, after a blank, the version, as in
``arxiv:1706.03762 v5``. docs/explanation/relations.md has the families.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from heapq import merge
from html import unescape
from itertools import islice
from operator import itemgetter
from urllib.parse import unquote

# members of a range, and keys of a place
_MOST_RANGE = 100
_MOST_KEYS = 16
# characters before a sign of paragraphs that may name a code
_BEFORE = 80
_CLEAN = dict.fromkeys(map(ord, "‐‑‒–—−"), "-") | dict.fromkeys(map(ord, "\u00ad\u200b\u2060"))
_FILE = re.compile(r"\.(?:pdf|txt|html?|xml|md|rst|docx?|tex|epub|json)(?:\.gz)?$", re.I)
# what may stand before a stored identifier
_LEADS = re.compile(r"[/:=(\[§]|,\s|\b(?:doi|no\.?|patent)\s", re.I)
_LEAD = re.compile(rf"(?:.*(?:{_LEADS.pattern}))?", re.S | re.I)
# between the members of an enumeration, and of a range
_AND = r"\b(?:and|or|und|et)\b"
_GAP = re.compile(rf"\s*(?:(?P<to>[-–—]|to\b|through\b)|[,;]\s*(?:{_AND}|&)?|{_AND}|&|/)\s*")

_NEW = r"\d\d(?:0[1-9]|1[0-2])\.\d{4,5}"
_CLASS = (
    r"(?:astro-ph|cond-mat|cs|math|nlin|physics|q-bio|q-fin|stat|alg-geom|chao-dyn|cmp-lg|gr-qc"
    r"|hep-(?:ex|lat|ph|th)|math-ph|nucl-(?:ex|th)|q-alg|quant-ph|solv-int)(?:\.[A-Za-z-]{2,18})?"
)
_OLD = rf"{_CLASS}[/_]\d\d(?:0[1-9]|1[0-2])\d{{3}}"
_SPACE = "[\\s\u2010-\u2015-]"
_ISBN = rf"(?:97[89]{_SPACE}{{0,3}})?(?:\d{_SPACE}{{0,3}}){{9}}[\dXx]"
# "2d" is a part of a reporter's name, "-58" the end of some pages
_SECTION = r"(?!\d?\d(?:d|st|nd|rd|th)\b)\d{1,6}(?:[A-Za-z]{1,3}(?:-\d+[a-z]?)?)?(?:\.\d+[a-z]?)*"
_PAGES = r"(?![^\W_])(?P<more>(?:\(\w{1,4}\))*)(?:[-–]\d{1,2}(?![\w.]))?"
_COLON = r"(?::|%3[aA])\s?"

# Of each family: what may stand before the first member, which belongs to it if it is ``bare``; a
# member, with a version or paragraphs as ``more``; and whether several may follow each other. A
# pattern begins with a set of characters, for which ``re`` has a fast search, and then looks back.
_FAMILIES: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "arxiv": (
        (
            r"[aApP](?<!\w.)(?:(?:bs|df)/|(?<=[aA])(?i:rxiv(?:\.org)?(?:/(?:abs|pdf|html|ps))?[\s:./(\[-]{0,4}"
            r"(?:(?:e-?prints?|preprints?|ids?|nos?\.?|pages?|papers?)[\s:.,]{0,4}){0,4}"
            rf"(?:arxiv[\s:]{{0,4}})?))(?={_NEW}|{_OLD})",
            rf"(?P<bare>[acghmnpqs](?<![\w-].)(?<=(?={_OLD}).))",
            rf"(?P<bare>[0-9](?<![\w.-].)\d(?:0[1-9]|1[0-2])\.\d{{4,5}})(?=(?:v\d+)?\s*\[{_CLASS})",
        ),
        rf"(?P<id>{_NEW}|{_OLD})(?P<more>[vV]\d{{1,3}})?(?![^\W_]|\.\d)",
        True,
    ),
    "code": (
        (
            r"(?P<title>\d(?<![\w.-].)\d{0,2})\s+(?P<short>U\.?\s?S\.?\s?C\.?(?:\s?[AS]\.?)?"
            r"|C\.?\s?F\.?\s?R\.?|U\.?\s?S\.?\s+Code|United\s+States\s+Code)\s*,?\s*"
            r"(?:§+|[Ss]ec(?:tion)?s?\b\.?|[Pp](?:ar)?ts?\b\.?)?\s*(?=\d)",
            r"§§*\s*(?=\d)",
        ),
        rf"(?P<id>{_SECTION}){_PAGES}",
        True,
    ),
    "doi": (
        (
            r"1(?<![\d.].)0\.\d{4,9}(?:/|_|%2[Ff])"
            r"(?:[^\s\"|]|(?<=[./_-])[ \t]{0,9}\n[ \t]{0,9}(?!10\.\d{4})(?=[a-z\d])){1,200}",
        ),
        "",
        False,
    ),
    "ecli": (
        (
            rf"[eE](?<!\w.)(?i:cli){_COLON}(?=[A-Za-z]{{2}}[:%])",
            r"(?P<bare>[A-Z](?<![\w:-].)[A-Z]:)(?=[A-Z\d.]{1,7}:\d{4}:)",
        ),
        rf"(?i:(?P<id>[A-Z]{{2}}{_COLON}[A-Z\d.]{{1,7}}{_COLON}\d{{4}}{_COLON}[A-Z\d.]{{0,24}}[A-Z\d]))",
        False,
    ),
    "eu": (
        (
            r"(?P<act>[rRdD](?<!\w.)(?i:egulation|irective|ecision))s?\s*"
            r"(?:\((?:EU|EC|EEC|Euratom|CFSP|JHA)(?:,\s*Euratom)?\)\s*)?(?:[Nn]os?\.?\s*)?(?=\d)",
        ),
        r"(?P<id>\d{1,4}/\d{1,4})(?:/E[A-Z]+)?(?![^\W_])",
        True,
    ),
    "isbn": (
        (
            r"[iI](?<!\w.)(?i:sbns?(?:[-\s]?1[03])?(?:\s*\(1[03]\))?)"
            rf"[\s:#.=/-]{{0,4}}(?={_ISBN})",
        ),
        rf"(?P<id>{_ISBN})(?![^\W_])",
        True,
    ),
    "law": (
        (
            r"(?P<volume>\d(?<![\w.-].)\d{0,3})\]?\s{1,9}"
            rf"(?P<reporter>[A-Z][A-Za-z\d.,'’&\s]{{0,40}}?)\s*(?={_SECTION}(?![^\W_]))",
        ),
        rf"(?P<id>{_SECTION}){_PAGES}",
        False,
    ),
    "patent": (
        (
            r"(?P<country>[A-Z](?<!\w.)[A-Z](?<=US|EP|WO|DE|GB|FR|JP|CN|KR|CA|AU|ES|IT|CH|AT))"
            r"(?:-|(?<![Tt]h[e]\s..)\s)?(?=[DRP\d])",
            r"[pP](?<!\w.)(?i:at(?:ents?|s?\.)(?:\s+appl?(?:ication|\.))?"
            r"(?:\s+pub(?:lication|\.))?\s+(?:(?:nos?|numbers?)\b\.?|\#)?\s*)(?=[DRP\d])",
        ),
        r"(?P<id>(?:D|RE|PP)?\s?(?:(?:19|20)?\d\d[/-]\d{5,7}|\d{6,12}"
        r"|\d{1,3}(?P<mark>[,.' ])\d{3,4}(?:(?P=mark)\d{3}){1,2}))(?![,./]?\d)"
        r"(?:[\s-]?(?P<more>[A-CESTUY]\d?)(?![^\W_]))?(?![^\W_])",
        True,
    ),
    "pmid": (
        (
            r"[pP](?<!\w.)(?i:mids?\b[\s:#=]{0,4}"
            r"|ubmed(?:\.ncbi\.nlm\.nih\.gov)?(?:\s+id)?[\s:/#=]{0,4})(?=\d)",
        ),
        r"(?P<id>\d{4,8})(?![^\W_]|\.\d)",
        True,
    ),
    # after a word such as "RFCs"; a path such as "pep-12/1.png" is no enumeration
    "series": (
        (r"[^\W\d_]+\s{0,2}(?:(?<=\s)#)?(?=\d)",),
        r"(?P<id>\d{1,9})(?![^\W_]|\.\w|-[^\W\d]|,\d{3}\b|\s+(?:others?|more|further|people|years)\b)",
        True,
    ),
}
FAMILIES = frozenset(_FAMILIES) - {"series"}
# identifiers that only a word before them shows as such in a text
_BARE = re.compile(rf"(?P<arXiv>(?:{_NEW}|{_OLD})(?:[vV]\d{{1,3}})?)|(?P<ISBN>{_ISBN})")

# the end of a place in a text, and what it stands for if it ends there
Key = tuple[int, str]


def read(text: str, families: Iterable[str]) -> Iterator[tuple[int, Iterable[Key]]]:
    """The first character of each identifier of some families, and its keys, likely ones first."""
    ends: dict[str, int] = {}
    begins = (_found(name, one, text) for name in families for one in _begins(name))
    for start, name, begin in merge(*begins, key=itemgetter(0, 1)):
        group = "law" if name == "code" else name
        if start >= ends.get(group, 0):
            for place, end, keys in _places(name, begin):
                yield place, keys
                ends[group] = end


def _places(name: str, begin: re.Match[str]) -> Iterator[tuple[int, int, Iterable[Key]]]:
    """First character, end and keys of each identifier that follows a begin."""
    start = begin.start()
    if name == "doi":
        yield start, start, islice(_doi(begin), _MOST_KEYS)
        return
    first = start if "bare" in begin.re.groupindex else begin.end()
    for place, (own, end, value, more) in enumerate(_members(name, begin.string, first)):
        keys = dict.fromkeys(_KEYS[name](begin, value, more))
        yield own if place else start, end, [(end, one) for one in islice(keys, _MOST_KEYS)]


def _found(
    name: str, pattern: re.Pattern[str], text: str
) -> Iterator[tuple[int, str, re.Match[str]]]:
    return ((begin.start(), name, begin) for begin in pattern.finditer(text))


def families(keys: Iterable[str]) -> frozenset[str]:
    """The families of some keys; other names have none."""
    found = {key.partition(":")[0] for key in keys if ":" in key}
    return frozenset(found | {"code"} if "law" in found else found)


def series(text: str, start: int, word: str) -> list[tuple[int, list[Key]]]:
    """The places of an enumeration that begins with a word, with names such as "pep 484"."""
    begin = _begins("series")[0].match(text, start)
    members = _members("series", text, begin.end()) if begin else ()
    found = [(first, [(end, f"{word} {int(value)}")]) for first, end, value, _ in members]
    return [(start, keys) for _, keys in found[:1]] + found[1:]


def stem(stored: str) -> str:
    """An identifier that may be the name of a file, without folders and the kind of file."""
    return stored if (name := _FILE.sub("", stored)) == stored else name.rpartition("/")[2]


def key(stored: str) -> str | None:
    """The key of an identifier that is stored as such, or as the name of a file."""
    name = _FILE.sub("", stored.strip())
    for given in (name, name.rpartition("/")[2]) if "/" in name else (name,):
        bare = _BARE.fullmatch(given)
        lead = f"{bare.lastgroup} " if bare else ""
        whole = lead + given
        # most names have none, and most others begin with it
        found = _any().match(whole) or (_LEADS.search(given) and _any().search(whole))
        for start, end, own in _identified(found) if found else ():
            before = given[: max(0, start - len(lead))]
            if end == len(whole) and (not before or _LEAD.fullmatch(before) or "§" in given):
                return own
    return None


def _identified(found: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """First character, end and key of the identifiers of a name: what it likely is comes first."""
    name, start, kind = found.string, found.start(), found.lastgroup or ""
    if kind == "doi_0":
        yield start, *next(_doi(found))
    elif whole := _wholes()[kind].fullmatch(name, start):
        more = whole["more"] if "more" in whole.re.groupindex else ""
        keys = _KEYS[kind.partition("_")[0]](whole, whole["id"], more or "")
        yield from ((start, len(name), own) for own in islice(keys, 1))
    for first, places in read(name, FAMILIES):
        yield from ((first, *place) for place in islice(places, 1))


@cache
def _begins(name: str) -> list[re.Pattern[str]]:
    return [*map(re.compile, _FAMILIES[name][0])]


@cache
def _any() -> re.Pattern[str]:
    """Finds the begin of an identifier of any family: most stored names have none."""
    plain = (
        f"(?P<{name}_{number}>{re.sub(r'[?]P<[a-z]+>', '?:', begin)})"
        for name in sorted(FAMILIES)
        for number, begin in enumerate(_FAMILIES[name][0])
    )
    return re.compile("|".join(plain))


@cache
def _wholes() -> dict[str, re.Pattern[str]]:
    """A pattern of whole identifiers for each group of ``_any``."""
    return {
        f"{name}_{number}": re.compile(f"(?{'=' if '<bare>' in begin else '>'}{begin}){member}")
        for name, (begins, member, _) in _FAMILIES.items()
        for number, begin in enumerate(begins)
    }


@cache
def _member(name: str) -> re.Pattern[str]:
    return re.compile(_FAMILIES[name][1])


def _members(name: str, text: str, at: int) -> Iterator[tuple[int, int, str, str]]:
    """First character, end, ``id`` and ``more`` of each member of an enumeration.

    The numbers between the ends of a range have the place of its last one.
    """
    member = _member(name).match(text, at)
    while member:
        more_follow = _FAMILIES[name][2] and member.end() < len(text)
        gap = _GAP.match(text, member.end()) if more_follow else None
        following = _member(name).match(text, gap.end()) if gap else None
        between = range(0)
        if gap and following and gap["to"]:
            ends = member["id"], following["id"]
            between = range(*map(int, ends)) if all(map(str.isdecimal, ends)) else between
            # otherwise another identifier, such as a part of a standard
            if not 0 < len(between) <= _MOST_RANGE:
                return
        more = member["more"] if "more" in member.re.groupindex else None
        yield member.start(), member.end(), member["id"], more or ""
        if following:
            yield from ((*following.span(), str(number), "") for number in between[1:])
        member = following


def _doi(begin: re.Match[str]) -> Iterator[Key]:
    """Keys of a DOI: a line, a sentence or a mark may have ended it."""
    text, start = begin[0], begin.start()
    for end in (len(text), *(cut.start() for cut in reversed([*_DOI_CUT.finditer(text)]))):
        while end > 0:
            name = "".join(unquote(unescape(text[:end])).lower().split())
            name = name if name.isascii() else name.translate(_CLEAN)
            if head := _DOI_HEAD.match(name):
                name = f"doi:{head[1]}/{name[head.end() :]}".replace(
                    "doi:10.48550/arxiv.", "arxiv:"
                )
            version = _DOI_VERSION.search(name, len(name) - 4)
            yield start + end, f"{name[: version.start()]} {version[1]}" if version else name
            tail = _DOI_TAIL.search(text, max(0, end - 6), end)
            end = tail.start() if tail else 0


_DOI_CUT = re.compile(r"\n|[<?#]|\.(?=[A-Z])|/(?:full|pdf|abstract|meta)\b")
_DOI_TAIL = re.compile(r"(?:&(?:[lg]t|quot|amp);?|\W)\Z")
_DOI_HEAD = re.compile(r"(10\.\d+)[/_]")
_DOI_VERSION = re.compile(r"[./]?(v\d{1,2})$")


def _versioned(work: str, version: str) -> str:
    return f"{work} {version.lower()}" if version else work


def _arxiv(_: re.Match[str], value: str, version: str) -> Iterator[str]:
    yield _versioned("arxiv:" + _SUBJECT.sub("/", value).lower(), version)


_SUBJECT = re.compile(r"(?:\.[A-Za-z-]+)?[/_]")


def _isbn(_: re.Match[str], value: str, __: str) -> Iterator[str]:
    from stdnum import isbn

    number = re.sub(r"[^\dXx]", "", value)
    if isbn.is_valid(number):
        yield f"isbn:{isbn.to_isbn13(number)}"


def _patent(begin: re.Match[str], value: str, kind: str) -> Iterator[str]:
    country = begin.groupdict().get("country")
    if country is None:
        before = begin.string[max(0, begin.start() - 10) : begin.start()]
        country = "EP" if re.search(r"(?:European|EP)\s$", before) else "US"
    number = re.sub(r"[^A-Z\d/]", "", value)
    dated = _DATED.fullmatch(number)
    # an application has a year, of two digits in old ones
    if dated and ((len(dated[1]) == 4 and len(number) > 8) or country == "WO"):
        century = "" if len(dated[1]) == 4 else "19" if dated[1] > "70" else "20"
        number = f"{century}{dated[1]}/{int(dated[2])}"
    yield _versioned(f"patent:{country}{number.lstrip('0')}".lower(), kind)


_DATED = re.compile(r"((?:19|20)\d\d|\d\d)/?(\d{5,7})")


def _law(begin: re.Match[str], value: str, _: str) -> Iterator[str]:
    yield f"law:{begin['volume']}{_abbreviation(begin['reporter'])}-{value}".lower()


def _code(begin: re.Match[str], value: str, paragraphs: str) -> Iterator[str]:
    """Keys without the last paragraphs, and without the first words before the sign."""
    given = begin.groupdict()
    words = [given.get("title", "") + given.get("short", "")]
    if not words[0]:
        before = begin.string[max(0, begin.start() - _BEFORE) : begin.start()]
        found = re.search(r"(?<!\S)(?:\d{1,3}\s+)?(?:[A-Z][\w.&']*,?\s+)+$", before)
        words = found[0].split() if found else []
    levels = re.findall(r"\(\w+\)", paragraphs)
    for place in range(len(words)):
        for depth in range(len(levels), -1, -1):
            section = value + "".join(levels[:depth])
            yield f"law:{_abbreviation(''.join(words[place:]))}-{section}".lower()


def _abbreviation(written: str) -> str:
    """A reporter or code without blanks and points, as most write it; a title may come before."""
    number, name = re.findall(r"^(\d*)(.*)$", _squeezed(written))[0]
    return f"{number}{_names().get(name, name)}"


def _squeezed(written: str) -> str:
    return re.sub(r"[\W_]", "", written).lower()


@cache
def _names() -> dict[str, str]:
    """What each variation of the name of a reporter or a code stands for."""
    from reporters_db import LAWS, VARIATIONS_ONLY

    names = {one: [name] for name, laws in LAWS.items() for one in laws[0]["variations"]}
    return {
        _squeezed(one): _squeezed(meant[0])
        for one, meant in {**names, **VARIATIONS_ONLY}.items()
        if len(meant) == 1
    }


def _plain(family: str, begin: re.Match[str], value: str, _: str) -> Iterator[str]:
    written = "".join(unquote(value).upper().split())
    kind = begin.groupdict().get("act")
    yield f"{family}:{kind.lower() + '-' if kind else ''}{written}"


_KEYS: dict[str, Callable[[re.Match[str], str, str], Iterable[str]]] = {
    "arxiv": _arxiv,
    "code": _code,
    "ecli": partial(_plain, "ecli"),
    "eu": partial(_plain, "eu"),
    "isbn": _isbn,
    "law": _law,
    "patent": _patent,
    "pmid": partial(_plain, "pmid"),
}
