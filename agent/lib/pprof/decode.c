/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a profile. Fields may come in any order, so the first pass over the bytes reads the
 * tables, and the samples are read after it.
 */
#include "lib/pprof/decode.h"

#include <stdlib.h>

int pprof_wrong(struct pprof_decoder *d, int error, const char *path, const char *fmt, ...)
{
	char at[200], text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(at, sizeof(at), "%s%s%s", d->from->path, *path ? "." : "", path);
	field_error_set(d->err, at, "%s", text);
	return error;
}

static int not_wire(struct pprof_decoder *d, const char *path)
{
	return pprof_wrong(d, -EBADMSG, path, "is no message of protobuf");
}

static int too_many(struct pprof_decoder *d, const char *path)
{
	return pprof_wrong(d, -E2BIG, path, "more than %d", PPROF_MAX_ROWS);
}

bool pprof_is_gzip(const void *p, size_t n)
{
	return n >= 2 && memcmp(p, "\x1f\x8b", 2) == 0;
}

/* ---- strings ---- */

bool pprof_is_utf8(const char *s)
{
	for (size_t n; *s; s += n)
		if (!(n = utf8_len(s)))
			return false;
	return true;
}

int pprof_text(struct pprof_decoder *d, uint64_t index, const char *path, const char **ret)
{
	struct pprof_string *s;

	if (index >= d->n_strings)
		return pprof_wrong(d, -EBADMSG, path, "index %llu is outside string_table (%zu)",
				   (unsigned long long)index, d->n_strings);
	s = &d->strings[index];
	if (!s->text && profile_batch_bytes(d->b) > BATCH_MAX_BYTES)
		return pprof_wrong(d, -E2BIG, path, "the request is too large when unpacked");
	if (!s->text)
		s->text = profile_batch_strn(d->b, s->n ? (const char *)s->p : "", s->n);
	if (!pprof_is_utf8(s->text))
		return pprof_wrong(d, -EBADMSG, path, "a text is not UTF-8");
	*ret = s->text;
	return 0;
}

static int add_string(struct pprof_decoder *d, const struct pprof_wire *w)
{
	if (d->n_strings == PPROF_MAX_ROWS)
		return too_many(d, "string_table");
	if (d->n_strings == 0 && pprof_wire_left(w))
		return pprof_wrong(d, -EBADMSG, "string_table", "the first text is not empty");
	GROW(d->strings, d->n_strings, d->cap_strings);
	d->strings[d->n_strings++] =
		(struct pprof_string){.p = w->p, .n = (uint32_t)pprof_wire_left(w)};
	return 0;
}

/* ---- small messages ---- */

/* Reads numbers of a message into the members that `at` has for their fields; others are left. */
static int read_numbers(struct pprof_decoder *d, struct pprof_wire w, uint64_t *const *at,
			size_t n_at, const char *path)
{
	struct pprof_field f;
	int r;

	while ((r = pprof_wire_next(&w, &f)) > 0)
		if (f.type == WIRE_VARINT && f.number < n_at && at[f.number])
			*at[f.number] = f.value;
	return r < 0 ? not_wire(d, path) : 0;
}

static int read_value_type(struct pprof_decoder *d, struct pprof_wire w, struct pprof_values *ret,
			   const char *path)
{
	uint64_t *const at[] = {NULL, &ret->type, &ret->unit};

	*ret = (struct pprof_values){0};
	return read_numbers(d, w, at, ARRAY_SIZE(at), path);
}

static int add_type(struct pprof_decoder *d, struct pprof_wire w)
{
	if (d->n_types == PPROF_MAX_TYPES)
		return pprof_wrong(d, -E2BIG, "sample_type", "more than %d", PPROF_MAX_TYPES);
	return read_value_type(d, w, &d->types[d->n_types++], "sample_type");
}

static int add_mapping(struct pprof_decoder *d, struct pprof_wire w)
{
	struct pprof_mapping m = {0};
	uint64_t *const at[] = {NULL, &m.id, NULL, NULL, NULL, &m.file};
	int r = read_numbers(d, w, at, ARRAY_SIZE(at), "mapping");

	if (r < 0)
		return r;
	if (d->n_mappings == PPROF_MAX_ROWS)
		return too_many(d, "mapping");
	GROW(d->mappings, d->n_mappings, d->cap_mappings);
	d->mappings[d->n_mappings++] = m;
	return 0;
}

static int add_function(struct pprof_decoder *d, struct pprof_wire w)
{
	struct pprof_function fn = {0};
	uint64_t start_line = 0;
	uint64_t *const at[] = {NULL, &fn.id, &fn.name, &fn.system_name, &fn.file, &start_line};
	int r = read_numbers(d, w, at, ARRAY_SIZE(at), "function");

	if (r < 0)
		return r;
	if (d->n_functions == PPROF_MAX_ROWS)
		return too_many(d, "function");
	fn.start_line = (int64_t)start_line;
	GROW(d->functions, d->n_functions, d->cap_functions);
	d->functions[d->n_functions++] = fn;
	return 0;
}

