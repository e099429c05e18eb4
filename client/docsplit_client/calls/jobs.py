"""Files to index, and the jobs that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from docsplit_client.calls.call import Call, parsed, path, several
from docsplit_client.options import OnDuplicate
from docsplit_client.stored import FileText, Job, Jobs


def upload(
    index: str,
    files: Mapping[str, bytes | Path] | Iterable[str | PathLike[str]],
    on_duplicate: OnDuplicate | None = None,
    find_links: bool | None = None,
    link_field: Sequence[str] | None = None,
    link_rule: Sequence[str] | None = None,
) -> Call[Job]:
    """Send files; the answer is a job, which reads and indexes them.

    Args:
        index: its name.
        files: contents or paths by name, or paths, whose last parts are the names. The name of a
            file is the id of its document.
        on_duplicate: what happens with documents of which the index has near-duplicates: ``mark``
            names them in the job, ``refuse`` leaves them out.
        find_links: whether to find the links in all texts of the index when the files are indexed.
        link_field: with ``find_links``, metadata with identifiers.
        link_rule: with ``find_links``, further names of documents, such as ``eip-*=ERC *``.
    """
    named = (
        files
        if isinstance(files, Mapping)
        else _named([Path(one) for one in several(files, "files")])
    )
    place = path(
        *("indexes", index, "files"),
        on_duplicate=on_duplicate,
        find_links=find_links,
        link_field=link_field,
        link_rule=link_rule,
    )
    # a second job finds the documents of the first unchanged
    return Call("POST", place, parsed, files=named)


def read_file(file: str | PathLike[str] | Mapping[str, bytes | Path]) -> Call[FileText]:
    """The text of a file with its pages and headings; the service stores nothing.

    Args:
        file: its path, or its content or path by name. The end of the name says its kind.
    """
    named = file if isinstance(file, Mapping) else _named([Path(file)])
    return Call("POST", "/read", parsed, files=named)


def jobs(limit: int | None = None) -> Call[Jobs]:
    """The newest jobs."""
    return Call("GET", path("jobs", limit=limit), parsed)


def job(id: str) -> Call[Job]:  # noqa: A002
    """A job and its progress."""
    return Call("GET", path("jobs", id), parsed)


def cancel_job(id: str) -> Call[Job]:  # noqa: A002
    """End a job; what it has indexed stays."""
    return Call("DELETE", path("jobs", id), parsed)


def _named(paths: Sequence[Path]) -> dict[str, bytes | Path]:
    named: dict[str, bytes | Path] = {one.name: one for one in paths}
    if len(named) < len(paths):
        raise ValueError("two files have the same name: give a mapping of names to paths")
    return named
