/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time of a cgroup of our own, and what its limit kept from it. As root; skips where no limit can be set. */
#include "node/proc/internal.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_NS (60 * NSEC_PER_SEC)

struct own {
	struct cgroup_hierarchy h;
	char name[64];
	const char *mounts[3]; /* where it is made */
	size_t n_mounts;
	pid_t pid; /* who runs in it; 0: nobody */
};

static int put(const char *mount, const char *name, const char *file, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s/%s", mount, name, file);
	FILE *f = fopen(path, "w");
	int r;

	if (!f)
		return -errno;
	r = fputs(text, f) < 0 ? -EIO : 0;
	return fclose(f) < 0 ? -errno : r;
}

static void add_mount(struct own *o, const char *mount)
{
	for (size_t i = 0; i < o->n_mounts; i++)
		if (streq(o->mounts[i], mount))
			return;
	o->mounts[o->n_mounts++] = mount;
}

static bool make(struct own *o)
{
	struct field_error err;

	*o = (struct own){0};
	if (geteuid() != 0 || cgroup_choose("", &o->h, &err) < 0)
		return false;
	snprintf(o->name, sizeof(o->name), "podflame-cpu-test-%d", getpid());
	add_mount(o, o->h.mount);
	if (*o->h.cpuacct_mount)
		add_mount(o, o->h.cpuacct_mount);
	if (*o->h.cpu_mount)
		add_mount(o, o->h.cpu_mount);
	for (size_t i = 0; i < o->n_mounts; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", o->mounts[i], o->name);

		if (mkdir(path, 0755) < 0)
			return false;
	}
	return true;
}

static void unmake(struct own *o)
{
	if (o->pid) {
		kill(o->pid, SIGKILL);
		waitpid(o->pid, NULL, 0);
	}
	for (size_t i = 0; i < o->n_mounts; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", o->mounts[i], o->name);

		for (unsigned k = 0; k < 1000 && rmdir(path) < 0 && errno == EBUSY; k++)
			usleep(10000); /* the dead child is taken out of it a moment later */
	}
}

/* A fifth of a CPU: is there a limit here? */
static bool set_limit(const struct own *o)
{
	if (*o->h.cpu_mount)
		return put(o->h.cpu_mount, o->name, "cpu.cfs_quota_us", "20000") == 0;
	(void)put(o->h.mount, "", "cgroup.subtree_control", "+cpu");
	return put(o->h.mount, o->name, "cpu.max", "20000 100000") == 0;
}

static void burn_inside(struct own *o)
{
	volatile unsigned long x = 0;

	o->pid = fork();
	assert_true(o->pid >= 0);
	if (o->pid)
		return;
	alarm(120);
	for (size_t i = 0; i < o->n_mounts; i++)
		if (put(o->mounts[i], o->name, "cgroup.procs", "0") < 0)
			_exit(1);
	for (;;)
		x++;
}

static void test_usage_and_throttled(void **state)
{
	uint64_t id, deadline_ns = now_mono_ns() + DEADLINE_NS;
	struct cgroup_cpu cpu = {0};
	struct own o;
	bool limited;

	(void)state;
	if (!make(&o)) {
		unmake(&o);
		print_message("no cgroup can be made here\n");
		skip();
	}
	assert_int_equal(cgroup_id_of(&o.h, o.name, &id), 0);
	assert_int_equal(cgroup_cpu_read(&o.h, id, &cpu), 0);
	assert_int_equal(cpu.usage_ns, 0);
	assert_int_equal(cpu.throttled_ns, 0);
	limited = set_limit(&o);
	if (!limited)
		print_message("skip: no CPU limit can be set here, throttled time is not tested\n");
	burn_inside(&o);
	do {
		usleep(20000);
		assert_int_equal(cgroup_cpu_read(&o.h, id, &cpu), 0);
	} while ((cpu.usage_ns < 50 * NSEC_PER_MSEC ||
		  (limited && cpu.throttled_ns < 100 * NSEC_PER_MSEC)) &&
		 now_mono_ns() < deadline_ns);
	assert_true(cpu.usage_ns >= 50 * NSEC_PER_MSEC);
	if (limited) {
		assert_true(cpu.throttled_ns >= 100 * NSEC_PER_MSEC);
		assert_true(cpu.n_throttled > 0);
	}
	unmake(&o);
	assert_true(cgroup_cpu_read(&o.h, id, &cpu) < 0); /* gone */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_usage_and_throttled)};

	return cmocka_run_group_tests_name("proc/cgroup_cpu", tests, NULL, NULL);
}
