"""The project's texts and names keep to the terms of docs/reference/glossary.md."""

from __future__ import annotations

import io
import re
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

# they quote what they ban
OWN = {Path(__file__), *(ROOT / "tests" / "language").iterdir()}
CLEAN = [
    ".github",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "bundles",
    "client",
    "corpora",
    "deploy",
    "docs",
    "examples",
    "export",
    "extraction",
    "hashes",
    "heads",
    "mkdocs.yml",
    "models",
    "ranking",
    "service",
    "studies",
    "tests",
    "training",
    "windowing",
]
TEXTS = {".md", ".yaml", ".yml", ".cfg", ".conf", ".toml", ".tpl", ".txt"}
GLOSSARY = "docs/reference/glossary.md"


def rules(name: str) -> list[tuple[str, str]]:
    """Patterns and replacements of one list."""
    lines = (ROOT / "tests" / "language" / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" -> ") for line in lines if line and not line.startswith("#")]
    return [(pattern, replacement) for pattern, replacement in pairs]


def phrase(pattern: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    # a phrase may continue in the next line of a comment, a quotation or a string
    spaced = pattern.replace(" ", r"""(?:[\s#>\\"']|\b[bfr]{1,2}(?=["']))+""")
    return re.compile(rf"(?<![\w-])(?:{spaced})(?![\w-])", flags)


def name(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])")


PHRASES = [(phrase(pattern), new) for pattern, new in rules("phrases.txt")]
NAMES = [(name(pattern), new) for pattern, new in rules("identifiers.txt")]
# One search for all of them in a whole file, in lower case: few files have any, even in their code.
ANY_PHRASE = phrase("|".join(pattern for pattern, _ in rules("phrases.txt")), re.NOFLAG)
ANY_NAME = name("|".join(pattern for pattern, _ in rules("identifiers.txt")))


def views(path: Path, text: str) -> tuple[str, str]:
    """Prose and names of a file, each with line numbers as in the file."""
    if path.suffix == ".py":
        return python_views(text)
    prose = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|https?://\S+", blank, text, flags=re.DOTALL)
    return prose, ""


def blank(match: re.Match[str]) -> str:
    """Only the line breaks, and a mark that no phrase can span."""
    return "\0" + re.sub(r"[^\n]", "", match[0])


def python_views(text: str) -> tuple[str, str]:
    """Comments, strings and the words of test names, as prose; all names."""
    prose, names = [""] * (text.count("\n") + 2), [""] * (text.count("\n") + 2)
    for found in tokenize.generate_tokens(io.StringIO(text).readline):
        first = found.start[0] - 1
        kind = token.tok_name[found.type]
        if kind in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            for number, line in enumerate(found.string.split("\n")):
                prose[first + number] += line
        elif kind in ("NAME", "OP"):
            prose[first] += "\0"
            if kind == "NAME":
                names[first] += f"{found.string} "
            if found.string.startswith("test_"):
                prose[first] += found.string.replace("_", " ") + "\0"
    return "\n".join(prose), "\n".join(names)


def faults(path: Path, text: str) -> Iterator[str]:
    words = re.sub(r"\btest_\w+", lambda match: match[0].replace("_", " "), text).lower()
    if not (ANY_PHRASE.search(words) or ANY_NAME.search(text)):
        return
    for view, patterns in zip(views(path, text), (PHRASES, NAMES), strict=True):
        for pattern, new in patterns:
            for match in pattern.finditer(view):
                line = view.count("\n", 0, match.start()) + 1
                yield f"{path}:{line}: {' '.join(match[0].split())!r}, better: {new}"


def files(room: str) -> list[Path]:
    top = ROOT / room
    return sorted(
        path
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.suffix in TEXTS | {".py"} and path.is_file() and path not in OWN
    )


@pytest.mark.parametrize("room", CLEAN)
def test_texts_and_names_are_plain(room: str) -> None:
    assert files(room)
    found = [
        fault
        for path in files(room)
        for fault in faults(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.md", "Good.\nIt is computed anew.", 2),
        ("a.md", "It lies\nbelow the folder.", 1),
        ("a.py", "x = 1\n# It is\n# told so.\n", 3),
        ("a.py", 'def f():\n    """One.\n\n    Whoever calls.\n    """\n', 4),
        ("a.py", 'x = f"{1} was turned\\\n away"\n', 1),
        ("a.py", 'x = (\n    f"{1} was turned "\n    f"away {1}"\n)\n', 2),
        ("a.py", "def test_one_runs_alone():\n    pass\n", 1),
        ("a.py", "\nself.bury_rows()\n", 2),
        ("a.yaml", "# of the fronts\na: 1\n", 1),
    ],
)
def test_the_search_finds(path: str, text: str, line: int) -> None:
    assert f"{path}:{line}:" in "".join(faults(Path(path), text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "The proxy in front of it runs `--anew`.\n```\nalone\n```\n"),
        ("a.py", "undue = clone(frontend)\n"),
        ("a.py", "# the\nx = 1\n# very\n"),
        ("a.py", 'f("the", "very")\n'),
    ],
)
def test_the_search_ignores(path: str, text: str) -> None:
    assert not list(faults(Path(path), text))


def test_no_replacement_is_itself_banned() -> None:
    for _, new in rules("phrases.txt"):
        assert not any(pattern.search(new) for pattern, _ in PHRASES), new


def terms() -> list[str]:
    return re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / GLOSSARY).read_text(encoding="utf-8"), re.M)


def test_every_term_of_the_glossary_is_used() -> None:
    pages = [p for p in files("docs") if p != ROOT / GLOSSARY]
    said = " ".join("\n".join(p.read_text(encoding="utf-8") for p in pages).lower().split())
    assert len(terms()) > 20
    assert [term for term in terms() if term.lower() not in said] == []
