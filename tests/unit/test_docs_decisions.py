"""The decisions have one form, and the index names each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("0*.md"))


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: decision.stem)
def test_a_decision_begins_with_its_number_and_date(decision: Path) -> None:
    """A reader knows how old it is, and a link by number finds it."""
    text = decision.read_text(encoding="utf-8")

    assert re.match(rf"# {decision.name[:4]}: .+\n\nDate: \d{{4}}-\d\d-\d\d", text)


def test_the_index_has_each_decision_once() -> None:
    """Each decision belongs to a subject, and the text of its link is its number."""
    links = re.findall(r"^- \[(\d{4})\]\((.+?)\): ", (FOLDER / "index.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(links) == [(decision.name[:4], decision.name) for decision in DECISIONS]


def test_the_index_repeats_the_titles() -> None:
    """The index and the page say in the same words what was decided."""
    entries = re.findall(
        r"^- \[(\d{4})\]\(.+?\): (.+)\.$", (FOLDER / "index.md").read_text(encoding="utf-8"), re.MULTILINE
    )

    assert sorted(f"# {number}: {title}" for number, title in entries) == [
        decision.read_text(encoding="utf-8").partition("\n")[0] for decision in DECISIONS
    ]


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: decision.stem)
def test_links_of_a_decision_name_existing_files(decision: Path) -> None:
    """Decisions that were merged leave no link behind."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", decision.read_text(encoding="utf-8"))

    assert [target for target in targets if not (decision.parent / target).exists()] == []
