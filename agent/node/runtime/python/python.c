/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython: finds the interpreter of a process, its version and its evaluation loop. python.h lists
 * what the other files do. docs/python.md. Runs on the reader's thread.
 */
#include "node/runtime/python/python.h"

#include <stdlib.h>

#include "node/parse/format.h"

#define LOOP	   "_PyEval_EvalFrameDefault" /* Python/ceval.c, since 3.6 */
#define RANGES_MAX (PARSE_MARK_HITS + 1)      /* a file's ranges: loop symbols and a cold part */

struct python_file {
	const struct mapping *mapping; /* the first mapping of the file */
	const struct elf_index *index;
	uint64_t bias;
};

/* ---- marks ---- */

static bool find_mark(const struct python_file *f, const char *name, uint64_t *ret,
		      uint64_t *ret_size)
{
	struct elf_mark m;

	if (elf_index_find_mark(f->index, name, &m) < 0)
		return false;
	*ret = f->bias + m.address;
	if (ret_size)
		*ret_size = m.size;
	return true;
}

static int find_file(const struct runtime_look *look, const char *mark, struct python_file *ret)
{
	uint64_t address, size;
	int r = runtime_find_mark(look, mark, &ret->mapping, &address, &size);

	if (r < 0)
		return r;
	ret->index = look->indexes[ret->mapping - look->maps->items];
	ret->bias = runtime_bias(look, ret->mapping);
	return 0;
}

/*
 * Returns the address of a type object; 0: not known. If Python is in a library and the program
 * uses the type, the program has a copy (R_X86_64_COPY), and the library uses that copy, too. Then
 * the program's file has the mark, but no interpreter.
 */
static uint64_t find_type(const struct runtime_look *look, const struct python_file *f,
			  const char *name)
{
	struct python_file first = *f;
	uint64_t address = 0;

	if (find_file(look, name, &first) == 0 &&
	    !find_mark(&first, "Py_GetVersion", &address, NULL))
		f = &first;
	find_mark(f, name, &address, NULL);
	return address;
}

/* ---- the version ---- */

static void version_text(uint32_t hex, char ret[static 48])
{
	static const char *const levels[16] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};
	const char *level = levels[hex >> 4 & 15];
	int n = snprintf(ret, 48, "%u.%u.%u", hex >> 24, hex >> 16 & 255, hex >> 8 & 255);

	if (level)
		snprintf(ret + n, 48 - (size_t)n, "%s%u", level, hex & 15);
}

static uint32_t version_number(const char *text)
{
	unsigned major, minor;

	if (sscanf(text, "%u.%u", &major, &minor) != 2 || major > 255 || minor > 255)
		return 0;
	return major << 24 | minor << 16;
}

/*
 * Finds the version. Since 3.11 it is the variable Py_Version; in earlier versions, the code of
 * Py_GetVersion has it. 0: not found.
 */
static uint32_t find_version(const struct python_file *f, struct memory *m, char ret[static 48])
{
	uint64_t address, size;
	uint32_t hex;

	if (find_mark(f, "Py_Version", &address, NULL) &&
	    runtime_memory_u32(m, address, &hex) == 0 && hex >> 24 == 3) {
		version_text(hex, ret);
		return hex;
	}
	if (find_mark(f, "Py_GetVersion", &address, &size) &&
	    runtime_python_code_version(m, address, size, ret) == 0)
		return version_number(ret);
	return 0;
}

static int not_known(struct runtime_learnt *ret)
{
	snprintf(ret->problem, sizeof(ret->problem),
		 "CPython %s is not known: 3.8 to 3.14 are, and later ones that describe "
		 "themselves as these do",
		 ret->version[0] ? ret->version : "of an unknown version");
	return 0;
}

/* ---- the evaluation loop ---- */

static void add_range(struct runtime_learnt *ret, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < ret->n_ranges; i++) /* another symbol has the range already */
		if (start < ret->ranges[i].end && ret->ranges[i].start < end)
			return;
	if (ret->n_ranges < RANGES_MAX)
		ret->ranges[ret->n_ranges++] = (struct runtime_range){start, end, false};
}

/*
 * Adds all symbols that have the loop's name. The first one is the loop itself. -ENOENT: none
 * exists.
 */
static int add_symbols(const struct python_file *f, struct runtime_learnt *ret, bool *ret_cold)
{
	uint64_t address, size;

	if (!find_mark(f, LOOP, &address, &size) || !size)
		return -ENOENT;
	ret->ranges = xcalloc(RANGES_MAX, sizeof(*ret->ranges));
	add_range(ret, address, address + size);
	for (size_t i = 0; i < elf_index_n_marks(f->index); i++) {
		struct elf_mark m = elf_index_mark(f->index, i);

		if (!str_has_prefix(m.name, LOOP ".") || !m.size)
			continue;
		add_range(ret, f->bias + m.address, f->bias + m.address + m.size);
		*ret_cold = true;
	}
	return 0;
}

