/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only some addresses of compiled code have debug information, an entry (PcDesc). So for
 * interrupted code, this file finds the entry that the code would have reached next. HotSpot itself
 * uses the next entry by address (nmethod::find_pc_desc, approximate). At the end of a loop that is
 * the code after the loop, often of another inlined method. So this file follows the instructions.
 * It follows jumps back, because loops do that. It does not follow other conditional jumps, because
 * compilers move rare code away. Runs on the reader's thread.
 */
#include "node/insn/insn.h"
#include "node/runtime/jvm/jvm_scopes.h"

#define STEPS_MAX    256 /* instructions that are followed from one address */
#define WINDOW_BYTES 128
#define BACK_MAX     8 /* jumps back; each one is followed once */

struct jvm_flow {
	struct memory *m;
	const struct jvm_debug *d;
	struct jvm_pc next; /* the first entry whose pc is `at` or greater */
	uint32_t at;
	uint32_t back[BACK_MAX];
	size_t n_back;
	uint8_t window[WINDOW_BYTES];
	uint32_t window_at, window_n;
};

static bool read_insn(struct jvm_flow *f, struct insn *ret)
{
	uint32_t from = f->at - f->window_at;

	if (f->at < f->window_at || from + INSN_BYTES_MAX > f->window_n) {
		if (runtime_memory_read(f->m, f->d->code + f->at, f->window, sizeof(f->window)) < 0)
			return false;
		f->window_at = f->at;
		f->window_n = sizeof(f->window);
		from = 0;
	}
	return insn_decode(f->window + from, f->window_n - from, ret);
}

static bool is_conditional(const struct insn *i)
{
	return (i->map == INSN_ONE && i->opcode >= 0x70 && i->opcode <= 0x7f) ||
	       (i->map == INSN_0F && i->opcode >= 0x80 && i->opcode <= 0x8f);
}

/*
 * Returns whether the next address is not known: ret, jumps to an unknown address, hlt, int3, ud2.
 */
static bool ends(const struct insn *i)
{
	uint8_t c = i->opcode;

	if (i->map != INSN_ONE)
		return i->map == INSN_0F && c == 0x0b;
	return c == 0xc2 || c == 0xc3 || c == 0xcc || c == 0xf4 ||
	       (c == 0xff && ((i->reg & 7) == 4 || (i->reg & 7) == 5));
}

/* Returns whether the jump is taken. A conditional jump back is taken only the first time. */
static bool is_taken(struct jvm_flow *f, const struct insn *i)
{
	if (i->map == INSN_ONE && (i->opcode == 0xe9 || i->opcode == 0xeb))
		return true;
	if (!is_conditional(i) || i->immediate >= 0 || f->n_back == BACK_MAX)
		return false;
	for (size_t k = 0; k < f->n_back; k++)
		if (f->back[k] == f->at)
			return false;
	f->back[f->n_back++] = f->at;
	return true;
}

/* Moves to the next instruction. Returns false if its address is not known. */
static bool step(struct jvm_flow *f)
{
	struct insn i;
	int64_t to;

	if (!read_insn(f, &i) || ends(&i))
		return false;
	to = (int64_t)f->at + i.bytes;
	if (!is_taken(f, &i)) {
		f->at = (uint32_t)to;
		if (to > f->next.pc) /* the entry is in the middle of an instruction */
			return false;
		return true;
	}
	to += i.immediate;
	if (to < 0 || to > INT32_MAX || runtime_jvm_pc_find(f->m, f->d, (uint32_t)to, &f->next) < 0)
		return false;
	f->at = (uint32_t)to;
	return true;
}

int runtime_jvm_pc_ahead(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			 struct jvm_pc *ret)
{
	struct jvm_flow f = {.m = m, .d = d, .at = pc};
	struct jvm_pc next;
	int r = runtime_jvm_pc_find(m, d, pc, &next);

	if (r < 0)
		return r;
	f.next = next;
	for (unsigned i = 0; i < STEPS_MAX && (uint32_t)f.next.pc != f.at; i++)
		if (!step(&f)) {
			*ret = next;
			return 0;
		}
	*ret = (uint32_t)f.next.pc == f.at ? f.next : next;
	return 0;
}
