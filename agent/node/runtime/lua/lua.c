/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PUC's Lua 5.1 to 5.4: finds the interpreter's loop in a process, and names its functions.
 * docs/lua.md. Runs on the reader's thread.
 */
#include "node/runtime/lua/lua.h"

#include <stdlib.h>

/* lua_ident of lapi.c, which every program that contains Lua has */
#define IDENT_5_1   "\"$Lua: Lua 5.1"
#define IDENT	    "\"$LuaVersion: Lua 5."
#define IDENT_BYTES 40
#define LOOP	    "luaV_execute"
#define RESUME	    "lua_resume"
#define TEXT_MAX    (6u << 20) /* bytes of a file's code; less than MEMORY_BUDGET */
#define TEXT_PIECE  65536

/* ---- learn ---- */

/* Reads "5.4.4" from "$LuaVersion: Lua 5.4.4 Copyright ..." */
static int read_version(const struct runtime_look *look, uint64_t ident, char ret[16],
			unsigned *ret_minor)
{
	_cleanup_free_ char *text = NULL;
	const char *version;
	size_t n;
	int r = runtime_memory_string(look->memory, ident, IDENT_BYTES, &text);

	if (r < 0)
		return r;
	version = strstr(text, "Lua 5.");
	if (!version)
		return -ENOENT;
	version += strlen("Lua ");
	n = strspn(version, "0123456789.");
	if (n < 3 || n > 15 || version[2] < '0' || version[2] > '9')
		return -ENOENT;
	memcpy(ret, version, n);
	ret[n] = '\0';
	*ret_minor = (unsigned)atoi(version + 2);
	return 0;
}

/* Reads code. A page that is not in memory becomes zeros: a running loop has no code there. */
static uint8_t *read_text(struct memory *m, uint64_t start, size_t n)
{
	uint8_t *text = xcalloc(1, n);

	for (size_t at = 0; at < n; at += TEXT_PIECE)
		if (runtime_memory_read(m, start + at, text + at, MIN(n - at, (size_t)TEXT_PIECE)) <
		    0)
			memset(text + at, 0, MIN(n - at, (size_t)TEXT_PIECE));
	return text;
}

static int find_loop(const struct runtime_look *look, const struct mapping *m,
		     const struct lua_layout *l, struct lua_loop *ret)
{
	struct elf_index *index = look->indexes[m - look->maps->items];
	size_t n = m->end - m->start;
	_cleanup_free_ uint8_t *code = NULL;
	struct lua_text t = {.index = index, .address = m->start - runtime_bias(look, m), .n = n};
	struct elf_mark mark;

	if (n > TEXT_MAX)
		return -EFBIG;
	t.code = code = read_text(look->memory, m->start, n);
	if (elf_index_find_mark(index, LOOP, &mark) == 0) {
		t.loop = mark.address;
		t.loop_bytes = mark.size;
	}
	if (elf_index_find_mark(index, RESUME, &mark) == 0)
		t.resume = mark.address;
	return runtime_lua_find_loop(&t, l, ret);
}

static const char *problem_of(int r)
{
	switch (r) {
	case -ENOENT:
		return "its interpreter was not found in the program's code";
	case -ENOTSUP:
		return "its interpreter's callers were not understood";
	case -EFBIG:
		return "the program is too large to look for its interpreter";
	}
	return "its code could not be read";
}

static void give_loop(const struct lua_layout *l, const struct lua_loop *loop, uint64_t bias,
		      struct runtime_learnt *ret)
{
	struct pf_lua *d = xmemdup(&l->kernel, sizeof(l->kernel));

	d->start = loop->start + bias;
	d->settled = loop->settled + bias;
	d->frame = loop->frame;
	for (size_t i = 0; i < loop->n_sites; i++) {
		d->sites[i] = loop->sites[i];
		d->sites[i].address += bias;
	}
	ret->data = d;
	ret->data_bytes = sizeof(*d);
	ret->ranges = xcalloc(1, sizeof(*ret->ranges));
	ret->ranges[0] = (struct runtime_range){loop->start + bias, loop->end + bias, false};
	ret->n_ranges = 1;
}

/* Returns whether the same file is mapped at the same address as last time. */
static bool is_known(const struct runtime_learnt *old, uint64_t ident, const struct mapping *m)
{
	const struct lua_state *s = old ? old->state : NULL;

	return s && old->data && s->ident == ident && s->text == m->start && s->text_end == m->end;
}

