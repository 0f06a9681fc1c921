/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes unwind rows for code that has none (musl's C functions, hand-written assembly). A function
 * begins at a symbol, or where other such code calls or jumps to. The search for functions has
 * rounds, until a round finds no new function. Then all functions are followed once more, for their
 * rows.
 */
#include "node/parse/returns.h"

#include <stdlib.h>

/* Limits for one file. Code beyond a limit has no rows, and the index is marked as cut. */
#define INSNS_MAX      (64u << 20)	  /* instructions decoded in all rounds; 3 to 4 s */
#define FOLLOW_NS_MAX  (4 * NSEC_PER_SEC) /* CPU time, for slower machines */
#define FOLLOW_WAIT_NS (7 * NSEC_PER_SEC) /* elapsed time; the whole file has 10 s */
#define ROUNDS	       64

struct code_function {
	uint64_t start, end;
	bool sized, guessed;
	uint64_t seen; /* hash of the entries that the function had when it was last followed */
};
struct functions {
	struct code_function *items;
	size_t n, cap;
};
struct follower {
	struct elf_build *b;
	const struct code_gaps *gaps;
	struct functions sized, all, last; /* last: functions of the round before */
	struct code_entries entries;
	uint64_t *noreturn;
	size_t n_noreturn, cap_noreturn;
	struct flow_budget *budget;
};

static int compare_functions(const void *left, const void *right)
{
	const struct code_function *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->end > b->end ? -1 : a->end < b->end;
}

static int compare_entries(const void *left, const void *right)
{
	const struct code_entry *a = left, *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return b->certain - a->certain;
}

static void add_function(struct functions *f, uint64_t start, uint64_t end, bool sized)
{
	GROW(f->items, f->n, f->cap);
	f->items[f->n++] = (struct code_function){.start = start, .end = end, .sized = sized};
}

static void add_entry(struct follower *w, uint64_t address, const struct code_state *s)
{
	struct code_entries *e = &w->entries;

	GROW(e->items, e->n, e->cap);
	e->items[e->n++] = (struct code_entry){address, *s, true};
}

/*
 * Returns whether a function starts at the symbol. None starts at a part that a compiler has split
 * off (".cold"): when code jumps there, anything may be on the stack.
 */
static bool is_start(const struct symbol *y)
{
	return !y->untyped && !strstr(y->name, ".cold");
}

/*
 * Adds a function of a native image. The last function is left out, because its end is not known.
 */
static void add_native_function(uint64_t start, uint64_t end, void *arg)
{
	struct follower *w = arg;

	if (end == start || end - start > FLOW_BYTES_MAX)
		return;
	add_function(&w->sized, start, end, true);
	w->sized.items[w->sized.n - 1].guessed = true;
	add_entry(w, start, &parse_code_entered);
}

/* Adds the functions of symbols. Symbols inside other symbols are left out: they may be labels. */
static void add_symbols(struct follower *w)
{
	struct functions *f = &w->sized;
	size_t n = 0;

	for (size_t k = 0; k < w->b->symbols.n; k++) {
		const struct symbol *y = &w->b->symbols.items[k];
		const struct range *gap = parse_gap_of(w->gaps, y->address);

		if (!gap)
			continue;
		if (y->end > y->address)
			add_function(f, y->address, MIN(y->end, gap->end), true);
		if (is_start(y))
			add_entry(w, y->address, &parse_code_entered);
	}
	if (w->b->header.flags & ELF_INDEX_NATIVE_IMAGE)
		parse_native_image_functions(w->b, w->gaps, add_native_function, w);
	if (f->n)
		qsort(f->items, f->n, sizeof(*f->items), compare_functions);
	for (size_t k = 0; k < f->n; k++)
		if (n == 0 || f->items[k].start >= f->items[n - 1].end)
			f->items[n++] = f->items[k];
	f->n = n;
}

/* Adds an entry at the program's first instruction, which has no caller. */
static void add_program_start(struct follower *w)
{
	const struct code_state root = {.root = true};
	GElf_Ehdr e;

	if (!gelf_getehdr(w->b->elf, &e) || !parse_gap_of(w->gaps, e.e_entry))
		return;
	for (size_t k = 0; k < w->entries.n; k++)
		if (w->entries.items[k].address == e.e_entry)
			w->entries.items[k].state = root;
	add_entry(w, e.e_entry, &root);
}

/*
 * Keeps one entry for each address. If an entry at the address is certain, keeps its state.
 * Otherwise keeps what the states of all entries at the address have in common.
 */
static void sort_entries(struct follower *w)
{
	struct code_entries *e = &w->entries;
	size_t n = 0;

	if (e->n)
		qsort(e->items, e->n, sizeof(*e->items), compare_entries);
	for (size_t k = 0; k < e->n; k++) {
		struct code_entry *last = n ? &e->items[n - 1] : NULL;

		if (!last || last->address != e->items[k].address)
			e->items[n++] = e->items[k];
		else if (!last->certain && !parse_code_merge(&last->state, &e->items[k].state))
			last->state = (struct code_state){0};
	}
	e->n = n;
}

static void add_piece(struct follower *w, uint64_t start, uint64_t end, bool guessed)
{
	add_function(&w->all, start, end, true);
	w->all.items[w->all.n - 1].guessed = guessed;
}

/*
 * Adds a function with a known size. A guessed function may really be several functions, one right
 * after the other, so it is divided at each entry that is certain (code_entry.certain). next: the
 * first entry that may lie in f.
 */
static void add_sized(struct follower *w, const struct code_function *f, size_t next)
{
	uint64_t start = f->start;

	for (; f->guessed && next < w->entries.n && w->entries.items[next].address < f->end;
	     next++) {
		const struct code_entry *e = &w->entries.items[next];

		if (e->address <= start || !e->certain || e->address % NATIVE_IMAGE_ALIGNMENT)
			continue;
		add_piece(w, start, e->address, true);
		start = e->address;
	}
	add_piece(w, start, f->end, f->guessed);
}

/*
 * Makes the functions of a round: those with a size, and one from each other entry up to the next
 * entry.
 */
static void make_functions(struct follower *w)
{
	struct functions swap = w->last;
	size_t s = 0, first = 0; /* first: the first entry that may lie in function s */

	w->last = w->all;
	w->all = swap;
	w->all.n = 0;
	for (size_t k = 0; k < w->entries.n; k++) {
		uint64_t at = w->entries.items[k].address, end = parse_gap_of(w->gaps, at)->end;

		for (; s < w->sized.n && w->sized.items[s].end <= at; s++, first = k)
			add_sized(w, &w->sized.items[s], first);
		if (s < w->sized.n && w->sized.items[s].start <= at)
			continue;
		if (s < w->sized.n)
			end = MIN(end, w->sized.items[s].start);
		if (k + 1 < w->entries.n)
			end = MIN(end, w->entries.items[k + 1].address);
		add_function(&w->all, at, end, false);
	}
	for (; s < w->sized.n; s++)
		add_sized(w, &w->sized.items[s], first);
}

static uint64_t hash_entries(const struct code_function *f, const struct code_entry *e, size_t n)
{
	uint64_t hash = f->end;

	for (size_t k = 0; k < n; k++) {
		const struct code_state *s = &e[k].state;
		uint64_t words[] = {e[k].address,    s->bp_is,	      s->sp_known,	s->root,
				    (uint64_t)s->sp, (uint64_t)s->bp, (uint64_t)s->slot};

		hash = hash_bytes(words, sizeof(words), hash);
	}
	return hash;
}

static uint64_t hash_before(const struct follower *w, const struct code_function *f)
{
	size_t low = 0, high = w->last.n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (w->last.items[middle].start <= f->start)
			low = middle + 1;
		else
			high = middle;
	}
	return low && w->last.items[low - 1].start == f->start ? w->last.items[low - 1].seen : 0;
}

