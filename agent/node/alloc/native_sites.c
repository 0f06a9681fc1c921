/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C, C++ and Rust: finds which entry points of which allocators a process has. A file has an
 * allocator if it defines an ALLOC and a FREE of it. C++'s operators are sites only in such files,
 * because elsewhere they call malloc. Rust's shims are sites only if they lead to no other site.
 * Until this is decided, an entry point is a candidate.
 *
 * Libraries are built in many ways, so the code is read to see which site leads to which other
 * site. A site that ends in a jump to another is left out or gets a flag. The code of a site that
 * calls others is "inner". docs/memory.md. Reader's thread.
 */
#include "node/alloc/code.h"
#include "node/alloc/internal.h"
#include "node/alloc/allocators.h"

#include <stdlib.h>

/* how deep calls are followed: __rust_alloc, a wrapper of the program, the allocator */
#define RUST_DEPTH     2
#define CANDIDATES_MAX 512	   /* limit for the candidates of one process */
#define FUNCTION_BYTES (64u << 10) /* a larger size of a symbol is not used */

struct candidate {
	const struct table_row *row;
	const char *symbol; /* borrowed from the index */
	/* bytes 0: the symbol has no size, or a larger one than FUNCTION_BYTES */
	uint64_t address, bytes;
	uint16_t flags; /* enum pf_site_flags */
	bool dropped;
};
struct allocator_found {
	const struct runtime_look *look;
	struct candidate items[CANDIDATES_MAX];
	size_t n;
	/* Addresses of the candidates, ascending; without Rust's, which are added last. */
	uint64_t places[CANDIDATES_MAX];
	size_t n_places;
	struct alloc_code *code;
	bool loader; /* glibc's loader is mapped, but perhaps no library yet */
	bool full;   /* the process has more candidates than CANDIDATES_MAX */
};

static bool is_kind(const struct candidate *c, enum pf_site_kind kind)
{
	return c->row->site.kind == kind;
}

/* ---- candidates ---- */

/*
 * Makes a candidate from a mark of a file. false: the mark is no entry point, or not in this file's
 * code.
 */
static bool take_mark(const struct runtime_look *look, size_t mapping, const struct elf_mark *mark,
		      struct candidate *ret)
{
	const struct elf_index *index = look->indexes[mapping];
	uint64_t address = runtime_bias(look, &look->maps->items[mapping]) + mark->address;
	const struct mapping *m = proc_mappings_find(look->maps, address);

	*ret = (struct candidate){
		.row = alloc_table_find(mark->name), .symbol = mark->name, .address = address};
	if (!ret->row || mark->thread_local || !m || look->indexes[m - look->maps->items] != index)
		return false;
	if (mark->size <= FUNCTION_BYTES)
		ret->bytes = MIN(mark->size, m->end - address);
	return true;
}

static struct candidate *candidate_at(struct allocator_found *f, uint64_t address)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->items[i].address == address)
			return &f->items[i];
	return NULL;
}

/* Adds a candidate. A function with several names gets the name that is first in the table. */
static void add(struct allocator_found *f, const struct candidate *new)
{
	struct candidate *c = candidate_at(f, new->address);

	if (c && new->row < c->row)
		*c = *new;
	else if (!c && f->n < CANDIDATES_MAX)
		f->items[f->n++] = *new;
	else
		f->full |= !c;
}

unsigned alloc_native_families(const struct runtime_look *look, size_t mapping)
{
	const struct elf_index *index = look->indexes[mapping];
	unsigned allocs = 0, frees = 0, families;

	for (size_t i = 0; i < elf_index_n_marks(index); i++) {
		struct elf_mark mark = elf_index_mark(index, i);
		struct candidate c;

		if (!take_mark(look, mapping, &mark, &c))
			continue;
		if (is_kind(&c, PF_SITE_FREE))
			frees |= 1u << c.row->family;
		else
			allocs |= 1u << c.row->family;
	}
	families = allocs & frees & ~(1u << TABLE_CXX);
	if (families & 1u << TABLE_C)
		families |= 1u << TABLE_CXX;
	return families;
}

static void add_file(struct allocator_found *f, size_t mapping, bool rust)
{
	const struct elf_index *index = f->look->indexes[mapping];
	unsigned families = alloc_native_families(f->look, mapping);

	families &= rust ? 1u << TABLE_RUST : ~(1u << TABLE_RUST);
	for (size_t i = 0; families && i < elf_index_n_marks(index); i++) {
		struct elf_mark mark = elf_index_mark(index, i);
		struct candidate c;

		if (take_mark(f->look, mapping, &mark, &c) && families & 1u << c.row->family)
			add(f, &c);
	}
}

static bool is_loader(const struct elf_index *index)
{
	struct elf_mark mark;

	return elf_index_find_mark(index, TABLE_GLIBC_LOADER, &mark) == 0;
}

static void add_files(struct allocator_found *f, bool rust)
{
	for (size_t i = 0; i < f->look->maps->n; i++) {
		if (!f->look->indexes[i])
			continue;
		if (is_loader(f->look->indexes[i]))
			f->loader = true;
		else
			add_file(f, i, rust);
	}
}

