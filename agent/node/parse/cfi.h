/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to parse: call frame information (DWARF 5, 6.4; LSB 5, 10.6 for .eh_frame) of one
 * section. The reader follows only what is needed for a row: the CFA, rbp, rsp and the return
 * address.
 */
#pragma once

#include "node/parse/build.h"

#define CFI_RBP		   6
#define CFI_RSP		   7
#define CFI_RA		   16 /* the return address column of x86-64 */
#define CFI_EXPRESSION_MAX 64 /* bytes of an expression; known ones have up to 20 */

/* ---- bytes of a hostile section ---- */

struct bytes {
	const uint8_t *p, *end;
	bool bad; /* a read went past the end, or a number was too long; all later reads return 0 */
};

static inline const uint8_t *bytes_take(struct bytes *b, uint64_t n)
{
	const uint8_t *p = b->p;

	if (n > (uint64_t)(b->end - b->p)) {
		b->bad = true;
		b->p = b->end;
		return NULL;
	}
	b->p += n;
	return p;
}

/* Reads n bytes, little endian, at most 8. */
static inline uint64_t bytes_fixed(struct bytes *b, unsigned n)
{
	const uint8_t *p = bytes_take(b, n);
	uint64_t value = 0;

	if (p)
		memcpy(&value, p, n);
	return value;
}

static inline int64_t bytes_signed(struct bytes *b, unsigned n)
{
	unsigned unused = 64 - 8 * n;

	return (int64_t)(bytes_fixed(b, n) << unused) >> unused;
}

uint64_t parse_bytes_leb(struct bytes *b, bool is_signed);

static inline uint64_t bytes_uleb(struct bytes *b)
{
	if (b->p < b->end && *b->p < 0x80)
		return *b->p++;
	return parse_bytes_leb(b, false);
}

static inline int64_t bytes_sleb(struct bytes *b)
{
	return (int64_t)parse_bytes_leb(b, true);
}

/* ---- where the registers of the caller are, for one address ---- */

enum cfi_how {
	CFI_UNSET,
	CFI_SAME,
	CFI_UNDEFINED,
	CFI_REGISTER,	/* cfa: reg + offset; other registers: in reg */
	CFI_OFFSET,	/* the value is in memory at cfa + offset */
	CFI_VAL_OFFSET, /* the value is cfa + offset */
	/*
	 * cfa: the value of the expression; other registers: in memory at the address that is this
	 * value
	 */
	CFI_EXPRESSION,
	CFI_VAL_EXPRESSION, /* the value is that of the expression */
};
struct cfi_where {
	uint8_t how; /* enum cfi_how */
	uint8_t reg; /* 255 stands for all registers from 255 on */
	uint32_t expression_bytes;
	int64_t offset;
	const uint8_t *expression;
};
struct cfi_state {
	struct cfi_where cfa, fp, sp, ra;
};
/*
 * cfi_rule.c: returns the rule of a state, or one of enum pf_rule_special. signal: the CIE has 'S'
 * (a signal frame).
 */
uint16_t parse_cfi_rule(const struct cfi_state *s, bool signal, struct rows *rows);

/* ---- entries ---- */

struct cfi_cie {
	uint64_t at; /* offset in the section */
	uint64_t code_align;
	int64_t data_align;
	uint8_t pointers; /* encoding (DW_EH_PE_*) of the pointers in its FDEs */
	bool sized;	  /* 'z': each of its FDEs has the length of its augmentation */
	bool signal;	  /* the augmentation has 'S': a signal frame */
	struct cfi_state initial;
};
struct cfi_fde {
	uint64_t start, end;
	struct bytes program;
	uint32_t cie;
};
struct cfi_section {
	const uint8_t *data;
	size_t n;
	uint64_t address;	  /* address of data, for pointers relative to themselves */
	uint64_t text, data_base; /* base addresses of pointers relative to .text and to data */
	bool eh;		  /* .eh_frame, not .debug_frame */
	/* an entry of length 0 ends the section, whose size is not known */
	bool until_zero;
};
struct cfi {
	struct cfi_section section;
	struct cfi_cie *cies; /* ascending by offset */
	size_t n_cies, cap_cies;
	struct cfi_fde *fdes;
	size_t n, cap;
	/* entries that were left out, and FDEs that were not followed to their end */
	size_t damaged;
	bool cut;	/* there were too many entries */
};
/* cfi.c: reads the CIEs and FDEs of a section, sorted by start. */
void parse_cfi_read(struct cfi *c, const struct cfi_section *s);
void parse_cfi_done(struct cfi *c);
uint64_t parse_cfi_pointer(const struct cfi_section *s, struct bytes *b, uint8_t encoding);

/*
 * cfi_program.c: runs a CIE's program, which gives the state at the start of its FDEs. False: the
 * program is damaged.
 */
bool parse_cfi_initial(struct cfi *c, struct cfi_cie *cie, struct bytes program);
/* Adds the rows of an FDE up to `end`. */
void parse_cfi_rows(struct cfi *c, const struct cfi_fde *f, uint64_t end, struct rows *rows);
