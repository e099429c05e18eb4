"""Alerts, dashboard and runbook, compared with the metrics that the service exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from service.metrics import Metrics
from tests.conftest import ROOT

RULES = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "docsplit.json"
RUNBOOK = (ROOT / "docs" / "how-to" / "runbook.md").read_text(encoding="utf-8")
# labels that Prometheus gives every series
ADDED = {"job", "instance"}
ENGINE = {"engine", "precision", "device", "model", "revision"}


def exported() -> dict[str, set[str]]:
    """Names of series, with their labels."""
    found: dict[str, set[str]] = {"up": set()}
    registry = Metrics().registry
    # a metric without samples does not show its labels
    for collector in list(registry._collector_to_names):
        labels = set(getattr(collector, "_labelnames", ()))
        for metric in collector.collect():
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            if metric.type == "histogram":
                found[f"{name}_bucket"] = labels | {"le"}
                found[f"{name}_sum"] = found[f"{name}_count"] = labels
            elif metric.type == "info":
                found[f"{name}_info"] = ENGINE
            else:
                found[name] = labels
    return found


METRICS = exported()


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    board = json.loads(DASHBOARD.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in board["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
    for rule in alerts():
        yield rule["alert"], rule["expr"]


def selectors(node: Any) -> Iterator[Any]:
    """All selectors of series below a node of a parsed query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    for name in ("expr", "lhs", "rhs"):
        if hasattr(node, name):
            yield from selectors(getattr(node, name))
    for argument in getattr(node, "args", None) or ():
        yield from selectors(argument)


def faults(query: str) -> list[str]:
    """Names in a query that are not exported."""
    parsed = promql_parser.parse(query.replace("$__rate_interval", "5m"))
    found = list(selectors(parsed))
    # the search missed none
    assert len(found) == len(re.findall(r"\b(?:docsplit_|process_|up\b)", query))
    wrong = []
    for selector in found:
        if selector.name not in METRICS:
            wrong.append(f"no metric {selector.name}")
            continue
        named = {matcher.name for matcher in selector.matchers.matchers}
        wrong += [f"no label {one}" for one in named - METRICS[selector.name] - ADDED]
    return wrong


@pytest.mark.parametrize(("place", "query"), list(queries()))
def test_a_query_names_only_exported_metrics(place: str, query: str) -> None:
    assert faults(query) == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(rate(docsplit_request_total{}[5m]))", "no metric docsplit_request_total"),
        ('sum(docsplit_connections{reason="x"}) / 2', "no label reason"),
        ("1 - histogram_quantile(0.9, rate(docsplit_batch_seconds{}[1m]))", "no metric"),
    ],
)
def test_the_check_finds(query: str, fault: str) -> None:
    assert any(fault in found for found in faults(query))


def test_every_docsplit_metric_is_on_the_dashboard() -> None:
    text = DASHBOARD.read_text()
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRICS}
    left = {name for name in shown if name.startswith("docsplit_") and name not in text}
    # the dashboard computes it from two counters, for the displayed time
    assert left == {"docsplit_padding_waste_ratio"}


def test_the_runbook_has_exactly_the_alerts() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.M) == names
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_runbook_has_every_reason_of_the_store() -> None:
    entry = RUNBOOK.split("## DocsplitStoreRefuses")[1].split("\n## ")[0]
    counter = Metrics().store_errors.collect()
    reasons = {sample.labels["reason"] for metric in counter for sample in metric.samples}
    # DocsplitStoreGone is about this one
    assert reasons - {"gone"} == set(re.findall(r"`(\w+)`", entry)) & reasons
    assert "damaged" in reasons


def test_every_alert_has_a_test_that_raises_it() -> None:
    tests = yaml.safe_load((RULES / "alerts_test.yaml").read_text())["tests"]
    raised = {
        case["alertname"]
        for test in tests
        for case in test.get("alert_rule_test", [])
        if case["exp_alerts"]
    }
    assert raised == {rule["alert"] for rule in alerts()}


def test_the_alert_of_slow_requests_watches_all_routes_whose_callers_wait() -> None:
    api = (ROOT / "docs" / "reference" / "api" / "index.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in api.splitlines() if line.startswith("| `POST /")]
    posts = {path for row in rows for path in re.findall(r"`POST (/[^`{]*)`", row)}
    # a file may take its time, and agents have tools of all kinds
    waiting = posts - {"/read", "/mcp"}
    assert {"/embed", "/similar", "/v1/rerank"} <= waiting
    [query] = [rule["expr"] for rule in alerts() if rule["alert"] == "DocsplitSlow"]
    [watched] = re.findall(r'route=~"([^"]+)"', query)
    assert {path for path in waiting if not re.fullmatch(watched, path)} == set()
