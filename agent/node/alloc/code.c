/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the code of a process's function: see code.h. Reader's thread. */
#include "node/alloc/code.h"

#include <stdlib.h>
#include <unistd.h>

#include "node/insn/insn.h"

#define PAGE_BYTES 4096u
#define PAGES	   64u	  /* pages kept at a time; a walk needs few, next to each other */
#define SEEN_SLOTS 16384u /* addresses of one walk; an instruction leads to at most two others */
#define INSNS_MAX  8192u  /* instructions of a walk; the longest seen has 3,950 (jemalloc 5.3) */
#define WORK_MAX   512u	  /* branches to be followed later */
#define THUNKS_MAX 4	  /* jumps in a row: PLT, alias, alias */
/* the reg field of the ModRM byte of a jump by a pointer; the opcode is ff */
#define JUMP_POINTER 4
#define CALL_POINTER 2

struct page {
	uint64_t address; /* the page's address; bit 0 set: the page was read */
	uint8_t bytes[PAGE_BYTES];
};
struct alloc_code {
	const struct runtime_look *look;
	struct page pages[PAGES];
	/* the state of one walk */
	uint64_t seen[SEEN_SLOTS];
	unsigned n_insns;
	struct {
		uint64_t address;
		unsigned depth;
	} work[WORK_MAX];
	size_t n_work;
	const uint64_t *places;
	size_t n_places;
	uint64_t function;
	const struct mapping *file; /* a mapping of the function's file */
	unsigned depth_max;
	struct code_ways *ret;
};

struct alloc_code *alloc_code_new(const struct runtime_look *look)
{
	struct alloc_code *c = xcalloc(1, sizeof(*c));

	c->look = look;
	return c;
}

struct alloc_code *alloc_code_free(struct alloc_code *c)
{
	free(c);
	return NULL;
}

/* ---- bytes ---- */

/*
 * Breakpoints, also those of the agent's probes, are only in memory. The file has the code without
 * them.
 */
int alloc_code_bytes(const struct runtime_look *look, uint64_t address, void *to, size_t n)
{
	const struct mapping *m = proc_mappings_find(look->maps, address);
	ssize_t got;

	if (!m || m->fd < 0 || m->writable || m->copy || n > m->end - address)
		return runtime_memory_read(look->memory, address, to, n);
	got = pread(m->fd, to, n, (off_t)(m->file_offset + (address - m->start)));
	if (got < 0)
		return -errno;
	memset((uint8_t *)to + got, 0, n - (size_t)got); /* after the end of the file */
	return 0;
}

static const uint8_t *page_at(struct alloc_code *c, uint64_t address)
{
	uint64_t start = address & ~(uint64_t)(PAGE_BYTES - 1);
	struct page *p = &c->pages[start / PAGE_BYTES % PAGES];

	if (p->address == (start | 1))
		return p->bytes;
	p->address = 0;
	if (alloc_code_bytes(c->look, start, p->bytes, PAGE_BYTES) < 0)
		return NULL;
	p->address = start | 1;
	return p->bytes;
}

size_t alloc_code_read(struct alloc_code *c, uint64_t address, uint8_t ret[static INSN_BYTES_MAX])
{
	const struct mapping *m = proc_mappings_find(c->look->maps, address);
	size_t n = 0;

	while (m && n < INSN_BYTES_MAX && address + n < m->end) {
		size_t from = (address + n) % PAGE_BYTES;
		size_t piece = MIN(INSN_BYTES_MAX - n, PAGE_BYTES - from);
		const uint8_t *page = page_at(c, address + n);

		if (!page)
			break;
		memcpy(ret + n, page + from, piece);
		n += piece;
	}
	return m ? MIN(n, m->end - address) : 0;
}

static bool decode(struct alloc_code *c, uint64_t address, struct insn *ret)
{
	uint8_t bytes[INSN_BYTES_MAX];
	size_t n = alloc_code_read(c, address, bytes);

	return n && insn_decode(bytes, n, ret);
}

/* ---- instructions ---- */

static bool is_endbr(const struct insn *i)
{
	return i->map == INSN_0F && i->opcode == 0x1e && i->lock_or_rep;
}

