/* SPDX-License-Identifier: Apache-2.0 */
/* Files without labels, by tags: values are levels above the service, in the order asked for. */
#include "hub/query/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct frame f_main = {.kind = FRAME_APP, .name = "main"};

static const char *const labels[_LABEL_MAX] = {[LABEL_RDMA_QP_TYPE] = "RC"};

static void add(struct query_file *f, const char *group, int64_t value)
{
	const struct frame *frames[] = {&f_main};
	const struct store_row row = {.app_service = "web",
				      .head = {.thread_comm = "t;1", .wait = WAIT_LOCK},
				      .labels = labels,
				      .group = group,
				      .frames = frames,
				      .n_frames = 1,
				      .value = value,
				      .n_samples = 1};

	assert_int_equal(query_file_add(&row, f), 0);
}

/* Writes the file with the tags as levels, and frees it. */
static char *written(struct query_file *f, enum event event, enum file_format format,
		     const char *const *tags, size_t n)
{
	const struct profile_file file = {.event = event, .levels = tags, .n_levels = n};
	struct buf b;

	buf_init(&b, 1 << 20);
	assert_int_equal(
		profile_write(query_file_format(format)->writer, query_file_batch(f), &file, &b),
		0);
	query_file_free(f);
	return buf_steal(&b);
}

#define LEAF "web;[t] t:1;main;[wait: lock] "

static void a_tag_is_a_level(void **state)
{
	static const struct selection by_pod = {.event = EVENT_ON_CPU, .group_by = "pod"};
	static const char *const tags[] = {"pod"};
	static const enum file_format formats[] = {FILE_FOLDED, FILE_SPEEDSCOPE};
	static const char *const parts[][3] = {
		{"pod=web-1;" LEAF "30\n", "pod=web:2;" LEAF "3\n", "\n" LEAF "5\n"},
		{"{\"name\":\"pod=web-1\"}", "{\"name\":\"pod=web;2\"}",
		 "[[0,1,2,3,4],[0,1,2,3,4],[5,1,2,3,4],[1,2,3,4]]"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		struct query_file *f = query_file_new(&by_pod, NULL, NULL);
		_cleanup_free_ char *text = NULL;

		add(f, "web-1", 10);
		add(f, "web-1", 20);
		add(f, "web;2", 3);
		add(f, NULL, 5);
		text = written(f, EVENT_ON_CPU, formats[i], tags, 1);
		for (size_t k = 0; k < ARRAY_SIZE(parts[i]); k++)
			if (!strstr(text, parts[i][k]))
				fail_msg("'%s' is not in:\n%s", parts[i][k], text);
	}
}

static void several_tags_are_levels_in_their_order(void **state)
{
	static const struct store_joined joined[] = {{"pod_ns", NULL}, {"image", NULL}};
	static const char *const tags[] = {"thread", "pod_ns", "wait", "image"};
	_cleanup_free_ char *name = store_join(joined, ARRAY_SIZE(joined));
	const struct selection by_both = {.event = EVENT_OFF_CPU, .group_by = name};
	struct query_file *f = query_file_new(&by_both, NULL, NULL);
	_cleanup_free_ char *text = NULL;

	(void)state;
	add(f, "\"app\",\"shop:1\"", 10);
	add(f, "\"app\",null", 3);
	text = written(f, EVENT_OFF_CPU, FILE_FOLDED, tags, ARRAY_SIZE(tags));
	assert_string_equal(text, "thread=t:1;pod_ns=app;wait=lock;" LEAF "3\n"
				  "thread=t:1;pod_ns=app;wait=lock;image=shop:1;" LEAF "10\n");
}

/* Also of samples that do not add up: the rows are those that the request has selected. */
static void a_label_of_samples_is_a_level(void **state)
{
	static const struct selection by_pod = {.event = EVENT_RDMA, .group_by = "pod"};
	static const char *const tags[] = {"rdma_qp_type", "pod"};
	static const enum file_format formats[] = {FILE_FOLDED, FILE_SPEEDSCOPE};
	static const char *const parts[] = {"rdma_qp_type=RC;pod=web-1;" LEAF "7\n",
					    "{\"name\":\"rdma_qp_type=RC\"}"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		struct query_file *f = query_file_new(&by_pod, NULL, NULL);
		_cleanup_free_ char *text = NULL;

		query_file_set_tags(f, tags, ARRAY_SIZE(tags));
		add(f, "web-1", 7);
		text = written(f, EVENT_RDMA, formats[i], tags, ARRAY_SIZE(tags));
		assert_non_null(strstr(text, parts[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tag_is_a_level),
		cmocka_unit_test(several_tags_are_levels_in_their_order),
		cmocka_unit_test(a_label_of_samples_is_a_level),
	};

	return cmocka_run_group_tests_name("hub/query/file_levels", tests, NULL, NULL);
}
