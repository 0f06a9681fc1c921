/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs push profiles over HTTP: what becomes of them in the store, who is asked about the
 * sender, and what the answer says.
 */
#include "hub/ingest/push.h"
#include "lib/pprof/testpprof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BOUNDARY "XyZ"
#define N_COUNTS 5 /* types of make_counts() */
#define FORM	 "multipart/form-data; boundary=" BOUNDARY

struct world {
	struct loop *loop;
	struct worker *writer;
	struct store *store;
	struct ingest *ingest;
	struct http_server *server;
	struct http_client *client;
	/* what the API server says */
	int status, rights_status;
	bool everywhere;
	char authorization[64], asked[128];
	/* it does not answer about rights now; then, who waits for that */
	bool holds;
	void (*held)(int status, const char *error, void *arg);
	void *held_arg;
	/* the answer */
	int answer;
	char type[64], body[1024];
};

static void auth(const char *authorization, const char *peer,
		 void (*done)(const struct ingest_sender *s, void *arg), void *done_arg, void *arg)
{
	struct world *w = arg;

	(void)peer;
	snprintf(w->authorization, sizeof(w->authorization), "%s", authorization);
	done(&(struct ingest_sender){.status = w->status,
				     .error = "because",
				     .node = "n1",
				     .ns = "app",
				     .pod = "web-1",
				     .pod_uid = "uid-1",
				     .everywhere = w->everywhere},
	     done_arg);
}

static void not_here(const char *authorization, const char *peer,
		     void (*done)(const struct ingest_sender *s, void *arg), void *done_arg,
		     void *arg)
{
	(void)authorization, (void)peer, (void)done, (void)done_arg, (void)arg;
	fail();
}

static void rights(const json_t *user, const char *const *namespaces, size_t n,
		   void (*done)(int status, const char *error, void *arg), void *done_arg,
		   void *arg)
{
	struct world *w = arg;

	(void)user;
	for (size_t i = 0; i < n; i++) {
		strcat(w->asked, namespaces[i]);
		strcat(w->asked, " ");
	}
	if (!w->holds) {
		done(w->rights_status, "no right", done_arg);
		return;
	}
	w->held = done;
	w->held_arg = done_arg;
	loop_stop(w->loop, 0);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));
	const struct store_config sc = {.kind = "sqlite", .path = ":memory:"};
	struct ingest_config ic = {.auth = not_here,
				   .push_auth = auth,
				   .push_rights = rights,
				   .auth_arg = w,
				   .cluster_name = "c1"};
	struct http_server_config hc = {.address = "127.0.0.1",
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = ingest_http_head,
					.handler = ingest_http,
					.refuse = ingest_http_refuse};
	struct http_client_config cc = {.address = "127.0.0.1"};

	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(store_open(&sc, &w->store, NULL), 0);
	assert_int_equal(worker_new(w->loop, "writer", 64 << 20, &w->writer), 0);
	ic.store = w->store;
	ic.writer = w->writer;
	assert_int_equal(ingest_new(w->loop, &ic, &w->ingest), 0);
	hc.arg = w->ingest;
	assert_int_equal(http_server_new(w->loop, &hc, &w->server, NULL), 0);
	cc.port = http_server_port(w->server);
	assert_int_equal(http_client_new(w->loop, &cc, &w->client), 0);
	w->status = w->rights_status = 200;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	http_client_free(w->client);
	http_server_free(w->server);
	worker_free(w->writer);
	ingest_free(w->ingest);
	loop_free(w->loop);
	store_close(w->store);
	free(w);
	return 0;
}

/* ---- a client ---- */

static void on_head(int status, const struct http_headers *h, void *arg)
{
	struct world *w = arg;

	(void)status;
	snprintf(w->type, sizeof(w->type), "%s", http_header(h, "content-type") ?: "");
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct world *w = arg;

	(void)error;
	w->answer = status;
	snprintf(w->body, sizeof(w->body), "%.*s", (int)n, body ?: "");
	loop_stop(w->loop, 0);
}

