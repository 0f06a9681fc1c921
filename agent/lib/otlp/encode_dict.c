/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary of a request: each text, attribute, mapping, function, location and stack is sent
 * once. Row 0 of each table is empty, as the message definition demands.
 */
#include "lib/otlp/encode.h"

int32_t otlp_put_string(struct encoder *e, const char *s)
{
	struct id *id;

	if (!s || !*s)
		return 0;
	id = otlp_ids_get(&e->strings, &e->pool, s, strlen(s));
	if (!id->row) { /* the first use of this text */
		const char *text = otlp_text_utf8(&e->pool, s);

		id->row = text == s ? otlp_pool_str(&e->pool, s) : (char *)text;
	}
	return id->index;
}

Otlp__AnyValue *otlp_encode_int(struct encoder *e, int64_t v)
{
	Otlp__AnyValue *value = NEW(e, AnyValue, any_value);

	value->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
	value->int_value = v;
	return value;
}

Otlp__AnyValue *otlp_encode_text(struct encoder *e, const char *s)
{
	Otlp__AnyValue *value = NEW(e, AnyValue, any_value);
	const char *text = otlp_text_utf8(&e->pool, s);

	value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	value->string_value = text == s ? otlp_pool_str(&e->pool, s) : (char *)text;
	return value;
}

static Otlp__AnyValue *true_value(struct encoder *e)
{
	Otlp__AnyValue *value = NEW(e, AnyValue, any_value);

	value->value_case = OTLP__ANY_VALUE__VALUE_BOOL_VALUE;
	value->bool_value = 1;
	return value;
}

int32_t otlp_put_attr(struct encoder *e, const char *name, const char *text, const int64_t *number)
{
	int64_t key[3] = {otlp_put_string(e, name),
			  text	   ? 0
			  : number ? 1
				   : 2,
			  text	   ? otlp_put_string(e, text)
			  : number ? *number
				   : 1};
	struct id *id = otlp_ids_get(&e->attrs, &e->pool, key, sizeof(key));
	Otlp__KeyValueAndUnit *row;

	if (id->row)
		return id->index;
	row = id->row = NEW(e, KeyValueAndUnit, key_value_and_unit);
	row->key_strindex = (int32_t)key[0];
	row->value = text     ? otlp_encode_text(e, text)
		     : number ? otlp_encode_int(e, *number)
			      : true_value(e);
	return id->index;
}

static int32_t put_mapping(struct encoder *e, const struct frame *f)
{
	int32_t key[2] = {otlp_put_string(e, f->module), 0};
	Otlp__Mapping *row;
	struct id *id;

	if (f->build_id && *f->build_id)
		key[1] = otlp_put_attr(e, ATTR_BUILD_ID, f->build_id, NULL);
	if (!key[0] && !key[1])
		return 0;
	id = otlp_ids_get(&e->mappings, &e->pool, key, sizeof(key));
	if (id->row)
		return id->index;
	row = id->row = NEW(e, Mapping, mapping);
	row->filename_strindex = key[0];
	row->n_attribute_indices = key[1] ? 1 : 0;
	row->attribute_indices = otlp_pool_alloc(&e->pool, sizeof(int32_t));
	row->attribute_indices[0] = key[1];
	return id->index;
}

static int32_t put_function(struct encoder *e, const struct frame *f)
{
	int32_t key[3] = {otlp_put_string(e, f->name), otlp_put_string(e, f->file),
			  (int32_t)f->line};
	Otlp__Function *row;
	struct id *id;

	if (!key[0] && !key[1])
		return 0;
	id = otlp_ids_get(&e->functions, &e->pool, key, sizeof(key));
	if (id->row)
		return id->index;
	row = id->row = NEW(e, Function, function);
	row->name_strindex = key[0];
	row->filename_strindex = key[1];
	row->start_line = f->line;
	return id->index;
}

static Otlp__Line **make_lines(struct encoder *e, const struct frame *const *root_first, size_t n)
{
	Otlp__Line **lines = otlp_pool_alloc(&e->pool, n * sizeof(*lines));

	for (size_t i = 0; i < n; i++) {
		const struct frame *f = root_first[n - 1 - i];

		lines[i] = NEW(e, Line, line);
		lines[i]->function_index = put_function(e, f);
		lines[i]->line = f->line;
	}
	return lines;
}

#define FRAME_ATTRS 4

static size_t frame_attrs(struct encoder *e, const struct frame *f, int32_t out[FRAME_ATTRS])
{
	const int64_t start = (int64_t)f->start;
	size_t n = 0;

	out[n++] = otlp_put_attr(e, ATTR_FRAME_TYPE, otlp_frame_type_of(f->kind), NULL);
	/* an older hub knows the kind cuda, but not its frame type */
	if (!otlp_frame_type_is_kind(f->kind) || f->kind == FRAME_CUDA)
		out[n++] =
			otlp_put_attr(e, ATTR_FRAME_KIND, profile_frame_kind_name(f->kind), NULL);
	if (f->inlined) /* inlined, but its caller is not in this location: no line shows it */
		out[n++] = otlp_put_attr(e, ATTR_INLINED, NULL, NULL);
	if (f->start && !f->name)
		out[n++] = otlp_put_attr(e, ATTR_FRAME_START, NULL, &start);
	return n;
}

