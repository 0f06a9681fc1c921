/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares what unwind puts into the kernel, looked up as the kernel does, with the indexes
 * themselves.
 */
#include "node/unwind/testunwind.h"

static char path_of_jit[] = "";

static void rows_are_found_as_the_index_has_them(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1), *b = small_index(2),
			 *empty = make_index(NULL, 0, 0, 3);
	struct proc *p = proc_new(7);
	struct unwind_stats s;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	map(p, 0x500000, 0x20000, 0x10000, b); /* cut: begins with the file's second page */
	map(p, 0x700000, 0x1000, 0, NULL);     /* refused by the parser */
	map(p, 0x701000, 0x1000, 0, NULL);
	p->items[3].path = path_of_jit;
	map(p, 0x800000, 0x1000, 0, NULL);
	p->pending[4] = true;
	map(p, 0x900000, 0x1000, 0, empty);
	assert_int_equal(look_up(&p->m, 0x400000).what, NO_PROCESS);
	assert_int_equal(put(u, p), 0);
	assert_mapping(p, 0, 29);
	assert_mapping(p, 1, 29);
	assert_int_equal(look_up(&p->m, 0x700fff).what, NONE);
	assert_int_equal(look_up(&p->m, 0x701000).what, NO_MAPPING);
	assert_int_equal(look_up(&p->m, 0x800000).what, PENDING);
	assert_int_equal(look_up(&p->m, 0x900000).what, GAP);
	assert_int_equal(look_up(&p->m, 0x3fffff).what, NO_MAPPING);
	assert_int_equal(look_up(&p->m, 0x460000).what, NO_MAPPING);
	unwind_stats(u, &s);
	assert_int_equal(s.n_files, 2);
	assert_int_equal(s.n_files_without, 0);
	assert_int_equal(s.n_processes, 1);
	assert_int_equal(s.n_mappings, 5);
	assert_true(s.table_bytes >= 2 * (2003 * 4 + 4 * 8 + 20 * 16));
	assert_true(s.chunk_bytes == PF_CHUNK_BYTES * kernel.n_chunks);
	end(u);
	elf_index_unref(a);
	elf_index_unref(b);
	elf_index_unref(empty);
	free(p);
}

static void equal_files_are_written_once(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1), *same = small_index(1), *other = small_index(2);
	struct proc *p = proc_new(1), *q = proc_new(2), *r = proc_new(3);
	size_t written;
	struct unwind_stats s;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	map(q, 0x7f0000400000, 0x60000, 0, same);
	map(r, 0x400000, 0x60000, 0, other);
	assert_int_equal(put(u, p), 0);
	written = kernel.n_written;
	assert_int_equal(put(u, q), 0);
	assert_int_equal(kernel.n_written - written, sizeof(struct pf_mapping));
	assert_int_equal(put(u, r), 0);
	unwind_stats(u, &s);
	assert_int_equal(s.n_files, 2);
	elf_index_unref(a); /* unwind has a reference of its own */
	assert_mapping(q, 0, 4099);
	assert_mapping(r, 0, 4099);
	/* to set the same mappings again writes nothing */
	written = kernel.n_written;
	q->m.exec_pages = 99;
	kernel.fail = -ENOMEM;
	assert_int_equal(put(u, q), -ENOMEM);
	kernel.fail = 0;
	assert_int_equal(put(u, q), 0);
	assert_int_equal(kernel.n_written, written);
	assert_mapping(q, 0, 65521); /* this also compares exec_pages */
	end(u);
	elf_index_unref(same);
	elf_index_unref(other);
	free(p);
	free(q);
	free(r);
}

static void pieces_of_a_mapping_are_one(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(1);
	struct unwind_stats s;

	(void)state;
	map(p, 0x410000, 0x1000, 0x10000, a);
	map(p, 0x411000, 0x2000, 0x11000, a);
	map(p, 0x413000, 0x1000, 0, a); /* next to the last one, but of another part of the file */
	map(p, 0x413800, 0x1000, 0, a); /* overlaps, like mappings read during a change */
	assert_int_equal(put(u, p), 0);
	unwind_stats(u, &s);
	assert_int_equal(s.n_mappings, 3);
	assert_mapping(p, 1, 31);
	assert_mapping(p, 2, 31);
	end(u);
	elf_index_unref(a);
	free(p);
}

