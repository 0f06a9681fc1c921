/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the instructions of one function from its entries, to find how far rsp is below the CFA,
 * and where the caller's rbp is. Each instruction gets one state. If two paths lead to an
 * instruction with different states, and one of them comes from a call right before it, that call
 * is taken for one that does not return. Otherwise the function is given up.
 */
#include "node/parse/code.h"

#include <stdlib.h>

#define TABLE_LOAD_MAX 8 /* instructions between a table's load and the jump, at most */
/* limit for the rounds of one function: each finds calls that do not return */
#define ATTEMPTS    64
#define EDGES_MAX   (4u << 20) /* limit for the edges of one function */
#define LOOK_EVERY  (1u << 16) /* instructions between two reads of the clock: some ms */
#define NOWHERE	    UINT32_MAX
#define FROM_ORPHAN (UINT32_MAX - 1)

enum {
	SEEN = 1,
	BY_CALL = 2,   /* first reached from the call before it */
	NO_RETURN = 4, /* a call that does not return */
	IN_WORK = 8,
	COMES_BACK = 16, /* from here, the code can reach a return with nothing on the stack */
	ACCEPTED = 32,
};
struct edge {
	uint32_t from, to;
	bool by_call;
};
struct flow_place {
	struct code_state state;
	uint32_t from; /* the instruction that first led to this one */
	uint8_t flags, bytes;
};
struct flow {
	const struct flow_input *in;
	struct flow_place *places;
	uint32_t *work;
	size_t n_work;
	struct edge *edges;
	size_t n_edges, cap_edges;
	struct code_entries out;
	uint32_t *out_from; /* for each item of out: the instruction that leads to it */
	size_t n_out_from, cap_out_from;
	struct flow_budget *budget;
	struct code_state jump; /* the state at jumps through tables */
	/* number of different states at such jumps; 2: more than one */
	uint8_t jumps;
	/*
	 * the next attempt starts with this `jump`, because this attempt has found at the end that
	 * follow_orphans() had used a state in which too much was known
	 */
	bool keep_jump;
	bool again, give_up, no_orphans, returns;
};

/* ---- which instructions are next ---- */

void parse_flow_charge(struct flow_budget *b, uint64_t n)
{
	b->insns -= MIN(b->insns, n);
	if (b->insns >= b->next_look)
		return;
	b->next_look = b->insns - MIN(b->insns, LOOK_EVERY);
	if (thread_cpu_ns() >= b->cpu_deadline_ns || now_mono_ns() >= b->deadline_ns)
		b->insns = 0;
}

static void charge(struct flow *f, uint64_t n)
{
	parse_flow_charge(f->budget, n);
}

/*
 * Called at a return where something is still on the stack. The function was followed as if all
 * calls on the path to that return came back. So one of these calls does not come back.
 */
static void blame_calls(struct flow *f, uint32_t at)
{
	bool any = false;

	for (size_t k = 0; at < f->in->n && k <= f->in->n; k++) {
		const struct flow_place *p = &f->places[at];

		if (p->flags & BY_CALL) {
			f->places[p->from].flags |= NO_RETURN;
			any = true;
		}
		at = p->from;
	}
	if (at == FROM_ORPHAN)
		f->no_orphans = any = true;
	if (any)
		f->again = true;
	else
		f->give_up = true;
}

static void put_out(struct flow *f, uint32_t from, uint64_t address, const struct code_state *s,
		    bool certain)
{
	GROW(f->out.items, f->out.n, f->out.cap);
	f->out.items[f->out.n++] = (struct code_entry){address, *s, certain};
	GROW(f->out_from, f->n_out_from, f->cap_out_from);
	f->out_from[f->n_out_from++] = from;
}

static void put_edge(struct flow *f, uint32_t from, uint32_t to, bool by_call)
{
	if (from >= f->in->n)
		return;
	if (f->n_edges == EDGES_MAX) {
		f->give_up = true;
		return;
	}
	GROW(f->edges, f->n_edges, f->cap_edges);
	f->edges[f->n_edges++] = (struct edge){from, to, by_call};
}

static void requeue(struct flow *f, uint32_t at)
{
	if (f->places[at].flags & IN_WORK)
		return;
	f->places[at].flags |= IN_WORK;
	f->work[f->n_work++] = at;
}

