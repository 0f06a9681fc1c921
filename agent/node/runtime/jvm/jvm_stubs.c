/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the names of HotSpot's stubs: see jvm_stubs.h. */
#include "node/runtime/jvm/jvm_stubs.h"

#include <stdlib.h>

#define STUBS_MAX      2048	  /* stubs of one JVM; JDK 25 has about 400 */
#define STUB_BYTES_MAX (1u << 20) /* bytes of one stub; a larger one is left out */
#define NAME_MAX_BYTES 96	  /* bytes of a stub's name; a longer one is cut */

/* StubCodeDesc, which is the same in JDK 9 to 25. */
struct stub_code_desc {
	uint64_t next, group, name, begin, end;
};

struct stub {
	uint64_t begin, end;
	char *name;
};
struct jvm_stubs {
	struct stub *items; /* sorted by their begin */
	size_t n, cap;
};

static int by_begin(const void *a, const void *b)
{
	const struct stub *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

struct jvm_stubs *runtime_jvm_stubs_read(struct memory *m, uint64_t list)
{
	struct jvm_stubs *s = xcalloc(1, sizeof(*s));
	struct stub_code_desc d;
	uint64_t at;

	if (runtime_memory_u64(m, list, &at) < 0)
		return s;
	for (; at && s->n < STUBS_MAX && runtime_memory_read(m, at, &d, sizeof(d)) == 0;
	     at = d.next) {
		_cleanup_free_ char *name = NULL;

		if (d.end <= d.begin || d.end - d.begin > STUB_BYTES_MAX ||
		    runtime_memory_string(m, d.name, NAME_MAX_BYTES, &name) < 0 || !*name)
			continue;
		GROW(s->items, s->n, s->cap);
		s->items[s->n++] = (struct stub){d.begin, d.end, elf_text_clean(name)};
	}
	if (s->n)
		qsort(s->items, s->n, sizeof(*s->items), by_begin);
	return s;
}

struct jvm_stubs *runtime_jvm_stubs_free(struct jvm_stubs *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n; i++)
		free(s->items[i].name);
	free(s->items);
	free(s);
	return NULL;
}

const char *runtime_jvm_stubs_find(const struct jvm_stubs *s, uint64_t pc)
{
	size_t low = 0, high = s->n;
	const struct stub *stub;

	/* Finds the last stub that begins at or before pc. */
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->items[middle].begin <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	stub = &s->items[low - 1];
	return pc <= stub->end ? stub->name : NULL;
}
