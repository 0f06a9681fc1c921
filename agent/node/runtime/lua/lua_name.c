/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the name with which a function was called, as Lua's own traceback does. It starts at the
 * instruction that called the function (ldebug.c: getfuncname, funcnamefromcode), and goes back to
 * the instruction that put the function into its register (getobjname; symbexec of 5.1, findsetreg
 * of later versions). Runs on the reader's thread.
 */
#include "node/runtime/lua/lua.h"

#include <stdlib.h>

#define DEPTH_MAX 32  /* limit for moves from register to register */
#define IS_K	  256 /* in an operand of 9 bits: the operand is a constant (BITRK of 5.1 to 5.3) */
#define SCAN_COST 4   /* instructions whose scan costs as much as reading one byte */

/*
 * The kinds of instructions in the order of lopcodes.h, one letter each. 'a' sets register A, '.'
 * sets none; m move, k loadk, K loadkx, n loadnil, u getupval, g getglobal, U gettabup, t gettable,
 * i geti, f getfield, s self, c call, T tailcall, F the call of a generic for, j jmp. Only in 5.1:
 * l forloop and forprep, C closure. Only in 5.2: q test.
 */
static const char *const kinds[] = {
	"",
	"mkanugt...asaaaaaaaaaaj...aacT.llF..Ca",
	"mkKanuUt...asaaaaaaaaaaj...qacT.aaFa.aa.",
	"mkKanuUt...asaaaaaaaaaaaaaaaaaj....acT.aaFa.aa.",
	"maakKaaanu.Utif....asaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaa..j..........acT...aa.Fa.aaa.",
};
/*
 * For each instruction, a letter of `events`: the metamethod that it may call. M: operand C is the
 * number of the metamethod.
 */
static const char *const callers[] = {
	"",
	"",
	"      iin n i+-*/%^u #. elL             ",
	"      iin n i+-*%^/d&|x<>ub #. elL             ",
	"           iiiinnnn i                         MMMub #.c  elL  lLlL    c            ",
};
/* One letter for each metamethod, in the order of ltm.h (5.4); '!': no instruction calls it. */
static const char events[] = "in!!#e+-*%^/d&|x<>ublL.!c";
static const char *const event_names[] = {
	"__index", "__newindex", "__gc",   "__mode",  "__len", "__eq",	 "__add",
	"__sub",   "__mul",	 "__mod",  "__pow",   "__div", "__idiv", "__band",
	"__bor",   "__bxor",	 "__shl",  "__shr",   "__unm", "__bnot", "__lt",
	"__le",	   "__concat",	 "__call", "__close",
};
_Static_assert(ARRAY_SIZE(event_names) == sizeof(events) - 1, "lua");

/* Returns the letter of an instruction, or `none` if its opcode is not valid. */
static char letter_of(const char *const *letters, const struct lua_layout *l, uint32_t i, char none)
{
	uint32_t op = i & ((1u << l->op_bits) - 1);

	return op < strlen(letters[l->minor]) ? letters[l->minor][op] : none;
}

static char kind_of(const struct lua_layout *l, uint32_t i)
{
	return letter_of(kinds, l, i, '.');
}

static uint32_t arg_a(const struct lua_layout *l, uint32_t i)
{
	return i >> l->op_bits & 0xff;
}

static uint32_t arg_b(const struct lua_layout *l, uint32_t i)
{
	return l->minor == 4 ? i >> 16 & 0xff : i >> 23;
}

static uint32_t arg_c(const struct lua_layout *l, uint32_t i)
{
	return l->minor == 4 ? i >> 24 : i >> 14 & 0x1ff;
}

static uint32_t arg_bx(const struct lua_layout *l, uint32_t i)
{
	return l->minor == 4 ? i >> 15 : i >> 14;
}

static uint32_t arg_ax(const struct lua_layout *l, uint32_t i)
{
	return i >> l->op_bits;
}

/* Returns the distance of a jump: sBx, or sJ of 5.4. */
static int32_t arg_jump(const struct lua_layout *l, uint32_t i)
{
	return l->minor == 4 ? (int32_t)(i >> 7) - 0xffffff : (int32_t)(i >> 14) - 0x1ffff;
}