static void reach(struct flow *f, uint64_t to, const struct code_state *s, uint32_t from,
		  bool by_call)
{
	struct flow_place *p;
	struct code_state before;

	if (to >= f->in->n) { /* the address is after or before the function */
		if (by_call)
			return;
		f->returns = true;
		put_out(f, from, f->in->start + to, s, false);
		if (from < f->in->n && s->sp_known && s->sp == 8 && !f->in->guessed)
			f->places[from].flags |= COMES_BACK;
		return;
	}
	put_edge(f, from, to, by_call);
	p = &f->places[to];
	if (!(p->flags & SEEN)) {
		p->state = *s;
		p->from = from;
		p->flags |= SEEN | (by_call ? BY_CALL : 0);
		requeue(f, to);
		return;
	}
	before = p->state;
	if (parse_code_merge(&p->state, s)) {
		if (!parse_code_equal(&p->state, &before))
			requeue(f, to);
	} else if (by_call) {
		f->places[from].flags |= NO_RETURN;
	} else if (p->flags & BY_CALL) {
		f->places[p->from].flags |= NO_RETURN;
		f->again = true;
	} else if (f->places[to].from == FROM_ORPHAN || from == FROM_ORPHAN) {
		f->no_orphans = f->again = true;
	} else {
		f->give_up = true;
	}
}

static bool calls_noreturn(const struct flow *f, uint64_t target)
{
	size_t low = 0, high = f->in->n_noreturn;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (f->in->noreturn[middle] <= target)
			low = middle + 1;
		else
			high = middle;
	}
	return low && f->in->noreturn[low - 1] == target;
}

static void go_call(struct flow *f, uint32_t at, const struct insn *i, const struct code_state *s)
{
	uint64_t next = at + i->bytes, target = f->in->start + next + i->immediate;

	if (insn_is(i, 0xe8)) {
		put_out(f, at, target, &parse_code_entered, true);
		if (calls_noreturn(f, target))
			return;
	}
	if (!(f->places[at].flags & NO_RETURN))
		reach(f, next, s, at, true);
}

/*
 * Returns whether an indirect jump is one through a table, as compilers write it, and not a tail
 * call. If something is on the stack, the jump cannot be a tail call. If nothing is on the stack,
 * the jump is a table jump if an entry of the table (a distance from it) is loaded shortly before,
 * or if the jump's memory operand is the table.
 */
static bool is_table_jump(const struct flow *f, uint32_t at, const struct insn *i,
			  const struct code_state *s)
{
	struct insn before;

	if (!(s->sp_known && s->sp == 8) || i->notrack)
		return true;
	if (i->mod != 3)
		return i->mod == 0 && (i->rm & 7) == 4 && i->base == INSN_NO_REG;
	for (unsigned k = 0; k < TABLE_LOAD_MAX; k++) {
		at = f->places[at].from;
		if (at >= f->in->n || !insn_decode(f->in->code + at, f->in->n - at, &before))
			return false;
		if (insn_is(&before, 0x63) && before.mod != 3 && (before.rm & 7) == 4)
			return true;
	}
	return false;
}

/*
 * Returns where the table of a `jmp *register` begins, if it is in the function. The code is lea
 * n(%rip), register, and after it a load of an entry (movslq).
 */
static uint64_t table_of(const struct flow *f, uint32_t at, const struct insn *jump)
{
	bool loaded = false;
	struct insn i;

	for (unsigned k = 0; k < TABLE_LOAD_MAX && jump->mod == 3; k++) {
		at = f->places[at].from;
		if (at >= f->in->n || !insn_decode(f->in->code + at, f->in->n - at, &i))
			break;
		loaded |= insn_is(&i, 0x63) && i.mod != 3;
		if (insn_is(&i, 0x8d) && i.mod == 0 && (i.rm & 7) == 5 &&
		    i.written & 1u << (jump->rm & 15))
			return loaded ? at + i.bytes + (uint64_t)(int64_t)i.displacement
				      : UINT64_MAX;
	}
	return UINT64_MAX;
}

/*
 * Follows a table that comes after the code of its own function (GraalVM). Its entries are
 * distances from the table to places before it. The table ends at an entry that leads elsewhere.
 * Returns false if there is no table.
 */
static bool go_table(struct flow *f, uint32_t at, const struct insn *jump,
		     const struct code_state *s)
{
	uint64_t table = table_of(f, at, jump), end = table;
	int32_t distance;

	for (; table < f->in->n && end + 4 <= f->in->n; end += 4) {
		memcpy(&distance, f->in->code + end, sizeof(distance));
		if (distance >= 0 || table < (uint64_t) - (int64_t)distance)
			break;
		reach(f, table + (uint64_t)(int64_t)distance, s, at, false);
		f->places[end].flags |= SEEN; /* an entry is no code, so no jump may lead to it */
		f->places[end].bytes = 4;
	}
	charge(f, (end - table) / 4);
	return end > table;
}

