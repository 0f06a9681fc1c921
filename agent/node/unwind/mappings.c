/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file makes the list in which the kernel looks up a process's code: mappings of files, and
 * generated code. It cuts mappings where a slot's part of a large file ends, and where the code of
 * a runtime begins or ends.
 */
#include "node/unwind/internal.h"

#define PROCESS_MAPPINGS MAPPINGS_MAX
/* how far generated code may grow: HotSpot's code cache has 240 MiB, V8's code range 128 MiB */
#define GROWTH_BYTES (256u << 20)

_Static_assert(PROCESS_MAPPINGS <= PF_PART_MAPPINGS_MAX * PF_PARTS_MAX, "they have room");

void unwind_list_leave(struct unwind *u, struct list *l)
{
	for (size_t i = 0; i < l->n_files; i++)
		unwind_file_leave(u, l->files[i]);
	free(l->files);
	free(l->items);
}

static void add_piece(struct list *l, const struct pf_mapping *x)
{
	struct pf_mapping *last = l->n ? &l->items[l->n - 1] : NULL;

	if (last && last->end == x->start && last->file == x->file && last->bias == x->bias &&
	    last->load == x->load && last->tag == x->tag && last->runtime == x->runtime) {
		last->end = x->end;
		return;
	}
	if (l->n == PROCESS_MAPPINGS) {
		l->cut = true;
		return;
	}
	GROW(l->items, l->n, l->cap);
	l->items[l->n] = *x;
	l->items[l->n++].verified = PF_UNVERIFIED;
}

static struct table_file *use_once(struct unwind *u, struct list *l, struct elf_index *index)
{
	struct table_file *f = unwind_file_use(u, index);

	if (l->n_files && l->files[l->n_files - 1] == f) {
		unwind_file_leave(u, f);
		return f;
	}
	GROW(l->files, l->n_files, l->cap_files);
	l->files[l->n_files++] = f;
	return f;
}

/* ---- code of runtimes ---- */

/* All ranges of a process's runtimes, in order of start. runtime is as in pf_mapping.runtime. */
struct piece {
	uint64_t start, end;
	uint32_t runtime;
};
struct pieces {
	struct piece items[PF_RUNTIMES_MAX * RUNTIME_RANGES_MAX];
	size_t n, next; /* next: the first item that ends after the current address */
};

