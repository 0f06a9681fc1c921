/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind: walks user stacks, one bpf_loop step a frame, by the tables of tables.h and, where code
 * has none, by frame pointers. The one unwinder of all programs; its state lies in the scratch
 * map, so the verifier sees one step however deep the stack is. Knows x86-64. docs/unwinding.md.
 */
#pragma once

#include "hash.h"

/* Registers by their DWARF numbers (psABI 3.6.2). */
#define PF_REGS	   16
#define PF_REG_RBP 6
#define PF_REG_RSP 7

/* A rule that was looked up before: one cache line instead of the ten that a look-up touches. */
struct pf_recent {
	uint64_t address; /* ELF virtual address */
	uint32_t file;
	uint32_t tables; /* pf_settings.tables then */
	struct pf_rule rule;
};
#define PF_RECENT_BITS	   9
#define PF_RULE_IS_SPECIAL 0xff /* pf_recent.rule.cfa: extra is an enum pf_rule_special */

/*
 * Stack memory is read in pieces: a read costs 70 ns, whatever it reads, more than all the rest
 * that is done for a frame.
 */
#define PF_WINDOW_BYTES 256
#define PF_USER_PAGE	4096

struct pf_walk {
	/* The frame at hand. */
	uint64_t ip, sp, bp;
	uint64_t regs[PF_REGS]; /* valid when `exact` */
	bool exact;		/* ip is where it stands, not where a call returns to */
	bool at_entry;		/* the first instruction of a function, for certain */
	bool bp_lost;		/* rbp is not known any more */
	bool by_record;		/* the last step followed a frame record */
	bool known;		/* the process has mappings */
	bool in_file;		/* ip may be code of a file: not known to be JIT code */
	uint32_t no_table;	/* enum pf_stack_end: what to say where nothing leads on */

	uint32_t tables; /* pf_settings.tables when the walk began */
	struct pf_process process;
	struct pf_mapping mapping; /* the one that the last address was in */
	struct pf_file file;	   /* of that mapping */

	uint64_t window; /* user address of what s->window has, */
	uint64_t window_bytes;

	/* What came out. */
	uint64_t hash;
	uint32_t exec_id;
	uint32_t n_frames;
	uint32_t n_words;
	uint32_t end; /* enum pf_stack_end */
};

#define PF_STACK_WORDS (2 * PF_MAX_USER_FRAMES) /* header and address */

struct pf_scratch {
	uint32_t busy;
	uint32_t pad;
	struct pf_walk walk;
	uint64_t kernel[PF_MAX_KERNEL_FRAMES + 1];
	uint64_t window[PF_WINDOW_BYTES / 8];
	struct pf_recent recent[1 << PF_RECENT_BITS];
	/* struct pf_rec_stack, with its words as an array that the verifier can bound */
	struct {
		struct pf_record h;
		uint64_t hash;
		uint32_t n_words;
		uint16_t n_frames, end;
		uint64_t words[PF_STACK_WORDS];
	} stack;
};

/* The loop's context must lie on the stack; it holds no state, only where the state is. */
struct pf_loop {
	struct pf_scratch *s;
};

/* ---- what comes out ---- */

static __always_inline void pf_stack_begin(struct pf_walk *w, uint64_t hash, uint32_t exec_id)
{
	w->hash = hash;
	w->exec_id = exec_id;
	w->n_frames = 0;
	w->n_words = 0;
	w->end = PF_END_DEPTH;
}

/* 0, or -1 when the stack is full. */
static __always_inline int pf_push(struct pf_scratch *s, uint32_t kind, uint64_t address)
{
	uint32_t n = s->walk.n_words;

	if (n > PF_STACK_WORDS - 2)
		return -1;
	s->stack.words[n] = PF_FRAME_HEADER(kind, 1, kind == PF_FRAME_NATIVE ? s->walk.exec_id : 0);
	s->stack.words[n + 1] = address;
	s->walk.hash = pf_hash_add(s->walk.hash, address);
	s->walk.n_words = n + 2;
	s->walk.n_frames++;
	return 0;
}

