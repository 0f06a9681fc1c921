/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a state (where the CFA, rbp and the return address are) into a rule of bpf/unwind_tables.h.
 * Expressions are evaluated only as far as a rule can express them: a register or the CFA, plus a
 * number, with at most one read of memory.
 */
#include "node/parse/cfi.h"

#include <dwarf.h>

/* ---- expressions ---- */

enum value_kind {
	VALUE_NUMBER, /* offset */
	VALUE_REG,    /* reg + offset */
	VALUE_CFA,    /* cfa + offset */
	VALUE_DEREF,  /* *(reg + offset) + extra */
	VALUE_PLT,    /* rsp + offset + ((rip & 15) >= extra ? 8 : 0) */
};
struct value {
	enum value_kind kind;
	uint8_t reg;
	int64_t offset, extra;
};
#define VALUES_MAX 8 /* values on an expression's stack; if it needs more, it gives no rule */
struct values {
	struct value items[VALUES_MAX];
	size_t n;
	bool bad;
};

static void push(struct values *s, struct value v)
{
	if (s->n == VALUES_MAX)
		s->bad = true;
	else
		s->items[s->n++] = v;
}

static struct value pop(struct values *s)
{
	if (s->n)
		return s->items[--s->n];
	s->bad = true;
	return (struct value){0};
}

static void push_number(struct values *s, int64_t number)
{
	push(s, (struct value){.kind = VALUE_NUMBER, .offset = number});
}

static void push_register(struct values *s, uint64_t reg, int64_t offset)
{
	if (reg >= CFI_RA)
		s->bad = true;
	push(s, (struct value){.kind = VALUE_REG, .reg = reg, .offset = offset});
}

static int64_t wrapping_add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static void push_sum(struct values *s, struct value v, struct value number)
{
	if (v.kind == VALUE_NUMBER) {
		struct value other = v;

		v = number;
		number = other;
	}
	if (number.kind != VALUE_NUMBER)
		s->bad = true;
	if (v.kind == VALUE_DEREF)
		v.extra = wrapping_add(v.extra, number.offset);
	else
		v.offset = wrapping_add(v.offset, number.offset);
	push(s, v);
}

static void push_difference(struct values *s, struct value v, struct value number)
{
	if (number.kind != VALUE_NUMBER)
		s->bad = true;
	number.kind = VALUE_NUMBER;
	number.offset = (int64_t) - (uint64_t)number.offset;
	push_sum(s, v, number);
}

static void push_deref(struct values *s, struct value v)
{
	if (v.kind != VALUE_REG)
		s->bad = true;
	push(s, (struct value){.kind = VALUE_DEREF, .reg = v.reg, .offset = v.offset});
}

static void evaluate_op(struct values *s, struct bytes *b, uint8_t op)
{
	struct value top;

	switch (op) {
	case DW_OP_const1u ... DW_OP_const8s:
		if ((op - DW_OP_const1u) & 1)
			push_number(s, bytes_signed(b, 1u << ((op - DW_OP_const1u) / 2)));
		else
			push_number(s, bytes_fixed(b, 1u << ((op - DW_OP_const1u) / 2)));
		break;
	case DW_OP_constu:
		push_number(s, bytes_uleb(b));
		break;
	case DW_OP_consts:
		push_number(s, bytes_sleb(b));
		break;
	case DW_OP_lit0 ... DW_OP_lit31:
		push_number(s, op - DW_OP_lit0);
		break;
	case DW_OP_breg0 ... DW_OP_breg31:
		push_register(s, op - DW_OP_breg0, bytes_sleb(b));
		break;
	case DW_OP_plus_uconst:
		top = pop(s);
		push_sum(s, top, (struct value){.offset = bytes_uleb(b)});
		break;
	case DW_OP_plus:
		top = pop(s);
		push_sum(s, pop(s), top);
		break;
	case DW_OP_minus:
		top = pop(s);
		push_difference(s, pop(s), top);
		break;
	case DW_OP_deref:
		push_deref(s, pop(s));
		break;
	case DW_OP_nop:
		break;
	default:
		s->bad = true;
	}
}

