/* SPDX-License-Identifier: Apache-2.0 */
/* A selection as a file, and the parameters of a GET. */
#include "hub/query/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct frame f_main = {.kind = FRAME_APP, .name = "main", .module = "/bin/web"};
static const struct frame f_write = {
	.kind = FRAME_LIBRARY, .name = "write", .module = "/lib/libc.so", .file = "w.c", .line = 7};
static const struct frame f_unnamed = {.kind = FRAME_APP, .module = "/bin/web", .build_id = "ab"};
static const struct frame f_evil = {.kind = FRAME_APP, .name = "a;b\n\"c\""};

static const struct selection sel = {
	.event = EVENT_OFF_CPU, .time_start_s = 100, .time_end_s = 109};

static size_t names(const struct frame *f, const char *ns, void *arg, const struct frame **ret)
{
	static const struct frame named = {.kind = FRAME_APP, .name = "found"};

	(void)ns, (void)arg;
	*ret = &named;
	return f == &f_unnamed;
}

static void add(struct query_file *f, const struct frame *leaf, enum wait wait, int64_t value)
{
	const struct frame *frames[] = {&f_main, leaf};
	const struct store_row row = {.app_service = "web",
				      .head = {.thread_comm = "worker", .wait = wait},
				      .frames = frames,
				      .n_frames = 2,
				      .value = value,
				      .n_samples = 1};

	assert_int_equal(query_file_add(&row, f), 0);
}

static void add_some_rows(struct query_file *f)
{
	add(f, &f_write, WAIT_LOCK, 100);
	add(f, &f_unnamed, WAIT_NONE, 20);
	add(f, &f_evil, WAIT_NONE, 3);
}

static struct query_file *some_rows(void)
{
	struct query_file *f = query_file_new(&sel, names, NULL);

	add_some_rows(f);
	return f;
}

static int write_file(const struct query_file *f, enum file_format format, struct buf *out)
{
	static const char *const notes[] = {"lost: ring_full, 3 samples"};
	const struct profile_file file = {
		.event = EVENT_OFF_CPU, .notes = notes, .n_notes = ARRAY_SIZE(notes)};

	return profile_write(query_file_format(format)->writer, query_file_batch(f), &file, out);
}

static char *written_of(const struct query_file *f, enum file_format format, size_t *ret_n)
{
	struct buf b = {0};

	buf_init(&b, 1 << 20);
	assert_int_equal(write_file(f, format, &b), 0);
	*ret_n = b.len;
	return buf_steal(&b);
}

static char *written(enum file_format format, size_t *ret_n)
{
	struct query_file *f = some_rows();
	char *text = written_of(f, format, ret_n);

	query_file_free(f);
	return text;
}

static void folded(void **state)
{
	size_t n;
	_cleanup_free_ char *text = written(FILE_FOLDED, &n);

	(void)state;
	assert_string_equal(text, "web;[t] worker;main;[l] write;[wait: lock] 100\n"
				  "web;[t] worker;main;a:b \"c\" 3\n"
				  "web;[t] worker;main;found 20\n");
}

/* Names are those of the text of a frame, also of one that uploaded symbols name, and of a wait. */
static void only_the_stacks_of_a_call_site(void **state)
{
	static const struct {
		const char *names[4];
		size_t n;
		const char *want;
	} sites[] = {
		{{"main", "[l] write", "[wait: lock]"},
		 3,
		 "web;[t] worker;main;[l] write;[wait: lock] 100\n"},
		{{"main", "found"}, 2, "web;[t] worker;main;found 20\n"},
		{{"main", "write"}, 2, ""},
		{{"main", "found", "more"}, 3, ""},
		{{"main", "[l] write", "[wait: lock]", "more"}, 4, ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sites); i++) {
		struct query_file *f = query_file_new(&sel, names, NULL);
		_cleanup_free_ char *text = NULL;
		size_t n;

		query_file_set_call_site(f, sites[i].names, sites[i].n);
		add_some_rows(f);
		text = written_of(f, FILE_FOLDED, &n);
		assert_string_equal(text, sites[i].want);
		query_file_free(f);
	}
}

