// SPDX-License-Identifier: Apache-2.0
/*
 * Of which processes the kernel says that user space need not read them, because user space has
 * given all that their stacks need.
 */
#include "node/probe/workload_test.h"

#include <string.h>

#define LOOP   "known-loop"
#define ON_CPU (1u << EVENT_ON_CPU)

static volatile uint32_t *strange; /* shared: the process runs code of no file from now on */

/* Runs code with rbp 0, so that the walk ends at the leaf: only its file counts. */
static void run_alone(void (*code)(void))
{
	uint64_t n = 20000000;

	__asm__ volatile("push %%rbp\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call *%1\n\t"
			 "pop %%rbp"
			 : "+D"(n)
			 : "r"(code)
			 : "memory", "cc");
}

/* dec %rdi; jne; ret */
static const uint8_t code_of_no_file[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};
__attribute__((naked)) static void count_down(void)
{
	__asm__("1: dec %rdi\n\tjne 1b\n\tret");
}

static void body_turns(struct truth *t)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		_exit(1);
	memcpy(page, code_of_no_file, sizeof(code_of_no_file));
	for (;;) {
		t->ready = 1;
		run_alone(*strange ? (void (*)(void))page : count_down);
	}
}

/* Runs before main(): the process becomes this program again and again. */
__attribute__((constructor)) static void go_on(int argc, char **argv, char **envp)
{
	if (argc == 1 && !strcmp(argv[0], LOOP)) {
		execve("/proc/self/exe", argv, envp);
		_exit(2);
	}
}

static void body_execs(struct truth *t)
{
	char *argv[] = {(char *)LOOP, NULL}, *none[] = {NULL};

	t->ready = 1;
	execve("/proc/self/exe", argv, none);
	_exit(2);
}

/* The probes of all tests, because loading them takes longer than all else. */
static struct probes *begin(void)
{
	static struct probes *p;

	*strange = 0;
	if (!p)
		p = open_probes((struct probe_config){.use_list = true, .max_sample_hz = 999});
	return p;
}

static void end(struct child *c)
{
	assert_int_equal(probes_list(begin(), NULL, 0), 0);
	child_stop(c);
}

/* Gives the kernel the image of this program. */
static void give(struct probes *p, uint32_t slot, bool needs_process)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct pf_image image = {
		.n_pieces = 1,
		.needs_process = needs_process,
		.pieces = {{.end = UINT64_MAX, .file = slot}},
	};

	if (probes_file_tag(fd, &image.tag)) {
		print_message("skipped: this kernel does not show which file is mapped\n");
		skip();
	}
	assert_int_equal(probes_image_set(p, image.tag, &image), 0);
}

static void list(struct probes *p, const struct child *c, unsigned event_mask)
{
	const struct listed_process l = {
		.id = {c->start_ns, c->pid}, .event_mask = event_mask, .sample_hz = 999};

	while (!c->truth->ready)
		nap(1);
	assert_int_equal(probes_list(p, &l, 1), 0);
}

/* Returns what the next record of this kind says of the process. */
static bool all_is_known(struct probes *p, const struct child *c, enum raw_proc_what what)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (now_mono_ns() < deadline) {
		struct drain *d = NULL;
		int said = -1;

		nap(10);
		assert_int_equal(probes_drain(p, true, &d), 0);
		for (size_t i = 0; i < d->n_procs; i++)
			if ((pid_t)d->procs[i].tgid == c->pid && d->procs[i].what == what)
				said = d->procs[i].all_known;
		sample_drain_free(d);
		if (said >= 0)
			return said;
	}
	fail_msg("no record in 60 s");
	return false;
}

static void check(uint32_t slot, bool needs_process, unsigned event_mask, bool expected)
{
	struct child c = child_start(body_turns, NULL);
	struct probes *p = begin();

	give(p, slot, needs_process);
	list(p, &c, event_mask);
	assert_int_equal(all_is_known(p, &c, RAW_PROC_SEEN), expected);
	end(&c);
}

static void a_process_of_known_files_need_not_be_read(void **state)
{
	(void)state;
	check(PF_SLOT_EMPTY, false, ON_CPU, true);
}

static void a_process_of_a_runtime_must_be_read(void **state)
{
	(void)state;
	check(PF_SLOT_EMPTY, true, ON_CPU, false);
}

static void a_process_whose_file_is_not_parsed_must_be_read(void **state)
{
	(void)state;
	check(PF_SLOT_PENDING, false, ON_CPU, false);
}

static void a_process_that_will_be_probed_must_be_read(void **state)
{
	(void)state;
	check(PF_SLOT_EMPTY, false, ON_CPU | 1u << EVENT_MEM_ALLOC, false);
}

/* It was known at first. Then it runs code that nobody knows, which is reported at once. */
static void a_process_that_becomes_strange_is_told_again(void **state)
{
	struct child c = child_start(body_turns, NULL);
	struct probes *p = begin();

	(void)state;
	give(p, PF_SLOT_EMPTY, false);
	list(p, &c, ON_CPU);
	assert_true(all_is_known(p, &c, RAW_PROC_SEEN));
	*strange = 1;
	assert_false(all_is_known(p, &c, RAW_PROC_SEEN));
	end(&c);
}

static void an_exec_of_a_known_program_need_not_be_read(void **state)
{
	struct child c = child_start(body_execs, NULL);
	struct probes *p = begin();

	(void)state;
	give(p, PF_SLOT_EMPTY, true);
	list(p, &c, ON_CPU);
	assert_false(all_is_known(p, &c, RAW_PROC_EXEC));
	give(p, PF_SLOT_EMPTY, false);
	all_is_known(p, &c, RAW_PROC_EXEC); /* an exec from before that */
	assert_true(all_is_known(p, &c, RAW_PROC_EXEC));
	end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_of_known_files_need_not_be_read),
		cmocka_unit_test(a_process_of_a_runtime_must_be_read),
		cmocka_unit_test(a_process_whose_file_is_not_parsed_must_be_read),
		cmocka_unit_test(a_process_that_becomes_strange_is_told_again),
		cmocka_unit_test(an_exec_of_a_known_program_need_not_be_read),
		cmocka_unit_test(a_process_that_will_be_probed_must_be_read),
	};

	strange = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return strange == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
