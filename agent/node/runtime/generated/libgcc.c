/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs have given to __register_frame(), so that C++'s exceptions pass through their
 * generated code: LLVM's users do for each module (PostgreSQL, Julia, Numba). libgcc keeps it in
 * variables without a name, so this file finds these in the instructions of libgcc's functions:
 *
 * - up to GCC 12 (libgcc/unwind-dw2-fde.c): the heads of two lists, of objects that were already
 *   searched and of others. __deregister_frame_info_bases() loads both heads and takes the address
 *   of both, and does both with nothing else.
 * - from GCC 13 on (libgcc/unwind-dw2-btree.h): a tree. _Unwind_Find_FDE() loads its root and, 16
 *   bytes behind it, its lock.
 *
 * If the instructions fit neither, nothing is read.
 */
#include "node/insn/insn.h"
#include "node/runtime/generated/generated.h"

#include <stdlib.h>

#define CODE_BYTES_MAX	 4096 /* instructions of a function that are looked at; GCC 15 has 3,225 */
#define PLACES_MAX	 16   /* variables to which a function refers; others are not looked at */
#define OBJECTS_MAX	 4096 /* pieces of call frame information of one process */
#define TREE_LEVELS_MAX	 8    /* a tree of 2,000,000 objects has these many */
#define PAGE_BYTES	 4096
#define LOCK_BEHIND_ROOT 16

static const char *const marks[] = {"_Unwind_Find_FDE", "__deregister_frame_info_bases", NULL};

/* ---- the variables of a function ---- */

struct place {
	uint64_t address;
	bool loaded;  /* as 8 bytes: read, written or compared */
	bool pointed; /* its address was taken */
};
struct places {
	struct place items[PLACES_MAX];
	size_t n;
};

static struct place *place_of(struct places *p, uint64_t address)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].address == address)
			return &p->items[i];
	if (p->n == PLACES_MAX)
		return NULL;
	p->items[p->n] = (struct place){.address = address};
	return &p->items[p->n++];
}

#define LEA   0x8d
#define REX_W 8

/* Notes the variable to which an instruction refers, relative to the next instruction's address. */
static void note_place(struct places *p, const struct insn *i, uint64_t next)
{
	bool relative = i->has_modrm && i->mod == 0 && (i->rm & 7) == 5;
	struct place *x;

	if (!relative || i->segment || i->map != INSN_ONE || !(i->rex & REX_W))
		return;
	x = place_of(p, next + (uint64_t)(int64_t)i->displacement);
	if (x && i->opcode == LEA)
		x->pointed = true;
	else if (x)
		x->loaded = true;
}

static void read_places(struct memory *m, uint64_t at, uint64_t bytes, struct places *ret)
{
	uint8_t code[CODE_BYTES_MAX];
	size_t n = MIN(bytes, sizeof(code)), used = 0;
	struct insn i;

	ret->n = 0;
	if (runtime_memory_read(m, at, code, n) < 0)
		return;
	for (; insn_decode(code + used, n - used, &i); note_place(ret, &i, at + used))
		used += i.bytes;
}

/* ---- call frame information that was registered ---- */

struct object { /* struct object of libgcc/unwind-dw2-fde.h */
	uint64_t begin, text_base, data_base;
	uint64_t frames; /* the information, or an array of pointers to it; see flags */
	uint64_t flags;
	uint64_t next; /* of the lists */
};
#define OBJECT_SORTED 1 /* frames points to an array, whose first word is what it was before */
#define OBJECT_ARRAY  2 /* frames points to an array of pointers, with NULL at the end */

struct libgcc {
	struct generated *g;
	size_t n_objects;
	char *bytes[2]; /* two readings */
};

/*
 * Reads the information up to its end, an entry of length 0. -E2BIG: it has more than
 * GENERATED_FRAMES_MAX bytes.
 */
