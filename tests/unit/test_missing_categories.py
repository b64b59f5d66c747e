"""Categories that `penstock run --create` creates, and how its options are described."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from rich.text import Text

from penstock.ops.cli.app_categories import create_missing
from penstock.ops.cli.options import Cluster
from penstock.processors.apps.apps import AppName
from penstock.transport.category_spec import CategorySpec
from penstock.transport.memory import MemoryBus

APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    user: str
    at: ps.EventTime

clicks = ps.Category("{name}", Click, key="user", event_time="at")

class Copies(ps.Stateless):
    reads, writes = clicks, ps.Category("copied_clicks", Click, key="user", event_time="at")

    def process(self, event):
        return [event]
"""


@pytest.mark.parametrize(("name", "similar"), [("shop.click", True), ("orders", False), ("shop.clicks", None)])
def test_an_empty_input_with_a_similar_name_is_reported(
    name: str, similar: bool | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is probably misspelled, and the processor would read nothing without an error. An existing input is not created."""
    (tmp_path / "clicks_app.py").write_text(APP.format(name=name))
    bus = MemoryBus()
    bus.create(CategorySpec("shop.clicks", 4))
    create_missing(bus, AppName.parse(str(tmp_path / "clicks_app.py")))
    printed = " ".join(capsys.readouterr().err.split())

    assert {name, "copied_clicks", "copies.dead_letters"} <= set(bus.names())
    assert (f"Created category {name} with" in printed) is (similar is not None)
    assert (f"{name} is empty: no processor of the app writes it. Did you mean `shop.clicks`?" in printed) is (
        similar is True
    )


def test_the_table_of_a_cluster_is_named_in_the_help() -> None:
    """Its brackets are no markup."""
    [option] = [each for each in get_args(Cluster) if hasattr(each, "help")]

    assert "the one of [clusters.NAME] in the configuration" in Text.from_markup(option.help).plain