/*
 * Returns whether the expression is that of Binutils' lazy PLT, where an entry of 16 bytes pushes a
 * number in its middle:
 * breg7 A; breg16 0; lit15; and; lit B; ge; lit3; shl; plus
 */
static bool is_plt(struct bytes b, struct value *ret)
{
	static const uint8_t head[] = {DW_OP_breg16, 0, DW_OP_lit15, DW_OP_and};
	static const uint8_t tail[] = {DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus};
	const uint8_t *p;
	int64_t offset;
	uint8_t limit;

	if (bytes_fixed(&b, 1) != DW_OP_breg7)
		return false;
	offset = bytes_sleb(&b);
	p = bytes_take(&b, sizeof(head));
	if (!p || memcmp(p, head, sizeof(head)) != 0)
		return false;
	limit = bytes_fixed(&b, 1) - DW_OP_lit0;
	p = bytes_take(&b, sizeof(tail));
	if (!p || memcmp(p, tail, sizeof(tail)) != 0 || b.p != b.end || limit > 15)
		return false;
	*ret = (struct value){VALUE_PLT, CFI_RSP, offset, limit};
	return true;
}

/*
 * Evaluates an expression. with_cfa: the expression begins with the CFA on its stack. This is so
 * for all expressions except that of the CFA itself.
 */
static bool evaluate(const struct cfi_where *w, bool with_cfa, struct value *ret)
{
	struct bytes b = {w->expression, w->expression + w->expression_bytes, false};
	struct values s = {0};

	if (w->expression_bytes > CFI_EXPRESSION_MAX)
		return false;
	if (is_plt(b, ret))
		return true;
	if (with_cfa)
		push(&s, (struct value){.kind = VALUE_CFA});
	while (b.p < b.end && !s.bad)
		evaluate_op(&s, &b, bytes_fixed(&b, 1));
	*ret = pop(&s);
	return !s.bad && !b.bad;
}

/* ---- rules ---- */

static bool fits(int64_t value)
{
	return value >= INT32_MIN && value <= INT32_MAX;
}

static uint8_t by_base(uint8_t reg, uint8_t rsp, uint8_t rbp, uint8_t other)
{
	return reg == CFI_RSP ? rsp : reg == CFI_RBP ? rbp : other;
}

static bool cfa_of(const struct cfi_where *w, struct pf_rule *rule)
{
	struct value v = {VALUE_REG, w->reg, w->offset, 0};

	if (w->how == CFI_EXPRESSION ? !evaluate(w, false, &v) : w->how != CFI_REGISTER)
		return false;
	if (v.reg >= CFI_RA || !fits(v.offset) || !fits(v.extra))
		return false;
	if (v.kind == VALUE_REG)
		rule->cfa = by_base(v.reg, PF_CFA_RSP, PF_CFA_RBP, PF_CFA_REG);
	else if (v.kind == VALUE_DEREF)
		rule->cfa = by_base(v.reg, PF_CFA_DEREF_RSP, PF_CFA_DEREF_RBP, PF_CFA_DEREF_REG);
	else if (v.kind == VALUE_PLT)
		rule->cfa = PF_CFA_PLT;
	else
		return false;
	rule->reg = by_base(v.reg, 0, 0, v.reg);
	rule->cfa_offset = v.offset;
	rule->extra = v.extra;
	return true;
}

static bool uses_extra(const struct pf_rule *rule)
{
	return rule->cfa >= PF_CFA_DEREF_RSP;
}

/* If a value is relative to the same register as the CFA, returns it relative to the CFA. */
static struct value from_cfa(struct value v, const struct pf_rule *rule)
{
	if (v.kind == VALUE_REG && ((rule->cfa == PF_CFA_RSP && v.reg == CFI_RSP) ||
				    (rule->cfa == PF_CFA_RBP && v.reg == CFI_RBP)))
		return (struct value){VALUE_CFA, 0,
				      wrapping_add(v.offset, -(int64_t)rule->cfa_offset), 0};
	return v;
}

