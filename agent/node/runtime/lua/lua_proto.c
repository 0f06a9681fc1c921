/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads functions of a Lua program (struct Proto of lobject.h) from the process's memory, and keeps
 * some of them. Runs on the reader's thread.
 */
#include "node/runtime/lua/lua.h"

#include <stdlib.h>

#define PROTOS_KEPT	256	   /* functions kept for a process */
#define CODE_KEPT_BYTES (4u << 20) /* bytes of the code of these functions */
/* enough of a Proto: all members that are used are within these bytes */
#define PROTO_BYTES    120
#define NAME_BYTES     200 /* limit for a variable's name; longer names are cut */
#define PATH_BYTES     4096
#define STRING_AT      24 /* offset of a string's bytes, after the header, in all versions */
#define IDSIZE	       60 /* value of LUA_IDSIZE */
#define TAG_STRING     4
#define TAG_KIND       0x0f /* mask: a tag without the bits for variant and collectable */
#define ABSLINE_MARKER (-0x80)
#define LINES_WALK_MAX 4096  /* instructions since the last absolute line; Lua stores one in 128 */
#define ABSLINES_MAX   65536 /* absolute lines of a function that are searched */

void runtime_lua_protos_free(struct lua_state *s)
{
	for (size_t i = 0; s->protos && i < PROTOS_KEPT; i++)
		free(s->protos[i].code);
	free(s->protos);
	s->protos = NULL;
	runtime_cache_set(&s->code_bytes, 0);
}

static size_t code_bytes(const struct lua_proto *p)
{
	return p->n_code * sizeof(*p->code);
}

static struct lua_proto *place_of(struct lua_state *s, uint64_t address, uint16_t cookie)
{
	if (!s->protos)
		s->protos = xcalloc(PROTOS_KEPT, sizeof(*s->protos));
	return &s->protos[(address >> 4 ^ address >> 13 ^ cookie) % PROTOS_KEPT];
}

/*
 * Empties the slot of p in the cache, and all other slots if their code leaves no room. Returns the
 * slot of p.
 */
static struct lua_proto *make_room(struct lua_state *s, const struct lua_proto *p)
{
	struct lua_proto *place = place_of(s, p->address, p->cookie);

	if (place->code)
		runtime_cache_set(&s->code_bytes, s->code_bytes - code_bytes(place));
	free(place->code);
	*place = (struct lua_proto){0};
	if (runtime_cache_has_room(s->code_bytes, code_bytes(p), CODE_KEPT_BYTES))
		return place;
	runtime_lua_protos_free(s);
	return place_of(s, p->address, p->cookie);
}

static uint32_t size_at(const uint8_t *head, uint16_t offset)
{
	int32_t n;

	memcpy(&n, head + offset, sizeof(n));
	return n < 0 ? 0 : (uint32_t)n;
}

static uint64_t pointer_at(const uint8_t *head, uint16_t offset)
{
	uint64_t p;

	memcpy(&p, head + offset, sizeof(p));
	return p;
}

static void fill(const struct lua_layout *l, const uint8_t *head, struct lua_proto *p)
{
	p->k = pointer_at(head, l->k);
	p->protos = pointer_at(head, l->protos);
	p->lines = pointer_at(head, l->lines);
	p->abslines = l->abslines ? pointer_at(head, l->abslines) : 0;
	p->locals = pointer_at(head, l->locals);
	p->upvalues = pointer_at(head, l->upvalues);
	p->source = pointer_at(head, l->source);
	p->n_code = size_at(head, l->kernel.proto_sizes);
	p->n_k = size_at(head, l->n_k);
	p->n_protos = size_at(head, l->n_protos);
	p->n_lines = size_at(head, l->n_lines);
	p->n_abslines = l->abslines ? size_at(head, l->n_abslines) : 0;
	p->n_locals = MIN(size_at(head, l->n_locals), LUA_LOCALS_MAX);
	p->n_upvalues = size_at(head, l->n_upvalues);
	p->line_defined = size_at(head, l->line_defined);
}

