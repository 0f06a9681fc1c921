/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts that are in CPython's machine code but not in its symbols: its version, and parts of the
 * evaluation loop. Runs on the reader's thread.
 */
#include "node/runtime/python/python.h"

#include <ctype.h>
#include <stdlib.h>

#include "node/insn/insn.h"

/* ---- the version: 3.10 and earlier have no Py_Version ---- */

#define VERSION_FUNCTION_BYTES 256u

/*
 * Returns the address that an instruction loads: lea n(%rip), or mov $n in code at fixed addresses.
 */
static uint64_t address_of(const struct insn *i, uint64_t next)
{
	if (insn_is(i, 0x8d) && i->has_modrm && i->mod == 0 && (i->rm & 7) == 5)
		return next + (uint64_t)(int64_t)i->displacement;
	if (i->map == INSN_ONE && (i->opcode & 0xf8) == 0xb8)
		return (uint64_t)i->immediate & 0xffffffff;
	return 0;
}

/* Returns whether s begins like "3.8.18" or "3.8.18 (default, ...)". */
static bool is_version(const char *s)
{
	return isdigit((unsigned char)s[0]) && s[1] == '.' && isdigit((unsigned char)s[2]);
}

int runtime_python_code_version(struct memory *m, uint64_t function, size_t n, char ret[static 48])
{
	uint8_t code[VERSION_FUNCTION_BYTES];
	struct insn i;
	int r;

	n = MIN(n, sizeof(code));
	r = runtime_memory_read(m, function, code, n);
	if (r < 0)
		return r;
	for (size_t at = 0; at < n && insn_decode(code + at, n - at, &i); at += i.bytes) {
		uint64_t address = address_of(&i, function + at + i.bytes);
		_cleanup_free_ char *text = NULL;

		if (address < 4096 || runtime_memory_string(m, address, 48, &text) < 0 ||
		    !is_version(text))
			continue;
		text[strcspn(text, " ")] = '\0';
		snprintf(ret, 48, "%s", text);
		return 0;
	}
	return -ENOENT;
}

/* ---- code in which the loop's frame is not tstate->frame ---- */

#define RSP 4

/* Returns whether i is mov %reg,frame(%reg), which sets tstate->frame. */
static bool sets_frame(const struct insn *i, unsigned thread_frame)
{
	return insn_is(i, 0x89) && i->rex & 8 && i->has_modrm && i->base != INSN_NO_REG &&
	       i->base != RSP && i->displacement == (int32_t)thread_frame;
}

static bool is_jump(const struct insn *i)
{
	return insn_is(i, 0xe9) || insn_is(i, 0xeb);
}

static bool is_return(const struct insn *i)
{
	return insn_is(i, 0xc3) || insn_is(i, 0xc2);
}

/*
 * Adds the code from tstate->frame = f->f_back to the return. Each jump in it begins a new piece.
 */
static void add_way_out(const uint8_t *code, size_t n, size_t at, struct pf_python *ret)
{
	size_t pieces = 1;
	struct insn i;

	ret->outside[pieces].start = (uint32_t)at;
	for (unsigned steps = 0; steps < 32 && at < n && insn_decode(code + at, n - at, &i);
	     steps++) {
		at += i.bytes;
		ret->outside[pieces].end = (uint32_t)at;
		if (is_return(&i))
			return;
		if (!is_jump(&i))
			continue;
		if ((uint64_t)i.immediate + at >= n || pieces == PF_PYTHON_OUTSIDE_MAX - 1)
			return; /* the jump leaves the function: a tail call */
		at += (size_t)i.immediate;
		pieces++;
		ret->outside[pieces].start = (uint32_t)at;
	}
	/* No return was found, so this code is not the exit. */
	for (size_t k = 1; k < PF_PYTHON_OUTSIDE_MAX; k++)
		ret->outside[k].start = ret->outside[k].end = 0;
}

/*
 * Finds stores to tstate->frame. The first one is at the function's entry. The one right before a
 * call or jump (_Py_CheckFunctionResult) is at its exit.
 */
void runtime_python_code_outside(const uint8_t *code, size_t n, unsigned thread_frame,
				 struct pf_python *ret)
{
	struct insn i, next;
	bool in = false;

