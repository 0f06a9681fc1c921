/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of unwind only: here the kernel is memory. It knows which bytes a BPF program may still
 * be reading, and asserts that no write changes these bytes. The header also has look-ups as bpf/
 * does them, and made-up indexes and processes.
 */
#pragma once

#include "lib/symbols/format.h"
#include "node/runtime/testruntime.h"
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
	/*
	 * for each granule of each chunk: whether a program can read it, or could since the last
	 * grace
	 */
	uint8_t (*read)[GRANULES];
	struct pf_file files[PF_FILES_MAX];
	struct slot_value processes[PF_PROCESSES_MAX];
	size_t n_slots; /* slots from here on were never set */
	struct pf_image images[PF_IMAGES_MAX + 64];
	size_t n_tags, n_images; /* tags from n_tags on were never set */
	unsigned n_graces, n_chunks;
	size_t n_written;
	int fail; /* -errno that write, set_process and set_image return; 0: they work */
} kernel;

static inline void mark(uint32_t ref, size_t bytes)
{
	size_t first = PF_REF_BYTES(ref) / GRANULE_BYTES;

	assert_true(PF_REF_BYTES(ref) + bytes <= PF_CHUNK_BYTES);
	for (size_t i = first; i * GRANULE_BYTES < PF_REF_BYTES(ref) + bytes; i++)
		kernel.read[PF_REF_CHUNK(ref)][i] = 1;
}

static inline const void *at(uint32_t ref)
{
	assert_non_null(kernel.chunks[PF_REF_CHUNK(ref)]);
	return kernel.chunks[PF_REF_CHUNK(ref)] + PF_REF_BYTES(ref);
}

static inline void mark_file(const struct pf_file *f)
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

static inline void mark_process(const struct pf_process *p)
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

static inline void mark_image(const struct pf_image *i)
{
	for (uint32_t k = 0; k < i->n_pieces; k++)
		mark_file(&kernel.files[i->pieces[k].file]);
}

static inline int k_write(void *arg, uint32_t chunk, uint32_t offset, const void *bytes, size_t n)
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

static inline int k_flush(void *arg)
{
	(void)arg;
	return 0;
}

static inline int k_drop_chunk(void *arg, uint32_t chunk)
{
	(void)arg;
	for (size_t i = 0; i < GRANULES; i++)
		assert_int_equal(kernel.read[chunk][i], 0);
	kernel.n_chunks -= kernel.chunks[chunk] != NULL;
	free(kernel.chunks[chunk]);
	kernel.chunks[chunk] = NULL;
	return 0;
}

static inline int k_set_file(void *arg, uint32_t slot, const struct pf_file *f)
{
	(void)arg;
	assert_true(slot < PF_FILES_MAX);
	kernel.files[slot] = *f;
	return 0;
}

static inline struct slot_value *find(const struct pf_process_key *k, bool add)
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

static inline int k_set_process(void *arg, const struct pf_process_key *k,
				const struct pf_process *p)
{
	struct slot_value *s = find(k, true);

	(void)arg;
	if (!s || kernel.fail)
		return s ? kernel.fail : -E2BIG;
	*s = (struct slot_value){*k, *p, true};
	mark_process(p);
	return 0;
}

static inline int k_remove_process(void *arg, const struct pf_process_key *k)
{
	struct slot_value *s = find(k, false);

	(void)arg;
	assert_non_null(s);
	s->set = false;
	return 0;
}

/* Tags of tests are small numbers. */
#define TEST_TAGS (PF_IMAGES_MAX + 64)

static inline int k_set_image(void *arg, uint64_t tag, const struct pf_image *i)
{
	(void)arg;
	assert_true(tag < TEST_TAGS);
	if (kernel.fail)
		return kernel.fail;
	kernel.n_images += !kernel.images[tag].n_pieces;
	kernel.n_tags = MAX(kernel.n_tags, tag + 1);
	kernel.images[tag] = *i;
	mark_image(i);
	return 0;
}

static inline int k_remove_image(void *arg, uint64_t tag)
{
	(void)arg;
	assert_true(tag < TEST_TAGS);
	kernel.n_images -= kernel.images[tag].n_pieces > 0;
	kernel.images[tag].n_pieces = 0;
	return 0;
}

static inline void mark_all(void)
{
	for (size_t i = 0; i < kernel.n_slots; i++)
		if (kernel.processes[i].set)
			mark_process(&kernel.processes[i].value);
	for (size_t i = 0; i < kernel.n_tags; i++)
		mark_image(&kernel.images[i]);
}

static inline int k_grace(void *arg)
{
	(void)arg;
	kernel.n_graces++;
	memset(kernel.read, 0, PF_CHUNKS_MAX * sizeof(*kernel.read));
	mark_all();
	return 0;
}

