"""Drawings of processors and categories with throughput and backlog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from ...processors import counted, human_duration_or_unknown
from .status import ProcessorStatus


class GraphFormat(StrEnum):
    """The format of a drawing."""

    TEXT = "text"
    """An indented tree for a terminal."""
    MERMAID = "mermaid"
    """Mermaid, for Markdown pages."""
    DOT = "dot"
    """DOT, for Graphviz."""


def draw_graph(processors: Sequence[ProcessorStatus], graph_format: GraphFormat) -> str:
    """Return a drawing of processors, upstream ones first."""
    return "\n".join(_FORMATS[graph_format](processors))


def _text(processors: Sequence[ProcessorStatus]) -> Iterator[str]:
    outputs = {name for status in processors for name in status.node.outputs}
    readers = _readers(processors)
    drawn: set[str] = set()

    def draw_category(category: str, depth: int) -> Iterator[str]:
        yield f"{'   ' * depth}{category}"
        for status in readers.get(category, []):
            is_repeated = status.node.name in drawn
            yield f"{'   ' * depth}└─ [{status.node.name}]  {_label(status)}{' (see above)' * is_repeated}"
            if not is_repeated:
                drawn.add(status.node.name)
                for output in status.node.outputs:
                    yield from draw_category(output, depth + 1)

    for name in dict.fromkeys(name for status in processors for name in status.node.inputs if name not in outputs):
        yield from draw_category(name, 0)


def _readers(processors: Iterable[ProcessorStatus]) -> dict[str, list[ProcessorStatus]]:
    """Return the processors that read each category."""
    readers: dict[str, list[ProcessorStatus]] = {}
    for status in processors:
        for name in status.node.inputs:
            readers.setdefault(name, []).append(status)
    return readers


def _label(status: ProcessorStatus) -> str:
    """Return the figures of a processor in one line."""
    workers = len(status.running_workers)
    if not workers:
        activity = status.state.value
    else:
        events_in, events_out = status.per_s.events_in, status.per_s.events_out
        activity = f"{counted(workers, 'worker')}, {events_in:,.0f} in/s, {events_out:,.0f} out/s"
    if status.backlog_events is None:
        return f"{activity}, backlog unknown"
    if not status.backlog_events:
        return activity
    return (
        f"{activity}, backlog {counted(status.backlog_events, 'event')}, lag {human_duration_or_unknown(status.lag_s)}"
    )


def _mermaid(processors: Sequence[ProcessorStatus]) -> Iterator[str]:
    yield "graph LR"
    for number, status in enumerate(processors):
        yield f'    p{number}["{status.node.name}<br/>{_label(status)}"]'
    for category, number, is_input in _edges(processors):
        node = f"{_mermaid_id(category)}([{category}])"
        yield f"    {node} --> p{number}" if is_input else f"    p{number} --> {node}"


def _dot(processors: Sequence[ProcessorStatus]) -> Iterator[str]:
    yield "digraph penstock {"
    yield "    rankdir=LR; node [fontname=Helvetica];"
    for number, status in enumerate(processors):
        yield f'    p{number} [shape=box, label="{status.node.name}\\n{_label(status)}"];'
    for category, number, is_input in _edges(processors):
        yield f'    "{category}" -> p{number};' if is_input else f'    p{number} -> "{category}";'
    yield "}"


def _edges(processors: Sequence[ProcessorStatus]) -> Iterator[tuple[str, int, bool]]:
    """Yield the edges: a category, the number of a processor, and whether the category is an input of it."""
    for number, status in enumerate(processors):
        yield from ((name, number, True) for name in status.node.inputs)
        yield from ((name, number, False) for name in status.node.outputs)


def _mermaid_id(category: str) -> str:
    return "c_" + "".join(letter if letter.isalnum() else "_" for letter in category)


_FORMATS = {GraphFormat.TEXT: _text, GraphFormat.MERMAID: _mermaid, GraphFormat.DOT: _dot}
