/* SPDX-License-Identifier: Apache-2.0 */
/* What CPython's machine code tells that its symbols don't: its version, and parts of the evaluation loop. */
#include "node/runtime/python.h"

#include <ctype.h>
#include <stdlib.h>

#include "node/parse/insn.h"

/* ---- the version: up to 3.10 there is no Py_Version ---- */

#define VERSION_FUNCTION_BYTES 256u

/* The address that an instruction makes: lea n(%rip), mov $n (code at fixed addresses). */
static uint64_t address_of(const struct insn *i, uint64_t next)
{
	if (insn_is(i, 0x8d) && i->has_modrm && i->mod == 0 && (i->rm & 7) == 5)
		return next + (uint64_t)(int64_t)i->displacement;
	if (i->map == INSN_ONE && (i->opcode & 0xf8) == 0xb8)
		return (uint64_t)i->immediate & 0xffffffff;
	return 0;
}

/* "3.8.18", of "3.8.18 (default, ...)" too. */
static bool is_version(const char *s)
{
	return isdigit((unsigned char)s[0]) && s[1] == '.' && isdigit((unsigned char)s[2]);
}

int python_code_version(struct memory *m, uint64_t function, size_t n, char ret[static 48])
{
	uint8_t code[VERSION_FUNCTION_BYTES];
	struct insn i;
	int r;

	n = MIN(n, sizeof(code));
	r = memory_read(m, function, code, n);
	if (r < 0)
		return r;
	for (size_t at = 0; at < n && insn_decode(code + at, n - at, &i); at += i.bytes) {
		uint64_t address = address_of(&i, function + at + i.bytes);
		_cleanup_free_ char *text = NULL;

		if (address < 4096 || memory_string(m, address, 48, &text) < 0 || !is_version(text))
			continue;
		text[strcspn(text, " ")] = '\0';
		snprintf(ret, 48, "%s", text);
		return 0;
	}
	return -ENOENT;
}

/* ---- where the loop's frame is not the thread's ---- */

#define RSP 4

/* mov %reg,frame(%reg): tstate->frame = ... */
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

/* From where tstate->frame = f->f_back was done, up to the return; jumps inside are followed once. */
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
			return; /* a tail call */
		at += (size_t)i.immediate;
		pieces++;
		ret->outside[pieces].start = (uint32_t)at;
	}
	/* This is no way out. */
	for (size_t k = 1; k < PF_PYTHON_OUTSIDE_MAX; k++)
		ret->outside[k].start = ret->outside[k].end = 0;
}

/* The first store is the way in; one right before a call or jump (_Py_CheckFunctionResult) the way out. */
void python_code_outside(const uint8_t *code, size_t n, unsigned thread_frame,
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

/* ---- the cold part, where no symbol says it ---- */

bool python_code_cold(const uint8_t *code, size_t n, uint64_t address, uint64_t *ret_lowest,
		      uint64_t *ret_highest)
{
	uint64_t lowest = UINT64_MAX, highest = 0;
	struct insn i;

	for (size_t at = 0; at < n && insn_decode(code + at, n - at, &i); at += i.bytes) {
		uint64_t to = address + at + i.bytes + (uint64_t)i.immediate;

		if (i.map != INSN_0F || (i.opcode & 0xf0) != 0x80) /* jcc rel32 */
			continue;
		if (to - address < n)
			continue;
		lowest = MIN(lowest, to);
		highest = MAX(highest, to);
	}
	if (!highest)
		return false;
	*ret_lowest = lowest;
	*ret_highest = highest;
	return true;
}
