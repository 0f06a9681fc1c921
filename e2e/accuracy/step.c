/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step [-n STEPS] [-l LISTED] PROGRAM [ARGUMENT...]: runs a program one instruction after the
 * other, and compares, at each instruction of code without call frame information, what its row
 * says with the truth. The truth is what the calls and returns did so far: where the return address
 * of the current function is, and what rbp was when it was called. Prints a line for each file:
 *
 *   FILE: INSTRUCTIONS places, SHARE % of STEPS steps equal, N wrong, N refused, N without rbp
 *
 * wrong, refused (no row) and without rbp (the row says that it does not know it) count places; -l
 * lists so many of each. Exit status 1: a row was wrong. Only the first thread is followed. -n ends
 * after so many instructions. -w runs so many at a time, and lets the program run as it does
 * without us for -m milliseconds (2) in between: then only functions whose call is seen are
 * compared. -a compares code with call frame information, too.
 */
#include "node/parse/cfi.h"
#include "node/parse/testrows.h"

#include "node/insn/insn.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX  512
#define DEPTH_MAX  65536
#define PLACES_MAX (1u << 22) /* a power of 2 */

enum outcome { EQUAL = 1, NO_BP = 2, REFUSED = 4, WRONG = 8 };
static const char *const outcome_names[] = {
	[EQUAL] = "equal", [NO_BP] = "without rbp", [REFUSED] = "refused", [WRONG] = "wrong"};

struct file {
	char *path;
	uint64_t start, end; /* the mapping */
	uint64_t bias;	     /* process address - ELF virtual address */
	struct elf_index *index;
	struct elf_tables tables;
	struct cfi cfi; /* empty: no code is known to have call frame information */
	uint64_t steps, equal_steps;
	size_t places, by_outcome[WRONG + 1];
};
static struct file files[FILES_MAX];
static size_t n_files;

/* What is known of an instruction at an address. */
struct place {
	uint64_t pc;
	const struct file *file; /* NULL: not compared */
	uint8_t outcomes, bytes;
	bool call, rule_known, compared;
	struct pf_rule rule;
};
static struct place places[PLACES_MAX];

struct call {
	uint64_t slot; /* where the return address is */
	uint64_t rbp;
};
static struct call calls[DEPTH_MAX];
static size_t n_calls;

static pid_t pid;
static bool all_code;
static size_t n_listed_max;
static uint64_t window, free_ms = 2;

/* ---- files ---- */

static bool has_fde(const struct file *f, uint64_t address)
{
	size_t low = 0, high = f->cfi.n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (f->cfi.fdes[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < f->cfi.fdes[low - 1].end;
}

static void read_fdes(struct file *f, int fd)
{
	struct elf_build *b = xcalloc(1, sizeof(*b));
	struct cfi_section in = {.eh = true};
	struct section s;

	b->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (b->elf && parse_build_section(b, ".eh_frame", &s)) {
		in.data = s.data;
		in.n = s.n;
		in.address = s.address;
		parse_cfi_read(&f->cfi, &in);
	}
	free(b); /* the file stays open: the FDEs point into it */
}

static uint64_t bias_of(int fd, uint64_t start, uint64_t offset)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	size_t n = 0;
	GElf_Phdr p;

	elf_getphdrnum(elf, &n);
	for (size_t k = 0; k < n; k++)
		if (gelf_getphdr(elf, k, &p) && p.p_type == PT_LOAD && p.p_flags & PF_X &&
		    offset >= (p.p_offset & ~0xfffull) && offset < p.p_offset + p.p_filesz)
			return start - offset + p.p_offset - p.p_vaddr;
	return start;
}

static void open_file(struct file *f, uint64_t offset)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC), memfd;

	if (fd < 0 || parse_elf_to_index(fd, NULL, INDEX_BYTES_MAX, &memfd) != PARSE_OK ||
	    elf_index_open(memfd, &f->index) < 0)
		return;
	elf_index_tables(f->index, &f->tables);
	f->bias = bias_of(fd, f->start, offset);
	read_fdes(f, fd);
}

static struct file *known_file(uint64_t pc)
{
	for (size_t k = n_files; k-- > 0;)
		if (pc >= files[k].start && pc < files[k].end)
			return &files[k];
	return NULL;
}

/* Finds the file at an address in the process's mappings. A mapping without a file is kept, too. */
static struct file *find_file(uint64_t pc)
{
	_cleanup_free_ char *maps = xasprintf("/proc/%d/maps", pid);
	struct file *f = known_file(pc);
	char line[8192];
	FILE *in;

