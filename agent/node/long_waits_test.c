/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk of a waiting thread's stack sleeps because a file system does not answer for a page.
 * Memory of unwind tables that was freed in the meantime may be used for other tables then. So the
 * result of the walk is dropped.
 */
#include "lib/base/testslowfile.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "node/probe/probe.h"

#define STACK_BYTES 65536
#define DEADLINE_NS (60 * NSEC_PER_SEC)

struct child {
	pid_t pid;
	volatile uint32_t *go;
};

/* Waits on a stack whose frame pointer leads into a mapping of the file. */
static _Noreturn void wait_below(const char *file, volatile uint32_t *go)
{
	char *stack = mmap(NULL, STACK_BYTES + 4096, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open(file, O_RDONLY);
	static const struct timespec hour = {.tv_sec = 3600};

	if (stack == MAP_FAILED || fd < 0 ||
	    mmap(stack + STACK_BYTES, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) ==
		    MAP_FAILED)
		_exit(1);
	while (!*go)
		;
	__asm__ volatile("mov %0, %%rsp\n\t"
			 "mov %1, %%rbp\n"
			 "1:\tmov $35, %%eax\n\t" /* nanosleep */
			 "xor %%esi, %%esi\n\t"
			 "mov %2, %%rdi\n\t"
			 "syscall\n\t"
			 "jmp 1b"
			 :
			 : "r"(stack + STACK_BYTES - 256), "r"(stack + STACK_BYTES), "r"(&hour)
			 : "rax", "rcx", "rdi", "rsi", "r11", "memory");
	__builtin_unreachable();
}

static struct child child_start(const char *file)
{
	struct child c = {
		.go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};

	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		wait_below(file, c.go);
	}
	return c;
}

/*
 * Selects the process. The share of its waits that are kept is so small that only the thread of
 * long_waits.c can take one.
 */
static struct probes *watch(const struct child *c)
{
	struct probe_config config = {.use_list = true};
	struct listed_process l = {.id.tgid = c->pid,
				   .event_mask = 1u << EVENT_OFF_CPU,
				   .off_note = UINT32_MAX,
				   .off_keep = 1};
	struct field_error err = {0};
	struct probes *p = NULL;
	int r = probes_new(&config, &p, &err);

	if (r == -EPERM || r == -EACCES) {
		print_message("skipped: BPF is not permitted here (%s)\n", err.reason);
		skip();
	}
	assert_int_equal(r, 0);
	assert_int_equal(proc_start_boottime(l.id.tgid, &l.id.start_boottime_ns), 0);
	assert_int_equal(probes_list(p, &l, 1), 0);
	return p;
}

static bool has_whole_waits(struct probes *p)
{
	size_t n;
	const struct support *s = probes_support(p, &n);

	for (size_t i = 0; i < n; i++)
		if (streq(s[i].feature, "off-cpu-whole-waits"))
			return s[i].ok;
	return false;
}

static uint64_t looks(const char *outcome)
{
	return counter_get(counter("podflame_offcpu_looks_total", "outcome", outcome));
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static bool is_asked(const struct slow_file *s)
{
	return *(volatile const size_t *)&s->n_pending > 0;
}

/* Makes the slow file from zeros, which a walk by frame pointers takes for the outermost frame. */
static int slow_zeros(struct slow_file *s)
{
	_cleanup_close_ int zeros = memfd_create("zeros", MFD_CLOEXEC);
	char path[40];

	assert_int_equal(ftruncate(zeros, 4096), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", zeros);
	return slow_file_new(s, path);
}

static void what_a_walk_found_across_a_reuse_is_not_taken(void **state)
{
	uint64_t deadline = now_mono_ns() + DEADLINE_NS;
	struct slow_file slow;
	struct drain *d = NULL;
	struct child c;
	struct probes *p;

	(void)state;
	if (slow_zeros(&slow)) {
		print_message("skipped: there is no FUSE here\n");
		skip();
	}
	slow.silent = true;
	c = child_start(slow.path);
	p = watch(&c);
	/* this loads the programs of long_waits.c */
	assert_int_equal(probes_drain(p, true, &d), 0);
	sample_drain_free(d);
	if (!has_whole_waits(p)) {
		print_message("skipped: this kernel cannot walk other tasks\n");
		goto end;
	}
	*c.go = 1;
	while (!is_asked(&slow) && now_mono_ns() < deadline)
		nap();
	assert_true(is_asked(&slow));
	assert_int_equal(looks("lost"), 0);
	assert_int_equal(probes_grace(p), 0);
	slow.silent = false;
	while (!looks("whole") && now_mono_ns() < deadline)
		nap();
	assert_int_equal(looks("lost"), 1);
	assert_int_equal(looks("whole"), 1); /* only the walk after the lost one */
end:
	probes_free(p);
	kill(c.pid, SIGKILL);
	waitpid(c.pid, NULL, 0);
	slow_file_free(&slow);
}

/* ---- the slow file ---- */

static _Noreturn void wait_for_silence(struct slow_file *s)
{
	char byte;

	if (slow_zeros(s))
		_exit(1);
	s->silent = true;
	(void)!read(open(s->path, O_RDONLY | O_CLOEXEC), &byte, 1);
	_exit(2);
}

static void a_program_that_its_own_slow_file_blocks_can_be_killed(void **state)
{
	struct slow_file *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t deadline = now_mono_ns() + DEADLINE_NS;
	int status = 0;
	pid_t pid, ended = 0;

	(void)state;
	assert_ptr_not_equal(s, MAP_FAILED);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		wait_for_silence(s);
	while (!is_asked(s) && (ended = waitpid(pid, &status, WNOHANG)) == 0)
		nap();
	if (ended) {
		print_message("skipped: there is no FUSE here\n");
		skip();
	}
	kill(pid, SIGKILL);
	while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && now_mono_ns() < deadline)
		nap();
	umount2(s->dir, MNT_FORCE | MNT_DETACH);
	rmdir(s->dir);
	munmap(s, sizeof(*s));
	assert_int_equal(ended, pid);
	assert_true(WIFSIGNALED(status));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_that_its_own_slow_file_blocks_can_be_killed),
		cmocka_unit_test(what_a_walk_found_across_a_reuse_is_not_taken),
	};

	return cmocka_run_group_tests_name("node/long_waits", tests, NULL, NULL);
}
