"""Types of processors, as mypy checks them in a user's code."""

from __future__ import annotations

import pytest
from mypy import api

DECLARED = """
from collections.abc import Iterable
import penstock as ps

class Order(ps.Record, frozen=True):
    shop: str
    at: ps.EventTime
    cents: int

class Total(ps.Record, frozen=True):
    shop: str
    cents: int

"""

CASES = {
    "a correct stateful processor": (
        (
            "class T(ps.Stateful[Order, int, Total]):\n"
            "    def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:\n"
            "        return (state or 0) + event.cents, [Total(event.shop, event.cents)]\n"
            "    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, tuple[()]]:\n"
            "        return None, ()\n"
        ),
        None,
    ),
    "a correct stateless processor": (
        (
            "class T(ps.Stateless[Order, Total]):\n"
            "    def process(self, event: Order) -> Iterable[Total]:\n"
            "        yield Total(event.shop, event.cents)\n"
        ),
        None,
    ),
    "a correct aggregator": (
        (
            "class T(ps.Aggregator[Order, int, Total]):\n"
            "    def observe(self, event: Order) -> int:\n        return event.cents\n"
            "    def result(self, key: str, window: ps.windows.Window, value: int) -> Total:\n        return Total(key, value)\n"
        ),
        None,
    ),
    "a correct left join": (
        (
            "class T(ps.Join[Order, Total | None, Total]):\n"
            "    def join(self, left: Order, right: Total | None, context: ps.Context) -> Iterable[Total]:\n        return ()\n"
        ),
        None,
    ),
    "a class without parameters": (
        (
            "class T(ps.Stateful):\n"
            "    def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:\n"
            "        return 1, []\n"
        ),
        None,
    ),
    "a class without annotations": (
        "class T(ps.Stateless):\n    def process(self, event):  # type: ignore[no-untyped-def]\n        yield event\n",
        None,
    ),
    "another event": (
        (
            "class T(ps.Stateful[Order, int, Total]):\n"
            "    def process(self, event: Total, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:\n"
            "        return 1, []\n"
        ),
        'Argument 1 of "process" is incompatible',
    ),
    "a state that is never None": (
        (
            "class T(ps.Stateful[Order, int, Total]):\n"
            "    def process(self, event: Order, state: int, context: ps.Context) -> tuple[int, list[Total]]:\n"
            "        return 1, []\n"
        ),
        'Argument 2 of "process" is incompatible',
    ),
    "another state": (
        (
            "class T(ps.Stateful[Order, int, Total]):\n"
            "    def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[str, list[Total]]:\n"
            "        return '', []\n"
        ),
        'Return type "tuple[str, list[Total]]" of "process" incompatible',
    ),
    "another output": (
        (
            "class T(ps.Stateless[Order, Total]):\n"
            "    def process(self, event: Order) -> Iterable[Order]:\n        yield event\n"
        ),
        'Return type "Iterable[Order]" of "process" incompatible',
    ),
    "no return": (
        "class T(ps.Stateless[Order, Total]):\n    def process(self, event: Order) -> None:\n        pass\n",
        'Return type "None" of "process" incompatible',
    ),
    "async": (
        (
            "class T(ps.Stateless[Order, Total]):\n"
            "    async def process(self, event: Order) -> Iterable[Total]:\n        return ()\n"
        ),
        None,
    ),
    "async of other types": (
        (
            "class T(ps.Stateless[Order, Total]):\n"
            "    async def process(self, event: Order) -> Iterable[Order]:\n        return ()\n"
        ),
        'Return type "Coroutine[Any, Any, Iterable[Order]]" of "process" incompatible',
    ),
    "a missing parameter": (
        (
            "class T(ps.Stateful[Order, int, Total]):\n"
            "    def process(self, event: Order, state: int | None) -> tuple[int, list[Total]]:\n        return 1, []\n"
        ),
        'Signature of "process" incompatible',
    ),
    "another value of an aggregator": (
        (
            "class T(ps.Aggregator[Order, int, Total]):\n"
            "    def result(self, key: str, window: ps.windows.Window, value: str) -> Total:\n        return Total(key, 1)\n"
        ),
        'Argument 3 of "result" is incompatible',
    ),
    "another row of a lookup": (
        (
            "class T(ps.LookupJoin[Order, Total | None, Total]):\n"
            "    def join(self, event: Order, row: Total) -> Iterable[Total]:\n        yield row\n"
        ),
        'Argument 2 of "join" is incompatible',
    ),
    "an output that is no record": ("class T(ps.Stateless[Order, str]): ...\n", 'Type argument "str" of "Stateless"'),
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The errors of mypy in strict mode, by the name of a case; all cases are checked in one run."""
    folder = tmp_path_factory.mktemp("typed")
    files = {f"case_{number}.py": case for number, case in enumerate(CASES)}
    for file, case in files.items():
        (folder / file).write_text(DECLARED + CASES[case][0])
    config = folder / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\npython_version = 3.11\n")
    paths = [str(folder / file) for file in files]
    output, errors, _ = api.run(["--config-file", str(config), "--no-error-summary", *paths])
    assert not errors
    lines = [line for line in output.splitlines() if ": error: " in line]
    return {case: [line for line in lines if f"{file}:" in line] for file, case in files.items()}


@pytest.mark.parametrize("case", CASES)
def test_mypy_rejects_methods_of_other_types(case: str, findings: dict[str, list[str]]) -> None:
    """With type parameters, a method of another type is an error; without them, every type is accepted."""
    expected = CASES[case][1]

    if expected is None:
        assert findings[case] == []
    else:
        assert any(expected in line for line in findings[case]), findings[case]
