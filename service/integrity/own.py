"""Checks the service's own files next to those of LanceDB, and writes damaged ones again."""

from pathlib import Path

from service.index.storage import layout, manifest, place, recovery
from service.integrity.findings import Finding
from service.integrity.outcome import Outcome

STORE = "index_path"


def faults(root: Path) -> list[Finding]:
    """The fault of the store's identity, which may be missing: earlier versions wrote none."""
    try:
        place.identity(root / place.NAME)
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        return [Finding(STORE, "damaged: it does not name the store", place.NAME)]
    return []


def repair(root: Path, outcome: Outcome) -> None:
    """Give a store whose identity is damaged a new one."""
    for finding in faults(root):
        place.Place(root).claim()
        outcome.repaired.append(f"{STORE}: file {finding.file}: written again")


def synced_fault(root: Path, database: str, table: str) -> Finding | None:
    """The fault in the note of a table's newest version on disk; the note may be missing."""
    folder = layout.folder(root, database, table)
    try:
        version = recovery.synced_of((folder / recovery.SYNCED).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return Finding(f"{database}/{table}", "damaged: it names no version", recovery.SYNCED)
    if version > max(manifest.versions(folder), default=version):
        what = f"it names version {version}, which does not exist"
        return Finding(f"{database}/{table}", what, recovery.SYNCED)
    return None


def forget_synced(root: Path, database: str, table: str, outcome: Outcome) -> None:
    """Remove the note if it is wrong; the next sync writes it again."""
    if synced_fault(root, database, table) is not None:
        (layout.folder(root, database, table) / recovery.SYNCED).unlink()
        outcome.repaired.append(f"{database}/{table}: file {recovery.SYNCED}: removed")
