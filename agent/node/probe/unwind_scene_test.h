/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind_scene_test: runs bpf/unwind.h on the host, with stacks written by hand and the rows of one
 * file.
 */
#pragma once

#include "node/probe/testunwindimage.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/*
 * One file, mapped at MAPPED. Its code is two pages of the table, with ELF addresses from ELF_TEXT
 * on. Chunk 0: pages; 1: rows; 2: rules; 3: mappings.
 */
#define MAPPED	  (CODE_BASE + 0x1000)
#define ELF_TEXT  0x30000ull
#define TEXT_SIZE 0x20000ull
#define PAGES	  2

static struct pf_scratch scratch;
static struct pf_row *rows;
static struct pf_rule *rules;
static struct pf_page *pages;
static struct pf_mapping *mappings;

#define STACK_WORDS 4096
static uint64_t stack_words[STACK_WORDS];
static uint8_t code[TEXT_SIZE + 0x2000];

/* Returns the address in the process of an ELF address of the file. */
static inline uint64_t at(uint64_t elf)
{
	return MAPPED + elf - ELF_TEXT;
}

static inline uint64_t stack_at(size_t word)
{
	return STACK_BASE + 8 * word;
}

static inline void row(uint32_t page, uint16_t address, uint16_t rule)
{
	struct pf_page *p = &pages[page];
	struct pf_row *first = rows + page * 256;

	p->rows = PF_REF(1, page * 1024);
	first[p->n_rows++] = (struct pf_row){address, rule};
}

static inline uint16_t rule(struct pf_rule r)
{
	rules[image.files[1].n_rules] = r;
	return image.files[1].n_rules++;
}

#define RSP(offset)                                                                                \
	(struct pf_rule)                                                                           \
	{                                                                                          \
		.cfa = PF_CFA_RSP, .cfa_offset = (offset)                                          \
	}

static inline int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < IMAGE_CHUNKS; i++) {
		free(image.chunks[i]);
		image.chunks[i] = calloc(1, PF_CHUNK_BYTES);
		assert_non_null(image.chunks[i]);
	}
	memset(code, 0x90, sizeof(code)); /* nop */
	memset(stack_words, 0, sizeof(stack_words));
	image.code = code;
	image.n_code = sizeof(code);
	image.stack = (uint8_t *)stack_words;
	image.n_stack = sizeof(stack_words);
	pages = (struct pf_page *)image.chunks[0];
	rows = (struct pf_row *)image.chunks[1];
	rules = (struct pf_rule *)image.chunks[2];
	mappings = (struct pf_mapping *)image.chunks[3];
	image.files[1] = (struct pf_file){
		.state = PF_FILE_READY,
		.first_page = ELF_TEXT >> PF_PAGE_BITS,
		.n_pages = PAGES,
		.pages = PF_REF(0, 0),
		.rules = PF_REF(2, 0),
	};
	mappings[0] = (struct pf_mapping){MAPPED, MAPPED + TEXT_SIZE, MAPPED - ELF_TEXT, .file = 1};
	memset(&scratch, 0, sizeof(scratch));
	scratch.walk.known = true;
	scratch.walk.process = (struct pf_process){
		.n_parts = 1,
		.parts = {{MAPPED, PF_REF(3, 0), 1}},
	};
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < IMAGE_CHUNKS; i++) {
		free(image.chunks[i]);
		image.chunks[i] = NULL;
	}
	return 0;
}

static inline uint64_t walk_once(uint64_t ip, uint64_t sp, uint64_t bp, bool at_entry)
{
	scratch.walk.ip = ip;
	scratch.walk.regs[PF_REG_RSP] = sp;
	scratch.walk.regs[PF_REG_RBP] = bp;
	return pf_walk_user(&scratch, 7, 1, at_entry, false);
}

static inline void walk_at_entry(uint64_t ip, uint64_t sp, uint64_t bp, bool at_entry)
{
	uint64_t regs[PF_REGS], hash;

	memcpy(regs, scratch.walk.regs, sizeof(regs));
	/* a new number: results of earlier look-ups are not valid any more */
	scratch.walk.tables++;
	hash = walk_once(ip, sp, bp, at_entry);
	assert_true(hash != 0);
	assert_true(scratch.walk.window_bytes <= sizeof(scratch.window));
	/* Walks again, with the rules that the first walk looked up. */
	memcpy(scratch.walk.regs, regs, sizeof(regs));
	assert_true(walk_once(ip, sp, bp, at_entry) == hash);
}

static inline void walk(uint64_t ip, uint64_t sp, uint64_t bp)
{
	walk_at_entry(ip, sp, bp, false);
}

static inline void assert_stack(uint32_t end, size_t n, const uint64_t *want)
{
	for (size_t i = 0; i < n && i < scratch.walk.n_frames; i++)
		assert_int_equal(scratch.stack.words[2 * i + 1], want[i]);
	assert_int_equal(scratch.walk.n_frames, n);
	assert_int_equal(scratch.walk.end, end);
}
#define ASSERT_STACK(end, ...)                                                                     \
	assert_stack(end, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (uint64_t[]){__VA_ARGS__})

/* The outermost function: the stacks of most tests end in it. */
#define START 0x3f000
static inline void row_start(void)
{
	row(0, START & 0xffff, PF_RULE_ROOT);
}

/* ---- code without a table ---- */

#define JIT (CODE_BASE + 0x100)
static inline void put_record(size_t word, uint64_t fp, uint64_t ra)
{
	stack_words[word] = fp;
	stack_words[word + 1] = ra;
}