	if (f || n_files == FILES_MAX || !(in = fopen(maps, "re")))
		return f;
	while (!f && fgets(line, sizeof(line), in)) {
		uint64_t start, end, offset;
		char path[4096] = "";

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %4095s", &start,
			   &end, &offset, path) < 3 ||
		    pc < start || pc >= end)
			continue;
		f = &files[n_files++];
		*f = (struct file){.path = xstrdup(path), .start = start, .end = end};
		if (path[0] == '/')
			open_file(f, offset);
	}
	fclose(in);
	return f;
}

/* ---- one instruction ---- */

static bool peek(uint64_t address, void *ret, size_t n)
{
	struct iovec to = {ret, n}, from = {(void *)(uintptr_t)address, n};

	return process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)n;
}

static void learn_place(struct place *p, uint64_t pc)
{
	struct file *f = find_file(pc);
	uint8_t code[INSN_BYTES_MAX];
	struct insn i;
	uint16_t number;

	*p = (struct place){.pc = pc};
	if (!peek(pc, code, sizeof(code)) || !insn_decode(code, sizeof(code), &i))
		return;
	p->bytes = i.bytes;
	p->call = insn_is(&i, 0xe8) || (insn_is(&i, 0xff) && (i.reg & 7) == 2);
	if (!f || !f->index)
		return;
	p->file = f;
	p->compared = all_code || !has_fde(f, pc - f->bias);
	number = rule_at(&f->tables, pc - f->bias);
	p->rule_known = number < f->tables.n_rules;
	if (p->rule_known)
		p->rule = f->tables.rules[number];
	else if (number == PF_RULE_ROOT || number == PF_RULE_SIGNAL)
		p->compared = false;
}

static uint64_t register_of(const struct user_regs_struct *r, unsigned dwarf)
{
	const uint64_t by_number[16] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi,
					r->rbp, r->rsp, r->r8,	r->r9,	r->r10, r->r11,
					r->r12, r->r13, r->r14, r->r15};

	return by_number[dwarf & 15];
}

static bool cfa_of(const struct pf_rule *rule, const struct user_regs_struct *r, uint64_t *ret)
{
	bool sp =
		rule->cfa == PF_CFA_RSP || rule->cfa == PF_CFA_DEREF_RSP || rule->cfa == PF_CFA_PLT;
	bool bp = rule->cfa == PF_CFA_RBP || rule->cfa == PF_CFA_DEREF_RBP;
	uint64_t at = sp ? r->rsp : bp ? r->rbp : register_of(r, rule->reg);

	at += rule->cfa_offset;
	if (rule->cfa == PF_CFA_PLT)
		at += (int)(r->rip & 15) >= rule->extra ? 8 : 0;
	if (rule->cfa == PF_CFA_DEREF_RSP || rule->cfa == PF_CFA_DEREF_RBP ||
	    rule->cfa == PF_CFA_DEREF_REG) {
		if (!peek(at, &at, sizeof(at)))
			return false;
		at += rule->extra;
	}
	*ret = at;
	return true;
}

static enum outcome compare(const struct place *p, const struct user_regs_struct *r,
			    const struct call *truth)
{
	uint64_t cfa, bp = r->rbp, slot;

	if (!p->rule_known)
		return REFUSED;
	if (!cfa_of(&p->rule, r, &cfa))
		return WRONG;
	slot = p->rule.ra == PF_RA_CFA ? cfa + p->rule.extra : cfa - 8;
	if (p->rule.ra == PF_RA_REG)
		return EQUAL;
	if (slot != truth->slot)
		return WRONG;
	if (p->rule.fp == PF_FP_UNKNOWN)
		return NO_BP;
	if (p->rule.fp != PF_FP_SAME) {
		uint64_t at = p->rule.fp == PF_FP_CFA	   ? cfa
			      : p->rule.fp == PF_FP_AT_RBP ? r->rbp
							   : r->rsp;

		if (!peek(at + p->rule.fp_offset, &bp, sizeof(bp)))
			return WRONG;
	}
	return bp == truth->rbp ? EQUAL : WRONG;
}

static void list(const struct place *p, enum outcome o, const struct user_regs_struct *r)
{
	static size_t n[WRONG + 1];
	const struct call *truth = &calls[n_calls - 1];

	if (o == EQUAL || n[o]++ >= n_listed_max)
		return;
	printf("  %s: %s+0x%" PRIx64 " cfa %u reg %u %d %d fp %u %d; rsp is %" PRId64
	       " below the CFA\n",
	       outcome_names[o], p->file->path, p->pc - p->file->bias, p->rule.cfa, p->rule.reg,
	       p->rule.cfa_offset, p->rule.extra, p->rule.fp, p->rule.fp_offset,
	       (int64_t)(truth->slot + 8 - r->rsp));
}