/* The walk is over: returns what ends a bpf_loop. */
static __always_inline int pf_end(struct pf_walk *w, uint32_t end)
{
	w->end = end;
	return 1;
}

/* ---- tables ---- */

/* The bytes of the chunk that a reference names; NULL: not there. */
static __always_inline const uint8_t *pf_chunk(uint32_t ref)
{
	uint32_t chunk = PF_REF_CHUNK(ref), zero = 0;
	void *inner = bpf_map_lookup_elem(&chunks, &chunk);

	return inner ? bpf_map_lookup_elem(inner, &zero) : NULL;
}

/* Keeps the verifier's bound and the compiler's copy of it one register. */
#define PF_BARRIER(x) asm volatile("" : "+r"(x))

/* bytes at an offset of a chunk, for reads of `size`; NULL outside of it. */
static __always_inline const void *pf_in_chunk(const uint8_t *chunk, uint64_t offset, uint32_t size)
{
	PF_BARRIER(offset);
	if (offset > PF_CHUNK_BYTES - size)
		return NULL;
	return chunk + offset;
}

/* All ones when a <= b, else 0: searches without branches that nobody can predict. */
static __always_inline uint64_t pf_mask_le(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b - 1) >> 63; /* both below 2^63 */
}

static __always_inline bool pf_mapping_in_part(struct pf_walk *w, const struct pf_part *part,
					       uint64_t pc)
{
	uint64_t at = PF_REF_BYTES(part->mappings) & ~7u;
	const uint8_t *chunk = pf_chunk(part->mappings);
	const struct pf_mapping *m;
	uint32_t n = part->n;

	if (!chunk || !n)
		return false;
	for (int k = 0; k < 11 && n > 1; k++) { /* 2^11 == PF_PART_MAPPINGS_MAX */
		uint64_t half = n / 2;
		uint64_t next = at + half * sizeof(*m);

		m = pf_in_chunk(chunk, next, sizeof(*m));
		if (!m)
			return false;
		at += half * sizeof(*m) & pf_mask_le(m->start, pc);
		n -= half;
	}
	m = pf_in_chunk(chunk, at, sizeof(*m));
	if (!m || pc < m->start || pc >= m->end)
		return false;
	w->mapping = *m;
	return true;
}

/* Makes w->mapping and w->file those of pc; false: there is none. */
static __always_inline bool pf_find_mapping(struct pf_walk *w, uint64_t pc)
{
	const struct pf_part *part = NULL;
	const struct pf_file *f;

	if (pc >= w->mapping.start && pc < w->mapping.end)
		return true;
	if (!w->known || pc >> 63)
		return false;
	for (uint32_t k = 0; k < PF_PARTS_MAX; k++)
		if (k < w->process.n_parts && w->process.parts[k].start <= pc)
			part = &w->process.parts[k];
	if (!part || !pf_mapping_in_part(w, part, pc))
		return false;
	f = bpf_map_lookup_elem(&unwind_files, &w->mapping.file);
	if (!f) {
		w->mapping.end = 0;
		return false;
	}
	/* The state first: whoever makes it ready has written the rest before. */
	w->file.state = *(volatile const uint32_t *)&f->state;
	w->file.first_page = f->first_page;
	w->file.n_pages = f->n_pages;
	w->file.pages = f->pages;
	w->file.rules = f->rules;
	w->file.n_rules = f->n_rules;
	return true;
}

/*
 * The rule of an address by the rows of its page. Callers ask for the byte before a return
 * address; but a signal's return goes to the first byte of the stub, which no call precedes.
 */
