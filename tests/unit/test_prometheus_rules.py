"""Alert rules for Prometheus: the same limits over metrics that exist."""

from __future__ import annotations

import re
from datetime import timedelta
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import penstock as ps
from penstock.ops.shell.command_line.main import app
from penstock.ops.status.alerts.prometheus_rules import BLIND_RULE, prometheus_rules
from penstock.ops.status.alerts.rules import DEFAULTS, rules_of
from penstock.ops.status.metrics import PROCESSOR_METRICS, SERVER_METRICS

DOCS = Path(__file__).parents[2] / "docs"
yaml: Any = import_module("yaml")


def parsed(rules: list[ps.Alert], runbooks: str = "") -> dict[str, dict[str, Any]]:
    """Return the rules of the rule file, by name."""
    [group] = yaml.safe_load(prometheus_rules(rules, runbooks))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_each_rule_has_its_metric_limit_duration_and_severity() -> None:
    """One further rule fires if metrics are missing."""
    found = parsed(rules_of(), "https://example.org/runbooks")

    assert found.keys() == {*(rule.name for rule in DEFAULTS), BLIND_RULE}
    assert found["lag"]["expr"] == "penstock_lag_seconds > 300"
    assert found["disk almost full"]["expr"] == "penstock_disk_free_share < 0.05"
    assert (found["lag"]["for"], found["lag"]["labels"]) == ("120s", {"severity": "warning"})
    assert found["crash loop"]["annotations"]["runbook_url"] == "https://example.org/runbooks#crash-loop"
    assert all(
        rule["expr"].split("{")[0].split(" ")[0].removeprefix("penstock_") in {*PROCESSOR_METRICS, *SERVER_METRICS}
        for rule in found.values()
        if rule["alert"] != BLIND_RULE
    )


def test_each_rule_has_a_runbook() -> None:
    """The page of runbooks has a heading for it."""
    headings = set(re.findall(r"^## (.+)$", (DOCS / "runbooks.md").read_text(encoding="utf-8"), re.MULTILINE))

    assert {*(rule.name for rule in DEFAULTS), BLIND_RULE} - headings == set()


def test_the_rule_file_of_the_documentation_is_the_present_one() -> None:
    """`penstock alerts rules --format prometheus` prints it; an app's own rule is added or replaces one."""
    printed = CliRunner().invoke(app, ["alerts", "rules", "--format", "prometheus"]).output
    own = parsed(rules_of([ps.Alert("lag", "lag_seconds", above=60, duration=timedelta(0), processors="scor.er*")]))

    assert (DOCS / "grafana" / "penstock-rules.yaml").read_text(encoding="utf-8") == printed
    assert own["lag"]["expr"] == 'penstock_lag_seconds{processor=~"scor\\\\.er.*"} > 60'


@given(pattern=st.text("ab.*?", max_size=6), name=st.text("ab.", max_size=6))
def test_patterns_of_processors_match_the_same_names(pattern: str, name: str) -> None:
    """Prometheus matches the whole label by a regular expression."""
    expression = parsed([ps.Alert("own", "workers", below=1, processors=pattern)])["own"]["expr"]
    selector = re.search(r'\{processor=~(".*")\}', expression)
    matched = selector is None or re.fullmatch(yaml.safe_load(selector[1]), name) is not None

    assert matched == fnmatchcase(name, pattern)
