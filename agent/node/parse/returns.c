/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the frames of code without rows backwards, from its returns. The code is decoded one
 * instruction after the other, from each place where a function may begin. Each instruction has the
 * frame that the ways from it to a return have in common. Where a function begins, that frame must
 * be the one of a function's first instruction; if it is, start and returns agree about all code on
 * the ways between them.
 */
#include "node/parse/insn_kinds.h"
#include "node/parse/returns.h"

#include <stdlib.h>

#define PIECE_BYTES FLOW_BYTES_MAX /* code that is worked on at a time */
#define ROUNDS	    512	  /* limit for the rounds of a piece; beyond it, nothing is believed */
#define ALIGNMENT   16	  /* of functions in hand-written code */
#define KEEPS_INSNS 1024  /* instructions of a subroutine that are looked at, at most */
#define TABLE_LOOK  8	  /* instructions before a jump that are looked at for a table, at most */
#define TABLE_REACH 65536 /* bytes behind a jump through a table to which it may lead */

enum {
	START = 1,    /* a function may begin here: the code before ends, and this is aligned */
	CALLED = 2,   /* a function begins here: its address is used, or it is called */
	REACHED = 4,  /* from the start of a function for certain */
	PADDING = 8,  /* an instruction that fills the space before a function or a loop */
	BAD = 16,     /* no instruction is here */
	JUMP = 32,    /* where the instruction leads must be asked: it is a jump, call or return */
	CHANGED = 64, /* in the last round */
	NO_BP = 128,  /* on a way here from a function's start, rbp may have been overwritten */
	BEGINS = 256, /* start_of(): a function begins here, or what is like one */
};
struct place {
	struct code_frame frame;
	uint8_t bytes; /* of the instruction; 0: none begins here */
	uint16_t flags;
};
struct piece {
	struct elf_build *b;
	const uint8_t *code;
	uint64_t start;
	size_t n;
	struct place *places;
	uint32_t *work;
	struct flow_budget *budget;
};

/* ---- where instructions begin ---- */

/* Decodes from `at` up to an instruction that was decoded before. */
static void decode_from(struct piece *p, size_t at)
{
	bool ended = true; /* what is before `at` does not continue here */
	struct insn i;

	while (at < p->n && !p->places[at].bytes && !(p->places[at].flags & BAD)) {
		struct place *x = &p->places[at];

		parse_flow_charge(p->budget, 1);
		if (!p->budget->insns)
			return;
		if (!insn_decode(p->code + at, p->n - at, &i)) {
			x->flags |= BAD;
			ended = true;
			at++;
			continue;
		}
		x->bytes = i.bytes;
		x->flags |= insn_is_padding(&i) ? PADDING : 0;
		if (ends_flow(&i) || is_branch(&i) || is_call(&i))
			x->flags |= JUMP;
		if (ended && !insn_is_padding(&i) && (p->start + at) % ALIGNMENT == 0)
			x->flags |= START;
		ended = ends_flow(&i) || (ended && insn_is_padding(&i));
		at += i.bytes;
	}
}

/* Decodes from the targets of calls and jumps; functions begin at those of calls. */
static void decode_targets(struct piece *p)
{
	struct insn i;

	for (size_t at = 0; at < p->n && p->budget->insns; at++) {
		uint64_t to;

		if (!p->places[at].bytes || !(p->places[at].flags & JUMP) ||
		    !insn_decode(p->code + at, p->n - at, &i))
			continue;
		parse_flow_charge(p->budget, 1);
		to = at + i.bytes + i.immediate;
		if (to >= p->n || !(is_call(&i) || is_jump(&i) || is_branch(&i)) ||
		    is_indirect(&i) || insn_is(&i, 0xff))
			continue;
		decode_from(p, to);
		if (is_call(&i))
			p->places[to].flags |= CALLED;
	}
}

/*
 * Decodes the piece from its first byte, then from each start. What looks like an address in the
 * file's code may be anything (starts.c): a start inside of an instruction is none, unless it is
 * aligned as functions are.
 */
