/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploaded files in a directory of this hub: each is DIR/BUILD_ID.pfindex, or
 * DIR/NAMESPACE.BUILD_ID.pfindex for frames of one namespace. A file is written under another name
 * first, then renamed.
 */
#include "hub/symbols/backend.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct local {
	char *dir;
};

static char *path_of(const struct local *l, const struct store_upload *u)
{
	_cleanup_free_ char *stem = symbols_file_stem(*u->ns ? u->ns : NULL, u->build_id);

	return xasprintf("%s/%s" SYMBOLS_SUFFIX, l->dir, stem);
}

/* 1: it is a file that was uploaded; 0: it is none */
static int read_entry(int dir_fd, const char *name, struct store_upload *ret)
{
	_cleanup_free_ char *stem = NULL, *ns = NULL;
	const char *build_id;
	struct stat st;

	if (!str_has_suffix(name, SYMBOLS_SUFFIX))
		return 0;
	stem = xstrndup(name, strlen(name) - strlen(SYMBOLS_SUFFIX));
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode) || !symbols_file_split(stem, &ns, &build_id))
		return 0;
	*ret = (struct store_upload){.bytes = (uint64_t)st.st_size,
				     .version = symbols_file_time(&st)};
	snprintf(ret->ns, sizeof(ret->ns), "%s", ns ?: "");
	snprintf(ret->build_id, sizeof(ret->build_id), "%s", build_id);
	return 1;
}

static int list(void *b, store_upload_fn *fn, void *arg, struct field_error *reterr)
{
	const struct local *l = b;
	DIR *d = opendir(l->dir);
	struct store_upload u;
	struct dirent *e;
	int r = d ? 0 : -errno;

	while (r >= 0 && d && (errno = 0, e = readdir(d))) {
		r = read_entry(dirfd(d), e->d_name, &u);
		if (r > 0)
			fn(&u, arg);
	}
	if (r >= 0)
		r = -errno;
	if (d)
		closedir(d);
	return r ? field_error_set(reterr, "data_dir", "%s: %s", l->dir, strerror(-r)) : 0;
}

static int put(void *b, struct store_upload *u, const struct symbols_received *file,
	       struct field_error *reterr)
{
	_cleanup_free_ char *path = path_of(b, u);

	return rename(file->temporary, path) < 0 ? symbols_file_explain(-errno, reterr) : 0;
}

static int drop(void *b, const struct store_upload *u, bool older)
{
	_cleanup_free_ char *path = path_of(b, u);

	(void)older; /* there are none */
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int open_file(void *b, const struct store_upload *u, const struct store_wait *w,
		     struct elf_index **ret)
{
	_cleanup_free_ char *path = path_of(b, u);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	(void)w; /* the disk answers */
	return fd < 0 ? -errno : symbols_file_open(fd, ret);
}

int symbols_local_open(const char *dir, void **ret, struct field_error *reterr)
{
	int r = mkdir_parents(dir, 0700);
	struct local *l;

	if (r)
		return field_error_set(reterr, "data_dir", "%s: %s", dir, strerror(-r));
	symbols_file_clean(dir);
	*ret = l = xcalloc(1, sizeof(*l));
	l->dir = xstrdup(dir);
	return 0;
}

static void close_it(void *b)
{
	struct local *l = b;

	free(l->dir);
	free(l);
}

const struct symbols_backend symbols_local = {
	.list = list, .put = put, .remove = drop, .open = open_file, .close = close_it};
