/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of other profilers, and data that is no valid message. */
#include "lib/otlp/internal.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <xxhash.h>

#include <cmocka.h>

/* ---- a request as OpenTelemetry's eBPF profiler sends it ---- */

/*
 * A profile in the form of OpenTelemetry's eBPF profiler: strings by index, no attributes of
 * podflame, a period in nanoseconds.
 */
struct foreign {
	Otlp__ExportProfilesServiceRequest req;
	Otlp__ProfilesDictionary dict;
	Otlp__ResourceProfiles rp, *rps[1];
	Otlp__Resource resource;
	Otlp__KeyValue kv, *kvs[1];
	Otlp__AnyValue kv_value, attr_values[8];
	Otlp__ScopeProfiles sp, *sps[1];
	Otlp__Profile profile, *profiles[1];
	Otlp__ValueType sample_type, period_type;
	Otlp__Sample samples[2], *sample_ptrs[2];
	Otlp__Mapping mappings[2], *mapping_ptrs[2];
	Otlp__Location locations[3], *location_ptrs[3];
	Otlp__Function functions[2], *function_ptrs[2];
	Otlp__Line line, *lines[1];
	Otlp__KeyValueAndUnit attrs[8], *attr_ptrs[8];
	Otlp__Stack stacks[2], *stack_ptrs[2];
	int32_t sample_attrs[2][3], frame_attrs[2][1], mapping_attrs[1], locations_of_stack[2];
	int64_t values[1];
	uint64_t timestamps[3];
};

static char *strings[] = {"",
			  "samples",
			  "count",
			  "cpu",
			  "nanoseconds",
			  "process.pid",
			  "process.executable.name",
			  "thread.name",
			  "profile.frame.type",
			  "process.executable.build_id.htlhash",
			  "main.work",
			  "/usr/lib/libfoo.so",
			  "go",
			  "foo",
			  "feed",
			  "native",
			  "off_cpu",
			  "events",
			  "alloc_space",
			  "inuse_space",
			  "bytes",
			  "podflame.wait",
			  "podflame.estimate.share_ppm",
			  "podflame.estimate.error",
			  "on_cpu",
			  "mem_alloc",
			  "mem_inuse",
			  "wall",
			  "inuse_objects",
			  "goroutine",
			  "podflame.event",
			  "mutex_duration",
			  "podflame.frame.start"};
enum {
	TEXT_SAMPLES = 1,
	TEXT_COUNT,
	TEXT_CPU,
	TEXT_NANOSECONDS,
	TEXT_OFF_CPU = 16,
	TEXT_EVENTS,
	TEXT_ALLOC_SPACE,
	TEXT_INUSE_SPACE,
	TEXT_BYTES,
	TEXT_WAIT,
	TEXT_SHARE,
	TEXT_ERROR,
	TEXT_ON_CPU,
	TEXT_MEM_ALLOC,
	TEXT_MEM_INUSE,
	TEXT_WALL,
	TEXT_INUSE_OBJECTS,
	TEXT_GOROUTINE,
	TEXT_EVENT,
	TEXT_MUTEX_DURATION,
	TEXT_FRAME_START
};

static void attr_text(struct foreign *f, unsigned i, int32_t key, char *text)
{
	f->attrs[i].key_strindex = key;
	f->attrs[i].value = &f->attr_values[i];
	f->attr_values[i].value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	f->attr_values[i].string_value = text;
}

static void attr_number(struct foreign *f, unsigned i, int32_t key, int64_t v)
{
	f->attrs[i].key_strindex = key;
	f->attrs[i].value = &f->attr_values[i];
	f->attr_values[i].value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
	f->attr_values[i].int_value = v;
}

#define ROWS(f, field, ptrs, rows, type)                                                           \
	do {                                                                                       \
		for (size_t i_ = 0; i_ < ARRAY_SIZE((f)->rows); i_++) {                            \
			otlp__##type##__init(&(f)->rows[i_]);                                      \
			(f)->ptrs[i_] = &(f)->rows[i_];                                            \
		}                                                                                  \
		(f)->dict.field = (f)->ptrs;                                                       \
		(f)->dict.n_##field = ARRAY_SIZE((f)->ptrs);                                       \
	} while (0)

static void foreign_tables(struct foreign *f)
{
	otlp__profiles_dictionary__init(&f->dict);
	f->dict.string_table = strings;
	f->dict.n_string_table = ARRAY_SIZE(strings);
	ROWS(f, mapping_table, mapping_ptrs, mappings, mapping);
	ROWS(f, location_table, location_ptrs, locations, location);
	ROWS(f, function_table, function_ptrs, functions, function);
	ROWS(f, attribute_table, attr_ptrs, attrs, key_value_and_unit);
	ROWS(f, stack_table, stack_ptrs, stacks, stack);
	for (size_t i = 0; i < ARRAY_SIZE(f->attr_values); i++)
		otlp__any_value__init(&f->attr_values[i]);
	attr_number(f, 1, 5, 4711);
	attr_text(f, 2, 6, "shop");
	attr_text(f, 3, 7, "worker");
	attr_text(f, 4, 8, "go");
	attr_text(f, 5, 8, "native");
	attr_text(f, 6, 9, "feed");
	attr_number(f, 7, 5, 4712);
	f->functions[1].name_strindex = 10;
	otlp__line__init(&f->line);
	f->line.function_index = 1;
	f->line.line = 12;
	f->lines[0] = &f->line;
	f->locations[1].lines = f->lines;
	f->locations[1].n_lines = 1;
	f->frame_attrs[0][0] = 4;
	f->frame_attrs[1][0] = 5;
	for (int i = 0; i < 2; i++) {
		f->locations[i + 1].attribute_indices = f->frame_attrs[i];
		f->locations[i + 1].n_attribute_indices = 1;
	}
	f->locations[2].mapping_index = 1;
	f->locations[2].address = 0x1234;
	f->mappings[1].filename_strindex = 11;
	f->mapping_attrs[0] = 6;
	f->mappings[1].attribute_indices = f->mapping_attrs;
	f->mappings[1].n_attribute_indices = 1;
	f->locations_of_stack[0] = 2; /* the leaf */
	f->locations_of_stack[1] = 1;
	f->stacks[1].location_indices = f->locations_of_stack;
	f->stacks[1].n_location_indices = 2;
}

