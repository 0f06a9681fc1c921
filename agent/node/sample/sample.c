// SPDX-License-Identifier: Apache-2.0
/*
 * This file creates, sorts and frees drains, finds their items by hash, and
 * makes text of labels. It runs no thread and reads nothing from the kernel.
 */
#include "node/sample/sample.h"

#include <stddef.h>
#include <stdlib.h>

#include "lib/symbols/symbols.h"

struct drain *sample_drain_new(size_t frame_bytes_max)
{
	struct drain *d = xcalloc(1, sizeof(*d));

	d->memory = xcalloc(1, sizeof(*d->memory));
	buf_init(d->memory, frame_bytes_max);
	return d;
}

struct drain *sample_drain_free(struct drain *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n_cgroups; i++)
		free(d->cgroups[i].path);
	for (size_t i = 0; i < d->n_young; i++)
		free(d->young[i].frames);
	free(d->young);
	free(d->samples);
	free(d->totals);
	free(d->stacks);
	free(d->names);
	free(d->contexts);
	free(d->texts);
	free(d->procs);
	free(d->cgroups);
	free(d->refused);
	profile_losses_done(&d->lost);
	profile_losses_done(&d->lost_records);
	buf_done(d->memory);
	free(d->memory);
	free(d);
	return NULL;
}

static int by_hash(const void *a, const void *b)
{
	/* hash is the first member of all these structs */
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}
_Static_assert(offsetof(struct raw_stack, hash) == 0, "by_hash");
_Static_assert(offsetof(struct raw_names, hash) == 0, "by_hash");
_Static_assert(offsetof(struct raw_context, hash) == 0, "by_hash");
_Static_assert(offsetof(struct raw_text, hash) == 0, "by_hash");

/* Sorts the items, keeps one of each hash, and returns how many it has kept. */
static size_t sort_unique(void *items, size_t n, size_t size)
{
	char *base = items;
	size_t kept = 0;

	if (!n)
		return 0;
	qsort(items, n, size, by_hash);
	for (size_t i = 1; i < n; i++)
		if (by_hash(base + i * size, base + kept * size)) {
			kept++;
			memmove(base + kept * size, base + i * size, size);
		}
	return kept + 1;
}

size_t sample_drain_sort(struct drain *d)
{
	size_t before = d->n_stacks + d->n_names + d->n_contexts + d->n_texts;

	d->n_stacks = sort_unique(d->stacks, d->n_stacks, sizeof(*d->stacks));
	d->n_names = sort_unique(d->names, d->n_names, sizeof(*d->names));
	d->n_contexts = sort_unique(d->contexts, d->n_contexts, sizeof(*d->contexts));
	d->n_texts = sort_unique(d->texts, d->n_texts, sizeof(*d->texts));
	return before - d->n_stacks - d->n_names - d->n_contexts - d->n_texts;
}

void sample_drain_link_frames(struct drain *d)
{
	for (size_t i = 0; i < d->n_stacks; i++) {
		struct raw_stack *s = &d->stacks[i];

		s->frames = (const struct raw_frame *)(d->memory->data + (uintptr_t)s->frames);
	}
}

void sample_drain_lose_records(struct drain *d, const char *reason, uint64_t n)
{
	counter_add(counter("podflame_records_dropped_total", "reason", reason), n);
	profile_losses_add(&d->lost_records, 0, reason, n);
}

uint64_t sample_since_ns(const struct raw_sample *s)
{
	return profile_event_info(s->event)->snapshot ? s->oldest_ns : s->first_ns;
}

uint64_t sample_walked_ns(const struct drain *d, const struct raw_sample *s)
{
	uint64_t since_ns = sample_since_ns(s);

	if (s->event == EVENT_RDMA_LATENCY || s->event == EVENT_ON_GPU)
		return 0;
	if (s->event != EVENT_OFF_CPU)
		return since_ns;
	/* the parts of a wait that began before the drain begin with the drain */
	since_ns -= MIN(since_ns, s->value * 1000);
	return since_ns > d->from_ns ? since_ns : 0;
}

static const void *find(uint64_t hash, const void *items, size_t n, size_t size)
{
	return n ? bsearch(&hash, items, n, size, by_hash) : NULL;
}

const struct raw_stack *sample_drain_stack(const struct drain *d, uint64_t hash)
{
	return find(hash, d->stacks, d->n_stacks, sizeof(*d->stacks));
}

const struct raw_names *sample_drain_names(const struct drain *d, uint64_t hash)
{
	return find(hash, d->names, d->n_names, sizeof(*d->names));
}

const struct raw_context *sample_drain_context(const struct drain *d, uint64_t hash)
{
	return find(hash, d->contexts, d->n_contexts, sizeof(*d->contexts));
}

const struct raw_text *sample_drain_text(const struct drain *d, uint64_t hash)
{
	return find(hash, d->texts, d->n_texts, sizeof(*d->texts));
}

/* The process has written the text, so it may have any bytes. */
static const char *text_label(struct batch *b, const char *text)
{
	_cleanup_free_ char *clean = text ? elf_text_clean(text) : NULL;

	return clean ? profile_batch_str(b, clean) : NULL;
}

/* Returns the label as a text of the batch; NULL: the sample does not have it. */
static const char *label_of(struct batch *b, const struct raw_sample *s, enum profile_label l)
{
	const struct raw_labels *labels = s->labels;
	char text[LABEL_TEXT_BYTES];

	if (!(labels->mask & 1u << l))
		return NULL;
	if (profile_label_is_text(l))
		return text_label(b, labels->texts[l]);
	profile_label_text(l, s->event, labels->numbers[l], text);
	return profile_batch_str(b, text);
}

const struct profile_labels *sample_labels(struct batch *b, const struct raw_sample *s)
{
	struct profile_labels labels = {};

	if (!s->labels)
		return NULL;
	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		labels.values[l] = label_of(b, s, l);
	return profile_batch_labels(b, &labels);
}
