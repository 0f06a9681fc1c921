/* SPDX-License-Identifier: Apache-2.0 */
/* The names that runtimes find for a frame: a list that owns its texts. */
#include "node/runtime/ask_format.h"

#include <stdlib.h>

/* Cleans a text of a program, which may have any bytes. Frees s, and returns a new string. */
static char *take_clean(char *s)
{
	char *clean = s ? elf_text_clean(s) : NULL;

	free(s);
	return clean;
}

void runtime_lines_dropped(void)
{
	counter_add(runtime_loss_counter(LOST_LINES), 1);
}

void runtime_names_add(struct runtime_names *n, char *name, char *file, uint32_t line, bool inlined)
{
	if (n->n == RUNTIME_NAMES_MAX) {
		counter_add(runtime_loss_counter(LOST_INLINED), 1);
		free(name);
		free(file);
		return;
	}
	/* most frames have one name, so the list grows at powers of two */
	if ((n->n & (n->n - 1)) == 0)
		n->items = xrealloc(n->items, (n->n ? 2 * n->n : 1) * sizeof(*n->items));
	n->items[n->n++] = (struct runtime_name){take_clean(name), take_clean(file), line, inlined};
}

void runtime_names_done(struct runtime_names *n)
{
	for (size_t i = 0; i < n->n; i++) {
		free(n->items[i].name);
		free(n->items[i].file);
	}
	free(n->items);
	*n = (struct runtime_names){.kind = n->kind};
}

size_t runtime_names_bytes(const struct runtime_names *n)
{
	size_t bytes = n->n * sizeof(*n->items);

	for (size_t i = 0; i < n->n; i++) {
		const struct runtime_name *x = &n->items[i];

		bytes += (x->name ? strlen(x->name) + 1 : 0) + (x->file ? strlen(x->file) + 1 : 0);
	}
	return bytes;
}
