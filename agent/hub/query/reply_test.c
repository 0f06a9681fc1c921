/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares replies byte by byte. The ids and numbers of the expected replies come from the
 * project's notes on DeepFlow, in which its Go algorithm was implemented again. The two ids of the
 * documentation's example "Total" come from DeepFlow itself.
 */
#include "hub/query/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define TESTDATA "agent/hub/query/testdata/"

/* A copy that stays until the program ends. */
static char *kept_text(const char *text)
{
	static struct kept {
		struct kept *next;
		char text[];
	} * all;
	size_t n = strlen(text) + 1;
	struct kept *k = xmalloc(sizeof(*k) + n);

	k->next = all;
	all = k;
	return memcpy(k->text, text, n);
}

/* Adds a row from its text form. The prefixes give the kinds of the frames. */
static void add(struct tree *t, const char *app, const char *text, int64_t value, int max_kernel)
{
	/* never freed, because a tree knows frames and names by their addresses */
	static struct frame frames[1 << 19];
	static const struct frame *list[600];
	static size_t n_frames;
	char *copy = kept_text(text);
	struct store_row row = {.app_service = app, .frames = list, .value = value, .n_samples = 1};
	char *save = NULL;

	for (char *s = strtok_r(copy, ";", &save); s; s = strtok_r(NULL, ";", &save)) {
		struct frame *f = &frames[n_frames++];

		assert_true(n_frames <= ARRAY_SIZE(frames));
		*f = (struct frame){.kind = FRAME_APP, .name = s};
		if (str_has_prefix(s, "[p] ") && streq(app, "Total")) {
			row.head.process_comm = s + 4;
			continue;
		}
		if (str_has_prefix(s, "[t] ") || str_has_prefix(s, "[p] ")) {
			row.head.thread_comm = s + 4;
			row.head.main_thread = s[1] == 'p';
			continue;
		}
		if (str_has_prefix(s, "[k] "))
			*f = (struct frame){.kind = FRAME_KERNEL, .name = s + 4};
		else if (str_has_prefix(s, "[l] "))
			*f = (struct frame){.kind = FRAME_LIBRARY, .name = s + 4};
		else if (str_has_prefix(s, "[unknown"))
			f->name = NULL;
		list[row.n_frames++] = f;
	}
	assert_int_equal(query_tree_add(t, &row, max_kernel), 0);
}

static struct tree *golden_tree(void)
{
	struct tree *t = query_tree_new(&query_deepflow_form);
	static const char *const rows[] = {
		"[t] worker;[unknown start_thread?];main_loop;[l] write;[k] do_syscall_64",
		"[t] worker;[unknown start_thread?];main_loop",
		"[p] api;main;main_loop",
	};

	add(t, "api", rows[0], 10101, -1);
	add(t, "api", rows[1], 20202, -1);
	add(t, "api", rows[2], 10101, -1);
	add(t, "api", rows[0], 10101, -1);
	/* n_unnamed counts samples, not rows: as if the second row had two samples */
	t->counts[0].n_unnamed = 4;
	return t;
}

static struct tracing_request request(enum result_format format, const char *app)
{
	static struct selection selection = {.event = EVENT_ON_CPU};

	return (struct tracing_request){.selection = &selection,
					.format = format,
					.max_kernel_stack_depth = -1,
					.app_service = (char *)app};
}

static json_t *reply_of(struct tree *t, struct tracing_request *r)
{
	struct store_summary s = {.n_rows = 1};
	size_t n = 0;
	int http = 0;
	_cleanup_free_ char *text = query_tracing_reply(t, r, &s, &http, &n);
	json_t *j = json_loads(text, 0, NULL);

	assert_non_null(j);
	assert_int_equal(n, strlen(text));
	return j;
}

static void golden(enum result_format format, const char *file)
{
	struct tracing_request r = request(format, "api");
	struct store_loss loss = {
		.reason = (char *)(uintptr_t) "ring_full", .n_samples = 3, .of_node = true};
	struct store_summary s = {.n_rows = 4,
				  .n_samples = 5,
				  .n_profiles = 2,
				  .first_s = 1700000000,
				  .last_s = 1700000009,
				  .losses = &loss,
				  .n_losses = 1};
	_cleanup_free_ char *want = NULL, *got = NULL;
	struct tree *t = golden_tree();
	int http = 0;
	size_t n;

	assert_int_equal(file_read(AT_FDCWD, file, 1 << 20, &want, NULL), 0);
	want[strlen(want) - 1] = '\0'; /* without the newline at the end of the file */
	got = query_tracing_reply(t, &r, &s, &http, &n);
	assert_string_equal(got, want);
	assert_int_equal(http, 200);
	query_tree_free(t);
}

