/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names LuaJIT's functions as its own traceback does (lj_debug.c). A function has no name, but the
 * instruction that calls it shows from where the function was taken. Bytecode is as in lj_bc.h of
 * 2.1. The instructions that this file uses are the same since 2.1.0-beta1. Runs on the reader's
 * thread.
 */
#include "node/runtime/luajit/luajit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CODE_MAX     65536u /* limit for instructions of a function that are read */
#define NAME_BYTES   256
#define CHUNK_BYTES  4096
#define TEXT_BYTES   24	    /* size of a GCstr; the text follows */
#define LOCALS_BYTES 65536u /* limit for bytes of varinfo that are read */
#define MOVES_MAX    64	    /* moves between slots that are followed for one name */

/* All members of a GCproto. */
struct proto {
	struct pf_luajit_proto head;
	uint64_t lineinfo, uvinfo, varinfo;
};
_Static_assert(sizeof(struct proto) == PF_LUAJIT_PROTO_BYTES, "GCproto");

/* Some instructions of enum BCOp, mostly those that put a function into a slot. */
enum {
	BC_MOV = 18,
	BC_KNIL = 44,
	BC_UGET,
	BC_USETV,
	BC_USETP = 49,
	BC_UCLO,
	BC_GGET = 54,
	BC_TGETS = 57,
	BC_CALLM = 65,
	BC_ITERC = 69,
	BC_MAX = 97,
};

/* bcmode_a of each instruction, in the order of enum BCOp: 'd' BCMdst, 'b' BCMbase, '.' others. */
static const char mode_a[] = "............dd....ddddddddddddddddddddddddddbd.....dddd."
			     "dddd...b.bbbbbbbbb...bbbbbbbb............";
_Static_assert(sizeof(mode_a) == BC_MAX + 1, "enum BCOp");
/*
 * The metamethod that each instruction calls, in the order of enum BCOp; "c": it calls the function
 * in its slot A.
 */
static const char *const calls[BC_MAX] = {
	"__lt",	      "__lt",	    "__le",    "__le",	   "__eq",	 "__eq",       "__eq",
	"__eq",	      "__eq",	    "__eq",    "__eq",	   "__eq",	 NULL,	       NULL,
	NULL,	      NULL,	    NULL,      NULL,	   NULL,	 NULL,	       "__unm",
	"__len",      "__add",	    "__sub",   "__mul",	   "__div",	 "__mod",      "__add",
	"__sub",      "__mul",	    "__div",   "__mod",	   "__add",	 "__sub",      "__mul",
	"__div",      "__mod",	    "__pow",   "__concat", NULL,	 NULL,	       NULL,
	NULL,	      NULL,	    NULL,      NULL,	   NULL,	 NULL,	       NULL,
	NULL,	      NULL,	    NULL,      NULL,	   NULL,	 "__index",    "__newindex",
	"__index",    "__index",    "__index", "__index",  "__newindex", "__newindex", "__newindex",
	"__newindex", "__newindex", "c",       "c",	   "c",		 "c",	       "c",
	"c",
};

static bool is_here(const struct proto *p, uint64_t a)
{
	return p->head.gct == PF_LUAJIT_GCT_PROTO && pf_luajit_cookie(&p->head) == a >> 48;
}

static int read_proto(struct memory *m, uint64_t a, struct proto *ret, uint64_t *ret_at)
{
	uint64_t at = a & ((1ull << 48) - 1);
	struct proto p;
	int r = runtime_memory_read(m, at, &p, sizeof(p));

	if (r)
		return r;
	if (!is_here(&p, a))
		return -ESTALE;
	*ret = p;
	*ret_at = at;
	return 0;
}

/* ---- texts ---- */

static int read_text(struct memory *m, uint64_t string, size_t max, char **ret)
{
	return runtime_memory_string(m, string + TEXT_BYTES, max, ret);
}

/*
 * Reads the name of a chunk: "@file", "=name", or the program itself (lj_strfmt_obj..,
 * luaO_chunkid).
 */
