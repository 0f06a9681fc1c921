/* SPDX-License-Identifier: Apache-2.0 */
/* Where functions are declared and which nodes are inlined: ours, beside the flat form of DeepFlow. */
#include "hub/query/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <uthash.h>

struct file {
	const char *name; /* of the tree */
	uint32_t id;
	UT_hash_handle hh;
};

static uint32_t file_id(struct file **files, const char *name, struct buf *b)
{
	struct file *f;

	HASH_FIND_STR(*files, name, f);
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->name = name;
		f->id = HASH_COUNT(*files);
		HASH_ADD_KEYPTR(hh, *files, f->name, strlen(f->name), f);
		buf_puts(b, f->id ? "," : "");
		buf_json_string(b, name);
	}
	return f->id;
}

static void free_files(struct file *files)
{
	struct file *f, *next;

	HASH_ITER (hh, files, f, next) {
		HASH_DEL(files, f);
		free(f);
	}
}

void put_sources(struct buf *b, const struct tree *t)
{
	_cleanup_buf_ struct buf names = {0}, values = {0};
	struct file *files = NULL;
	bool first = true;

	for (size_t i = 0; i < t->n_functions; i++) {
		const struct function *f = &t->functions[i];

		if (f->file)
			buf_printf(&values, "%s[%" PRIu32 ",%" PRIu32 "]", i ? "," : "",
				   file_id(&files, f->file, &names), f->line);
		else
			buf_puts(&values, i ? ",[-1,0]" : "[-1,0]");
	}
	if (files) {
		buf_printf(b, ",\"sources\":{\"files\":[%s],", names.data);
		buf_printf(b, "\"columns\":[\"file_id\",\"line\"],\"values\":[%s],", values.data);
		buf_puts(b, "\"inlined_nodes\":[");
		for (size_t i = 0; i < t->n_nodes; i++) {
			if (!t->nodes[i].inlined)
				continue;
			buf_printf(b, first ? "%zu" : ",%zu", i);
			first = false;
		}
		buf_puts(b, "]}");
	}
	free_files(files);
}
