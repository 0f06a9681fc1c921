// SPDX-License-Identifier: Apache-2.0
/*
 * Case 64 of docs/watch-cases.md: a watch loses its connection again and again, in every way in
 * which a server and a network can fail. No descriptor stays open and no memory stays in use. The
 * test does this 600 times, and with LONG=1 100,000 times. Built with SANITIZE=-fsanitize=address,
 * it also finds leaks.
 */
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/kube/kube_private.h"
#include "lib/loop/testserver.h"

#define N_WARM	 200
#define N_SHORT	 600
#define N_LONG	 100000
#define N_REPORT 10000
/*
 * How much the heap may grow during all reconnects: the server's connections, and the memory that
 * malloc keeps per thread.
 */
#define MAX_GROWTH (256 << 10)
#define MAX_OPEN   8 /* how many files more than before may be open: those that are being closed */
#define LIST_TEXT                                                                                  \
	"{\"kind\":\"XList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":["                 \
	"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\"}}]}"
#define EVENT(type, name, rv)                                                                      \
	"{\"type\":\"" type "\",\"object\":{\"metadata\":{\"name\":\"" name                        \
	"\",\"resourceVersion\":\"" rv "\"}}}\n"

struct fixture {
	struct loop *loop;
	struct kube *kube;
	struct kube_watch *watch;
	struct test_server *ts;
	struct timer timer;
	int wanted;
	unsigned n_events;
};

static struct test_ca ca;
static struct test_cert cert;

/* There are no delays: each try follows the last one at once. */
static const struct kube_times hasty = {
	.backoff_first_ns = 1000,
	.backoff_max_ns = 1000,
	.backoff_reset_ns = 1,
	.slow_ns = 1000,
	.watchdog_ns = NSEC_PER_SEC,
	.probe_ns = 3600 * NSEC_PER_SEC,
	.silence_slack_ns = 3600 * NSEC_PER_SEC,
	.list_head_ns = 3600 * NSEC_PER_SEC,
	.watch_head_ns = 3600 * NSEC_PER_SEC,
	.token_max_age_ns = 60 * NSEC_PER_SEC,
	.ca_poll_ns = 60 * NSEC_PER_SEC,
	.watch_timeout_s = 300,
	.page_limit = 500,
	.max_object_bytes = 1 << 20,
	.max_kind_bytes = 1 << 20,
};

static void answer_watch(struct ts_conn *c, int way)
{
	if (way < 3) {
		static const int statuses[] = {410, 503, 401};

		ts_reply(c, statuses[way], NULL, "{\"kind\":\"Status\",\"message\":\"x\"}");
		return;
	}
	ts_stream(c);
	ts_chunk(c, EVENT("ADDED", "b", "2") EVENT("DELETED", "b", "3"));
	if (way == 3)
		ts_last_chunk(c);
	else if (way == 4)
		ts_chunk(c, "{\"type\":\"ADDED\",\"obj"); /* the connection ends within an object */
	else if (way == 5)
		ts_chunk(c, "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n");
	else if (way == 6)
		ts_chunk(c, "garbage\n");
	else
		ts_reset(c);
}

/* Every connection ends after one request, some without an answer. */
static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	int way = r->number % 11;

	(void)arg;
	if (way == 8)
		ts_reset(c);
	else if (way == 9)
		; /* the connection ends without an answer */
	else if (strstr(r->line, "watch=true"))
		answer_watch(c, way);
	else if (way == 10)
		ts_puts(c, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{\"kind\":\"XList");
	else
		ts_reply(c, 200, NULL, LIST_TEXT);
	c->over = true;
}

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)key;
	(void)obj;
	(void)old;
	((struct fixture *)arg)->n_events++;
}

static void removed(const char *key, const json_t *last, void *arg)
{
	upsert(key, last, NULL, arg);
}

static void look(void *arg)
{
	struct fixture *f = arg;

	if (ts_n_requests(f->ts) >= f->wanted)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->timer, 10 * NSEC_PER_MSEC, look, f);
}

