/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a perf map, as text: "START SIZE NAME", in the child. Allocates no memory.
 */
#include "node/runtime/perfmap/perfmap.h"

#include <stdlib.h>

/* Reads a hexadecimal number, with or without 0x (HotSpot, V8), and a space. */
static bool take_number(const char **p, uint64_t *ret)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	const char *s = *p;
	uint64_t value = 0;
	size_t n;

	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		s += 2;
	n = strspn(s, digits);
	if (n == 0 || n > 16 || s[n] != ' ')
		return false;
	for (size_t i = 0; i < n; i++) {
		size_t digit = strchr(digits, s[i]) - digits;

		value = value << 4 | (digit < 16 ? digit : digit - 6);
	}
	*ret = value;
	*p = s + n + strspn(s + n, " ");
	return true;
}

static void take_line(struct perf_text *t)
{
	const char *p = t->line;
	uint64_t start, size;
	struct perf_name name;

	t->line[t->line_n] = '\0';
	if (t->line_n && t->line[t->line_n - 1] == '\r')
		t->line[t->line_n - 1] = '\0';
	t->line_n = 0;
	if (!take_number(&p, &start) || !take_number(&p, &size) || !*p || !size ||
	    start >= PERF_MAP_ADDRESS_MAX || size > PERF_MAP_FUNCTION_MAX) {
		t->n_malformed++;
		return;
	}
	runtime_perf_map_names(p, t->writer, &name);
	t->found(t->arg, &(struct perf_function){
				 .start = start,
				 .end = start + size,
				 .kind = name.kind,
				 .line = name.line,
				 .name = name.name,
				 .name_n = name.name_n,
				 .file = name.file,
				 .file_n = name.file_n,
			 });
}

void runtime_perf_text_add(struct perf_text *t, const char *bytes, size_t n)
{
	const char *end = bytes + n;

	while (bytes < end) {
		const char *newline = memchr(bytes, '\n', end - bytes);
		const char *stop = newline ? newline : end;
		size_t piece = stop - bytes;

		if (!t->behind) {
			size_t fits = MIN(piece, PERF_MAP_LINE_MAX - t->line_n);

			memcpy(t->line + t->line_n, bytes, fits);
			t->line_n += fits;
			t->behind = fits < piece;
			if (newline || t->behind)
				take_line(t);
		}
		if (newline)
			t->behind = false;
		bytes = stop + (newline != NULL);
	}
}
