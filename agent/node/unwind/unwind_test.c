/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the manager puts into the kernel, looked up as the kernel does, against the indexes
 * themselves. The kernel is memory here; it knows what somebody may still be reading, and no
 * write may go there.
 */
#include "lib/symbols/format.h"
#include "node/runtime/internal.h"
#include "node/unwind/internal.h"

#include <setjmp.h>

#include <cmocka.h>

/* ---- the kernel ---- */

#define GRANULES (PF_CHUNK_BYTES / GRANULE_BYTES)

struct slot_value {
	struct pf_process_key key;
	struct pf_process value;
	bool set;
};
static struct kernel {
	uint8_t *chunks[PF_CHUNKS_MAX];
	uint8_t (*read)[GRANULES]; /* of each chunk: reachable, or was since the last grace */
	struct pf_file files[PF_FILES_MAX];
	struct slot_value processes[PF_PROCESSES_MAX];
	size_t n_slots; /* the others were never set */
	unsigned n_graces, n_chunks;
	size_t n_written;
	int fail; /* of writes: -errno */
} kernel;

static void mark(uint32_t ref, size_t bytes)
{
	size_t first = PF_REF_BYTES(ref) / GRANULE_BYTES;

	assert_true(PF_REF_BYTES(ref) + bytes <= PF_CHUNK_BYTES);
	for (size_t i = first; i * GRANULE_BYTES < PF_REF_BYTES(ref) + bytes; i++)
		kernel.read[PF_REF_CHUNK(ref)][i] = 1;
}

static const void *at(uint32_t ref)
{
	assert_non_null(kernel.chunks[PF_REF_CHUNK(ref)]);
	return kernel.chunks[PF_REF_CHUNK(ref)] + PF_REF_BYTES(ref);
}

static void mark_file(const struct pf_file *f)
{
	const struct pf_page *pages;

	if (f->state != PF_FILE_READY || !f->n_pages)
		return;
	mark(f->pages, f->n_pages * sizeof(*pages));
	if (f->n_rules)
		mark(f->rules, f->n_rules * sizeof(struct pf_rule));
	pages = at(f->pages);
	for (uint32_t i = 0; i < f->n_pages; i++)
		if (pages[i].n_rows)
			mark(pages[i].rows, pages[i].n_rows * sizeof(struct pf_row));
}

static void mark_process(const struct pf_process *p)
{
	for (uint32_t i = 0; i < p->n_runtimes; i++)
		if (p->runtimes[i].kind)
			mark(p->runtimes[i].data, sizeof(uint64_t));
	for (uint32_t i = 0; i < p->n_parts; i++) {
		const struct pf_mapping *m = at(p->parts[i].mappings);

		mark(p->parts[i].mappings, p->parts[i].n * sizeof(*m));
		for (uint32_t k = 0; k < p->parts[i].n; k++)
			mark_file(&kernel.files[m[k].file]);
	}
}

static int k_write(void *arg, uint32_t chunk, uint32_t offset, const void *bytes, size_t n)
{
	(void)arg;
	assert_true(chunk < PF_CHUNKS_MAX && offset + n <= PF_CHUNK_BYTES && n > 0);
	if (kernel.fail)
		return kernel.fail;
	if (!kernel.chunks[chunk]) {
		kernel.chunks[chunk] = xcalloc(1, PF_CHUNK_BYTES);
		kernel.n_chunks++;
	}
	for (size_t i = offset / GRANULE_BYTES; i * GRANULE_BYTES < offset + n; i++)
		assert_int_equal(kernel.read[chunk][i], 0);
	memcpy(kernel.chunks[chunk] + offset, bytes, n);
	kernel.n_written += n;
	return 0;
}

static int k_flush(void *arg)
{
	(void)arg;
	return 0;
}

static int k_drop_chunk(void *arg, uint32_t chunk)
{
	(void)arg;
	for (size_t i = 0; i < GRANULES; i++)
		assert_int_equal(kernel.read[chunk][i], 0);
	kernel.n_chunks -= kernel.chunks[chunk] != NULL;
	free(kernel.chunks[chunk]);
	kernel.chunks[chunk] = NULL;
	return 0;
}

static int k_set_file(void *arg, uint32_t slot, const struct pf_file *f)
{
	(void)arg;
	assert_true(slot < PF_FILES_MAX);
	kernel.files[slot] = *f;
	return 0;
}

static struct slot_value *find(const struct pf_process_key *k, bool add)
{
	struct slot_value *free_one = NULL;

