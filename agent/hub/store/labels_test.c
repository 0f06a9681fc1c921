/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of samples in the store: filters, values, what is kept apart, and what is deleted. */
#include "hub/store/teststore.h"

/* NULL: the sample does not have the label. */
static void label(struct batch *b, struct profile_sample *s, const char *device, const char *stream)
{
	struct profile_labels l = {.values = {[LABEL_GPU_DEVICE] = profile_batch_str(b, device),
					      [LABEL_GPU_STREAM] = profile_batch_str(b, stream)}};

	s->labels = profile_batch_labels(b, &l);
}

/*
 * Makes a profile with seven samples: six of one stack, of which five have labels (the second and
 * the fourth have equal labels), and one of another stack.
 */
static struct batch *allocations(const char *id, int64_t end_s)
{
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, id, "train", 10, "ml", end_s);

	for (int i = 0; i < 6; i++)
		add_sample(b, p, "worker", false, "cuMemAlloc", 10 << i);
	label(b, &p->samples[0], "0", "default");
	label(b, &p->samples[1], "1", "default");
	label(b, &p->samples[2], "1", NULL);
	label(b, &p->samples[3], "1", "default");
	label(b, &p->samples[4], "9", "0x7f0000001000");
	add_sample(b, p, "worker", false, "read", 1000);
	return b;
}

#define LABELLED     310
#define NOT_LABELLED 1320
#define SERVICES     240 /* sum of the values that two_services() writes */

static void samples_are_found_by_their_labels(void **state)
{
	struct store *s = *state;
	struct predicate *both;
	_cleanup_(got_done) struct got g = {0};

	write_batch(s, allocations("a", T0), 1);
	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, NULL), LABELLED + NOT_LABELLED + SERVICES);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "gpu_device", "0")), 10);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "gpu_device", "1")), 20 + 40 + 80);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "gpu_device", "01")), 0);
	assert_int_equal(value_where(s, leaf(PRED_LIKE, "gpu_stream", "0x7f%")), 160);
	assert_int_equal(value_where(s, leaf(PRED_REGEXP, "gpu_device", "^[19]$")), 300);
	/* samples without the label match these filters */
	assert_int_equal(value_where(s, leaf(PRED_NE, "gpu_device", "1")),
			 10 + 160 + NOT_LABELLED + SERVICES);
	assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "gpu_stream", NULL)),
			 40 + NOT_LABELLED + SERVICES);
	assert_int_equal(value_where(s, leaf(PRED_NOT_NULL, "gpu_context", NULL)), 0);
	both = join(PRED_AND, leaf(PRED_EQ, "gpu_device", "1"),
		    leaf(PRED_EQ, "gpu_stream", "default"));
	read_where(s, join(PRED_AND, both, leaf(PRED_EQ, "pod_ns", "ml")), &g);
	assert_int_equal(g.sum, 20 + 80);
	assert_int_equal(g.n, 1); /* equal labels are one row */
}

/* "DEVICE/STREAM=VALUE ", "-" for what the row lacks. */
static int note_labels(const struct store_row *row, void *arg)
{
	static const char *const none[_LABEL_MAX];
	const char *const *labels = row->labels ?: none;

	buf_printf(arg, "%s/%s=%d ", labels[LABEL_GPU_DEVICE] ?: "-",
		   labels[LABEL_GPU_STREAM] ?: "-", (int)row->value);
	return 0;
}

/* Rows have the labels of their samples, whatever they are grouped by; also when read again. */
static void rows_have_labels(void **state)
{
	struct store *s = *state;
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 10,
				.group_by = "pod_ns"};
	struct field_error e;

	write_batch(s, allocations("a", T0), 1);
	for (int i = 0; i < 2; i++) {
		_cleanup_buf_ struct buf got = {0};
		struct store_summary summary;

		assert_int_equal(
			store_read(s, &store_scope_all, &sel, note_labels, &got, &summary, &e), 0);
		store_summary_done(&summary);
		assert_string_equal(got.data, "-/-=1000 -/-=320 9/0x7f0000001000=160 "
					      "1/default=100 1/-=40 0/default=10 ");
	}
}

