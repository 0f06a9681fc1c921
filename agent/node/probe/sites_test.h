/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sites_test: functions of this program and of its C library that allocate, for the test and the
 * bench of memory events.
 */
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/probe/sets.h"

struct symbol {
	const char *name;
	struct pf_site site;
};
static const struct symbol libc_symbols[] = {
	{"malloc", {PF_SITE_ALLOC, 1, 0, 0, 0, 0}},
	{"calloc", {PF_SITE_ALLOC, 1, 2, 0, 0, 0}},
	{"realloc", {PF_SITE_REALLOC, 2, 0, 1, 0, PF_SITE_NULL_IS_ALLOC}},
	{"posix_memalign", {PF_SITE_OUT, 3, 0, 1, 0, 0}},
	{"aligned_alloc", {PF_SITE_ALLOC, 2, 0, 0, 0, 0}},
	{"free", {PF_SITE_FREE, 0, 0, 1, 0, 0}},
};

struct library {
	uint64_t address; /* in: an address in the library */
	char path[256];
	uint64_t offset;
};

static inline int find_library(struct dl_phdr_info *info, size_t n, void *arg)
{
	struct library *l = arg;

	(void)n;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type != PT_LOAD || l->address < start ||
		    l->address >= start + ph->p_memsz)
			continue;
		l->offset = l->address - start + ph->p_offset;
		snprintf(l->path, sizeof(l->path), "%s",
			 *info->dlpi_name ? info->dlpi_name : "/proc/self/exe");
		return 1;
	}
	return 0;
}

static inline struct library library_of(const void *address)
{
	struct library l = {.address = (uintptr_t)address};

	if (!dl_iterate_phdr(find_library, &l))
		abort();
	return l;
}

struct probed {
	struct probe_file file;
	struct probe_site sites[32];
	struct pf_mem_proc proc;
};

static inline void add_site(struct probed *t, const void *address, struct pf_site site)
{
	struct library l = library_of(address);
	struct probe_site *s = &t->sites[t->file.n_sites++];

	if (t->file.n_sites > ARRAY_SIZE(t->sites))
		abort();
	if (t->file.n_sites == 1)
		t->file.fd = open(l.path, O_RDONLY | O_CLOEXEC);
	if (t->file.fd < 0)
		abort();
	t->file.sites = t->sites;
	s->file_offset = l.offset;
	memcpy(&s->cookie, &site, sizeof(site));
}

static inline void probe_libc(struct probed *t)
{
	*t = (struct probed){};
	for (size_t i = 0; i < ARRAY_SIZE(libc_symbols); i++)
		add_site(t, dlsym(RTLD_DEFAULT, libc_symbols[i].name), libc_symbols[i].site);
}
