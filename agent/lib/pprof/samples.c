/* SPDX-License-Identifier: Apache-2.0 */
/* Samples: each goes to the profile of its type and of the set of its labels. */
#include "lib/pprof/decode.h"

#include <math.h>
#include <stdlib.h>
#include <uthash.h>

/* A label whose value is a text. Both texts are the batch's: pointers tell whether they differ. */
struct label {
	const char *key, *value;
};
/* Samples with the same labels. */
struct pprof_set {
	UT_hash_handle hh;
	struct profile *profiles[PPROF_MAX_TYPES]; /* NULL: of a type that is not kept */
	size_t n;
	struct label labels[];
};

struct sample {
	struct pprof_decoder *d;
	const char *path;
	uint64_t *ids; /* of locations */
	size_t n_ids, cap_ids;
	int64_t values[PPROF_MAX_TYPES];
	size_t n_values;
	struct label labels[PPROF_MAX_LABELS];
	size_t n_labels;
	const char *thread;
	struct profile_link link;
	bool linked;
};

/* ---- labels ---- */

static int hex_id(const char *value, uint8_t *ret, size_t n)
{
	size_t got;

	return strlen(value) == 2 * n && hex_decode(value, n, ret, &got) == 0 && got == n ? 0
											  : -EINVAL;
}

/* Labels that are no tags, but something of the sample itself. Returns whether it is one. */
static bool take_special(struct sample *s, const char *key, const char *value)
{
	if (streq(key, "trace_id") && hex_id(value, s->link.trace_id, 16) == 0)
		return s->linked = true;
	/* old clients of Pyroscope name a span profile_id */
	if ((streq(key, "span_id") || streq(key, "profile_id")) &&
	    hex_id(value, s->link.span_id, 8) == 0)
		return s->linked = true;
	if (!streq(key, "thread_name"))
		return false;
	s->thread = value;
	return true;
}

static int add_label(struct sample *s, uint64_t key_at, uint64_t value_at)
{
	struct pprof_decoder *d = s->d;
	const char *key, *value;
	int r = pprof_text(d, key_at, s->path, &key);

	if (!r)
		r = pprof_text(d, value_at, s->path, &value);
	if (r < 0)
		return r;
	if (strlen(key) > PPROF_MAX_KEY || strlen(value) > PPROF_MAX_VALUE)
		return pprof_wrong(
			d, -E2BIG, s->path,
			"a label's name has more than %d bytes, or its value more than %d",
			PPROF_MAX_KEY, PPROF_MAX_VALUE);
	if (!*key || !*value || take_special(s, key, value))
		return 0;
	if (s->n_labels == PPROF_MAX_LABELS)
		return pprof_wrong(d, -E2BIG, s->path, "more than %d labels", PPROF_MAX_LABELS);
	s->labels[s->n_labels++] = (struct label){key, value};
	return 0;
}

static int read_label(struct sample *s, struct pprof_wire w)
{
	uint64_t key = 0, text = 0;
	struct pprof_field f;
	int r;

	while ((r = pprof_wire_next(&w, &f)) > 0) {
		if (f.type == WIRE_VARINT && f.number == 1)
			key = f.value;
		else if (f.type == WIRE_VARINT && f.number == 2)
			text = f.value;
	}
	if (r < 0)
		return pprof_wrong(s->d, r, s->path, "a label is no message of protobuf");
	return text ? add_label(s, key, text) : 0; /* numbers are no tags */
}

static int compare_labels(const void *a, const void *b)
{
	const struct label *x = a, *y = b;
	int r = strcmp(x->key, y->key);

	return r ? r : strcmp(x->value, y->value);
}

/* ---- profiles ---- */

static int put_labels(struct pprof_decoder *d, const struct pprof_set *set, struct profile *p)
{
	int r = 0;

	for (size_t i = 0; !r && d->from->label && i < set->n; i++)
		r = d->from->label(d->b, p, set->labels[i].key, set->labels[i].value,
				   d->from->label_arg, d->err);
	return r;
}

static int new_profile(struct pprof_decoder *d, struct pprof_set *set, size_t type, size_t nr)
{
	struct profile *p = profile_batch_profile(d->b);
	char number[48];

	snprintf(number, sizeof(number), "%zu/%zu", type, nr);
	profile_id_make((const char *[]){d->from->id, number}, 2, p->id);
	p->event = d->types[type].event;
	p->start_ns = d->start_ns;
	p->end_ns = d->end_ns;
	p->period_ns = p->event == EVENT_CPU || p->event == EVENT_WALL ? d->period_ns : 0;
	p->app_service = profile_batch_str(d->b, d->from->app_service);
	set->profiles[type] = p;
	return put_labels(d, set, p);
}

/* Finds the set, or makes it with a profile for each type that is kept. */
static int find_set(struct pprof_decoder *d, const struct label *labels, size_t n, const char *path,
		    struct pprof_set **ret)
{
	size_t bytes = n * sizeof(*labels), nr = HASH_COUNT(d->sets);
	struct pprof_set *set;
	int r = 0;

	HASH_FIND(hh, d->sets, labels, bytes, set);
	if (!set) {
		if (nr == PPROF_MAX_SETS)
			return pprof_wrong(d, -E2BIG, path,
					   "more than %d different sets of labels in one profile",
					   PPROF_MAX_SETS);
		set = xcalloc(1, sizeof(*set) + bytes);
		if (n)
			memcpy(set->labels, labels, bytes);
		set->n = n;
		HASH_ADD_KEYPTR(hh, d->sets, set->labels, bytes, set);
		for (size_t i = 0; !r && i < d->n_types; i++)
			r = d->types[i].kept ? new_profile(d, set, i, nr) : 0;
	}
	*ret = set;
	return r;
}