/* ---- which instruction was the last to set a register ---- */

/*
 * Charges a scan of instructions to the budget. The code is read once, but scanned from its
 * beginning for each name and each move. A scan uses the same budget as reading. So the work is
 * limited for one name and for all names together. The budget of one name is enough to read and
 * scan a function of 246,000 instructions.
 */
static int spend(const struct lua_reader *r, uint32_t n_instructions)
{
	size_t cost = n_instructions / SCAN_COST;

	if (cost > r->m->budget_bytes)
		return -E2BIG;
	r->m->budget_bytes -= cost;
	return 0;
}

/* Returns whether the instruction changes the register. */
static bool changes(const struct lua_layout *l, uint32_t i, uint32_t reg)
{
	uint32_t a = arg_a(l, i), b = arg_b(l, i);

	switch (kind_of(l, i)) {
	case 'n':
		return a <= reg && reg <= (l->minor == 1 ? b : a + b);
	case 'F':
		return reg >= a + 2;
	case 'c':
	case 'T':
		return reg >= a;
	case 's':
		return reg == a || (l->minor == 1 && reg == a + 1);
	case 'j':
	case '.':
		return false;
	default:
		return reg == a;
	}
}

/* Returns how many pseudo instructions follow a closure in 5.1: one for each upvalue. */
static uint32_t closure_upvalues(const struct lua_reader *r, const struct lua_proto *p, uint32_t i)
{
	uint32_t n = arg_bx(r->l, i);
	uint64_t inner;
	uint8_t nups;

	if (n >= p->n_protos || runtime_memory_u64(r->m, p->protos + 8ull * n, &inner) < 0 ||
	    runtime_memory_u8(r->m, inner + r->l->nups, &nups) < 0)
		return 0;
	return nups;
}

/* Finds the instruction that has set a register. Like symbexec of 5.1, follows jumps forward. */
static int64_t setter_5_1(const struct lua_reader *r, const struct lua_proto *p, uint32_t last,
			  uint32_t reg)
{
	int64_t set = -1;

	for (uint32_t pc = 0; pc < last; pc++) {
		uint32_t i = p->code[pc];
		char kind = kind_of(r->l, i);
		int64_t to = (int64_t)pc + 1 + arg_jump(r->l, i);

		if (changes(r->l, i, reg))
			set = pc;
		if ((kind == 'j' || kind == 'l') && to > pc && to <= last)
			pc = (uint32_t)to - 1;
		else if (kind == 'C')
			pc += closure_upvalues(r, p, i);
	}
	return set;
}

/*
 * Finds the instruction that has set a register, like findsetreg of 5.2 and later. -1: the value is
 * not known, because a jump may skip that instruction, or there is none.
 */
static int64_t setter(const struct lua_reader *r, const struct lua_proto *p, uint32_t last,
		      uint32_t reg)
{
	int64_t set = -1, target = 0;

	if (r->l->minor == 1)
		return setter_5_1(r, p, last, reg);
	if (last && letter_of(callers, r->l, p->code[last], ' ') == 'M')
		/* 5.4: `last` calls a metamethod, so the instruction before it set nothing */
		last--;
	for (uint32_t pc = 0; pc < last; pc++) {
		uint32_t i = p->code[pc];
		int64_t to = (int64_t)pc + 1 + arg_jump(r->l, i);

		if (kind_of(r->l, i) == 'j' && to <= last && to > target &&
		    (r->l->minor == 4 || to > pc))
			target = to;
		if (changes(r->l, i, reg))
			set = pc < target ? -1 : (int64_t)pc;
	}
	return set;
}

/* ---- the value of a register ---- */

struct object {
	char *name;
	bool constant; /* the value is a constant string with this text */
};

static int object_name(const struct lua_reader *r, const struct lua_proto *p, uint32_t last,
		       uint32_t reg, unsigned depth, struct object *ret);

/* Finds the text of a constant string in a register. */
static int register_text(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc,
			 uint32_t reg, unsigned depth, char **ret)
{
	struct object o = {0};
	int e = object_name(r, p, pc, reg, depth + 1, &o);

	if (e < 0)
		return e;
	if (!o.constant) {
		free(o.name);
		return -ENOENT;
	}
	*ret = o.name;
	return 0;
}

