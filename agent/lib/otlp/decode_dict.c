/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary of a request. Each index is checked once, and strings are made valid UTF-8. A
 * stack is reversed (root first) when a sample refers to it. Texts and frames are interned once, so
 * a long one has the same cost however often it is used.
 */
#include "lib/otlp/decode.h"

#define STACK_TODO	  (STACK_NONE - 1)
#define MAX_FRAMES	  20000000 /* frames of all stacks of a request */
#define MAX_MAPPING_ATTRS 64	   /* small, because each location of a mapping reads them again */

static int check_index(struct decoder *d, int32_t index, size_t n, const char *path,
		       const char *table)
{
	if (index >= 0 && (size_t)index < n)
		return 0;
	return otlp_decode_wrong(d, -EBADMSG, path, "index %d is outside %s (%zu rows)", index,
				 table, n);
}

int otlp_decode_string(struct decoder *d, int32_t index, const char *path, const char **ret)
{
	int r;

	if (index == 0) { /* index 0 is "", even if the request has no string table */
		*ret = profile_batch_str(d->batch, "");
		return 0;
	}
	r = check_index(d, index, d->dict ? d->dict->n_string_table : 0, path, "string_table");
	if (r < 0)
		return r;
	*ret = d->strings[index];
	return 0;
}

int otlp_decode_attr(struct decoder *d, int32_t index, const char *path, const struct attr **ret)
{
	int r = check_index(d, index, d->dict ? d->dict->n_attribute_table : 0, path,
			    "attribute_table");

	if (r < 0)
		return r;
	*ret = &d->attrs[index];
	return 0;
}

/* Interns the text. NULL: the memory limit of the request or of the batch is reached. */
static const char *read_text(struct decoder *d, const char *s)
{
	d->pool.failed |= profile_batch_bytes(d->batch) > BATCH_MAX_BYTES;
	return d->pool.failed ? NULL : profile_batch_str(d->batch, otlp_text_utf8(&d->pool, s));
}

int otlp_decode_value(struct decoder *d, const Otlp__AnyValue *v, const char *path,
		      struct attr *ret)
{
	switch (v ? v->value_case : OTLP__ANY_VALUE__VALUE__NOT_SET) {
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE:
		ret->text = read_text(d, v->string_value);
		return ret->text ? 0
				 : otlp_decode_wrong(d, -E2BIG, path, "too large when unpacked");
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX:
		return otlp_decode_string(d, v->string_value_strindex, path, &ret->text);
	case OTLP__ANY_VALUE__VALUE_INT_VALUE:
		ret->is_number = true;
		ret->number = v->int_value;
		return 0;
	case OTLP__ANY_VALUE__VALUE_BOOL_VALUE:
		ret->is_bool = true;
		ret->number = v->bool_value;
		return 0;
	default: /* podflame uses no attribute of this type */
		return 0;
	}
}

/* ---- checks of each table ---- */

static int check_strings(struct decoder *d)
{
	d->strings = otlp_pool_alloc(&d->pool, d->dict->n_string_table * sizeof(*d->strings));
	for (size_t i = 0; d->strings && i < d->dict->n_string_table; i++)
		if (!(d->strings[i] = read_text(d, d->dict->string_table[i])))
			break;
	return d->pool.failed ? otlp_decode_wrong(d, -E2BIG, "dictionary.string_table",
						  "too large when unpacked")
			      : 0;
}

/*
 * Returns the label that an attribute is. An attribute that is no text, or an empty one, is no
 * label.
 */
static enum profile_label label_of(const struct attr *a)
{
	return a->text && *a->text ? profile_label_of_attr(a->key) : _LABEL_MAX;
}

static int check_attrs(struct decoder *d)
{
	size_t n = d->dict->n_attribute_table;
	int r = 0;

	d->attrs = otlp_pool_alloc(&d->pool, n * sizeof(*d->attrs));
	if (!d->attrs)
		return otlp_decode_wrong(d, -E2BIG, "dictionary.attribute_table",
					 "too large when unpacked");
	for (size_t i = 0; i < n && r >= 0; i++) {
		const Otlp__KeyValueAndUnit *row = d->dict->attribute_table[i];
		char path[80];

		snprintf(path, sizeof(path), "dictionary.attribute_table[%zu]", i);
		r = otlp_decode_string(d, row->key_strindex, path, &d->attrs[i].key);
		if (r >= 0)
			r = otlp_decode_value(d, row->value, path, &d->attrs[i]);
		if (r >= 0)
			d->attrs[i].label = label_of(&d->attrs[i]);
	}
	return r;
}