enum pass { DISCOVER, NORETURN, EMIT };

/* Passes on what is emitted of a function, and keeps how far its code is known from its start. */
struct known_part {
	uint64_t end;
	flow_emit *emit;
	void *arg;
};

static void emit_known(uint64_t start, uint64_t end, const struct code_state *s, void *arg)
{
	struct known_part *k = arg;

	if (s && start <= k->end)
		k->end = MAX(k->end, end);
	if (k->emit)
		k->emit(start, end, s, k->arg);
}

static bool follow_one(struct follower *w, const struct code_function *f,
		       const struct code_entry *e, size_t n_entries, struct code_entries *out,
		       flow_emit *emit, void *arg)
{
	struct flow_input in = {
		.start = f->start,
		.n = f->end - f->start,
		.sized = f->sized,
		.guessed = f->guessed,
		.entries = e,
		.n_entries = n_entries,
		.noreturn = w->noreturn,
		.n_noreturn = w->n_noreturn,
	};
	size_t n_bytes = 0;

	in.code = parse_build_bytes(w->b, f->start, &n_bytes);
	if (!in.code || n_bytes < in.n || n_entries == 0)
		return true;
	if (in.n > FLOW_BYTES_MAX) {
		if (emit) /* before the last pass, new entries may still divide it */
			w->b->header.flags |= ELF_INDEX_CODE_CUT;
		return true;
	}
	return parse_flow_follow(&in, out, emit, arg, w->budget);
}