static void speedscope(void **state)
{
	size_t n;
	_cleanup_free_ char *text = written(FILE_SPEEDSCOPE, &n);
	_cleanup_json_ json_t *j = json_loadb(text, n, 0, NULL);
	const json_t *p = json_array_get(json_object_get(j, "profiles"), 0);
	_cleanup_free_ char *samples = json_dumps(json_object_get(p, "samples"), JSON_COMPACT);
	_cleanup_free_ char *weights = json_dumps(json_object_get(p, "weights"), JSON_COMPACT);
	const json_t *frame = json_array_get(json_at(j, "shared.frames"), 3);

	(void)state;
	assert_string_equal(samples, "[[0,1,2,3,4],[0,1,2,5],[0,1,2,6]]");
	assert_string_equal(weights, "[100,20,3]");
	assert_string_equal(json_str_at(p, "unit", ""), "microseconds");
	assert_int_equal(json_int_at(p, "endValue", 0), 123);
	assert_string_equal(json_str_at(frame, "name", ""), "[l] write");
	assert_string_equal(json_str_at(frame, "file", ""), "w.c");
	assert_int_equal(json_int_at(frame, "line", 0), 7);
}

static void pprof_and_otlp(void **state)
{
	static const char *const texts[] = {"off_cpu", "found", "lost: ring_full, 3 samples"};

	(void)state;
	for (enum file_format format = FILE_PPROF; format <= FILE_OTLP; format++) {
		size_t n;
		_cleanup_free_ char *bytes = written(format, &n);

		for (size_t i = 0; format != FILE_SPEEDSCOPE && i < ARRAY_SIZE(texts); i++)
			assert_non_null(memmem(bytes, n, texts[i], strlen(texts[i])));
	}
}

/* However small the pieces are, together they are the file. */
static void pieces_are_the_file(void **state)
{
	struct query_file *f = some_rows();

	(void)state;
	for (enum file_format format = 0; format < _FILE_FORMAT_MAX; format++) {
		const struct profile_file file = {.event = EVENT_OFF_CPU};
		const struct batch *b = query_file_batch(f);
		struct profile_writer *w = query_file_format(format)->writer(b, &file, NULL);
		_cleanup_buf_ struct buf pieces = {0}, whole = {0};
		unsigned n = 0;
		int r;

		for (r = 1; r > 0; n++)
			r = profile_writer_fill(w, pieces.len + 1, &pieces);
		profile_writer_free(w);
		assert_int_equal(r, 0);
		assert_true(n > 3); /* as many as there are rows */
		assert_int_equal(profile_write(query_file_format(format)->writer, b, &file, &whole),
				 0);
		assert_int_equal(pieces.len, whole.len);
		assert_memory_equal(pieces.data, whole.data, whole.len);
	}
	query_file_free(f);
}

/* Each row of the table is whole, and its name finds it. */
static void formats_are_found(void **state)
{
	enum file_format found;

	(void)state;
	for (enum file_format f = 0; f < _FILE_FORMAT_MAX; f++) {
		const struct file_format_info *info = query_file_format(f);

		assert_true(*info->ending && *info->title && *info->about && info->writer);
		assert_int_equal(query_file_format_from_name(info->name, &found), 0);
		assert_int_equal(found, f);
	}
	assert_int_equal(query_file_format_from_name("", &found), -ENOENT);
}

/* What does not fit is an error, and no shorter file. */
static void a_file_has_a_limit(void **state)
{
	struct query_file *f = some_rows();

	(void)state;
	for (enum file_format format = 0; format < _FILE_FORMAT_MAX; format++) {
		_cleanup_buf_ struct buf b;

		buf_init(&b, 50);
		assert_int_equal(write_file(f, format, &b), -E2BIG);
	}
	query_file_free(f);
}

/* ---- memory ---- */

struct budget {
	struct buf_budget budget;
	size_t left;
};

static bool take_some(struct buf_budget *budget, size_t n)
{
	struct budget *b = (struct budget *)budget;

	if (n > b->left)
		return false;
	b->left -= n;
	return true;
}

/* Adds rows with a name of 200 bytes each, until one is refused. Returns how many it took. */
static unsigned add_names(struct query_file *f, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		_cleanup_free_ char *name = xasprintf("%200u", i);
		const struct frame leaf = {.kind = FRAME_APP, .name = name};
		const struct frame *frames[] = {&leaf};
		const struct store_row row = {
			.app_service = "web", .frames = frames, .n_frames = 1, .value = 1};

		if (query_file_add(&row, f) < 0)
			return i;
	}
	return n;
}

