/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of generated code, which belong to one process, looked up as the kernel does. */
#include "node/unwind/testunwind.h"

#define CODE 0x7f0000000000ull

static char path_of_jit[] = "";
static char path_of_memfd[] = "/memfd:doublemapper (deleted)";

static void map_code(struct proc *p, uint64_t begin, uint64_t bytes)
{
	map(p, begin, bytes, 0, NULL);
	p->items[p->m.n - 1].path = path_of_jit;
}

static void publish(struct proc *p, struct elf_index *rows)
{
	runtime_process_unref(p->runtimes);
	p->runtimes = runtime_process_publishing(&p->m, elf_index_ref(rows));
}

/* Makes rows for this many pages from CODE on. */
static struct elf_index *rows_of(size_t n, unsigned seed)
{
	_cleanup_free_ struct page_spec *pages = xcalloc(n, sizeof(*pages));

	for (size_t i = 0; i < n; i++)
		pages[i] = (struct page_spec){(CODE >> PF_PAGE_BITS) + i, 8};
	return make_index(pages, n, 7, seed);
}

static void assert_rows(const struct proc *p, const struct elf_index *rows, uint64_t at)
{
	struct answer a = look_up(&p->m, at), b = expected(rows, at);

	assert_int_equal(a.what, ROW);
	assert_int_equal(a.special, b.special);
	assert_memory_equal(&a.rule, &b.rule, sizeof(a.rule));
}

static void done(struct proc *p)
{
	runtime_process_unref(p->runtimes);
	free(p);
}

static void generated_code_has_its_own_process_rows(void **state)
{
	struct elf_index *rows = rows_of(4, 1), *others = rows_of(4, 2), *file = small_index(3);
	struct proc *p = proc_new(1), *q = proc_new(2), *none = proc_new(3);
	struct unwind *u = start(0);

	(void)state;
	map_code(p, CODE, 0x20000);
	map_code(p, CODE + 0x30000, 0x8000);
	map(p, CODE + 0x38000, 0x1000, 0, NULL);
	p->items[2].path = path_of_memfd;
	map_code(q, CODE, 0x20000);
	/* a process cannot give rows to a file's code */
	map(q, CODE + 0x20000, 0x10000, 0x10000, file);
	map(q, CODE + 0x30000, 0x1000, 0, NULL);
	map_code(none, CODE, 0x20000);
	publish(p, rows);
	publish(q, others);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(put(u, q), 0);
	assert_int_equal(put(u, none), 0);
	for (uint64_t at = CODE; at < CODE + 0x20000; at += 1001) {
		assert_rows(p, rows, at);
		assert_rows(q, others, at);
		assert_int_equal(look_up(&none->m, at).what, NO_MAPPING);
	}
	assert_int_equal(look_up(&p->m, CODE + 0x20000).what, NO_MAPPING);
	assert_rows(p, rows, CODE + 0x37fff);
	assert_rows(p, rows, CODE + 0x38000);
	assert_mapping(q, 1, 1001);
	assert_int_equal(look_up(&q->m, CODE + 0x30000).what, NONE);
	end(u);
	done(p);
	done(q);
	done(none);
	elf_index_unref(rows);
	elf_index_unref(others);
	elf_index_unref(file);
}

static void a_runtimes_code_has_no_rows(void **state)
{
	struct elf_index *rows = rows_of(2, 1);
	struct proc *p = proc_new(1);
	struct unwind *u = start(0);

	(void)state;
	map_code(p, CODE, 0x20000);
	publish(p, rows);
	runs(p, PF_RUNTIME_JVM, 5, CODE + 0x10000, CODE + 0x20000, true);
	assert_int_equal(put(u, p), 0);
	assert_rows(p, rows, CODE + 0xffff);
	assert_int_equal(look_up(&p->m, CODE + 0x10000).what, GAP);
	end(u);
	done(p);
	elf_index_unref(rows);
}

