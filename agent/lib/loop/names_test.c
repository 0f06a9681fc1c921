// SPDX-License-Identifier: Apache-2.0
/*
 * Host names and addresses of servers: a resolver that fails, hangs, changes its answers and
 * recovers, and addresses at which no server listens. Numbers in names are those of
 * docs/watch-cases.md. One test uses glibc's own resolver and a scripted DNS server in a network
 * namespace: for it, this program starts itself as `names_test real`.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "lib/loop/conn.h"
#include "lib/loop/testdns.h"
#include "lib/loop/testserver.h"

#define HANGS	   -1
#define GUARD_NS   (60 * NSEC_PER_SEC)
#define MAX_HELD   8 /* as MAX_SEARCHES of resolve.c */
#define PER_OUTAGE 50

/* ---- a resolver under the test's control ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	const char *answer[2];
	int error, n_calls; /* error HANGS: a call waits until error changes */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int fake_search(const char *name, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret)
{
	struct addrinfo numeric = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	struct addrinfo **end = ret;
	int r;

	(void)name;
	(void)service;
	(void)hints;
	pthread_mutex_lock(&fake.lock);
	fake.n_calls++;
	pthread_cond_broadcast(&fake.changed);
	while (fake.error == HANGS)
		pthread_cond_wait(&fake.changed, &fake.lock);
	r = fake.error;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(fake.answer) && fake.answer[i]; i++) {
		r = getaddrinfo(fake.answer[i], NULL, &numeric, end);
		end = &(*end)->ai_next;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

static void resolver_says(int error, const char *first, const char *second)
{
	pthread_mutex_lock(&fake.lock);
	fake.error = error;
	fake.answer[0] = first;
	fake.answer[1] = second;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static int n_searches(void)
{
	int n;

	pthread_mutex_lock(&fake.lock);
	n = fake.n_calls;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

/* ---- changes that resolve_on_change reports ---- */

static struct {
	pthread_mutex_t lock;
	char text[512];
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_change(const char *name, const char *error)
{
	size_t n;

	pthread_mutex_lock(&told.lock);
	n = strlen(told.text);
	snprintf(told.text + n, sizeof(told.text) - n, "[%s: %s]", name, error ?: "answered");
	pthread_mutex_unlock(&told.lock);
}

static void assert_told(const char *text)
{
	char got[sizeof(told.text)];

	pthread_mutex_lock(&told.lock);
	memcpy(got, told.text, sizeof(got));
	told.text[0] = '\0';
	pthread_mutex_unlock(&told.lock);
	assert_string_equal(got, text);
}

/* ---- a client, and servers at two addresses ---- */

struct fixture {
	struct loop *loop;
	struct http_client *client;
	struct test_server *one, *two; /* at 127.0.0.1 and 127.0.0.2, with the same port */
	struct timer guard, tick;
	unsigned n_ticks;
	int status;
	char *body, *error;
};

static void say_where(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)r;
	ts_reply(c, 200, "Connection: close\r\n", arg);
	c->over = true;
}

static void give_up(void *arg)
{
	loop_stop(((struct fixture *)arg)->loop, -ETIMEDOUT);
}

static void tick(void *arg)
{
	struct fixture *f = arg;

	f->n_ticks++;
	timer_set(f->loop, &f->tick, 10 * NSEC_PER_MSEC, tick, f);
}

static void set_name(struct fixture *f, const char *name, uint64_t connect_ns)
{
	struct http_client_config c = {
		.address = name, .port = f->one->port, .connect_timeout_ns = connect_ns};

	http_client_free(f->client);
	assert_int_equal(http_client_new(f->loop, &c, &f->client), 0);
}

static struct fixture *begin(const char *name)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct ts_config c = {.forgets = true};

	assert_int_equal(loop_new(&f->loop), 0);
	f->one = ts_start(&c, say_where, (void *)(uintptr_t) "one");
	c.port = f->one->port;
	c.address = "127.0.0.2";
	f->two = ts_start(&c, say_where, (void *)(uintptr_t) "two");
	timer_set(f->loop, &f->guard, GUARD_NS, give_up, f);
	tick(f);
	set_name(f, name, 0);
	return f;
}

static void end(struct fixture *f)
{
	timer_cancel(&f->guard);
	timer_cancel(&f->tick);
	http_client_free(f->client);
	loop_free(f->loop);
	ts_stop(f->one);
	ts_stop(f->two);
	free(f->body);
	free(f->error);
	free(f);
}

static void done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fixture *f = arg;

	free(f->body);
	free(f->error);
	f->status = status;
	f->body = xstrndup(body ?: "", n);
	f->error = xstrdup(error);
	loop_stop(f->loop, 0);
}

static void send_one(struct fixture *f, uint64_t timeout_ns)
{
	struct http_request r = {
		.method = "GET", .path = "/", .on_done = done, .arg = f, .timeout_ns = timeout_ns};

	assert_int_equal(http_send(f->client, &r, NULL), 0);
}

static void get(struct fixture *f)
{
	send_one(f, 0);
	assert_int_equal(loop_run(f->loop), 0);
}

static void assert_from(struct fixture *f, const char *server)
{
	get(f);
	if (f->status != 200)
		fail_msg("%s", f->error);
	assert_string_equal(f->body, server);
}

static void assert_fails(struct fixture *f, const char *part)
{
	get(f);
	assert_int_equal(f->status, 0);
	if (!strstr(f->error, part))
		fail_msg("\"%s\" does not contain \"%s\"", f->error, part);
}

static uint64_t total(const char *name, const char *label, const char *value)
{
	return counter_get(counter(name, label, value));
}

/* ---- tests ---- */

static void names_51_a_new_address_replaces_the_old(void **state)
{
	struct fixture *f = begin("moves.example");

	(void)state;
	resolver_says(0, "127.0.0.1", NULL);
	assert_from(f, "one");
	resolver_says(0, "127.0.0.2", NULL);
	assert_from(f, "two");
	assert_told("");
	end(f);
}

static void names_51_a_failing_resolver_stops_nothing(void **state)
{
	struct fixture *f = begin("fails.example");
	uint64_t before = total("name_last_known_total", "reason", "failed");

	(void)state;
	resolver_says(0, "127.0.0.1", NULL);
	assert_from(f, "one");
	resolver_says(EAI_AGAIN, NULL, NULL);
	for (int i = 0; i < PER_OUTAGE; i++)
		assert_from(f, "one");
	assert_int_equal(total("name_last_known_total", "reason", "failed") - before, PER_OUTAGE);
	assert_int_equal(total("names_failing", NULL, NULL), 1);
	assert_told("[fails.example: Temporary failure in name resolution]"); /* reported once */
	resolver_says(0, "127.0.0.2", NULL);
	assert_from(f, "two");
	assert_int_equal(total("names_failing", NULL, NULL), 0);
	assert_told("[fails.example: answered]");
	end(f);
}

static void names_51_a_hanging_resolver_stops_nothing(void **state)
{
	struct fixture *f = begin("hangs.example");
	uint64_t before = total("name_last_known_total", "reason", "late");
	int n;

	(void)state;
	resolver_says(0, "127.0.0.1", NULL);
	assert_from(f, "one");
	n = n_searches();
	resolve_config.late_ns = 20 * NSEC_PER_MSEC;
	resolver_says(HANGS, NULL, NULL);
	for (int i = 0; i < PER_OUTAGE; i++)
		assert_from(f, "one");
	assert_int_equal(n_searches() - n, 1); /* all requests wait for the thread of one search */
	assert_int_equal(total("name_last_known_total", "reason", "late") - before, PER_OUTAGE);
	assert_told("[hangs.example: the resolver does not answer]");
	resolve_config.late_ns = GUARD_NS;
	resolver_says(0, "127.0.0.2", NULL);
	assert_from(f, "two");
	assert_told("[hangs.example: answered]");
	end(f);
}

static void the_error_at_an_old_address_says_so(void **state)
{
	struct fixture *f = begin("gone.example");

	(void)state;
	resolver_says(0, "127.0.0.1", NULL);
	assert_from(f, "one");
	resolver_says(EAI_AGAIN, NULL, NULL);
	ts_stop(TAKE_PTR(f->one));
	assert_fails(f, "refused, at its last known address: Temporary failure in name");
	resolver_says(0, "127.0.0.2", NULL);
	assert_from(f, "two");
	end(f);
	assert_told("[gone.example: Temporary failure in name resolution][gone.example: answered]");
}

static void a_name_never_known_times_out_beside_the_loop(void **state)
{
	struct fixture *f = begin("first.example");

	(void)state;
	resolver_says(HANGS, NULL, NULL);
	set_name(f, "first.example", 200 * NSEC_PER_MSEC);
	assert_fails(f, "timed out while its name was looked up");
	assert_true(f->n_ticks > 5); /* the loop was not blocked */
	resolver_says(EAI_NONAME, NULL, NULL);
	assert_fails(f, "Name or service not known");
	end(f);
	assert_told("[first.example: Name or service not known]");
	resolver_says(0, "127.0.0.1", NULL);
}

static void addresses_are_known_for_a_day(void **state)
{
	struct fixture *f = begin("old.example");
	uint64_t keep_ns = resolve_config.keep_ns;

	(void)state;
	assert_int_equal(keep_ns, 24 * 3600 * NSEC_PER_SEC);
	resolver_says(0, "127.0.0.1", NULL);
	assert_from(f, "one");
	resolver_says(EAI_AGAIN, NULL, NULL);
	assert_from(f, "one");
	resolve_config.keep_ns = 0;
	assert_fails(f, "Temporary failure");
	resolve_config.keep_ns = keep_ns;
	end(f);
	assert_told("[old.example: Temporary failure in name resolution]");
}

/* If a search never returns, another one is started after a while, up to a limit. */
static void searches_that_never_end_are_few(void **state)
{
	struct fixture *f = begin("stuck.example");
	uint64_t lost_ns = resolve_config.lost_ns;
	uint64_t before = total("name_lookups_total", "result", "refused");
	int n;

	(void)state;
	resolver_says(0, "127.0.0.1", NULL);
	assert_from(f, "one");
	n = n_searches();
	resolver_says(HANGS, NULL, NULL);
	resolve_config.lost_ns = 0;
	resolve_config.late_ns = NSEC_PER_MSEC;
	for (int i = 0; i < 3 * MAX_HELD; i++)
		assert_from(f, "one");
	while (n_searches() - n < MAX_HELD) /* waits until the threads have begun */
		sched_yield();
	assert_int_equal(n_searches() - n, MAX_HELD);
	assert_int_equal(total("name_lookups_total", "result", "refused") - before, 2 * MAX_HELD);
	set_name(f, "another.example", 0);
	assert_fails(f, "too many");
	resolve_config.lost_ns = lost_ns;
	resolve_config.late_ns = GUARD_NS;
	resolver_says(0, "127.0.0.2", NULL);
	set_name(f, "stuck.example", 0);
	assert_from(f, "two");
	end(f);
	assert_told("[stuck.example: the resolver does not answer][stuck.example: answered]");
}

/* The resolver answers after the caller and its loop are freed. */
static void an_answer_that_nobody_waits_for(void **state)
{
	struct fixture *f = begin("left.example");
	uint64_t before = total("name_lookups_total", "result", "answered");
	int n = n_searches();

	(void)state;
	resolver_says(HANGS, NULL, NULL);
	send_one(f, 0);
	while (n_searches() == n) { /* waits until the search has begun */
		timer_set(f->loop, &f->guard, NSEC_PER_MSEC, give_up, f);
		loop_run(f->loop);
	}
	end(f);
	resolver_says(0, "127.0.0.1", NULL);
	while (total("name_lookups_total", "result", "answered") == before)
		sched_yield();
}

static void names_48_a_dead_backend_is_passed_over(void **state)
{
	struct fixture *f = begin("two.example");

	(void)state;
	resolver_says(0, "127.0.0.3", "127.0.0.2"); /* the first address refuses connections */
	assert_from(f, "two");
	ts_lose_packets(f->one, true); /* the first address does not answer */
	resolver_says(0, "127.0.0.1", "127.0.0.2");
	set_name(f, "two.example", 10 * NSEC_PER_SEC);
	/* only half of the ten seconds may be spent on the first address */
	send_one(f, 9 * NSEC_PER_SEC);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->status, 200);
	assert_string_equal(f->body, "two");
	set_name(f, "two.example", 200 * NSEC_PER_MSEC);
	ts_lose_packets(f->two, true);
	assert_fails(f, "timed out while connecting");
	ts_lose_packets(f->one, false);
	ts_lose_packets(f->two, false);
	end(f);
}