static int read_frames(struct memory *m, uint64_t address, char *to, size_t *ret_n)
{
	size_t have = 0, at = 0;
	uint32_t length;
	int r;

	while (at + sizeof(length) <= GENERATED_FRAMES_MAX) {
		while (have < at + sizeof(length)) {
			size_t n = PAGE_BYTES - (address + have) % PAGE_BYTES;

			n = MIN(n, GENERATED_FRAMES_MAX - have);
			r = runtime_memory_read(m, address + have, to + have, n);
			if (r < 0)
				return r;
			have += n;
		}
		memcpy(&length, to + at, sizeof(length));
		at += sizeof(length);
		if (!length) {
			*ret_n = at;
			return 0;
		}
		if (length > GENERATED_FRAMES_MAX) /* UINT32_MAX: the 64-bit format */
			return -E2BIG;
		at += length;
	}
	return -E2BIG;
}

/* Reads the information twice. Only if both readings are equal, its rows count. */
static int add_frames(struct libgcc *l, uint64_t address)
{
	struct parse_generated_frames f = {
		.data = l->bytes[0], .address = address, .eh = true, .until_zero = true};
	struct memory *m = l->g->look->memory;
	size_t again = 0;
	int r = read_frames(m, address, l->bytes[0], &f.n);

	if (r == 0)
		r = read_frames(m, address, l->bytes[1], &again);
	if (r == 0 && (f.n != again || memcmp(l->bytes[0], l->bytes[1], f.n) != 0))
		r = -ESTALE;
	if (r == 0)
		runtime_generated_add(l->g, &f);
	return r;
}

static int add_array(struct libgcc *l, uint64_t array)
{
	uint64_t frames;
	int r;

	for (; l->n_objects < OBJECTS_MAX; array += sizeof(frames), l->n_objects++) {
		r = runtime_memory_u64(l->g->look->memory, array, &frames);
		if (r < 0 || !frames)
			return r;
		r = add_frames(l, frames);
		if (r < 0)
			return r;
	}
	return -E2BIG;
}

/*
 * Adds what an object has. Returns -errno if the object itself cannot be read, or may be freed
 * memory.
 */
static int add_object(struct libgcc *l, uint64_t at, struct object *ret)
{
	struct memory *m = l->g->look->memory;
	int r = runtime_memory_read(m, at, ret, sizeof(*ret));
	uint64_t frames;

	if (r < 0)
		return r == -E2BIG ? -ENOSPC : r;
	frames = ret->frames;
	if (ret->flags & OBJECT_SORTED)
		r = runtime_memory_u64(m, ret->frames, &frames);
	if (r == 0)
		r = ret->flags & OBJECT_ARRAY ? add_array(l, frames) : add_frames(l, frames);
	if (r != -E2BIG)
		return r;
	runtime_generated_left_out(l->g, r);
	return 0;
}

/* ---- up to GCC 12: lists ---- */

static void read_list(struct libgcc *l, uint64_t head)
{
	struct object o = {0};
	int r = runtime_memory_u64(l->g->look->memory, head, &o.next);

	while (r == 0 && o.next)
		r = l->n_objects++ < OBJECTS_MAX ? add_object(l, o.next, &o) : -ENOSPC;
	if (r < 0)
		runtime_generated_left_out(l->g, r);
}

/* Returns whether these are the variables of a libgcc with lists. */
static bool read_lists(struct libgcc *l, const struct places *p)
{
	uint64_t heads[2];
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		if (!p->items[i].loaded || !p->items[i].pointed)
			continue;
		if (n == ARRAY_SIZE(heads))
			return false;
		heads[n++] = p->items[i].address;
	}
	for (size_t i = 0; n == ARRAY_SIZE(heads) && i < n; i++)
		read_list(l, heads[i]);
	return n == ARRAY_SIZE(heads);
}

/* ---- from GCC 13 on: a tree ---- */

enum node_type { NODE_INNER, NODE_LEAF };
struct node {		  /* struct btree_node of libgcc/unwind-dw2-btree.h */
	uint64_t version; /* odd: a thread is changing the node */
	uint32_t n, type;
	union {
		struct {
			uint64_t separator, child;
		} inner[15];
		struct {
			uint64_t begin, bytes, object;
		} leaf[10];
	};
};
_Static_assert(sizeof(struct node) == 256, "libgcc's structure");

