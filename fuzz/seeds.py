#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""seeds.py TARGET FOLDER: the first inputs of fuzz targets that random bytes would not lead to.

run.py seed calls it. The inputs are made of what compilers and interpreters of this machine write.
No target needs this file to run.
"""
import glob
import lzma
import os
import struct
import subprocess
import sys
import tempfile
import zlib

# ---- agent/node/parse/dwarf: a list of sections, each a length in two bytes and its bytes ----

DWARF_MAIN = [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str", ".debug_str_offsets",
              ".debug_addr", ".debug_ranges", ".debug_rnglists", ".debug_line"]
DWARF_DWO = [".debug_info.dwo", ".debug_abbrev.dwo", ".debug_str.dwo", ".debug_str_offsets.dwo",
             ".debug_rnglists.dwo"]
DWARF_PROGRAM = """
namespace { struct S { int v; int get(int k) const { return v * k; } }; }
namespace outer {
inline namespace inner { static inline int twice(int x) { return S{x}.get(2) + x / 3; } }
}
extern int g(int);
int f(int a, int b) { for (int i = 0; i < a; i++) b += outer::twice(b) + g(i);
  auto l = [&](int c) { return outer::twice(c) * g(c); }; return l(b) + l(a); }
template <class T> __attribute__((noinline)) static T cold(T a) { return a > 3 ? g(a) : throw a; }
int h(int a) {
    return __builtin_expect(a == 77, 0) ? cold<int>(a) + outer::twice(g(a)) : cold<short>(a);
}
"""
DWARF_COMMANDS = [
    f"{cc} -O2 -shared -fPIC {options} a.cc -o a.so" for cc in ("g++", "clang++") for options in (
        "-gdwarf-5", "-gdwarf-4", "-gdwarf-2 -gstrict-dwarf", "-gdwarf-3", "-gdwarf-5 -gdwarf64",
        "-gdwarf-5 -gsplit-dwarf", "-gdwarf-4 -gsplit-dwarf", "-gdwarf-5 -ffunction-sections",
        "-gdwarf-4 -fdebug-types-section", "-gdwarf-5 -g1", "-gdwarf-4 -s")]
DWARF_COMMANDS.append("g++ -O2 -shared -fPIC -gdwarf-4 a.cc -o a.so && cp a.so b.so && dwz -m alt "
                      "a.so b.so")
DWARF_COMMANDS.append("g++ -O2 -shared -fPIC -gdwarf-5 a.cc -o a.so && cp a.so b.so && dwz -5 -m "
                      "alt a.so b.so")


def elf_sections(path):
    """{name: (address, bytes)}"""
    try:
        data = open(path, "rb").read()
    except FileNotFoundError:
        return {}
    at, = struct.unpack_from("<Q", data, 0x28)
    size, n, names = struct.unpack_from("<HHH", data, 0x3a)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, at + size * i) for i in range(n)]
    base = heads[names][4]
    return {data[base + h[0]:data.index(b"\0", base + h[0])].decode():
            (h[3], b"" if h[1] == 8 else data[h[4]:h[4] + h[5]])
            for h in heads}


def section_list(path, names):
    found = elf_sections(path)
    parts = [found.get(name, (0, b""))[1][:65535] for name in names]
    return b"".join(struct.pack("<H", len(p)) + p for p in parts)


def dwarf():
    for command in DWARF_COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "a.cc"), "w").write(DWARF_PROGRAM)
            said = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
            if said.returncode:
                print(f"no input: {command}: {said.stderr[:200]}")
                continue
            alt = os.path.join(folder, "alt")
            dwo = (glob.glob(os.path.join(folder, "*.dwo")) or [""])[0]
            yield (bytes([os.path.exists(alt)])
                   + section_list(os.path.join(folder, "a.so"), DWARF_MAIN)
                   + section_list(dwo, DWARF_DWO) + section_list(alt, DWARF_MAIN))


# ---- agent/node/runtime/luajit/luajit: the pieces of the interpreter's code that podflame searches
# for, one after another ----

LUAJIT_LIBRARIES = "/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2.*"
LUAJIT_CALL = b"\xbb\1\0\0\0\x89\x54\x24\x08\x48\x89\xfd\x48\x89\x7c\x24"
LUAJIT_EXIT = bytes.fromhex("415541544153415241514150575655488d6c245855")
LUAJIT_JLOOP = bytes.fromhex("488b04c1488b4058")
LUAJIT_SAVE = bytes.fromhex("415741 56".replace(" ", ""))
LUAJIT_LEAVE = bytes.fromhex("4883c428")


def pieces(code, wanted):
    """The bytes around each place, in the order of the file, each once."""
    out, done = b"", 0
    for start, end in sorted(wanted):
        out += code[max(start, done):max(end, done)]
        done = max(done, end)
    return out


def places(code, what):
    at = code.find(what)
    while at >= 0:
        yield at
        at = code.find(what, at + 1)


def luajit():
    for path in glob.glob(LUAJIT_LIBRARIES):
        code = elf_sections(path)[".text"][1]
        call = code.find(LUAJIT_CALL)
        start = max(call - 24000, 0)
        code, call = code[start:call + 24000], call - start
        around = [(call - 32, call + 160)]
        around += [(at, at + 512) for at in places(code, LUAJIT_EXIT)]
        around += [(at - 16, at + 64) for at in places(code, LUAJIT_JLOOP)]
        around += [(at - 64, at + 64) for at in places(code, LUAJIT_LEAVE)]
        around += [(at - 16, at + 96) for at in places(code, LUAJIT_SAVE)]
        yield luajit_input(pieces(code, around))
        yield luajit_input(code[max(call - 2000, 0):call + 3000])
    yield luajit_input(b"")


def luajit_input(code):
    return struct.pack("<H", len(code)) + code


# ---- agent/node/parse/gopclntab: functions with inlined calls, in each layout ----

# addresses of code and table in the target; bytes in front of the parts
GO_CODE, GO_TABLE, GO_HEAD = 0x401000, 0x700000, 72
GO_FUNCTIONS = [(0, "runtime.mcall"), (128, "main.f"), (400, "runtime.rawVforkSyscall"),
                (512, "runtime.goexit"),
                (640, "runtime.systemstack"), (800, "gogo"), (900, "main.g")]
GO_END = 1100
# (bytes of the frame, offset up to which that holds)
GO_FRAME = [(0, 4), (8, 16), (24, 60), (-8, 70), (0, 96)]
GO_FILES = [(0, 16), (1, 96)]
GO_LINES = [(10, 7), (12, 30), (9, 96)]
GO_INLINED = [(-1, 16), (0, 40), (1, 60), (0, 80), (2, 90), (3, 92), (-1, 96)]
# entry 1 is inlined in 0, and 3 in 2
GO_CALLS = [("main.h", 8), ("main.(*T).i", 20), ("strings.j", 8), ("main.h", 91)]


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def go_values(rows):
    """A table "value by pc"."""
    out, value, pc = b"", -1, 0
    for v, end in rows:
        delta = v - value
        out += varint(delta * 2 if delta >= 0 else -delta * 2 - 1) + varint(end - pc)
        value, pc = v, end
    return out + b"\0"


def go_strings(texts):
    out, at = b"", {}
    for t in texts:
        at[t] = len(out)
        out += t.encode() + b"\0"
    return out, at


def go_function(layout, entry, name, tables, calls):
    sp, files, lines, inlined = tables
    head = struct.pack("<QiII" if layout == 0 else "<IiII",
                       entry + GO_CODE if layout == 0 else entry, name, 0, 0)
    head += struct.pack("<IIIII", sp, files, lines, 3, 0)
    if layout == 2:
        head += struct.pack("<i", 5)
    head += bytes([0, entry % 3, 0, 4]) + struct.pack("<III", 0, 0, inlined)
    if layout == 0:
        return head + bytes(-len(head) % 8) + struct.pack("<QQQQ", 0, 0, 0, GO_TABLE + calls)
    return head + struct.pack("<IIII", 0, 0, 0, calls)


def gopclntab_table(layout):
    names, name_at = go_strings([n for _, n in GO_FUNCTIONS] + [n for n, _ in GO_CALLS])
    files, file_at = go_strings(["/src/a.go", "/src/b.go"])
    units = struct.pack("<II", *file_at.values())
    pcs, tables = b"\0", []
    for rows in GO_FRAME, GO_FILES, GO_LINES, GO_INLINED:
        tables.append(len(pcs))
        pcs += go_values(rows)
    parts = [p + bytes(-len(p) % 8) for p in (names, units, files, pcs)]
    calls = b""
    for name, parent in GO_CALLS:
        at = name_at[name]
        calls += (struct.pack("<IIII", 0, at, parent, 3) if layout == 2
                  else struct.pack("<IIIII", 0, 0, 0, at, parent))
    # at the end of the third part, in front of the functions
    calls_at = GO_HEAD + sum(map(len, parts))
    parts[3] += calls + bytes(-len(calls) % 8)
    wide = 16 if layout == 0 else 8
    index, bodies = b"", b""
    start = wide * len(GO_FUNCTIONS) + wide
    for entry, name in GO_FUNCTIONS:
        body = go_function(layout, entry, name_at[name], tables, calls_at)
        index += struct.pack("<QQ" if layout == 0 else "<II",
                             entry + (GO_CODE if layout == 0 else 0), start + len(bodies))
        bodies += body + bytes(-len(body) % 8)
    index += struct.pack("<QQ" if layout == 0 else "<II", GO_END + (GO_CODE if layout == 0 else 0),
                         0)
    sizes = struct.pack("<HHHHH", *map(len, parts), 0)
    return sizes + b"".join(parts) + index + bodies


def gopclntab():
    for layout in range(3):
        table = gopclntab_table(layout)
        for flags in layout, layout + 3:
            yield bytes([flags, len(GO_FUNCTIONS)]) + table
        relocations = b"".join(struct.pack("<QQq", 0x600000 + 8 * i, 8, GO_TABLE)
                               for i in (0, 22, 40))
        yield bytes([(4, 5, 6)[(layout + 2) % 3],
                     len(GO_FUNCTIONS)]) + table + relocations + bytes(240 - len(relocations))


# ---- agent/node/parse/debugdata: a file with .symtab, as it lies in .gnu_debugdata ----

GLOBAL, LOCAL, WEAK, NOTYPE, FUNC, IFUNC = 1, 0, 2, 0, 2, 10
# name, binding, type, address, bytes: aliases, nested ones, some without size, versions
SYMBOLS = [
    ("write", WEAK, FUNC, 0x1000, 64), ("__write", GLOBAL, FUNC, 0x1000, 64),
    ("__libc_write", GLOBAL, FUNC, 0x1000, 64),
    ("writ2", WEAK, FUNC, 0x1000, 64), ("longer_write", WEAK, FUNC, 0x1000, 64),
    ("local_write", LOCAL, FUNC, 0x1000, 64),
    ("untyped", GLOBAL, NOTYPE, 0x1000, 64), ("outer", GLOBAL, FUNC, 0x1100, 256),
    ("inner", LOCAL, FUNC, 0x1120, 32),
    ("innermost", LOCAL, FUNC, 0x1128, 8), ("label", LOCAL, NOTYPE, 0x1130, 0),
    ("across", GLOBAL, FUNC, 0x11f0, 64),
    ("open@@V_1", GLOBAL, FUNC, 0x1300, 16), ("open@V_0", GLOBAL, FUNC, 0x1310, 16),
    ("@only", GLOBAL, FUNC, 0x1320, 16),
    ("sizeless", GLOBAL, NOTYPE, 0x1400, 0), ("sizeless2", GLOBAL, NOTYPE, 0x1400, 0),
    ("next", GLOBAL, IFUNC, 0x1480, 8),
    ("a", GLOBAL, FUNC, 0x1500, 16), ("b", GLOBAL, FUNC, 0x1510, 16),
    ("b1", GLOBAL, FUNC, 0x1520, 16), ("last", GLOBAL, NOTYPE, 0x10ff0, 0)]


def symbol_file(symbols):
    names, at = go_strings([""] + [s[0] for s in symbols])
    table = bytes(24) + b"".join(struct.pack("<IBBHQQ", at[name], bind << 4 | kind, 0, 1, address,
                                             size)
                                 for name, bind, kind, address, size in symbols)
    return elf_file((".text", 8, 6, b"", 0), (".symtab", 2, 0, table, 3),
                    (".strtab", 3, 0, names, 0))


def elf_file(*sections):
    """name, type, flags, bytes, link of each; a section without bytes is the text."""
    strings, where = go_strings([""] + [s[0] for s in sections] + [".shstrtab"])
    body, heads = b"", [bytes(64)]
    for name, kind, flags, data, link in sections + ((".shstrtab", 3, 0, strings, 0),):
        heads.append(struct.pack("<IIQQQQIIQQ", where[name], kind, flags,
                                 0x1000 if kind == 8 else 0, 64 + len(body),
                                 0x10000 if kind == 8 else len(data), link, 0, 1,
                                 24 if kind == 2 else 0))
        body += data + bytes(-len(data) % 8)
    return (b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0,
                                                      64 + len(body), 0, 64, 0, 0, 64,
                                                        len(heads), len(heads) - 1) + body
            + b"".join(heads))


def debugdata():
    yield symbol_file(SYMBOLS)
    for n in range(0, len(SYMBOLS), 6):
        yield symbol_file(SYMBOLS[n:n + 6][::-1])
    yield lzma.compress(symbol_file(SYMBOLS[:6]))[:-40]


# ---- agent/node/parse/elf: sections that are compressed, in each way; notes of USDT probes ----

COMPRESSED = 0x800
# a CIE: the CFA is rsp + 8
FRAMES = (struct.pack("<IIBxBBBBBBBBxx", 16, 0xffffffff, 1, 1, 0x78, 16, 12, 7, 8, 0x90, 1) +
          # a function's FDE
          struct.pack("<IIQQ", 20, 0, 0x1000, 0x40))


def zstd_raw(data):
    """A zstd frame of one raw block (RFC 8878): it stays a frame when its bytes are mutated."""
    return struct.pack("<IBB", 0xfd2fb528, 0x20,
                       len(data)) + struct.pack("<I", len(data) << 3 | 1)[:3] + data


def elf():
    text, n = (".text", 8, 6, b"", 0), len(FRAMES)
    zlib_stream, halves = zlib.compress(FRAMES), zstd_raw(FRAMES[:20]) + zstd_raw(FRAMES[20:])
    for kind, size, data in ((1, n, zlib_stream), (2, n, zstd_raw(FRAMES)), (2, n, halves),
                             (3, n, FRAMES), (2, n + 1, halves),
                             (2, 1 << 31, halves), (1, 1 << 29, zlib_stream), (1, n, FRAMES)):
        yield elf_file(text, (".debug_frame", 1, COMPRESSED,
                              struct.pack("<IIQQ", kind, 0, size, 1) + data, 0))
    yield elf_file(text, (".zdebug_frame", 1, 0, b"ZLIB" + struct.pack(">Q", n) + zlib_stream, 0))
    probes = os.path.join(os.path.dirname(__file__), "../cuda/probes.c")
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "a.so")
        subprocess.run(["gcc", "-shared", "-nostdlib", "-s", "-Wl,-z,noseparate-code", "-o",
                        library, probes], check=True)
        yield open(library, "rb").read()


# ---- agent/node/runtime/perfmap/perfmap: a line, as each version of V8 writes it ----

V8_NAMES = """LazyCompile:*f /a b.js:5
JS:~get f file:///a%20b.mjs:5:18
JS:+'GET /x node:internal/a:1:2
JS:o*+ /a b/c.js:10:8
Eval:~ :1:1
JS:^ [eval]:1:2
JS:~f [worker eval]:1:9
JS:~f data:text/javascript,a b:1:32
JS:~f webpack://app/x.js:3:1
JS:~get f app.js:3:1
JS:*f g h.js:1:16
JS:wasm-function[0]-0-turbofan
JS:f(int, char)-12-liftoff
JS:-0-liftoff
Builtin:ArrayMap
Handler::handle
RegExp:a;b 4$
RegExp::x
RegExp.> src: 'a;b' flags: 'i'
RegExp.< src: 'a"""


