/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file decodes one x86-64 instruction. For each opcode, the tables *_layout have a letter for
 * the bytes that follow the opcode, and the tables *_written have one for the operand that the
 * instruction writes. The bytes may be hostile: the decoder never reads beyond their end.
 */
#include "node/insn/insn.h"

/*
 * The bytes that follow an opcode:
 * - '-' no instruction has this opcode, or the byte is a prefix or an escape byte, which the
 *   decoder reads before the opcode
 * - '.' none; 'b' 8 bits; 'w' 16; 'z' 16 or 32; 'v' up to 64; 'e' the 24 of enter; 'o' an address
 * - 'm' a ModRM byte; 'B' and 'Z' a ModRM byte, then the same as for 'b' and 'z'
 * - 'j' and 'J' the 8 or 32 bits of a jump
 */
static const char one_layout[] = "mmmmbz--mmmmbz--" /* 00 */
				 "mmmmbz--mmmmbz--"
				 "mmmmbz--mmmmbz--"
				 "mmmmbz--mmmmbz--"
				 "----------------" /* 40 */
				 "................"
				 "---m----zZbB...."
				 "jjjjjjjjjjjjjjjj"
				 "BZ-Bmmmmmmmmmmmm" /* 80 */
				 "..........-....."
				 "oooo....bz......"
				 "bbbbbbbbvvvvvvvv"
				 "BBw.--BZe.w..b-." /* c0 */
				 "mmmm---.mmmmmmmm"
				 "jjjjbbbbJJ-j...."
				 "-.--..mm......mm";
/*
 * The operand that the instruction writes: 'r' the register in reg of the ModRM byte; 'm' the
 * register or memory in rm of the ModRM byte; '2' both; 'o' the register in the opcode. An upper
 * case letter, and '3' instead of '2', means an operand of 8 bits. Without REX, the numbers 4 to 7
 * of such operands mean ah, ch, dh and bh.
 */
static const char one_written[] = "MmRr    MmRr    " /* 00 */
				  "MmRr    MmRr    "
				  "MmRr    MmRr    "
				  "MmRr            "
				  "                " /* 40 */
				  "        oooooooo"
				  "   r     r r    "
				  "                "
				  "Mm m  32MmRrmr m" /* 80 */
				  " ooooooo        "
				  "                "
				  "OOOOOOOOoooooooo"
				  "Mm    Mm        " /* c0 */
				  "MmMm            "
				  "                "
				  "      Mm      Mm";
static const char two_layout[] = "mmmm-.....-.-m.B" /* 0f 00 */
				 "mmmmmmmmmmmmmmmm"
				 "mmmm----mmmmmmmm"
				 "......-.--------"
				 "mmmmmmmmmmmmmmmm" /* 40 */
				 "mmmmmmmmmmmmmmmm"
				 "mmmmmmmmmmmmmmmm"
				 "BBBBmmm.mm--mmmm"
				 "JJJJJJJJJJJJJJJJ" /* 80 */
				 "mmmmmmmmmmmmmmmm"
				 "...mBm--...mBmmm"
				 "mmmmmmmmmmBmmmmm"
				 "mmBmBBBm........" /* c0 */
				 "mmmmmmmmmmmmmmmm"
				 "mmmmmmmmmmmmmmmm"
				 "mmmmmmmmmmmmmmmm";
static const char two_written[] = "mmrr            " /* 0f 00 */
				  "                "
				  "mmmm        rr  "
				  "                "
				  "rrrrrrrrrrrrrrrr" /* 40 */
				  "r               "
				  "                "
				  "              m "
				  "                " /* 80 */
				  "MMMMMMMMMMMMMMMM"
				  "    mm     mmm r"
				  "Mmrmrrrrr mmrrrr"
				  "32   r moooooooo" /* c0 */
				  "       r        "
				  "                "
				  "                ";
_Static_assert(sizeof(one_layout) == 257 && sizeof(one_written) == 257, "insn");
_Static_assert(sizeof(two_layout) == 257 && sizeof(two_written) == 257, "insn");

/* ---- bytes ---- */

struct insn_reader {
	const uint8_t *p, *end;
	bool bad;
	uint8_t vex_pp; /* the prefix that VEX or EVEX contains: 1: 66, 2: f3, 3: f2 */
	uint8_t vex_map, vex_v;
	bool rep; /* prefix f3 */
};

static uint8_t take(struct insn_reader *r)
{
	if (r->p == r->end) {
		r->bad = true;
		return 0;
	}
	return *r->p++;
}