static void foreign_profile(struct foreign *f)
{
	otlp__profile__init(&f->profile);
	otlp__value_type__init(&f->sample_type);
	otlp__value_type__init(&f->period_type);
	f->sample_type.type_strindex = 1;
	f->sample_type.unit_strindex = 2;
	f->period_type.type_strindex = 3;
	f->period_type.unit_strindex = 4;
	f->profile.sample_type = &f->sample_type;
	f->profile.period_type = &f->period_type;
	f->profile.period = 50000000;
	f->profile.time_unix_nano = 1763700000000000000ULL;
	f->profile.duration_nano = 5000000000ULL;
	for (int i = 0; i < 2; i++) {
		otlp__sample__init(&f->samples[i]);
		f->sample_ptrs[i] = &f->samples[i];
		f->samples[i].stack_index = 1;
		f->sample_attrs[i][0] = i ? 7 : 1;
		f->sample_attrs[i][1] = 2;
		f->sample_attrs[i][2] = 3;
		f->samples[i].attribute_indices = f->sample_attrs[i];
		f->samples[i].n_attribute_indices = 3;
	}
	f->values[0] = 2;
	f->samples[0].values = f->values;
	f->samples[0].n_values = 1;
	/* no values: each timestamp counts as one sample */
	f->samples[1].timestamps_unix_nano = f->timestamps;
	f->samples[1].n_timestamps_unix_nano = 3;
	f->profile.samples = f->sample_ptrs;
	f->profile.n_samples = 2;
}

static void foreign_init(struct foreign *f)
{
	memset(f, 0, sizeof(*f));
	otlp__export_profiles_service_request__init(&f->req);
	otlp__resource_profiles__init(&f->rp);
	otlp__resource__init(&f->resource);
	otlp__scope_profiles__init(&f->sp);
	otlp__key_value__init(&f->kv);
	otlp__any_value__init(&f->kv_value);
	foreign_tables(f);
	foreign_profile(f);
	f->kv.key = "k8s.pod.name";
	f->kv.value = &f->kv_value;
	f->kv_value.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX;
	f->kv_value.string_value_strindex = 13;
	f->kvs[0] = &f->kv;
	f->resource.attributes = f->kvs;
	f->resource.n_attributes = 1;
	f->rp.resource = &f->resource;
	f->profiles[0] = &f->profile;
	f->sp.profiles = f->profiles;
	f->sp.n_profiles = 1;
	f->sps[0] = &f->sp;
	f->rp.scope_profiles = f->sps;
	f->rp.n_scope_profiles = 1;
	f->rps[0] = &f->rp;
	f->req.resource_profiles = f->rps;
	f->req.n_resource_profiles = 1;
	f->req.dictionary = &f->dict;
}

static void foreign_pack(const struct foreign *f, struct buf *out)
{
	size_t n = otlp__export_profiles_service_request__get_packed_size(&f->req);
	_cleanup_free_ uint8_t *p = xmalloc(n);

	otlp__export_profiles_service_request__pack(&f->req, p);
	buf_add(out, p, n);
}

static int foreign_decode(const struct foreign *f, struct batch **ret, struct field_error *err)
{
	_cleanup_buf_ struct buf bytes = {0};

	foreign_pack(f, &bytes);
	return otlp_decode(bytes.data, bytes.len, ret, err);
}

static void assert_refused(const struct foreign *f, const char *path)
{
	struct field_error err = {0};
	struct batch *b = NULL;

	assert_int_equal(foreign_decode(f, &b, &err), -EBADMSG);
	assert_null(b);
	assert_string_equal(err.path, path);
}

/* ---- tests ---- */

static void test_other_profiler(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL, *again = NULL;
	struct foreign f;
	const struct stack_ref *stack;
	const struct profile *p, *q;

	foreign_init(&f);
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_int_equal(b->n_profiles, 2); /* one for each process */
	p = b->profiles[0];
	q = b->profiles[1];
	assert_string_equal(p->app_service, "shop");
	assert_int_equal(p->process_id, 4711);
	assert_int_equal(q->process_id, 4712);
	assert_string_equal(profile_tag_get(p, "pod"), "foo");
	assert_int_equal(p->period_ns, 50000000);
	assert_true(p->end_ns - p->start_ns == 5000000000ULL);
	assert_int_equal(p->samples[0].value, 100000); /* 2 x 50 ms in microseconds */
	assert_int_equal(p->samples[0].n_samples, 2);
	assert_int_equal(q->samples[0].value, 150000);
	assert_int_equal(q->samples[0].n_samples, 3);
	assert_string_equal(p->samples[0].thread_comm, "worker");
	assert_int_equal(p->samples[0].cpu, -1);
	stack = &b->stacks[p->samples[0].stack];
	assert_int_equal(stack->n, 2);
	assert_string_equal(stack->frames[0]->name, "main.work");
	assert_int_equal(stack->frames[0]->kind, FRAME_APP);
	assert_int_equal(stack->frames[0]->line, 12);
	assert_int_equal(stack->frames[1]->kind, FRAME_LIBRARY);
	assert_null(stack->frames[1]->name);
	assert_string_equal(stack->frames[1]->build_id, "feed");
	/* without profile_id, the same bytes give the same id again */
	assert_int_equal(foreign_decode(&f, &again, NULL), 0);
	assert_memory_equal(p->id, again->profiles[0]->id, 16);
	assert_memory_not_equal(p->id, q->id, 16);
}

