/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hubs over loopback: that of cluster b, which forwards, and the central one, which stores.
 * Between them is a proxy that loses answers, or answers itself. Agents of cluster b send windows
 * until they are told that these are stored. What counts is what the central store has at the end.
 */
#include "hub/ingest/ingest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/kube/testwatches.h"
#include "hub/pods/testpods.h"
#include "lib/loop/testserver.h"

#define MAX_WINDOWS 64
#define FIRST_S	    1763700000 /* when the first window begins */
#define N_SAMPLES   7	       /* of each profile */

/* How the proxy handles a request. It is the default again when the number of them is used up. */
enum fault {
	NO_FAULT,
	LOSE_ANSWER, /* the central hub has stored the request; the connection breaks then */
	NO_REQUEST,  /* the connection breaks before the central hub gets it */
	REFUSE,	     /* 422 with CLOCK_AHEAD */
	HOLD,	     /* waits until the test sets the flag, and then goes on */
};

struct hub {
	struct store *store;
	struct worker *writer;
	struct ingest *ingest;
	struct http_server *server;
};

struct window {
	struct world *world;
	unsigned nr;
	bool with_foreign; /* the batch has one more profile: of a pod of another node */
	bool only_foreign, unverified;
	int status; /* of the last answer */
	unsigned n_tries;
	char body[600], retry_after[8];
	struct timer again;
};

struct world {
	struct loop *loop;
	struct hub central, b;
	struct forward *forward;
	struct pods *pods;
	struct test_server *proxy;
	struct http_client *agents;
	json_t *pod_objects[2];
	char url[64];
	_Atomic uint16_t central_port; /* the threads of the proxy read it */
	/* under lock of the proxy */
	enum fault fault;
	int n_faults, n_lost;
	struct window windows[MAX_WINDOWS];
	unsigned n_windows;
	bool gives_up; /* an agent sends a window once */
	bool (*until)(struct world *w);
	uint64_t deadline_ns;
	struct timer poll;
};

/* ---- the hubs ---- */

/* Both know who sends by the token: agents of cluster b have the name of their node as token. */
static void auth(const char *authorization, const char *peer,
		 void (*done)(const struct ingest_sender *s, void *arg), void *done_arg, void *arg)
{
	const struct ingest_sender s = {.status = 200,
					.error = "",
					.node = authorization + strlen("Bearer "),
					.agent = true};

	(void)peer;
	(void)arg;
	done(&s, done_arg);
}

static void head_in(struct http_conn *c, const struct http_in *in, void *arg)
{
	ingest_http_head(c, in, ((struct hub *)arg)->ingest);
}

static void body_in(struct http_conn *c, const struct http_in *in, void *arg)
{
	ingest_http(c, in, ((struct hub *)arg)->ingest);
}

static void hub_open(struct world *w, struct hub *h, struct ingest_config *ic, uint16_t port)
{
	const struct http_server_config hc = {.address = "127.0.0.1",
					      .port = port,
					      .max_body_bytes = OTLP_MAX_BYTES,
					      .head = head_in,
					      .handler = body_in,
					      .arg = h};

	assert_int_equal(worker_new(w->loop, "writer", 8 << 20, &h->writer), 0);
	ic->store = h->store;
	ic->writer = h->writer;
	assert_int_equal(ingest_new(w->loop, ic, &h->ingest), 0);
	assert_int_equal(http_server_new(w->loop, &hc, &h->server, NULL), 0);
}

/* As hub_free() does: requests under way are not answered. */
static void hub_end(struct hub *h)
{
	h->server = http_server_free(h->server);
	h->writer = worker_free(h->writer);
	h->ingest = ingest_free(h->ingest);
}

static void open_central(struct world *w)
{
	hub_open(w, &w->central, &(struct ingest_config){0}, w->central_port);
	w->central_port = http_server_port(w->central.server);
}

static void open_b(struct world *w)
{
	const struct forward_config fc = {.url = w->url, .ca_file = "", .token_file = ""};
	struct http_client_config cc = {.address = "127.0.0.1"};

	assert_int_equal(forward_new(w->loop, &fc, &w->forward, NULL), 0);
	hub_open(w, &w->b,
		 &(struct ingest_config){
			 .forward = w->forward, .auth = auth, .pods = w->pods, .cluster_name = "b"},
		 0);
	cc.port = http_server_port(w->b.server);
	assert_int_equal(http_client_new(w->loop, &cc, &w->agents), 0);
}

static void end_b(struct world *w)
{
	w->agents = http_client_free(w->agents);
	hub_end(&w->b);
	w->forward = forward_free(w->forward);
}

/* ---- the proxy ---- */

