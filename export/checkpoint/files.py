"""Check a checkpoint's files before a library opens them."""

import json
from pathlib import Path, PurePosixPath, PureWindowsPath

from sentence_transformers.util import load_dir_path, load_file_path

from export.checkpoint.card import read_card
from export.checkpoint.requirements import check_memory, first_line
from export.errors import ExportError
from export.hub import absence


def locate(source: str, *, trusted: bool) -> tuple[str, str, str]:
    """Find a checkpoint and check its files.

    Args:
        source: folder or hub name.
        trusted: whether the user trusts the source's code.

    Returns:
        What libraries open, its name without a path, and its model card.

    Raises:
        ExportError: there is no such encoder, it cannot be opened, or ``check_files`` refuses it.
    """
    reason = absence(source)
    if reason is not None:
        raise ExportError(f"{source}: {reason}")
    folder = Path(source).expanduser()
    path = str(folder) if folder.is_dir() else source
    try:
        check_files(path, trusted=trusted)
        card = read_card(path)
    except OSError as error:  # the hub's errors, too
        raise ExportError(f"{source}: cannot be opened: {first_line(error)}") from error
    return path, folder.resolve().name if folder.is_dir() else source, card


def transformer_folder(source: str) -> str:
    """Folder or hub name of a checkpoint's transformer, which may lie in a folder of its own."""
    listed = load_file_path(source, "modules.json")
    inside = _paths(source, Path(listed))[0] if listed else ""
    if not inside:
        return source
    if Path(source).is_dir():
        return str(Path(source, inside))
    return str(load_dir_path(source, inside))


def check_files(source: str, *, trusted: bool) -> None:
    """Refuse files that read outside the checkpoint, and weights that may hold code.

    Args:
        source: folder or hub name.
        trusted: whether the user trusts the source's code.

    Raises:
        ExportError: ``modules.json`` is no list of modules, it or an index of weights names a path
            outside the checkpoint, or the only weights are pickled.
    """
    if listed := load_file_path(source, "modules.json"):
        _check_modules(source, Path(listed))
    # an ONNX folder may have its settings next to its graph
    if (beside := Path(source, "onnx", "modules.json")).is_file():
        _check_modules(source, beside)
    if not Path(source).is_dir():
        return
    for pattern in ("*.safetensors.index.json", "pytorch_model*.index.json"):
        for index in sorted(Path(source).rglob(pattern)):
            _check_index(index, source, trusted=trusted)
    # before a library reads them
    check_memory(_weights(Path(source)), source)
    if trusted:
        return
    pickled = sorted(Path(source).rglob("pytorch_model*.bin"))
    for weights in pickled:
        if not any(weights.parent.glob("*.safetensors")):
            raise ExportError(
                f"{source}: {weights.relative_to(source)} is a pickle, which can run code when it "
                "is opened; store the weights as safetensors, or allow it with --trust-remote-code"
            )


def _check_modules(source: str, listed: Path) -> None:
    """Refuse a list of modules with paths outside the checkpoint."""
    root, local = Path(source).resolve(), Path(source).is_dir()
    shown = listed.relative_to(source).as_posix() if local else listed.name
    for path in _paths(source, listed, shown):
        if _leaves(path):
            raise ExportError(f"{source}: {shown} names {path!r}, a path outside the checkpoint")
        if local and not (listed.parent / path).resolve().is_relative_to(root):
            raise ExportError(f"{source}: {path} is a link that leads outside the folder")


def _check_index(index: Path, source: str, *, trusted: bool) -> None:
    """Refuse parts of weights outside the checkpoint, and pickled ones."""
    shown = index.relative_to(source)
    try:
        files = {str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ExportError(f"{source}: {shown} is no index of weights") from error
    for name in sorted(files):
        if _leaves(name):
            raise ExportError(f"{source}: {shown} names {name!r}, a path outside the checkpoint")
        if not trusted and not name.endswith(".safetensors") and _is_used(index):
            raise ExportError(
                f"{source}: {shown} names {name!r}, a pickle, which can run code when it is "
                "opened; store the weights as safetensors, or allow it with --trust-remote-code"
            )


def _is_used(index: Path) -> bool:
    """Whether no safetensors come before the weights of an index."""
    own = index.name.endswith(".safetensors.index.json")
    return own or not any(index.parent.glob("*.safetensors"))


def _weights(folder: Path) -> int:
    """Bytes of a folder's weights, which it may hold in several formats, each perhaps in parts."""
    formats = ("*.safetensors", "pytorch_model*.bin", "*.onnx", "*.onnx_data")
    sizes = [[file.stat().st_size for file in folder.rglob(pattern)] for pattern in formats]
    # a folder may hold an ONNX graph in several precisions
    return max(sum(sizes[0]), sum(sizes[1]), *(max(one, default=0) for one in sizes[2:]))


def _paths(source: str, listed: Path, shown: str = "modules.json") -> list[str]:
    try:
        modules = json.loads(listed.read_text(encoding="utf-8"))
        return [str(module.get("path", "")) for module in modules]
    except (ValueError, AttributeError, TypeError) as error:
        raise ExportError(f"{source}: {shown} is not a list of modules") from error


def _leaves(path: str) -> bool:
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    return posix.is_absolute() or bool(windows.anchor) or ".." in windows.parts
