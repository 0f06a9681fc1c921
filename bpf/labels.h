/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * labels: the facts about a sample besides its stacks, for example the GPU's stream. The labels
 * travel in the record of the sample's trace context. Only programs of events whose samples have
 * labels include this file. The other programs send shorter records. A record is sent once in a
 * generation, the time between two drains of the counts by user space.
 *
 * pf_labels_begin(s);
 * pf_label(s, PF_LABEL_GPU_DEVICE, device);
 * pf_label(s, PF_LABEL_RDMA_DEVICE, pf_intern_text(s, name, generation));
 * s->key.ctx = pf_intern_labels(s, true, generation);
 */
#pragma once

#include "capture.h"

/* Removes the labels that an earlier sample has left in s. */
static __always_inline void pf_labels_begin(struct pf_scratch *s)
{
	s->context.n_labels = 0;
}

/* Adds a label. A program must not add more than PF_SAMPLE_LABELS; further ones are ignored. */
static __always_inline void pf_label(struct pf_scratch *s, enum pf_label_key key, uint64_t value)
{
	uint32_t n = s->context.n_labels;

	if (n >= PF_SAMPLE_LABELS)
		return;
	s->context.labels[n] = (struct pf_label){.key = key, .value = value};
	s->context.n_labels = n + 1;
}

/*
 * Sends the text at this address of the process, unless this generation has it already. Returns its
 * hash, the value of the label; 0: the text is empty, or cannot be read. Longer texts are cut.
 */
static __noinline uint64_t pf_intern_text(const struct pf_scratch *s, uint64_t address,
					  uint32_t generation)
{
	struct pf_rec_text r = {.h = {.type = PF_REC_TEXT, .generation = generation}};
	const uint64_t *words = (const uint64_t *)r.text;
	uint64_t hash, *slot;

	if (!s || bpf_probe_read_user_str(r.text, sizeof(r.text), (void *)address) <= 1)
		return 0;
	hash = pf_hash_start(s->key.start_boottime_ns, s->key.tgid);
	for (int i = 0; i < PF_TEXT_BYTES / 8; i++)
		hash = pf_hash_add(hash, words[i]);
	r.hash = hash = pf_hash_end(hash);
	slot = pf_seen_slot(hash);
	if (!slot || *slot == pf_seen_word(hash, generation))
		return hash;
	if (pf_ring_put(&r.h, sizeof(r), pf_share_of(&s->key), pf_ring_flags()))
		*slot = pf_seen_word(hash, generation);
	return hash;
}

static __always_inline uint64_t pf_labels_hash(const struct pf_scratch *s, uint64_t hash)
{
	const struct pf_rec_context *c = &s->context;

	for (uint32_t i = 0; i < PF_SAMPLE_LABELS && i < c->n_labels; i++)
		hash = pf_hash_add(pf_hash_add(hash, c->labels[i].key), c->labels[i].value);
	return pf_hash_add(hash, c->n_labels);
}

/*
 * Sends the trace context and the labels in s->context, unless this generation has them already.
 * Returns their hash.
 */
static __always_inline uint64_t pf_send_labels(struct pf_scratch *s, uint32_t generation)
{
	uint64_t seed = pf_hash_start(s->key.start_boottime_ns, s->key.tgid);

	return pf_send_context(s, pf_context_hash(s, pf_labels_hash(s, seed)), sizeof(s->context),
			       generation);
}

/*
 * Sends the sample's labels, unless this generation has them already. with_call: as in
 * pf_intern_context(), also the trace context. Returns their hash; 0: the sample has neither.
 */
PF_ONCE uint64_t pf_intern_labels(struct pf_scratch *s, bool with_call, uint32_t generation)
{
	if (!s)
		return 0;
	if (!with_call || !s->context_wanted || !pf_find_context(s)) {
		__builtin_memset(&s->context, 0, PF_CONTEXT_IDS_BYTES);
		if (!s->context.n_labels)
			return 0;
	}
	return pf_send_labels(s, generation);
}
