/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the headers of an ELF file from the memory of the process that has it mapped. */
#include "node/runtime/internal.h"

int runtime_loaded_elf_read(const struct runtime_look *look, const struct mapping *m,
			    struct loaded_elf *ret)
{
	const struct elf_index *index = look->indexes[m - look->maps->items];
	uint64_t address;
	Elf64_Ehdr h;
	int r;

	ret->memory = look->memory;
	ret->bias = runtime_bias(look, m);
	if (!index || elf_index_address(index, 0, &address) < 0)
		return -ENOENT;
	address += ret->bias;
	r = runtime_memory_read(look->memory, address, &h, sizeof(h));
	if (r < 0)
		return r;
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
	    h.e_machine != EM_X86_64 || h.e_phentsize != sizeof(Elf64_Phdr))
		return -EBADMSG;
	if (h.e_phnum > LOADED_ELF_SEGMENTS_MAX)
		return -E2BIG;
	ret->type = h.e_type;
	ret->n = h.e_phnum;
	return runtime_memory_read(look->memory, address + h.e_phoff, ret->segments,
				   ret->n * sizeof(*ret->segments));
}

const Elf64_Phdr *runtime_loaded_elf_segment(const struct loaded_elf *e, uint32_t type)
{
	for (size_t i = 0; i < e->n; i++)
		if (e->segments[i].p_type == type)
			return &e->segments[i];
	return NULL;
}
