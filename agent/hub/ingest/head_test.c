/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hub decides from the head of a request, before it reads the body, and how many bytes may
 * be on their way at once.
 */
#include "hub/ingest/ingest.h"
#include "lib/base/testclock.h"

#include <arpa/inet.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * Of so many senders, each may announce a body of OTLP_MAX_BYTES: as much is left as one of them
 * has.
 */
#define N_LARGE	    3
#define OF_SENDER   2 /* so many such bodies one sender may announce: half of MAX_PENDING_BYTES */
#define PATH	    "POST " OTLP_PATH " HTTP/1.1\r\n"
#define TYPE	    "Content-Type: " OTLP_CONTENT_TYPE "\r\n"
#define TOKEN	    "Authorization: Bearer t\r\n"
#define LARGE	    "Content-Length: 33554432\r\n"
#define CHUNKED	    "Transfer-Encoding: chunked\r\n"
#define NOT_YET	    "Expect: 100-continue\r\n" /* the client waits for MAY_COME */
#define MAY_COME    "HTTP/1.1 100 Continue\r\n\r\n"
#define BAD_BODY    "HTTP/1.1 400 "
#define EMPTY_BODY  "0\r\n\r\n"
#define NOT_CHUNKED "a chunk's size is not a hexadecimal number"

struct world {
	struct loop *loop;
	struct worker *writer;
	struct store *store;
	struct ingest *ingest;
	struct http_server *server;
	struct timer guard;
	int status; /* what auth returns for the sender */
	const char *node, *cluster;
	const char *ns; /* of one that pushes */
	bool late;	/* auth does not call done; the test calls it later */
	unsigned n_asked;
	void (*done)(const struct ingest_sender *s, void *arg);
	void *done_arg;
};

static void auth(const char *authorization, const char *peer,
		 void (*done)(const struct ingest_sender *s, void *arg), void *done_arg, void *arg)
{
	struct world *w = arg;

	assert_string_equal(authorization, "Bearer t");
	assert_string_equal(peer, "127.0.0.1");
	w->n_asked++;
	w->done = done;
	w->done_arg = done_arg;
	if (w->late)
		loop_stop(w->loop, 0);
	else
		done(&(struct ingest_sender){.status = w->status,
					     .error = w->status == 200 ? "" : "because",
					     .node = w->node,
					     .hosts = true,
					     .agent = true,
					     .cluster = w->cluster,
					     .ns = w->ns},
		     done_arg);
}

static int setup(void **state)
{
	const struct store_config sc = {.kind = "null"};
	struct world *w = xcalloc(1, sizeof(*w));
	struct ingest_config ic = {
		.auth = auth, .push_auth = auth, .auth_arg = w, .cluster_name = "c1"};
	struct http_server_config hc = {.address = "127.0.0.1",
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = ingest_http_head,
					.handler = ingest_http,
					.refuse = ingest_http_refuse};

	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(store_open(&sc, &w->store, NULL), 0);
	assert_int_equal(worker_new(w->loop, "writer", 1 << 20, &w->writer), 0);
	ic.store = w->store;
	ic.writer = w->writer;
	assert_int_equal(ingest_new(w->loop, &ic, &w->ingest), 0);
	hc.arg = w->ingest;
	assert_int_equal(http_server_new(w->loop, &hc, &w->server, NULL), 0);
	w->status = 200;
	w->node = "node-a";
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	http_server_free(w->server);
	worker_free(w->writer);
	ingest_free(w->ingest);
	timer_cancel(&w->guard);
	loop_free(w->loop);
	store_close(w->store);
	free(w);
	return 0;
}

/* ---- a sender, byte by byte ---- */

struct peer {
	struct world *w;
	int fd;
	struct buf got;
};

static void guard(void *arg)
{
	loop_stop(((struct world *)arg)->loop, 1);
}

static void run(struct world *w)
{
	timer_set(w->loop, &w->guard, 300 * NSEC_PER_SEC, guard, w);
	assert_int_equal(loop_run(w->loop), 0);
}