static int64_t take_signed(struct insn_reader *r, unsigned n)
{
	uint64_t value = 0;

	for (unsigned k = 0; k < n; k++)
		value |= (uint64_t)take(r) << 8 * k;
	return n ? (int64_t)(value << (64 - 8 * n)) >> (64 - 8 * n) : 0;
}

/* ---- parts of an instruction ---- */

/* Returns the first byte after the legacy prefixes and REX. */
static uint8_t take_prefixes(struct insn_reader *r, struct insn *i)
{
	for (;;) {
		uint8_t c = take(r);

		switch (c) {
		case 0x26:
		case 0x2e:
		case 0x36:
			break;
		case 0x3e:
			i->notrack = true;
			break;
		case 0x64:
		case 0x65:
			i->segment = true;
			break;
		case 0x66:
			i->operand16 = true;
			break;
		case 0x67:
			i->address32 = true;
			break;
		case 0xf0:
		case 0xf2:
		case 0xf3:
			i->lock_or_rep = true;
			r->rep = c == 0xf3;
			break;
		default:
			if ((c & 0xf0) != 0x40)
				return c;
			/*
			 * REX must stand right before the opcode. A REX that follows another REX is
			 * refused.
			 */
			if (r->p < r->end && (*r->p & 0xf0) == 0x40)
				r->bad = true;
			i->rex = c;
			return take(r);
		}
		if (r->bad)
			return 0;
	}
}

/*
 * Reads a VEX, EVEX or XOP prefix and the opcode. These prefixes contain the bits of REX inverted.
 */
static void take_vex(struct insn_reader *r, struct insn *i, uint8_t escape)
{
	uint8_t a = take(r), b = escape == 0xc5 ? a : take(r);

	i->map = INSN_VEX;
	i->rex = 0x40 | (~a >> 5 & 4);
	r->vex_map = 1;
	if (escape != 0xc5) {
		i->rex |= (~a >> 5 & 3) | (b >> 4 & 8);
		r->vex_map = a & (escape == 0x62 ? 7 : 0x1f);
	}
	r->vex_pp = b & 3;
	r->vex_v = ~b >> 3 & 15;
	if (escape == 0x62)
		take(r);
	i->opcode = take(r);
	if (escape == 0x8f && r->vex_map <= 10) /* XOP */
		return;
	r->bad |= i->operand16 || i->lock_or_rep || r->vex_map == 0 || r->vex_map == 4 ||
		  r->vex_map > 6;
}

static void take_opcode(struct insn_reader *r, struct insn *i)
{
	uint8_t c = take_prefixes(r, i);

	if (c == 0xc4 || c == 0xc5 || c == 0x62) {
		r->bad |= i->rex != 0;
		take_vex(r, i, c);
		return;
	}
	if (c == 0x8f && r->p < r->end && (*r->p & 0x1f) >= 8) {
		take_vex(r, i, c);
		return;
	}
	if (c == 0x0f) {
		c = take(r);
		i->map = INSN_0F;
		if (c == 0x38 || c == 0x3a) {
			i->map = c == 0x38 ? INSN_0F38 : INSN_0F3A;
			c = take(r);
		}
	}
	i->opcode = c;
}

static char layout(const struct insn_reader *r, const struct insn *i)
{
	uint8_t c = i->opcode;

	switch ((enum insn_map)i->map) {
	case INSN_ONE:
		return one_layout[c];
	case INSN_0F:
		return two_layout[c];
	case INSN_0F38:
		return 'm';
	case INSN_0F3A:
		return 'B';
	case INSN_VEX:
		break;
	}
	if (r->vex_map == 1 && c == 0x77)
		return '.';
	if (r->vex_map == 10)
		return 'Z';
	if (r->vex_map == 3 || r->vex_map == 8 ||
	    (r->vex_map == 1 &&
	     ((c >= 0x70 && c <= 0x73) || c == 0xc2 || (c >= 0xc4 && c <= 0xc6))))
		return 'B';
	return 'm';
}

static void take_modrm(struct insn_reader *r, struct insn *i)
{
	uint8_t modrm = take(r), rm = modrm & 7, sib;

	i->has_modrm = true;
	i->mod = modrm >> 6;
	i->reg = (modrm >> 3 & 7) | (i->rex & 4) << 1;
	i->rm = rm | (i->rex & 1) << 3;
	/* A mov of control and debug registers has no memory operand, whatever mod is. */
	if (i->mod == 3 || (i->map == INSN_0F && (i->opcode & 0xfc) == 0x20))
		return;
	i->base = i->rm;
	if (rm == 4) {
		sib = take(r);
		rm = sib & 7;
		i->base = rm | (i->rex & 1) << 3;
		if ((sib >> 3 & 7) != 4 || i->rex & 2)
			i->base = INSN_NO_REG;
	}
	if (i->mod == 0 && rm == 5) {
		i->base = INSN_NO_REG;
		i->displacement = take_signed(r, 4);
	} else {
		i->displacement = take_signed(r, i->mod == 1 ? 1 : i->mod == 2 ? 4 : 0);
	}
}