static __always_inline uint32_t pf_search_rows(const struct pf_page *page, uint32_t low,
					       bool caller)
{
	const uint8_t *chunk = pf_chunk(page->rows);
	uint64_t at = PF_REF_BYTES(page->rows);
	uint64_t end = at + (uint64_t)page->n_rows * sizeof(struct pf_row);
	const struct pf_row *row;
	uint32_t n = page->n_rows;

	if (!chunk || !n)
		return PF_RULE_GAP;
	for (int k = 0; k < 14 && n > 1; k++) { /* 2^14 == PF_PAGE_ROWS_MAX */
		uint64_t half = n / 2;
		uint64_t next = at + half * sizeof(*row);

		row = pf_in_chunk(chunk, next, sizeof(*row));
		if (!row)
			return PF_RULE_GAP;
		at += half * sizeof(*row) & pf_mask_le(row->address, low);
		n -= half;
	}
	if (caller && at + sizeof(*row) < end) {
		row = pf_in_chunk(chunk, at + sizeof(*row), sizeof(*row));
		if (row && row->rule == PF_RULE_SIGNAL && row->address == low + 1)
			return PF_RULE_SIGNAL;
	}
	row = pf_in_chunk(chunk, at, sizeof(*row));
	return row ? row->rule : PF_RULE_GAP;
}

/* By the file's pages, rows and rules; a special rule as pf_recent has it. */
static __always_inline void pf_look_up(struct pf_walk *w, uint64_t address, struct pf_rule *ret)
{
	uint64_t n = (address >> PF_PAGE_BITS) - w->file.first_page;
	const struct pf_rule *rule = NULL;
	const struct pf_page *page;
	const uint8_t *chunk;
	uint32_t number;

	ret->cfa = PF_RULE_IS_SPECIAL;
	ret->extra = PF_RULE_GAP;
	if (n >= w->file.n_pages || !(chunk = pf_chunk(w->file.pages)))
		return;
	page = pf_in_chunk(chunk, PF_REF_BYTES(w->file.pages) + n * sizeof(*page), sizeof(*page));
	if (!page)
		return;
	number = pf_search_rows(page, address & (PF_PAGE_BYTES - 1), !w->exact);
	ret->extra = number;
	if (number >= PF_RULE_SPECIAL_MIN)
		return;
	ret->extra = PF_RULE_UNSUPPORTED;
	if (number >= w->file.n_rules || !(chunk = pf_chunk(w->file.rules)))
		return;
	rule = pf_in_chunk(chunk, PF_REF_BYTES(w->file.rules) + (uint64_t)number * sizeof(*rule),
			   sizeof(*rule));
	if (rule)
		*ret = *rule;
}

/* The rule for the frame at hand; NULL: code without a table, no_table says why. */
static __always_inline const struct pf_rule *pf_rule_of(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint64_t pc = w->exact ? w->ip : w->ip - 1, address, slot;
	struct pf_recent *r;

	w->no_table = w->known ? PF_END_FP : PF_END_PENDING;
	w->in_file = !w->known;
	if (!pf_find_mapping(w, pc))
		return NULL;
	w->in_file = true;
	if (w->file.state != PF_FILE_READY) {
		w->no_table = w->file.state == PF_FILE_NONE ? PF_END_NO_TABLE : PF_END_PENDING;
		return NULL;
	}
	w->no_table = PF_END_FP;
	/* A leaf and a caller at one address may have two rules: pf_search_rows. */
	address = (pc - w->mapping.bias) << 1 | w->exact;
	slot = (address + w->mapping.file) * PF_HASH_K >> (64 - PF_RECENT_BITS);
	r = &s->recent[slot];
	if (r->address != address || r->file != w->mapping.file || r->tables != w->tables) {
		pf_look_up(w, address >> 1, &r->rule);
		r->address = address;
		r->file = w->mapping.file;
		r->tables = w->tables;
	}
	return &r->rule;
}

/* ---- from a frame to its caller: each sets ip, sp and bp, or ends the walk (1) ---- */

static __always_inline bool pf_read(void *to, uint32_t n, uint64_t address)
{
	return !bpf_probe_read_user(to, n, (const void *)address);
}

