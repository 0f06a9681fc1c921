/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A debuginfod server that gives right, wrong, late and no answers. The test program is its own
 * parse child.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "lib/loop/testserver.h"
#include "node/files/internal.h"
#include "node/files/testfiles.h"

#define WAIT_NS	  (20 * NSEC_PER_SEC)
#define MAX_BYTES (1u << 20) /* limit of a debug file in this test */

enum how { GOOD, OTHER_FILE, NO_ELF, NOT_FOUND, HUGE_FILE, STALL, CUT, REDIRECT };
struct fixture {
	struct test_server *server;
	struct container c;
	enum how how;
	uint64_t timeout_ns;
	const char *ca_file;
	uint64_t cache_bytes;
	char url[96], cache[TESTDIR_BYTES + 16];
};

static void send_file(struct ts_conn *conn, const char *path)
{
	_cleanup_free_ char *data = NULL;
	size_t n;

	if (file_read(AT_FDCWD, path, 1 << 24, &data, &n) < 0)
		ts_fatal("no file to send");
	ts_stream(conn);
	for (size_t at = 0; at < n; at += 1000)
		ts_chunk_bytes(conn, data + at, MIN(n - at, (size_t)1000));
	ts_last_chunk(conn);
}

static void send_without_end(struct ts_conn *conn)
{
	static char piece[65536];

	ts_stream(conn);
	while (ts_chunk_bytes(conn, piece, sizeof(piece)))
		;
	conn->over = true;
}

