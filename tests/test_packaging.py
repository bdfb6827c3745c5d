"""What an installation carries: every package, the migrations, and nothing that only a checkout has."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deferred import __version__

ROOT = Path(__file__).parents[1]


def package_names(folder: Path, name: str) -> set[str]:
    return {".".join((name, *file.relative_to(folder).parts[:-1])) for file in folder.rglob("__init__.py")}


def test_setup_lists_every_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split())
    existing = package_names(ROOT / "deferred", "deferred") | package_names(ROOT / "migrations", "deferred.migrations")
    assert existing | {"deferred.dags", "deferred.examples"} == listed  # conf/ and dags/ are no packages: files to copy


@pytest.mark.parametrize(
    ("lock", "extras"), [("demo", []), ("airflow", ["airflow", "postgres"]), ("test", ["airflow", "postgres", "dev"])]
)
def test_the_locked_requirements_are_those_of_setup(lock: str, extras: list[str]) -> None:
    """And each has a hash; after a change of setup.cfg, `make lock` writes them again."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    assert "://" not in text
    locked = dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^\s;]+)", text, re.MULTILINE))
    assert len(re.findall(r"^[\w.-]+.*\\\n    --hash=sha256:", text, re.MULTILINE)) == len(
        re.findall(r"^\w", text, re.MULTILINE)
    )
    wanted = setup["options"]["install_requires"].splitlines()
    for extra in extras:
        wanted += setup["options.extras_require"][extra].splitlines()
    for line in filter(None, (line.split("#")[0].strip() for line in wanted)):
        requirement = Requirement(line)
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), line


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this checkout, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.mark.slow
def test_the_wheel_works_where_there_is_no_checkout(built: Path, tmp_path: Path) -> None:
    """In an environment of its own; what it requires is that of the tests, but not this checkout."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "deferred = deferred.cli:main" in archive.read(entry_points).decode()
    # A path in a .pth file is not searched for further .pth files, so the checkout's own is not found.
    (site / "required.pth").write_text(str(Path(pytest.__file__).parents[1]))
    for part in ("py.typed", "dags/views.py", "examples/deferred.toml", "migrations/script.py.mako"):
        assert f"deferred/{part}" in names
    assert not any(name.startswith(("tests", "bench", "conf", "migrations", "dags")) for name in names)

    def run(*arguments: str) -> str:
        command = [str(tmp_path / "env" / "bin" / "python"), "-m", "deferred.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import deferred; print(deferred.__file__)"
    python = [str(tmp_path / "env" / "bin" / "python"), "-c", where]
    found = subprocess.run(python, cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path)
    assert f"deferred {__version__}" in run("--version")
    run("init", "project")
    assert (tmp_path / "project" / "dags" / "views.py").exists()
    assert "Tracked tables: none" in run("--config", "project/conf/deferred.toml", "status")


@pytest.mark.slow
def test_the_sdist_has_what_a_build_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "conf/deferred.toml", "dags/views.py", "migrations/env.py"} <= names


def test_the_changelog_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d{2}-\d{2}$", text, re.MULTILINE)
    assert versions[0] == __version__


def test_the_dockerfile_is_clean() -> None:
    """By hadolint; nothing is built here."""
    command = [str(Path(sys.executable).parent / "hadolint"), str(ROOT / "docker" / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in " ".join(sources).split():
        assert (ROOT / source).exists(), source
        assert f"!{source.split('/')[0]}" in ignored, source


def test_the_compose_file() -> None:
    """Its services, what they wait for, and that it has no password of its own."""
    text = (ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8")
    compose = yaml.safe_load(text)
    assert set(compose["services"]) == {"airflow", "postgres"}
    airflow, postgres = compose["services"]["airflow"], compose["services"]["postgres"]
    assert airflow["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert airflow["build"]["target"] in (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    named = {volume.split(":")[0] for service in (airflow, postgres) for volume in service["volumes"]}
    assert named == set(compose["volumes"])
    assert all("${POSTGRES_PASSWORD" in url for name, url in airflow["environment"].items() if "://" in url)
