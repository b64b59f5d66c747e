"""Drawings of processors and categories with throughput and backlog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from ..humanize import human_duration_or_unknown
from .status import ProcessorStatus


class Drawing(str, Enum):
    """How a graph is drawn."""

    TEXT = "text"
    """For a terminal: what feeds what, indented."""
    MERMAID = "mermaid"
    """For Markdown pages."""
    DOT = "dot"
    """For Graphviz."""


def drawn(standings: Sequence[ProcessorStatus], form: Drawing) -> str:
    """Return a drawing of processors, upstream ones first."""
    return "\n".join(_FORMS[form](standings))


def _text(standings: Sequence[ProcessorStatus]) -> Iterator[str]:
    written = {name for standing in standings for name in standing.node.outputs}
    readers = _readers(standings)
    told: set[str] = set()

    def below(category: str, depth: int) -> Iterator[str]:
        yield f"{'   ' * depth}{category}"
        for standing in readers.get(category, []):
            yield f"{'   ' * depth}└─ [{standing.node.name}]  {_figures(standing)}{' (see above)' * (standing.node.name in told)}"
            if standing.node.name not in told:
                told.add(standing.node.name)
                for output in standing.node.outputs:
                    yield from below(output, depth + 1)

    for source in dict.fromkeys(name for standing in standings for name in standing.node.inputs if name not in written):
        yield from below(source, 0)


def _readers(standings: Iterable[ProcessorStatus]) -> dict[str, list[ProcessorStatus]]:
    readers: dict[str, list[ProcessorStatus]] = {}
    for standing in standings:
        for name in standing.node.inputs:
            readers.setdefault(name, []).append(standing)
    return readers


def _figures(it: ProcessorStatus) -> str:
    """Return the label of a processor."""
    if not it.running:
        runs = "not running"
    else:
        runs = f"{len(it.running)} worker{'s' * (len(it.running) > 1)}, {it.total('rate_in'):,.0f} in/s, {it.total('rate_out'):,.0f} out/s"
    if it.behind is None:
        return f"{runs}, backlog unknown"
    return f"{runs}, backlog {it.behind:,} events, lag {human_duration_or_unknown(it.behind_s)}" if it.behind else runs


def _mermaid(standings: Sequence[ProcessorStatus]) -> Iterator[str]:
    yield "graph LR"
    for number, standing in enumerate(standings):
        yield f'    p{number}["{standing.node.name}<br/>{_figures(standing)}"]'
    for category, number, into in _edges(standings):
        place = f"{_place(category)}([{category}])"
        yield f"    {place} --> p{number}" if into else f"    p{number} --> {place}"


def _dot(standings: Sequence[ProcessorStatus]) -> Iterator[str]:
    yield "digraph penstock {"
    yield "    rankdir=LR; node [fontname=Helvetica];"
    for number, standing in enumerate(standings):
        yield f'    p{number} [shape=box, label="{standing.node.name}\\n{_figures(standing)}"];'
    for category, number, into in _edges(standings):
        yield f'    "{category}" -> p{number};' if into else f'    p{number} -> "{category}";'
    yield "}"


def _edges(standings: Sequence[ProcessorStatus]) -> Iterator[tuple[str, int, bool]]:
    """Give the arrows: a category, the number of a processor, and whether it reads the category."""
    for number, standing in enumerate(standings):
        yield from ((name, number, True) for name in standing.node.inputs)
        yield from ((name, number, False) for name in standing.node.outputs)


def _place(category: str) -> str:
    return "c_" + "".join(letter if letter.isalnum() else "_" for letter in category)


_FORMS = {Drawing.TEXT: _text, Drawing.MERMAID: _mermaid, Drawing.DOT: _dot}