def perfmap():
    for name in V8_NAMES.split("\n"):
        yield b"1000 10 " + name.encode() + b"\n"


# ---- agent/node/runtime/generated/generated: memory from BASE on, see the target ----

GENERATED_BASE = 0x10000


def frames(start, length, eh):
    """A CIE and an FDE, as QEMU has them."""
    cie = struct.pack("<I", 0 if eh else 0xffffffff) + bytes([
        1, 0, 1, 0x78, 16, 0x0c, 7, 0xc0, 9, 0x86, 2, 0x90, 1, 0, 0, 0])
    cie = struct.pack("<I", len(cie)) + cie
    fde = struct.pack("<IQQ", len(cie) + 4 if eh else 0, start, length) + b"\x48\x0e\x10\0"
    return cie + struct.pack("<I", len(fde)) + fde + bytes(4)


def jit_image(eh):
    names = b"\0.eh_frame\0.shstrtab\0" if eh else b"\0.debug_frame\0.shstrtab\0"
    data = frames(GENERATED_BASE + 0x100, 0x800, eh)
    heads = bytes(64)
    heads += struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64 + 192, len(data), 0, 0, 1, 0)
    heads += struct.pack("<IIQQQQIIQQ", names.index(b".shs"), 3, 0, 0, 64 + 192 + len(data),
                         len(names), 0, 0, 1, 0)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 3, 2)
    return head + heads + data + names