static int check_attr_indices(struct decoder *d, const int32_t *indices, size_t n, const char *path)
{
	const struct attr *a;
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = otlp_decode_attr(d, indices[i], path, &a);
	return r;
}

static int check_mappings(struct decoder *d)
{
	int r = 0;

	for (size_t i = 0; i < d->dict->n_mapping_table && r >= 0; i++) {
		const Otlp__Mapping *m = d->dict->mapping_table[i];
		const char *s;
		char path[80];

		snprintf(path, sizeof(path), "dictionary.mapping_table[%zu]", i);
		r = otlp_decode_string(d, m->filename_strindex, path, &s);
		if (r >= 0 && m->n_attribute_indices > MAX_MAPPING_ATTRS)
			r = otlp_decode_wrong(d, -E2BIG, path, "more than %d attributes",
					      MAX_MAPPING_ATTRS);
		if (r >= 0)
			r = check_attr_indices(d, m->attribute_indices, m->n_attribute_indices,
					       path);
	}
	return r;
}

static int check_functions(struct decoder *d)
{
	int r = 0;

	for (size_t i = 0; i < d->dict->n_function_table && r >= 0; i++) {
		const Otlp__Function *f = d->dict->function_table[i];
		const char *s;
		char path[80];

		snprintf(path, sizeof(path), "dictionary.function_table[%zu]", i);
		r = otlp_decode_string(d, f->name_strindex, path, &s);
		if (r >= 0)
			r = otlp_decode_string(d, f->system_name_strindex, path, &s);
		if (r >= 0)
			r = otlp_decode_string(d, f->filename_strindex, path, &s);
	}
	return r;
}

static int check_locations(struct decoder *d)
{
	size_t n = d->dict->n_location_table;
	int r = 0;

	d->locations = otlp_pool_alloc(&d->pool, n * sizeof(*d->locations));
	d->location_languages = otlp_pool_alloc(&d->pool, n);
	if (!d->locations || !d->location_languages)
		return otlp_decode_wrong(d, -E2BIG, "dictionary.location_table",
					 "too large when unpacked");
	for (size_t i = 0; i < n && r >= 0; i++) {
		const Otlp__Location *l = d->dict->location_table[i];
		char path[80];

		snprintf(path, sizeof(path), "dictionary.location_table[%zu]", i);
		/* 0: the location has no mapping, even if the request has no mapping table */
		if (l->mapping_index)
			r = check_index(d, l->mapping_index, d->dict->n_mapping_table, path,
					"mapping_table");
		for (size_t j = 0; j < l->n_lines && r >= 0; j++)
			if (l->lines[j]->function_index)
				r = check_index(d, l->lines[j]->function_index,
						d->dict->n_function_table, path, "function_table");
		if (r >= 0)
			r = check_attr_indices(d, l->attribute_indices, l->n_attribute_indices,
					       path);
	}
	return r;
}

static int check_stacks(struct decoder *d)
{
	size_t n = d->dict->n_stack_table;
	int r = 0;

	d->stacks = otlp_pool_alloc(&d->pool, n * sizeof(*d->stacks));
	d->stack_languages = otlp_pool_alloc(&d->pool, n);
	if (!d->stacks || !d->stack_languages)
		return otlp_decode_wrong(d, -E2BIG, "dictionary.stack_table",
					 "too large when unpacked");
	for (size_t i = 0; i < n && r >= 0; i++) {
		const Otlp__Stack *s = d->dict->stack_table[i];
		char path[80];

		d->stacks[i] = STACK_TODO;
		snprintf(path, sizeof(path), "dictionary.stack_table[%zu]", i);
		for (size_t j = 0; j < s->n_location_indices && r >= 0; j++)
			r = check_index(d, s->location_indices[j], d->dict->n_location_table, path,
					"location_table");
	}
	return r;
}