/* A word of the stack; the window moves up with the walk, and never reaches into another page. */
static __always_inline bool pf_word(struct pf_scratch *s, uint64_t address, uint64_t *ret)
{
	struct pf_walk *w = &s->walk;
	uint64_t offset = address - w->window;

	if (address & 7)
		return pf_read(ret, sizeof(*ret), address);
	if (offset >= w->window_bytes) {
		uint32_t n = PF_USER_PAGE - (address & (PF_USER_PAGE - 1));

		if (n > PF_WINDOW_BYTES)
			n = PF_WINDOW_BYTES;
		w->window_bytes = 0;
		if (!pf_read(s->window, n, address))
			return false;
		w->window = address;
		w->window_bytes = n;
		offset = 0;
	}
	*ret = s->window[offset / 8 % (PF_WINDOW_BYTES / 8)];
	return true;
}

static __always_inline int pf_caller(struct pf_walk *w, uint64_t ip, uint64_t sp)
{
	if (!ip)
		return pf_end(w, PF_END_ROOT);
	if (ip >> 56 || ip < 4096) /* no address of code on any x86-64 (57 bits at most) */
		return pf_end(w, PF_END_BAD_PC);
	w->ip = ip;
	w->sp = sp;
	w->exact = false;
	return 0;
}

static __always_inline bool pf_rule_base(const struct pf_walk *w, const struct pf_rule *r,
					 uint64_t *ret)
{
	switch (r->cfa) {
	case PF_CFA_RBP:
	case PF_CFA_DEREF_RBP:
		*ret = w->bp;
		return !w->bp_lost;
	case PF_CFA_REG:
	case PF_CFA_DEREF_REG:
		*ret = w->regs[r->reg % PF_REGS];
		return w->exact;
	default:
		*ret = w->sp;
		return true;
	}
}

static __always_inline int pf_rule_cfa(struct pf_scratch *s, const struct pf_rule *r, uint64_t *ret)
{
	struct pf_walk *w = &s->walk;
	uint64_t cfa;

	if (!pf_rule_base(w, r, &cfa))
		return pf_end(w, PF_END_REGISTER);
	cfa += r->cfa_offset;
	if (r->cfa == PF_CFA_PLT) {
		cfa += (int)(w->ip & 15) >= r->extra ? 8 : 0;
	} else if (r->cfa >= PF_CFA_DEREF_RSP) {
		if (!pf_word(s, cfa, &cfa))
			return pf_end(w, PF_END_READ);
		cfa += r->extra;
	}
	*ret = cfa;
	return 0;
}

/* The caller's rbp, when it does not lie beside the return address. Reads nothing when it is the same. */
static __always_inline int pf_rule_bp(struct pf_scratch *s, const struct pf_rule *r, uint64_t cfa)
{
	struct pf_walk *w = &s->walk;
	uint64_t at = cfa, bp;

	if (r->fp == PF_FP_SAME)
		return 0;
	if (r->fp == PF_FP_UNKNOWN) {
		w->bp_lost = true;
		return 0;
	}
	if (r->fp == PF_FP_AT_RBP) {
		if (w->bp_lost)
			return pf_end(w, PF_END_REGISTER);
		at = w->bp;
	} else if (r->fp == PF_FP_AT_RSP) {
		at = w->sp;
	}
	if (!pf_word(s, at + r->fp_offset, &bp))
		return pf_end(w, PF_END_READ);
	w->bp = bp;
	w->bp_lost = false;
	return 0;
}

static __always_inline int pf_by_rule(struct pf_scratch *s, const struct pf_rule *r)
{
	struct pf_walk *w = &s->walk;
	bool in_register = r->ra == PF_RA_REG;
	uint64_t cfa, ra;

	w->by_record = false;
	if (pf_rule_cfa(s, r, &cfa))
		return 1;
	if (in_register && !w->exact)
		return pf_end(w, PF_END_REGISTER);
	if (cfa < w->sp + (in_register ? 0 : 8))
		return pf_end(w, PF_END_STUCK);
	/* rbp first: it lies below the return address, which is in the same piece of memory then. */
	if (pf_rule_bp(s, r, cfa))
		return 1;
	if (in_register)
		ra = w->regs[r->reg % PF_REGS];
	else if (!pf_word(s, r->ra == PF_RA_CFA ? cfa + r->extra : cfa - 8, &ra))
		return pf_end(w, PF_END_READ);
	return pf_caller(w, ra, cfa);
}

