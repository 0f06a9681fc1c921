/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the rows of real files with two other readers of the same bytes. At every row, our CFA,
 * rbp and return address must equal the columns of binutils' `readelf -wF`. Evaluated on made-up
 * registers and memory, our rules must give the values of the expressions of elfutils'
 * dwarf_cfi_addrframe.
 *
 * Without arguments: a sample of files. With "-": the files named on standard input; files with the
 * same content are compared once. Then the program writes a report in Markdown, and exits with
 * status 1 if a difference has no explanation.
 */
#include "lib/base/base.h"
#include "node/parse/format.h"
#include "node/parse/testrows.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define CELL 12
struct expected {	  /* a row of readelf */
	uint64_t at, end; /* end: end of the row's FDE */
	char cfa[CELL], fp[CELL], sp[CELL], ra[CELL];
	bool debug;
	bool after_expression; /* an earlier row of this FDE has an expression as CFA */
};
struct fde {
	uint64_t start, end;
};
struct cie {
	uint64_t offset;
	struct expected row;
};

/* Outcomes for a row. X(enum, words) */
#define OUTCOMES(X)                                                                                \
	X(EQUAL, "equal")                                                                          \
	X(OUTSIDE, "FDE of no executable segment (discarded function)")                            \
	X(OVERLAP, "another FDE holds there (overlap)")                                            \
	X(UNSUPPORTED, "UNSUPPORTED: an expression, or rsp is restored otherwise (longjmp)")       \
	X(SIGNAL, "signal frame: read from the ucontext")                                          \
	X(GO_TEXT, "Go's .debug_frame: .gopclntab says it")                                        \
	X(DIFFERENT, "**different**")                                                              \
	X(ELFUTILS, "**elfutils has another value**")                                              \
	X(NOT_GAP, "a rule where no FDE is: from its instructions (code_test.c)")
enum outcome {
#define X(name, words) name,
	OUTCOMES(X)
#undef X
		_OUTCOMES,
};
static const char *const outcome_words[] = {
#define X(name, words) words,
	OUTCOMES(X)
#undef X
};

struct file {
	const char *path;
	struct elf_index *index;
	struct elf_tables tables;
	Elf *elf;
	Dwarf *dwarf;
	Dwarf_CFI *eh, *debug;
	struct expected *rows;
	size_t n, cap;
	struct fde *fdes;
	size_t n_fdes, cap_fdes;
	size_t outcomes[_OUTCOMES];
	size_t elfutils_equal, elfutils_none, elfutils_refuses, gaps;
	struct buf notes, unsupported;
};

/* ---- our side ---- */

static uint16_t our_rule(const struct file *f, uint64_t address)
{
	return rule_at(&f->tables, address);
}

static const char *const register_names[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi",
					     "rbp", "rsp", "r8",  "r9",	 "r10", "r11",
					     "r12", "r13", "r14", "r15", "ra"};

/* Writes a rule as readelf prints it. */
static void render(const struct pf_rule *r, struct expected *ret)
{
	unsigned base = r->cfa == PF_CFA_RSP ? 7 : r->cfa == PF_CFA_RBP ? 6 : r->reg;

	*ret = (struct expected){.cfa = "exp", .fp = "u", .ra = "c-8"};
	if (r->cfa <= PF_CFA_REG)
		snprintf(ret->cfa, CELL, "%s%+d", register_names[base], r->cfa_offset);
	if (r->fp == PF_FP_CFA)
		snprintf(ret->fp, CELL, "c%+d", r->fp_offset);
	else if (r->fp != PF_FP_SAME)
		snprintf(ret->fp, CELL, r->fp == PF_FP_UNKNOWN ? "?" : "exp");
	if (r->ra == PF_RA_CFA)
		snprintf(ret->ra, CELL, "c%+d", r->extra);
	else if (r->ra == PF_RA_REG)
		snprintf(ret->ra, CELL, "r%d", r->reg);
}

static bool fp_matches(const char *ours, const char *readelf)
{
	if (streq(ours, "u"))
		return streq(readelf, "u") || streq(readelf, "s");
	if (streq(ours, "?"))
		return *readelf != 'c' && *readelf != 's';
	return streq(ours, readelf);
}

