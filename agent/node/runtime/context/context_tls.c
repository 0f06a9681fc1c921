/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a thread-local variable of a mapped file. It reads the slots that the dynamic linker has
 * filled for the file's own accesses, as OTEP 4947 asks of readers. The content of a slot is the
 * same in glibc and musl (ELF Handling For Thread-Local Storage, 4.1; RFC-TLSDESC-x86). Runs on the
 * reader's thread.
 */
#include "node/runtime/context/context.h"

#include <stdlib.h>

#define DYNAMIC_MAX	    512		 /* entries of a dynamic section; real ones have about 30 */
#define RELOCATIONS_MAX	    (256u << 10) /* relocations that are read of one table */
#define RELOCATIONS_AT_ONCE 256
#define STATIC_TLS_MAX	    (64 << 20)	/* bytes of all modules; real processes have a few KiB */
#define MODULES_MAX	    65536	/* number of a TLS module; a larger one is not valid yet */
#define BLOCK_MAX	    (16u << 20) /* bytes of one module's TLS */

/* ---- the dynamic section ---- */

struct dynamic {
	uint64_t symbols, strings;
	uint64_t relocations[2], bytes[2]; /* addresses and sizes of DT_RELA and DT_JMPREL */
	bool pie;
};

/*
 * Returns an address of the dynamic section as an address of the process. glibc replaces the
 * addresses in that section by addresses of the process; musl does not.
 */
static uint64_t place_of(const struct loaded_elf *e, uint64_t value)
{
	return value < e->bias ? value + e->bias : value;
}

static void note_entry(const struct loaded_elf *e, const Elf64_Dyn *d, struct dynamic *ret)
{
	switch (d->d_tag) {
	case DT_SYMTAB:
		ret->symbols = place_of(e, d->d_un.d_ptr);
		break;
	case DT_STRTAB:
		ret->strings = place_of(e, d->d_un.d_ptr);
		break;
	case DT_RELA:
		ret->relocations[0] = place_of(e, d->d_un.d_ptr);
		break;
	case DT_RELASZ:
		ret->bytes[0] = d->d_un.d_val;
		break;
	case DT_JMPREL:
		ret->relocations[1] = place_of(e, d->d_un.d_ptr);
		break;
	case DT_PLTRELSZ:
		ret->bytes[1] = d->d_un.d_val;
		break;
	case DT_FLAGS_1:
		ret->pie = d->d_un.d_val & DF_1_PIE;
	}
}

/* Reads the dynamic section. A static program has none; then *ret is all zero. */
static int read_dynamic(const struct loaded_elf *e, struct dynamic *ret)
{
	const Elf64_Phdr *s = runtime_loaded_elf_segment(e, PT_DYNAMIC);
	uint64_t at = s ? e->bias + s->p_vaddr : 0;

	*ret = (struct dynamic){0};
	for (size_t i = 0; s && i < MIN(s->p_memsz / sizeof(Elf64_Dyn), DYNAMIC_MAX); i++) {
		Elf64_Dyn d;
		int r = runtime_memory_read(e->memory, at + i * sizeof(d), &d, sizeof(d));

		if (r < 0)
			return r;
		if (d.d_tag == DT_NULL)
			break;
		note_entry(e, &d, ret);
	}
	return 0;
}

/* ---- relocations ---- */

/*
 * Kinds of slots, the worst first. SLOT_MODULE: for all variables of the module. SLOT_OFFSET: for
 * the variable, by its offset. SLOT_NAME: for the variable, by its name.
 */
enum slot_rank { SLOT_NONE, SLOT_MODULE, SLOT_OFFSET, SLOT_NAME };
struct slot {
	enum slot_rank rank;
	uint32_t type; /* R_X86_64_* */
	uint64_t at;   /* address in the process */
};

struct tls_search {
	const struct loaded_elf *e;
	const struct dynamic *dynamic;
	const char *name;
	uint64_t offset;
	struct slot best;
};

static bool is_name(const struct tls_search *s, uint32_t symbol)
{
	_cleanup_free_ char *name = NULL;
	Elf64_Sym y;

	return runtime_memory_read(s->e->memory, s->dynamic->symbols + symbol * sizeof(y), &y,
				   sizeof(y)) == 0 &&
	       runtime_memory_string(s->e->memory, s->dynamic->strings + y.st_name,
				     strlen(s->name) + 2, &name) == 0 &&
	       streq(name, s->name);
}

/*
 * Returns the kind of the slot that a relocation fills. A relocation without a symbol is for one
 * variable of this file, or for all its variables.
 */
static enum slot_rank rank_of(const struct tls_search *s, const Elf64_Rela *r)
{
	uint32_t symbol = ELF64_R_SYM(r->r_info), type = ELF64_R_TYPE(r->r_info);

