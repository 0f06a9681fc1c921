/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the entries of .eh_frame and .debug_frame. A damaged entry is counted, and the others are
 * still read.
 */
#include "node/parse/cfi.h"

#include <dwarf.h>
#include <stdlib.h>

#define CIES_MAX (1u << 18) /* CIEs of one file; if there are more, the index is marked as cut */
#define FDES_MAX (2u << 20) /* FDEs of one file; if there are more, the index is marked as cut */

uint64_t parse_bytes_leb(struct bytes *b, bool is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = bytes_fixed(b, 1);
		if (shift > 63)
			b->bad = true;
		else
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80 && !b->bad);
	if (is_signed && byte & 0x40 && shift < 64)
		value |= ~0ull << shift;
	return b->bad ? 0 : value;
}

/* ---- pointers ---- */

static uint64_t read_value(struct bytes *b, uint8_t encoding)
{
	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return bytes_fixed(b, 8);
	case DW_EH_PE_uleb128:
		return bytes_uleb(b);
	case DW_EH_PE_sleb128:
		return bytes_sleb(b);
	case DW_EH_PE_udata2:
		return bytes_fixed(b, 2);
	case DW_EH_PE_udata4:
		return bytes_fixed(b, 4);
	case DW_EH_PE_sdata2:
		return bytes_signed(b, 2);
	case DW_EH_PE_sdata4:
		return bytes_signed(b, 4);
	}
	b->bad = true;
	return 0;
}

/*
 * Reads a pointer. Pointers of other kinds make b bad: an indirect pointer names memory of the
 * process, and aligned and function-relative pointers do not occur.
 */
uint64_t parse_cfi_pointer(const struct cfi_section *s, struct bytes *b, uint8_t encoding)
{
	uint64_t at = s->address + (b->p - s->data);
	uint64_t value = read_value(b, encoding);

	switch (encoding & 0xf0) {
	case 0:
		return value;
	case DW_EH_PE_pcrel:
		return value + at;
	case DW_EH_PE_textrel:
		return value + s->text;
	case DW_EH_PE_datarel:
		return value + s->data_base;
	}
	b->bad = true;
	return 0;
}

/* ---- entries ---- */

struct cfi_entry {
	uint64_t at, id_at, id;
	bool wide; /* the 64-bit format */
	struct bytes body;
};

/*
 * Reads the next entry. Returns false if there is none. If a length exceeds the section, reading
 * ends, because nothing after that length can be trusted.
 */
static bool next_entry(struct cfi *c, const struct cfi_section *s, struct bytes *b,
		       struct cfi_entry *ret)
{
	struct cfi_entry e = {0};
	uint64_t length;

	do {
		if (b->end - b->p < 4)
			return false;
		e.at = b->p - s->data;
		length = bytes_fixed(b, 4);
		if (length == 0 && s->until_zero)
			return false;
	} while (length == 0);
	if (length == UINT32_MAX) {
		e.wide = true;
		length = bytes_fixed(b, 8);
	}
	e.id_at = b->p - s->data;
	e.body.p = bytes_take(b, length);
	if (!e.body.p) {
		c->damaged++;
		return false;
	}
	e.body.end = b->p;
	e.id = bytes_fixed(&e.body, e.wide ? 8 : 4);
	*ret = e;
	return true;
}

static bool is_cie(const struct cfi_section *s, const struct cfi_entry *e)
{
	if (s->eh)
		return e->id == 0;
	return e->id == (e->wide ? UINT64_MAX : UINT32_MAX);
}

/* Reads the letters of an augmentation that begins with 'z'. */
static bool read_augmentation(const char *letters, struct bytes data, struct cfi_cie *ret)
{
	for (; *letters; letters++) {
		uint8_t encoding;

		switch (*letters) {
		case 'R':
			ret->pointers = bytes_fixed(&data, 1);
			break;
		case 'L':
			bytes_fixed(&data, 1);
			break;
		case 'P':
			encoding = bytes_fixed(&data, 1);
			read_value(&data, encoding);
			break;
		case 'S':
			ret->signal = true;
			break;
		case 'B':
			break;
		default:
			return false;
		}
	}
	return !data.bad;
}

