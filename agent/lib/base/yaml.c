/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML -> json_t, with libyaml's events. Aliases are refused: podflame needs none, and with them a
 * small text becomes a large one. The position of each key and item is kept under its path, so that
 * an error can name line and column.
 */
#include "lib/base/base.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <yaml.h>

#define MAX_TEXT_BYTES (16u << 20) /* bytes of one text; a longer one is refused */
#define MAX_DEPTH      64	   /* levels of nesting; a deeper text is refused */
#define MAX_NODES      1000000	   /* values of one text; a text with more is refused */
#define MAX_PATH_BYTES                                                                             \
	256 /* bytes; longer paths get no position, because each path repeats all keys above it */

struct position {
	char *path;
	unsigned line, column;
};

struct yaml_doc {
	json_t *root;
	struct position *positions;
	size_t n, cap;
};

struct yaml_reader {
	yaml_parser_t parser;
	struct yaml_doc *doc; /* gets the positions of the values; NULL: the caller needs none */
	struct buf path;
	size_t n_nodes;
	struct field_error *err;
};

struct yaml_doc *yaml_doc_free(struct yaml_doc *d)
{
	if (!d)
		return NULL;
	json_decref(d->root);
	for (size_t i = 0; i < d->n; i++)
		free(d->positions[i].path);
	free(d->positions);
	free(d);
	return NULL;
}

const json_t *yaml_root(const struct yaml_doc *d)
{
	return d->root;
}

int yaml_position(const struct yaml_doc *d, const char *path, unsigned *ret_line,
		  unsigned *ret_column)
{
	for (size_t i = 0; i < d->n; i++) {
		if (!streq(d->positions[i].path, path))
			continue;
		*ret_line = d->positions[i].line;
		*ret_column = d->positions[i].column;
		return 0;
	}
	return -ENOENT;
}

static int fail_at(struct yaml_reader *r, yaml_mark_t m, const char *what)
{
	char at[64];

	snprintf(at, sizeof(at), "%zu:%zu", m.line + 1, m.column + 1);
	return field_error_set(r->err, at, "%s", what);
}

/* Returns why the text is no YAML. Most of these reasons are texts of libyaml. */
static const char *problem_of(const yaml_parser_t *p)
{
	if (p->error == YAML_SCANNER_ERROR && p->buffer.pointer && *p->buffer.pointer == '\t')
		return "a tab cannot stand here: YAML is indented by blanks";
	return p->problem ? p->problem : "not YAML";
}

static int next_event(struct yaml_reader *r, yaml_event_t *e)
{
	if (yaml_parser_parse(&r->parser, e))
		return 0;
	if (r->parser.error == YAML_MEMORY_ERROR) {
		field_error_set(r->err, "1:1", "no memory to read it");
		return -ENOMEM;
	}
	return fail_at(r, r->parser.problem_mark, problem_of(&r->parser));
}

static void remember(struct yaml_reader *r, yaml_mark_t m)
{
	struct yaml_doc *d = r->doc;

	if (!d || r->path.len > MAX_PATH_BYTES)
		return;
	GROW(d->positions, d->n, d->cap);
	d->positions[d->n++] = (struct position){xstrdup(r->path.data ? r->path.data : ""),
						 (unsigned)m.line + 1, (unsigned)m.column + 1};
}

/*
 * Returns the value of a scalar. A plain scalar has the type that the core schema of YAML 1.2 gives
 * it. A quoted one is a string.
 */
static json_t *scalar_value(const yaml_event_t *e)
{
	const char *s = (const char *)e->data.scalar.value;
	const char *tag = (const char *)e->data.scalar.tag;
	char *end;
	long long i;
	double f;

	if (e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || (tag && str_has_suffix(tag, ":str")))
		return json_stringn(s, e->data.scalar.length);
	if (!*s || streq(s, "~") || streq(s, "null") || streq(s, "Null") || streq(s, "NULL"))
		return json_null();
	if (streq(s, "true") || streq(s, "True") || streq(s, "TRUE"))
		return json_true();
	if (streq(s, "false") || streq(s, "False") || streq(s, "FALSE"))
		return json_false();
	if (isdigit((unsigned char)*s) || strchr("+-.", *s)) {
		errno = 0;
		i = strtoll(s, &end, str_has_prefix(s, "0x") ? 16 : 10);
		if (!*end && end != s && !errno)
			return json_integer(i);
		f = strtod(s, &end);
		if (!*end && end != s && isfinite(f) && strpbrk(s, "0123456789") &&
		    !strpbrk(s, "xX"))
			return json_real(f);
	}
	return json_stringn(s, e->data.scalar.length);
}

/*
 * Cuts the path to len bytes. Its data is NULL if a single key was longer than the limit: then the
 * buffer has failed, and there is nothing to cut.
 */
static void cut_path(struct yaml_reader *r, size_t len)
{
	r->path.len = len;
	if (r->path.data)
		r->path.data[len] = '\0';
}

static int read_value(struct yaml_reader *r, yaml_event_t *e, int depth, json_t **ret);

static int read_sequence(struct yaml_reader *r, int depth, json_t **ret)
{
	_cleanup_json_ json_t *array = json_array();
	size_t path_len = r->path.len;

	for (size_t i = 0;; i++) {
		yaml_event_t e;
		json_t *item = NULL;
		int err = next_event(r, &e);

		if (err)
			return err;
		if (e.type == YAML_SEQUENCE_END_EVENT) {
			yaml_event_delete(&e);
			*ret = TAKE_PTR(array);
			return 0;
		}
		buf_printf(&r->path, "[%zu]", i);
		remember(r, e.start_mark);
		err = read_value(r, &e, depth + 1, &item);
		yaml_event_delete(&e);
		cut_path(r, path_len);
		if (err)
			return err;
		json_array_append_new(array, item);
	}
}