static void go_indirect(struct flow *f, uint32_t at, const struct insn *i,
			const struct code_state *s)
{
	if (go_table(f, at, i, s))
		return;
	f->returns = true;
	if (s->sp_known && s->sp == 8 && !f->in->guessed)
		f->places[at].flags |= COMES_BACK;
	if (!is_table_jump(f, at, i, s))
		return;
	if (f->jumps == 0) {
		f->jump = *s;
		f->jumps = 1;
	} else if (!parse_code_merge(&f->jump, s)) {
		f->jumps = 2;
	}
}

static void go_return(struct flow *f, uint32_t at, const struct code_state *s)
{
	f->returns = true;
	if (!s->root && s->sp_known && s->sp != 8)
		blame_calls(f, at);
	else if (s->sp_known)
		f->places[at].flags |= COMES_BACK;
}

static void go(struct flow *f, uint32_t at, const struct insn *i, const struct code_state *s)
{
	uint64_t next = at + i->bytes;
	uint8_t c = i->opcode, group = i->reg & 7;

	if (i->map == INSN_0F && c == 0x0b) /* ud2 */
		return;
	if (i->map == INSN_0F && c >= 0x80 && c <= 0x8f) {
		reach(f, next + i->immediate, s, at, false);
		reach(f, next, s, at, false);
		return;
	}
	if (i->map != INSN_ONE) {
		reach(f, next, s, at, false);
		return;
	}
	if (c == 0xc3 || c == 0xc2 || c == 0xcb || c == 0xca || c == 0xcf) {
		go_return(f, at, s);
	} else if (c == 0xe9 || c == 0xeb) {
		reach(f, next + i->immediate, s, at, false);
	} else if (c == 0xff && (group == 4 || group == 5)) {
		go_indirect(f, at, i, s);
	} else if (c == 0xe8 || (c == 0xff && (group == 2 || group == 3))) {
		go_call(f, at, i, s);
	} else if (c != 0xf4 && c != 0xcc) { /* hlt, int3 */
		if ((c >= 0x70 && c <= 0x7f) || (c >= 0xe0 && c <= 0xe3))
			reach(f, next + i->immediate, s, at, false);
		reach(f, next, s, at, false);
	}
}

static void run(struct flow *f)
{
	while (f->n_work && !f->again && !f->give_up) {
		uint32_t at = f->work[--f->n_work];
		struct flow_place *p = &f->places[at];
		struct code_state s = p->state;
		struct insn i;

		p->flags &= ~IN_WORK;
		if (f->budget->insns == 0) {
			f->give_up = true;
			return;
		}
		charge(f, 1);
		if (!insn_decode(f->in->code + at, f->in->n - at, &i)) {
			p->bytes = 0;
			f->returns = true; /* what comes after these bytes is not known */
			continue;
		}
		p->bytes = i.bytes;
		parse_code_step(&s, &i);
		go(f, at, &i, &s);
	}
}

/* ---- targets of tables ---- */

/*
 * If all indirect jumps have one state, follows code that nothing else has reached, because only
 * indirect jumps can lead to it.
 */
static void follow_orphans(struct flow *f)
{
	const struct code_state before = f->jump;
	struct insn i;

	if (f->jumps != 1 || f->no_orphans)
		return;
	for (size_t at = 0; at < f->in->n && !f->again && !f->give_up;) {
		const struct flow_place *p = &f->places[at];

		if (p->flags & SEEN && p->bytes) {
			at += p->bytes;
		} else if (p->flags & SEEN || !insn_decode(f->in->code + at, f->in->n - at, &i)) {
			return;
		} else if (insn_is_padding(&i)) {
			at += i.bytes;
		} else {
			reach(f, at, &f->jump, FROM_ORPHAN, false);
			run(f);
		}
		if (f->jumps != 1)
			f->no_orphans = f->again = true;
		else if (!f->again && !parse_code_equal(&before, &f->jump))
			f->keep_jump = f->again = true;
	}
}

/* ---- where a function ends is not known ---- */

/*
 * Marks (COMES_BACK) the instructions from which a return can be reached with a balanced stack. A
 * call counts as one that returns only if the instruction after it is marked. If a call does not
 * return, it may be the last instruction, and the next one may belong to another function.
 */
