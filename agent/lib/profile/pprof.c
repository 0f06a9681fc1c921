/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> pprof, uncompressed. The message is flat and small, so its fields are written one by
 * one. Format: github.com/google/pprof, proto/profile.proto.
 */
#include "lib/profile/profile.h"

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
	PROFILE_PERIOD
};

static void put_varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_putc(b, (char)(v | 0x80));
	buf_putc(b, (char)v);
}

static void put_int(struct buf *b, unsigned field, uint64_t v)
{
	put_varint(b, field << 3);
	put_varint(b, v);
}

static void put_bytes(struct buf *b, unsigned field, const void *p, size_t n)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, n);
	buf_add(b, p, n);
}

static void put_message(struct buf *b, unsigned field, struct buf *m)
{
	put_bytes(b, field, m->data, m->len);
	buf_reset(m);
}

/* Gives interned pointers the numbers 1, 2, 3 ... in the order of first use. */
struct numbers {
	const void **keys;
	uint64_t *values;
	size_t n, cap;
};

static uint64_t *number_of(struct numbers *t, const void *key)
{
	size_t i;

	if (t->n * 2 >= t->cap) {
		struct numbers old = *t;

		*t = (struct numbers){.cap = old.cap ? old.cap * 2 : 1024};
		t->keys = xcalloc(t->cap, sizeof(*t->keys));
		t->values = xcalloc(t->cap, sizeof(*t->values));
		for (size_t k = 0; k < old.cap; k++)
			if (old.keys[k])
				*number_of(t, old.keys[k]) = old.values[k];
		free(old.keys);
		free(old.values);
	}
	for (i = hash_bytes(&key, sizeof(key), 0) & (t->cap - 1); t->keys[i] && t->keys[i] != key;)
		i = (i + 1) & (t->cap - 1);
	if (!t->keys[i]) {
		t->keys[i] = key;
		t->n++;
	}
	return &t->values[i];
}

struct writer {
	struct buf *out;
	struct buf message, nested;
	struct numbers strings, locations, functions, mappings;
	uint64_t n_strings, n_locations, n_functions, n_mappings;
	struct batch *words; /* interns texts that the batch does not have */
	size_t n_counted;    /* bytes that the budget has given for words and numbers */
};

static size_t numbers_bytes(const struct numbers *t)
{
	return t->cap * (sizeof(*t->keys) + sizeof(*t->values));
}

/* Returns 0, or -E2BIG if the budget has no room for what the writer needs. */
static int count_memory(struct writer *w)
{
	return buf_budget_grow(w->out->budget,
			       profile_batch_bytes(w->words) + numbers_bytes(&w->strings) +
				       numbers_bytes(&w->locations) + numbers_bytes(&w->functions) +
				       numbers_bytes(&w->mappings),
			       &w->n_counted);
}

