// SPDX-License-Identifier: Apache-2.0
/*
 * Tests labels and records in the layouts of real programs, in this process's own memory.
 * bpf/trace_context.h reads them.
 */
#include "node/runtime/context/testcontext.h"

#include "node/runtime/context/context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define TRACE	 "0123456789abcdef0123456789abcdef"
#define SPAN	 "fedcba9876543210"
#define UNMAPPED 0x10

/* ---- Go ---- */

struct text {
	const char *s;
	uint64_t n;
};
struct label {
	struct text key, value;
};
struct slice {
	const struct label *items;
	uint64_t n, capacity;
};
struct bucket {
	uint8_t top[8];
	struct text keys[8], values[8];
	void *overflow;
};
struct map {
	uint64_t count;
	uint8_t flags, log2;
	uint16_t overflows;
	uint32_t seed;
	const struct bucket *buckets;
};
struct m {
	uint64_t pad[3];
	uint64_t curg;
};
struct g {
	uint64_t pad[2];
	uint64_t m, labels;
};
static struct thread {
	const void *record; /* OpenTelemetry's record */
	uint64_t g, pointer;
} thread;
static struct m m;
static struct g g, g0;

static struct label label(const char *key, const char *value)
{
	return (struct label){{key, strlen(key)}, {value, strlen(value)}};
}

static int read_labels(uint64_t labels, bool is_map)
{
	struct pf_golabels d = {.g = -8,
				.m = offsetof(struct g, m),
				.curg = offsetof(struct m, curg),
				.labels = offsetof(struct g, labels),
				.is_map = is_map};

	g = (struct g){.m = (uintptr_t)&m, .labels = labels};
	g0 = (struct g){.m = (uintptr_t)&m};
	m.curg = (uintptr_t)&g;
	/* the thread is on the system's stack, and m.curg is the same goroutine */
	thread.g = (uintptr_t)&g0;
	return host_context(getpid(), (uintptr_t)&thread.pointer, PF_RUNTIME_GOLABELS, &d,
			    sizeof(d));
}

static int read_slice(const struct label *items, size_t n)
{
	struct slice s = {items, n, n};

	return read_labels((uintptr_t)&s, false);
}

static void assert_ids(const char *trace, const char *span)
{
	static const char none[32];
	const struct pf_rec_context *c = &host.context;

	assert_int_equal(c->form, PF_IDS_HEX);
	assert_memory_equal(c->trace, trace ? trace : none, 32);
	assert_memory_equal(c->span, span ? span : none, 16);
}

static void every_name_of_an_id(void **state)
{
	static const char *const traces[] = {"trace_id", "traceid", "trace id"},
				 *const spans[] = {"span_id", "spanid", "span id", "profile_id"};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		for (size_t k = 0; k < 4; k++) {
			struct label l[] = {label("a", "b"), label(spans[k], SPAN),
					    label("span_name", "GET /"), label(traces[i], TRACE)};

			assert_int_equal(read_slice(l, 4), PF_CALL_FOUND);
			assert_ids(TRACE, SPAN);
			/* Grafana's otel-profiling-go sets only the span. */
			assert_int_equal(read_slice(l, 2), PF_CALL_FOUND);
			assert_ids(NULL, SPAN);
		}
	}
}

static void other_labels_are_none(void **state)
{
	struct label l[] = {label("trace_idx", TRACE), label("trace_id", SPAN),
			    label("span_id", TRACE),   label("traceId", TRACE),
			    label("profile_", SPAN),   label("span_id", "1234567890123456789"),
			    label("x", TRACE),	       label("", "")};

	(void)state;
	assert_int_equal(read_slice(l, 8), PF_CALL_NONE);
	assert_int_equal(read_slice(l, 0), PF_CALL_NONE);
	assert_int_equal(read_labels(0, false), PF_CALL_NONE);
	assert_int_equal(read_labels(0, true), PF_CALL_NONE);
}

