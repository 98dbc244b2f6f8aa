"""The languages of the sandbox: data only. `toolchains` finds their programs, `compiler` and `programs` use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Needs:
    """The least that a language's own run-time system takes: a request that allows less is refused."""

    processes: int = 1
    memory_mb: int = 16


@dataclass(frozen=True, slots=True)
class Compile:
    """How a program is compiled, in a jail of its own.

    Attributes:
        command: writes `artifact`. Placeholders as in `Language.run`.
        memory_mb, processes, work_dir_mb: limits of the compiler, which are not those of the program.
    """

    command: tuple[str, ...]
    artifact: str = "main"
    memory_mb: int = 1024
    processes: int = 64
    work_dir_mb: int = 256


@dataclass(frozen=True, slots=True)
class Language:
    """One language.

    Attributes:
        aliases: other names that requests may use.
        source: work-dir name of the program. `{entry}` in it is what the first of `entries` finds in the program, or
            `Main`. package: pattern of what `{qualified}` has before the entry.
        programs: what must be installed where the jail can see it.
        run: the command. `{source}`, `{artifact}` and `{qualified}` stand for those, `{python}` for the interpreter,
            `{heap_mb}` for the memory limit less what the run-time system itself takes, and a program's name in braces
            for its path.
        version: a command that prints the version.
        env: what is added to the environment of both commands.
        out_of_memory: pattern of what a failing program writes to stderr when an allocation was refused.
        crash: pattern of what is on stderr when exit code 1 means an uncaught error.
        folders: where its programs may be beside the usual places; patterns.
    """

    name: str
    source: str
    programs: tuple[str, ...]
    run: tuple[str, ...]
    version: tuple[str, ...]
    compile: Compile | None = None
    aliases: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    package: str = r"(?!)"
    env: Mapping[str, str] = field(default_factory=dict)
    needs: Needs = Needs()
    out_of_memory: str = r"(?!)"
    crash: str = r"(?!)"
    folders: tuple[str, ...] = ()


# Archives what the compiler wrote, whose names only it knows: one artifact crosses to the run.
_JAVAC = (
    'mkdir /tmp/classes && "$1" -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 -encoding UTF-8 -nowarn -d /tmp/classes '
    '"$2" && exec "$3" -I -m zipfile -c "$4" /tmp/classes/*'
)
_CLASS = r"\bclass\s+(\w+)"

LANGUAGES = (
    Language(
        name=PYTHON,
        aliases=("python3",),
        source="main.py",
        programs=(),
        run=("{python}", "{source}"),
        version=(),
        crash=r"^Traceback \(most recent call last\):",
    ),
    Language(
        name="bash",
        aliases=("sh", "shell"),
        source="main.sh",
        programs=("bash",),
        run=("{bash}", "{source}"),
        version=("{bash}", "--version"),
        out_of_memory=r"(?i)cannot allocate \d+ bytes|cannot allocate memory",
    ),
    Language(
        name="c",
        aliases=("C",),
        source="main.c",
        programs=("gcc",),
        compile=Compile(("{gcc}", "-O2", "-std=gnu17", "-o", "{artifact}", "{source}", "-lm")),
        run=("./{artifact}",),
        version=("{gcc}", "-dumpfullversion"),
    ),
    Language(
        name="cpp",
        aliases=("c++", "C++"),
        source="main.cpp",
        programs=("g++",),
        compile=Compile(("{g++}", "-O2", "-std=gnu++17", "-o", "{artifact}", "{source}")),
        run=("./{artifact}",),
        version=("{g++}", "-dumpfullversion"),
        out_of_memory=r"\bstd::bad_alloc\b",
    ),
    Language(
        name="javascript",
        aliases=("js", "node", "nodejs"),
        source="main.js",
        programs=("node",),
        run=("{node}", "--max-old-space-size={heap_mb}", "{source}"),
        version=("{node}", "--version"),
        needs=Needs(processes=16, memory_mb=64),
        out_of_memory=r"(?i)heap out of memory|process out of memory|\ballocation failed",
        crash=r"(?m)^Node\.js v\d",
    ),
    Language(
        name="go",
        aliases=("golang",),
        source="main.go",
        programs=("go",),
        folders=("/usr/local/go/bin", "/usr/lib/go*/bin"),
        # The standard library is compiled too, as there is no cache that programs could share.
        compile=Compile(
            ("{go}", "build", "-o", "{artifact}", "{source}"), memory_mb=2048, processes=128, work_dir_mb=512
        ),
        run=("./{artifact}",),
        version=("{go}", "version"),
        env={
            "GOCACHE": "/tmp/go-cache",  # noqa: S108 - the jail's own
            "GOPATH": "/tmp/go",  # noqa: S108
            "GOFLAGS": "-p=2",
            "GOPROXY": "off",
            "GOTOOLCHAIN": "local",
            "GO111MODULE": "off",
            "CGO_ENABLED": "0",
            "GOMAXPROCS": "2",
        },
        needs=Needs(processes=16, memory_mb=64),
        out_of_memory=r"\bout of memory\b|cannot allocate memory",
    ),
    Language(
        name="java",
        source="{entry}.java",
        entries=(
            rf"\bpublic\s+(?:(?:final|abstract|strictfp)\s+)*{_CLASS}",
            rf"{_CLASS}(?:(?!{_CLASS})[\s\S])*?\bstatic\s+(?:public\s+)?(?:final\s+)?void\s+main\b",
        ),
        package=r"(?m)^\s*package\s+([\w.]+)\s*;",
        programs=("java", "javac"),
        folders=("/usr/lib/jvm/*/bin",),
        compile=Compile(
            ("/bin/sh", "-c", _JAVAC, "sh", "{javac}", "{source}", "{python}", "{artifact}"), artifact="main.jar"
        ),
        run=(
            *("{java}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ActiveProcessorCount=2"),
            *("-XX:-UsePerfData", "-Xmx{heap_mb}m", "-cp", "{artifact}:.", "{qualified}"),
        ),
        version=("{java}", "-version"),
        needs=Needs(processes=32, memory_mb=128),
        out_of_memory=r"\bOutOfMemoryError\b|insufficient memory for the Java Runtime",
        crash=r'(?m)^Exception in thread "',
    ),
    Language(
        name="rust",
        source="main.rs",
        programs=("rustc", "cc"),
        folders=("/usr/local/rustup/toolchains/*/bin",),
        compile=Compile(("{rustc}", "-O", "--edition=2021", "-o", "{artifact}", "{source}"), processes=128),
        run=("./{artifact}",),
        version=("{rustc}", "--version"),
        out_of_memory=r"memory allocation of \d+ bytes failed",
    ),
)
"""In the order in which they are listed. Standards are the GNU dialects, which contest programs are written for."""
