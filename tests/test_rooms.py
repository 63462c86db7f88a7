"""The table in docs/design.md: which room may import which."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parents[1]
OURS = {"storage", "relay", "worker", "timbrelay"}
MAY_IMPORT = {
    "storage": set[str](),
    "worker": {"storage"},
    "relay": {"storage"},
    "migrations": {"storage"},
    "ops": {"storage", "relay", "worker"},
}


def _imports(file: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_the_table_allows(room: str) -> None:
    """Every module of a room, imports inside of functions included."""
    own = {"ops": "timbrelay"}.get(room, room)
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for file in files:
        assert _imports(file) & OURS <= MAY_IMPORT[room] | {own}, file


def test_the_contracts_of_the_import_linter_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same table, followed through every chain of imports."""
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS


@pytest.mark.parametrize("package", sorted(OURS))
def test_a_package_of_that_name_is_ours(package: str) -> None:
    """The names are common ones: nothing installed may take their place."""
    found = importlib.import_module(package).__file__
    assert found is not None
    assert Path(found).is_relative_to(ROOT)


@pytest.mark.parametrize("folder", ["docker", "migrations", "ops", "tests"])
def test_a_folder_that_is_no_package_has_no_init(folder: str) -> None:
    """With one it would hide, or be hidden by, an installed package of its name."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_serving_needs_no_torch() -> None:
    """What a relay, a worker and Celery import loads neither torch nor the training code."""
    program = (
        "import sys, relay.app, relay.__main__, worker.__main__, worker.enrolment.task;"
        "print([name for name in sys.modules if name == 'torch' or name.startswith('worker.training')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_modules_keep_the_ceiling_of_the_house() -> None:
    """No module of ours is longer than 400 lines."""
    rooms = (ROOT / room for room in ("storage", "relay", "worker", "migrations", "ops"))
    lengths = {file: len(file.read_text().splitlines()) for room in rooms for file in room.rglob("*.py")}
    assert {file: length for file, length in lengths.items() if length > 400} == {}
