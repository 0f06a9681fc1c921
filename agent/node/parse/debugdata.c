/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads .gnu_debugdata: an ELF file packed with xz, whose .symtab has what .dynsym leaves out. A
 * few bytes may inflate to any size, so memory and output have limits. If the section cannot be
 * read, only its names are missing.
 */
#include "node/parse/build.h"

#include <lzma.h>
#include <stdlib.h>

#define UNPACKED_MAX (64u << 20) /* bytes of .gnu_debugdata; if it has more, it is not used */
#define MEMORY_MAX   (64u << 20) /* limit on the memory of the decoder; xz -9 needs all of it */

/*
 * Unpacks the whole stream into *out, which grows. Returns false if the stream is damaged or
 * exceeds a limit.
 */
static bool unpack_stream(lzma_stream *z, struct buf *out)
{
	uint8_t piece[65536];
	lzma_ret r = LZMA_OK;

	while (r == LZMA_OK) {
		z->next_out = piece;
		z->avail_out = sizeof(piece);
		r = lzma_code(z, LZMA_FINISH);
		if (r != LZMA_OK && r != LZMA_STREAM_END)
			return false;
		if (buf_add(out, piece, sizeof(piece) - z->avail_out) < 0)
			return false;
	}
	return out->len > 0;
}

static bool unpack(const struct section *s, struct buf *out)
{
	lzma_stream z = LZMA_STREAM_INIT;
	bool done;

	if (lzma_stream_decoder(&z, MEMORY_MAX + (8u << 20), 0) != LZMA_OK)
		return false;
	z.next_in = s->data;
	z.avail_in = s->n;
	buf_init(out, UNPACKED_MAX);
	done = unpack_stream(&z, out);
	lzma_end(&z);
	return done;
}

static bool is_like(Elf *elf)
{
	GElf_Ehdr e;

	return elf && elf_kind(elf) == ELF_K_ELF && gelf_getehdr(elf, &e) &&
	       e.e_machine == EM_X86_64 && e.e_ident[EI_CLASS] == ELFCLASS64 &&
	       e.e_ident[EI_DATA] == ELFDATA2LSB;
}

enum parse_reason parse_build_debugdata(struct elf_build *b)
{
	_cleanup_buf_ struct buf out = {0};
	enum parse_reason reason = PARSE_DAMAGED;
	Elf *file = b->elf;
	struct section s;
	size_t n;

	if (!parse_build_section(b, ".gnu_debugdata", &s))
		return PARSE_OK;
	if (unpack(&s, &out)) {
		n = out.len;
		b->debugdata_bytes = buf_steal(&out);
		b->debugdata = elf_memory(b->debugdata_bytes, n);
	}
	if (is_like(b->debugdata)) {
		b->elf = b->debugdata;
		reason = parse_build_symbols(b);
		b->elf = file;
	}
	/* If the section is damaged, only the names after the damage are lost. */
	if (reason)
		b->header.flags |= ELF_INDEX_NAMES_CUT;
	return PARSE_OK;
}