static void so_many_labels_are_read(void **state)
{
	struct label l[17];

	(void)state;
	for (size_t i = 0; i < 17; i++)
		l[i] = label("a", "b");
	l[15] = label("trace_id", TRACE);
	l[16] = label("span_id", SPAN);
	assert_int_equal(read_slice(l, 17), PF_CALL_FOUND);
	assert_ids(TRACE, NULL);
	assert_true(host.labels.cut);
	assert_int_equal(read_slice(l, 16), PF_CALL_FOUND);
	assert_false(host.labels.cut);
	l[0] = l[16];
	assert_int_equal(read_slice(l, 17), PF_CALL_FOUND);
	assert_ids(TRACE, SPAN);
	assert_false(host.labels.cut); /* the two labels were read */
	l[0] = l[15] = label("a", "b");
	assert_int_equal(read_slice(l, 17), PF_CALL_NONE);
	assert_true(host.labels.cut);
	host.walk.known = false; /* the next sample is of another process */
	assert_int_equal(pf_call_context(&host), PF_CALL_NONE);
	assert_false(host.labels.cut);
	assert_int_equal(read_slice(l, 17), PF_CALL_NONE);
	assert_int_equal(read_labels(0, false), PF_CALL_NONE);
	assert_false(host.labels.cut);
}

static void maps_before_go_1_24(void **state)
{
	static struct bucket b[4];
	struct map h = {.count = 2, .buckets = b};
	const struct map *p = &h;

	(void)state;
	b[0].keys[3] = (struct text){"trace_id", 8};
	b[0].values[3] = (struct text){TRACE, 32};
	b[1].keys[7] = (struct text){"span_id", 7};
	b[1].values[7] = (struct text){SPAN, 16};
	assert_int_equal(read_labels((uintptr_t)&p, true), PF_CALL_FOUND);
	assert_ids(TRACE, NULL); /* only the first bucket has ids: those of the trace */
	h.log2 = 1;
	assert_int_equal(read_labels((uintptr_t)&p, true), PF_CALL_FOUND);
	assert_ids(TRACE, SPAN);
	assert_false(host.labels.cut);
	b[3].keys[0] = b[1].keys[7]; /* a third bucket and an overflow bucket are not read */
	b[3].values[0] = b[1].values[7];
	b[1].keys[7] = (struct text){0};
	h.log2 = 2;
	assert_int_equal(read_labels((uintptr_t)&p, true), PF_CALL_FOUND);
	assert_ids(TRACE, NULL);
	assert_true(host.labels.cut);
	h.log2 = 1;
	assert_int_equal(read_labels((uintptr_t)&p, true), PF_CALL_FOUND);
	assert_false(host.labels.cut);
	h.overflows = 1;
	assert_int_equal(read_labels((uintptr_t)&p, true), PF_CALL_FOUND);
	assert_true(host.labels.cut);
	h.buckets = (void *)UNMAPPED;
	assert_int_equal(read_labels((uintptr_t)&p, true), PF_CALL_UNREAD);
	p = (void *)UNMAPPED;
	assert_int_equal(read_labels((uintptr_t)&p, true), PF_CALL_UNREAD);
}

static void what_cannot_be_read_is_no_context(void **state)
{
	struct label l[] = {label("trace_id", TRACE), label("span_id", SPAN)};
	struct pf_golabels d = {.g = -8, .m = UNMAPPED};

	(void)state;
	assert_int_equal(read_labels(UNMAPPED, false), PF_CALL_UNREAD);
	assert_int_equal(read_slice((void *)UNMAPPED, 1), PF_CALL_UNREAD);
	l[0].key.s = (void *)UNMAPPED;
	assert_int_equal(read_slice(l, 2), PF_CALL_UNREAD);
	l[0] = label("trace_id", TRACE);
	l[1].value.s = (void *)UNMAPPED;
	assert_int_equal(read_slice(l, 2), PF_CALL_UNREAD);
	thread.g = 0; /* a thread of C, which has no g */
	assert_int_equal(host_context(getpid(), (uintptr_t)&thread.pointer, PF_RUNTIME_GOLABELS, &d,
				      sizeof(d)),
			 PF_CALL_NONE);
	assert_int_equal(host_context(getpid(), UNMAPPED, PF_RUNTIME_GOLABELS, &d, sizeof(d)),
			 PF_CALL_UNREAD);
}