static int connect_to(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Gives the request to the central hub and reads its answer, until the end of its body. */
static void ask_central(struct world *w, const struct ts_request *r, struct buf *ret)
{
	static const char last[] = "Connection: close\r\n\r\n";
	_cleanup_close_ int fd = connect_to(w->central_port);
	char piece[4096];
	ssize_t n;

	if (fd < 0 || fd_write_all(fd, r->head, strlen(r->head) - 2) < 0 ||
	    fd_write_all(fd, last, strlen(last)) < 0 ||
	    fd_write_all(fd, r->body, r->body_bytes) < 0)
		return;
	while ((n = recv(fd, piece, sizeof(piece), 0)) > 0)
		buf_add(ret, piece, (size_t)n);
}

static enum fault next_fault(struct world *w, struct test_server *s)
{
	enum fault f = NO_FAULT;

	pthread_mutex_lock(&s->lock);
	if (w->n_faults > 0) {
		w->n_faults--;
		f = w->fault;
	}
	w->n_lost += f == LOSE_ANSWER;
	pthread_mutex_unlock(&s->lock);
	return f;
}

static void proxy(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	_cleanup_buf_ struct buf answer = {0};
	struct world *w = arg;
	enum fault f = next_fault(w, c->server);

	c->over = true;
	if (f == NO_REQUEST) {
		ts_reset(c);
		return;
	}
	if (f == REFUSE) {
		ts_reply(c, 422, "Connection: close\r\n",
			 "{\"message\":\"ahead\",\"details\":[{\"@type\":\"" OTLP_ERROR_INFO
			 "\",\"reason\":\"CLOCK_AHEAD\"}]}");
		return;
	}
	if (f == HOLD)
		ts_await_flag(c, 1);
	ask_central(w, r, &answer);
	if (f == LOSE_ANSWER)
		ts_reset(c);
	else if (answer.len)
		ts_write(c, answer.data, answer.len);
}

static void set_fault(struct world *w, enum fault f, int n)
{
	pthread_mutex_lock(&w->proxy->lock);
	w->fault = f;
	w->n_faults = n;
	pthread_mutex_unlock(&w->proxy->lock);
}

/* ---- the agents ---- */

static void put_profile(struct batch *b, const struct window *d, const char *ns, const char *pod,
			const char *uid)
{
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s;
	struct frame f = {.kind = FRAME_APP, .name = "main"};

	p->id[0] = (uint8_t)d->nr;
	p->id[1] = *ns == 'b';
	p->start_ns = (FIRST_S + 10 * d->nr) * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = 1 + d->nr;
	profile_tag(b, p, "pod_cluster", "a"); /* a lie */
	profile_tag(b, p, "pod_node", "n1");
	profile_tag(b, p, "pod_ns", ns);
	profile_tag(b, p, "pod", pod);
	profile_tag(b, p, "pod_uid", uid);
	s = profile_add(b, p);
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
	s->value = s->n_samples = N_SAMPLES;
}

static void encode_window(const struct window *d, struct buf *out)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	_cleanup_buf_ struct buf bytes = {0};

	if (d->unverified)
		put_profile(b, d, "app", "gone", "uid-gone");
	else if (!d->only_foreign)
		put_profile(b, d, "app", "web-1", "uid-web");
	if (d->with_foreign || d->only_foreign)
		put_profile(b, d, "bank", "vault", "uid-vault");
	assert_int_equal(otlp_encode(b, &bytes), 0);
	assert_int_equal(http_compress(bytes.data, bytes.len, out), 0);
}

static void send_window(void *arg);

static void on_head(int status, const struct http_headers *h, void *arg)
{
	struct window *d = arg;

	(void)status;
	snprintf(d->retry_after, sizeof(d->retry_after), "%s", http_header(h, "Retry-After") ?: "");
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct window *d = arg;
	struct world *w = d->world;

	(void)error;
	d->status = status ?: -1;
	snprintf(d->body, sizeof(d->body), "%.*s", (int)n, body ?: "");
	if ((status == 503 || !status) && !w->gives_up)
		timer_set(w->loop, &d->again, NSEC_PER_MSEC, send_window, d);
}

static void send_window(void *arg)
{
	static const char *const headers[] = {"Content-Type: " OTLP_CONTENT_TYPE,
					      "Content-Encoding: zstd", "Authorization: Bearer n1",
					      NULL};
	struct window *d = arg;
	_cleanup_buf_ struct buf body = {0};
	struct http_request r = {.method = "POST",
				 .path = OTLP_PATH,
				 .headers = headers,
				 .on_head = on_head,
				 .on_done = on_done,
				 .arg = d};

	encode_window(d, &body);
	r.body = body.data;
	r.body_bytes = body.len;
	d->n_tries++;
	d->status = 0;
	assert_int_equal(http_send(d->world->agents, &r, NULL), 0);
}