	for (size_t i = 0; i < kernel.n_slots; i++) {
		struct slot_value *s = &kernel.processes[i];

		if (s->set && memcmp(&s->key, k, sizeof(*k)) == 0)
			return s;
		if (!s->set && !free_one)
			free_one = s;
	}
	if (add && !free_one && kernel.n_slots < ARRAY_SIZE(kernel.processes))
		free_one = &kernel.processes[kernel.n_slots++];
	return add ? free_one : NULL;
}

static int k_set_process(void *arg, const struct pf_process_key *k, const struct pf_process *p)
{
	struct slot_value *s = find(k, true);

	(void)arg;
	if (!s)
		return -E2BIG;
	*s = (struct slot_value){*k, *p, true};
	mark_process(p);
	return 0;
}

static int k_remove_process(void *arg, const struct pf_process_key *k)
{
	struct slot_value *s = find(k, false);

	(void)arg;
	assert_non_null(s);
	s->set = false;
	return 0;
}

static void mark_all(void)
{
	for (size_t i = 0; i < kernel.n_slots; i++)
		if (kernel.processes[i].set)
			mark_process(&kernel.processes[i].value);
}

static int k_grace(void *arg)
{
	(void)arg;
	kernel.n_graces++;
	memset(kernel.read, 0, PF_CHUNKS_MAX * sizeof(*kernel.read));
	mark_all();
	return 0;
}

static const struct unwind_ops ops = {k_write,	     k_flush,	       k_drop_chunk, k_set_file,
				      k_set_process, k_remove_process, k_grace};

static struct unwind *start(size_t budget)
{
	struct unwind *u;

	memset(&kernel, 0, sizeof(kernel));
	kernel.read = xcalloc(PF_CHUNKS_MAX, sizeof(*kernel.read));
	assert_int_equal(unwind_new(&ops, NULL, budget, &u), 0);
	return u;
}

static void end(struct unwind *u)
{
	for (size_t i = 0; i < PF_CHUNKS_MAX; i++)
		free(kernel.chunks[i]);
	free(kernel.read);
	unwind_free(u);
}

/* ---- look-ups, as bpf/ does them ---- */

enum found { NO_PROCESS, NO_MAPPING, PENDING, NONE, GAP, ROW };
struct answer {
	enum found what;
	uint16_t special; /* of a row: the rule's number when it is no rule */
	struct pf_rule rule;
};

static const struct pf_mapping *find_mapping(const struct pf_process *p, uint64_t address)
{
	for (uint32_t i = p->n_parts; i-- > 0;) {
		const struct pf_mapping *m = at(p->parts[i].mappings);

		assert_int_equal(p->parts[i].start, m[0].start);
		if (address < m[0].start)
			continue;
		for (uint32_t k = 0; k < p->parts[i].n; k++)
			if (address >= m[k].start && address < m[k].end)
				return &m[k];
		return NULL;
	}
	return NULL;
}

static struct answer find_row(const struct pf_file *f, uint64_t address)
{
	uint64_t page = (address >> PF_PAGE_BITS) - f->first_page;
	const struct pf_page *p;
	const struct pf_row *rows;
	uint32_t k;

	if (page >= f->n_pages)
		return (struct answer){GAP, 0, {0}};
	p = (const struct pf_page *)at(f->pages) + page;
	if (!p->n_rows)
		return (struct answer){GAP, 0, {0}};
	rows = at(p->rows);
	for (k = 1; k < p->n_rows && rows[k].address <= (address & 0xffff); k++)
		;
	if (rows[k - 1].rule >= PF_RULE_SPECIAL_MIN)
		return (struct answer){ROW, rows[k - 1].rule, {0}};
	assert_true(rows[k - 1].rule < f->n_rules);
	return (struct answer){ROW, 0, ((const struct pf_rule *)at(f->rules))[rows[k - 1].rule]};
}

static struct answer look_up(const struct mappings *m, uint64_t address)
{
	struct pf_process_key key = {m->start_boottime_ns, m->tgid, m->exec_id};
	struct slot_value *s = find(&key, false);
	const struct pf_mapping *x;
	const struct pf_file *f;

	if (!s)
		return (struct answer){NO_PROCESS, 0, {0}};
	assert_int_equal(s->value.exec_pages, m->exec_pages);
	x = find_mapping(&s->value, address);
	if (!x)
		return (struct answer){NO_MAPPING, 0, {0}};
	f = &kernel.files[x->file];
	if (f->state != PF_FILE_READY)
		return (struct answer){f->state == PF_FILE_NONE ? NONE : PENDING, 0, {0}};
	return find_row(f, address - x->bias);
}