/* Reads the header. -ESTALE: it is not the function that the kernel's part saw. */
static int read_head(const struct lua_reader *r, uint64_t address, uint16_t cookie,
		     struct lua_proto *ret, uint64_t *ret_code)
{
	struct lua_proto p = {.address = address, .cookie = cookie};
	uint8_t head[PROTO_BYTES];
	int e = runtime_memory_read(r->m, address, head, sizeof(head));

	if (e < 0)
		return e == -E2BIG ? e : -ESTALE;
	if (head[8] != r->l->proto_tag)
		return -ESTALE;
	fill(r->l, head, &p);
	*ret_code = pointer_at(head, r->l->code);
	if (pf_lua_cookie(*ret_code, p.n_code, p.line_defined,
			  size_at(head, r->l->line_defined + 4)) != cookie)
		return -ESTALE;
	*ret = p;
	return p.n_code > LUA_CODE_MAX ? -E2BIG : 0;
}

/*
 * Reads the header each time, because the function may be gone, and the pointers of the header are
 * needed to read names.
 */
int runtime_lua_proto_get(const struct lua_reader *r, uint64_t a, const struct lua_proto **ret)
{
	uint64_t address = a & 0xffffffffffff, code;
	uint16_t cookie = a >> 48;
	struct lua_proto p = {0}, *kept;
	int e = read_head(r, address, cookie, &p, &code);

	if (e < 0)
		return e;
	kept = place_of(r->state, address, cookie);
	if (kept->code && kept->address == address && kept->cookie == cookie &&
	    kept->n_code == p.n_code) {
		p.code = kept->code;
	} else {
		kept = make_room(r->state, &p);
		p.code = xmalloc(code_bytes(&p) + 1);
		e = runtime_memory_read(r->m, code, p.code, code_bytes(&p));
		if (e < 0) {
			free(p.code);
			return e == -E2BIG ? e : -ESTALE;
		}
		runtime_cache_set(&r->state->code_bytes, r->state->code_bytes + code_bytes(&p));
	}
	*kept = p;
	*ret = kept;
	return 0;
}

/* ---- lines ---- */

static uint32_t plain_line(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc)
{
	int32_t line;

	if (pc >= p->n_lines ||
	    runtime_memory_read(r->m, p->lines + 4ull * pc, &line, sizeof(line)) < 0)
		return 0;
	return line < 0 ? 0 : (uint32_t)line;
}

/*
 * Finds the last absolute line (an entry of abslineinfo) at or before pc; if there is none, the
 * function's first line.
 */
static int base_line(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc,
		     int64_t *ret_pc, int64_t *ret_line)
{
	uint32_t low = 0, high = MIN(p->n_abslines, (uint32_t)ABSLINES_MAX);
	struct {
		int32_t pc, line;
	} at;

	*ret_pc = -1;
	*ret_line = p->line_defined;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int e = runtime_memory_read(r->m, p->abslines + 8ull * middle, &at, sizeof(at));

		if (e < 0)
			return e;
		if (at.pc > (int64_t)pc) {
			high = middle;
			continue;
		}
		low = middle + 1;
		*ret_pc = at.pc;
		*ret_line = at.line;
	}
	return 0;
}

/*
 * Returns the line of an instruction. Like luaG_getfuncline of 5.4, it adds differences to an
 * absolute line.
 */
static uint32_t packed_line(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc)
{
	int8_t steps[LINES_WALK_MAX];
	int64_t from, line;
	size_t n;

	if (pc >= p->n_lines || base_line(r, p, pc, &from, &line) < 0 || from >= (int64_t)pc + 1 ||
	    pc - from > LINES_WALK_MAX)
		return 0;
	n = (size_t)(pc - from);
	if (runtime_memory_read(r->m, p->lines + from + 1, steps, n) < 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (steps[i] == ABSLINE_MARKER)
			return 0;
		line += steps[i];
	}
	return line < 0 || line > INT32_MAX ? 0 : (uint32_t)line;
}

