"""Compares the files of a table with what was recorded of them, and with what its versions need."""

from __future__ import annotations

import json
from pathlib import Path

from service.index.storage import layout, ledger, manifest
from service.index.storage.findings import Finding, Report

# compared before a table is opened, which takes some hundredths of a second
_OPENED_BYTES = 32 * 2**20


def check(root: Path, database: str, table: str, report: Report) -> None:
    """Add what is wrong with a table's files, and with its ledger, to a report; blocks."""
    folder, name = layout.folder(root, database, table), f"{database}/{table}"
    known = ledger.read(root, database, table)
    for file, what in known.damaged:
        place = file.relative_to(root).as_posix()
        report.findings.append(Finding(name, f"a record of digests is damaged: {what}", place))
    there = set(layout.files(folder))
    for path in sorted(there & known.entries.keys()):
        report.files += 1
        wrong = changed(folder / path, known.entries[path])
        if wrong is not None:
            report.findings.append(Finding(name, wrong, path))
    found = {finding.file for finding in report.findings if finding.table == name}
    entries = [entry for held in known.entries.values() for entry in held]
    missing = dict(ledger.lost(folder, entries))
    needed: dict[str, None] = {}
    held = layout.manifests(folder)
    for path in held.values():
        try:
            needed |= dict.fromkeys(manifest.read(folder / path).paths)
        except (OSError, manifest.TornError) as error:
            if path not in found:
                report.findings.append(Finding(name, f"unreadable: {error}", path))
    wanted = {path for path in needed if not path.startswith("_transactions/")}
    for path in wanted - there - missing.keys():
        # a version that is deleted meanwhile takes its files along
        if not (folder / path).exists() and layout.manifests(folder).keys() == held.keys():
            missing[path] = "missing, and a version needs it"
    report.findings += [Finding(name, what, path) for path, what in sorted(missing.items())]
    if held:
        report.findings += [Finding(name, what, layout.HINT) for what in hint(folder)]
    else:
        report.findings.append(Finding(name, "the table has no version"))
    report.unrecorded += len((needed.keys() | {*held.values()}) & there - known.entries.keys())


def first_damaged(root: Path, database: str, table: str) -> str | None:
    """A file that the newest version needs and that is not as it was recorded; blocks.

    LanceDB trusts the lengths that its files tell: one wrong bit can make it ask for so much memory
    that the process ends. So the smaller files are compared before a process opens a table; those
    are the ones that hold lengths of others.
    """
    folder = layout.folder(root, database, table)
    newest = next(iter(layout.manifests(folder).values()), None)
    if newest is None:
        return None
    known = ledger.read(root, database, table).entries
    try:
        needed = [newest, *manifest.read(folder / newest).paths]
    except (OSError, manifest.TornError):
        needed = [newest]
    held = sorted((known[path][0].size, path) for path in needed if path in known)
    total = 0
    for size, path in held:
        total += size
        if total > _OPENED_BYTES:
            break
        if changed(folder / path, known[path]) is not None:
            return path
    return None


def changed(file: Path, entries: list[ledger.Entry]) -> str | None:
    """How a file differs from what was recorded of it; None where it does not."""
    try:
        size, digest, _ = ledger.measure(file)
    except FileNotFoundError:
        # ``ledger.lost`` tells whether that is right
        return None
    except OSError as error:
        return f"unreadable: {error.strerror}"
    wrong = [entry for entry in entries if (entry.size, entry.digest) != (size, digest)]
    if not wrong:
        return None
    if not size:
        return f"emptied: it had {wrong[0].size} bytes"
    if size < wrong[0].size:
        return f"truncated: it has {size} of {wrong[0].size} bytes"
    return "changed: it does not fit its recorded digest"


def hint(folder: Path) -> list[str]:
    """What is wrong with the file that names the newest version."""
    for _ in range(2):
        # a commit may come between the two
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
