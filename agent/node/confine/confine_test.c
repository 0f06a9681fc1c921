/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What somebody can do who has taken over the agent, and that the agent can do its work. Each test
 * limits a process of its own: the limits cannot be taken back. The test program is the parse child
 * of such a process, too.
 */
#include "node/confine/confine.h"
#include "lib/symbols/symbols.h"
#include "node/parse/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <cap-ng.h>
#include <linux/landlock.h>
#include <linux/perf_event.h>
#include <netdb.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "lib/base/testfolder.h"
#include "lib/child/testescapes.h"

static struct escape_outside outside;

/* Runs fn in a process of its own. Returns what fn returns: a number from 0 to 255. */
static int in_process(int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* ---- system calls ---- */

static struct escape_list all;
static int *before, *after; /* results of the attempts, in memory that the processes share */

static int try_all(int *results)
{
	escapes(&outside, &all);
	for (size_t i = 0; i < all.n; i++)
		if (all.items[i].where & IN_AGENT)
			results[i] = escape_try(&all.items[i]);
	return 0;
}

static int try_free(void)
{
	return try_all(before);
}

static int try_confined(void)
{
	return confine_calls() < 0 ? 1 : try_all(after);
}

static int *shared_results(void)
{
	void *p = mmap(NULL, ESCAPES_MAX * sizeof(int), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static void no_other_system_call_is_made(void **state)
{
	size_t n_tried = 0, n_made = 0;

	(void)state;
	before = shared_results();
	after = shared_results();
	assert_int_equal(in_process(try_free), 0);
	assert_int_equal(in_process(try_confined), 0);
	escapes(&outside, &all);
	for (size_t i = 0; i < all.n; i++) {
		if (!(all.items[i].where & IN_AGENT))
			continue;
		/* this kernel may lack a call */
		n_tried += before[i] != -ENOSYS;
		if (after[i] == -ENOSYS)
			continue;
		print_error("%s: %s\n", all.items[i].name,
			    after[i] < 0 ? strerror(-after[i]) : "it works");
		n_made++;
	}
	assert_true(n_tried > 35);
	assert_int_equal(n_made, 0);
}

static void *nothing(void *arg)
{
	return arg;
}

static int runs_a_thread(void)
{
	pthread_t thread;

	return pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL);
}

static int looks_up_a_name(void)
{
	struct addrinfo *found;

	if (getaddrinfo("localhost", "4318", NULL, &found))
		return 1;
	freeaddrinfo(found);
	return 0;
}

static int reads_memory(void)
{
	uint64_t word = 0;
	struct iovec here = {&word, sizeof(word)}, there = {outside.word, sizeof(word)};

	return process_vm_readv(outside.pid, &here, 1, &there, 1, 0) != sizeof(word) ||
	       word != *outside.word;
}

static int opens_an_event(void)
{
	struct perf_event_attr a = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(a), .config = PERF_COUNT_SW_CPU_CLOCK};
	_cleanup_close_ int fd =
		(int)syscall(SYS_perf_event_open, &a, outside.pid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
}

static int makes_a_map(void)
{
	union bpf_attr a = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
	_cleanup_close_ int fd = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof(a));

	return fd < 0;
}

/* The child makes a filter of its own. */
static int parses_in_a_child(void)
{
	const struct parser_config c = {0};
	struct elf_index *index = NULL;
	struct parser *p = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int r = parse_new(&c, &p);

	if (!r)
		r = parse_elf(p, fd, &index);
	elf_index_unref(index);
	parse_free(p);
	close(fd);
	return r != 0;
}

/* The child measures its CPU time by a timer. */
static int demangles_in_a_child(void)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost cost = {0};
	uint64_t again_ns;
	_cleanup_free_ char *text = elf_demangler_text(d, "_ZN4shop5priceEv", &cost, &again_ns);

	elf_demangler_free(d);
	return !streq(text, "shop::price()");
}

static int writes_a_file(void)
{
	_cleanup_free_ char *path = file_in_dir("written");

	return file_write_atomic(path, "x", 1, 0600) < 0;
}