static void golden_list(void **state)
{
	(void)state;
	golden(RESULT_LIST, TESTDATA "golden_list.json");
}

static void golden_flat(void **state)
{
	(void)state;
	golden(RESULT_FLAT, TESTDATA "golden_flat.json");
}

static const char *id_of(const json_t *reply, const char *name)
{
	const json_t *nodes = json_object_get(reply, "result");

	return json_str_at(json_with(nodes, "profile_location_str", name), "node_id", "none");
}

static void total_of_the_documentation(void **state)
{
	struct tracing_request r = request(RESULT_LIST, "Total");
	struct tree *t = query_tree_new(&query_deepflow_form);
	_cleanup_json_ json_t *j = NULL;

	(void)state;
	add(t, "Total", "[p] process-exporte", 2512, -1);
	add(t, "Total", "[p] deepflow-agent;[t] stats-collector", 33, -1);
	j = reply_of(t, &r);
	assert_string_equal(id_of(j, "[p] process-exporte"),
			    "9d3c5fd3-4cd2-5d04-be22-e0f27144f638");
	assert_string_equal(id_of(j, "[t] stats-collector"),
			    "99e8ce53-e3bf-5b33-a63d-aa47e00e2ff4");
	json_decref(j);
	r.format = RESULT_FLAT;
	j = reply_of(t, &r);
	assert_string_equal(
		json_string_value(json_array_get(
			json_object_get(json_object_get(j, "result"), "function_types"), 0)),
		"H");
	query_tree_free(t);
}

static void recursion_counts_once(void **state)
{
	struct tracing_request r = request(RESULT_FLAT, "api");
	struct tree *t = query_tree_new(&query_deepflow_form);
	_cleanup_json_ json_t *j = NULL;
	const json_t *values;

	(void)state;
	add(t, "api", "[t] w;f;g;f;f", 100, -1);
	j = reply_of(t, &r);
	/* the functions are: api, f, g, [t] w */
	values = json_at(j, "result.function_values.values");
	assert_int_equal(json_integer_value(json_array_get(json_array_get(values, 1), 0)), 100);
	assert_int_equal(json_integer_value(json_array_get(json_array_get(values, 1), 1)), 100);
	query_tree_free(t);
}

static void kernel_depth_keeps_n_frames(void **state)
{
	static const size_t want[] = {3, 4, 5, 5};

	(void)state;
	for (int depth = 0; depth < 4; depth++) {
		struct tracing_request r = request(RESULT_LIST, "api");
		struct tree *t = query_tree_new(&query_deepflow_form);
		_cleanup_json_ json_t *j = NULL;

		add(t, "api", "[t] w;main;[k] a;[k] b", 7, depth);
		j = reply_of(t, &r);
		assert_int_equal(json_array_size(json_object_get(j, "result")), want[depth]);
		query_tree_free(t);
	}
}

static const char *root_name(int n_apps, const char *asked)
{
	static char name[512];
	struct tree *t = query_tree_new(&query_deepflow_form);
	_cleanup_free_ char *got = NULL;

	for (int i = n_apps; i-- > 0;) {
		_cleanup_free_ char *app = xasprintf("app%02d", i);

		add(t, app, "[t] w;main", 1, -1);
		add(t, app, "[t] w;main", 1, -1);
	}
	got = query_tree_root_name(t, asked);
	snprintf(name, sizeof(name), "%s", got);
	query_tree_free(t);
	return name;
}

static void root_names(void **state)
{
	(void)state;
	assert_string_equal(root_name(3, "api"), "api");
	assert_string_equal(root_name(1, ""), "app00");
	assert_string_equal(root_name(3, ""), "app00, app01, app02");
	assert_string_equal(root_name(10, "") + 63, "app09");
	assert_string_equal(root_name(11, ""), "11 processes");
}

