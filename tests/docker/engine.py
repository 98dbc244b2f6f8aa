"""A Docker engine, Compose, and the sandbox's image, for tests: those that are there, or else of this machine's making.

As root on Debian everything is made from the machine's own package mirror: the engine, its command-line plugins and a
base image. They are kept in a folder outside the repository, by default /var/cache/rollbox-docker.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("ROLLBOX_DOCKER_CACHE", "/var/cache/rollbox-docker"))
BASE = "python:3.11-slim-bookworm"
_BASE_SUITE = "bookworm"
_BASE_PACKAGES = "python3,python3-venv,libseccomp2,ca-certificates"
# The first Debian whose Compose knows systempaths=unconfined.
_PLUGINS_SUITE = "trixie"
_PLUGINS = ("docker-compose", "docker-buildx")
_START_S = 60.0
_STOP_S = 60.0


class NoEngineError(Exception):
    """There is no engine, and none can be made here; the text says why."""


def run(*command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """The output of a command.

    Raises:
        NoEngineError: it failed; the text ends with what it said.
    """
    done = subprocess.run(
        command, env={**os.environ, **(env or {})}, cwd=cwd, text=True, stdout=-1, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise NoEngineError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


@contextmanager
def engine() -> Iterator[dict[str, str]]:
    """Yields the variables with which `docker` and the SDK reach an engine; one that was started here is ended.

    Raises:
        NoEngineError: none can be had.
    """
    if _answers({}):
        yield _with_plugins({})
        return
    if os.geteuid() != 0:
        raise NoEngineError("no Docker engine answers, and starting one needs root")
    _install_packages()
    with _daemon() as host:
        yield _with_plugins({"DOCKER_HOST": host})


def _answers(env: Mapping[str, str]) -> bool:
    if not shutil.which("docker"):
        return False
    return (
        subprocess.run(["docker", "info"], env={**os.environ, **env}, capture_output=True, check=False).returncode == 0
    )


def _install_packages() -> None:
    missing = [name for name, tool in (("docker.io", "dockerd"), ("debootstrap", "debootstrap")) if not _tool(tool)]
    if missing:
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-q", env=quiet)
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", *missing, "iptables", env=quiet)


def _tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@contextmanager
def _daemon() -> Iterator[str]:
    """A daemon with a socket and folders of its own; ended by its process id."""
    place = CACHE / "run"
    place.mkdir(parents=True, exist_ok=True)
    host = f"unix://{place}/docker.sock"
    command = [str(_tool("dockerd")), "--host", host, "--data-root", str(CACHE / "data")]
    command += ["--exec-root", str(place / "exec"), "--pidfile", str(place / "dockerd.pid")]
    with open(place / "dockerd.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_S
        while not _answers({"DOCKER_HOST": host}):
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoEngineError(f"dockerd did not start:\n{(place / 'dockerd.log').read_text()[-4000:]}")
            time.sleep(0.1)
        yield host
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()
        process.wait()


def _with_plugins(env: dict[str, str]) -> dict[str, str]:
    """`env`, with Compose and buildx among the plugins."""
    if all(_has_plugin(name.removeprefix("docker-"), env) for name in _PLUGINS):
        return env
    own = {**env, "DOCKER_CONFIG": str(CACHE / "config")}
    if not all(_has_plugin(name.removeprefix("docker-"), own) for name in _PLUGINS):
        _fetch_plugins(CACHE / "config" / "cli-plugins")
    return own


def _has_plugin(name: str, env: Mapping[str, str]) -> bool:
    asked = ["docker", name, "version"]
    return subprocess.run(asked, env={**os.environ, **env}, capture_output=True, check=False).returncode == 0


def _fetch_plugins(target: Path) -> None:
    """From a newer Debian's packages, unpacked beside the system: with lists and a cache of their own."""
    place = CACHE / "plugins"
    shutil.rmtree(place, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "unpacked"):
        (place / folder).mkdir(parents=True)
    (place / "own.sources").write_text(
        f"Types: deb\nURIs: {mirror()}\nSuites: {_PLUGINS_SUITE}\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    where = {"SourceList": place / "own.sources", "SourceParts": "/dev/null"}
    options = [part for name, value in where.items() for part in ("-o", f"Dir::Etc::{name}={value}")]
    options += ["-o", f"Dir::State::Lists={place}/lists", "-o", f"Dir::Cache={place}/cache"]
    run("apt-get", *options, "update", "-q")
    run("apt-get", *options, "download", "-q", *_PLUGINS, cwd=place)
    target.mkdir(parents=True, exist_ok=True)
    for package in place.glob("*.deb"):
        run("dpkg", "-x", str(package), str(place / "unpacked"))
    for plugin in (place / "unpacked/usr/libexec/docker/cli-plugins").iterdir():
        shutil.copy(plugin, target)


def mirror() -> str:
    """The address of the machine's own Debian mirror.

    Raises:
        NoEngineError: its apt sources name none.
    """
    sources = [*Path("/etc/apt/sources.list.d").glob("*.sources"), *Path("/etc/apt/sources.list.d").glob("*.list")]
    for file in [*sorted(sources), Path("/etc/apt/sources.list")]:
        text = file.read_text() if file.exists() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(\S+/debian)/?\s", text, re.MULTILINE)
        if found:
            return found[1]
    raise NoEngineError("/etc/apt names no Debian mirror, from which a base image could be made")


def ensure_base(env: Mapping[str, str]) -> None:
    """The base image: the one that is there, or a Debian of that release with its Python, made here."""
    have = subprocess.run(
        ["docker", "image", "inspect", BASE], env={**os.environ, **env}, capture_output=True, check=False
    )
    if have.returncode == 0:
        return
    tree = CACHE / "base-tree"
    if not tree.exists():
        _install_packages()
        fresh = CACHE / "base-tree.new"
        shutil.rmtree(fresh, ignore_errors=True)
        include = f"--include={_BASE_PACKAGES}"
        run(str(_tool("debootstrap")), "--variant=minbase", include, _BASE_SUITE, str(fresh), mirror())
        fresh.rename(tree)
    with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as tar:
        imported = subprocess.run(
            ["docker", "import", "-", BASE], stdin=tar.stdout, env={**os.environ, **env}, check=False
        )
    if tar.returncode or imported.returncode:
        raise NoEngineError("the base image could not be imported")


def build(env: Mapping[str, str], tag: str, *arguments: str, context: Path = REPOSITORY) -> None:
    """Build the sandbox's image as its Dockerfile says, with this machine's network and certificates.

    Raises:
        NoEngineError: it failed.
    """
    bundle = next((path for name in ("PIP_CERT", "SSL_CERT_FILE") if (path := os.environ.get(name))), None)
    secret = ["--secret", f"id=ca,src={bundle}"] if bundle else []
    command = ["docker", "buildx", "build", "--network", "host", *secret, *arguments, "--load"]
    run(*command, "-f", str(context / "sandbox/Dockerfile"), "-t", tag, str(context), env=env)