static void a_hash_names_the_ids(void **state)
{
	struct label l[] = {label("trace_id", TRACE), label("span_id", SPAN)};
	char other[] = SPAN;
	uint64_t hash;

	(void)state;
	read_slice(l, 2);
	hash = pf_context_hash(&host, 1);
	read_slice(l, 2);
	assert_int_equal(pf_context_hash(&host, 1), hash);
	assert_int_not_equal(pf_context_hash(&host, 2), hash);
	other[15] = '1';
	l[1] = label("span_id", other);
	read_slice(l, 2);
	assert_int_not_equal(pf_context_hash(&host, 1), hash);
	assert_int_equal(read_slice(l, 1), PF_CALL_FOUND);
	assert_int_not_equal(pf_context_hash(&host, 1), hash);
}

/* ---- OpenTelemetry ---- */

struct record {
	uint8_t trace[16], span[8], valid, flags;
	uint16_t attributes;
};
static struct {
	const struct record *in_static; /* the record at offset -16 from the thread pointer */
	uint64_t pad, self;
	const uint64_t *dtv;
} control;

static int read_otel(const struct pf_otel *d)
{
	return host_context(getpid(), (uintptr_t)&control.self, PF_RUNTIME_OTEL, d, sizeof(*d));
}

static void a_valid_record_is_one(void **state)
{
	struct record r = {.trace = "0123456789abcde", .span = "1234567", .valid = 1};
	const struct pf_otel d = {.offset = -16};

	(void)state;
	control.in_static = &r;
	assert_int_equal(read_otel(&d), PF_CALL_FOUND);
	assert_int_equal(host.context.form, PF_IDS_BYTES);
	assert_memory_equal(host.context.trace, r.trace, 16);
	assert_memory_equal(host.context.span, r.span, 8);
	r.valid = 0;
	assert_int_equal(read_otel(&d), PF_CALL_NONE);
	r.valid = 2;
	assert_int_equal(read_otel(&d), PF_CALL_NONE);
	r.valid = 1;
	memset(r.span, 0, sizeof(r.span));
	assert_int_equal(read_otel(&d), PF_CALL_NONE);
	control.in_static = NULL;
	assert_int_equal(read_otel(&d), PF_CALL_NONE);
	control.in_static = (void *)UNMAPPED;
	assert_int_equal(read_otel(&d), PF_CALL_UNREAD);
}

/*
 * A thread with an OpenTelemetry record has ids, even if the Go part of the thread has too many
 * labels to read.
 */
static void a_record_behind_too_many_labels(void **state)
{
	struct record r = {.trace = "0123456789abcde", .span = "1234567", .valid = 1};
	const struct pf_otel d = {.offset = -16};
	struct label l[17];

	(void)state;
	for (size_t i = 0; i < 17; i++)
		l[i] = label("a", "b");
	assert_int_equal(read_slice(l, 17), PF_CALL_NONE);
	assert_true(host.labels.cut);
	memcpy(host_chunk + 512, &d, sizeof(d));
	host.walk.process.n_runtimes = 2;
	host.walk.process.runtimes[1] = (struct pf_runtime){PF_RUNTIME_OTEL, PF_REF(0, 512)};
	thread.record = &r;
	assert_int_equal(pf_call_context(&host), PF_CALL_FOUND);
	assert_memory_equal(host.context.trace, r.trace, 16);
	assert_false(host.labels.cut);
	r.valid = 0;
	assert_int_equal(pf_call_context(&host), PF_CALL_NONE);
	assert_true(host.labels.cut);
}

/* A module's block is found through the thread's DTV, which may be older than the module. */
static void blocks_of_modules(void **state)
{
	struct record r = {.trace = "0123456789abcde", .span = "1234567", .valid = 1};
	const struct record *block[2] = {NULL, &r};
	const struct pf_otel glibc = {8, 2, 16}, musl = {8, 2, 8};
	uint64_t vector[] = {2, 0, 0, 0, 0, 0, (uintptr_t)block, 0};
	uint64_t words[] = {2, 0, (uintptr_t)block};

	(void)state;
	control.dtv = vector + 2; /* dtv[-1] is the number of modules */
	assert_int_equal(read_otel(&glibc), PF_CALL_FOUND);
	vector[0] = 1;
	assert_int_equal(read_otel(&glibc), PF_CALL_NONE);
	vector[0] = 2;
	vector[6] = UINT64_MAX; /* TLS_DTV_UNALLOCATED */
	assert_int_equal(read_otel(&glibc), PF_CALL_NONE);
	vector[6] = UNMAPPED;
	assert_int_equal(read_otel(&glibc), PF_CALL_UNREAD);
	control.dtv = words;
	assert_int_equal(read_otel(&musl), PF_CALL_FOUND);
	words[0] = 1;
	assert_int_equal(read_otel(&musl), PF_CALL_NONE);
	control.dtv = (void *)UNMAPPED;
	assert_int_equal(read_otel(&musl), PF_CALL_UNREAD);
}

