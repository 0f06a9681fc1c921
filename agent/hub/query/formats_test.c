/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of each event, read by programs that others wrote: go tool pprof, go tool preprofile, and
 * protoc. FORMATS_DIR=DIR keeps the files, for e2e/formats/run.py.
 */
#include "hub/query/query.h"
#include "lib/base/testfolder.h"
#include "lib/base/testprogram.h"
#include "lib/otlp/otlp.h"

#define BEGIN_S	  1700000000
#define MEASURED  "estimated from 50 % of what happened"
#define MAIN_FILE "/src/main.cc"

/* ---- the files ---- */

/* The value of the first stack of an event, and of its second one: 2 and 1 samples. */
#define FIRST 2000000
#define REST  1000000

static const struct frame f_main = {.kind = FRAME_APP,
				    .name = "main",
				    .module = "/bin/web",
				    .build_id = "ab12",
				    .address = 0x1000,
				    .file = MAIN_FILE,
				    .line = 10};
static const struct frame f_call = {.kind = FRAME_APP,
				    .name = "shop::Cart<int>::price(long)",
				    .module = "/bin/web",
				    .build_id = "ab12",
				    .address = 0x2000,
				    .file = MAIN_FILE,
				    .line = 20};
static const struct frame f_inlined = {.kind = FRAME_APP,
				       .inlined = true,
				       .name = "shop::sum(long)",
				       .module = "/bin/web",
				       .build_id = "ab12",
				       .address = 0x2000,
				       .file = "/src/sum.h",
				       .line = 30};
static const struct frame f_lib = {.kind = FRAME_LIBRARY,
				   .name = "write",
				   .module = "/lib/libc.so.6",
				   .build_id = "cd34",
				   .address = 0x3000};
static const struct frame f_unnamed = {
	.kind = FRAME_APP, .module = "/bin/stripped", .build_id = "ef56", .address = 0x4321};
static const struct frame f_kernel = {
	.kind = FRAME_KERNEL, .name = "do_syscall_64", .module = "[kernel]"};

static void add(struct query_file *f, const char *group, const struct frame *const *frames,
		size_t n, int64_t value, uint64_t n_samples)
{
	const struct store_row row = {.app_service = "web",
				      .head = {.thread_comm = "worker"},
				      .group = group,
				      .frames = frames,
				      .n_frames = n,
				      .value = value,
				      .n_samples = n_samples};

	assert_int_equal(query_file_add(&row, f), 0);
}

/*
 * Writes the file of an event: a stack of each group. name: its path without an ending. Returns its
 * path, which the caller frees. group_by NULL: none.
 */
static char *make_grouped(enum event event, enum file_format format, const char *group_by,
			  const char *const groups[2], const char *name)
{
	static const char *const notes[] = {MEASURED};
	const struct file_format_info *info = query_file_format(format);
	const struct frame *first[] = {&f_main, &f_call, &f_inlined, &f_lib, &f_kernel};
	const struct frame *second[] = {&f_unnamed, &f_call, &f_inlined};
	const struct profile_file file = {
		.event = event, .notes = notes, .n_notes = ARRAY_SIZE(notes)};
	const struct selection sel = {.event = event,
				      .time_start_s = BEGIN_S,
				      .time_end_s = BEGIN_S + 59,
				      .group_by = group_by};
	struct query_file *f = query_file_new(&sel, NULL, NULL);
	_cleanup_buf_ struct buf plain = {0}, out = {0};
	char *path = xasprintf("%s.%s", name, info->ending);

	add(f, groups[0], first, ARRAY_SIZE(first), FIRST, 2);
	add(f, groups[1], second, ARRAY_SIZE(second), REST, 1);
	assert_int_equal(profile_write(info->writer, query_file_batch(f), &file, &plain), 0);
	if (info->flags & FILE_IS_GZIP)
		assert_int_equal(buf_add_gzip(&out, plain.data, plain.len, 6), 0);
	else
		assert_int_equal(buf_add(&out, plain.data, plain.len), 0);
	assert_int_equal(file_write_atomic(path, out.data, out.len, 0644), 0);
	query_file_free(f);
	return path;
}

static char *make_file(enum event event, enum file_format format)
{
	static const char *const groups[] = {"web-1", "web-1"};
	_cleanup_free_ char *name =
		xasprintf("%s/%s", getenv("FORMATS_DIR") ?: dir, profile_event_info(event)->name);

	return make_grouped(event, format, "pod", groups, name);
}

/* ---- the programs ---- */

/* Returns what a command of the shell prints; it must succeed. The caller frees the text. */
static char *said(const char *fmt, ...) _printf_(1, 2);
static char *said(const char *fmt, ...)
{
	struct buf text = {0};
	char command[1024], bytes[4096];
	va_list ap;
	FILE *p;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	p = popen(command, "re");
	assert_non_null(p);
	for (size_t n; (n = fread(bytes, 1, sizeof(bytes), p)) > 0;)
		buf_add(&text, bytes, n);
	if (pclose(p))
		fail_msg("%s: %s", command, buf_steal(&text));
	return buf_steal(&text);
}