uint32_t runtime_lua_line(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc)
{
	return r->l->abslines ? packed_line(r, p, pc) : plain_line(r, p, pc);
}

/* ---- names ---- */

/* Reads a TString. -ENOENT: the string is empty, or the address is 0. */
static int string_at(const struct lua_reader *r, uint64_t address, size_t max, char **ret)
{
	char *text;
	int e = address ? runtime_memory_string(r->m, address + STRING_AT, max, &text) : -ENOENT;

	if (e < 0)
		return e;
	if (!*text) {
		free(text);
		return -ENOENT;
	}
	*ret = text;
	return 0;
}

int runtime_lua_local(const struct lua_reader *r, const struct lua_proto *p, uint32_t n,
		      uint32_t pc, char **ret)
{
	struct {
		uint64_t name;
		int32_t from, to;
	} local;

	for (uint32_t i = 0; i < p->n_locals; i++) {
		int e = runtime_memory_read(r->m, p->locals + 16ull * i, &local, sizeof(local));

		if (e < 0)
			return e;
		if (local.from > (int64_t)pc)
			break;
		if (pc < (int64_t)local.to && --n == 0)
			return string_at(r, local.name, NAME_BYTES, ret);
	}
	return -ENOENT;
}

int runtime_lua_constant(const struct lua_reader *r, const struct lua_proto *p, uint32_t n,
			 char **ret)
{
	struct {
		uint64_t string;
		uint32_t tag;
	} value;
	int e = n < p->n_k ? runtime_memory_read(r->m, p->k + 16ull * n, &value, sizeof(value))
			   : -ENOENT;

	if (e < 0)
		return e;
	if ((value.tag & TAG_KIND) != TAG_STRING)
		return -ENOENT;
	return string_at(r, value.string, NAME_BYTES, ret);
}

int runtime_lua_upvalue(const struct lua_reader *r, const struct lua_proto *p, uint32_t n,
			char **ret)
{
	uint64_t name;
	int e = n < p->n_upvalues
			? runtime_memory_u64(r->m, p->upvalues + (uint64_t)r->l->upvalue_size * n,
					     &name)
			: -ENOENT;

	return e < 0 ? e : string_at(r, name, NAME_BYTES, ret);
}

/* ---- sources: luaO_chunkid of lobject.c ---- */

static char *short_path(unsigned minor, const char *path)
{
	/* 5.1 subtracts room for quotes, although it does not write them. */
	size_t n = strlen(path), shown = minor == 1 ? IDSIZE - 8 : IDSIZE - 4;

	if (n <= (minor == 1 ? shown : (size_t)IDSIZE - 1))
		return xstrdup(path);
	return xasprintf("...%s", path + n - shown);
}

static char *short_text(unsigned minor, const char *text)
{
	size_t line = strcspn(text, minor == 1 ? "\n\r" : "\n"), n = minor == 1 ? 43 : 45;

	if (!text[line] && (minor == 1 ? line <= n : line < n))
		return xasprintf("[string \"%s\"]", text);
	return xasprintf("[string \"%.*s...\"]", (int)MIN(line, n), text);
}

int runtime_lua_source(const struct lua_reader *r, const struct lua_proto *p, char **ret_file,
		       char **ret_short)
{
	_cleanup_free_ char *text = NULL;
	uint8_t first = '=';
	int e = p->source ? runtime_memory_u8(r->m, p->source + STRING_AT, &first) : 0;

	if (e == 0 && p->source)
		e = runtime_memory_string(r->m, p->source + STRING_AT,
					  first == '@' ? PATH_BYTES : 100, &text);
	if (e < 0)
		return e;
	if (!text) {
		*ret_short = xstrdup("?");
		*ret_file = NULL;
	} else if (first == '@') {
		*ret_short = short_path(r->l->minor, text + 1);
		*ret_file = xstrdup(text + 1);
	} else {
		*ret_short = first == '=' ? xstrndup(text + 1, IDSIZE - 1)
					  : short_text(r->l->minor, text);
		*ret_file = xstrdup(*ret_short);
	}
	return 0;
}
