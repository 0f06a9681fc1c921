/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the interpreter's loop (luaV_execute) in machine code, without symbols: it is the largest
 * function that jumps by the opcode of an instruction. Also finds the loop's callers. Each caller
 * keeps its first argument, the lua_State, at a place that its first instructions choose.
 * docs/lua.md. Runs on the reader's thread.
 */
#include "node/runtime/lua/lua.h"

#include <stdlib.h>

/* the code that masks, checks and looks up the opcode is in this many bytes before the jump */
#define DISPATCH_BEFORE 96
#define LOOP_BYTES_MIN	2000  /* the smallest compiled loop has 3 KiB */
#define LOOP_HEAD_MAX	32768 /* bytes of the loop before its first jump by opcode */
#define FUNCTION_MAX	65536 /* bytes of a function; calls behind them are not found */
#define CALLER_BYTES	512   /* bytes of a caller that are decoded */
#define TAKEN_TO_CALL	40    /* bytes from where a function's address is taken to the call */
#define ALIASES_MAX	8     /* the loop, and functions that end with a jump to it */

/* how a function was found: as the target of a call, or by an instruction that takes its address */
enum { CALLED = 1, TAKEN = 2 };

struct lua_search {
	const struct lua_text *t;
	const struct lua_layout *l;
	uint8_t *marks; /* flags (CALLED, TAKEN) for each byte of the code */
	struct lua_prologue loop;
	/* The loop, and the functions that end with a jump to it. */
	size_t aliases[ALIASES_MAX], n_aliases;
	struct lua_loop out;
};

static int32_t word_at(const struct lua_search *s, size_t at)
{
	int32_t value;

	memcpy(&value, s->t->code + at, sizeof(value));
	return value;
}

/* Returns the target of the displacement at `at`; SIZE_MAX: the target is outside of the code. */
static size_t target_of(const struct lua_search *s, size_t at)
{
	uint64_t to = at + 4 + (int64_t)word_at(s, at);

	return to < s->t->n ? to : SIZE_MAX;
}

/*
 * If the instruction takes the address of a function, returns the function: lea f(%rip) into a
 * register; in programs at a fixed address, mov $f,%esi (the second argument).
 */
static size_t taken_at(const struct lua_search *s, size_t at)
{
	const uint8_t *p = s->t->code + at;
	uint64_t to;

	if ((p[0] & 0xfb) == 0x48 && p[1] == 0x8d && (p[2] & 0xc7) == 5)
		return target_of(s, at + 3);
	if (p[0] != 0xbe)
		return SIZE_MAX;
	to = (uint32_t)word_at(s, at + 1) - s->t->address;
	return to < s->t->n && to % 16 == 0 ? to : SIZE_MAX;
}

/*
 * Marks functions. It reads instruction by instruction, because bytes inside of an instruction may
 * look like a call.
 */
static void mark_functions(struct lua_search *s)
{
	size_t bytes;

	for (size_t at = 0; at + 8 <= s->t->n; at += bytes) {
		size_t to = SIZE_MAX;

		bytes = runtime_lua_insn_bytes(s->t->code + at, s->t->n - at);
		if (s->t->code[at] == 0xe8 && (to = target_of(s, at + 1)) != SIZE_MAX)
			s->marks[to] |= CALLED;
		to = taken_at(s, at);
		if (to != SIZE_MAX)
			s->marks[to] |= TAKEN;
	}
}

/* ---- the loop ---- */

/* Returns whether p is a jump through a register or a table. */
static bool is_jump(const uint8_t *p)
{
	/* ModRM: jmp, with a register, or with memory that has an index */
	return p[0] == 0xff && (p[1] & 0x38) == 0x20 && (p[1] >= 0xe0 || (p[1] & 7) == 4);
}

/* Returns whether p is cmp or sub of a register and an immediate byte. */
static bool is_compare(const uint8_t *p)
{
	return p[0] == 0x83 && ((p[1] & 0xf8) == 0xf8 || (p[1] & 0xf8) == 0xe8);
}

/*
 * If the code between the mask and the jump checks the opcode, returns whether it compares the
 * opcode with one of the last three; else returns true.
 */
