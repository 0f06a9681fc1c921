/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the runtimes of a process. The table has made-up runtimes, and the process is this one or a
 * child.
 */
#include "node/runtime/generated/generated.h"
#include "node/runtime/internal.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- made-up runtimes ---- */

struct fake {
	int learn_result, resolve_result;
	struct runtime_range ranges[4];
	size_t n_ranges, data_bytes;
	uint64_t data;
	char *version;
	bool saw_old, saw_state, releases, refuses;
	unsigned n_learns, n_forgets;
	size_t n_taken;	   /* n_taken of the look that learn() got */
	uint64_t reads;	   /* address that resolve() reads first */
	size_t name_bytes; /* 0: a short name */
};
static struct fake fakes[2];

static int fake_learn(struct fake *f, const struct runtime_look *look, struct runtime_learnt *old,
		      struct runtime_learnt *ret)
{
	f->n_learns++;
	f->saw_old = old != NULL;
	f->saw_state = old && old->state == f;
	f->n_taken = look->n_taken;
	if (old && f->releases) {
		f->n_forgets++;
		old->state = NULL;
	}
	if (f->learn_result < 0)
		return f->learn_result;
	snprintf(ret->version, sizeof(ret->version), "%s", f->version);
	if (f->refuses) {
		snprintf(ret->problem, sizeof(ret->problem), "too new");
		return 0;
	}
	ret->data = xcalloc(1, MAX(f->data_bytes, sizeof(f->data)));
	memcpy(ret->data, &f->data, sizeof(f->data));
	ret->data_bytes = f->data_bytes;
	ret->ranges = xmemdup(f->ranges, sizeof(f->ranges));
	ret->n_ranges = f->n_ranges;
	ret->state = f;
	if (old)
		old->state = NULL; /* the state was moved to ret */
	return 0;
}

static int fake_resolve(void *state, struct memory *m, const struct runtime_words *frame,
			const struct runtime_words *caller, struct runtime_names *ret)
{
	struct fake *f = state;
	char *text;
	int r;

	runtime_names_add(
		ret, f->name_bytes ? xasprintf("%0*d", (int)f->name_bytes, 0) : xstrdup("half"),
		NULL, 0, false);
	if (f->resolve_result < 0)
		return f->resolve_result;
	r = runtime_memory_string(m, f->reads, 64, &text);
	if (r < 0)
		return r;
	runtime_names_add(ret, text, xstrdup("f\nile"), (uint32_t)frame->a, caller != NULL);
	return 0;
}

static void fake_forget(void *state)
{
	((struct fake *)state)->n_forgets++;
}

static int learn_first(const struct runtime_look *look, struct runtime_learnt *old,
		       struct runtime_learnt *ret)
{
	return fake_learn(&fakes[0], look, old, ret);
}

static int learn_second(const struct runtime_look *look, struct runtime_learnt *old,
			struct runtime_learnt *ret)
{
	return fake_learn(&fakes[1], look, old, ret);
}

static const char *const no_marks[] = {NULL};
static const struct runtime_ops first = {.name = "first",
					 .in_agent = true,
					 .frame_kind = FRAME_PYTHON,
					 .marks = no_marks,
					 .learn = learn_first,
					 .resolve = fake_resolve,
					 .forget = fake_forget};
static const struct runtime_ops second = {.name = "second",
					  .in_agent = true,
					  .frame_kind = FRAME_LUA,
					  .marks = no_marks,
					  .learn = learn_second,
					  .resolve = fake_resolve,
					  .forget = fake_forget};

#define FIRST  ((enum pf_runtime_kind)1)
#define SECOND ((enum pf_runtime_kind)2)

/* ---- the process ---- */

static char path[] = "/bin/x", nothing[] = "";
static struct mapping items[3] = {{.start = 0x10000, .end = 0x20000, .path = path},
				  {.start = 0x20000, .end = 0x30000, .path = nothing},
				  {.start = 0x50000, .end = 0x60000, .path = nothing}};
static struct elf_index *indexes[3];
static struct mappings maps = {.exec_id = 1, .items = items, .n = 3, .refs = 1};

