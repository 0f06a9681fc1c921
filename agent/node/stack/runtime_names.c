/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of runtimes' frames in one exec of a process. They are found by the frame's words,
 * which the BPF program has sent. An entry has known names, or was asked for, or could not be read.
 * When an address is used again for another function, the words nearly always differ, but not
 * always. So a known name is asked for again after a while. This file reads no memory. Runs on the
 * pipeline worker only.
 */
#include "node/stack/internal.h"

#include "lib/base/budget.h"

#include <stdlib.h>
#include <uthash.h>

#define NAMED_MAX	16384	    /* limit of entries for one program of a process */
#define NAMED_BYTES	(16u << 20) /* limit of the bytes of these entries and their names */
#define NAMED_ALL_BYTES (64u << 20) /* the same of all programs; each namespace has a share */
#define ASKS_MAX	4096	    /* names that one struct names_wanted asks for */
#define ASK_AGAIN_NS	(10 * NSEC_PER_SEC)
#define KNOWN_NS	(60 * NSEC_PER_SEC)
#define UNNAMED_COUNTER "podflame_runtime_frames_unnamed_total"

struct named_key { /* to be zeroed before use */
	uint64_t words[2], caller_words[2];
	uint8_t runtime, type, caller_type, has_caller;
};
struct named_entry {
	struct named_key key;
	bool known;
	struct runtime_names names;
	size_t bytes;	   /* bytes of `names` */
	uint64_t again_ns; /* CLOCK_MONOTONIC: when to ask for the names (again) */
	UT_hash_handle hh;
};
struct named {
	struct named_entry *entries; /* in the order of the last ask, the oldest first */
	struct budget_member bytes;
};

static struct budget all_bytes = BUDGET(NAMED_ALL_BYTES);

struct named *stacks_named_new(uint64_t ns)
{
	struct named *n = xcalloc(1, sizeof(*n));

	budget_join(&all_bytes, &n->bytes, ns);
	return n;
}

void stacks_names_refused(struct shares *to)
{
	budget_refused(&all_bytes, to);
}

/* false: there is no room */
static bool take_bytes(struct named *n, size_t bytes)
{
	return n->bytes.n + bytes <= NAMED_BYTES && budget_take(&all_bytes, &n->bytes, bytes);
}

static void drop_names(struct named *n, struct named_entry *e)
{
	budget_give_back(&all_bytes, &n->bytes, e->bytes);
	e->bytes = 0;
	e->known = false;
	runtime_names_done(&e->names);
}

static void forget(struct named *n, struct named_entry *e)
{
	HASH_DEL(n->entries, e);
	drop_names(n, e);
	budget_give_back(&all_bytes, &n->bytes, sizeof(*e));
	free(e);
}

static void count_evicted(void)
{
	counter_add(counter("podflame_runtime_names_evicted_total", NULL, NULL), 1);
}

struct named *stacks_named_free(struct named *n)
{
	struct named_entry *e, *next;

	if (!n)
		return NULL;
	HASH_ITER (hh, n->entries, e, next)
		forget(n, e);
	budget_leave(&all_bytes, &n->bytes);
	free(n);
	return NULL;
}

static bool is_asked(const struct raw_frame *f)
{
	return f->runtime && f->type != PF_TYPE_TROUBLE;
}

const struct raw_frame *stacks_named_caller(const struct raw_stack *stack, size_t i)
{
	const struct raw_frame *f = &stack->frames[i];
	const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)f->runtime);

	if (!ops || !ops->by_caller)
		return NULL;
	while (++i < stack->n)
		if (stack->frames[i].runtime == f->runtime)
			return is_asked(&stack->frames[i]) ? &stack->frames[i] : NULL;
	return NULL;
}

static struct named_key key_of(const struct raw_frame *f, const struct raw_frame *caller)
{
	struct named_key k;

	memset(&k, 0, sizeof(k)); /* because padding is compared, too */
	memcpy(k.words, f->words, sizeof(k.words));
	k.runtime = f->runtime;
	k.type = f->type;
	if (caller) {
		memcpy(k.caller_words, caller->words, sizeof(k.caller_words));
		k.caller_type = caller->type;
		k.has_caller = 1;
	}
	return k;
}

static struct named_entry *find(struct named *n, const struct named_key *k)
{
	struct named_entry *e;

	HASH_FIND(hh, n->entries, k, sizeof(*k), e);
	return e;
}

/* NULL: there is no room even without the program's other entries. */
static struct named_entry *find_or_make(struct named *n, const struct named_key *k)
{
	struct named_entry *e = find(n, k);