static enum outcome compare(const struct file *f, const struct expected *e)
{
	uint16_t number = our_rule(f, e->at);
	struct expected ours;

	if (number == PF_RULE_ROOT)
		return streq(e->ra, "u") ? EQUAL : DIFFERENT;
	if (number == PF_RULE_SIGNAL)
		return streq(e->cfa, "exp") && streq(e->ra, "exp") ? SIGNAL : DIFFERENT;
	if (number == PF_RULE_UNSUPPORTED)
		return streq(e->cfa, "exp") || !streq(e->sp, "u") ? UNSUPPORTED : DIFFERENT;
	if (number >= PF_RULE_SPECIAL_MIN)
		return DIFFERENT;
	render(&f->tables.rules[number], &ours);
	return streq(ours.cfa, e->cfa) && fp_matches(ours.fp, e->fp) && streq(ours.ra, e->ra)
		       ? EQUAL
		       : DIFFERENT;
}

/* ---- readelf ---- */

struct columns {
	int fp, sp, ra; /* the number of the cell in a row; -1: none */
};

static struct columns read_columns(char *line)
{
	struct columns c = {-1, -1, -1};
	char *save, *cell = strtok_r(line, " \n", &save);

	for (int k = 0; cell; k++, cell = strtok_r(NULL, " \n", &save)) {
		if (streq(cell, "rbp"))
			c.fp = k;
		else if (streq(cell, "rsp"))
			c.sp = k;
		else if (streq(cell, "ra"))
			c.ra = k;
	}
	return c;
}

static struct expected read_row(char *line, struct columns c)
{
	struct expected e = {.fp = "u", .sp = "u", .ra = "u"};
	char *save, *cell = strtok_r(line, " \n", &save);

	e.at = strtoull(cell, NULL, 16);
	cell = strtok_r(NULL, " \n", &save);
	for (int k = 0; cell; cell = strtok_r(NULL, " \n", &save)) {
		char *to;

		if (*cell == '(') /* "r5 (rdi)" is one cell */
			continue;
		k++;
		to = k == 1 ? e.cfa : k == c.fp ? e.fp : k == c.sp ? e.sp : k == c.ra ? e.ra : NULL;

		if (to)
			snprintf(to, CELL, "%s", cell);
	}
	return e;
}

static void add_row(struct file *f, const struct expected *e)
{
	GROW(f->rows, f->n, f->cap);
	f->rows[f->n++] = *e;
}

struct reader {
	struct file *f;
	struct cie *cies;
	size_t n_cies, cap_cies;
	struct columns columns;
	bool debug, in_cie, has_rows;
	struct expected fde_row; /* the CIE's row, at the start of the FDE */
};

/* An FDE without instructions has no rows in readelf's output: its row is that of its CIE. */
static void end_entry(struct reader *r)
{
	if (!r->in_cie && !r->has_rows && r->fde_row.end)
		add_row(r->f, &r->fde_row);
	r->fde_row.end = 0;
}

static void begin_entry(struct reader *r, const char *line)
{
	unsigned long long offset, cie, start, end;
	const char *fde = strstr(line, " FDE cie=");

	end_entry(r);
	r->has_rows = false;
	r->in_cie = !fde;
	if (r->in_cie) {
		GROW(r->cies, r->n_cies, r->cap_cies);
		sscanf(line, "%llx", &offset);
		r->cies[r->n_cies++] = (struct cie){.offset = offset};
		return;
	}
	if (sscanf(fde, " FDE cie=%llx pc=%llx..%llx", &cie, &start, &end) != 3)
		return;
	r->fde_row = (struct expected){.at = start, .end = end, .debug = r->debug};
	GROW(r->f->fdes, r->f->n_fdes, r->f->cap_fdes);
	r->f->fdes[r->f->n_fdes++] = (struct fde){start, end};
	for (size_t k = r->n_cies; k-- > 0;) {
		if (r->cies[k].offset != cie)
			continue;
		r->fde_row = r->cies[k].row;
		r->fde_row.at = start;
		r->fde_row.end = end;
		r->fde_row.debug = r->debug;
		break;
	}
}

