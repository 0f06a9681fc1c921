/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of Python's frames. The texts of a code object are read once and kept. For each name, the
 * head of the code object is read again, to notice if another object is at its address now. Runs on
 * the reader's thread.
 */
#include "node/runtime/python/python.h"

#include <stdlib.h>

#define CODES_MAX	 2048	    /* code objects kept for one process */
#define LINES_KEPT_BYTES (1u << 20) /* line tables kept for one process */
#define TEXTS_KEPT_BYTES (4u << 20) /* names and files kept for one process */
#define LINES_MAX	 (1u << 18) /* limit for one code object: enough for 150,000 lines */
#define CODE_HEAD_BYTES	 160
#define BYTES_SIZE	 16 /* offsets in PyBytesObject: ob_size, ob_sval */
#define BYTES_DATA	 32
#define OBJECT_TYPE	 8

struct code_key {
	uint64_t code, globals;
};

struct python_code_names {
	struct code_key key;
	uint64_t file_at, name_at, lines_at; /* addresses from which the texts were read */
	char *name, *file;		     /* name NULL: frames of this code are not shown */
	uint32_t first_line;
	bool no_lines; /* the line table is too large, so frames of this code have line 0 */
	uint8_t *lines;
	size_t n_lines, n_texts;
	UT_hash_handle hh;
};

struct python_state {
	struct python_layout layout;
	struct python_places at;
	/* hash table in order of use, the least recently used first */
	struct python_code_names *codes;
	size_t lines_bytes, texts_bytes, kept_bytes; /* kept_bytes: the sum of the other two */
};

struct python_state *runtime_python_state_new(void)
{
	return xcalloc(1, sizeof(struct python_state));
}

static void code_free(struct python_state *s, struct python_code_names *c)
{
	s->lines_bytes -= c->n_lines;
	s->texts_bytes -= c->n_texts;
	runtime_cache_set(&s->kept_bytes, s->lines_bytes + s->texts_bytes);
	free(c->name);
	free(c->file);
	free(c->lines);
	free(c);
}

static void drop(struct python_state *s, struct python_code_names *c)
{
	HASH_DEL(s->codes, c);
	code_free(s, c);
}

struct python_state *runtime_python_state_free(struct python_state *s)
{
	struct python_code_names *c, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->codes, c, next)
		drop(s, c);
	free(s);
	return NULL;
}

void runtime_python_state_set(struct python_state *s, const struct python_layout *l,
			      const struct python_places *at)
{
	s->layout = *l;
	s->at = *at;
}

/* ---- reading a code object ---- */

struct head {
	uint8_t bytes[CODE_HEAD_BYTES];
};

static uint64_t head_word(const struct head *h, size_t offset)
{
	uint64_t v = 0;

	if (offset <= sizeof(h->bytes) - sizeof(v))
		memcpy(&v, h->bytes + offset, sizeof(v));
	return v;
}

/*
 * Reads the head of a code object. -ESTALE: the object at this address is not the one that the walk
 * saw.
 */
static int read_head(const struct python_state *s, struct memory *m, uint64_t word,
		     struct head *ret)
{
	uint64_t counts[PF_PYTHON_COUNTS], hash;
	size_t offset = s->layout.kernel.code_counts;
	int r = runtime_memory_read(m, PF_PYTHON_ADDRESS(word), ret->bytes, sizeof(ret->bytes));

	if (r < 0)
		return r;
	if (offset > sizeof(ret->bytes) - sizeof(counts))
		return -EINVAL;
	if (s->at.code_type && head_word(ret, OBJECT_TYPE) != s->at.code_type)
		return -ESTALE;
	r = runtime_memory_u64(m, head_word(ret, s->layout.kernel.code_name) + PF_PYTHON_HASH,
			       &hash);
	if (r < 0)
		return r;
	memcpy(counts, ret->bytes + offset, sizeof(counts));
	return pf_python_cookie(counts, hash) == PF_PYTHON_HIGH(word) ? 0 : -ESTALE;
}

static int read_lines(struct memory *m, struct python_code_names *c)
{
	uint64_t n;
	int r = runtime_memory_u64(m, c->lines_at + BYTES_SIZE, &n);

	if (r < 0)
		return r;
	c->no_lines = n > LINES_MAX; /* n is 0 in 3.8 and 3.9 if all units are on the first line */
	if (c->no_lines)
		runtime_lines_dropped();
	if (n == 0 || c->no_lines)
		return 0;
	c->lines = xmalloc(n);
	r = runtime_memory_read(m, c->lines_at + BYTES_DATA, c->lines, n);
	if (r == 0)
		c->n_lines = n;
	return r;
}

/* Returns "decoder" for "json/decoder.py". Any other text stays unchanged. */
static char *module_of_file(const char *file)
{
	const char *base = strrchr(file, '/');
	size_t n;

	base = base ? base + 1 : file;
	n = strlen(base);
	return xstrndup(base, str_has_suffix(base, ".py") ? n - 3 : n);
}

