/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls of debuginfod.c fail. Each search must end once, each file that is kept must be
 * whole, and an error on this node must not be noted as "the server has no such file". The test
 * only compares the files and parses none.
 */
#include "lib/base/fault.h"
#include "lib/base/testdir.h"
#include "lib/loop/http.h"
#include "node/files/internal.h"

#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#define BUILD_ID    "0123456789abcdef"
#define FILE_BYTES  100000
#define LOOK_NS	    (NSEC_PER_MSEC)
#define DEADLINE_NS (300 * NSEC_PER_SEC)

static char dir[TESTDIR_BYTES], cache[TESTDIR_BYTES + 16], sent[FILE_BYTES];

struct world {
	struct loop *loop;
	struct http_server *server;
	struct debuginfod *d;
	struct timer look;
	uint64_t deadline_ns;
	bool too_late;
};

/* ---- a function in place of that of debug.c; runs on debuginfod's thread ---- */

static atomic_uint n_parsed, n_settled;

static int fetched(struct files *f, const struct file_key *key, const char *build_id, int main_fd,
		   int debug_fd)
{
	static char got[FILE_BYTES + 1];

	(void)f;
	(void)key;
	(void)main_fd;
	if (debug_fd >= 0) {
		fault_outage_ends(NULL);
		if (!streq(build_id, BUILD_ID) ||
		    pread(debug_fd, got, sizeof(got), 0) != FILE_BYTES ||
		    memcmp(got, sent, FILE_BYTES) != 0)
			abort(); /* cmocka cannot end the test on this thread */
		n_parsed++;
	}
	n_settled++;
	return -ENODATA;
}

/* ---- the server ---- */

static void serve(struct http_conn *c, const struct http_in *in, void *arg)
{
	(void)arg;
	assert_string_equal(in->path, "/buildid/" BUILD_ID "/debuginfo");
	http_reply(c, 200, "application/octet-stream", NULL, sent, FILE_BYTES);
}

/* ---- a run ---- */

static void look(void *arg)
{
	struct world *w = arg;

	w->too_late = now_mono_ns() > w->deadline_ns;
	if (n_settled || w->too_late)
		loop_stop(w->loop, 0);
	else
		timer_set(w->loop, &w->look, LOOK_NS, look, w);
}

static int world_make(struct world *w, struct files *f, bool keep)
{
	struct http_server_config hc = {.address = "127.0.0.1", .handler = serve};
	struct files_config c = {.debuginfod_cache = keep ? cache : ""};
	_cleanup_free_ char *url = NULL;
	int r = loop_new(&w->loop);

	if (!r)
		r = http_server_new(w->loop, &hc, &w->server, NULL);
	if (r)
		return r;
	url = xasprintf("http://127.0.0.1:%u", http_server_port(w->server));
	c.debuginfod_url = url;
	return files_debuginfod_new(f, &c, fetched, &w->d);
}

static int search(void *arg)
{
	struct files f = {.debug_max_bytes = 1 << 20};
	const struct file_key key = {.file.inode = 1};
	struct world w = {.deadline_ns = now_mono_ns() + DEADLINE_NS};
	bool asked = false;
	int r = world_make(&w, &f, arg != NULL);

	n_settled = n_parsed = 0;
	if (!r) {
		r = files_debuginfod_ask(w.d, &key, BUILD_ID, STDIN_FILENO);
		asked = r == 0;
	}
	if (asked) {
		look(&w);
		r = loop_run(w.loop);
		assert_false(w.too_late);
	}
	fault_outage_ends(NULL);
	files_debuginfod_free(w.d);
	if (w.loop)
		timer_cancel(&w.look);
	http_server_free(w.server);
	loop_free(w.loop);
	assert_int_equal(n_settled, asked);
	return r ? r : n_parsed ? 0 : -EIO;
}

static void empty(void *arg)
{
	(void)arg;
	testdir_remove(cache);
}

/*
 * Asserts that the cache has the whole file or none, and no note that the server has no such file.
 */
static void kept_whole(void *arg)
{
	_cleanup_free_ char *path = xasprintf("%s/%s.debug", cache, BUILD_ID), *text = NULL;
	_cleanup_free_ char *none = xasprintf("%s/%s.none", cache, BUILD_ID);
	size_t n;

	(void)arg;
	assert_int_equal(access(none, F_OK), -1);
	if (access(path, F_OK) != 0)
		return;
	assert_int_equal(file_read(AT_FDCWD, path, FILE_BYTES, &text, &n), 0);
	assert_int_equal(n, FILE_BYTES);
	assert_memory_equal(text, sent, n);
}

static void test_search(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "debuginfod: kept",
		 .calls = FAULT_FILES | FAULT(START),
		 .before = empty,
		 .run = search,
		 .check = kept_whole,
		 .step = 7,
		 .threads = true},
		{.name = "debuginfod: connection",
		 .calls = FAULT(FD) | FAULT(CONNECT) | FAULT(SEND) | FAULT(RECV) | FAULT(POLL) |
			  FAULT(EPOLL),
		 .before = empty,
		 .run = search,
		 .check = kept_whole,
		 .step = 25,
		 .threads = true},
	};
	static const struct fault_row memory = {.name = "debuginfod: in memory",
						.calls = FAULT(FD) | FAULT(READ) | FAULT(WRITE),
						.run = search,
						.step = 25,
						.threads = true};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], cache);
	fault_each(&memory, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_search)};
	int r;

	if (testdir_make(dir))
		return 1;
	snprintf(cache, sizeof(cache), "%s/cache", dir);
	random_bytes(sent, sizeof(sent));
	r = cmocka_run_group_tests_name("debuginfod_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
