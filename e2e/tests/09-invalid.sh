#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# (9) The API server refuses invalid objects and names the field: the table of .ci/check-crd-server.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cat >"$W/kubectl" <<END
#!/bin/sh
exec nsenter --net=/run/netns/$NETNS -- \\
    $TK_BIN/testkube kubectl --kubeconfig $TK_DIR/admin.kubeconfig "\$@"
END
chmod +x "$W/kubectl"
if KUBECTL="$W/kubectl" "$REPO/.ci/check-crd-server" >"$W/table" 2>&1; then
    ok "the table of refused objects: $(tail -1 "$W/table")"
else
    fail "the table of refused objects"
    tail -40 "$W/table"
fi
namespace invalid
try() { # WHAT FIELD SPEC
    if target invalid bad "$3" 2>"$W/err"; then
        fail "$1 is accepted"
    else
        check "$1 is refused, and the error names $2" grep -q "$2" "$W/err"
    fi
}
try "a target without podSelector" 'spec.podSelector' '{"events": {"onCpu": {}}}'
try "sampleHz 0" 'spec.events.onCpu.sampleHz' \
    '{"podSelector": {}, "events": {"onCpu": {"sampleHz": 0}}}'
try "a field that does not exist yet" 'spec.events.gpu' \
    '{"podSelector": {}, "events": {"onCpu": {}, "gpu": {}}}'
