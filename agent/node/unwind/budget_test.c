/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests tables within their budget, a kernel that refuses them, and random operations in any order.
 */
#include "node/unwind/testunwind.h"

/* ---- budget ---- */

/* A budget of 4 MiB holds seven files of half a MiB; the rest is kept for mappings. */
#define FILE_BYTES (512u << 10)

static void unused_files_make_room(void **state)
{
	struct unwind *u = start(4 << 20);
	struct elf_index *index[12];
	struct proc *p[12];
	struct unwind_stats s;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		index[i] = index_of(FILE_BYTES, i);
		p[i] = proc_new(i);
		map(p[i], 0x400000, FILE_BYTES * 4, 0, index[i]);
		assert_int_equal(put(u, p[i]), 0);
		assert_null(unwind_why_not(u, index[i]));
		assert_mapping(p[i], 0, 9973);
		if (i) /* the first process, the oldest, does not end */
			unwind_exited(u, p[i]->m.id);
	}
	assert_mapping(p[0], 0, 9973);
	unwind_stats(u, &s);
	assert_true(s.chunk_bytes <= 4 << 20);
	assert_true(s.n_evicted >= 4);
	assert_true(kernel.n_graces <= 12);
	assert_int_equal(s.n_files_without, 0);
	/* a file that was evicted gets its table again */
	assert_int_equal(put(u, p[1]), 0);
	assert_mapping(p[1], 0, 9973);
	end(u);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		elf_index_unref(index[i]);
		free(p[i]);
	}
}

static void over_budget_is_told_and_tried_again(void **state)
{
	struct counter *refused =
		counter("podflame_unwind_files_refused_total", "reason", "budget");
	uint64_t before = counter_get(refused);
	struct unwind *u = start(4 << 20);
	struct elf_index *index[8], *small = small_index(1);
	struct proc *p[8], *q = proc_new(100);
	size_t n_without = 0;
	struct unwind_stats s;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		index[i] = index_of(FILE_BYTES, i);
		p[i] = proc_new(i);
		map(p[i], 0x400000, FILE_BYTES * 4, 0, index[i]);
		assert_int_equal(put(u, p[i]), 0);
		n_without += unwind_why_not(u, index[i]) != NULL;
	}
	assert_true(n_without >= 1 && n_without <= 3);
	assert_string_equal(unwind_why_not(u, index[7]), "budget");
	assert_int_equal(look_up(&p[7]->m, 0x400000).what, NONE);
	assert_int_equal(counter_get(refused) - before, n_without);
	unwind_stats(u, &s);
	assert_int_equal(s.n_files_without, n_without);
	/* there is still room for mappings, and no file in use was evicted */
	map(q, 0x400000, 0x1000, 0, small);
	assert_int_equal(put(u, q), 0);
	assert_mapping(p[0], 0, 9973);
	/*
	 * as many processes end as files have no table: each of these files gets its table,
	 * although unwind_process() is not called again for the process that uses it
	 */
	for (uint32_t i = 0; i < n_without; i++)
		unwind_exited(u, p[i]->m.id);
	assert_mapping(p[7], 0, 9973);
	unwind_stats(u, &s);
	assert_int_equal(s.n_files_without, 0);
	end(u);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		elf_index_unref(index[i]);
		free(p[i]);
	}
	elf_index_unref(small);
	free(q);
}

static struct proc *proc_of(struct unwind *u, uint32_t tgid, uint64_t ns, struct elf_index *index)
{
	struct proc *p = proc_new(tgid);

	p->charged_ns = ns;
	map(p, 0x400000, FILE_BYTES * 4, 0, index);
	assert_int_equal(put(u, p), 0);
	return p;
}

/*
 * Files of a namespace have all the room. Another namespace gets tables until it has as much; then
 * neither takes from the other one. What both use counts for none.
 */
