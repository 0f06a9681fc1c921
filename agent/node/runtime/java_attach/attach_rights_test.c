/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the child that asks a JVM can do beside asking: nothing. The tests run in that child, with
 * the user root, who has most to lose.
 */
#include "node/runtime/java_attach/attach.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testfolder.h"
#include "lib/child/testescapes.h"

static struct escape_outside outside;
static struct attach attach;

/* What the child tries, and its result: 0 or -errno. */
static int (*attempt)(void);
static const struct escape *call;

static void try_it(const struct attach *a, struct attach_answer *ret)
{
	(void)a;
	ret->error = attempt();
}

/* Returns the result of the attempt in the child. */
static int in_child(int (*fn)(void))
{
	struct attach_answer answer;

	attempt = fn;
	runtime_attach_in_child(&attach, try_it, &answer);
	assert_int_equal(answer.result, ATTACH_OK);
	return answer.error;
}

#ifndef __SANITIZE_ADDRESS__
static int make_call(void)
{
	return escape_try(call);
}

static void no_system_call_leads_out(void **state)
{
	static struct escape_list all;
	size_t n_tried = 0, n_out = 0;

	(void)state;
	escapes(&outside, &all);
	for (call = all.items; call < all.items + all.n; call++) {
		int r;

		if (!(call->where & IN_ATTACH))
			continue;
		n_tried++;
		r = in_child(make_call);
		if (r == -EPERM)
			continue;
		print_error("%s: %s\n", call->name, r ? strerror(-r) : "it works");
		n_out++;
	}
	assert_true(n_tried > 60);
	assert_int_equal(n_out, 0);
}
#endif

/* ---- paths ---- */

static int opened(int fd)
{
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int read_outside(void)
{
	return opened(open(outside.file, O_RDONLY | O_CLOEXEC));
}

static int write_outside(void)
{
	return opened(open(outside.file, O_WRONLY | O_CLOEXEC));
}

static int remove_outside(void)
{
	return unlinkat(AT_FDCWD, outside.file, 0) < 0 ? -errno : 0;
}

static int read_a_directory(void)
{
	return opened(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/* The path of the process outside is made before the fork. */
static char memory[32], root[64];

static int read_memory(void)
{
	return opened(open(memory, O_RDONLY | O_CLOEXEC));
}

static int write_memory(void)
{
	return opened(open(memory, O_WRONLY | O_CLOEXEC));
}

static int look_into_root(void)
{
	struct stat st;

	return syscall(SYS_newfstatat, AT_FDCWD, root, &st, 0) < 0 ? -errno : 0;
}

static int make_and_remove(void)
{
	int r = opened(openat(attach.tmp_fd, "made", O_WRONLY | O_CREAT | O_EXCL, 0600));

	if (!r && unlinkat(attach.tmp_fd, "made", 0) < 0)
		r = -errno;
	return r;
}

static int make_in_a_locked_directory(void)
{
	return opened(openat(attach.tmp_fd, "locked/made", O_WRONLY | O_CREAT | O_EXCL, 0600));
}

static bool has_landlock(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0;
}

static void no_path_leads_out(void **state)
{
	int (*const fns[])(void) = {read_outside, write_outside, remove_outside, read_a_directory,
				    read_memory,  write_memory,	 look_into_root};

	(void)state;
	if (!has_landlock()) {
		print_message("skipped: this kernel has no Landlock\n");
		skip();
	}
	snprintf(memory, sizeof(memory), "/proc/%d/mem", outside.pid);
	snprintf(root, sizeof(root), "/proc/%d/root/etc", outside.pid);
	for (size_t i = 0; i < ARRAY_SIZE(fns); i++) {
		assert_int_equal(in_child(fns[i]), -EACCES);
	}
	assert_int_equal(in_child(make_and_remove), 0);
}

#ifndef __SANITIZE_ADDRESS__
/* The child has a copy of the agent's memory. It can take no more. */
static int take_memory(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -errno : 0;
}

static int grow_heap(void)
{
	return syscall(SYS_brk, (char *)sbrk(0) + 4096) < 0 ? -errno : 0;
}

static void it_takes_no_memory(void **state)
{
	(void)state;
	assert_int_equal(in_child(take_memory), -EPERM);
	assert_int_equal(in_child(grow_heap), -EPERM);
}
#endif

/* With the capability DAC_OVERRIDE, root enters any directory. */
static void no_capability_is_left(void **state)
{
	_cleanup_free_ char *path = file_in_dir("locked");

	(void)state;
	assert_int_equal(mkdir(path, 0), 0);
	assert_int_equal(chown(path, 12345, 12345), 0);
	assert_int_equal(make_in_a_locked_directory(), 0);
	assert_int_equal(unlinkat(attach.tmp_fd, "locked/made", 0), 0);
	assert_int_equal(in_child(make_in_a_locked_directory), -EACCES);
	assert_int_equal(rmdir(path), 0);
}

static int start(void **state)
{
	dir_make(state);
	escape_outside_start(&outside);
	attach = (struct attach){
		.uid = geteuid(),
		.gid = getegid(),
		.pidfd = (int)syscall(SYS_pidfd_open, outside.pid, 0),
		.tmp_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
		.spare_ns = 10 * NSEC_PER_SEC,
	};
	return 0;
}

static int stop(void **state)
{
	closep(&attach.pidfd);
	closep(&attach.tmp_fd);
	escape_outside_stop(&outside);
	return dir_remove(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(no_system_call_leads_out),
		cmocka_unit_test(it_takes_no_memory),
#endif
		cmocka_unit_test(no_path_leads_out),
		cmocka_unit_test(no_capability_is_left),
	};

	if (geteuid() != 0) {
		print_message("skipped: only root has rights to give up\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, start, stop);
}
