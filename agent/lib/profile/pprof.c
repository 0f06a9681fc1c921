/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> pprof, uncompressed. The message is flat and small, so its fields are written one by
 * one. Format: github.com/google/pprof, proto/profile.proto. docs/pprof.md says what tools see.
 */
#include "lib/profile/writer.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_MAPPING,
	PROFILE_LOCATION,
	PROFILE_FUNCTION,
	PROFILE_STRINGS,
	PROFILE_TIME = 9,
	PROFILE_DURATION,
	PROFILE_PERIOD_TYPE,
	PROFILE_PERIOD,
	PROFILE_COMMENT,
	PROFILE_DEFAULT_TYPE
};

static void put_int(struct buf *b, unsigned field, uint64_t v)
{
	buf_put_varint(b, field << 3);
	buf_put_varint(b, v);
}

static void put_bytes(struct buf *b, unsigned field, const void *p, size_t n)
{
	buf_put_varint(b, field << 3 | 2);
	buf_put_varint(b, n);
	buf_add(b, p, n);
}

static void put_message(struct buf *b, unsigned field, struct buf *m)
{
	put_bytes(b, field, m->data, m->len);
	buf_reset(m);
}

/* A mapping is written last, because its flags say what all its frames have. */
struct mapping_row {
	const char *module, *build_id;
	bool functions, files, lines, inlines;
};

struct writer {
	struct profile_writer base;
	const struct batch *batch;
	struct profile_file file;
	struct buf_budget *budget;
	struct sample_at at;
	struct buf *out; /* of the step that is under way */
	bool failed;	 /* there was no room for a location */
	struct buf message, nested;
	/* the numbers 1, 2, 3 ... of interned texts in the order of their first use */
	struct addresses strings, functions, mappings;
	uint64_t n_strings, n_functions;
	/*
	 * interns texts that the batch does not have, and the frames of each location as a stack:
	 * its index + 1 is the id of the location
	 */
	struct batch *words;
	struct mapping_row *rows; /* of the mappings; the first one has the id 1 */
	size_t n_rows, cap_rows;
	size_t n_counted; /* bytes that the budget has given for words, numbers and rows */
};

/* Returns 0, or -E2BIG if the budget has no room for what the writer needs. */
static int count_memory(struct writer *w)
{
	return buf_budget_grow(
		w->budget,
		profile_batch_bytes(w->words) + profile_addresses_bytes(&w->strings) +
			profile_addresses_bytes(&w->functions) +
			profile_addresses_bytes(&w->mappings) + w->cap_rows * sizeof(*w->rows) +
			w->words->cap_stacks * sizeof(*w->words->stacks),
		&w->n_counted);
}

/*
 * Interns a text of the file. Texts are UTF-8: Go's readers refuse a file with another one, such as
 * a thread's name that the kernel has cut inside of a character.
 */
static const char *intern_text(struct writer *w, const char *s)
{
	_cleanup_free_ char *repaired = utf8_repaired(s);

	return profile_batch_str(w->words, repaired ?: s);
}

static uint64_t string_index(struct writer *w, const char *s)
{
	uint64_t *v;

	if (!s || !*s)
		return 0;
	s = intern_text(w, s);
	v = profile_address_value(&w->strings, s);
	if (!*v) {
		*v = w->n_strings++;
		put_bytes(w->out, PROFILE_STRINGS, s, strlen(s));
	}
	return *v;
}

/*
 * Returns the number of the pair of name and `of`. The name alone is not enough: several mappings
 * may have one path, and several functions one name.
 */
static uint64_t *number_of_both(struct writer *w, struct addresses *t, const char *name,
				const char *of)
{
	_cleanup_free_ char *key = xasprintf("%s\1%s", name, of ? of : "");

	return profile_address_value(t, profile_batch_str(w->words, key));
}

static void add_mapping(struct writer *w, const char *module, const char *build_id)
{
	GROW(w->rows, w->n_rows, w->cap_rows);
	w->rows[w->n_rows++] = (struct mapping_row){.module = module, .build_id = build_id};
}

/* Returns the id of the mapping of a location; 0: it has none. */
static uint64_t mapping_id(struct writer *w, const struct frame *const *frames, size_t n)
{
	const struct frame *f = frames[0];
	struct mapping_row *row;
	uint64_t *v;

	if (!f->module)
		return 0;
	v = number_of_both(w, &w->mappings, f->module, f->build_id);
	if (!*v) {
		add_mapping(w, f->module, f->build_id);
		*v = w->n_rows;
	}
	row = &w->rows[*v - 1];
	for (size_t i = 0; i < n; i++) {
		row->functions |= frames[i]->name != NULL;
		row->files |= frames[i]->file != NULL;
		row->lines |= frames[i]->line != 0;
		row->inlines |= frames[i]->inlined;
	}
	return *v;
}