static int compare_pieces(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static void collect(const struct runtime_process *runtimes, struct pieces *ret)
{
	ret->n = ret->next = 0;
	for (uint32_t i = 0; i < runtime_process_n(runtimes); i++) {
		const struct runtime_learnt *l = runtime_process_at(runtimes, i).learnt;

		for (size_t k = 0; k < l->n_ranges && ret->n < ARRAY_SIZE(ret->items); k++)
			ret->items[ret->n++] =
				(struct piece){l->ranges[k].start, l->ranges[k].end,
					       (i + 1) | (l->ranges[k].managed ? PF_MANAGED : 0)};
	}
	qsort(ret->items, ret->n, sizeof(ret->items[0]), compare_pieces);
}

/*
 * Returns which runtime owns the code at start, as in pf_mapping.runtime. *ret_end: up to where the
 * answer is valid. start must grow from call to call.
 */
static uint32_t runtime_at(struct pieces *p, uint64_t start, uint64_t end, uint64_t *ret_end)
{
	const struct piece *x;

	while (p->next < p->n && p->items[p->next].end <= start)
		p->next++;
	x = &p->items[p->next];
	if (p->next == p->n || x->start >= end) {
		*ret_end = end;
		return 0;
	}
	*ret_end = MIN(end, x->start > start ? x->start : x->end);
	return x->start > start ? 0 : x->runtime;
}

/* ---- mappings ---- */

struct at {
	const struct mapping *m;
	struct elf_index *index;
	/* rows of the process's generated code, if the mapping has such code and no runtime */
	struct elf_index *generated;
	uint64_t start, end; /* a piece of the mapping */
	uint64_t room;	     /* where the next mapping begins */
	uint32_t runtime;
	bool pending;
};

/*
 * Returns whether the file may have an image. A file may not if the mapped bytes may differ from
 * the parsed ones: then the bytes of each process must be compared first.
 */
static bool has_image(const struct mapping *m)
{
	return m->tag != PF_TAG_NONE && m->tag != PF_TAG_UNKNOWN && !mapping_is_unsure(m);
}

/* Adds code with the rows of f: several pieces if it has more code than one slot covers. */
static void add_code(struct list *l, const struct at *a, const struct table_file *f, uint64_t bias)
{
	uint64_t start = a->start;

	while (start < a->end) {
		uint64_t slot_end, left = a->end - start;
		uint32_t slot = unwind_file_slot(f, start - bias, &slot_end);
		/*
		 * If no other slot follows, this piece takes the rest, even if the addresses of a
		 * hostile file wrap around.
		 */
		bool last = slot_end == UINT64_MAX;
		struct pf_mapping x = {
			.start = start,
			.end = start + (last ? left : MIN(left, slot_end - (start - bias))),
			.bias = bias,
			.load = mapping_load(a->m),
			.tag = a->m->tag,
			.file = slot,
			.runtime = a->runtime,
		};

		add_piece(l, &x);
		start = x.end;
	}
}

/* Adds a mapping of a file. */
static void add_file(struct unwind *u, struct list *l, const struct at *a)
{
	struct table_file *f = use_once(u, l, a->index);
	uint64_t address, load = mapping_load(a->m);
	struct image_span runtime = {a->start - load, a->end - load};

	if (has_image(a->m))
		unwind_image_of_file(u, a->m->tag, a->index, f, a->runtime ? &runtime : NULL);
	/* If no part of the file's code is mapped here, nothing is known of this mapping. */
	if (elf_index_mapping_address(a->index, a->m->file_offset, a->m->end - a->m->start,
				      &address) == 0)
		add_code(l, a, f, a->m->start - address);
}

static void add_at(struct unwind *u, struct list *l, const struct at *a)
{
	struct pf_mapping x = {
		.start = a->start,
		.end = a->end,
		.load = mapping_load(a->m),
		.tag = a->m->tag,
		.runtime = a->runtime,
	};

	/*
	 * Generated code grows upwards into memory that its runtime has reserved. If that memory is
	 * also writable, the kernel does not count it in exec_pages. Then only a sample in the new
	 * code would make the agent read the mappings again, once a second, and samples of a JVM
	 * that is warming up would be lost. So the piece is extended over that memory: no other
	 * code is there, and the runtime knows which code is its own.
	 */
	if (a->runtime & PF_MANAGED && !*a->m->path && a->end == a->m->end)
		x.end = MAX(a->end, a->room);
	if (a->index) {
		add_file(u, l, a);
		return;
	}
	if (a->generated) {
		struct table_file *f = use_once(u, l, a->generated);

		f->generated = true;
		add_code(l, a, f, 0);
		return;
	}
	if (a->pending)
		x.file = PF_SLOT_PENDING;
	else if (a->m->path[0] == '/')
		x.file = PF_SLOT_NONE;
	else if (a->runtime & PF_MANAGED)
		x.file = PF_SLOT_EMPTY;
	else
		return;
	if (has_image(a->m))
		unwind_image_of_slot(u, a->m->tag, x.file);
	add_piece(l, &x);
}

static uint64_t room_behind(const struct mappings *m, size_t i)
{
	uint64_t most = m->items[i].end + GROWTH_BYTES;

	return i + 1 < m->n ? MIN(m->items[i + 1].start, most) : most;
}

/*
 * Returns the index of a file that must be parsed, perhaps again: the kernel may have its rows
 * already. Others that have the file mapped keep their rows, too.
 */
static struct elf_index *index_so_far(const struct unwind *u, const struct mapping *m, bool pending)
{
	return pending && has_image(m) ? unwind_image_index(u, m->tag) : NULL;
}

void unwind_list_build(struct unwind *u, const struct mappings *m, struct elf_index *const *indexes,
		       const bool *pending, const struct runtime_process *runtimes, struct list *l)
{
	_cleanup_free_ struct pieces *pieces = xmalloc(sizeof(*pieces));
	struct elf_index *generated = runtime_process_generated(runtimes);
	uint64_t end = 0;

	collect(runtimes, pieces);
	for (size_t i = 0; i < m->n; i++) {
		const struct mapping *x = &m->items[i];
		struct at a = {.m = x,
			       .index = indexes[i] ?: index_so_far(u, x, pending[i]),
			       .pending = pending[i],
			       .room = room_behind(m, i)};

		/*
		 * mappings that changed while they were read may overlap; then the first one counts
		 */
		for (a.start = MAX(x->start, end); a.start < x->end; a.start = a.end) {
			a.runtime = runtime_at(pieces, a.start, x->end, &a.end);
			a.generated = !a.runtime && runtime_mapping_is_generated(x, indexes[i])
					      ? generated
					      : NULL;
			add_at(u, l, &a);
		}
		end = MAX(end, x->end);
	}
	if (l->cut)
		counter_add(counter("podflame_unwind_mappings_dropped_total", "reason", "limit"),
			    1);
}