static void decode_all(struct piece *p, const uint64_t *starts, size_t n_starts)
{
	p->places[0].flags |= START;
	decode_from(p, 0);
	for (size_t k = 0; k < n_starts; k++) {
		size_t at = starts[k] - p->start;

		if (starts[k] % ALIGNMENT == 0)
			decode_from(p, at);
		if (p->places[at].bytes)
			p->places[at].flags |= CALLED;
	}
	decode_targets(p);
}

/* ---- where an instruction leads ---- */

static const struct code_frame *frame_at(const struct piece *p, uint64_t to)
{
	static const struct code_frame unseen = {0};

	return to < p->n ? &p->places[to].frame : &unseen;
}

/* Returns where the first instruction at or after `at` is that is no padding. */
static size_t behind_padding(const struct piece *p, size_t at)
{
	while (at < p->n && p->places[at].flags & PADDING)
		at += p->places[at].bytes;
	return at;
}

/*
 * Returns whether the code goes on behind a call. What is behind padding, or begins a function, may
 * belong to something else, and the call may never return.
 */
static bool comes_back(const struct piece *p, uint64_t next)
{
	return next < p->n && !(p->places[next].flags & (PADDING | CALLED));
}

/* Returns the offset of the instruction before one; at itself: there is none. */
static size_t before(const struct piece *p, size_t at)
{
	for (size_t bytes = 1; bytes <= MIN(at, (size_t)INSN_BYTES_MAX); bytes++)
		if (p->places[at - bytes].bytes == bytes)
			return at - bytes;
	return at;
}

/*
 * Returns whether an indirect jump leads through a table, and not to another function: the jump has
 * an index, or its register was loaded with one or added to shortly before, which is how tables of
 * addresses and of distances are used.
 */
static bool is_table_jump(const struct piece *p, size_t at, const struct insn *jump)
{
	struct insn i;
	size_t last;

	if (jump->mod != 3 || jump->notrack)
		return jump->notrack || (jump->base == INSN_NO_REG && !is_far(jump));
	for (unsigned k = 0; k < TABLE_LOOK; k++) {
		last = at;
		at = before(p, last);
		if (at == last || p->places[at].flags & JUMP ||
		    !insn_decode(p->code + at, p->n - at, &i))
			return false;
		if (!(i.written & 1u << jump->rm))
			continue;
		if (insn_is(&i, 0x01) || insn_is(&i, 0x03))
			return true;
		return insn_is(&i, 0x8b) && i.mod != 3 && (i.rm & 7) == 4 && i.base == INSN_NO_REG;
	}
	return false;
}

/*
 * Sets what holds after the instruction, by where it leads. A jump through a table is taken for one
 * to the code right behind it. If it does not lead there, a function's start will not agree.
 */
static void find_after(const struct piece *p, size_t at, const struct insn *i,
		       struct code_frame *ret)
{
	uint64_t next = at + i->bytes;

	*ret = (struct code_frame){0};
	if (is_indirect(i) && is_table_jump(p, at, i)) {
		*ret = *frame_at(p, behind_padding(p, next));
	} else if (is_return(i) || is_indirect(i)) {
		*ret = parse_frame_entered;
		ret->returns = is_return(i) || is_far(i);
		ret->called = !ret->returns;
	} else if (is_jump(i)) {
		*ret = *frame_at(p, next + i->immediate);
	} else if (is_branch(i)) {
		*ret = *frame_at(p, next);
		parse_frame_merge(ret, frame_at(p, next + i->immediate));
	} else if (is_call(i)) {
		if (comes_back(p, next))
			*ret = *frame_at(p, next);
		ret->called |= ret->known == FRAME_KNOWN;
	} else if (!ends_flow(i)) {
		*ret = *frame_at(p, next);
	}
}

/*
 * Returns whether a subroutine leaves a register as it is, although it need not. Its code must be
 * in one part, without calls, up to its return.
 */
