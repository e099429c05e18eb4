"""The folders and files of the tables below ``index_path``."""

from __future__ import annotations

from pathlib import Path

from service.index.storage import manifest

# databases whose tables belong to no index
SHARED = ("leases", "heads")
HINT = "_versions/latest_version_hint.json"
_FOLDERS = ("_versions", "data", "_deletions", "_transactions", "_indices")


def tables(root: Path) -> list[tuple[str, str]]:
    """Databases and tables below ``index_path``, sorted."""
    found = [path for path in root.glob("*/*.lance") if path.is_dir()]
    return sorted((path.parent.name, path.name.removesuffix(".lance")) for path in found)


def folder(root: Path, database: str, table: str) -> Path:
    """The folder of a table's files."""
    return root / database / f"{table}.lance"


def files(table: Path) -> list[str]:
    """All immutable files of a table, relative to its folder, sorted."""
    found = []
    for name in _FOLDERS:
        held = (path for path in (table / name).rglob("*") if path.is_file())
        found += [path.relative_to(table).as_posix() for path in held]
    return sorted(path for path in found if path != HINT and "#" not in path)


def version_of(path: str) -> int | None:
    """The version of a manifest's path; None for other files."""
    folder, _, name = path.rpartition("/")
    return manifest.version_of(name) if folder == "_versions" else None


def manifests(table: Path) -> dict[int, str]:
    """Paths of a table's manifests by version, the newest first."""
    return {number: f"_versions/{path.name}" for number, path in manifest.versions(table).items()}
