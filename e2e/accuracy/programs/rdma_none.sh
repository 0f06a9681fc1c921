#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdma_none: runs Debian's programs for RDMA on a machine without an RDMA device. While podflame
# profiles, they must fail as before. The protocol is that of told.h.
set -eu
told=$1 rounds=$2
results() { # what the programs print, and their statuses
    local program
    for program in ibv_devices ibv_devinfo ib_send_bw ib_write_lat; do
        $program 2>&1 && echo "$program: 0" || echo "$program: $?"
    done
}
right=$(results)
if ! grep -q 'ib_send_bw: [1-9]' <<<"$right"; then
    echo "rdma_none: this machine has an RDMA device" >&2
    exit 1
fi
echo ready
read -r _
for ((n = 0; n < rounds; n++)); do
    now=$(results)
    if [ "$now" != "$right" ]; then
        printf 'rdma_none: before:\n%s\nnow:\n%s\n' "$right" "$now" >&2
        exit 1
    fi
done
echo "rdma:send ib_send_bw 0" >"$told"
echo "done"
read -r _ || true