static void thousands_of_mappings(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1), *b = small_index(2);
	struct proc *p = proc_new(1);
	struct unwind_stats s;
	struct counter *cut = counter("podflame_unwind_mappings_dropped_total", "reason", "limit");

	(void)state;
	for (size_t i = 0; i < 16384; i++)
		map(p, 0x10000000 + i * 0x2000, 0x1000, 0x10000, i % 2 ? a : b);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(counter_get(cut), 0);
	for (size_t i = 0; i < p->m.n; i += 61)
		assert_mapping(p, i, 511);
	assert_mapping(p, PF_PART_MAPPINGS_MAX - 1, 64);
	assert_mapping(p, PF_PART_MAPPINGS_MAX, 64);
	assert_mapping(p, 16383, 64);
	map(p, 0x90000000, 0x1000, 0x10000, a);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(counter_get(cut), 1);
	unwind_stats(u, &s);
	assert_int_equal(s.n_mappings, 16384);
	/* back to few mappings: the room of the others is free again when it is needed */
	p->m.n = 1;
	assert_int_equal(put(u, p), 0);
	assert_mapping(p, 0, 64);
	unwind_stats(u, &s);
	assert_int_equal(s.n_mappings, 1);
	end(u);
	elf_index_unref(a);
	elf_index_unref(b);
	free(p);
}

/* 1.5 GiB of code with a hole: three slots, and one mapping that is cut into pieces. */
static void large_text_takes_several_slots(void **state)
{
	const struct page_spec pages[] = {{3, 10},     {8194, 10},  {8195, 10}, {9000, 10},
					  {16386, 10}, {24000, 10}, {24578, 10}};
	struct unwind *u = start(0);
	struct elf_index *a = make_index(pages, ARRAY_SIZE(pages), 5, 1);
	struct proc *p = proc_new(1);
	struct unwind_stats s;

	(void)state;
	map(p, 0x100000000, 25000ULL << PF_PAGE_BITS, 0, a);
	assert_int_equal(put(u, p), 0);
	assert_mapping(p, 0, 65537 * 3);
	for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
		for (uint64_t k = 0; k < 65536; k += 4093)
			assert_same(p, 0, 0x100000000 + ((uint64_t)pages[i].number << 16) + k);
	unwind_stats(u, &s);
	assert_int_equal(s.n_files, 1);
	assert_int_equal(s.n_mappings, 3);
	end(u);
	elf_index_unref(a);
	free(p);
}

/*
 * The segment's ELF address is 0, and its file offset is in the middle of a page: the mapped bytes
 * before it are below ELF address 0.
 */
static void text_around_address_0_ends(void **state)
{
	const struct page_spec pages[] = {{0, 10}};
	struct index_segment text = {
		.address = 0, .offset = 0x500, .bytes = 0x5000, .executable = 1};
	struct unwind *u = start(0);
	struct elf_index *with = make_index_of(text, pages, ARRAY_SIZE(pages), 5, 1),
			 *without = make_index_of(text, NULL, 0, 0, 2);
	struct proc *p = proc_new(1);
	struct unwind_stats s;

	(void)state;
	map(p, 0x400000, 0x6000, 0, with);
	map(p, 0x500000, 0x6000, 0, without);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(look_up(&p->m, 0x400000).what, GAP);
	assert_int_equal(look_up(&p->m, 0x4004ff).what, GAP);
	assert_int_equal(look_up(&p->m, 0x400500).what, ROW);
	assert_int_equal(look_up(&p->m, 0x405fff).what, ROW);
	assert_int_equal(look_up(&p->m, 0x505fff).what, GAP);
	unwind_stats(u, &s);
	assert_int_equal(s.n_mappings, 2);
	end(u);
	elf_index_unref(with);
	elf_index_unref(without);
	free(p);
}

static void made_up_text_is_refused(void **state)
{
	struct page_spec pages[40];
	struct unwind *u = start(2 << 20);
	struct elf_index *spread, *large = index_of(900 << 10, 1);
	struct proc *p = proc_new(1);
	struct unwind_stats s;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(pages); i++)
		pages[i] = (struct page_spec){i * 10000, 1};
	spread = make_index(pages, ARRAY_SIZE(pages), 5, 1);
	map(p, 0x400000, 0x1000, 0, spread);
	map(p, 0x500000, 0x1000, 0, large);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(look_up(&p->m, 0x400000).what, NONE);
	assert_int_equal(look_up(&p->m, 0x500000).what, NONE);
	assert_string_equal(unwind_why_not(u, spread), "too_spread");
	assert_string_equal(unwind_why_not(u, large), "too_large");
	unwind_stats(u, &s);
	assert_int_equal(s.n_files_without, 2);
	end(u);
	elf_index_unref(spread);
	elf_index_unref(large);
	free(p);
}