	if (type != R_X86_64_TLSDESC && type != R_X86_64_DTPMOD64 && type != R_X86_64_TPOFF64)
		return SLOT_NONE;
	if (symbol)
		return is_name(s, symbol) ? SLOT_NAME : SLOT_NONE;
	if (type == R_X86_64_DTPMOD64)
		return SLOT_MODULE;
	return (uint64_t)r->r_addend == s->offset ? SLOT_OFFSET : SLOT_NONE;
}

static int search_table(struct tls_search *s, uint64_t at, uint64_t bytes)
{
	Elf64_Rela some[RELOCATIONS_AT_ONCE];
	size_t n = MIN(bytes / sizeof(*some), RELOCATIONS_MAX), have;

	for (size_t i = 0; i < n; i += have) {
		int r;

		have = MIN(n - i, ARRAY_SIZE(some));
		r = runtime_memory_read(s->e->memory, at + i * sizeof(*some), some,
					have * sizeof(*some));
		if (r < 0)
			return r;
		for (size_t k = 0; k < have; k++) {
			enum slot_rank rank = rank_of(s, &some[k]);

			if (rank > s->best.rank)
				s->best = (struct slot){rank, ELF64_R_TYPE(some[k].r_info),
							s->e->bias + some[k].r_offset};
		}
	}
	return 0;
}

/* ---- the value of a slot ---- */

static int place_static(int64_t offset, struct tls_place *ret)
{
	if (offset == 0)
		return -EAGAIN;
	/* variant II: the block is below the thread pointer */
	if (offset > 0 || offset < -STATIC_TLS_MAX)
		return -EBADMSG;
	*ret = (struct tls_place){offset, 0};
	return 0;
}

static int place_dynamic(uint64_t module, uint64_t offset, struct tls_place *ret)
{
	/* the slot is not filled yet: 0, or the first value of lazy binding */
	if (module == 0 || module > MODULES_MAX)
		return -EAGAIN;
	if (offset > BLOCK_MAX)
		return -EBADMSG;
	*ret = (struct tls_place){(int64_t)offset, (uint32_t)module};
	return 0;
}

static int read_slot(const struct tls_search *s, struct tls_place *ret)
{
	struct memory *m = s->e->memory;
	uint64_t words[2], index[2];
	int r = runtime_memory_read(m, s->best.at, words,
				    s->best.type == R_X86_64_TPOFF64 ? 8 : sizeof(words));

	if (r < 0)
		return r;
	if (s->best.type == R_X86_64_TPOFF64)
		return place_static((int64_t)words[0], ret);
	if (s->best.type == R_X86_64_DTPMOD64)
		return place_dynamic(words[0], s->best.rank == SLOT_NAME ? words[1] : s->offset,
				     ret);
	/*
	 * The slot is a TLS descriptor: a function and its argument. The argument is an offset, or
	 * a pointer to {module, offset}.
	 */
	if (!words[0])
		return -EAGAIN;
	if ((int64_t)words[1] <= 0)
		return place_static((int64_t)words[1], ret);
	r = runtime_memory_read(m, words[1], index, sizeof(index));
	return r < 0 ? r : place_dynamic(index[0], index[1], ret);
}

/*
 * Finds the variable of an executable. The program's own block ends right below the thread pointer
 * (variant II; lld: getTlsTpOffset).
 */
static int place_in_program(const struct tls_search *s, struct tls_place *ret)
{
	const Elf64_Phdr *t = runtime_loaded_elf_segment(s->e, PT_TLS);
	uint64_t align, end;

	if (!t || t->p_memsz > BLOCK_MAX || s->offset > t->p_memsz)
		return -EBADMSG;
	align = t->p_align ? t->p_align : 1;
	if (align & (align - 1))
		return -EBADMSG;
	end = t->p_memsz + (-(t->p_vaddr + t->p_memsz) & (align - 1));
	return place_static((int64_t)(s->offset - end), ret);
}

int runtime_tls_find(const struct loaded_elf *e, const char *name, uint64_t offset,
		     struct tls_place *ret)
{
	struct dynamic dynamic;
	struct tls_search s = {.e = e, .dynamic = &dynamic, .name = name, .offset = offset};
	int r = read_dynamic(e, &dynamic);

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(dynamic.relocations); i++)
		if (dynamic.relocations[i])
			r = search_table(&s, dynamic.relocations[i], dynamic.bytes[i]);
	if (r < 0)
		return r;
	if (s.best.rank == SLOT_NAME || s.best.rank == SLOT_OFFSET)
		return read_slot(&s, ret);
	if (e->type == ET_EXEC || dynamic.pie || runtime_loaded_elf_segment(e, PT_INTERP))
		return place_in_program(&s, ret);
	return s.best.rank == SLOT_MODULE ? read_slot(&s, ret) : -ENOTSUP;
}