static bool checks_opcode(const struct lua_search *s, size_t at, size_t jump)
{
	const uint8_t *p = s->t->code;
	unsigned n = s->l->n_opcodes;

	for (; at + 3 <= jump; at++)
		if (is_compare(p + at))
			return p[at + 2] < n && p[at + 2] + 4u > n;
	return true;
}

/* Returns whether an `and $mask` of a 32-bit register is shortly before the jump. */
static bool cuts_opcode(const struct lua_search *s, size_t jump)
{
	size_t from = jump > DISPATCH_BEFORE ? jump - DISPATCH_BEFORE : 0;
	const uint8_t *p = s->t->code;

	for (size_t at = from; at + 3 <= jump; at++)
		if (p[at] == 0x83 && (p[at + 1] & 0xf8) == 0xe0 && p[at + 2] == s->l->dispatch_mask)
			return checks_opcode(s, at + 3, jump);
	return false;
}

static void set_loop(struct lua_search *s, size_t start, size_t jump)
{
	uint64_t at = s->t->address + start, end;
	size_t next = jump;

	while (next < s->t->n && !s->marks[next])
		next++;
	if (next - start < LOOP_BYTES_MIN)
		return;
	end = runtime_lua_function_end(s->t->index, s->t->address + jump, s->t->address + next);
	if (end - at < LOOP_BYTES_MIN || end - at <= s->out.end - s->out.start)
		return;
	s->out.start = at;
	s->out.end = end;
}

static int find_loop(struct lua_search *s)
{
	/* start: of the current function; last: of the last one that was examined */
	size_t start = 0, last = SIZE_MAX;

	if (s->t->loop_bytes) {
		s->out.start = s->t->loop;
		s->out.end = s->t->loop + s->t->loop_bytes;
		return 0;
	}
	for (size_t at = 0; at + 4 <= s->t->n; at++) {
		if (s->marks[at])
			start = at;
		if (start == last || at - start >= LOOP_HEAD_MAX || !is_jump(s->t->code + at) ||
		    !cuts_opcode(s, at))
			continue;
		set_loop(s, start, at);
		last = start;
	}
	return s->out.end ? 0 : -ENOENT;
}

static void begin_of_loop(struct lua_search *s)
{
	size_t start = s->out.start - s->t->address, n = MIN(s->t->n - start, (size_t)CALLER_BYTES);
	const struct pf_lua *k = &s->l->kernel;
	size_t marked;

	runtime_lua_prologue(s->t->code + start, n, &s->loop);
	s->out.frame = s->loop.frame;
	s->out.settled = s->out.start + s->loop.bytes;
	if (s->l->minor != 3)
		return;
	/* In 5.3 the loop itself marks its first call (lvm.c: ci->callstatus |= CIST_FRESH). */
	marked = runtime_lua_or_store(s->t->code + start, n, k->ci_status, k->entry_is);
	if (marked)
		s->out.settled = s->out.start + marked;
}

/* ---- the loop's callers ---- */

/* Finds where the caller's lua_State is when the call returns to `back`. -ENOTSUP: not known. */
static int locate(const struct lua_search *s, const struct lua_prologue *p, uint64_t back,
		  struct pf_lua_site *ret)
{
	struct pf_rule rule;

	switch (p->home) {
	case LUA_HOME_REG: /* the loop saves that register at its beginning */
		if (!s->loop.saved[p->home_at % LUA_REGS])
			return -ENOTSUP;
		ret->offset = -(int32_t)s->loop.saved[p->home_at % LUA_REGS];
		return 0;
	case LUA_HOME_RBP:
		ret->offset = p->home_at;
		ret->by_rbp = 1;
		return 0;
	case LUA_HOME_CFA:
		if (!runtime_lua_rule_at(s->t->index, back, &rule) || rule.cfa != PF_CFA_RSP)
			return -ENOTSUP;
		ret->offset = rule.cfa_offset - p->home_at;
		return 0;
	default:
		return -ENOTSUP;
	}
}