static int add_line(struct pprof_decoder *d, struct pprof_wire w)
{
	struct pprof_line l = {0};
	uint64_t line = 0;
	uint64_t *const at[] = {NULL, &l.function, &line};
	int r = read_numbers(d, w, at, ARRAY_SIZE(at), "location.line");

	if (r < 0)
		return r;
	if (d->n_lines == PPROF_MAX_ROWS)
		return too_many(d, "location.line");
	l.line = (int64_t)line;
	GROW(d->lines, d->n_lines, d->cap_lines);
	d->lines[d->n_lines++] = l;
	return 0;
}

static int add_location(struct pprof_decoder *d, struct pprof_wire w)
{
	struct pprof_location l = {.first_line = d->n_lines};
	uint64_t *const at[] = {NULL, &l.id, &l.mapping, &l.address};
	struct pprof_wire again = w;
	struct pprof_field f;
	int r = read_numbers(d, w, at, ARRAY_SIZE(at), "location");

	while (r >= 0 && (r = pprof_wire_next(&again, &f)) > 0)
		if (f.number == 4 && f.type == WIRE_BYTES)
			r = add_line(d, f.bytes);
	if (r < 0)
		return r;
	if (d->n_locations == PPROF_MAX_ROWS)
		return too_many(d, "location");
	l.n_lines = d->n_lines - l.first_line;
	GROW(d->locations, d->n_locations, d->cap_locations);
	d->locations[d->n_locations++] = l;
	return 0;
}

/* ---- ids ---- */

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void *pprof_by_id(void *rows, size_t n, size_t size, uint64_t id)
{
	return n ? bsearch(&id, rows, n, size, compare_ids) : NULL;
}

/* Sorts rows by their ids, which are their first members. An id is not 0, and of one row. */
static int sort_ids(struct pprof_decoder *d, void *rows, size_t n, size_t size, const char *path)
{
	const char *row = rows;

	if (n)
		qsort(rows, n, size, compare_ids);
	for (size_t i = 0; i < n; i++) {
		if (!*(const uint64_t *)(row + i * size))
			return pprof_wrong(d, -EBADMSG, path, "an id is 0");
		if (i && compare_ids(row + i * size, row + (i - 1) * size) == 0)
			return pprof_wrong(d, -EBADMSG, path, "two have one id");
	}
	return 0;
}

static int sort_tables(struct pprof_decoder *d)
{
	int r = sort_ids(d, d->mappings, d->n_mappings, sizeof(*d->mappings), "mapping");

	if (!r)
		r = sort_ids(d, d->functions, d->n_functions, sizeof(*d->functions), "function");
	return r ? r : sort_ids(d, d->locations, d->n_locations, sizeof(*d->locations), "location");
}

/* ---- the profile ---- */

static int read_message(struct pprof_decoder *d, const struct pprof_field *f)
{
	switch (f->number) {
	case 1:
		return add_type(d, f->bytes);
	case 2:
		return ++d->n_samples <= PPROF_MAX_SAMPLES
			       ? 0
			       : pprof_wrong(d, -E2BIG, "sample", "more than %d",
					     PPROF_MAX_SAMPLES);
	case 3:
		return add_mapping(d, f->bytes);
	case 4:
		return add_location(d, f->bytes);
	case 5:
		return add_function(d, f->bytes);
	case 6:
		return add_string(d, &f->bytes);
	case 11:
		return read_value_type(d, f->bytes, &d->period_type, "period_type");
	default:
		return 0;
	}
}

static void read_number(struct pprof_decoder *d, const struct pprof_field *f)
{
	if (f->number == 9)
		d->time_ns = (int64_t)f->value;
	else if (f->number == 10)
		d->duration_ns = (int64_t)f->value;
	else if (f->number == 12)
		d->period = (int64_t)f->value;
}

static int read_tables(struct pprof_decoder *d)
{
	struct pprof_wire w = d->all;
	struct pprof_field f;
	int r;

	while ((r = pprof_wire_next(&w, &f)) > 0) {
		int e = 0;

		if (f.type == WIRE_BYTES)
			e = read_message(d, &f);
		else if (f.type == WIRE_VARINT)
			read_number(d, &f);
		if (e < 0)
			return e;
	}
	if (r < 0)
		return not_wire(d, "");
	if (!d->n_strings || !d->n_types)
		return pprof_wrong(d, -EBADMSG, "", "has no %s",
				   d->n_strings ? "sample_type" : "string_table");
	return sort_tables(d);
}

static void decoder_done(struct pprof_decoder *d)
{
	pprof_samples_done(d);
	for (size_t i = 0; i < d->n_locations; i++)
		free(d->locations[i].frames);
	free(d->strings);
	free(d->mappings);
	free(d->functions);
	free(d->locations);
	free(d->lines);
}

static bool keeps_some(const struct pprof_decoder *d)
{
	for (size_t i = 0; i < d->n_types; i++)
		if (d->types[i].kept)
			return true;
	return false;
}

int pprof_decode(struct batch *b, const void *p, size_t n, const struct pprof_from *from,
		 struct field_error *reterr)
{
	_cleanup_(decoder_done) struct pprof_decoder d = {
		.b = b, .from = from, .err = reterr, .all = pprof_wire_of(p, n)};
	int r;

	if (n > PPROF_MAX_BYTES)
		return pprof_wrong(&d, -E2BIG, "", "is larger than %u bytes", PPROF_MAX_BYTES);
	r = read_tables(&d);
	if (!r)
		r = pprof_choose_types(&d);
	return r || !keeps_some(&d) ? r : pprof_samples(&d);
}