static void names_of_processes_have_a_limit(void **state)
{
	struct tracing_request r = request(RESULT_FLAT, "");
	struct tree *t = query_tree_new(&query_deepflow_form);
	_cleanup_json_ json_t *all = NULL, *cut = NULL;
	_cleanup_free_ char *name = NULL;
	char app[16];

	(void)state;
	for (int i = 0; i < TREE_MAX_APPS; i++) {
		snprintf(app, sizeof(app), "%06d", i);
		add(t, app, "main", 1, -1);
	}
	add(t, "000007", "main", 1, -1); /* an app_service that was added before */
	all = reply_of(t, &r);
	assert_int_equal(json_int_at(all, "summary.processes", 0), TREE_MAX_APPS);
	assert_false(json_bool_at(all, "summary.truncated", true));
	add(t, "another", "main", 1, -1);
	cut = reply_of(t, &r);
	assert_int_equal(json_int_at(cut, "summary.processes", 0), TREE_MAX_APPS);
	assert_true(json_bool_at(cut, "summary.truncated", false));
	name = query_tree_root_name(t, "");
	assert_string_equal(name, "more than 100000 processes");
	assert_int_equal(t->nodes[0].total, TREE_MAX_APPS + 2);
	query_tree_free(t);
}

static void empty_replies(void **state)
{
	struct store_summary s = {0};
	struct tree *t = query_tree_new(&query_deepflow_form);
	_cleanup_free_ char *list = NULL, *flat = NULL;
	struct tracing_request r = request(RESULT_LIST, "");
	int http = 0;
	size_t n;

	(void)state;
	list = query_tracing_reply(t, &r, &s, &http, &n);
	assert_true(str_has_prefix(list, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\","
					 "\"result\":null,\"debug\":null,"));
	assert_non_null(strstr(list, "no on-cpu profile is stored"));
	r.format = RESULT_FLAT;
	flat = query_tracing_reply(t, &r, &s, &http, &n);
	assert_non_null(strstr(flat, "\"result\":{\"functions\":null,\"function_types\":null,"
				     "\"function_values\":{\"columns\":null,\"values\":null},"
				     "\"node_values\":{\"columns\":null,\"values\":null}},"));
	query_tree_free(t);
}

static void bad_utf8_and_debug(void **state)
{
	struct tracing_request r = request(RESULT_LIST, "a\"b\n");
	struct tree *t = query_tree_new(&query_deepflow_form);
	_cleanup_json_ json_t *j = NULL;

	(void)state;
	r.debug = true;
	add(t, "x", "[t] w;bad\xff\xfename;\"q\"\\", 1, -1);
	j = reply_of(t, &r);
	assert_string_not_equal(id_of(j, "bad" UTF8_REPLACEMENT UTF8_REPLACEMENT "name"), "none");
	assert_string_not_equal(id_of(j, "\"q\"\\"), "none");
	assert_string_equal(id_of(j, "a\"b\n"), "");
	assert_int_equal(json_array_size(json_at(j, "debug.querier_debug")), 1);
	query_tree_free(t);
}

/*
 * There are more stacks than nodes. The smallest are left out, the total of the root stays right,
 * and the stacks that are left out take no memory.
 */
static void node_limit(void **state)
{
	struct tree *t = query_tree_new(&query_deepflow_form);
	char text[64];

	(void)state;
	for (int i = 0; i < QUERY_MAX_NODES + 100; i++) {
		snprintf(text, sizeof(text), "[t] w;f%d", i);
		add(t, "api", text, 1, -1);
	}
	assert_int_equal(t->n_nodes, QUERY_MAX_NODES);
	assert_int_equal(t->nodes[0].total, QUERY_MAX_NODES + 100);
	assert_int_equal(t->counts[0].n_cut_rows, 102);
	assert_int_equal(t->n_functions, QUERY_MAX_NODES); /* each node has its own function */
	add(t, "api", "[t] w;f0", 3, -1);
	assert_int_equal(t->counts[0].n_cut_rows, 102);
	/* the functions are in the tree, but the path is new */
	add(t, "api", "[t] w;f0;f1", 5, -1);
	assert_int_equal(t->counts[0].n_cut_rows, 103);
	assert_string_equal(t->functions[t->nodes[1].function].name, "f0");
	assert_int_equal(t->nodes[1].self, 4);
	assert_int_equal(t->nodes[1].total, 9);
	query_tree_free(t);
}

static void deep_stack(void **state)
{
	struct tracing_request r = request(RESULT_LIST, "api");
	_cleanup_buf_ struct buf b = {0};
	struct tree *t = query_tree_new(&query_deepflow_form);
	_cleanup_json_ json_t *j = NULL;

	(void)state;
	buf_puts(&b, "[t] w");
	for (int i = 0; i < 599; i++)
		buf_printf(&b, ";f%d", i);
	add(t, "api", b.data, INT64_MAX, -1);
	add(t, "api", b.data, INT64_MAX, -1); /* the sum stays at INT64_MAX */
	j = reply_of(t, &r);
	assert_int_equal(json_array_size(json_object_get(j, "result")), 601);
	assert_int_equal(t->nodes[0].total, INT64_MAX);
	query_tree_free(t);
}