static int read_key(struct yaml_reader *r, const yaml_event_t *e, json_t *object)
{
	const char *key = (const char *)e->data.scalar.value;

	if (e->type != YAML_SCALAR_EVENT)
		return fail_at(r, e->start_mark, "a key must be a plain word");
	if (strlen(key) != e->data.scalar.length)
		return fail_at(r, e->start_mark, "a key must not contain NUL");
	if (json_object_get(object, key)) {
		_cleanup_free_ char *what = xasprintf("%s is there twice", key);

		return fail_at(r, e->start_mark, what);
	}
	buf_printf(&r->path, "%s%s", r->path.len ? "." : "", key);
	remember(r, e->start_mark);
	return 0;
}

static int read_mapping(struct yaml_reader *r, int depth, json_t **ret)
{
	_cleanup_json_ json_t *object = json_object();
	size_t path_len = r->path.len;

	for (;;) {
		_cleanup_free_ char *key = NULL;
		yaml_event_t e;
		json_t *value = NULL;
		int err = next_event(r, &e);

		if (err)
			return err;
		if (e.type == YAML_MAPPING_END_EVENT) {
			yaml_event_delete(&e);
			*ret = TAKE_PTR(object);
			return 0;
		}
		err = read_key(r, &e, object);
		if (!err)
			key = xstrdup((const char *)e.data.scalar.value);
		yaml_event_delete(&e);
		if (!err)
			err = next_event(r, &e);
		if (err)
			return err;
		err = read_value(r, &e, depth + 1, &value);
		yaml_event_delete(&e);
		cut_path(r, path_len);
		if (err)
			return err;
		if (json_object_set_new(object, key, value) < 0)
			return fail_at(r, r->parser.mark, "a key is not valid UTF-8");
	}
}

static int read_value(struct yaml_reader *r, yaml_event_t *e, int depth, json_t **ret)
{
	json_t *v;

	if (depth > MAX_DEPTH)
		return fail_at(r, e->start_mark, "nested too deeply (limit 64)");
	if (++r->n_nodes > MAX_NODES)
		return fail_at(r, e->start_mark, "too many values (limit 1,000,000)");
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		v = scalar_value(e);
		if (!v)
			return fail_at(r, e->start_mark, "not valid UTF-8");
		*ret = v;
		return 0;
	case YAML_SEQUENCE_START_EVENT:
		return read_sequence(r, depth, ret);
	case YAML_MAPPING_START_EVENT:
		return read_mapping(r, depth, ret);
	case YAML_ALIAS_EVENT:
		return fail_at(r, e->start_mark, "aliases (*name) are not supported");
	default:
		return fail_at(r, e->start_mark, "a value is missing");
	}
}

/* Reads one document. The caller has read its DOCUMENT-START event. */
static int read_document(struct yaml_reader *r, json_t **ret)
{
	_cleanup_json_ json_t *root = NULL;
	yaml_event_t e;
	int err = next_event(r, &e);

	if (err)
		return err;
	err = read_value(r, &e, 0, &root);
	yaml_event_delete(&e);
	if (!err)
		err = next_event(r, &e); /* DOCUMENT-END */
	if (err)
		return err;
	yaml_event_delete(&e);
	*ret = TAKE_PTR(root);
	return 0;
}

static int read_stream(struct yaml_reader *r, bool all, json_t *documents)
{
	for (;;) {
		yaml_event_t e;
		yaml_event_type_t type;
		json_t *root = NULL;
		int err = next_event(r, &e);

		if (err)
			return err;
		type = e.type;
		yaml_event_delete(&e);
		if (type == YAML_STREAM_END_EVENT)
			return 0;
		if (type != YAML_DOCUMENT_START_EVENT)
			continue;
		err = read_document(r, &root);
		if (err)
			return err;
		json_array_append_new(documents, root);
		if (!all)
			return 0;
	}
}

static int parse(const char *text, size_t n, bool all, struct yaml_doc *doc, json_t *documents,
		 struct field_error *reterr)
{
	struct yaml_reader r = {.doc = doc, .err = reterr};
	int err;

	if (n > MAX_TEXT_BYTES)
		return field_error_set(reterr, "1:1", "more than 16 MiB of YAML");
	if (!yaml_parser_initialize(&r.parser)) {
		field_error_set(reterr, "1:1", "no memory to read it");
		return -ENOMEM;
	}
	buf_init(&r.path, 1 << 20);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
	err = read_stream(&r, all, documents);
	yaml_parser_delete(&r.parser);
	buf_done(&r.path);
	return err;
}

int yaml_parse(const char *text, size_t n, struct yaml_doc **ret, struct field_error *reterr)
{
	_cleanup_json_ json_t *documents = json_array();
	struct yaml_doc *d = xcalloc(1, sizeof(*d));
	int err = parse(text, n, false, d, documents, reterr);

	if (err) {
		yaml_doc_free(d);
		return err;
	}
	d->root = json_incref(json_array_get(documents, 0));
	if (!d->root)
		d->root = json_null();
	*ret = d;
	return 0;
}

int yaml_parse_all(const char *text, size_t n, json_t **ret_array, struct field_error *reterr)
{
	_cleanup_json_ json_t *documents = json_array();
	int err = parse(text, n, true, NULL, documents, reterr);

	if (err)
		return err;
	*ret_array = TAKE_PTR(documents);
	return 0;
}