static void exec_replaces_and_never_goes_back(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1), *b = small_index(2);
	struct proc *before = proc_new(1), *after = proc_new(1);
	struct unwind_stats s;

	(void)state;
	map(before, 0x400000, 0x60000, 0, a);
	map(after, 0x400000, 0x60000, 0, b);
	after->m.exec_id = 2;
	assert_int_equal(put(u, before), 0);
	assert_int_equal(put(u, after), 0);
	assert_int_equal(look_up(&before->m, 0x410000).what, NO_PROCESS);
	assert_mapping(after, 0, 4099);
	assert_int_equal(put(u, before), -ESTALE);
	assert_mapping(after, 0, 4099);
	unwind_exited(u, after->m.id);
	assert_int_equal(look_up(&after->m, 0x410000).what, NO_PROCESS);
	unwind_exited(u, after->m.id);
	unwind_stats(u, &s);
	assert_int_equal(s.n_processes, 0);
	assert_int_equal(s.n_mappings, 0);
	assert_int_equal(s.n_files, 2); /* the files stay until their room is needed */
	end(u);
	elf_index_unref(a);
	elf_index_unref(b);
	free(before);
	free(after);
}

static const struct slot_value *value_of(const struct proc *p)
{
	const struct pf_process_key key = {p->m.id.start_boottime_ns, (uint32_t)p->m.id.tgid,
					   p->m.exec_id};
	const struct slot_value *s = find(&key, false);

	assert_non_null(s);
	return s;
}

static uint32_t runtime_at(const struct proc *p, uint64_t address)
{
	const struct pf_mapping *m = find_mapping(&value_of(p)->value, address);

	assert_non_null(m);
	return m->runtime;
}

static void runtimes_cut_mappings(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(1);
	const struct pf_process *v;
	struct unwind_stats s, without;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	map(p, 0x701000, 0x3000, 0, NULL);
	map(p, 0x801000, 0x1000, 0, NULL);
	p->items[1].path = p->items[2].path = path_of_jit;
	assert_int_equal(put(u, p), 0);
	unwind_stats(u, &without);
	runs(p, PF_RUNTIME_PYTHON, 0x1122, 0x410001, 0x412000, false);
	runs(p, PF_RUNTIME_JVM, 0x3344, 0x702000, 0x703000, true);
	runs(p, PF_RUNTIME_PERFMAP, 0, 0x801000, 0x802000, false);
	assert_int_equal(put(u, p), 0);
	assert_mapping(p, 0, 29); /* the file's rules are valid as before */
	assert_int_equal(runtime_at(p, 0x410000), 0);
	assert_int_equal(runtime_at(p, 0x410001), 1);
	assert_int_equal(runtime_at(p, 0x411fff), 1);
	assert_int_equal(runtime_at(p, 0x412000), 0);
	/* generated code is in the list only where a runtime owns it */
	assert_int_equal(look_up(&p->m, 0x701fff).what, NO_MAPPING);
	assert_int_equal(look_up(&p->m, 0x702000).what, GAP);
	assert_int_equal(runtime_at(p, 0x702fff), 2 | PF_MANAGED);
	assert_int_equal(look_up(&p->m, 0x703000).what, NO_MAPPING);
	assert_int_equal(look_up(&p->m, 0x801000).what, NO_MAPPING);
	v = &value_of(p)->value;
	assert_int_equal(v->n_runtimes, 3);
	assert_int_equal(v->runtimes[0].kind, PF_RUNTIME_PYTHON);
	assert_int_equal(v->runtimes[1].kind, PF_RUNTIME_JVM);
	/* the runtime is known, but not walked */
	assert_int_equal(v->runtimes[2].kind, PF_RUNTIME_NONE);
	assert_int_equal(PF_REF_BYTES(v->runtimes[1].data) % 8, 0);
	assert_int_equal(*(const uint64_t *)at(v->runtimes[0].data), 0x1122);
	assert_int_equal(*(const uint64_t *)at(v->runtimes[1].data), 0x3344);
	p->runtimes = runtime_process_unref(p->runtimes);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(value_of(p)->value.n_runtimes, 0);
	assert_int_equal(runtime_at(p, 0x410001), 0);
	unwind_stats(u, &s);
	assert_int_equal(s.n_mappings, without.n_mappings);
	end(u);
	elf_index_unref(a);
	free(p);
}