/* Replaces uploaded symbols: returns two frames for build id "known". */
static size_t two_names(const struct frame *f, const char *ns, void *arg, const struct frame **ret)
{
	static const struct frame names[] = {
		{.kind = FRAME_APP, .name = "outer", .file = "o.c", .line = 7},
		{.kind = FRAME_APP, .name = "inner", .file = "o.c", .line = 3, .inlined = true}};

	(void)ns;
	++*(unsigned *)arg;
	*ret = names;
	return str_equal(f->build_id, "known") ? 2 : 0;
}

static void names_come_when_asked(void **state)
{
	const struct frame named = {.kind = FRAME_APP, .name = "main"};
	const struct frame known = {.kind = FRAME_APP, .module = "/bin/a", .build_id = "known"};
	const struct frame other = {.kind = FRAME_APP, .module = "/bin/b", .build_id = "other"};
	const struct frame *const first[] = {&known, &named}, *const second[] = {&named, &other};
	struct store_row row = {.app_service = "a", .frames = first, .n_frames = 2, .value = 1};
	_cleanup_buf_ struct buf b = {0};
	struct tree *t = query_tree_new(&query_deepflow_form);
	unsigned n_asked = 0;

	(void)state;
	row.n_samples = 5;
	query_tree_set_names(t, two_names, &n_asked);
	assert_int_equal(query_tree_add(t, &row, -1), 0);
	row.frames = second;
	row.n_samples = 7;
	assert_int_equal(query_tree_add(t, &row, -1), 0);
	assert_int_equal(n_asked, 2); /* fn was never called for a frame that has a name */
	assert_int_equal(t->n_functions, 5);
	assert_string_equal(t->functions[1].name, "main");
	assert_string_equal(t->functions[2].name, "inner");
	assert_string_equal(t->functions[3].name, "outer");
	assert_string_equal(t->functions[4].name, "[/bin/b]");
	assert_int_equal(t->counts[0].n_unnamed, 7);
	/* the paths are outer;inner;main and main;[/bin/b] */
	assert_int_equal(t->n_nodes, 6);
	assert_int_equal(t->nodes[t->nodes[1].parent].function, 2);
	query_put_sources(&b, t);
	assert_string_equal(b.data, ",\"sources\":{\"files\":[\"o.c\"],\"columns\":[\"file_id\","
				    "\"line\"],\"values\":[[-1,0],[-1,0],[0,3],[0,7],[-1,0]],"
				    "\"inlined_nodes\":[2]}");
	query_tree_free(t);
}

/*
 * The reply has the language of functions for which DeepFlow knows only the type "application". The
 * page colours functions by their language.
 */
static void languages_are_told(void **state)
{
	const struct frame java = {.kind = FRAME_JVM, .name = "a/B::c"};
	const struct frame python = {
		.kind = FRAME_PYTHON, .name = "m.f", .file = "m.py", .line = 9};
	const struct frame later = {.kind = FRAME_PYTHON, .name = "m.f", .file = "m.py", .line = 3};
	const struct frame native = {.kind = FRAME_APP, .name = "main"};
	const struct frame *const frames[] = {&native, &python, &later, &java};
	struct store_row row = {.app_service = "a", .frames = frames, .n_frames = 4, .value = 1};
	_cleanup_buf_ struct buf b = {0};
	struct tree *t = query_tree_new(&query_deepflow_form);

	(void)state;
	assert_int_equal(query_tree_add(t, &row, -1), 0);
	query_put_sources(&b, t);
	assert_string_equal(b.data,
			    ",\"sources\":{\"files\":[\"m.py\"],\"columns\":[\"file_id\","
			    "\"line\"],\"values\":[[-1,0],[-1,0],[0,3],[-1,0]],"
			    "\"inlined_nodes\":[],\"languages\":{\"jvm\":[1],\"python\":[2]}}");
	query_tree_free(t);
}

/*
 * Adds a row of an event besides on-CPU. frames: root first. The cause of the wait becomes the
 * leaf.
 */
static void add_row_of(struct tree *t, const struct frame *const *frames, size_t n, enum wait wait,
		       int64_t value, int max_kernel)
{
	struct store_row row = {
		.app_service = "api",
		.head = {.thread_comm = "w", .wait = wait},
		.frames = frames,
		.n_frames = n,
		.value = value,
		.n_samples = 1,
	};

	assert_int_equal(query_tree_add(t, &row, max_kernel), 0);
}

static char *answer(struct tree *t, enum event event, enum result_format format,
		    struct store_summary *s)
{
	struct selection selection = {.event = event};
	struct tracing_request r = request(format, "api");
	size_t n;
	int http;