static int compare_addresses(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

static void set_places(struct allocator_found *f)
{
	f->n_places = 0;
	for (size_t i = 0; i < f->n; i++)
		f->places[f->n_places++] = f->items[i].address;
	qsort(f->places, f->n_places, sizeof(f->places[0]), compare_addresses);
}

/* ---- what leads to what ---- */

/*
 * Decides about c, which ends in a jump to `to`, mostly under a condition. The site at `to` sees
 * c's allocations, so c is dropped. But glibc's memalign and aligned_alloc jump to malloc only up
 * to an alignment of 16, and its realloc jumps there only if it has nothing to free: these sites
 * get a flag. A jump of a realloc or a free to a free does not matter, because a second free of the
 * same memory changes nothing.
 */
static void judge_jump(struct candidate *c, const struct candidate *to)
{
	if (is_kind(c, PF_SITE_ALLOC) && is_kind(to, PF_SITE_ALLOC)) {
		if (c->row->align == TABLE_ALIGNED && to->row->align == TABLE_ANY &&
		    c->row->site.size_arg == 2)
			c->flags |= PF_SITE_SMALL_ALIGN_IS_ALLOC;
		else if (c->row->align != TABLE_PAGE || to->row->align != TABLE_ANY)
			c->dropped = true;
	} else if (is_kind(c, PF_SITE_REALLOC)) {
		if (is_kind(to, PF_SITE_REALLOC))
			c->dropped = true;
		else if (is_kind(to, PF_SITE_ALLOC))
			c->flags |= PF_SITE_NULL_IS_ALLOC;
	}
}

/*
 * Whether c is a C++ operator that calls an allocator of another family: so does libstdc++ in a
 * program that has a malloc linked in. Then c is no site.
 */
static bool is_caller(struct allocator_found *f, const struct candidate *c,
		      const struct code_ways *w)
{
	for (size_t i = 0; c->row->family == TABLE_CXX && i < w->n_calls; i++) {
		const struct candidate *to = candidate_at(f, w->calls[i]);

		if (to && to->row->family != TABLE_CXX && !is_kind(to, PF_SITE_FREE))
			return true;
	}
	return false;
}

static void add_inner(const struct candidate *c, const struct code_ways *w, struct alloc_sites *ret)
{
	if (is_kind(c, PF_SITE_FREE) || !w->any_call)
		return;
	alloc_add_inner(ret, c->address, c->address + c->bytes);
	/* Return addresses in code to which the function jumps are inner ranges, too. */
	for (size_t i = 0; i < w->n_returns; i++)
		if (w->returns[i] - c->address >= c->bytes)
			alloc_add_inner(ret, w->returns[i], w->returns[i] + 1);
}

static int judge(struct allocator_found *f, struct candidate *c, struct alloc_sites *ret)
{
	struct pf_site site = c->row->site;
	struct code_ways w;
	bool cut;
	int r;

	if (alloc_code_thunk(f->code, c->address, f->places, f->n_places, &cut)) {
		c->dropped = true;
		return 0;
	}
	alloc_code_ways(f->code, c->address, f->places, f->n_places, 0, &w);
	for (size_t i = 0; i < w.n_jumps; i++)
		judge_jump(c, candidate_at(f, w.jumps[i]));
	c->dropped |= (c->row->wraps && w.open) || is_caller(f, c, &w);
	if (c->dropped || alloc_is_copied(f->look, c->address, ret))
		return 0;
	/* It does not matter if a free is seen twice. */
	if ((cut || w.cut) && !is_kind(c, PF_SITE_FREE))
		alloc_add_not_followed(ret, c->symbol);
	site.flags |= c->flags;
	r = alloc_add_site(f->look, c->address, c->symbol, site, ret);
	if (r == 0)
		add_inner(c, &w, ret);
	return r;
}

/*
 * If the table does not have the names of a Rust program's allocator, the shim through which Rust's
 * code calls it becomes the site.
 */
static int judge_rust(struct allocator_found *f, const struct candidate *c, struct alloc_sites *ret)
{
	struct code_ways w;
	int r;

	alloc_code_ways(f->code, c->address, f->places, f->n_places, RUST_DEPTH, &w);
	if (w.n_jumps || w.n_calls || w.open || alloc_is_copied(f->look, c->address, ret))
		return 0;
	if (w.cut)
		alloc_add_not_followed(ret, c->symbol);
	alloc_add_problem(ret, "this Rust program has an allocator of its own: calls of it that "
			       "the compiler inlined are not seen");
	r = alloc_add_site(f->look, c->address, c->symbol, c->row->site, ret);
	if (r == 0)
		add_inner(c, &w, ret);
	return r;
}

/* ---- all ---- */

static int find_all(struct allocator_found *f, struct alloc_sites *ret)
{
	size_t n;
	int r = 0;

	add_files(f, false);
	set_places(f);
	for (size_t i = 0; r == 0 && i < f->n; i++)
		r = judge(f, &f->items[i], ret);
	n = f->n;
	add_files(f, true);
	for (size_t i = n; r == 0 && i < f->n; i++)
		r = judge_rust(f, &f->items[i], ret);
	if (f->full)
		alloc_add_problem(ret,
				  "its allocators have more than %d functions: allocations of "
				  "the others are not seen, and what they free counts as in use",
				  CANDIDATES_MAX);
	if (r == 0 && !f->n)
		r = f->loader ? -EAGAIN : -ENOENT;
	return r;
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	struct allocator_found *f = xcalloc(1, sizeof(*f));
	int r;

	(void)event_mask;
	f->look = look;
	f->code = alloc_code_new(look);
	r = find_all(f, ret);
	alloc_code_free(f->code);
	free(f);
	return r;
}

const struct alloc_finder alloc_native_finder = {
	.name = "native", .events = ALLOC_MEMORY_EVENTS, .marks = alloc_table_marks, .find = find};
