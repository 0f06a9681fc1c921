/* SPDX-License-Identifier: Apache-2.0 */
/* Whether stacks through generated code are cut where its rows may be those of other code. */
#include "lib/symbols/format.h"
#include "node/stack/teststack.h"

#include <sys/mman.h>

#define CUT	     "[unwind: generated_code_changed]"
#define NOT_COMPARED "[unwind: code_not_compared]"
#define LARGE	     (3u << 20)
#define OTHER	     1	/* a namespace; that of the scene is 0 */
#define OTHERS	     16 /* other programs */

/* One page of generated code. The stacks lead from a function through it to another function. */
struct scene {
	struct fixture f;
	uint8_t *code;
	struct runtime_process *p;
	uint64_t now_ns; /* the time of the last sample */
};

/* Makes rows that have one rule for all code, with this offset; bytes: of the index, about. */
static struct elf_index *rows_of(const void *code, int32_t cfa_offset, uint32_t bytes)
{
	const struct elf_page page = {.number = (uintptr_t)code >> PF_PAGE_BITS, .n_rows = 1};
	struct index_header h = {.string_bytes = 1 + bytes};
	char *zeros = xcalloc(1, 1 + bytes), *data;
	_cleanup_buf_ struct buf b = {0};
	struct elf_index *rows;
	size_t n;

	memcpy(h.magic, INDEX_MAGIC, sizeof(h.magic));
	h.n[INDEX_pages] = h.n[INDEX_rows] = h.n[INDEX_rules] = 1;
	buf_add(&b, &h, sizeof(h));
	buf_add(&b, &page, sizeof(page));
	buf_add(&b, &(uint64_t){0}, sizeof(uint64_t)); /* the row: rule 0 from address 0 on */
	buf_add(&b, &(struct pf_rule){.cfa_offset = cfa_offset}, sizeof(struct pf_rule));
	buf_add(&b, zeros, 1 + bytes);
	free(zeros);
	n = b.len;
	data = buf_steal(&b);
	assert_int_equal(elf_index_borrow(data, n, free, data, &rows), 0);
	return rows;
}

/* The kernel gets rows with this offset now; 0: no rows. */
static void set_large(struct scene *x, int32_t cfa_offset, uint32_t bytes)
{
	struct mappings own = {.id = x->f.id, .exec_id = 1};
	struct elf_index *rows = cfa_offset ? rows_of(x->code, cfa_offset, bytes) : NULL;

	runtime_process_unref(x->p);
	x->p = runtime_process_publishing(&own, rows);
	stacks_runtimes(x->f.s, x->f.id, 1, x->p);
	stacks_rows_set(x->f.s, x->f.id, 1, x->p, now_boot_ns(), now_boot_ns());
}

static void set(struct scene *x, int32_t cfa_offset)
{
	set_large(x, cfa_offset, 0);
}

static struct scene make_scene(void)
{
	struct scene x = {0};

	x.code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(x.code != MAP_FAILED);
	x.f = make(kallsyms);
	return x;
}

static void end(struct scene *x)
{
	runtime_process_unref(x->p);
	done(&x->f);
	munmap(x->code, 4096);
}

/* The next stacks are of a sample that was taken from first_ns until now. */
static void take_since(struct scene *x, uint64_t first_ns)
{
	x->now_ns = now_boot_ns();
	stacks_taken(x->f.s, &(struct drain){.from_ns = first_ns},
		     &(struct raw_sample){.first_ns = first_ns, .last_ns = x->now_ns});
}

static void take(struct scene *x)
{
	take_since(x, now_boot_ns());
}

/* After the drain, the process publishes rows with this offset; 0: none; -1: it cannot be read. */
static void read_large(struct scene *x, const struct raw_stack *u, int32_t cfa_offset,
		       uint32_t bytes)
{
	struct names_wanted **w;
	size_t n;

	stacks_want(x->f.s, x->f.id, u);
	w = stacks_wanted(x->f.s, &n);
	assert_int_equal(n, 1);
	assert_true(w[0]->rows_wanted && w[0]->fresh && w[0]->runtimes == x->p);
	w[0]->rows_read = cfa_offset >= 0;
	w[0]->rows_read_ns = now_boot_ns();
	w[0]->rows = cfa_offset > 0 ? rows_of(x->code, cfa_offset, bytes) : NULL;
	stacks_named(x->f.s, w[0]);
	stacks_wanted_free(w[0]);
	free(w);
}

static void read_rows(struct scene *x, const struct raw_stack *u, int32_t cfa_offset)
{
	read_large(x, u, cfa_offset, 0);
}