static void take_row(struct reader *r, char *line)
{
	struct expected e = read_row(line, r->columns), *last;
	bool first = !r->has_rows;

	r->has_rows = true;
	if (r->in_cie) {
		if (r->n_cies)
			r->cies[r->n_cies - 1].row = e;
		return;
	}
	e.end = r->fde_row.end;
	e.debug = r->debug;
	last = r->f->n ? &r->f->rows[r->f->n - 1] : NULL;
	e.after_expression = last && !first && last->end == e.end &&
			     (last->after_expression || streq(last->cfa, "exp"));
	if (last && last->at == e.at && last->end == e.end && last->debug == e.debug)
		*last = e; /* two rows at the same address: the second one holds */
	else if (e.at < e.end)
		add_row(r->f, &e);
}

static void run_readelf(struct file *f)
{
	_cleanup_free_ char *command = xasprintf("readelf -wF '%s' 2>/dev/null", f->path);
	struct reader r = {.f = f};
	FILE *out = popen(command, "r");
	char *line = NULL;
	size_t cap = 0;

	assert_non_null(out);
	while (getline(&line, &cap, out) > 0) {
		if (str_has_prefix(line, "Contents of the ")) {
			end_entry(&r);
			r.in_cie = true;
			r.debug = strstr(line, "debug_frame");
			r.n_cies = 0;
		} else if (strstr(line, " CIE ") || strstr(line, " FDE ")) {
			begin_entry(&r, line);
		} else if (strstr(line, " LOC ")) {
			r.columns = read_columns(line);
		} else if (strspn(line, "0123456789abcdef") == 16) {
			take_row(&r, line);
		}
	}
	end_entry(&r);
	pclose(out);
	free(line);
	free(r.cies);
}

/* ---- elfutils: values on made-up registers and memory ---- */

struct machine {
	uint64_t regs[17], cfa, seed;
};

static uint64_t memory(const struct machine *m, uint64_t address)
{
	return hash_bytes(&address, sizeof(address), m->seed);
}

static struct machine make_machine(uint64_t pc, uint64_t seed)
{
	struct machine m = {.seed = seed};

	for (size_t k = 0; k < ARRAY_SIZE(m.regs); k++)
		m.regs[k] = hash_bytes(&k, sizeof(k), seed);
	m.regs[16] = pc + seed;
	return m;
}

static bool evaluate(const struct machine *m, const Dwarf_Op *ops, size_t n, uint64_t *ret)
{
	uint64_t s[32] = {0};
	size_t d = 0;

	for (size_t k = 0; k < n; k++) {
		const Dwarf_Op *o = &ops[k];
		uint64_t top = d ? s[d - 1] : 0, under = d > 1 ? s[d - 2] : 0;

		if (d > 30)
			return false;
		if (o->atom >= DW_OP_breg0 && o->atom <= DW_OP_breg15)
			s[d++] = m->regs[o->atom - DW_OP_breg0] + o->number;
		else if (o->atom == DW_OP_breg16)
			s[d++] = m->regs[16] + o->number;
		else if (o->atom == DW_OP_bregx && o->number <= 16)
			s[d++] = m->regs[o->number] + o->number2;
		else if (o->atom >= DW_OP_lit0 && o->atom <= DW_OP_lit31)
			s[d++] = o->atom - DW_OP_lit0;
		else if (o->atom >= DW_OP_const1u && o->atom <= DW_OP_consts)
			s[d++] = o->number;
		else if (o->atom == DW_OP_call_frame_cfa)
			s[d++] = m->cfa;
		else if (o->atom == DW_OP_plus_uconst)
			s[d - 1] = top + o->number;
		else if (o->atom == DW_OP_deref)
			s[d - 1] = memory(m, top);
		else if (o->atom == DW_OP_plus)
			s[--d - 1] = under + top;
		else if (o->atom == DW_OP_minus)
			s[--d - 1] = under - top;
		else if (o->atom == DW_OP_mul)
			s[--d - 1] = under * top;
		else if (o->atom == DW_OP_and)
			s[--d - 1] = under & top;
		else if (o->atom == DW_OP_shl)
			s[--d - 1] = under << (top & 63);
		else if (o->atom == DW_OP_ge)
			s[--d - 1] = (int64_t)under >= (int64_t)top;
		else
			return false;
	}
	*ret = d ? s[d - 1] : 0;
	return d;
}