static bool is_jump(const struct insn *i)
{
	return insn_is(i, 0xe9) || insn_is(i, 0xeb);
}

static bool is_condition(const struct insn *i)
{
	return (i->map == INSN_0F && (i->opcode & 0xf0) == 0x80) ||
	       (i->map == INSN_ONE && (i->opcode & 0xf0) == 0x70) ||
	       (i->map == INSN_ONE && i->opcode >= 0xe0 && i->opcode <= 0xe3);
}

static bool is_call(const struct insn *i)
{
	return insn_is(i, 0xe8);
}

static bool is_by_pointer(const struct insn *i, unsigned how)
{
	return insn_is(i, 0xff) && (i->reg & 7) == how;
}

/* Returns whether the path ends at this instruction: ret, int3, hlt or ud2. */
static bool is_end(const struct insn *i)
{
	return insn_is(i, 0xc3) || insn_is(i, 0xc2) || insn_is(i, 0xcc) || insn_is(i, 0xf4) ||
	       (i->map == INSN_0F && i->opcode == 0x0b);
}

static bool is_relative(const struct insn *i)
{
	return i->has_modrm && i->mod == 0 && (i->rm & 7) == 5 && !i->segment;
}

/* ---- pointers ---- */

/*
 * Whether code is push $n; jmp: the second half of a PLT entry, which looks up the function at its
 * first call.
 */
static bool is_lazy(struct alloc_code *c, uint64_t address)
{
	struct insn i;

	if (!decode(c, address, &i))
		return false;
	if (is_endbr(&i) && !decode(c, address + i.bytes, &i))
		return false;
	return insn_is(&i, 0x68);
}

/* The target of a jump or call by a pointer in memory; 0: not known. */
static uint64_t pointed(struct alloc_code *c, const struct insn *i, uint64_t next)
{
	uint64_t to;

	if (!is_relative(i) ||
	    runtime_memory_u64(c->look->memory, next + (uint64_t)(int64_t)i->displacement, &to) <
		    0 ||
	    !proc_mappings_find(c->look->maps, to) || is_lazy(c, to))
		return 0;
	return to;
}

/* Follows functions that are only a jump: a PLT entry, an alias. 0: the target is not known yet. */
static uint64_t behind_thunks(struct alloc_code *c, uint64_t address)
{
	for (unsigned n = 0;; n++) {
		uint64_t at = address, to;
		struct insn i;

		if (!decode(c, at, &i))
			return address;
		if (is_endbr(&i)) {
			at += i.bytes;
			if (!decode(c, at, &i))
				return address;
		}
		if (is_jump(&i))
			to = at + i.bytes + (uint64_t)i.immediate;
		else if (is_by_pointer(&i, JUMP_POINTER) && is_relative(&i))
			to = pointed(c, &i, at + i.bytes);
		else
			return address;
		if (n == THUNKS_MAX) {
			c->ret->cut = true;
			return address;
		}
		address = to;
	}
}

/* ---- places ---- */

