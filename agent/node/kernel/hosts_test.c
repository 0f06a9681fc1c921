/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent finds more host processes with a wanted name than it profiles. A process beyond the
 * limit is counted once, and is profiled when another one ends.
 */
#include "node/kernel/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/work/testworkers.h"

#define HOSTS 16384 /* equal to MAX_HOSTS */
#define TICK  100   /* the start time of the processes, in clock ticks */

/* the directory that the test uses instead of /proc */
static char proc[] = "/tmp/podflame-hosts-XXXXXX";

/* ---- functions that hosts.c calls ---- */

DIR *opendir(const char *name)
{
	return fdopendir(
		open(streq(name, "/proc") ? proc : name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static struct listed_process listed[HOSTS + 2];
static size_t n_listed;
static struct work node_work;
static struct kernel kernel = {.config = {.work = &node_work}};

static int put_list(struct kernel *k, const struct listed_process *want, size_t n)
{
	(void)k;
	assert_true(n <= ARRAY_SIZE(listed));
	memcpy(listed, want, n * sizeof(*want));
	n_listed = n;
	return 0;
}

/* ---- a directory like /proc ---- */

static void put_stat(const char *dir, const char *comm, unsigned start_ticks)
{
	_cleanup_free_ char *file = xasprintf("%s/%s/stat", proc, dir);
	_cleanup_free_ char *text = xasprintf(
		"1 (%s) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %u 0 0\n", comm, start_ticks);

	assert_int_equal(file_write_atomic(file, text, strlen(text), 0644), 0);
}

static void put_kind(const char *dir, const char *comm)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", proc, dir);

	assert_int_equal(mkdir(path, 0755), 0);
	put_stat(dir, comm, TICK);
}

/* Makes processes first to last as links to `dir`, so all of them look the same. */
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
	put_kind("wanted", "java");
	put_kind("other", "sshd");
	return 0;
}

static int teardown(void **state)
{
	_cleanup_free_ char *rm = xasprintf("rm -rf %s", proc);

	(void)state;
	return system(rm);
}

/* ---- tests ---- */

/* Returns the PID of 1..last that is not in the list, or 0. */
static unsigned left_out(unsigned last)
{
	_cleanup_free_ bool *is_listed = xcalloc(last + 1, sizeof(*is_listed));
	unsigned none = 0;

	for (size_t i = 0; i < n_listed; i++) {
		assert_in_range(listed[i].id.tgid, 1, last);
		assert_false(is_listed[listed[i].id.tgid]);
		is_listed[listed[i].id.tgid] = true;
	}
	for (unsigned pid = 1; pid <= last; pid++) {
		assert_true(is_listed[pid] || !none);
		none = is_listed[pid] ? none : pid;
	}
	return none;
}

/* Makes one search. Returns whether this process is profiled after it. */
static bool look_for(struct hosts *h, unsigned pid)
{
	struct host_list *l;
	bool found;

	timer_fire();
	posted_run();
	l = kernel_hosts_list(h);
	found = kernel_host_list_has(
		l, (struct process_id){TICK * NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK), pid},
		UINT64_MAX);
	kernel_host_list_unref(l);
	return found;
}

static uint64_t n_dropped(void)
{
	return counter_get(counter("podflame_processes_dropped_total", "reason", "host_limit"));
}

static void who_is_beyond_the_limit_is_counted_once(void **state)
{
	struct config conf = {
		.on_cpu_hz = 99, .on_cpu_regex = (char *)"^java$", .off_cpu_disabled = true};
	struct hosts *h;
	unsigned pid, other, n;

	(void)state;
	testwork(&node_work);
	kernel.config.conf = &conf;
	assert_int_equal(kernel_hosts_new(&kernel, put_list, &h, NULL), 0);
	put_processes(1, HOSTS, "wanted");
	put_processes(HOSTS + 2, HOSTS + 10, "other");
	assert_true(look_for(h, 1));
	assert_int_equal(n_listed, HOSTS);
	assert_int_equal(n_dropped(), 0); /* processes with other names do not count */
	put_processes(HOSTS + 1, HOSTS + 1, "wanted");
	for (unsigned i = 0; i < 3; i++) {
		assert_false(look_for(h, HOSTS + 2));
		assert_int_equal(n_listed, HOSTS);
		assert_int_equal(n_dropped(), 1);
	}
	pid = left_out(HOSTS + 1);
	assert_false(look_for(h, pid));
	other = pid == 1 ? 2 : 1;
	end_process(other);
	assert_true(look_for(h, pid)); /* pid is profiled instead of the process that ended */
	assert_int_equal(n_listed, HOSTS);
	put_processes(other, other, "wanted");
	look_for(h, other);
	n = left_out(HOSTS + 1) == pid ? 1 : 2;
	assert_int_equal(n_dropped(), n);
	/* the same PIDs, but with another start time: other processes */
	put_stat("wanted", "java", TICK + 1);
	look_for(h, 1);
	assert_int_equal(n_dropped(), n + 1);
	look_for(h, 1);
	assert_int_equal(n_dropped(), n + 1);
	kernel_hosts_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_beyond_the_limit_is_counted_once),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