static uint64_t our_cfa(const struct machine *m, const struct pf_rule *r)
{
	switch (r->cfa) {
	case PF_CFA_RSP:
		return m->regs[7] + r->cfa_offset;
	case PF_CFA_RBP:
		return m->regs[6] + r->cfa_offset;
	case PF_CFA_REG:
		return m->regs[r->reg] + r->cfa_offset;
	case PF_CFA_DEREF_RSP:
		return memory(m, m->regs[7] + r->cfa_offset) + r->extra;
	case PF_CFA_DEREF_RBP:
		return memory(m, m->regs[6] + r->cfa_offset) + r->extra;
	case PF_CFA_DEREF_REG:
		return memory(m, m->regs[r->reg] + r->cfa_offset) + r->extra;
	}
	return m->regs[7] + r->cfa_offset + ((int)(m->regs[16] & 15) >= r->extra ? 8 : 0);
}

/* Returns where our rule has the caller's rbp. *ret_in_memory: false if rbp is unchanged. */
static uint64_t our_fp(const struct machine *m, const struct pf_rule *r, bool *ret_in_memory)
{
	*ret_in_memory = r->fp != PF_FP_SAME;
	switch (r->fp) {
	case PF_FP_CFA:
		return m->cfa + r->fp_offset;
	case PF_FP_AT_RBP:
		return m->regs[6] + r->fp_offset;
	case PF_FP_AT_RSP:
		return m->regs[7] + r->fp_offset;
	}
	return m->regs[6];
}

static bool elfutils_register(Dwarf_Frame *frame, const struct machine *m, int reg, uint64_t ours,
			      bool in_memory)
{
	Dwarf_Op memory_for_ops[3], *ops;
	uint64_t theirs;
	size_t n;

	if (dwarf_frame_register(frame, reg, memory_for_ops, &ops, &n) < 0)
		return false;
	if (n == 0)
		return !in_memory && !ops;
	if (n == 1 && (ops[0].atom == DW_OP_regx ||
		       (ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg15))) {
		Dwarf_Word k = ops[0].atom == DW_OP_regx ? ops[0].number
							 : (Dwarf_Word)ops[0].atom - DW_OP_reg0;

		return !in_memory && k <= 16 && m->regs[k] == ours;
	}
	return in_memory && evaluate(m, ops, n, &theirs) && theirs == ours;
}

static bool elfutils_agrees(Dwarf_Frame *frame, const struct pf_rule *r, uint64_t pc, uint64_t seed)
{
	struct machine m = make_machine(pc, seed);
	uint64_t theirs, fp, ra;
	Dwarf_Op *ops;
	bool in_memory;
	size_t n;

	if (dwarf_frame_cfa(frame, &ops, &n) < 0 || !evaluate(&m, ops, n, &theirs))
		return false;
	m.cfa = our_cfa(&m, r);
	if (theirs != m.cfa)
		return false;
	ra = r->ra == PF_RA_CFA8  ? m.cfa - 8
	     : r->ra == PF_RA_CFA ? m.cfa + r->extra
				  : m.regs[r->reg];
	if (!elfutils_register(frame, &m, 16, ra, r->ra != PF_RA_REG))
		return false;
	fp = our_fp(&m, r, &in_memory);
	return r->fp == PF_FP_UNKNOWN || elfutils_register(frame, &m, 6, fp, in_memory);
}

/* An expression may be right for one input by chance, so several inputs are tried. */
static void compare_elfutils(struct file *f, const struct expected *e)
{
	uint16_t number = our_rule(f, e->at);
	Dwarf_CFI *cfi = e->debug ? f->debug : f->eh;
	Dwarf_Frame *frame;
	bool agree = true;

	if (number >= PF_RULE_SPECIAL_MIN)
		return;
	if (!cfi || dwarf_cfi_addrframe(cfi, e->at, &frame) != 0) {
		f->elfutils_none++;
		return;
	}
	for (uint64_t seed = 0; seed < (*e->cfa == 'e' ? 16 : 1); seed++)
		agree = agree && elfutils_agrees(frame, &f->tables.rules[number], e->at, seed);
	free(frame);
	if (agree) {
		f->elfutils_equal++;
		return;
	}
	if (e->after_expression) {
		f->elfutils_refuses++;
		return;
	}
	f->outcomes[ELFUTILS]++;
	if (f->outcomes[ELFUTILS] <= 3)
		buf_printf(&f->notes, "%s %#lx: elfutils\n", f->path, e->at);
}

