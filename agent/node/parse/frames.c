/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the unwind rows of a file from .eh_frame, and from .debug_frame where .eh_frame has
 * nothing. It also finds two kinds of code that often have neither: procedure linkage tables and
 * the stub that returns from a signal.
 */
#include "node/parse/cfi.h"

#include <dwarf.h>
#include <stdlib.h>

/* Limit of the search for signal stubs, in bytes of machine code; a libc has 1 MB. */
#define SCAN_BYTES_MAX (72u << 20)

/* ---- the sections ---- */

static uint64_t section_address(struct elf_build *b, const char *name)
{
	struct section s;

	return parse_build_section(b, name, &s) ? s.address : 0;
}

/* Finds .eh_frame by its program header, in files without section headers. */
static bool find_by_header(struct elf_build *b, struct cfi_section *ret)
{
	size_t n_headers = 0, n;

	elf_getphdrnum(b->elf, &n_headers);
	for (size_t k = 0; k < n_headers; k++) {
		struct cfi_section header = {0};
		struct bytes bytes;
		GElf_Phdr p;

		if (!gelf_getphdr(b->elf, k, &p) || p.p_type != PT_GNU_EH_FRAME)
			continue;
		header.data = parse_build_bytes(b, p.p_vaddr, &n);
		if (!header.data || n < 8 || header.data[0] != 1)
			continue;
		header.address = header.data_base = p.p_vaddr;
		bytes = (struct bytes){header.data + 4, header.data + n, false};
		ret->address = parse_cfi_pointer(&header, &bytes, header.data[1]);
		ret->data = bytes.bad ? NULL : parse_build_bytes(b, ret->address, &ret->n);
		return ret->data;
	}
	return false;
}

static bool find_eh_frame(struct elf_build *b, struct cfi_section *ret)
{
	struct section s;

	*ret = (struct cfi_section){.eh = true};
	if (parse_build_section(b, ".eh_frame", &s)) {
		ret->data = s.data;
		ret->n = s.n;
		ret->address = s.address;
	} else if (find_by_header(b, ret)) {
		ret->until_zero = true;
	} else {
		return false;
	}
	ret->text = section_address(b, ".text");
	ret->data_base = section_address(b, ".got.plt");
	if (!ret->data_base)
		ret->data_base = section_address(b, ".got");
	return true;
}

static bool find_debug_frame(struct elf_build *b, struct cfi_section *ret)
{
	struct section s;

	if (!parse_build_section(b, ".debug_frame", &s))
		return false;
	*ret = (struct cfi_section){.data = s.data, .n = s.n};
	return true;
}

/* ---- addresses ---- */

/* Returns the end of the executable segment that contains an address. 0: none does. */
static uint64_t executable_end(const struct elf_build *b, uint64_t address)
{
	for (size_t k = 0; k < b->n_segments; k++) {
		const struct index_segment *s = &b->segments[k];

		if (s->executable && address - s->address < s->bytes)
			return s->address + s->bytes;
	}
	return 0;
}