/*
 * Code that a runtime generates behind its mapping counts as the runtime's, even before the agent
 * has read the mappings again.
 */
static void generated_code_grows(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(1);

	(void)state;
	map(p, 0x701000, 0x3000, 0, NULL);
	map(p, 0x800000, 0x60000, 0, a);
	map(p, 0x901000, 0x1000, 0, NULL);
	p->items[0].path = p->items[2].path = path_of_jit;
	runs(p, PF_RUNTIME_JVM, 1, 0x701000, 0x704000, true);
	runs(p, PF_RUNTIME_PERFMAP, 1, 0x901000, 0x902000, true);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(runtime_at(p, 0x704000), 1 | PF_MANAGED);
	assert_int_equal(runtime_at(p, 0x7fffff), 1 | PF_MANAGED);
	assert_mapping(p, 1, 29);
	assert_int_equal(runtime_at(p, 0x800000), 0);
	assert_int_equal(look_up(&p->m, 0x900000).what, NO_MAPPING);
	assert_int_equal(runtime_at(p, 0x902000), 2 | PF_MANAGED);
	assert_int_equal(look_up(&p->m, 0x902000 + (256 << 20)).what, NO_MAPPING);
	p->runtimes = runtime_process_unref(p->runtimes);
	end(u);
	elf_index_unref(a);
	free(p);
}

static void what_a_runtime_says_is_written_when_it_changes(void **state)
{
	struct unwind *u = start(0);
	struct proc *p = proc_new(1);
	size_t written;

	(void)state;
	map(p, 0x701000, 0x3000, 0, NULL);
	p->items[0].path = path_of_jit;
	runs(p, PF_RUNTIME_JVM, 1, 0x701000, 0x702000, true);
	assert_int_equal(put(u, p), 0);
	written = kernel.n_written;
	runtime_process_unref(p->runtimes);
	p->runtimes = NULL;
	runs(p, PF_RUNTIME_JVM, 1, 0x701000, 0x702000, true);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(kernel.n_written, written);
	runtime_process_unref(p->runtimes);
	p->runtimes = NULL;
	runs(p, PF_RUNTIME_JVM, 2, 0x701000, 0x702000, true);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(*(const uint64_t *)at(value_of(p)->value.runtimes[0].data), 2);
	runtime_process_unref(p->runtimes);
	p->runtimes = NULL;
	runs(p, PF_RUNTIME_PERFMAP, 2, 0x701000, 0x702000, true);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(value_of(p)->value.runtimes[0].kind, PF_RUNTIME_PERFMAP);
	runtime_process_unref(p->runtimes);
	end(u);
	free(p);
}

/* ---- files by their tags ---- */

static const struct pf_image *files_image_of(uint64_t tag)
{
	assert_true(kernel.images[tag].n_pieces > 0);
	return &kernel.images[tag];
}

/* The kernel finds the same rows by a file's tag as by a mapping of the file. */
static void a_tag_leads_to_its_files_rows(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(1);
	const struct pf_mapping *m;
	const struct pf_piece *piece;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	map(p, 0x500000, 0x1000, 0, NULL);
	map(p, 0x600000, 0x1000, 0, NULL);
	p->items[0].tag = 20;
	p->items[1].tag = 21;
	p->items[2].tag = PF_TAG_UNKNOWN;
	p->pending[1] = true;
	assert_int_equal(put(u, p), 0);
	assert_int_equal(kernel.n_images, 2);
	m = find_mapping(&value_of(p)->value, 0x410000);
	piece = &files_image_of(20)->pieces[0];
	assert_int_equal(piece->file, m->file);
	assert_int_equal(m->tag, 20);
	assert_int_equal(m->load, 0x400000);
	assert_int_equal(m->load - piece->delta, m->bias);
	assert_int_equal(files_image_of(21)->pieces[0].file, PF_SLOT_PENDING);

	/* The file is parsed, and turns out to be no program. */
	p->pending[1] = false;
	assert_int_equal(put(u, p), 0);
	assert_int_equal(files_image_of(21)->pieces[0].file, PF_SLOT_NONE);
	/* The file is not mapped any more, but its image stays, because it may be mapped again. */
	unwind_exited(u, p->m.id);
	assert_int_equal(files_image_of(20)->pieces[0].file, piece->file);
	end(u);
	elf_index_unref(a);
	free(p);
}

