#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pid_namespace_test: runs some tests of node/probe once more in a PID namespace of their own, as
# an agent has one on a node of kind or k3d: those that read the kernel's tables, whose keys are
# PIDs of the initial namespace, and a sample of the others.
set -u
dir=${BUILD:-build}/agent/node/probe
own=(unshare --pid --fork --mount-proc --kill-child)
if ! "${own[@]}" true 2>/dev/null; then
	echo "skip: no PID namespace can be made here"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
status=0
while read -r name pattern; do
	"${own[@]}" "$dir/$name" ${pattern:+"$pattern"} </dev/null || status=1
done <<'TESTS'
unwind_kernel_test who_is_*
offcpu_ends_test an_end_*
offcpu_ends_test who_execs_*
offcpu_ends_test threads_beyond_*
offcpu_ends_test a_reused_*
probe_test known_shares_*
oncpu_test
TESTS
exit $status
