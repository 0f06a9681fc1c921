/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of stripped files: answers tell them apart by where they begin, if the request asks for
 * it, until symbols are uploaded.
 */
#include "hub/api/testapi.h"
#include "hub/symbols/testindex.h"

#define SELECTION                                                                                  \
	"\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","                    \
	"\"time_start\":1699999000,\"time_end\":1700006000"
#define FLAT  SELECTION ",\"result_format\":\"flat\""
#define START ",\"unnamed\":\"start\""

/* Two functions of a file, of which one has two addresses, and an address of no known function. */
static void fill_functions(struct store *s)
{
	static const uint64_t places[][2] = {
		{0x1030, 0x1000}, {0x1034, 0x1000}, {0x1110, 0x1100}, {0x1200, 0}};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	size_t n_new;

	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = 7;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const struct frame frames[] = {{.kind = FRAME_APP, .name = "main"},
					       {.kind = FRAME_LIBRARY,
						.module = "/usr/lib/7z.so",
						.build_id = BUILD_ID,
						.address = places[i][0],
						.start = places[i][1]}};
		struct profile_sample *sample = profile_add(b, p);

		sample->cpu = -1;
		sample->value = 1000 >> i;
		sample->n_samples = 1;
		assert_int_equal(profile_batch_stack(b, frames, ARRAY_SIZE(frames), &sample->stack),
				 0);
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static int setup_functions(void **state)
{
	fill_store = fill_functions;
	return setup_local(state);
}

#define FUNCTIONS(t) cmocka_unit_test_setup_teardown(t, setup_functions, teardown)

static void assert_functions(struct fixture *f, const char *body, const char *functions)
{
	_cleanup_free_ char *text = NULL;

	assert_int_equal(ask(f, "POST", TRACING, NULL, body), 200);
	text = json_dumps(json_at(f->json, "result.functions"), JSON_COMPACT);
	assert_string_equal(text, functions);
}

static int64_t unnamed(const struct fixture *f)
{
	return json_int_at(f->json, "summary.unnamed_samples", -1);
}

static void functions_are_told_apart_if_asked_for(void **state)
{
	struct fixture *f = *state;

	assert_functions(f, "{" FLAT "}", "[\"web\",\"[/usr/lib/7z.so]\",\"main\"]");
	assert_int_equal(unnamed(f), 4);
	assert_functions(f, "{" FLAT ",\"unnamed\":\"module\"}",
			 "[\"web\",\"[/usr/lib/7z.so]\",\"main\"]");
	assert_functions(f, "{" FLAT START "}",
			 "[\"web\",\"[l] 7z.so+0x1000\",\"main\",\"[l] 7z.so+0x1100\","
			 "\"[/usr/lib/7z.so]\"]");
	assert_int_equal(unnamed(f), 4); /* they have no name all the same */
	assert_int_equal(ask(f, "POST", TRACING, NULL, "{" FLAT ",\"unnamed\":\"x\"}"), 400);
}

static void every_form_of_an_answer_does(void **state)
{
	static const char tree[] = "/v1/profile/tree", file[] = "/v1/profile/folded";
	static const char both[] = "{" SELECTION START ",\"before\":{\"time_start\":1699999000,"
				   "\"time_end\":1700006000}}";
	static const char only_before[] = "{" SELECTION ",\"before\":{\"time_start\":1699999000,"
					  "\"time_end\":1700006000" START "}}";
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", tree, NULL, "{" SELECTION "}"), 200);
	assert_null(strstr(f->body, "7z.so+"));
	assert_int_equal(ask(f, "POST", tree, NULL, both), 200);
	assert_non_null(strstr(f->body, "\"7z.so+0x1000\""));
	assert_int_equal(json_array_size(json_at(f->json, "result.nodes.self")), 6);
	assert_int_equal(json_int_at(f->json, "before_summary.unnamed_samples", -1), 4);
	/* the first selection says how both are named */
	assert_int_equal(ask(f, "POST", tree, NULL, only_before), 200);
	assert_null(strstr(f->body, "7z.so+"));
	assert_int_equal(ask(f, "POST", file, NULL, "{" SELECTION START "}"), 200);
	assert_non_null(strstr(f->body, "main;[l] 7z.so+0x1000 1500\n"));
	assert_non_null(strstr(f->body, "main;[l] 7z.so+0x1100 250\n"));
	assert_non_null(strstr(f->body, "main;[/usr/lib/7z.so] 125\n"));
	assert_int_equal(ask(f, "GET",
			     "/v1/profile/folded?profile_event_type=on-cpu&time_start=1699999000&"
			     "time_end=1700006000&unnamed=start",
			     NULL, NULL),
			 200);
	assert_non_null(strstr(f->body, "7z.so+0x1100"));
}

/* The test's file has a symbol for the first function, and not for the second one. */
static void an_upload_names_them_later(void **state)
{
	struct fixture *f = *state;
	size_t n;
	_cleanup_free_ void *body = test_upload(BUILD_ID, &n);

	assert_int_equal(ask_bytes(f, "PUT", "/v1/symbols/" BUILD_ID, NULL, body, n), 200);
	assert_functions(f, "{" FLAT START "}",
			 "[\"web\",\"[l] app::work()\",\"main\",\"[l] 7z.so+0x1100\","
			 "\"[/usr/lib/7z.so]\"]");
	assert_int_equal(unnamed(f), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FUNCTIONS(functions_are_told_apart_if_asked_for),
		FUNCTIONS(every_form_of_an_answer_does),
		FUNCTIONS(an_upload_names_them_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
