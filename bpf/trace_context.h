/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * trace_context: reads the trace context (the ids of the request that a thread works on), if the
 * program publishes one. PF_CONTEXTS (runtimes.h) has a row for each way to publish it;
 * agent/node/runtime/context/context_<name>.c finds where the ids are. docs/trace-context.md.
 */
#pragma once

#include "unwind_tables.h"

/*
 * OpenTelemetry's thread context (OTEP 4947): the thread-local pointer otel_thread_ctx_v1 to a
 * record {trace id 16, span id 8, valid 1, ...}, the bytes packed.
 */
struct pf_otel {
	/* offset of the pointer: from the thread pointer, or in the module's block */
	int64_t offset;
	uint32_t module; /* the module's number in the thread's DTV; 0: in the static block */
	uint32_t entry_bytes; /* size of a DTV entry: 16 in glibc, 8 in musl */
};

/*
 * Labels of Go's runtime/pprof: g (in TLS) -> m -> curg -> labels. g.sched: where a goroutine that
 * does not run will continue; its first two words are sp and pc.
 */
struct pf_golabels {
	int64_t g;		  /* offset from the thread pointer */
	uint32_t m, curg, labels; /* offsets in struct g, m, g */
	/* 1 before Go 1.24: map[string]string; 0: a slice of {key, value} */
	uint32_t is_map;
	uint32_t sched, sched_bp; /* offsets in struct g */
};

#ifdef PF_WALKER

/* tcbhead_t.dtv (glibc sysdeps/x86_64/nptl/tls.h), struct pthread.dtv (musl) */
#define PF_DTV_AT      8
#define PF_CALL_NONE   0
#define PF_CALL_FOUND  1
#define PF_CALL_UNREAD 2 /* the ids are not in memory, or not in the expected form */

/*
 * Finds the TLS block of the module for this thread. *ret 0: the thread has not used the module
 * yet.
 */
static __always_inline int pf_tls_block(const struct pf_otel *d, uint64_t tp, uint64_t *ret)
{
	uint64_t dtv, n, block = 0;

	if (!pf_read(&dtv, sizeof(dtv), tp + PF_DTV_AT))
		return PF_CALL_UNREAD;
	/* The number of entries of this thread's DTV: glibc dtv[-1].counter, musl dtv[0]. */
	if (!pf_read(&n, sizeof(n), d->entry_bytes == 16 ? dtv - 16 : dtv))
		return PF_CALL_UNREAD;
	if (d->module <= n &&
	    !pf_read(&block, sizeof(block), dtv + (uint64_t)d->module * d->entry_bytes))
		return PF_CALL_UNREAD;
	/* -1, TLS_DTV_UNALLOCATED: the thread has no such block yet */
	*ret = block + 1 ? block : 0;
	return PF_CALL_FOUND;
}

static __always_inline int pf_otel_read(struct pf_scratch *s, const struct pf_otel *d)
{
	uint64_t *record = s->window; /* free after the walk; the BPF stack is too small */
	uint64_t at = s->walk.thread_pointer, pointer;

	if (d->module && pf_tls_block(d, at, &at) == PF_CALL_UNREAD)
		return PF_CALL_UNREAD;
	if (!at)
		return PF_CALL_NONE;
	if (!pf_read(&pointer, sizeof(pointer), at + d->offset))
		return PF_CALL_UNREAD;
	if (!pointer)
		return PF_CALL_NONE;
	record[3] = 0;
	if (!pf_read(record, 25, pointer))
		return PF_CALL_UNREAD;
	if (record[3] != 1 || !(record[0] | record[1]) || !record[2])
		return PF_CALL_NONE;
	s->context.form = PF_IDS_BYTES;
	s->context.trace[0] = record[0];
	s->context.trace[1] = record[1];
	s->context.span[0] = record[2];
	s->labels.cut = false; /* a row before this one may have set it */
	return PF_CALL_FOUND;
}

/* ---- Go ---- */

#define PF_LABELS_MAX	16 /* at most this many labels are read */
#define PF_BUCKET_ITEMS 8
#define PF_BUCKET_BYTES 272 /* tophash, keys, values, overflow (runtime/map.go, bmap) */

