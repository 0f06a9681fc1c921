/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields that podflame adds to DeepFlow's flat form: in which files the functions are, their
 * languages, and which nodes are inlined.
 */
#include "hub/query/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <uthash.h>

struct source_file {
	const char *name; /* points into the tree */
	uint32_t id;
	UT_hash_handle hh;
};

static uint32_t file_id(struct source_file **files, const char *name, struct buf *b)
{
	struct source_file *f;

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

static void free_files(struct source_file *files)
{
	struct source_file *f, *next;

	HASH_ITER (hh, files, f, next) {
		HASH_DEL(files, f);
		free(f);
	}
}

/* Adds the functions of languages for which DeepFlow has no letter: "jvm":[3,5],"wait":[7] */
static void put_languages(struct buf *b, const struct tree *t)
{
	static const enum frame_kind kinds[] = {FRAME_JVM, FRAME_PYTHON, FRAME_LUA, FRAME_OBJECT,
						FRAME_WAIT};

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		size_t n = 0;

		for (size_t i = 0; i < t->n_functions; i++) {
			if (t->functions[i].kind != kinds[k])
				continue;
			if (n++)
				buf_putc(b, ',');
			else
				buf_printf(b, "%s\"%s\":[", b->len ? "," : "",
					   profile_frame_kind_name(kinds[k]));
			buf_printf(b, "%zu", i);
		}
		if (n)
			buf_putc(b, ']');
	}
}

void query_put_sources(struct buf *b, const struct tree *t)
{
	_cleanup_buf_ struct buf names = {0}, values = {0}, languages = {0};
	struct source_file *files = NULL;
	bool first = true;

	for (size_t i = 0; i < t->n_functions; i++) {
		const struct function *f = &t->functions[i];

		if (f->file)
			buf_printf(&values, "%s[%" PRIu32 ",%" PRIu32 "]", i ? "," : "",
				   file_id(&files, f->file, &names), f->line);
		else
			buf_puts(&values, i ? ",[-1,0]" : "[-1,0]");
	}
	put_languages(&languages, t);
	if (files || languages.len) {
		buf_printf(b, ",\"sources\":{\"files\":[%s],", files ? names.data : "");
		buf_printf(b, "\"columns\":[\"file_id\",\"line\"],\"values\":[%s],", values.data);
		buf_puts(b, "\"inlined_nodes\":[");
		for (size_t i = 0; i < t->n_nodes; i++) {
			if (!t->nodes[i].inlined)
				continue;
			buf_printf(b, first ? "%zu" : ",%zu", i);
			first = false;
		}
		buf_puts(b, "]");
		if (languages.len)
			buf_printf(b, ",\"languages\":{%s}", languages.data);
		buf_puts(b, "}");
	}
	free_files(files);
}
