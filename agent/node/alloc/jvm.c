/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Java's heap. Each time that a thread gets a new TLAB (a piece of the heap for itself), and for
 * each object outside a TLAB, HotSpot calls a function that reports to its flight recorder
 * (share/gc/shared/allocTracer.hpp of the JDK). It does so also if no flight recorder runs. These
 * calls are rare. A TLAB's bytes count for the object that did not fit into the previous one.
 * docs/memory.md. Reader's thread.
 */
#include "node/alloc/internal.h"

#include <stdlib.h>

#define REFILL_FLAG "FastTLABRefill"
#define IN_TLAB	    "AllocTracer::send_allocation_in_new_tlab"
#define OUTSIDE	    "AllocTracer::send_allocation_outside_tlab"

/*
 * Prefixes of mangled names. A mangled name shows the arguments; the first argument has the class.
 * The first row that fits counts.
 */
static const struct jvm_row {
	const char *name;
	uint8_t size_arg; /* which argument has the size of the TLAB or object */
	const char *symbol;
} rows[] = {
	/* JDK 11 on: (Klass*, HeapWord*, size_t[, size_t], Thread*) */
	{"_ZN11AllocTracer27send_allocation_in_new_tlabEP5Klass", 3, IN_TLAB},
	{"_ZN11AllocTracer28send_allocation_outside_tlabEP5Klass", 3, OUTSIDE},
	/* JDK 8 with a flight recorder: (KlassHandle, HeapWord*, size_t[, size_t]) */
	{"_ZN11AllocTracer33send_allocation_in_new_tlab_eventE11KlassHandleP8HeapWord", 3,
	 IN_TLAB "_event"},
	{"_ZN11AllocTracer34send_allocation_outside_tlab_eventE11KlassHandleP8HeapWord", 3,
	 OUTSIDE "_event"},
	/* JDK 8 to 10 without a flight recorder: (KlassHandle or Klass*, size_t[, size_t]) */
	{"_ZN11AllocTracer33send_allocation_in_new_tlab_eventE", 2, IN_TLAB "_event"},
	{"_ZN11AllocTracer34send_allocation_outside_tlab_eventE", 2, OUTSIDE "_event"},
};

/*
 * A name with a dot is no match: it is a part of a function, or a function whose arguments the
 * compiler has changed.
 */
static const struct jvm_row *row_of(const char *symbol)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows) && !strchr(symbol, '.'); i++)
		if (str_has_prefix(symbol, rows[i].name))
			return &rows[i];
	return NULL;
}

static int add_sites(const struct runtime_look *look, const struct mapping *m,
		     const struct elf_index *index, struct alloc_sites *ret)
{
	uint64_t bias = runtime_bias(look, m);
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < elf_index_n_marks(index); i++) {
		struct elf_mark mark = elf_index_mark(index, i);
		const struct jvm_row *row = row_of(mark.name);
		struct pf_site site = {.kind = PF_SITE_JVM, .ptr_arg = 1};

		if (!row)
			continue;
		n++;
		site.size_arg = row->size_arg;
		r = alloc_add_site(look, bias + mark.address, row->symbol, site, ret);
	}
	return r < 0 ? r : n < 2 ? -ENOENT : 0;
}

/*
 * Returns whether threads get new TLABs unseen: in JDK 8 to 10 without G1, C1's code gets a new
 * TLAB without a call of the VM (c1_Runtime1_x86.cpp).
 */
static bool refills_itself(const struct runtime_look *look)
{
	const struct mapping *m;
	uint64_t address, size;
	uint8_t on = 0;

	return runtime_find_mark(look, REFILL_FLAG, &m, &address, &size) == 0 &&
	       runtime_memory_u8(look->memory, address, &on) == 0 && on;
}

/* Adds one sentence about what is not seen for the events of event_mask. */
static void tell(const struct runtime_look *look, struct alloc_sites *s, unsigned event_mask, int r)
{
	bool inuse = event_mask & 1u << PF_EVENT_MEM_INUSE;

	if (!(event_mask & 1u << PF_EVENT_MEM_ALLOC))
		r = 0;
	if (r == -ENOENT)
		alloc_add_problem(s, "libjvm.so has no .symtab: Java objects are not seen, only "
				     "what the JVM itself allocates");
	else if (r < 0)
		alloc_add_problem(s, "Java objects are not seen: %s", strerror(-r));
	else if (event_mask & 1u << PF_EVENT_MEM_ALLOC && refills_itself(look))
		alloc_add_problem(s, "some Java objects that code of C1 allocates are not seen: "
				     "start this Java with -XX:-FastTLABRefill");
	else if (inuse)
		alloc_add_problem(s, "mem-inuse has no Java objects, which the collector moves and "
				     "frees: only what the JVM itself allocates");
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	const struct mapping *m;
	uint64_t address, size;
	int r = runtime_find_mark(look, "gHotSpotVMStructs", &m, &address, &size);

	if (r < 0)
		return -ENOENT;
	ret->own_heap = true;
	if (event_mask & 1u << PF_EVENT_MEM_ALLOC)
		r = add_sites(look, m, look->indexes[m - look->maps->items], ret);
	tell(look, ret, event_mask, r);
	return r == -ENOENT ? 0 : r;
}

static const char *const marks[] = {"gHotSpotVMStructs",
				    REFILL_FLAG,
				    "_ZN11AllocTracer27send_allocation_in_new_tlab*",
				    "_ZN11AllocTracer28send_allocation_outside_tlab*",
				    "_ZN11AllocTracer33send_allocation_in_new_tlab_event*",
				    "_ZN11AllocTracer34send_allocation_outside_tlab_event*",
				    NULL};

const struct alloc_finder alloc_jvm_finder = {
	.name = "jvm", .events = ALLOC_MEMORY_EVENTS, .marks = marks, .find = find};
