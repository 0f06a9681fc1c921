/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the unwind rows of Go's functions. The exact size of the frame at each instruction comes
 * from the runtime's own table, and the place of the saved rbp from the prologue's bytes. The few
 * functions that change stacks are in the table `specials`, by name. What the table says of each
 * function was read from Go's source (src/runtime/asm_amd64.s, sys_linux_amd64.s).
 */
#include "node/parse/gopclntab.h"

/* What is true after the first write of rsp that the table of frame sizes cannot express. */
enum switch_kind {
	SWITCH_NONE,  /* the function has no write that the table cannot express */
	SWITCH_FRAME, /* rbp leads to the caller, on the other stack if the stack was changed */
	SWITCH_ROOT,  /* a stack begins here, and no goroutine waits for it */
	/* the scheduler's stack: the goroutine waits, and has saved its position */
	SWITCH_GOROUTINE,
	SWITCH_LOST,  /* neither rsp nor rbp leads to a caller */
	WHOLE_ROOT,   /* the whole function is the outermost frame */
	WHOLE_SIGNAL, /* rt_sigreturn */
};

struct special {
	const char *name;
	enum switch_kind kind;
};

/*
 * Functions are found by name, because Go 1.16 has no flags. A program whose names are garbled is
 * newer, and its flags are used. mcall and morestack switch to the stack of g0, clear rbp, and
 * never return. After mcall, the goroutine does not wait for the code on g0. After morestack, the
 * goroutine waits for that code, until the scheduler chooses another goroutine. Then execute()
 * makes that one the thread's goroutine, before gogo switches from g0 to it. In clone, the code
 * after the write of rsp runs on the new thread. sigtramp has the flag "top frame", but the
 * kernel's signal frame is above it.
 */
static const struct special specials[] = {
	{"_rt0_amd64", WHOLE_ROOT},
	{"_rt0_amd64_linux", WHOLE_ROOT},
	{"gogo", SWITCH_LOST},
	{"runtime.asmcgocall", SWITCH_FRAME},
	{"runtime.asmcgocall_no_g", SWITCH_FRAME},
	{"runtime.callCgoMmap", SWITCH_FRAME},
	{"runtime.callCgoMunmap", SWITCH_FRAME},
	{"runtime.callCgoSigaction", SWITCH_FRAME},
	{"runtime.cgocallback", SWITCH_FRAME},
	{"runtime.clone", SWITCH_ROOT},
	{"runtime.execute", WHOLE_ROOT},
	{"runtime.goexit", WHOLE_ROOT},
	{"runtime.gogo", SWITCH_LOST},
	{"runtime.mcall", SWITCH_ROOT},
	{"runtime.morestack", SWITCH_GOROUTINE},
	{"runtime.mstart", WHOLE_ROOT},
	{"runtime.nanotime1", SWITCH_FRAME},
	{"runtime.rt0_go", WHOLE_ROOT},
	{"runtime.sigfwd", SWITCH_FRAME},
	{"runtime.sigreturn", WHOLE_SIGNAL},
	{"runtime.sigreturn__sigaction", WHOLE_SIGNAL},
	{"runtime.sigtramp", SWITCH_NONE},
	{"runtime.systemstack", SWITCH_FRAME},
	{"runtime.walltime", SWITCH_FRAME},
	{"runtime.walltime1", SWITCH_FRAME},
	{"time.now", SWITCH_FRAME},
};

static enum switch_kind kind_of(const struct go_function *f)
{
	size_t low = 0, high = ARRAY_SIZE(specials);

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(f->name, specials[middle].name);