static uint64_t string_index(struct writer *w, const char *s)
{
	uint64_t *v;

	if (!s || !*s)
		return 0;
	s = profile_batch_str(w->words, s);
	v = number_of(&w->strings, s);
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
static uint64_t *number_of_both(struct writer *w, struct numbers *t, const char *name,
				const char *of)
{
	_cleanup_free_ char *key = xasprintf("%s\1%s", name, of ? of : "");

	return number_of(t, profile_batch_str(w->words, key));
}

static uint64_t mapping_id(struct writer *w, const struct frame *f)
{
	uint64_t *v;

	if (!f->module)
		return 0;
	v = number_of_both(w, &w->mappings, f->module, f->build_id);
	if (!*v) {
		uint64_t file = string_index(w, f->module), id = string_index(w, f->build_id);

		*v = ++w->n_mappings;
		put_int(&w->message, 1, *v);
		put_int(&w->message, 5, file);
		put_int(&w->message, 6, id);
		/* has_functions: tools need not look up the names */
		put_int(&w->message, 7, 1);
		put_message(w->out, PROFILE_MAPPING, &w->message);
	}
	return *v;
}

/*
 * Returns the id of a function. Its line is the line of its declaration, which distinguishes two
 * functions with one name in one file.
 */
static uint64_t function_id(struct writer *w, const struct frame *f)
{
	_cleanup_free_ char *place = xasprintf("%s\1%" PRIu32, f->file ? f->file : "", f->line);
	_cleanup_buf_ struct buf text;
	uint64_t *v, name, file;

	buf_init(&text, 0);
	profile_frame_name(f, false, &text);
	v = number_of_both(w, &w->functions, text.data, place);
	if (!*v) {
		name = string_index(w, text.data);
		file = string_index(w, f->file);
		*v = ++w->n_functions;
		put_int(&w->message, 1, *v);
		put_int(&w->message, 2, name);
		put_int(&w->message, 3, name);
		put_int(&w->message, 4, file);
		put_int(&w->message, 5, f->line);
		put_message(w->out, PROFILE_FUNCTION, &w->message);
	}
	return *v;
}

static uint64_t location_id(struct writer *w, const struct frame *f)
{
	uint64_t *v = number_of(&w->locations, f);

	if (!*v) {
		uint64_t mapping = mapping_id(w, f), function = function_id(w, f);

		*v = ++w->n_locations;
		put_int(&w->message, 1, *v);
		put_int(&w->message, 2, mapping);
		put_int(&w->message, 3, f->address);
		put_int(&w->nested, 1, function);
		put_int(&w->nested, 2, f->line);
		put_message(&w->message, 4, &w->nested);
		put_message(w->out, PROFILE_LOCATION, &w->message);
	}
	return *v;
}

static void put_label(struct writer *w, const char *key, const char *value)
{
	if (!value)
		return;
	put_int(&w->nested, 1, string_index(w, key));
	put_int(&w->nested, 2, string_index(w, value));
	put_message(&w->message, 3, &w->nested);
}

static void put_sample(struct writer *w, const struct batch *b, const struct profile *p,
		       const struct profile_sample *s)
{
	_cleanup_buf_ struct buf ids;

	buf_init(&ids, 0);
	if (profile_wait_frame(s->wait))
		put_varint(&ids, location_id(w, profile_wait_frame(s->wait)));
	if (s->stack != STACK_NONE) {
		const struct stack_ref *st = &b->stacks[s->stack];

		for (size_t i = st->n; i > 0; i--) /* in pprof, the leaf is first */
			put_varint(&ids, location_id(w, st->frames[i - 1]));
	}
	put_bytes(&w->message, 1, ids.data, ids.len);
	buf_reset(&ids);
	put_varint(&ids, s->n_samples);
	put_varint(&ids, (uint64_t)s->value);
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

static void numbers_done(struct numbers *t)
{
	free(t->keys);
	free(t->values);
}

int profile_write_pprof(const struct batch *b, struct buf *out)
{
	struct writer w = {.out = out, .n_strings = 1, .words = profile_batch_new()};
	uint64_t start = UINT64_MAX, end = 0, period = 0;
	const struct event_info *e =
		profile_event_info(b->n_profiles ? b->profiles[0]->event : EVENT_ON_CPU);

	put_bytes(out, PROFILE_STRINGS, "", 0); /* in pprof, string 0 must be "" */
	put_value_type(&w, PROFILE_SAMPLE_TYPE, "samples", "count");
	put_value_type(&w, PROFILE_SAMPLE_TYPE, e->name, e->unit);
	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		start = MIN(start, p->start_ns);
		end = MAX(end, p->end_ns);
		period = MAX(period, p->period_ns);
		for (size_t k = 0; k < p->n_samples && !out->failed; k++) {
			put_sample(&w, b, p, &p->samples[k]);
			out->failed |= count_memory(&w) < 0;
		}
	}
	if (b->n_profiles) {
		put_int(out, PROFILE_TIME, start);
		put_int(out, PROFILE_DURATION, end - start);
		if (period) {
			put_value_type(&w, PROFILE_PERIOD_TYPE, e->name, "nanoseconds");
			put_int(out, PROFILE_PERIOD, period);
		}
	}
	numbers_done(&w.strings);
	numbers_done(&w.locations);
	numbers_done(&w.functions);
	numbers_done(&w.mappings);
	buf_done(&w.message);
	buf_done(&w.nested);
	profile_batch_free(w.words);
	return out->failed ? -E2BIG : 0;
}
