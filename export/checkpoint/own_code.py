"""Checkpoints whose only code is this project's: recognise and save them."""

import json
import shutil
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util import load_file_path

from export.checkpoint import static_branch


def only_own_code(source: str) -> bool:
    """Whether a checkpoint has code and all of it is the static branch, unchanged.

    Such a checkpoint may run its code without the user's consent.

    Args:
        source: folder or hub name.
    """
    modules = _read(source, "modules.json")
    config = _read(source, "config.json")
    if not isinstance(modules, list) or not isinstance(config, dict) or "auto_map" in config:
        return False
    kinds = {str(module.get("type")) for module in modules if isinstance(module, dict)}
    if {kind for kind in kinds if not kind.startswith("sentence_transformers.")} != {
        static_branch.REFERENCE
    }:
        return False
    code = load_file_path(source, static_branch.FILE)
    own = Path(static_branch.__file__).read_bytes()
    return code is not None and Path(code).read_bytes() == own


def save_with_code(model: SentenceTransformer, folder: Path) -> None:
    """Write a model as ``save_pretrained`` does, with the code of a static branch if it has one.

    sentence-transformers saves the code of a module next to its weights, and looks for it in the
    folder of the model.
    """
    model.save_pretrained(str(folder), create_model_card=False)
    name = static_branch.StaticBranch.__name__
    if all(type(module).__name__ != name for module in model):
        return
    shutil.copyfile(static_branch.__file__, folder / static_branch.FILE)
    listed = folder / "modules.json"
    modules = json.loads(listed.read_text(encoding="utf-8"))
    for module in modules:
        if module["type"].endswith(f".{name}"):
            module["type"] = static_branch.REFERENCE
            (folder / module["path"] / static_branch.FILE).unlink(missing_ok=True)
    listed.write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")


def _read(source: str, name: str) -> Any:
    path = load_file_path(source, name)
    try:
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        return None
