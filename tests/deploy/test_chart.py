"""The chart, rendered for each file of values and validated against Kubernetes' schemas.

This needs large packages, so it has its own extra: ``pip install -e '.[charts]'``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.configuration import load
from service.settings import Settings
from tests.conftest import ROOT

helm_python = pytest.importorskip("helm_python", reason="the extra charts is not installed")
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="the extra charts is not installed"
)

HELM = ROOT / "deploy" / "helm"
CHART = HELM / "docsplit"
VALUES = sorted((HELM / "values").glob("*.yaml"))
VERSIONS = ("1.27", "1.37")
# the first version that knows all fields of the objects, where it is a later one
FIRST = {"s3-cache": "1.29"}


def values(path: Path | None) -> dict[str, Any]:
    return {} if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))


def render(given: dict[str, Any], name: str = "prod") -> dict[tuple[str, str], dict[str, Any]]:
    """Objects by kind and name."""
    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(given, name=name, namespace="documents", is_install=True)
    found = [one for text in texts.values() for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def container(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    pod = objects["Deployment", "prod-docsplit"]["spec"]["template"]["spec"]
    found: dict[str, Any] = pod["containers"][0]
    return found


def variables(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    listed = container(objects)["env"]
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in listed}


@pytest.mark.parametrize("path", [None, *VALUES], ids=lambda p: p.stem if p else "defaults")
def test_kubernetes_accepts_the_objects(path: Path | None) -> None:
    linted = helm_python.lint(str(CHART), values(path), strict=True)
    assert linted["errors"] == []
    # status 1 is only a hint
    assert {message["severity"] for message in linted["messages"]} <= {0, 1}
    objects = render(values(path))
    assert ("Deployment", "prod-docsplit") in objects
    first = FIRST.get(path.stem if path else "", VERSIONS[0])
    for one in objects.values():
        for version in (first, VERSIONS[-1]):
            kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("name", ["2026", "1e3", "0x1f", "true"])
def test_names_that_yaml_reads_as_numbers_stay_names(name: str) -> None:
    named = {"existingSecret": name}
    shared = {"keys": named, "priorityClassName": name, "bundle": {"existingClaim": name}}
    redis = named | {"cacheSecret": name}
    for more in (
        {"redis": redis, "index": {"volume": {"size": "5", "storageClass": name}}},
        {"index": {"volume": {"existingClaim": name}}},
        {"index": {"s3": named | {"uri": "s3://bucket/path"}}},
    ):
        for one in render(shared | more, name).values():
            kubernetes_validate.validate(one, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded"])
def test_the_documented_scrape_configuration_finds_the_replicas(phase: str) -> None:
    objects = render({"redis": {"deploy": True}})
    for (kind, name), one in objects.items():
        if kind not in ("Deployment", "StatefulSet"):
            continue
        template = one["spec"]["template"]
        labels = template["metadata"]["labels"]
        ports = [port for each in template["spec"]["containers"] for port in each["ports"]]
        kept = [
            port["containerPort"]
            for port in ports
            if scraped(
                {
                    f"pod_label_{re.sub('[^a-z0-9]', '_', label)}": value
                    for label, value in labels.items()
                }
                | {"pod_container_port_name": port["name"], "pod_phase": phase}
            )
        ]
        runs = phase == "Running" and name == "prod-docsplit"
        assert kept == ([8080] if runs else []), name


def scraped(labels: dict[str, str]) -> bool:
    """Whether the documented job keeps a target."""
    guide = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(scrape_configs:.*?)```", guide, re.S)
    [job] = yaml.safe_load(block)["scrape_configs"]
    assert job["job_name"] == "docsplit"
    kept = True
    for rule in job["relabel_configs"]:
        names = [name.removeprefix("__meta_kubernetes_") for name in rule["source_labels"]]
        value = ";".join(labels.get(name, "") for name in names)
        if "action" in rule:
            kept &= bool(re.fullmatch(rule["regex"], value)) == (rule["action"] == "keep")
    return kept


def test_the_schemas_notice_errors() -> None:
    broken = render({})["Deployment", "prod-docsplit"]
    broken["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("path", [None, *VALUES], ids=lambda p: p.stem if p else "defaults")
def test_the_service_accepts_its_settings(
    path: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {f"DOCSPLIT_{name.upper()}" for name in Settings.model_fields}
    given = variables(render(values(path)))
    ours = {name: value for name, value in given.items() if name.startswith("DOCSPLIT_")}
    assert ours
    assert set(ours) <= known
    for name, value in ours.items():
        of_a_secret = "redis://of-a-secret/and-long-enough-to-be-one"
        monkeypatch.setenv(name, value if isinstance(value, str) else of_a_secret)
    settings = load([])
    grace = render(values(path))["Deployment", "prod-docsplit"]["spec"]["template"]["spec"]
    needed = settings.drain_seconds + settings.request_timeout
    assert grace["terminationGracePeriodSeconds"] > needed


def test_no_container_has_extra_rights() -> None:
    for (kind, _), one in render({}).items():
        if kind != "Deployment":
            continue
        pod = one["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for each in pod["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_probes_use_existing_routes() -> None:
    api = (ROOT / "docs" / "reference" / "api" / "index.md").read_text(encoding="utf-8")
    found = container(render({}))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f"`GET {found[probe]['httpGet']['path']}`" in api
    assert found["livenessProbe"]["httpGet"]["path"] == "/livez"
    # the model may take minutes to get ready, and the endpoints change before a replica closes
    assert found["startupProbe"]["periodSeconds"] * found["startupProbe"]["failureThreshold"] >= 120


def test_each_variant_has_its_special_parts() -> None:
    plain = render({})
    assert ("Deployment", "prod-docsplit-redis") in plain
    assert variables(plain)["DOCSPLIT_REDIS_URL"] == "redis://prod-docsplit-redis:6379/0"
    assert "DOCSPLIT_CACHE_SECRET" not in variables(plain)
    assert "HorizontalPodAutoscaler" not in {kind for kind, _ in plain}
    bucket = render(values(HELM / "values" / "s3-autoscaled.yaml"))
    assert ("Deployment", "prod-docsplit-redis") not in bucket
    assert variables(bucket)["DOCSPLIT_KEYS_FILE"] == "/keys/keys.toml"
    assert variables(bucket)["DOCSPLIT_TRUSTED_PROXIES"] == "10.0.0.0/8"
    of_the_cache = {"secretKeyRef": {"name": "docsplit-cache", "key": "secret"}}
    assert variables(bucket)["DOCSPLIT_CACHE_SECRET"] == of_the_cache
    assert "replicas" not in bucket["Deployment", "prod-docsplit"]["spec"]
    scaler = bucket["HorizontalPodAutoscaler", "prod-docsplit"]["spec"]["metrics"][0]
    assert scaler["pods"]["metric"]["name"] == "docsplit_queue_tokens"
    gpu = render(values(HELM / "values" / "gpu.yaml"))
    assert container(gpu)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert variables(gpu)["DOCSPLIT_ENGINE"] == "onnx-cuda"
    assert variables(gpu)["DOCSPLIT_DRAIN_SECONDS"] == "15"
    assert ("PersistentVolumeClaim", "prod-docsplit-index") in gpu
    bundle = render(values(HELM / "values" / "bundle.yaml"))
    assert variables(bundle)["DOCSPLIT_BUNDLE"] == "/bundle"


def test_a_setting_replaces_the_value_of_the_chart() -> None:
    given = {
        "settings": {
            "bundle": ["/bundle/small", "/bundle/large"],
            "redis_url": "redis://own:6379/1",
            "engine": "onnx-cpu",
            "keys_file": "/keys/own.toml",
            "cache_secret": "a" * 32,
            "index_path": "s3://own/prefix",
        },
        "bundle": {"existingClaim": "bundles"},
        "redis": {"cacheSecret": "docsplit-cache"},
        "gpu": {"enabled": True},
        "keys": {"existingSecret": "docsplit-keys"},
        "index": {"s3": {"uri": "s3://a/b"}},
    }
    objects = render(given)
    names = [one["name"] for one in container(objects)["env"]]
    assert len(names) == len(set(names))
    assert variables(objects)["DOCSPLIT_BUNDLE"] == "/bundle/small,/bundle/large"
    assert variables(objects)["DOCSPLIT_REDIS_URL"] == "redis://own:6379/1"
    assert not {name for _, name in objects if name.endswith("-redis")}


def test_a_port_that_the_probes_would_miss_is_refused() -> None:
    with pytest.raises(helm_python.HelmError, match="port"):
        render({"settings": {"port": 9000}})


@pytest.mark.parametrize(("given", "most"), [("512mb", "768Mi"), ("2gb", "3072Mi")])
def test_redis_may_take_more_memory_than_its_values(given: str, most: str) -> None:
    deployment = render({"redis": {"maxmemory": given}})["Deployment", "prod-docsplit-redis"]
    [redis] = deployment["spec"]["template"]["spec"]["containers"]
    assert redis["command"][2] == given
    assert redis["resources"]["limits"]["memory"] == most


def test_temporary_files_may_take_as_much_as_a_value_says() -> None:
    for given, size in (({}, "4Gi"), ({"scratch": {"size": "20Gi"}}, "20Gi")):
        spec = render(given)["Deployment", "prod-docsplit"]["spec"]["template"]["spec"]
        scratch = next(one for one in spec["volumes"] if one["name"] == "scratch")
        assert scratch["emptyDir"] == {"sizeLimit": size}


def test_a_gpu_needs_no_limit_of_memory() -> None:
    given = {"gpu": {"enabled": True}, "resources": {"limits": None}}
    assert container(render(given))["resources"]["limits"] == {"nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("endpoint", "ports", "plain"),
    [
        ("", [443], None),
        ("https://store.example", [443], None),
        ("http://minio.stores:9000", [443, 9000], "true"),
        ("http://store", [443, 80], "true"),
        ("https://[fd00::1]:9443/", [443, 9443], None),
    ],
)
def test_replicas_reach_the_endpoint_of_their_store(
    endpoint: str, ports: list[int], plain: str | None
) -> None:
    objects = render({"index": {"s3": {"uri": "s3://a/b", "endpoint": endpoint}}})
    assert variables(objects).get("AWS_ALLOW_HTTP") == plain
    egress = objects["NetworkPolicy", "prod-docsplit"]["spec"]["egress"]
    assert [one["port"] for one in egress[-1]["ports"]] == ports


@pytest.mark.parametrize(
    ("endpoint", "plain", "server", "scheme"),
    [
        ("", "http://s3.eu-central-1.amazonaws.com", "s3.eu-central-1.amazonaws.com:443", "https"),
        ("https://store.example/", "http://store.example", "store.example:443", "https"),
        ("https://store.example:9443", "http://store.example:9443", "store.example:9443", "https"),
        ("http://minio.stores:9000", "http://minio.stores:9000", "minio.stores:9000", "http"),
        ("http://store", "http://store", "store:80", "http"),
    ],
)
def test_a_cache_stands_between_a_replica_and_its_store(
    endpoint: str, plain: str, server: str, scheme: str
) -> None:
    s3 = {"uri": "s3://a/b", "region": "eu-central-1", "endpoint": endpoint}
    objects = render({"index": {"s3": s3 | {"cache": {"gigabytes": 50}}}})
    found = variables(objects)
    assert (found["AWS_ENDPOINT"], found["AWS_ALLOW_HTTP"]) == (plain, "true")
    assert found["AWS_PROXY_URL"] == "http://127.0.0.1:3128"
    text = objects["ConfigMap", "prod-docsplit-bucket-cache"]["data"]["bucket-cache.conf"]
    assert f" server {server} resolve;" in text
    assert text.count(f"proxy_pass {scheme}://store$request_uri;") == 2
    assert " max_size=50g " in text
    assert "resolver kube-dns.kube-system.svc.cluster.local " in text
    # the control: without a cache, replicas use no proxy
    objects = render({"index": {"s3": s3}})
    assert ("ConfigMap", "prod-docsplit-bucket-cache") not in objects
    assert variables(objects).get("AWS_ENDPOINT") == (endpoint.rstrip("/") or None)
    assert not {"AWS_PROXY_URL", "AWS_PROXY_EXCLUDES"} & variables(objects).keys()


def test_replicas_reach_a_bucket_that_only_the_settings_name() -> None:
    for given, ports in (("s3://a/b", [[53, 53], [443]]), ("/data/index", [[53, 53]])):
        objects = render({"settings": {"index_path": given}, "redis": {"deploy": False}})
        egress = objects["NetworkPolicy", "prod-docsplit"]["spec"]["egress"]
        assert [[port["port"] for port in one["ports"]] for one in egress] == ports


def test_a_replica_takes_further_variables() -> None:
    given = {"env": [{"name": "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "value": "true"}]}
    assert variables(render(given))["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] == "true"


def test_a_further_variable_replaces_that_of_the_chart() -> None:
    secret = {"secretKeyRef": {"name": "own", "key": "url"}}
    own = [
        {"name": "DOCSPLIT_LOG_LEVEL", "value": "debug"},
        {"name": "DOCSPLIT_REDIS_URL", "valueFrom": secret},
        {"name": "AWS_REGION", "value": "us-east-1"},
    ]
    s3 = {"s3": {"uri": "s3://a/b", "region": "eu-central-1"}}
    objects = render({"env": own, "index": s3})
    names = [one["name"] for one in container(objects)["env"]]
    assert sorted(names) == sorted(set(names))
    found = variables(objects)
    assert (found["DOCSPLIT_LOG_LEVEL"], found["AWS_REGION"]) == ("debug", "us-east-1")
    assert found["DOCSPLIT_REDIS_URL"] == secret
    assert found["DOCSPLIT_DRAIN_SECONDS"] == "15"
    # nothing would use it
    assert not {name for _, name in objects if name.endswith("-redis")}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"env": [{"name": "DOCSPLIT_PORT", "value": "9000"}]}, "settings.port"),
        ({"env": [{"name": "DOCSPLIT_DRAIN_SECONDS", "value": "90"}]}, "settings.drain_seconds"),
        ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "same name"),
        ({"settings": {"LOG_LEVEL": "debug"}}, "lower case"),
        ({"index": {"s3": {"cache": {"gigabytes": 5}}}}, "index.s3.uri"),
        ({"index": {"s3": {"uri": "s3://a/b", "cache": {"gigabytes": 5}}}}, "index.s3.region"),
    ],
)
def test_variables_that_would_contradict_the_chart_are_refused(
    given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(helm_python.HelmError, match=reason):
        render(given)


class Unique(yaml.SafeLoader):
    """Refuses a mapping that has a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(name, deep=True) for name, _ in node.value]
        assert len(names) == len({*names}), names
        return super().construct_mapping(node, deep)