static const struct unwind_ops ops = {k_write,	   k_flush,	   k_drop_chunk,
				      k_set_file,  k_set_process,  k_remove_process,
				      k_set_image, k_remove_image, k_grace};

static inline struct unwind *start(size_t budget)
{
	struct unwind *u;

	memset(&kernel, 0, sizeof(kernel));
	kernel.read = xcalloc(PF_CHUNKS_MAX, sizeof(*kernel.read));
	assert_int_equal(unwind_new(&ops, NULL, budget, &u), 0);
	return u;
}

static inline void end(struct unwind *u)
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
	uint16_t special; /* the number of a row's rule, if it is one of enum pf_rule_special */
	struct pf_rule rule;
};

static inline const struct pf_mapping *find_mapping(const struct pf_process *p, uint64_t address)
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

static inline struct answer find_row(const struct pf_file *f, uint64_t address)
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

static inline struct answer look_up(const struct mappings *m, uint64_t address)
{
	struct pf_process_key key = {m->id.start_boottime_ns, (uint32_t)m->id.tgid, m->exec_id};
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

/* Returns the answer that the index itself gives, without unwind and the kernel. */
static inline struct answer expected(const struct elf_index *i, uint64_t address)
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

/*
 * Makes an index with rows at equal distances, and with one segment. Two files of the same shape
 * differ by their seed.
 */
static inline struct elf_index *make_index_of(struct index_segment text,
					      const struct page_spec *pages, size_t n_pages,
					      uint32_t n_rules, unsigned seed)
{
	struct index_header h = {.string_bytes = 1, .build_id_bytes = 4};
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

/* Makes an index whose code is at file offset 0 and ELF address 0. */
static inline struct elf_index *make_index(const struct page_spec *pages, size_t n_pages,
					   uint32_t n_rules, unsigned seed)
{
	return make_index_of((struct index_segment){0, 0, 1ULL << 46, 1, 0}, pages, n_pages,
			     n_rules, seed);
}

static inline struct elf_index *small_index(unsigned seed)
{
	const struct page_spec pages[] = {{1, 900}, {2, 1100}, {4, 3}};

	return make_index(pages, ARRAY_SIZE(pages), 20, seed);
}

/* Makes an index with about this many bytes of rows. */
static inline struct elf_index *index_of(size_t bytes, unsigned seed)
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
	uint64_t charged_ns;
};

static char path_of_file[] = "/usr/lib/x.so";

static inline struct proc *proc_new(uint32_t tgid)
{
	struct proc *p = xcalloc(1, sizeof(*p));

	p->m = (struct mappings){
		.id = {1000000 + tgid, tgid}, .exec_id = 1, .items = p->items, .exec_pages = tgid};
	return p;
}

/*
 * Adds a mapping. index NULL: the mapping is JIT code if its path is "", else a file without an
 * index.
 */
static inline void map(struct proc *p, uint64_t begin, uint64_t bytes, uint64_t offset,
		       struct elf_index *index)
{
	p->indexes[p->m.n] = index;
	p->items[p->m.n++] = (struct mapping){
		.start = begin, .end = begin + bytes, .file_offset = offset, .path = path_of_file};
}

static inline int put(struct unwind *u, const struct proc *p)
{
	return unwind_process(u, &p->m, p->charged_ns, p->indexes, p->pending, p->runtimes);
}

static inline void assert_same(const struct proc *p, size_t k, uint64_t address)
{
	uint64_t bias = p->items[k].start - p->items[k].file_offset;
	struct answer a = look_up(&p->m, address), b = expected(p->indexes[k], address - bias);

	assert_int_equal(a.what, b.what);
	assert_int_equal(a.special, b.special);
	assert_memory_equal(&a.rule, &b.rule, sizeof(a.rule));
}

/*
 * Compares the answers for every step-th address of a mapping with those of its index. To look at
 * each row would be slow; on small files, the steps hit all rows.
 */
static inline void assert_mapping(const struct proc *p, size_t k, uint64_t step)
{
	const struct mapping *m = &p->items[k];

	for (uint64_t a = m->start; a < m->end; a += step)
		assert_same(p, k, a);
	assert_same(p, k, m->end - 1);
}

static inline void runs(struct proc *p, enum pf_runtime_kind k, uint64_t data, uint64_t start,
			uint64_t end, bool managed)
{
	struct runtime_learnt l = {.data_bytes = data ? sizeof(data) : 0, .n_ranges = 1};

	l.data = data ? xmemdup(&data, sizeof(data)) : NULL;
	l.ranges = xmemdup(&(struct runtime_range){start, end, managed}, sizeof(*l.ranges));
	p->runtimes = runtime_process_with(p->runtimes, &p->m, k, &l);
}
