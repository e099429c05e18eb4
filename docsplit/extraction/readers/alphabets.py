"""Which Windows or ISO encoding a text of a language in Latin letters has."""

from collections import Counter

# letters beyond ASCII of languages, and the encodings of their texts, the commonest first
_WEST, _CENTRE = ("cp1252",), ("cp1250", "iso8859-2")
_TURKISH, _BALTIC = ("cp1254",), ("cp1257",)
_ALPHABETS = (
    ("àâæçéèêëîïôœùûüÿ", _WEST),
    ("äöüßé", _WEST),
    ("áéíóúüñºª", _WEST),
    ("áâãàçéêíóôõúüºª", _WEST),
    ("àèéìíîòóùúºª", _WEST),
    ("àçèéíïòóúüñ", _WEST),
    ("áéèëêïíóöúü", _WEST),
    ("åäöéü", _WEST),
    ("æøåéòôóèêäöü", _WEST),
    ("áðéíóúýþæö", _WEST),
    ("áčďéěíňóřšťúůýž", _CENTRE),
    ("áäčďéíĺľňóôŕšťúýž", _CENTRE),
    ("ąćęłńóśźż", _CENTRE),
    ("áéíóöőúüű", _CENTRE),
    ("čćđšž", _CENTRE),
    ("ăâîşţ", _CENTRE),
    ("çğıöşüâîû", _TURKISH),
    ("ąčęėįšųūž", _BALTIC),
    ("āčēģīķļņšūž", _BALTIC),
    ("äõöüšž", _BALTIC),
    # English with words and names of its neighbours
    ("àáâäåæçèéêëíïîñóôöøúüß", _WEST),
)
# marks that texts of all these languages may have
_MARKS = frozenset("“”„‘’«»‹›–—…•·°§€£©®™¿¡×÷±µ\xa0\xad")
# of the other characters beyond ASCII, how many must be letters of one alphabet
_LEAST = 0.95


def likely(content: bytes) -> str | None:
    """The encoding in which one language has nearly all letters beyond ASCII; None for no such one.

    Args:
        content: of the text, which is neither ASCII nor UTF-8.
    """
    counted = Counter(content.translate(None, bytes(range(128))))
    best, found = 0.0, None
    for letters, encodings in _ALPHABETS:
        for encoding in encodings:
            share = _share(counted, letters, encoding)
            if share > best:
                best, found = share, encoding
    return found if best >= _LEAST else None


def _share(counted: Counter[int], letters: str, encoding: str) -> float:
    """The share of the letters of one alphabet; capital ones count up to the number of small ones.

    In other encodings, such as those of Macs, capital letters take the place of small ones.
    """
    small = capital = others = 0
    for code, count in counted.items():
        character = bytes((code,)).decode(encoding, "replace")
        if character in letters:
            small += count
        elif character.lower() in letters:
            capital += count
        elif character not in _MARKS:
            others += count
    number = small + capital + others
    return (small + min(small, capital)) / number if number else 1.0