static int set_up(void **state)
{
	static const struct runtime_ops *table[_PF_RUNTIME_MAX];

	(void)state;
	table[FIRST] = &first;
	table[SECOND] = &second;
	runtime_table = table;
	for (size_t i = 0; i < 2; i++)
		fakes[i] = (struct fake){.learn_result = -ENOENT,
					 .data_bytes = 8,
					 .version = (char *)"1.0",
					 .reads = (uintptr_t) "name"};
	maps.id.tgid = getpid();
	maps.exec_id = 1;
	return proc_start_boottime(getpid(), &maps.id.start_boottime_ns);
}

static struct runtime_process *learn(struct runtime_process *p, bool *ret_again)
{
	struct runtime_process *r = NULL;
	bool again;

	assert_int_equal(runtime_learn(p, &maps, indexes, NULL, &r, ret_again ? ret_again : &again),
			 0);
	return r;
}

static uint64_t failures(const char *name, const char *reason)
{
	return counter_get(counter(name, "reason", reason));
}

static void assert_range(const struct runtime_learnt *l, size_t i, uint64_t start, uint64_t end)
{
	assert_true(i < l->n_ranges);
	assert_int_equal(l->ranges[i].start, start);
	assert_int_equal(l->ranges[i].end, end);
}

/* ---- learn ---- */

static void a_process_without_a_runtime_has_none(void **state)
{
	bool again = true;

	(void)state;
	assert_null(learn(NULL, &again));
	assert_false(again);
	assert_int_equal(runtime_process_n(NULL), 0);
	assert_null(runtime_process_ref(NULL));
	assert_null(runtime_process_unref(NULL));
}

static void ranges_are_cut_to_code_that_nobody_has(void **state)
{
	struct runtime_process *p;
	struct runtime_view v;

	(void)state;
	fakes[0].learn_result = fakes[1].learn_result = 0;
	fakes[0].ranges[0] = (struct runtime_range){0x28000, 0x58000, true};
	fakes[0].ranges[1] = (struct runtime_range){0x11000, 0x12000, false};
	fakes[0].n_ranges = 2;
	fakes[1].ranges[0] = (struct runtime_range){0x10000, 0x70000, true};
	fakes[1].n_ranges = 1;
	p = learn(NULL, NULL);
	assert_int_equal(runtime_process_n(p), 2);
	v = runtime_process_at(p, 0);
	assert_int_equal(v.kind, FIRST);
	assert_int_equal(v.learnt->n_ranges, 3);
	assert_range(v.learnt, 0, 0x11000, 0x12000);
	assert_false(v.learnt->ranges[0].managed);
	assert_range(v.learnt, 1, 0x28000, 0x30000);
	assert_true(v.learnt->ranges[1].managed);
	assert_range(v.learnt, 2, 0x50000, 0x58000);
	v = runtime_process_at(p, 1);
	assert_int_equal(v.kind, SECOND);
	assert_int_equal(fakes[1].n_taken, 3);
	assert_range(v.learnt, 0, 0x10000, 0x11000);
	assert_range(v.learnt, 1, 0x12000, 0x20000);
	assert_range(v.learnt, 2, 0x20000, 0x28000);
	assert_range(v.learnt, 3, 0x58000, 0x60000);
	assert_int_equal(v.learnt->n_ranges, 4);
	runtime_process_unref(p);
	assert_int_equal(fakes[0].n_forgets, 1);
	assert_int_equal(fakes[1].n_forgets, 1);
}

static void refuse(const char *reason)
{
	static const char name[] = "podflame_runtime_learn_failures_total";
	uint64_t before = failures(name, reason);
	unsigned forgets = fakes[0].n_forgets;

	assert_null(learn(NULL, NULL));
	assert_int_equal(failures(name, reason), before + 1);
	assert_int_equal(fakes[0].n_forgets, forgets + 1);
}

static void a_state_is_released_once(void **state)
{
	struct runtime_process *p, *q;

	(void)state;
	fakes[0].learn_result = 0;
	p = learn(NULL, NULL);
	fakes[0].learn_result = -ENOENT;
	fakes[0].releases = true;
	q = learn(p, NULL);
	runtime_process_unref(p);
	runtime_process_unref(q);
	assert_int_equal(fakes[0].n_forgets, 1);
}

/*
 * Frames from before the process's exec may still come, but their program cannot be asked any more.
 */
