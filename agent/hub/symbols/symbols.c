/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The uploaded files: each is DIR/BUILD_ID.pfindex. A file is written under another name first,
 * then renamed. The files that were used last stay open. An index in use stays valid after its file
 * is deleted.
 */
#include "hub/symbols/symbols.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>
#include <zstd.h>

#define SUFFIX		".pfindex"
#define TEMPORARY	".upload-"
#define BUILD_ID_MAX	64 /* bytes of a build id */
#define OPEN_MAX	32 /* indexes that are open at once; the one used longest ago is closed */
#define PIECE_BYTES	(64u << 10)
#define ZSTD_WINDOW_LOG 27 /* 128 MiB, the largest window that zstd's own tools accept */

struct kept_upload {
	char build_id[2 * BUILD_ID_MAX + 1];
	uint64_t bytes;
	int64_t uploaded_s;
	struct elf_index *index; /* NULL: not open */
	struct symbols_cost *cost;
	uint64_t used; /* symbols.turn when the file was last used */
	bool damaged;
	UT_hash_handle hh;
};

struct symbols {
	char *dir;
	uint64_t max_bytes;
	struct demangler *demangler;
	pthread_mutex_t lock; /* protects the members below */
	struct kept_upload *files;
	uint64_t bytes, turn;
	unsigned n_open;
};

/* ---- build ids ---- */

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

static char *path_of(const struct symbols *s, const char *build_id)
{
	return xasprintf("%s/%s" SUFFIX, s->dir, build_id);
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

static int open_index(int fd, struct elf_index **ret)
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

static void close_index(struct symbols *s, struct kept_upload *k)
{
	if (k->index)
		s->n_open--;
	k->index = elf_index_unref(k->index);
}

static void close_oldest(struct symbols *s)
{
	struct kept_upload *oldest = NULL;

	for (struct kept_upload *k = s->files; k; k = k->hh.next)
		if (k->index && (!oldest || k->used < oldest->used))
			oldest = k;
	if (oldest)
		close_index(s, oldest);
}

static int open_kept(struct symbols *s, struct kept_upload *k)
{
	_cleanup_free_ char *path = path_of(s, k->build_id);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int r = fd < 0 ? -errno : open_index(fd, &k->index);

	if (r < 0 && r != -EBADMSG && r != -ENOENT && r != -EIO)
		/*
		 * the cause is temporary (such as no free descriptor), so the file is not damaged
		 */
		return r;
	if (r < 0) {
		counter_add(counter("symbols_damaged_total", NULL, NULL), 1);
		k->damaged = true;
		return -EBADMSG;
	}
	if (++s->n_open > OPEN_MAX)
		close_oldest(s);
	return 0;
}

int symbols_index(struct symbols *s, const char *build_id, struct elf_index **ret)
{
	struct kept_upload *k;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	HASH_FIND_STR(s->files, build_id, k);
	if (!k)
		r = -ENOENT;
	else if (k->damaged)
		r = -EBADMSG;
	else {
		k->used = ++s->turn;
		if (!k->index)
			r = open_kept(s, k);
	}
	if (!r)
		*ret = elf_index_ref(k->index);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* ---- the cost of names ---- */

struct symbols_cost *symbols_cost(struct symbols *s, const char *build_id)
{
	struct symbols_cost *c = NULL;
	struct kept_upload *k;

	pthread_mutex_lock(&s->lock);
	HASH_FIND_STR(s->files, build_id, k);
	if (k) {
		c = k->cost;
		assert_se(c->refs > 0);
		c->refs++;
	}
	pthread_mutex_unlock(&s->lock);
	return c;
}

static void unref_cost(struct symbols_cost *c)
{
	assert_se(c->refs > 0);
	if (--c->refs == 0)
		free(c);
}

void symbols_cost_unref(struct symbols *s, struct symbols_cost *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&s->lock);
	unref_cost(c);
	pthread_mutex_unlock(&s->lock);
}

/* ---- the table of files ---- */

static void forget(struct symbols *s, struct kept_upload *k)
{
	close_index(s, k);
	unref_cost(k->cost);
	s->bytes -= k->bytes;
	HASH_DEL(s->files, k);
	free(k);
}

static void remember(struct symbols *s, const char *build_id, uint64_t bytes, int64_t uploaded_s)
{
	struct kept_upload *k = xcalloc(1, sizeof(*k));

	snprintf(k->build_id, sizeof(k->build_id), "%s", build_id);
	k->bytes = bytes;
	k->uploaded_s = uploaded_s;
	k->cost = xcalloc(1, sizeof(*k->cost));
	k->cost->refs = 1;
	s->bytes += bytes;
	HASH_ADD_STR(s->files, build_id, k);
}

bool symbols_any(struct symbols *s)
{
	bool any;

	pthread_mutex_lock(&s->lock);
	any = s->files != NULL;
	pthread_mutex_unlock(&s->lock);
	return any;
}

static int by_build_id(const struct kept_upload *a, const struct kept_upload *b)
{
	return strcmp(a->build_id, b->build_id);
}

json_t *symbols_list(struct symbols *s)
{
	json_t *list = json_array();

	pthread_mutex_lock(&s->lock);
	HASH_SORT(s->files, by_build_id);
	for (const struct kept_upload *k = s->files; k; k = k->hh.next)
		json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "build_id", k->build_id,
						      "bytes", (json_int_t)k->bytes, "uploaded",
						      (json_int_t)k->uploaded_s));
	pthread_mutex_unlock(&s->lock);
	return list;
}