def variable(at, to, opcode):
    """An instruction with a variable relative to rip: mov to rax, or lea."""
    return bytes([0x48, opcode, 0x05]) + struct.pack("<i", to - (at + 7))


def generated_memory(parts):
    memory = bytearray(0x1000)
    for at, data in parts:
        memory[at:at + len(data)] = data
    return b"\0" + bytes(memory[:max(at + len(data) for at, data in parts)])


def generated():
    base, first, second = GENERATED_BASE, 0x200, 0x220
    for eh in True, False:
        image = jit_image(eh)
        for more in 0, base + second:
            yield generated_memory([
                (0, struct.pack("<IIQQ", 1, 0, 0, base + first)),
                (first, struct.pack("<QQQQ", more, 0, base + 0x280, len(image))),
                (second, struct.pack("<QQQQ", 0, base + first, base + 0x280, len(image))),
                (0x280, image)])
    # libgcc: lists
    code, at = b"", 128
    for to, opcode in (0x300, 0x8b), (0x308, 0x8b), (0x300, 0x8d), (0x308, 0x8d), (0x400, 0x8d):
        code += variable(at + len(code), to, opcode)
    for flags, place in (0x7f8, 0x600), (1, 0x580), (2, 0x590), (3, 0x5a0):
        yield generated_memory([
            (128, code), (0x300, struct.pack("<QQ", base + 0x500, 0)),
            (0x500, struct.pack("<QQQQQQ", 0, 0, 0, base + place, flags, base + 0x540)),
            (0x540, struct.pack("<QQQQQQ", 0, 0, 0, base + 0x600, 0x7f8, 0)),
            (0x580, struct.pack("<QQQQQQQ", base + 0x600, 0, base + 0x600, 0, base + 0x590, 0, 0)),
            (0x600, frames(base + 0x100, 0x800, True))])
    # libgcc: a tree
    code = variable(64, 0x300, 0x8b) + variable(71, 0x310, 0x8b)
    leaf = struct.pack("<QIIQQQ", 2, 1, 1, base + 0x100, 0x800, base + 0x540)
    yield generated_memory([
        (64, code), (0x300, struct.pack("<QQQ", base + 0x700, 0, 2)),
        (0x540, struct.pack("<QQQQQQ", 0, 0, 0, base + 0x600, 0x7f8, 0)),
        (0x600, frames(base + 0x100, 0x800, True)), (0x700, leaf.ljust(256, b"\0"))])
    yield generated_memory([
        (64, code), (0x300, struct.pack("<QQQ", base + 0x800, 0, 2)),
        (0x540, struct.pack("<QQQQQQ", 0, 0, 0, base + 0x600, 0x7f8, 0)),
        (0x600, frames(base + 0x100, 0x800, True)), (0x700, leaf.ljust(256, b"\0")),
        (0x800, struct.pack("<QIIQQ", 4, 1, 0, 2**64 - 1, base + 0x700).ljust(256, b"\0"))])


