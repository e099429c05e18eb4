"""The shipped configurations, checked by the programs that read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings
from tests.conftest import ROOT
from tests.deploy.balancers import (
    find,
    haproxy_configuration,
    nginx_configuration,
)

DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
RULES = DEPLOY / "prometheus"


def run(*command: str | Path, cwd: Path = DEPLOY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def program(name: str) -> str:
    """The path of a program; skips the test if it is not installed."""
    found = find(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_haproxy_reads_its_configuration(tmp_path: Path) -> None:
    haproxy = program("haproxy")
    file = tmp_path / "haproxy.cfg"
    file.write_text(haproxy_configuration(8080, [8082, 8083, 8084], 8405, 8081))
    checked = run(haproxy, "-c", "-f", file)
    assert checked.returncode == 0, checked.stderr
    # the file as shipped: HAProxy resolves the servers' names only when it runs
    shipped = run(haproxy, "-c", "-f", DEPLOY / "haproxy" / "haproxy.cfg")
    assert shipped.returncode == 0, shipped.stderr
    assert "WARNING" not in shipped.stderr
    file.write_text(file.read_text().replace("balance leastconn", "balance least"))
    assert run(haproxy, "-c", "-f", file).returncode != 0


def test_nginx_reads_its_configuration(tmp_path: Path) -> None:
    nginx = program("nginx")
    file = tmp_path / "nginx.conf"
    file.write_text(nginx_configuration(8080, [8081, 8082, 8083], tmp_path))
    checked = run(nginx, "-t", "-p", tmp_path, "-c", file)
    assert checked.returncode == 0, checked.stderr
    file.write_text(file.read_text().replace("non_idempotent", "non_idempotence"))
    assert run(nginx, "-t", "-p", tmp_path, "-c", file).returncode != 0


def test_compose_reads_its_file(tmp_path: Path) -> None:
    compose = program("docker-compose")
    checked = run(compose, "--file", COMPOSE, "config", "--quiet")
    assert checked.returncode == 0, checked.stderr
    broken = tmp_path / "compose.yaml"
    broken.write_text(COMPOSE.read_text().replace("volumes:\n  index:", "volumes:\n  indexes:"))
    assert run(compose, "--file", broken, "config", "--quiet").returncode != 0


def test_compose_reads_its_variables_where_the_guide_says(tmp_path: Path) -> None:
    compose = program("docker-compose")
    guide = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    [place] = re.findall(r"^\| variable \(.*`(.*\.env)`\)", guide, re.M)
    [file] = set(re.findall(r"docker compose --file (\S+)", guide))
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    (tmp_path / place).write_text("DOCSPLIT_KEYS_FILE=/keys/keys.toml\n")
    shown = run(compose, "--file", file, "config", cwd=tmp_path)
    replica = yaml.safe_load(shown.stdout)["services"]["docsplit"]
    assert replica["environment"]["DOCSPLIT_KEYS_FILE"] == "/keys/keys.toml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return loaded


def test_compose_uses_existing_settings_and_files(compose: dict[str, Any]) -> None:
    known = {f"DOCSPLIT_{name.upper()}" for name in Settings.model_fields}
    services = compose["services"]
    assert set(services["docsplit"]["environment"]) <= known
    assert services["docsplit"]["deploy"]["replicas"] == 3
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), (name, source)


def test_compose_publishes_only_balancer_and_dashboard(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name for name, service in services.items() if "ports" in service} == {
        "haproxy",
        "grafana",
    }
    assert compose["networks"]["inside"]["internal"] is True
    [subnet] = compose["networks"]["inside"]["ipam"]["config"]
    trusted = services["docsplit"]["environment"]["DOCSPLIT_TRUSTED_PROXIES"]
    assert subnet["subnet"] == trusted
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]


def test_a_replica_has_time_to_end(compose: dict[str, Any]) -> None:
    defaults = Settings.model_construct()
    needed = defaults.drain_seconds + defaults.request_timeout
    assert int(compose["services"]["docsplit"]["stop_grace_period"].removesuffix("s")) > needed


def test_balancers_notice_a_drain_before_the_replica_closes() -> None:
    text = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    checks = re.findall(r"check inter (\d+)s fall (\d+)", text)
    assert len(checks) == 2
    for inter, fall in checks:
        assert int(inter) * int(fall) < Settings.model_construct().drain_seconds


def test_balancers_and_service_agree_on_the_largest_body_and_the_longest_request() -> None:
    defaults = Settings.model_construct()
    haproxy = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    nginx = (DEPLOY / "nginx" / "nginx.conf").read_text()
    assert f"req.body_size gt {defaults.max_body_bytes}" in haproxy
    assert f"client_max_body_size {defaults.max_body_bytes >> 20}m" in nginx
    assert f"req.body_size gt {defaults.max_upload_bytes} " in haproxy
    assert f"client_max_body_size {defaults.max_upload_bytes >> 20}m" in nginx
    for timeout in re.findall(r"timeout server (\d+)s|proxy_read_timeout (\d+)s", haproxy + nginx):
        assert int("".join(timeout)) > defaults.max_request_timeout


def test_prometheus_reads_its_rules(tmp_path: Path) -> None:
    promtool = program("promtool")
    checked = run(promtool, "check", "config", "prometheus.yaml", cwd=RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = run(promtool, "test", "rules", "alerts_test.yaml", cwd=RULES)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    for file in RULES.iterdir():
        shutil.copy(file, tmp_path)
    # the control: the tests of an alert notice another threshold
    tests, rules = tmp_path / "alerts_test.yaml", tmp_path / "alerts.yaml"
    held = yaml.safe_load(tests.read_text())
    held["tests"] = [one for one in held["tests"] if one["name"].startswith("errors, and many")]
    tests.write_text(yaml.safe_dump(held))
    assert run(promtool, "test", "rules", tests.name, cwd=tmp_path).returncode == 0
    rules.write_text(rules.read_text().replace("> 0.01", "> 0.5"))
    assert run(promtool, "test", "rules", tests.name, cwd=tmp_path).returncode != 0


def test_prometheus_reads_the_documented_jobs(tmp_path: Path) -> None:
    promtool = program("promtool")
    guide = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    job, rule = re.findall(r"```yaml\n((?:scrape_configs|- source_labels).*?)```", guide, re.S)
    config = yaml.safe_load(job)
    # distributions build promtool without this part of Prometheus
    assert config["scrape_configs"][0].pop("kubernetes_sd_configs") == [{"role": "pod"}]
    # the rule belongs to a job of the reader
    own = {"job_name": "kubernetes-pods", "relabel_configs": yaml.safe_load(rule)}
    config["scrape_configs"].append(own)
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    checked = run(promtool, "check", "config", "prometheus.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