/* What the index says, without any of it. */
static struct answer expected(const struct elf_index *i, uint64_t address)
{
	struct answer a = {GAP, 0, {0}};
	struct elf_tables t;

	elf_index_tables(i, &t);
	for (size_t p = 0; p < t.n_pages; p++) {
		const struct pf_row *rows = t.rows + t.pages[p].first_row;

		if (t.pages[p].number != address >> PF_PAGE_BITS)
			continue;
		for (uint32_t k = 0; k < t.pages[p].n_rows; k++) {
			if (rows[k].address > (address & 0xffff))
				break;
			a = (struct answer){ROW, 0, {0}};
			if (rows[k].rule >= PF_RULE_SPECIAL_MIN)
				a.special = rows[k].rule;
			else
				a.rule = t.rules[rows[k].rule];
		}
	}
	return a;
}

/* ---- indexes ---- */

struct page_spec {
	uint32_t number, n_rows;
};

/* Rows at even distances; seed makes two files of one shape different. One segment: text at
 * file offset 0 and ELF address 0. */
static struct elf_index *make_index(const struct page_spec *pages, size_t n_pages, uint32_t n_rules,
				    unsigned seed)
{
	struct index_header h = {.string_bytes = 1, .build_id_bytes = 4};
	struct index_segment text = {0, 0, 1ULL << 46, 1, 0};
	_cleanup_buf_ struct buf b = {0};
	struct elf_index *i;
	uint32_t n_rows = 0;
	char *text_bytes;
	size_t bytes;

	for (size_t p = 0; p < n_pages; p++)
		n_rows += pages[p].n_rows;
	memcpy(h.magic, INDEX_MAGIC, 8);
	memcpy(h.build_id, &seed, 4);
	h.n[INDEX_segments] = 1;
	h.n[INDEX_pages] = n_pages;
	h.n[INDEX_rows] = n_rows;
	h.n[INDEX_rules] = n_rules;
	buf_add(&b, &h, sizeof(h));
	buf_add(&b, &text, sizeof(text));
	n_rows = 0;
	for (size_t p = 0; p < n_pages; p++) {
		struct elf_page x = {pages[p].number, pages[p].n_rows, n_rows, 0};

		buf_add(&b, &x, sizeof(x));
		n_rows += pages[p].n_rows;
	}
	for (size_t p = 0; p < n_pages; p++)
		for (uint32_t k = 0; k < pages[p].n_rows; k++) {
			uint16_t address = k * (65536u / pages[p].n_rows);
			uint16_t rule = (k + seed + pages[p].number) % (n_rules + 1);
			struct pf_row r = {address, rule == n_rules ? PF_RULE_GAP : rule};

			buf_add(&b, &r, sizeof(r));
		}
	if (n_rows % 2)
		buf_add(&b, "\0\0\0\0", 4);
	for (uint32_t k = 0; k < n_rules; k++)
		buf_add(&b, &(struct pf_rule){.cfa_offset = 8 * k + seed * 65536}, 16);
	buf_putc(&b, '\0');
	bytes = b.len;
	text_bytes = buf_steal(&b);
	assert_int_equal(elf_index_borrow(text_bytes, bytes, free, text_bytes, &i), 0);
	return i;
}

static struct elf_index *small_index(unsigned seed)
{
	const struct page_spec pages[] = {{1, 900}, {2, 1100}, {4, 3}};

	return make_index(pages, ARRAY_SIZE(pages), 20, seed);
}

/* About bytes of rows. */
static struct elf_index *index_of(size_t bytes, unsigned seed)
{
	size_t n = bytes / 16384;
	_cleanup_free_ struct page_spec *pages = xcalloc(n, sizeof(*pages));

	for (size_t i = 0; i < n; i++)
		pages[i] = (struct page_spec){i, 4096};
	return make_index(pages, n, 30, seed);
}

/* ---- processes ---- */

#define MAX_MAPPINGS 20000
struct proc {
	struct mappings m;
	struct mapping items[MAX_MAPPINGS];
	struct elf_index *indexes[MAX_MAPPINGS];
	bool pending[MAX_MAPPINGS];
	struct runtime_process *runtimes;
};

static char path_of_file[] = "/usr/lib/x.so", path_of_jit[] = "";

