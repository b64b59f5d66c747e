"""Names of apps: files, modules and packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark import SparkFiles
from support.cli import Cli

from penstock.backfill.spark import ShippedApp
from penstock.processors import AppFileError
from penstock.processors.apps import AppName, Contents, code_beside, names_app, path_in_bundle
from penstock.processors.declare import plan_of

MODEL = """
import penstock as ps

class Order(ps.Record, frozen=True):
    shop: str
    at: ps.EventTime

orders = ps.Category("orders", Order, key="shop", event_time="at", buckets=1)
"""
APP = """
import penstock as ps
from .model import orders

class Totals(ps.Stateful):
    reads, state = orders, int

    def process(self, event, state, context):
        return (state or 0) + 1, ()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a package; the imports of a test are undone at its end."""
    folder = tmp_path / "project"
    write(folder, {"shop/__init__.py": "", "shop/model.py": MODEL, "shop/app.py": APP, "tests/notes.txt": ""})
    monkeypatch.chdir(folder)
    path, modules = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def processors_of(name: str) -> list[str]:
    return [processor.__name__ for processor in AppName.parse(name).load().processors]


@pytest.mark.parametrize("name", ["shop/app.py", "shop.app", "shop.app:Totals", "shop/app.py:Totals"])
def test_a_package_with_relative_imports_is_named_by_file_or_module(project: Path, name: str) -> None:
    """Both names load the same module, whose processors belong to the package."""
    app = AppName.parse(name)

    assert processors_of(name) == ["Totals"]
    assert app.path == Path("shop/app.py")
    assert app.load().processors[0].__module__ == "shop.app"
    assert plan_of(app.load().processors[0]).inputs[0] is sys.modules["shop.model"].orders


def test_a_package_itself_is_an_app(project: Path) -> None:
    """Its `__init__.py` declares the processors."""
    (project / "shop" / "__init__.py").write_text(APP)

    assert processors_of("shop") == processors_of("shop/__init__.py") == ["Totals"]


def test_a_module_outside_of_packages_is_an_app(project: Path) -> None:
    """`meters` names the file `meters.py` of the working folder."""
    write(project, {"meters.py": MODEL + APP.replace("from .model import orders", "")})

    assert processors_of("meters") == processors_of("meters.py") == ["Totals"]


@pytest.mark.parametrize(
    ("text", "is_app"),
    [("shop/app.py", True), ("shop.app", True), ("shop.app:Totals", True), ("shop.orders", False), ("shop", False)],
)
def test_a_name_of_a_category_is_not_an_app(project: Path, text: str, is_app: bool) -> None:
    """Where a command accepts both, an existing module in a package is an app."""
    assert names_app(text) is is_app


def test_a_changed_app_in_a_package_is_imported_again(project: Path) -> None:
    """The modules of its package are imported again, too."""
    assert processors_of("shop.app") == ["Totals"]
    write(project, {"shop/app.py": APP.replace("class Totals", "class Sums")})

    assert processors_of("shop.app") == ["Sums"]


def test_a_package_of_the_same_name_in_another_folder_is_another_package(project: Path, tmp_path: Path) -> None:
    """Two versions of an app can be loaded one after the other."""
    other = tmp_path / "other"
    write(other, {"shop/__init__.py": "", "shop/model.py": MODEL, "shop/app.py": APP.replace("Totals", "Sums")})

    names = ["shop/app.py", str(other / "shop" / "app.py"), "shop/app.py"]
    assert [processors_of(name) for name in names] == [["Totals"], ["Sums"], ["Totals"]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop.ap", r"There is no module shop\.ap in .*project.* Did you mean `shop\.app`\?"),
        ("shpo.app", r"no module shpo\.app .* Did you mean `shop\.app`\?"),
        ("shop/ap.py", r"shop/ap\.py does not exist.* Did you mean `shop/app\.py`\?"),
        ("shop/app.py::Totals", r"Write APP:PROCESSOR: `shop/app\.py:Totals`\."),
        (":Totals", r"Write APP:PROCESSOR: `app\.py:Totals`\."),
        ("shop/app.py:TOTALS", r"It has: Totals\. Did you mean `Totals`\?"),
        ("shop/", r"shop is a folder, not a file.* such as shop/app\.py"),
        (
            "totals",
            r"There is no module totals .* If totals is a processor, name its app as well: shop/app\.py:totals\.",
        ),
        ("shop.model", r"shop/model\.py declares no processor"),
        ("shop.outer", r"declares no processor.* name the module that declares the processors: shop\.app"),
        (
            "shop.flat",
            r"ModuleNotFoundError: No module named 'model'.* shop is a package: write `from \.model import …`",
        ),
        ("loose/app.py", r"Relative imports need a package: create an empty loose/__init__\.py"),
        ("loose/absolute.py", r"loose is not a package: create an empty loose/__init__\.py"),
    ],
)
def test_a_wrong_name_of_an_app_is_explained(project: Path, name: str, message: str) -> None:
    """The error contains the correct name or the missing file."""
    write(
        project,
        {
            "shop/outer.py": "from .app import Totals",
            "shop/flat.py": "from model import orders",
            "loose/app.py": APP,
            "loose/absolute.py": "from loose.model import orders",
        },
    )
    with pytest.raises(AppFileError, match=message):
        AppName.parse(name).load()


def test_an_import_error_shows_only_the_lines_of_the_user(project: Path) -> None:
    """It shows the lines of the app and of its module, without the lines of Penstock and Python."""
    write(project, {"shop/model.py": "limit = {}\nlimit['orders']\n"})
    done = Cli(None, project)("run", "shop.app")

    assert done.returncode == 1
    assert "shop/app.py cannot be imported: line 3: KeyError: 'orders'" in done.stderr
    lines = [line.strip() for line in done.stderr.splitlines()]
    files = [line.split('"')[1] for line in lines if line.startswith('File "')]
    assert [Path(file).name for file in files] == ["app.py", "model.py"]


def test_the_code_of_an_app_in_a_package_is_its_package(project: Path) -> None:
    """The code keeps its path in the package, so that relative imports work on other machines."""
    assert set(code_beside(project / "shop" / "app.py")) == {"shop/__init__.py", "shop/model.py", "shop/app.py"}
    assert path_in_bundle(project / "shop" / "app.py") == Path("shop/app.py")


def test_the_code_of_an_installed_app_is_its_package_only(tmp_path: Path) -> None:
    """Other installed packages are not sent."""
    installed = tmp_path / "site-packages"
    write(installed, {"shop/__init__.py": "", "shop/app.py": "", "rich/__init__.py": "", "six.py": ""})

    assert set(code_beside(installed / "shop" / "app.py")) == {"shop/__init__.py", "shop/app.py"}


def test_a_sent_package_works_on_another_machine(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor of Spark unpacks the archive and imports the app from its package."""
    file = project / "shop" / "app.py"
    contents = Contents(code_beside(file))
    contents.pack(tmp_path / "code.zip")
    with ZipFile(tmp_path / "code.zip") as packed:
        packed.extractall(tmp_path / contents.digest)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", value=True)
    monkeypatch.chdir(tmp_path)

    sent = ShippedApp(AppName(path_in_bundle(file)), contents.digest, contents.digest)
    [totals] = sent.load().processors
    assert Path(str(sys.modules[totals.__module__].__file__)) == tmp_path / contents.digest / "shop" / "app.py"