static void no_data_no_context(void **state)
{
	struct pf_walk *w = &host.walk;
	const struct pf_otel d = {.offset = -16};
	struct record r = {.trace = "0123456789abcde", .span = "1234567", .valid = 1};

	(void)state;
	control.in_static = &r;
	assert_int_equal(read_otel(&d), PF_CALL_FOUND);
	w->known = false;
	assert_int_equal(pf_call_context(&host), PF_CALL_NONE);
	w->known = true;
	w->process.runtimes[0].data = PF_REF(1, 0); /* no chunk has this number */
	assert_int_equal(pf_call_context(&host), PF_CALL_NONE);
	w->process.runtimes[2] = (struct pf_runtime){PF_RUNTIME_OTEL, PF_REF(0, 0)};
	assert_int_equal(pf_call_context(&host), PF_CALL_FOUND);
	w->process.runtimes[2].kind = PF_RUNTIME_PYTHON;
	assert_int_equal(pf_call_context(&host), PF_CALL_NONE);
}

/* ---- the Go version: all data of a program is 0, except the build information ---- */

#define BIAS 0x550000000000ull

struct go_data {
	struct memory memory;
	uint64_t info; /* address of the build information in the file */
	const char *version;
};

static int read_go_data(void *arg, uint64_t address, void *to, size_t n)
{
	const struct go_data *d = arg;
	size_t length = strlen(d->version), at = 32;
	uint8_t bytes[256] = "\xff Go buildinf:\x08\x02";

	if (length < 128) {
		bytes[at++] = (uint8_t)length;
	} else {
		bytes[at++] = (uint8_t)(length | 0x80);
		bytes[at++] = (uint8_t)(length >> 7);
	}
	memcpy(bytes + at, d->version, length);
	memset(to, 0, n);
	for (size_t i = 0; i < sizeof(bytes); i++)
		if (BIAS + d->info + i - address < n)
			((uint8_t *)to)[BIAS + d->info + i - address] = bytes[i];
	return 0;
}

#define DATA(at, bytes)                                                                            \
	{                                                                                          \
		.p_type = PT_LOAD, .p_flags = PF_R | PF_W, .p_vaddr = (at), .p_filesz = (bytes)    \
	}
#define RELRO(at, bytes)                                                                           \
	{                                                                                          \
		.p_type = PT_GNU_RELRO, .p_flags = PF_R, .p_vaddr = (at), .p_memsz = (bytes)       \
	}