/* Checks the links. A link may lack the trace id or the span id. */
static int check_links(struct decoder *d)
{
	int r = 0;

	for (size_t i = 0; i < d->dict->n_link_table && r >= 0; i++) {
		const Otlp__Link *l = d->dict->link_table[i];
		char path[80];

		snprintf(path, sizeof(path), "dictionary.link_table[%zu]", i);
		if (l->trace_id.len &&
		    l->trace_id.len != sizeof(((struct profile_link *)0)->trace_id))
			r = otlp_decode_wrong(d, -EBADMSG, path, "trace_id is not 16 bytes");
		else if (l->span_id.len &&
			 l->span_id.len != sizeof(((struct profile_link *)0)->span_id))
			r = otlp_decode_wrong(d, -EBADMSG, path, "span_id is not 8 bytes");
	}
	return r;
}

int otlp_decode_dictionary(struct decoder *d, const Otlp__ProfilesDictionary *dict)
{
	static int (*const checks[])(struct decoder *) = {
		check_strings,	 check_attrs,  check_mappings, check_functions,
		check_locations, check_stacks, check_links};
	int r = 0;

	d->dict = dict;
	for (size_t i = 0; dict && i < ARRAY_SIZE(checks) && r >= 0; i++)
		r = checks[i](d);
	return r;
}

/* ---- stacks ---- */

static const char *text_or_null(const char *s)
{
	return *s ? s : NULL;
}

static void frame_attr(const struct attr *a, const char **type, struct frame *f, bool *has_kind)
{
	if (a->text && streq(a->key, ATTR_FRAME_TYPE))
		*type = a->text;
	else if (a->text && streq(a->key, ATTR_FRAME_KIND))
		*has_kind = profile_frame_kind_from_name(a->text, &f->kind) == 0;
	else if (a->is_bool && streq(a->key, ATTR_INLINED))
		f->inlined = a->number;
	else if (a->is_number && streq(a->key, ATTR_FRAME_START))
		f->start = (uint64_t)a->number <= f->address ? (uint64_t)a->number : 0;
}

/* The members of a frame that are the same for all lines of a location, and its language. */
static struct frame location_frame(const struct decoder *d, const Otlp__Location *l,
				   uint8_t *ret_language)
{
	struct frame f = {.address = l->address};
	const char *type = NULL;
	bool has_kind = false;

	if (l->mapping_index) {
		const Otlp__Mapping *m = d->dict->mapping_table[l->mapping_index];

		f.module = text_or_null(d->strings[m->filename_strindex]);
		for (size_t i = 0; i < m->n_attribute_indices; i++) {
			const struct attr *a = &d->attrs[m->attribute_indices[i]];

			if (a->text && (streq(a->key, ATTR_BUILD_ID) ||
					(!f.build_id && streq(a->key, ATTR_BUILD_HASH))))
				f.build_id = text_or_null(a->text);
		}
	}
	for (size_t i = 0; i < l->n_attribute_indices; i++)
		frame_attr(&d->attrs[l->attribute_indices[i]], &type, &f, &has_kind);
	if (!has_kind)
		f.kind = otlp_frame_kind_of_type(type, f.module);
	*ret_language = otlp_language_of_type(type);
	return f;
}

static struct frame line_frame(const struct decoder *d, struct frame f, const Otlp__Line *line)
{
	if (line->function_index) {
		const Otlp__Function *fn = d->dict->function_table[line->function_index];
		const char *name = d->strings[fn->name_strindex];

		f.name = text_or_null(*name ? name : d->strings[fn->system_name_strindex]);
		f.file = text_or_null(d->strings[fn->filename_strindex]);
	}
	if (!f.name) /* then it has no line either: profile_frame_stored_line() */
		return f;
	f.line = line->line > 0 && line->line <= UINT32_MAX ? (uint32_t)line->line : 0;
	f.start = 0;
	return f;
}

/*
 * Returns the frames of a location: one for each line, and one if it has no lines. The last frame
 * is the outermost caller. NULL: the memory limit of the request is reached.
 */
static const struct frame **location_frames(struct decoder *d, int32_t index)
{
	const Otlp__Location *l = d->dict->location_table[index];
	size_t lines = MAX(l->n_lines, (size_t)1), n = MIN(lines, (size_t)STACK_MAX_FRAMES);
	const struct frame **frames = d->locations[index];
	struct frame all;

	if (frames)
		return frames;
	frames = d->locations[index] = otlp_pool_alloc(&d->pool, n * sizeof(*frames));
	all = location_frame(d, l, &d->location_languages[index]);
	for (size_t i = 0; frames && i < n; i++) {
		struct frame f = l->n_lines ? line_frame(d, all, l->lines[i]) : all;

		f.inlined = all.inlined || i + 1 < lines;
		frames[i] = profile_batch_frame(d->batch, &f);
	}
	return frames;
}

