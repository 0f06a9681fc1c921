/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds copies of a function that is called by a pointer. The code is "cmp $function,%rax; jne
 * elsewhere", then a copy of the function's code. The call by the pointer is at `elsewhere`; the
 * instructions before it show the arguments. GCC's -fprofile-use (-fvpt) and Clang's
 * indirect-call-promotion make such code. In position-independent code a lea puts the function's
 * address into a register first. Reader's thread.
 */
#include "node/alloc/python.h"

#include <stdlib.h>
#include <unistd.h>

#include "node/insn/insn.h"

#define CHUNK_BYTES (64u << 10)
#define TEXT_BYTES  (64u << 20) /* limit for the code of one file; CPython's is 3 to 10 MiB */
#define NEAR	    12		/* limit for the instructions from the lea to the comparison */
/* limit for the instructions from the comparison to the call; CPython 3.11 has 10 */
#define STEPS_MAX 24

/*
 * The limit on decoded instructions. A CPython has a few hundred such copies, for each of which at
 * most 40 instructions are decoded, and the address of a function is at most 9,000 times in its
 * code. Without the limit, a hostile file that consists of such addresses would take half a minute
 * of CPU.
 */
#define DECODED_MAX (1u << 20) /* instructions that are decoded, in all code of a file */

struct copies_scan {
	struct alloc_code *code;
	unsigned n_decoded;
	const uint64_t *functions;
	size_t n;
	python_copy_fn *fn;
	void *arg;
};

static bool decode(struct copies_scan *s, uint64_t at, struct insn *ret)
{
	uint8_t bytes[INSN_BYTES_MAX];

	if (s->n_decoded == DECODED_MAX)
		return false;
	s->n_decoded++;
	return insn_decode(bytes, alloc_code_read(s->code, at, bytes), ret);
}

/* ---- from the comparison to the call ---- */

static bool is_condition(const struct insn *i)
{
	return (i->map == INSN_0F && (i->opcode & 0xf0) == 0x80) ||
	       (i->map == INSN_ONE && (i->opcode & 0xf0) == 0x70);
}

/* Whether a conditional jump is jne, by its lowest bits; else it is taken for je. */
static bool is_not_equal(const struct insn *i)
{
	return (i->opcode & 15) == 5;
}

static bool is_move(const struct insn *i)
{
	return (insn_is(i, 0x89) || insn_is(i, 0x8b)) && i->mod == 3;
}

static bool is_zero(const struct insn *i)
{
	return (insn_is(i, 0x31) || insn_is(i, 0x33)) && i->mod == 3 && i->reg == i->rm;
}

static bool is_constant(const struct insn *i)
{
	return i->map == INSN_ONE &&
	       ((i->opcode & 0xf8) == 0xb8 || (i->opcode == 0xc7 && i->mod == 3));
}

static void compute(struct python_value r[16], const struct insn *i)
{
	struct python_value moved = {0};
	unsigned to = i->rm;

	if (is_move(i)) {
		moved = r[insn_is(i, 0x89) ? i->reg : i->rm];
		to = insn_is(i, 0x89) ? i->rm : i->reg;
	} else if (is_zero(i)) {
		moved = (struct python_value){PYTHON_CONSTANT, 0};
	} else if (is_constant(i)) {
		moved = (struct python_value){PYTHON_CONSTANT, (uint32_t)i->immediate};
		if (i->opcode != 0xc7)
			to = (i->opcode & 7) | (i->rex & 1) << 3;
	}
	for (unsigned k = 0; k < 16; k++)
		if (i->written & 1u << k)
			r[k] = (struct python_value){0};
	if (moved.kind)
		r[to] = moved;
}

/*
 * Returns the address of the next instruction on the path where the pointer is another function. 0:
 * the path ends, or calls another function.
 */
static uint64_t on(const struct insn *i, uint64_t next)
{
	if (is_condition(i))
		return is_not_equal(i) ? next + (uint64_t)i->immediate : next;
	if (insn_is(i, 0xe9) || insn_is(i, 0xeb))
		return next + (uint64_t)i->immediate;
	if (insn_is(i, 0xe8) || insn_is(i, 0xc3))
		return 0;
	return next;
}

