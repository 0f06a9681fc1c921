/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the index of a local file in the same way as an agent. */
#include "cli/symbols.h"

#include <fcntl.h>
#include <sys/stat.h>

#define DWOS_MAX (PARSE_FDS_MAX - 2) /* .dwo files of one file; further ones are not read */

static int open_regular(const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/*
 * Opens dwo, the path that the compiler wrote. If that fails, opens the file of that name in the
 * directory of the program.
 */
static int open_dwo(const char *path, const char *dwo)
{
	const char *slash = strrchr(path, '/'), *name = strrchr(dwo, '/');
	_cleanup_free_ char *in_dir = NULL, *beside = NULL;
	int dir = slash ? (int)(slash - path) + 1 : 0, fd = -1;

	in_dir = xasprintf("%.*s%s", *dwo == '/' ? 0 : dir, path, dwo);
	beside = xasprintf("%.*s%s", dir, path, name ? name + 1 : dwo);
	if (open_regular(in_dir, &fd) < 0)
		open_regular(beside, &fd);
	return fd;
}

/* If the index needs .dwo files, reads them. If they have names, replaces *index. */
static void add_dwos(struct parser *p, const char *path, int fd, struct elf_index **index)
{
	struct parse_debug_files files = {.main_fd = fd, .debug_fd = -1};
	struct elf_index *more;
	int fds[DWOS_MAX];

	if (!(elf_index_flags(*index) & ELF_INDEX_DWO))
		return;
	files.dwo_fds = fds;
	files.n_dwo_fds = MIN(elf_index_n_wanted(*index), (size_t)DWOS_MAX);
	for (size_t i = 0; i < files.n_dwo_fds; i++)
		fds[i] = open_dwo(path, elf_index_wanted(*index, i).path);
	if (parse_debug(p, &files, &more) == 0) {
		elf_index_unref(*index);
		*index = more;
	}
	for (size_t i = 0; i < files.n_dwo_fds; i++)
		closep(&fds[i]);
}

/*
 * Replaces the index by one that is made from DWARF. Does nothing for Go, whose own tables have as
 * many names as its DWARF.
 */
static void prefer_debug(struct parser *p, const char *path, int fd, struct elf_index **index)
{
	const struct parse_debug_files files = {.main_fd = fd, .debug_fd = -1};
	unsigned flags = elf_index_flags(*index);
	struct elf_index *debug;

	if (!(flags & ELF_INDEX_HAS_DWARF) || flags & ELF_INDEX_GO)
		return;
	if (parse_debug(p, &files, &debug) < 0) {
		fprintf(stderr, "podflame symbols: %s: its DWARF information cannot be used: %s\n",
			path, parse_reason(p));
		return;
	}
	add_dwos(p, path, fd, &debug);
	if (elf_index_n_symbols(debug) == 0) {
		elf_index_unref(debug);
		return;
	}
	elf_index_unref(*index);
	*index = debug;
}

int cli_symbols_of_file(struct parser *p, const char *path, struct elf_index **ret,
			struct field_error *reterr)
{
	_cleanup_close_ int fd = -1;
	struct elf_index *index;
	int r = open_regular(path, &fd);

	if (r < 0)
		return field_error_set(reterr, path, "%s",
				       r == -ENOTSUP ? "is not a regular file" : strerror(-r));
	r = parse_elf(p, fd, &index);
	if (r < 0)
		return field_error_set(reterr, path, "%s",
				       r == -ENOEXEC ? "is not an x86-64 program or library"
						     : parse_reason(p));
	prefer_debug(p, path, fd, &index);
	if (!*elf_index_build_id(index))
		r = field_error_set(reterr, path, "has no build id (link it with -Wl,--build-id)");
	else if (elf_index_n_symbols(index) == 0)
		r = field_error_set(reterr, path, "has no symbols, it is stripped");
	if (r < 0) {
		elf_index_unref(index);
		return r;
	}
	*ret = index;
	return 0;
}