static int compare_places(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

static bool is_place(const uint64_t *places, size_t n, uint64_t address)
{
	return n && bsearch(&address, places, n, sizeof(*places), compare_places);
}

uint64_t alloc_code_thunk(struct alloc_code *c, uint64_t function, const uint64_t *places, size_t n,
			  bool *ret_cut)
{
	uint64_t at = function;

	*ret_cut = false;
	for (unsigned k = 0;; k++) {
		uint64_t to;
		struct insn i;

		if (!decode(c, at, &i) || (is_endbr(&i) && !decode(c, at += i.bytes, &i)))
			return 0;
		if (is_jump(&i))
			to = at + i.bytes + (uint64_t)i.immediate;
		else if (is_by_pointer(&i, JUMP_POINTER))
			to = pointed(c, &i, at + i.bytes);
		else
			return 0;
		if (k == THUNKS_MAX) {
			*ret_cut = true;
			return 0;
		}
		if (to != function && is_place(places, n, to))
			return to;
		at = to;
	}
}

static void note(struct alloc_code *c, uint64_t items[CODE_WAYS_MAX], size_t *n, uint64_t address)
{
	for (size_t i = 0; i < *n; i++)
		if (items[i] == address)
			return;
	if (*n < CODE_WAYS_MAX)
		items[(*n)++] = address;
	else
		c->ret->cut = true;
}

/* ---- the walk ---- */

/* Notes an address. Returns whether this walk sees it for the first time. */
static bool see(struct alloc_code *c, uint64_t address)
{
	size_t slot = address * 0x9e3779b97f4a7c15ull >> 32 & (SEEN_SLOTS - 1);

	while (c->seen[slot]) {
		if (c->seen[slot] == address)
			return false;
		slot = (slot + 1) & (SEEN_SLOTS - 1);
	}
	c->seen[slot] = address;
	return true;
}

static void push(struct alloc_code *c, uint64_t address, unsigned depth)
{
	if (c->n_work == WORK_MAX) {
		c->ret->cut = true;
		return;
	}
	c->work[c->n_work].address = address;
	c->work[c->n_work++].depth = depth;
}

static bool is_same_file(const struct mapping *a, const struct mapping *b)
{
	return a && b && a->inode == b->inode && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor && streq(a->path, b->path);
}

/*
 * Handles a jump to `to`, from which control does not come back. Returns whether the walk follows
 * it.
 */
static bool land(struct alloc_code *c, uint64_t to, unsigned depth)
{
	if (to != c->function && is_place(c->places, c->n_places, to)) {
		if (depth)
			note(c, c->ret->calls, &c->ret->n_calls, to);
		else
			note(c, c->ret->jumps, &c->ret->n_jumps, to);
		return false;
	}
	return is_same_file(proc_mappings_find(c->look->maps, to), c->file);
}

static void called(struct alloc_code *c, uint64_t to, uint64_t comes_back, unsigned depth)
{
	c->ret->any_call = true;
	if (to)
		to = behind_thunks(c, to);
	if (!to)
		return;
	if (is_place(c->places, c->n_places, to)) {
		note(c, c->ret->calls, &c->ret->n_calls, to);
		if (depth == 0)
			note(c, c->ret->returns, &c->ret->n_returns, comes_back);
	} else if (depth < c->depth_max &&
		   is_same_file(proc_mappings_find(c->look->maps, to), c->file)) {
		push(c, to, depth + 1);
	}
}

/* The address where the path goes on after this instruction; 0: the path ends. */
static uint64_t step(struct alloc_code *c, const struct insn *i, uint64_t next, unsigned depth)
{
	uint64_t to = next + (uint64_t)i->immediate;

	if (is_end(i))
		return 0;
	if (is_jump(i))
		return land(c, to, depth) ? to : 0;
	if (is_condition(i) && land(c, to, depth))
		push(c, to, depth);
	if (is_call(i))
		called(c, to, next, depth);
	if (is_by_pointer(i, CALL_POINTER))
		called(c, pointed(c, i, next), next, depth);
	if (!is_by_pointer(i, JUMP_POINTER))
		return next;
	to = pointed(c, i, next);
	c->ret->open |= !to && is_relative(i);
	return to && land(c, to, depth) ? to : 0;
}

static void follow(struct alloc_code *c, uint64_t address, unsigned depth)
{
	struct insn i;

	while (address && c->n_insns < INSNS_MAX && see(c, address) && decode(c, address, &i)) {
		c->n_insns++;
		address = step(c, &i, address + i.bytes, depth);
	}
}

void alloc_code_ways(struct alloc_code *c, uint64_t function, const uint64_t *places, size_t n,
		     unsigned depth, struct code_ways *ret)
{
	*ret = (struct code_ways){0};
	memset(c->seen, 0, sizeof(c->seen));
	c->n_insns = 0;
	c->places = places;
	c->n_places = n;
	c->function = function;
	c->file = proc_mappings_find(c->look->maps, function);
	c->depth_max = depth;
	c->ret = ret;
	push(c, function, 0);
	while (c->n_work) {
		c->n_work--;
		follow(c, c->work[c->n_work].address, c->work[c->n_work].depth);
	}
	ret->cut |= c->n_insns == INSNS_MAX;
}
