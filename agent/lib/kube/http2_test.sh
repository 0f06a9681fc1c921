#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# http2_test.sh: the tests of the watch and of requests once more, with a server that speaks HTTP/2
# (agent/lib/loop/testserver_http2.h). Prints what they print, which .ci/test adds up.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../../.." || exit 1
status=0
for t in kube watch_stream watch_list watch_errors watch_conn backoff reconnect; do
    TS_HTTP2=1 "${BUILD:-build}/agent/lib/kube/${t}_test" 2>&1 || status=1
done
exit $status
