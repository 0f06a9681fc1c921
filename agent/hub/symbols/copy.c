/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the files of a directory of uploaded symbols into another one, or into a store. */
#include "hub/symbols/table.h"
#include "lib/loop/http.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (64u << 10)

/* Copies all bytes and the time of the upload. */
static int copy_bytes(int from, int to)
{
	_cleanup_free_ char *piece = xmalloc(PIECE_BYTES);
	struct stat st;
	ssize_t n;
	int r = 0;

	while (!r && (n = read(from, piece, PIECE_BYTES)) > 0)
		r = fd_write_all(to, piece, (size_t)n);
	if (!r && (n < 0 || fstat(from, &st) < 0 ||
		   futimens(to, (struct timespec[]){st.st_mtim, st.st_mtim}) < 0 || fsync(to) < 0))
		r = -errno;
	return r;
}

/* Copies a file under a temporary name, which a hub removes when it starts, and renames it. */
static int copy_file(int from_dir, int to_dir, const char *name)
{
	_cleanup_free_ char *temporary = xasprintf(SYMBOLS_TEMPORARY "%s", name);
	_cleanup_close_ int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	_cleanup_close_ int to = -1;
	int r;

	if (from < 0) /* a hub has deleted it just now */
		return errno == ENOENT ? 0 : -errno;
	to = openat(to_dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (to < 0)
		return -errno;
	r = copy_bytes(from, to);
	if (!r && renameat(to_dir, temporary, to_dir, name) < 0)
		r = -errno;
	if (r)
		unlinkat(to_dir, temporary, 0);
	return r ?: 1;
}

static bool is_upload(const char *name)
{
	_cleanup_free_ char *stem = NULL, *ns = NULL;
	const char *build_id;

	if (!str_has_suffix(name, SYMBOLS_SUFFIX))
		return false;
	stem = xstrndup(name, strlen(name) - strlen(SYMBOLS_SUFFIX));
	return symbols_file_split(stem, &ns, &build_id);
}

static int copy_all(DIR *from, int to_dir, size_t *n)
{
	struct dirent *e;
	int r = 0;

	while (r >= 0 && (errno = 0, e = readdir(from))) {
		if (!is_upload(e->d_name) || faccessat(to_dir, e->d_name, F_OK, 0) == 0)
			continue;
		r = copy_file(dirfd(from), to_dir, e->d_name);
		*n += r == 1;
	}
	return r < 0 ? r : -errno;
}

int symbols_copy(const char *from, const char *to, size_t *ret_n, struct field_error *reterr)
{
	_cleanup_close_ int to_dir = -1;
	DIR *d = opendir(from);
	size_t n = 0;
	int r = 0;

	if (!d && errno == ENOENT) {
		*ret_n = 0;
		return 0;
	}
	if (!d)
		return field_error_set(reterr, from, "%s", strerror(errno));
	r = mkdir_parents(to, 0700);
	to_dir = r ? -1 : open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!r && to_dir < 0)
		r = -errno;
	if (!r)
		r = copy_all(d, to_dir, &n);
	if (!r && fsync(to_dir) < 0)
		r = -errno;
	closedir(d);
	if (r)
		return field_error_set(reterr, to, "symbol files cannot be copied: %s",
				       strerror(-r));
	*ret_n = n;
	return 0;
}

/* ---- into a store ---- */

/* Returns as symbols_put_as(). */
static int upload_file(int dir, const char *name, struct symbols *to, struct field_error *reterr)
{
	_cleanup_free_ char *stem = xstrndup(name, strlen(name) - strlen(SYMBOLS_SUFFIX)),
			    *ns = NULL, *data = NULL;
	_cleanup_buf_ struct buf packed = {0};
	const char *build_id;
	struct stat st;
	size_t n;
	int r;

	if (!symbols_file_split(stem, &ns, &build_id) ||
	    fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -EEXIST; /* a hub has deleted it just now */
	r = file_read(dir, name, SYMBOLS_FILE_BYTES, &data, &n);
	if (r == -ENOENT)
		return -EEXIST;
	if (!r)
		r = http_compress(data, n, &packed);
	if (r)
		return field_error_set(reterr, name, "%s", strerror(-r)), r;
	return symbols_put_as(to, ns, build_id, symbols_file_time(&st), packed.data, packed.len,
			      reterr);
}

int symbols_copy_into(const char *from, struct symbols *to, size_t *ret_n,
		      struct field_error *reterr)
{
	DIR *d = opendir(from);
	struct dirent *e;
	int r = d || errno == ENOENT ? 0 : -errno;

	if (r)
		return field_error_set(reterr, from, "%s", strerror(-r));
	*ret_n = 0;
	while (!r && d && (e = readdir(d))) {
		if (!is_upload(e->d_name))
			continue;
		r = upload_file(dirfd(d), e->d_name, to, reterr);
		*ret_n += !r;
		if (r == -EBADMSG)
			log_warn("%s is damaged, and was not copied", e->d_name);
		if (r == -E2BIG)
			log_warn("%s is over the limit of an upload, and was not copied",
				 e->d_name);
		if (r == -EBADMSG || r == -E2BIG || r == -EEXIST)
			r = 0;
	}
	if (d)
		closedir(d);
	return r;
}