/* The rows take from the budget at least what their names need, and no more once it is empty. */
static void rows_count_in_the_budget(void **state)
{
	struct budget b = {{take_some}, 4 << 20};
	struct query_file *f = query_file_new(&sel, NULL, NULL);
	unsigned n;

	(void)state;
	query_file_set_budget(f, &b.budget);
	n = add_names(f, 1000);
	assert_int_equal(n, 1000);
	assert_in_range((4 << 20) - b.left, 1000 * 250, 1000 * 1500);
	n = add_names(f, 1000); /* the same rows again: only samples are new */
	assert_int_equal(n, 1000);
	assert_in_range((4 << 20) - b.left, 1000 * 250, 1000 * 1500);
	n = add_names(f, 100000);
	assert_in_range(n, 2000, 20000);
	query_file_free(f);
}

/*
 * Writing takes from the budget more than the file itself, because it has another copy of the names
 * meanwhile. It ends if the budget is empty.
 */
static void writing_counts_in_the_budget(void **state)
{
	struct query_file *f = query_file_new(&sel, NULL, NULL);

	(void)state;
	assert_int_equal(add_names(f, 2000), 2000);
	for (enum file_format format = 0; format < _FILE_FORMAT_MAX; format++) {
		struct budget b = {{take_some}, 64 << 20};
		_cleanup_buf_ struct buf out = {.budget = &b.budget}, again = {.budget = &b.budget};
		size_t taken;

		assert_int_equal(write_file(f, format, &out), 0);
		taken = (64 << 20) - b.left;
		assert_in_range(taken, out.cap + 2000 * 200, 64 << 20);
		b.left = taken - 1;
		assert_int_equal(write_file(f, format, &again), -E2BIG);
	}
	query_file_free(f);
}

#define SELECTION                                                                                  \
	"\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\",\"time_start\":1,"   \
	"\"time_end\":2"

static void requests(void **state)
{
	static const char plain[] = "{" SELECTION "}",
			  grouped[] = "{" SELECTION ",\"group_by\":\"vtap\"}",
			  wrong[] = "{" SELECTION ",\"group_by\":\"cpu\"}";
	struct field_error e;
	struct file_query q;

	(void)state;
	assert_int_equal(query_file_parse(plain, strlen(plain), &q, &e), 0);
	assert_null(q.group_by);
	query_file_query_done(&q);
	assert_int_equal(query_file_parse(grouped, strlen(grouped), &q, &e), 0);
	assert_string_equal(q.tracing.selection->group_by, "pod_node");
	query_file_query_done(&q);
	assert_int_equal(query_file_parse(wrong, strlen(wrong), &q, &e), -EINVAL);
	assert_string_equal(e.path, "group_by");
}

/* A tag of processes is one of the profile, a label of samples one of the sample. */
static void groups_are_labels(void **state)
{
	static const struct selection by_pod = {.event = EVENT_ON_GPU, .group_by = "pod"};
	static const char *const labels[_LABEL_MAX] = {
		[LABEL_GPU_STREAM] = "default", [LABEL_GPU_DEVICE] = "0"};
	static const char *const tags[] = {"gpu_stream", "gpu_context", "pod"};
	const struct frame *frames[] = {&f_main};
	struct store_row row = {.app_service = "web", .frames = frames, .n_frames = 1, .value = 1};
	struct query_file *f = query_file_new(&by_pod, NULL, NULL);
	const struct batch *b = query_file_batch(f);

	(void)state;
	assert_int_equal(query_file_add(&row, f), 0); /* of no pod */
	row.group = "web-1";
	assert_int_equal(query_file_add(&row, f), 0);
	assert_int_equal(query_file_add(&row, f), 0);
	assert_int_equal(b->n_profiles, 2);
	assert_null(profile_tag_get(b->profiles[0], "pod"));
	assert_string_equal(profile_tag_get(b->profiles[1], "pod"), "web-1");
	assert_int_equal(b->profiles[1]->n_samples, 2);
	query_file_free(f);
	f = query_file_new(&by_pod, NULL, NULL);
	query_file_set_tags(f, tags, ARRAY_SIZE(tags));
	assert_int_equal(query_file_add(&row, f), 0);
	row.labels = labels;
	assert_int_equal(query_file_add(&row, f), 0);
	b = query_file_batch(f);
	assert_string_equal(profile_tag_get(b->profiles[0], "pod"), "web-1");
	assert_null(b->profiles[0]->samples[0].labels);
	assert_string_equal(b->profiles[0]->samples[1].labels->values[LABEL_GPU_STREAM], "default");
	assert_null(b->profiles[0]->samples[1].labels->values[LABEL_GPU_CONTEXT]);
	/* not asked for */
	assert_null(b->profiles[0]->samples[1].labels->values[LABEL_GPU_DEVICE]);
	query_file_free(f);
}

