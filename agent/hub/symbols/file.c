/* SPDX-License-Identifier: Apache-2.0 */
/* One uploaded file: its name, how an upload is received into it, and how it is opened. */
#include "hub/symbols/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define BUILD_ID_MAX	64 /* bytes of a build id */
#define NAMESPACE_MAX	63 /* bytes of the name of a namespace, as in Kubernetes */
#define PIECE_BYTES	(64u << 10)
#define ZSTD_WINDOW_LOG 27 /* 128 MiB, the largest window that zstd's own tools accept */

/* ---- names ---- */

static bool is_build_id(const char *s)
{
	size_t n = strspn(s, "0123456789abcdef");

	return n && !s[n] && n % 2 == 0 && n <= 2 * BUILD_ID_MAX;
}

int symbols_check_build_id(const char *build_id, struct field_error *reterr)
{
	if (is_build_id(build_id))
		return 0;
	return field_error_set(reterr, "build id",
			       "'%.140s' is not 1 to %d bytes in hex, lower case", build_id,
			       BUILD_ID_MAX);
}

/* A label of RFC 1123: Kubernetes allows no other name. */
static bool is_namespace(const char *s)
{
	size_t n = strspn(s, "0123456789abcdefghijklmnopqrstuvwxyz-");

	return n && !s[n] && n <= NAMESPACE_MAX && s[0] != '-' && s[n - 1] != '-';
}

int symbols_check_namespace(const char *ns, struct field_error *reterr)
{
	if (is_namespace(ns))
		return 0;
	return field_error_set(reterr, "namespace", "'%.100s' is no name of a namespace", ns);
}

char *symbols_file_stem(const char *ns, const char *build_id)
{
	return ns ? xasprintf("%s.%s", ns, build_id) : xstrdup(build_id);
}

bool symbols_file_split(const char *stem, char **ret_ns, const char **ret_build_id)
{
	const char *dot = strchr(stem, '.'), *build_id = dot ? dot + 1 : stem;
	_cleanup_free_ char *ns = dot ? xstrndup(stem, (size_t)(dot - stem)) : NULL;

	if (!is_build_id(build_id) || (ns && !is_namespace(ns)))
		return false;
	*ret_ns = TAKE_PTR(ns);
	*ret_build_id = build_id;
	return true;
}

void symbols_file_clean(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (str_has_prefix(e->d_name, SYMBOLS_TEMPORARY))
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

/* ---- opening ---- */

struct uploaded_mapping {
	void *data;
	size_t n;
};

static void unmap(void *arg)
{
	struct uploaded_mapping *m = arg;

	munmap(m->data, m->n);
	free(m);
}

int symbols_file_open(int fd, struct elf_index **ret)
{
	struct uploaded_mapping *m;
	struct stat st;
	void *data;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || st.st_size > SYMBOLS_FILE_BYTES)
		return -EBADMSG;
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	m = xmalloc(sizeof(*m));
	*m = (struct uploaded_mapping){data, (size_t)st.st_size};
	return elf_index_borrow(m->data, m->n, unmap, m, ret);
}

/* ---- receiving ---- */

static void dctx_freep(ZSTD_DCtx **d)
{
	ZSTD_freeDCtx(*d);
}

/* Decompresses into the file piece by piece, because the whole may not fit in memory. */
static int inflate_to(int fd, const void *data, size_t n)
{
	_cleanup_(dctx_freep) ZSTD_DCtx *d = ZSTD_createDCtx();
	_cleanup_free_ char *piece = xmalloc(PIECE_BYTES);
	ZSTD_inBuffer in = {data, n, 0};
	uint64_t total = 0;
	size_t left;
	int r;

	if (!d || ZSTD_isError(ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
		return -ENOMEM;
	for (;;) {
		ZSTD_outBuffer out = {piece, PIECE_BYTES, 0};
		size_t before = in.pos;

		left = ZSTD_decompressStream(d, &out, &in);
		if (ZSTD_isError(left))
			return -EBADMSG;
		total += out.pos;
		if (total > SYMBOLS_FILE_BYTES)
			return -E2BIG;
		r = fd_write_all(fd, piece, out.pos);
		if (r < 0)
			return r;
		if (left == 0 && in.pos == n)
			return 0;
		/* no progress: the data was cut off */
		if (in.pos == before && out.pos == 0)
			return -EBADMSG;
	}
}

int symbols_file_explain(int r, struct field_error *reterr)
{
	if (r == -E2BIG)
		field_error_set(reterr, "body", "is larger than %u MiB inflated",
				SYMBOLS_FILE_BYTES >> 20);
	else if (r == -EBADMSG)
		field_error_set(reterr, "body", "is not compressed with zstd, or not whole");
	else
		field_error_set(reterr, "data_dir", "the file cannot be written: %s", strerror(-r));
	return r;
}

static int check_index(int fd, const char *build_id, struct field_error *reterr)
{
	struct elf_index *index;
	int r = symbols_file_open(fd, &index);

	if (r == -EBADMSG)
		field_error_set(reterr, "body", "is no symbol index of this version of podflame");
	else if (r < 0)
		symbols_file_explain(r, reterr);
	if (r < 0)
		return r;
	if (!streq(elf_index_build_id(index), build_id))
		r = field_error_set(reterr, "body", "is of build id '%s', not of '%s'",
				    elf_index_build_id(index), build_id);
	else if (elf_index_n_symbols(index) == 0)
		r = field_error_set(reterr, "body", "has no symbols");
	elf_index_unref(index);
	return r < 0 ? -EBADMSG : 0;
}

int symbols_file_receive(int fd, const char *build_id, const void *data, size_t n,
			 uint64_t *ret_bytes, struct field_error *reterr)
{
	struct stat st;
	int r = inflate_to(fd, data, n);

	if (!r && (fsync(fd) < 0 || fstat(fd, &st) < 0))
		r = -errno;
	r = r ? symbols_file_explain(r, reterr) : check_index(fd, build_id, reterr);
	if (!r)
		*ret_bytes = (uint64_t)st.st_size;
	return r;
}