static struct window *add_window(struct world *w)
{
	struct window *d = &w->windows[w->n_windows];

	assert_true(w->n_windows < MAX_WINDOWS);
	*d = (struct window){.world = w, .nr = w->n_windows++};
	return d;
}

static void send_windows(struct world *w, unsigned n)
{
	while (n--)
		send_window(add_window(w));
}

/* ---- the test waits ---- */

static void poll_world(void *arg)
{
	struct world *w = arg;

	if (w->until(w))
		loop_stop(w->loop, 0);
	else if (now_mono_ns() > w->deadline_ns)
		loop_stop(w->loop, 1);
	else
		timer_set(w->loop, &w->poll, NSEC_PER_MSEC, poll_world, w);
}

static void run_until(struct world *w, bool (*until)(struct world *w))
{
	w->until = until;
	w->deadline_ns = now_mono_ns() + 60 * NSEC_PER_SEC;
	timer_set(w->loop, &w->poll, 0, poll_world, w);
	if (loop_run(w->loop))
		fail_msg("not in time; window 0: %d %s", w->windows[0].status, w->windows[0].body);
}

static bool all_answered(struct world *w)
{
	for (unsigned i = 0; i < w->n_windows; i++)
		if (!w->windows[i].status || (w->windows[i].status != 200 && !w->gives_up))
			return false;
	return true;
}

static bool five_at_the_proxy(struct world *w)
{
	return ts_n_requests(w->proxy) >= 5;
}

static bool tried_again(struct world *w)
{
	return w->windows[0].n_tries > 1;
}

/* ---- what the central store has ---- */

static int add_row(const struct store_row *row, void *arg)
{
	*(uint64_t *)arg += row->n_samples;
	return 0;
}