	r.selection = &selection;
	return query_tracing_reply(t, &r, s, &http, &n);
}

#define ASSERT_HAS(text, part)                                                                     \
	do {                                                                                       \
		if (!strstr(text, part))                                                           \
			fail_msg("'%s' is not in %s", part, text);                                 \
	} while (0)

static const struct frame main_frame = {.kind = FRAME_APP, .name = "main"},
			  futex = {.kind = FRAME_KERNEL, .name = "futex"},
			  schedule = {.kind = FRAME_KERNEL, .name = "schedule"},
			  new_frame = {.kind = FRAME_LIBRARY, .name = "malloc"},
			  object = {.kind = FRAME_OBJECT, .name = "java/lang/String"};

/*
 * The cause of a wait is kept however many kernel frames above it are cut. Waits with different
 * causes have the same parent.
 */
static void waits_are_leaves(void **state)
{
	const struct frame *const frames[] = {&main_frame, &futex, &schedule};
	struct store_summary s = {.n_rows = 2, .n_samples = 2, .throttled_us = 42};

	(void)state;
	for (int depth = -1; depth < 2; depth++) {
		struct tree *t = query_tree_new(&query_deepflow_form);
		_cleanup_free_ char *flat = NULL, *list = NULL;

		add_row_of(t, frames, 3, WAIT_LOCK, 70, depth);
		add_row_of(t, frames, 3, WAIT_RUNQUEUE, 30, depth);
		flat = answer(t, EVENT_OFF_CPU, RESULT_FLAT, &s);
		list = answer(t, EVENT_OFF_CPU, RESULT_LIST, &s);
		if (depth < 0) {
			ASSERT_HAS(flat,
				   "{\"functions\":[\"api\",\"[wait: lock]\",\"[k] schedule\","
				   "\"[k] futex\",\"main\",\"[t] w\",\"[wait: runqueue]\"],"
				   "\"function_types\":[\"P\",\"?\",\"K\",\"K\",\"A\",\"T\","
				   "\"?\"]");
			ASSERT_HAS(flat, "\"languages\":{\"wait\":[1,6]}");
			ASSERT_HAS(flat, "\"incomplete_samples\":0,\"finished_percent\":100.00");
		}
		ASSERT_HAS(flat, "\"unit\":\"microseconds\"");
		ASSERT_HAS(flat, ",\"throttled_us\":42,");
		ASSERT_HAS(list, "{\"profile_location_str\":\"[wait: lock]\"");
		ASSERT_HAS(list, "\"self_value\":70,\"total_value\":70}");
		assert_int_equal(t->n_nodes, depth < 0 ? 7 : depth + 5);
		query_tree_free(t);
	}
}

/*
 * A stack with a marker frame is incomplete. The row [others] has a marker frame, too, but does not
 * count as incomplete.
 */
static void others_are_not_incomplete(void **state)
{
	static const struct frame others = {.kind = FRAME_MARKER, .name = STORE_OTHERS},
				  cut = {.kind = FRAME_MARKER, .name = "[truncated]"};
	const struct frame *const rows[][1] = {{&main_frame}, {&main_frame}, {&cut}, {&others}};
	struct store_summary s = {.n_rows = 3, .n_samples = 4, .truncated = true};
	_cleanup_free_ char *flat = NULL;
	struct tree *t = query_tree_new(&query_deepflow_form);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		add_row_of(t, rows[i], 1, WAIT_NONE, 10, -1);
	flat = answer(t, EVENT_ON_CPU, RESULT_FLAT, &s);
	ASSERT_HAS(flat, "\"incomplete_samples\":1,\"finished_percent\":75.00");
	query_tree_free(t);
}

/*
 * "C" is DeepFlow's letter for CUDA. A function of a CUDA library that has no name gets no letter.
 */
static void cuda_has_its_letter(void **state)
{
	static const struct frame named = {.kind = FRAME_CUDA, .name = "cuStreamSynchronize"},
				  unnamed = {.kind = FRAME_CUDA, .module = "/lib/libcuda.so.1"};
	const struct frame *const frames[] = {&main_frame, &named, &unnamed};
	struct store_summary s = {.n_rows = 1, .n_samples = 1};
	_cleanup_free_ char *flat = NULL;
	struct tree *t = query_tree_new(&query_deepflow_form);

	(void)state;
	add_row_of(t, frames, ARRAY_SIZE(frames), WAIT_NONE, 10, -1);
	flat = answer(t, EVENT_ON_CPU, RESULT_FLAT, &s);
	ASSERT_HAS(flat, "\"functions\":[\"api\",\"[/lib/libcuda.so.1]\","
			 "\"[c] cuStreamSynchronize\",\"main\",\"[t] w\"],"
			 "\"function_types\":[\"P\",\"?\",\"C\",\"A\",\"T\"]");
	query_tree_free(t);
}