static void who_is_not_walked_any_more_is_not_asked(void **state)
{
	struct runtime_ask a = {.kind = FIRST};
	struct runtime_process *p, *q;

	(void)state;
	fakes[0].learn_result = 0;
	p = learn(NULL, NULL);
	fakes[0].refuses = fakes[0].releases = true;
	q = learn(p, NULL);
	assert_int_equal(runtime_process_n(q), 1);
	assert_int_equal(runtime_resolve(p, NULL, &a, 1), 0);
	assert_int_equal(a.error, -ESTALE);
	runtime_process_unref(p);
	runtime_process_unref(q);
}

static void what_cannot_be_is_refused(void **state)
{
	(void)state;
	fakes[0].learn_result = 0;
	fakes[0].n_ranges = 2;
	fakes[0].ranges[0] = (struct runtime_range){0x12000, 0x12000, false};
	fakes[0].ranges[1] = (struct runtime_range){0x15000, 0x16000, false};
	refuse("inconsistent");
	fakes[0].ranges[0].end = 0x15001; /* the ranges overlap */
	refuse("inconsistent");
	fakes[0].n_ranges = 0;
	fakes[0].data_bytes = RUNTIME_DATA_MAX + 1;
	refuse("over_limit");
}

static void ranges_have_a_limit(void **state)
{
	enum { N = RUNTIME_RANGES_MAX + 1 };
	struct runtime_range *ranges = xcalloc(N, sizeof(*ranges));
	struct runtime_look look = {.maps = &maps, .indexes = indexes};
	size_t n = N;

	(void)state;
	for (size_t i = 0; i < N; i++)
		ranges[i] = (struct runtime_range){0x10000 + 16 * i, 0x10008 + 16 * i, true};
	assert_int_equal(runtime_ranges_fit(&look, RUNTIME_RANGES_MAX, &ranges, &n), -E2BIG);
	n--;
	assert_int_equal(runtime_ranges_fit(&look, RUNTIME_RANGES_MAX, &ranges, &n), 0);
	assert_int_equal(n, RUNTIME_RANGES_MAX);
	free(ranges);
}

static void what_does_not_change_is_the_same(void **state)
{
	struct runtime_process *p, *q;

	(void)state;
	fakes[0].learn_result = 0;
	fakes[0].version = (char *)"1.\n0";
	p = learn(NULL, NULL);
	assert_string_equal(runtime_process_at(p, 0).learnt->version, "1.?0");
	q = learn(p, NULL);
	assert_ptr_equal(p, q);
	assert_true(fakes[0].saw_state);
	assert_int_equal(fakes[0].n_forgets, 0);
	runtime_process_unref(q);
	fakes[0].data = 7;
	q = learn(p, NULL);
	assert_ptr_not_equal(p, q);
	runtime_process_unref(p);
	assert_int_equal(fakes[0].n_forgets, 0);
	/* the process runs another program, so data of the old one is not used */
	maps.exec_id = 2;
	p = learn(q, NULL);
	assert_false(fakes[0].saw_old);
	runtime_process_unref(q);
	assert_int_equal(fakes[0].n_forgets, 1);
	/* the process has closed the library of the runtime */
	fakes[0].learn_result = -ENOENT;
	assert_null(learn(p, NULL));
	assert_int_equal(fakes[0].n_forgets, 2);
	runtime_process_unref(p);
}

static void what_cannot_be_told_now_stays(void **state)
{
	struct runtime_process *p, *q;
	bool again;

	(void)state;
	fakes[0].learn_result = -EAGAIN;
	assert_null(learn(NULL, &again));
	assert_true(again);
	fakes[0].learn_result = 0;
	p = learn(NULL, &again);
	assert_false(again);
	fakes[0].learn_result = -EFAULT;
	q = learn(p, &again);
	assert_ptr_equal(p, q);
	assert_false(again);
	runtime_process_unref(p);
	runtime_process_unref(q);
	assert_int_equal(fakes[0].n_forgets, 1);
}

static void who_is_gone_is_told(void **state)
{
	struct runtime_process *r = NULL;
	bool again;

	(void)state;
	maps.id.start_boottime_ns += NSEC_PER_SEC;
	assert_int_equal(runtime_learn(NULL, &maps, indexes, NULL, &r, &again), -ESRCH);
	assert_null(r);
}

static void marks_or_generated_code_make_it_likely(void **state)
{
	struct mappings m = {.items = items, .n = 1};

	(void)state;
	assert_false(runtime_likely(&m, indexes));
	m.n = 2;
	assert_true(runtime_likely(&m, indexes));
}