static int find_loop(const struct python_file *f, const struct python_layout *l, struct memory *m,
		     struct runtime_learnt *ret, struct pf_python *k)
{
	_cleanup_free_ uint8_t *code = NULL;
	bool has_cold = false;
	uint64_t start, cold, end;
	size_t n;
	int r = add_symbols(f, ret, &has_cold);

	if (r < 0)
		return r;
	start = k->eval = ret->ranges[0].start;
	n = ret->ranges[0].end - start;
	if ((has_cold && k->pieces != PF_PYTHON_OBJECT) || n > PYTHON_CODE_BYTES)
		return 0;
	code = xmalloc(n);
	r = runtime_memory_read(m, start, code, n);
	if (r < 0)
		return r;
	/* Without local symbols, the cold part is found by the loop's jumps. */
	if (!has_cold && runtime_python_code_cold(m, code, n, start, f->mapping->end, &cold, &end))
		add_range(ret, cold, end);
	if (k->pieces == PF_PYTHON_OBJECT)
		runtime_python_code_outside(code, n, l->kernel.thread_frame, k);
	return 0;
}

/* ---- learn ---- */

/*
 * Finds the layout. It may set ret's problem and return an error. The caller handles other errors.
 */
static int find_layout(const struct python_places *at, struct memory *m, uint32_t version,
		       struct python_layout *l, struct runtime_learnt *ret)
{
	uint8_t offsets[PYTHON_OFFSETS_BYTES];
	int r;

	if (version >> 16 < 0x030d)
		return runtime_python_layout_of(version, l) < 0 ? not_known(ret), 1 : 0;
	r = runtime_memory_read(m, at->runtime, offsets, sizeof(offsets));
	if (r < 0)
		return r;
	r = runtime_python_layout_read(offsets, sizeof(offsets), l);
	if (r == -ENOTSUP)
		snprintf(ret->problem, sizeof(ret->problem),
			 "CPython %s is a free-threaded build, which is not read yet",
			 ret->version);
	else if (r < 0)
		not_known(ret);
	return r < 0 ? 1 : 0;
}

static void keep(struct runtime_learnt *old, const struct python_layout *l,
		 const struct python_places *at, struct runtime_learnt *ret)
{
	struct python_state *s = old ? old->state : NULL;

	if (s)
		old->state = NULL;
	else
		s = runtime_python_state_new();
	runtime_python_state_set(s, l, at);
	ret->state = s;
}

static int learn_runtime(const struct runtime_look *look, const struct python_file *f,
			 struct runtime_learnt *old, struct runtime_learnt *ret)
{
	struct memory *m = look->memory;
	uint32_t version = find_version(f, m, ret->version);
	struct python_places at = {};
	struct python_layout l;
	struct pf_python k;
	int r;

	if (!find_mark(f, "_PyRuntime", &at.runtime, NULL))
		return not_known(ret);
	at.code_type = find_type(look, f, "PyCode_Type");
	at.dict_type = find_type(look, f, "PyDict_Type");
	r = find_layout(&at, m, version, &l, ret);
	if (r)
		return MIN(r, 0);
	r = runtime_python_layout_check(&l, &at, m, &k);
	if (r == 0)
		r = find_loop(f, &l, m, ret, &k);
	if (r == -EBADMSG)
		snprintf(ret->problem, sizeof(ret->problem),
			 "CPython %s: its structures are not those of that version", ret->version);
	else if (r == -ENOENT)
		snprintf(ret->problem, sizeof(ret->problem),
			 "CPython %s: its file has no symbol " LOOP, ret->version);
	if (r < 0)
		return ret->problem[0] ? 0 : r;
	ret->data = xmemdup(&k, sizeof(k));
	ret->data_bytes = sizeof(k);
	keep(old, &l, &at, ret);
	return 0;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	struct runtime_learnt found = {};
	struct python_file f;
	int r;

	/* 2.7 and 3.6 do not have _PyRuntime, but they have PyEval_EvalFrameEx. */
	if (find_file(look, "_PyRuntime", &f) < 0 && find_file(look, "PyEval_EvalFrameEx", &f) < 0)
		return -ENOENT;
	r = learn_runtime(look, &f, old, &found);
	if (r < 0) {
		free(found.ranges);
		return r;
	}
	*ret = found;
	return 0;
}

static void forget(void *state)
{
	runtime_python_state_free(state);
}

static const char *const marks[] = {
	"_PyRuntime",	      LOOP "*",	     "Py_Version",  "Py_GetVersion",
	"PyEval_EvalFrameEx", "PyCode_Type", "PyDict_Type", NULL};

const struct runtime_ops runtime_python_runtime = {
	.name = "python",
	.title = "CPython",
	.frame_kind = FRAME_PYTHON,
	.marks = marks,
	.learn = learn,
	.resolve = runtime_python_resolve,
	.forget = forget,
};