static char *chunk_text(struct memory *m, uint64_t string)
{
	_cleanup_free_ char *text = NULL;
	char *shown;

	if (read_text(m, string, CHUNK_BYTES, &text))
		return NULL;
	if (text[0] == '@' || text[0] == '=')
		return xstrdup(text + 1);
	text[strcspn(text, "\r\n")] = '\0';
	if (strlen(text) > 60)
		memcpy(text + 57, "...", 4);
	shown = xasprintf("[string \"%s\"]", text);
	return shown;
}

/* Returns the line of an instruction, as lj_debug_line does. */
static uint32_t line_of(struct memory *m, const struct proto *p, uint64_t index)
{
	size_t bytes = p->head.numline < 256 ? 1 : p->head.numline < 65536 ? 2 : 4;
	uint32_t by = 0;

	if (index >= p->head.sizebc || !p->lineinfo)
		return 0;
	if (index && runtime_memory_read(m, p->lineinfo + (index - 1) * bytes, &by, bytes))
		return 0;
	return p->head.firstline + by;
}

/* ---- the value of a slot ---- */

/* The parts of a calling function that are needed for a name. Each part is read in one piece. */
struct caller {
	const struct proto *proto;
	uint32_t *code; /* n_code items, up to the calling instruction */
	size_t n_code;
	uint8_t *locals; /* varinfo; with n_locals 0: none */
	size_t n_locals;
};

/* Returns the number of bytes from an address inside of a GCproto to the end of its memory. */
static size_t rest_of(const struct proto *p, uint64_t at, uint64_t address)
{
	uint64_t end = at + p->head.sizept;

	if (address < at || address >= end)
		return 0;
	return end - address < LOCALS_BYTES ? end - address : LOCALS_BYTES;
}