static int post(struct world *w, const char *path, const char *type, const char *authorization,
		const struct buf *body)
{
	_cleanup_free_ char *content = xasprintf("Content-Type: %s", type),
			    *token = xasprintf("Authorization: %s", authorization);
	const char *headers[] = {content, token, NULL};
	const struct http_request r = {.method = "POST",
				       .path = path,
				       .headers = headers,
				       .body = body->data ?: "",
				       .body_bytes = body->len,
				       .on_head = on_head,
				       .on_done = on_done,
				       .arg = w};
	struct http_call *call;

	*w->asked = '\0';
	assert_int_equal(http_send(w->client, &r, &call), 0);
	assert_int_equal(loop_run(w->loop), 0);
	return w->answer;
}

static void add_part(struct buf *b, const char *name, const void *p, size_t n)
{
	buf_printf(b,
		   "--" BOUNDARY
		   "\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"f\"\r\n"
		   "Content-Type: application/octet-stream\r\n\r\n",
		   name);
	buf_add(b, p, n);
	buf_puts(b, "\r\n");
}

/* A form with one part beside the profile; name NULL: none. */
static void make_form(struct buf *b, const struct buf *profile, const char *name, const char *text)
{
	if (profile)
		add_part(b, "profile", profile->data, profile->len);
	if (name)
		add_part(b, name, text, strlen(text));
	buf_puts(b, "--" BOUNDARY "--\r\n");
}

static char *ingest_path(const char *name)
{
	uint64_t now_s = now_wall_ns() / NSEC_PER_SEC;

	return xasprintf("/ingest?name=%s&from=%llu&until=%llu&spyName=gospy&sampleRate=100", name,
			 (unsigned long long)(now_s - 10), (unsigned long long)now_s);
}

static int push_form(struct world *w, const char *name, const struct buf *profile, const char *part,
		     const char *text)
{
	_cleanup_buf_ struct buf body = {0};
	_cleanup_free_ char *path = ingest_path(name);

	make_form(&body, profile, part, text);
	return post(w, path, FORM, "Bearer t", &body);
}

/* ---- what is stored ---- */

static int add_value(const struct store_row *r, void *arg)
{
	*(int64_t *)arg += r->value;
	assert_string_equal(r->frames[0]->name, "main.main");
	assert_string_equal(r->frames[1]->name, "main.work");
	return 0;
}

/* The sum of an event's values whose tag has this value. */
static int64_t stored(const struct world *w, enum event event, const char *tag, const char *value)
{
	struct predicate where = {.op = PRED_EQ,
				  .tag = (char *)tag,
				  .values = (char *[]){(char *)value},
				  .n_values = 1};
	int64_t now_s = (int64_t)(now_wall_ns() / NSEC_PER_SEC), sum = 0;
	const struct selection sel = {.event = event,
				      .time_start_s = now_s - 600,
				      .time_end_s = now_s + 600,
				      .where = &where};
	struct store_summary summary = {0};
	struct field_error e = {0};

	if (store_read(w->store, &store_scope_all, &sel, add_value, &sum, &summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_summary_done(&summary);
	return sum;
}

#define LABELS "shop%7Bregion%3Deu%2C__session_id__%3Ds1%2Cpod_node%3Dn9%2Ccontainer%3Dx%7D"

static void a_form_is_stored(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0}, packed = {0};
	static const struct {
		const char *tag, *value;
		int64_t sum;
	} want[] = {
		{"pod_ns", "app", 30000},
		{"pod", "web-1", 30000},
		{"pod_uid", "uid-1", 30000},
		{"pod_node", "n1", 30000},
		{"pod_cluster", "c1", 30000},
		{"app_service", "shop", 30000},
		{"label.region", "eu", 30000},
		{"session_id", "s1", 30000},
		{"producer", "gospy", 30000},
		{"label.handler", "checkout", 10000},
		{"label.pod_node", "n9", 30000},
		{"label.container", "x", 30000},
		{"profile_language_type", "Golang", 30000},
	};

	pb_cpu_profile(&profile);
	assert_int_equal(buf_add_gzip(&packed, profile.data, profile.len, 1), 0);
	assert_int_equal(
		push_form(w, LABELS, &packed, "sample_type_config",
			  "{\"samples\":{\"display-name\":\"cpu\",\"units\":\"samples\"}}"),
		200);
	assert_string_equal(w->body, "");
	assert_string_equal(w->authorization, "Bearer t");
	assert_string_equal(w->asked, "");
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		if (stored(w, EVENT_CPU, want[i].tag, want[i].value) != want[i].sum)
			fail_msg("%s %s", want[i].tag, want[i].value);
	/* nothing of it is what podflame samples itself */
	assert_int_equal(stored(w, EVENT_ON_CPU, "pod_ns", "app"), 0);
}

/* The same request again stores nothing new. */
static void a_repeat_counts_once(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0}, body = {0};
	_cleanup_free_ char *path = ingest_path("shop");

	pb_cpu_profile(&profile);
	make_form(&body, &profile, NULL, NULL);
	for (int i = 0; i < 2; i++)
		assert_int_equal(post(w, path, FORM, "Bearer t", &body), 200);
	assert_int_equal(stored(w, EVENT_CPU, "pod", "web-1"), 30000);
}