static void say(struct peer *p, const char *text)
{
	assert_int_equal(send(p->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void call(struct world *w, struct peer *p, const char *head)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(http_server_port(w->server)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	*p = (struct peer){.w = w, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	assert_true(p->fd >= 0);
	assert_int_equal(connect(p->fd, (struct sockaddr *)&to, sizeof(to)), 0);
	say(p, head);
	say(p, "Host: hub\r\n\r\n");
}

static void hang_up(struct peer *p)
{
	close(p->fd);
	buf_done(&p->got);
}

static void readable(int fd, void *arg)
{
	struct peer *p = arg;
	char bytes[4096];
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n > 0)
		buf_add(&p->got, bytes, (size_t)n);
	else if (n == 0)
		buf_puts(&p->got, "[closed]");
	loop_stop(p->w->loop, 0);
}

/* Returns the next answer of the hub, with its body. */
static const char *hear(struct peer *p)
{
	struct watch *watch;

	buf_reset(&p->got);
	assert_int_equal(watch_new(p->w->loop, p->fd, readable, p, &watch), 0);
	while (!p->got.data || !p->got.len)
		run(p->w);
	watch_free(watch);
	return p->got.data;
}

static void assert_said(const char *text, const char *begin, const char *part)
{
	if (!str_has_prefix(text, begin) || !strstr(text, part))
		fail_msg("\"%s\" does not begin with \"%s\" and hold \"%s\"", text, begin, part);
}

/* ---- tests ---- */

/* The hub refuses these requests by their head: no client has sent a byte of its body. */
static void refused_by_the_head(void **state)
{
	static const struct {
		const char *head, *answer, *part;
	} cases[] = {
		{PATH TYPE LARGE, "HTTP/1.1 401 ", "WWW-Authenticate: Bearer"},
		{"POST /v1/traces HTTP/1.1\r\n" TYPE TOKEN LARGE, "HTTP/1.1 404 ", OTLP_PATH},
		{"PUT " OTLP_PATH " HTTP/1.1\r\n" TYPE TOKEN LARGE, "HTTP/1.1 405 ", "Allow: POST"},
		{PATH TOKEN "Content-Type: text/plain\r\n" LARGE, "HTTP/1.1 415 ",
		 "Content-Type: \\\"text/plain\\\""},
		{PATH TOKEN TYPE "Content-Encoding: br\r\n" LARGE, "HTTP/1.1 415 ",
		 "Accept-Encoding: zstd, gzip"},
		{PATH TOKEN TYPE "Content-Length: 33554433\r\n", "HTTP/1.1 413 ",
		 "body: more than"},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct peer p;

		call(w, &p, cases[i].head);
		assert_said(hear(&p), cases[i].answer, cases[i].part);
		hang_up(&p);
	}
	assert_int_equal(w->n_asked, 0);
}

/* The HTTP server itself refuses a head that is too large, and a body that is not chunked. */
static void refused_by_the_server(void **state)
{
	static const struct {
		const char *head, *type;
		const char *too_large, *too_large_text, *not_chunked, *not_chunked_text;
	} cases[] = {
		{PATH TYPE, "Content-Type: " OTLP_CONTENT_TYPE "\r\n", "HTTP/1.1 431 ",
		 "\x08\x08\x12\x1dthe head has more than 64 KiB", "HTTP/1.1 400 ",
		 "\x08\x03\x12*" NOT_CHUNKED},
		{PATH "Content-Type: " OTLP_JSON_TYPE "\r\n",
		 "Content-Type: " OTLP_JSON_TYPE "\r\n", "HTTP/1.1 431 ",
		 "{\"code\":8,\"message\":\"the head has", "HTTP/1.1 400 ",
		 "{\"code\":3,\"message\":\"" NOT_CHUNKED},
		{"POST /ingest?name=a&format=pprof HTTP/1.1\r\n",
		 "Content-Type: " OTLP_JSON_TYPE "\r\n", "HTTP/1.1 431 ",
		 "{\"code\":\"resource_exhausted\",\"message\":\"the head has", "HTTP/1.1 400 ",
		 "{\"code\":\"invalid_argument\",\"message\":\"" NOT_CHUNKED},
		{"POST /push.v1.PusherService/Push HTTP/1.1\r\nContent-Type: application/proto\r\n",
		 "Content-Type: " OTLP_JSON_TYPE "\r\n", "HTTP/1.1 429 ",
		 "{\"code\":\"resource_exhausted\",\"message\":\"the head has", "HTTP/1.1 400 ",
		 "{\"code\":\"invalid_argument\",\"message\":\"" NOT_CHUNKED},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *large = xasprintf("%sX: %070000d\r\n", cases[i].head, 0),
				    *chunked = xasprintf("%s" TOKEN CHUNKED, cases[i].head);
		struct peer p;

		call(w, &p, large);
		assert_said(hear(&p), cases[i].too_large, cases[i].type);
		assert_said(p.got.data, cases[i].too_large, cases[i].too_large_text);
		hang_up(&p);
		call(w, &p, chunked);
		say(&p, "zz\r\n");
		assert_said(hear(&p), cases[i].not_chunked, cases[i].type);
		assert_said(p.got.data, cases[i].not_chunked, cases[i].not_chunked_text);
		hang_up(&p);
	}
}

static void refused_by_the_sender(void **state)
{
	static const int statuses[] = {401, 403, 503};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		_cleanup_free_ char *begin = xasprintf("HTTP/1.1 %d ", statuses[i]);
		struct peer p;

		w->status = statuses[i];
		call(w, &p, PATH TOKEN TYPE LARGE);
		assert_said(hear(&p), begin, "because");
		hang_up(&p);
	}
	assert_int_equal(w->n_asked, ARRAY_SIZE(statuses));
}

/*
 * The hub reads the body only after it knows the sender. It asks about the sender once per request,
 * also if several requests come over one connection.
 */
static void a_body_waits_for_its_sender(void **state)
{
	struct world *w = *state;
	struct peer p;

	w->late = true;
	call(w, &p, PATH TOKEN TYPE CHUNKED NOT_YET);
	run(w); /* until the hub asks about the sender */
	assert_int_equal(recv(p.fd, (char[1]){0}, 1, MSG_DONTWAIT), -1);
	w->done(
		&(struct ingest_sender){
			.status = 200, .error = "", .node = "node-a", .hosts = true, .agent = true},
		w->done_arg);
	assert_string_equal(hear(&p), MAY_COME);
	say(&p, EMPTY_BODY);
	assert_said(hear(&p), "HTTP/1.1 200 ", "");
	assert_int_equal(w->n_asked, 1);
	w->late = false;
	w->status = 401;
	say(&p, PATH TOKEN TYPE CHUNKED NOT_YET "Host: hub\r\n\r\n");
	assert_said(hear(&p), "HTTP/1.1 401 ", "because");
	assert_int_equal(w->n_asked, 2);
	hang_up(&p);
}

/* As many senders as can announce a large body; the hub waits for each of them. */
static const char *const large_nodes[N_LARGE] = {"large-1", "large-2", "large-3"};

static void call_large(struct world *w, struct peer *peers, const char *length)
{
	_cleanup_free_ char *head = xasprintf(PATH TOKEN TYPE NOT_YET "%s", length);

	for (size_t i = 0; i < N_LARGE; i++) {
		w->node = large_nodes[i];
		call(w, &peers[i], head);
		assert_string_equal(hear(&peers[i]), MAY_COME);
	}
	w->node = "node-a";
}

static void assert_no_room(struct world *w, const char *answer, const char *why)
{
	struct peer p;

	call(w, &p, PATH TOKEN TYPE NOT_YET LARGE);
	assert_said(hear(&p), answer, "Retry-After: 5");
	assert_said(p.got.data, answer, why);
	hang_up(&p);
}

static void assert_full(struct world *w)
{
	assert_no_room(w, "HTTP/1.1 503 ", "too many requests at once");
}

/*
 * Asserts that the hub soon accepts one more large body, because a connection was closed or
 * answered.
 */
static void assert_room(struct world *w)
{
	struct peer p;
	bool full = true;

	for (int i = 0; full && i < 200; i++) {
		call(w, &p, PATH TOKEN TYPE NOT_YET LARGE);
		full = str_has_prefix(hear(&p), "HTTP/1.1 503 ");
		if (!full)
			assert_string_equal(p.got.data, MAY_COME);
		hang_up(&p);
	}
	assert_false(full);
}

/*
 * The limit on accepted bodies counts each Content-Length before a byte of the body arrives. If the
 * lengths reach the limit, a further request is refused.
 */
static void test_bodies_that_wait_have_a_limit(void **state)
{
	struct counter *refused = counter("podflame_ingest_no_room_total", "reason", "all");
	uint64_t before = counter_get(refused);
	struct world *w = *state;
	struct peer peers[N_LARGE];

	call_large(w, peers, LARGE);
	assert_full(w);
	assert_int_equal(counter_get(refused) - before, 1);
	hang_up(&peers[0]);
	assert_room(w);
	for (size_t i = 1; i < N_LARGE; i++)
		hang_up(&peers[i]);
}

/* Until a body of unknown length is complete, it counts as if it had the maximum length. */
static void bodies_of_unknown_length_count_as_large(void **state)
{
	struct world *w = *state;
	struct peer peers[N_LARGE], more[N_LARGE];

	call_large(w, peers, CHUNKED);
	assert_full(w);
	say(&peers[0], EMPTY_BODY);
	assert_said(hear(&peers[0]), "HTTP/1.1 200 ", "");
	assert_room(w);
	say(&peers[1], "1\r\nx\r\n" EMPTY_BODY);
	assert_said(hear(&peers[1]), BAD_BODY, "");
	say(&peers[2], "no length\r\n");
	assert_said(hear(&peers[2]), BAD_BODY, ""); /* this answer is of the HTTP server itself */
	/* 60 MB fit, also beside the connection of assert_room, which may not have ended yet */
	call_large(w, more, "Content-Length: 20000000\r\n");
	for (size_t i = 0; i < N_LARGE; i++) {
		hang_up(&peers[i]);
		hang_up(&more[i]);
	}
}

/* ---- senders that take as much room as they can, and one beside them ---- */

/* Sends a profile of this node, and asserts that the hub has stored it. */
static void assert_stores(struct world *w, const char *node)
{
	struct batch *b = profile_batch_new();
	struct profile *of = profile_batch_profile(b);
	_cleanup_buf_ struct buf body = {0};
	_cleanup_free_ char *head = NULL;
	struct store_stats before, after;
	struct peer p;

	of->start_ns = 1763700000 * NSEC_PER_SEC;
	of->end_ns = of->start_ns + 10 * NSEC_PER_SEC;
	of->app_service = profile_batch_str(b, "web");
	profile_tag(b, of, "pod_node", node);
	profile_add(b, of)->value = 1;
	assert_int_equal(otlp_encode(b, &body), 0);
	profile_batch_free(b);
	store_stats(w->store, &before);
	head = xasprintf(PATH TOKEN TYPE "Content-Length: %zu\r\n", body.len);
	w->node = node;
	call(w, &p, head);
	assert_int_equal(send(p.fd, body.data, body.len, MSG_NOSIGNAL), body.len);
	assert_said(hear(&p), "HTTP/1.1 200 ", "");
	store_stats(w->store, &after);
	assert_int_equal(after.n_profiles, before.n_profiles + 1);
	hang_up(&p);
}

/* Four nodes announce the largest bodies and send nothing: the profiles of a fifth are stored. */
static void slow_senders_leave_room(void **state)
{
	static const char *const nodes[] = {"slow-1", "slow-2", "slow-3", "slow-4"};
	struct world *w = *state;
	struct peer peers[ARRAY_SIZE(nodes)];

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		w->node = nodes[i];
		call(w, &peers[i], PATH TOKEN TYPE NOT_YET LARGE);
		hear(&peers[i]);
	}
	assert_stores(w, "victim");
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		hang_up(&peers[i]);
}

/* ---- turns at the writer ---- */

struct blocker {
	struct job job;
	sem_t release;
};

static void block(struct job *job)
{
	struct blocker *b = (struct blocker *)job;

	while (sem_wait(&b->release) && errno == EINTR)
		;
}

static void nothing(struct job *job)
{
	(void)job;
}

static uint64_t queued(const struct world *w)
{
	struct worker_stats s;

	worker_stats(w->writer, &s);
	return s.n_queued;
}

static void stop(void *arg)
{
	loop_stop(arg, 0);
}

static void run_for_ms(struct world *w, unsigned ms)
{
	struct timer t = {0};

	timer_set(w->loop, &t, ms * NSEC_PER_MSEC, stop, w->loop);
	run(w);
	timer_cancel(&t);
}

/* Sends the empty body of a node. The answer comes later. */
static void send_empty(struct world *w, struct peer *p, const char *node)
{
	w->node = node;
	call(w, p, PATH TOKEN TYPE CHUNKED NOT_YET);
	assert_string_equal(hear(p), MAY_COME);
	say(p, EMPTY_BODY);
}

/* Runs until so many bodies wait for the writer. */
static void run_until_queued(struct world *w, uint64_t n)
{
	while (queued(w) < n)
		run_for_ms(w, 1);
}

static void assert_stored(struct peer *p)
{
	assert_said(hear(p), "HTTP/1.1 200 ", "");
	hang_up(p);
}

/*
 * The body of one sender takes 50 s, in which another sender waits. For as long as that, the writer
 * is left to the other one, also for bodies that come later.
 */
static void who_made_others_wait_rests(void **state)
{
	struct blocker b = {.job = {.run = block, .done = nothing}};
	struct world *w = *state;
	struct peer slow, next, victim;

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(w->writer, &b.job), 0);
	send_empty(w, &slow, "slow");
	run_until_queued(w, 1);
	send_empty(w, &victim, "victim");
	run_until_queued(w, 2);
	send_empty(w, &next, "slow");
	test_clock.later_ns += 50 * NSEC_PER_SEC;
	sem_post(&b.release);
	assert_stored(&slow);
	assert_stored(&victim);
	assert_stores(w, "victim");
	assert_int_equal(recv(next.fd, (char[1]){0}, 1, MSG_DONTWAIT), -1);
	test_clock.later_ns += 50 * NSEC_PER_SEC;
	assert_stored(&next);
	sem_destroy(&b.release);
}

