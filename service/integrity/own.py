"""Checks the service's own files next to those of LanceDB, and writes damaged ones again."""

from pathlib import Path

from service.index.storage import layout, manifest, place, recovery, reserve
from service.index.storage.findings import Finding
from service.integrity.outcome import Outcome

STORE = "index_path"


def faults(root: Path) -> list[Finding]:
    """The faults of the store's identity and of its reserve.

    Either may be missing: earlier versions wrote neither, and a full volume has no reserve.
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


def repair(root: Path, outcome: Outcome) -> None:
    """Write the files again that ``faults`` names; a store without identity gets a new one."""
    for finding in faults(root):
        if finding.file == place.NAME:
            place.Place(root).claim()
        else:
            reserve.Reserve(root).keep()
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
