/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: a profile of another profiler. The first byte chooses what the sender says beside it.
 * An accepted profile must keep within the limits, and a refusal must name its place.
 * Fuzzes: decode.c, types.c, stacks.c, samples.c, wire.c
 */
#include "lib/pprof/pprof.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(bool ok)
{
	if (!ok)
		__builtin_trap();
}

static int tag_label(struct batch *b, struct profile *p, const char *key, const char *value,
		     void *arg, struct field_error *reterr)
{
	(void)arg;
	(void)reterr;
	profile_tag(b, p, key, value);
	return 0;
}

static void check_sample(const struct batch *b, const struct profile_sample *s)
{
	check(s->stack == STACK_NONE || s->stack < b->n_stacks);
	check(s->link <= b->n_links);
	check(s->value > 0 && s->value <= PROFILE_MAX_VALUE && s->n_samples);
}

static void check_batch(const struct batch *b)
{
	check(b->n_profiles <= PPROF_MAX_SETS * PPROF_MAX_TYPES);
	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		check(profile_event_info(p->event)->name && p->end_ns > p->start_ns);
		check(p->tags.n <= PPROF_MAX_LABELS);
		for (size_t j = 0; j < p->n_samples; j++)
			check_sample(b, &p->samples[j]);
	}
	for (size_t i = 0; i < b->n_stacks; i++)
		check(b->stacks[i].n && b->stacks[i].n <= STACK_MAX_FRAMES);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const char *const names[] = {"", "process_cpu", "mutex", "block"};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	const struct pprof_type said = {"delay", "mutex_duration", n && p[0] & 4};
	struct pprof_from from = {
		.path = "profile", .id = "id", .app_service = "app", .label = tag_label};
	struct field_error err = {0};

	if (!n)
		return 0;
	from.name = names[p[0] & 3];
	from.sample_rate = p[0] & 8 ? 100 : 0;
	from.types = &said;
	from.n_types = 1;
	if (pprof_decode(b, p + 1, n - 1, &from, &err) == 0)
		check_batch(b);
	else
		check(err.path[0] && err.reason[0]);
	return 0;
}
