/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the hub finds out which namespaces a user may see, and what it says of the others.
 * tenants_test.c shows that nothing of them gets out.
 */
#include "hub/api/testapi.h"

#define N_MANY	     1200 /* namespaces: more than a request may ask about */
#define MOST	     1000
#define MOST_UNKNOWN 16
#define MOST_OPEN    32

static void add(struct batch *b, const char *ns)
{
	struct frame frame = {.kind = FRAME_APP, .name = "main"};
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s = profile_add(b, p);

	profile_id_make(&ns, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, ns);
	p->process_id = 7;
	profile_tag(b, p, "pod_ns", ns);
	s->cpu = -1;
	s->value = 1000;
	s->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, &frame, 1, &s->stack), 0);
}

static void fill_few(struct store *s)
{
	static const char *const names[] = {"app", "shop", "vault"};
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		add(b, names[i]);
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static void fill_many(struct store *s)
{
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (int i = 0; i < N_MANY; i++) {
		char name[32];

		snprintf(name, sizeof(name), "ns-%04d", i);
		add(b, name);
	}
	add(b, "app");
	add(b, "zzz");
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static void fill_nothing(struct store *s)
{
	(void)s;
}

static int setup_few(void **state)
{
	fill_store = fill_few;
	return setup_cluster(state);
}

static int setup_many(void **state)
{
	fill_store = fill_many;
	return setup_cluster(state);
}

static int setup_empty(void **state)
{
	fill_store = fill_nothing;
	return setup_cluster(state);
}

#define FEW(t)	 cmocka_unit_test_setup_teardown(t, setup_few, teardown)
#define MANY(t)	 cmocka_unit_test_setup_teardown(t, setup_many, teardown)
#define EMPTY(t) cmocka_unit_test_setup_teardown(t, setup_empty, teardown)

/* The note on namespaces, which is the last one; "": none. */
static const char *note(const struct fixture *f)
{
	const json_t *notes = json_at(f->json, "summary.notes");
	const char *last = json_string_value(json_array_get(notes, json_array_size(notes) - 1));

	return last && strstr(last, "you ") ? last : "";
}

static int64_t samples(const struct fixture *f)
{
	return json_int_at(f->json, "summary.samples", -1);
}

static int query_of(struct fixture *f, const char *token, const char *filter)
{
	_cleanup_free_ char *header = xasprintf(BEARER "%s", token);
	_cleanup_free_ char *body = xasprintf(QUERY ",\"tag_filter\":\"%s\"}", filter);

	return ask(f, "POST", TRACING, header, body);
}

static void answers_say_what_is_left_out(void **state)
{
	static const struct {
		const char *filter, *note;
		int64_t samples;
	} cases[] = {
		{"", "you do not see all namespaces: this has those that you may see (app)", 1},
		{"pod_node!='x'",
		 "you do not see all namespaces: this has those that you may see (app)", 1},
		{"pod_ns='app'", "", 1},
		{"pod_ns='vault'", "you may not see profiles of the namespaces vault", 0},
		{"pod_ns IN ('vault','app','shop')",
		 "you may not see profiles of the namespaces shop, vault", 1},
		{"pod_ns='app' AND `k8s.label.x` IS NULL", "", 1},
		{"pod_ns='app' OR pod_ns='vault'",
		 "you may not see profiles of the namespaces vault", 1},
		/* a namespace that does not exist gets the same answer as one that does */
		{"pod_ns='none'", "you may not see profiles of the namespaces none", 0},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(query_of(f, "tenant", cases[i].filter), 200);
		assert_int_equal(samples(f), cases[i].samples);
		assert_string_equal(note(f), cases[i].note);
	}
	assert_int_equal(query_of(f, "viewer", ""), 200);
	assert_int_equal(samples(f), 3);
	assert_string_equal(note(f), "");
}

static void a_user_without_any_right_is_told_what_to_ask_for(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(query_of(f, "nobody", ""), 200);
	assert_int_equal(samples(f), 0);
	assert_non_null(strstr(f->body, "you may see none"));
	assert_non_null(strstr(f->body, "get on profiles.podflame.io"));
	assert_int_equal(query_of(f, "nobody", "pod_ns='vault'"), 200);
	assert_int_equal(samples(f), 0);
	assert_non_null(strstr(f->body, "you may not see profiles of the namespaces vault"));
}

/* Every answer says that something is left out, each in its own way. */
static void every_kind_of_answer_says_it(void **state)
{
	static const struct {
		const char *path, *more;
	} kinds[] = {
		{"/v1/profile/tree", ""},
		{"/v1/profile/tree", ",\"before\":{\"time_start\":1,\"time_end\":1700000900}"},
		{"/v1/profile/groups", ",\"group_by\":\"pod\""},
		{"/v1/profile/series", ""},
		{"/v1/profile/values", ",\"tag\":\"pod\""},
		{"/v1/profile/choices", ",\"tags\":[\"pod\"]"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		_cleanup_free_ char *body = xasprintf(QUERY "%s}", kinds[i].more);
		const char *at;
		int n = 0;

		assert_int_equal(ask(f, "POST", kinds[i].path, BEARER "tenant", body), 200);
		for (at = f->body; (at = strstr(at, "you do not see all namespaces")); at++)
			n++;
		assert_int_equal(n, strstr(kinds[i].more, "before") ? 2 : 1);
	}
}

static void lose_a_sample(struct store *s)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	size_t n_new;

	p->start_ns = 1700000000 * NSEC_PER_SEC;
	p->end_ns = 1700000010 * NSEC_PER_SEC;
	p->app_service = "api";
	profile_tag(b, p, "pod_ns", "app");
	profile_lose(b, p, "ring_full", 1, 0);
	profile_id_make((const char *const[]){"a loss"}, 1, p->id);
	assert_int_equal(store_write(s, b, &n_new), 0);
}

#define OF_GRAFANA                                                                                 \
	"{\"profileTypeID\":\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\",\"labelSelector\":"    \
	"\"{}\",\"step\":30,\"start\":1699999000000,\"end\":1700001000000}"
#define VALUES_OF_GRAFANA "{\"name\":\"namespace\",\"start\":1699999000000,\"end\":1700001000000}"
#define RENDER                                                                                     \
	"/pyroscope/render?query=process_cpu:cpu:nanoseconds:cpu:nanoseconds%7B%7D&"               \
	"from=1699999000&until=1700001000&format=json"

static const struct headed {
	const char *path, *body; /* NULL: a GET */
	bool values;		 /* only which there are, so no samples */
} headed[] = {
	{"/v1/profile/folded", QUERY "}", false},
	{"/querier.v1.QuerierService/SelectMergeStacktraces", OF_GRAFANA, false},
	{"/querier.v1.QuerierService/SelectMergeProfile", OF_GRAFANA, false},
	{"/querier.v1.QuerierService/SelectSeries", OF_GRAFANA, false},
	{"/querier.v1.QuerierService/SelectHeatmap", OF_GRAFANA, false},
	{RENDER, NULL, false},
	{"/querier.v1.QuerierService/LabelValues", VALUES_OF_GRAFANA, true},
	{"/querier.v1.QuerierService/Series", VALUES_OF_GRAFANA, true},
};

static void assert_left_out(struct fixture *f, const struct headed *h, const char *user,
			    const char *want)
{
	const char *const headers[] = {user, "Content-Type: application/json", NULL};

	assert_int_equal(ask_headers(f, h->body ? "POST" : "GET", h->path, headers, h->body,
				     h->body ? strlen(h->body) : 0),
			 200);
	if (!h->values)
		assert_string_equal(f->left_out, want);
	else
		assert_string_equal(f->left_out, strstr(want, "namespaces") ? "namespaces" : "");
}

/* Not all forms have a place for notes: a header says that something is left out. */
static void files_say_it_in_a_header(void **state)
{
	static const struct {
		const char *header, *left_out;
	} users[] = {{BEARER "tenant", "namespaces"},
		     {BEARER "viewer", ""},
		     /* from here on, a sample is lost */
		     {BEARER "tenant", "namespaces, samples"},
		     {BEARER "viewer", "samples"}};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		if (i == 2)
			lose_a_sample(f->store);
		for (size_t k = 0; k < ARRAY_SIZE(headed); k++)
			assert_left_out(f, &headed[k], users[i].header, users[i].left_out);
	}
}

/* Its own namespace has no profiles yet: the hub says why, as it would to anybody. */
static void a_namespace_without_profiles(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(query_of(f, "owner", ""), 200);
	assert_int_equal(samples(f), 0);
	assert_int_equal(query_of(f, "owner", "pod_ns='new'"), 200);
	assert_int_equal(samples(f), 0);
	assert_null(strstr(f->body, "may not see"));
	cluster.targets = json_array();
	assert_int_equal(ask(f, "POST", "/v1/profile/why", BEARER "owner",
			     QUERY ",\"tag_filter\":\"pod_ns='new'\"}"),
			 200);
	assert_non_null(strstr(f->body, "selects the namespace new"));
}

/* Only what the request names is asked for, and each answer of the API server is kept. */
static void reviews_are_few_and_kept(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(query_of(f, "tenant", "pod_ns='app'"), 200);
	assert_int_equal(cluster.n_namespaces, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(query_of(f, "tenant", ""), 200);
	assert_int_equal(cluster.n_namespaces, 3);
	assert_int_equal(query_of(f, "nobody", ""), 200);
	assert_int_equal(cluster.n_namespaces, 6); /* the rights of one are not those of another */
	test_clock.asleep_ns = 59 * NSEC_PER_SEC;
	assert_int_equal(query_of(f, "tenant", ""), 200);
	assert_int_equal(cluster.n_namespaces, 6);
	test_clock.asleep_ns = 62 * NSEC_PER_SEC;
	assert_int_equal(query_of(f, "tenant", ""), 200);
	assert_int_equal(cluster.n_namespaces, 9);
}

/* If the API server does not answer about one namespace, nothing is answered. */
static void no_answer_is_no_data(void **state)
{
	struct fixture *f = *state;

	cluster.refuses = "shop";
	assert_int_equal(query_of(f, "tenant", ""), 503);
	assert_non_null(strstr(f->body, "cannot be asked"));
	assert_null(strstr(f->body, "main"));
	assert_int_equal(query_of(f, "tenant", "pod_ns='app'"), 200);
	cluster.refuses = NULL;
	assert_int_equal(query_of(f, "tenant", ""), 200);
	assert_int_equal(samples(f), 1);
}

static void of_many_namespaces_some_are_not_checked(void **state)
{
	struct fixture *f = *state;
	struct buf filter = {0};

	/* its namespace is the last one by name */
	assert_int_equal(query_of(f, "last", ""), 200);
	assert_int_equal(samples(f), 0);
	assert_int_equal(cluster.n_namespaces, MOST);
	assert_true(cluster.most_open <= MOST_OPEN);
	assert_non_null(strstr(note(f), "some were not checked yet: ask again"));
	assert_int_equal(query_of(f, "last", "pod_ns='zzz'"), 200);
	assert_int_equal(samples(f), 1);
	assert_string_equal(note(f), "");
	/* the next request asks about the rest */
	assert_int_equal(query_of(f, "last", ""), 200);
	assert_int_equal(samples(f), 1);
	assert_int_equal(cluster.n_namespaces, N_MANY + 2);
	assert_null(strstr(note(f), "not checked"));
	/* of names that nothing has, a request causes few reviews */
	buf_puts(&filter, "pod_ns IN ('zzz'");
	for (int i = 0; i < MOST; i++)
		buf_printf(&filter, ",'made-up-%04d'", i);
	buf_putc(&filter, ')');
	assert_int_equal(query_of(f, "last", filter.data), 200);
	assert_int_equal(samples(f), 1);
	assert_int_equal(cluster.n_namespaces, N_MANY + 2 + MOST_UNKNOWN);
	assert_non_null(strstr(note(f), "name fewer"));
	buf_done(&filter);
}

/* Of a name among many made-up ones, the note does not tell whether the store has it. */
static void names_cannot_be_tested(void **state)
{
	static const char *const tested[] = {"vault", "none"};
	struct fixture *f = *state;
	char *notes[ARRAY_SIZE(tested)];

	for (size_t i = 0; i < ARRAY_SIZE(tested); i++) {
		struct buf filter = {0};

		buf_printf(&filter, "pod_ns IN ('%s'", tested[i]);
		for (int k = 0; k < MOST_UNKNOWN; k++)
			buf_printf(&filter, ",'!%02d'", k);
		buf_putc(&filter, ')');
		assert_int_equal(query_of(f, "nobody", filter.data), 200);
		notes[i] = xstrdup(note(f));
		assert_non_null(strstr(notes[i], "name fewer"));
		buf_done(&filter);
	}
	assert_string_equal(notes[0], notes[1]);
	for (size_t i = 0; i < ARRAY_SIZE(tested); i++)
		free(notes[i]);
}

/* ---- several at once ---- */

static unsigned n_answered, n_good;

static void one_answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	(void)body, (void)n, (void)error, (void)arg;
	n_answered++;
	n_good += status == 200;
}

static struct http_call *send_query(struct fixture *f, const char *token)
{
	_cleanup_free_ char *header = xasprintf(BEARER "%s", token);
	const char *const headers[] = {header, NULL};
	const struct http_request r = {.method = "POST",
				       .path = TRACING,
				       .headers = headers,
				       .body = QUERY "}",
				       .body_bytes = sizeof(QUERY "}") - 1,
				       .on_done = one_answered,
				       .arg = f};
	struct http_call *call;

	assert_int_equal(http_send(f->client, &r, &call), 0);
	return call;
}

static void stop_waiting(void *arg)
{
	loop_stop(arg, 0);
}

static void turn(struct fixture *f)
{
	struct timer t = {0};

	timer_set(f->loop, &t, NSEC_PER_MSEC / 10, stop_waiting, f->loop);
	assert_int_equal(loop_run(f->loop), 0);
	timer_cancel(&t);
}

/*
 * All questions together have a limit for the reviews that are under way. The users take turns: a
 * user with many requests does not keep another one from an answer.
 */
static void questions_take_turns(void **state)
{
	struct fixture *f = *state;
	char user[16];

	n_answered = n_good = 0;
	for (int i = 0; i < 20; i++)
		send_query(f, "tenant");
	for (int i = 0; i < 8; i++) {
		snprintf(user, sizeof(user), "guest%d", i);
		send_query(f, user);
	}
	while (n_answered < 28)
		turn(f);
	assert_int_equal(n_good, 28);
	/* sign-ins have a limit of their own: 9 users */
	assert_true(cluster.most_open <= MOST_OPEN + 9);
	assert_int_equal(cluster.n_namespaces, 9 * MOST + N_MANY + 2 - MOST);
}

/* A client that leaves while its rights are asked for costs nothing more. */
static void a_client_leaves(void **state)
{
	struct fixture *f = *state;
	struct http_call *leaving;

	n_answered = n_good = 0;
	leaving = send_query(f, "tenant");
	while (cluster.n_namespaces < 10)
		turn(f);
	http_cancel(leaving);
	while (cluster.n_open)
		turn(f);
	assert_true(cluster.n_namespaces < MOST);
	assert_int_equal(query_of(f, "tenant", "pod_ns='app'"), 200);
	assert_int_equal(samples(f), 1);
}

static void an_empty_store(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(query_of(f, "tenant", ""), 200);
	assert_int_equal(samples(f), 0);
	assert_int_equal(query_of(f, "nobody", ""), 200);
	assert_int_equal(samples(f), 0);
	assert_non_null(strstr(f->body, "you may see none"));
}

/* What is about the hub, or about all namespaces, needs the right to see all. */
static void the_rest_needs_the_right_to_all(void **state)
{
	static const char *const paths[] = {"/metrics", "/debug/x"};
	struct fixture *f = *state;

	api_debug(f->api, "/debug/x", debug_page, (void *)"hello");
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		assert_int_equal(ask(f, "GET", paths[i], BEARER "tenant", NULL), 403);
	assert_int_equal(ask(f, "GET", "/v1/profile/tags", BEARER "tenant", NULL), 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FEW(answers_say_what_is_left_out),
		FEW(a_user_without_any_right_is_told_what_to_ask_for),
		FEW(reviews_are_few_and_kept),
		FEW(no_answer_is_no_data),
		MANY(of_many_namespaces_some_are_not_checked),
		MANY(questions_take_turns),
		FEW(files_say_it_in_a_header),
		FEW(names_cannot_be_tested),
		FEW(every_kind_of_answer_says_it),
		FEW(a_namespace_without_profiles),
		MANY(a_client_leaves),
		EMPTY(an_empty_store),
		FEW(the_rest_needs_the_right_to_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