/*
 * The cache of files has forgotten a file that the kernel still knows. While it is parsed again,
 * the rows stay, for the new process and for others.
 */
static void a_file_that_is_parsed_again_keeps_its_rows(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(1), *q = proc_new(2);
	uint32_t slot;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	map(q, 0x800000, 0x60000, 0, NULL);
	p->items[0].tag = q->items[0].tag = 20;
	q->pending[0] = true;
	assert_int_equal(put(u, p), 0);
	slot = files_image_of(20)->pieces[0].file;
	assert_int_equal(put(u, q), 0);
	assert_int_equal(files_image_of(20)->pieces[0].file, slot);
	assert_int_equal(find_mapping(&value_of(q)->value, 0x810000)->file, slot);
	unwind_exited(u, p->m.id);
	end(u);
	elf_index_unref(a);
	free(p);
	free(q);
}

/*
 * If a runtime was found in one process, the image shows where the runtime's code is in all
 * processes that map the file.
 */
static void an_image_says_where_a_runtimes_code_is(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(1), *q = proc_new(2);
	const struct pf_piece *pieces;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	map(q, 0x800000, 0x60000, 0, a);
	p->items[0].tag = q->items[0].tag = 20;
	assert_int_equal(put(u, p), 0);
	assert_int_equal(files_image_of(20)->tag, 20);
	assert_int_equal(files_image_of(20)->n_pieces, 1);
	runs(p, PF_RUNTIME_LUA, 0x1122, 0x410001, 0x412000, false);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(put(u, q), 0); /* in q, no runtime was found yet */
	pieces = files_image_of(20)->pieces;
	assert_int_equal(files_image_of(20)->n_pieces, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(pieces[i].runtime, i == 1);
		assert_int_equal(pieces[i].file, pieces[0].file);
		assert_int_equal(pieces[i].delta, pieces[0].delta);
	}
	assert_int_equal(pieces[0].end, 0x10001);
	assert_int_equal(pieces[1].start, 0x10001);
	assert_int_equal(pieces[1].end, 0x12000);
	assert_int_equal(pieces[2].start, 0x12000);
	p->runtimes = runtime_process_unref(p->runtimes);
	end(u);
	elf_index_unref(a);
	free(p);
	free(q);
}

/*
 * A file may have a runtime. Each process is read, also while it is not known yet where the
 * runtime's code is: otherwise frames of its program would be missing, and nothing would say so.
 */
static void an_image_that_may_have_a_runtime_needs_the_process(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1), *b = small_index(2);
	struct proc *p = proc_new(1);

	(void)state;
	((struct index_header *)elf_index_data(b))->flags |= ELF_INDEX_NATIVE_IMAGE;
	map(p, 0x400000, 0x60000, 0, a);
	map(p, 0x800000, 0x60000, 0, b);
	p->items[0].tag = 20;
	p->items[1].tag = 21;
	assert_int_equal(put(u, p), 0);
	assert_false(files_image_of(20)->needs_process);
	assert_true(files_image_of(21)->needs_process);
	end(u);
	elf_index_unref(a);
	elf_index_unref(b);
	free(p);
}

/*
 * If a file's table was evicted for another one, the kernel does not find the file by its tag any
 * more.
 */
static void a_tag_does_not_outlive_its_files_table(void **state)
{
	struct unwind *u = start(1 << 20);
	struct elf_index *a = index_of(200 << 10, 1), *b = index_of(200 << 10, 2);
	struct elf_index *others[6];
	struct proc *p = proc_new(1), *q = proc_new(2);

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	p->items[0].tag = 20;
	assert_int_equal(put(u, p), 0);
	unwind_exited(u, p->m.id);
	assert_int_equal(files_image_of(20)->n_pieces, 1);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		others[i] = index_of(200 << 10, 3 + i);
		map(q, 0x1000000 * (i + 1), 0x60000, 0, others[i]);
	}
	assert_int_equal(put(u, q), 0);
	assert_int_equal(kernel.n_images, 0);
	end(u);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		elf_index_unref(others[i]);
	elf_index_unref(a);
	elf_index_unref(b);
	free(p);
	free(q);
}

/*
 * If an image cannot be updated, it is removed from the kernel: otherwise the old image would stay
 * in the kernel, and nothing would remove it later.
 */