static void a_profile_without_a_form(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0};
	_cleanup_free_ char *path = ingest_path("shop"),
			    *raw = xasprintf("/pyroscope%s&format=pprof", path);

	pb_cpu_profile(&profile);
	assert_int_equal(post(w, raw, "binary/octet-stream", "Bearer t", &profile), 200);
	assert_int_equal(stored(w, EVENT_CPU, "app_service", "shop"), 30000);
}

/* pyroscope-go signs in with a user and a password: the password is the token. */
static void basic_sign_in(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0}, body = {0};
	_cleanup_free_ char *path = ingest_path("shop");

	pb_cpu_profile(&profile);
	make_form(&body, &profile, NULL, NULL);
	assert_int_equal(post(w, path, FORM, "Basic eDp0OmVu", &body), 200); /* x:t:en */
	assert_string_equal(w->authorization, "Bearer t:en");
	assert_int_equal(post(w, path, FORM, "Basic eA==", &body), 200); /* x */
	assert_string_equal(w->authorization, "");
}

/* ---- who may speak of what ---- */

static void rights_in_other_namespaces(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0};

	pb_cpu_profile(&profile);
	assert_int_equal(push_form(w, "shop%7Bnamespace%3Dbank%7D", &profile, NULL, NULL), 200);
	assert_string_equal(w->asked, "bank ");
	assert_int_equal(stored(w, EVENT_CPU, "pod_ns", "bank"), 30000);
	w->rights_status = 403;
	assert_int_equal(push_form(w, "x%7Bnamespace%3Dvault%7D", &profile, NULL, NULL), 403);
	assert_string_equal(w->body, "{\"code\":\"permission_denied\",\"message\":\"no right\"}\n");
	assert_int_equal(stored(w, EVENT_CPU, "pod_ns", "vault"), 0);
	/* its own namespace needs no further question */
	assert_int_equal(push_form(w, "y%7Bnamespace%3Dapp%7D", &profile, NULL, NULL), 200);
	assert_string_equal(w->asked, "");
	/* a sender with the right in all namespaces, as an agent, is bound to its node */
	w->everywhere = true;
	assert_int_equal(push_form(w, "z%7Bnamespace%3Dbank%7D", &profile, NULL, NULL), 403);
	assert_string_equal(w->asked, "");
}

/* Decoded profiles wait for the answer about rights: of a sender, one request at a time. */
static void rights_are_asked_one_at_a_time(void **state)
{
	static const char bank[] = "shop%7Bnamespace%3Dbank%7D";
	struct counter *refused = counter("podflame_ingest_no_room_total", "reason", "sender");
	uint64_t before = counter_get(refused);
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0};

	pb_cpu_profile(&profile);
	w->holds = true;
	push_form(w, bank, &profile, NULL, NULL);
	assert_int_equal(w->answer, 0);
	assert_string_equal(w->asked, "bank ");
	assert_int_equal(push_form(w, bank, &profile, NULL, NULL), 429);
	assert_string_equal(w->asked, "");
	assert_int_equal(counter_get(refused) - before, 1);
	/* who needs no answer is stored meanwhile */
	assert_int_equal(push_form(w, "y", &profile, NULL, NULL), 200);
	w->holds = false;
	w->answer = 0;
	w->held(200, NULL, w->held_arg);
	assert_int_equal(loop_run(w->loop), 0);
	assert_int_equal(w->answer, 200);
	assert_int_equal(push_form(w, bank, &profile, NULL, NULL), 200);
	assert_string_equal(w->asked, "bank ");
}

