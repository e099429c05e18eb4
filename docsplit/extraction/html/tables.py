"""Tables of HTML as lines of cells."""

from selectolax.lexbor import LexborNode

from docsplit.extraction.html.tree import CELLS, HIDDEN, events, text_of
from docsplit.extraction.office.package import number

# of a table, what the walk for its rows does not go into
_DATA = HIDDEN | CELLS | {"caption"}
# columns of a table that one cell may span, and rows
_WIDEST, _HIGHEST = 100, 1000


def lines_of(table: LexborNode) -> list[str]:
    """The caption and the rows of a table, each cell in the column where the page shows it."""
    lines: list[str] = []
    # columns that a cell of a former row still takes, and for how many rows
    taken: dict[int, int] = {}
    for child, enters in events(table, _DATA):
        if child.tag == "caption" and enters:
            lines.append(text_of(child))
        elif child.tag == "tr" and enters:
            lines.append(_row(child, taken))
    return [line for line in lines if line]


def _row(row: LexborNode, taken: dict[int, int]) -> str:
    cells: list[str] = []

    def skip() -> None:
        while taken.get(len(cells), 0) > 0:
            taken[len(cells)] -= 1
            cells.append("")

    cell = row.child
    while cell is not None:
        if cell.tag in CELLS:
            skip()
            attributes = cell.attributes
            wide = min(max(1, number(attributes.get("colspan") or "", 1)), _WIDEST)
            high = min(number(attributes.get("rowspan") or "", 1), _HIGHEST)
            taken.update(dict.fromkeys(range(len(cells), len(cells) + wide), high - 1))
            cells += [text_of(cell), *[""] * (wide - 1)]
        cell = cell.next
    skip()
    return "\t".join(cells).rstrip("\t")
