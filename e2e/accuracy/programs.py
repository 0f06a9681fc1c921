# SPDX-License-Identifier: Apache-2.0
"""The known-answer programs: how each is built and run, and what its true stacks are.

A share is a part of the program's CPU time under a name that the program prints. It has a frame and
a chain. The frame is in every stack of the share and in none of the shares listed after it; by
default it is the last one of the chain. (None: the chain alone tells the share.) The chain is every
frame from the outermost to the leaf, where `...` is any number of frames, `name*40` is 40 of them
in a row, `name~` is any name that begins so, `@program` is a frame without a name in the program's
file, and `@others` is one or more frames that are not. A name also matches with its parameters, a
compiler's suffix (.constprop.0) and Rust's hash.
"""
import glob
import os
import re
from dataclasses import dataclass, field


@dataclass
class Program:
    name: str
    language: str
    source: str
    # commands; {src} {out} {dir}: the source, the program, a directory of its own
    build: list
    # name of a share -> chain, or (frame, chain); empty: the program prints them (TOLD.stacks)
    shares: dict
    args: list = field(default_factory=list)
    needs: list = field(default_factory=list)       # commands without which it is skipped
    env: dict = field(default_factory=dict)
    complete: float = 0.995         # least part of a share's stacks that are the chain
    finished: float = 0.995
    # why its stacks cannot be finished: the finished part is reported, but not checked
    excluded: str = ""
    # stops and wakes threads (for garbage), which no timer samples: shares are parts of the named
    # functions' time only
    runtime: bool = False
    processes: bool = False         # it has several processes, so a cgroup selects them
    unlink: bool = False            # its file is deleted when it runs
    sample: bool = False            # in `make test`, too


MAIN = "_start > ... > main > "
SHARES = {
    "alpha": MAIN + "work > alpha",
    "beta": MAIN + "work > beta_1 > beta_2 > beta_3 > beta_4 > beta_5 > beta_6 > beta_7 > beta",
    "gamma_": MAIN + "work > gamma_*40",
}
CFLAGS = "-std=gnu17 -D_GNU_SOURCE"


def shares_c(name, flags, cc="gcc", **more):
    build = [f"{cc} {CFLAGS} {flags} -o {{out}} {{src}}"]
    return Program(name, "C", "shares.c", build + more.pop("then", []), more.pop("shares", SHARES),
                   needs=[cc] + more.pop("needs", []), **more)


def c(name, source, flags, shares, **more):
    return Program(name, "C", source, [f"gcc {CFLAGS} {flags} -o {{out}} {{src}} -lpthread -ldl"],
                   shares, **more)


def with_library(name, source, flags, shares, library, **more):
    """Compiles one source twice: as a library with -DLIBRARY, and as the program."""
    lib = f"gcc {CFLAGS} {flags} -fPIC -shared -DLIBRARY -o {{dir}}/{library} {{src}}"
    link = "" if more.get("args") else f"{{dir}}/{library} -Wl,-rpath,{{dir}}"
    return Program(name, "C", source, [lib, f"gcc {CFLAGS} {flags} -o {{out}} {{src}} {link} -ldl"],
                   shares, **more)


STRIPPED = {    # no names: frames have the name of the file, and their number tells the shares
    "alpha": (None, "@program > @others > @program*3"),
    "beta": (None, "@program > @others > @program*10"),
    "gamma_": (None, "@program > @others > @program*42"),
}
MUSL_SHARES = {name: chain.removeprefix("_start > ") for name, chain in SHARES.items()}
NO_TABLES = "-fno-asynchronous-unwind-tables -fno-unwind-tables"