static void code_without_a_program_is_generated(void **state)
{
	static const struct {
		char *path;
		bool is;
	} rows[] = {{nothing, true},
		    {(char *)"[anon:v8]", true},
		    {(char *)"[anon_shmem:code]", true},
		    {(char *)"/memfd:doublemapper", true},
		    {(char *)"/dev/zero", true},
		    {(char *)"/anon_hugepage", true},
		    {path, false},
		    {(char *)"[vdso]", false}};
	struct mapping x = {0};
	struct mappings m = {.items = &x, .n = 1};
	char index; /* stands for the index of a program or library */

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct elf_index *of_a_program = (struct elf_index *)&index, *none = NULL;

		x.path = rows[i].path;
		assert_int_equal(runtime_mapping_is_generated(&x, NULL), rows[i].is);
		assert_int_equal(runtime_likely(&m, &none), rows[i].is);
		assert_false(runtime_mapping_is_generated(&x, of_a_program));
	}
}

/* ---- names ---- */

static void names_are_read_and_clean(void **state)
{
	struct runtime_ask asks[] = {
		{.kind = FIRST, .frame = {1, 42, 0}},
		{.kind = FIRST, .frame = {1, 43, 0}, .has_caller = true},
		{.kind = SECOND, .frame = {1, 1, 0}},
	};
	struct runtime_process *p;

	(void)state;
	fakes[0].learn_result = 0;
	p = learn(NULL, NULL);
	assert_int_equal(runtime_resolve(p, NULL, asks, 3), 0);
	assert_int_equal(asks[0].error, 0);
	assert_int_equal(asks[0].names.kind, FRAME_PYTHON);
	assert_int_equal(asks[0].names.n, 2);
	assert_string_equal(asks[0].names.items[1].name, "name");
	assert_string_equal(asks[0].names.items[1].file, "f?ile");
	assert_int_equal(asks[0].names.items[1].line, 42);
	assert_true(asks[1].names.items[1].inlined);
	assert_int_equal(asks[2].error, -ESTALE); /* the process does not have that runtime */
	for (size_t i = 0; i < 3; i++)
		runtime_names_done(&asks[i].names);
	runtime_process_unref(p);
}

/*
 * Names that are read in one call are kept until the caller takes them. So long names are read in
 * several calls.
 */
static void names_of_a_round_have_a_limit(void **state)
{
	enum { N = 12 };
	struct runtime_ask asks[N];
	struct runtime_process *p;
	size_t n_known = 0;

	(void)state;
	fakes[0].learn_result = 0;
	fakes[0].name_bytes = 1 << 20;
	p = learn(NULL, NULL);
	for (size_t i = 0; i < N; i++)
		asks[i] = (struct runtime_ask){.kind = FIRST, .frame = {1, i, 0}};
	assert_int_equal(runtime_resolve(p, NULL, asks, N), 0);
	for (size_t i = 0; i < N; i++) {
		assert_true(asks[i].error == 0 || asks[i].error == -E2BIG);
		assert_int_equal(asks[i].names.n > 0, asks[i].error == 0);
		n_known += asks[i].error == 0;
		runtime_names_done(&asks[i].names);
	}
	assert_int_equal(n_known, 7); /* 8 MiB have room for 7 names, with their terminators */
	fakes[0].name_bytes = 0;
	runtime_process_unref(p);
}

static void a_name_that_fails_is_none(void **state)
{
	struct runtime_ask a = {.kind = FIRST};
	struct runtime_process *p;
	uint64_t before;

	(void)state;
	fakes[0].learn_result = 0;
	p = learn(NULL, NULL);
	fakes[0].reads = 16;
	before = failures("podflame_runtime_names_failed_total", "not_mapped");
	assert_int_equal(runtime_resolve(p, NULL, &a, 1), 0);
	assert_int_equal(a.error, -EFAULT);
	assert_int_equal(a.names.n, 0);
	assert_int_equal(failures("podflame_runtime_names_failed_total", "not_mapped"), before + 1);
	runtime_process_unref(p);
}

static pid_t idle_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return pid;
}

