"""Programs in languages other than Python, with the real compilers; what is not installed is tested as absent."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.languages import LANGUAGES
from rollbox.sandbox.process_pool import ProcessPool
from rollbox.sandbox.programs import Programs
from rollbox.sandbox.settings import SandboxSettings
from rollbox.sandbox.toolchains import Toolchains
from rollbox.sandbox.zygote_pool import ZygotePool
from rollbox.schemas.errors import ToolError
from rollbox.schemas.run import RunLimits, RunRequest

from .conftest import RunCode
from .server_process import ServerProcess, processes_with, serving, until

TOOLCHAINS = Toolchains()
FOREIGN = [language.name for language in LANGUAGES if language.name != "python"]

# Each prints the sum of the two numbers on stdin, its arguments, a variable, and a word from a file beside it.
ECHO = {
    "bash": 'read a b; echo "$((a + b)) $* $WORD $(cat word.txt)"',
    "c": """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int a, b; char word[99];
    scanf("%d %d", &a, &b);
    fscanf(fopen("word.txt", "r"), "%98s", word);
    printf("%d %s %s %s %s\\n", a + b, argv[1], argv[2], getenv("WORD"), word);
}
""",
    "cpp": """
#include <bits/stdc++.h>
int main(int argc, char **argv) {
    int a, b; std::string word;
    std::cin >> a >> b;
    std::ifstream("word.txt") >> word;
    std::cout << a + b << ' ' << argv[1] << ' ' << argv[2] << ' ' << getenv("WORD") << ' ' << word << std::endl;
}
""",
    "javascript": """
const fs = require('fs')
const [a, b] = fs.readFileSync(0, 'utf8').split(' ').map(Number)
console.log(a + b, ...process.argv.slice(2), process.env.WORD, fs.readFileSync('word.txt', 'utf8'))
""",
    "go": """
package main
import ("fmt"; "os")
func main() {
    var a, b int
    fmt.Scan(&a, &b)
    word, _ := os.ReadFile("word.txt")
    fmt.Println(a + b, os.Args[1], os.Args[2], os.Getenv("WORD"), string(word))
}
""",
    "java": """
import java.nio.file.*;
import java.util.*;
public class Summing {
    static class Pair { int a, b; int sum() { return a + b; } }
    public static void main(String[] args) throws Exception {
        Scanner in = new Scanner(System.in);
        Pair pair = new Pair(); pair.a = in.nextInt(); pair.b = in.nextInt();
        String word = new String(Files.readAllBytes(Paths.get("word.txt")));
        System.out.println(pair.sum() + " " + args[0] + " " + args[1] + " " + System.getenv("WORD") + " " + word);
    }
}
""",
    "rust": """
