#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cases.sh TEST...: writes docs/watch-cases.md: each case of cases.txt with the tests that have its
#   number in their names, and how they ended. TEST is a test program, which is run (with LONG=1 all
#   of it), or the log of one. `make watch-cases` calls it.
# cases.sh --names: prints case and test, a line each, as the sources have them.
# cases.sh --names-of FILE: the same, as that page has them. .ci/check-watch-cases compares the two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
list=agent/lib/kube/cases.txt

numbers() { # test names -> "NN name", a line for each number in a name
    awk '{
        n = split($1, part, "_")
        for (i = 1; i <= n; i++)
            if (part[i] ~ /^[0-9][0-9]$/ && part[i] + 0 >= 1 && part[i] + 0 <= 64)
                print part[i] + 0, $1
    }'
}
names() {
    sed -nE 's/.*(cmocka_unit_test|[^A-Z_a-z]T)\(([a-z0-9_]+)\).*/\2/p
        s/^\t\{"(watch_[a-z0-9_]+)",$/\1/p' agent/lib/kube/*_test.c agent/lib/loop/*_test.c |
        numbers | sort -u
}
names_of() {
    sed -nE 's/^\| ([0-9]+) \|[^|]*\| (.*) \|[^|]*\|$/\1 \2/p' "$1" | awk '{
        for (i = 2; i <= NF; i++)
            if (gsub(/`/, "", $i)) {
                sub(/,$/, "", $i)
                print $1, $i
            }
    }' | sort -u
}
case ${1:-} in
--names) names; exit ;;
--names-of) names_of "$2"; exit ;;
"") echo "usage: cases.sh TEST..." >&2; exit 2 ;;
esac

results=$(mktemp)
trap 'rm -f "$results"' EXIT
for t; do
    if [ -x "$t" ]; then timeout 3600 "$t" 2>&1 || true; else cat "$t"; fi
done | sed -nE 's/^\[ +(OK|FAILED|SKIPPED) +\] ([a-z0-9_]+)$/\2 \1/p' | sort -u >"$results"

page() {
    cat <<'END'
# The cases of the watch

Who needs this page: developers who change the watch of the API server, and reviewers who want to
see which case is tested by what.

`LONG=1 make watch-cases` makes it from `agent/lib/kube/cases.txt` and the results of the tests in
`agent/lib/kube` and `agent/lib/loop`; do not edit it. A test belongs to the cases whose numbers are
in its name. A test whose name ends in `_long` or begins with `server_` (a real API server) runs
only with `LONG=1`. [Watching the API server](watch.md) says what the client does in each case.

| Nr. | Case | Tests | Result |
| ---: | --- | --- | --- |
END
    awk -F'|' 'FILENAME == ARGV[1] {split($0, r, " "); ended[r[1]] = r[2]; next}
        FILENAME == "-" {split($0, t, " "); tests[t[1]] = tests[t[1]] " " t[2]; next}
        /^#/ {next}
        {
            n = split(tests[$1], t, " ")
            all = ""; failed = ""; notrun = ""
            for (i = 1; i <= n; i++) {
                all = all (i > 1 ? ", " : "") "`" t[i] "`"
                if (!(t[i] in ended) || ended[t[i]] == "SKIPPED") notrun = notrun " `" t[i] "`"
                else if (ended[t[i]] != "OK") failed = failed " `" t[i] "`"
            }
            result = n == 0 ? "" : "passed"
            if (notrun != "") result = "passed, not run:" notrun
            if (failed != "") result = "**failed**:" failed
            if ($3 != "") result = result (result != "" ? ". " : "") $3
            printf "| %s | %s | %s | %s |\n", $1, $2, all, result
        }' "$results" - "$list" < <(names)
}
page >docs/watch-cases.md
awk -F'|' '
    /^\| [0-9]/ {n++; if ($4 ~ /`/) t++; if ($5 ~ /failed/) f++}
    END {
        printf "%d cases, %d with a test, %d failed\n", n, t, f
        exit f > 0
    }' docs/watch-cases.md
