/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads objects from a Python process's memory: str (Include/cpython/unicodeobject.h) and dict
 * (Objects/dict-common.h of 3.8, Include/internal/pycore_dict.h of 3.11 and later). Runs on the
 * reader's thread.
 */
#include "node/runtime/python/python.h"

#define OBJECT_TYPE 8 /* offset of ob_type, in a build without reference tracing */

/* ---- str ---- */

#define STRING_LENGTH	  16
#define STRING_STATE	  32
#define STRING_HEAD_BYTES 36
/* Parts of a str's state, the same in all versions with a GIL. */
#define STATE_KIND(state)    ((state) >> 2 & 7) /* number of bytes of a character */
#define STATE_COMPACT(state) ((state) >> 5 & 1)
#define STATE_ASCII(state)   ((state) >> 6 & 1)

/*
 * Converts characters of 1, 2 or 4 bytes to UTF-8. Surrogates and NUL become U+FFFD.
 * elf_text_clean() replaces other characters later.
 */
static char *utf8_of(const uint8_t *data, size_t n, unsigned kind)
{
	_cleanup_buf_ struct buf b = {};

	buf_init(&b, 4 * PYTHON_STRING_MAX + 1);
	for (size_t i = 0; i < n; i++) {
		uint32_t c = 0;

		memcpy(&c, data + i * kind, kind);
		buf_put_utf8(&b, !c || c > 0x10ffff || c >> 11 == 0xd800 >> 11 ? 0xfffd : c);
	}
	return buf_steal(&b);
}

int runtime_python_string(struct memory *m, const struct python_layout *l, uint64_t at, char **ret)
{
	uint8_t head[STRING_HEAD_BYTES];
	_cleanup_free_ uint8_t *data = NULL;
	uint64_t length;
	uint32_t state;
	unsigned kind;
	int r = at ? runtime_memory_read(m, at, head, sizeof(head)) : -EBADMSG;

	if (r < 0)
		return r;
	memcpy(&length, head + STRING_LENGTH, sizeof(length));
	memcpy(&state, head + STRING_STATE, sizeof(state));
	kind = STATE_KIND(state);
	if (!STATE_COMPACT(state) || (kind != 1 && kind != 2 && kind != 4) || length > INT32_MAX)
		return -EBADMSG;
	length = MIN(length, (uint64_t)PYTHON_STRING_MAX);
	data = xmalloc(length * kind + 1);
	r = runtime_memory_read(m, at + (STATE_ASCII(state) ? l->string_ascii : l->string_compact),
				data, length * kind);
	if (r < 0)
		return r;
	*ret = utf8_of(data, length, kind);
	return 0;
}

/* ---- dict ---- */

#define DICT_KEYS	32
#define DICT_VALUES	40
#define DICT_HEAD_BYTES 48
#define ENTRIES_MAX	16 /* entries that are searched for "__name__", which is a module's first */

/* Where the entries of a dictionary are. */
struct dict_entries {
	uint64_t at;
	unsigned n, bytes, key; /* bytes: size of an entry; key: offset of its key and value */
};

/*
 * Finds the entries of a dictionary in 3.10 and earlier. Its keys are {refcnt, size, lookup,
 * usable, nentries, indices[size]}, then entries {hash, key, value}.
 */
static int entries_of_old(struct memory *m, uint64_t keys, struct dict_entries *ret)
{
	uint64_t head[5], width;
	int r = runtime_memory_read(m, keys, head, sizeof(head));

	if (r < 0)
		return r;
	width = head[1] <= 0xff ? 1 : head[1] <= 0xffff ? 2 : head[1] <= 0xffffffff ? 4 : 8;
	ret->at = keys + sizeof(head) + head[1] * width;
	ret->n = MIN(head[4], (uint64_t)ENTRIES_MAX);
	ret->bytes = 24;
	ret->key = 8;
	return 0;
}

/*
 * Finds the entries of a dictionary since 3.11. Its keys are {refcnt, log2_size, log2_index_bytes,
 * kind, version, usable, nentries, indices}, then entries: {hash, key, value} if kind is 0, else
 * {key, value}.
 */
static int entries_of(struct memory *m, uint64_t keys, struct dict_entries *ret)
{
	uint8_t head[32];
	uint64_t n;
	int r = runtime_memory_read(m, keys, head, sizeof(head));

	if (r < 0)
		return r;
	if (head[9] > 40)
		return -EBADMSG;
	memcpy(&n, head + 24, sizeof(n));
	ret->at = keys + sizeof(head) + (1ull << head[9]);
	ret->n = MIN(n, (uint64_t)ENTRIES_MAX);
	ret->bytes = head[10] == 0 ? 24 : 16;
	ret->key = head[10] == 0 ? 8 : 0;
	return 0;
}

static int find_name(struct memory *m, const struct python_layout *l, const struct dict_entries *e,
		     char **ret)
{
	uint8_t bytes[ENTRIES_MAX * 24];
	int r = runtime_memory_read(m, e->at, bytes, (size_t)e->n * e->bytes);

	for (size_t i = 0; r == 0 && i < e->n; i++) {
		_cleanup_free_ char *key = NULL;
		uint64_t pair[2];

		memcpy(pair, bytes + i * e->bytes + e->key, sizeof(pair));
		if (!pair[0])
			continue;
		r = runtime_python_string(m, l, pair[0], &key);
		if (r == 0 && streq(key, "__name__"))
			return runtime_python_string(m, l, pair[1], ret);
		r = r == -E2BIG ? r : 0; /* the key is not a str */
	}
	return r < 0 ? r : -ENOENT;
}

int runtime_python_module(struct memory *m, const struct python_layout *l,
			  const struct python_places *p, uint64_t dict, char **ret)
{
	uint64_t head[DICT_HEAD_BYTES / 8];
	struct dict_entries e = {0};
	int r = runtime_memory_read(m, dict, head, sizeof(head));

	if (r < 0)
		return r;
	if ((p->dict_type && head[OBJECT_TYPE / 8] != p->dict_type) || head[DICT_VALUES / 8])
		/* the object is not a dict, or its values are not stored with its keys */
		return -ENOENT;
	r = l->minor >= 11 ? entries_of(m, head[DICT_KEYS / 8], &e)
			   : entries_of_old(m, head[DICT_KEYS / 8], &e);
	return r < 0 ? r : find_name(m, l, &e, ret);
}