/* Makes the name "module.qualname". */
static int read_name(const struct python_state *s, struct memory *m, struct python_code_names *c)
{
	_cleanup_free_ char *module = NULL, *name = NULL;
	int r = runtime_python_string(m, &s->layout, c->name_at, &name);

	if (r < 0)
		return r;
	r = runtime_python_module(m, &s->layout, &s->at, c->key.globals, &module);
	if (r == -E2BIG)
		return r;
	if (r < 0)
		module = module_of_file(c->file);
	c->name = xasprintf("%s.%s", module, name);
	return 0;
}

static int read_code(const struct python_state *s, struct memory *m, struct python_code_names *c)
{
	int r = runtime_python_string(m, &s->layout, c->file_at, &c->file);

	if (r == 0)
		r = read_lines(m, c);
	/*
	 * _Py_InitCleanup and similar code objects (3.12, Python/specialize.c) belong to the
	 * interpreter itself and have no lines. Tracebacks do not show them either.
	 */
	if (r == 0 && !c->n_lines && !c->first_line && s->layout.minor >= 12)
		return 0;
	return r < 0 ? r : read_name(s, m, c);
}

/* ---- kept code objects ---- */

static bool has_room(const struct python_state *s, const struct python_code_names *c)
{
	return HASH_COUNT(s->codes) < CODES_MAX &&
	       s->lines_bytes + c->n_lines <= LINES_KEPT_BYTES &&
	       s->texts_bytes + c->n_texts <= TEXTS_KEPT_BYTES &&
	       runtime_cache_has_room(s->kept_bytes, c->n_lines + c->n_texts, SIZE_MAX);
}

static void keep(struct python_state *s, struct python_code_names *new)
{
	struct python_code_names *c, *next;

	new->n_texts = sizeof(*new) + (new->name ? strlen(new->name) : 0) +
		       (new->file ? strlen(new->file) : 0);
	HASH_ITER (hh, s->codes, c, next) {
		if (has_room(s, new))
			break;
		drop(s, c);
	}
	s->lines_bytes += new->n_lines;
	s->texts_bytes += new->n_texts;
	runtime_cache_set(&s->kept_bytes, s->lines_bytes + s->texts_bytes);
}

static void fill(const struct python_state *s, const struct head *h, struct python_code_names *ret)
{
	const struct python_layout *l = &s->layout;

	ret->file_at = head_word(h, l->code_file);
	ret->name_at = head_word(h, l->code_qualname ? l->code_qualname : l->kernel.code_name);
	ret->lines_at = head_word(h, l->code_lines);
	ret->first_line = (uint32_t)head_word(h, l->code_first_line);
}

static bool same(const struct python_code_names *a, const struct python_code_names *b)
{
	return a->file_at == b->file_at && a->name_at == b->name_at && a->lines_at == b->lines_at &&
	       a->first_line == b->first_line;
}

static int find_code(struct python_state *s, struct memory *m, const struct runtime_words *frame,
		     const struct python_code_names **ret)
{
	struct python_code_names want = {.key = {frame->a, PF_PYTHON_ADDRESS(frame->b)}}, *c;
	struct head h;
	int r = read_head(s, m, frame->a, &h);

	if (r < 0)
		return r;
	fill(s, &h, &want);
	HASH_FIND(hh, s->codes, &want.key, sizeof(want.key), c);
	if (c && !same(c, &want)) {
		drop(s, c);
		c = NULL;
	}
	if (c) {
		HASH_DEL(s->codes, c); /* removed here, and added at the end below */
	} else {
		c = xmemdup(&want, sizeof(want));
		r = read_code(s, m, c);
		if (r < 0) {
			c->n_lines = 0;
			code_free(s, c);
			return r;
		}
		keep(s, c);
	}
	HASH_ADD(hh, s->codes, key, sizeof(c->key), c);
	*ret = c;
	return 0;
}

int runtime_python_resolve(void *state, struct memory *m, const struct runtime_words *frame,
			   const struct runtime_words *caller, struct runtime_names *ret)
{
	struct python_state *s = state;
	uint32_t unit = PF_PYTHON_HIGH(frame->b);
	const struct python_code_names *c;
	uint32_t line = 0;
	int r = find_code(s, m, frame, &c);

	(void)caller;
	if (r < 0)
		return r == -EBADMSG ? -ESTALE : r;
	ret->kind = FRAME_PYTHON;
	if (!c->name)
		return 0;
	if (unit != PF_PYTHON_UNIT_UNKNOWN && !c->no_lines)
		line = runtime_python_line(s->layout.minor, c->lines, c->n_lines, c->first_line,
					   (int)unit - 1);
	runtime_names_add(ret, xstrdup(c->name), xstrdup(c->file), line, false);
	return 0;
}