		if (order == 0)
			return specials[middle].kind;
		if (order > 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (f->flags & GO_TOP_FRAME)
		return WHOLE_ROOT;
	return f->flags & GO_SP_WRITE ? SWITCH_FRAME : SWITCH_NONE;
}

/* ---- code bytes ---- */

struct frame_state {
	const struct go_table *t;
	const struct go_function *f;
	enum switch_kind kind;
	uint64_t switched;   /* rsp is written before this address; UINT64_MAX: never */
	int32_t established; /* size of the frame since rbp was saved; 0: not yet saved */
	int32_t fp_offset;   /* where rbp is saved, relative to the CFA */
};

static const uint8_t *code_at(const struct frame_state *s, uint64_t address, size_t n)
{
	uint64_t inside = address - s->t->code_address;

	return address >= s->f->entry && address < s->f->end && n <= s->t->code.n - inside
		       ? s->t->code.data + inside
		       : NULL;
}

/*
 * Returns whether the instruction is mov X,%rsp, lea X,%rsp or and $X,%rsp. Besides these, only
 * add, sub, push and pop write rsp.
 */
static bool writes_rsp(const uint8_t code[3])
{
	if ((code[0] & 0xfe) != 0x48 && code[0] != 0x4c)
		return false;
	if (code[1] == 0x89)
		return code[0] != 0x49 && (code[2] & 0xc7) == 0xc4;
	if (code[1] == 0x8b || code[1] == 0x8d)
		return code[0] != 0x4c && (code[2] & 0x38) == 0x20;
	return code[0] == 0x48 && (code[1] == 0x83 || code[1] == 0x81) && code[2] == 0xe4;
}

static uint64_t find_switch(const struct frame_state *s)
{
	for (uint64_t a = s->f->entry; a < s->f->end; a++) {
		const uint8_t *code = code_at(s, a, 3);

		if (code && writes_rsp(code))
			return a + 1;
	}
	return UINT64_MAX;
}

/*
 * Returns whether the instruction before address, which has made the frame 8 bytes larger, is push
 * %rbp (55). push %r13 is 41 55.
 */
static bool is_push_rbp(const struct frame_state *s, uint64_t start, uint64_t address)
{
	const uint8_t *code = code_at(s, address - 1, 4);

	if (!code || address - 1 < start || code[0] != 0x55)
		return false;
	if (code[1] == 0x48 && code[2] == 0x89 && code[3] == 0xe5) /* mov %rsp,%rbp */
		return true;
	return address - 2 < start || address < 2 || code[-1] != 0x41;
}

/*
 * If mov %rbp,N(%rsp) is at the address, returns its length; else 0. Before Go 1.21, this is the
 * first instruction after rsp was lowered by `size` bytes.
 */
static unsigned saves_rbp(const struct frame_state *s, uint64_t address, int32_t size)
{
	const uint8_t *code = code_at(s, address, 8);
	int32_t offset;

	if (!code || code[0] != 0x48 || code[1] != 0x89 || code[3] != 0x24)
		return 0;
	if (code[2] == 0x2c && size == 8)
		return 4;
	if (code[2] == 0x6c && (int8_t)code[4] == size - 8)
		return 5;
	memcpy(&offset, code + 4, 4);
	return code[2] == 0xac && offset == size - 8 ? 8 : 0;
}

/* ---- rows ---- */

/*
 * Returns the rule of rawVforkSyscall, which keeps its return address in a register, by pop %r8 to
 * %r15 before start.
 */
static uint16_t popped_rule(const struct frame_state *s, uint64_t start)
{
	const uint8_t *code = code_at(s, start - 2, 2);
	struct pf_rule rule = {.cfa = PF_CFA_RSP, .fp = PF_FP_SAME, .ra = PF_RA_REG};

	if (!code || code[0] != 0x41 || (code[1] & 0xf8) != 0x58)
		return PF_RULE_UNSUPPORTED;
	rule.reg = 8 + (code[1] & 7);
	return parse_rows_rule(s->t->b->rows, &rule);
}

static uint16_t frame_rule(const struct frame_state *s, int32_t size)
{
	bool saved = s->established && size >= s->established;
	struct pf_rule rule = {
		.cfa = PF_CFA_RSP,
		.fp = saved ? PF_FP_CFA : PF_FP_SAME,
		.ra = PF_RA_CFA8,
		.cfa_offset = size + 8,
		.fp_offset = saved ? s->fp_offset : 0,
	};

	if (size < 0 || size > INT32_MAX - 8)
		return PF_RULE_UNSUPPORTED;
	return parse_rows_rule(s->t->b->rows, &rule);
}

static uint16_t switched_rule(const struct frame_state *s, int32_t size)
{
	if (s->kind == SWITCH_ROOT)
		return PF_RULE_ROOT;
	if (s->kind == SWITCH_GOROUTINE)
		return PF_RULE_GOROUTINE;
	if (s->kind == SWITCH_LOST)
		return PF_RULE_UNSUPPORTED;
	/*
	 * After the epilogue, rsp and rbp have the caller's values. Without a frame, only rbp can
	 * be followed.
	 */
	return s->established && size < s->established ? frame_rule(s, size) : PF_RULE_FP;
}

static void add_rows(const struct frame_state *s, uint64_t start, uint64_t end, int32_t size)
{
	uint64_t middle = MIN(MAX(s->switched, start), end);

	if (start < middle)
		parse_rows_add(s->t->b->rows, start, middle,
			       size == -8 ? popped_rule(s, start) : frame_rule(s, size));
	if (middle < end)
		parse_rows_add(s->t->b->rows, middle, end, switched_rule(s, size));
}

static void add_frames(struct frame_state *s)
{
	const struct go_function *f = s->f;
	struct go_values v = parse_go_values(s->t, f->sp);
	uint64_t before = f->entry; /* start of the previous row */
	int32_t size = 0;

	while (parse_go_values_next(&v) && v.start < f->end - f->entry) {
		uint64_t start = f->entry + v.start, end = f->entry + v.end;

		/*
		 * The last row also covers the padding, where no code runs. So no row for a gap is
		 * needed.
		 */
		end = end >= f->end ? f->padded_end : end;
		if (!s->established && v.value > size) {
			unsigned n = saves_rbp(s, start, v.value);

			if (n && n < end - start) {
				add_rows(s, start, start + n, v.value);
				start += n;
			}
			if (n || (v.value == size + 8 && is_push_rbp(s, before, start))) {
				s->established = v.value;
				s->fp_offset = n ? -16 : -8 - v.value;
			}
		}
		add_rows(s, start, end, v.value);
		before = start;
		size = v.value;
	}
}

void parse_go_rows(const struct go_table *t, const struct go_function *f)
{
	struct frame_state s = {.t = t, .f = f, .kind = kind_of(f), .switched = UINT64_MAX};

	if (s.kind == WHOLE_ROOT || s.kind == WHOLE_SIGNAL) {
		parse_rows_add(t->b->rows, f->entry, f->padded_end,
			       s.kind == WHOLE_ROOT ? PF_RULE_ROOT : PF_RULE_SIGNAL);
		return;
	}
	if (s.kind != SWITCH_NONE)
		s.switched = find_switch(&s);
	add_frames(&s);
}