C_PROGRAMS = [
    shares_c("gcc -O0", "-O0"),
    shares_c("gcc -O1", "-O1"),
    shares_c("gcc -O2", "-O2 -g", sample=True),
    shares_c("gcc -O3", "-O3"),
    shares_c("gcc -O2 LTO", "-O2 -flto"),
    shares_c("gcc -O2 -fno-omit-frame-pointer", "-O2 -fno-omit-frame-pointer"),
    shares_c("gcc -O2 -fcf-protection", "-O2 -fcf-protection=full -Wl,-z,ibtplt"),
    shares_c("gcc -O2 .debug_frame alone", f"-O2 -g {NO_TABLES}"),
    shares_c("clang -O2 no tables, frame pointers",
             f"-O2 {NO_TABLES} -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer", "clang"),
    # gcc makes no frame pointer in leaf functions
    shares_c("gcc -O2 no tables, frame pointers", f"-O2 {NO_TABLES} -fno-omit-frame-pointer"),
    shares_c("gcc -O2 no tables", f"-O2 {NO_TABLES}"),
    shares_c("clang -O0", "-O0", "clang"),
    shares_c("clang -O2", "-O2", "clang"),
    shares_c("clang -O3 LTO, lld", "-O3 -flto -fuse-ld=lld", "clang"),
    shares_c("non-PIE", "-O2 -no-pie -fno-pie"),
    shares_c("static", "-O2 -static"),
    shares_c("static-pie", "-O2 -static-pie -fPIE"),
    shares_c("stripped", "-O2 -s", shares=STRIPPED),
    shares_c("musl static", "-O2 -static", "musl-gcc", shares=MUSL_SHARES),
    shares_c("musl dynamic", "-O2", "musl-gcc", shares=MUSL_SHARES),
    shares_c("deleted", "-O2", unlink=True),
    shares_c("file of 120 MB", "-O2", then=[
        "truncate -s 120M {dir}/pad", "objcopy --add-section .pad={dir}/pad {out} {out}",
        "rm {dir}/pad"]),
    c("memfd", "memfd.c", "-O2", {"first": MAIN + "first", "second": MAIN + "second"}),
    c("4,000 mappings", "mappings.c", "-O2",
      {"in_copy": MAIN + "in_copy > copied", "in_place": MAIN + "in_place"}),
    # On its way down and back the stack is not that deep: 0.13 % of the samples, more when another
    # program's work is on the CPU.
    c("recursion", "recursion.c", "-O2",
      {"down_500": MAIN + "down_500*500", "down_100": MAIN + "down_100*100"}, sample=True,
      complete=0.98),
    c("recursion -O0", "recursion.c", "-O0",
      {"down_500": MAIN + "down_500*500", "down_100": MAIN + "down_100*100"}, complete=0.98),
    c("tail calls", "tailcall.c", "-O2", {"last": MAIN + "last", "other": MAIN + "other"}),
    c("signal handlers", "signals.c", "-O2", {
        "on_same_stack": MAIN + "... > handler_same > on_same_stack",
        "on_own_stack": MAIN + "... > handler_own > on_own_stack",
        "work": MAIN + "round_of_work > work"}, sample=True),
    Program("signal handlers, musl static", "C", "signals.c",
            [f"musl-gcc {CFLAGS} -O2 -static -o {{out}} {{src}}"], {
        "on_same_stack": "... > main > round_of_work > ... > handler_same > on_same_stack",
        "on_own_stack": "... > main > round_of_work > ... > handler_own > on_own_stack",
        "work": "... > main > round_of_work > work"}, needs=["musl-gcc"]),
    c("alloca, arrays, realigned stacks", "frames.c", "-O2", {
        "with_alloca": MAIN + "with_alloca", "with_array": MAIN + "with_array",
        "realigned_leaf": MAIN + "realigned > realigned_leaf",
        "both_leaf": MAIN + "both > both_leaf"}, sample=True),
    c("-mstackrealign", "frames.c", "-O2 -mstackrealign", {
        "with_alloca": MAIN + "with_alloca", "with_array": MAIN + "with_array",
        "realigned_leaf": MAIN + "realigned > realigned_leaf",
        "both_leaf": MAIN + "both > both_leaf"}),
    c("realigned stacks -O0", "frames.c", "-O0", {
        "with_alloca": MAIN + "with_alloca", "with_array": MAIN + "with_array",
        "realigned_leaf": MAIN + "realigned > realigned_leaf",
        "both_leaf": MAIN + "both > both_leaf"}),
    c("hand-written assembly", "assembly.c", "-O2", {
        "with_cfi": MAIN + "with_cfi > with_cfi_inner",
        "prologues": ("prologues", MAIN + "prologues > ...")}),
    c("hand-written assembly, a leaf without CFI", "assembly.c", "-O2 -DWITHOUT_CFI", {
        "with_cfi": MAIN + "with_cfi > with_cfi_inner",
        "prologues": ("prologues", MAIN + "prologues > ..."), "without_cfi": MAIN + "without_cfi"}),
    with_library("PLT", "plt.c", "-O2 -fcf-protection=none", {
        "calls": ("calls", MAIN + "calls > ..."), "plain": MAIN + "plain"}, "libnothing.so"),
    with_library("PLT with IBT", "plt.c", "-O2 -fcf-protection=full -Wl,-z,ibtplt", {
        "calls": ("calls", MAIN + "calls > ..."), "plain": MAIN + "plain"}, "libnothing.so"),
    with_library("dlopen", "plugin.c", "-O2", {
        "plugin": MAIN + "plugin", "callback": MAIN + "plugin_calls > callback",
        "before": MAIN + "before"},
        "plugin.so", args=["{dir}/plugin.so"]),
    c("vDSO", "vdso.c", "-O2", {"asks": ("asks", MAIN + "asks > ..."), "plain": MAIN + "plain"}),
    c("system calls", "syscalls.c", "-O2", {
        "reads": ("reads", MAIN + "reads > ..."), "asks": ("asks", MAIN + "asks > ..."),
        "plain": MAIN + "plain"}),
    c("threads, clone()", "threads.c", "-O2", {
        "in_main": MAIN + "in_main", "in_pthread": "... > pthread_body > in_pthread",
        "in_clone": "... > clone_body > in_clone"}),
    c("fork, vfork, exec", "processes.c", "-O2", {
        "in_parent": MAIN + "part > in_parent", "in_fork": MAIN + "forks > part > in_fork",
        "in_vfork": MAIN + "vforks > part > in_vfork", "in_exec": MAIN + "part > in_exec"},
      processes=True,
      # the first samples after an exec come before the tables are loaded: 100 ms and more on a
      # busy machine
      complete=0.98),
]