/* Reads a node that no thread changes meanwhile. */
static int read_node(struct memory *m, uint64_t at, struct node *ret)
{
	uint64_t version = 0;
	int r = runtime_memory_read(m, at, ret, sizeof(*ret));

	if (r == 0)
		r = runtime_memory_u64(m, at, &version);
	if (r == 0 && (version & 1 || version != ret->version))
		r = -ESTALE;
	if (r == 0 && ret->n > (ret->type == NODE_INNER	 ? ARRAY_SIZE(ret->inner)
				: ret->type == NODE_LEAF ? ARRAY_SIZE(ret->leaf)
							 : 0))
		r = -EBADMSG;
	return r;
}

static int read_tree(struct libgcc *l, uint64_t at, unsigned levels)
{
	struct object o;
	struct node n;
	int r = levels ? read_node(l->g->look->memory, at, &n) : -EBADMSG;

	for (uint32_t i = 0; r == 0 && i < n.n; i++) {
		if (n.type == NODE_INNER)
			r = read_tree(l, n.inner[i].child, levels - 1);
		else if (l->n_objects++ >= OBJECTS_MAX)
			r = -ENOSPC;
		else
			r = add_object(l, n.leaf[i].object, &o);
	}
	return r;
}

static const struct place *find_place(const struct places *p, uint64_t address)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].address == address && p->items[i].loaded)
			return &p->items[i];
	return NULL;
}

/* Returns whether these are the variables of a libgcc with a tree. */
static bool read_root(struct libgcc *l, const struct places *p)
{
	for (size_t i = 0; i < p->n; i++) {
		uint64_t at = p->items[i].address, root = 0;
		int r;

		if (!p->items[i].loaded || !find_place(p, at + LOCK_BEHIND_ROOT))
			continue;
		r = runtime_memory_u64(l->g->look->memory, at, &root);
		if (r == 0 && root)
			r = read_tree(l, root, TREE_LEVELS_MAX);
		if (r < 0)
			runtime_generated_left_out(l->g, r);
		return true;
	}
	return false;
}

/* ---- all copies of libgcc ---- */

static uint64_t find(const struct runtime_look *look, size_t k, const char *mark, uint64_t *ret_n)
{
	struct elf_mark found;

	if (elf_index_find_mark(look->indexes[k], mark, &found) < 0)
		return 0;
	*ret_n = found.size;
	return runtime_bias(look, &look->maps->items[k]) + found.address;
}

static void read_copy(struct libgcc *l, uint64_t find_fde, uint64_t n, uint64_t deregister,
		      uint64_t deregister_n)
{
	struct memory *m = l->g->look->memory;
	struct places p;
	bool known;

	read_places(m, find_fde, n, &p);
	known = read_root(l, &p);
	if (!known) {
		read_places(m, deregister, deregister_n, &p);
		known = read_lists(l, &p);
	}
	if (known)
		l->g->facts.publishes = true;
	else
		l->g->facts.lacks[GENERATED_UNKNOWN]++;
}

static void read_all(struct generated *g)
{
	struct libgcc l = {.g = g};
	uint64_t last = 0;

	for (size_t i = 0; i < 2; i++)
		l.bytes[i] = xmalloc(GENERATED_FRAMES_MAX);
	for (size_t i = 0; i < g->look->maps->n; i++) {
		uint64_t n, deregister_n, find_fde, deregister;

		if (!g->look->indexes[i])
			continue;
		find_fde = find(g->look, i, marks[0], &n);
		deregister = find(g->look, i, marks[1], &deregister_n);
		if (find_fde && deregister && find_fde != last)
			read_copy(&l, find_fde, n, deregister, deregister_n);
		last = find_fde;
	}
	for (size_t i = 0; i < 2; i++)
		free(l.bytes[i]);
}

const struct generated_source runtime_libgcc = {.marks = marks, .read = read_all};