static int works(void)
{
	int (*const fns[])(void) = {runs_a_thread,	  looks_up_a_name, reads_memory,
				    opens_an_event,	  makes_a_map,	   parses_in_a_child,
				    demangles_in_a_child, writes_a_file};

	if (confine_calls() < 0)
		return 100;
	for (size_t i = 0; i < ARRAY_SIZE(fns); i++)
		if (fns[i]())
			return 1 + (int)i;
	return 0;
}

static void the_agent_works(void **state)
{
	(void)state;
	assert_int_equal(in_process(works), 0);
}

/* ---- mounts ---- */

static int write_to(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int confine_to_dir(void)
{
	const char *const writable[] = {dir, "", NULL};

	return confine_mounts(writable, ARRAY_SIZE(writable));
}

static int write_outside(void)
{
	return confine_to_dir() < 0 ? 255 : write_to(outside.file);
}

static int write_inside(void)
{
	return confine_to_dir() < 0 || *confine_mounts_problem() ? 255 : writes_a_file();
}

static int write_after_a_mount(void)
{
	if (confine_to_dir() < 0 || confine_calls() < 0)
		return 255;
	return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL) < 0 ? errno : 0;
}

static int write_through_another_process(void)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/root%s", outside.pid, outside.file);

	return confine_to_dir() < 0 ? 255 : write_to(path);
}

static void only_named_directories_are_writable(void **state)
{
	(void)state;
	assert_int_equal(write_to(outside.file), 0);
	assert_int_equal(in_process(write_outside), EROFS);
	assert_int_equal(in_process(write_inside), 0);
	assert_int_equal(in_process(write_after_a_mount), ENOSYS);
	assert_int_equal(write_to(outside.file), 0);
}

/* docs/security.md says so: the mounts of other processes are not the agent's. */
static void mounts_of_other_processes_stay_writable(void **state)
{
	(void)state;
	assert_int_equal(in_process(write_through_another_process), 0);
}

static int confine_without_rights(void)
{
	assert_se(prctl(PR_CAPBSET_DROP, 21 /* CAP_SYS_ADMIN */, 0, 0, 0) == 0);
	assert_se(syscall(SYS_setresuid, 12345, 12345, 12345) == 0);
	if (confine_to_dir() != -EPERM)
		return 255;
	return strcmp(confine_mounts_problem(),
		      "a mount namespace (capability SYS_ADMIN): Operation not permitted");
}

static void without_the_right_the_reason_is_told(void **state)
{
	(void)state;
	assert_null(confine_mounts_problem()); /* nobody has asked */
	assert_null(confine_calls_problem());
	assert_int_equal(in_process(confine_without_rights), 0);
}

/* ---- the user ---- */

#define USER 20416

static char memory[32], root[64]; /* of the process outside */

static void name_outside(void)
{
	snprintf(memory, sizeof(memory), "/proc/%d/mem", outside.pid);
	snprintf(root, sizeof(root), "/proc/%d/root/etc/shadow", outside.pid);
}

static int confine_to_user(void)
{
	int r = confine_directory(dir, USER);

	return r ? r : confine_user(USER);
}

static int opens(const char *path, int flags)
{
	_cleanup_close_ int fd = open(path, flags | O_CLOEXEC);

	return fd < 0 ? errno : 0;
}

/* The files and the memory of root can be read, and not written. */
static int writes_nothing_of_root(void)
{
	if (confine_to_user() < 0 || *confine_user_problem())
		return 1;
	if (opens(root, O_RDONLY) || opens(memory, O_RDONLY))
		return 2;
	if (opens("/etc/shadow", O_WRONLY) != EACCES || opens(root, O_WRONLY) != EACCES ||
	    opens(memory, O_RDWR) != EACCES)
		return 3;
	if (kill(outside.pid, 0) == 0 || errno != EPERM)
		return 4;
	/* the way back */
	if (syscall(SYS_setresuid, 0, 0, 0) == 0 || syscall(SYS_setfsuid, 0) != USER ||
	    syscall(SYS_setfsuid, -1) != USER)
		return 5;
	/* SYS_ADMIN is kept where the kernel demands it, but not the system calls that it is for */
	if (confine_needs_sys_admin() && confine_calls() < 0)
		return 6;
	return unshare(CLONE_NEWNS) == 0 ? 7 : 0;
}