/* ---- a sample ---- */

static int add_value(struct sample *s, uint64_t value)
{
	if (s->n_values == s->d->n_types)
		return pprof_wrong(s->d, -EBADMSG, s->path, "more values than sample types");
	s->values[s->n_values++] = (int64_t)value;
	return 0;
}

static int add_id(struct sample *s, uint64_t id)
{
	GROW(s->ids, s->n_ids, s->cap_ids);
	s->ids[s->n_ids++] = id;
	return 0;
}

static int read_repeated(struct sample *s, const struct pprof_field *f,
			 int (*add)(struct sample *s, uint64_t value))
{
	struct pprof_wire w = f->bytes;
	uint64_t value;
	int r;

	while ((r = pprof_wire_number(f, &w, &value)) > 0)
		if ((r = add(s, value)) < 0)
			return r;
	return r < 0 ? pprof_wrong(s->d, r, s->path, "is no message of protobuf") : 0;
}

static int read_fields(struct sample *s, struct pprof_wire w)
{
	struct pprof_field f;
	int r, e = 0;

	while ((r = pprof_wire_next(&w, &f)) > 0) {
		if (f.number == 1)
			e = read_repeated(s, &f, add_id);
		else if (f.number == 2)
			e = read_repeated(s, &f, add_value);
		else if (f.number == 3 && f.type == WIRE_BYTES)
			e = read_label(s, f.bytes);
		if (e < 0)
			return e;
	}
	if (r < 0)
		return pprof_wrong(s->d, r, s->path, "is no message of protobuf");
	if (s->n_values != s->d->n_types)
		return pprof_wrong(s->d, -EBADMSG, s->path, "%zu values for %zu sample types",
				   s->n_values, s->d->n_types);
	qsort(s->labels, s->n_labels, sizeof(*s->labels), compare_labels);
	return 0;
}

static int scaled_value(struct sample *s, size_t type, int64_t *ret)
{
	const struct pprof_values *v = &s->d->types[type];
	double scaled = (double)s->values[type] * v->factor;

	if (s->values[type] < 0 || scaled > (double)PROFILE_MAX_VALUE)
		return pprof_wrong(s->d, -EBADMSG, s->path, "a value is negative or too large");
	*ret = v->factor == 1 ? s->values[type] : (int64_t)llround(scaled);
	return 0;
}

/* How many samples of the program are behind a value, as far as the profile says it. */
static uint64_t count_of(const struct profile *p, int64_t value)
{
	double n = p->period_ns ? (double)value * 1e3 / (double)p->period_ns : 1;

	return n < 1 ? 1 : (uint64_t)llround(n);
}

static int put_values(struct sample *s, const struct pprof_set *set, uint32_t stack, uint32_t link)
{
	for (size_t i = 0; i < s->d->n_types; i++) {
		struct profile_sample *out;
		int64_t value = 0;
		int r = set->profiles[i] ? scaled_value(s, i, &value) : 0;

		if (r < 0)
			return r;
		if (!value)
			continue;
		out = profile_add(s->d->b, set->profiles[i]);
		out->stack = stack;
		out->value = value;
		out->n_samples = count_of(set->profiles[i], value);
		out->thread_comm = s->thread;
		out->link = link;
	}
	return 0;
}

static void find_link(const struct sample *s, uint32_t *ret)
{
	*ret = 0;
	if (s->linked && profile_batch_link(s->d->b, &s->link, ret) < 0)
		counter_add(counter("podflame_links_dropped_total", "reason", "request"), 1);
}

static int use_sample(struct sample *s)
{
	struct pprof_set *set;
	uint32_t stack, link;
	int r = find_set(s->d, s->labels, s->n_labels, s->path, &set);

	if (!r)
		r = pprof_stack(s->d, s->ids, s->n_ids, s->path, &stack);
	if (r < 0)
		return r;
	find_link(s, &link);
	return put_values(s, set, stack, link);
}

static void sample_done(struct sample *s)
{
	free(s->ids);
}

int pprof_samples(struct pprof_decoder *d)
{
	_cleanup_(sample_done) struct sample s = {.d = d};
	struct pprof_wire w = d->all;
	struct pprof_field f;
	struct pprof_set *none;
	size_t nr = 0;
	/* a profile without samples says that nothing happened, or lives */
	int r = d->n_samples ? 0 : find_set(d, s.labels, 0, "sample", &none);

	while (!r && pprof_wire_next(&w, &f) > 0) {
		char path[40];

		if (f.number != 2 || f.type != WIRE_BYTES)
			continue;
		snprintf(path, sizeof(path), "sample[%zu]", nr++);
		s = (struct sample){.d = d, .path = path, .ids = s.ids, .cap_ids = s.cap_ids};
		r = read_fields(&s, f.bytes);
		if (!r)
			r = use_sample(&s);
	}
	return r;
}

void pprof_samples_done(struct pprof_decoder *d)
{
	struct pprof_set *set, *next;

	HASH_ITER (hh, d->sets, set, next) {
		HASH_DEL(d->sets, set);
		free(set);
	}
}