/* A function cannot begin behind an address in it. */
static void test_where_functions_begin(void **state)
{
	static const struct {
		int64_t sent;
		uint64_t start;
	} known[] = {{0x1230, 0x1230}, {0x1234, 0x1234}, {0x1235, 0}, {-1, 0}, {INT64_MIN, 0}};
	struct foreign f;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		const struct stack_ref *stack;

		foreign_init(&f);
		attr_number(&f, 5, TEXT_FRAME_START, known[i].sent);
		assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		stack = &b->stacks[b->profiles[0]->samples[0].stack];
		assert_true(stack->frames[1]->address == 0x1234);
		assert_true(stack->frames[1]->start == known[i].start);
		assert_true(stack->frames[0]->start == 0); /* it has a name */
	}
}

/* Replaces libcrypto's SHA256(), to count the calls for large inputs. */
static size_t large_digest, n_large_digests;
unsigned char *SHA256(const unsigned char *p, size_t n, unsigned char *ret)
{
	n_large_digests += large_digest && n >= large_digest;
	return EVP_Digest(p, n, ret, NULL, EVP_sha256(), NULL) ? ret : NULL;
}

/*
 * Each profile without an id gets one. The cost per profile does not depend on the number of
 * profiles.
 */
static void test_many_without_an_id(void **state)
{
	(void)state;
	enum { MANY = 300, LARGE = 1 << 20 };
	_cleanup_(profile_batch_freep) struct batch *b = NULL, *again = NULL;
	_cleanup_free_ char *text = xcalloc(LARGE + 1, 1);
	Otlp__Profile *profiles[MANY];
	struct foreign f;

	foreign_init(&f);
	f.kv.key = "process.command_line";
	f.kv_value.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	f.kv_value.string_value = memset(text, 'x', LARGE);
	for (size_t i = 0; i < MANY; i++)
		profiles[i] = &f.profile;
	f.sp.profiles = profiles;
	f.sp.n_profiles = MANY;
	f.profile.n_samples = 0;
	large_digest = LARGE;
	n_large_digests = 0;
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	large_digest = 0;
	assert_int_equal(n_large_digests, 1);
	assert_int_equal(foreign_decode(&f, &again, NULL), 0);
	assert_int_equal(b->n_profiles, MANY);
	for (size_t i = 0; i < MANY; i++) {
		assert_memory_equal(b->profiles[i]->id, again->profiles[i]->id, 16);
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(b->profiles[i]->id, b->profiles[j]->id, 16);
	}
}

static void test_defaults(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	struct foreign f;

	foreign_init(&f);
	f.rp.resource = NULL;
	f.samples[0].n_attribute_indices = f.samples[1].n_attribute_indices = 0;
	f.profile.duration_nano = 0;
	f.profile.time_unix_nano = 0;
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_int_equal(b->n_profiles, 1);
	assert_string_equal(b->profiles[0]->app_service, "unknown");
	assert_true(b->profiles[0]->start_ns > 0);
	assert_true(b->profiles[0]->end_ns > b->profiles[0]->start_ns);
}

static void test_unsupported_event_is_counted(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	struct counter *skipped =
		counter("podflame_otlp_profiles_skipped_total", "reason", "unsupported_event");
	uint64_t before = counter_get(skipped);
	struct foreign f;

	foreign_init(&f);
	f.sample_type.type_strindex = 13;
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_int_equal(b->n_profiles, 0);
	assert_int_equal(counter_get(skipped), before + 1);
}

/*
 * Types and units of OpenTelemetry's eBPF profiler and of Go's profiles, and names of podflame's
 * own types: where programs push such events, they are not those that podflame samples.
 */
static void test_events_of_others(void **state)
{
	(void)state;
	static const struct {
		int32_t type, unit;
		bool taken;
		enum event event;
		int64_t value; /* value of a sample that has the two values 3000 and 4000 */
	} cases[] = {
		{TEXT_EVENTS, TEXT_NANOSECONDS, true, EVENT_OFF_CPU, 7},
		{TEXT_OFF_CPU, TEXT_NANOSECONDS, true, EVENT_OFF_CPU, 7},
		{TEXT_CPU, TEXT_NANOSECONDS, true, EVENT_CPU, 7},
		{TEXT_ON_CPU, TEXT_NANOSECONDS, true, EVENT_CPU, 7},
		{TEXT_SAMPLES, TEXT_COUNT, true, EVENT_CPU, 7000 * INT64_C(50000)},
		{TEXT_WALL, TEXT_NANOSECONDS, true, EVENT_WALL, 7},
		{TEXT_ALLOC_SPACE, TEXT_BYTES, true, EVENT_ALLOC_SPACE, 7000},
		{TEXT_MEM_ALLOC, TEXT_BYTES, true, EVENT_ALLOC_SPACE, 7000},
		{TEXT_INUSE_SPACE, TEXT_BYTES, true, EVENT_INUSE_SPACE, 7000},
		{TEXT_MEM_INUSE, TEXT_BYTES, true, EVENT_INUSE_SPACE, 7000},
		{TEXT_INUSE_OBJECTS, TEXT_COUNT, true, EVENT_INUSE_OBJECTS, 7000},
		{TEXT_GOROUTINE, TEXT_COUNT, true, EVENT_GOROUTINES, 7000},
		{TEXT_MUTEX_DURATION, TEXT_NANOSECONDS, true, EVENT_MUTEX_DURATION, 7},
		/* a probe's hits: podflame has no such event */
		{TEXT_EVENTS, TEXT_COUNT, false, 0, 0},
		{TEXT_OFF_CPU, TEXT_COUNT, false, 0, 0}, /* "count" is no unit of time */
		{TEXT_INUSE_SPACE, TEXT_COUNT, false, 0, 0},
	};
	int64_t values[] = {3000, 4000};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		struct foreign f;

		foreign_init(&f);
		f.sample_type.type_strindex = cases[i].type;
		f.sample_type.unit_strindex = cases[i].unit;
		f.samples[0].values = values;
		f.samples[0].n_values = 2;
		assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		assert_int_equal(b->n_profiles, cases[i].taken ? 2 : 0);
		if (!cases[i].taken)
			continue;
		assert_int_equal(b->profiles[0]->event, cases[i].event);
		assert_int_equal(
			b->profiles[0]->period_ns,
			cases[i].event == EVENT_CPU || cases[i].event == EVENT_WALL ? 50000000 : 0);
		assert_int_equal(b->profiles[0]->samples[0].value, cases[i].value);
	}
}