use std::{env, fs, io};
fn main() {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let sum: i32 = line.split_whitespace().map(|word| word.parse::<i32>().unwrap()).sum();
    let args: Vec<String> = env::args().skip(1).collect();
    println!("{} {} {} {}", sum, args.join(" "), env::var("WORD").unwrap(), fs::read_to_string("word.txt").unwrap());
}
""",
}
FAILING = {
    "bash": "echo before; exit 3",
    "c": '#include <stdio.h>\nint main(void) { puts("before"); return 3; }',
    "cpp": '#include <iostream>\nint main() { std::cout << "before" << std::endl; return 3; }',
    "javascript": "console.log('before'); process.exit(3)",
    "go": 'package main\nimport ("fmt"; "os")\nfunc main() { fmt.Println("before"); os.Exit(3) }',
    "java": 'class M { public static void main(String[] a) { System.out.println("before"); System.exit(3); } }',
    "rust": 'fn main() { println!("before"); std::process::exit(3); }',
}
LOOPING = {
    "bash": "echo before; while :; do :; done",
    "c": '#include <stdio.h>\nint main(void) { puts("before"); fflush(stdout); for (;;); }',
    "cpp": '#include <iostream>\nint main() { std::cout << "before" << std::endl; for (volatile int i = 0;; i++); }',
    "javascript": "console.log('before'); for (;;);",
    "go": 'package main\nimport "fmt"\nfunc main() { fmt.Println("before"); for {} }',
    "java": 'class M { public static void main(String[] a) { System.out.println("before"); for (;;); } }',
    "rust": 'fn main() { println!("before"); loop {} }',
}
BROKEN = {
    "c": "int main(void) { return undeclared; }",
    "cpp": "int main() { return undeclared; }",
    "go": "package main\nfunc main() { undeclared() }",
    "java": "class M { public static void main(String[] a) { undeclared(); } }",
    "rust": "fn main() { undeclared(); }",
}
FILLING = {
    "cpp": "#include <vector>\nint main() { std::vector<std::vector<int>> v; for (;;) v.emplace_back(1 << 20, 1); }",
    "javascript": "const v = []; for (;;) v.push(new Array(1 << 20).fill(1.5))",
    "go": "package main\nfunc main() { var v [][]byte; for { b := make([]byte, 1<<24); for i := range b { b[i] = 1 }\n"
    "v = append(v, b) } }",
    "java": "class M { public static void main(String[] a) { java.util.List<int[]> v = new java.util.ArrayList<>();"
    "for (;;) v.add(new int[1 << 20]); } }",
    "rust": "fn main() { let mut v = Vec::new(); loop { v.push(vec![1u8; 1 << 24]); } }",
}


def present(*languages: str) -> list[Any]:
    """Parameters, of which those that are not installed are skipped."""
    absent = TOOLCHAINS.absent
    return [
        pytest.param(name, marks=pytest.mark.skipif(name in absent, reason=f"{name}: {absent.get(name)}"))
        for name in languages
    ]


def _limits(**limits: Any) -> RunLimits:
    return RunLimits(**{"wall_s": 60, "compile_wall_s": 100, **limits})


def _echo(language: str) -> RunRequest:
    return RunRequest(
        code=ECHO[language],
        language=language,
        stdin="40 2",
        args=["one", "two words"],
        env={"WORD": "three"},
        files={"word.txt": base64.b64encode(b"four").decode()},
        limits=_limits(),
    )


@pytest.mark.parametrize("language", present(*FOREIGN))
async def test_a_program_has_its_input_arguments_environment_and_files(sandbox: Sandbox, language: str) -> None:
    result = await sandbox.run(_echo(language))
    assert (result.status, result.stdout, result.stderr) == ("ok", "42 one two words three four\n", ""), result
    assert (result.compile is None) == (language in ("bash", "javascript"))


@pytest.mark.parametrize("language", present(*FOREIGN))
async def test_the_process_pool_runs_them_too(language: str) -> None:
    async with ProcessPool(1, 1) as pool:
        result = await Programs(pool, SandboxSettings(), TOOLCHAINS).run(_echo(language))
    assert (result.status, result.stdout) == ("ok", "42 one two words three four\n"), result


@pytest.mark.parametrize("language", present(*FOREIGN))
async def test_an_exit_code(run: RunCode, language: str) -> None:
    result = await run(FAILING[language], language=language, **_limits().model_dump())
    assert (result.status, result.exit_code, result.stdout) == ("error", 3, "before\n"), result
    assert (result.hint, result.error_line) == (None, None)


@pytest.mark.parametrize("language", present(*FOREIGN))
async def test_a_time_limit_keeps_the_output(run: RunCode, language: str) -> None:
    result = await run(LOOPING[language], language=language, **_limits(wall_s=2).model_dump())
    assert (result.status, result.stdout) == ("timeout", "before\n"), result


@pytest.mark.parametrize("language", present(*FILLING))
async def test_a_memory_limit(run: RunCode, language: str) -> None:
    result = await run(FILLING[language], language=language, **_limits(memory_mb=256).model_dump())
    assert result.status == "memory", result


@pytest.mark.parametrize("language", present(*BROKEN))
async def test_a_program_that_does_not_compile(run: RunCode, server: ServerProcess, language: str) -> None:
    result = await run(BROKEN[language], language=language, **_limits().model_dump())
    assert (result.status, result.exit_code, result.stdout) == ("compile_error", None, "")
    assert result.compile is not None
    assert result.compile.status == "error"
    assert result.compile.exit_code not in (0, None)
    assert "undeclared" in result.compile.stderr


@pytest.mark.parametrize("language", present("javascript", "java"))
async def test_the_least_that_a_language_needs(run: RunCode, language: str) -> None:
    needs = next(each.needs for each in LANGUAGES if each.name == language)
    limits = _limits(memory_mb=needs.memory_mb, processes=needs.processes)
    assert (await run(FAILING[language], language=language, **limits.model_dump())).exit_code == 3
    for field in ("memory_mb", "processes"):
        with pytest.raises(ToolError, match=rf"limits.{field}: programs in {language} need at least"):
            await run("1", language=language, **limits.model_dump() | {field: getattr(needs, field) - 1})


# --- compiling ---


@pytest.mark.parametrize("language", present("cpp"))
async def test_compiling_has_limits_of_its_own(run: RunCode, language: str) -> None:
    endless = "template <int n> struct T { static const int v = T<n - 1>::v + T<n - 2>::v + T<(n ^ 1)>::v; };\n"
    slow = "#include <bits/stdc++.h>\nint main() {" + "std::cout << std::regex_match(std::string(), std::regex());" * 50
    for code, limits in ((slow + "}", {"compile_wall_s": 0.2}),):
        result = await run(code, language=language, wall_s=60, **limits)
        assert (result.status, result.compile and result.compile.status) == ("compile_error", "timeout")
    assert (await run(f"{endless}int main() {{ return T<30>::v; }}", language=language)).status == "compile_error"


@pytest.mark.parametrize("language", present("c"))
async def test_the_compiler_is_in_the_jail_too(run: RunCode, language: str) -> None:
    for path in ("/etc/shadow", "/root/.bashrc", "/proc/1/environ"):
        result = await run(f'#include "{path}"\nint main(void) {{ return 0; }}', language=language)
        assert result.compile is not None
        assert result.compile.stderr.endswith("compilation terminated.\n"), path
    endless = await run('#include "/dev/zero"\nint main(void) { return 0; }', language=language, compile_wall_s=20)
    assert endless.status == "compile_error"
    # What the compiler can read is not more than the program can.
    assert (await run('#include "/workspace/main.c"\n', language=language)).status == "compile_error"


@pytest.mark.parametrize("language", present("c"))
async def test_a_program_is_compiled_once_for_all_who_ask_for_it(language: str) -> None:
    with serving("--slots", "2") as server:
        async with Sandbox.connect(server.url) as sandbox, aiohttp.ClientSession(server.url) as http:
            code = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d", n * 2); }'
            requests = [RunRequest(code=code, language="c", stdin=str(number)) for number in range(12)]
            results = await asyncio.gather(*(sandbox.run(request) for request in requests))
            assert [result.stdout for result in results] == [str(2 * number) for number in range(12)]
            assert len({result.compile.model_dump_json() for result in results if result.compile}) == 1
            other = await sandbox.run(RunRequest(code=code.replace("* 2", "* 3"), language="c", stdin="1"))
            assert other.stdout == "3"
            async with http.get("/metrics") as response:
                assert 'rollbox_runs_total{status="ok"} 13.0' in (await response.text()).splitlines()


@pytest.mark.parametrize("language", present("c"))
async def test_a_disconnect_ends_the_compiler(language: str) -> None:
    with serving("--slots", "1") as server:
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            code = '#include "/dev/zero"\n'
            limits = RunLimits(compile_wall_s=300)
            before = set(processes_with("main.c"))
            running = asyncio.create_task(sandbox.run(RunRequest(code=code, language=language, limits=limits)))
            await until(lambda: len(set(processes_with("main.c")) - before) > 0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await until(lambda: set(processes_with("main.c")) <= before)


@pytest.mark.parametrize("language", present("java"))
@pytest.mark.parametrize(
    "code",
    [
        "public final class Main { public static void main(String[] a) { System.out.println(6); } }",
        "class Other { int n; }\nclass Task {\n static public void main(String[] a) { System.out.println(6); } }",
        "package deep.inside;\npublic class Task { public static void main(String[] a) { System.out.println(6); } }",
        (
            "interface F { int f(); }\nclass T { static F g = new F() { public int f() { return 6; } };\n"
            "public static void main(String[] a) { F f = () -> g.f(); System.out.println(f.f()); } }"
        ),
    ],
)
async def test_java_classes_of_any_name(run: RunCode, language: str, code: str) -> None:
    result = await run(code, language=language, **_limits().model_dump())
    assert (result.status, result.stdout) == ("ok", "6\n"), result


@pytest.mark.parametrize("language", present("cpp"))
async def test_a_file_with_the_programs_own_name_is_refused(run: RunCode, language: str) -> None:
    for name in ("main.cpp", "main"):
        with pytest.raises(ToolError, match=r"files\.main(\.cpp)?: the program itself"):
            await run(ECHO["cpp"], language=language, files={name: ""})


async def test_what_only_python_can(run: RunCode) -> None:
    for field in ("echo_last_expression", "figures"):
        with pytest.raises(ToolError, match=f"{field}: only programs in python"):
            await run("1", language="bash", **{field: True})


@pytest.mark.parametrize("language", present("bash"))
async def test_a_pool_alone_knows_python_only(language: str) -> None:
    async with ZygotePool(slots=1, queue=1) as pool:
        with pytest.raises(ToolError, match=r"language: 'bash' needs a command"):
            await pool.run(RunRequest(code="echo 1", language=language))


# --- which there are ---


async def test_info_and_refusals_agree_on_what_is_there(sandbox: Sandbox) -> None:
    info = await sandbox.info()
    assert all(version[0].isdigit() for version in info["languages"].values()), info["languages"]
    assert set(info["languages"]) | set(info["languages_absent"]) >= {language.name for language in LANGUAGES}
    assert set(info["languages"]).isdisjoint(info["languages_absent"])
    for name, why in info["languages_absent"].items():
        with pytest.raises(ToolError) as refused:
            await sandbox.run(RunRequest(code="1", language=name))
        assert f"language: {name!r} is not available ({why}); available are python" in str(refused.value)


def test_an_absent_toolchain_says_what_is_missing() -> None:
    java = next(language for language in LANGUAGES if language.name == "java")
    missing = dataclasses.replace(java, programs=("java", "surely-not-installed"), aliases=("jvm",))
    toolchains = Toolchains([LANGUAGES[0], missing])
    with pytest.raises(ToolError, match=r"surely-not-installed is not installed in .*; available are python$"):
        toolchains.of("jvm")


def test_a_toolchain_that_the_jail_does_not_show_is_absent() -> None:
    bash = next(language for language in LANGUAGES if language.name == "bash")
    assert "bash" in Toolchains([bash], visible=("/opt",)).absent


# --- SandboxFusion's wire ---


@pytest.mark.parametrize("language", present("cpp"))
async def test_run_code_compiles(server: ServerProcess, language: str) -> None:
    async with aiohttp.ClientSession(server.url) as http:

        async def run_code(code: str, **more: Any) -> dict[str, Any]:
            body = {"code": code, "language": "cpp", **more}
            async with http.post("/run_code", json=body) as response:
                assert response.status == 200, await response.text()
                answer: dict[str, Any] = json.loads(await response.text())
                return answer

        good = await run_code('#include <cstdio>\nint main() { puts("hi"); return 3; }')
        assert good["status"] == "Failed"
        assert (good["compile_result"]["status"], good["compile_result"]["return_code"]) == ("Finished", 0)
        assert (good["run_result"]["return_code"], good["run_result"]["stdout"]) == (3, "hi\n")
        bad = await run_code(BROKEN["cpp"])
        assert (bad["status"], bad["run_result"]) == ("Failed", None)
        assert (bad["compile_result"]["status"], bad["compile_result"]["return_code"]) == ("Finished", 1)
        slow = await run_code("#include <bits/stdc++.h>\nint main() { return 7; }", compile_timeout=0.05)
        assert (slow["status"], slow["run_result"]) == ("Failed", None)
        assert (slow["compile_result"]["status"], slow["compile_result"]["return_code"]) == ("TimeLimitExceeded", None)
