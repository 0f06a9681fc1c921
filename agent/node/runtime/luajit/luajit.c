/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds LuaJIT 2.1 (GC64, x86-64) by the interpreter's code. That code is the same assembler in
 * every build, so stripped and embedded builds are found, too. This file reads no Lua state: the
 * kernel's part finds the state on the stack (bpf/luajit.h). Runs on the reader's thread.
 */
#include "node/runtime/luajit/luajit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_MARK "\"LuaJIT 2."
#define CALLER_BYTES 512	/* limit for lua_call, which has 60 to 100 bytes */
#define TEXT_BYTES   65536	/* bytes that are read at a time */
#define TEXT_MAX     (6u << 20) /* bytes of code searched without lua_call; under MEMORY_BUDGET */
#define AREAS_MAX    RUNTIME_RANGES_MAX /* pieces of traces of one process */
#define PAGE	     4096

/*
 * ANOTHER must not contain the text of VERSION_MARK, because the agent's own file would be taken
 * for a LuaJIT.
 */
#define ANOTHER	  "its interpreter is not that of version 2.1 for x86-64 with GC64"
#define TOO_LARGE "the program is too large to look for its interpreter"

/* Facts that stay the same while the file is mapped. */
struct state {
	uint64_t start, end, inode, ctime_ns; /* the file's mapping */
	struct pf_luajit vm;
	char version[48];
};

/* ---- the interpreter's code ---- */

/*
 * If p is a call or jump to lj_vm_call, sets *ret to the address in lj_vm_call behind saveregs, the
 * macro that saves C's registers.
 */
static bool leads_to_call(struct memory *m, const uint8_t *p, uint64_t address, uint64_t *ret)
{
	uint8_t code[64];
	uint64_t to;
	int32_t by;
	size_t at;

	if (*p != 0xe8 && *p != 0xe9)
		return false;
	memcpy(&by, p + 1, sizeof(by));
	to = address + 5 + (uint64_t)(int64_t)by;
	if (runtime_memory_read(m, to, code, sizeof(code)) ||
	    !runtime_luajit_find_call(code, sizeof(code), &at) || at > 14)
		return false;
	*ret = to + at;
	return true;
}

static bool in_mapping(const struct mapping *m, uint64_t address, uint64_t bytes)
{
	return address >= m->start && address < m->end && bytes <= m->end - address;
}

/* Finds lj_vm_call through lua_call, which calls it. */
static int find_by_symbol(const struct runtime_look *look, const struct mapping **ret_mapping,
			  uint64_t *ret)
{
	const struct mapping *m;
	uint8_t code[CALLER_BYTES];
	uint64_t start, size;

	if (runtime_find_mark(look, "lua_call", &m, &start, &size) ||
	    !in_mapping(m, start, sizeof(code)) ||
	    runtime_memory_read(look->memory, start, code, sizeof(code)))
		return -ENOENT;
	if (size < 5 || size > sizeof(code))
		size = sizeof(code);
	for (size_t at = 0; at + 5 <= size; at++)
		if (leads_to_call(look->memory, code + at, start + at, ret)) {
			*ret_mapping = m;
			return 0;
		}
	return -ENOENT;
}

/* Finds lj_vm_call by its bytes, in all code of the file. */
static int find_by_bytes(const struct runtime_look *look, const struct mapping *m, uint64_t *ret)
{
	_cleanup_free_ uint8_t *text = xmalloc(TEXT_BYTES);
	uint64_t step = TEXT_BYTES - LUAJIT_CALL_BYTES;

	if (m->end - m->start > TEXT_MAX)
		return -E2BIG;
	for (uint64_t at = m->start; at < m->end; at += step) {
		size_t n = m->end - at < TEXT_BYTES ? m->end - at : TEXT_BYTES, found;
		int r = runtime_memory_read(look->memory, at, text, n);

		if (r)
			return r;
		if (runtime_luajit_find_call(text, n, &found)) {
			*ret = at + found;
			return 0;
		}
	}
	return -ENOENT;
}

static const struct elf_index *index_of(const struct runtime_look *look, const struct mapping *m)
{
	return look->indexes[m - look->maps->items];
}

/*
 * Finds the code around an address that has the same unwind rule. The whole interpreter has one
 * description of its frame (.eh_frame), so this is the interpreter.
 */
static int same_rule(const struct elf_tables *t, uint64_t address, uint64_t *ret_start,
		     uint64_t *ret_end)
{
	uint64_t start = 0, end = UINT64_MAX;
	uint16_t rule = PF_RULE_GAP, next;

	for (size_t p = 0; p < t->n_pages; p++) {
		uint64_t page = (uint64_t)t->pages[p].number << PF_PAGE_BITS;

		for (uint32_t k = 0; k < t->pages[p].n_rows; k++) {
			const struct pf_row *row = &t->rows[t->pages[p].first_row + k];
			uint64_t at = page + row->address;

			next = row->rule;
			if (at > address && next != rule) {
				end = at;
				p = t->n_pages - 1;
				break;
			}
			if (at <= address && next != rule) {
				start = at;
				rule = next;
			}
		}
	}
	if (rule == PF_RULE_GAP || end == UINT64_MAX)
		return -ENOENT;
	*ret_start = start;
	*ret_end = end;
	return 0;
}

static int read_vm(const struct runtime_look *look, const struct mapping *m, uint64_t call,
		   struct pf_luajit *ret)
{
	uint64_t bias = runtime_bias(look, m), start, end;
	_cleanup_free_ uint8_t *bytes = NULL;
	struct elf_tables tables;
	int r;