static void check(struct place *p, const struct user_regs_struct *r)
{
	struct file *f = (struct file *)p->file;
	enum outcome o;

	while (n_calls && calls[n_calls - 1].slot < r->rsp)
		n_calls--;
	if (!n_calls || !p->compared)
		return;
	o = compare(p, r, &calls[n_calls - 1]);
	f->steps++;
	f->equal_steps += o == EQUAL;
	f->places += p->outcomes == 0;
	if (p->outcomes & o)
		return;
	p->outcomes |= o;
	f->by_outcome[o]++;
	list(p, o, r);
}

static struct place *place_of(uint64_t pc)
{
	struct place *p = &places[(pc ^ pc >> 22) % PLACES_MAX];

	if (p->pc != pc)
		learn_place(p, pc);
	return p;
}

/* ---- the program ---- */

/*
 * Lets the program run for a while as it does without us, and stops it again. What was called
 * before is not known any more. Returns false if the program has ended.
 */
static bool run_free(void)
{
	const struct timespec pause = {0, (long)free_ms * 1000000};
	int status;

	n_calls = 0;
	if (ptrace(PTRACE_CONT, pid, NULL, NULL))
		return false;
	nanosleep(&pause, NULL);
	kill(pid, SIGSTOP);
	for (;;) {
		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			return false;
		if (WSTOPSIG(status) == SIGSTOP)
			return true;
		if (ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)WSTOPSIG(status)))
			return false;
	}
}

/* Runs one instruction. Returns false if the program has ended. */
static bool run_one(int *signal)
{
	int status;

	if (ptrace(PTRACE_SINGLESTEP, pid, NULL, (void *)(intptr_t)*signal) ||
	    waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return false;
	*signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
	return true;
}

/* Runs the program for n instructions, or to its end. Returns how many were run. */
static uint64_t run(uint64_t n)
{
	struct user_regs_struct r, before = {0};
	struct place *last = NULL;
	uint64_t k = 0;
	int signal = 0;

	for (; k < n; k++) {
		struct place *p;

		if (window && k && k % window == 0) {
			if (!run_free())
				break;
			last = NULL;
			signal = 0;
		}
		if (ptrace(PTRACE_GETREGS, pid, NULL, &r))
			break;
		p = place_of(r.rip);
		if (last && last->call && r.rsp == before.rsp - 8 && n_calls < DEPTH_MAX)
			calls[n_calls++] = (struct call){r.rsp, before.rbp};
		check(p, &r);
		last = p;
		before = r;
		if (!run_one(&signal))
			break;
	}
	return k;
}

static void start(char **argv)
{
	int status;

	pid = fork();
	if (pid == 0) {
		personality(ADDR_NO_RANDOMIZE);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execvp(argv[0], argv);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
		fprintf(stderr, "step: %s: cannot be run\n", argv[0]);
		exit(2);
	}
	ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL);
}

static bool report(uint64_t steps)
{
	bool wrong = false;

	printf("%" PRIu64 " steps\n", steps);
	for (size_t k = 0; k < n_files; k++) {
		const struct file *f = &files[k];

		if (!f->steps)
			continue;
		wrong |= f->by_outcome[WRONG] != 0;
		printf("%s: %zu places, %.3f %% of %" PRIu64
		       " steps equal, %zu wrong, %zu refused, %zu without rbp\n",
		       f->path, f->places, 100.0 * f->equal_steps / f->steps, f->steps,
		       f->by_outcome[WRONG], f->by_outcome[REFUSED], f->by_outcome[NO_BP]);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	uint64_t steps = UINT64_MAX;
	int c;

	while ((c = getopt(argc, argv, "+an:l:w:m:")) != -1) {
		if (c == 'a')
			all_code = true;
		else if (c == 'n')
			steps = strtoull(optarg, NULL, 0);
		else if (c == 'w')
			window = strtoull(optarg, NULL, 0);
		else if (c == 'm')
			free_ms = strtoull(optarg, NULL, 0) % 1000;
		else if (c == 'l')
			n_listed_max = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	if (optind == argc) {
		fprintf(stderr, "usage: step [-a] [-n STEPS] [-w STEPS [-m MS]] [-l LISTED] "
				"PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	elf_version(EV_CURRENT);
	start(argv + optind);
	return report(run(steps));
}