/* ---- glibc's resolver and a scripted DNS server ---- */

static void must_be(struct fixture *f, const char *server)
{
	get(f);
	if (f->status == 200 && streq(f->body, server))
		return;
	fprintf(stderr, "wanted \"%s\", got %d \"%s\" %s\n", server, f->status, f->body,
		f->error ?: "");
	_exit(1);
}

static int real_resolver(const char *dir, unsigned outage_s)
{
	uint64_t until_ns, longest_ns = 0, late_ns = resolve_config.late_ns;
	struct fixture *f;
	unsigned n = 0;
	int asked;

	dns_enter(dir, outage_s > 0);
	f = begin("hub.podflame.example");
	resolve_config.late_ns = GUARD_NS;
	dns.last_byte = 1;
	must_be(f, "one");
	dns.last_byte = 2;
	must_be(f, "two");
	resolve_config.late_ns = late_ns;
	dns.last_byte = 0;
	asked = dns.n_asked;
	until_ns = now_mono_ns() + outage_s * NSEC_PER_SEC;
	/* the outage lasts at least until glibc has given up once and asks again */
	while (now_mono_ns() < until_ns || dns.n_asked < asked + 3) {
		uint64_t began_ns = now_mono_ns();

		must_be(f, "two");
		longest_ns = MAX(longest_ns, now_mono_ns() - began_ns);
		n++;
		timer_set(f->loop, &f->guard, (outage_s ? 200 : 20) * NSEC_PER_MSEC, give_up, f);
		loop_run(f->loop);
	}
	dns.last_byte = -1;
	must_be(f, "two");
	dns.last_byte = 1;
	do /* the last search may still wait for the answer to a lost query */
		get(f);
	while (f->status == 200 && streq(f->body, "two"));
	must(f->status == 200 && streq(f->body, "one"), "after the outage");
	printf("%u requests without DNS, the longest %.0f ms; longest stall %.1f ms\n", n,
	       (double)longest_ns / 1e6, (double)loop_longest_ever_ns(f->loop) / 1e6);
	end(f);
	return 0;
}