/*
 * pprof looks for the names of a mapping without a flag in the file of that path, if that file has
 * the same build id. Without one it could take another file, so has_functions then keeps it away.
 */
static void put_mappings(struct writer *w)
{
	for (size_t i = 0; i < w->n_rows; i++) {
		const struct mapping_row *row = &w->rows[i];

		put_int(&w->message, 1, i + 1);
		put_int(&w->message, 5, string_index(w, row->module));
		put_int(&w->message, 6, string_index(w, row->build_id));
		put_int(&w->message, 7, row->functions || !row->build_id);
		put_int(&w->message, 8, row->files);
		put_int(&w->message, 9, row->lines);
		put_int(&w->message, 10, row->inlines);
		put_message(w->out, PROFILE_MAPPING, &w->message);
	}
}

/*
 * The name in the symbol table; NULL: not known, because the name was demangled. pprof cuts
 * parameters and templates off a name that equals its system name.
 */
static const char *system_name(const struct frame *f)
{
	return f->name && !strstr(f->name, "::") && !strpbrk(f->name, "<>[](") ? f->name : NULL;
}

/*
 * Returns the id of a function. Its line is the line of its declaration, which distinguishes two
 * functions with one name in one file.
 */
static uint64_t function_id(struct writer *w, const struct frame *f)
{
	_cleanup_free_ char *place = xasprintf("%s\1%" PRIu32, f->file ? f->file : "", f->line);
	_cleanup_buf_ struct buf text;
	uint64_t *v, name, file, system;

	buf_init(&text, 0);
	profile_frame_name(f, false, &text);
	v = number_of_both(w, &w->functions, text.data, place);
	if (!*v) {
		name = string_index(w, text.data);
		system = string_index(w, system_name(f));
		file = string_index(w, f->file);
		*v = ++w->n_functions;
		put_int(&w->message, 1, *v);
		put_int(&w->message, 2, name);
		put_int(&w->message, 3, system);
		put_int(&w->message, 4, file);
		put_int(&w->message, 5, f->line);
		put_message(w->out, PROFILE_FUNCTION, &w->message);
	}
	return *v;
}

/* Writes a location: the lines of its frames, innermost first. */
static void put_location(struct writer *w, uint64_t id, const struct frame *const *root_first,
			 size_t n)
{
	const uint64_t mapping = mapping_id(w, root_first, n);
	struct buf lines = {0};

	for (size_t i = n; i-- > 0;) {
		put_int(&w->nested, 1, function_id(w, root_first[i]));
		put_int(&w->nested, 2, root_first[i]->line);
		put_message(&lines, 4, &w->nested);
	}
	put_int(&w->message, 1, id);
	put_int(&w->message, 2, mapping);
	put_int(&w->message, 3, root_first[0]->address);
	buf_add(&w->message, lines.data, lines.len);
	put_message(w->out, PROFILE_LOCATION, &w->message);
	buf_done(&lines);
}

/* 0: there is no room for more locations; the writer then fails. */
static uint64_t location_id(struct writer *w, const struct frame *const *root_first, size_t n)
{
	const size_t n_before = w->words->n_stacks;
	uint32_t index;

	if (profile_batch_stack_of(w->words, root_first, n, &index)) {
		w->failed = true;
		return 0;
	}
	if (w->words->n_stacks > n_before)
		put_location(w, (uint64_t)index + 1, root_first, n);
	return (uint64_t)index + 1;
}

/* Puts the locations of a stack, leaf first. */
static void put_locations(struct writer *w, const struct stack_ref *s, struct buf *ids)
{
	uint64_t locations[STACK_MAX_FRAMES];
	size_t n = 0;

	for (size_t i = 0, n_frames; i < s->n && n < STACK_MAX_FRAMES; i += n_frames) {
		n_frames = profile_location_frames(s->frames + i, s->n - i);
		locations[n++] = location_id(w, s->frames + i, n_frames);
	}
	while (n-- > 0)
		buf_put_varint(ids, locations[n]);
}

static void put_label(struct writer *w, const char *key, const char *value)
{
	if (!value)
		return;
	put_int(&w->nested, 1, string_index(w, key));
	put_int(&w->nested, 2, string_index(w, value));
	put_message(&w->message, 3, &w->nested);
}

static void put_values(struct writer *w, const struct profile_sample *s, struct buf *b)
{
	int64_t value;

	if (!w->file.value) {
		buf_put_varint(b, s->n_samples);
		buf_put_varint(b, (uint64_t)s->value);
		return;
	}
	if (__builtin_mul_overflow(s->value, (int64_t)w->file.value->factor, &value))
		value = INT64_MAX;
	buf_put_varint(b, (uint64_t)value);
}

