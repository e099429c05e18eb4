"""Say why no library can open an encoder, before one asks an unreachable hub for each file."""

from pathlib import Path

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.file_download import repo_folder_name

from docsplit.bundles.manifest import MANIFEST

_SECONDS = 10


def absence(source: str) -> str | None:
    """Why there is no encoder to open; None if it is a folder or the hub may have it.

    Without a connection the libraries repeat their requests for minutes. What the hub answers is
    left to them.

    Args:
        source: folder or hub name.
    """
    folder = Path(source).expanduser()
    if (folder / MANIFEST).is_file():
        return "a bundle; give the encoder that it was made from"
    if folder.is_dir():
        return None
    if folder.exists():
        return "a file; give the folder of an encoder"
    try:
        address = hf_hub_url(source, "config.json")
        name = repo_folder_name(repo_id=source, repo_type="model")
    except HFValidationError:
        return "no such folder"
    # what was downloaded before needs no connection
    if constants.HF_HUB_OFFLINE or Path(constants.HF_HUB_CACHE, name).is_dir():
        return None
    try:
        get_hf_file_metadata(address, timeout=_SECONDS)
    except HfHubHTTPError:
        return None
    except Exception as error:  # noqa: BLE001 - the errors of httpx or of requests, by its version
        return (
            f"no such folder, and {constants.ENDPOINT} cannot be reached to look for a model of "
            f"that name ({error}); correct the path, or connect this machine"
        )
    return None