static uint64_t samples_with(struct world *w, const char *tag, const char *value)
{
	char *values[] = {(char *)value};
	struct predicate p = {.op = PRED_EQ, .tag = (char *)tag, .values = values, .n_values = 1};
	const struct selection sel = {.time_start_s = 0, .time_end_s = INT32_MAX, .where = &p};
	struct store_summary sum = {0};
	struct field_error e = {0};
	uint64_t n = 0;

	if (store_read(w->central.store, &store_scope_all, &sel, add_row, &n, &sum, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_summary_done(&sum);
	return n;
}

/* The central store has each of n windows once, all of cluster b. */
static void assert_stored(struct world *w, unsigned n)
{
	struct store_stats st;

	store_stats(w->central.store, &st);
	assert_int_equal(st.n_profiles, n);
	assert_int_equal(samples_with(w, "pod_cluster", "b"), n * N_SAMPLES);
	assert_int_equal(samples_with(w, "pod_ns", "app"), n * N_SAMPLES);
	assert_int_equal(samples_with(w, "pod_ns", "bank"), 0);
}

/* ---- fixture ---- */

static void know_pods(struct world *w)
{
	struct kube_watch *watch;

	assert_int_equal(pods_new(w->loop, testwatches(NULL), &w->pods), 0);
	w->pod_objects[0] = put_pod("app", "web-1", "uid-web", "n1");
	w->pod_objects[1] = put_pod("bank", "vault", "uid-vault", "n2");
	watch = watch_of("/pods");
	watch->synced = true;
	watch->ops.synced(watch->arg);
}

static int setup(void **state)
{
	const struct store_config keeps = {.kind = "sqlite", .path = ":memory:"},
				  keeps_none = {.kind = "null"};
	struct world *w = xcalloc(1, sizeof(*w));

	assert_int_equal(loop_new(&w->loop), 0);
	know_pods(w);
	assert_int_equal(store_open(&keeps, &w->central.store, NULL), 0);
	assert_int_equal(store_open(&keeps_none, &w->b.store, NULL), 0);
	open_central(w);
	w->proxy = ts_start(&(struct ts_config){0}, proxy, w);
	snprintf(w->url, sizeof(w->url), "http://127.0.0.1:%u", w->proxy->port);
	open_b(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	struct store_stats st;

	for (unsigned i = 0; i < w->n_windows; i++)
		timer_cancel(&w->windows[i].again);
	end_b(w);
	hub_end(&w->central);
	ts_stop(w->proxy);
	pods_free(w->pods);
	timer_cancel(&w->poll);
	loop_free(w->loop);
	store_stats(w->b.store, &st);
	assert_int_equal(st.n_profiles, 0); /* the hub of cluster b keeps none */
	store_close(w->b.store);
	store_close(w->central.store);
	for (size_t i = 0; i < ARRAY_SIZE(w->pod_objects); i++)
		json_decref(w->pod_objects[i]);
	free(w);
	return 0;
}

/* ---- tests ---- */

static void test_windows_arrive(void **state)
{
	struct world *w = *state;

	send_windows(w, 20);
	run_until(w, all_answered);
	assert_stored(w, 20);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(w->windows[i].n_tries, 1);
}

/* The central hub has stored windows, but its answers are lost: the agents send them again. */
static void test_lost_answers(void **state)
{
	struct world *w = *state;
	struct store_stats st;

	set_fault(w, LOSE_ANSWER, 15);
	send_windows(w, 20);
	run_until(w, all_answered);
	assert_int_equal(w->n_lost, 15);
	assert_stored(w, 20);
	store_stats(w->central.store, &st);
	assert_int_equal(st.n_duplicates, 15);
}

static void test_lost_requests(void **state)
{
	struct world *w = *state;

	set_fault(w, NO_REQUEST, 30);
	send_windows(w, 10);
	run_until(w, all_answered);
	assert_stored(w, 10);
}

/* The hub of cluster b ends while windows are on their way, and starts again. */
static void test_restart_in_the_middle(void **state)
{
	struct world *w = *state;

	set_fault(w, HOLD, 5);
	send_windows(w, 5);
	run_until(w, five_at_the_proxy);
	end_b(w);
	ts_set_flag(w->proxy, 1); /* the central hub gets them now; nobody waits for its answer */
	open_b(w);
	for (unsigned i = 0; i < w->n_windows; i++)
		send_window(&w->windows[i]);
	run_until(w, all_answered);
	assert_stored(w, 5);
}

/* The central hub is away. The agents are told so, and keep their windows until it is back. */
static void test_central_is_away(void **state)
{
	struct world *w = *state;

	hub_end(&w->central);
	send_windows(w, 3);
	run_until(w, tried_again);
	open_central(w);
	run_until(w, all_answered);
	assert_stored(w, 3);
	w->gives_up = true;
	hub_end(&w->central);
	send_windows(w, 1);
	run_until(w, all_answered);
	assert_int_equal(w->windows[3].status, 503);
	assert_string_equal(w->windows[3].retry_after, "5");
	assert_non_null(strstr(w->windows[3].body, "the central hub does not take profiles now"));
}

/* One window that the central hub refuses takes no other one with it. */
static void test_one_is_refused(void **state)
{
	struct world *w = *state;
	char said[64], why[64];

	w->gives_up = true;
	send_windows(w, 1);
	run_until(w, all_answered);
	set_fault(w, REFUSE, 1);
	send_windows(w, 1);
	run_until(w, all_answered);
	send_windows(w, 1);
	run_until(w, all_answered);
	assert_int_equal(w->windows[1].status, 422);
	otlp_status_read(w->windows[1].body, strlen(w->windows[1].body), said, sizeof(said), why,
			 sizeof(why));
	assert_string_equal(said, "the central hub: ahead");
	assert_string_equal(why, OTLP_CLOCK_AHEAD);
	assert_stored(w, 2);
}

/*
 * The hub of cluster b judges its agents before: what speaks of a pod of another node never leaves
 * the cluster, and the mark of what could not be verified arrives.
 */
static void test_agents_are_judged_before(void **state)
{
	struct world *w = *state;
	struct window *both = add_window(w), *none, *gone;
	char why[100];

	both->with_foreign = true;
	send_window(both);
	run_until(w, all_answered);
	assert_int_equal(otlp_rejected(both->body, strlen(both->body), why, sizeof(why)), 1);
	assert_string_equal(why, "pod_of_another_node");
	assert_stored(w, 1);
	none = add_window(w);
	none->only_foreign = true;
	send_window(none);
	run_until(w, all_answered);
	assert_int_equal(none->status, 200);
	assert_int_equal(ts_n_requests(w->proxy), 1);
	gone = add_window(w);
	gone->unverified = true;
	send_window(gone);
	run_until(w, all_answered);
	assert_stored(w, 2);
	assert_int_equal(samples_with(w, TAG_UNVERIFIED, "true"), N_SAMPLES);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_windows_arrive),
		TEST(test_lost_answers),
		TEST(test_lost_requests),
		TEST(test_restart_in_the_middle),
		TEST(test_central_is_away),
		TEST(test_one_is_refused),
		TEST(test_agents_are_judged_before),
	};

	return cmocka_run_group_tests_name("central", tests, NULL, NULL);
}