static const struct frame *truncated(struct decoder *d)
{
	return profile_batch_frame(
		d->batch, &(struct frame){.kind = FRAME_MARKER,
					  .name = profile_batch_str(d->batch, "[truncated]")});
}

/*
 * Puts the frames into out, leaf first, and lowers *language to that of the stack. If the stack is
 * too deep, leaves out the frames at its root end and puts a marker in their place. After a failure
 * d->pool.failed is set.
 */
static size_t stack_frames(struct decoder *d, const Otlp__Stack *s, const struct frame **out,
			   uint8_t *language)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_location_indices; i++) {
		int32_t index = s->location_indices[i];
		const Otlp__Location *l = d->dict->location_table[index];
		const struct frame **frames;

		if (index == 0 && !l->n_lines && !l->address)
			continue; /* location 0 is empty: there is no frame */
		frames = location_frames(d, index);
		*language = MIN(*language, d->location_languages[index]);
		for (size_t j = 0; frames && j < MAX(l->n_lines, (size_t)1); j++) {
			if (n == STACK_MAX_FRAMES) {
				out[n - 1] = truncated(d);
				return n;
			}
			out[n++] = frames[j];
		}
	}
	return n;
}

static int make_stack(struct decoder *d, int32_t index, const char *path, uint32_t *ret)
{
	const struct frame *frames[STACK_MAX_FRAMES];
	uint8_t *language = &d->stack_languages[index];
	size_t n;
	int r;

	*language = OTLP_NO_LANGUAGE;
	n = stack_frames(d, d->dict->stack_table[index], frames, language);
	d->n_frames += n;
	if (d->n_frames > MAX_FRAMES)
		return otlp_decode_wrong(d, -E2BIG, path,
					 "more than 20000000 frames in one request");
	if (!n && !d->pool.failed) {
		*ret = STACK_NONE;
		return 0;
	}
	for (size_t i = 0; i < n / 2; i++) {
		const struct frame *swap = frames[i];

		frames[i] = frames[n - 1 - i];
		frames[n - 1 - i] = swap;
	}
	r = d->pool.failed ? -E2BIG : profile_batch_stack_of(d->batch, frames, n, ret);
	return r < 0 ? otlp_decode_wrong(d, r, path, "the request is too large when unpacked") : 0;
}

int otlp_decode_stack(struct decoder *d, int32_t index, const char *path, uint32_t *ret)
{
	int r;

	if (index == 0 && (!d->dict || !d->dict->n_stack_table)) {
		*ret = STACK_NONE;
		return 0;
	}
	r = check_index(d, index, d->dict ? d->dict->n_stack_table : 0, path, "stack_table");
	if (r < 0)
		return r;
	if (d->stacks[index] == STACK_TODO) {
		r = make_stack(d, index, path, &d->stacks[index]);
		if (r < 0)
			return r;
	}
	*ret = d->stacks[index];
	return 0;
}

uint8_t otlp_decode_stack_language(const struct decoder *d, int32_t index)
{
	if (!d->dict || !d->dict->n_stack_table) /* index 0 is no stack then */
		return OTLP_NO_LANGUAGE;
	return d->stack_languages[index];
}

int otlp_decode_link(struct decoder *d, int32_t index, const char *path, uint32_t *ret)
{
	static const struct profile_link none;
	struct profile_link l = none;
	const Otlp__Link *row;
	int r;

	if (index == 0) { /* index 0 is no link, even if the request has no link table */
		*ret = 0;
		return 0;
	}
	r = check_index(d, index, d->dict ? d->dict->n_link_table : 0, path, "link_table");
	if (r < 0)
		return r;
	row = d->dict->link_table[index];
	if (row->trace_id.len)
		memcpy(l.trace_id, row->trace_id.data, sizeof(l.trace_id));
	if (row->span_id.len)
		memcpy(l.span_id, row->span_id.data, sizeof(l.span_id));
	*ret = 0;
	if (memcmp(&l, &none, sizeof(l)) != 0 && profile_batch_link(d->batch, &l, ret) < 0)
		counter_add(counter("podflame_links_dropped_total", "reason", "request"), 1);
	return 0;
}