static void senders_that_may_not(void **state)
{
	static const struct {
		int status, want;
		const char *code;
	} cases[] = {{401, 401, "unauthenticated"},
		     {403, 403, "permission_denied"},
		     {503, 503, "unavailable"}};
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0};

	pb_cpu_profile(&profile);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *body =
			xasprintf("{\"code\":\"%s\",\"message\":\"because\"}\n", cases[i].code);

		w->status = cases[i].status;
		assert_int_equal(push_form(w, "shop", &profile, NULL, NULL), cases[i].want);
		assert_string_equal(w->body, body);
	}
}

/* ---- what is refused ---- */

static void bad_requests(void **state)
{
	static const struct {
		const char *path, *type;
		int status;
		const char *message;
	} cases[] = {
		{"/ingest?name=x", "text/plain", 415, "is \\\"groups\\\", which is not read here"},
		{"/ingest?name=x&format=jfr", FORM, 415, "format jfr is not read here"},
		{"/ingest?name=x&format=trie", "text/plain", 415, "format trie is not read here"},
		{"/ingest?name=x&format=tree", "text/plain", 415, "format tree is not read here"},
		{"/ingest?name=x&format=lines", "text/plain", 415, "format lines is not read"},
		{"/ingest?name=x&format=speedscope", FORM, 415, "format speedscope is not read"},
		{"/ingest?name=x&format=groups", FORM, 415, "format groups is not read here"},
		{"/ingest", FORM, 400, "name: names no application"},
		{"/ingest?name=%7Ba%3Db%7D", FORM, 400, "name: names no application"},
		{"/ingest?name=x%7Ba%3Db", FORM, 400, "name: does not end with"},
		{"/ingest?name=x%7Bab%7D", FORM, 400, "name: a label has no '='"},
		{"/ingest?name=x%7B%3Db%7D", FORM, 400, "labels: a name is empty"},
		{"/ingest?name=db%7Bnamespace%3Dprod,y%7Bnamespace%3Dapp%7D", FORM, 400,
		 "name: a label's name has a '{'"},
		{"/ingest?name=db%7Bnamespace%3Dprod,namespace%3Dapp%7D", FORM, 400,
		 "name: names a namespace or a pod twice"},
		{"/ingest?name=db%7Bpod%3Da,%20pod%3Db%7D", FORM, 400,
		 "name: names a namespace or a pod twice"},
		{"/ingest?name=x%7Ba%3D%ff%7D", FORM, 400, "labels: a text is not UTF-8"},
		{"/ingest?name=x&from=abc", FORM, 400, "from, until or sampleRate"},
		{"/ingest?name=x&until=17", FORM, 400, "from, until or sampleRate"},
		{"/ingest?name=x&sampleRate=-1", FORM, 400, "from, until or sampleRate"},
		{"/ingest?name=x", "multipart/form-data", 422, "body: is no multipart/form-data"},
		{"/ingest?name=x", FORM, 422, "body: is no multipart/form-data"},
		{"/ingest?name=x&format=pprof", "text/plain", 422, "profile: is no message"},
	};
	struct world *w = *state;
	_cleanup_buf_ struct buf body = {0};

	buf_puts(&body, "\x0f\xff no form, and no profile");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int status = post(w, cases[i].path, cases[i].type, "Bearer t", &body);

		if (status != cases[i].status || !strstr(w->body, cases[i].message))
			fail_msg("%s: %d %s", cases[i].path, status, w->body);
		assert_string_equal(w->type, "application/json");
	}
}

