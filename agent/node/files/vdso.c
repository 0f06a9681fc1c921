/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file copies podflame's own vdso to a file, because all 64-bit processes have the same vdso.
 */
#include "node/files/internal.h"

#include <elf.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define VDSO_BYTES_MAX (64u << 10) /* bytes of the vDSO; a larger one has no names */

static size_t vdso_size(const char *image)
{
	const Elf64_Ehdr *e = (const void *)image;
	const Elf64_Phdr *p = (const void *)(image + e->e_phoff);
	size_t size = e->e_shoff + (size_t)e->e_shentsize * e->e_shnum;

	for (unsigned i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_LOAD)
			size = MAX(size, p[i].p_offset + p[i].p_filesz);
	return size;
}

int files_vdso_copy(void)
{
	const char *image = (const char *)getauxval(AT_SYSINFO_EHDR);
	_cleanup_close_ int fd = -1;
	size_t n;

	if (!image)
		return -1;
	n = vdso_size(image);
	if (n > VDSO_BYTES_MAX)
		return -1;
	fd = memfd_create("podflame-vdso", MFD_CLOEXEC);
	if (fd < 0 || fd_write_all(fd, image, n) < 0)
		return -1;
	return TAKE_FD(fd);
}
