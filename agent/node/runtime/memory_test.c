/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how runtimes read memory: an image, and the memory of a child. */
#include "node/runtime/internal.h"

#include "node/runtime/perfmap/perfmap.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/proc/testliving.h"

/* ---- an image: bytes at BASE, and no memory elsewhere ---- */

#define BASE 0x7000

static char image[8192];

static int read_image(void *arg, uint64_t address, void *to, size_t n)
{
	unsigned *reads = arg;

	++*reads;
	if (address < BASE || address - BASE > sizeof(image) ||
	    n > sizeof(image) - (address - BASE))
		return -EFAULT;
	memcpy(to, image + (address - BASE), n);
	return 0;
}

static void numbers_cost_budget(void **state)
{
	unsigned reads = 0;
	struct memory m = {.read = read_image, .arg = &reads, .budget_bytes = 2 * (64 + 8)};
	uint64_t u64 = 0;
	uint32_t u32 = 0;

	(void)state;
	memcpy(image, "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
	assert_int_equal(runtime_memory_u64(&m, BASE, &u64), 0);
	assert_int_equal(u64, 0x0807060504030201);
	/* a failed read uses a part of the budget, too */
	assert_int_equal(runtime_memory_u32(&m, 0, &u32), -EFAULT);
	assert_int_equal(u32, 0);
	assert_int_equal(runtime_memory_u8(&m, BASE, (uint8_t *)&u32), -E2BIG);
	assert_int_equal(runtime_memory_read(&m, BASE, image, SIZE_MAX), -E2BIG);
	assert_int_equal(reads, 2);
}

static void texts_end_where_they_end(void **state)
{
	unsigned reads = 0;
	struct memory m = {.read = read_image, .arg = &reads, .budget_bytes = 1 << 20};
	char *text = NULL;

	(void)state;
	memset(image, 'x', sizeof(image));
	strcpy(image + sizeof(image) - 4, "end"); /* the memory after it is not mapped */
	assert_int_equal(runtime_memory_string(&m, BASE + sizeof(image) - 4, 1000, &text), 0);
	assert_string_equal(text, "end");
	freep(&text);
	text = NULL;
	assert_int_equal(runtime_memory_string(&m, BASE + 10, 9, &text), 0);
	assert_string_equal(text, "xxxxxxxx"); /* the text was cut */
	freep(&text);
	text = NULL;
	assert_int_equal(runtime_memory_string(&m, BASE + 10, 8192, &text), 0);
	assert_int_equal(strlen(text), sizeof(image) - 4 - 10 + 3);
	freep(&text);
	text = NULL;
	image[sizeof(image) - 1] = 'x';
	assert_int_equal(runtime_memory_string(&m, BASE + sizeof(image) - 4, 1000, &text), -EFAULT);
	assert_int_equal(runtime_memory_string(&m, BASE, 0, &text), -EINVAL);
	assert_null(text);
	m.budget_bytes = 1000;
	assert_int_equal(runtime_memory_string(&m, BASE, 8192, &text), -E2BIG);
}

/* ---- a process ---- */

static pid_t child_with(const void *page)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)page;
		pause();
		_exit(0);
	}
	return pid;
}

static void a_process_is_read(void **state)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct process_memory *p;
	uint64_t start, value;
	char *text, both[16];
	pid_t pid;

	(void)state;
	strcpy(page + 4096 - 8, "seven b");
	munmap(page + 4096, 4096);
	pid = child_with(page);
	memset(page, 0, 4096); /* only in this process: the child keeps its own value */
	assert_int_equal(proc_start_boottime(pid, &start), 0);
	assert_int_equal(runtime_process_memory_open((struct process_id){start, pid}, &p), 0);
	assert_int_equal(runtime_process_memory(p)->budget_bytes, MEMORY_BUDGET);
	assert_int_equal(runtime_memory_string(runtime_process_memory(p),
					       (uintptr_t)page + 4096 - 8, 100, &text),
			 0);
	assert_string_equal(text, "seven b");
	free(text);
	assert_int_equal(runtime_memory_u64(runtime_process_memory(p), 16, &value), -EFAULT);
	assert_int_equal(runtime_memory_u64(runtime_process_memory(p), UINT64_MAX - 3, &value),
			 -EFAULT);
	/* a read gives all bytes or fails */
	assert_int_equal(runtime_memory_read(runtime_process_memory(p), (uintptr_t)page + 4096 - 8,
					     both, sizeof(both)),
			 -EFAULT);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(runtime_memory_u64(runtime_process_memory(p), (uintptr_t)page, &value),
			 -ESRCH);
	runtime_process_memory_close(p);
	assert_int_equal(runtime_process_memory_open((struct process_id){start, pid}, &p), -ESRCH);
	munmap(page, 4096);
}

/*
 * The first thread has ended, and /proc does not have its memory and root any more. The memory and
 * root of other threads are read instead.
 */
static void the_first_thread_has_ended(void **state)
{
	uint64_t start, value, word = 4711;
	struct process_memory *p;
	struct perf_file f;
	pid_t pid = testliving_start(NULL);
	int root;

	(void)state;
	assert_int_equal(proc_start_boottime(pid, &start), 0);
	assert_int_equal(runtime_process_memory_open((struct process_id){start, pid}, &p), 0);
	assert_int_equal(runtime_memory_u64(runtime_process_memory(p), (uintptr_t)&word, &value),
			 0);
	assert_int_equal(value, 4711);
	runtime_process_memory_close(p);
	assert_int_equal(runtime_perf_file_init((struct process_id){start, pid}, &f), 0);
	assert_int_equal(runtime_perf_file_root(&f, &root), 0);
	close(root);
	runtime_perf_file_done(&f);
	/* All threads have ended: the process is a zombie. */
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	assert_int_equal(runtime_process_memory_open((struct process_id){start, pid}, &p), -ESRCH);
	assert_int_equal(runtime_perf_file_root(&f, &root), -ESRCH);
	waitpid(pid, NULL, 0);
}

static void another_process_of_that_number_is_not_read(void **state)
{
	struct process_memory *p;
	uint64_t start;

	(void)state;
	assert_int_equal(proc_start_boottime(getpid(), &start), 0);
	assert_int_equal(
		runtime_process_memory_open((struct process_id){start + 9999999, getpid()}, &p),
		0); /* BPF reports start times in ns, /proc in ticks of 10 ms */
	runtime_process_memory_close(p);
	assert_int_equal(runtime_process_memory_open(
				 (struct process_id){start + NSEC_PER_SEC, getpid()}, &p),
			 -ESRCH);
	assert_int_equal(runtime_process_memory_open(
				 (struct process_id){start - NSEC_PER_SEC, getpid()}, &p),
			 -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_cost_budget),
		cmocka_unit_test(texts_end_where_they_end),
		cmocka_unit_test(a_process_is_read),
		cmocka_unit_test(the_first_thread_has_ended),
		cmocka_unit_test(another_process_of_that_number_is_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
