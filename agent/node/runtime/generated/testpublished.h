/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: this program has generated code, and podflame reads what it publishes of it. */
#pragma once

#include "node/runtime/generated/generated.h"
#include "node/runtime/generated/testgenerated.h"
#include "node/runtime/testlive.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PUBLISHED_CODE_BYTES (4u << 16)

static struct {
	struct live_process live;
	uint64_t code; /* the address of the generated code */
	struct generated_facts facts;
} published;

/* Maps the code, and reads the mappings and their files. */
static inline void published_open(void)
{
	void *p = mmap(NULL, PUBLISHED_CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	published.code = (uint64_t)p;
	live_open(&published.live, getpid());
}

static inline void published_close(void)
{
	live_forget(&published.live);
	munmap((void *)published.code, PUBLISHED_CODE_BYTES);
}

static inline int published_read_own(void *arg, uint64_t at, void *to, size_t n)
{
	struct iovec here = {to, n}, there = {(void *)at, n};

	(void)arg;
	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)n ? 0 : -EFAULT;
}

/* Reads here, through `read`, without a child. Returns the index; NULL: there are no rows. */
static inline struct elf_index *published_read(int (*read)(void *arg, uint64_t at, void *to,
							   size_t n))
{
	struct memory m = {.read = read, .budget_bytes = MEMORY_BUDGET};
	const struct runtime_look look = {
		.maps = published.live.maps, .indexes = published.live.indexes, .memory = &m};
	struct elf_index *index = NULL;
	struct buf out = {0};
	size_t n;
	char *data;

	runtime_generated_read(&look, &published.facts, &out);
	n = out.len;
	data = buf_steal(&out);
	if (n)
		assert_int_equal(elf_index_borrow(data, n, free, data, &index), 0);
	else
		free(data);
	return index;
}

/* Returns the rule of an address. NULL: there is none. */
static inline const struct pf_rule *published_rule(const struct elf_index *i, uint64_t address)
{
	const struct pf_row *row = NULL;
	struct elf_tables t;

	elf_index_tables(i, &t);
	for (size_t p = 0; p < t.n_pages; p++)
		for (uint32_t k = 0; k < t.pages[p].n_rows; k++) {
			const struct pf_row *x = &t.rows[t.pages[p].first_row + k];

			if (t.pages[p].number == address >> PF_PAGE_BITS &&
			    x->address <= (address & (PF_PAGE_BYTES - 1)))
				row = x;
		}
	return row && row->rule < t.n_rules ? &t.rules[row->rule] : NULL;
}

static inline void published_assert_rows(const struct elf_index *i, uint64_t start, uint64_t end)
{
	assert_non_null(i);
	assert_null(published_rule(i, start - 1));
	assert_null(published_rule(i, end));
	for (uint64_t at = start; at < end; at += 997) {
		const struct pf_rule *r = published_rule(i, at);

		assert_non_null(r);
		assert_int_equal(r->cfa, PF_CFA_RSP);
		assert_int_equal(r->cfa_offset, TEST_CFA);
		assert_int_equal(r->ra, PF_RA_CFA8);
	}
}