static void follow(struct copies_scan *s, size_t function, uint64_t comparison)
{
	struct python_copy c = {.function = function, .address = comparison};
	uint64_t at = comparison;
	bool decided = false;

	for (unsigned k = 0; k < 16; k++)
		c.registers[k] = (struct python_value){PYTHON_REGISTER, k};
	for (unsigned n = 0; at && n < STEPS_MAX; n++) {
		struct insn i;

		if (!decode(s, at, &i))
			return;
		if (insn_is(&i, 0xff) && ((i.reg & 7) == 2 || (i.reg & 7) == 4)) {
			if (decided)
				s->fn(&c, s->arg);
			return;
		}
		decided |= is_condition(&i);
		compute(c.registers, &i);
		at = on(&i, at + i.bytes);
	}
	/* The call by the pointer is too far away, so its arguments are not known. */
	memset(c.registers, 0, sizeof(c.registers));
	if (at && decided)
		s->fn(&c, s->arg);
}

/* ---- comparisons ---- */

/* Looks for cmp $function,%reg, whose last four bytes are at `immediate`. */
static void try_immediate(struct copies_scan *s, size_t function, uint64_t immediate)
{
	for (unsigned back = 2; back <= 3; back++) {
		struct insn i;

		if (!decode(s, immediate - back, &i) || i.bytes != back + 4 ||
		    (uint64_t)i.immediate != s->functions[function] || !(i.rex & 8))
			continue;
		if (insn_is(&i, 0x3d) || (insn_is(&i, 0x81) && (i.reg & 7) == 7 && i.mod == 3)) {
			follow(s, function, immediate - back);
			return;
		}
	}
}

/* Looks for lea function(%rip),%reg, and soon after it a cmp with that register. */
static void try_lea(struct copies_scan *s, size_t function, uint64_t lea)
{
	struct insn i;
	unsigned reg;
	uint64_t at = lea;

	if (!decode(s, at, &i) || !insn_is(&i, 0x8d) || i.mod || (i.rm & 7) != 5)
		return;
	reg = i.reg;
	for (unsigned n = 0; n < NEAR; n++) {
		at += i.bytes;
		if (!decode(s, at, &i))
			return;
		if ((insn_is(&i, 0x39) || insn_is(&i, 0x3b)) &&
		    (i.reg == reg || (i.mod == 3 && i.rm == reg))) {
			follow(s, function, at);
			return;
		}
		if (i.written & 1u << reg || insn_is(&i, 0xc3) || insn_is(&i, 0xe9) ||
		    insn_is(&i, 0xeb) || insn_is(&i, 0xe8))
			return;
	}
}

static void look_at(struct copies_scan *s, const uint8_t *bytes, uint64_t address)
{
	uint32_t word;

	memcpy(&word, bytes, sizeof(word));
	for (size_t k = 0; k < s->n; k++) {
		if (word == s->functions[k])
			try_immediate(s, k, address);
		else if (address + 4 + (uint64_t)(int64_t)(int32_t)word == s->functions[k])
			try_lea(s, k, address - 3);
	}
}

/*
 * Reads the code from the file and not from memory, because reads of memory have a budget. Both
 * have the same bytes.
 */
static int scan_text(struct copies_scan *s, const struct mapping *m)
{
	_cleanup_free_ uint8_t *chunk = xmalloc(CHUNK_BYTES);
	uint64_t at = m->start;

	if (m->end - m->start > TEXT_BYTES)
		return -E2BIG;
	while (at + 4 <= m->end) {
		ssize_t n = pread(m->fd, chunk, MIN(m->end - at, (uint64_t)CHUNK_BYTES),
				  (off_t)(m->file_offset + (at - m->start)));

		if (n < 4)
			return n < 0 ? -errno : 0;
		for (size_t i = 0; i + 4 <= (size_t)n; i++)
			look_at(s, chunk + i, at + i);
		if (s->n_decoded == DECODED_MAX)
			return -E2BIG;
		at += (uint64_t)n - 3;
	}
	return 0;
}

int alloc_python_copies(const struct runtime_look *look, struct alloc_code *code,
			const uint64_t *functions, size_t n, python_copy_fn *fn, void *arg)
{
	struct copies_scan s = {.code = code, .functions = functions, .n = n, .fn = fn, .arg = arg};
	const struct mapping *m = proc_mappings_find(look->maps, functions[0]);

	return m && m->fd >= 0 ? scan_text(&s, m) : -EFAULT;
}