/* The scope of another profiler is its name, whatever the resource says of a producer. */
static void test_producers(void **state)
{
	(void)state;
	static const struct {
		char *scope;
		bool names_event;
		const char *producer;
	} cases[] = {
		{"go.opentelemetry.io/ebpf-profiler", false, "go.opentelemetry.io/ebpf-profiler"},
		{"", false, "unknown"},
		{NULL, false, "unknown"},
		{"\xff", false, UTF8_REPLACEMENT},
		{"podflame", true, "foo"}, /* podflame's own, as one hub sends them to another */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		Otlp__InstrumentationScope scope;
		struct foreign f;

		foreign_init(&f);
		otlp__instrumentation_scope__init(&scope);
		scope.name = cases[i].scope ?: scope.name;
		f.sp.scope = cases[i].scope ? &scope : NULL;
		f.kv.key = "podflame.tag.producer";
		attr_text(&f, 3, TEXT_EVENT, "cpu");
		f.profile.attribute_indices = (int32_t[]){3};
		f.profile.n_attribute_indices = cases[i].names_event;
		assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		assert_int_equal(b->profiles[0]->event, EVENT_CPU);
		assert_int_equal(b->profiles[0]->foreign, !cases[i].names_event);
		assert_string_equal(profile_tag_get(b->profiles[0], TAG_PRODUCER),
				    cases[i].producer);
	}
}

/*
 * The types of a process's frames name its language, whichever of its samples comes first. An
 * interpreter's is that of the process. Native frames name none, and off-cpu is one of podflame's
 * own events.
 */
static void test_languages(void **state)
{
	(void)state;
	static const struct {
		char *root, *leaf;
		int32_t type;
		const char *language;
	} cases[] = {
		{"go", "native", TEXT_SAMPLES, "Golang"},
		{"native", "go", TEXT_SAMPLES, "Golang"},
		{"go", "cpython", TEXT_SAMPLES, "python"},
		{"cpython", "rust", TEXT_SAMPLES, "python"},
		{"native", "jvm", TEXT_SAMPLES, "Java"},
		{"v8js", "kernel", TEXT_SAMPLES, "Node"},
		{"native", "kernel", TEXT_SAMPLES, NULL},
		{"unknown", "", TEXT_SAMPLES, NULL},
		{"go", "native", TEXT_OFF_CPU, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		struct foreign f;

		foreign_init(&f);
		attr_text(&f, 4, 8, cases[i].root);
		attr_text(&f, 5, 8, cases[i].leaf);
		f.sample_type.type_strindex = cases[i].type;
		if (cases[i].type == TEXT_OFF_CPU)
			f.sample_type.unit_strindex = TEXT_NANOSECONDS;
		f.samples[1].stack_index = 0; /* of another process: it has no frames */
		assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		assert_int_equal(b->n_profiles, 2);
		if (!str_equal(profile_tag_get(b->profiles[0], TAG_LANGUAGE), cases[i].language))
			fail_msg("%s, %s", cases[i].root, cases[i].leaf);
		assert_null(profile_tag_get(b->profiles[1], TAG_LANGUAGE));
	}
}

static void test_a_long_name_of_a_producer(void **state)
{
	(void)state;
	_cleanup_free_ char *name = xcalloc(4096 + 2, 1);
	struct field_error err = {0};
	Otlp__InstrumentationScope scope;
	struct batch *b = NULL;
	struct foreign f;

	memset(name, 'x', 4096 + 1);
	foreign_init(&f);
	otlp__instrumentation_scope__init(&scope);
	scope.name = name;
	f.sp.scope = &scope;
	assert_int_equal(foreign_decode(&f, &b, &err), -E2BIG);
	assert_string_equal(err.reason, "the name of its scope is longer than 4096 bytes");
}

/*
 * A profile of Go has its time in "cpu", and again as counts in "samples": it counts once. But a
 * profile of time that is left out itself does not take the samples with it.
 */
static void test_samples_beside_their_time(void **state)
{
	static const struct {
		int32_t unit;
		int64_t period;
		size_t n_skipped; /* of the two, besides what counts as time */
		bool as_time;
	} cases[] = {
		{TEXT_NANOSECONDS, 50000000, 0, true},
		{TEXT_NANOSECONDS, 0, 0, true},
		{TEXT_COUNT, 50000000, 0, true},
		{TEXT_COUNT, 0, 1, false}, /* cpu, as no_unit */
		{0, 0, 1, false},
	};
	struct counter *as_time =
		counter("podflame_otlp_profiles_skipped_total", "reason", "counted_as_time");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		uint64_t before = counter_get(as_time);
		Otlp__Profile time, *both[2];
		Otlp__ValueType type;
		struct foreign f;

		foreign_init(&f);
		type = f.sample_type;
		type.type_strindex = TEXT_CPU;
		type.unit_strindex = cases[i].unit;
		time = f.profile;
		time.sample_type = &type;
		time.period = cases[i].period;
		both[0] = &f.profile;
		both[1] = &time;
		f.sp.profiles = both;
		f.sp.n_profiles = 2;
		assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		assert_int_equal(b->n_profiles, 2); /* one for each process */
		assert_int_equal(b->profiles[0]->event, EVENT_CPU);
		assert_int_equal(b->n_skipped, cases[i].n_skipped);
		assert_int_equal(counter_get(as_time) - before, cases[i].as_time);
	}
}