static void bytes_are_of_objects(void **state)
{
	const struct frame *const c[] = {&main_frame, &new_frame};
	const struct frame *const java[] = {&main_frame, &object, &new_frame};
	struct store_summary s = {.n_rows = 2, .n_samples = 2};
	_cleanup_free_ char *alloc = NULL, *time = NULL;
	struct tree *t = query_tree_new(&query_deepflow_form);

	(void)state;
	add_row_of(t, c, 2, WAIT_NONE, 100, -1);
	add_row_of(t, java, 3, WAIT_NONE, 50, -1);
	alloc = answer(t, EVENT_MEM_ALLOC, RESULT_FLAT, &s);
	ASSERT_HAS(alloc,
		   "\"functions\":[\"api\",\"[l] malloc\",\"main\",\"[t] w\","
		   "\"java/lang/String\"],\"function_types\":[\"P\",\"O\",\"A\",\"T\",\"O\"]");
	ASSERT_HAS(alloc, "\"unit\":\"bytes\"");
	ASSERT_HAS(alloc, "\"languages\":{\"object\":[4]}");
	ASSERT_HAS(alloc, "\"notes\":[]");
	assert_null(strstr(alloc, "throttled_us"));
	assert_null(strstr(alloc, "estimated"));
	time = answer(t, EVENT_ON_CPU, RESULT_FLAT, &s);
	ASSERT_HAS(time, "\"function_types\":[\"P\",\"L\",\"A\",\"T\",\"O\"]");
	query_tree_free(t);
}

/* A user who asks for an event that is off gets a note about how to turn it on. */
static void an_empty_answer_says_how_there_is_more(void **state)
{
	static const struct {
		enum event event;
		const char *note;
	} cases[] = {
		{EVENT_ON_CPU, "no on-cpu profile is stored for this time, process and filter"},
		{EVENT_GOROUTINES, "no goroutines profile is stored for this time, process and "
				   "filter: programs must push it (docs/push.md), or a target ask "
				   "Go programs for it (docs/scrape.md)"},
		{EVENT_OFF_CPU, "no off-cpu profile is stored for this time, process and filter: a "
				"target must ask "
				"for offCpu, or the configuration of podflame local say "
				"static_config.ebpf.off-cpu-profile.disabled: false"},
		{EVENT_MEM_ALLOC, "no mem-alloc profile is stored for this time, process and "
				  "filter: a target must ask for memAlloc"},
	};
	struct store_summary none = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tree *t = query_tree_new(&query_deepflow_form);
		_cleanup_free_ char *said = answer(t, cases[i].event, RESULT_LIST, &none);
		_cleanup_free_ char *want = xasprintf("\"notes\":[\"%s\"]", cases[i].note);

		ASSERT_HAS(said, want);
		query_tree_free(t);
	}
}

static void snapshots_and_estimates_say_so(void **state)
{
	const struct frame *const frames[] = {&main_frame};
	struct store_summary some = {
		.n_rows = 1, .n_samples = 1, .estimate_ppm = 120000, .estimate_error = 345};
	struct store_summary none = {.n_profiles = 1};
	_cleanup_free_ char *full = NULL, *empty = NULL, *alloc = NULL;
	struct tree *t = query_tree_new(&query_deepflow_form),
		    *nothing = query_tree_new(&query_deepflow_form);

	(void)state;
	add_row_of(t, frames, 1, WAIT_NONE, 100, -1);
	full = answer(t, EVENT_MEM_INUSE, RESULT_FLAT, &some);
	ASSERT_HAS(full, "\"estimated\":{\"share\":0.12,\"error\":345}");
	ASSERT_HAS(full, "\"notes\":[\"live bytes as of the newest snapshot of each process\"]");
	empty = answer(nothing, EVENT_MEM_INUSE, RESULT_LIST, &none);
	ASSERT_HAS(empty, "\"result\":null");
	ASSERT_HAS(empty, "\"notes\":[\"nothing that was seen allocated is still in use\"]");
	alloc = answer(nothing, EVENT_HBM_ALLOC, RESULT_LIST, &none);
	ASSERT_HAS(alloc, "without samples: no process allocated memory of a GPU, or every");
	query_tree_free(t);
	query_tree_free(nothing);
}