static void close_back(struct flow *f)
{
	bool more = true;

	for (size_t round = 0; more && round < ATTEMPTS; round++) {
		more = false;
		charge(f, f->n_edges / 8);
		for (size_t k = f->n_edges; k-- > 0;) {
			const struct edge *e = &f->edges[k];

			if (f->places[e->from].flags & COMES_BACK ||
			    !(f->places[e->to].flags & COMES_BACK))
				continue;
			f->places[e->from].flags |= COMES_BACK;
			more = true;
		}
	}
}

static void close_forward(struct flow *f)
{
	bool more = true;

	for (size_t k = 0; k < f->in->n_entries; k++)
		f->places[f->in->entries[k].address - f->in->start].flags |= ACCEPTED;
	for (size_t round = 0; more && round < ATTEMPTS; round++) {
		more = false;
		charge(f, f->n_edges / 8);
		for (size_t k = 0; k < f->n_edges; k++) {
			const struct edge *e = &f->edges[k];
			struct flow_place *to = &f->places[e->to];

			if (to->flags & ACCEPTED || !(f->places[e->from].flags & ACCEPTED) ||
			    (e->by_call && !(to->flags & COMES_BACK)))
				continue;
			to->flags |= ACCEPTED;
			more = true;
		}
	}
}

static void accept(struct flow *f)
{
	if (f->in->guessed) {
		close_back(f);
		f->give_up |= !(f->places[0].flags & COMES_BACK);
	}
	if (f->in->sized) {
		for (size_t k = 0; k < f->in->n; k++)
			f->places[k].flags |= ACCEPTED;
		return;
	}
	close_back(f);
	close_forward(f);
}

/* ---- all of a function ---- */

static void attempt(struct flow *f)
{
	charge(f, f->in->n / 8);
	for (size_t k = 0; k < f->in->n; k++) {
		f->places[k].flags &= NO_RETURN;
		f->places[k].bytes = 0;
	}
	f->n_work = f->n_edges = f->out.n = f->n_out_from = 0;
	if (!f->keep_jump)
		f->jumps = 0;
	f->keep_jump = false;
	f->again = f->returns = false;
	for (size_t k = 0; k < f->in->n_entries; k++)
		reach(f, f->in->entries[k].address - f->in->start, &f->in->entries[k].state,
		      NOWHERE, false);
	run(f);
	if (f->in->sized)
		follow_orphans(f);
}

static void emit_all(const struct flow *f, flow_emit *emit, void *arg)
{
	uint64_t start = f->in->start;
	const struct code_state *last = NULL;
	size_t from = 0, end = 0; /* end: of the current instruction */

	for (size_t at = 0; at < f->in->n; at++) {
		const struct flow_place *p = &f->places[at];
		const struct code_state *now = at < end ? last : NULL;

		if (!f->give_up && p->flags & SEEN && p->flags & ACCEPTED && p->bytes) {
			now = &p->state;
			end = at + p->bytes;
		}
		if (now == last || (now && last && parse_code_equal(now, last)))
			continue;
		if (at > from)
			emit(start + from, start + at, last, arg);
		from = at;
		last = now;
	}
	emit(start + from, start + f->in->n, last, arg);
}

static void give_out(const struct flow *f, struct code_entries *out)
{
	for (size_t k = 0; k < f->out.n; k++) {
		if (f->out_from[k] >= f->in->n || !(f->places[f->out_from[k]].flags & ACCEPTED))
			continue;
		GROW(out->items, out->n, out->cap);
		out->items[out->n++] = f->out.items[k];
	}
}

bool parse_flow_follow(const struct flow_input *in, struct code_entries *out, flow_emit *emit,
		       void *arg, struct flow_budget *budget)
{
	_cleanup_free_ struct flow_place *places = xcalloc(in->n, sizeof(*places));
	_cleanup_free_ uint32_t *work = xcalloc(in->n, sizeof(*work));
	struct flow f = {.in = in, .places = places, .work = work, .budget = budget};

	for (size_t k = 0; k < ATTEMPTS; k++) {
		attempt(&f);
		if (f.give_up && !f.no_orphans && f.jumps) {
			f.no_orphans = f.again = true;
			f.give_up = false;
		}
		if (f.give_up || !f.again)
			break;
	}
	f.give_up |= f.again;
	if (!f.give_up)
		accept(&f);
	if (out && !f.give_up)
		give_out(&f, out);
	if (emit)
		emit_all(&f, emit, arg);
	free(f.edges);
	free(f.out.items);
	free(f.out_from);
	return f.returns || f.give_up;
}