/*
 * A cause of a wait that this version does not know becomes "other", and is counted. For other
 * events than off-CPU the attribute is ignored.
 */
static void test_waits(void **state)
{
	(void)state;
	struct counter *unknown = counter("podflame_otlp_waits_unknown_total", NULL, NULL);
	uint64_t before = counter_get(unknown);
	static const struct {
		char *text;
		int32_t type;
		enum wait wait;
		unsigned n_unknown;
	} cases[] = {
		{"lock", TEXT_OFF_CPU, WAIT_LOCK, 0},
		{"runqueue", TEXT_OFF_CPU, WAIT_RUNQUEUE, 0},
		{"io_uring", TEXT_OFF_CPU, WAIT_OTHER, 1},
		{"lock", TEXT_SAMPLES, WAIT_NONE, 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		struct foreign f;

		foreign_init(&f);
		f.sample_type.type_strindex = cases[i].type;
		f.sample_type.unit_strindex = TEXT_NANOSECONDS;
		attr_text(&f, 3, TEXT_WAIT, cases[i].text);
		f.samples[1].n_attribute_indices = 0;
		assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		assert_int_equal(b->profiles[0]->samples[0].wait, cases[i].wait);
		assert_int_equal(b->profiles[1]->samples[0].wait, WAIT_NONE);
		assert_int_equal(counter_get(unknown) - before, cases[i].n_unknown);
	}
}

static void test_bad_estimates(void **state)
{
	(void)state;
	static const struct {
		int32_t key;
		int64_t value;
		bool ok;
	} cases[] = {{TEXT_SHARE, 1000000, true},
		     {TEXT_SHARE, 1000001, false},
		     {TEXT_SHARE, -1, false},
		     {TEXT_ERROR, INT64_MAX, true},
		     {TEXT_ERROR, -1, false}};
	int32_t of_profile[] = {7};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		struct foreign f;

		foreign_init(&f);
		f.samples[1].n_attribute_indices = 0;
		attr_number(&f, 7, cases[i].key, cases[i].value);
		f.profile.attribute_indices = of_profile;
		f.profile.n_attribute_indices = 1;
		if (cases[i].ok)
			assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		else
			assert_refused(&f, "resource_profiles[0].scope_profiles[0].profiles[0]"
					   ".attribute_indices[0]");
	}
}