static void assert_says(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

static bool has_pprof(void)
{
	static int known = -1;

	if (known < 0)
		known = program_here("go") && system("go tool pprof -h >/dev/null 2>&1") <= 512;
	return known;
}

/* The sum of both stacks, as pprof writes it: 3 s, or 3,000,000 bytes. */
static const char *sum_in(const char *unit)
{
	return streq(unit, "bytes") ? "of 2929.69kB total" : "of 3s total";
}

static void go_tool_pprof_reads_each_event(void **state)
{
	(void)state;
	if (!has_pprof())
		skip();
	for (enum event event = 0; event < _EVENT_MAX; event++) {
		const struct event_info *e = profile_event_info(event);
		_cleanup_free_ char *path = make_file(event, FILE_PPROF);
		_cleanup_free_ char *top = said("go tool pprof -top -symbolize=none %s 2>&1", path);
		_cleanup_free_ char *type = xasprintf("Type: %s\n", e->otlp_sample_type);

		assert_says(top, type);
		assert_says(top, "Duration: 60s, Total samples = ");
		assert_says(top, sum_in(e->unit));
		assert_says(top, MEASURED); /* the comment */
	}
}

static void go_tool_pprof_shows_all_of_it(void **state)
{
	static const char *const raw[] = {
		"Comment: " MEASURED "\n",
		"PeriodType: cpu nanoseconds\nPeriod: 1000000000\n", /* 3 s, 3 samples */
		"Time: 2023-11-14 22:13:20", "Duration: 1m0s\n",
		"samples/count on_cpu/microseconds[dflt]\n",
		"          2    2000000: 4 3 2 1 \n", /* the leaf first */
		"          1    1000000: 2 5 \n", "pod:[web-1] process:[web] thread:[worker]",
		/* the function, with its inlined one first; both have all of their names */
		"2: 0x2000 M=1 shop::sum(long) /src/sum.h:30:0 s=30()\n"
		"             shop::Cart<int>::price(long) " MAIN_FILE ":20:0 s=20()\n",
		"main " MAIN_FILE ":10:0 s=10\n", "[l] write :0:0 s=0(write)\n",
		"5: 0x4321 M=4 [/bin/stripped] :0:0 s=0()\n", "/bin/web ab12 [FN][FL][LN][IN]\n",
		"/lib/libc.so.6 cd34 [FN]\n",
		"/bin/stripped ef56 \n", /* pprof may look for its names */
	};
	_cleanup_free_ char *path = NULL, *text = NULL, *traces = NULL, *of_pod = NULL;

	(void)state;
	if (!has_pprof())
		skip();
	path = make_file(EVENT_ON_CPU, FILE_PPROF);
	text = said("TZ=UTC go tool pprof -raw -symbolize=none %s 2>&1", path);
	for (size_t i = 0; i < ARRAY_SIZE(raw); i++)
		assert_says(text, raw[i]);
	traces = said("go tool pprof -traces -symbolize=none %s 2>&1", path);
	assert_says(traces, "2s   [k] do_syscall_64\n"
			    "             [l] write\n"
			    "             shop::sum(long) (inline)\n"
			    "             shop::Cart<int>::price(long)\n"
			    "             main\n");
	of_pod = said("go tool pprof -top -symbolize=none -tagfocus pod=web-1 %s 2>&1", path);
	assert_says(of_pod, "Showing nodes accounting for 3s, 100% of 3s total");
}

/* Each tag of several ones is a label for itself. */
static void go_tool_pprof_tells_several_tags_apart(void **state)
{
	static const struct store_joined tags[] = {{"pod", NULL}, {"image", NULL}, {"zone", NULL}};
	static const char *const groups[] = {"\"web-1\",\"web:1\",null",
					     "\"web-1\",\"web:2\",\"b\""};
	_cleanup_free_ char *joint = store_join(tags, ARRAY_SIZE(tags)), *path = NULL;
	_cleanup_free_ char *name = xasprintf("%s/tags", dir), *shown = NULL, *of_image = NULL;

	(void)state;
	if (!has_pprof())
		skip();
	path = make_grouped(EVENT_ON_CPU, FILE_PPROF, joint, groups, name);
	shown = said("go tool pprof -tags -symbolize=none %s 2>&1", path);
	assert_says(shown, " pod: Total 3s of 3s (  100%)\n      3s (  100%): web-1\n");
	assert_says(shown, " image: Total 3s of 3s (  100%)\n        2s (66.67%): web:1\n"
			   "        1s (33.33%): web:2\n");
	assert_says(shown, " zone: Total 1s of 3s (33.33%)\n       1s (33.33%): b\n");
	of_image = said("go tool pprof -top -symbolize=none -tagfocus image=web:2 %s 2>&1", path);
	assert_says(of_image, "Showing nodes accounting for 1s, 33.33% of 3s total");
}

/* Go's compiler takes a file for optimization by profile; what of it works, docs/pprof.md says. */
static void go_tool_preprofile_reads_it(void **state)
{
	_cleanup_free_ char *path = NULL, *text = NULL;

	(void)state;
	if (!has_pprof())
		skip();
	path = make_file(EVENT_ON_CPU, FILE_PPROF);
	text = said("go tool preprofile -i %s 2>&1", path);
	assert_says(text, "GO PREPROFILE V1\n");
	assert_says(text, "shop::Cart<int>::price(long)\nshop::sum(long)\n0 1\n");
}

static unsigned n_of(const char *text, const char *part)
{
	unsigned n = 0;

	for (; (text = strstr(text, part)); text += strlen(part))
		n++;
	return n;
}

/* protoc knows nothing of us: each number of a field is that of OpenTelemetry's messages. */
static void protoc_reads_otlp_of_each_event(void **state)
{
	(void)state;
	if (!program_here("protoc"))
		skip();
	for (enum event event = 0; event < _EVENT_MAX; event++) {
		const struct event_info *e = profile_event_info(event);
		_cleanup_free_ char *path = make_file(event, FILE_OTLP);
		_cleanup_free_ char *raw = said("protoc --decode_raw <%s", path);
		_cleanup_free_ char *type = xasprintf("5: \"%s\"\n", e->otlp_sample_type);
		_cleanup_free_ char *unit = xasprintf("5: \"%s\"\n", e->unit);

		assert_says(raw, "\n  5: \"k8s.pod.name\"\n");
		assert_says(raw, type); /* ProfilesDictionary.string_table */
		assert_says(raw, unit);
		assert_says(raw, "1: \"" MEASURED "\"\n");
		assert_says(raw, "3: 0x17979cfe362a0000\n"); /* 1700000000 s */
		assert_says(raw, "4: 60000000000\n");
		assert_int_equal(n_of(raw, "\n        4: \""), 2); /* Sample.values */
	}
}

/* Another hub takes the file as what an agent sends. */
static void a_hub_reads_otlp(void **state)
{
	_cleanup_free_ char *path = make_file(EVENT_OFF_CPU, FILE_OTLP), *bytes = NULL;
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile *p;
	struct field_error e;
	size_t n;

	(void)state;
	assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &bytes, &n), 0);
	assert_int_equal(otlp_decode(bytes, n, &b, &e), 0);
	assert_int_equal(b->n_profiles, 1);
	p = b->profiles[0];
	assert_int_equal(p->event, EVENT_OFF_CPU);
	assert_string_equal(p->app_service, "web");
	assert_string_equal(profile_tag_get(p, "pod"), "web-1");
	assert_int_equal(p->start_ns, BEGIN_S * NSEC_PER_SEC);
	assert_int_equal(p->end_ns, (BEGIN_S + 60) * NSEC_PER_SEC);
	assert_int_equal(p->n_samples, 2);
	assert_int_equal(p->samples[0].value, FIRST);
	assert_int_equal(p->samples[0].n_samples, 2);
	assert_string_equal(p->samples[0].thread_comm, "worker");
	assert_int_equal(b->stacks[p->samples[0].stack].n, 5);
	assert_true(b->stacks[p->samples[0].stack].frames[2]->inlined);
}

