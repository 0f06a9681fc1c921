// SPDX-License-Identifier: Apache-2.0
/*
 * Records of the ring, with any bytes where a process has written: names of kernels, texts and
 * numbers of labels, trace contexts, names of threads. They are taken, joined with samples, and
 * kept for later drains. Names and labels must end, and labels must be clean texts.
 * Fuzzes: node/probe/records.c, node/probe/contexts.c, node/probe/drain_cache.c,
 * node/sample/sample.c
 */
#include "node/probe/internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define FRAME_BYTES_MAX (1u << 20)

struct input {
	const uint8_t *p;
	size_t n;
};

static void take(struct input *in, void *to, size_t n)
{
	size_t there = MIN(n, in->n);

	memset(to, 0, n);
	memcpy(to, in->p, there);
	in->p += there;
	in->n -= there;
}

static uint8_t take_byte(struct input *in)
{
	uint8_t v;

	take(in, &v, 1);
	return v;
}

/* Few hashes, so that items meet, are there twice, and are missing. */
static uint64_t take_hash(struct input *in)
{
	return 1 + take_byte(in) % 4;
}

/* ---- records, as the programs send them: only the header and the lengths are the kernel's ---- */

union record {
	struct pf_record h;
	struct pf_rec_names names;
	struct pf_rec_text text;
	struct pf_rec_context context;
	struct pf_rec_stack stack;
	/* the room that the stack's words need */
	uint64_t room[sizeof(struct pf_rec_stack) / 8 + 1 + PF_FRAME_GPU_WORK_WORDS];
};

static size_t make_stack(struct input *in, union record *r)
{
	size_t words = take_byte(in) % 32, bytes = words * sizeof(uint64_t);
	uint16_t more;

	if (!(take_byte(in) % 16))
		words = PF_FRAME_GPU_WORK_WORDS;
	take(in, &more, sizeof(more));
	r->stack = (struct pf_rec_stack){.h.type = PF_REC_STACK,
					 .hash = take_hash(in),
					 .n_words = 1 + (uint32_t)words,
					 .n_frames = 1,
					 .end = PF_END_ROOT};
	r->stack.words[0] =
		PF_FRAME_HEADER(PF_FRAME_GPU_WORK, words,
				PF_FRAME_GPU_WORK_MORE((more & 0xff), more >> 8, more & 1));
	take(in, &r->stack.words[1], bytes);
	return sizeof(r->stack) + sizeof(uint64_t) * (1 + words);
}

static size_t make_context(struct input *in, union record *r)
{
	bool has_labels = take_byte(in) % 2;

	take(in, &r->context, sizeof(r->context));
	r->context.h = (struct pf_record){.type = PF_REC_CONTEXT};
	r->context.hash = take_hash(in);
	r->context.n_labels %= PF_SAMPLE_LABELS + 1;
	for (uint32_t i = 0; i < r->context.n_labels; i++) {
		struct pf_label *l = &r->context.labels[i];

		l->key %= _LABEL_MAX + 1;
		if (l->key < _LABEL_MAX && profile_label_is_text(l->key))
			l->value = take_hash(in);
	}
	return has_labels ? sizeof(r->context) : PF_CONTEXT_IDS_BYTES;
}

/* Returns the size of a record. */
static size_t make_record(struct input *in, union record *r)
{
	memset(r, 0, sizeof(*r));
	switch (take_byte(in) % 4) {
	case 0:
		return make_stack(in, r);
	case 1:
		return make_context(in, r);
	case 2:
		take(in, &r->text, sizeof(r->text));
		r->text.h = (struct pf_record){.type = PF_REC_TEXT};
		r->text.hash = take_hash(in);
		return sizeof(r->text);
	}
	take(in, &r->names, sizeof(r->names));
	r->names.h = (struct pf_record){.type = PF_REC_NAMES};
	r->names.hash = take_hash(in);
	return sizeof(r->names);
}

/* ---- what user space makes of them ---- */

static void check_text(const char *text, size_t max)
{
	if (strnlen(text, max) == max)
		abort();
}

static void check_labels(const struct drain *d, const struct raw_sample *s)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	const struct profile_labels *l = sample_labels(b, s);

	for (enum profile_label i = 0; l && i < _LABEL_MAX; i++) {
		bool has = s->labels->mask & 1u << i;

		if (has && profile_label_is_text(i) && s->labels->texts[i] &&
		    !sample_drain_text(d, s->labels->numbers[i]))
			abort();
		if (l->values[i] && !has)
			abort();
		if (l->values[i])
			check_text(l->values[i], 4096);
		for (const char *c = l->values[i]; c && *c; c++)
			if ((uint8_t)*c < ' ')
				abort();
	}
}

static void check_sample(const struct drain *d, const struct raw_sample *s)
{
	const struct raw_stack *work = sample_drain_stack(d, s->kstack);

	if (work) {
		if (work->n < 1 || !work->frames[0].gpu_work)
			abort();
		check_text(sample_gpu_name(work), (work->n - 1) * sizeof(work->frames[0]) + 1);
		if (strlen(sample_gpu_name(work)) > PF_FRAME_GPU_WORK_WORDS * sizeof(uint64_t))
			abort();
	}
	check_labels(d, s);
}

/* A drain: records, samples that refer to them, and what later drains may refer to. */
static void drain(struct input *in, struct probes *p, struct drain_cache *cache, uint64_t now_ns)
{
	struct drain *d = sample_drain_new(FRAME_BYTES_MAX);
	struct pending *g = &p->generations[0];
	size_t n_records = take_byte(in) % 16, size;
	union record r;

	*g = (struct pending){.d = d};
	for (size_t i = 0; i < n_records; i++) {
		size = make_record(in, &r);
		probes_record_take(p, &r, size);
	}
	d->n_samples = take_byte(in) % 8;
	d->samples = xcalloc(d->n_samples + 1, sizeof(*d->samples));
	for (size_t i = 0; i < d->n_samples; i++)
		d->samples[i] = (struct raw_sample){
			.event = take_byte(in) % 2 ? EVENT_ON_GPU : EVENT_RDMA,
			.kstack = take_hash(in),
			.names = take_hash(in),
			.ctx = take_hash(in),
			.n = 1,
			.value = 1,
		};
	sample_drain_sort(d);
	probes_cache_pass(cache, d, now_ns, true);
	sample_drain_link_frames(d);
	probes_contexts_link(d);
	for (size_t i = 0; i < d->n_samples; i++)
		check_sample(d, &d->samples[i]);
	sample_drain_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct input in = {data, n};
	struct drain_cache *cache = probes_cache_new(4096 + take_byte(&in) * 64u);
	struct probes *p = xcalloc(1, sizeof(*p));

	p->now.d = sample_drain_new(FRAME_BYTES_MAX);
	for (uint64_t i = 0; i < 4 && in.n; i++)
		drain(&in, p, cache, i * (1 + take_byte(&in) % 16) * NSEC_PER_SEC);
	sample_drain_free(p->now.d);
	probes_cache_free(cache);
	free(p);
	return 0;
}
