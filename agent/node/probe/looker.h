/* SPDX-License-Identifier: Apache-2.0 */
/*
 * looker: gives a stack to thinned waits that go on; from then on they count whole
 * (bpf/offcpu_walk.bpf.c). It reads memory of other processes, which may block, so it does that in
 * its own thread.
 */
#pragma once

#include "node/probe/internal.h"

struct looker;

/*
 * offcpu: the object that has the waits; it must stay until the looker is freed. -errno: the kernel
 * or the machine lacks something.
 */
int probes_looker_new(struct probes *p, struct bpf_object *offcpu, struct looker **ret);
struct looker *probes_looker_free(struct looker *l);

/*
 * Looks once more now, and returns when that is done. While an earlier look is late, it returns at
 * once.
 */
void probes_looker_look(struct looker *l);
