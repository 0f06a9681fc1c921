/* SPDX-License-Identifier: Apache-2.0 */
/* Replies as columns: what is one function, differences, groups, and what did not fit. */
#include "hub/query/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct frame f_main = {.kind = FRAME_APP, .name = "main", .module = "/bin/web"};
static const struct frame f_read = {
	.kind = FRAME_LIBRARY, .name = "read", .module = "/lib/libc.so", .file = "r.c", .line = 7};
static const struct frame f_other_read = {
	.kind = FRAME_APP, .name = "read", .module = "/bin/web", .file = "w.c", .line = 9};
static const struct frame f_later_line = {
	.kind = FRAME_APP, .name = "read", .module = "/bin/web", .file = "w.c", .line = 10};
static const struct frame f_unnamed = {.kind = FRAME_APP, .module = "/bin/web", .address = 16};
static const struct frame f_kernel = {.kind = FRAME_KERNEL, .address = 0x20};

struct test {
	struct tree *tree;
	struct tree_query query;
	json_t *reply;
	bool preview;
};

static void begin(struct test *t, const struct tree_form *form)
{
	*t = (struct test){.tree = query_tree_new(form)};
	t->query.tracing.selection = xcalloc(1, sizeof(struct selection));
	t->query.tracing.app_service = xstrdup("web");
}

static void add(struct test *t, const char *group, const struct frame *leaf, int64_t value)
{
	const struct frame *frames[] = {&f_main, leaf};
	const struct store_row row = {.app_service = "web",
				      .head = {.thread_comm = "worker"},
				      .group = group,
				      .frames = frames,
				      .n_frames = 2,
				      .value = value,
				      .n_samples = (uint64_t)value / 10};

	assert_int_equal(query_tree_add(t->tree, &row, -1), 0);
}

/* Makes the reply, and keeps its result. */
static void finish(struct test *t)
{
	const struct store_summary s = {.n_rows = 1};
	size_t n;
	int http;
	_cleanup_free_ char *text = query_columns_reply(
		t->tree, &t->query, &s, t->tree->before ? &s : NULL, t->preview, &http, &n);
	_cleanup_json_ json_t *all = json_loadb(text, n, 0, NULL);

	assert_int_equal(http, 200);
	t->reply = json_incref(json_object_get(all, "result"));
	assert_non_null(t->reply);
}

static void end(struct test *t)
{
	json_decref(t->reply);
	query_tree_free(t->tree);
	query_tree_query_done(&t->query);
}

static int64_t number(const json_t *reply, const char *list, const char *column, size_t i)
{
	return json_integer_value(
		json_array_get(json_object_get(json_object_get(reply, list), column), i));
}

static const char *string(const json_t *reply, int64_t i)
{
	return i < 0 ? "-"
		     : json_string_value(
			       json_array_get(json_object_get(reply, "strings"), (size_t)i));
}

/* Each node as "DEPTH KIND NAME module SELF/SAMPLES", with a difference "(BEFORE/SAMPLES)". */
static char *nodes(const struct test *t)
{
	const json_t *r = t->reply, *kinds = json_object_get(r, "kinds");
	size_t n = json_array_size(json_object_get(json_object_get(r, "nodes"), "self"));
	struct buf b = {0};

	for (size_t i = 0; i < n; i++) {
		size_t f = (size_t)number(r, "nodes", "function", i);
		size_t kind = (size_t)number(r, "functions", "kind", f);

		buf_printf(&b, "%lld %s %s %s %lld/%lld", (long long)number(r, "nodes", "depth", i),
			   json_string_value(json_array_get(kinds, kind)),
			   string(r, number(r, "functions", "name", f)),
			   string(r, number(r, "functions", "module", f)),
			   (long long)number(r, "nodes", "self", i),
			   (long long)number(r, "nodes", "samples", i));
		if (t->tree->before)
			buf_printf(&b, " (%lld/%lld)", (long long)number(r, "nodes", "before", i),
				   (long long)number(r, "nodes", "before_samples", i));
		buf_puts(&b, "\n");
	}
	return buf_steal(&b);
}