# ---- perfmap_ask, demangler: what a child answers that works as it should ----

def perfmap_record(start, size, line, kind, name, file=b""):
    return struct.pack("<QIIHHI", start, size, line, len(name), len(file), kind) + name + file


def perfmap_message(what, n, body):
    return bytes([what, n, len(body) >> 3, len(body) & 7]) + body


def perfmap_ask():
    app, library, jvm = 0, 1, 3
    records = [perfmap_record(0x100, 0x40, 0, app, b"py::main:/app/main.py"),
               perfmap_record(0x140, 0x10, 17, app, b"main", b"/app/main.js"),
               perfmap_record(0x200, 0x800, 0, jvm, b"java.lang.String.hashCode"),
               perfmap_record(0x120, 0x40, 0, library, b"replaces two")]
    tail = b"200 800 java.lang.String.hashCode\n"
    done = [perfmap_message(1, 0, struct.pack("<iIQQII64s", error, behind, offset, malformed,
                                              len(tail), 0, tail))
            for error, behind, offset, malformed in
            ((0, 0, 700, 0), (0, 1, 100, 3), (-116, 0, 100, 0))]
    for k in range(1, len(records) + 1):
        yield perfmap_message(0, k, b"".join(records[:k])) + done[0]
    yield b"".join(perfmap_message(0, 1, r) for r in records) + done[0]
    yield from done


