/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows_test: code without frame pointers, written by hand, and its unwind table, for the tests and
 * the benches of probe/. It also puts tables of any size and shape into the kernel.
 */
#pragma once

#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/probe/internal.h"

/*
 * pf_rows_enter(depth, work): saves rbp, overwrites it, and calls pf_rows_down. That function calls
 * itself until it has `depth` frames of 24 bytes and their return addresses. The innermost call
 * calls work. The code is in a section of its own, aligned, so that rows are known by the distance
 * from the start of the section. The comments on the right give these distances, and the CFA from
 * there on.
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
	"	ret\n" /* rsp + 8 again, as at the entry */
	".balign 64\n"
	".popsection\n");
void pf_rows_enter(unsigned long depth, void (*work)(void));
extern const char pf_rows_ret[], __start_pf_rows[], __stop_pf_rows[];

#define ROWS_FILE  7
#define ROWS_CHUNK 0 /* 4 chunks: pages, rows, rules, mappings */

/*
 * Returns the address that the beginning of this program's file would have if it were mapped in one
 * piece. It is calculated from the mapping of pf_rows.
 */
static inline uint64_t rows_load(void)
{
	uint64_t at = (uintptr_t)__start_pf_rows, start, end, offset;
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &start, &end, &offset) ==
			    3 &&
		    at >= start && at < end) {
			fclose(f);
			return start - offset;
		}
	abort();
}

static inline uint64_t rows_tag(void)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	uint64_t tag = PF_TAG_NONE;

	if (fd < 0 || probes_file_tag(fd, &tag))
		abort();
	return tag;
}

/*
 * Gives the kernel all mapped files of this process. Only pf_rows has a table, so the walk ends in
 * the others.
 */
static inline void rows_images(struct probes *p)
{
	const struct pf_file empty = {.state = PF_FILE_READY};
	struct pf_image other = {.n_pieces = 1,
				 .pieces = {{.end = UINT64_MAX, .file = PF_SLOT_EMPTY}}};
	uint64_t from = (uintptr_t)__start_pf_rows - rows_load(), start_ns;
	uint64_t to = from + (__stop_pf_rows - __start_pf_rows);
	const struct pf_image image = {.tag = rows_tag(),
				       .n_pieces = 3,
				       .pieces = {{.end = from, .file = PF_SLOT_EMPTY},
						  {from, to, -from, .file = ROWS_FILE},
						  {to, UINT64_MAX, .file = PF_SLOT_EMPTY}}};
	struct mappings *m = NULL;

	if (probes_file_set(p, PF_SLOT_EMPTY, &empty) || proc_start_boottime(getpid(), &start_ns) ||
	    proc_mappings_read((struct process_id){start_ns, getpid()}, 0, &m))
		abort();
	for (size_t i = 0; i < m->n; i++) {
		uint64_t tag = PF_TAG_VDSO;

		if (m->items[i].fd >= 0 ? probes_file_tag(m->items[i].fd, &tag)
					: !streq(m->items[i].path, "[vdso]"))
			continue;
		other.tag = tag;
		if (probes_image_set(p, tag, tag == image.tag ? &image : &other))
			abort();
	}
	proc_mappings_unref(m);
}

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
	rows_images(p);
}

/* Installs a table of n rows: the rows of pf_rows, then rows for code that never runs. */
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

#define ROWS_MAPPINGS_MAX 64

static inline uint32_t parse_rows_add(struct pf_mapping *to, uint32_t n, const struct mapping *x,
				uint64_t start, uint64_t end, uint64_t tag)
{
	bool rows = start == (uintptr_t)__start_pf_rows;

	if (start == end)
		return n;
	if (n == ROWS_MAPPINGS_MAX)
		abort();
	to[n] = (struct pf_mapping){
		.start = start,
		.end = end,
		.bias = rows ? start : mapping_load(x),
		.load = mapping_load(x),
		.tag = tag,
		.file = rows ? ROWS_FILE : PF_SLOT_EMPTY,
		.verified = PF_UNVERIFIED,
	};
	return n + 1;
}

/* Lists all mapped files of this process. Only pf_rows has rows. */
static inline uint32_t rows_list(struct pf_mapping *to)
{
	const uint64_t start = (uintptr_t)__start_pf_rows, end = (uintptr_t)__stop_pf_rows;
	struct mappings *m = NULL;
	uint64_t start_ns;
	uint32_t n = 0;

	if (proc_start_boottime(getpid(), &start_ns) ||
	    proc_mappings_read((struct process_id){start_ns, getpid()}, 0, &m))
		abort();
	for (size_t i = 0; i < m->n; i++) {
		const struct mapping *x = &m->items[i];
		uint64_t tag;

		if (x->fd < 0 || probes_file_tag(x->fd, &tag))
			continue;
		if (start < x->start || start >= x->end) {
			n = parse_rows_add(to, n, x, x->start, x->end, tag);
			continue;
		}
		n = parse_rows_add(to, n, x, x->start, start, tag);
		n = parse_rows_add(to, n, x, start, end, tag);
		n = parse_rows_add(to, n, x, end, x->end, tag);
	}
	proc_mappings_unref(m);
	return n;
}

/*
 * Gives the kernel the mappings of a process that was forked from this one: they are the same as
 * those of this process.
 */
static inline struct pf_process_key rows_process(struct probes *p, const struct raw_proc *of,
						 uint64_t exec_pages)
{
	struct pf_process_key key = {of->start_boottime_ns, of->tgid, of->exec_id};
	struct pf_mapping m[ROWS_MAPPINGS_MAX];
	uint32_t n = rows_list(m);
	struct pf_process v = {
		.exec_pages = exec_pages,
		.n_parts = 1,
		.parts = {{m[0].start, PF_REF(ROWS_CHUNK + 3, 0), n}},
	};

	if (probes_chunk_write(p, ROWS_CHUNK + 3, 0, m, n * sizeof(*m)) || probes_chunk_flush(p) ||
	    probes_process_set(p, &key, &v))
		abort();
	return key;
}
