/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds sections by name and decompresses them: with zlib or zstd (SHF_COMPRESSED), or in the older
 * form, .zdebug_*. libelf cannot decompress all of these: elfutils supports zstd from 0.189 on, and
 * Debian 12 has 0.188. The size in a section's header is not trusted: it has a limit, and the
 * decompressed bytes must have that size.
 */
#include "node/parse/build.h"

#include <stdlib.h>
#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2 /* in <elf.h> from glibc 2.37 on */
#endif

#define UNPACKED_MAX (1u << 30) /* bytes of a decompressed section */
#define ZLIB_RATIO   1040	/* the highest ratio of a stream of zlib */
/* the highest ratio of a stream of zstd: a block of 128 KiB takes 4 bytes */
#define ZSTD_RATIO    32768
#define GNU_HEAD_SIZE 12 /* .zdebug_*: "ZLIB", then the size as 8 bytes in big endian */

struct packed {
	const uint8_t *data;
	size_t n;
	/* the kind (ELFCOMPRESS_*) and the decompressed size, as the header says */
	uint64_t type, bytes;
};

/* ---- decompressing: returns 0, or the flag that says why it failed ---- */

static bool read_head(const Elf_Data *raw, bool gnu, struct packed *ret)
{
	size_t head = gnu ? GNU_HEAD_SIZE : sizeof(Elf64_Chdr);
	Elf64_Chdr c = {.ch_type = ELFCOMPRESS_ZLIB};

	if (raw->d_size <= head || (gnu && memcmp(raw->d_buf, "ZLIB", 4) != 0))
		return false;
	if (gnu) {
		memcpy(&c.ch_size, (const char *)raw->d_buf + 4, 8);
		c.ch_size = __builtin_bswap64(c.ch_size);
	} else {
		memcpy(&c, raw->d_buf, sizeof(c));
	}
	*ret = (struct packed){(const uint8_t *)raw->d_buf + head, raw->d_size - head, c.ch_type,
			       c.ch_size};
	return true;
}

/* Decompresses one or more streams: "ld -r" puts the streams of its inputs one after the other. */
static unsigned unpack_zlib(const struct packed *p, uint8_t *to)
{
	z_stream z = {.next_in = p->data, .next_out = to};
	int r = inflateInit(&z);

	z.avail_in = p->n;
	z.avail_out = p->bytes;
	while (r == Z_OK && z.avail_in) {
		r = inflate(&z, Z_FINISH);
		r = r == Z_STREAM_END ? inflateReset(&z) : r == Z_OK ? Z_BUF_ERROR : r;
	}
	inflateEnd(&z);
	if (r == Z_MEM_ERROR)
		return ELF_INDEX_COMPRESSED_LARGE;
	return r == Z_OK && z.avail_out == 0 ? 0 : ELF_INDEX_COMPRESSED_DAMAGED;
}

/* Decompresses one or more frames of zstd: "ld -r" and mold write several. */
static unsigned unpack_zstd(const struct packed *p, uint8_t *to)
{
	ZSTD_DCtx *d = ZSTD_createDCtx();
	size_t n;

	if (!d)
		return ELF_INDEX_COMPRESSED_LARGE;
	n = ZSTD_decompressDCtx(d, to, p->bytes, p->data, p->n);
	ZSTD_freeDCtx(d);
	/* after an error, n is larger than any size */
	return n == p->bytes ? 0 : ELF_INDEX_COMPRESSED_DAMAGED;
}

static unsigned unpack(const struct packed *p, uint8_t **ret)
{
	bool zlib = p->type == ELFCOMPRESS_ZLIB;
	uint8_t *to;
	unsigned flag;

	if (!zlib && p->type != ELFCOMPRESS_ZSTD)
		return ELF_INDEX_COMPRESSED_UNKNOWN;
	if (p->bytes > UNPACKED_MAX || p->n > UNPACKED_MAX)
		return ELF_INDEX_COMPRESSED_LARGE;
	if (!p->bytes || p->bytes / (zlib ? ZLIB_RATIO : ZSTD_RATIO) > p->n)
		return ELF_INDEX_COMPRESSED_DAMAGED;
	to = malloc(p->bytes); /* not xmalloc, which aborts: the sandbox limits the memory */
	if (!to)
		return ELF_INDEX_COMPRESSED_LARGE;
	flag = zlib ? unpack_zlib(p, to) : unpack_zstd(p, to);
	if (flag)
		free(to);
	else
		*ret = to;
	return flag;
}