static void follow_all(struct follower *w, enum pass pass, struct code_entries *out,
		       flow_emit *emit, void *arg)
{
	size_t at = 0, end;

	for (size_t k = 0; k < w->all.n; k++) {
		struct code_function *f = &w->all.items[k];
		struct known_part known = {.end = f->start, .emit = emit, .arg = arg};
		const struct code_entry *e;
		bool returns;

		while (at < w->entries.n && w->entries.items[at].address < f->start)
			at++;
		for (end = at; end < w->entries.n && w->entries.items[end].address < f->end;)
			end++;
		e = &w->entries.items[at];
		f->seen = hash_entries(f, e, end - at);
		if (pass == DISCOVER && f->seen == hash_before(w, f))
			continue;
		returns = follow_one(w, f, e, end - at, out, pass == EMIT ? emit_known : NULL,
				     &known);
		/* an entry that is not certain may be in the middle of a function */
		if (pass == EMIT && end > at && e->address == f->start && e->certain && !f->guessed)
			parse_functions_add(&w->b->functions, f->start, known.end);
		if (pass == NORETURN && !returns && end > at && e->address == f->start) {
			GROW(w->noreturn, w->n_noreturn, w->cap_noreturn);
			w->noreturn[w->n_noreturn++] = f->start;
		}
	}
}

/* Adds the entries that a round has found. Returns false if no entry is new. */
static bool take_entries(struct follower *w, const struct code_entries *found)
{
	size_t before = w->entries.n;

	for (size_t k = 0; k < found->n; k++) {
		const struct code_entry *e = &found->items[k];

		if (!parse_gap_of(w->gaps, e->address))
			continue;
		GROW(w->entries.items, w->entries.n, w->entries.cap);
		w->entries.items[w->entries.n++] = *e;
	}
	sort_entries(w);
	return w->entries.n > before;
}

/*
 * Adds the entries of the functions that the dynamic linker calls before and after all others, from
 * one dynamic section. They are in crti.o, which has no call frame information, and in stripped
 * files nothing else shows where they begin.
 */
static void add_called_by_linker(const uint8_t *section, size_t n, struct code_entries *to)
{
	Elf64_Dyn d;

	for (; n >= sizeof(d); section += sizeof(d), n -= sizeof(d)) {
		memcpy(&d, section, sizeof(d));
		if (d.d_tag == DT_NULL)
			return;
		if (d.d_tag != DT_INIT && d.d_tag != DT_FINI)
			continue;
		GROW(to->items, to->n, to->cap);
		to->items[to->n++] = (struct code_entry){d.d_un.d_ptr, parse_code_entered, true};
	}
}

static void take_called_by_linker(struct follower *w)
{
	struct code_entries found = {0};
	size_t n_headers = 0, n = 0;
	const uint8_t *section;
	GElf_Phdr h;

	elf_getphdrnum(w->b->elf, &n_headers);
	for (size_t k = 0; k < n_headers && !found.n; k++) {
		if (!gelf_getphdr(w->b->elf, (int)k, &h) || h.p_type != PT_DYNAMIC)
			continue;
		section = parse_build_bytes(w->b, h.p_vaddr, &n);
		if (section)
			add_called_by_linker(section, n, &found);
	}
	take_entries(w, &found);
	free(found.items);
}

struct flow_budget parse_code_budget(void)
{
	return (struct flow_budget){
		.insns = INSNS_MAX,
		.next_look = INSNS_MAX,
		.cpu_deadline_ns = thread_cpu_ns() + FOLLOW_NS_MAX,
		.deadline_ns = now_mono_ns() + FOLLOW_WAIT_NS,
	};
}

void parse_code_follow(struct elf_build *b, const struct code_gaps *gaps, flow_emit *emit,
		       void *arg, struct flow_budget *budget)
{
	struct follower w = {.b = b, .gaps = gaps, .budget = budget};
	struct code_entries found = {0};
	bool more = true;

	add_symbols(&w);
	add_program_start(&w);
	take_called_by_linker(&w);
	sort_entries(&w);
	for (size_t k = 0; k < ROUNDS && more; k++) {
		found.n = 0;
		make_functions(&w);
		follow_all(&w, DISCOVER, &found, NULL, NULL);
		more = take_entries(&w, &found);
	}
	make_functions(&w);
	follow_all(&w, NORETURN, NULL, NULL, NULL);
	follow_all(&w, EMIT, NULL, emit, arg);
	if (!budget->insns)
		b->header.flags |= ELF_INDEX_CODE_CUT;
	free(found.items);
	free(w.sized.items);
	free(w.all.items);
	free(w.last.items);
	free(w.entries.items);
	free(w.noreturn);
}