def test_an_annotation_replaces_that_of_the_chart() -> None:
    given = {"podAnnotations": {"prometheus.io/scrape": "false", "team": "search"}}
    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(given, name="prod", namespace="documents", is_install=True)
    [text] = [text for path, text in texts.items() if path.endswith("/deployment.yaml")]
    found = yaml.load(text, Unique)["spec"]["template"]["metadata"]["annotations"]
    assert found == {
        "prometheus.io/scrape": "false",
        "prometheus.io/port": "8080",
        "team": "search",
    }


def test_replicas_can_be_replaced_where_there_is_room_for_no_further_one() -> None:
    for given, way in (
        ({}, {"maxSurge": 1, "maxUnavailable": 0}),
        ({"maxSurge": 0, "maxUnavailable": 1}, {"maxSurge": 0, "maxUnavailable": 1}),
    ):
        spec = render({"rollingUpdate": given})["Deployment", "prod-docsplit"]["spec"]
        assert spec["strategy"]["rollingUpdate"] == way


def test_two_storages_for_the_index_are_refused() -> None:
    both = {"index": {"s3": {"uri": "s3://a/b"}, "volume": {"size": "1Gi"}}}
    with pytest.raises(helm_python.HelmError, match="either s3 or volume"):
        render(both)


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in project


def test_the_guides_name_existing_values() -> None:
    tree = yaml.safe_load((CHART / "values.yaml").read_text())
    guides = (ROOT / "docs" / "how-to").glob("*.md")
    text = "".join(path.read_text(encoding="utf-8") for path in guides)
    sections = "|".join(name for name, below in tree.items() if isinstance(below, dict) and below)
    named = set(re.findall(rf"(?:`|--set )((?:{sections})(?:\.\w+)+)[`=]", text))
    assert {"index.s3.uri", "redis.cacheSecret"} <= named
    for name in named - {"bundle.json"}:
        place = tree
        for part in name.split("."):
            assert part in place, name
            place = place[part]


def test_every_value_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())

    def used(tree: dict[str, Any], prefix: str) -> None:
        for name, value in tree.items():
            place = f"{prefix}.{name}"
            if isinstance(value, dict) and value and name not in ("settings", "requests", "limits"):
                used(value, place)
            elif not re.search(rf"{re.escape(place)}\b", text):
                assert re.search(rf"\.{name}\b", text), place

    used(yaml.safe_load((CHART / "values.yaml").read_text()), ".Values")
