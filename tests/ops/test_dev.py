"""The way in: what `dev` decides before it hands over."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([A-Za-z0-9_.\-]+)==(\S+)", re.MULTILINE)


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, on a checkout of its own."""
    loader = SourceFileLoader("dev", str(ROOT / "dev"))
    spec = importlib.util.spec_from_loader("dev", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    venv, clients = tmp_path / ".venv", tmp_path / ".venv-clients"
    paths = {"ROOT": tmp_path, "VENV": venv, "PYTHON": venv / "bin" / "python", "CLIENTS_VENV": clients}
    for name, value in paths.items():
        monkeypatch.setattr(module, name, value)
    for folder in (venv, clients):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "requirements").mkdir()
    for lock in ("run", "test", "training", "clients"):
        (tmp_path / "requirements" / f"{lock}.lock").write_text(f"# {lock}\na==1\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return module


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 14), (4, 0)])
def test_a_new_enough_python_is_taken(dev: ModuleType, version: tuple[int, int]) -> None:
    """Python 3.11 and whatever is newer will do."""
    dev.check_version(*version)


@pytest.mark.parametrize("version", [(3, 10), (3, 9), (2, 7)])
def test_an_old_python_gets_a_sentence(dev: ModuleType, version: tuple[int, int]) -> None:
    """An older Python is refused by name, with an example of what to do."""
    with pytest.raises(dev.Refusal, match=rf"3\.11 or newer and this one is {version[0]}\.{version[1]}: run it with"):
        dev.check_version(*version)


def test_the_script_can_be_read_by_an_old_python() -> None:
    """An old Python must get as far as the sentence that refuses it."""
    compile((ROOT / "dev").read_text(), "dev", "exec")
    import ast

    ast.parse((ROOT / "dev").read_text(), feature_version=(3, 7))


def test_a_stamp_means_installed(dev: ModuleType) -> None:
    """An environment counts as installed only while its stamp is that of the lock as it is now."""
    assert not dev.is_installed("run")
    dev.stamp_path("run").write_text(dev.expected_stamp("run"))
    assert dev.is_installed("run")
    assert not dev.is_installed("test")
    dev.lock_path("run").write_text("a==2\n")
    assert not dev.is_installed("run")


def test_what_tests_need_is_enough_for_running(dev: ModuleType) -> None:
    """An environment for the tests serves the product as well."""
    dev.stamp_path("test").write_text(dev.expected_stamp("test"))
    assert dev.is_installed("test")
    assert dev.is_installed("run")


@pytest.mark.parametrize(
    ("arguments", "lock"),
    [
        (["demo"], "run"),
        (["test", "-x"], "test"),
        (["voice"], "run"),
        (["voice", "promote", "x"], "run"),
        (["voice", "train", "--out", "x"], "training"),
        (["voice", "adapt"], "training"),
        (["voice", "evaluate"], "training"),
    ],
)
def test_only_training_gets_the_packages_of_training(dev: ModuleType, arguments: list[str], lock: str) -> None:
    """A command gets the packages that it needs and no more."""
    assert dev.choose_packages(arguments[0], arguments[1:]) == lock


def test_what_training_needs_is_enough_for_running_and_not_for_tests(dev: ModuleType) -> None:
    """The training's packages contain the product's; the test tools are not among them."""
    dev.stamp_path("training").write_text(dev.expected_stamp("training"))
    assert dev.is_installed("run")
    assert dev.is_installed("training")
    assert not dev.is_installed("test")


