"""Links of the documents to files that the site does not contain."""

import os
import re
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)#\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Point links that leave docs/ to the repository, or keep only their text without one."""

    def outside(match: re.Match[str]) -> str:
        text, up, path, fragment = match[1], match[2], match[3], match[4] or ""
        here = os.path.dirname(os.path.join("docs", page.file.src_uri))
        target = os.path.normpath(os.path.join(here, up + path))
        if target.startswith("docs/"):
            return match[0]
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{target}{fragment})"
        return f"{text} (`{target}`)"

    return LINK.sub(outside, markdown)