static void keep_old(struct runtime_learnt *old, struct runtime_learnt *ret)
{
	*ret = *old;
	ret->data = xmemdup(old->data, old->data_bytes);
	ret->ranges = xmemdup(old->ranges, old->n_ranges * sizeof(*old->ranges));
	old->state = NULL;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	uint64_t ident, size;
	const struct lua_layout *l;
	const struct mapping *m;
	struct lua_loop loop;
	struct lua_state *s;
	char version[16];
	unsigned minor;
	int r = runtime_find_mark(look, IDENT, &m, &ident, &size);

	if (r < 0)
		r = runtime_find_mark(look, IDENT_5_1, &m, &ident, &size);
	if (r < 0)
		return r;
	if (is_known(old, ident, m)) {
		keep_old(old, ret);
		return 0;
	}
	r = read_version(look, ident, version, &minor);
	if (r < 0)
		return r == -EFAULT ? -EAGAIN : r;
	memcpy(ret->version, version, sizeof(version));
	l = runtime_lua_layout(minor);
	if (!l) {
		snprintf(ret->problem, sizeof(ret->problem), "Lua %s is not known", version);
		return 0;
	}
	r = find_loop(look, m, l, &loop);
	if (r < 0) {
		snprintf(ret->problem, sizeof(ret->problem), "Lua %s: %s", version, problem_of(r));
		return 0;
	}
	give_loop(l, &loop, runtime_bias(look, m), ret);
	ret->state = s = xcalloc(1, sizeof(*s));
	*s = (struct lua_state){.layout = l, .ident = ident, .text = m->start, .text_end = m->end};
	return 0;
}

/* ---- resolve ---- */

/* Finds the name with which the function of a frame was called. -ENOENT: the call has no name. */
static int name_by_call(const struct lua_reader *r, const struct runtime_words *frame,
			const struct runtime_words *caller, char **ret)
{
	uint16_t own = PF_LUA_STATUS(frame->b), callers = PF_LUA_CALLER(frame->b);
	const struct lua_proto *p;
	int e;

	if ((r->l->minor == 3 ? own : callers) & r->l->finalizer) {
		*ret = xasprintf("metamethod '%s'", r->l->minor == 4 ? "gc" : "__gc");
		return 0;
	}
	if (own & r->l->tail || callers & r->l->hooked)
		return -ENOENT;
	if (!(frame->b & PF_LUA_CALLER_IS_LUA) || !caller || caller->type == PF_TYPE_TROUBLE)
		return -ENOENT;
	e = runtime_lua_proto_get(r, caller->a, &p);
	return e < 0 ? e : runtime_lua_called_name(r, p, PF_LUA_PC(caller->b), ret);
}

static int name_frame(struct lua_state *state, struct memory *m, const struct runtime_words *frame,
		      const struct runtime_words *caller, struct runtime_names *ret)
{
	_cleanup_free_ char *name = NULL, *file = NULL, *shown = NULL;
	struct lua_reader r = {state, state->layout, m};
	const struct lua_proto *p;
	uint32_t line;
	int e = name_by_call(&r, frame, caller, &name);

	if (e < 0 && e != -ENOENT)
		return e;
	e = runtime_lua_proto_get(&r, frame->a, &p);
	if (e == 0)
		e = runtime_lua_source(&r, p, &file, &shown);
	if (e < 0)
		return e;
	line = runtime_lua_line(&r, p, PF_LUA_PC(frame->b));
	if (!name && p->line_defined == 0)
		name = xstrdup("main chunk");
	else if (!name)
		name = xasprintf("function <%s:%u>", shown, p->line_defined);
	runtime_names_add(ret, TAKE_PTR(name), TAKE_PTR(file), line, false);
	return 0;
}

static int resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret)
{
	struct lua_state *s = state;
	int r = name_frame(s, m, frame, caller, ret);

	/* All caches together are full: the functions that were read must not be kept. */
	if (!runtime_cache_has_room(s->code_bytes, 0, SIZE_MAX))
		runtime_lua_protos_free(s);
	return r;
}

static void forget(void *state)
{
	if (state)
		runtime_lua_protos_free(state);
	free(state);
}

static const char *const marks[] = {IDENT, IDENT_5_1, LOOP, RESUME, NULL};

const struct runtime_ops runtime_lua_runtime = {
	.name = "lua",
	.title = "Lua",
	.frame_kind = FRAME_LUA,
	.by_caller = true,
	.rows = true,
	.marks = marks,
	.learn = learn,
	.resolve = resolve,
	.forget = forget,
};