RUN = '\nif __name__ == "__main__":\n    ps.run(Totals)\n'


def test_a_script_runs_as_penstock_run(project: Path) -> None:
    """`python -m shop.app` passes its arguments to `penstock run shop/app.py:Totals`, as the equal error shows."""
    write(project, {"shop/app.py": APP + RUN})
    arguments = ["--kafka", "127.0.0.1:1", "--fail-fast"]
    script = subprocess.run(
        [sys.executable, "-m", "shop.app", *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    command = Cli(None, project)("run", "shop.app:Totals", *arguments)

    assert script.returncode == command.returncode == 1
    assert "127.0.0.1:1" in script.stderr
    assert script.stderr == command.stderr


def test_a_run_while_an_app_is_imported_is_refused(project: Path) -> None:
    """It would import the app again, without end."""
    write(project, {"shop/app.py": APP + "\nps.run(Totals)\n"})

    with pytest.raises(AppFileError, match=r'shop/app\.py calls ps\.run\(Totals\) while .*if __name__ == "__main__"'):
        processors_of("shop.app")


def test_a_folder_is_not_suggested_as_an_app(project: Path) -> None:
    """The name of a folder may end in .py, too."""
    (project / "shop" / "ap.py").mkdir()
    with pytest.raises(AppFileError, match=r"Did you mean `shop/app\.py`\?"):
        AppName.parse("shop/ap1.py").load()


def test_what_an_app_prints_is_not_in_the_result_of_a_command(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs read JSON from standard output."""
    write(project, {"shop/app.py": f"print('loading')\n{APP}"})
    AppName.parse("shop.app").load()

    assert capsys.readouterr() == ("", "loading\n")


def test_an_unreadable_app_is_not_one_to_correct(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may be right; a file that the app opens is another matter."""

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    write(project, {"loose.py": APP, "opening.py": "raise PermissionError(13, 'Permission denied', '/secret')"})
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refused)
        with pytest.raises(AppFileError, match=r"Permission denied.*\. Allow this user to read the file\."):
            AppName.parse("loose.py").load()
    with pytest.raises(AppFileError, match="Correct the file"):
        AppName.parse("opening.py").load()


CATEGORIES = """
import penstock as ps

class Click(ps.Record, frozen=True):
    page: str
    at: ps.EventTime

clicks = ps.Category("{}", Click, key="page", event_time="at", buckets=2)
"""
PROCESSOR = """
class Count(ps.Stateful):
    reads = ps.Category("read", Click, key="page", event_time="at", buckets=2)
    state = int
    def process(self, event, state, context):
        return (state or 0) + 1, []
"""


def test_categories_need_no_processor(tmp_path: Path) -> None:
    """Laser, Scuba and `category create` use the declarations of a file that only declares categories; `run` refuses it."""
    alone, mixed, empty = (tmp_path / f"{name}.py" for name in ("alone", "mixed", "empty"))
    alone.write_text(CATEGORIES.format("alone"))
    mixed.write_text(CATEGORIES.format("other") + PROCESSOR)
    empty.write_text("x = 1\n")

    assert list(AppName(alone).load_declarations().declared_categories()) == ["alone"]
    assert [category.name for category in AppName(alone).load_declarations().categories()] == ["alone"]
    assert sorted(AppName(mixed).load_declarations().declared_categories()) == ["other", "read"]
    assert [category.name for category in AppName(mixed).load_declarations().categories()] == ["read"]
    for load in (AppName(alone).load, AppName(empty).load_declarations):
        with pytest.raises(AppFileError, match="declares no processor"):
            load()