	if (e)
		return e;
	while (HASH_COUNT(n->entries) >= NAMED_MAX || !take_bytes(n, sizeof(*e))) {
		count_evicted();
		if (!n->entries)
			return NULL;
		forget(n, n->entries);
	}
	e = xcalloc(1, sizeof(*e));
	e->key = *k;
	HASH_ADD(hh, n->entries, key, sizeof(e->key), e);
	return e;
}

const struct runtime_names *stacks_named_find(struct named *n, const struct raw_frame *f,
					      const struct raw_frame *caller)
{
	struct named_key k = key_of(f, caller);
	struct named_entry *e = n ? find(n, &k) : NULL;
	const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)f->runtime);

	if (e && e->known)
		return &e->names;
	counter_add(counter(UNNAMED_COUNTER, "runtime", ops ? ops->name : "unknown"), 1);
	return NULL;
}

static void want_page(struct names_wanted *w, uint64_t address)
{
	for (size_t i = 0; i < w->n_touch; i++)
		if (w->touch[i] == address)
			return;
	if (address && w->n_touch < ARRAY_SIZE(w->touch))
		w->touch[w->n_touch++] = address;
}

static void want_frame(struct named *n, const struct raw_frame *f, const struct raw_frame *caller,
		       struct names_wanted *w, uint64_t now_ns)
{
	struct named_key k = key_of(f, caller);
	struct named_entry *e = find_or_make(n, &k);
	struct runtime_ask *a;

	if (!e || now_ns < e->again_ns || w->n_asks >= ASKS_MAX)
		return;
	e->again_ns = now_ns + ASK_AGAIN_NS;
	w->fresh |= !e->known;
	HASH_DEL(n->entries, e);
	HASH_ADD(hh, n->entries, key, sizeof(e->key), e);
	GROW(w->asks, w->n_asks, w->cap_asks);
	a = &w->asks[w->n_asks++];
	*a = (struct runtime_ask){
		.kind = (enum pf_runtime_kind)f->runtime,
		.frame = {f->type, f->words[0], f->words[1]},
		.has_caller = caller != NULL,
		.error = -EAGAIN, /* valid until the reader's thread has read the names */
	};
	if (caller)
		a->caller =
			(struct runtime_words){caller->type, caller->words[0], caller->words[1]};
}

void stacks_named_want(struct named *n, const struct raw_stack *stack, struct names_wanted *w)
{
	uint64_t now_ns = now_mono_ns();

	for (size_t i = 0; i < stack->n; i++) {
		const struct raw_frame *f = &stack->frames[i];

		if (is_asked(f))
			want_frame(n, f, stacks_named_caller(stack, i), w, now_ns);
		else if (f->runtime && f->words[0] == PF_TROUBLE_READ)
			want_page(w, f->words[1]);
	}
}

static struct raw_frame raw_of(enum pf_runtime_kind kind, const struct runtime_words *w)
{
	return (struct raw_frame){.runtime = kind, .type = w->type, .words = {w->a, w->b}};
}

static uint64_t known_ns(enum pf_runtime_kind k)
{
	const struct runtime_ops *ops = runtime_ops(k);

	return ops && ops->names_last_ns ? ops->names_last_ns : KNOWN_NS;
}

/*
 * Takes these bytes. Until there is room, drops entries that have names, in the order of their last
 * ask. It never drops e. false: there is no room.
 */
static bool make_room(struct named *n, const struct named_entry *e, size_t bytes)
{
	struct named_entry *old, *next;
	bool taken = take_bytes(n, bytes);

	HASH_ITER (hh, n->entries, old, next) {
		if (taken)
			break;
		if (old == e || !old->bytes)
			continue;
		count_evicted();
		forget(n, old);
		taken = take_bytes(n, bytes);
	}
	return taken;
}

static void take(struct named *n, struct named_entry *e, struct runtime_ask *a)
{
	size_t bytes;

	/* If the process's memory could not be read, a known name stays. */
	if (a->error && a->error != -ESTALE && a->error != -ENOENT)
		return;
	drop_names(n, e);
	if (a->error)
		return;
	bytes = runtime_names_bytes(&a->names);
	if (!make_room(n, e, bytes)) {
		count_evicted();
		return;
	}
	e->known = true;
	e->bytes = bytes;
	e->again_ns = now_mono_ns() + known_ns(a->kind);
	e->names = a->names;
	a->names = (struct runtime_names){0};
}

void stacks_named_take(struct named *n, struct names_wanted *w)
{
	for (size_t i = 0; i < w->n_asks; i++) {
		struct runtime_ask *a = &w->asks[i];
		struct raw_frame frame = raw_of(a->kind, &a->frame);
		struct raw_frame caller = raw_of(a->kind, &a->caller);
		struct named_key k = key_of(&frame, a->has_caller ? &caller : NULL);
		struct named_entry *e = find(n, &k);

		if (e)
			take(n, e, a);
	}
}