static void bad_forms(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0}, bomb = {0}, zeros = {0}, broken = {0};
	static char many[PPROF_MAX_BYTES + 1];

	pb_cpu_profile(&profile);
	assert_int_equal(push_form(w, "x", NULL, "other", "?"), 422);
	assert_non_null(strstr(w->body, "profile: the form has no such part"));
	assert_int_equal(push_form(w, "x", &profile, "prev_profile", "?"), 422);
	assert_non_null(strstr(w->body, "prev_profile: is not read here"));
	assert_int_equal(push_form(w, "x", NULL, "jfr", "?"), 415);
	assert_non_null(strstr(w->body, "jfr is not read here"));
	assert_int_equal(push_form(w, "x", &profile, "sample_type_config", "[]"), 422);
	assert_non_null(strstr(w->body, "sample_type_config: is no JSON object"));
	assert_int_equal(push_form(w, "x", &profile, "sample_type_config",
				   "{\"cpu\":{\"cumulative\":true}}"),
			 200);
	assert_int_equal(buf_add_gzip(&bomb, many, sizeof(many), 1), 0);
	assert_int_equal(push_form(w, "x", &bomb, NULL, NULL), 413);
	assert_non_null(strstr(w->body, "profile: is larger than 4194304 bytes when unpacked"));
	buf_puts(&broken, "\x1f\x8b no gzip");
	assert_int_equal(push_form(w, "x", &broken, NULL, NULL), 422);
	assert_non_null(strstr(w->body, "profile: is a damaged gzip file"));
	pb_strings(&zeros, (const char *const[]){"", "exceptions", "count", NULL});
	PB_NUMBERS(&zeros, 1, 1, 2);
	assert_int_equal(push_form(w, "x", &zeros, NULL, NULL), 422);
	assert_non_null(strstr(w->body, "no type of values of these profiles is stored: "
					"unsupported_type"));
}

/* A window in which nothing happened has types that are stored, and no samples. */
static void an_empty_window_is_no_error(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0};

	pb_strings(&profile,
		   (const char *const[]){"", "alloc_space", "bytes", "inuse_space", NULL});
	PB_NUMBERS(&profile, 1, 1, 2);
	PB_NUMBERS(&profile, 1, 3, 2);
	assert_int_equal(push_form(w, "x", &profile, "sample_type_config",
				   "{\"inuse_space\":{\"cumulative\":true}}"),
			 200);
	assert_int_equal(push_form(w, "x", &profile, "sample_type_config",
				   "{\"inuse_space\":{\"cumulative\":true},"
				   "\"alloc_space\":{\"cumulative\":true}}"),
			 422);
}

static void too_many_parts(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf body = {0}, profile = {0};
	_cleanup_free_ char *path = ingest_path("x");
	char type[160];

	pb_cpu_profile(&profile);
	for (int i = 0; i < 16; i++)
		add_part(&body, "other", "?", 1);
	make_form(&body, &profile, NULL, NULL);
	assert_int_equal(post(w, path, FORM, "Bearer t", &body), 422);
	assert_non_null(strstr(w->body, "body: the form has more than 16 parts"));
	snprintf(type, sizeof(type), "multipart/form-data; boundary=%071d", 0);
	assert_int_equal(post(w, path, type, "Bearer t", &body), 422);
	assert_non_null(strstr(w->body, "body: is no multipart/form-data"));
}

static void too_many_labels(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf name = {0}, long_name = {0}, profile = {0};

	pb_cpu_profile(&profile);
	buf_puts(&name, "x%7B");
	for (int i = 0; i <= PUSH_MAX_LABELS; i++)
		buf_printf(&name, "%sk%d%%3Dv", i ? "%2C" : "", i);
	buf_puts(&name, "%7D");
	assert_int_equal(push_form(w, name.data, &profile, NULL, NULL), 400);
	assert_non_null(strstr(w->body, "labels: more than 30"));
	buf_puts(&long_name, "x%7Ba%3D");
	for (int i = 0; i <= PPROF_MAX_VALUE; i++)
		buf_putc(&long_name, 'v');
	buf_puts(&long_name, "%7D");
	assert_int_equal(push_form(w, long_name.data, &profile, NULL, NULL), 400);
	assert_non_null(strstr(w->body, "more than 1024 bytes, or a value more than 2048"));
}

/* ---- push.v1 ---- */

static void add_label(struct buf *series, const char *name, const char *value)
{
	_cleanup_buf_ struct buf m = {0};

	pb_text(&m, 1, name);
	pb_text(&m, 2, value);
	pb_bytes(series, 1, m.data, m.len);
}

/* A request of one series; name NULL: it has no service_name. The profile's time is now. */
static void make_push(struct buf *b, const char *name, const struct buf *profile)
{
	_cleanup_buf_ struct buf series = {0}, sample = {0};

	pb_bytes(&sample, 1, profile->data, profile->len);
	pb_text(&sample, 2, "3f2504e0-4f89-11d3-9a0c-0305e82c3301");
	/* labels may stand behind the samples */
	pb_bytes(&series, 2, sample.data, sample.len);
	add_label(&series, "__name__", "process_cpu");
	add_label(&series, "otel.scope.name", "com.grafana.pyroscope/python");
	if (name)
		add_label(&series, "service_name", name);
	pb_bytes(b, 1, series.data, series.len);
}

