"""The folder of a new bundle."""

import shutil
from collections.abc import Set
from pathlib import Path

from docsplit.bundles.format import load_any
from docsplit.bundles.manifest import BundleError, PrecisionName
from export.errors import ExportError


def check_destination(dest: Path, *, force: bool) -> None:
    """Refuse a folder that is no bundle, or that is one without ``force``.

    Raises:
        ExportError: ``dest`` must not be replaced.
    """
    if not dest.exists():
        if dest.is_symlink():
            raise ExportError(f"{dest}: is a link that leads nowhere; remove it")
        return
    if not dest.is_dir():
        raise ExportError(f"{dest}: is not a folder")
    if not force:
        raise ExportError(f"{dest}: already exists; --force replaces it")
    strangers = any(dest.iterdir()) and not (dest / "bundle.json").is_file()
    if strangers:
        raise ExportError(f"{dest}: is not a bundle; --force does not remove it")


def put_in_place(
    bundle: Path,
    dest: Path,
    scratch: Path,
    *,
    force: bool,
    failed: Set[PrecisionName] = frozenset(),
) -> None:
    """Rename ``bundle`` to ``dest``. A former ``dest`` moves to ``scratch`` and is removed; of a
    link only the link.

    Raises:
        ExportError: the former bundle has a form that failed this time, or ``dest`` must not be
            replaced.
    """
    # the export took minutes or hours, and another one may have made it meanwhile
    check_destination(dest, force=force)
    if not dest.exists():
        bundle.rename(dest)
        return
    lost = failed & _forms(dest)
    if lost:
        raise ExportError(
            f"{dest}: has {' and '.join(sorted(lost))}, which failed this time, so it stays; to "
            "replace it, name the forms to write with --precision"
        )
    former = scratch / "former"
    dest.rename(former)
    try:
        bundle.rename(dest)
    except OSError:
        former.rename(dest)
        raise
    if former.is_symlink():
        former.unlink()
    else:
        shutil.rmtree(former)


def _forms(dest: Path) -> Set[PrecisionName]:
    try:
        return load_any(dest, verify=False).manifest.precisions.keys()
    except BundleError:
        # nothing serves it
        return frozenset()
