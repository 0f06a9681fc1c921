/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles with known answers, wrong ones, and ones beyond a limit. */
#include "lib/pprof/pprof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/pprof/testpprof.h"

static int tag_label(struct batch *b, struct profile *p, const char *key, const char *value,
		     void *arg, struct field_error *reterr)
{
	(void)arg;
	(void)reterr;
	profile_tag(b, p, key, value);
	return 0;
}

static const struct pprof_from from = {.path = "profile",
				       .name = "process_cpu",
				       .start_ns = 5 * NSEC_PER_SEC,
				       .end_ns = 15 * NSEC_PER_SEC,
				       .app_service = "shop",
				       .id = "id",
				       .label = tag_label};

static struct batch *decode(const struct buf *bytes, const struct pprof_from *f)
{
	struct batch *b = profile_batch_new();
	struct field_error e = {0};

	if (pprof_decode(b, bytes->data, bytes->len, f, &e) < 0)
		fail_msg("%s: %s", e.path, e.reason);
	return b;
}

static void assert_refused(const struct buf *bytes, const struct pprof_from *f, int error,
			   const char *path, const char *reason)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct field_error e = {0};

	assert_int_equal(pprof_decode(b, bytes->data ? bytes->data : "", bytes->len, f, &e), error);
	assert_string_equal(e.path, path);
	if (!strstr(e.reason, reason))
		fail_msg("%s: %s", e.path, e.reason);
}

static struct profile *find(const struct batch *b, enum event event, const char *key)
{
	for (size_t i = 0; i < b->n_profiles; i++) {
		struct profile *p = b->profiles[i];

		if (p->event == event && (key ? profile_tag_get(p, key) != NULL : !p->tags.n))
			return p;
	}
	fail();
	return NULL;
}

static void assert_frame(const struct frame *f, const char *name, unsigned line)
{
	assert_string_equal(f->name, name);
	assert_int_equal(f->line, line);
	assert_int_equal(f->kind, FRAME_APP);
	assert_int_equal(f->address, 0);
	assert_string_equal(f->module, "/app/exe");
	assert_string_equal(f->file, "/src/main.go");
	assert_false(f->inlined);
}

/* ---- what a profile says ---- */

static void a_cpu_profile(void **state)
{
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *plain, *tagged;
	const struct stack_ref *stack;

	(void)state;
	pb_cpu_profile(&bytes);
	b = decode(&bytes, &from);
	/* the type "samples" says the same as "cpu" */
	assert_int_equal(b->n_profiles, 2);
	assert_int_equal(b->n_skipped, 0);
	plain = find(b, EVENT_CPU, NULL);
	tagged = find(b, EVENT_CPU, "handler");
	assert_string_equal(profile_tag_get(tagged, "handler"), "checkout");
	assert_string_equal(plain->app_service, "shop");
	assert_int_equal(plain->start_ns, 5 * NSEC_PER_SEC);
	assert_int_equal(plain->end_ns, 15 * NSEC_PER_SEC);
	assert_int_equal(plain->period_ns, 10000000);
	assert_int_equal(plain->n_samples, 1);
	assert_int_equal(plain->samples[0].value, 20000);
	assert_int_equal(plain->samples[0].n_samples, 2);
	assert_int_equal(tagged->samples[0].value, 10000);
	assert_int_equal(plain->samples[0].stack, tagged->samples[0].stack);
	assert_memory_not_equal(plain->id, tagged->id, sizeof(plain->id));
	stack = &b->stacks[plain->samples[0].stack];
	assert_int_equal(stack->n, 2);
	assert_frame(stack->frames[0], "main.main", 10);
	assert_frame(stack->frames[1], "main.work", 30);
}

/* A profile that is sent again has the same ids; with another id, others. */
static void ids_are_those_of_the_request(void **state)
{
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *a = NULL, *b = NULL, *c = NULL;
	struct pprof_from other = from;

	(void)state;
	pb_cpu_profile(&bytes);
	other.id = "other";
	a = decode(&bytes, &from);
	b = decode(&bytes, &from);
	c = decode(&bytes, &other);
	assert_memory_equal(a->profiles[0]->id, b->profiles[0]->id, 16);
	assert_memory_not_equal(a->profiles[0]->id, c->profiles[0]->id, 16);
}