/* ---- what was decompressed is kept: readers ask for a section more than once ---- */

static const struct unpacked *unpack_once(struct elf_build *b, Elf_Scn *section, bool gnu)
{
	struct unpacked *u;
	struct packed packed = {0};
	Elf_Data *raw;
	unsigned flag = ELF_INDEX_COMPRESSED_DAMAGED;

	for (size_t i = 0; i < b->n_unpacked; i++)
		if (b->unpacked[i].section == section)
			return &b->unpacked[i];
	GROW(b->unpacked, b->n_unpacked, b->cap_unpacked);
	u = &b->unpacked[b->n_unpacked++];
	*u = (struct unpacked){.section = section};
	raw = elf_rawdata(section, NULL);
	if (raw && raw->d_buf && read_head(raw, gnu, &packed))
		flag = unpack(&packed, &u->data);
	b->header.flags |= flag;
	u->n = packed.bytes;
	return u;
}

bool parse_build_section_bytes(struct elf_build *b, Elf_Scn *section, const GElf_Shdr *s, bool gnu,
			       struct section *ret)
{
	const struct unpacked *u;
	Elf_Data *raw;

	if (s->sh_type == SHT_NOBITS)
		return false;
	if (gnu || s->sh_flags & SHF_COMPRESSED) {
		u = unpack_once(b, section, gnu);
		if (u->data)
			*ret = (struct section){u->data, u->n, s->sh_addr};
		return u->data;
	}
	raw = elf_rawdata(section, NULL);
	if (!raw || !raw->d_buf || raw->d_size == 0)
		return false;
	*ret = (struct section){raw->d_buf, raw->d_size, s->sh_addr};
	return true;
}

/* ---- by name ---- */

static Elf_Scn *find_named(struct elf_build *b, const char *name, GElf_Shdr *ret)
{
	Elf_Scn *section = NULL;
	size_t names, seen = 0;

	if (elf_getshdrstrndx(b->elf, &names) < 0)
		return NULL;
	while ((section = elf_nextscn(b->elf, section)) && ++seen <= SECTIONS_MAX) {
		const char *own;

		if (!gelf_getshdr(section, ret))
			return NULL;
		own = elf_strptr(b->elf, names, ret->sh_name);
		if (own && streq(own, name))
			return section;
	}
	return NULL;
}

/* Finds a section by name. If there is no .debug_x, it finds .zdebug_x. */
static Elf_Scn *find_section(struct elf_build *b, const char *name, GElf_Shdr *ret, bool *ret_gnu)
{
	_cleanup_free_ char *z = NULL;
	Elf_Scn *section = find_named(b, name, ret);

	*ret_gnu = !section && str_has_prefix(name, ".debug_");
	if (*ret_gnu) {
		z = xasprintf(".z%s", name + 1);
		section = find_named(b, z, ret);
	}
	return section;
}

bool parse_build_has_section(struct elf_build *b, const char *name)
{
	GElf_Shdr s;
	bool gnu;

	return find_section(b, name, &s, &gnu) && s.sh_type != SHT_NOBITS && s.sh_size > 0;
}

bool parse_build_section(struct elf_build *b, const char *name, struct section *ret)
{
	GElf_Shdr s;
	bool gnu;
	Elf_Scn *section = find_section(b, name, &s, &gnu);

	return section && parse_build_section_bytes(b, section, &s, gnu, ret);
}

void parse_build_close(struct elf_build *b)
{
	elf_end(b->elf);
	for (size_t i = 0; i < b->n_unpacked; i++)
		free(b->unpacked[i].data);
	free(b->unpacked);
}
