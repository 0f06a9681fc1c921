/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long_waits: gives a stack to thinned waits that go on; from then on they count whole
 * (bpf/offcpu_walk.bpf.c). It reads memory of other processes, which may block, so it does that in
 * its own thread.
 */
#pragma once

#include "node/probe/internal.h"

struct long_waits;

/*
 * offcpu: the object that has the waits; it must outlive the result. -errno: the kernel
 * or the machine lacks something.
 */
int probes_long_waits_new(struct probes *p, struct bpf_object *offcpu, struct long_waits **ret);
struct long_waits *probes_long_waits_free(struct long_waits *l);

/*
 * Looks once more now, and returns when that is done. While an earlier look is late, it returns at
 * once.
 */
void probes_long_waits_look(struct long_waits *l);