static char *read_all(const char *path)
{
	char *text = NULL;
	size_t n;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &text, &n), 0);
	return text;
}

/* Both show all names, and speedscope's importer reads the file in e2e/formats/run.py. */
static void folded_and_speedscope_of_each_event(void **state)
{
	(void)state;
	for (enum event event = 0; event < _EVENT_MAX; event++) {
		const struct event_info *e = profile_event_info(event);
		_cleanup_free_ char *folded = make_file(event, FILE_FOLDED);
		_cleanup_free_ char *speedscope = make_file(event, FILE_SPEEDSCOPE);
		_cleanup_free_ char *lines = read_all(folded), *json = read_all(speedscope);
		_cleanup_free_ char *unit = xasprintf("\"unit\":\"%s\"", e->unit);
		_cleanup_free_ char *name = xasprintf("\"name\":\"%s: %s\"", e->name, MEASURED);

		assert_string_equal(
			lines, "web;[t] worker;[/bin/stripped];shop::Cart<int>::price(long);"
			       "shop::sum(long) 1000000\n"
			       "web;[t] worker;main;shop::Cart<int>::price(long);shop::sum(long);"
			       "[l] write;[k] do_syscall_64 2000000\n");
		assert_says(json, name);
		assert_says(json, unit);
		assert_says(json, "\"endValue\":3000000");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(go_tool_pprof_reads_each_event),
		cmocka_unit_test(go_tool_pprof_shows_all_of_it),
		cmocka_unit_test(go_tool_pprof_tells_several_tags_apart),
		cmocka_unit_test(go_tool_preprofile_reads_it),
		cmocka_unit_test(protoc_reads_otlp_of_each_event),
		cmocka_unit_test(a_hub_reads_otlp),
		cmocka_unit_test(folded_and_speedscope_of_each_event),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