	elf_index_tables(index_of(look, m), &tables);
	r = same_rule(&tables, call - bias, &start, &end);
	if (r)
		return r;
	if (end - start > LUAJIT_VM_MAX || !in_mapping(m, start + bias, end - start))
		return -ENOEXEC;
	bytes = xmalloc(end - start);
	r = runtime_memory_read(look->memory, start + bias, bytes, end - start);
	if (r)
		return r;
	return runtime_luajit_read_vm(&(struct luajit_code){bytes, end - start, start + bias},
				      call - bias - start, ret);
}

/* ---- traces ---- */

static bool is_anonymous(const struct mapping *m)
{
	return !m->path[0] && !m->inode;
}

/*
 * Finds the areas that hold traces. An area begins with {next area, size} (MCLink of lj_mcode.c).
 * The kernel may join neighbouring areas into one mapping.
 */
static size_t find_areas(const struct runtime_look *look, struct runtime_range *ranges, size_t n)
{
	for (size_t k = 0; k < look->maps->n; k++) {
		const struct mapping *m = &look->maps->items[k];
		uint64_t link[2]; /* the next area, and the size of this one */

		if (!is_anonymous(m))
			continue;
		for (uint64_t at = m->start; n < AREAS_MAX && at < m->end; at += link[1]) {
			if (runtime_memory_read(look->memory, at, link, sizeof(link)) ||
			    link[0] % PAGE || link[0] >> 47 || !link[1] || link[1] % PAGE ||
			    link[1] > m->end - at)
				break;
			ranges[n++] = (struct runtime_range){at, at + link[1], true};
		}
	}
	return n;
}

/* ---- learn ---- */

/*
 * Reads the version. *ret_mapping: the mapping of the file that has it. A program that searches for
 * LuaJIT has a similar text, but without the last number.
 */
static int read_version(const struct runtime_look *look, char *ret, size_t n,
			const struct mapping **ret_mapping)
{
	size_t prefix = strlen(VERSION_MARK) - 1;
	_cleanup_free_ char *text = NULL;
	uint64_t address, size;

	if (runtime_find_mark(look, VERSION_MARK, ret_mapping, &address, &size) ||
	    runtime_memory_string(look->memory, address, n, &text) ||
	    strncmp(text, &VERSION_MARK[1], prefix) || text[prefix] < '0' || text[prefix] > '9')
		return -ENOENT;
	text[7 + strcspn(text + 7, " \t\n")] = '\0';
	snprintf(ret, n, "%s", text + strlen("LuaJIT "));
	return 0;
}

static bool is_same(const struct state *s, const struct mapping *m)
{
	return s->start == m->start && s->end == m->end && s->inode == m->inode &&
	       s->ctime_ns == m->ctime_ns;
}

static bool still_mapped(const struct runtime_look *look, const struct state *s)
{
	const struct mapping *m = proc_mappings_find(look->maps, s->start);

	return m && is_same(s, m);
}

/*
 * Finds the interpreter. -ENOEXEC: the process has LuaJIT, but in an unknown form. -E2BIG: the
 * process may have LuaJIT, but the file has too much code to search. In these two cases
 * *ret_version is set.
 */
static int find_vm(const struct runtime_look *look, char *ret_version, struct state **ret)
{
	_cleanup_free_ struct state *s = xcalloc(1, sizeof(*s));
	const struct mapping *m, *named;
	int version = read_version(look, s->version, sizeof(s->version), &named);
	uint64_t call;
	int r = find_by_symbol(look, &m, &call);

	if (r && version)
		return -ENOENT;
	if (version)
		snprintf(s->version, sizeof(s->version), "2.1");
	snprintf(ret_version, sizeof(s->version), "%s", s->version);
	if (r) {
		m = named;
		r = find_by_bytes(look, m, &call);
	}
	if (!r)
		r = read_vm(look, m, call, &s->vm);
	if (r)
		return r == -ENOENT ? -ENOEXEC : r;
	s->start = m->start;
	s->end = m->end;
	s->inode = m->inode;
	s->ctime_ns = m->ctime_ns;
	*ret = TAKE_PTR(s);
	return 0;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	struct state *s = old ? old->state : NULL;
	struct runtime_learnt l = {0};
	int r;

	if (s && still_mapped(look, s)) {
		old->state = NULL;
	} else {
		r = find_vm(look, l.version, &s);
		if (r == -ENOEXEC || r == -E2BIG) {
			snprintf(l.problem, sizeof(l.problem), "%s",
				 r == -E2BIG ? TOO_LARGE : ANOTHER);
			*ret = l;
			return 0;
		}
		if (r)
			return r;
	}
	snprintf(l.version, sizeof(l.version), "%s", s->version);
	l.ranges = xcalloc(RUNTIME_RANGES_MAX, sizeof(*l.ranges));
	l.ranges[0] = (struct runtime_range){s->vm.vm_start, s->vm.vm_end, true};
	l.n_ranges = find_areas(look, l.ranges, 1);
	if (l.n_ranges == AREAS_MAX)
		runtime_ranges_cut(&l, "pieces of traces");
	l.data = xmemdup(&s->vm, sizeof(s->vm));
	l.data_bytes = sizeof(s->vm);
	l.state = s;
	*ret = l;
	return 0;
}

static int resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret)
{
	(void)state;
	return runtime_luajit_resolve(m, frame, caller, ret);
}

static void forget(void *state)
{
	free(state);
}

static const char *const marks[] = {"lua_call", VERSION_MARK, NULL};

const struct runtime_ops runtime_luajit_runtime = {
	.name = "luajit",
	.title = "LuaJIT",
	.frame_kind = FRAME_LUA,
	.by_caller = true,
	.rows = true,
	.marks = marks,
	.learn = learn,
	.resolve = resolve,
	.forget = forget,
};