static void run_until(struct fixture *f, int n)
{
	f->wanted = n;
	look(f);
	assert_int_equal(loop_run(f->loop), 0);
}

static int n_open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned long resident_kib(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long pages = 0;

	assert_int_equal(file_read(AT_FDCWD, "/proc/self/statm", 4096, &text, NULL), 0);
	assert_int_equal(sscanf(text, "%*u %lu", &pages), 1);
	return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static void begin(struct fixture *f)
{
	static const struct kube_watch_ops ops = {.upsert = upsert, .remove = removed};
	static const struct kube_watch_spec spec = {.path = "/x"};
	struct ts_config tc = {.cert = &cert, .forgets = true};
	struct kube_config c = {.address = (char *)(uintptr_t) "127.0.0.1",
				.tls_name = (char *)(uintptr_t) "kubernetes.default.svc",
				.ca_pem = ca.pem,
				.token = (char *)(uintptr_t) "secret"};
	struct field_error e = {0};

	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve, f);
	c.port = f->ts->port;
	assert_int_equal(kube_new(f->loop, &c, "t", &f->kube, &e), 0);
	kube_set_times(f->kube, &hasty);
	assert_int_equal(kube_watch_new(f->kube, &spec, &ops, f, &f->watch), 0);
}

static void end(struct fixture *f)
{
	timer_cancel(&f->timer);
	kube_watch_free(f->watch);
	kube_free(f->kube);
	loop_free(f->loop);
	ts_stop(f->ts);
}

/*
 * Reconnects n times. Returns how many more files and bytes are in use at the end than after the
 * first N_WARM times.
 */
static void cycle(int n, int *ret_files, long *ret_bytes)
{
	struct fixture f = {0};
	size_t heap;
	int files;

	begin(&f);
	run_until(&f, N_WARM);
	files = n_open_files();
	heap = mallinfo2().uordblks;
	for (int done = 0; done < n; done += N_REPORT) {
		run_until(&f, N_WARM + MIN(done + N_REPORT, n));
		print_message("%d reconnects: %lu KiB resident, %zu in use\n",
			      MIN(done + N_REPORT, n), resident_kib(), mallinfo2().uordblks / 1024);
	}
	*ret_bytes = (long)(mallinfo2().uordblks - heap);
	*ret_files = n_open_files() - files;
	assert_true(f.n_events > (unsigned)n / 4);
	end(&f);
}

static void run(int n)
{
	long bytes, left;
	int files, before;
	size_t heap;

	cycle(1, &files, &bytes); /* makes the objects that exist once per program */
	before = n_open_files();
	heap = mallinfo2().uordblks;
	cycle(n, &files, &bytes);
	left = (long)(mallinfo2().uordblks - heap);
	print_message("%d reconnects: %d files and %ld bytes more while they go on; %d and %ld "
		      "after all\n",
		      n, files, bytes, n_open_files() - before, left);
	assert_in_range(files + MAX_OPEN, 0, 2 * MAX_OPEN);
	assert_true(bytes < MAX_GROWTH);
	assert_int_equal(n_open_files(), before);
	assert_true(left < MAX_GROWTH);
}

static void reconnects_64(void **state)
{
	(void)state;
	run(N_SHORT);
}

static void reconnects_64_a_hundred_thousand_long(void **state)
{
	(void)state;
	if (!getenv("LONG")) {
		print_message("skip: 100,000 reconnects: LONG=1\n");
		skip();
	}
	run(N_LONG);
}

static int make_certs(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "DNS:kubernetes.default.svc");
	return 0;
}

static int free_certs(void **state)
{
	(void)state;
	test_ca_done(&ca);
	test_cert_done(&cert);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reconnects_64),
		cmocka_unit_test(reconnects_64_a_hundred_thousand_long),
	};

	return cmocka_run_group_tests_name("reconnect", tests, make_certs, free_certs);
}