/* Finds the key that an instruction uses to get a value. */
static int key_name(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc,
		    unsigned depth, char **ret)
{
	uint32_t i = p->code[pc], c = arg_c(r->l, i);
	char kind = kind_of(r->l, i);

	if (r->l->minor == 4) {
		bool constant = kind == 's' ? i >> 15 & 1 : kind != 't';

		return constant ? runtime_lua_constant(r, p, c, ret)
				: register_text(r, p, pc, c, depth, ret);
	}
	if (c & IS_K)
		return runtime_lua_constant(r, p, c & (IS_K - 1), ret);
	return r->l->minor == 1 ? -ENOENT : register_text(r, p, pc, c, depth, ret);
}

/*
 * Finds the name of the value that the instruction at pc has set and that the one at `last` uses.
 */
static int set_by(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc, uint32_t last,
		  unsigned depth, struct object *ret)
{
	uint32_t i = p->code[pc], b = arg_b(r->l, i);

	switch (kind_of(r->l, i)) {
	case 'm':
		if (b >= arg_a(r->l, i))
			return -ENOENT;
		/*
		 * 5.1 searches back from the call, later versions from where the register was set.
		 */
		return object_name(r, p, r->l->minor == 1 ? last : pc, b, depth + 1, ret);
	case 'g':
		return runtime_lua_constant(r, p, arg_bx(r->l, i), &ret->name);
	case 'U':
	case 't':
	case 'f':
	case 's':
		return key_name(r, p, pc, depth, &ret->name);
	case 'i':
		ret->name = xstrdup("integer index");
		return 0;
	case 'u':
		return runtime_lua_upvalue(r, p, b, &ret->name);
	case 'k':
	case 'K':
		if (r->l->minor == 1)
			return -ENOENT;
		if (kind_of(r->l, i) == 'K' && pc + 1 >= p->n_code)
			return -ENOENT;
		ret->constant = true;
		return runtime_lua_constant(r, p,
					    kind_of(r->l, i) == 'k' ? arg_bx(r->l, i)
								    : arg_ax(r->l, p->code[pc + 1]),
					    &ret->name);
	}
	return -ENOENT;
}

static int object_name(const struct lua_reader *r, const struct lua_proto *p, uint32_t last,
		       uint32_t reg, unsigned depth, struct object *ret)
{
	int64_t pc;
	int e;

	if (depth > DEPTH_MAX)
		return -ENOENT;
	e = runtime_lua_local(r, p, reg + 1, last, &ret->name);
	if (e != -ENOENT)
		return e;
	e = spend(r, last);
	if (e < 0)
		return e;
	pc = setter(r, p, last, reg);
	return pc < 0 ? -ENOENT : set_by(r, p, (uint32_t)pc, last, depth, ret);
}

/* ---- calls ---- */

static int event_name(const struct lua_layout *l, uint32_t i, char **ret)
{
	char letter = letter_of(callers, l, i, ' ');
	size_t n = strlen(events);
	const char *at = letter == 'M' ? NULL : strchr(events, letter);

	if (letter == 'M')
		n = arg_c(l, i);
	else if (at)
		n = (size_t)(at - events);
	if (n >= strlen(events))
		return -ENOENT;
	/* 5.4 shows the name without underscores. */
	*ret = xasprintf("metamethod '%s'", event_names[n] + (l->minor == 4 ? 2 : 0));
	return 0;
}

int runtime_lua_called_name(const struct lua_reader *r, const struct lua_proto *caller, uint32_t pc,
			    char **ret)
{
	struct object o = {0};
	uint32_t i;
	char kind;
	int e;

	if (pc >= caller->n_code)
		return -ENOENT;
	i = caller->code[pc];
	kind = kind_of(r->l, i);
	if (kind == 'F' && r->l->minor > 1) {
		*ret = xstrdup("for iterator");
		return 0;
	}
	if (kind == 'c' || kind == 'T' || kind == 'F') {
		e = object_name(r, caller, pc, arg_a(r->l, i), 0, &o);
		if (e == 0)
			*ret = o.name;
		return e;
	}
	return event_name(r->l, i, ret);
}
