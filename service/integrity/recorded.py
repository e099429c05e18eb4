"""Compares the files of a table with their recorded digests and with the needs of its versions."""

from __future__ import annotations

import json
from pathlib import Path

from service.index.storage import files, layout, ledger, manifest
from service.integrity.findings import Finding, Report

_MISCOUNTED = "damaged: it does not hold as many deleted rows as a version names"


def check(root: Path, database: str, table: str, report: Report) -> None:
    """Add the faults of a table's files and of its ledger to a report; blocks."""
    folder, name = layout.folder(root, database, table), f"{database}/{table}"
    known = ledger.read(root, database, table)
    for file, what in known.damaged:
        place = file.relative_to(root).as_posix()
        report.findings.append(Finding(name, f"a record of digests is damaged: {what}", place))
    there = set(layout.files(folder))
    for path in sorted(there & known.entries.keys()):
        report.files += 1
        wrong = files.changed(folder / path, known.entries[path])
        if wrong is not None:
            report.findings.append(Finding(name, wrong, path))
    found = {finding.file for finding in report.findings if finding.table == name}
    entries = [entry for held in known.entries.values() for entry in held]
    missing = dict(ledger.lost(folder, entries))
    needed: dict[str, None] = {}
    held = layout.manifests(folder)
    for path in held.values():
        try:
            version = manifest.read(folder / path)
            needed |= dict.fromkeys(version.paths)
            if path == next(iter(held.values())):
                wrong_lists = [f for f in files.miscounted(folder, version) if f not in found]
                report.findings += [Finding(name, _MISCOUNTED, f) for f in wrong_lists]
        except (OSError, manifest.TornError) as error:
            if path not in found:
                report.findings.append(Finding(name, f"unreadable: {error}", path))
    wanted = {path for path in needed if not path.startswith("_transactions/")}
    for path in wanted - there - missing.keys():
        # a version that is deleted during the check takes its files along
        if not (folder / path).exists() and layout.manifests(folder).keys() == held.keys():
            missing[path] = "missing, and a version needs it"
    report.findings += [Finding(name, what, path) for path, what in sorted(missing.items())]
    if held:
        report.findings += [Finding(name, what, layout.HINT) for what in hint(folder)]
    else:
        report.findings.append(Finding(name, "the table has no version"))
    report.unrecorded += len((needed.keys() | {*held.values()}) & there - known.entries.keys())


def hint(folder: Path) -> list[str]:
    """The faults of the file that names the newest version."""
    for _ in range(2):
        # a commit may come between the two reads
        newest = max(layout.manifests(folder), default=0)
        try:
            held = json.loads((folder / layout.HINT).read_bytes())
        except FileNotFoundError:
            return ["missing: it should name the newest version"]
        except ValueError:
            return ["changed: it names no version"]
        if held == {"version": newest}:
            return []
    return [f"changed: it does not name the newest version, {newest}"]