static void put_sample(struct writer *w, const struct profile *p, const struct profile_sample *s)
{
	const struct frame *wait = profile_wait_frame(s->wait);
	_cleanup_buf_ struct buf ids = {0};

	if (wait)
		buf_put_varint(&ids, location_id(w, &wait, 1));
	if (s->stack != STACK_NONE)
		put_locations(w, &w->batch->stacks[s->stack], &ids);
	put_bytes(&w->message, 1, ids.data, ids.len);
	buf_reset(&ids);
	put_values(w, s, &ids);
	put_bytes(&w->message, 2, ids.data, ids.len);
	put_label(w, "process", p->app_service);
	put_label(w, "thread", s->thread_comm);
	put_label(w, "wait", s->wait ? profile_wait_name(s->wait) : NULL);
	for (enum profile_label l = 0; s->labels && l < _LABEL_MAX; l++)
		put_label(w, profile_label_info(l)->tag, s->labels->values[l]);
	for (size_t i = 0; i < p->tags.n; i++)
		put_label(w, p->tags.items[i].key, p->tags.items[i].value);
	put_message(w->out, PROFILE_SAMPLE, &w->message);
}

static void put_value_type(struct writer *w, unsigned field, const char *type, const char *unit)
{
	put_int(&w->message, 1, string_index(w, type));
	put_int(&w->message, 2, string_index(w, unit));
	put_message(w->out, field, &w->message);
}

static void put_value_types(struct writer *w)
{
	const struct event_info *e = profile_event_info(w->file.event);
	const struct profile_value *value = w->file.value;
	const char *type = value ? value->type : e->otlp_sample_type;

	if (!value)
		put_value_type(w, PROFILE_SAMPLE_TYPE, "samples", "count");
	put_value_type(w, PROFILE_SAMPLE_TYPE, type, value ? value->unit : e->unit);
	put_int(w->out, PROFILE_DEFAULT_TYPE, string_index(w, type));
}

/* The time from the first profile's start to the last one's end, and the time between samples. */
static void put_times(struct writer *w, const struct batch *b)
{
	uint64_t start = UINT64_MAX, end = 0, period = 0, n = 0, sum_us = 0;

	if (!b->n_profiles)
		return;
	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		start = MIN(start, p->start_ns);
		end = MAX(end, p->end_ns);
		period = MAX(period, p->period_ns);
		for (size_t k = 0; p->event == EVENT_ON_CPU && k < p->n_samples; k++) {
			n += p->samples[k].n_samples;
			sum_us += (uint64_t)p->samples[k].value;
		}
	}
	if (!period && n) /* a store does not keep it: what a sample stands for, on average */
		period = sum_us / n * 1000 + sum_us % n * 1000 / n;
	put_int(w->out, PROFILE_TIME, start);
	put_int(w->out, PROFILE_DURATION, end - start);
	if (period) {
		put_value_type(w, PROFILE_PERIOD_TYPE, "cpu", "nanoseconds");
		put_int(w->out, PROFILE_PERIOD, period);
	}
}

static void begin(struct writer *w)
{
	put_bytes(w->out, PROFILE_STRINGS, "", 0); /* in pprof, string 0 must be "" */
	w->n_strings = 1;
	put_value_types(w);
}

static void put_end(struct writer *w)
{
	if (!w->n_rows) /* pprof misses the program's file in a profile without mappings */
		add_mapping(w, NULL, NULL);
	put_mappings(w);
	put_times(w, w->batch);
	for (size_t i = 0; i < w->file.n_notes; i++)
		put_int(w->out, PROFILE_COMMENT, string_index(w, w->file.notes[i]));
}

static int step(struct profile_writer *base, struct buf *out)
{
	struct writer *w = (struct writer *)base;
	const struct profile_sample *s;
	const struct profile *p;

	w->out = out;
	if (!w->n_strings)
		begin(w);
	s = profile_samples_next(w->batch, &w->at, &p);
	if (s)
		put_sample(w, p, s);
	else
		put_end(w);
	if (count_memory(w) < 0 || w->failed || out->failed)
		return -E2BIG;
	return s ? 1 : 0;
}

static void free_writer(struct profile_writer *base)
{
	struct writer *w = (struct writer *)base;

	profile_addresses_done(&w->strings);
	profile_addresses_done(&w->functions);
	profile_addresses_done(&w->mappings);
	free(w->rows);
	buf_done(&w->message);
	buf_done(&w->nested);
	profile_batch_free(w->words);
	free(w);
}

struct profile_writer *profile_pprof_writer(const struct batch *b, const struct profile_file *file,
					    struct buf_budget *budget)
{
	struct writer *w = xcalloc(1, sizeof(*w));

	*w = (struct writer){.base = {step, free_writer},
			     .batch = b,
			     .file = *file,
			     .budget = budget,
			     .words = profile_batch_new()};
	w->words->max_bytes = b->max_bytes;
	return &w->base;
}
