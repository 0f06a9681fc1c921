/* SPDX-License-Identifier: Apache-2.0 */
/* Runs call frame instructions (DWARF 5, 6.4.2) and adds their rows. */
#include "node/parse/cfi.h"

#include <dwarf.h>

#define REMEMBERED_MAX 32 /* limit for nested DW_CFA_remember_state; compilers nest 2 */

struct run {
	struct cfi *cfi;
	const struct cfi_cie *cie;
	struct bytes program;
	struct cfi_state now;
	struct cfi_state remembered[REMEMBERED_MAX];
	size_t n_remembered;
	bool changed; /* `now` has changed since the last row */
	bool in_cie;
	uint64_t at, end;
	struct rows *rows;
	uint64_t row_start;
	uint16_t row_rule;
};

/* ---- rows ---- */

/*
 * Called after all instructions for the address `at` have run. If they have changed the rule, adds
 * the row that ends at this address, and begins a new one.
 */
static void settle(struct run *r)
{
	uint16_t rule;

	if (!r->changed)
		return;
	r->changed = false;
	rule = parse_cfi_rule(&r->now, r->cie->signal, r->rows);
	if (rule == r->row_rule)
		return;
	parse_rows_add(r->rows, r->row_start, r->at, r->row_rule);
	r->row_start = r->at;
	r->row_rule = rule;
}

/*
 * Moves to another address. Returns false at the end of the FDE, or if the program must not do
 * this: in a CIE, or backwards.
 */
static bool advance_to(struct run *r, uint64_t to)
{
	if (r->in_cie || to < r->at)
		r->program.bad = true;
	if (r->program.bad)
		return false;
	if (to > r->at)
		settle(r);
	r->at = MIN(to, r->end);
	return to < r->end;
}

static bool advance(struct run *r, uint64_t delta)
{
	return advance_to(r, r->at + delta * r->cie->code_align);
}

/* ---- registers ---- */

static struct cfi_where *find_column(struct cfi_state *s, uint64_t reg)
{
	switch (reg) {
	case CFI_RBP:
		return &s->fp;
	case CFI_RSP:
		return &s->sp;
	case CFI_RA:
		return &s->ra;
	}
	return NULL;
}

/* Returns the register's place in the state, to be changed. NULL: it is not followed. */
static struct cfi_where *column(struct run *r, uint64_t reg)
{
	struct cfi_where *w = find_column(&r->now, reg);

	if (w)
		r->changed = true;
	return w;
}

static void set(struct run *r, uint64_t reg, enum cfi_how how, int64_t offset)
{
	struct cfi_where *w = column(r, reg);

	if (w)
		*w = (struct cfi_where){.how = how, .offset = offset};
}

static void set_offset(struct run *r, uint64_t reg, enum cfi_how how, uint64_t factored)
{
	set(r, reg, how, (int64_t)(factored * (uint64_t)r->cie->data_align));
}

static void restore(struct run *r, uint64_t reg)
{
	struct cfi_state initial = r->cie->initial;
	struct cfi_where *w = column(r, reg);

	if (w)
		*w = *find_column(&initial, reg);
}

static void read_expression(struct run *r, struct cfi_where *w, enum cfi_how how)
{
	uint64_t n = bytes_uleb(&r->program);
	const uint8_t *p = bytes_take(&r->program, n);

	if (!w)
		return;
	w->how = how;
	w->expression = p;
	w->expression_bytes = MIN(n, UINT32_MAX);
}

static void set_cfa(struct run *r, uint64_t reg, int64_t offset)
{
	r->now.cfa =
		(struct cfi_where){.how = CFI_REGISTER, .reg = MIN(reg, 255), .offset = offset};
	r->changed = true;
}

static void remember(struct run *r)
{
	if (r->n_remembered == REMEMBERED_MAX)
		r->program.bad = true;
	else
		r->remembered[r->n_remembered++] = r->now;
}

static void recall(struct run *r)
{
	if (r->n_remembered == 0) {
		r->program.bad = true;
		return;
	}
	r->now = r->remembered[--r->n_remembered];
	r->changed = true;
}

/* ---- instructions ---- */

static void define_cfa(struct run *r, uint8_t op)
{
	struct bytes *b = &r->program;
	uint64_t reg;

	switch (op) {
	case DW_CFA_def_cfa:
		reg = bytes_uleb(b);
		set_cfa(r, reg, bytes_uleb(b));
		break;
	case DW_CFA_def_cfa_sf:
		reg = bytes_uleb(b);
		set_cfa(r, reg, (uint64_t)bytes_sleb(b) * (uint64_t)r->cie->data_align);
		break;
	case DW_CFA_def_cfa_register:
		set_cfa(r, bytes_uleb(b), r->now.cfa.offset);
		break;
	case DW_CFA_def_cfa_offset:
		r->now.cfa.offset = bytes_uleb(b);
		break;
	case DW_CFA_def_cfa_offset_sf:
		r->now.cfa.offset = (uint64_t)bytes_sleb(b) * (uint64_t)r->cie->data_align;
		break;
	case DW_CFA_def_cfa_expression:
		read_expression(r, &r->now.cfa, CFI_EXPRESSION);
		break;
	}
	r->changed = true;
}

