/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and benchmarks: a store with a profile of many stacks, so that answers are large. */
#pragma once

#include "hub/store/store.h"

#define TEST_NAME_BYTES 256 /* of the name of a frame, with its NUL */
struct test_stacks {
	unsigned n, depth; /* depth: frames of each */
	/* Writes the name of a frame. */
	void (*name)(unsigned stack, unsigned frame, char ret[static TEST_NAME_BYTES]);
};

/* Returns 0 or a negative errno. */
static inline int test_stacks_add(struct batch *b, const struct test_stacks *t, struct profile *p)
{
	_cleanup_free_ struct frame *frames = xcalloc(t->depth, sizeof(*frames));
	int r = 0;

	for (unsigned i = 0; i < t->n && r == 0; i++) {
		struct profile_sample *sample = profile_add(b, p);

		for (unsigned k = 0; k < t->depth; k++) {
			char name[TEST_NAME_BYTES];

			t->name(i, k, name);
			frames[k] = (struct frame){.kind = FRAME_APP,
						   .name = profile_batch_str(b, name)};
		}
		sample->cpu = -1;
		sample->value = (int64_t)(sample->n_samples = 1);
		r = profile_batch_stack(b, frames, t->depth, &sample->stack);
	}
	return r;
}

/* Writes one profile of on-cpu of the application "api". Returns 0 or a negative errno. */
static inline int test_stacks_write(struct store *s, uint64_t end_ns, const struct test_stacks *t)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	size_t n_new;
	int r;

	p->event = EVENT_ON_CPU;
	p->end_ns = end_ns;
	p->start_ns = end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "api");
	r = test_stacks_add(b, t, p);
	if (r == 0)
		r = store_write(s, b, &n_new);
	profile_batch_free(b);
	return r;
}
