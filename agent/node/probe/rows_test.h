/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows_test: code without frame pointers, written by hand, and its unwind table, for the tests and
 * the bench of probe/. Also what puts a table of any size and shape into the kernel.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "node/probe/internal.h"

/*
 * pf_rows_enter(depth, work): saves rbp, spoils it, and calls itself down `depth` times in frames
 * of 24 bytes; the innermost one calls work. Each in a section of its own, aligned, so that rows
 * are known by the distance from its start.
 */
__asm__(".pushsection pf_rows,\"ax\",@progbits\n"
	".balign 64\n"
	"pf_rows_enter:\n"
	"	push %rbp\n"	     /* 0: CFA = rsp + 8; 1: rsp + 16, rbp at CFA - 16 */
	"	mov $0x5555,%ebp\n"  /* 1..5 */
	"	call pf_rows_down\n" /* 6..10 */
	"	pop %rbp\n"	     /* 11 */
	"	ret\n"		     /* 12 */
	".balign 64\n"
	"pf_rows_down:\n"	/* 64: CFA = rsp + 8 */
	"	sub $24,%rsp\n" /* 64..67, then rsp + 32 */
	"	dec %rdi\n"	/* 68 */
	"	jle 1f\n"	/* 71 */
	"	call pf_rows_down\n"
	"	jmp 2f\n"
	"1:	call *%rsi\n"
	"2:	add $24,%rsp\n"
	"pf_rows_ret:\n"
	"	ret\n" /* rsp + 8 again */
	".balign 64\n"
	".popsection\n");
void pf_rows_enter(unsigned long depth, void (*work)(void));
extern const char pf_rows_ret[], __start_pf_rows[], __stop_pf_rows[];

#define ROWS_FILE  7
#define ROWS_CHUNK 0 /* 4 chunks: pages, rows, rules, mappings */

static inline void rows_write(struct probes *p, const struct pf_row *rows, uint32_t n_rows,
			      const struct pf_rule *rules, uint32_t n_rules)
{
	struct pf_page page = {PF_REF(ROWS_CHUNK + 1, 0), n_rows};
	struct pf_file file = {.state = PF_FILE_READY,
			       .n_pages = 1,
			       .pages = PF_REF(ROWS_CHUNK, 0),
			       .rules = PF_REF(ROWS_CHUNK + 2, 0),
			       .n_rules = n_rules};

	if (probes_chunk_write(p, ROWS_CHUNK, 0, &page, sizeof(page)) ||
	    probes_chunk_write(p, ROWS_CHUNK + 1, 0, rows, n_rows * sizeof(*rows)) ||
	    probes_chunk_write(p, ROWS_CHUNK + 2, 0, rules, n_rules * sizeof(*rules)) ||
	    probes_chunk_flush(p) || probes_file_set(p, ROWS_FILE, &file))
		abort();
}

/* The table of pf_rows, with rows of code that never runs behind it: n in all. */
static inline void rows_install_among(struct probes *p, uint32_t n)
{
	static const struct pf_rule rules[] = {
		{.cfa = PF_CFA_RSP, .cfa_offset = 8},
		{.cfa = PF_CFA_RSP, .cfa_offset = 16, .fp = PF_FP_CFA, .fp_offset = -16},
		{.cfa = PF_CFA_RSP, .cfa_offset = 32},
	};
	uint16_t ret = pf_rows_ret - (const char *)__start_pf_rows;
	const struct pf_row own[] = {
		{0, 0}, {1, 1}, {12, 0}, {64, 0}, {68, 2}, {ret, 0}, {ret + 1, PF_RULE_GAP}};
	_cleanup_free_ struct pf_row *rows = xcalloc(PF_PAGE_ROWS_MAX, sizeof(*rows));

	memcpy(rows, own, sizeof(own));
	n = MAX(n, (uint32_t)ARRAY_SIZE(own));
	for (uint32_t i = ARRAY_SIZE(own); i < n; i++)
		rows[i] = (struct pf_row){256 + i * (65000 / n), i % 3};
	rows_write(p, rows, n, rules, ARRAY_SIZE(rules));
}

static inline void rows_install(struct probes *p)
{
	rows_install_among(p, 0);
}

/* A process forked from this one gets a mapping of that section, and nothing else. */
static inline struct pf_process_key rows_process(struct probes *p, const struct raw_proc *of,
						 uint64_t exec_pages)
{
	struct pf_process_key key = {of->start_boottime_ns, of->tgid, of->exec_id};
	struct pf_mapping m = {
		.start = (uintptr_t)__start_pf_rows,
		.end = (uintptr_t)__stop_pf_rows,
		.bias = (uintptr_t)__start_pf_rows,
		.file = ROWS_FILE,
	};
	struct pf_process v = {
		.exec_pages = exec_pages,
		.n_parts = 1,
		.parts = {{m.start, PF_REF(ROWS_CHUNK + 3, 0), 1}},
	};

	if (probes_chunk_write(p, ROWS_CHUNK + 3, 0, &m, sizeof(m)) || probes_chunk_flush(p) ||
	    probes_process_set(p, &key, &v))
		abort();
	return key;
}