CC_SHARES = {
    "lambda": ("main::{lambda~", MAIN + "main::{lambda~"),
    "template": ("shop::Tower<long, 6>::climb",
                 MAIN + " > ".join(f"shop::Tower<long, {i}>::climb" for i in range(6, 0, -1))),
    "inlined": ("shop::around_inlined",
                MAIN + "shop::around_inlined > shop::inlined_outer > shop::inlined_inner"),
    "virtual": ("shop::Circle::draw", MAIN + "shop::Circle::draw"),
    "catches": ("shop::catches", MAIN + "shop::catches > ..."),
}
CC_CLANG = dict(CC_SHARES, **{"lambda": ("main::$_0::operator()", MAIN + "main::$_0::operator()")})
CC_PLAIN = dict(CC_SHARES, inlined=("shop::around_inlined", MAIN + "shop::around_inlined"))
CXXFLAGS = "-std=c++17 -D_GNU_SOURCE"


def cxx(name, command, shares=None, **more):
    return Program(name, "C++", "shares.cc", [f"{command} {CXXFLAGS} -o {{out}} {{src}}"],
                   shares or CC_SHARES, needs=[command.split()[0]], **more)


RUST_MAIN = "_start > ... > shares::main > ... > "
RUST = {
    "generic": ("shares::generic", RUST_MAIN + "shares::generic > ..."),
    "recursive": ("shares::recursive", RUST_MAIN + "shares::recursive*30 > ..."),
    "inlined": ("shares::around_inlined",
                RUST_MAIN + "shares::around_inlined > shares::inlined > ..."),
    "closure": ("shares::calls", RUST_MAIN + "shares::calls > shares::main::{~ > ..."),
    "in_thread": ("shares::in_thread", "... > shares::in_thread > ..."),
}
RUST_PLAIN = dict(RUST, inlined=("shares::around_inlined", RUST_MAIN + "shares::around_inlined"),
                  closure=("shares::calls", RUST_MAIN + "shares::calls"))


