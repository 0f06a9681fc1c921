/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches a process's memory for an ELF file's dynamic section, relocations, symbols and slots.
 * The input is the memory from BASE on, and begins with the file's program headers. Fuzzes:
 * node/runtime/context/context_tls.c, node/runtime/loaded_elf.c
 */
#include "node/runtime/context/context.h"

#include <stdlib.h>

#define BASE 0x10000

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct input {
	const uint8_t *p;
	size_t n;
};

static int read_input(void *arg, uint64_t address, void *to, size_t n)
{
	const struct input *i = arg;

	if (address < BASE || address - BASE > i->n || n > i->n - (address - BASE))
		return -EFAULT;
	memcpy(to, i->p + (address - BASE), n);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct input i = {p, n};
	struct memory m = {.read = read_input, .arg = &i, .budget_bytes = 1 << 20};
	struct loaded_elf *e;
	struct tls_place place = {-1, UINT32_MAX};

	if (n < 4 * sizeof(Elf64_Phdr))
		return 0;
	e = xcalloc(1, sizeof(*e));
	e->memory = &m;
	e->bias = BASE;
	e->type = p[n - 1] & 1 ? ET_EXEC : ET_DYN;
	e->n = 4;
	memcpy(e->segments, p, e->n * sizeof(*e->segments));
	if (runtime_tls_find(e, "v", p[n - 2], &place) == 0 &&
	    (place.module ? place.offset < 0 : place.offset >= 0))
		abort();
	free(e);
	return 0;
}
