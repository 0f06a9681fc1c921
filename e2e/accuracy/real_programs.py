# SPDX-License-Identifier: Apache-2.0
"""Programs of the distribution and of the registries, for real.py: each repeats a fixed piece of
work until it is ended."""
import os
from dataclasses import dataclass

ASSEMBLY, SHORT, JIT, OTHER = ("assembly without CFI", "processes of milliseconds", "JIT",
                               "other programs")
NUMBA = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                     "podflame/tools/numba/bin/python")
PG = "/usr/lib/postgresql/15/bin"


@dataclass
class Program:
    """Shell commands, which run in a folder of their own with WORDS in their environment: `prepare`
    runs once, `unit` is repeated for ever. The last command of each must not fail."""

    name: str
    kind: str
    unit: str
    prepare: str = "true"
    needs: tuple = ()
    settle_s: float = 2         # so long it runs before a recording
    delay_s: float = 2          # after which record has read what the node would know already
    exceptions: tuple = ()      # (regular expression for an end of stacks, why nothing is proven)
    least: float = 0.99         # so many of its stacks are whole, or end in an exception
    sample: bool = False        # runs in `make test`
    language: str = "real"      # all the other parts of the report name one


# ---- inputs ----

TEXT = """python3 - <<'END'
import random
random.seed(7)
words = [''.join(random.choices('etaoinshrdlu', k=random.randint(2, 9))) for _ in range(5000)]
with open('text', 'w') as f:
    for _ in range(200000):
        f.write(' '.join(random.choices(words, k=10)) + '\\n')
END
"""
IMAGE = """python3 - <<'END'
w, h = 2400, 1600
line = [bytes((x * y >> 5) & 255 for x in range(3 * w)) for y in range(64)]
with open('in.ppm', 'wb') as f:
    f.write(b'P6\\n%d %d\\n255\\n' % (w, h) + b''.join(line[y * 7 & 63] for y in range(h)))
END
cjpeg -outfile in.jpg in.ppm
"""
C_PROJECT = """python3 - <<'END'
names = [f'part{i}' for i in range(40)]
for i, name in enumerate(names):
    with open(name + '.c', 'w') as f:
        f.write('#include <math.h>\\n#include <stdio.h>\\n#include <stdlib.h>\\n'
                '#include <string.h>\\n#include <pthread.h>\\n#include <sys/socket.h>\\n')
        for k in range(25):
            f.write(f'''
struct s{k} {{ int n; double x[{k + 1}]; char name[16]; }};
double {name}_{k}(struct s{k} *s, int n) {{
    double sum = 0;
    for (int i = 0; i < n; i++) {{
        s->x[i % {k + 1}] += sin(i * {i}.5) + strlen(s->name);
        if (i % {k + 2} == 0) sum += s->x[0] * n; else sum -= s->n;
        switch (i & 3) {{ case 0: s->n++; break; case 1: sum *= 2; break; default: s->n ^= i; }}
    }}
    return sum;
}}
''')
with open('main.c', 'w') as f:
    f.write('int main(void) { return 0; }\\n')
with open('Makefile', 'w') as f:
    objects = ' '.join(name + '.o' for name in ['main'] + names)
    f.write(f'program: {objects}\\n\\t$(CC) -o $@ $^ -lm\\n%.o: %.c\\n\\t$(CC) -O2 -c -o $@ $<\\n')
END
"""
# A program and four libraries, each in a crate of its own.
CARGO = """python3 - <<'END'
import os
PARTS = range(4)
def crate(folder, name, more, file, end):
    os.makedirs(folder + '/src')
    with open(folder + '/Cargo.toml', 'w') as f:
        f.write(f'[package]\\nname = "{name}"\\nversion = "0.1.0"\\nedition = "2021"\\n{more}')
    with open(f'{folder}/src/{file}', 'w') as f:
        f.write('use std::collections::HashMap;\\n')
        for i in range(120):
            f.write(f'''
#[derive(Debug, Clone, Default)]
pub struct S{i} {{ a: Vec<u64>, b: HashMap<String, u64>, c: Option<String> }}
impl S{i} {{
    pub fn work(&mut self, n: u64) -> u64 {{
        for k in 0..n {{
            self.a.push(k * {i});
            *self.b.entry(format!("{{}}-{i}", k % 7)).or_default() += k;
        }}
        self.c = self.b.keys().max().cloned();
        self.a.iter().filter(|x| **x % 3 == 0).map(|x| x + 1).sum::<u64>() + self.b.len() as u64
    }}
}}
''')
        f.write(end)
work = ''.join(f'n += S{i}::default().work(100);\\n' for i in range(120))
crate('work', 'work', '[workspace]\\nmembers = ["part*"]\\n[dependencies]\\n'
      + ''.join(f'part{k} = {{ path = "part{k}" }}\\n' for k in PARTS), 'main.rs',
      'fn main() { let mut n = 0;\\n' + work + 'println!("{}", n); }\\n')
for k in PARTS:
    crate(f'work/part{k}', f'part{k}', '', 'lib.rs',
          'pub fn all() -> u64 { let mut n = 0;\\n' + work + 'n }\\n')
END
"""
JAVA = """python3 - <<'END'
for i in range(60):
    with open(f'Part{i}.java', 'w') as f:
        f.write(f'import java.util.*;\\nimport java.util.stream.*;\\npublic class Part{i} {{\\n')
        for k in range(20):
            f.write(f'''static Map<String, List<Integer>> m{k}(int n) {{
    return IntStream.range(0, n).boxed().filter(x -> x % {k + 2} == 0)
        .collect(Collectors.groupingBy(x -> "k" + x % {i + 3}, TreeMap::new, Collectors.toList()));
}}
''')
        f.write('}\\n')
END
"""
# Loops for ever: counts, multiplies, and calls.
GUEST = """python3 - <<'END'
code = bytes([
    0x31, 0xc0,                 # xor %ax, %ax
    0x31, 0xc9,                 # xor %cx, %cx
    # again:
    0x40,                       # inc %ax
    0x01, 0xc1,                 # add %ax, %cx
    0xe8, 0x02, 0x00,           # call below
    0xeb, 0xf8,                 # jmp again
    # below:
    0xf7, 0xe1,                 # mul %cx
    0x66, 0xc1, 0xc0, 0x07,     # rol $7, %eax
    0xc3,                       # ret
])
open('boot', 'wb').write(code.ljust(510, b'\\0') + b'\\x55\\xaa')
END
"""
POSTGRES = """chown postgres . && runuser -u postgres -- $PG/initdb -A trust -N data >/dev/null
cat >query.sql <<'END'
select sum(abalance * 2 + bid), count(*) from pgbench_accounts where aid % 7 < 5 and bid < 100;
END
"""
POSTGRES_RUN = """rm -f data/postmaster.pid
runuser -u postgres -- $PG/postgres -D data -k "$PWD" -h '' -c jit_above_cost=0 \
    -c jit_inline_above_cost=0 -c jit_optimize_above_cost=0 -c max_parallel_workers=0 &
until runuser -u postgres -- $PG/psql -h "$PWD" -c 'select 1'; do sleep 0.2; done
runuser -u postgres -- $PG/pgbench -h "$PWD" -i -q -s 3 postgres
runuser -u postgres -- $PG/pgbench -h "$PWD" -n -c 1 -T 600 -f query.sql postgres
"""
NGINX = """openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 3650 -subj /CN=x \
    2>/dev/null
head -c 100000 /dev/urandom >page
cat >nginx.conf <<'END'
daemon off; master_process on; worker_processes 1; pid nginx.pid; error_log stderr crit;
user root;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:18443 ssl;
        ssl_certificate cert; ssl_certificate_key key;
        gzip on; gzip_types application/octet-stream; gzip_min_length 1; root .;
    }
}
END
"""
JS = """cat >work.js <<'END'
class Shape { constructor(n) { this.n = n; } area() { return this.n * 2; } }
class Square extends Shape { area() { return this.n * this.n; } }
function work() {
    const rows = [];
    for (let i = 0; i < 20000; i++) rows.push({id: i, name: `row ${i}`, tags: ["a", "b" + i % 7]});
    const back = JSON.parse(JSON.stringify(rows)).filter(r => /row \\d*7/.test(r.name));
    const sum = back.map(r => new (r.id % 2 ? Shape : Square)(r.id).area()).reduce((a, b) => a + b);
    return sum + rows.sort((a, b) => a.name < b.name ? 1 : -1).length;
}
for (;;) work();
END
"""
PYTHON = r"""cat >work.py <<'END'
import json, re, zlib
while True:
    rows = [{'id': i, 'name': f'row {i}'} for i in range(20000)]
    text = json.dumps(rows)
    back = json.loads(text)
    n = len(re.findall(r'row (\d*7)"', text))
    back.sort(key=lambda r: r['name'])
    zlib.compress(text.encode())
END
"""
PHP = """cat >work.php <<'END'
<?php
for (;;) {
    $n = 0;
    for ($i = 0; $i < 2000; $i++) {
        $s = "user$i@example.org, the quick brown fox $i " . str_repeat("ab1 ", 40);
        $n += preg_match('/(\\\\w+)@(\\\\w+\\\\.)+org.*?(\\\\d+)/', $s);
        $n += preg_match_all('/(?:(a|b)+\\\\d\\\\s){2,}|[xyz]+$/', $s);
        $s = preg_replace_callback('/q(u)(i)ck/', fn($m) => strrev($m[0]), $s);
        $n += count(explode(" ", $s)) + strlen(md5($s));
    }
}
END
"""