static void an_image_that_could_not_be_updated_is_gone(void **state)
{
	struct unwind *u = start(0);
	struct proc *p = proc_new(1);

	(void)state;
	map(p, 0x500000, 0x1000, 0, NULL);
	p->items[0].tag = 21;
	p->pending[0] = true;
	assert_int_equal(put(u, p), 0);
	assert_int_equal(files_image_of(21)->pieces[0].file, PF_SLOT_PENDING);
	p->pending[0] = false;
	kernel.fail = -ENOMEM;
	put(u, p);
	assert_int_equal(kernel.n_images, 0);
	kernel.fail = 0;
	assert_int_equal(put(u, p), 0);
	assert_int_equal(files_image_of(21)->pieces[0].file, PF_SLOT_NONE);
	end(u);
	free(p);
}

static void images_have_a_limit(void **state)
{
	struct counter *evicted = counter("podflame_unwind_images_evicted_total", NULL, NULL);
	uint64_t before = counter_get(evicted);
	struct unwind *u = start(0);
	struct proc *p = proc_new(1);

	(void)state;
	for (size_t i = 0; i < PF_IMAGES_MAX + 3; i++) {
		map(p, 0x10000000 + i * 0x2000, 0x1000, 0, NULL);
		p->items[i].tag = PF_TAG_FIRST + i;
	}
	assert_int_equal(put(u, p), 0);
	assert_int_equal(kernel.n_images, PF_IMAGES_MAX);
	assert_int_equal(counter_get(evicted), before + 3);
	assert_int_equal(kernel.images[PF_TAG_FIRST].n_pieces, 0);
	assert_int_equal(files_image_of(PF_TAG_FIRST + 3)->n_pieces, 1);
	end(u);
	free(p);
}

static void map_images(struct proc *p, uint64_t first_tag, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		map(p, 0x10000000 + p->m.n * 0x2000, 0x1000, 0, NULL);
		p->items[p->m.n - 1].tag = first_tag + i;
	}
}

/*
 * A pod that runs new files without end loses its own images, and is told of it. It uses a file of
 * the other namespace, too, which stays, whoever used it first.
 */
static void images_of_one_namespace_leave_room(void **state)
{
	const uint64_t victims = PF_TAG_FIRST, shared = victims + 2, first = shared + 2;
	struct proc *victim = proc_new(1), *greedy = proc_new(2);
	struct unwind *u = start(0);

	(void)state;
	victim->charged_ns = 7;
	greedy->charged_ns = 8;
	map_images(greedy, shared, 1);
	assert_int_equal(put(u, greedy), 0);
	map_images(victim, victims, 4);
	assert_int_equal(put(u, victim), 0);
	map_images(greedy, shared + 1, PF_IMAGES_MAX + 3);
	assert_int_equal(put(u, greedy), 0);
	assert_int_equal(kernel.n_images, PF_IMAGES_MAX);
	for (uint64_t tag = victims; tag < first; tag++)
		assert_int_equal(files_image_of(tag)->n_pieces, 1);
	assert_int_equal(files_image_of(first + PF_IMAGES_MAX + 1)->n_pieces, 1);
	assert_int_equal(unwind_crowded(u), 8);
	assert_int_equal(unwind_crowded(u), 0);
	end(u);
	free(victim);
	free(greedy);
}

/* The file's code needs more slots than an image has pieces. */
/* Has a new process of the namespace set, with this many files. */
static void put_images(struct unwind *u, uint64_t ns, uint64_t first_tag, size_t n)
{
	static uint32_t tgid = 1;
	struct proc *p = proc_new(tgid++);

	p->charged_ns = ns;
	map_images(p, first_tag, n);
	assert_int_equal(put(u, p), 0);
	free(p);
}

/* Also where these are the most. */
static void a_namespace_pushes_out_no_images_that_several_use(void **state)
{
	const uint64_t shared = PF_TAG_FIRST, victims = shared + PF_IMAGES_MAX / 2;
	const uint64_t first = victims + 20;
	struct unwind *u = start(0);

	(void)state;
	put_images(u, 7, shared, PF_IMAGES_MAX / 2);
	put_images(u, 9, shared, PF_IMAGES_MAX / 2);
	put_images(u, 7, victims, 20);
	put_images(u, 8, first, PF_IMAGES_MAX / 2);
	assert_int_equal(kernel.n_images, PF_IMAGES_MAX);
	for (uint64_t tag = shared; tag < first; tag++)
		assert_int_equal(files_image_of(tag)->n_pieces, 1);
	assert_int_equal(files_image_of(first + PF_IMAGES_MAX / 2 - 1)->n_pieces, 1);
	assert_int_equal(unwind_crowded(u), 8);
	end(u);
}

