// SPDX-License-Identifier: Apache-2.0
/*
 * A process calls exec again and again. Each new program is this program, which calls execve() from
 * one of two pages in turn. While the kernel loads the next program, the registers are still those
 * of the old one.
 */
#include "node/probe/workload_test.h"

#include <string.h>

#define LOOP	  "exec-loop"
#define PAGE(k)	  (0x10000000ull + (k)*0x100000ull)
#define PAGE_END  4096
#define IN_KERNEL 30 /* samples that must be taken in an exec: they have no user stack */
/* at most one sample is counted for the wrong program per so many samples in an exec */
#define MISSED 10

typedef int exec_fn(const char *path, char *const *argv, char *const *envp);

static _Noreturn void become_the_next(unsigned k, char **envp)
{
	static const uint8_t code[] = {0xb8, 59, 0, 0, 0, 0x0f, 0x05, 0xc3}; /* execve; ret */
	char turn[] = {(char)('0' + !k), 0}, *argv[] = {(char *)LOOP, turn, NULL};
	void *page = mmap((void *)PAGE(k), PAGE_END, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (page != (void *)PAGE(k))
		_exit(1);
	memcpy(page, code, sizeof(code));
	((exec_fn *)page)("/proc/self/exe", argv, envp);
	_exit(2);
}

/* Runs before main(): the less the program does before the next exec, the more execs per second. */
__attribute__((constructor)) static void go_on(int argc, char **argv, char **envp)
{
	if (argc == 2 && !strcmp(argv[0], LOOP))
		become_the_next(argv[1][0] == '1', envp);
}

static void body_loop(struct truth *t)
{
	char *none[] = {NULL};

	t->ready = 1;
	become_the_next(0, none);
}

struct seen {
	uint64_t of[2][2]; /* samples in each page, in programs whose exec_id is even or odd */
	uint64_t in_kernel;
};

static void see_stack(struct seen *t, const struct raw_stack *s, uint64_t n)
{
	for (size_t i = 0; s && i < s->n; i++)
		for (unsigned k = 0; k < 2; k++)
			if (s->frames[i].address >= PAGE(k) &&
			    s->frames[i].address < PAGE(k) + PAGE_END)
				t->of[k][s->frames[i].exec_id & 1] += n;
}

static void see(struct seen *t, const struct drain *d, pid_t pid)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];

		if ((pid_t)s->tgid != pid)
			continue;
		t->in_kernel += s->ustack ? 0 : s->n;
		if (s->ustack)
			see_stack(t, sample_drain_stack(d, s->ustack), s->n);
	}
}

static uint64_t wrong(const struct seen *t)
{
	return MIN(t->of[0][0], t->of[0][1]) + MIN(t->of[1][0], t->of[1][1]);
}

/*
 * If the agent mixed the programs up, an address of the old program would be shown as the code that
 * the new program has there.
 */
static void the_program_before_is_no_part_of_the_next(void **state)
{
	struct probes *p =
		open_probes((struct probe_config){.use_list = true, .max_sample_hz = 999});
	struct child c = child_start(body_loop, NULL);
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct seen t = {};

	(void)state;
	list_pids(p, 1, &c, (unsigned[]){999});
	while ((t.in_kernel < IN_KERNEL || t.of[0][0] + t.of[0][1] < IN_KERNEL) &&
	       now_mono_ns() < deadline) {
		struct drain *d = NULL;

		nap(100);
		assert_int_equal(probes_drain(p, true, &d), 0);
		see(&t, d, c.pid);
		sample_drain_free(d);
	}
	for (unsigned k = 0; k < 2; k++)
		assert_true(t.of[k][0] || t.of[k][1]);
	assert_in_range(wrong(&t), 0, t.in_kernel / MISSED);
	assert_true(t.in_kernel >= IN_KERNEL);
	probes_free(p);
	child_stop(&c);
}

/* Drains until a drain has a record of this kind of the process, and returns it. */
static struct raw_proc record_of(struct probes *p, pid_t pid, enum raw_proc_what what)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct raw_proc r = {};

	while (!r.tgid && now_mono_ns() < deadline) {
		struct drain *d = NULL;

		nap(50);
		assert_int_equal(probes_drain(p, true, &d), 0);
		for (size_t i = 0; i < d->n_procs; i++)
			if ((pid_t)d->procs[i].tgid == pid && d->procs[i].what == what)
				r = d->procs[i];
		sample_drain_free(d);
	}
	assert_int_equal(r.tgid, pid);
	return r;
}

static int read_of(const struct raw_proc *r)
{
	struct mappings *m = NULL;
	int e = proc_mappings_read_of(process_id_of(r), r->exec_id, r->stack, &m);

	if (!e)
		proc_mappings_unref(m);
	return e;
}

/*
 * If mappings are read after an exec, they are not used for the program that was reported before
 * that exec.
 */
static void mappings_are_of_the_program_that_was_told(void **state)
{
	struct probes *p =
		open_probes((struct probe_config){.use_list = true, .max_sample_hz = 999});
	struct child c[2] = {child_start(body_work, NULL), child_start(body_loop, NULL)};
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct raw_proc r;
	int e;

	(void)state;
	list_pids(p, 2, c, (unsigned[]){999, 999});
	r = record_of(p, c[0].pid, RAW_PROC_SEEN);
	assert_int_not_equal(r.stack, 0);
	assert_int_equal(read_of(&r), 0);
	r = record_of(p, c[1].pid, RAW_PROC_EXEC);
	assert_int_not_equal(r.stack, 0);
	do
		e = read_of(&r); /* during an exec, the process has no mappings */
	while (e != -ESTALE && now_mono_ns() < deadline);
	assert_int_equal(e, -ESTALE);
	probes_free(p);
	child_stop(&c[0]);
	child_stop(&c[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_program_before_is_no_part_of_the_next),
		cmocka_unit_test(mappings_are_of_the_program_that_was_told),
	};

	return cmocka_run_group_tests_name("node/probe/exec", tests, NULL, NULL);
}