# What the commands may use, in their environment.
WORDS = {
    "PG": PG,
    "VIDEO": "ffmpeg -v error -y -f lavfi -i testsrc2=size=1280x720:rate=30",
    "ENCODE": "ffmpeg -v error -f lavfi -i testsrc2=size=1280x720:rate=30 -t 20 -threads 2",
    "DECODE": "ffmpeg -v error -threads 2",
}

PROGRAMS = [
    # ---- assembly without CFI ----
    Program("x264", ASSEMBLY, "$ENCODE -c:v libx264 -f null -", needs=("ffmpeg",)),
    Program("x265", ASSEMBLY, "$ENCODE -c:v libx265 -x265-params log-level=none -f null -",
            needs=("ffmpeg",)),
    Program("vp9", ASSEMBLY, "$ENCODE -c:v libvpx-vp9 -deadline realtime -cpu-used 5 -f null -",
            needs=("ffmpeg",)),
    Program("h264", ASSEMBLY, "$DECODE -i in.mp4 -f null -",
            "$VIDEO -t 10 -c:v libx264 -preset fast in.mp4", ("ffmpeg",)),
    Program("swscale", ASSEMBLY, "$ENCODE -vf scale=640:360,format=rgb24 -f null -",
            needs=("ffmpeg",)),
    Program("dav1d", ASSEMBLY, "dav1d -q --threads 2 -i in.ivf --muxer null -o /dev/null",
            "$VIDEO -t 4 -c:v libsvtav1 -preset 10 in.ivf", ("ffmpeg", "dav1d")),
    Program("jpeg", ASSEMBLY, "for i in 1 2 3 4; do djpeg -outfile out.ppm in.jpg && "
            "cjpeg -outfile out.jpg out.ppm; done", IMAGE, ("cjpeg", "djpeg"), least=0.80,
            sample=True),
    Program("numpy", ASSEMBLY, "OPENBLAS_NUM_THREADS=2 /usr/bin/python3 work.py",
            "cat >work.py <<'END'\nimport numpy\nnumpy.random.seed(1)\n"
            "a = numpy.random.rand(700, 700)\nfor _ in range(100):\n    b = a @ a\n"
            "    c = numpy.linalg.solve(a, b[:, :50])\n    d = numpy.sort(b.ravel()) + 1\nEND",
            ("/usr/lib/python3/dist-packages/numpy",)),
    Program("openssl", ASSEMBLY, "for a in sha256 aes-128-cbc aes-256-gcm chacha20-poly1305; do "
            "openssl speed -seconds 1 -bytes 16384 -evp $a; done; "
            "openssl speed -seconds 1 rsa2048 ecdhx25519", needs=("openssl",)),
    Program("nettle", ASSEMBLY, "for a in sha256 sha512 md5 sha3_256; do "
            "head -c 100M /dev/zero | nettle-hash -a $a; done", needs=("nettle-hash",)),
    Program("gpg", ASSEMBLY, "for a in SHA1 SHA256 SHA512; do gpg --homedir . --print-md $a text; "
            "done", TEXT, ("gpg",)),
    Program("gmp", ASSEMBLY, "factor 340282366920938463463374607431768211457 "
            "115792089237316195423570985008687907853", needs=("factor",)),
    Program("nginx", ASSEMBLY, "nginx -p \"$PWD\" -c nginx.conf & sleep 0.5; "
            "wrk -t 1 -c 8 -d 600 https://127.0.0.1:18443/page", NGINX, ("nginx", "wrk")),
    # ---- processes of milliseconds ----
    Program("openssl_version", SHORT, "exec 3<> <(:); while :; do openssl version; "
            "read -rt 0.008 -u 3; done", needs=("openssl",), least=0.95, sample=True),
    Program("gcc", SHORT, "rm -f *.o program; make -s -j2 CC=/usr/bin/gcc", C_PROJECT,
            ("/usr/bin/gcc", "make")),
    Program("shell", SHORT, "for i in {1..100}; do x=$(echo $i | sed s/1/2/); [ \"$x\" ] && "
            "date +%s | grep -c 9; done; true"),
    Program("gs", SHORT, "gs -q -dNOPAUSE -dBATCH -sDEVICE=ppmraw -r50 -sOutputFile=/dev/null "
            "in.ps", "cat >in.ps <<'END'\n%!\n/Times-Roman findfont 20 scalefont setfont\n"
            "1 1 20 { /i exch def 50 i 30 mul moveto (Hello, world) show\n"
            "i 10 mul 100 50 0 360 arc stroke } for showpage\nEND", ("gs",)),
    Program("cargo", SHORT, "touch work/part*/src/lib.rs work/src/main.rs; cargo build -q "
            "--offline --manifest-path work/Cargo.toml", CARGO, ("cargo",), delay_s=16),
    Program("rustc", SHORT, "rustc -O -o out work/src/main.rs", CARGO, ("rustc",), delay_s=16),
    # Go's compiler recurses: some of its stacks have more than the 512 frames of a sample.
    Program("go_build", SHORT, "GOCACHE=$PWD/cache GOFLAGS=-p=2 go build -a net/http",
            needs=("go",), least=0.94),
    # ---- JITs ----
    Program("qemu", JIT, "exec qemu-system-x86_64 -accel tcg -display none -nodefaults -m 16 "
            "-drive file=boot,format=raw", GUEST, ("qemu-system-x86_64",), least=0,
            sample=True),
    Program("postgres", JIT, POSTGRES_RUN, POSTGRES, (f"{PG}/postgres", f"{PG}/pgbench"), 20),
    Program("numba", JIT, f"exec {NUMBA} work.py", "cat >work.py <<'END'\nimport numba\n"
            "@numba.njit\ndef steps(n):\n    k = 0\n    while n != 1:\n"
            "        n = n // 2 if n % 2 == 0 else 3 * n + 1\n        k += 1\n    return k\n"
            "@numba.njit\ndef longest(n):\n    best = 0\n    for i in range(1, n):\n"
            "        best = max(best, steps(i))\n    return best\n"
            "while True:\n    longest(200000)\nEND", (NUMBA,), settle_s=15),
    Program("php", JIT, "exec php work.php", PHP, ("php",)),
    Program("node", JIT, "exec node work.js", JS, ("node",)),
    Program("grep", JIT, "grep -cP '(\\w+)n(e|t)+ (?=\\w*s)|^(?:[a-e]+ )+\\w$' text", TEXT,
            ("grep",)),
    Program("git_grep", JIT, "git grep -c -P '(\\w+)n(e|t)+ (?=\\w*s)|^(?:[a-e]+ )+\\w$' -- text",
            TEXT + "git init -q . && git add text", ("git",)),
    Program("luajit", JIT, "exec luajit work.lua", "cat >work.lua <<'END'\nwhile true do\n"
            "  local t = {}\n  for i = 1, 20000 do t[i] = (i * 7919) % 10007 end\n"
            "  table.sort(t)\n  local s = {}\n  for i = 1, 2000 do s[i] = tostring(t[i]) end\n"
            "  local n = select(2, table.concat(s):gsub('1%d', '%0x'))\nend\nEND", ("luajit",)),
    Program("pypy", JIT, "exec pypy3 work.py", PYTHON, ("pypy3",)),
    Program("javac", JIT, "javac -d out *.java", JAVA, ("javac",)),
    # ---- others ----
    Program("7z", OTHER, "rm -f out.7z; 7z a -bd -mmt2 out.7z text", TEXT, ("7z",)),
    Program("xz", OTHER, "xz -T2 -kfc text", TEXT, ("xz",)),
    Program("zstd", OTHER, "zstd -q -15 -T2 -fo out.zst text && zstd -q -dfo out out.zst", TEXT,
            ("zstd",)),
    Program("sqlite3", OTHER, "rm -f db; sqlite3 db \"create table t (a, b); "
            "with recursive c(x) as (select 1 union all select x + 1 from c limit 300000) "
            "insert into t select x, hex(x * 7) from c; create index i on t(b); "
            "select count(*), max(a) from t where b like '%3%' group by substr(b, 1, 3)\"",
            needs=("sqlite3",)),
    Program("perl", OTHER, "perl -ne 'BEGIN { my %n; } $n{$1}++ while /(\\w*ta\\w*)/g; s/e+/x/g; "
            "END { print scalar(sort keys %n) }' text", TEXT, ("perl",)),
    Program("ruby", OTHER, "exec ruby -e 'loop { a = (1..20000).map { |i| (i * 7919 % 10007)."
            "to_s }; a.sort.group_by { |s| s[0] }.map { |k, v| k + v.join }.join.gsub(/1\\d/)"
            " { |m| m.upcase } }'", needs=("ruby",)),
    Program("python", OTHER, "exec /usr/bin/python3 work.py", PYTHON),
    Program("redis", OTHER, "redis-server --port 0 --unixsocket s --save '' & sleep 0.5; "
            "redis-benchmark -s s -q -l -c 8 -t set,get,lpush,zadd -r 10000",
            needs=("redis-server", "redis-benchmark")),
    Program("bc", OTHER, "echo 'scale=1500; 4*a(1)' | bc -l", needs=("bc",)),
    Program("clang", OTHER, "for f in part?.c; do /usr/bin/clang -O2 -c -o out.o $f; done",
            C_PROJECT, ("/usr/bin/clang",), delay_s=8),
    Program("sort", OTHER, "sort --parallel=2 -o out text; sort -u text | tr a-m n-z | wc",
            TEXT),
    Program("java", OTHER, "exec java -Xmx256m Work.java", "cat >Work.java <<'END'\n"
            "import java.util.*;\nimport java.util.regex.*;\nimport java.util.stream.*;\n"
            "public class Work { public static void main(String[] a) { for (;;) {\n"
            "  var m = IntStream.range(0, 20000).mapToObj(i -> \"row \" + i * 7919 % 10007)\n"
            "    .sorted().collect(Collectors.groupingBy(s -> s.length()));\n"
            "  var p = Pattern.compile(\"row (\\\\d*7)\").matcher(m.toString());\n"
            "  int n = 0; while (p.find()) n++;\n} } }\nEND", ("java",)),
]