def rust(name, flags, shares=None, rustc="rustc", **more):
    return Program(name, "Rust", "shares.rs", [f"{rustc} {flags} -o {{out}} {{src}}"],
                   shares or RUST, needs=[rustc.split()[0]], **more)


GO_MAIN = "runtime.goexit > runtime.main > main.main > ... > "
GO = {
    "leaf": ("main.leaf", GO_MAIN + "main.callsLeaf > main.leaf"),
    "recursive": ("main.recursive", GO_MAIN + "main.recursive*30"),
    "inlined": ("main.aroundInlined", GO_MAIN + "main.aroundInlined > main.inlined"),
    "goroutine": ("main.inGoroutine", "runtime.goexit > main.main.func~ > ... > main.inGoroutine"),
}
CGO = {
    "in_c": ("in_c", "... > in_c"),
    "called_back": ("main.calledBack", "... > main.calledBack"),
    "in_go": ("main.inGo", "runtime.goexit > runtime.main > main.main > main.inGo"),
}


def go(name, flags="", source="shares.go", shares=None, toolchain=None, **more):
    env = {"CGO_ENABLED": "1" if source == "cgo.go" else "0"}
    if toolchain:
        env["GOTOOLCHAIN"] = toolchain
    return Program(name, "Go", source, [f"go build {flags} -o {{out}} {{src}}"], shares or GO,
                   needs=["go"], env=env, complete=0.95, runtime=True, **more)


JAVA_MAIN = "... > Shares::main > Shares::part > "
JAVA = {
    "leaf": ("Shares::leaf", JAVA_MAIN + "Shares::leaf > ..."),
    "recursive": ("Shares::recursive", JAVA_MAIN + "Shares::recursive*30 > ..."),
    "inlined": ("Shares::aroundInlined", JAVA_MAIN + "Shares::aroundInlined > ..."),
    "exceptions": ("Shares::catches", JAVA_MAIN + "Shares::catches > ..."),
    "lambda": ("Shares::streams", JAVA_MAIN + "Shares::streams > ..."),
    "deflate": ("Shares::deflates", JAVA_MAIN + "Shares::deflates > ..."),
    "copies": ("Shares::copies", JAVA_MAIN + "Shares::copies > ..."),
    "garbage": ("Shares::makesGarbage", JAVA_MAIN + "Shares::makesGarbage > ..."),
    "thread": ("Shares::inThread",
               "... > java/lang/Thread::run > ... > Shares::lambda$main$~ > Shares::part > "
               "Shares::inThread > ..."),
}
DEOPT = {
    "rounds": ("Deopt::rounds", "... > Deopt::main > Deopt::rounds > ..."),
    "steady": ("Deopt::steady", "... > Deopt::main > Deopt::steady > ..."),
}
CONTINUED = "... > java/lang/VirtualThread::runContinuation > jdk/internal/vm/Continuation::run > "
VIRTUAL = {     # a thread that slept has only its last few frames on the stack
    "shallow": ("Virtual::shallow",
                CONTINUED + "[jvm: frames_in_heap] > Virtual::body > Virtual::shallow > ..."),
    "deep": ("Virtual::deep", CONTINUED + "[jvm: frames_in_heap] > ... > Virtual::deep > ..."),
    "fresh": ("Virtual::fresh",
              CONTINUED + "... > java/lang/VirtualThread::run > ... > Virtual::fresh*20 > ..."),
}
CARRIER = "-Djdk.virtualThreadScheduler.parallelism=1 -Djdk.virtualThreadScheduler.maxPoolSize=1"


