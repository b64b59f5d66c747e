"""`penstock replay`, beside a worker at work on a real broker."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from support.cli import Cli
from support.meters import readings

from penstock.transport.kafka import KafkaBus


def test_a_replay_beside_a_live_worker_disturbs_nothing(
    cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """It starts from the worker's backup, reproduces the worker's outputs, and shows how changed code differs."""
    catalog, name = kafka_bus.catalog, f"{prefix}.totals"
    cli.ok("category", "create", "app.py")
    worker = cli.start("run", "app.py:Totals", "--backup", "backups", "--backup-every", "1")

    def send(start: int) -> None:
        cli.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin=readings(200, start=start))
        cli.ok("run", "app.py:Large", "--until-end")
        wait_until(lambda: sum(catalog.ends(name).values()) == sum(catalog.ends(f"{prefix}.large").values()))

    def backed_up() -> bool:
        shards = json.loads(cli.ok("state", "show", name, "--backup", "backups", "--json"))
        positions = [shard["backups"]["position"] for shard in shards if shard["backups"]]
        kept = [position.get("offsets") for position in positions if position]
        ends = catalog.ends(f"{prefix}.large")
        return bool(kept) and sum(one[f"{prefix}.large"] for one in kept if one) == sum(ends.values())

    send(0)
    wait_until(backed_up)
    since = datetime.now(UTC).isoformat()
    send(200)
    span = ["app.py:Totals", "--from", since, "--backup", "backups"]

    def untouched() -> object:
        names = [one for one in catalog.names() if one.startswith(prefix)]
        return [(one, catalog.ends(one), catalog.committed(name, one)) for one in names]

    wait_until(
        lambda: (
            catalog.committed(name, f"{prefix}.large")
            == {bucket: end for bucket, end in catalog.ends(f"{prefix}.large").items() if end}
        )
    )
    before = untouched()
    live = cli("replay", *span, "--against", "live")
    changed = app.read_text().replace("+ event.litres", "+ event.litres + (context.key == 'm3')")
    (cli.folder / "changed.py").write_text(changed)
    other = cli("replay", *span, "--against", "changed.py", "--json")
    first = cli("replay", *span, "--output", "outputs.jsonl", "--json")
    scratch = cli("replay", *span, "--scratch", f"{prefix}.scratch", "--key", "m3")
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)

    assert worker.returncode == 0, errors
    assert (live.returncode, "agree" in live.stderr) == (0, True), live.stderr + live.stdout
    assert "starts with backup" in live.stderr
    found = [json.loads(line) for line in other.stdout.splitlines()]
    assert other.returncode == 1, other.stderr
    assert {one["key"] for one in found[0]["examples"]} == {"m3"}
    assert [one["other"]["litres"] - one["replay"]["litres"] for one in found[0]["examples"][:3]] == [1, 2, 3]
    assert (first.returncode, scratch.returncode) == (0, 0), first.stderr + scratch.stderr
    summary = json.loads(first.stdout)["summary"]
    assert len((cli.folder / "outputs.jsonl").read_text().splitlines()) == summary["outputs"]
    assert summary["outputs"] == found[0]["equal"] + len(found[0]["examples"]) == summary["events"] > 0
    kept = {place[0]: place for place in untouched()}  # type: ignore[attr-defined]  # a list
    scratched = kept.pop(f"{prefix}.scratch.{name}")
    assert sum(scratched[1].values()) == len(found[0]["examples"])
    assert list(kept.values()) == before


def test_errors_say_what_to_do(cli: Cli, app: Path, prefix: str) -> None:
    """Each prints one paragraph on standard error, without a stack trace, and leaves no files behind."""
    cli.ok("category", "create", "app.py")
    cli.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin='{"meter": "a", "at": 1, "litres": -1}\n')
    for arguments, expected in (
        (["app.py", "--from", "0"], "several processors"),
        (["app.py:Large", "--from", "0", "--source", "warehouse"], "is not archived in"),
        (["app.py:Large", "--from", "0", "--output", "out.jsonl"], "Large raised ValueError: -1 litres"),
    ):
        done = cli("replay", *arguments)
        assert done.returncode != 0, arguments
        assert expected in " ".join(done.stderr.split()), done.stderr
        assert "Traceback" not in done.stderr
    assert not (cli.folder / "out.jsonl").exists()