/*
 * Makes the rule for a return address in a register. Returns false if the rule has no room for that
 * register, because the CFA needs another one.
 */
static bool ra_in_register(uint32_t reg, struct pf_rule *rule)
{
	bool free = rule->cfa != PF_CFA_REG && rule->cfa != PF_CFA_DEREF_REG;

	if (reg >= CFI_RA || (!free && rule->reg != reg))
		return false;
	rule->ra = PF_RA_REG;
	rule->reg = reg;
	return true;
}

static bool ra_of(const struct cfi_where *w, struct pf_rule *rule)
{
	struct value v = {VALUE_CFA, 0, w->offset, 0};

	if (w->how == CFI_REGISTER)
		return ra_in_register(w->reg, rule);
	if (w->how == CFI_EXPRESSION ? !evaluate(w, true, &v) : w->how != CFI_OFFSET)
		return false;
	v = from_cfa(v, rule);
	if (v.kind != VALUE_CFA || !fits(v.offset))
		return false;
	if (v.offset == -8) {
		rule->ra = PF_RA_CFA8;
		return true;
	}
	if (uses_extra(rule))
		return false;
	rule->ra = PF_RA_CFA;
	rule->extra = v.offset;
	return true;
}

static void fp_of(const struct cfi_where *w, struct pf_rule *rule)
{
	struct value v = {VALUE_CFA, 0, w->offset, 0};

	if (w->how == CFI_UNSET || w->how == CFI_SAME ||
	    (w->how == CFI_REGISTER && w->reg == CFI_RBP)) {
		rule->fp = PF_FP_SAME;
		return;
	}
	rule->fp = PF_FP_UNKNOWN;
	if (w->how == CFI_EXPRESSION ? !evaluate(w, true, &v) : w->how != CFI_OFFSET)
		return;
	if (!fits(v.offset))
		return;
	if (v.kind == VALUE_CFA)
		rule->fp = PF_FP_CFA;
	else if (v.kind == VALUE_REG && v.reg == CFI_RBP)
		rule->fp = PF_FP_AT_RBP;
	else if (v.kind == VALUE_REG && v.reg == CFI_RSP)
		rule->fp = PF_FP_AT_RSP;
	else
		return;
	rule->fp_offset = v.offset;
}

/*
 * Returns whether the caller's rsp is the CFA. This is so unless the state gives another place for
 * rsp (longjmp: r8).
 */
static bool sp_is_cfa(const struct cfi_where *w)
{
	return w->how == CFI_UNSET || (w->how == CFI_VAL_OFFSET && w->offset == 0);
}

/*
 * Returns whether the state is that of a ucontext at rsp: then the caller's rsp is at offset 160,
 * and rip at 168 (glibc's __restore_rt has expressions for these).
 */
static bool is_ucontext(const struct cfi_state *s, const struct pf_rule *rule)
{
	struct value ra;

	return rule->cfa == PF_CFA_DEREF_RSP && rule->cfa_offset == 160 && rule->extra == 0 &&
	       s->ra.how == CFI_EXPRESSION && evaluate(&s->ra, true, &ra) && ra.kind == VALUE_REG &&
	       ra.reg == CFI_RSP && ra.offset == 168;
}

uint16_t parse_cfi_rule(const struct cfi_state *s, bool signal, struct rows *rows)
{
	struct pf_rule rule = {0};

	if (s->ra.how == CFI_UNSET || s->ra.how == CFI_UNDEFINED)
		return PF_RULE_ROOT;
	if (!cfa_of(&s->cfa, &rule))
		return PF_RULE_UNSUPPORTED;
	if (signal && is_ucontext(s, &rule))
		return PF_RULE_SIGNAL;
	if (!sp_is_cfa(&s->sp) || !ra_of(&s->ra, &rule))
		return PF_RULE_UNSUPPORTED;
	fp_of(&s->fp, &rule);
	return parse_rows_rule(rows, &rule);
}