/* ---- one file ---- */

static bool executable(const struct file *f, uint64_t address)
{
	size_t n = 0;

	elf_getphdrnum(f->elf, &n);
	for (size_t k = 0; k < n; k++) {
		GElf_Phdr p;

		if (gelf_getphdr(f->elf, k, &p) && p.p_type == PT_LOAD && p.p_flags & PF_X &&
		    address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
			return address != 0;
	}
	return false;
}

/*
 * Returns whether another row of readelf, of an overlapping FDE, covers the address and equals
 * ours.
 */
static bool overlapped(const struct file *f, const struct expected *e)
{
	for (size_t k = 0; k < f->n; k++) {
		struct expected other = f->rows[k];
		uint64_t end = k + 1 < f->n && f->rows[k + 1].end == other.end ? f->rows[k + 1].at
									       : other.end;

		if (&f->rows[k] == e || other.at > e->at || e->at >= end)
			continue;
		other.at = e->at;
		if (compare(f, &other) != DIFFERENT)
			return true;
	}
	return false;
}

static void check_row(struct file *f, const struct expected *e)
{
	enum outcome o;

	if (!executable(f, e->at)) {
		f->outcomes[OUTSIDE]++;
		return;
	}
	if (e->debug && elf_index_flags(f->index) & ELF_INDEX_GO) {
		f->outcomes[GO_TEXT]++;
		return;
	}
	o = compare(f, e);
	if (o == DIFFERENT && f->outcomes[DIFFERENT] < 100 && overlapped(f, e))
		o = OVERLAP;
	f->outcomes[o]++;
	if (o == EQUAL)
		compare_elfutils(f, e);
	if (o == UNSUPPORTED)
		buf_printf(&f->unsupported, "| %s | %#lx | %s | %s | %s |\n", f->path, e->at,
			   e->cfa, e->sp, e->ra);
	if (o == DIFFERENT && f->outcomes[o] <= 3) {
		uint16_t number = our_rule(f, e->at);
		struct expected ours = {.cfa = "-"};

		if (number < PF_RULE_SPECIAL_MIN)
			render(&f->tables.rules[number], &ours);
		buf_printf(&f->notes, "%s %#lx: readelf %s %s %s, ours %#x %s %s %s\n", f->path,
			   e->at, e->cfa, e->fp, e->ra, number, ours.cfa, ours.fp, ours.ra);
	}
}

static int compare_fdes(const void *left, const void *right)
{
	const struct fde *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static bool in_plt(const struct file *f, uint64_t address)
{
	Elf_Scn *s = NULL;
	size_t names = 0;

	elf_getshdrstrndx(f->elf, &names);
	while ((s = elf_nextscn(f->elf, s))) {
		GElf_Shdr h;
		const char *name = gelf_getshdr(s, &h) ? elf_strptr(f->elf, names, h.sh_name) : "";

		if (address - h.sh_addr < h.sh_size && name && str_has_prefix(name, ".plt"))
			return true;
	}
	return false;
}

/* If there are 16 bytes or more between two FDEs, our rows must have a gap there. */
static void check_gaps(struct file *f)
{
	uint64_t end = 0;

	if (elf_index_flags(f->index) & ELF_INDEX_GO)
		return;
	qsort(f->fdes, f->n_fdes, sizeof(f->fdes[0]), compare_fdes);
	for (size_t k = 0; k < f->n_fdes; k++) {
		const struct fde *d = &f->fdes[k];

		if (end && d->start >= end + 16 && executable(f, end)) {
			uint16_t number = our_rule(f, end);

			f->gaps++;
			/* a PLT without FDE has rows; it may begin up to 15 bytes later */
			if (number != PF_RULE_GAP && number != PF_RULE_SIGNAL &&
			    !in_plt(f, end + 15)) {
				f->outcomes[NOT_GAP]++;
			}
		}
		end = MAX(end, d->end);
	}
}

static bool open_file(struct file *f, int fd)
{
	int memfd;

	if (parse_elf_to_index(fd, NULL, INDEX_BYTES_MAX, &memfd) != PARSE_OK ||
	    elf_index_open(memfd, &f->index) < 0)
		return false;
	elf_index_tables(f->index, &f->tables);
	f->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	f->dwarf = dwarf_begin_elf(f->elf, DWARF_C_READ, NULL);
	f->eh = dwarf_getcfi_elf(f->elf);
	f->debug = f->dwarf ? dwarf_getcfi(f->dwarf) : NULL;
	return true;
}

static void close_file(struct file *f)
{
	elf_index_unref(f->index);
	if (f->eh)
		dwarf_cfi_end(f->eh);
	if (f->dwarf)
		dwarf_end(f->dwarf);
	elf_end(f->elf);
	free(f->rows);
	free(f->fdes);
	buf_done(&f->notes);
	buf_done(&f->unsupported);
}

static bool check_file(struct file *f)
{
	_cleanup_close_ int fd = open(f->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || !open_file(f, fd))
		return false;
	run_readelf(f);
	for (size_t k = 0; k < f->n; k++)
		check_row(f, &f->rows[k]);
	check_gaps(f);
	return true;
}

static size_t unexplained(const struct file *f)
{
	return f->outcomes[DIFFERENT] + f->outcomes[ELFUTILS];
}

/* ---- the sample ---- */

static void check_sample(const char *path, size_t rows_min)
{
	struct file f = {.path = path};

	if (access(path, R_OK) != 0) {
		print_message("skipped, not here: %s\n", path);
		return;
	}
	assert_true(check_file(&f));
	print_message("%s: %zu rows equal, %zu of them in elfutils too, %zu gaps\n", path,
		      f.outcomes[EQUAL], f.elfutils_equal, f.gaps);
	if (f.notes.len)
		print_message("%s", f.notes.data);
	assert_int_equal(unexplained(&f), 0);
	assert_true(f.outcomes[EQUAL] >= rows_min);
	close_file(&f);
}

static void rows_of_known_files_equal_readelf_and_elfutils(void **state)
{
	(void)state;
	check_sample("/lib/x86_64-linux-gnu/libc.so.6", 10000);
	check_sample("/lib64/ld-linux-x86-64.so.2", 1000);
	check_sample("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 10000);
	check_sample("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 10000);
	check_sample("/usr/bin/bash", 10000);
	check_sample("/usr/bin/python3", 10000);
	check_sample("/usr/bin/perl", 10000);
}

/* The vDSO has the code of clock_gettime, which is in many profiles. */
static void rows_of_the_vdso_equal_readelf_and_elfutils(void **state)
{
	const Elf64_Ehdr *vdso = (const void *)getauxval(AT_SYSINFO_EHDR);
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int fd = -1;
	size_t n;

	(void)state;
	if (!vdso) {
		print_message("skipped: this kernel maps no vDSO\n");
		skip();
	}
	n = vdso->e_shoff + (size_t)vdso->e_shnum * vdso->e_shentsize;
	fd = memfd_create("vdso", 0);
	path = xasprintf("/proc/%d/fd/%d", getpid(), fd);
	assert_int_equal(fd_write_all(fd, vdso, n), 0);
	check_sample(path, 10);
}

/* ---- all files ---- */

struct total {
	size_t files, without_rows, unexplained, elfutils_equal, elfutils_none, elfutils_refuses,
		gaps;
	size_t outcomes[_OUTCOMES];
	uint64_t *seen;
	size_t n_seen, cap_seen;
	struct buf table, unsupported, notes;
};

static bool seen_or_no_elf(struct total *t, int fd)
{
	struct stat st;
	char magic[SELFMAG];
	uint64_t hash;
	void *data;

	if (pread(fd, magic, SELFMAG, 0) != SELFMAG || memcmp(magic, ELFMAG, SELFMAG) != 0 ||
	    fstat(fd, &st) < 0)
		return true;
	data = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return true;
	hash = hash_bytes(data, st.st_size, 0);
	munmap(data, st.st_size);
	for (size_t k = 0; k < t->n_seen; k++)
		if (t->seen[k] == hash)
			return true;
	GROW(t->seen, t->n_seen, t->cap_seen);
	t->seen[t->n_seen++] = hash;
	return false;
}

static void add_file(struct total *t, const char *path)
{
	struct file f = {.path = path};
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool odd = false;

	if (fd < 0 || seen_or_no_elf(t, fd))
		return;
	if (!check_file(&f)) {
		close_file(&f);
		return;
	}
	t->files++;
	t->without_rows += f.n == 0;
	t->unexplained += unexplained(&f);
	t->elfutils_equal += f.elfutils_equal;
	t->elfutils_none += f.elfutils_none;
	t->elfutils_refuses += f.elfutils_refuses;
	t->gaps += f.gaps;
	for (size_t k = 0; k < _OUTCOMES; k++) {
		t->outcomes[k] += f.outcomes[k];
		odd |= k != EQUAL && k != SIGNAL && k != GO_TEXT && k != OUTSIDE && f.outcomes[k];
	}
	if (odd) {
		buf_printf(&t->table, "| %s | %zu |", path, f.outcomes[EQUAL]);
		for (size_t k = OVERLAP; k < _OUTCOMES; k++)
			if (k != SIGNAL && k != GO_TEXT)
				buf_printf(&t->table, " %zu |", f.outcomes[k]);
		buf_puts(&t->table, "\n");
	}
	if (f.unsupported.len)
		buf_puts(&t->unsupported, f.unsupported.data);
	if (f.notes.len)
		buf_puts(&t->notes, f.notes.data);
	close_file(&f);
}

static void print_report(const struct total *t)
{
	printf("# Unwind rows against readelf and elfutils\n\n"
	       "%zu ELF files (each content once), %zu of them without call frame information.\n"
	       "Rows of `readelf -wF` by outcome (CFA, rbp and return address):\n\n"
	       "| outcome | rows |\n|---|---|\n",
	       t->files, t->without_rows);
	for (size_t k = 0; k < _OUTCOMES; k++)
		printf("| %s | %zu |\n", outcome_words[k], t->outcomes[k]);
	printf("\nElfutils has the same values for %zu of the equal rows (the rest: outermost "
	       "frames),\n"
	       "no frame for %zu, and refuses %zu, where hand-written assembly says "
	       "DW_CFA_def_cfa_register\nafter an expression: readelf and libgcc keep the offset "
	       "from before, and so do we.\n%zu gaps between FDEs hold no rule.\n",
	       t->elfutils_equal, t->elfutils_none, t->elfutils_refuses, t->gaps);
	printf("\nFiles with rows that are not equal:\n\n| file | equal |");
	for (size_t k = OVERLAP; k < _OUTCOMES; k++)
		if (k != SIGNAL && k != GO_TEXT)
			printf(" %s |", outcome_words[k]);
	printf("\n|---|---|---|---|---|---|---|\n%s", t->table.data ?: "");
	printf("\nRows that no rule can say, as readelf has them:\n\n"
	       "| file | address | CFA | rsp | ra |\n|---|---|---|---|---|\n%s",
	       t->unsupported.data ?: "");
	printf("\nUnexplained:\n\n```\n%s```\n", t->notes.data ?: "none\n");
}

static int check_all(void)
{
	struct total t = {0};
	char *line = NULL;
	size_t cap = 0;

	while (getline(&line, &cap, stdin) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (!strchr(line, '\''))
			add_file(&t, line);
	}
	print_report(&t);
	free(line);
	free(t.seen);
	buf_done(&t.table);
	buf_done(&t.unsupported);
	buf_done(&t.notes);
	return t.unexplained || t.files == 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_known_files_equal_readelf_and_elfutils),
		cmocka_unit_test(rows_of_the_vdso_equal_readelf_and_elfutils),
	};

	elf_version(EV_CURRENT);
	if (argc > 1 && streq(argv[1], "-"))
		return check_all();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