/* Sets every index of a message to a value behind its table, and to a negative one. */
static void test_index_out_of_range(void **state)
{
	(void)state;
	struct foreign f;
	const struct {
		int32_t *index;
		const char *path;
	} cases[] = {
		{&f.samples[1].stack_index,
		 "resource_profiles[0].scope_profiles[0].profiles[0].samples[1]"},
		{&f.sample_attrs[0][2],
		 "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]"},
		{&f.sample_type.type_strindex,
		 "resource_profiles[0].scope_profiles[0].profiles[0].sample_type"},
		{&f.period_type.unit_strindex,
		 "resource_profiles[0].scope_profiles[0].profiles[0].period_type"},
		{&f.kv_value.string_value_strindex, "resource_profiles[0].resource.attributes[0]"},
		{&f.attrs[3].key_strindex, "dictionary.attribute_table[3]"},
		{&f.mappings[1].filename_strindex, "dictionary.mapping_table[1]"},
		{&f.mapping_attrs[0], "dictionary.mapping_table[1]"},
		{&f.functions[1].name_strindex, "dictionary.function_table[1]"},
		{&f.functions[1].system_name_strindex, "dictionary.function_table[1]"},
		{&f.functions[1].filename_strindex, "dictionary.function_table[1]"},
		{&f.locations[2].mapping_index, "dictionary.location_table[2]"},
		{&f.line.function_index, "dictionary.location_table[1]"},
		{&f.frame_attrs[1][0], "dictionary.location_table[2]"},
		{&f.locations_of_stack[1], "dictionary.stack_table[1]"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		foreign_init(&f);
		*cases[i].index = (int32_t)ARRAY_SIZE(strings);
		assert_refused(&f, cases[i].path);
		*cases[i].index = -1;
		assert_refused(&f, cases[i].path);
		*cases[i].index = INT32_MIN;
		assert_refused(&f, cases[i].path);
	}
}

static void test_links(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	uint8_t trace[16] = {0xa1, [15] = 0xaf}, span[8] = {0xb1, [7] = 0xb8};
	Otlp__Link none = OTLP__LINK__INIT, row = OTLP__LINK__INIT, *rows[] = {&none, &row};
	const struct profile_sample *s;
	struct foreign f;

	foreign_init(&f);
	f.dict.link_table = rows;
	f.dict.n_link_table = 2;
	f.samples[1].link_index = 1;
	row.trace_id = (ProtobufCBinaryData){sizeof(trace), trace};
	row.span_id = (ProtobufCBinaryData){sizeof(span), span};
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_int_equal(b->n_links, 1);
	assert_int_equal(b->profiles[0]->samples[0].link, 0);
	s = &b->profiles[b->n_profiles - 1]->samples[b->profiles[b->n_profiles - 1]->n_samples - 1];
	assert_int_equal(s->link, 1);
	assert_memory_equal(b->links[0].trace_id, trace, sizeof(trace));
	assert_memory_equal(b->links[0].span_id, span, sizeof(span));

	row.span_id.len = 0; /* a link with only a trace id is a link; one without any id is not */
	b = profile_batch_free(b);
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_int_equal(b->n_links, 1);
	row.trace_id.len = 0;
	b = profile_batch_free(b);
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_int_equal(b->n_links, 0);

	row.trace_id.len = 15;
	assert_refused(&f, "dictionary.link_table[1]");
	row.trace_id.len = 16;
	f.samples[1].link_index = 2;
	assert_refused(&f, "resource_profiles[0].scope_profiles[0].profiles[0].samples[1]");
	f.samples[1].link_index = -1;
	assert_refused(&f, "resource_profiles[0].scope_profiles[0].profiles[0].samples[1]");
}

static void test_bad_values(void **state)
{
	(void)state;
	const char *profile = "resource_profiles[0].scope_profiles[0].profiles[0]";
	struct foreign f;

	foreign_init(&f);
	f.values[0] = -1;
	assert_refused(&f, "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]");
	foreign_init(&f);
	f.values[0] = INT64_MAX;
	assert_refused(&f, "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]");
	foreign_init(&f);
	f.profile.period = -1;
	assert_refused(&f, profile);
	foreign_init(&f);
	f.profile.time_unix_nano = UINT64_MAX;
	assert_refused(&f, profile);
}

/*
 * The latest allowed time is accepted, and a later one is refused. The time of a sample is used
 * only if the profile has none.
 */
static void test_times_have_a_limit(void **state)
{
	(void)state;
	static const uint64_t last = UINT64_C(1) << 62;
	const char *profile = "resource_profiles[0].scope_profiles[0].profiles[0]";
	struct foreign f;

	foreign_init(&f);
	uint64_t *const times[] = {&f.profile.time_unix_nano, &f.profile.duration_nano,
				   &f.timestamps[0]};
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;

		foreign_init(&f);
		if (times[i] == &f.timestamps[0])
			f.profile.time_unix_nano = 0;
		*times[i] = last;
		assert_int_equal(foreign_decode(&f, &b, NULL), 0);
		if (times[i] != &f.profile.duration_nano)
			assert_true(b->profiles[0]->start_ns == last);
		*times[i] = last + 1;
		assert_refused(&f, profile);
	}
}

/*
 * Texts that podflame keeps have limits, and the answer names a value that is over its limit. Other
 * texts of a request may be long.
 */
static void test_long_texts(void **state)
{
	(void)state;
	static char text[5000], key[400];
	static const struct {
		char *key;
		int r;
	} keys[] = {
		{"k8s.pod.name", -E2BIG},   {"service.name", -E2BIG},	 {"k8s.job.name", -E2BIG},
		{"podflame.tag.x", -E2BIG}, {"process.command_line", 0}, {key, -E2BIG},
	};
	const char *profile = "resource_profiles[0].scope_profiles[0].profiles[0]";
	struct field_error err;
	struct foreign f;

	memset(text, 'x', sizeof(text) - 1);
	memset(key, 'k', sizeof(key) - 1);
	memcpy(key, "k8s.pod.label.", 14);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;

		foreign_init(&f);
		f.kv.key = keys[i].key;
		f.kv_value.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
		f.kv_value.string_value = keys[i].key == key ? "v" : text;
		err = (struct field_error){0};
		assert_int_equal(foreign_decode(&f, &b, &err), keys[i].r);
		if (keys[i].r)
			assert_string_equal(err.path,
					    "resource_profiles[0].resource.attributes[0]");
	}
	for (unsigned i = 2; i <= 3; i++) { /* 2: process.executable.name; 3: thread.name */
		struct batch *b = NULL;

		foreign_init(&f);
		attr_text(&f, i, i == 2 ? 6 : 7, text);
		assert_int_equal(foreign_decode(&f, &b, &err), -E2BIG);
		assert_true(str_has_prefix(err.path, profile));
		assert_true(str_has_prefix(err.reason, strings[i == 2 ? 6 : 7]));
	}
}

/* Replaces libxxhash's function, to count the hashed bytes. */
static size_t n_hashed_bytes;
XXH64_hash_t XXH3_64bits_withSeed(const void *p, size_t n, XXH64_hash_t seed)
{
	n_hashed_bytes += n;
	return XXH64(p, n, seed);
}