def find_jdks():
    """{major version: home} of this machine's JDKs, of those that .ci/deps fetched, and of the
    directories jdk-MAJOR in $JDKS."""
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                         "podflame")
    found = {}
    homes = (glob.glob("/usr/lib/jvm/*-amd64") + glob.glob(f"{cache}/jdk-*")
             + os.environ.get("JDKS", "").split(":"))
    for home in filter(None, homes):
        major = re.search(r"jdk-(\d+)$", home)
        if os.path.exists(f"{home}/release"):
            with open(f"{home}/release", encoding="utf-8") as f:
                major = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', f.read())
        if major and os.access(f"{home}/bin/java", os.X_OK):
            found.setdefault(int(major.group(1)), home)
    return found


JDKS = find_jdks()


def java(name, major, flags="", source="Shares.java", shares=None, release=8, **more):
    """Built with javac of the oldest JDK that can do it. The program is a script that execs the
    JVM."""
    with_javac = [m for m in sorted(JDKS) if os.path.exists(f"{JDKS[m]}/bin/javac")
                  and m >= release]
    javac = f"{JDKS[with_javac[0]]}/bin/javac" if with_javac else f"javac of JDK {release}"
    runs = f"{JDKS[major]}/bin/java" if major in JDKS else f"JDK {major}"
    # JDK 8 runs in a root of its own, which has a /proc.
    root = "/proc/$PPID/root" if major == 8 else ""
    command = f'exec {runs} {flags} -cp {root}{{dir}} {source.removesuffix(".java")} {root}$1 $2 $3'
    build = [f"{javac} --release {release} -d {{dir}} {{src}}",
             f"printf '#!/bin/sh\\n{command}\\n' >{{out}}", "chmod 755 {out}"]
    return Program(f"JDK {major}{name and ', '}{name}", "Java", source, build, shares or JAVA,
                   needs=[runs, javac], complete=0.95, finished=0.99, runtime=True, **more)


NOT_INLINED = "-XX:CompileCommand=quiet -XX:CompileCommand=dontinline,Shares.notInlined"
# The callers of notInlined are inlined: the tables that the compiler wrote beside the code tell
# their frames.
JAVA_INLINED = dict(JAVA, inlined=("Shares::notInlined", JAVA_MAIN + (
    "Shares::aroundInlined > Shares::inlinedOuter > Shares::inlinedInner > Shares::notInlined")))

# A program of our own that embeds Lua: {v} is the version, {link} how Lua is linked.
LUA_HOST = """gcc -O2 -w -x c - -I/usr/include/lua{v} -o {{dir}}/host {link} <<'END'
#include <lua.h>
#include <lualib.h>
#include <lauxlib.h>
int main(int n, char **v) {{{{
lua_State *L = luaL_newstate(), *other = luaL_newstate();
int i;
luaL_openlibs(L);
luaL_openlibs(other); luaL_loadstring(other, "return 1"); lua_pcall(other, 0, 1, 0);
lua_newtable(L);
for (i = 2; i < n; i++) {{{{ lua_pushstring(L, v[i]); lua_rawseti(L, -2, i - 1); }}}}
lua_setglobal(L, "arg");
if (luaL_loadfile(L, v[1]) || lua_pcall(L, 0, 0, 0)) {{{{
puts(lua_tostring(L, -1));
return 1;
}}}}
return 0;
}}}}
END"""


def lua(name, version, runs, build=(), needs=(), finished=0.99, **more):
    """The true stacks are those of debug.traceback."""
    script = (f"printf '#!/bin/sh\\ncd {{dir}} && exec {runs} lua_shares.lua \"$@\"\\n' >{{out}} "
              "&& chmod 755 {out}")
    return Program(f"{version}, {name}" if name else version, "Lua", "lua_shares.lua",
                   [*build, "cp {src} {dir}", script], {},
                   needs=[*needs], complete=0.99, finished=finished, runtime=True, **more)


def lua_host(name, version, link):
    return lua(name, version, "./host", [LUA_HOST.format(v=version, link=link)], ["gcc"])


