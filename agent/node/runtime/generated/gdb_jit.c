/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface by which compilers tell debuggers of generated code (GDB manual, "JIT Compilation
 * Interface"): the symbol __jit_debug_descriptor heads a list of ELF images in memory, of which
 * this file reads the call frame information. QEMU has one image for all of its code; PHP has one
 * for each trace if opcache.jit_debug asks for it; LLVM's users have one for each module if they
 * ask for it. The process may change all of this at any time, so each image is read twice.
 */
#include "node/runtime/generated/generated.h"

#include <stdlib.h>

#define IMAGES_MAX	 4096 /* images of one process */
#define SECTIONS_MAX	 256  /* sections of one image; those of compilers have up to 30 */
#define NAMES_BYTES_MAX	 4096 /* names of an image's sections that are read */
#define DESCRIPTOR_BYTES 24

static const char *const marks[] = {"__jit_debug_descriptor", NULL};

struct descriptor {
	uint32_t version, action;
	uint64_t relevant, first;
};
_Static_assert(sizeof(struct descriptor) == DESCRIPTOR_BYTES, "the interface's structure");
struct entry {
	uint64_t next, before, image, bytes;
};

/* ---- an image ---- */

struct image {
	Elf64_Shdr sections[SECTIONS_MAX];
	size_t n;
	char names[NAMES_BYTES_MAX + 1]; /* n_names bytes, and a terminating 0 */
	size_t n_names;
};

static int read_sections(struct memory *m, const struct entry *e, struct image *i)
{
	Elf64_Ehdr h;
	int r = e->bytes < sizeof(h) ? -EBADMSG : runtime_memory_read(m, e->image, &h, sizeof(h));

	if (r < 0)
		return r;
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
	    h.e_machine != EM_X86_64 || h.e_shentsize != sizeof(i->sections[0]) ||
	    h.e_shoff > e->bytes || h.e_shnum * sizeof(i->sections[0]) > e->bytes - h.e_shoff ||
	    h.e_shstrndx >= h.e_shnum)
		return -EBADMSG;
	if (h.e_shnum > SECTIONS_MAX)
		return -E2BIG;
	i->n = h.e_shnum;
	r = runtime_memory_read(m, e->image + h.e_shoff, i->sections,
				i->n * sizeof(i->sections[0]));
	for (size_t k = 0; r == 0 && k < i->n; k++)
		if (i->sections[k].sh_offset > e->bytes ||
		    (i->sections[k].sh_type != SHT_NOBITS &&
		     i->sections[k].sh_size > e->bytes - i->sections[k].sh_offset))
			r = -EBADMSG;
	return r < 0 ? r : h.e_shstrndx;
}

/* Reads the image's headers and the names of its sections. */
static int image_read(struct memory *m, const struct entry *e, struct image *i)
{
	int names = read_sections(m, e, i);

	if (names < 0)
		return names;
	i->n_names = MIN(i->sections[names].sh_size, (uint64_t)NAMES_BYTES_MAX);
	i->names[i->n_names] = '\0';
	return runtime_memory_read(m, e->image + i->sections[names].sh_offset, i->names,
				   i->n_names);
}

static const Elf64_Shdr *section_of(const struct image *i, const char *name)
{
	for (size_t k = 0; k < i->n; k++)
		if (i->sections[k].sh_name < i->n_names &&
		    streq(i->names + i->sections[k].sh_name, name))
			return &i->sections[k];
	return NULL;
}

/* ---- its call frame information ---- */

struct frames {
	struct parse_generated_frames eh, debug; /* n 0: it has none */
	char bytes[2 * GENERATED_FRAMES_MAX];
	size_t used;
};

static int read_section(struct memory *m, const struct entry *e, const Elf64_Shdr *s,
			struct frames *f, struct parse_generated_frames *ret)
{
	char *to = f->bytes + f->used;

	if (!s || s->sh_type == SHT_NOBITS)
		return 0;
	if (s->sh_flags & SHF_COMPRESSED || s->sh_size > GENERATED_FRAMES_MAX)
		return -E2BIG;
	ret->data = to;
	ret->n = s->sh_size;
	ret->address = s->sh_addr ? s->sh_addr : e->image + s->sh_offset;
	f->used += s->sh_size;
	return runtime_memory_read(m, e->image + s->sh_offset, to, s->sh_size);
}