static void take_immediate(struct insn_reader *r, struct insn *i, char what)
{
	bool wide = i->rex & 8;
	unsigned z = i->operand16 && !wide ? 2 : 4, n = 0;

	switch (what) {
	case 'b':
	case 'B':
	case 'j':
		n = 1;
		break;
	case 'w':
		n = 2;
		break;
	case 'z':
	case 'Z':
		n = z;
		break;
	case 'v':
		n = wide ? 8 : z;
		break;
	case 'e':
		n = 3;
		break;
	case 'o':
		n = i->address32 ? 4 : 8;
		break;
	case 'J': /* with prefix 66, some processors read 16 bits, so the jump is refused */
		r->bad |= z == 2;
		n = 4;
		break;
	}
	/* Of the opcodes f6 and f7, only test (reg 0 and 1) has an immediate. */
	if (i->map == INSN_ONE && (i->opcode & 0xfe) == 0xf6 && (i->reg & 7) < 2)
		n = i->opcode == 0xf6 ? 1 : z;
	i->immediate = take_signed(r, n);
}

/* ---- what is written ---- */

static char written_vex(const struct insn_reader *r, const struct insn *i)
{
	uint8_t c = i->opcode;

	if (r->vex_map == 1)
		return c == 0x2c || c == 0x2d || c == 0x50 || c == 0x93 || c == 0xc5 || c == 0xd7
			       ? 'r'
		       : c == 0x7e && r->vex_pp != 2 ? 'm'
						     : ' ';
	if (r->vex_map == 2)
		return c == 0xf3 ? 'x' : c == 0xf6 ? 'y' : c >= 0xf2 && c <= 0xf7 ? 'r' : ' ';
	if (r->vex_map == 3)
		return c >= 0x14 && c <= 0x17 ? 'm' : c == 0xf0 ? 'r' : ' ';
	return ' ';
}

static char written_one(const struct insn *i)
{
	uint8_t c = i->opcode, group = i->reg & 7;

	if ((c >= 0x80 && c <= 0x83 && group == 7) ||
	    ((c & 0xfe) == 0xf6 && group != 2 && group != 3) || (c == 0xff && group > 1))
		return ' ';
	return one_written[c];
}

static char written_two(const struct insn_reader *r, const struct insn *i)
{
	uint8_t c = i->opcode;

	if ((c == 0x7e && r->rep) || (c == 0xba && (i->reg & 7) == 4) ||
	    (c == 0x01 && (i->reg & 7) != 4))
		return ' ';
	return two_written[c];
}

static void find_written(const struct insn_reader *r, struct insn *i)
{
	char what = i->map == INSN_ONE	  ? written_one(i)
		    : i->map == INSN_0F	  ? written_two(r, i)
		    : i->map == INSN_VEX  ? written_vex(r, i)
		    : i->map == INSN_0F38 ? (i->opcode >= 0xf0 ? 'r' : ' ')
					  : (i->opcode >= 0x14 && i->opcode <= 0x17 ? 'm' : ' ');
	bool byte = what == 'R' || what == 'M' || what == 'O' || what == '3';
	uint32_t set = 0;

	if (strchr("rR23y", what))
		set |= 1u << i->reg;
	if (strchr("mM23", what) && i->has_modrm && i->mod == 3)
		set |= 1u << i->rm;
	if (what == 'o' || what == 'O')
		set |= 1u << ((i->opcode & 7) | (i->rex & 1) << 3);
	if (what == 'x' || what == 'y')
		set |= 1u << r->vex_v;
	i->written = byte && !i->rex ? set & ~0xf0u : set;
}

bool insn_decode(const uint8_t *p, size_t n, struct insn *ret)
{
	struct insn_reader r = {.p = p, .end = p + MIN(n, (size_t)INSN_BYTES_MAX)};
	struct insn i = {.base = INSN_NO_REG};
	char what;

	take_opcode(&r, &i);
	what = layout(&r, &i);
	if (r.bad || what == '-')
		return false;
	if (strchr("mBZ", what))
		take_modrm(&r, &i);
	take_immediate(&r, &i, what);
	if (r.bad || (i.map == INSN_ONE && i.opcode == 0x8f && (i.reg & 7) != 0))
		return false;
	i.bytes = r.p - p;
	find_written(&r, &i);
	*ret = i;
	return true;
}
