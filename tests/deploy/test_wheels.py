"""The wheels alone are enough: everything a command needs is inside them."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sysconfig.get_path("scripts")) / "uv"
MEMBERS = ("libs/common", *(f"services/{path.parent.name}" for path in sorted(ROOT.glob("services/*/pyproject.toml"))))
APPS = tuple(f"apps/{path.parent.name}" for path in sorted(ROOT.glob("apps/*/pyproject.toml")))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not UV.exists(), reason="uv, which builds the wheels, is not beside this interpreter"),
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All wheels of the workspace, unpacked as pip would, without their dependencies."""
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    for member in (*MEMBERS, *APPS):
        run(UV, "build", "--quiet", "--offline", "--wheel", "--no-build-isolation", "--python", sys.executable,
            "-o", wheels, ROOT / member)  # fmt: skip
    built = sorted(wheels.glob("*.whl"))
    assert len(built) == len(MEMBERS) + len(APPS)
    run(UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--target", target, *built)
    return target


def run(*command: object, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(sys.prefix),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cotenant(installed: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    program = "import sys; from cotenant.cli.main import main; sys.exit(main())"
    return run(sys.executable, "-c", program, *arguments, environment=environment)


def test_the_command_runs_from_the_wheels(installed: Path) -> None:
    assert cotenant(installed, "version").strip()
    assert "--systemd" in cotenant(installed, "install", "--help")
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    found = run(sys.executable, "-c", "import cotenant; print(cotenant.__file__)", environment=environment)
    assert found.startswith(str(installed))


def test_every_module_of_the_sources_is_in_a_wheel(installed: Path) -> None:
    missing = [
        str(path.relative_to(ROOT))
        for member in (*MEMBERS, *APPS)
        for path in (ROOT / member / "src").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
        if not (installed / path.relative_to(ROOT / member / "src")).exists()
    ]
    assert missing == []