static int frames_read(struct memory *m, const struct entry *e, struct frames *f)
{
	struct image i = {0};
	int r = image_read(m, e, &i);
	const Elf64_Shdr *text = r == 0 ? section_of(&i, ".text") : NULL;

	f->used = 0;
	f->eh = (struct parse_generated_frames){.text = text ? text->sh_addr : 0, .eh = true};
	f->debug = (struct parse_generated_frames){0};
	if (r == 0 && (section_of(&i, ".rela.eh_frame") || section_of(&i, ".rela.debug_frame")))
		r = -ENOEXEC;
	if (r == 0)
		r = read_section(m, e, section_of(&i, ".eh_frame"), f, &f->eh);
	if (r == 0)
		r = read_section(m, e, section_of(&i, ".debug_frame"), f, &f->debug);
	return r;
}

static bool frames_equal(const struct frames *a, const struct frames *b)
{
	return a->eh.n == b->eh.n && a->eh.address == b->eh.address && a->eh.text == b->eh.text &&
	       a->debug.n == b->debug.n && memcmp(a->bytes, b->bytes, a->used) == 0;
}

/* Reads the frames of an image twice. -ESTALE: they have changed meanwhile. */
static int image_frames(struct memory *m, const struct entry *e, struct frames f[static 2])
{
	int r = frames_read(m, e, &f[0]);

	if (r == 0)
		r = frames_read(m, e, &f[1]);
	return r == 0 && !frames_equal(&f[0], &f[1]) ? -ESTALE : r;
}

/* ---- the list ---- */

/*
 * Reads an entry and its image. The image's rows count only if the entry is the same after the
 * image was read. -ESTALE: it is not, or it does not lead back to the entry before.
 */
static int read_entry(struct generated *g, uint64_t at, uint64_t before, struct entry *ret)
{
	_cleanup_free_ struct frames *f = xmalloc(2 * sizeof(*f));
	struct memory *m = g->look->memory;
	struct entry again;
	int r = runtime_memory_read(m, at, ret, sizeof(*ret)), error;

	if (r < 0 || ret->before != before)
		return r < 0 ? r : -ESTALE;
	error = image_frames(m, ret, f);
	r = runtime_memory_read(m, at, &again, sizeof(again));
	if (r == 0 && memcmp(ret, &again, sizeof(again)) != 0)
		r = -ESTALE;
	if (r < 0)
		return r;
	if (error)
		runtime_generated_left_out(g, error);
	if (!error && f->eh.n)
		runtime_generated_add(g, &f->eh);
	if (!error && f->debug.n)
		runtime_generated_add(g, &f->debug);
	return 0;
}

/*
 * Follows the list. An entry leads back to the one before it, so a list that leads to itself ends
 * at its first entry that was seen before. What changes meanwhile is read at the next time.
 */
static void read_list(struct generated *g, uint64_t first)
{
	uint64_t before = 0, at = first;
	struct entry e = {0};
	int r = 0;

	for (size_t n = 0; at && r == 0; n++, before = at, at = e.next)
		r = n == IMAGES_MAX ? -ENOSPC : read_entry(g, at, before, &e);
	if (r < 0)
		runtime_generated_left_out(g, r == -E2BIG ? -ENOSPC : r);
}

static void read_descriptor(struct generated *g, uint64_t address)
{
	struct descriptor d;

	if (runtime_memory_read(g->look->memory, address, &d, sizeof(d)) < 0)
		return;
	g->facts.publishes |= d.version == 1;
	if (d.version == 1)
		read_list(g, d.first);
	else if (d.version)
		g->facts.lacks[GENERATED_UNKNOWN]++;
}

/* Each library that has the symbol has a list of its own. */
static void read_all(struct generated *g)
{
	const struct runtime_look *look = g->look;
	uint64_t last = 0;

	for (size_t i = 0; i < look->maps->n; i++) {
		const struct elf_index *index = look->indexes[i];
		struct elf_mark mark;
		uint64_t address;

		if (!index || elf_index_find_mark(index, marks[0], &mark) < 0)
			continue;
		address = runtime_bias(look, &look->maps->items[i]) + mark.address;
		if (address != last)
			read_descriptor(g, address);
		last = address;
	}
}

const struct generated_source runtime_gdb_jit = {.marks = marks, .read = read_all};