LUAS = ("5.1", "5.2", "5.3", "5.4")
LUA_PROGRAMS = [
    *(lua("", v, f"lua{v}", needs=[f"lua{v}"], sample=v == "5.4") for v in LUAS),
    *(lua_host("library", v, f"-llua{v}") for v in LUAS),
    *(lua_host("static, stripped", v, f"-s -l:liblua{v}.a -lm -ldl") for v in LUAS),
]

LUAJITS = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                       "podflame/luajit")


def luajit_of(suite):
    """With a C library of its own."""
    lib = f"{LUAJITS}/{suite}/usr/lib/x86_64-linux-gnu"
    return f"{lib}/ld-linux-x86-64.so.2 --library-path {lib} {LUAJITS}/{suite}/usr/bin/luajit"


# LuaJIT maps memory for traces while the program is recorded; podflame knows it a moment later.
WITH_TRACES = 0.97
LUAJIT_PROGRAMS = [
    lua("interpreter", "LuaJIT 2.1", "luajit -joff", needs=["luajit"], sample=True),
    lua("traces", "LuaJIT 2.1", "luajit", needs=["luajit"], finished=WITH_TRACES),
    *(lua(name, "LuaJIT 2.1", "./host", [LUA_HOST.format(v="jit-2.1", link=link)], ["gcc"],
          WITH_TRACES)
      for name, link in (("library", "-lluajit-5.1"),
                         ("static, stripped", "-s -l:libluajit-5.1.a -lm -ldl"))),
    lua("", "OpenResty's LuaJIT 2.1", f"{LUAJITS}/luajit2/usr/bin/luajit",
        needs=[f"{LUAJITS}/luajit2/usr/bin/luajit"], finished=WITH_TRACES),
    *(lua(f"of {suite}", "LuaJIT 2.1", luajit_of(suite),
          needs=[f"{LUAJITS}/{suite}/usr/bin/luajit"], finished=WITH_TRACES)
      for suite in ("trixie", "sid")),
]

PYTHON_MAIN = "_start > ... > __main__.<module> > __main__.main > __main__.work > __main__.spend > "
PYTHON = {
    "alpha": PYTHON_MAIN + "__main__.alpha > ...",
    "beta": PYTHON_MAIN + "__main__.beta > __main__.beta_*9 > ...",
    "gamma_": ("__main__.gamma_", PYTHON_MAIN + "... > __main__.gamma_*40 > ..."),
    "generate": PYTHON_MAIN + ("__main__.generate > ... > __main__.delegate > ... > "
                               "__main__.numbers > ..."),
    "coroutine": PYTHON_MAIN + ("__main__.coroutine > "
                                "asyncio.base_events.BaseEventLoop.run_until_complete > ..."),
    "callback": PYTHON_MAIN + "__main__.callback > ...",
    "objects": PYTHON_MAIN + "__main__.objects > ...",
    "catcher": PYTHON_MAIN + "__main__.catcher > ...",
    "comprehend": PYTHON_MAIN + "__main__.comprehend > ...",
    "collect": PYTHON_MAIN + "__main__.collect > ...",
    "sub": PYTHON_MAIN + "__main__.sub > ... > __main__.sub_work > ...",
    "in_thread": "... > threading.Thread.run > ... > __main__.in_thread > ...",
}
PYTHON = {name: chain if isinstance(chain, tuple) else (f"__main__.{name}", chain)
          for name, chain in PYTHON.items()}


def in_c(chain):
    """Up to 3.10 every call goes through C, and methods are not qualified."""
    chain = re.sub(r" > (?!\.\.\.)", " > ... > ", chain)
    chain = chain.replace("BaseEventLoop.", "").replace("Thread.run", "run")
    return re.sub(r"(__main__\.\w+)\*\d+", r"\1", chain).replace("... > ... >", "... >")


PYTHON_IN_C = {name: (frame, in_c(chain)) for name, (frame, chain) in PYTHON.items()}
PYENV = os.path.join(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"), "versions")
PYTHON_ROOT = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                           "podflame/python-3.14/root")


