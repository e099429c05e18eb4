"""The image: podman builds it, runs it without rights, checks and stops it.

This needs podman, the base image in its storage, and a package index for the build. The image stays
in podman's storage as ``localhost/docsplit:test``, so a second run builds from its layers. The
containers do not stay.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGE = "localhost/docsplit:test"
HARDENED = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)

# the first build fetches some 200 MB of packages
pytestmark = pytest.mark.timeout(1800)


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise AssertionError(f"podman {' '.join(arguments)}: {done.stdout}\n{done.stderr}")
    return done


@dataclass(frozen=True)
class Container:
    """A started container of the image."""

    name: str

    @property
    def url(self) -> str:
        return "http://" + podman("port", self.name, "8080/tcp").stdout.strip()

    @property
    def state(self) -> dict[str, object]:
        state: dict[str, object] = json.loads(podman("inspect", self.name).stdout)[0]["State"]
        return state

    @property
    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in podman("logs", self.name).stderr.splitlines()]

    def healthy(self) -> bool:
        return podman("healthcheck", "run", self.name, check=False).returncode == 0

    def embed(self, text: str) -> httpx.Response:
        return httpx.post(f"{self.url}/embed", json={"inputs": text}, timeout=120)

    def wait_healthy(self, seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not self.healthy():
            if time.monotonic() > until or self.state["Status"] != "running":
                raise AssertionError(f"not healthy: {podman('logs', self.name).stderr}")
            time.sleep(0.2)


@contextmanager
def started(*flags: str) -> Iterator[Container]:
    """Run the image, and remove the container afterwards."""
    name = f"docsplit-test-{uuid.uuid4().hex[:12]}"
    try:
        podman("run", "-d", "--pull=never", "-p=127.0.0.1::8080", f"--name={name}", *flags, IMAGE)
        yield Container(name)
    finally:
        podman("rm", "--force", "--time=0", "--ignore", "--volumes", name)


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    """Build the image, or skip if podman cannot."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    [base] = re.findall(r"^ARG BASE=(\S+)", (ROOT / "Dockerfile").read_text(), re.M)
    if podman("image", "exists", base, check=False).returncode:
        pytest.skip(f"the base image is not in podman's storage: podman pull {base}")
    probe = podman("run", "--rm", "--pull=never", base, "python", "-c", "", check=False)
    if probe.returncode:
        pytest.skip(f"podman cannot start a container here: {probe.stderr.strip()}")
    settings = os.environ.get("PIP_CONFIG_FILE", "")
    secret = [f"--secret=id=pip.conf,src={settings}"] if Path(settings).is_file() else []
    # HEALTHCHECK is not part of podman's own image format
    podman("build", "--format=docker", "--pull=never", *secret, f"--tag={IMAGE}", str(ROOT))


@pytest.fixture(scope="module")
def hardened() -> Iterator[Container]:
    """The service without writable folders and capabilities."""
    with started(*HARDENED) as container:
        container.wait_healthy()
        yield container