int symbols_delete(struct symbols *s, const char *build_id)
{
	_cleanup_free_ char *path = path_of(s, build_id);
	struct kept_upload *k;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	HASH_FIND_STR(s->files, build_id, k);
	if (!k)
		r = -ENOENT;
	else if (unlink(path) < 0 && errno != ENOENT)
		r = -errno;
	else
		forget(s, k);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* ---- uploads ---- */

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

static int explain(int r, struct field_error *reterr)
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
	int r = open_index(fd, &index);

	if (r == -EBADMSG)
		field_error_set(reterr, "body", "is no symbol index of this version of podflame");
	else if (r < 0)
		explain(r, reterr);
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

/* Gives the temporary file its final name, if all files together stay within the limit. */
static int keep(struct symbols *s, const char *build_id, const char *temporary, uint64_t bytes,
		struct field_error *reterr)
{
	_cleanup_free_ char *path = path_of(s, build_id);
	struct kept_upload *old;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	HASH_FIND_STR(s->files, build_id, old);
	if (s->bytes - (old ? old->bytes : 0) + bytes > s->max_bytes) {
		field_error_set(reterr, "store.symbols_max_bytes",
				"%llu MiB for all symbol files are in use: delete some",
				(unsigned long long)(s->max_bytes >> 20));
		r = -ENOSPC;
	} else if (rename(temporary, path) < 0) {
		r = explain(-errno, reterr);
	} else {
		if (old)
			forget(s, old);
		remember(s, build_id, bytes, (int64_t)(now_wall_ns() / NSEC_PER_SEC));
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

int symbols_put(struct symbols *s, const char *build_id, const void *data, size_t n,
		struct field_error *reterr)
{
	_cleanup_free_ char *temporary = xasprintf("%s/" TEMPORARY "XXXXXX", s->dir);
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r = symbols_check_build_id(build_id, reterr);

	if (r)
		return r;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return explain(-errno, reterr);
	r = inflate_to(fd, data, n);
	if (!r && (fsync(fd) < 0 || fstat(fd, &st) < 0))
		r = -errno;
	if (r)
		explain(r, reterr);
	else
		r = check_index(fd, build_id, reterr);
	if (!r)
		r = keep(s, build_id, temporary, (uint64_t)st.st_size, reterr);
	if (r)
		unlink(temporary);
	return r;
}

/* ---- open and close ---- */

static int read_entry(struct symbols *s, int dir_fd, const char *name)
{
	_cleanup_free_ char *build_id = NULL;
	struct stat st;

	if (str_has_prefix(name, TEMPORARY)) {
		unlinkat(dir_fd, name, 0); /* a hub that was killed left it */
		return 0;
	}
	if (!str_has_suffix(name, SUFFIX))
		return 0;
	build_id = xstrndup(name, strlen(name) - strlen(SUFFIX));
	if (!is_build_id(build_id))
		return 0;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode))
		remember(s, build_id, (uint64_t)st.st_size, st.st_mtime);
	return 0;
}

int symbols_open(const struct symbols_config *c, struct symbols **ret, struct field_error *reterr)
{
	int r = mkdir_parents(c->dir, 0700);
	DIR *d = r ? NULL : opendir(c->dir);
	struct symbols *s;
	struct dirent *e;

	if (!d)
		return field_error_set(reterr, "data_dir", "%s: %s", c->dir,
				       strerror(r ? -r : errno));
	s = xcalloc(1, sizeof(*s));
	s->dir = xstrdup(c->dir);
	s->max_bytes = c->max_bytes;
	s->demangler = elf_demangler_new(NULL, false);
	pthread_mutex_init(&s->lock, NULL);
	while (!r && (errno = 0, e = readdir(d)))
		r = read_entry(s, dirfd(d), e->d_name);
	if (!r)
		r = -errno;
	closedir(d);
	if (r) {
		symbols_close(s);
		return field_error_set(reterr, "data_dir", "%s: %s", c->dir, strerror(-r));
	}
	*ret = s;
	return 0;
}

struct symbols *symbols_close(struct symbols *s)
{
	if (!s)
		return NULL;
	while (s->files)
		forget(s, s->files);
	elf_demangler_free(s->demangler);
	pthread_mutex_destroy(&s->lock);
	free(s->dir);
	free(s);
	return NULL;
}

struct demangler *symbols_demangler(struct symbols *s)
{
	return s->demangler;
}