static uint32_t read_leb(const uint8_t *p, size_t n, size_t *at)
{
	uint32_t value = 0;

	for (unsigned shift = 0; *at < n && shift < 32; shift += 7) {
		uint8_t byte = p[(*at)++];

		value |= (uint32_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			break;
	}
	return value;
}

/*
 * Finds the name of the local variable in a slot, as debug_varname does. An entry has a name, the
 * distance of its beginning from that of the previous entry, and its length. If the first byte of
 * the name is below 7, it is a hidden variable of a loop.
 */
static bool local_name(const struct caller *c, size_t pc, unsigned slot, char **ret)
{
	size_t at = 0, start = 0, name, end;

	while (at < c->n_locals && c->locals[at]) {
		bool hidden = c->locals[at] < 7;

		name = at;
		if (!hidden)
			at += strnlen((const char *)c->locals + at, c->n_locals - at);
		at++;
		start += read_leb(c->locals, c->n_locals, &at);
		if (start > pc || at >= c->n_locals)
			return false;
		end = start + read_leb(c->locals, c->n_locals, &at);
		if (pc >= end || slot-- != 0)
			continue;
		*ret = hidden ? xstrdup("(for generator)")
			      : xstrndup((const char *)c->locals + name,
					 strnlen((const char *)c->locals + name, NAME_BYTES));
		return true;
	}
	return false;
}

/* Reads a constant string. Constant strings are stored before the address k. */
static int constant_name(struct memory *m, const struct proto *p, unsigned k, char **ret)
{
	uint64_t string;
	uint8_t type;
	int r = runtime_memory_u64(m, p->head.k - 8 * (uint64_t)(k + 1), &string);

	if (!r)
		r = runtime_memory_u8(m, string + 9, &type);
	if (!r)
		r = type == 4 /* ~LJ_TSTR */ ? read_text(m, string, NAME_BYTES, ret) : -ESTALE;
	return r;
}

static int upvalue_name(struct memory *m, const struct proto *p, uint64_t at, unsigned k,
			char **ret)
{
	_cleanup_free_ char *names = NULL;
	size_t n = rest_of(p, at, p->uvinfo), from = 0;
	int r;

	if (!n || k >= p->head.sizeuv)
		return -ENOENT;
	names = xmalloc(n + 1);
	r = runtime_memory_read(m, p->uvinfo, names, n);
	if (r)
		return r;
	names[n] = '\0';
	for (; k; k--) {
		from += strlen(names + from) + 1;
		if (from >= n)
			return -ENOENT;
	}
	*ret = xstrndup(names + from, NAME_BYTES);
	return 0;
}

/*
 * Finds the name of a slot's value, as lj_debug_slotname does: from the last instruction before pc
 * that put a value into the slot.
 */
static int slot_name(struct memory *m, const struct caller *c, uint64_t at, size_t pc,
		     unsigned slot, char **ret)
{
	for (unsigned moves = 0; moves < MOVES_MAX; moves++) {
		bool moved = false;

		if (local_name(c, pc, slot, ret))
			return 0;
		while (!moved && pc-- > 1) {
			uint32_t i = c->code[pc];
			unsigned op = i & 0xff, a = i >> 8 & 0xff, d = i >> 16;

			if (op >= BC_MAX)
				return -ENOENT;
			if (mode_a[op] == 'b' && slot >= a && (op != BC_KNIL || slot <= d))
				return -ENOENT;
			if (mode_a[op] != 'd' || a != slot)
				continue;
			if (op == BC_GGET)
				return constant_name(m, c->proto, d, ret);
			if (op == BC_TGETS)
				return constant_name(m, c->proto, d & 0xff, ret);
			if (op == BC_UGET)
				return upvalue_name(m, c->proto, at, d, ret);
			if (op != BC_MOV)
				return -ENOENT;
			slot = d;
			moved = true;
		}
		if (!moved)
			break;
	}
	return -ENOENT;
}

static void caller_done(struct caller *c)
{
	free(c->code);
	free(c->locals);
}

static int read_caller(struct memory *m, const struct proto *p, uint64_t at, size_t index,
		       struct caller *ret)
{
	struct caller c = {.proto = p, .n_code = index + 1};
	size_t n = rest_of(p, at, p->varinfo);
	int r;

	c.code = xcalloc(c.n_code, sizeof(*c.code));
	r = runtime_memory_read(m, at + PF_LUAJIT_PROTO_BYTES, c.code, c.n_code * sizeof(*c.code));
	if (r) {
		caller_done(&c);
		return r;
	}
	c.locals = xcalloc(1, n + 1);
	if (n && !runtime_memory_read(m, p->varinfo, c.locals, n))
		c.n_locals = n;
	*ret = c;
	return 0;
}

/* Finds the name of the function that the instruction calls, as lj_debug_funcname does. */
static int called_name(struct memory *m, const struct runtime_words *caller, char **ret)
{
	size_t index = (uint32_t)caller->b;
	struct proto p;
	struct caller c;
	unsigned op, a;
	uint64_t at;
	int r = read_proto(m, caller->a, &p, &at);

	if (r)
		return r;
	if (index >= p.head.sizebc || index >= CODE_MAX)
		return -ENOENT;
	r = read_caller(m, &p, at, index, &c);
	if (r)
		return r;
	op = c.code[index] & 0xff;
	a = c.code[index] >> 8 & 0xff;
	r = -ENOENT;
	if (op < BC_MAX && calls[op] && calls[op][0] != 'c') {
		*ret = xasprintf("metamethod '%s'", calls[op]);
		r = 0;
	} else if (op >= BC_CALLM && op < BC_MAX && calls[op]) {
		r = slot_name(m, &c, at, index, op == BC_ITERC ? a - 3 : a, ret);
	}
	caller_done(&c);
	return r;
}

/* ---- frames ---- */

static char *own_name(const struct proto *p, const char *file)
{
	if (!p->head.firstline && p->head.numline)
		return xstrdup("main chunk");
	return xasprintf("function <%s:%u>", file ? file : "?", p->head.firstline);
}

int runtime_luajit_resolve(struct memory *m, const struct runtime_words *frame,
			   const struct runtime_words *caller, struct runtime_names *ret)
{
	struct proto p;
	char *file, *name = NULL;
	uint32_t line;
	uint64_t at;
	int r = read_proto(m, frame->a, &p, &at);

	if (r)
		return r;
	file = chunk_text(m, p.head.chunkname);
	line = line_of(m, &p, (uint32_t)frame->b);
	if (frame->type == PF_LUAJIT_TRACE)
		name = xasprintf("trace %s:%u", file ? file : "?", line);
	else if (caller && caller->type == PF_LUAJIT_FUNCTION && frame->b & PF_LUAJIT_CALLED)
		(void)called_name(m, caller, &name);
	if (!name)
		name = own_name(&p, file);
	runtime_names_add(ret, name, file, line, false);
	ret->kind = FRAME_LUA;
	return 0;
}