/* Nobody waited for a sender's slow body: the next one of it goes on at once. */
static void who_is_alone_does_not_rest(void **state)
{
	struct blocker b = {.job = {.run = block, .done = nothing}};
	struct world *w = *state;
	struct peer slow, next;

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(w->writer, &b.job), 0);
	send_empty(w, &slow, "slow");
	run_until_queued(w, 1);
	send_empty(w, &next, "slow");
	test_clock.later_ns += 50 * NSEC_PER_SEC;
	sem_post(&b.release);
	assert_stored(&slow);
	assert_stored(&next);
	sem_destroy(&b.release);
}

/* However many bodies a sender has sent, the writer has one of them, and then one of another. */
static void senders_take_turns(void **state)
{
	struct blocker b = {.job = {.run = block, .done = nothing}};
	struct world *w = *state;
	struct peer peers[4];
	uint64_t n;

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(w->writer, &b.job), 0);
	for (size_t i = 0; i < ARRAY_SIZE(peers); i++) {
		send_empty(w, &peers[i], i < ARRAY_SIZE(peers) - 1 ? "greedy" : "victim");
	}
	run_until_queued(w, 2);
	/* the others would be there by now */
	run_for_ms(w, 100);
	n = queued(w);
	sem_post(&b.release);
	for (size_t i = 0; i < ARRAY_SIZE(peers); i++) {
		assert_stored(&peers[i]);
	}
	sem_destroy(&b.release);
	assert_int_equal(n, 2);
}

