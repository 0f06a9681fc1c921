/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes marks of the USDT probes of a file. Each probe has a note in the section .note.stapsdt,
 * whose format is https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation.
 */
#include "node/parse/build.h"

#define OWNER	   "stapsdt"
#define NOTE_TYPE  3
#define NOTES_MAX  16384 /* USDT notes that are read in one file */
#define TEXT_BYTES 256	 /* a note with a longer text is not read */

/* How a note begins. Its texts follow. */
struct usdt_note {
	uint64_t place, base, semaphore; /* ELF virtual addresses; semaphore 0: there is none */
};
enum { PROVIDER, NAME, ARGUMENTS, _TEXTS };

/* Finds the texts behind the addresses. Each ends with a NUL. */
static bool read_texts(const char *at, const char *end, const char *ret[_TEXTS])
{
	for (size_t i = 0; i < _TEXTS; i++) {
		size_t most = MIN((size_t)(end - at), (size_t)TEXT_BYTES), n = strnlen(at, most);

		if (n == most)
			return false;
		ret[i] = at;
		at += n + 1;
	}
	return true;
}

/* Finds where the file has the initial bytes of data. Returns false if it has none. */
static bool data_offset(const struct elf_build *b, uint64_t address, uint64_t *ret)
{
	for (size_t i = 0; i < b->n_segments; i++) {
		const struct index_segment *s = &b->segments[i];

		if (s->executable || address < s->address || address - s->address >= s->bytes)
			continue;
		*ret = s->offset + (address - s->address);
		return true;
	}
	return false;
}

/* Undoes what prelink has changed: it moves the section and the probes, but not the notes. */
static void correct(struct usdt_note *n, const struct section *base)
{
	uint64_t moved = base->data ? base->address - n->base : 0;

	n->place += moved;
	if (n->semaphore)
		n->semaphore += moved;
}

/*
 * Makes a mark of a note. A probe whose semaphore is not in the file's data is left out: the kernel
 * could not raise it.
 */
static void take_note(struct elf_build *b, const char *bytes, size_t n, const struct section *base)
{
	_cleanup_free_ char *name = NULL;
	const char *texts[_TEXTS];
	struct usdt_note note;
	uint64_t semaphore = 0;

	if (n < sizeof(note) || !read_texts(bytes + sizeof(note), bytes + n, texts))
		return;
	memcpy(&note, bytes, sizeof(note));
	correct(&note, base);
	if (note.semaphore && !data_offset(b, note.semaphore, &semaphore))
		return;
	name = xasprintf("%%%s:%s %s", texts[PROVIDER], texts[NAME], texts[ARGUMENTS]);
	parse_build_mark_usdt(b, name, note.place, semaphore);
}

void parse_build_usdt(struct elf_build *b)
{
	size_t offset = 0, name, desc, n = 0;
	struct section notes, base = {0};
	Elf_Data data;
	GElf_Nhdr h;

	if (!b->marks.patterns || !parse_build_section(b, ".note.stapsdt", &notes))
		return;
	(void)parse_build_section(b, ".stapsdt.base", &base);
	data = (Elf_Data){.d_buf = (void *)notes.data, .d_size = notes.n, .d_type = ELF_T_NHDR};
	while ((offset = gelf_getnote(&data, offset, &h, &name, &desc)) > 0) {
		const char *bytes = data.d_buf;

		if (h.n_type != NOTE_TYPE || h.n_namesz != sizeof(OWNER) ||
		    memcmp(bytes + name, OWNER, sizeof(OWNER)) != 0)
			continue;
		if (n++ == NOTES_MAX) {
			b->marks.cut = true;
			return;
		}
		take_note(b, bytes + desc, h.n_descsz, &base);
	}
}