static void namespaces_share_the_room_of_tables(void **state)
{
	enum { N = 7, GREEDY = 5, VICTIM = 7 };
	struct unwind *u = start(4 << 20);
	struct elf_index *index[2 * N];
	struct proc *p[2 * N], *both;
	size_t n_greedy = 0, n_victim = 0;

	(void)state;
	for (uint32_t i = 0; i < 2 * N; i++)
		index[i] = index_of(FILE_BYTES, i);
	for (uint32_t i = 0; i < N; i++)
		p[i] = proc_of(u, i, GREEDY, index[i]);
	assert_string_equal(unwind_why_not(u, index[N - 1]), "budget");
	p[N] = proc_of(u, N, VICTIM, index[N]);
	assert_null(unwind_why_not(u, index[N]));
	assert_mapping(p[N], 0, 9973);
	assert_int_equal(unwind_taken_from(u), GREEDY);
	assert_int_equal(unwind_taken_from(u), 0);
	for (uint32_t i = N + 1; i < 2 * N; i++)
		p[i] = proc_of(u, i, VICTIM, index[i]);
	for (uint32_t i = 0; i < N; i++) {
		n_greedy += !unwind_why_not(u, index[i]);
		n_victim += !unwind_why_not(u, index[N + i]);
	}
	assert_in_range(n_greedy, 3, 4);
	assert_in_range(n_victim, 3, 4);
	assert_mapping(p[N], 0, 9973);
	while (unwind_taken_from(u))
		;
	for (uint32_t i = 0; i < N; i++) /* the greedy one does not get it back */
		assert_int_equal(put(u, p[i]), 0);
	assert_int_equal(unwind_taken_from(u), 0);
	both = proc_of(u, 2 * N, VICTIM, index[N - 1]); /* a file of both namespaces */
	end(u);
	for (uint32_t i = 0; i < 2 * N; i++) {
		elf_index_unref(index[i]);
		free(p[i]);
	}
	free(both);
}

/* The same for mappings: the process with most of them loses its own. */
static void namespaces_share_the_room_of_mappings(void **state)
{
	struct unwind *u = start(1 << 20);
	struct elf_index *a = small_index(1);
	struct proc *p[2], *q = proc_new(100);

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = proc_new(i);
		p[i]->charged_ns = 5;
		for (size_t k = 0; k < 2700 - i; k++)
			map(p[i], 0x10000000 + k * 0x2000, 0x1000, 0x10000, a);
		assert_int_equal(put(u, p[i]), 0);
	}
	q->charged_ns = 7;
	for (size_t k = 0; k < 600; k++)
		map(q, 0x10000000 + k * 0x2000, 0x1000, 0x10000, a);
	assert_int_equal(put(u, q), 0);
	assert_mapping(q, 599, 511);
	assert_int_equal(look_up(&p[0]->m, 0x10000000).what, NO_PROCESS);
	assert_mapping(p[1], 0, 511);
	assert_int_equal(unwind_taken_from(u), 5);
	assert_int_equal(put(u, p[0]), -ENOSPC);
	assert_mapping(q, 599, 511);
	end(u);
	elf_index_unref(a);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++)
		free(p[i]);
	free(q);
}

/* One pod with very many mappings does not take the room of other pods. */
static void mappings_have_a_share(void **state)
{
	struct unwind *u = start(1 << 20);
	struct elf_index *a = small_index(1);
	struct proc *p[4], *q = proc_new(100);

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = proc_new(i);
		for (size_t k = 0; k < 2700; k++)
			map(p[i], 0x10000000 + k * 0x2000, 0x1000, 0x10000, a);
		assert_int_equal(put(u, p[i]), i < 2 ? 0 : -ENOSPC);
	}
	map(q, 0x400000, 0x60000, 0, a);
	assert_int_equal(put(u, q), 0);
	assert_mapping(q, 0, 4099);
	assert_mapping(p[1], 2699, 511);
	assert_int_equal(look_up(&p[3]->m, 0x10000000).what, NO_PROCESS);
	end(u);
	elf_index_unref(a);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++)
		free(p[i]);
	free(q);
}

static void exec(struct proc *p)
{
	p->m.exec_id++;
}

/*
 * If the kernel's map of processes is full, the process that changed longest ago is removed. A new
 * exec gets room in the same way.
 */
