"""The card of the shipped bundles as a page, and links to files that the site does not contain."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)#\s]+)(#[^)]*)?\)")
CARD, PAGE = "docsplit/models/README.md", "reference/models.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the card, which stands beside the bundles that it describes."""
    text = Path(config.config_file_path).parent.joinpath(CARD).read_text(encoding="utf-8")
    files.append(File.generated(config, PAGE, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Point links that leave docs/ to the repository, or keep only their text without one."""
    place = os.path.join("docs", page.file.src_uri)
    source = CARD if page.file.src_uri == PAGE else place

    def outside(match: re.Match[str]) -> str:
        text, up, path, fragment = match[1], match[2], match[3], match[4] or ""
        target = os.path.normpath(os.path.join(os.path.dirname(source), up + path))
        if target == CARD:
            target = os.path.join("docs", PAGE)
        if target.startswith("docs/"):
            return f"[{text}]({os.path.relpath(target, os.path.dirname(place))}{fragment})"
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{target}{fragment})"
        return f"{text} (`{target}`)"

    return LINK.sub(outside, markdown)
