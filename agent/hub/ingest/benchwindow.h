/* SPDX-License-Identifier: Apache-2.0 */
/* For benchmarks only: a window of a node with 20 pods, as its agent sends it. */
#pragma once

#include "lib/base/bench.h"
#include "lib/profile/profile.h"

#define PODS_A_NODE   20
#define WINDOW_FRAMES 37 /* of a stack */

/* Pods share the first half of their stacks' frames, as programs share libraries and loops. */
static inline void window_stack(struct batch *b, struct profile *p, unsigned pod, unsigned stack)
{
	struct frame frames[WINDOW_FRAMES];
	struct profile_sample *s = profile_add(b, p);

	for (unsigned i = 0; i < WINDOW_FRAMES; i++) {
		const bool shared = i < WINDOW_FRAMES / 2;
		const uint64_t key[] = {shared ? 0 : pod, shared ? 0 : stack, i};
		char name[64];

		snprintf(name, sizeof(name), "program::part::function_%u",
			 (unsigned)(hash_bytes(key, sizeof(key), 1) % 4000));
		frames[i] = (struct frame){.kind = FRAME_APP,
					   .name = profile_batch_str(b, name),
					   .module = "/usr/bin/program"};
	}
	if (profile_batch_stack(b, frames, WINDOW_FRAMES, &s->stack))
		bench_die("a stack", ENOMEM);
	s->thread_comm = profile_batch_str(b, "worker");
	s->cpu = -1;
	s->n_samples = 1 + stack % 7;
	s->value = (int64_t)s->n_samples * 10101;
}

/* The profile of a pod; it ends at this second. */
static inline void window_profile(struct batch *b, unsigned pod, unsigned n_stacks, uint64_t end_s)
{
	struct profile *p = profile_batch_profile(b);
	char name[32];

	random_bytes(p->id, sizeof(p->id));
	p->end_ns = end_s * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	snprintf(name, sizeof(name), "service-%u", pod);
	p->app_service = profile_batch_str(b, name);
	p->process_id = pod + 1;
	profile_tag(b, p, "pod", name);
	profile_tag(b, p, "pod_ns", "app");
	profile_tag(b, p, "pod_node", "node-1");
	for (unsigned i = 0; i < n_stacks; i++)
		window_stack(b, p, pod, i);
}