/* Tests layouts of several linkers. In a PIE, the data that is only relocated may have many MiB. */
static void a_program_tells_which_go_it_was_built_with(void **state)
{
	static const struct {
		const char *what;
		Elf64_Phdr segments[3];
		size_t n;
		uint64_t info;
		/*
		 * the expected error if the program has no build information. -E2BIG: only a part
		 * was searched, so it may be in the rest
		 */
		int without;
	} cases[] = {
		{"Go's linker", {DATA(0x3cc9000, 0xf8100)}, 1, 0x3cc9000, -ENOENT},
		{"GNU ld", {DATA(0x3168c28, 0x87610)}, 1, 0x318dbc0, -ENOENT},
		{"GNU ld, PIE",
		 {DATA(0x2000d78, 0x900000), RELRO(0x2000d78, 0x700288)},
		 2,
		 0x2701040,
		 -E2BIG},
		{"lld",
		 {DATA(0x1086f00, 0xc401f0), RELRO(0x1086f00, 0xc41100), DATA(0x1cc8100, 0xa3c01)},
		 3,
		 0x1cfadc0,
		 -E2BIG},
		{"in what is relocated",
		 {DATA(0x2000d78, 0x900000), RELRO(0x2000d78, 0x700288)},
		 2,
		 0x2010000,
		 -E2BIG},
		{"behind 64 KiB", {DATA(0x3168c28, 0x87610)}, 1, 0x3178c20, -ENOENT},
		{"relocated elsewhere",
		 {DATA(0x3cc9000, 0xf8100), RELRO(0x100000, 0x1000)},
		 2,
		 0x3cc9010,
		 -ENOENT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct go_data d = {
			.memory = {.read = read_go_data, .arg = &d, .budget_bytes = MEMORY_BUDGET},
			.info = cases[i].info,
			.version = "go1.26.3"};
		struct loaded_elf e = {.memory = &d.memory, .bias = BIAS, .n = cases[i].n};
		char version[48];

		memcpy(e.segments, cases[i].segments, sizeof(cases[i].segments));
		print_message("%s\n", cases[i].what);
		assert_int_equal(runtime_go_version(&e, version, sizeof(version)), 0);
		assert_string_equal(version, "go1.26.3");
		d.info = 0x100;
		d.memory.budget_bytes = MEMORY_BUDGET;
		assert_int_equal(runtime_go_version(&e, version, sizeof(version)),
				 cases[i].without);
	}
}

/* Red Hat's versions also contain the version of the package, and each experiment of a build. */
static void a_version_may_be_long(void **state)
{
#define RED_HAT "go1.24.6 (Red Hat 1.24.6-1.el9_6)"
#define FORTY	"aliastypeparams,boringcrypto,synctest,x,"
	static const struct {
		const char *text, *version;
	} cases[] = {
		{"go1.18", "go1.18"},
		{RED_HAT, RED_HAT},
		{RED_HAT " X:strictfipsruntime", RED_HAT " X:strictfipsr"},
		{RED_HAT " X:" FORTY FORTY FORTY, RED_HAT " X:aliastypepa"},
		{"", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct go_data d = {
			.memory = {.read = read_go_data, .arg = &d, .budget_bytes = MEMORY_BUDGET},
			.info = 0x3cc9000,
			.version = cases[i].text};
		struct loaded_elf e = {.memory = &d.memory,
				       .bias = BIAS,
				       .segments = {DATA(0x3cc9000, 0xf8100)},
				       .n = 1};
		char version[48];

		assert_int_equal(runtime_go_version(&e, version, sizeof(version)), 0);
		assert_string_equal(version, cases[i].version);
	}
	assert_int_equal(runtime_go_minor(RED_HAT " X:strictfips"), 24);
}

/* A hostile program may claim any segments. The search reads at most a few MiB, and ends. */
static void segments_may_be_anything(void **state)
{
	static const struct {
		int result;
		Elf64_Phdr segments[2];
	} cases[] = {
		{-ENOENT, {DATA(0x1000, UINT64_MAX)}},
		{-ENOENT, {DATA(UINT64_MAX, UINT64_MAX)}},
		{-E2BIG, {DATA(0x1000, 1ull << 60), RELRO(0x1000, UINT64_MAX)}},
		{-E2BIG, {DATA(0x1000, 1ull << 60), RELRO(UINT64_MAX, 0x2000)}},
		{-ENOENT, {DATA(0x1000, 5), RELRO(0, 0x1003)}},
		{-E2BIG,
		 {DATA(0xffffffff00000000, 1ull << 31), RELRO(0xffffffff00000000, 1ull << 30)}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct go_data d = {
			.memory = {.read = read_go_data, .arg = &d, .budget_bytes = MEMORY_BUDGET},
			.version = ""};
		struct loaded_elf e = {.memory = &d.memory, .bias = BIAS, .n = 2};
		char version[48];

		memcpy(e.segments, cases[i].segments, sizeof(cases[i].segments));
		assert_int_equal(runtime_go_version(&e, version, sizeof(version)), cases[i].result);
		assert_true(d.memory.budget_bytes > MEMORY_BUDGET / 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_name_of_an_id),
		cmocka_unit_test(other_labels_are_none),
		cmocka_unit_test(so_many_labels_are_read),
		cmocka_unit_test(maps_before_go_1_24),
		cmocka_unit_test(what_cannot_be_read_is_no_context),
		cmocka_unit_test(a_hash_names_the_ids),
		cmocka_unit_test(a_valid_record_is_one),
		cmocka_unit_test(a_record_behind_too_many_labels),
		cmocka_unit_test(blocks_of_modules),
		cmocka_unit_test(no_data_no_context),
		cmocka_unit_test(a_program_tells_which_go_it_was_built_with),
		cmocka_unit_test(a_version_may_be_long),
		cmocka_unit_test(segments_may_be_anything),
	};

	return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