/* rbp points to {caller's rbp, return address}. may_switch: the caller's stack may be another. */
static __always_inline int pf_by_record(struct pf_scratch *s, bool may_switch)
{
	struct pf_walk *w = &s->walk;
	uint64_t fp = w->bp, bp, ra;
	bool first = !w->by_record && (w->no_table != PF_END_FP || w->n_frames == 1);

	if (w->bp_lost)
		return pf_end(w, may_switch ? PF_END_REGISTER : w->no_table);
	/* No record: the outermost frame, where frame pointers are kept. */
	if (!fp)
		return pf_end(w, first && !may_switch ? w->no_table : PF_END_ROOT);
	if (fp & 7 || (fp < w->sp && !may_switch))
		return pf_end(w, may_switch ? PF_END_STUCK : w->no_table);
	if (!pf_word(s, fp, &bp) || !pf_word(s, fp + 8, &ra))
		return pf_end(w, w->no_table == PF_END_FP ? PF_END_READ : w->no_table);
	if (bp == fp)
		return pf_end(w, PF_END_STUCK);
	if (ra && (ra >> 56 || ra < 4096))
		return pf_end(w, may_switch ? PF_END_BAD_PC : w->no_table);
	w->bp = bp;
	w->by_record = true;
	return pf_caller(w, ra, fp + 16);
}

enum pf_place {
	PF_IN_BODY,   /* rbp points to the frame's record, if it has one */
	PF_AT_ENTRY,  /* return address at [rsp], rbp is the caller's */
	PF_AFTER_PUSH /* caller's rbp at [rsp], return address at [rsp + 8] */
};

/*
 * Where in its function code stands that has no table, by the bytes at ip and the one before.
 * Before its frame record is made and after it is gone, rbp is the caller's: following it
 * would lose the caller.
 */
static __always_inline uint32_t pf_place_of(uint32_t bytes, uint8_t before)
{
	uint8_t first = bytes, second = bytes >> 8;

	if (first == 0x55 || bytes == 0xfa1e0ff3) /* push %rbp, endbr64 */
		return PF_AT_ENTRY;
	if (first == 0xc3 || first == 0xc2 || (first == 0xf3 && second == 0xc3)) /* ret */
		return PF_AT_ENTRY;
	/* pop %rbp; jmp: a tail call */
	if (before == 0x5d && (first == 0xe9 || first == 0xeb || (first == 0xff && second == 0x25)))
		return PF_AT_ENTRY;
	/* push %rbp; mov %rsp,%rbp in its two encodings */
	bytes &= 0xffffff;
	if (before == 0x55 && (bytes == 0xe58948 || bytes == 0xec8b48))
		return PF_AFTER_PUSH;
	return PF_IN_BODY;
}

/* mov $15,%eax or %rax; syscall: rt_sigreturn. C libraries align it, or put one nop before it. */
static __always_inline bool pf_is_sigreturn(uint64_t bytes)
{
	return bytes == 0x0f0000000fc0c748 || (bytes & 0xffffffffffffff) == 0x050f0000000fb8;
}

/* Words of the kernel's struct sigcontext_64, in struct ucontext at 40, and whose register each is. */
/* clang-format off */
#define PF_SIGCONTEXT(X) \
	X(0, 8) X(1, 9) X(2, 10) X(3, 11) X(4, 12) X(5, 13) X(6, 14) X(7, 15) \
	X(8, 5) X(9, 4) X(10, 6) X(11, 3) X(12, 1) X(13, 0) X(14, 2) X(15, 7)
/* clang-format on */

