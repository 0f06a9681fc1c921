// SPDX-License-Identifier: Apache-2.0
/*
 * contexts: the trace and the span during which samples were taken, as programs publish them, and
 * the labels of samples. If a context is not a valid pair of ids, its samples have no link, and are
 * counted.
 */
#include "node/probe/internal.h"

_Static_assert((int)LABEL_GPU_DEVICE == (int)PF_LABEL_GPU_DEVICE, "abi");
_Static_assert((int)LABEL_GPU_CONTEXT == (int)PF_LABEL_GPU_CONTEXT, "abi");
_Static_assert((int)LABEL_GPU_STREAM == (int)PF_LABEL_GPU_STREAM, "abi");
_Static_assert((int)LABEL_RDMA_OPERATION == (int)PF_LABEL_RDMA_OPERATION, "abi");
_Static_assert((int)LABEL_RDMA_QP_TYPE == (int)PF_LABEL_RDMA_QP_TYPE, "abi");
_Static_assert((int)LABEL_RDMA_DEVICE == (int)PF_LABEL_RDMA_DEVICE, "abi");

/*
 * Reads the hexadecimal digits that a program wrote as the value of a label. Zero bytes: the
 * program wrote no value.
 */
static bool read_hex(const uint64_t *words, size_t n_bytes, uint8_t *ret)
{
	char hex[33];
	size_t n;

	memset(ret, 0, n_bytes);
	if (!words[0])
		return true;
	memcpy(hex, words, 2 * n_bytes);
	hex[2 * n_bytes] = '\0';
	return hex_decode(hex, n_bytes, ret, &n) == 0 && n == n_bytes;
}

/* Returns the link of a context, or a link of zeros if it has no valid ids. */
static struct profile_link link_of(const struct pf_rec_context *r)
{
	struct profile_link l = {};

	if (r->form == PF_IDS_BYTES) {
		memcpy(l.trace_id, r->trace, sizeof(l.trace_id));
		memcpy(l.span_id, r->span, sizeof(l.span_id));
	} else if (r->form != PF_IDS_HEX || !read_hex(r->trace, sizeof(l.trace_id), l.trace_id) ||
		   !read_hex(r->span, sizeof(l.span_id), l.span_id)) {
		return (struct profile_link){};
	}
	return l;
}

static bool is_none(const struct profile_link *l)
{
	static const struct profile_link none;

	return memcmp(l, &none, sizeof(none)) == 0;
}

static struct raw_labels labels_of(const struct pf_rec_context *r)
{
	struct raw_labels labels = {};

	for (uint32_t i = 0; i < MIN(r->n_labels, (uint32_t)PF_SAMPLE_LABELS); i++) {
		const struct pf_label *l = &r->labels[i];

		if (l->key >= _LABEL_MAX)
			continue;
		labels.mask |= 1u << l->key;
		labels.numbers[l->key] = l->value;
	}
	return labels;
}

void probes_contexts_add(struct pending *g, const struct pf_rec_context *r, size_t n_bytes)
{
	struct drain *d = g->d;
	struct raw_context *c;

	GROW(d->contexts, d->n_contexts, g->cap_contexts);
	c = &d->contexts[d->n_contexts++];
	*c = (struct raw_context){
		.hash = r->hash, .link = link_of(r), .share = r->h.share % PF_SHARES_MAX};
	c->invalid_ids = r->form && is_none(&c->link);
	if (n_bytes >= sizeof(*r))
		c->labels = labels_of(r);
}

/* Sets the context's labels that are texts. Returns whether the drain has them all. */
static bool link_texts(const struct drain *d, struct raw_context *c)
{
	bool all = true;

	for (enum profile_label l = 0; l < _LABEL_MAX; l++) {
		const struct raw_text *t;

		if (!(c->labels.mask & 1u << l) || !profile_label_is_text(l))
			continue;
		t = sample_drain_text(d, c->labels.numbers[l]);
		c->labels.texts[l] = t ? t->text : NULL;
		all &= t != NULL;
	}
	return all;
}

/*
 * Counts a sample whose labels, or the texts of these, did not fit into the ring. If samples of its
 * event have labels, a query for a label lacks the sample, so it counts as lost, although it has a
 * value.
 */
static void lose_labels(struct drain *d, const struct raw_sample *s)
{
	unsigned with_labels = 0;

	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		with_labels |= profile_label_info(l)->event_mask;
	if (with_labels & 1u << s->event)
		profile_samples_lost(&d->lost, 1u << s->event, "labels_lost", s->n);
	counter_add(counter("podflame_contexts_failed_total", "reason", "record_lost"), s->n);
}

void probes_contexts_link(struct drain *d)
{
	_cleanup_free_ bool *whole = xcalloc(d->n_contexts + 1, sizeof(*whole));
	uint64_t n_invalid = 0;

	for (size_t i = 0; i < d->n_contexts; i++)
		whole[i] = link_texts(d, &d->contexts[i]);
	for (size_t i = 0; i < d->n_samples; i++) {
		struct raw_sample *s = &d->samples[i];
		const struct raw_context *c = s->ctx ? sample_drain_context(d, s->ctx) : NULL;

		if (s->ctx && (!c || !whole[c - d->contexts]))
			lose_labels(d, s);
		if (!c)
			continue;
		s->link = is_none(&c->link) ? NULL : &c->link;
		s->labels = c->labels.mask ? &c->labels : NULL;
		n_invalid += c->invalid_ids ? s->n : 0;
	}
	counter_add(counter("podflame_contexts_failed_total", "reason", "invalid_ids"), n_invalid);
}
