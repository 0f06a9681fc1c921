/* SPDX-License-Identifier: Apache-2.0 */
/* More host processes of a wanted name than are profiled: who is beyond the limit is counted, and has a place that gets free. */
#include "node/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HOSTS 16384 /* MAX_HOSTS */
#define TICK  100   /* of their start */

static char proc[] = "/tmp/podflame-hosts-XXXXXX"; /* stands for /proc */

/* ---- what hosts.c calls ---- */

DIR *opendir(const char *name)
{
	return fdopendir(
		open(streq(name, "/proc") ? proc : name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static struct listed_process listed[HOSTS + 2];
static size_t n_listed;
static struct node node;

int kernel_list(struct kernel *k, const struct listed_process *want, size_t n)
{
	(void)k;
	assert_true(n <= ARRAY_SIZE(listed));
	memcpy(listed, want, n * sizeof(*want));
	n_listed = n;
	return 0;
}

void task_post(struct node *n, struct worker *w, struct task *t, size_t n_bytes)
{
	(void)w;
	(void)n_bytes;
	t->node = n;
	t->run(t);
	t->done(t);
	free(t);
	loop_stop(n->loop, 0);
}

/* ---- a /proc ---- */

static void put_stat(const char *dir, const char *comm)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", proc, dir),
			    *file = xasprintf("%s/stat", path);
	_cleanup_free_ char *text =
		xasprintf("1 (%s) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", comm, TICK);

	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(file_write_atomic(file, text, strlen(text), 0644), 0);
}

/* Processes FIRST to LAST are like `dir`. */
static void put_processes(unsigned first, unsigned last, const char *dir)
{
	for (unsigned pid = first; pid <= last; pid++) {
		_cleanup_free_ char *path = xasprintf("%s/%u", proc, pid);

		assert_int_equal(symlink(dir, path), 0);
	}
}

static void end_process(unsigned pid)
{
	_cleanup_free_ char *path = xasprintf("%s/%u", proc, pid);

	assert_int_equal(unlink(path), 0);
}

static int setup(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(proc));
	assert_int_equal(loop_new(&node.loop), 0);
	node.closing = true; /* no look but those that are asked for here */
	put_stat("wanted", "java");
	put_stat("other", "sshd");
	return 0;
}

static int teardown(void **state)
{
	_cleanup_free_ char *rm = xasprintf("rm -rf %s", proc);

	(void)state;
	loop_free(node.loop);
	return system(rm);
}

/* ---- tests ---- */

/* The PID of 1..last that is not listed, or 0. */
static unsigned left_out(unsigned last)
{
	_cleanup_free_ bool *is_listed = xcalloc(last + 1, sizeof(*is_listed));
	unsigned none = 0;

	for (size_t i = 0; i < n_listed; i++) {
		assert_in_range(listed[i].tgid, 1, last);
		assert_false(is_listed[listed[i].tgid]);
		is_listed[listed[i].tgid] = true;
	}
	for (unsigned pid = 1; pid <= last; pid++) {
		assert_true(is_listed[pid] || !none);
		none = is_listed[pid] ? none : pid;
	}
	return none;
}

/* One look, and is this process profiled after it? */
static bool look_for(unsigned pid)
{
	struct host_list *l;
	struct hosts *h;
	bool found;

	assert_int_equal(hosts_new(&node, &h, NULL), 0);
	assert_int_equal(loop_run(node.loop), 0);
	l = hosts_list(h);
	found = host_list_has(l, pid, TICK * NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK),
			      NSEC_PER_SEC);
	host_list_unref(l);
	hosts_free(h);
	return found;
}

static void who_is_beyond_the_limit_is_counted(void **state)
{
	struct counter *dropped =
		counter("podflame_processes_dropped_total", "reason", "host_limit");
	struct config conf = {
		.on_cpu_hz = 99, .on_cpu_regex = (char *)"^java$", .off_cpu_disabled = true};
	unsigned pid;

	(void)state;
	node.conf = &conf;
	put_processes(1, HOSTS, "wanted");
	put_processes(HOSTS + 2, HOSTS + 10, "other");
	assert_true(look_for(1));
	assert_int_equal(n_listed, HOSTS);
	assert_int_equal(counter_get(dropped), 0); /* others count for nothing */
	put_processes(HOSTS + 1, HOSTS + 1, "wanted");
	assert_false(look_for(HOSTS + 2));
	assert_int_equal(n_listed, HOSTS);
	assert_int_equal(counter_get(dropped), 1);
	pid = left_out(HOSTS + 1);
	assert_false(look_for(pid));
	end_process(pid == 1 ? 2 : 1);
	assert_true(look_for(pid));
	assert_int_equal(n_listed, HOSTS);
	assert_int_equal(counter_get(dropped), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_beyond_the_limit_is_counted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