/* Several tags are tags of the profile, each value for itself. */
static void joint_groups_are_labels(void **state)
{
	static const struct store_joined tags[] = {{"pod", NULL}, {"image", NULL}};
	_cleanup_free_ char *name = store_join(tags, ARRAY_SIZE(tags));
	const struct selection by_both = {.event = EVENT_ON_CPU, .group_by = name};
	const struct frame *frames[] = {&f_main};
	struct store_row row = {.app_service = "web", .frames = frames, .n_frames = 1, .value = 1};
	struct query_file *f = query_file_new(&by_both, NULL, NULL);
	const struct batch *b = query_file_batch(f);

	(void)state;
	assert_int_equal(query_file_add(&row, f), 0); /* [others] */
	row.group = "\"web-1\",null";
	assert_int_equal(query_file_add(&row, f), 0);
	row.group = "\"web-1\",\"a,b:1\"";
	assert_int_equal(query_file_add(&row, f), 0);
	assert_int_equal(query_file_add(&row, f), 0);
	assert_int_equal(b->n_profiles, 3);
	assert_int_equal(b->profiles[0]->tags.n, 0);
	assert_string_equal(profile_tag_get(b->profiles[1], "pod"), "web-1");
	assert_null(profile_tag_get(b->profiles[1], "image"));
	assert_string_equal(profile_tag_get(b->profiles[2], "pod"), "web-1");
	assert_string_equal(profile_tag_get(b->profiles[2], "image"), "a,b:1");
	assert_int_equal(b->profiles[2]->n_samples, 2);
	query_file_free(f);
}

static void several_tags_are_asked_for(void **state)
{
	static const struct {
		const char *group_by;
		/* "tags: those that the store groups by", with blanks; or what is refused */
		const char *want;
		bool ok;
	} cases[] = {
		{"pod,vtap,pod_node", "pod pod_node : pod pod_node ", true},
		{"pod,thread,wait", "pod thread wait : pod", true},
		{"thread,wait", "thread wait : none", true},
		{"k8s.label.a/b,pod", "k8s.label.a/b pod : k8s.label.a/b pod ", true},
		{"gpu_stream", "gpu_stream : none", true},
		{"gpu_device,pod,rdma_qp_type,image",
		 "gpu_device pod rdma_qp_type image : pod image ", true},
		{"trace_id", "trace_id : trace_id", true},
		{"pod,cpu", "group_by: cpu cannot be grouped by", false},
		{"trace_id,gpu_stream",
		 "group_by: trace_id cannot be grouped by together with other tags", false},
		{"pod,trace_id", "group_by: trace_id cannot be grouped by together with other tags",
		 false},
		{"pod,,image", "group_by: unknown tag ''", false},
		{"pod,no", "group_by: unknown tag 'no'", false},
		{"pod,pod_ns,pod_node,pod_group,pod_group_type,image,container,container_id,app_"
		 "service",
		 "group_by: more than 8 tags", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *body =
			xasprintf("{" SELECTION ",\"group_by\":\"%s\"}", cases[i].group_by);
		struct store_joined tags[STORE_MAX_JOINED];
		_cleanup_free_ char *names = NULL;
		_cleanup_buf_ struct buf got = {0};
		struct field_error e;
		struct file_query q;
		size_t n;

		assert_int_equal(query_file_parse(body, strlen(body), &q, &e),
				 cases[i].ok ? 0 : -EINVAL);
		if (!cases[i].ok) {
			assert_string_equal(e.reason, cases[i].want);
			continue;
		}
		for (size_t k = 0; k < q.n_tags; k++)
			buf_printf(&got, "%s ", q.tags[k]);
		n = store_joined(q.group_by ?: "none", tags, &names);
		buf_puts(&got, ": ");
		for (size_t k = 0; k < n; k++)
			buf_printf(&got, "%s ", tags[k].tag);
		buf_puts(&got, n ? "" : q.group_by ?: "none");
		assert_string_equal(got.data, cases[i].want);
		query_file_query_done(&q);
	}
}

static void notes_say_what_is_missing(void **state)
{
	static const char *const texts[] = {
		"lost: ring_full, 7 samples, of some process on the nodes of the selection",
		"lost: agent_down, 2.5 s",
		"estimated from 12.5 % of what happened; one standard error of the sum is 9 "
		"microseconds",
		"too many stacks: [others] is the sum of the smallest, and each other one may lack "
		"up to 5 microseconds",
		"throttled: CPU limits held the containers back for 1.500 s, which no stack shows",
		"of the request",
		"1 profile is of pods that the hub could not verify (unverified = 'true')",
		"of the scope",
	};
	struct store_loss losses[] = {{.reason = "ring_full", .n_samples = 7, .of_node = true},
				      {.reason = "agent_down", .time_ns = 2500 * NSEC_PER_MSEC}};
	const struct store_summary all = {.n_rows = 1,
					  .n_profiles = 1,
					  .losses = losses,
					  .n_losses = 2,
					  .estimate_ppm = 125000,
					  .estimate_error = 9,
					  .truncated = true,
					  .short_by = 5,
					  .throttled_us = 1500000,
					  .n_unverified = 1},
				   none = {.n_rows = 1, .n_profiles = 1};
	char *of_request[] = {(char *)"of the request"}, **notes;
	struct tracing_request r = {.selection = (struct selection *)&sel};

	(void)state;
	assert_int_equal(query_file_notes(&r, &none, &notes), 0);
	r.notes = of_request;
	r.n_notes = 1;
	r.scope_note = "of the scope";
	assert_int_equal(query_file_notes(&r, &all, &notes), ARRAY_SIZE(texts));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_string_equal(notes[i], texts[i]);
		free(notes[i]);
	}
	free(notes);
}