/*
 * An answer for the send queue has a note that the other values of rdma are missing in it, unless
 * no profile of rdma is stored.
 */
static void the_rest_of_rdma_is_told(void **state)
{
	static const char note[] = "only requests for the send queue: receive requests and "
				   "registered memory are values of their own";
	const struct {
		uint64_t n_profiles;
		const char *told;
	} cases[] = {{1, note}, {0, "no rdma profile is stored"}};
	struct selection selection = {.event = EVENT_RDMA};
	struct tracing_request r = request(RESULT_LIST, "");
	struct tree *nothing = query_tree_new(&query_deepflow_form);

	(void)state;
	r.selection = &selection;
	r.send_queue_only = true;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct store_summary s = {.n_profiles = cases[i].n_profiles};
		_cleanup_free_ char *text = NULL;
		size_t n;
		int http;

		text = query_tracing_reply(nothing, &r, &s, &http, &n);
		ASSERT_HAS(text, cases[i].told);
	}
	query_tree_free(nothing);
}

/*
 * Groups by call leave out the samples outside of calls, and the answer says so, unless the filter
 * names a call.
 */
static void samples_outside_of_calls_are_told(void **state)
{
	static const char told[] = "the answer has only samples that were taken in a call, because "
				   "others have no ";
	static const struct {
		const char *group_by, *filter;
		bool told;
	} cases[] = {
		{"trace_id", "pod='a'", true},
		{"profile_id", "", true},
		{"pod", "", false},
		{"profile_id", "pod='a' AND trace_id='x'", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct selection selection = {.event = EVENT_ON_CPU, .group_by = cases[i].group_by};
		struct tracing_request r = request(RESULT_LIST, "");
		const struct store_summary found = {.n_rows = 1, .n_profiles = 1}, none = {0};
		char note[REPLY_NOTE_BYTES];
		struct field_error e;

		r.selection = &selection;
		assert_int_equal(query_filter_parse(cases[i].filter, &selection.where, &e), 0);
		query_reply_note(&r, &found, note);
		if (cases[i].told) {
			assert_true(str_has_prefix(note, told));
			assert_string_equal(note + strlen(told), cases[i].group_by);
			query_reply_note(&r, &none, note);
			assert_true(str_has_prefix(note, "no on-cpu profile is stored"));
			ASSERT_HAS(note, told);
		} else {
			assert_string_equal(note, "");
		}
		store_predicate_free(selection.where);
	}
}

static void unverified_profiles_are_told(void **state)
{
	struct selection selection = {.event = EVENT_ON_CPU};
	struct tracing_request r = request(RESULT_LIST, "");
	const struct store_summary s = {.n_rows = 1, .n_profiles = 3, .n_unverified = 2};
	char note[REPLY_NOTE_BYTES];

	(void)state;
	r.selection = &selection;
	query_reply_note(&r, &s, note);
	assert_string_equal(note, "2 profiles are of pods that the hub could not verify "
				  "(unverified = 'true')");
}

/* Of which namespaces of the selection older profiles were deleted, in a note and in a member. */
static void deleted_profiles_are_told(void **state)
{
	static struct store_cut cuts[] = {
		{.ns = (char *)"app", .until_s = 1700000099},
		{.cluster = (char *)"far", .until_s = 1700000009},
		{.unverified = true, .until_s = 1700000008},
		{.ns = (char *)"data", .until_s = 1700000007},
	};
	static const struct {
		const char *filter, *note, *last;
	} cases[] = {
		{"pod_ns='data' OR pod_ns='other'",
		 "the store was full, so profiles were deleted: those of pods that the hub could "
		 "not verify from before 2023-11-14T22:13:29Z, those of namespace data from before "
		 "2023-11-14T22:13:28Z",
		 "{\"cluster\":null,\"namespace\":\"data\",\"unverified\":false,\"until\":"
		 "1700000007}]"},
		{"pod='x'",
		 "the store was full, so profiles were deleted: those of namespace app from before "
		 "2023-11-14T22:15:00Z, those of no namespace in cluster far from before "
		 "2023-11-14T22:13:30Z, those of pods that the hub could not verify from before "
		 "2023-11-14T22:13:29Z, those of namespace data from before 2023-11-14T22:13:28Z",
		 "\"deleted\":[{\"cluster\":null,\"namespace\":\"app\",\"unverified\":false,"
		 "\"until\":1700000099},{\"cluster\":\"far\",\"namespace\":null,"},
	};
	const struct store_summary s = {.cuts = cuts, .n_cuts = ARRAY_SIZE(cuts)}, none = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct selection selection = {.event = EVENT_ON_CPU};
		struct tracing_request r = request(RESULT_LIST, "");
		_cleanup_free_ char *note = NULL;
		_cleanup_buf_ struct buf b = {0};
		struct field_error e;

		r.selection = &selection;
		assert_int_equal(query_filter_parse(cases[i].filter, &selection.where, &e), 0);
		note = query_deleted_note(&r, &s);
		assert_string_equal(note, cases[i].note);
		assert_null(query_deleted_note(&r, &none));
		query_put_deleted(&b, &r, &none);
		assert_int_equal(b.len, 0);
		query_put_deleted(&b, &r, &s);
		ASSERT_HAS(b.data, cases[i].last);
		store_predicate_free(selection.where);
	}
}

