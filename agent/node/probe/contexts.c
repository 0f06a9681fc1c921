// SPDX-License-Identifier: Apache-2.0
/*
 * contexts: the trace and the span during which samples were taken, as programs publish them. If a
 * context is not a valid pair of ids, its samples have no link, and are counted.
 */
#include "node/probe/internal.h"

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

/* Returns the link of a context, or a link of zeros if the context is not valid. */
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

void probes_contexts_add(struct pending *g, const struct pf_rec_context *r)
{
	struct drain *d = g->d;

	GROW(d->contexts, d->n_contexts, g->cap_contexts);
	d->contexts[d->n_contexts++] = (struct raw_context){r->hash, link_of(r)};
}

void probes_contexts_link(struct drain *d)
{
	static const struct profile_link none;
	uint64_t n_lost = 0, n_invalid = 0;

	for (size_t i = 0; i < d->n_samples; i++) {
		struct raw_sample *s = &d->samples[i];
		const struct raw_context *c = s->ctx ? sample_drain_context(d, s->ctx) : NULL;

		if (c && memcmp(&c->link, &none, sizeof(none)) != 0)
			s->link = &c->link;
		else if (c)
			n_invalid += s->n;
		else if (s->ctx) /* the context's record did not fit into the ring */
			n_lost += s->n;
	}
	counter_add(counter("podflame_contexts_failed_total", "reason", "record_lost"), n_lost);
	counter_add(counter("podflame_contexts_failed_total", "reason", "invalid_ids"), n_invalid);
}
