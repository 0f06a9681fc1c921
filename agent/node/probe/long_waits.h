/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long_waits: if waits are thinned (only a random part of them is kept), gives a stack to each wait
 * that goes on. From then on such a wait is counted as bpf/offcpu_walk.bpf.c describes. To read the
 * stack, it reads memory of other processes. That may block, so it has its own thread.
 */
#pragma once

#include "node/probe/internal.h"

struct long_waits;

/*
 * offcpu: the object whose maps have the waits. It must exist as long as the result does. Returns
 * -errno if the kernel or the machine lacks something.
 */
int probes_long_waits_new(struct probes *p, struct bpf_object *offcpu, struct long_waits **ret);
struct long_waits *probes_long_waits_free(struct long_waits *l);

/*
 * Makes the thread look at the waits once more now, and returns when the thread is done, or after
 * half a second. If an earlier look has taken longer than that and is not done yet, returns at
 * once.
 */
void probes_long_waits_look(struct long_waits *l);