static void serve(struct ts_conn *conn, const struct ts_request *r, void *arg)
{
	struct fixture *f = arg;
	_cleanup_free_ char *good = xasprintf("%s/prog.debug", dir);

	(void)r;
	switch (f->how) {
	case GOOD:
		return send_file(conn, good);
	case OTHER_FILE:
		return send_file(conn, "/bin/true");
	case NO_ELF:
		return ts_reply(conn, 200, "", "not an ELF file at all");
	case NOT_FOUND:
		return ts_reply(conn, 404, "", "none");
	case HUGE_FILE:
		return send_without_end(conn);
	case STALL:
		ts_stream(conn);
		ts_chunk(conn, "a piece");
		return ts_stall(conn);
	case CUT:
		ts_puts(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc");
		conn->over = true;
		return;
	case REDIRECT:
		return ts_reply(conn, 302, "Location: http://127.0.0.1:1/\r\n", "");
	}
}

static void begin(struct fixture *f, const struct test_cert *cert)
{
	struct ts_config c = {.cert = cert};

	compile("");
	f->server = ts_start(&c, serve, f);
	f->c = make_container("a", "prog");
	snprintf(f->url, sizeof(f->url), "http%s://127.0.0.1:%u/", cert ? "s" : "",
		 f->server->port);
	snprintf(f->cache, sizeof(f->cache), "%s/cache", dir);
	run("rm -rf %s", f->cache);
}

static void finish(struct fixture *f)
{
	ts_stop(f->server);
	container_done(&f->c);
}

static struct files *open_files(const struct fixture *f)
{
	struct files_config c = {.debuginfod_url = f->url,
				 .debuginfod_cache = f->cache,
				 .debuginfod_ca_file = f->ca_file,
				 .debuginfod_timeout_ns = f->timeout_ns,
				 .debuginfod_cache_bytes = f->cache_bytes,
				 .debug_max_bytes = MAX_BYTES};
	struct files *files;

	assert_int_equal(files_new(&c, &files), 0);
	return files;
}

static void await(const char *word, uint64_t n)
{
	uint64_t deadline = now_mono_ns() + WAIT_NS;

	while (result(word) < n && now_mono_ns() < deadline)
		sched_yield();
	assert_int_equal(result(word), n);
}

/* Searches with an empty cache; `name` must be known as soon as the search ends. */
static void assert_answer(struct fixture *f, const char *word, const char *name)
{
	uint64_t before = result(word), deadline = now_mono_ns() + WAIT_NS;
	struct files *files = open_files(f);

	assert_name(files, &f->c, "(none)");
	files_debug(files, &f->c.m, f->c.root_fd);
	await(word, before + 1);
	for (;;) {
		_cleanup_free_ char *have = name_of(files, &f->c);

		if (streq(have, name) || now_mono_ns() > deadline)
			break;
	}
	assert_name(files, &f->c, name);
	files_free(files);
}

static int n_cached(const struct fixture *f, const char *kind)
{
	_cleanup_free_ char *n = line_of("ls -A %s | grep -c '%s$'", f->cache, kind);

	return atoi(n);
}

static void what_comes_gives_names_and_is_kept(void **state)
{
	struct fixture f = {.how = GOOD};
	_cleanup_free_ char *line = NULL;

	(void)state;
	begin(&f, NULL);
	assert_answer(&f, "debuginfod", "hidden_function");
	line = xasprintf("GET /buildid/%s/debuginfo HTTP/1.1\r\n", f.c.build_id);
	assert_true(str_has_prefix(ts_request_head(f.server, 0), line));
	assert_int_equal(n_cached(&f, ".debug"), 1);
	assert_answer(&f, "debuginfod", "hidden_function");
	assert_int_equal(ts_n_requests(f.server), 1);
	finish(&f);
}

static void what_is_not_there_is_not_asked_for_again(void **state)
{
	struct fixture f = {.how = NOT_FOUND};

	(void)state;
	begin(&f, NULL);
	assert_answer(&f, "debuginfod_none", "(none)");
	assert_answer(&f, "debuginfod_none", "(none)");
	assert_int_equal(ts_n_requests(f.server), 1);
	/* Notes about build ids that a pod made up: the cache keeps only the newest ones. */
	run("cd %s && seq -f made-up-%%.0f.none 5000 | xargs touch -d '1 minute ago'", f.cache);
	run("touch -d '2 hours ago' %s/%s.none", f.cache, f.c.build_id);
	assert_answer(&f, "debuginfod_none", "(none)");
	run("test $(ls %s | wc -l) = 4096 && test -e %s/%s.none", f.cache, f.cache, f.c.build_id);
	/* The file appears later, when the note of its absence is old. */
	f.how = GOOD;
	run("touch -d '2 hours ago' %s/%s.none", f.cache, f.c.build_id);
	assert_answer(&f, "debuginfod", "hidden_function");
	finish(&f);
}

static void wrong_files_are_refused_and_not_kept(void **state)
{
	struct fixture f = {.how = OTHER_FILE};
	uint64_t wrong = result("wrong_build_id");

	(void)state;
	begin(&f, NULL);
	assert_answer(&f, "debuginfod_refused", "(none)");
	assert_int_equal(result("wrong_build_id"), wrong + 1);
	assert_int_equal(n_cached(&f, ".debug"), 0);
	assert_answer(&f, "debuginfod_none", "(none)");
	run("rm %s/*.none", f.cache);
	f.how = NO_ELF;
	assert_answer(&f, "debuginfod_refused", "(none)");
	assert_int_equal(n_cached(&f, ".debug"), 0);
	finish(&f);
}

static void hostile_servers_cost_their_limits(void **state)
{
	struct fixture f = {.how = HUGE_FILE, .timeout_ns = NSEC_PER_SEC};

	(void)state;
	begin(&f, NULL);
	f.timeout_ns = WAIT_NS;
	assert_answer(&f, "debuginfod_too_big", "(none)");
	run("rm %s/*.none", f.cache);
	f.timeout_ns = NSEC_PER_SEC;
	f.how = STALL;
	assert_answer(&f, "debuginfod_timeout", "(none)");
	f.how = CUT;
	assert_answer(&f, "debuginfod_failed", "(none)");
	f.how = REDIRECT;
	assert_answer(&f, "debuginfod_failed", "(none)");
	assert_int_equal(n_cached(&f, ""), 0); /* no partial file is left */
	f.how = GOOD;
	assert_answer(&f, "debuginfod", "hidden_function");
	finish(&f);
}

static void the_end_does_not_wait_for_the_server(void **state)
{
	struct fixture f = {.how = STALL, .timeout_ns = 3600 * NSEC_PER_SEC};
	uint64_t before = result("debuginfod_stopped");
	struct files *files;

	(void)state;
	begin(&f, NULL);
	files = open_files(&f);
	files_debug(files, &f.c.m, f.c.root_fd);
	while (ts_n_requests(f.server) == 0)
		sched_yield();
	assert_name(files, &f.c, "(none)");
	files_free(files);
	assert_int_equal(result("debuginfod_stopped"), before + 1);
	finish(&f);
}

static void only_the_given_ca_is_trusted(void **state)
{
	struct fixture f = {.how = GOOD};
	struct test_ca ca, other;
	struct test_cert cert;
	_cleanup_free_ char *path = NULL;

	(void)state;
	test_ca_init(&ca, "ca");
	test_ca_init(&other, "other");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	begin(&f, &cert);
	path = xasprintf("%s/ca.pem", dir);
	f.ca_file = path;
	assert_answer(&f, "debuginfod_failed", "(none)"); /* there is no such file */
	assert_int_equal(file_write_atomic(path, other.pem, strlen(other.pem), 0600), 0);
	assert_answer(&f, "debuginfod_failed", "(none)");
	assert_int_equal(file_write_atomic(path, ca.pem, strlen(ca.pem), 0600), 0);
	assert_answer(&f, "debuginfod", "hidden_function");
	finish(&f);
	test_cert_done(&cert);
	test_ca_done(&ca);
	test_ca_done(&other);
}

/* A pod has many files, and the agent asks for each of them. The problem is logged only once. */
static void a_ca_that_cannot_be_read_is_told_once(void **state)
{
	struct fixture f = {.how = GOOD, .ca_file = "/nowhere/ca.pem"};
	int log = memfd_create("log", MFD_CLOEXEC), own = dup(STDERR_FILENO);
	_cleanup_free_ char *said = NULL, *line = NULL;
	const char *first;
	struct test_ca ca;
	struct test_cert cert;

	(void)state;
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	begin(&f, &cert);
	dup2(log, STDERR_FILENO);
	for (int i = 0; i < 3; i++)
		assert_answer(&f, "debuginfod_failed", "(none)");
	dup2(own, STDERR_FILENO);
	close(own);
	line = xasprintf("/proc/self/fd/%d", log);
	assert_int_equal(file_read(AT_FDCWD, line, 1 << 20, &said, NULL), 0);
	first = strstr(said, "debuginfod: /nowhere/ca.pem: ");
	assert_non_null(first);
	assert_null(strstr(first + 1, "debuginfod: /nowhere/ca.pem: "));
	close(log);
	finish(&f);
	test_cert_done(&cert);
	test_ca_done(&ca);
}

static void the_cache_keeps_to_its_size(void **state)
{
	struct fixture f = {.how = GOOD, .cache_bytes = 256 << 10};

	(void)state;
	begin(&f, NULL);
	run("mkdir -p %s && head -c 200000 /dev/zero >%s/00.debug && "
	    "head -c 100000 /dev/zero >%s/01.debug && touch -d '1 hour ago' %s/00.debug",
	    f.cache, f.cache, f.cache, f.cache);
	assert_answer(&f, "debuginfod", "hidden_function");
	run("test ! -e %s/00.debug && test -e %s/01.debug && test -e %s/%s.debug", f.cache, f.cache,
	    f.cache, f.c.build_id);
	finish(&f);
}

static void without_a_directory_nothing_is_kept(void **state)
{
	struct fixture f = {.how = GOOD};

	(void)state;
	begin(&f, NULL);
	f.cache[0] = '\0';
	assert_answer(&f, "debuginfod", "hidden_function");
	assert_answer(&f, "debuginfod", "hidden_function");
	assert_int_equal(ts_n_requests(f.server), 2);
	finish(&f);
}

static void a_wrong_url_is_an_error(void **state)
{
	static const char *const wrong[] = {"ftp://a/",
					    "http://",
					    "http://:80",
					    "http://a:0/",
					    "https://a:70000/",
					    "http://a@b/",
					    "http://a b/",
					    "http://a/?x",
					    "debuginfod.example",
					    "http://[::1",
					    "http://[a]/",
					    "http://[::1]:0/",
					    "http://fd00::1:8002",
					    "http://[::1]:",
					    "http://h:x",
					    "http://[fe80::1%25eth0]"};
	struct url url;
	struct files_config c = {0};
	struct files *files;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		c.debuginfod_url = wrong[i];
		assert_int_equal(files_new(&c, &files), -EINVAL);
	}
	assert_int_equal(url_parse("https://[fd00::1]:8002/a/", &url, NULL), 0);
	assert_string_equal(url.host, "fd00::1");
	assert_int_equal(url.port, 8002);
	assert_string_equal(url.path, "/a");
	url_done(&url);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_comes_gives_names_and_is_kept),
		cmocka_unit_test(what_is_not_there_is_not_asked_for_again),
		cmocka_unit_test(wrong_files_are_refused_and_not_kept),
		cmocka_unit_test(hostile_servers_cost_their_limits),
		cmocka_unit_test(the_end_does_not_wait_for_the_server),
		cmocka_unit_test(only_the_given_ca_is_trusted),
		cmocka_unit_test(a_ca_that_cannot_be_read_is_told_once),
		cmocka_unit_test(the_cache_keeps_to_its_size),
		cmocka_unit_test(without_a_directory_nothing_is_kept),
		cmocka_unit_test(a_wrong_url_is_an_error),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