static bool keeps(const struct piece *p, size_t start, unsigned reg)
{
	size_t at = start, end = start; /* end: behind this, no branch leads */
	struct insn i;

	for (unsigned k = 0; k < KEEPS_INSNS && at < p->n; k++, at += i.bytes) {
		uint64_t to;

		parse_flow_charge(p->budget, 1);
		if (!insn_decode(p->code + at, p->n - at, &i) ||
		    parse_frame_written(&i) & 1u << reg || is_call(&i))
			return false;
		to = at + i.bytes + i.immediate;
		if (is_return(&i) && at >= end)
			return true;
		if (is_branch(&i) && (to < start || to >= p->n))
			return false;
		if (is_branch(&i))
			end = MAX(end, to);
		else if (ends_flow(&i) && !is_return(&i))
			return false;
	}
	return false;
}

/* Returns whether the instruction calls a subroutine that keeps the base of the frame. */
static bool keeps_base(const struct piece *p, size_t at, const struct insn *i,
		       const struct code_frame *f)
{
	uint64_t to = at + i->bytes + i->immediate;

	return f->known == FRAME_KNOWN && insn_is(i, 0xe8) && i->immediate && to < p->n &&
	       keeps(p, to, f->base);
}

/*
 * Returns whether a frame must be found again in a round that is not the first. Frames of places
 * behind change before, and only jumps lead to other places.
 */
static bool is_stale(const struct piece *p, size_t at)
{
	const struct place *x = &p->places[at];
	size_t next = at + x->bytes;

	return x->flags & JUMP || (next < p->n && p->places[next].flags & CHANGED);
}

/* One round, from the last instruction to the first. Returns whether a frame has changed. */
static bool go_back(struct piece *p, bool first)
{
	bool changed = false;

	parse_flow_charge(p->budget, p->n / 16);
	for (size_t at = p->n; at-- > 0;) {
		struct place *x = &p->places[at];
		struct code_frame frame;
		struct insn i;

		x->flags &= ~CHANGED;
		if (!x->bytes || x->frame.known == FRAME_NONE || (!first && !is_stale(p, at)))
			continue;
		parse_flow_charge(p->budget, 1);
		if (!p->budget->insns || !insn_decode(p->code + at, p->n - at, &i))
			continue;
		find_after(p, at, &i, &frame);
		if (!is_return(&i) && !keeps_base(p, at, &i, &frame))
			parse_frame_before(&frame, &i);
		/* what was known is never believed again once the ways disagree */
		parse_frame_merge(&frame, &x->frame);
		if (parse_frame_equal(&frame, &x->frame))
			continue;
		x->frame = frame;
		x->flags |= CHANGED;
		changed = true;
	}
	return changed;
}

/* ---- what a function's start says ---- */

struct reaching {
	struct piece *p;
	size_t n_work;
};

static void reach(struct reaching *r, size_t to, uint8_t how)
{
	struct place *x;

	if (to >= r->p->n)
		return;
	x = &r->p->places[to];
	if ((x->flags & how) == how || !x->bytes)
		return;
	x->flags |= how;
	r->p->work[r->n_work++] = to;
}

static bool agree(const struct code_frame *a, const struct code_frame *b)
{
	struct code_frame x = *a, y = *b;

	x.called = y.called = false;
	x.returns = y.returns = false;
	return x.known == FRAME_KNOWN && parse_frame_equal(&x, &y);
}

/*
 * A jump through a table may lead to any code behind it that no other code leads to, up to the next
 * function. It is believed where the returns behind that code say what holds at the jump, and no
 * call is on the way to them, which may not return.
 */
static void reach_table(struct reaching *r, size_t jump, size_t at, uint8_t how)
{
	struct piece *p = r->p;
	bool ended = true;
	struct insn i;

	for (size_t end = MIN(p->n, at + TABLE_REACH); at < end && p->budget->insns;) {
		struct place *x = &p->places[at];

		parse_flow_charge(p->budget, 1);
		if (x->flags & CALLED)
			break;
		if (!x->bytes || !insn_decode(p->code + at, p->n - at, &i)) {
			at++;
			continue;
		}
		if (ended && !(x->flags & PADDING) && !x->frame.called &&
		    agree(&x->frame, &p->places[jump].frame))
			reach(r, at, how);
		ended = ends_flow(&i) || (ended && x->flags & PADDING);
		at += i.bytes;
	}
}