/* Eight characters as a word in memory. */
#define PF_TEXT8(a, b, c, d, e, f, g, h)                                                           \
	((uint64_t)(a) | (uint64_t)(b) << 8 | (uint64_t)(c) << 16 | (uint64_t)(d) << 24 |          \
	 (uint64_t)(e) << 32 | (uint64_t)(f) << 40 | (uint64_t)(g) << 48 | (uint64_t)(h) << 56)

static __always_inline bool pf_is_trace_key(const uint64_t key[2])
{
	return !key[1] && (key[0] == PF_TEXT8('t', 'r', 'a', 'c', 'e', '_', 'i', 'd') ||
			   key[0] == PF_TEXT8('t', 'r', 'a', 'c', 'e', ' ', 'i', 'd') ||
			   key[0] == PF_TEXT8('t', 'r', 'a', 'c', 'e', 'i', 'd', 0));
}

/* profile_id: the name that Grafana's otel-profiling-go used for the span's id. */
static __always_inline bool pf_is_span_key(const uint64_t key[2])
{
	if (key[0] == PF_TEXT8('p', 'r', 'o', 'f', 'i', 'l', 'e', '_'))
		return key[1] == PF_TEXT8('i', 'd', 0, 0, 0, 0, 0, 0);
	return !key[1] && (key[0] == PF_TEXT8('s', 'p', 'a', 'n', '_', 'i', 'd', 0) ||
			   key[0] == PF_TEXT8('s', 'p', 'a', 'n', ' ', 'i', 'd', 0) ||
			   key[0] == PF_TEXT8('s', 'p', 'a', 'n', 'i', 'd', 0, 0));
}

/* Reads one label. Ends the loop if the label cannot be read. A Go string is {address, bytes}. */
static long pf_label_step(uint32_t i, struct pf_loop *loop)
{
	struct pf_scratch *s = loop->s;
	struct pf_labels *l = &s->labels;
	uint64_t *strings = s->window, *key = s->window + 4;
	uint64_t at = l->at, apart = 16;
	uint32_t n;

	if (i >= l->n)
		return 1;
	if (l->is_map) {
		at += (i / PF_BUCKET_ITEMS) * PF_BUCKET_BYTES + 8 + (i % PF_BUCKET_ITEMS) * 16;
		apart = PF_BUCKET_ITEMS * 16;
	} else {
		at += i * 32;
	}
	l->unread = true;
	if (!pf_read(&strings[0], 16, at) || !pf_read(&strings[2], 16, at + apart))
		return 1;
	n = strings[1] & 15;
	if (strings[1] == n && n >= 6 && (strings[3] == 32 || strings[3] == 16)) {
		key[0] = key[1] = 0;
		if (!pf_read(key, n, strings[0]))
			return 1;
		if (strings[3] == 32 && pf_is_trace_key(key) &&
		    !pf_read(s->context.trace, 32, strings[2]))
			return 1;
		if (strings[3] == 16 && pf_is_span_key(key) &&
		    !pf_read(s->context.span, 16, strings[2]))
			return 1;
	}
	l->unread = false;
	return 0;
}

/* Finds the address of the labels of the goroutine on this thread. *ret 0: it has no labels. */
static __always_inline int pf_go_labels(const struct pf_walk *w, const struct pf_golabels *d,
					uint64_t *ret)
{
	uint64_t at;

	*ret = 0;
	if (!pf_read(&at, sizeof(at), w->thread_pointer + d->g))
		return PF_CALL_UNREAD;
	if (!at) /* a thread that C code made */
		return PF_CALL_NONE;
	/*
	 * g may be the scheduler's or the signal handler's; m->curg is the goroutine in these
	 * cases, too.
	 */
	if (!pf_read(&at, sizeof(at), at + d->m))
		return PF_CALL_UNREAD;
	if (!at)
		return PF_CALL_NONE;
	if (!pf_read(&at, sizeof(at), at + d->curg))
		return PF_CALL_UNREAD;
	if (!at)
		return PF_CALL_NONE;
	if (!pf_read(&at, sizeof(at), at + d->labels))
		return PF_CALL_UNREAD;
	*ret = at;
	return at ? PF_CALL_FOUND : PF_CALL_NONE;
}