/* A text is hashed only a few times, however often it is used. */
static void test_long_names_of_many_frames(void **state)
{
	(void)state;
	enum { LONG = 100000, STACKS = 40, FRAMES = 500 };
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_free_ char *text = xcalloc(LONG + 1, 1);
	static int32_t indices[STACKS][FRAMES];
	char *own[ARRAY_SIZE(strings)];
	Otlp__Stack stacks[STACKS], *stack_ptrs[STACKS];
	Otlp__Sample samples[STACKS], *sample_ptrs[STACKS];
	const struct stack_ref *last;
	struct foreign f;

	foreign_init(&f);
	memcpy(own, strings, sizeof(own));
	own[10] = own[11] = memset(text, 'x', LONG); /* the names of a function and of a module */
	f.dict.string_table = own;
	attr_text(&f, 6, 9, text); /* the build id */
	for (int32_t i = 0; i < STACKS; i++) {
		for (int32_t j = 0; j < FRAMES; j++)
			indices[i][j] = j == i ? 1 : 2;
		stacks[i] = f.stacks[1];
		stacks[i].location_indices = indices[i];
		stacks[i].n_location_indices = FRAMES;
		stack_ptrs[i] = &stacks[i];
		samples[i] = f.samples[0];
		samples[i].stack_index = i;
		sample_ptrs[i] = &samples[i];
	}
	f.dict.stack_table = stack_ptrs;
	f.dict.n_stack_table = STACKS;
	f.profile.samples = sample_ptrs;
	f.profile.n_samples = STACKS;
	n_hashed_bytes = 0;
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_true(n_hashed_bytes < 10 * LONG);
	assert_int_equal(b->n_stacks, STACKS);
	last = &b->stacks[b->profiles[0]->samples[STACKS - 1].stack];
	assert_string_equal(last->frames[FRAMES - STACKS]->name, text);
	assert_string_equal(last->frames[0]->build_id, text);
}

/*
 * Strings that nothing refers to also count for the memory limit of a batch. Each counts with its
 * overhead in the interning table: 2,000,000 short strings exceed the limit.
 */
static void test_many_texts_have_a_limit(void **state)
{
	(void)state;
	enum { TEXTS = 2000000 };
	_cleanup_free_ char *bytes = xcalloc(TEXTS, 8);
	_cleanup_free_ char **table = xcalloc(TEXTS, sizeof(*table));
	struct batch *b = NULL;
	struct field_error err;
	struct foreign f;

	foreign_init(&f);
	memcpy(table, strings, sizeof(strings));
	for (size_t i = ARRAY_SIZE(strings); i < TEXTS; i++) {
		table[i] = bytes + i * 8;
		snprintf(table[i], 8, "%zu", i);
	}
	f.dict.string_table = table;
	f.dict.n_string_table = TEXTS;
	assert_int_equal(foreign_decode(&f, &b, &err), -E2BIG);
	assert_string_equal(err.path, "dictionary.string_table");
}

static void test_attributes_of_a_mapping_have_a_limit(void **state)
{
	(void)state;
	static int32_t indices[65];
	struct batch *b = NULL;
	struct field_error err;
	struct foreign f;

	foreign_init(&f);
	f.mappings[1].attribute_indices = indices;
	f.mappings[1].n_attribute_indices = 64;
	assert_int_equal(foreign_decode(&f, &b, &err), 0);
	b = profile_batch_free(b);
	f.mappings[1].n_attribute_indices = 65;
	assert_int_equal(foreign_decode(&f, &b, &err), -E2BIG);
	assert_string_equal(err.path, "dictionary.mapping_table[1]");
}

/* A long key is allowed if podflame does not keep the attribute's value. */
static void test_a_long_key_without_a_text(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_free_ char *key = xcalloc(1000001, 1);
	struct foreign f;

	foreign_init(&f);
	f.kv.key = memset(key, 'k', 1000000);
	memcpy(key, "k8s.pod.label.", 14);
	f.kv_value.value_case = OTLP__ANY_VALUE__VALUE_BOOL_VALUE;
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	assert_true(profile_batch_bytes(b) < 1000000);
}

static void test_deep_stack_is_cut_with_a_marker(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	int32_t deep[3000];
	const struct stack_ref *s;
	struct foreign f;

	foreign_init(&f);
	for (size_t i = 0; i < ARRAY_SIZE(deep); i++)
		deep[i] = 1 + (int32_t)(i % 2);
	f.stacks[1].location_indices = deep;
	f.stacks[1].n_location_indices = ARRAY_SIZE(deep);
	assert_int_equal(foreign_decode(&f, &b, NULL), 0);
	s = &b->stacks[b->profiles[0]->samples[0].stack];
	assert_int_equal(s->n, STACK_MAX_FRAMES);
	assert_int_equal(s->frames[0]->kind, FRAME_MARKER);
	assert_string_equal(s->frames[s->n - 1]->name, "main.work");
}

/* A message that is cut anywhere is refused, or it is a valid shorter message. */
static void test_truncated_everywhere(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf bytes = {0};
	struct foreign f;
	unsigned n_refused = 0;

	foreign_init(&f);
	foreign_pack(&f, &bytes);
	for (size_t n = 0; n < bytes.len; n++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;
		_cleanup_free_ void *exact =
			xmemdup(bytes.data, n + !n); /* so ASan reports a read past the end */
		struct field_error err = {0};
		int r = otlp_decode(exact, n, &b, &err);

		assert_true(r == 0 || r == -EBADMSG);
		if (r < 0)
			assert_true(err.path[0] && err.reason[0]);
		n_refused += r < 0;
	}
	/*
	 * two of the cut messages are valid: the empty one, and the one that lacks only the
	 * dictionary
	 */
	assert_true(n_refused >= bytes.len - 2);
}