static void reach_next(struct reaching *r, size_t at)
{
	struct piece *p = r->p;
	uint8_t how = p->places[at].flags & (REACHED | NO_BP);
	struct insn i;
	size_t next;

	parse_flow_charge(p->budget, 1);
	next = at + p->places[at].bytes;
	if (!(p->places[at].flags & JUMP)) {
		reach(r, next, how);
		return;
	}
	if (!insn_decode(p->code + at, p->n - at, &i))
		return;
	if (is_jump(&i) || is_branch(&i))
		reach(r, next + i.immediate, how);
	if (is_indirect(&i) && is_table_jump(p, at, &i))
		reach_table(r, at, next, how);
	if (!ends_flow(&i) && (!is_call(&i) || comes_back(p, next)))
		reach(r, next, how);
}

/*
 * Returns whether a function begins at a place for certain, as the flags of what is reached from
 * it; 0: no. What the returns say holds there must be what holds at a function's first instruction.
 * If a call is on the way to them, which may not return, this could be chance in the middle of a
 * function: then the place must be one that is called. A function for the file's own use may
 * overwrite rbp (x264's trellis): behind that, where the caller's rbp is, is not known. If only
 * jumps through registers and memory are on the ways, rsp may be no stack (GHC's code).
 */
static uint8_t start_of(const struct place *x)
{
	struct code_frame entered = parse_frame_entered;

	if (!x->frame.returns || !(x->flags & (x->frame.called ? CALLED : CALLED | START)))
		return 0;
	if (agree(&x->frame, &entered))
		return REACHED;
	entered.bp = FRAME_BP_UNKNOWN;
	return x->flags & CALLED && !x->frame.called && agree(&x->frame, &entered) ? REACHED | NO_BP
										   : 0;
}

/* Marks what is reached from the starts of functions. */
static void reach_all(struct piece *p)
{
	struct reaching r = {.p = p};

	for (size_t at = 0; at < p->n; at++) {
		uint8_t how = start_of(&p->places[at]);

		if (how)
			reach(&r, at, how);
		if (how)
			p->places[at].flags |= BEGINS;
		while (r.n_work && p->budget->insns)
			reach_next(&r, p->work[--r.n_work]);
	}
	for (size_t at = 0; at < p->n; at++) {
		struct code_frame *f = &p->places[at].frame;

		if (!(p->places[at].flags & NO_BP) || f->known != FRAME_KNOWN)
			continue;
		f->bp = FRAME_BP_UNKNOWN;
		f->slot = 0;
	}
}

/* ---- functions ---- */

struct walked_function {
	bool open;
	size_t start;
	size_t far; /* the last place to which a conditional jump of it leads */
};

/* Ends a function. One that nothing calls may be a loop of another one. */
static void close_function(const struct piece *p, struct walked_function *f, size_t end)
{
	if (f->open && p->places[f->start].flags & CALLED)
		parse_functions_add(&p->b->functions, p->start + f->start, p->start + end);
	f->open = false;
}

/* Returns whether the code does not continue behind the instruction. */
static bool ends_at(const struct piece *p, size_t at, struct walked_function *f)
{
	struct insn i;
	uint64_t to;

	if (!(p->places[at].flags & JUMP) || !insn_decode(p->code + at, p->n - at, &i))
		return false;
	to = at + i.bytes + i.immediate;
	if (f->open && is_branch(&i) && to < p->n)
		f->far = MAX(f->far, to);
	return ends_flow(&i) || (is_call(&i) && !comes_back(p, at + i.bytes));
}

/*
 * Finds the functions of which the start is called and the code is whole: it ends where it cannot
 * continue, behind all of its conditional jumps. If what is called is before their targets, nothing
 * is known from there to the last of them: it may be a function, or a place in this one.
 */