def demangler():
    """The steps of demangler_fuzz.c. The children answer with a text, and then with each lie."""
    name, begins, text, lives = b"\x01", b"\x00", b"\x04name", b"\x00"
    answers = b"\x00"
    yield from (patient + (name + begins + answers + bytes([how]) + text + lives) * 3
                for patient in (b"\x00", b"\x01") for how in (0, 1, 2, 4, 8, 16))
    yield b"\x00" + b"".join(bytes([file]) + begins + answers + b"\x00" + text + lives
                             for file in (0, 1, 2))
    yield b"\x01" + name + begins + b"\x07" + b"\x80" + name + begins + answers + b"\x00" + text


# ---- agent/lib/symbols/demangle: every third of the real names ----

def demangle():
    table = os.path.join(os.path.dirname(__file__), "../agent/lib/symbols/testdata/names.tsv")
    names = [line.split("\t")[0] for line in open(table, encoding="utf-8")
             if not line.startswith("#")]
    yield from (name.encode() for name in names[::3])


MAKERS = {
    "agent/node/runtime/perfmap/perfmap": perfmap,
    "agent/node/runtime/generated/generated": generated,
    "agent/node/parse/elf": elf,
    "agent/node/runtime/perfmap/perfmap_ask": perfmap_ask,
    "agent/lib/symbols/demangle": demangle,
    "agent/lib/symbols/demangler": demangler,
    "agent/node/parse/debugdata": debugdata,
    "agent/node/parse/gopclntab": gopclntab,
    "agent/node/parse/dwarf": dwarf,
    "agent/node/runtime/luajit/luajit": luajit,
}


def main(target, folder):
    os.makedirs(folder, exist_ok=True)
    n = 0
    for n, data in enumerate(MAKERS.get(target, tuple)(), 1):
        open(os.path.join(folder, f"seed-{n:03}"), "wb").write(data)
    print(f"{target}: {n} first inputs")


if __name__ == "__main__":
    main(*sys.argv[1:])