static struct proc *proc_new(uint32_t tgid)
{
	struct proc *p = xcalloc(1, sizeof(*p));

	p->m = (struct mappings){.tgid = tgid,
				 .exec_id = 1,
				 .start_boottime_ns = 1000000 + tgid,
				 .items = p->items,
				 .exec_pages = tgid};
	return p;
}

/* index NULL: path "" is JIT code, else a file without an index. */
static void map(struct proc *p, uint64_t begin, uint64_t bytes, uint64_t offset,
		struct elf_index *index)
{
	p->indexes[p->m.n] = index;
	p->items[p->m.n++] = (struct mapping){
		.start = begin, .end = begin + bytes, .file_offset = offset, .path = path_of_file};
}

static int put(struct unwind *u, const struct proc *p)
{
	return unwind_process(u, &p->m, p->indexes, p->pending, p->runtimes);
}

static void assert_same(const struct proc *p, size_t k, uint64_t address)
{
	uint64_t bias = p->items[k].start - p->items[k].file_offset;
	struct answer a = look_up(&p->m, address), b = expected(p->indexes[k], address - bias);

	assert_int_equal(a.what, b.what);
	assert_int_equal(a.special, b.special);
	assert_memory_equal(&a.rule, &b.rule, sizeof(a.rule));
}

/* Every row's neighbourhood would be slow: steps that hit all of them on small files. */
static void assert_mapping(const struct proc *p, size_t k, uint64_t step)
{
	const struct mapping *m = &p->items[k];

	for (uint64_t a = m->start; a < m->end; a += step)
		assert_same(p, k, a);
	assert_same(p, k, m->end - 1);
}

/* ---- tests ---- */

static void rows_are_found_as_the_index_has_them(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1), *b = small_index(2),
			 *empty = make_index(NULL, 0, 0, 3);
	struct proc *p = proc_new(7);
	struct unwind_stats s;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	map(p, 0x500000, 0x20000, 0x10000, b); /* cut: the file's second page first */
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
	elf_index_unref(a); /* held */
	assert_mapping(q, 0, 4099);
	assert_mapping(r, 0, 4099);
	/* the same again changes nothing */
	written = kernel.n_written;
	q->m.exec_pages = 99;
	assert_int_equal(put(u, q), 0);
	assert_int_equal(kernel.n_written, written);
	assert_mapping(q, 0, 65521); /* looks at exec_pages */
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
	map(p, 0x413000, 0x1000, 0, a); /* next to it, from elsewhere in the file */
	map(p, 0x413800, 0x1000, 0, a); /* overlaps: read while it changed */
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
	assert_mapping(p, 2047, 64);
	assert_mapping(p, 2048, 64);
	assert_mapping(p, 16383, 64);
	map(p, 0x90000000, 0x1000, 0x10000, a);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(counter_get(cut), 1);
	unwind_stats(u, &s);
	assert_int_equal(s.n_mappings, 16384);
	/* back to few: the room comes back when it is wanted */
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

/* 1.5 GiB of text with a hole: three slots, one mapping in pieces. */
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
	unwind_exited(u, 1, after->m.start_boottime_ns);
	assert_int_equal(look_up(&after->m, 0x410000).what, NO_PROCESS);
	unwind_exited(u, 1, after->m.start_boottime_ns);
	unwind_stats(u, &s);
	assert_int_equal(s.n_processes, 0);
	assert_int_equal(s.n_mappings, 0);
	assert_int_equal(s.n_files, 2); /* until room is needed */
	end(u);
	elf_index_unref(a);
	elf_index_unref(b);
	free(before);
	free(after);
}