def python(minor, runs, name="", root="", **more):
    if root:    # it cannot write into the folder
        run = (f'cp {{src}} {root}/tmp; told=$1; shift; '
               f'chroot {root} {runs} /tmp/python_shares.py /tmp/told "$@"; '
               f'cp {root}/tmp/told "$told"')
    else:
        run = f'exec {runs} {{src}} "$@"'
    shares = PYTHON if minor >= 11 else PYTHON_IN_C
    return Program(f"CPython 3.{minor}{name and ', '}{name}", "Python", "python_shares.py",
                   [f"cat >{{out}} <<'END'\n#!/bin/sh\n{run}\nEND", "chmod 755 {out}"], shares,
                   needs=[root + runs], processes=bool(root), complete=0.95, finished=0.99, **more)


def of_pyenv(minor):
    found = sorted(glob.glob(f"{PYENV}/3.{minor}.*/bin/python3.{minor}"))
    return found[-1] if found else f"python3.{minor} of pyenv"


PYTHON_PROGRAMS = [
    *(python(minor, of_pyenv(minor), "libpython") for minor in range(8, 14)),
    python(11, "/usr/bin/python3.11", "Debian's", sample=True),
    python(11, "/usr/bin/python3.11-dbg", "debug build"),
    python(14, "/usr/bin/python3.14", "another root", PYTHON_ROOT),
]

PROGRAMS = C_PROGRAMS + LUA_PROGRAMS + LUAJIT_PROGRAMS + PYTHON_PROGRAMS + [
    cxx("g++ -O2 -g", "g++ -O2 -g", sample=True),
    cxx("g++ -O0", "g++ -O0 -g"),
    cxx("g++ -O2 without DWARF", "g++ -O2", CC_PLAIN),
    cxx("clang++ -O2 -g", "clang++ -O2 -g", CC_CLANG),
    rust("rustc -O -g", "-O -g"),
    rust("rustc -O", "-O", RUST_PLAIN),
    rust("rustc debug build", "-g"),
    rust("rustc -O -g, LTO, v0 names", "-O -g -C lto=fat -C symbol-mangling-version=v0"),
    rust("rustc -O -g, frame pointers", "-O -g -C force-frame-pointers=yes"),
    rust("rustc -O -g, static", "-O -g -C target-feature=+crt-static"),
    rust("rustc -O -g, panic=abort", "-O -g -C panic=abort"),
    rust("rustc of Debian -O -g", "-O -g", rustc="/usr/bin/rustc"),
    rust("rustc nightly -O -g", "-O -g", rustc="rustc +nightly"),
    go("go", sample=True),
    go("go -ldflags '-s -w'", "-ldflags='-s -w'"),
    go("go, no optimization", "-gcflags='-N -l'",
       shares=dict(GO, inlined=("main.aroundInlined",
                                GO_MAIN + "main.aroundInlined > main.inlined"))),
    go("go PIE", "-buildmode=pie"),
    go("go 1.22", toolchain="go1.22.0"),
    go("go 1.20", toolchain="go1.20.14"),
    go("go 1.18", toolchain="go1.18.10"),
    go("cgo", source="cgo.go", shares=CGO),
    *(java("", major, sample=major == 17) for major in (8, 11, 17, 21, 25)),
    java("interpreter", 17, "-Xint", args=["30"]),
    java("interpreter", 8, "-Xint", args=["30"]),
    java("interpreter", 25, "-Xint", args=["30"]),
    java("C1", 17, "-XX:TieredStopAtLevel=1"),
    java("C2", 17, "-XX:-TieredCompilation"),
    *(java("inlined", major, NOT_INLINED, shares=JAVA_INLINED) for major in (8, 11, 17, 21, 25)),
    java("parallel collector", 17, "-XX:+UseParallelGC"),
    java("Z collector", 25, "-XX:+UseZGC"),
    *(java("deoptimization", major, source="Deopt.java", shares=DEOPT) for major in (8, 17, 25)),
    *(java("virtual threads", major, CARRIER, "Virtual.java", VIRTUAL, 21) for major in (21, 25)),
]