/* With any byte changed, the decoder does not crash: it returns an error, or a usable result. */
static void test_any_byte_changed(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf bytes = {0};
	struct foreign f;

	foreign_init(&f);
	foreign_pack(&f, &bytes);
	for (size_t i = 0; i < bytes.len; i++) {
		for (unsigned bit = 0; bit < 256; bit = bit ? bit * 2 : 1) {
			_cleanup_(profile_batch_freep) struct batch *b = NULL;
			_cleanup_buf_ struct buf out = {0};
			_cleanup_free_ char *copy = xmemdup(bytes.data, bytes.len);
			struct field_error err = {0};
			int r;

			copy[i] = (char)(bit ? copy[i] ^ (int)bit : 0xff);
			r = otlp_decode(copy, bytes.len, &b, &err);
			if (r == 0)
				assert_int_equal(otlp_encode(b, &out), 0);
			else
				assert_true(err.path[0] && err.reason[0]);
		}
	}
}

/* An array_value in an array_value in ...: protobuf-c alone would overflow the C stack. */
static void test_nested_without_end(void **state)
{
	(void)state;
	enum { DEPTH = 200000 };
	_cleanup_free_ uint8_t *p = xmalloc(DEPTH * 12 + 64);
	uint8_t *at = p + DEPTH * 12 + 64, *end = at;
	static const uint8_t tags[] = {0x2a, 0x0a}; /* AnyValue.array_value, ArrayValue.values */
	struct field_error err = {0};
	struct batch *b = NULL;

	/* writes backwards: the innermost message first */
	for (unsigned i = 0; i < DEPTH + 4; i++) {
		/* the fields from kv.value up to the request */
		static const uint8_t head[] = {0x12, 0x0a, 0x0a, 0x0a};
		uint8_t tag = i < DEPTH ? tags[(i + 1) % 2] : head[i - DEPTH];
		uint8_t len[5];
		size_t n = (size_t)(end - at), k = 0;

		do {
			len[k++] = (uint8_t)((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
			n >>= 7;
		} while (n);
		at -= k;
		memcpy(at, len, k);
		*--at = tag;
	}
	assert_int_equal(otlp_decode(at, (size_t)(end - at), &b, &err), -E2BIG);
	assert_string_equal(err.reason, "messages are nested too deeply");
}

/*
 * An empty message has two bytes on the wire and needs much more memory once it is unpacked: a
 * request of 32 MiB would need gigabytes.
 */
static void test_many_empty_messages(void **state)
{
	(void)state;
	size_t n = OTLP_MAX_BYTES;
	_cleanup_free_ uint8_t *p = xcalloc(n, 1);
	struct field_error err = {0};
	struct batch *b = NULL;

	for (size_t i = 0; i < n; i += 2)
		p[i] = 0x0a;
	assert_int_equal(otlp_decode(p, n, &b, &err), -E2BIG);
	assert_true(err.reason[0]);
	/* refused by its size alone */
	assert_int_equal(otlp_decode(p, n + 1, &b, &err), -E2BIG);
}

static void test_wrong_type_names_the_field(void **state)
{
	(void)state;
	/*
	 * resource_profiles { scope_profiles { profiles { samples } } }, with samples of the wrong
	 * wire type
	 */
	static const uint8_t bytes[] = {0x0a, 0x06, 0x12, 0x04, 0x12, 0x02, 0x10, 0x01};
	struct field_error err = {0};
	struct batch *b = NULL;

	assert_int_equal(otlp_decode(bytes, sizeof(bytes), &b, &err), -EBADMSG);
	assert_string_equal(err.path,
			    "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]");
}

/*
 * Bytes that pdata/pprofile v0.150.0 of the Collector wrote (docs/otlp.md says how they were made).
 */
static void test_bytes_of_the_collector(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_free_ char *bytes = NULL;
	const struct profile *p;
	size_t n;

	assert_int_equal(
		file_read(AT_FDCWD, "agent/lib/otlp/testdata/pdata-0.150.bin", 1 << 20, &bytes, &n),
		0);
	assert_int_equal(otlp_decode(bytes, n, &b, NULL), 0);
	assert_int_equal(b->n_profiles, 1);
	p = b->profiles[0];
	assert_string_equal(profile_tag_get(p, "pod_group"), "web");
	assert_string_equal(profile_tag_get(p, "pod_group_type"), "Deployment");
	assert_int_equal(p->n_samples, 2);
	assert_int_equal(p->samples[0].value, 20202);
	assert_int_equal(p->samples[0].n_samples, 2);
	assert_int_equal(p->samples[1].n_samples, 9);
	assert_int_equal(b->stacks[p->samples[0].stack].n, 4);
	assert_int_equal(p->n_losses, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_profiler),
		cmocka_unit_test(test_where_functions_begin),
		cmocka_unit_test(test_many_without_an_id),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_unsupported_event_is_counted),
		cmocka_unit_test(test_events_of_others),
		cmocka_unit_test(test_producers),
		cmocka_unit_test(test_languages),
		cmocka_unit_test(test_a_long_name_of_a_producer),
		cmocka_unit_test(test_samples_beside_their_time),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_bad_estimates),
		cmocka_unit_test(test_index_out_of_range),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_times_have_a_limit),
		cmocka_unit_test(test_long_texts),
		cmocka_unit_test(test_long_names_of_many_frames),
		cmocka_unit_test(test_many_texts_have_a_limit),
		cmocka_unit_test(test_attributes_of_a_mapping_have_a_limit),
		cmocka_unit_test(test_a_long_key_without_a_text),
		cmocka_unit_test(test_deep_stack_is_cut_with_a_marker),
		cmocka_unit_test(test_truncated_everywhere),
		cmocka_unit_test(test_any_byte_changed),
		cmocka_unit_test(test_nested_without_end),
		cmocka_unit_test(test_many_empty_messages),
		cmocka_unit_test(test_wrong_type_names_the_field),
		cmocka_unit_test(test_bytes_of_the_collector),
	};

	return cmocka_run_group_tests_name("otlp/decode", tests, NULL, NULL);
}
