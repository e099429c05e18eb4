"""Checks of SECURITY.md, and of the release workflow without running it."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
RELEASE = WORKFLOWS / "release.yaml"


@pytest.fixture(scope="module")
def release() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(RELEASE.read_text(encoding="utf-8"))
    return loaded


def steps(release: dict[Any, Any], job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = release["jobs"][job]["steps"]
    return found


def uses(release: dict[Any, Any], job: str) -> dict[str, dict[str, Any]]:
    """The inputs of each action of a job, by the action's name."""
    named = [step for step in steps(release, job) if "uses" in step]
    return {step["uses"].split("@")[0]: step.get("with", {}) for step in named}


def commands(release: dict[Any, Any], job: str) -> str:
    return "\n".join(step.get("run", "") for step in steps(release, job))


def test_it_runs_only_on_tags(release: dict[Any, Any]) -> None:
    # YAML 1.1 reads `on` as true
    assert release[True] == {"push": {"tags": ["v*"]}}


def test_every_job_has_only_the_rights_it_needs(release: dict[Any, Any]) -> None:
    assert release["permissions"] == {}
    signing = {"contents": "read", "id-token": "write", "attestations": "write"}
    assert {name: job["permissions"] for name, job in release["jobs"].items()} == {
        "test": {"contents": "read"},
        "hashes": {"contents": "read"},
        "wheel": signing,
        "image": signing | {"packages": "write"},
        "publish": {"contents": "write"},
    }


def test_only_tested_versions_are_released(release: dict[Any, Any]) -> None:
    jobs = release["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yaml"
    ci = yaml.safe_load((WORKFLOWS / "ci.yaml").read_text(encoding="utf-8"))
    assert "workflow_call" in ci[True]
    assert ci["permissions"] == {"contents": "read"}
    for name in ("wheel", "image"):
        assert "test" in jobs[name]["needs"]
    assert set(jobs["publish"]["needs"]) == {"hashes", "wheel", "image"}


def test_wheel_and_image_have_provenance_parts_and_signatures(release: dict[Any, Any]) -> None:
    assert uses(release, "wheel")["actions/attest-build-provenance"] == {
        "subject-path": "dist/*.whl"
    }
    image = uses(release, "image")
    built = image["docker/build-push-action"]
    assert built["provenance"] == "mode=max"
    assert built["sbom"] is True
    assert "subject-digest" in image["actions/attest-build-provenance"]
    assert "sigstore/cosign-installer" in image
    said = commands(release, "image")
    assert 'cosign sign --yes "$IMAGE"' in said
    assert "cosign attest --yes --type cyclonedx" in said
    # a tag could point to another image by now
    [signing] = [step for step in steps(release, "image") if "cosign sign" in step.get("run", "")]
    assert signing["env"]["IMAGE"].endswith("@${{ steps.build.outputs.digest }}")


def test_a_release_has_only_its_own_artifacts(release: dict[Any, Any]) -> None:
    uploaded = {
        step["with"]["name"].replace("${{ matrix.extra }}", "cpu")
        for job in ("hashes", "wheel", "image")
        for step in steps(release, job)
        if step.get("uses", "").startswith("actions/upload-artifact@")
    }
    pattern = uses(release, "publish")["actions/download-artifact"]["pattern"]
    taken = pattern.strip("{}").split(",")
    assert uploaded == {"hashes", "wheel", "image-cpu"}
    assert all(any(fnmatch(name, one) for one in taken) for name in uploaded)
    # docker/build-push-action uploads such an archive, which no download can unpack
    assert not any(fnmatch("owner~docsplit~ABC123.dockerbuild", one) for one in taken)
    [build] = [step for step in steps(release, "image") if step.get("id") == "build"]
    assert build["env"]["DOCKER_BUILD_RECORD_UPLOAD"] == "false"


def test_the_image_is_built_from_hashes_on_a_pinned_base(release: dict[Any, Any]) -> None:
    given = uses(release, "image")["docker/build-push-action"]["build-args"].split()
    arguments = dict(one.split("=", 1) for one in given if "=" in one)
    assert arguments["HASHES"] == "1"
    assert 'echo "base=$base@$digest"' in commands(release, "image")
    assert "make hashes" in commands(release, "hashes")
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert dockerfile.count("--require-hashes") == 3
    files = set(re.findall(r"--output-file (hashes/\w+\.txt)", makefile))
    wanted = set(re.findall(r'--requirement "?(hashes/[\w${}]+\.txt)', dockerfile))
    assert wanted == {"hashes/build.txt", "hashes/${EXTRA}.txt", "hashes/sbom.txt"}
    assert files == {f"hashes/{name}.txt" for name in ("cpu", "gpu", "build", "sbom")}


def test_untested_versions_stop_the_release(release: dict[Any, Any], tmp_path: Path) -> None:
    [step] = [s for s in steps(release, "hashes") if "versions()" in s.get("run", "")]
    (tmp_path / "hashes").mkdir()

    def status(found: str) -> int:
        for extra, pins in (("cpu", "constraints.txt"), ("gpu", "constraints-gpu.txt")):
            (tmp_path / "hashes" / f"{extra}.txt").write_text(found)
            (tmp_path / pins).write_text("a-b==1.2\nc==3 ; sys_platform == 'linux'\n")
        # like the runner
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    good = "a-b==1.2 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
    assert status(good) == 0
    assert status(good + "c==3 ; sys_platform == 'linux' \\\n    --hash=sha256:22\n") == 0
    assert status(good + "c==4 \\\n    --hash=sha256:22\n") != 0
    assert status("") != 0


def test_the_repository_contains_no_hash() -> None:
    """At release time, each hash must come from the index that the builder reads."""
    assert "/hashes/*.txt" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yaml")), ids=lambda path: path.stem)
def test_actions_have_versions_and_commands_contain_no_foreign_text(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    for job in workflow["jobs"].values():
        for step in job.get("steps", []):
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@(v\d+|[0-9a-f]{40})", step["uses"]), step
            # a tag's or title's content would be executed; variables are not
            assert "${{" not in step.get("run", ""), step


def test_the_policy_points_to_private_reporting() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a vulnerability" in policy
    assert "## Supported versions" in policy
    for target in re.findall(r"\]\(([^)#]+)", policy):
        assert (ROOT / target).exists()
    assert "## Threat model" in (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    assert "### Releases" in (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