static void assert_nodes(struct test *t, const char *expected)
{
	_cleanup_free_ char *got = NULL;

	finish(t);
	got = nodes(t);
	assert_string_equal(got, expected);
	end(t);
}

/* Functions of one name are two if their module or kind differs; lines count if asked for. */
static void what_is_one_function(void **state)
{
	struct tree_form form = {.columns = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	add(&t, NULL, &f_read, 100);
	add(&t, NULL, &f_other_read, 50);
	add(&t, NULL, &f_later_line, 40);
	add(&t, NULL, &f_unnamed, 30);
	add(&t, NULL, &f_kernel, 20);
	assert_nodes(&t, "0 root web - 0/0\n"
			 "1 thread worker - 0/0\n"
			 "2 app main /bin/web 0/0\n"
			 "3 library read /lib/libc.so 100/10\n"
			 "3 app read /bin/web 90/9\n"
			 "3 unnamed [/bin/web] /bin/web 30/3\n"
			 "3 unnamed [unknown] 0x0000000000000020 - 20/2\n");
	form.by_line = true;
	begin(&t, &form);
	add(&t, NULL, &f_other_read, 50);
	add(&t, NULL, &f_later_line, 40);
	finish(&t);
	assert_int_equal(number(t.reply, "nodes", "self", 3), 50);
	assert_int_equal(number(t.reply, "functions", "line",
				(size_t)number(t.reply, "nodes", "function", 3)),
			 9);
	assert_int_equal(number(t.reply, "functions", "line",
				(size_t)number(t.reply, "nodes", "function", 4)),
			 10);
	end(&t);
}

/* Names that say where a function without a name begins. */
static size_t start_names(const struct frame *f, const char *ns, void *arg,
			  const struct frame **ret)
{
	(void)ns, (void)arg;
	*ret = f + 1; /* the tests have it behind the frame */
	return 1;
}

#define IN_Z(address_, build_id_, name_)                                                           \
	{                                                                                          \
		.kind = FRAME_LIBRARY, .module = "/lib/z.so", .build_id = (build_id_),             \
		.address = (address_), .start = 16, .name = (name_)                                \
	}
#define UNNAMED(address, build_id)                                                                 \
	{                                                                                          \
		IN_Z(address, build_id, NULL), IN_Z(address, build_id, "z.so+0x10")                \
	}

/* Of two builds of a file, different functions may begin at the same place. */
static void functions_without_a_name_are_told_apart(void **state)
{
	static const struct frame one[] = UNNAMED(17, "ab"), same[] = UNNAMED(18, "ab"),
				  other[] = UNNAMED(17, "cd");
	struct tree_form form = {.columns = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	query_tree_set_names(t.tree, start_names, NULL);
	add(&t, NULL, one, 30);
	add(&t, NULL, same, 20);
	add(&t, NULL, other, 10);
	assert_int_equal(t.tree->counts[0].n_unnamed, 6);
	assert_nodes(&t, "0 root web - 0/0\n1 thread worker - 0/0\n2 app main /bin/web 0/0\n"
			 "3 unnamed z.so+0x10 /lib/z.so 50/5\n"
			 "3 unnamed z.so+0x10 /lib/z.so 10/1\n");
}

/* Nodes of both selections are there, sorted by both totals. */
static void differences(void **state)
{
	const struct tree_form form = {.columns = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	add(&t, NULL, &f_read, 100);
	t.query.before.selection = xcalloc(1, sizeof(struct selection));
	query_tree_before(t.tree);
	add(&t, NULL, &f_other_read, 150);
	add(&t, NULL, &f_read, 10);
	assert_nodes(&t, "0 root web - 0/0 (0/0)\n"
			 "1 thread worker - 0/0 (0/0)\n"
			 "2 app main /bin/web 0/0 (0/0)\n"
			 "3 app read /bin/web 0/0 (150/15)\n"
			 "3 library read /lib/libc.so 100/10 (10/1)\n");
}

static void groups(void **state)
{
	const struct tree_form form = {.columns = true, .grouped = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	add(&t, "web-1", &f_read, 100);
	add(&t, NULL, &f_read, 10);
	assert_nodes(&t, "0 root web - 0/0\n"
			 "1 group web-1 - 0/0\n"
			 "2 thread worker - 0/0\n"
			 "3 app main /bin/web 0/0\n"
			 "4 library read /lib/libc.so 100/10\n"
			 "1 group  - 0/0\n"
			 "2 thread worker - 0/0\n"
			 "3 app main /bin/web 0/0\n"
			 "4 library read /lib/libc.so 10/1\n");
}

static void add_thread(struct test *t, const char *process, const char *thread, bool is_main)
{
	const struct frame *frames[] = {&f_main};
	const struct store_row row = {.app_service = process,
				      .head = {.thread_comm = thread, .main_thread = is_main},
				      .frames = frames,
				      .n_frames = 1,
				      .value = 10,
				      .n_samples = 1};

	assert_int_equal(query_tree_add(t->tree, &row, -1), 0);
}

/* Of several processes, each thread is below its process, and a main thread is its process. */
static void threads_are_below_their_process(void **state)
{
	const struct tree_form form = {.columns = true, .by_process = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	add_thread(&t, "java", "java", true);
	add_thread(&t, "java", "HTTP-Dispatcher", false);
	add_thread(&t, "postgres", "checkpointer", true);
	add_thread(&t, "redis", NULL, false);
	assert_nodes(&t, "0 root web - 0/0\n"
			 "1 process java - 0/0\n"
			 "2 thread HTTP-Dispatcher - 0/0\n"
			 "3 app main /bin/web 10/1\n"
			 "2 app main /bin/web 10/1\n"
			 "1 process postgres - 0/0\n"
			 "2 thread checkpointer - 0/0\n"
			 "3 app main /bin/web 10/1\n"
			 "1 process redis - 0/0\n"
			 "2 app main /bin/web 10/1\n");
}

/* What did not fit is a marker in its place, so that the sums are right. */
static void what_does_not_fit(void **state)
{
	const struct tree_form form = {.columns = true, .max_nodes = 4};
	struct test t;

	(void)state;
	begin(&t, &form);
	add(&t, NULL, &f_read, 100);
	add(&t, NULL, &f_other_read, 50);
	add(&t, NULL, &f_unnamed, 30);
	assert_nodes(&t, "0 root web - 0/0\n"
			 "1 thread worker - 0/0\n"
			 "2 app main /bin/web 0/0\n"
			 "3 marker [smaller stacks] - 80/0\n"
			 "3 library read /lib/libc.so 100/10\n");
}

/* A preview lacks what is less than a part in 1,000 of the whole, which a marker has. */
static void previews(void **state)
{
	const struct tree_form form = {.columns = true, .preview = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	add(&t, NULL, &f_read, 998010);
	add(&t, NULL, &f_other_read, 1000); /* as small as a node of it may be */
	add(&t, NULL, &f_unnamed, 990);
	t.preview = true;
	assert_nodes(&t, "0 root web - 0/0\n"
			 "1 thread worker - 0/0\n"
			 "2 app main /bin/web 0/0\n"
			 "3 marker [smaller stacks] - 990/0\n"
			 "3 library read /lib/libc.so 998010/99801\n"
			 "3 app read /bin/web 1000/100\n");
}

/* The whole is the same with a preview before it as without one, and rows may come after both. */
static void a_preview_changes_nothing(void **state)
{
	_cleanup_free_ char *without = NULL, *with = NULL;
	struct test t;

	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct tree_form form = {.columns = true, .preview = i > 0, .max_nodes = 100};

		begin(&t, &form);
		add(&t, NULL, &f_read, 100000);
		add(&t, NULL, &f_unnamed, 10);
		t.preview = i > 0;
		if (t.preview) {
			finish(&t);
			json_decref(t.reply);
			t.preview = false;
		}
		finish(&t);
		*(i ? &with : &without) = nodes(&t);
		if (i == 0)
			end(&t);
	}
	assert_string_equal(without, with);
	json_decref(t.reply);
	add(&t, NULL, &f_other_read, 200000);
	assert_nodes(&t, "0 root web - 0/0\n"
			 "1 thread worker - 0/0\n"
			 "2 app main /bin/web 0/0\n"
			 "3 app read /bin/web 200000/20000\n"
			 "3 library read /lib/libc.so 100000/10000\n"
			 "3 unnamed [/bin/web] /bin/web 10/1\n");
}

/*
 * The nodes of the whole that a preview of it should have, in the form of nodes(): those of at
 * least a part in 1,000, each followed by what is left out below it.
 */
static char *large_nodes(const struct test *t)
{
	const json_t *r = t->reply, *kinds = json_object_get(r, "kinds");
	size_t n = json_array_size(json_object_get(json_object_get(r, "nodes"), "self"));
	_cleanup_free_ int64_t *totals = xcalloc(n + 1, sizeof(*totals));
	_cleanup_free_ int64_t *missing = xcalloc(n + 1, sizeof(*missing));
	int64_t path[TREE_MAX_DEPTH + 1] = {0};
	struct buf b = {0};

	/* the totals, and of each node the children that are too small */
	for (size_t i = 0; i < n; i++) {
		size_t depth = (size_t)number(r, "nodes", "depth", i);

		path[depth] = (int64_t)i;
		for (size_t d = 0; d <= depth; d++)
			totals[path[d]] += number(r, "nodes", "self", i);
	}
	for (size_t i = 0; i < n; i++) {
		size_t depth = (size_t)number(r, "nodes", "depth", i);

		path[depth] = (int64_t)i;
		if (depth && totals[i] < totals[0] / 1000)
			missing[path[depth - 1]] += totals[i];
	}
	for (size_t i = 0; i < n; i++) {
		size_t f = (size_t)number(r, "nodes", "function", i);
		size_t kind = (size_t)number(r, "functions", "kind", f);
		long long depth = (long long)number(r, "nodes", "depth", i);

		if (totals[i] < totals[0] / 1000)
			continue;
		buf_printf(&b, "%lld %s %s %s %lld/%lld\n", depth,
			   json_string_value(json_array_get(kinds, kind)),
			   string(r, number(r, "functions", "name", f)),
			   string(r, number(r, "functions", "module", f)),
			   (long long)number(r, "nodes", "self", i),
			   (long long)number(r, "nodes", "samples", i));
		if (missing[i])
			buf_printf(&b, "%lld marker [smaller stacks] - %lld/0\n", depth + 1,
				   (long long)missing[i]);
	}
	return buf_steal(&b);
}

/* Adds stacks of few functions, so that they share many nodes. */
static void add_stacks(struct test *t)
{
	enum { NAMES = 5, STACKS = 3000, DEPTH = 12 };
	static struct frame frames[NAMES];
	unsigned seed = 1;

	for (unsigned i = 0; i < NAMES; i++)
		frames[i] = (struct frame){.kind = FRAME_APP,
					   .name = (const char *[]){"a", "b", "c", "d", "e"}[i],
					   .file = "f.c",
					   .line = i};
	for (int i = 0; i < STACKS; i++) {
		static const char *const groups[] = {"g", "h", NULL};
		const struct frame *stack[DEPTH];
		struct store_row row = {.app_service = i % 3 ? "web" : "api",
					.group = groups[i % 3],
					.head = {.thread_comm = i % 2 ? "worker" : "main"},
					.frames = stack,
					.n_frames = (size_t)rand_r(&seed) % (DEPTH + 1),
					.value = 100 * STACKS / (i + 1),
					.n_samples = 1};

		for (size_t d = 0; d < row.n_frames; d++)
			stack[d] = &frames[rand_r(&seed) % (d < 3 ? 2 : NAMES)];
		assert_int_equal(query_tree_add(t->tree, &row, -1), 0);
	}
}

/* A preview has exactly the large nodes of the whole, with the same values. */
static void a_preview_has_all_large_nodes(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		const struct tree_form form = {.columns = true,
					       .preview = true,
					       .grouped = i & 1,
					       .by_process = i & 2,
					       .by_line = i & 4,
					       .max_nodes = 1000000};
		_cleanup_free_ char *preview = NULL, *large = NULL;
		struct test t;

		begin(&t, &form);
		add_stacks(&t);
		t.preview = true;
		finish(&t);
		preview = nodes(&t);
		json_decref(t.reply);
		t.preview = false;
		finish(&t);
		large = large_nodes(&t);
		assert_true(strlen(large) > 1000);
		assert_string_equal(preview, large);
		end(&t);
	}
}

/* Of too many stacks there is no preview, and each counts once. */
static void too_many_stacks_for_a_preview(void **state)
{
	enum { MOST = 1 << 20 };
	const struct tree_form form = {.columns = true, .preview = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	for (int i = 0; i < MOST; i++)
		add(&t, NULL, &f_read, 10);
	assert_true(query_columns_has_preview(t.tree));
	add(&t, NULL, &f_read, 10);
	assert_false(query_columns_has_preview(t.tree));
	add(&t, NULL, &f_read, 10);
	assert_nodes(&t, "0 root web - 0/0\n"
			 "1 thread worker - 0/0\n"
			 "2 app main /bin/web 0/0\n"
			 "3 library read /lib/libc.so 10485780/1048578\n");
}

/* How much of a function each group has, with and without its kind; groups beyond the limit. */
static void a_function_by_group(void **state)
{
	const struct tree_form form = {.columns = true, .grouped = true, .max_nodes = 100};
	struct groups_query q = {.function = (char *)(uintptr_t) "read", .limit = 2};
	const struct store_summary s = {.n_rows = 1};
	_cleanup_free_ char *both = NULL, *library = NULL, *whole = NULL;
	struct test t;
	size_t n;

	(void)state;
	begin(&t, &form);
	q.tree.tracing = t.query.tracing;
	add(&t, "a", &f_read, 100);
	add(&t, "a", &f_unnamed, 500);
	add(&t, "b", &f_other_read, 200);
	add(&t, "c", &f_read, 50);
	add(&t, "read", &f_unnamed, 10); /* a group of the same name is no function */
	both = query_groups_reply(t.tree, &q, &s, &n);
	assert_non_null(strstr(both, "\"groups\":[{\"value\":\"b\",\"total\":200,\"samples\":20,"
				     "\"function_total\":200,\"function_samples\":20},"
				     "{\"value\":\"a\",\"total\":600,\"samples\":60,"
				     "\"function_total\":100,\"function_samples\":10}],"
				     "\"total\":860,\"samples\":86,"
				     "\"function_total\":350,\"function_samples\":35,"
				     "\"others\":{\"groups\":2,\"total\":60,\"samples\":6,"
				     "\"function_total\":50,\"function_samples\":5}}"));
	q.kind = (char *)(uintptr_t) "library";
	library = query_groups_reply(t.tree, &q, &s, &n);
	assert_non_null(strstr(library, "\"groups\":[{\"value\":\"a\",\"total\":600,\"samples\":60,"
					"\"function_total\":100,\"function_samples\":10},"
					"{\"value\":\"c\",\"total\":50,\"samples\":5,"
					"\"function_total\":50,\"function_samples\":5}]"));
	q.function = NULL;
	whole = query_groups_reply(t.tree, &q, &s, &n);
	assert_non_null(strstr(
		whole, "\"groups\":[{\"value\":\"a\",\"total\":600,\"samples\":60},"
		       "{\"value\":\"b\",\"total\":200,\"samples\":20}],\"total\":860,"
		       "\"samples\":86,\"others\":{\"groups\":2,\"total\":60,\"samples\":6}"));
	end(&t);
}

/* A recursive function counts once in each stack. */
static void a_recursive_function_by_group(void **state)
{
	const struct tree_form form = {.columns = true, .grouped = true, .max_nodes = 100};
	struct groups_query q = {.function = (char *)(uintptr_t) "main", .limit = 9};
	const struct store_summary s = {.n_rows = 1};
	_cleanup_free_ char *got = NULL;
	struct test t;
	size_t n;

	(void)state;
	begin(&t, &form);
	q.tree.tracing = t.query.tracing;
	add(&t, "a", &f_main, 100);
	got = query_groups_reply(t.tree, &q, &s, &n);
	assert_non_null(strstr(got, "\"total\":100,\"samples\":10,\"function_total\":100,"
				    "\"function_samples\":10}"));
	end(&t);
}

/* The smallest stacks belong to no group. Sums stay the largest number. */
static void others_and_large_values_by_group(void **state)
{
	static const struct frame others = {.kind = FRAME_MARKER, .name = STORE_OTHERS};
	const struct frame *const list[] = {&others};
	const struct tree_form form = {.columns = true, .grouped = true, .max_nodes = 100};
	const struct groups_query all = {.limit = 9};
	const struct store_row row = {.frames = list, .n_frames = 1, .value = 7, .n_samples = 1};
	const struct store_summary s = {.n_rows = 2, .n_samples = 11};
	_cleanup_free_ char *got = NULL, *large = NULL;
	struct groups_query q = all;
	struct test t;
	size_t n;

	(void)state;
	begin(&t, &form);
	q.tree.tracing = t.query.tracing;
	add(&t, "a", &f_main, 100);
	assert_int_equal(query_tree_add(t.tree, &row, -1), 0);
	got = query_groups_reply(t.tree, &q, &s, &n);
	assert_non_null(strstr(got, "\"groups\":[{\"value\":\"a\",\"total\":100,\"samples\":10}],"
				    "\"total\":107,\"samples\":11,"
				    "\"others\":{\"groups\":0,\"total\":7,\"samples\":1}"));
	for (int i = 0; i < 3; i++)
		add(&t, i ? "b" : "a", &f_read, INT64_MAX);
	q.limit = 1;
	q.function = (char *)(uintptr_t) "read";
	large = query_groups_reply(t.tree, &q, &s, &n);
	assert_non_null(strstr(large, "\"function_total\":9223372036854775807"));
	assert_null(strstr(large, ":-"));
	end(&t);
}

/* Three children whose totals are the largest number are not more than their parent's. */
static void large_values(void **state)
{
	const struct tree_form form = {.columns = true, .max_nodes = 100};
	struct test t;

	(void)state;
	begin(&t, &form);
	add(&t, NULL, &f_main, INT64_MAX);
	add(&t, NULL, &f_read, INT64_MAX);
	add(&t, NULL, &f_other_read, INT64_MAX);
	finish(&t);
	for (size_t i = 0; i < 6; i++)
		assert_true(number(t.reply, "nodes", "self", i) >= 0);
	end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_one_function),
		cmocka_unit_test(functions_without_a_name_are_told_apart),
		cmocka_unit_test(differences),
		cmocka_unit_test(groups),
		cmocka_unit_test(threads_are_below_their_process),
		cmocka_unit_test(others_and_large_values_by_group),
		cmocka_unit_test(large_values),
		cmocka_unit_test(what_does_not_fit),
		cmocka_unit_test(previews),
		cmocka_unit_test(a_preview_changes_nothing),
		cmocka_unit_test(a_preview_has_all_large_nodes),
		cmocka_unit_test(too_many_stacks_for_a_preview),
		cmocka_unit_test(a_function_by_group),
		cmocka_unit_test(a_recursive_function_by_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