static const struct slot_value *value_of(const struct proc *p)
{
	const struct pf_process_key key = {p->m.start_boottime_ns, p->m.tgid, p->m.exec_id};
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

static void runs(struct proc *p, enum pf_runtime_kind k, uint64_t data, uint64_t start,
		 uint64_t end, bool managed)
{
	struct runtime_learnt l = {.data_bytes = data ? sizeof(data) : 0, .n_ranges = 1};

	l.data = data ? xmemdup(&data, sizeof(data)) : NULL;
	l.ranges = xmemdup(&(struct runtime_range){start, end, managed}, sizeof(*l.ranges));
	p->runtimes = runtime_process_with(p->runtimes, &p->m, k, &l);
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
	assert_mapping(p, 0, 29); /* its rules hold as before */
	assert_int_equal(runtime_at(p, 0x410000), 0);
	assert_int_equal(runtime_at(p, 0x410001), 1);
	assert_int_equal(runtime_at(p, 0x411fff), 1);
	assert_int_equal(runtime_at(p, 0x412000), 0);
	/* of generated code only what is a runtime's is told */
	assert_int_equal(look_up(&p->m, 0x701fff).what, NO_MAPPING);
	assert_int_equal(look_up(&p->m, 0x702000).what, GAP);
	assert_int_equal(runtime_at(p, 0x702fff), 2 | PF_MANAGED);
	assert_int_equal(look_up(&p->m, 0x703000).what, NO_MAPPING);
	assert_int_equal(look_up(&p->m, 0x801000).what, NO_MAPPING);
	v = &value_of(p)->value;
	assert_int_equal(v->n_runtimes, 3);
	assert_int_equal(v->runtimes[0].kind, PF_RUNTIME_PYTHON);
	assert_int_equal(v->runtimes[1].kind, PF_RUNTIME_JVM);
	assert_int_equal(v->runtimes[2].kind, PF_RUNTIME_NONE); /* known, not walked */
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

/* What is made behind it is a runtime's, too, before anyone has looked again. */
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

static bool is_even(uint32_t tgid, uint64_t start_boottime_ns, void *arg)
{
	(void)arg;
	assert_int_equal(start_boottime_ns, 1000000 + tgid);
	return tgid % 2 == 0;
}

static void gone_processes_are_swept(void **state)
{
	struct unwind *u = start(0);
	struct elf_index *a = small_index(1);
	struct proc *p[6];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = proc_new(i);
		map(p[i], 0x400000, 0x60000, 0, a);
		assert_int_equal(put(u, p[i]), 0);
	}
	unwind_sweep(u, is_even, NULL);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		assert_int_equal(look_up(&p[i]->m, 0x410000).what, i % 2 ? NO_PROCESS : ROW);
		free(p[i]);
	}
	end(u);
	elf_index_unref(a);
}

/* ---- budget ---- */

/* 4 MiB hold seven files of half a MiB, less what is kept for mappings. */
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
		if (i) /* the first one stays, the oldest of all */
			unwind_exited(u, p[i]->m.tgid, p[i]->m.start_boottime_ns);
	}
	assert_mapping(p[0], 0, 9973);
	unwind_stats(u, &s);
	assert_true(s.chunk_bytes <= 4 << 20);
	assert_true(s.n_evicted >= 4);
	assert_true(kernel.n_graces <= 12);
	assert_int_equal(s.n_files_without, 0);
	/* what was evicted comes back */
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
	/* mappings find a place all the same, and no file was taken from who uses it */
	map(q, 0x400000, 0x1000, 0, small);
	assert_int_equal(put(u, q), 0);
	assert_mapping(p[0], 0, 9973);
	/* as many end as wait: each gets its table, its process is not told of again */
	for (uint32_t i = 0; i < n_without; i++)
		unwind_exited(u, p[i]->m.tgid, p[i]->m.start_boottime_ns);
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

/* One pod with very many mappings does not push the others out. */
static void mappings_have_a_share(void **state)
{
	struct unwind *u = start(1 << 20);
	struct elf_index *a = small_index(1);
	struct proc *p[4], *q = proc_new(100);

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = proc_new(i);
		for (size_t k = 0; k < 4000; k++)
			map(p[i], 0x10000000 + k * 0x2000, 0x1000, 0x10000, a);
		assert_int_equal(put(u, p[i]), i < 2 ? 0 : -ENOSPC);
	}
	map(q, 0x400000, 0x60000, 0, a);
	assert_int_equal(put(u, q), 0);
	assert_mapping(q, 0, 4099);
	assert_mapping(p[1], 3999, 511);
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

/* The kernel's table is full: the one that changed longest ago goes, a new exec finds a place, too. */
static void processes_make_room(void **state)
{
	struct unwind *u = start(64 << 20);
	struct elf_index *a = small_index(1);
	struct proc *p = proc_new(0);
	struct unwind_stats s;

	(void)state;
	map(p, 0x400000, 0x60000, 0, a);
	for (p->m.tgid = 0; p->m.tgid < PF_PROCESSES_MAX; p->m.tgid++)
		assert_int_equal(put(u, p), 0);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(look_up(&p->m, 0x410000).what, ROW);
	p->m.tgid = 0;
	assert_int_equal(look_up(&p->m, 0x410000).what, NO_PROCESS);
	p->m.tgid = 1;
	exec(p);
	assert_int_equal(put(u, p), 0);
	assert_int_equal(look_up(&p->m, 0x410000).what, ROW);
	unwind_stats(u, &s);
	assert_true(s.n_processes >= PF_PROCESSES_MAX - 1);
	end(u);
	elf_index_unref(a);
	free(p);
}