/* The frame at hand is a signal's: the kernel has put all registers into a ucontext at rsp. */
static __always_inline int pf_by_signal(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;

	w->window_bytes = 0;
	if (!pf_read(s->window, (PF_REGS + 1) * 8, w->sp + 40))
		return pf_end(w, PF_END_READ);
#define X(word, number) w->regs[number] = s->window[word];
	PF_SIGCONTEXT(X)
#undef X
	w->ip = s->window[PF_REGS];
	w->sp = w->regs[PF_REG_RSP];
	w->bp = w->regs[PF_REG_RBP];
	w->bp_lost = false;
	w->by_record = false;
	w->exact = true;
	return 0;
}

/* Code without a table. */
static __always_inline int pf_by_guess(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint32_t place = PF_IN_BODY;
	uint8_t before = 0;
	uint32_t code;
	uint64_t bytes, top, ra;

	if (w->exact) {
		pf_read(&before, 1, w->ip - 1);
		/* Where nothing can be read there is no code: a call that went astray. */
		if (w->at_entry || !pf_read(&code, sizeof(code), w->ip))
			place = PF_AT_ENTRY;
		else
			place = pf_place_of(code, before);
	} else if (w->in_file && (w->ip & 15) <= 1 && pf_read(&bytes, sizeof(bytes), w->ip) &&
		   pf_is_sigreturn(bytes)) {
		return pf_by_signal(s);
	}
	if (place == PF_IN_BODY)
		return pf_by_record(s, false);
	if (!pf_word(s, w->sp, &top))
		return pf_end(w, PF_END_READ);
	w->by_record = false;
	if (place == PF_AT_ENTRY)
		return pf_caller(w, top, w->sp + 8);
	if (!pf_word(s, w->sp + 8, &ra))
		return pf_end(w, PF_END_READ);
	w->bp = top;
	w->bp_lost = false;
	return pf_caller(w, ra, w->sp + 16);
}

static __always_inline int pf_to_caller(struct pf_scratch *s)
{
	const struct pf_rule *r = pf_rule_of(s);
	struct pf_walk *w = &s->walk;

	if (!r)
		return pf_by_guess(s);
	if (r->cfa != PF_RULE_IS_SPECIAL)
		return pf_by_rule(s, r);
	switch (r->extra) {
	case PF_RULE_GAP:
		return pf_by_guess(s);
	case PF_RULE_ROOT:
		return pf_end(w, PF_END_ROOT);
	case PF_RULE_SIGNAL:
		return pf_by_signal(s);
	case PF_RULE_FP:
		return pf_by_record(s, true);
	}
	return pf_end(w, PF_END_EXPRESSION);
}

static long pf_step(uint32_t i, struct pf_loop *loop)
{
	struct pf_scratch *s = loop->s;
	struct pf_walk *w = &s->walk;

	(void)i;
	if (pf_to_caller(s))
		return 1;
	w->at_entry = false;
	/* Who was interrupted did not call: one more, so that the byte before an address is always right. */
	return pf_push(s, PF_FRAME_NATIVE, w->exact ? w->ip + 1 : w->ip) ? pf_end(w, PF_END_DEPTH)
									 : 0;
}

/*
 * Fills s->stack from s->walk: ip, regs, known and process are set. hash_seed from pf_hash_start.
 * at_entry: of a uprobe at a function's first instruction. Returns the stack's hash.
 */
static __always_inline uint64_t pf_walk_user(struct pf_scratch *s, uint32_t exec_id,
					     uint64_t hash_seed, bool at_entry, bool compat)
{
	struct pf_loop loop = {.s = s};
	struct pf_walk *w = &s->walk;

	w->sp = w->regs[PF_REG_RSP];
	w->bp = w->regs[PF_REG_RBP];
	w->exact = true;
	w->at_entry = at_entry;
	w->bp_lost = false;
	w->by_record = false;
	w->mapping.start = w->mapping.end = 0;
	w->window_bytes = 0;
	pf_stack_begin(w, pf_hash_add(hash_seed, exec_id), exec_id);
	pf_push(s, PF_FRAME_NATIVE, w->ip);
	if (compat)
		w->end = PF_END_COMPAT;
	else
		bpf_loop(PF_MAX_USER_FRAMES, pf_step, &loop, 0);
	return pf_hash_end(pf_hash_add(w->hash, w->end));
}