static void assert_stack(struct scene *x, const struct raw_stack *u, const char *marker)
{
	_cleanup_free_ char *text = NULL, *reason = NULL;
	const char *end = stacks_end(x->f.s, x->f.id, u);

	if (marker)
		reason = xasprintf("[unwind: %s]", end ? end : "");
	assert_true(!marker == !end && (!marker || streq(reason, marker)));
	if (marker)
		text = xasprintf("%s;[unknown start_thread?];known_function", marker);
	else
		text = xasprintf("known_function;[unknown] 0x%016lx;known_function",
				 (unsigned long)x->code + 8);
	assert_rendered(&x->f, u, NULL, false, text);
}

#define CALLER	   ((const char *)known_function + 1)
#define THROUGH(x) STACK(NULL, USER(known_function), USER((x).code + 8), USER(CALLER))

static bool is_asked_again(struct scene *x, const struct raw_stack *u)
{
	stacks_process(x->f.s, x->f.id)->miss_told_ns = 0;
	return stacks_misses(x->f.s, x->f.id, u);
}

static void rows_that_stay_are_right(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);

	(void)state;
	set(&x, 16);
	for (int i = 0; i < 3; i++) {
		take(&x);
		assert_false(is_asked_again(&x, u));
		read_rows(&x, u, 16);
		assert_stack(&x, u, NULL);
	}
	end(&x);
}

/* The kernel had other rows for a moment, of which nobody was told. */
static void rows_that_are_not_known_cut_the_stack(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);

	(void)state;
	set(&x, 16);
	take(&x);
	stacks_rows_skipped(x.f.s, x.f.id, 1, now_boot_ns());
	read_rows(&x, u, 16);
	assert_stack(&x, u, NOT_COMPARED);
	take(&x);
	read_rows(&x, u, 16);
	assert_stack(&x, u, NULL);
	end(&x);
}

static void rows_that_changed_cut_the_stack(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);

	(void)state;
	set(&x, 16);
	take(&x);
	read_rows(&x, u, 32);
	assert_stack(&x, u, CUT);
	assert_true(is_asked_again(&x, u));
	/* the code is gone: other code may have been there before */
	take(&x);
	read_rows(&x, u, 0);
	assert_stack(&x, u, CUT);
	end(&x);
}

/* The kernel got the new rows while samples were counted. */
static void samples_with_two_kinds_of_rows(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);
	uint64_t before_ns;

	(void)state;
	set(&x, 16);
	before_ns = now_boot_ns();
	set(&x, 32);
	take_since(&x, before_ns);
	read_rows(&x, u, 32);
	assert_stack(&x, u, CUT);
	take(&x);
	read_rows(&x, u, 32);
	assert_stack(&x, u, NULL);
	end(&x);
}

/* A part of a wait, which ends now and has lasted for so long in this drain. */
static void take_wait(struct scene *x, uint64_t drain_ns, uint64_t us)
{
	const struct drain d = {.from_ns = drain_ns};

	x->now_ns = now_boot_ns();
	stacks_taken(x->f.s, &d,
		     &(struct raw_sample){.event = EVENT_OFF_CPU,
					  .value = us,
					  .first_ns = x->now_ns,
					  .last_ns = x->now_ns});
}

/* The kernel walked the stack when the wait began, and counts a part of it with each drain. */
static void waits_are_as_old_as_their_beginning(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);
	uint64_t set_ns;

	(void)state;
	set(&x, 16);
	set(&x, 32);
	set_ns = now_boot_ns();
	/* it began after the rows */
	take_wait(&x, set_ns, 0);
	read_rows(&x, u, 32);
	assert_stack(&x, u, NULL);
	/* this one began in an earlier drain */
	take_wait(&x, set_ns, (now_boot_ns() - set_ns) / 1000 + 1);
	read_rows(&x, u, 32);
	assert_stack(&x, u, CUT);
	end(&x);
}

/* Before, the walk went by frame pointers. */
static void code_whose_rows_came_later(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);
	uint64_t before_ns;

	(void)state;
	set(&x, 0);
	before_ns = now_boot_ns();
	set(&x, 16);
	take_since(&x, before_ns);
	read_rows(&x, u, 16);
	assert_stack(&x, u, CUT);
	end(&x);
}

static void what_was_not_read_is_not_known(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);
	const struct raw_stack *ends = STACK("read", USER(known_function), USER(x.code + 8));
	const struct raw_stack *others = STACK(NULL, USER(known_function));

	(void)state;
	set(&x, 16);
	take(&x);
	assert_stack(&x, u, NOT_COMPARED);
	read_rows(&x, u, -1);
	assert_stack(&x, u, NOT_COMPARED);
	read_rows(&x, u, 16);
	assert_stack(&x, u, NULL);
	/* a reading before the sample says nothing */
	take(&x);
	assert_stack(&x, u, NOT_COMPARED);
	/* a stack that ends in the code owes no caller to its rows */
	assert_string_equal(stacks_end(x.f.s, x.f.id, ends), "read");
	assert_null(stacks_end(x.f.s, x.f.id, others));
	stacks_want(x.f.s, x.f.id, others);
	assert_null(stacks_process(x.f.s, x.f.id)->wanted);
	end(&x);
}