static int works_as_user(void)
{
	return confine_to_user() < 0 ? 100 : works();
}

static int makes_a_directory_later(void)
{
	_cleanup_free_ char *path = file_in_dir("later");

	/* as in the pod of the chart */
	assert_se(chmod(dir, 0777) == 0);
	capng_get_caps_process();
	capng_update(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_CHOWN);
	assert_se(capng_apply(CAPNG_SELECT_CAPS) == 0);
	if (confine_directory(dir, USER) != 0 || confine_directory(path, USER) != -EPERM ||
	    confine_user(USER) < 0)
		return 1;
	return mkdir_parents(path, 0700) < 0 || rmdir(path) < 0;
}

static bool belongs_to(const char *path, uid_t user, mode_t mode)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_uid == user && (st.st_mode & 07777) == mode;
}

/* A directory of the node, which the kubelet makes: nobody else reads the profiles in it. */
static int owns_a_directory_of_the_node(void)
{
	assert_se(chown(dir, 0, 0) == 0 && chmod(dir, 0755) == 0);
	capng_get_caps_process();
	capng_update(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_FOWNER);
	capng_update(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_DAC_OVERRIDE);
	assert_se(capng_apply(CAPNG_SELECT_CAPS) == 0);
	if (confine_directory(dir, USER) != 0 || !belongs_to(dir, USER, 0700))
		return 1;
	/* the next agent finds it so, and may be another user */
	if (confine_directory(dir, USER) != 0 || !belongs_to(dir, USER, 0700))
		return 2;
	return confine_directory(dir, 0) != 0 || !belongs_to(dir, 0, 0700) ? 3 : 0;
}

static int becomes_user_without_right(void)
{
	assert_se(syscall(SYS_setresuid, 12345, 12345, 12345) == 0);
	return confine_user(USER) != -EPERM || !*confine_user_problem();
}

static void another_user_writes_nothing_of_root(void **state)
{
	(void)state;
	assert_int_equal(opens(root, O_WRONLY), 0);
	assert_int_equal(opens(memory, O_RDWR), 0);
	assert_int_equal(in_process(writes_nothing_of_root), 0);
	assert_int_equal(in_process(becomes_user_without_right), 0);
}

static void another_user_does_the_agents_work(void **state)
{
	(void)state;
	assert_int_equal(in_process(makes_a_directory_later), 0);
	assert_int_equal(in_process(owns_a_directory_of_the_node), 0);
	assert_int_equal(in_process(works_as_user), 0);
}

/* ---- why the agent does not use Landlock ---- */

/* A domain that handles nothing but symbolic links. It opens the memory and the files of others. */
static int look_from_a_domain(void)
{
	const struct landlock_ruleset_attr a = {.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_SYM};
	int fd = (int)syscall(SYS_landlock_create_ruleset, &a, sizeof(a), 0);
	struct stat st;

	if (open(memory, O_RDONLY | O_CLOEXEC) < 0 || stat(root, &st) < 0)
		return 255;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		return 254;
	if (open(memory, O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		return 1;
	return stat(root, &st) == 0 || errno != EACCES ? 2 : 0;
}

static void landlock_would_close_all_other_processes(void **state)
{
	(void)state;
	if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) < 0) {
		print_message("skipped: this kernel has no Landlock\n");
		skip();
	}
	assert_int_equal(in_process(look_from_a_domain), 0);
}

static int start(void **state)
{
	dir_make(state);
	escape_outside_start(&outside);
	name_outside();
	return 0;
}

static int stop(void **state)
{
	escape_outside_stop(&outside);
	return dir_remove(state);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_other_system_call_is_made),
		cmocka_unit_test(the_agent_works),
		cmocka_unit_test(only_named_directories_are_writable),
		cmocka_unit_test(mounts_of_other_processes_stay_writable),
		cmocka_unit_test(without_the_right_the_reason_is_told),
		cmocka_unit_test(another_user_writes_nothing_of_root),
		cmocka_unit_test(another_user_does_the_agents_work),
		cmocka_unit_test(landlock_would_close_all_other_processes),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (geteuid() != 0) {
		print_message("skipped: only root has rights to give up\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, start, stop);
}