/* A row that has the longest possible stack and, as its leaf, the cause of a wait. */
static void deepest_wait(void **state)
{
	static const struct frame *frames[STACK_MAX_FRAMES];
	static struct frame all[STACK_MAX_FRAMES];
	static char names[STACK_MAX_FRAMES][8];
	struct store_summary s = {.n_rows = 1, .n_samples = 1};
	_cleanup_free_ char *list = NULL;
	struct tree *t = query_tree_new(&query_deepflow_form);

	(void)state;
	for (unsigned i = 0; i < STACK_MAX_FRAMES; i++) {
		snprintf(names[i], sizeof(names[i]), "f%u", i);
		all[i] = (struct frame){.kind = FRAME_APP, .name = names[i]};
		frames[i] = &all[i];
	}
	add_row_of(t, frames, STACK_MAX_FRAMES, WAIT_DISK, 1, -1);
	list = answer(t, EVENT_OFF_CPU, RESULT_LIST, &s);
	ASSERT_HAS(list, "f1023");
	ASSERT_HAS(list, "[wait: disk]");
	query_tree_free(t);
}

/*
 * Each frame of a stack of the maximum length stands for two functions, one of them inlined. The
 * tree has no levels for all of them, but the leaf must get its level.
 */
static void inlined_names_leave_room(void **state)
{
	static const struct frame unknown = {.kind = FRAME_APP, .build_id = "known"};
	static const struct frame leaf = {.kind = FRAME_APP, .name = "leaf"};
	static const struct frame *frames[STACK_MAX_FRAMES];
	struct store_row row = {
		.app_service = "a", .frames = frames, .n_frames = STACK_MAX_FRAMES, .value = 1};
	struct tree *t = query_tree_new(&query_deepflow_form);
	unsigned n_asked = 0;

	(void)state;
	for (size_t i = 0; i < STACK_MAX_FRAMES; i++)
		frames[i] = i + 1 < STACK_MAX_FRAMES ? &unknown : &leaf;
	query_tree_set_names(t, two_names, &n_asked);
	assert_int_equal(query_tree_add(t, &row, -1), 0);
	assert_int_equal(n_asked, STACK_MAX_FRAMES - 1);
	assert_string_equal(t->functions[1].name, "leaf");
	assert_int_equal(t->n_nodes, 1 + STACK_MAX_FRAMES + 3); /* a group has a level, too */
	query_tree_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_list),
		cmocka_unit_test(golden_flat),
		cmocka_unit_test(total_of_the_documentation),
		cmocka_unit_test(recursion_counts_once),
		cmocka_unit_test(kernel_depth_keeps_n_frames),
		cmocka_unit_test(root_names),
		cmocka_unit_test(names_of_processes_have_a_limit),
		cmocka_unit_test(empty_replies),
		cmocka_unit_test(bad_utf8_and_debug),
		cmocka_unit_test(node_limit),
		cmocka_unit_test(deep_stack),
		cmocka_unit_test(names_come_when_asked),
		cmocka_unit_test(languages_are_told),
		cmocka_unit_test(inlined_names_leave_room),
		cmocka_unit_test(waits_are_leaves),
		cmocka_unit_test(others_are_not_incomplete),
		cmocka_unit_test(cuda_has_its_letter),
		cmocka_unit_test(bytes_are_of_objects),
		cmocka_unit_test(an_empty_answer_says_how_there_is_more),
		cmocka_unit_test(snapshots_and_estimates_say_so),
		cmocka_unit_test(the_rest_of_rdma_is_told),
		cmocka_unit_test(samples_outside_of_calls_are_told),
		cmocka_unit_test(unverified_profiles_are_told),
		cmocka_unit_test(deleted_profiles_are_told),
		cmocka_unit_test(deepest_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