static bool read_cie(struct cfi *c, const struct cfi_entry *e, struct cfi_cie *ret)
{
	struct bytes b = e->body;
	uint8_t version = bytes_fixed(&b, 1);
	const char *letters = (const char *)b.p;
	size_t n = strnlen(letters, b.end - b.p);

	if (!bytes_take(&b, n + 1) || (version != 1 && version != 3 && version != 4))
		return false;
	/* two bytes: the size of an address must be 8, that of a segment 0 */
	if (version == 4 && bytes_fixed(&b, 2) != 8)
		return false;
	if (str_has_prefix(letters, "eh")) { /* gcc 2 */
		bytes_fixed(&b, 8);
		letters += 2;
	}
	ret->at = e->at;
	ret->code_align = bytes_uleb(&b);
	ret->data_align = bytes_sleb(&b);
	if ((version == 1 ? bytes_fixed(&b, 1) : bytes_uleb(&b)) != CFI_RA)
		return false;
	if (*letters == 'z') {
		uint64_t length = bytes_uleb(&b);
		const uint8_t *data = bytes_take(&b, length);

		ret->sized = true;
		if (!data || !read_augmentation(letters + 1, (struct bytes){data, b.p, false}, ret))
			return false;
	} else if (letters[strspn(letters, "SB")]) { /* these letters have no data */
		return false;
	} else {
		ret->signal = strchr(letters, 'S');
	}
	return !b.bad && parse_cfi_initial(c, ret, b);
}

static void add_cie(struct cfi *c, const struct cfi_entry *e)
{
	struct cfi_cie cie = {.pointers = DW_EH_PE_absptr};

	if (c->n_cies == CIES_MAX) {
		c->cut = true;
		return;
	}
	if (!read_cie(c, e, &cie)) {
		c->damaged++;
		return;
	}
	GROW(c->cies, c->n_cies, c->cap_cies);
	c->cies[c->n_cies++] = cie;
}

/* Returns the CIE at an offset. Most FDEs have the same CIE as the FDE before. */
static const struct cfi_cie *find_cie(const struct cfi *c, uint64_t at, size_t *last)
{
	size_t low = 0, high = c->n_cies;

	if (*last < c->n_cies && c->cies[*last].at == at)
		return &c->cies[*last];
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (c->cies[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == c->n_cies || c->cies[low].at != at)
		return NULL;
	*last = low;
	return &c->cies[low];
}

static bool add_fde(struct cfi *c, const struct cfi_section *s, const struct cfi_entry *e,
		    size_t *last)
{
	const struct cfi_cie *cie = find_cie(c, s->eh ? e->id_at - e->id : e->id, last);
	struct bytes b = e->body;
	uint64_t start, length;

	if (!cie)
		return false;
	start = parse_cfi_pointer(s, &b, cie->pointers);
	length = read_value(&b, cie->pointers);
	if (cie->sized)
		bytes_take(&b, bytes_uleb(&b));
	if (b.bad || start + length < start)
		return false;
	if (length == 0)
		return true;
	if (c->n == FDES_MAX) {
		c->cut = true;
		return true;
	}
	GROW(c->fdes, c->n, c->cap);
	c->fdes[c->n++] = (struct cfi_fde){start, start + length, b, cie - c->cies};
	return true;
}

static int compare_fdes(const void *left, const void *right)
{
	const struct cfi_fde *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->program.p < b->program.p ? -1 : a->program.p > b->program.p;
}

static void sort_fdes(struct cfi *c)
{
	for (size_t k = 1; k < c->n; k++) {
		if (c->fdes[k].start < c->fdes[k - 1].start) {
			qsort(c->fdes, c->n, sizeof(c->fdes[0]), compare_fdes);
			return;
		}
	}
}

/* CIEs are read first, because an FDE of .debug_frame may name one that comes later. */
void parse_cfi_read(struct cfi *c, const struct cfi_section *s)
{
	struct bytes b = {s->data, s->data + s->n, false};
	struct cfi_entry e;
	size_t damaged, last = 0;

	c->section = *s;
	while (next_entry(c, s, &b, &e))
		if (is_cie(s, &e))
			add_cie(c, &e);
	damaged = c->damaged;
	b = (struct bytes){s->data, s->data + s->n, false};
	while (next_entry(c, s, &b, &e))
		if (!is_cie(s, &e) && !add_fde(c, s, &e, &last))
			damaged++;
	c->damaged = damaged; /* both passes counted the same bad length; it counts once */
	sort_fdes(c);
}

void parse_cfi_done(struct cfi *c)
{
	free(c->cies);
	free(c->fdes);
	*c = (struct cfi){0};
}