static void a_push_is_stored(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf profile = {0}, body = {0};

	pb_cpu_profile(&profile);
	make_push(&body, "django", &profile);
	assert_int_equal(post(w, PUSH_PATH, "application/proto", "Bearer t", &body), 200);
	assert_string_equal(w->type, "application/proto");
	assert_string_equal(w->body, "");
	assert_int_equal(stored(w, EVENT_CPU, "app_service", "django"), 30000);
	assert_int_equal(stored(w, EVENT_CPU, "pod", "web-1"), 30000);
	assert_int_equal(stored(w, EVENT_CPU, "producer", "com.grafana.pyroscope/python"), 30000);
	assert_int_equal(stored(w, EVENT_CPU, "profile_language_type", "python"), 30000);
}

static void a_push_in_json(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf body = {0};

	buf_puts(&body,
		 "{\"series\":[{\"labels\":[{\"name\":\"service_name\",\"value\":\"node\"},"
		 "{\"name\":\"__name__\",\"value\":\"wall\"}],\"samples\":[{\"rawProfile\":\"");
	/* one sample of one second; base64 of pb_strings and two messages */
	buf_puts(&body, "MgAyBHdhbGwyB3NlY29uZHMKBAgBEAISAhAB");
	buf_puts(&body, "\"}]}]}");
	assert_int_equal(post(w, PUSH_PATH, "application/json; charset=utf-8", "Bearer t", &body),
			 200);
	assert_string_equal(w->type, "application/json");
	assert_string_equal(w->body, "{}");
}

static void bad_pushes(void **state)
{
	static const struct {
		const char *type, *text;
		int status;
		const char *code, *message;
	} cases[] = {
		{"text/plain", "", 415, "invalid_argument", "is not application/proto"},
		{"application/proto", "\x0a\x7f", 400, "invalid_argument",
		 "PushRequest: is no such message of protobuf"},
		{"application/json", "[]", 400, "invalid_argument",
		 "PushRequest: is no such message in JSON"},
		{"application/json", "{\"series\":[{\"samples\":[{}]}]}", 400, "invalid_argument",
		 "rawProfile: is no base64"},
		{"application/json", "{\"series\":[{\"samples\":[{\"rawProfile\":\"MgA=\"}]}]}",
		 400, "invalid_argument", "rawProfile: the label service_name is missing"},
		{"application/json",
		 "{\"series\":[{\"labels\":[{\"name\":\"service_name\",\"value\":\"x\"}],"
		 "\"samples\":[{\"raw_profile\":\"MgA=\"}]}]}",
		 400, "invalid_argument", "rawProfile: has no sample_type"},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf body = {0};
		_cleanup_free_ char *code = xasprintf("{\"code\":\"%s\",", cases[i].code);
		int status;

		buf_puts(&body, cases[i].text);
		status = post(w, PUSH_PATH, cases[i].type, "Bearer t", &body);
		if (status != cases[i].status || !strstr(w->body, cases[i].message) ||
		    !str_has_prefix(w->body, code))
			fail_msg("%s: %d %s", cases[i].text, status, w->body);
	}
}

/* A profile that becomes five, with so many samples. */
static void make_counts(struct buf *b, int n_samples)
{
	static const char *const texts[] = {
		"",	      "count",	     "alloc_objects", "inuse_objects",
		"goroutines", "mutex_count", "block_count",   NULL};

	pb_strings(b, texts);
	for (int type = 2; type < 2 + N_COUNTS; type++)
		PB_NUMBERS(b, 1, type, 1);
	for (int i = 0; i < n_samples; i++)
		pb_sample(b, (const int64_t[]){0}, (const int64_t[]){1, 1, 1, 1, 1, 0}, 0, 0);
}