/* Handles instructions about one register, whose number comes first. */
static void define_register(struct run *r, uint8_t op)
{
	struct bytes *b = &r->program;
	uint64_t reg = bytes_uleb(b);
	struct cfi_where *w;

	switch (op) {
	case DW_CFA_offset_extended:
		set_offset(r, reg, CFI_OFFSET, bytes_uleb(b));
		break;
	case DW_CFA_offset_extended_sf:
		set_offset(r, reg, CFI_OFFSET, bytes_sleb(b));
		break;
	case DW_CFA_GNU_negative_offset_extended:
		set_offset(r, reg, CFI_OFFSET, -bytes_uleb(b));
		break;
	case DW_CFA_val_offset:
		set_offset(r, reg, CFI_VAL_OFFSET, bytes_uleb(b));
		break;
	case DW_CFA_val_offset_sf:
		set_offset(r, reg, CFI_VAL_OFFSET, bytes_sleb(b));
		break;
	case DW_CFA_restore_extended:
		restore(r, reg);
		break;
	case DW_CFA_undefined:
		set(r, reg, CFI_UNDEFINED, 0);
		break;
	case DW_CFA_same_value:
		set(r, reg, CFI_SAME, 0);
		break;
	case DW_CFA_register:
		set(r, reg, CFI_REGISTER, 0);
		w = column(r, reg);
		reg = bytes_uleb(b);
		if (w)
			w->reg = MIN(reg, 255);
		break;
	case DW_CFA_expression:
		read_expression(r, column(r, reg), CFI_EXPRESSION);
		break;
	case DW_CFA_val_expression:
		read_expression(r, column(r, reg), CFI_VAL_EXPRESSION);
		break;
	}
}

static bool step_extended(struct run *r, uint8_t op)
{
	struct bytes *b = &r->program;

	switch (op) {
	case DW_CFA_nop:
		return true;
	case DW_CFA_set_loc:
		return advance_to(r, parse_cfi_pointer(&r->cfi->section, b, r->cie->pointers));
	case DW_CFA_advance_loc1:
		return advance(r, bytes_fixed(b, 1));
	case DW_CFA_advance_loc2:
		return advance(r, bytes_fixed(b, 2));
	case DW_CFA_advance_loc4:
		return advance(r, bytes_fixed(b, 4));
	case DW_CFA_remember_state:
		remember(r);
		return true;
	case DW_CFA_restore_state:
		recall(r);
		return true;
	case DW_CFA_GNU_args_size:
		bytes_uleb(b);
		return true;
	case DW_CFA_def_cfa:
	case DW_CFA_def_cfa_sf:
	case DW_CFA_def_cfa_register:
	case DW_CFA_def_cfa_offset:
	case DW_CFA_def_cfa_offset_sf:
	case DW_CFA_def_cfa_expression:
		define_cfa(r, op);
		return true;
	case DW_CFA_offset_extended:
	case DW_CFA_offset_extended_sf:
	case DW_CFA_GNU_negative_offset_extended:
	case DW_CFA_val_offset:
	case DW_CFA_val_offset_sf:
	case DW_CFA_restore_extended:
	case DW_CFA_undefined:
	case DW_CFA_same_value:
	case DW_CFA_register:
	case DW_CFA_expression:
	case DW_CFA_val_expression:
		define_register(r, op);
		return true;
	}
	b->bad = true;
	return false;
}

static bool step(struct run *r)
{
	uint8_t op = bytes_fixed(&r->program, 1);

	switch (op & 0xc0) {
	case DW_CFA_advance_loc:
		return advance(r, op & 0x3f);
	case DW_CFA_offset:
		set_offset(r, op & 0x3f, CFI_OFFSET, bytes_uleb(&r->program));
		return true;
	case DW_CFA_restore:
		restore(r, op & 0x3f);
		return true;
	}
	return step_extended(r, op);
}

/* Returns true if the program was followed to its end. */
static bool run(struct run *r)
{
	while (r->program.p < r->program.end && !r->program.bad)
		if (!step(r))
			break;
	return !r->program.bad;
}

bool parse_cfi_initial(struct cfi *c, struct cfi_cie *cie, struct bytes program)
{
	struct run r;

	r.cfi = c;
	r.cie = cie;
	r.program = program;
	r.now = (struct cfi_state){0};
	r.n_remembered = 0;
	r.in_cie = true;
	r.at = 0;
	r.end = UINT64_MAX;
	if (!run(&r))
		return false;
	cie->initial = r.now;
	return true;
}

void parse_cfi_rows(struct cfi *c, const struct cfi_fde *f, uint64_t end, struct rows *rows)
{
	struct run r; /* not zeroed, because it is large, and each function of a file needs one */

	r.cfi = c;
	r.cie = &c->cies[f->cie];
	r.program = f->program;
	r.now = r.cie->initial;
	r.n_remembered = 0;
	r.changed = true;
	r.in_cie = false;
	r.at = f->start;
	r.end = end;
	r.rows = rows;
	r.row_start = f->start;
	r.row_rule = PF_RULE_GAP;
	if (!run(&r)) {
		c->damaged++;
		/*
		 * The program is damaged, so its last instructions may have changed only a part of
		 * the rule.
		 */
		r.now.cfa = (struct cfi_where){.how = CFI_UNSET};
		r.now.ra = (struct cfi_where){.how = CFI_SAME};
		r.changed = true;
	}
	if (r.at < end)
		settle(&r);
	parse_rows_add(rows, r.row_start, end, r.row_rule);
}