/* The rows of rdma are the operations of the selection, and have no label that names them. */
static void rdma_has_what_is_selected(void **state)
{
	static const struct selection rdma = {.event = EVENT_RDMA, .time_end_s = 9};

	(void)state;
	for (enum file_format format = 0; format < _FILE_FORMAT_MAX; format++) {
		struct query_file *f = query_file_new(&rdma, names, NULL);
		_cleanup_buf_ struct buf b;

		buf_init(&b, 1 << 20);
		add(f, &f_write, WAIT_NONE, 100);
		assert_int_equal(write_file(f, format, &b), 0);
		assert_non_null(memmem(b.data, b.len, "write", strlen("write")));
		query_file_free(f);
	}
}

static void parameters(void **state)
{
	static const char *const bad[] = {"time_start=x", "a=%",	 "a=%2",  "a=%zz",
					  "a=%00",	  "time_end=-1", "a=%ff", "a"};
	struct field_error e;
	_cleanup_free_ char *none = query_parameters("", &e);
	_cleanup_free_ char *all = query_parameters(
		"time_start=1&&time_end=2&tag_filter=pod%3D'a+b%26c'&app_service=", &e);

	(void)state;
	assert_string_equal(none, "{\"profile_language_type\":\"eBPF\"}");
	assert_string_equal(all, "{\"profile_language_type\":\"eBPF\",\"time_start\":1,"
				 "\"time_end\":2,\"tag_filter\":\"pod='a b&c'\","
				 "\"app_service\":\"\"}");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_null(query_parameters(bad[i], &e));
		assert_string_equal(e.path, "parameters");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folded),
		cmocka_unit_test(only_the_stacks_of_a_call_site),
		cmocka_unit_test(speedscope),
		cmocka_unit_test(pprof_and_otlp),
		cmocka_unit_test(pieces_are_the_file),
		cmocka_unit_test(formats_are_found),
		cmocka_unit_test(requests),
		cmocka_unit_test(groups_are_labels),
		cmocka_unit_test(joint_groups_are_labels),
		cmocka_unit_test(several_tags_are_asked_for),
		cmocka_unit_test(notes_say_what_is_missing),
		cmocka_unit_test(a_file_has_a_limit),
		cmocka_unit_test(rows_count_in_the_budget),
		cmocka_unit_test(writing_counts_in_the_budget),
		cmocka_unit_test(rdma_has_what_is_selected),
		cmocka_unit_test(parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