	memset(ret->outside, 0, sizeof(ret->outside));
	for (size_t at = 0; at < n && insn_decode(code + at, n - at, &i); at += i.bytes) {
		size_t end = at + i.bytes;

		if (!sets_frame(&i, thread_frame))
			continue;
		if (!in) {
			in = true;
			ret->outside[0].end = (uint32_t)end;
		} else if (insn_decode(code + end, n - end, &next) &&
			   (insn_is(&next, 0xe8) || is_jump(&next))) {
			add_way_out(code, n, end, ret);
			return;
		}
	}
}

/* ---- the cold part, if it has no symbol ---- */

#define COLD_GAP   1024 /* bytes of the cold part that may have no jump back to the function */
#define TABLES_MAX 4	/* jump tables of one function */

struct cold {
	uint64_t hot_start, hot_end;
	uint64_t start, end;	    /* the cold part, as far as it is known */
	int32_t tables[TABLES_MAX]; /* tables through which the hot part jumps */
	size_t n_tables;
};

static bool is_condition(const struct insn *i)
{
	return (i->map == INSN_0F && (i->opcode & 0xf0) == 0x80) ||
	       (i->map == INSN_ONE && (i->opcode & 0xf0) == 0x70);
}

/*
 * Returns whether i is jmp *table(,%reg,8). In code at fixed addresses it contains the table's
 * address.
 */
static bool is_table_jump(const struct insn *i)
{
	return insn_is(i, 0xff) && i->has_modrm && (i->reg & 7) == 4 && i->mod == 0 &&
	       i->base == INSN_NO_REG && i->displacement;
}

static bool is_of_table(const struct cold *c, const struct insn *i)
{
	for (size_t k = 0; k < c->n_tables; k++)
		if (is_table_jump(i) && c->tables[k] == i->displacement)
			return true;
	return false;
}

/*
 * Finds the cold part by the jumps of the hot part. Compilers use conditional jumps only within a
 * function. So if such a jump leaves the hot part, its target is in the cold part.
 */
static bool scan_hot(struct cold *c, const uint8_t *code, size_t n)
{
	struct insn i;

	c->start = UINT64_MAX;
	c->end = 0;
	for (size_t at = 0; at < n && insn_decode(code + at, n - at, &i); at += i.bytes) {
		uint64_t to = c->hot_start + at + i.bytes + (uint64_t)i.immediate;

		if (is_table_jump(&i) && !is_of_table(c, &i) && c->n_tables < TABLES_MAX)
			c->tables[c->n_tables++] = i.displacement;
		if (!is_condition(&i) || to - c->hot_start < n)
			continue;
		c->start = MIN(c->start, to);
		c->end = MAX(c->end, to + 1);
	}
	return c->end;
}

/* Finds the end of the cold part: it continues as long as jumps lead back into the function. */
static void scan_cold(struct cold *c, const uint8_t *code, size_t n)
{
	struct insn i;

	for (size_t at = 0; at < n && insn_decode(code + at, n - at, &i); at += i.bytes) {
		uint64_t here = c->start + at, next = here + i.bytes;
		uint64_t to = next + (uint64_t)i.immediate;
		bool jumps = is_condition(&i) || is_jump(&i);

		if (here > c->end + COLD_GAP)
			return;
		if ((jumps && (to - c->hot_start < c->hot_end - c->hot_start ||
			       to - c->start < c->end - c->start)) ||
		    is_of_table(c, &i))
			c->end = MAX(c->end, next);
		if (here < c->end && is_condition(&i) && to > here && to - c->start < n)
			c->end = MAX(c->end, to + 1);
	}
}

bool runtime_python_code_cold(struct memory *m, const uint8_t *code, size_t n, uint64_t address,
			      uint64_t limit, uint64_t *ret_start, uint64_t *ret_end)
{
	struct cold c = {.hot_start = address, .hot_end = address + n};
	_cleanup_free_ uint8_t *cold = NULL;
	size_t most;

	if (!scan_hot(&c, code, n) || c.end > limit || c.end - c.start > PYTHON_CODE_BYTES)
		return false;
	/* If the cold part is before the hot part, it ends there at the latest. */
	most = MIN((c.start < address ? address : limit) - c.start, (uint64_t)PYTHON_CODE_BYTES);
	cold = xmalloc(most);
	if (runtime_memory_read(m, c.start, cold, most) < 0)
		return false;
	scan_cold(&c, cold, most);
	*ret_start = c.start;
	*ret_end = c.end;
	return true;
}