static void new_rows_replace_the_old_ones(void **state)
{
	struct elf_index *rows = rows_of(2, 1), *newer = rows_of(2, 2);
	struct proc *p = proc_new(1), *q = proc_new(2);
	struct unwind *u = start(0);
	struct unwind_stats s;

	(void)state;
	map_code(p, CODE, 0x20000);
	publish(p, rows);
	assert_int_equal(put(u, p), 0);
	publish(p, newer);
	assert_int_equal(put(u, p), 0);
	assert_rows(p, newer, CODE + 0x8000);
	map_code(q, CODE, 0x1000);
	/* the old rows are gone with the next process that is set */
	assert_int_equal(put(u, q), 0);
	unwind_stats(u, &s);
	assert_int_equal(s.n_files, 1);
	assert_int_equal(s.n_evicted, 0);
	unwind_exited(u, p->m.id);
	unwind_stats(u, &s);
	assert_int_equal(s.n_files, 0);
	end(u);
	done(p);
	done(q);
	elf_index_unref(rows);
	elf_index_unref(newer);
}

/* QEMU has one rule for a gigabyte of code. */
static void equal_pages_take_no_room(void **state)
{
	enum { N = 16384 };
	struct page_spec *pages = xcalloc(N, sizeof(*pages));
	struct proc *p = proc_new(1);
	struct unwind *u = start(0);
	struct unwind_stats s;
	struct elf_index *rows;

	(void)state;
	for (size_t i = 0; i < N; i++)
		pages[i] = (struct page_spec){(CODE >> PF_PAGE_BITS) + i, 1};
	rows = make_index(pages, N, 0, 1);
	map_code(p, CODE, (uint64_t)N << PF_PAGE_BITS);
	publish(p, rows);
	assert_int_equal(put(u, p), 0);
	unwind_stats(u, &s);
	assert_true(s.table_bytes < 2 * N * sizeof(struct pf_page));
	for (uint64_t at = CODE; at < CODE + ((uint64_t)N << PF_PAGE_BITS); at += 70001)
		assert_int_equal(look_up(&p->m, at).special, PF_RULE_GAP);
	unwind_exited(u, p->m.id);
	end(u);
	done(p);
	elf_index_unref(rows);
	free(pages);
}

/*
 * A namespace with many processes, whose code is spread so that each has as many slots as a process
 * can have. It does not get the last ones, which others need.
 */
static void slots_are_left_for_other_namespaces(void **state)
{
	enum { SLOTS = FILE_SLOTS_MAX, MANY = PF_FILES_MAX / SLOTS };
	struct proc **p = xcalloc(MANY, sizeof(struct proc *)), *other = proc_new(MANY + 1);
	struct elf_index *rows = rows_of(2, MANY + 1);
	struct unwind *u = start(0);
	struct page_spec pages[SLOTS];
	size_t n_without = 0;

	(void)state;
	for (uint64_t i = 0; i < SLOTS; i++)
		pages[i] = (struct page_spec){(CODE >> PF_PAGE_BITS) + i * PF_FILE_PAGES_MAX, 2};
	for (unsigned k = 0; k < MANY; k++) {
		p[k] = proc_new(k + 1);
		p[k]->charged_ns = 7;
		map_code(p[k], CODE, (uint64_t)SLOTS * PF_FILE_PAGES_MAX << PF_PAGE_BITS);
		publish(p[k], make_index(pages, SLOTS, 1, k));
		elf_index_unref(runtime_process_generated(p[k]->runtimes));
		assert_int_equal(put(u, p[k]), 0);
		n_without += unwind_why_not(u, runtime_process_generated(p[k]->runtimes)) != NULL;
	}
	assert_true(n_without > MANY / 8 && n_without < MANY / 2);
	other->charged_ns = 8;
	map_code(other, CODE, 0x20000);
	publish(other, rows);
	assert_int_equal(put(u, other), 0);
	assert_null(unwind_why_not(u, rows));
	assert_rows(other, rows, CODE + 0x8000);
	end(u);
	for (unsigned k = 0; k < MANY; k++)
		done(p[k]);
	done(other);
	free(p);
	elf_index_unref(rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(generated_code_has_its_own_process_rows),
		cmocka_unit_test(a_runtimes_code_has_no_rows),
		cmocka_unit_test(new_rows_replace_the_old_ones),
		cmocka_unit_test(equal_pages_take_no_room),
		cmocka_unit_test(slots_are_left_for_other_namespaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