static void processes_make_room(void **state)
{
	struct unwind *u = start(64 << 20);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(0);
	struct unwind_stats s;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	for (p->m.id.tgid = 0; p->m.id.tgid < PF_PROCESSES_MAX; p->m.id.tgid++)
		assert_int_equal(put(u, p), 0);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(look_up(&p->m, 0x410000).what, ROW);
	p->m.id.tgid = 0;
	assert_int_equal(look_up(&p->m, 0x410000).what, NO_PROCESS);
	p->m.id.tgid = 1;
	exec(p);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(look_up(&p->m, 0x410000).what, ROW);
	unwind_stats(u, &s);
	assert_true(s.n_processes >= PF_PROCESSES_MAX - 1);
	end(u);
	elf_index_unref(a);
	free(p);
}

/* The namespace that has most processes makes room, even if those of others changed before. */
static void namespaces_share_the_room_of_processes(void **state)
{
	struct unwind *u = start(64 << 20);
	struct elf_index *a = small_index(1);
	struct proc *victim = proc_new(PF_PROCESSES_MAX + 1), *p = proc_new(0);

	(void)state;
	victim->charged_ns = 7;
	map(victim, 0x400000, 0x60000, 0, a);
	assert_int_equal(put(u, victim), 0);
	p->charged_ns = 5;
	map(p, 0x400000, 0x60000, 0, a);
	for (p->m.id.tgid = 0; p->m.id.tgid < PF_PROCESSES_MAX - 1; p->m.id.tgid++)
		assert_int_equal(put(u, p), 0);
	assert_int_equal(unwind_crowded(u), 0);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(unwind_crowded(u), 5);
	assert_int_equal(unwind_crowded(u), 0);
	assert_int_equal(look_up(&victim->m, 0x410000).what, ROW);
	assert_int_equal(look_up(&p->m, 0x410000).what, ROW);
	p->m.id.tgid = 0;
	assert_int_equal(look_up(&p->m, 0x410000).what, NO_PROCESS);
	/* the next one and the next program of the victim have room, too */
	exec(victim);
	assert_int_equal(put(u, victim), 0);
	victim->m.id.tgid++;
	assert_int_equal(put(u, victim), 0);
	assert_int_equal(unwind_crowded(u), 5);
	victim->m.id.tgid--;
	assert_int_equal(look_up(&victim->m, 0x410000).what, ROW);
	end(u);
	elf_index_unref(a);
	free(victim);
	free(p);
}

/*
 * Tables of unused files are kept, because they may be used again. Even then there is room for the
 * mappings of the next processes.
 */
static void tables_used_again_leave_room(void **state)
{
	enum { N_MANY = 200 };
	struct unwind *u = start(1 << 20);
	struct unwind_stats s;
	struct elf_index *index[48];
	struct proc *p[ARRAY_SIZE(index)], *many = proc_new(ARRAY_SIZE(index));

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		index[i] = index_of(96 << 10, i);
		p[i] = proc_new(i);
		map(p[i], 0x400000, 0x10000, 0, index[i]);
		assert_int_equal(put(u, p[i]), 0);
		unwind_exited(u, p[i]->m.id);
	}
	unwind_stats(u, &s);
	assert_in_range(s.n_evicted, 1, ARRAY_SIZE(p) - 2);
	for (uint32_t i = s.n_evicted; i < ARRAY_SIZE(p); i++)
		assert_int_equal(put(u, p[i]), 0);
	for (uint32_t i = 0; i < N_MANY; i++)
		map(many, 0x400000 + i * 0x20000, 0x10000, 0, index[ARRAY_SIZE(p) - 1 - i % 2]);
	for (; many->m.id.tgid < ARRAY_SIZE(p) + 12; many->m.id.tgid++)
		assert_int_equal(put(u, many), 0);
	end(u);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		elf_index_unref(index[i]);
		free(p[i]);
	}
	free(many);
}

/*
 * An index's names may need far more memory than its tables. They have a limit too, so a pod's
 * files cannot use up the agent's memory.
 */