/* The names of the labels of pods, with the samples that match the filter. */
static void labels_of_pods_have_names(void **state)
{
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "web", "web", 20, "ml", T0);
	struct values v = {0};

	profile_tag(b, p, "k8s.label.app.kubernetes.io/version", "1.2");
	profile_tag(b, p, "k8s.label.tier", "front");
	add_sample(b, p, "worker", false, "read", 10);
	write_batch(s, b, 1);
	write_batch(s, two_services(), 3);
	assert_int_equal(read_values(s, &sel, POD_LABEL, 10, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "tier=18 app.kubernetes.io/version=1 ");
	v.text[0] = '\0';
	sel.where = leaf(PRED_EQ, "pod_ns", "ml");
	assert_int_equal(read_values(s, &sel, POD_LABEL, 10, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "app.kubernetes.io/version=1 tier=1 ");
	store_predicate_free(sel.where);
	sel.where = NULL;
	sel.scope = &(struct scope){.places = (char *[]){"app"}, .n_places = 1};
	v.text[0] = '\0';
	assert_int_equal(read_values(s, &sel, POD_LABEL, 10, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "tier=17 ");
}

/* The names of the labels of pushed profiles are not those of pods. */
static void labels_of_pushed_profiles_have_names(void **state)
{
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "web", "web", 20, "ml", T0);
	struct values v = {0};

	profile_tag(b, p, PUSHED_LABEL "region", "eu");
	profile_tag(b, p, POD_LABEL "tier", "front");
	add_sample(b, p, "worker", false, "read", 10);
	write_batch(s, b, 1);
	assert_int_equal(read_values(s, &sel, PUSHED_LABEL, 10, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "region=1 ");
	v.text[0] = '\0';
	assert_int_equal(read_values(s, &sel, POD_LABEL, 10, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "tier=1 ");
}

/* A condition on samples counts for the names of labels, and not for the choices around them. */
static void labels_of_pods_between_other_choices(void **state)
{
	struct store *s = *state;
	struct selection all = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct selection of_thread = all;
	const struct store_choice choices[] = {
		{"app_service", &all, 10}, {POD_LABEL, &of_thread, 10}, {"pod_ns", &all, 10}};
	struct values v = {0};

	write_batch(s, two_services(), 3);
	of_thread.where = leaf(PRED_EQ, "thread", "api");
	assert_int_equal(store_choices(s, &store_scope_all, choices, 3, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "api=17 db=7 tier=2 app=17 data=7 ");
	store_predicate_free(of_thread.where);
}

static void labels_have_values(void **state)
{
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct values v = {0};

	write_batch(s, allocations("a", T0), 1);
	assert_int_equal(read_values(s, &sel, "gpu_device", 10, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "9=16 1=14 0=1 ");
	v.text[0] = '\0';
	sel.where = leaf(PRED_EQ, "gpu_device", "1");
	assert_int_equal(read_values(s, &sel, "gpu_stream", 10, take_value, &v, NULL), 0);
	assert_string_equal(v.text, "default=10 ");
	store_predicate_free(sel.where);
}

static int note_tag(const struct store_choice *c, const char *value, uint64_t n, void *arg)
{
	(void)value;
	(void)n;
	buf_printf(arg, "%s ", c->tag);
	return 0;
}

/* Each tag that has a value is told once, be it one of series, of samples or of calls. */
static void tags_that_have_values_are_told_once(void **state)
{
	struct store *s = *state;
	struct selection all = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct selection of_device = all, of_app = all, before = all;
	const struct store_choice choices[] = {
		{"pod_ns", &all, 0},	    {"image", &all, 0},
		{"thread", &all, 0},	    {"wait", &all, 0},
		{"gpu_device", &all, 0},    {"gpu_context", &all, 0},
		{"trace_id", &all, 0},	    {"gpu_stream", &of_device, 0},
		{"thread", &of_device, 0},  {"pod_ns", &of_device, 0},
		{"gpu_device", &of_app, 0}, {"pod_group", &of_app, 0},
		{"gpu_device", &before, 0}, {"pod_ns", &before, 0},
	};
	_cleanup_buf_ struct buf told = {0};

	write_batch(s, allocations("a", T0), 1);
	write_batch(s, two_services(), 3);
	of_device.where = leaf(PRED_EQ, "gpu_device", "9");
	of_app.where = leaf(PRED_EQ, "pod_ns", "app");
	before.time_end_s = before.time_start_s;
	assert_int_equal(store_choices(s, &store_scope_all, choices, ARRAY_SIZE(choices), note_tag,
				       &told, NULL),
			 0);
	assert_string_equal(told.data, "pod_ns thread gpu_device gpu_stream thread pod_ns ");
	store_predicate_free(of_device.where);
	store_predicate_free(of_app.where);
}

/* The samples of a trace have their labels, too. */
static void labels_and_traces(void **state)
{
	const struct profile_link link = {.trace_id = {[15] = 1}};
	struct store *s = *state;
	struct batch *b = allocations("a", T0);

	assert_int_equal(profile_batch_link(b, &link, &b->profiles[0]->samples[1].link), 0);
	assert_int_equal(profile_batch_link(b, &link, &b->profiles[0]->samples[4].link), 0);
	write_batch(s, b, 1);
	assert_int_equal(
		value_where(s, join(PRED_AND,
				    leaf(PRED_EQ, "trace_id", "00000000000000000000000000000001"),
				    leaf(PRED_EQ, "gpu_device", "9"))),
		160);
}

static int64_t count(const char *dir, const char *what)
{
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", dir);
	_cleanup_free_ char *text = xasprintf("SELECT COUNT%s", what);
	sqlite3 *db = NULL;
	int64_t n = -1;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(store_sq_int(db, text, &n), 0);
	sqlite3_close(db);
	return n;
}

static void a_stack_is_stored_once_for_equal_labels(void **state)
{
	const char *dir = *state;

	for (int i = 0; i < 3; i++) {
		_cleanup_free_ char *id = xasprintf("%d", i);
		struct store *s = open_at(dir, 0, 0); /* with an empty cache of rows */

		write_batch(s, allocations(id, T0 + i), 1);
		store_close(s);
	}
	assert_int_equal(count(dir, "(*) FROM stacks"), 6);
	assert_int_equal(count(dir, "(DISTINCT hash) FROM stacks"), 6);
	assert_int_equal(count(dir, "(DISTINCT labels) FROM stacks"), 5);
	assert_int_equal(count(dir, "(*) FROM tagsets"), 1 + 4);
}

/* No profile refers to labels, so labels are deleted with the last stack that has them. */
static void labels_are_deleted_with_their_stacks(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 3600 * NSEC_PER_SEC, 0);

	write_batch(s, allocations("a", T0), 1);
	write_batch(s, allocations("b", T0 + 5400), 1);
	assert_int_equal(store_expire(s, (uint64_t)(T0 + 5400) * NSEC_PER_SEC), 0);
	assert_int_equal(count(dir, "(*) FROM profiles"), 1);
	assert_int_equal(count(dir, "(*) FROM stacks WHERE labels IN (SELECT id FROM tagsets)"), 4);
	assert_int_equal(count(dir, "(*) FROM tags WHERE key="
				    "(SELECT id FROM strings WHERE s='gpu_device')"),
			 4);
	assert_int_equal(store_expire(s, (uint64_t)(T0 + 5 * 3600) * NSEC_PER_SEC), 0);
	assert_int_equal(count(dir, "(*) FROM tagsets"), 0);
	assert_int_equal(count(dir, "(*) FROM strings WHERE s IN ('gpu_device', '0x7f0000001000')"),
			 0);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest of_each_sink[] = {
		IN_MEMORY(samples_are_found_by_their_labels),
		IN_MEMORY(rows_have_labels),
		IN_MEMORY(labels_of_pods_have_names),
		IN_MEMORY(labels_of_pushed_profiles_have_names),
		IN_MEMORY(labels_of_pods_between_other_choices),
		IN_MEMORY(labels_have_values),
		IN_MEMORY(tags_that_have_values_are_told_once),
		IN_MEMORY(labels_and_traces),
	};
	const struct CMUnitTest of_sqlite[] = {
		ON_DISK(a_stack_is_stored_once_for_equal_labels),
		ON_DISK(labels_are_deleted_with_their_stacks),
	};
	int failed = cmocka_run_group_tests_name("labels", of_each_sink, NULL, NULL);

	if (!getenv("CLICKHOUSE_URL"))
		failed += cmocka_run_group_tests_name("labels, SQLite", of_sqlite, NULL, NULL);
	return failed;
}