/* Adds a call that runs the loop. It is in the function at `start`, and ends at `back`. */
static void add_site(struct lua_search *s, size_t start, size_t back, bool outermost)
{
	struct pf_lua_site site = {.address = s->t->address + back, .outermost = outermost};
	struct lua_prologue p;

	for (size_t k = 0; k < s->out.n_sites; k++)
		if (s->out.sites[k].address == site.address)
			return;
	if (s->out.n_sites == PF_LUA_SITES)
		return;
	runtime_lua_prologue(s->t->code + start, MIN(s->t->n - start, (size_t)CALLER_BYTES), &p);
	if (locate(s, &p, site.address, &site) == 0)
		s->out.sites[s->out.n_sites++] = site;
}

static bool is_alias(const struct lua_search *s, size_t to)
{
	for (size_t k = 0; k < s->n_aliases; k++)
		if (s->aliases[k] == to)
			return true;
	return false;
}

/* Finds the functions that end with a jump to the loop. */
static void find_aliases(struct lua_search *s)
{
	size_t loop = s->out.start - s->t->address, end = s->out.end - s->t->address;
	size_t start = 0; /* start of the current function */

	s->aliases[s->n_aliases++] = loop;
	for (size_t at = 0; at + 8 <= s->t->n; at++) {
		if (s->marks[at])
			start = at;
		if (s->t->code[at] != 0xe9 || target_of(s, at + 1) != loop ||
		    (at >= loop && at < end))
			continue;
		if (at - start < FUNCTION_MAX && !is_alias(s, start) && s->n_aliases < ALIASES_MAX)
			s->aliases[s->n_aliases++] = start;
	}
}

/*
 * Adds the site in luaD_rawrunprotected(L, f, ud), which calls f: the return address of that call.
 */
static void add_runner(struct lua_search *s, size_t taken)
{
	for (size_t at = taken; at < taken + TAKEN_TO_CALL && at + 8 <= s->t->n; at++) {
		size_t to, back;

		if (s->t->code[at] != 0xe8 || (to = target_of(s, at + 1)) == SIZE_MAX)
			continue;
		back = runtime_lua_indirect_call(s->t->code + to,
						 MIN(s->t->n - to, (size_t)CALLER_BYTES));
		if (back)
			add_site(s, to, to + back, true);
		return;
	}
}

/*
 * Returns whether the caller of the loop runs a coroutine: it is resume() or unroll() of ldo.c,
 * which run protected and may be inlined into lua_resume(). If the function counts its calls, it is
 * another function, into which luaD_call() is inlined.
 */
static bool is_coroutines(const struct lua_search *s, size_t start, size_t back)
{
	if (!(s->marks[start] & TAKEN) && s->t->address + start != s->t->resume)
		return false;
	return !runtime_lua_touches(s->t->code, s->t->n, back, s->l->l_calls);
}

static void find_sites(struct lua_search *s)
{
	size_t start = 0; /* start of the current function */

	for (size_t at = 0; at + 8 <= s->t->n; at++) {
		size_t to = taken_at(s, at);

		if (s->marks[at])
			start = at;
		if (to != SIZE_MAX && is_alias(s, to))
			add_runner(s, at);
		if (s->t->code[at] != 0xe8 || !is_alias(s, target_of(s, at + 1)))
			continue;
		if (at - start < FUNCTION_MAX)
			add_site(s, start, at + 5, is_coroutines(s, start, at + 5));
	}
}

int runtime_lua_find_loop(const struct lua_text *t, const struct lua_layout *l,
			  struct lua_loop *ret)
{
	_cleanup_free_ uint8_t *marks = xcalloc(1, t->n);
	struct lua_search s = {.t = t, .l = l, .marks = marks};
	int r;

	mark_functions(&s);
	r = find_loop(&s);
	if (r < 0)
		return r;
	if (s.out.start < t->address || s.out.start - t->address >= t->n)
		return -ENOENT;
	begin_of_loop(&s);
	find_aliases(&s);
	find_sites(&s);
	if (s.out.n_sites == 0)
		return -ENOTSUP;
	*ret = s.out;
	return 0;
}