static void indexes_have_a_limit(void **state)
{
	struct unwind *u = start(1 << 20);
	struct elf_index *big[8];
	struct proc *p[8];
	size_t n_without = 0;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		big[i] = index_of(600 << 10, i);
		p[i] = proc_new(i);
		map(p[i], 0x400000, 0x60000, 0, big[i]);
		assert_int_equal(put(u, p[i]), 0);
		n_without += str_equal(unwind_why_not(u, big[i]), "memory");
	}
	assert_in_range(n_without, 2, 6);
	assert_int_equal(look_up(&p[7]->m, 0x400000).what, NONE);
	/* all processes end, so their files may be evicted */
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++)
		unwind_exited(u, p[i]->m.id);
	assert_int_equal(put(u, p[7]), 0);
	assert_false(str_equal(unwind_why_not(u, big[7]), "memory"));
	end(u);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		elf_index_unref(big[i]);
		free(p[i]);
	}
}

static void refusing_kernel(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1), *b = small_index(2);
	struct proc *p = proc_new(1);
	struct unwind_stats s;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	assert_int_equal(put(u, p), 0);
	/*
	 * if the new mappings cannot be set, the process has none: the old ones would be those of
	 * another program
	 */
	kernel.fail = -ENOMEM;
	p->indexes[0] = b;
	assert_int_equal(put(u, p), -ENOMEM);
	assert_int_equal(look_up(&p->m, 0x410000).what, NO_PROCESS);
	assert_string_equal(unwind_why_not(u, b), "kernel");
	kernel.fail = 0;
	p->indexes[0] = a;
	assert_int_equal(put(u, p), 0);
	assert_mapping(p, 0, 4099);
	unwind_stats(u, &s);
	assert_int_equal(s.n_processes, 1);
	end(u);
	elf_index_unref(a);
	elf_index_unref(b);
	free(p);
}

/* ---- random operations in any order ---- */

#define N_RANDOM_FILES 24
#define N_RANDOM_PROCS 16

/*
 * Gives a process random runtimes. Their ranges cut mappings anywhere, and overlap; the files' rows
 * must be found all the same.
 */
static void random_runtimes(struct proc *p)
{
	p->runtimes = runtime_process_unref(p->runtimes);
	for (size_t n = random_below(PF_RUNTIMES_MAX + 1); n > 0; n--) {
		/* the tables of all processes fit, so nothing is refused here */
		struct runtime_learnt l = {.data_bytes = 8 + 8 * random_below(100),
					   .n_ranges = random_below(8)};

		l.data = xcalloc(1, l.data_bytes);
		memset(l.data, (int)random_below(2), l.data_bytes);
		l.ranges = xcalloc(l.n_ranges + 1, sizeof(*l.ranges));
		for (size_t i = 0; i < l.n_ranges; i++) {
			uint64_t start = 0x400000 + random_below(0x100000);

			l.ranges[i] = (struct runtime_range){start, start + 1 + random_below(99999),
							     random_below(2)};
		}
		p->runtimes = runtime_process_with(p->runtimes, &p->m,
						   (enum pf_runtime_kind)(1 + random_below(2)), &l);
	}
}

static void random_process(struct proc *p, struct elf_index **index)
{
	uint64_t at = 0x400000;

	p->m.n = 0;
	p->m.exec_pages++;
	p->m.exec_id += random_below(4) == 0;
	for (size_t n = random_below(12); n > 0; n--) {
		size_t k = random_below(N_RANDOM_FILES);
		uint64_t pages = 1 + random_below(64);

		at += random_below(2) * 0x10000;
		map(p, at, pages << 12, random_below(32) << 12, index[k]);
		at += pages << 12;
	}
	random_runtimes(p);
}

static void assert_process(struct unwind *u, const struct proc *p)
{
	for (size_t k = 0; k < p->m.n; k++) {
		uint64_t middle = (p->items[k].start + p->items[k].end) / 2;

		if (unwind_why_not(u, p->indexes[k]))
			assert_int_equal(look_up(&p->m, middle).what, NONE);
		else
			assert_mapping(p, k, 7919);
	}
}