def test_the_labels_of_the_image() -> None:
    described = json.loads(podman("image", "inspect", IMAGE).stdout)[0]
    config = described["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["docsplit-serve"]
    assert list(config["ExposedPorts"]) == ["8080/tcp"]
    assert described["Healthcheck"]["Test"] == ["CMD", "python", "-m", "service.healthcheck"]
    assert config["Labels"]["org.opencontainers.image.title"] == "docsplit"


CONTENT = """
import importlib.util, json, os, pathlib, shutil
root = pathlib.Path("/")
print(json.dumps({
    "app": sorted(p.name for p in pathlib.Path("/app").iterdir()),
    "suffixes": sorted({p.suffix for d in ("service", "features", "docsplit") for p in pathlib.Path("/app", d).rglob("*") if p.is_file() and "models" not in p.parts}),
    "bytecode": len(list(pathlib.Path("/app").rglob("*.pyc"))),
    "sources": len(list(pathlib.Path("/app").rglob("*.py"))),
    "tools": [t for t in ("cc", "gcc", "make", "uv", "docsplit-serve") if shutil.which(t)],
    "modules": [m for m in ("pip", "torch", "openvino_telemetry", "openvino") if importlib.util.find_spec(m)],
    "left": [str(p) for p in (root / "root/.cache", root / "build", root / "run/secrets/pip.conf") if p.exists()],
    "writable": [str(p) for d in ("/app", "/opt/venv") for p in pathlib.Path(d).rglob("*") if not p.is_symlink() and p.stat().st_mode & 0o022],
}))
"""  # noqa: E501


def test_it_contains_only_the_files_it_needs() -> None:
    content = json.loads(
        podman(
            "run", "--rm", "--pull=never", "--user=0", "--entrypoint=python", IMAGE, "-c", CONTENT
        ).stdout
    )
    rooms = ["docsplit", "features", "service"]
    assert content["app"] == sorted([*rooms, "sbom.cdx.json"])
    # the pages for browsers are files of the service
    assert content["suffixes"] == [".css", ".html", ".js", ".py", ".pyc", ".svg", ".typed"]
    assert content["bytecode"] == content["sources"] > 0
    # the last name of each list proves that the search works
    assert content["tools"] == ["docsplit-serve"]
    assert content["modules"] == ["openvino"]
    assert content["left"] == []
    assert content["writable"] == []


def test_it_lists_the_installed_packages() -> None:
    command = ("--pull=never", "--entrypoint=cat", IMAGE, "/app/sbom.cdx.json")
    listed = json.loads(podman("run", "--rm", *command).stdout)
    assert listed["bomFormat"] == "CycloneDX"
    versions = {c["name"].lower(): c["version"] for c in listed["components"]}
    pins = (ROOT / "constraints.txt").read_text()
    for name in ("uvicorn", "openvino", "lancedb"):
        assert f"{name}=={versions[name]}" in pins
    assert "pip-audit" not in versions
    assert "openvino-telemetry" not in versions


def test_it_serves_without_capabilities(hardened: Container) -> None:
    answer = hardened.embed("A document.")
    assert answer.status_code == 200, answer.text
    assert math.hypot(*answer.json()[0]) == pytest.approx(1, abs=1e-3)
    status = podman("exec", hardened.name, "cat", "/proc/1/status").stdout
    assert re.search(r"^Uid:\s+65532\b", status, re.M)
    assert re.search(r"^CapBnd:\s+0+$", status, re.M)
    refused = podman("exec", hardened.name, "touch", "/tmp/file", check=False)
    assert "Read-only file system" in refused.stderr


def test_indexes_need_a_volume_and_outlive_the_container() -> None:
    with started(*HARDENED) as bare:
        bare.wait_healthy()
        refused = httpx.put(f"{bare.url}/indexes/papers", json={}, timeout=60)
        assert refused.status_code == 503
        assert "index_path" in refused.json()["error"]
    volume = f"docsplit-test-{uuid.uuid4().hex[:12]}"
    document = {"id": "a", "text": "A document."}
    try:
        with started(*HARDENED, f"--volume={volume}:/data") as first:
            first.wait_healthy()
            httpx.put(f"{first.url}/indexes/papers", json={}, timeout=60).raise_for_status()
            path = "/indexes/papers/documents"
            body = {"documents": [document]}
            httpx.post(f"{first.url}{path}", json=body, timeout=60).raise_for_status()
        with started(*HARDENED, f"--volume={volume}:/data") as second:
            second.wait_healthy()
            found = httpx.get(f"{second.url}{path}/a", timeout=60)
            assert found.json()["text"] == document["text"]
    finally:
        podman("volume", "rm", "--force", volume)


def test_its_log_is_json_without_a_warning(hardened: Container) -> None:
    lines = hardened.log
    assert "ready" in [line["event"] for line in lines]
    assert {line["level"] for line in lines} == {"info"}


def test_onnxruntime_reports_to_nobody() -> None:
    def said(*flags: str) -> str:
        # without a writable folder, the reporter complains that it cannot keep its identifier
        command = ("--read-only", "--read-only-tmpfs=false", "--entrypoint=python", *flags, IMAGE)
        return podman("run", "--rm", "--pull=never", *command, "-c", "import onnxruntime").stderr

    assert "telemetry" not in said()
    assert "telemetry" in said("-e=ORT_DISABLE_TELEMETRY=0")


def test_the_healthcheck_can_fail(hardened: Container) -> None:
    command = ("python", "-m", "service.healthcheck")
    assert podman("exec", hardened.name, *command).returncode == 0
    elsewhere = podman("exec", "-e=DOCSPLIT_PORT=1", hardened.name, *command, check=False)
    assert elsewhere.returncode == 1


def test_it_writes_nothing_into_writable_folders() -> None:
    def changed(container: Container) -> set[str]:
        return set(podman("diff", container.name).stdout.splitlines())

    with started("--user=0", "--entrypoint=sleep") as idle:
        # files that podman itself writes; `sleep` without an operand ends at once
        by_podman = changed(idle)
    with started("--user=0") as container:
        container.wait_healthy()
        assert container.embed("A document.").status_code == 200
        assert changed(container) <= by_podman
        podman("exec", container.name, "touch", "/app/file")
        assert "A /app/file" in changed(container) - by_podman


def test_another_bundle_is_mounted(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(DEFAULT_BUNDLE, bundle)
    manifest = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps(manifest | {"name": "mounted"}))
    for path in (bundle, *bundle.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with started(*HARDENED, f"--volume={bundle}:/bundle:ro,z", "-e=DOCSPLIT_BUNDLE=/bundle") as c:
        c.wait_healthy()
        assert httpx.get(f"{c.url}/info").json()["model_id"] == "mounted"


def test_a_missing_bundle_is_named() -> None:
    with started(*HARDENED, "-e=DOCSPLIT_BUNDLE=/bundle") as container:
        assert podman("wait", container.name).stdout.strip() == "2"
        assert "/bundle/bundle.json: no such file" in podman("logs", container.name).stderr


@dataclass(frozen=True)
class Stopped:
    """The results of a container that was stopped while it computed."""

    answer: httpx.Response
    exit_code: object


@pytest.fixture(scope="module")
def stopped() -> Stopped:
    """`podman stop` during a request; without a drain, so that the request outlives it."""
    document = " ".join(f"Sentence {n} speaks of {n * 7919 % 1000} things." for n in range(1500))
    answers: list[httpx.Response] = []
    with started(*HARDENED, "-e=DOCSPLIT_DRAIN_SECONDS=0", "-e=DOCSPLIT_THREADS=1") as container:
        container.wait_healthy()
        asking = threading.Thread(target=lambda: answers.append(container.embed(document)))
        asking.start()
        metrics = f"{container.url}/metrics"
        while not re.search(r"^docsplit_queue_tokens [1-9]", httpx.get(metrics).text, re.M):
            assert asking.is_alive(), "the request ended before the container was stopped"
            time.sleep(0.01)
        podman("stop", "--time=120", container.name)
        asking.join()
        return Stopped(answers[0], container.state["ExitCode"])


def test_stopping_answers_requests_in_progress(stopped: Stopped) -> None:
    assert stopped.answer.status_code == 200, stopped.answer.text


def test_the_exit_code_shows_that_all_ended_in_order(stopped: Stopped) -> None:
    assert stopped.exit_code == 0