/* One sender takes at most half, by however many requests. It is told. */
static void one_sender_takes_half(void **state, const char *cluster)
{
	struct counter *refused = counter("podflame_ingest_no_room_total", "reason", "sender");
	uint64_t before = counter_get(refused);
	struct world *w = *state;
	struct peer peers[OF_SENDER], victim;

	w->cluster = cluster;
	for (size_t i = 0; i < OF_SENDER; i++) {
		call(w, &peers[i], PATH TOKEN TYPE NOT_YET LARGE);
		assert_string_equal(hear(&peers[i]), MAY_COME);
	}
	for (int i = 0; i < 3; i++)
		assert_no_room(w, "HTTP/1.1 429 ", "too many bytes of this sender are pending");
	assert_int_equal(counter_get(refused) - before, 3);
	w->cluster = NULL;
	w->node = "victim";
	call(w, &victim, PATH TOKEN TYPE NOT_YET LARGE);
	assert_string_equal(hear(&victim), MAY_COME);
	hang_up(&victim);
	assert_stores(w, "victim");
	for (size_t i = 0; i < OF_SENDER; i++)
		hang_up(&peers[i]);
}

#define PUSH_HEAD "POST /ingest?name=x&format=pprof HTTP/1.1\r\n"

/* A namespace whose programs push as much as they can leaves room to another, and to agents. */
static void a_namespace_takes_half(void **state)
{
	struct counter *refused = counter("podflame_ingest_no_room_total", "reason", "sender");
	uint64_t before = counter_get(refused);
	struct world *w = *state;
	struct peer peers[OF_SENDER], more, victim;

	w->ns = "greedy";
	for (size_t i = 0; i < OF_SENDER; i++) {
		call(w, &peers[i], PUSH_HEAD TOKEN NOT_YET LARGE);
		assert_string_equal(hear(&peers[i]), MAY_COME);
	}
	call(w, &more, PUSH_HEAD TOKEN NOT_YET LARGE);
	assert_said(hear(&more), "HTTP/1.1 429 ", "\"code\":\"resource_exhausted\"");
	hang_up(&more);
	assert_int_equal(counter_get(refused) - before, 1);
	w->ns = "victim";
	call(w, &victim, PUSH_HEAD TOKEN NOT_YET LARGE);
	assert_string_equal(hear(&victim), MAY_COME);
	hang_up(&victim);
	w->ns = NULL;
	assert_stores(w, "victim");
	for (size_t i = 0; i < OF_SENDER; i++)
		hang_up(&peers[i]);
}

static void a_node_takes_half(void **state)
{
	one_sender_takes_half(state, NULL);
}

static void a_cluster_takes_half(void **state)
{
	((struct world *)*state)->node = "";
	one_sender_takes_half(state, "edge");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(refused_by_the_head),
		TEST(refused_by_the_server),
		TEST(refused_by_the_sender),
		TEST(a_body_waits_for_its_sender),
		TEST(test_bodies_that_wait_have_a_limit),
		TEST(bodies_of_unknown_length_count_as_large),
		TEST(slow_senders_leave_room),
		TEST(senders_take_turns),
		TEST(who_made_others_wait_rests),
		TEST(who_is_alone_does_not_rest),
		TEST(a_node_takes_half),
		TEST(a_cluster_takes_half),
		TEST(a_namespace_takes_half),
	};

	return cmocka_run_group_tests_name("ingest_head", tests, NULL, NULL);
}
