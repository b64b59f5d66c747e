"""Alert rules for Prometheus, which evaluate the metrics of `penstock serve metrics` by the same limits.

Source: Prometheus' documentation, "Alerting rules" and "Defining recording rules"; the syntax of regular expressions is RE2's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from ....processors.declare import ALERT_METRICS, SERVER_ALERT_METRICS, Alert
from ..metrics import PREFIX
from .notifications import runbook_of

BLIND_RULE = "monitoring blind"
"""The name of the rule about Penstock's metrics themselves."""


def prometheus_rules(rules: Iterable[Alert], runbooks: str) -> str:
    """Return a rule file for Prometheus: the rules, and one that fires if the metrics are missing. Strings in YAML are quoted as in JSON.

    Args:
        rules: the rules.
        runbooks: the address of a page with a heading for each rule; empty without one.
    """
    lines = ["groups:", "  - name: penstock", "    rules:"]
    descriptions = ALERT_METRICS | SERVER_ALERT_METRICS
    for rule in rules:
        description = descriptions[rule.metric]
        lines += _lines(
            rule,
            _expression(rule),
            f"{{{{ $labels.processor }}}}: {rule.name} ({{{{ $value }}}})",
            description,
            runbooks,
        )
    blind = Alert(BLIND_RULE, "workers", below=1, severity="critical")
    summary = "Prometheus gets no metrics of Penstock, so no other rule can fire"
    lines += _lines(
        blind, f"absent({PREFIX}workers)", summary, "Check `penstock serve metrics` and its scrape job.", runbooks
    )
    return "\n".join(lines) + "\n"


def _lines(rule: Alert, expression: str, summary: str, description: str, runbooks: str) -> Iterator[str]:
    yield f"      - alert: {json.dumps(rule.name)}"
    yield f"        expr: {json.dumps(expression)}"
    yield f"        for: {rule.duration.total_seconds():.0f}s"
    yield f"        labels: {{severity: {rule.severity}}}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(summary)}"
    yield f"          description: {json.dumps(description)}"
    if runbooks:
        yield f"          runbook_url: {json.dumps(runbook_of(rule.name, runbooks))}"


def _expression(rule: Alert) -> str:
    comparison = f"> {rule.above:g}" if rule.above is not None else f"< {rule.below:g}"
    return f"{PREFIX}{rule.metric}{_selector(rule.processors)} {comparison}"


def _selector(pattern: str) -> str:
    """Return the selector of a rule's processors; empty for all. Prometheus matches the whole label."""
    if pattern == "*":
        return ""
    return f"{{processor=~{json.dumps(_regular_expression(pattern))}}}"


def _regular_expression(pattern: str) -> str:
    """Return a pattern of file names as a regular expression: `*` matches any text, `?` any character, and `[a-c]` or `[!a-c]` one of a set."""
    parts = re.findall(r"\*|\?|\[[^]]+\]|.", pattern, re.DOTALL)
    return "".join(map(_part, parts))


def _part(part: str) -> str:
    if len(part) > 1:
        body = part[1:-1].replace("\\", "\\\\")
        return f"[^{body[1:]}]" if body.startswith("!") else f"[{body}]"
    return {"*": ".*", "?": "."}.get(part) or re.escape(part)