static void names_of_the_dead_are_not_asked_for(void **state)
{
	struct runtime_ask asks[2] = {{.kind = FIRST}, {.kind = FIRST}};
	struct runtime_process *p;
	pid_t pid = idle_child();

	(void)state;
	maps.id.tgid = pid;
	assert_int_equal(proc_start_boottime(pid, &maps.id.start_boottime_ns), 0);
	fakes[0].learn_result = 0;
	p = learn(NULL, NULL);
	assert_int_equal(runtime_resolve(p, NULL, asks, 1), 0);
	runtime_names_done(&asks[0].names);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(runtime_resolve(p, NULL, asks, 2), -ESRCH);
	assert_int_equal(asks[0].names.n, 0);
	runtime_process_unref(p);
}

static void pages_are_touched(void **state)
{
	const size_t bytes = 3 * 4096;
	unsigned char *m = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t addresses[] = {(uintptr_t)m, (uintptr_t)m + 8192, 16};
	struct counter *c = counter("podflame_runtime_pages_touched_total", NULL, NULL);
	uint64_t before = counter_get(c);
	struct runtime_process *p;
	unsigned char in[3];

	(void)state;
	fakes[0].learn_result = 0;
	p = learn(NULL, NULL);
	assert_int_equal(mincore(m, bytes, in), 0);
	assert_false(in[0] & 1);
	runtime_touch(p, addresses, 3);
	assert_int_equal(counter_get(c), before + 2);
	assert_int_equal(mincore(m, bytes, in), 0);
	assert_true(in[0] & 1);
	assert_false(in[1] & 1);
	assert_true(in[2] & 1);
	runtime_process_unref(p);
	munmap(m, bytes);
}

static void many_names_have_a_limit(void **state)
{
	struct runtime_names n = {0};

	(void)state;
	for (unsigned i = 0; i < RUNTIME_NAMES_MAX + 5; i++)
		runtime_names_add(&n, xasprintf("f%u", i), NULL, i, true);
	assert_int_equal(n.n, RUNTIME_NAMES_MAX);
	assert_string_equal(n.items[63].name, "f63");
	runtime_names_done(&n);
}

static void the_table_is_whole(void **state)
{
	const char *const *marks = runtime_marks();
	const char *seen[64];
	_cleanup_free_ char *text = NULL;
	size_t n = 0;

	(void)state;
	for (unsigned k = 1; k < _PF_RUNTIME_MAX; k++) {
		const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)k);

		assert_non_null(ops);
		assert_true(*ops->name && *ops->title && ops->marks && ops->learn);
		/* Contexts have no frames. But one of them may have names: types of objects. */
		assert_int_equal(runtime_is_context((enum pf_runtime_kind)k), k >= PF_RUNTIME_OTEL);
		assert_true((ops->resolve && ops->forget) ||
			    runtime_is_context((enum pf_runtime_kind)k));
		for (size_t i = 0; ops->marks[i]; i++)
			assert_ptr_equal(marks[n++], ops->marks[i]);
	}
	n += runtime_recognised_marks(seen, ARRAY_SIZE(seen));
	n += runtime_generated_marks(seen, ARRAY_SIZE(seen));
	assert_in_range(n, 1, 255); /* all marks fit */
	assert_null(marks[n]);
	assert_null(runtime_ops(PF_RUNTIME_NONE));
	assert_null(runtime_ops(_PF_RUNTIME_MAX));
	assert_string_equal(runtime_trouble_word(PF_TROUBLE_READ), "not_in_memory");
	assert_string_equal(runtime_trouble_word(1000), "unknown");
	text = runtime_trouble_text((enum pf_runtime_kind)1000, PF_TROUBLE_LONG);
	assert_string_equal(text, "[runtime: too_long]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_is_whole), /* must be first: set_up replaces the table */
#define T(name) cmocka_unit_test_setup(name, set_up)
		T(a_process_without_a_runtime_has_none),
		T(ranges_are_cut_to_code_that_nobody_has),
		T(a_state_is_released_once),
		T(who_is_not_walked_any_more_is_not_asked),
		T(what_cannot_be_is_refused),
		T(ranges_have_a_limit),
		T(what_does_not_change_is_the_same),
		T(what_cannot_be_told_now_stays),
		T(who_is_gone_is_told),
		T(marks_or_generated_code_make_it_likely),
		T(code_without_a_program_is_generated),
		T(names_are_read_and_clean),
		T(names_of_a_round_have_a_limit),
		T(a_name_that_fails_is_none),
		T(names_of_the_dead_are_not_asked_for),
		T(pages_are_touched),
		T(many_names_have_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