/* Returns how many FDEs start at or before an address. */
static size_t fdes_before(const struct cfi *c, uint64_t address)
{
	size_t low = 0, high = c->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (c->fdes[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool covered(const struct cfi *c, uint64_t address)
{
	size_t n = fdes_before(c, address);

	return n && address < c->fdes[n - 1].end;
}

/* ---- FDEs ---- */

/* Where procedure linkage tables begin; 0: there is none. */
struct plts {
	uint64_t starts[3];
};

static struct plts find_plts(struct elf_build *b)
{
	return (struct plts){{section_address(b, ".plt"), section_address(b, ".plt.sec"),
			      section_address(b, ".plt.got")}};
}

/*
 * Adds the function of an FDE. A linkage table has one FDE, but is many functions. The FDE of a
 * signal stub begins before the stub, as if code before it had called it.
 */
static void add_function(struct elf_build *b, const struct cfi *c, const struct cfi_fde *f,
			 uint64_t end, const struct plts *plts)
{
	bool is_plt = f->start == plts->starts[0] || f->start == plts->starts[1] ||
		      f->start == plts->starts[2];

	if (!is_plt && !c->cies[f->cie].signal)
		parse_functions_add(&b->functions, f->start, end);
}

/*
 * Adds rows of FDEs, and their functions. FDEs of functions that the linker removed start at 0 or
 * elsewhere outside the machine code, and are left out. except: the FDEs of another section, or
 * NULL. A function that has an FDE in `except` is left out, too.
 */
static void add_fdes(struct elf_build *b, struct cfi *c, const struct cfi *except)
{
	uint64_t start = 1, end = 0; /* start and end of the current executable part */
	const struct plts plts = find_plts(b);

	for (size_t k = 0; k < c->n; k++) {
		const struct cfi_fde *f = &c->fdes[k];

		if (f->start == 0)
			continue;
		if (f->start < start || f->start >= end) {
			start = f->start;
			end = executable_end(b, start);
			if (end == 0)
				continue;
		}
		if (except && covered(except, f->start))
			continue;
		parse_cfi_rows(c, f, MIN(f->end, end), b->rows);
		add_function(b, c, f, MIN(f->end, end), &plts);
	}
}

/* ---- PLT ---- */

static void add_plt_row(struct elf_build *b, uint64_t start, uint64_t end, enum pf_cfa cfa,
			int32_t offset, int32_t extra)
{
	struct pf_rule rule = {.cfa = cfa, .cfa_offset = offset, .extra = extra};

	parse_rows_add(b->rows, start, end, parse_rows_rule(b->rows, &rule));
}

/*
 * Adds the rows of a lazy .plt as lld writes it, without an FDE. An entry pushes a number and jumps
 * to the head, which pushes one more (this push has 6 bytes). An entry first jumps and then pushes
 * (the push ends at byte 11), or it pushes right after its endbr64 (the push ends at byte 9).
 */
static void add_lazy_plt(struct elf_build *b, const struct section *s)
{
	static const uint8_t head[] = {0xff, 0x35}, endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
	uint64_t at = s->address;
	bool has_endbr;

	if (s->n < 32 || memcmp(s->data, head, sizeof(head)) != 0)
		return;
	has_endbr = memcmp(s->data + 16, endbr, sizeof(endbr)) == 0;
	add_plt_row(b, at, at + 6, PF_CFA_RSP, 16, 0);
	add_plt_row(b, at + 6, at + 16, PF_CFA_RSP, 24, 0);
	add_plt_row(b, at + 16, at + s->n, PF_CFA_PLT, 8, has_endbr ? 9 : 11);
}

static void add_plts(struct elf_build *b, const struct cfi *c)
{
	static const char *const without_pushes[] = {".plt.sec", ".plt.got"};
	struct section s;

	if (parse_build_section(b, ".plt", &s) && !covered(c, s.address) &&
	    executable_end(b, s.address) >= s.address + s.n)
		add_lazy_plt(b, &s);
	for (size_t k = 0; k < ARRAY_SIZE(without_pushes); k++)
		if (parse_build_section(b, without_pushes[k], &s) && !covered(c, s.address) &&
		    executable_end(b, s.address) >= s.address + s.n)
			add_plt_row(b, s.address, s.address + s.n, PF_CFA_RSP, 8, 0);
}

/* ---- signal frames ---- */

/*
 * mov $15, %rax; syscall. musl's __restore_rt consists of these two instructions. A stub that
 * works must be the same.
 */
static const uint8_t restore_rt[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};

static void scan(struct elf_build *b, uint64_t start, uint64_t end, uint64_t *budget)
{
	size_t n = 0;
	const uint8_t *p = parse_build_bytes(b, start, &n), *found;

	n = MIN(MIN(n, end - start), *budget);
	if (!p)
		return;
	*budget -= n;
	for (; (found = memmem(p, n, restore_rt, sizeof(restore_rt))); p = found + 1) {
		n -= found - p;
		start += found - p;
		parse_rows_add(b->rows, start, start + sizeof(restore_rt), PF_RULE_SIGNAL);
		n--;
		start++;
	}
}

/* Scans the parts of [start, end) that no FDE covers. */
static void scan_gaps(struct elf_build *b, const struct cfi *c, uint64_t start, uint64_t end,
		      uint64_t *budget)
{
	size_t k = fdes_before(c, start);

	if (k && c->fdes[k - 1].end > start)
		start = c->fdes[k - 1].end;
	for (; k < c->n && c->fdes[k].start < end; k++) {
		if (c->fdes[k].start > start)
			scan(b, start, c->fdes[k].start, budget);
		start = MAX(start, c->fdes[k].end);
	}
	if (start < end)
		scan(b, start, end, budget);
}

/*
 * Returns whether the file needs other libraries. The signal stub is part of libc. A file that
 * needs another library does not have the stub, so its machine code, which may be large, is not
 * searched.
 */
static bool needs_libraries(struct elf_build *b)
{
	size_t n_headers = 0, n = 0;

	elf_getphdrnum(b->elf, &n_headers);
	for (size_t k = 0; k < n_headers; k++) {
		const uint8_t *p;
		Elf64_Dyn d;
		GElf_Phdr h;

		if (!gelf_getphdr(b->elf, k, &h) || h.p_type != PT_DYNAMIC)
			continue;
		p = parse_build_bytes(b, h.p_vaddr, &n);
		for (; p && n >= sizeof(d); p += sizeof(d), n -= sizeof(d)) {
			memcpy(&d, p, sizeof(d));
			if (d.d_tag == DT_NULL || d.d_tag == DT_NEEDED)
				return d.d_tag == DT_NEEDED;
		}
	}
	return false;
}

static void add_signal_stubs(struct elf_build *b, const struct cfi *c)
{
	uint64_t budget = SCAN_BYTES_MAX;

	if (needs_libraries(b))
		return;
	for (size_t k = 0; k < b->n_texts; k++)
		scan_gaps(b, c, b->texts[k].start, b->texts[k].end, &budget);
	for (size_t k = 0; b->n_texts == 0 && k < b->n_segments; k++)
		if (b->segments[k].executable)
			scan_gaps(b, c, b->segments[k].address,
				  b->segments[k].address + b->segments[k].bytes, &budget);
	/* Go's runtime has a signal stub of its own, which is in .gopclntab. */
	if (!budget && !(b->header.flags & ELF_INDEX_GO))
		b->header.flags |= ELF_INDEX_CODE_CUT;
}

/* ---- all ---- */

enum parse_reason parse_build_frames(struct elf_build *b)
{
	bool go = b->header.flags & ELF_INDEX_GO; /* .gopclntab has the same as .debug_frame */
	struct cfi eh = {0}, debug = {0};
	struct cfi_section s;
	bool has_eh, has_debug, lost;

	has_eh = find_eh_frame(b, &s);
	if (has_eh) {
		parse_cfi_read(&eh, &s);
		add_fdes(b, &eh, NULL);
	}
	has_debug = !go && find_debug_frame(b, &s);
	if (has_debug) {
		parse_cfi_read(&debug, &s);
		add_fdes(b, &debug, &eh);
	}
	add_plts(b, &eh);
	add_signal_stubs(b, &eh);
	lost = !go && !has_debug && parse_build_has_section(b, ".debug_frame");
	if (!has_eh && !has_debug && !go)
		b->header.flags |= ELF_INDEX_NO_UNWIND;
	if (lost || eh.damaged || debug.damaged || eh.cut || debug.cut || parse_rows_cut(b->rows))
		b->header.flags |= ELF_INDEX_UNWIND_CUT;
	parse_cfi_done(&eh);
	parse_cfi_done(&debug);
	return PARSE_OK;
}