static void any_order(void **state)
{
	struct unwind *u = start(1 << 20);
	struct elf_index *index[N_RANDOM_FILES];
	struct proc *p[N_RANDOM_PROCS];
	bool there[N_RANDOM_PROCS] = {0};
	struct unwind_stats s;

	(void)state;
	for (uint32_t i = 0; i < N_RANDOM_FILES; i++)
		index[i] = index_of(16384 + random_below(160 << 10), i);
	for (uint32_t i = 0; i < N_RANDOM_PROCS; i++)
		p[i] = proc_new(i);
	for (unsigned round = 0; round < 2000; round++) {
		size_t i = random_below(N_RANDOM_PROCS);

		if (there[i] && random_below(2)) {
			unwind_exited(u, p[i]->m.id);
			there[i] = false;
		} else {
			random_process(p[i], index);
			assert_int_equal(put(u, p[i]), 0);
			there[i] = true;
			assert_process(u, p[i]);
		}
		i = random_below(N_RANDOM_PROCS);
		if (there[i])
			assert_process(u, p[i]);
	}
	unwind_stats(u, &s);
	assert_true(s.n_evicted > 0);
	assert_true(s.chunk_bytes <= 1 << 20);
	for (uint32_t i = 0; i < N_RANDOM_PROCS; i++) {
		unwind_exited(u, p[i]->m.id);
		runtime_process_unref(p[i]->runtimes);
		free(p[i]);
	}
	unwind_stats(u, &s);
	assert_int_equal(s.n_processes, 0);
	end(u);
	for (uint32_t i = 0; i < N_RANDOM_FILES; i++)
		elf_index_unref(index[i]);
}

static void extents_never_overlap(void **state)
{
	struct space *s = unwind_space_new(4 * PF_CHUNK_BYTES);
	struct extent e[64] = {0}, all;
	uint32_t chunk;

	(void)state;
	for (unsigned round = 0; round < 5000; round++) {
		struct extent *x = &e[random_below(ARRAY_SIZE(e))];

		if (x->bytes) {
			unwind_space_give(s, *x);
			*x = (struct extent){0};
			continue;
		}
		if (unwind_space_take(s, 1 + random_below(9000), x) < 0)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
			uint64_t a = (uint64_t)x->ref * 4, b = (uint64_t)e[i].ref * 4;

			if (&e[i] != x && e[i].bytes)
				assert_true(a + x->bytes <= b || b + e[i].bytes <= a);
		}
		assert_true(PF_REF_BYTES(x->ref) + x->bytes <= PF_CHUNK_BYTES);
	}
	for (size_t i = 0; i < ARRAY_SIZE(e); i++)
		if (e[i].bytes)
			unwind_space_give(s, e[i]);
	assert_int_equal(unwind_space_used_bytes(s), 0);
	/* all chunks are free again, each as a whole */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(unwind_space_take(s, PF_CHUNK_BYTES, &e[i]), 0);
	assert_int_equal(unwind_space_take(s, 1, &all), -ENOSPC);
	assert_int_equal(unwind_space_empty_chunk(s, &chunk), -ENOENT);
	unwind_space_give(s, e[2]);
	assert_int_equal(unwind_space_empty_chunk(s, &chunk), 0);
	assert_int_equal(chunk, PF_REF_CHUNK(e[2].ref));
	assert_int_equal(unwind_space_chunk_bytes(s), 3 * PF_CHUNK_BYTES);
	unwind_space_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unused_files_make_room),
		cmocka_unit_test(over_budget_is_told_and_tried_again),
		cmocka_unit_test(mappings_have_a_share),
		cmocka_unit_test(namespaces_share_the_room_of_tables),
		cmocka_unit_test(namespaces_share_the_room_of_mappings),
		cmocka_unit_test(processes_make_room),
		cmocka_unit_test(namespaces_share_the_room_of_processes),
		cmocka_unit_test(tables_used_again_leave_room),
		cmocka_unit_test(indexes_have_a_limit),
		cmocka_unit_test(refusing_kernel),
		cmocka_unit_test(any_order),
		cmocka_unit_test(extents_never_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
