/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections by peer: a client that takes all connections of a server, and another one beside it.
 * Each has an address of its own in 127.0.0.0/8.
 */
#include <utlist.h>

#include "lib/loop/http_server_private.h"
#include "lib/loop/testhttp.h"

#define MOST   8 /* connections of the server */
#define HOG    "127.0.0.2"
#define VICTIM "127.0.0.3"

#define END	  "Host: a\r\nConnection: close\r\n\r\n"
#define HALF_OPEN "GET / HTTP/1.1\r\n"

static struct {
	unsigned n_held, n_gone;
	bool hold; /* the handler does not answer */
} server;

static void left(void *arg)
{
	(void)arg;
	server.n_gone++;
}

static void serve(struct http_conn *c, const struct http_in *in, void *arg)
{
	(void)arg;
	if (server.hold) {
		server.n_held++;
		http_conn_on_gone(c, left, NULL);
	} else {
		http_reply(c, 200, "text/plain", NULL, in->peer, strlen(in->peer));
	}
}

static void open_server(struct fixture *f)
{
	const struct http_server_config c = {
		.address = "127.0.0.1", .max_connections = MOST, .handler = serve};

	memset(&server, 0, sizeof(server));
	assert_int_equal(http_server_new(f->loop, &c, &f->server, NULL), 0);
}

/* ---- clients ---- */

static void say(struct raw *r, const char *text)
{
	assert_int_equal(send(r->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void connect_from(struct fixture *f, const char *address, const char *text, struct raw *r)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(http_server_port(f->server)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
			   from = {.sin_family = AF_INET};

	*r = (struct raw){.f = f, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	assert_int_equal(inet_pton(AF_INET, address, &from.sin_addr), 1);
	assert_int_equal(bind(r->fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(r->fd, (struct sockaddr *)&to, sizeof(to)), 0);
	say(r, text);
}

/* Returns what the server says until it closes the connection. */
static const char *hear(struct raw *r)
{
	assert_int_equal(watch_new(r->f->loop, r->fd, raw_readable, r, &r->watch), 0);
	run(r->f);
	return r->got.data ?: "";
}

static void hang_up(struct raw *r)
{
	close(r->fd);
	buf_done(&r->got);
}

static void turn(struct fixture *f)
{
	timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
	loop_run(f->loop);
}

/* Runs the loop until so many connections are in this phase. */
static void await_phase(struct fixture *f, enum phase phase, unsigned n)
{
	const struct http_conn *c;
	unsigned found = 0;

	while (found != n) {
		turn(f);
		found = 0;
		DL_FOREACH (f->server->conns, c)
			found += c->phase == phase;
	}
}

/* ---- tests ---- */

/* All connections of a client have requests that are not answered: another one is still served. */
static void a_peer_that_holds_all_makes_room(void **state)
{
	struct fixture *f = *state;
	struct counter *share = counter("http_refused_total", "reason", "peer_share");
	uint64_t before = counter_get(share);
	struct raw hog[MOST], victim;

	open_server(f);
	server.hold = true;
	for (size_t i = 0; i < MOST; i++)
		connect_from(f, HOG, "GET / HTTP/1.1\r\n" END, &hog[i]);
	while (server.n_held < MOST)
		turn(f);
	server.hold = false;
	connect_from(f, VICTIM, "GET / HTTP/1.1\r\n" END, &victim);
	assert_text(hear(&victim), "HTTP/1.1 200");
	assert_text(victim.got.data, VICTIM);
	assert_int_equal(counter_get(share), before + 1);
	assert_int_equal(server.n_gone, 1);
	hang_up(&victim);
	for (size_t i = 0; i < MOST; i++)
		hang_up(&hog[i]);
}

/* The client of the connection that is closed is told, if its request is not complete. */
static void it_is_told(void **state)
{
	struct fixture *f = *state;
	struct raw hog[MOST], victim;

	open_server(f);
	for (size_t i = 0; i < MOST; i++)
		connect_from(f, HOG, HALF_OPEN, &hog[i]);
	await_phase(f, READING, MOST);
	connect_from(f, VICTIM, "GET / HTTP/1.1\r\n" END, &victim);
	assert_text(hear(&victim), "HTTP/1.1 200");
	assert_text(hear(&hog[0]), "HTTP/1.1 503");
	assert_text(hog[0].got.data, "Retry-After: 5\r\n");
	assert_text(hog[0].got.data, "too many connections of this address");
	say(&hog[1], END);
	assert_text(hear(&hog[1]), "HTTP/1.1 200");
	hang_up(&victim);
	for (size_t i = 0; i < MOST; i++)
		hang_up(&hog[i]);
}

/* However often a client connects, it closes none of the connections of one that has fewer. */
static void a_peer_that_comes_again_closes_its_own(void **state)
{
	struct fixture *f = *state;
	struct counter *made = counter("http_refused_total", "reason", "made_room");
	uint64_t before = counter_get(made);
	struct raw hog[3 * MOST], victim;

	open_server(f);
	connect_from(f, VICTIM, HALF_OPEN, &victim);
	await_phase(f, READING, 1);
	for (size_t i = 0; i < ARRAY_SIZE(hog); i++)
		connect_from(f, HOG, HALF_OPEN, &hog[i]);
	while (counter_get(made) < before + ARRAY_SIZE(hog) - (MOST - 1))
		turn(f);
	say(&victim, END);
	assert_text(hear(&victim), "HTTP/1.1 200");
	hang_up(&victim);
	for (size_t i = 0; i < ARRAY_SIZE(hog); i++)
		hang_up(&hog[i]);
}

/* Clients that have one connection each take turns, as if there were no peers. */
static void peers_with_one_connection_take_turns(void **state)
{
	struct fixture *f = *state;
	struct raw peers[MOST + 1];

	open_server(f);
	for (size_t i = 0; i <= MOST; i++) {
		_cleanup_free_ char *address = xasprintf("127.0.0.%zu", 10 + i);

		connect_from(f, address, HALF_OPEN, &peers[i]);
		await_phase(f, READING, (unsigned)MIN(i + 1, (size_t)MOST));
	}
	assert_string_equal(hear(&peers[0]), "");
	for (size_t i = 1; i <= MOST; i++) {
		say(&peers[i], END);
		assert_text(hear(&peers[i]), "HTTP/1.1 200");
	}
	for (size_t i = 0; i <= MOST; i++)
		hang_up(&peers[i]);
}

/* Of IPv6, a network of 64 bits is one peer. An IPv4 address is the same in both families. */
static void networks_of_ipv6_are_peers(void **state)
{
	static const char *const cases[][2] = {
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"},
		{"2001:db8:1:2::1", "2001:db8:1:2::"},
		{"::ffff:10.1.2.3", "10.1.2.3"},
		{"::ffff:10.1.2.4", "10.1.2.4"},
	};
	struct http_server s = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sockaddr_storage sa = {.ss_family = AF_INET6};
		struct http_peer *p;

		assert_int_equal(
			inet_pton(AF_INET6, cases[i][0], &((struct sockaddr_in6 *)&sa)->sin6_addr),
			1);
		p = http_peer_ref(&s, &sa);
		assert_string_equal(p->name, cases[i][1]);
		http_peer_unref(&s, p);
	}
	assert_null(s.peers);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(a_peer_that_holds_all_makes_room),
		T(it_is_told),
		T(a_peer_that_comes_again_closes_its_own),
		T(peers_with_one_connection_take_turns),
		cmocka_unit_test(networks_of_ipv6_are_peers),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("http_peers", tests, NULL, NULL);
}
