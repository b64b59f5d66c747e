"""Shipping of an app to executors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark import SparkFiles

import penstock as ps
from penstock.backfill import BackfillFailed
from penstock.backfill.spark import ShippedApp
from penstock.backfill.spark.shipped_app import HandedAddress, ShippedTable
from penstock.processors.apps import AppName, Contents, code_beside
from penstock.processors.declare import plan_of
from penstock.processors.lookups import LookupJoin

APP = """
import penstock as ps
import spoken_there

class Word(ps.Record, frozen=True):
    word: str
    at: ps.EventTime

class Meaning(ps.Record, frozen=True):
    means: str

words = ps.Category("words", Word, key="word", event_time="at", buckets=1)
meanings = ps.Category("meanings", Word, key="word", event_time="at", buckets=1)

class Define(ps.LookupJoin):
    reads, writes = words, meanings
    source = ps.lookups.CsvTable("nowhere/dictionary.csv", Meaning, key="word")
    def key_of(self, event):
        return event.word
    def join(self, event, row):
        yield Word(spoken_there.say(row.means), event.at)

class Ask(Define):
    source = ps.lookups.RedisTable("word:", Meaning, at="WORDS_AT")
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files; return the folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Executor:
    """A machine on which Spark has unpacked archives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def unpack(self, app: Path, more: dict[str, Path] | None = None) -> str:
        """Pack an app and other files, and unpack them; return the archive's name."""
        contents = Contents({**code_beside(app), **(more or {})})
        archive = self.folder / f"{contents.digest}.zip"
        contents.pack(archive)
        with ZipFile(archive) as packed:
            packed.extractall(self.folder / contents.digest)
        return contents.digest


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """An executor on which this process runs as a worker."""
    folder = tmp_path / "executor"
    folder.mkdir()
    monkeypatch.setattr(SparkFiles, "_root_directory", str(folder))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", value=True)
    path, modules = list(sys.path), set(sys.modules)
    yield Executor(folder)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def app_files(text: str) -> dict[str, str]:
    """Return the files of an app whose imported module appends a text to a word."""
    return {"app.py": APP, "spoken_there.py": f"def say(word): return word + {text!r}"}


def shipped_app(app: Path, archive: str, *lookups: ShippedTable | HandedAddress) -> ShippedApp:
    """Return the app as a worker receives it."""
    return ShippedApp(AppName(Path(app.name)), archive, archive, lookups)


def outputs_of(processor: object) -> list[str]:
    """Return a processor's outputs for one word."""
    assert isinstance(processor, LookupJoin)
    word = plan_of(processor).inputs[0].record(word="mill", at=1)
    return [one.word for one in processor.process(word)]


def test_importable_files_next_to_the_app_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These are modules, complete packages and imported files. Other files are not sent."""
    app = write(
        tmp_path,
        {
            "app.py": "",
            "beside.py": "",
            "package/__init__.py": "",
            "package/inner/words.txt": "",
            "package/__pycache__/words.pyc": "",
            "plain_of_shipping/used.py": "",
            "plain_of_shipping/unused.py": "",
            "penstock/__init__.py": "",
            "venv/lib/module.py": "",
            "warehouse/category=words/file.parquet": "",
        },
    )
    (app / "package" / "itself").symlink_to(app / "package")
    monkeypatch.syspath_prepend(str(app))
    __import__("plain_of_shipping.used")

    assert set(code_beside(app / "app.py")) == {
        "app.py",
        "beside.py",
        "package/__init__.py",
        "package/inner/words.txt",
        "plain_of_shipping/used.py",
    }


def test_an_archive_is_reproducible(tmp_path: Path) -> None:
    """Equal files result in equal bytes, other files in another name."""
    files = {"app.py": write(tmp_path, {"app.py": "one"}) / "app.py"}
    first = Contents(files)
    first.pack(tmp_path / "first.zip")
    os.utime(files["app.py"], (1, 1))
    again = Contents(files)
    again.pack(tmp_path / "again.zip")
    assert first.digest == again.digest
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()

    files["app.py"].write_text("two")
    assert Contents(files).digest != first.digest


def test_a_worker_loads_changed_code(tmp_path: Path, executor: Executor) -> None:
    """Only a module next to the app may have changed, and it may change back."""
    app = write(tmp_path / "driver", app_files("!") | {"dictionary.csv": "word,means\nmill,wheel\n"}) / "app.py"
    table = {"tables-0/dictionary.csv": app.with_name("dictionary.csv")}
    lookup = ShippedTable("define", "tables-0/dictionary.csv")
    older = shipped_app(app, executor.unpack(app, table), lookup)
    write(app.parent, app_files("?"))
    newer = shipped_app(app, executor.unpack(app, table), lookup)

    assert [outputs_of(one.opened("Define")) for one in (older, newer, older)] == [["wheel!"], ["wheel?"], ["wheel!"]]


def test_workers_with_shared_files_load_the_current_file(tmp_path: Path, executor: Executor) -> None:
    """A local master shares files, so no archive is sent."""
    app = write(tmp_path / "driver", app_files("!")) / "app.py"

    def text_of_module() -> object:
        now = ShippedApp(AppName(app), version=Contents(code_beside(app)).digest).load()
        return sys.modules[now.processors[0].__module__].spoken_there.say("wheel")

    assert text_of_module() == "wheel!"
    write(app.parent, app_files(" went round"))
    assert text_of_module() == "wheel went round"


def test_a_lookup_uses_the_address_of_the_driver(
    tmp_path: Path, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor's own environment takes precedence; the address appears in no output."""
    app = write(tmp_path / "driver", app_files("!")) / "app.py"
    address = HandedAddress("ask", "WORDS_AT", "redis://:s3cret@127.0.0.1:1/0")
    shipped = shipped_app(app, executor.unpack(app), address)
    assert "s3cret" not in repr(shipped)
    with pytest.raises(ps.PenstockError, match=r"127\.0\.0\.1:1\b") as handed:
        shipped.opened("Ask")
    assert "s3cret" not in str(handed.value)

    monkeypatch.setenv("WORDS_AT", "redis://127.0.0.1:2/0")
    with pytest.raises(ps.PenstockError, match=r"127\.0\.0\.1:2\b"):
        shipped.opened("Ask")


def test_a_missing_module_of_an_executor_is_named(tmp_path: Path, executor: Executor) -> None:
    """The error explains how to install it there."""
    app = write(tmp_path / "driver", {"app.py": "import missing_geohash"}) / "app.py"

    with pytest.raises(
        BackfillFailed, match=r"app\.py imports missing_geohash, which the executor on .*spark\.archives"
    ):
        shipped_app(app, executor.unpack(app)).load()
