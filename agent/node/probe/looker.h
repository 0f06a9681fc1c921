/* SPDX-License-Identifier: Apache-2.0 */
/*
 * looker: gives thinned waits that go on a stack, from when on they count whole (bpf/offcpu_walk.bpf.c).
 * It reads memory of other processes, which may block: so it does that in a thread of its own.
 */
#pragma once

#include "node/probe/internal.h"

struct looker;

/* offcpu: its object, whose waits these are; it stays until the looker is freed. */
int probes_looker_new(struct probes *p, struct bpf_object *offcpu, struct looker **ret);
struct looker *probes_looker_free(struct looker *l);

/* Looks once more, now; returns when that is done, or at once while an earlier look is late. */
void probes_looker_look(struct looker *l);