static void names_51_dns_outage(void **state)
{
	(void)state;
	dns_run("names_test", 0);
}

static void names_51_dns_outage_of_ten_minutes_long(void **state)
{
	(void)state;
	dns_run_long("names_test");
}

static int use_fake(void **state)
{
	(void)state;
	resolve_config.search = fake_search;
	resolve_config.late_ns = GUARD_NS;
	resolve_on_change(on_change);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_51_a_new_address_replaces_the_old),
		cmocka_unit_test(names_51_a_failing_resolver_stops_nothing),
		cmocka_unit_test(names_51_a_hanging_resolver_stops_nothing),
		cmocka_unit_test(names_51_dns_outage),
		cmocka_unit_test(names_51_dns_outage_of_ten_minutes_long),
		cmocka_unit_test(names_48_a_dead_backend_is_passed_over),
		cmocka_unit_test(the_error_at_an_old_address_says_so),
		cmocka_unit_test(a_name_never_known_times_out_beside_the_loop),
		cmocka_unit_test(addresses_are_known_for_a_day),
		cmocka_unit_test(searches_that_never_end_are_few),
		cmocka_unit_test(an_answer_that_nobody_waits_for),
	};

	signal(SIGPIPE, SIG_IGN);
	if (argc == 4 && streq(argv[1], "real"))
		return real_resolver(argv[2], (unsigned)strtoul(argv[3], NULL, 10));
	return cmocka_run_group_tests_name("names", tests, use_fake, NULL);
}