/* Tables that nobody used may be used again: then, too, the next processes' mappings find a place. */
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
		unwind_exited(u, p[i]->m.tgid, p[i]->m.start_boottime_ns);
	}
	unwind_stats(u, &s);
	assert_in_range(s.n_evicted, 1, ARRAY_SIZE(p) - 2);
	for (uint32_t i = s.n_evicted; i < ARRAY_SIZE(p); i++)
		assert_int_equal(put(u, p[i]), 0);
	for (uint32_t i = 0; i < N_MANY; i++)
		map(many, 0x400000 + i * 0x20000, 0x10000, 0, index[ARRAY_SIZE(p) - 1 - i % 2]);
	for (; many->m.tgid < ARRAY_SIZE(p) + 12; many->m.tgid++)
		assert_int_equal(put(u, many), 0);
	end(u);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		elf_index_unref(index[i]);
		free(p[i]);
	}
	free(many);
}

/* Names may be far larger than tables: a pod's files do not take the agent's memory. */
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
	/* what nobody uses makes room */
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++)
		unwind_exited(u, i, p[i]->m.start_boottime_ns);
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
	/* another program's tables are worse than none */
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

/* ---- anything, in any order ---- */

#define N_RANDOM_FILES 24
#define N_RANDOM_PROCS 16

/* Cuts mappings anywhere, into each other's too: the files' rows hold all the same. */
static void random_runtimes(struct proc *p)
{
	p->runtimes = runtime_process_unref(p->runtimes);
	for (size_t n = random_below(PF_RUNTIMES_MAX + 1); n > 0; n--) {
		/* all processes' together fit into what tables leave: nothing here is refused */
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
			unwind_exited(u, p[i]->m.tgid, p[i]->m.start_boottime_ns);
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
		unwind_exited(u, p[i]->m.tgid, p[i]->m.start_boottime_ns);
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
	struct space *s = space_new(4 * PF_CHUNK_BYTES);
	struct extent e[64] = {0}, all;
	uint32_t chunk;

	(void)state;
	for (unsigned round = 0; round < 5000; round++) {
		struct extent *x = &e[random_below(ARRAY_SIZE(e))];

		if (x->bytes) {
			space_give(s, *x);
			*x = (struct extent){0};
			continue;
		}
		if (space_take(s, 1 + random_below(9000), x) < 0)
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
			space_give(s, e[i]);
	assert_int_equal(space_used_bytes(s), 0);
	/* whole again */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(space_take(s, PF_CHUNK_BYTES, &e[i]), 0);
	assert_int_equal(space_take(s, 1, &all), -ENOSPC);
	assert_int_equal(space_empty_chunk(s, &chunk), -ENOENT);
	space_give(s, e[2]);
	assert_int_equal(space_empty_chunk(s, &chunk), 0);
	assert_int_equal(chunk, PF_REF_CHUNK(e[2].ref));
	assert_int_equal(space_chunk_bytes(s), 3 * PF_CHUNK_BYTES);
	space_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(extents_never_overlap),
		cmocka_unit_test(rows_are_found_as_the_index_has_them),
		cmocka_unit_test(equal_files_are_written_once),
		cmocka_unit_test(pieces_of_a_mapping_are_one),
		cmocka_unit_test(thousands_of_mappings),
		cmocka_unit_test(large_text_takes_several_slots),
		cmocka_unit_test(made_up_text_is_refused),
		cmocka_unit_test(exec_replaces_and_never_goes_back),
		cmocka_unit_test(runtimes_cut_mappings),
		cmocka_unit_test(generated_code_grows),
		cmocka_unit_test(what_a_runtime_says_is_written_when_it_changes),
		cmocka_unit_test(gone_processes_are_swept),
		cmocka_unit_test(unused_files_make_room),
		cmocka_unit_test(over_budget_is_told_and_tried_again),
		cmocka_unit_test(mappings_have_a_share),
		cmocka_unit_test(processes_make_room),
		cmocka_unit_test(tables_used_again_leave_room),
		cmocka_unit_test(indexes_have_a_limit),
		cmocka_unit_test(refusing_kernel),
		cmocka_unit_test(any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