/* A profile with one type, and one sample with this value. */
static void one_type(struct buf *b, const char *type, const char *unit, int64_t value)
{
	const char *const texts[] = {"", type, unit, "wall", "nanoseconds", "f", NULL};

	pb_strings(b, texts);
	PB_NUMBERS(b, 1, 1, 2);
	pb_location(b, 7, 0, 0x10, 9, 1);
	PB_NUMBERS(b, 5, 9, 5);
	pb_sample(b, (const int64_t[]){7, 0}, (const int64_t[]){value, 0}, 0, 0);
}

static void types_and_units(void **state)
{
	static const struct {
		const char *name, *display, *type, *unit;
		enum event event;
		int64_t value;
	} cases[] = {
		{"process_cpu", "", "cpu", "nanoseconds", EVENT_CPU, 3},
		{"", "", "wall", "microseconds", EVENT_WALL, 3000},
		{"memory", "", "alloc_objects", "count", EVENT_ALLOC_OBJECTS, 3000},
		{"memory", "", "alloc_space", "bytes", EVENT_ALLOC_SPACE, 3000},
		{"memory", "", "inuse_objects", "count", EVENT_INUSE_OBJECTS, 3000},
		{"memory", "", "inuse_space", "bytes", EVENT_INUSE_SPACE, 3000},
		{"goroutine", "", "goroutine", "count", EVENT_GOROUTINES, 3000},
		{"", "goroutine", "goroutine", "count", EVENT_GOROUTINES, 3000},
		{"mutex", "", "contentions", "count", EVENT_MUTEX_COUNT, 3000},
		{"mutex", "", "delay", "nanoseconds", EVENT_MUTEX_DURATION, 3},
		{"block", "", "contentions", "count", EVENT_BLOCK_COUNT, 3000},
		{"", "mutex_duration", "delay", "nanoseconds", EVENT_MUTEX_DURATION, 3},
		{"", "block_duration", "delay", "nanoseconds", EVENT_BLOCK_DURATION, 3},
		{"", "block_count", "contentions", "count", EVENT_BLOCK_COUNT, 3000},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf bytes = {0};
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		const struct pprof_type said = {cases[i].type, cases[i].display, false};
		struct pprof_from f = from;

		f.name = cases[i].name;
		f.types = &said;
		f.n_types = 1;
		one_type(&bytes, cases[i].type, cases[i].unit, 3000);
		b = decode(&bytes, &f);
		assert_int_equal(b->n_profiles, 1);
		assert_int_equal(b->profiles[0]->event, cases[i].event);
		assert_int_equal(b->profiles[0]->samples[0].value, cases[i].value);
	}
}

/* Counts of samples become time by the period, or by the sampling rate that the sender names. */
static void samples_become_time(void **state)
{
	_cleanup_buf_ struct buf bytes = {0}, wall = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL, *c = NULL;
	struct pprof_from f = from;

	(void)state;
	f.sample_rate = 100;
	one_type(&bytes, "samples", "count", 7);
	b = decode(&bytes, &f);
	assert_int_equal(b->profiles[0]->event, EVENT_CPU);
	assert_int_equal(b->profiles[0]->samples[0].value, 70000);
	assert_int_equal(b->profiles[0]->samples[0].n_samples, 7);
	one_type(&wall, "samples", "count", 7);
	PB_NUMBERS(&wall, 11, 3, 4);
	pb_number(&wall, 12, 1000000);
	c = decode(&wall, &f);
	assert_int_equal(c->profiles[0]->event, EVENT_WALL);
	assert_int_equal(c->profiles[0]->samples[0].value, 7000);
}