static int32_t put_location(struct encoder *e, const struct frame *const *root_first, size_t n)
{
	const struct frame *f = root_first[0];
	bool lines = f->name || f->file || f->line;
	int32_t attrs[FRAME_ATTRS], mapping = put_mapping(e, f);
	size_t n_attrs = frame_attrs(e, f, attrs);
	Otlp__Location *row;
	struct id *id;

	buf_reset(&e->key);
	buf_add(&e->key, &mapping, sizeof(mapping));
	buf_add(&e->key, &f->address, sizeof(f->address));
	buf_add(&e->key, &lines, sizeof(lines));
	buf_add(&e->key, &n_attrs, sizeof(n_attrs));
	buf_add(&e->key, attrs, n_attrs * sizeof(*attrs));
	for (size_t i = 0; lines && i < n; i++) {
		uint32_t line[2] = {(uint32_t)put_function(e, root_first[i]), root_first[i]->line};

		buf_add(&e->key, line, sizeof(line));
	}
	id = otlp_ids_get(&e->locations, &e->pool, e->key.data, e->key.len);
	if (id->row)
		return id->index;
	row = id->row = NEW(e, Location, location);
	row->mapping_index = mapping;
	row->address = f->address;
	row->n_lines = lines ? n : 0;
	row->lines = make_lines(e, root_first, row->n_lines);
	row->n_attribute_indices = n_attrs;
	row->attribute_indices = otlp_pool_alloc(&e->pool, sizeof(attrs));
	memcpy(row->attribute_indices, attrs, sizeof(*attrs) * n_attrs);
	return id->index;
}

/*
 * As put_location(), for frames of the batch. The batch has equal frames once, so their addresses
 * find the location of frames that came before.
 */
static int32_t put_frames(struct encoder *e, const struct frame *const *root_first, size_t n)
{
	struct id *id = otlp_ids_get(&e->frames, &e->pool, root_first, n * sizeof(*root_first));

	if (!id->row)
		id->row = (void *)(intptr_t)put_location(e, root_first, n);
	return (int32_t)(intptr_t)id->row;
}

int32_t otlp_put_stack(struct encoder *e, uint32_t index)
{
	const struct stack_ref *s;
	Otlp__Stack *row;
	int32_t *out;
	size_t n = 0;

	if (index >= e->batch->n_stacks || !e->batch->stacks[index].n)
		return 0;
	if (e->stacks[index])
		return e->stacks[index];
	s = &e->batch->stacks[index];
	row = NEW(e, Stack, stack);
	out = row->location_indices = otlp_pool_alloc(&e->pool, s->n * sizeof(*out));
	for (size_t i = 0, n_frames; i < s->n; i += n_frames) {
		n_frames = profile_location_frames(s->frames + i, s->n - i);
		out[n++] = put_frames(e, s->frames + i, n_frames);
	}
	/* reverses the stack: on the wire, the leaf is first */
	for (size_t i = 0; i < n / 2; i++) {
		int32_t swap = out[i];

		out[i] = out[n - 1 - i];
		out[n - 1 - i] = swap;
	}
	row->n_location_indices = n;
	e->stack_rows[e->n_stack_rows++] = row;
	return e->stacks[index] = (int32_t)e->n_stack_rows;
}

void **otlp_encode_rows(struct encoder *e, const struct ids *t, void *row0, size_t *ret_n)
{
	void **rows = otlp_pool_alloc(&e->pool, (HASH_COUNT(t->head) + 1) * sizeof(*rows));
	size_t n = 0;

	rows[n++] = row0;
	for (struct id *id = t->head; id; id = id->hh.next)
		rows[n++] = id->row;
	*ret_n = n;
	return rows;
}

/* Makes the rows of the links: those of the batch, in the same order. */
static Otlp__Link **make_links(struct encoder *e, size_t *ret_n)
{
	const struct batch *b = e->batch;
	Otlp__Link **rows = otlp_pool_alloc(&e->pool, (b->n_links + 1) * sizeof(*rows));

	rows[0] = NEW(e, Link, link);
	for (size_t i = 0; i < b->n_links; i++) {
		struct profile_link *l = &b->links[i];
		Otlp__Link *row = rows[i + 1] = NEW(e, Link, link);

		row->trace_id = (ProtobufCBinaryData){sizeof(l->trace_id), l->trace_id};
		row->span_id = (ProtobufCBinaryData){sizeof(l->span_id), l->span_id};
	}
	*ret_n = b->n_links + 1;
	return rows;
}

Otlp__ProfilesDictionary *otlp_encode_dictionary(struct encoder *e)
{
	Otlp__ProfilesDictionary *d = NEW(e, ProfilesDictionary, profiles_dictionary);

	d->mapping_table = (Otlp__Mapping **)otlp_encode_rows(
		e, &e->mappings, NEW(e, Mapping, mapping), &d->n_mapping_table);
	d->location_table = (Otlp__Location **)otlp_encode_rows(
		e, &e->locations, NEW(e, Location, location), &d->n_location_table);
	d->function_table = (Otlp__Function **)otlp_encode_rows(
		e, &e->functions, NEW(e, Function, function), &d->n_function_table);
	d->attribute_table = (Otlp__KeyValueAndUnit **)otlp_encode_rows(
		e, &e->attrs, NEW(e, KeyValueAndUnit, key_value_and_unit), &d->n_attribute_table);
	d->string_table = (char **)otlp_encode_rows(e, &e->strings, otlp_pool_str(&e->pool, ""),
						    &d->n_string_table);
	d->link_table = make_links(e, &d->n_link_table);
	e->stack_rows[-1] = NEW(e, Stack, stack);
	d->stack_table = &e->stack_rows[-1];
	d->n_stack_table = e->n_stack_rows + 1;
	return d;
}