/* A series with so many times the same profile. */
static void make_pushes(struct buf *b, const struct buf *profile, int n)
{
	_cleanup_buf_ struct buf series = {0}, sample = {0};

	pb_bytes(&sample, 1, profile->data, profile->len);
	add_label(&series, "service_name", "x");
	for (int i = 0; i < n; i++)
		pb_bytes(&series, 2, sample.data, sample.len);
	pb_bytes(b, 1, series.data, series.len);
}

/* Many profiles of few bytes: each becomes one for each of its types. */
static void too_many_profiles(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf body = {0}, profile = {0};

	make_counts(&profile, 0);
	make_pushes(&body, &profile, 1 + PUSH_MAX_PROFILES / N_COUNTS);
	assert_int_equal(post(w, PUSH_PATH, "application/proto", "Bearer t", &body), 429);
	assert_non_null(strstr(w->body, "raw_profile: the request has too many profiles"));
}

/* Packed, they are a few hundred bytes each. */
static void too_many_samples_of_a_request(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf body = {0}, profile = {0}, packed = {0};

	make_counts(&profile, PPROF_MAX_SAMPLES);
	assert_int_equal(buf_add_gzip(&packed, profile.data, profile.len, 1), 0);
	make_pushes(&body, &packed, 1 + PUSH_MAX_SAMPLES / (PPROF_MAX_SAMPLES * N_COUNTS));
	assert_int_equal(post(w, PUSH_PATH, "application/proto", "Bearer t", &body), 429);
	assert_non_null(strstr(w->body, "raw_profile: the request has too many profiles, samples"));
}

/* What is not stored takes time all the same: here no type of the profiles is known. */
static void unknown_profiles_count(void **state)
{
	static const struct {
		int n;
		size_t bytes; /* of each, unpacked */
		int status;
	} cases[] = {{PUSH_MAX_PROFILES, 1, 400},
		     {PUSH_MAX_PROFILES + 1, 1, 429},
		     {15, PUSH_MAX_UNPACKED / 16, 400},
		     {17, PUSH_MAX_UNPACKED / 16 - 100, 429}};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf body = {0}, profile = {0}, packed = {0};
		_cleanup_free_ char *fill = xcalloc(1, cases[i].bytes);

		pb_strings(&profile, (const char *const[]){"", "exceptions", "count", NULL});
		PB_NUMBERS(&profile, 1, 1, 2);
		if (cases[i].bytes > 100)
			pb_bytes(&profile, 15, fill, cases[i].bytes - 100);
		assert_int_equal(buf_add_gzip(&packed, profile.data, profile.len, 1), 0);
		make_pushes(&body, &packed, cases[i].n);
		assert_int_equal(post(w, PUSH_PATH, "application/proto", "Bearer t", &body),
				 cases[i].status);
	}
}

static void a_push_beyond_a_limit(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf body = {0}, bomb = {0}, large = {0};
	static char many[PPROF_MAX_BYTES + 1];

	for (int i = 0; i <= PUSH_MAX_SERIES; i++)
		pb_bytes(&body, 1, "", 0);
	assert_int_equal(post(w, PUSH_PATH, "application/proto", "Bearer t", &body), 429);
	assert_string_equal(w->body,
			    "{\"code\":\"resource_exhausted\",\"message\":\"series: more than "
			    "1000\"}\n");
	assert_int_equal(buf_add_gzip(&bomb, many, sizeof(many), 1), 0);
	make_push(&large, "x", &bomb);
	assert_int_equal(post(w, PUSH_PATH, "application/proto", "Bearer t", &large), 429);
	assert_non_null(strstr(w->body, "raw_profile: is larger than 4194304 bytes"));
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_form_is_stored),
		TEST(a_repeat_counts_once),
		TEST(a_profile_without_a_form),
		TEST(basic_sign_in),
		TEST(rights_in_other_namespaces),
		TEST(rights_are_asked_one_at_a_time),
		TEST(senders_that_may_not),
		TEST(bad_requests),
		TEST(bad_forms),
		TEST(an_empty_window_is_no_error),
		TEST(too_many_parts),
		TEST(too_many_labels),
		TEST(a_push_is_stored),
		TEST(a_push_in_json),
		TEST(bad_pushes),
		TEST(too_many_profiles),
		TEST(too_many_samples_of_a_request),
		TEST(unknown_profiles_count),
		TEST(a_push_beyond_a_limit),
	};

	return cmocka_run_group_tests_name("push", tests, NULL, NULL);
}
