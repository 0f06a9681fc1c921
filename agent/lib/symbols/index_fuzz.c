/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a child's answer: refused, or read without a step outside. */
#include "lib/symbols/symbols.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct elf_index *i;
	struct elf_symbol s;
	uint64_t address = 0;

	if (fd < 0)
		return 0;
	if (fd_write_all(fd, data, n) < 0) {
		close(fd);
		return 0;
	}
	fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
	if (elf_index_open(fd, &i) < 0)
		return 0;
	for (uint64_t offset = 0; offset < 1 << 20; offset += 0x1fff) {
		if (elf_index_address(i, offset, &address) == 0 &&
		    elf_index_symbol(i, address, &s) == 0 && strlen(s.name) > n)
			abort();
	}
	elf_index_unref(i);
	return 0;
}