static void what_is_left_out_is_named(void **state)
{
	static const struct {
		const char *type, *unit;
		bool cumulative;
		const char *why;
	} cases[] = {
		{"exceptions", "count", false, "unsupported_type"},
		{"contentions", "count", false, "unsupported_type"},
		{"alloc_space", "bytes", true, "cumulative"},
		{"cpu", "count", false, "unsupported_unit"},
		{"samples", "count", false, "unsupported_unit"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf bytes = {0};
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		const struct pprof_type said = {cases[i].type, "", cases[i].cumulative};
		struct pprof_from f = from;
		uint64_t before = counter_get(
			counter("podflame_pprof_types_skipped_total", "reason", cases[i].why));

		f.types = &said;
		f.n_types = 1;
		one_type(&bytes, cases[i].type, cases[i].unit, 1);
		b = decode(&bytes, &f);
		assert_int_equal(b->n_profiles, 0);
		assert_int_equal(b->n_skipped, 1);
		assert_string_equal(b->skipped_for, cases[i].why);
		assert_int_equal(counter_get(counter("podflame_pprof_types_skipped_total", "reason",
						     cases[i].why)),
				 before + 1);
	}
}

/* Several lines of a location: the innermost function first, the real one last. */
/* Nobody would use them. */
static void samples_of_unknown_types_are_not_read(void **state)
{
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const char *const texts[] = {"", "exceptions", "count", NULL};

	(void)state;
	pb_strings(&bytes, texts);
	PB_NUMBERS(&bytes, 1, 1, 2);
	pb_sample(&bytes, (const int64_t[]){99, 0}, (const int64_t[]){1, 0}, 0, 0);
	b = decode(&bytes, &from);
	assert_int_equal(b->n_profiles, 0);
	assert_int_equal(b->n_skipped, 1);
}

static void inlined_lines(void **state)
{
	const char *const texts[] = {"", "cpu", "nanoseconds", "inner", "outer", NULL};
	_cleanup_buf_ struct buf bytes = {0}, l = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct stack_ref *stack;

	(void)state;
	pb_strings(&bytes, texts);
	PB_NUMBERS(&bytes, 1, 1, 2);
	PB_NUMBERS(&bytes, 5, 1, 3);
	PB_NUMBERS(&bytes, 5, 2, 4);
	pb_number(&l, 1, 1);
	PB_NUMBERS(&l, 4, 1, 11);
	PB_NUMBERS(&l, 4, 2, 22);
	pb_bytes(&bytes, 4, l.data, l.len);
	pb_sample(&bytes, (const int64_t[]){1, 0}, (const int64_t[]){1000, 0}, 0, 0);
	b = decode(&bytes, &from);
	stack = &b->stacks[0];
	assert_int_equal(stack->n, 2);
	assert_string_equal(stack->frames[0]->name, "outer");
	assert_int_equal(stack->frames[0]->line, 22);
	assert_false(stack->frames[0]->inlined);
	assert_string_equal(stack->frames[1]->name, "inner");
	assert_true(stack->frames[1]->inlined);
}

/* An address of the sender's process must never get a name from uploaded symbols. */
static void a_location_without_lines(void **state)
{
	const char *const texts[] = {"", "cpu", "nanoseconds", "/lib/libx.so", "buildid", NULL};
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct frame *f;

	(void)state;
	pb_strings(&bytes, texts);
	PB_NUMBERS(&bytes, 1, 1, 2);
	PB_NUMBERS(&bytes, 3, 4, 0x7000, 0x8000, 0, 3, 4);
	pb_location(&bytes, 1, 4, 0x7abc, 0, 0);
	pb_sample(&bytes, (const int64_t[]){1, 0}, (const int64_t[]){1000, 0}, 0, 0);
	b = decode(&bytes, &from);
	f = b->stacks[0].frames[0];
	assert_null(f->name);
	assert_null(f->build_id);
	assert_int_equal(f->address, 0x7abc);
	assert_int_equal(f->kind, FRAME_LIBRARY);
}

/* A store would take the line of such a frame for where its function begins. */
static void a_function_without_a_name_has_no_line(void **state)
{
	const char *const texts[] = {"", "cpu", "nanoseconds", "/app/exe", NULL};
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct frame *f;

	(void)state;
	pb_strings(&bytes, texts);
	PB_NUMBERS(&bytes, 1, 1, 2);
	PB_NUMBERS(&bytes, 3, 4, 0x7000, 0x8000, 0, 3);
	PB_NUMBERS(&bytes, 5, 1, 0);
	pb_location(&bytes, 1, 4, 0x7abc, 1, 12);
	pb_sample(&bytes, (const int64_t[]){1, 0}, (const int64_t[]){1000, 0}, 0, 0);
	b = decode(&bytes, &from);
	f = b->stacks[0].frames[0];
	assert_null(f->name);
	assert_int_equal(f->address, 0x7abc);
	assert_int_equal(f->line, 0);
	assert_int_equal(profile_frame_stored_line(f), 0);
}

static void ids_of_a_span(void **state)
{
	const char *const texts[] = {"", "cpu", "nanoseconds", "span_id", "0102030405060708", NULL};
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	(void)state;
	pb_strings(&bytes, texts);
	PB_NUMBERS(&bytes, 1, 1, 2);
	pb_location(&bytes, 1, 0, 1, 0, 0);
	pb_sample(&bytes, (const int64_t[]){1, 0}, (const int64_t[]){1000, 0}, 3, 4);
	b = decode(&bytes, &from);
	assert_int_equal(b->n_links, 1);
	assert_int_equal(b->links[0].span_id[7], 8);
	assert_int_equal(b->profiles[0]->samples[0].link, 1);
	assert_int_equal(b->profiles[0]->tags.n, 0);
}

static void an_empty_snapshot(void **state)
{
	const char *const texts[] = {"", "inuse_space", "bytes", NULL};
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	(void)state;
	pb_strings(&bytes, texts);
	PB_NUMBERS(&bytes, 1, 1, 2);
	b = decode(&bytes, &from);
	assert_int_equal(b->n_profiles, 1);
	assert_int_equal(b->profiles[0]->n_samples, 0);
}

/* ---- wrong ---- */

static const char *const cpu_texts[] = {"", "cpu", "nanoseconds", NULL};

static void wrong_ids_and_indexes(void **state)
{
	static const struct {
		int64_t location, mapping, function, used, name;
		const char *path, *reason;
	} cases[] = {
		{0, 0, 1, 1, 1, "profile.location", "an id is 0"},
		{1, 0, 1, 2, 1, "profile.sample[0]", "location_id 2 is of no location"},
		{1, 5, 1, 1, 1, "profile.location", "mapping_id 5 is of no mapping"},
		{1, 0, 8, 1, 1, "profile.location.line", "function_id 8 is of no function"},
		{1, 0, 1, 1, 3, "profile.function.name", "index 3 is outside string_table (3)"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf b = {0};

		pb_strings(&b, cpu_texts);
		PB_NUMBERS(&b, 1, 1, 2);
		pb_location(&b, cases[i].location, cases[i].mapping, 1, cases[i].function, 1);
		PB_NUMBERS(&b, 5, 1, cases[i].name);
		pb_sample(&b, (const int64_t[]){cases[i].used, 0}, (const int64_t[]){1000, 0}, 0,
			  0);
		assert_refused(&b, &from, -EBADMSG, cases[i].path, cases[i].reason);
	}
}

static void wrong_samples(void **state)
{
	static const struct {
		int64_t values[4];
		const char *reason;
	} cases[] = {
		{{0}, "0 values for 1 sample types"},
		{{1, 2, 0}, "more values than sample types"},
		{{INT64_MIN, 0}, "negative or too large"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf b = {0};

		pb_strings(&b, cpu_texts);
		PB_NUMBERS(&b, 1, 1, 2);
		pb_location(&b, 1, 0, 1, 0, 0);
		pb_sample(&b, (const int64_t[]){1, 0}, cases[i].values, 0, 0);
		assert_refused(&b, &from, -EBADMSG, "profile.sample[0]", cases[i].reason);
	}
}

static void wrong_profiles(void **state)
{
	_cleanup_buf_ struct buf empty = {0}, cut = {0}, first = {0}, twice = {0}, dash = {0},
				 latin = {0};

	(void)state;
	assert_refused(&empty, &from, -EBADMSG, "profile", "has no string_table");
	buf_puts(&cut, "\x0a\x7f");
	assert_refused(&cut, &from, -EBADMSG, "profile", "is no message of protobuf");
	pb_text(&first, 6, "cpu");
	assert_refused(&first, &from, -EBADMSG, "profile.string_table", "first text is not empty");
	pb_strings(&twice, cpu_texts);
	PB_NUMBERS(&twice, 1, 1, 2);
	pb_location(&twice, 3, 0, 1, 0, 0);
	pb_location(&twice, 3, 0, 1, 0, 0);
	assert_refused(&twice, &from, -EBADMSG, "profile.location", "two have one id");
	one_type(&dash, "on-cpu", "nanoseconds", 1);
	assert_refused(&dash, &from, -EBADMSG, "profile.sample_type.type", "contains '-'");
	one_type(&latin, "cp\xfc", "nanoseconds", 1);
	assert_refused(&latin, &from, -EBADMSG, "profile.sample_type.type", "not UTF-8");
}

static void a_wrong_period_type(void **state)
{
	_cleanup_buf_ struct buf b = {0};

	(void)state;
	one_type(&b, "samples", "count", 1);
	pb_number(&b, 12, 1);
	PB_NUMBERS(&b, 11, 99, 4);
	assert_refused(&b, &from, -EBADMSG, "profile.period_type.type", "index 99 is outside");
}

/* ---- limits ---- */

static void too_many_samples(void **state)
{
	_cleanup_buf_ struct buf b = {0};

	(void)state;
	pb_strings(&b, cpu_texts);
	PB_NUMBERS(&b, 1, 1, 2);
	for (int i = 0; i <= PPROF_MAX_SAMPLES; i++)
		pb_sample(&b, (const int64_t[]){0}, (const int64_t[]){1000, 0}, 0, 0);
	assert_refused(&b, &from, -E2BIG, "profile.sample", "more than 16000");
}

static void too_many_labels(void **state)
{
	_cleanup_buf_ struct buf b = {0}, m = {0};
	const char *const texts[] = {"", "cpu", "nanoseconds", "k", "v", NULL};

	(void)state;
	pb_strings(&b, texts);
	PB_NUMBERS(&b, 1, 1, 2);
	pb_number(&m, 2, 1000);
	for (int i = 0; i <= PPROF_MAX_LABELS; i++)
		PB_NUMBERS(&m, 3, 3, 4);
	pb_bytes(&b, 2, m.data, m.len);
	assert_refused(&b, &from, -E2BIG, "profile.sample[0]", "more than 30 labels");
}

static void labels_that_are_too_long(void **state)
{
	static char key[PPROF_MAX_KEY + 2], value[PPROF_MAX_VALUE + 2];
	const char *const texts[] = {"", "cpu", "nanoseconds", "k", key, value, NULL};

	(void)state;
	memset(key, 'k', sizeof(key) - 1);
	memset(value, 'v', sizeof(value) - 1);
	for (int i = 0; i < 2; i++) {
		_cleanup_buf_ struct buf b = {0};

		pb_strings(&b, texts);
		PB_NUMBERS(&b, 1, 1, 2);
		pb_sample(&b, (const int64_t[]){0}, (const int64_t[]){1000, 0}, 3 + i, 5 - i);
		assert_refused(&b, &from, -E2BIG, "profile.sample[0]", "has more than 1024 bytes");
	}
}

static void too_many_types(void **state)
{
	_cleanup_buf_ struct buf b = {0};

	(void)state;
	for (int i = 0; i <= PPROF_MAX_TYPES; i++)
		PB_NUMBERS(&b, 1, 1, 2);
	assert_refused(&b, &from, -E2BIG, "profile.sample_type", "more than 16");
}

static void two_types_of_one_event(void **state)
{
	_cleanup_buf_ struct buf b = {0};
	const char *const texts[] = {"", "goroutine", "goroutines", "count", NULL};

	(void)state;
	pb_strings(&b, texts);
	PB_NUMBERS(&b, 1, 1, 3);
	PB_NUMBERS(&b, 1, 2, 3);
	assert_refused(&b, &from, -EBADMSG, "profile.sample_type", "two types are goroutines");
}

static void too_many_rows(void **state)
{
	static const struct {
		unsigned field;
		const char *path;
	} tables[] = {{3, "profile.mapping"},
		      {4, "profile.location"},
		      {5, "profile.function"},
		      {6, "profile.string_table"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		_cleanup_buf_ struct buf b = {0};

		for (int k = 0; k <= PPROF_MAX_ROWS; k++)
			pb_bytes(&b, tables[i].field, "", 0);
		assert_refused(&b, &from, -E2BIG, tables[i].path, "more than 262144");
	}
}

static void too_many_lines(void **state)
{
	_cleanup_buf_ struct buf b = {0}, l = {0};

	(void)state;
	for (int k = 0; k <= PPROF_MAX_ROWS; k++)
		pb_bytes(&l, 4, "", 0);
	pb_bytes(&b, 4, l.data, l.len);
	assert_refused(&b, &from, -E2BIG, "profile.location.line", "more than 262144");
}

/* A location with many lines makes many frames of few bytes. */
static void too_many_frames(void **state)
{
	_cleanup_buf_ struct buf b = {0}, l = {0};

	(void)state;
	pb_strings(&b, cpu_texts);
	PB_NUMBERS(&b, 1, 1, 2);
	PB_NUMBERS(&b, 5, 1, 1);
	pb_number(&l, 1, 1);
	for (int k = 0; k < STACK_MAX_FRAMES; k++)
		PB_NUMBERS(&l, 4, 1, k);
	pb_bytes(&b, 4, l.data, l.len);
	for (int i = 0; i < 4000000 / STACK_MAX_FRAMES + 1; i++)
		pb_sample(&b, (const int64_t[]){1, 0}, (const int64_t[]){1000, 0}, 0, 0);
	assert_refused(&b, &from, -E2BIG, "profile.sample[3906]", "more than 4000000 frames");
}

static void too_many_sets_of_labels(void **state)
{
	_cleanup_buf_ struct buf b = {0};
	const char *const texts[] = {"", "cpu", "nanoseconds", "k", NULL};

	(void)state;
	pb_strings(&b, texts);
	PB_NUMBERS(&b, 1, 1, 2);
	for (int i = 0; i <= PPROF_MAX_SETS; i++) {
		char value[16];

		snprintf(value, sizeof(value), "v%d", i);
		pb_text(&b, 6, value);
		pb_sample(&b, (const int64_t[]){0}, (const int64_t[]){1000, 0}, 3, 4 + i);
	}
	assert_refused(&b, &from, -E2BIG, "profile.sample[1000]", "more than 1000 different sets");
}

static void a_deep_stack_is_cut_at_its_root(void **state)
{
	_cleanup_buf_ struct buf b = {0};
	_cleanup_(profile_batch_freep) struct batch *batch = NULL;
	int64_t ids[STACK_MAX_FRAMES + 11] = {0};
	const struct stack_ref *stack;

	(void)state;
	pb_strings(&b, cpu_texts);
	PB_NUMBERS(&b, 1, 1, 2);
	for (int i = 0; i < STACK_MAX_FRAMES + 10; i++) {
		ids[i] = i + 1;
		pb_location(&b, i + 1, 0, i + 1, 0, 0);
	}
	pb_sample(&b, ids, (const int64_t[]){1000, 0}, 0, 0);
	batch = decode(&b, &from);
	stack = &batch->stacks[0];
	assert_int_equal(stack->n, STACK_MAX_FRAMES);
	assert_string_equal(stack->frames[0]->name, "[truncated]");
	assert_int_equal(stack->frames[STACK_MAX_FRAMES - 1]->address, 1);
}

static void too_many_bytes(void **state)
{
	_cleanup_buf_ struct buf b = {0};
	_cleanup_free_ char *text = xcalloc(1, PPROF_MAX_BYTES + 1);

	(void)state;
	memset(text, 'x', PPROF_MAX_BYTES);
	pb_text(&b, 13, text);
	assert_refused(&b, &from, -E2BIG, "profile", "larger than 4194304 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cpu_profile),
		cmocka_unit_test(ids_are_those_of_the_request),
		cmocka_unit_test(types_and_units),
		cmocka_unit_test(samples_become_time),
		cmocka_unit_test(what_is_left_out_is_named),
		cmocka_unit_test(samples_of_unknown_types_are_not_read),
		cmocka_unit_test(inlined_lines),
		cmocka_unit_test(a_location_without_lines),
		cmocka_unit_test(a_function_without_a_name_has_no_line),
		cmocka_unit_test(ids_of_a_span),
		cmocka_unit_test(an_empty_snapshot),
		cmocka_unit_test(wrong_ids_and_indexes),
		cmocka_unit_test(wrong_samples),
		cmocka_unit_test(wrong_profiles),
		cmocka_unit_test(a_wrong_period_type),
		cmocka_unit_test(too_many_samples),
		cmocka_unit_test(too_many_labels),
		cmocka_unit_test(labels_that_are_too_long),
		cmocka_unit_test(too_many_types),
		cmocka_unit_test(two_types_of_one_event),
		cmocka_unit_test(too_many_rows),
		cmocka_unit_test(too_many_lines),
		cmocka_unit_test(too_many_frames),
		cmocka_unit_test(too_many_sets_of_labels),
		cmocka_unit_test(a_deep_stack_is_cut_at_its_root),
		cmocka_unit_test(too_many_bytes),
	};

	return cmocka_run_group_tests_name("pprof", tests, NULL, NULL);
}