/* So many that the oldest, which the kernel had when the sample was taken, is forgotten. */
static void set_many(struct scene *x, int n, uint32_t bytes)
{
	for (int i = 0; i < n; i++)
		set_large(x, 32 + 8 * i, bytes);
}

static void forgotten_rows_are_not_known(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);
	uint64_t before_ns;

	(void)state;
	set(&x, 16);
	before_ns = now_boot_ns();
	set_many(&x, 8, 0);
	take_since(&x, before_ns);
	read_rows(&x, u, 88);
	assert_stack(&x, u, NOT_COMPARED);
	end(&x);
	x = make_scene();
	u = THROUGH(x);
	set_large(&x, 16, LARGE);
	before_ns = now_boot_ns();
	set_many(&x, 3, LARGE);
	assert_true(x.f.s->old_rows.all > LARGE && x.f.s->old_rows.all < 3 * LARGE);
	take_since(&x, before_ns);
	read_rows(&x, u, 48);
	assert_stack(&x, u, NOT_COMPARED);
	end(&x);
}

/* Other programs have rows beside the newest, as many as they may. */
static void fill(struct scene *x, struct budget_member others[OTHERS], bool of_one_ns)
{
	for (uint64_t i = 0; i < OTHERS; i++) {
		budget_join(&x->f.s->old_rows, &others[i], of_one_ns ? OTHER : OTHER + i);
		while (budget_take(&x->f.s->old_rows, &others[i], 1u << 20))
			;
	}
}

static void leave(struct scene *x, struct budget_member others[OTHERS])
{
	for (size_t i = 0; i < OTHERS; i++)
		budget_leave(&x->f.s->old_rows, &others[i]);
}

static void assert_refused(struct scene *x, uint64_t ns, bool refused)
{
	struct shares owners = {0};

	stacks_rows_refused(x->f.s, &owners);
	assert_int_equal(!shares_may_add(&owners, ns, 1), refused);
	shares_done(&owners);
}

static void rows_of_all_processes_have_a_limit(void **state)
{
	struct budget_member others[OTHERS];
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);
	uint64_t before_ns;

	(void)state;
	fill(&x, others, false);
	assert_refused(&x, OTHER, true);
	set_large(&x, 16, LARGE);
	before_ns = now_boot_ns();
	set_large(&x, 32, LARGE);
	take_since(&x, before_ns);
	read_large(&x, u, 32, LARGE);
	assert_stack(&x, u, NOT_COMPARED);
	assert_refused(&x, 0, true);
	/* the reading has found the newest rows, so it takes no room */
	take(&x);
	read_large(&x, u, 32, LARGE);
	assert_stack(&x, u, NULL);
	assert_refused(&x, 0, false);
	/* there is no room for other rows */
	take(&x);
	read_large(&x, u, 48, LARGE);
	assert_stack(&x, u, NOT_COMPARED);
	assert_refused(&x, 0, true);
	leave(&x, others);
	end(&x);
}

static void rows_of_one_namespace_leave_room(void **state)
{
	struct budget_member others[OTHERS];
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);
	uint64_t before_ns;

	(void)state;
	fill(&x, others, true);
	set_large(&x, 16, LARGE);
	before_ns = now_boot_ns();
	set_large(&x, 32, LARGE);
	take_since(&x, before_ns);
	read_large(&x, u, 48, 0);
	assert_stack(&x, u, CUT);
	assert_refused(&x, OTHER, true);
	set_large(&x, 64, LARGE);
	assert_refused(&x, 0, false);
	leave(&x, others);
	end(&x);
}

/* A reading that is also a version is forgotten with that version: it takes no room of its own. */
static void a_reading_has_the_room_of_its_version(void **state)
{
	struct scene x = make_scene();
	const struct raw_stack *u = THROUGH(x);

	(void)state;
	set_large(&x, 16, LARGE);
	take(&x);
	read_large(&x, u, 16, LARGE);
	assert_int_equal(x.f.s->old_rows.all, 0);
	set_many(&x, 1, LARGE);
	assert_stack(&x, u, NULL);
	set_many(&x, 3, LARGE);
	assert_stack(&x, u, NOT_COMPARED);
	end(&x);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_that_stay_are_right),
		cmocka_unit_test(rows_that_are_not_known_cut_the_stack),
		cmocka_unit_test(rows_that_changed_cut_the_stack),
		cmocka_unit_test(samples_with_two_kinds_of_rows),
		cmocka_unit_test(waits_are_as_old_as_their_beginning),
		cmocka_unit_test(code_whose_rows_came_later),
		cmocka_unit_test(what_was_not_read_is_not_known),
		cmocka_unit_test(forgotten_rows_are_not_known),
		cmocka_unit_test(rows_of_all_processes_have_a_limit),
		cmocka_unit_test(rows_of_one_namespace_leave_room),
		cmocka_unit_test(a_reading_has_the_room_of_its_version),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start, stop);
}