@pytest.fixture
def pips(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What pip is asked for, in environments that are sound and on a disk that is large enough."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(dev, "is_sound", lambda _: True)
    monkeypatch.setattr(dev, "check_machine", lambda _: None)
    monkeypatch.setattr(dev, "pip", lambda *arguments: asked.append(arguments))
    return asked


def test_the_clients_have_an_environment_of_their_own(dev: ModuleType, pips: list[tuple[str, ...]]) -> None:
    """Installing them touches neither the product's environment nor what is known of it, and brings nothing of ours."""
    dev.stamp_path("test").write_text(dev.expected_stamp("test"))
    dev.ensure_installed("clients")
    assert pips == [("clients", "install", "--require-hashes", "-r", str(dev.lock_path("clients")))]
    assert dev.is_installed("clients")
    assert dev.is_installed("test")
    assert dev.stamp_path("clients").parent == dev.CLIENTS_VENV
    dev.ensure_installed("clients")
    assert len(pips) == 1


def test_the_clients_depend_on_their_lock_alone(dev: ModuleType) -> None:
    """A change of the project's description asks for no new clients; one of their lock does."""
    dev.stamp_path("clients").write_text(dev.expected_stamp("clients"))
    (dev.ROOT / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert dev.is_installed("clients")
    dev.lock_path("clients").write_text("a==2\n")
    assert not dev.is_installed("clients")


def test_an_interrupted_installation_is_done_again(
    dev: ModuleType, pips: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before is not believed in any more, and the other environment is."""
    for name in ("clients", "test"):
        dev.stamp_path(name).write_text(dev.expected_stamp(name))
    dev.lock_path("clients").write_text("a==2\n")

    def fail(*_: str) -> None:
        raise dev.Refusal("no network")

    with monkeypatch.context() as patch, pytest.raises(dev.Refusal, match="no network"):
        patch.setattr(dev, "pip", fail)
        dev.ensure_installed("clients")
    assert not dev.stamp_path("clients").exists()
    assert dev.is_installed("test")
    dev.ensure_installed("clients")
    assert dev.is_installed("clients")


def test_a_full_disk_is_told_before_the_clients_are_installed(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is begun that cannot end."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(dev.Refusal, match="need 1500 MB, and there are 1000 MB free"):
        dev.ensure_installed("clients")


@pytest.mark.parametrize(("word", "locks"), [("test", ["test", "clients"]), ("demo", ["run"])])
def test_only_the_tests_get_the_clients(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, word: str, locks: list[str]
) -> None:
    """Who wants to hear a voice does not wait for them; where the tests run, a test that misses them is to fail."""
    installed: list[str] = []
    required: list[bool] = []
    monkeypatch.delenv("TIMBRELAY_CLIENTS_REQUIRED", raising=False)
    monkeypatch.setattr(dev, "handle_signals", lambda _: None)
    monkeypatch.setattr(dev, "ensure_installed", installed.append)
    monkeypatch.setattr(dev, "run_checks", lambda _: required.append("TIMBRELAY_CLIENTS_REQUIRED" in os.environ))
    monkeypatch.setattr(os, "execve", lambda *_: None)
    try:
        dev.main([word])
    finally:
        # Set by the script for what it runs, and not for what runs this test.
        os.environ.pop("TIMBRELAY_CLIENTS_REQUIRED", None)
    assert installed == locks
    assert required == ([True] if word == "test" else [])


def test_torch_is_asked_for_by_the_range_of_the_project(dev: ModuleType) -> None:
    """torch has no hash in a lock: its range is what the project's description says, and no lock pins it."""
    assert dev.torch_requirement((ROOT / "pyproject.toml").read_text()).startswith("torch>=")
    for lock in (ROOT / "requirements").glob("*.lock"):
        assert not {"torch", "torchaudio", "torchvision"} & {name for name, _ in PIN.findall(lock.read_text())}


@pytest.mark.parametrize(("names", "cuda"), [(["torch", "sympy"], False), (["torch", "nvidia-cublas"], True)])
def test_cuda_is_known_by_its_packages(dev: ModuleType, names: list[str], cuda: bool) -> None:
    """Whether torch would bring gigabytes is read from the list of what pip would install."""
    report = json.dumps({"install": [{"metadata": {"name": name}} for name in names]})
    assert dev.is_cuda(report) is cuda


def test_another_description_place_or_python_is_another_stamp(dev: ModuleType) -> None:
    """A change of the lock, the project's description, the Python or the place asks for a new installation."""
    base = (b"lock", b"project", "/usr/bin/python3.11", "/checkout")
    changed = [(*base[:index], value, *base[index + 1 :]) for index, value in enumerate((b"l", b"p", "/py", "/other"))]
    stamps = {dev.make_stamp(*arguments) for arguments in (base, *changed)}
    assert len(stamps) == 5
    assert dev.make_stamp(*base) in stamps


def test_the_locks_agree() -> None:
    """Whatever the product runs with is what the tests and the training run with, in the same versions."""
    locks = ((ROOT / "requirements" / f"{name}.lock").read_text() for name in ("run", "test", "training"))
    run, test, training = (dict(PIN.findall(lock)) for lock in locks)
    assert run
    assert run.items() <= test.items()
    assert run.items() <= training.items()
    assert training.items() <= test.items()


def test_packages_are_counted(dev: ModuleType) -> None:
    """Hashes and comments of a lock are no packages."""
    assert dev.count_packages("# a==0\na==1 \\\n    --hash=sha256:0==\nb==2 ; python_version < '3.12' \\\n") == 2


def test_progress_is_told_from_pips_words(dev: ModuleType) -> None:
    """What pip has written says how far it is."""
    assert dev.describe("Collecting a==1\nCollecting b==2\n") == "2 packages found"
    assert dev.describe("Collecting a==1\nInstalling collected packages: a\n") == "unpacking"


def test_an_environment_that_was_made_elsewhere_is_not_sound(dev: ModuleType) -> None:
    """An environment that was moved, or whose making was interrupted, is made anew."""
    assert not dev.is_sound(dev.VENV)
    (dev.VENV / "bin" / "pip").write_text("#!/elsewhere/.venv/bin/python\n")
    assert not dev.is_sound(dev.VENV)


def test_a_missing_ensurepip_names_the_package(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Debian has left `ensurepip` out, the package that brings it is named."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(dev.Refusal, match=r"sudo apt install python3\.\d+-venv"):
        dev.check_machine()


def test_a_users_settings_of_pip_stay_outside(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that would install elsewhere do not reach pip; those of the network do."""
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    environment = dev.clean_environment()
    assert "PIP_USER" not in environment
    assert "PYTHONPATH" not in environment
    assert environment["PIP_INDEX_URL"] == "https://mirror.example/simple"


def test_a_stage_that_fails_is_named_and_the_last(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks stop at the first stage that fails, and its name is in the error."""
    stages = {"first": ("-c", "pass"), "second": ("-c", "raise SystemExit(3)"), "third": ("-c", "open('third', 'w')")}
    monkeypatch.setattr(dev, "STAGES", stages)
    with pytest.raises(dev.Refusal, match=r"The stage `second` failed \(exit code 3\)"):
        dev.run_checks([])
    assert not (dev.ROOT / "third").exists()


def test_quiet_programs_are_heard_when_they_fail(dev: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    """Output that was kept back is shown when the program fails."""
    with pytest.raises(dev.Refusal, match=r"No luck \(exit code 4\)"):
        dev.run_quietly([sys.executable, "-c", "print('the reason'); raise SystemExit(4)"], "No luck")
    assert "the reason" in capfd.readouterr().err


def test_without_a_word_it_says_what_it_can_do() -> None:
    """`./dev` alone lists the commands, and needs no environment for it."""
    result = subprocess.run([sys.executable, ROOT / "dev"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 0
    for word in ("demo", "test", "up", "enroll", "say", "bench", "doctor", "voice train", "voice adapt"):
        assert f"./dev {word}" in result.stdout


def test_an_interruption_ends_what_it_runs(dev: ModuleType, tmp_path: Path) -> None:
    """A signal ends the program that is being run, and the exit code says that it was interrupted."""
    (tmp_path / "dev").write_text((ROOT / "dev").read_text())
    child = "import os, time; open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'up'); time.sleep(60)"
    script = (
        "import runpy, sys; dev = runpy.run_path('dev'); dev['handle_signals'](dev['interrupt']);"
        f"dev['run']([sys.executable, '-c', {child!r}], 'x')"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 20
        while not (tmp_path / "up").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
    assert process.returncode != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "up").read_text()), 0)