/* Two namespaces that run the same new files do not push out those of all others. */
static void images_that_several_use_leave_room(void **state)
{
	const size_t n_shared = PF_IMAGES_MAX / 2 + 2;
	const uint64_t victims = PF_TAG_FIRST, shared = victims + 10, first = shared + n_shared;
	const uint64_t last = victims + PF_IMAGES_MAX + 2;
	struct unwind *u = start(0);

	(void)state;
	put_images(u, 7, victims, 10);
	put_images(u, 8, shared, n_shared);
	put_images(u, 9, shared, n_shared);
	put_images(u, 8, first, last - first);
	assert_int_equal(unwind_crowded(u), 0);
	assert_int_equal(kernel.images[shared + 1].n_pieces, 0);
	for (uint64_t tag = victims; tag < shared; tag++)
		assert_int_equal(files_image_of(tag)->n_pieces, 1);
	for (uint64_t tag = shared + 2; tag < first; tag++)
		assert_int_equal(files_image_of(tag)->n_pieces, 1);
	put_images(u, 9, last, 1);
	assert_int_equal(unwind_crowded(u), 8);
	end(u);
}

static void an_image_of_many_places_is_cut(void **state)
{
	struct counter *cut = counter("podflame_unwind_images_cut_total", NULL, NULL);
	struct page_spec pages[PF_PIECES_MAX + 1];
	uint64_t before = counter_get(cut);
	struct unwind *u = start(0);
	struct proc *p = proc_new(1);
	const struct pf_piece *last;
	struct elf_index *a;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(pages); i++)
		pages[i] = (struct page_spec){i * PF_FILE_PAGES_MAX, 10};
	a = make_index(pages, ARRAY_SIZE(pages), 20, 1);
	map(p, 0x100000000000, 0x1000, 0, a);
	p->items[0].tag = 20;
	assert_int_equal(put(u, p), 0);
	assert_int_equal(files_image_of(20)->n_pieces, PF_PIECES_MAX);
	assert_int_equal(counter_get(cut), before + 1);
	for (uint32_t i = 0; i < PF_PIECES_MAX - 1; i++)
		assert_int_equal(files_image_of(20)->pieces[i].end,
				 (uint64_t)(i + 1) * PF_FILE_PAGES_MAX * PF_PAGE_BYTES);
	last = &files_image_of(20)->pieces[PF_PIECES_MAX - 1];
	assert_int_equal(last->start, last[-1].end);
	assert_int_equal(last->end, UINT64_MAX);
	assert_int_equal(last->file, PF_SLOT_NONE);
	end(u);
	elf_index_unref(a);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_found_as_the_index_has_them),
		cmocka_unit_test(equal_files_are_written_once),
		cmocka_unit_test(pieces_of_a_mapping_are_one),
		cmocka_unit_test(thousands_of_mappings),
		cmocka_unit_test(large_text_takes_several_slots),
		cmocka_unit_test(text_around_address_0_ends),
		cmocka_unit_test(made_up_text_is_refused),
		cmocka_unit_test(exec_replaces_and_never_goes_back),
		cmocka_unit_test(runtimes_cut_mappings),
		cmocka_unit_test(generated_code_grows),
		cmocka_unit_test(what_a_runtime_says_is_written_when_it_changes),
		cmocka_unit_test(a_tag_leads_to_its_files_rows),
		cmocka_unit_test(a_file_that_is_parsed_again_keeps_its_rows),
		cmocka_unit_test(an_image_says_where_a_runtimes_code_is),
		cmocka_unit_test(an_image_that_may_have_a_runtime_needs_the_process),
		cmocka_unit_test(a_tag_does_not_outlive_its_files_table),
		cmocka_unit_test(an_image_that_could_not_be_updated_is_gone),
		cmocka_unit_test(images_have_a_limit),
		cmocka_unit_test(images_of_one_namespace_leave_room),
		cmocka_unit_test(a_namespace_pushes_out_no_images_that_several_use),
		cmocka_unit_test(images_that_several_use_leave_room),
		cmocka_unit_test(an_image_of_many_places_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