/*
 * Finds where the labels are, and how many: the head of a slice {address, n, capacity}, or a
 * pointer to a map.
 */
static __always_inline bool pf_go_list(struct pf_scratch *s, const struct pf_golabels *d,
				       uint64_t at)
{
	struct pf_labels *l = &s->labels;
	uint64_t *head = s->window;

	l->is_map = d->is_map;
	if (l->is_map && !pf_read(&at, sizeof(at), at))
		return false;
	if (!pf_read(head, 24, at))
		return false;
	if (!l->is_map) {
		l->at = head[0];
		l->cut = head[1] > PF_LABELS_MAX;
		l->n = l->cut ? PF_LABELS_MAX : head[1];
	} else {
		/*
		 * A map: count, {flags, log2 of the buckets, overflow buckets}, buckets. Any slot
		 * of a bucket may be used.
		 */
		l->at = head[2];
		l->cut = head[1] & 0xfffffe00;
		l->n = head[1] & 0xff00 ? PF_LABELS_MAX : PF_BUCKET_ITEMS;
	}
	return true;
}

static __always_inline int pf_golabels_read(struct pf_scratch *s, const struct pf_golabels *d)
{
	struct pf_loop loop = {.s = s};
	uint64_t at;
	int r = pf_go_labels(&s->walk, d, &at);

	if (r != PF_CALL_FOUND)
		return r;
	if (!pf_go_list(s, d, at))
		return PF_CALL_UNREAD;
	s->labels.unread = false;
	s->context.form = PF_IDS_HEX;
	bpf_loop(PF_LABELS_MAX, pf_label_step, &loop, 0);
	if (s->labels.unread)
		return PF_CALL_UNREAD;
	if (s->context.trace[0] && s->context.span[0])
		s->labels.cut = false;
	return s->context.trace[0] || s->context.span[0] ? PF_CALL_FOUND : PF_CALL_NONE;
}

/* ---- the first way that finds a context ---- */

static long pf_context_step(uint32_t i, struct pf_loop *loop)
{
	struct pf_scratch *s = loop->s;
	uint32_t slot = i % PF_RUNTIMES_MAX;
	uint32_t ref = s->walk.process.runtimes[slot].data;

	s->context_read = PF_CALL_NONE;
	switch (s->walk.process.runtimes[slot].kind) {
#define X(NAME, name)                                                                              \
	case PF_RUNTIME_##NAME: {                                                                  \
		const struct pf_##name *d = pf_runtime_data(ref, sizeof(*d));                      \
                                                                                                   \
		if (d)                                                                             \
			s->context_read = pf_##name##_read(s, d);                                  \
		break;                                                                             \
	}
		PF_CONTEXTS(X)
#undef X
	}
	return s->context_read != PF_CALL_NONE;
}

/*
 * Sets s->context to the trace context that the process publishes. If several of its rows have one,
 * the first counts. The caller has set s->walk.process. Returns PF_CALL_*. s->labels.cut: an id may
 * be missing.
 */
static __always_inline int pf_call_context(struct pf_scratch *s)
{
	struct pf_loop loop = {.s = s};

	s->labels.cut = false;
	if (!s->walk.known || !s->walk.thread_pointer)
		return PF_CALL_NONE;
	__builtin_memset(&s->context, 0, PF_CONTEXT_IDS_BYTES);
	s->context_read = PF_CALL_NONE;
	bpf_loop(PF_RUNTIMES_MAX, pf_context_step, &loop, 0);
	return s->context_read;
}

/* Returns the hash that stands for s->context. */
static __always_inline uint64_t pf_context_hash(const struct pf_scratch *s, uint64_t seed)
{
	const struct pf_rec_context *c = &s->context;
	uint64_t hash = pf_hash_add(seed, c->form);

	for (int i = 0; i < 4; i++)
		hash = pf_hash_add(hash, c->trace[i]);
	hash = pf_hash_add(hash, c->span[0]);
	return pf_hash_end(pf_hash_add(hash, c->span[1]));
}
#endif