static void add_functions(const struct piece *p)
{
	struct walked_function f = {0};
	bool ended = true; /* the code before does not continue here */
	bool padded = false;

	for (size_t at = 0; at < p->n;) {
		const struct place *x = &p->places[at];
		bool begins = (ended || padded) && x->flags & BEGINS;

		if (!x->bytes || !(x->flags & (REACHED | PADDING)) || (ended && at > f.far) ||
		    (begins && x->flags & CALLED))
			close_function(p, &f, at);
		if (!f.open && begins && at >= f.far)
			f = (struct walked_function){true, at, at};
		padded = x->flags & PADDING;
		ended = !x->bytes || ends_at(p, at, &f) || (ended && padded);
		at += MAX(x->bytes, 1);
	}
	close_function(p, &f, p->n);
}

/* ---- all of a piece ---- */

static void emit_all(const struct piece *p, frame_emit *emit, void *arg)
{
	const struct code_frame *last = NULL, *now;
	size_t from = 0, end = 0; /* end: of the current instruction */

	for (size_t at = 0; at < p->n; at++) {
		const struct place *x = &p->places[at];

		now = at < end ? last : NULL;
		if (x->bytes && (x->flags & REACHED || at >= end)) {
			now = x->flags & REACHED && x->frame.known == FRAME_KNOWN ? &x->frame
										  : NULL;
			end = at + x->bytes;
		}
		if (now == last || (now && last && parse_frame_equal(now, last)))
			continue;
		if (at > from)
			emit(p->start + from, p->start + at, last, arg);
		from = at;
		last = now;
	}
	emit(p->start + from, p->start + p->n, last, arg);
}

static void follow_piece(struct piece *p, const uint64_t *starts, size_t n_starts, frame_emit *emit,
			 void *arg)
{
	unsigned rounds = 0;

	p->places = xcalloc(p->n, sizeof(*p->places));
	p->work = xcalloc(p->n, sizeof(*p->work));
	decode_all(p, starts, n_starts);
	while (rounds < ROUNDS && go_back(p, rounds == 0))
		rounds++;
	reach_all(p);
	if (rounds == ROUNDS)
		p->b->header.flags |= ELF_INDEX_CODE_CUT;
	else if (p->budget->insns)
		emit_all(p, emit, arg);
	if (rounds < ROUNDS && p->budget->insns)
		add_functions(p);
	free(p->places);
	free(p->work);
}

/* Cuts the gap where a function begins, so that each piece has at most PIECE_BYTES. */
static uint64_t piece_end(uint64_t start, uint64_t end, const uint64_t *starts, size_t n)
{
	uint64_t best = start + PIECE_BYTES;

	if (end <= best)
		return end;
	for (size_t k = n; k-- > 0;)
		if (starts[k] <= best && starts[k] > start + PIECE_BYTES / 2)
			return starts[k];
	return best;
}

void parse_returns_follow(struct elf_build *b, const struct code_gaps *gaps, const uint64_t *starts,
			  size_t n_starts, frame_emit *emit, void *arg, struct flow_budget *budget)
{
	size_t s = 0, n;

	for (size_t k = 0; k < gaps->n && budget->insns; k++) {
		uint64_t at = gaps->items[k].start, end;

		for (; at < gaps->items[k].end && budget->insns; at = end) {
			struct piece p = {.b = b, .start = at, .budget = budget};
			size_t n_bytes = 0;

			while (s < n_starts && starts[s] < at)
				s++;
			for (n = 0; s + n < n_starts && starts[s + n] < gaps->items[k].end;)
				n++;
			end = piece_end(at, gaps->items[k].end, starts + s, n);
			while (n && starts[s + n - 1] >= end)
				n--;
			p.code = parse_build_bytes(b, at, &n_bytes);
			p.n = end - at;
			if (p.code && n_bytes >= p.n)
				follow_piece(&p, starts + s, n, emit, arg);
		}
	}
}
