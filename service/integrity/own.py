"""The service's own files beside those of LanceDB: checked, and written again where damaged."""

from __future__ import annotations

from pathlib import Path

from service.index.storage import layout, manifest, place, recovery, reserve
from service.index.storage.findings import Finding
from service.integrity.outcome import Outcome

STORE = "index_path"


def faults(root: Path) -> list[Finding]:
    """What is wrong with the store's identity and its reserve.

    Either may be missing: stores of earlier versions have none, a full volume no reserve.
    """
    found = []
    try:
        place.identity(root / place.NAME)
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        found.append(Finding(STORE, "damaged: it does not name the store", place.NAME))
    try:
        size = (root / reserve.NAME).stat().st_size
    except OSError:
        size = reserve.BYTES
    if size != reserve.BYTES:
        found.append(Finding(STORE, f"it has {size} of {reserve.BYTES} bytes", reserve.NAME))
    return found


def mend(root: Path, outcome: Outcome) -> None:
    """Write again what ``faults`` names; a store whose identity is lost gets another."""
    for finding in faults(root):
        if finding.file == place.NAME:
            place.Place(root).claim()
        else:
            reserve.Reserve(root).keep()
        outcome.mended.append(f"{STORE}: file {finding.file}: written again")


def synced_fault(root: Path, database: str, table: str) -> Finding | None:
    """What is wrong with the note of a table's newest version on disk; it may be missing."""
    folder = layout.folder(root, database, table)
    try:
        version = recovery.synced_of((folder / recovery.SYNCED).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return Finding(f"{database}/{table}", "damaged: it names no version", recovery.SYNCED)
    if version > max(manifest.versions(folder), default=version):
        what = f"it names version {version}, which is not there"
        return Finding(f"{database}/{table}", what, recovery.SYNCED)
    return None


def forget_synced(root: Path, database: str, table: str, outcome: Outcome) -> None:
    """Remove the note where it is wrong; the next sync writes it again."""
    if synced_fault(root, database, table) is not None:
        (layout.folder(root, database, table) / recovery.SYNCED).unlink()
        outcome.mended.append(f"{database}/{table}: file {recovery.SYNCED}: removed")
