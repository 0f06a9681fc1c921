/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The uploaded files: each is DIR/BUILD_ID.pfindex, or DIR/NAMESPACE.BUILD_ID.pfindex for frames of
 * one namespace. A file is written under another name first, then renamed. The files that were used
 * last stay open. An index in use stays valid after its file is deleted.
 */
#include "hub/symbols/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

#define LEAST	 4096 /* bytes that a smaller file counts: it takes a block of disk, and memory */
#define OPEN_MAX 32   /* indexes that are open at once; the one used longest ago is closed */

struct kept_upload {
	char *stem;	      /* the key: the file's name without its suffix */
	char *ns;	      /* NULL: all namespaces */
	const char *build_id; /* in stem */
	uint64_t bytes;
	int64_t uploaded_s;
	struct elf_index *index; /* NULL: not open */
	struct symbols_cost *cost;
	uint64_t used; /* symbols.turn when the file was last used */
	bool damaged;
	UT_hash_handle hh;
};

/* A namespace that has files of its own. */
struct kept_namespace {
	char *ns;
	size_t n_files;
	uint64_t bytes; /* as they count: see counted() */
	UT_hash_handle hh;
};

struct symbols {
	char *dir;
	uint64_t max_bytes;
	struct demangler *demangler;
	pthread_mutex_t lock; /* protects the members below */
	struct kept_upload *files;
	struct kept_namespace *namespaces;
	uint64_t bytes, turn;
	unsigned n_open;
};

static char *path_of(const struct symbols *s, const char *stem)
{
	return xasprintf("%s/%s" SYMBOLS_SUFFIX, s->dir, stem);
}

/* NULL: nobody has uploaded it. The caller holds the lock. */
static struct kept_upload *find(const struct symbols *s, const char *ns, const char *build_id)
{
	_cleanup_free_ char *stem = symbols_file_stem(ns, build_id);
	struct kept_upload *k;

	HASH_FIND_STR(s->files, stem, k);
	return k;
}

/* ---- opening ---- */

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
	_cleanup_free_ char *path = path_of(s, k->stem);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int r = fd < 0 ? -errno : symbols_file_open(fd, &k->index);

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

int symbols_index(struct symbols *s, const char *ns, const char *build_id, struct elf_index **ret)
{
	struct kept_upload *k;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	k = find(s, ns, build_id);
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

struct symbols_cost *symbols_cost(struct symbols *s, const char *ns, const char *build_id)
{
	struct symbols_cost *c = NULL;
	struct kept_upload *k;

	pthread_mutex_lock(&s->lock);
	k = find(s, ns, build_id);
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

/* What a file counts towards the limit of all: else there could be any number of small ones. */
static uint64_t counted(uint64_t bytes)
{
	return MAX(bytes, (uint64_t)LEAST);
}

/* A file of a namespace was added, or was removed. */
static void count_file(struct symbols *s, const char *ns, uint64_t bytes, bool added)
{
	struct kept_namespace *k;

	if (!ns)
		return;
	HASH_FIND_STR(s->namespaces, ns, k);
	if (!k) {
		k = xcalloc(1, sizeof(*k));
		k->ns = xstrdup(ns);
		HASH_ADD_KEYPTR(hh, s->namespaces, k->ns, strlen(k->ns), k);
	}
	k->n_files += added ? 1 : (size_t)-1;
	k->bytes += added ? bytes : -bytes;
	if (k->n_files)
		return;
	HASH_DEL(s->namespaces, k);
	free(k->ns);
	free(k);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char **symbols_namespaces(struct symbols *s, size_t *ret_n)
{
	const struct kept_namespace *k;
	char **list;
	size_t n = 0;

	pthread_mutex_lock(&s->lock);
	list = xcalloc(HASH_COUNT(s->namespaces) + 1, sizeof(*list));
	for (k = s->namespaces; k; k = k->hh.next)
		list[n++] = xstrdup(k->ns);
	pthread_mutex_unlock(&s->lock);
	qsort(list, n, sizeof(*list), by_name);
	*ret_n = n;
	return list;
}

static void forget(struct symbols *s, struct kept_upload *k)
{
	close_index(s, k);
	unref_cost(k->cost);
	s->bytes -= counted(k->bytes);
	count_file(s, k->ns, counted(k->bytes), false);
	HASH_DEL(s->files, k);
	free(k->stem);
	free(k->ns);
	free(k);
}

/* Adds a file with this stem, if it is a stem. */
static void remember(struct symbols *s, const char *stem, uint64_t bytes, int64_t uploaded_s)
{
	struct kept_upload *k = xcalloc(1, sizeof(*k));

	k->stem = xstrdup(stem);
	if (!symbols_file_split(k->stem, &k->ns, &k->build_id)) {
		free(k->stem);
		free(k);
		return;
	}
	k->bytes = bytes;
	k->uploaded_s = uploaded_s;
	k->cost = xcalloc(1, sizeof(*k->cost));
	k->cost->refs = 1;
	s->bytes += counted(bytes);
	count_file(s, k->ns, counted(bytes), true);
	HASH_ADD_KEYPTR(hh, s->files, k->stem, strlen(k->stem), k);
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
	int order = strcmp(a->build_id, b->build_id);

	return order ? order : strcmp(a->ns ?: "", b->ns ?: "");
}

json_t *symbols_list(struct symbols *s)
{
	json_t *list = json_array();

	pthread_mutex_lock(&s->lock);
	HASH_SORT(s->files, by_build_id);
	for (const struct kept_upload *k = s->files; k; k = k->hh.next)
		json_array_append_new(list,
				      json_pack("{s:s, s:s?, s:I, s:I}", "build_id", k->build_id,
						"namespace", k->ns, "bytes", (json_int_t)k->bytes,
						"uploaded", (json_int_t)k->uploaded_s));
	pthread_mutex_unlock(&s->lock);
	return list;
}

int symbols_delete(struct symbols *s, const char *ns, const char *build_id)
{
	_cleanup_free_ char *path = NULL;
	struct kept_upload *k;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	k = find(s, ns, build_id);
	path = k ? path_of(s, k->stem) : NULL;
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

/*
 * Returns whether there is room for the file. All files of a namespace may take half of what the
 * files of others leave, so that there is always room for those of one more namespace. Files of all
 * namespaces may take all: only an administrator may upload them.
 */
static bool has_room(const struct symbols *s, const char *ns, const struct kept_upload *old,
		     uint64_t bytes, struct field_error *reterr)
{
	uint64_t used = s->bytes - (old ? counted(old->bytes) : 0), own = 0, left;
	const struct kept_namespace *k = NULL;

	if (ns)
		HASH_FIND_STR(s->namespaces, ns, k);
	if (k)
		own = k->bytes - (old ? counted(old->bytes) : 0);
	left = s->max_bytes - MIN(s->max_bytes, used);
	if (counted(bytes) > left) {
		field_error_set(reterr, "store.symbols_max_bytes",
				"%llu MiB for all symbol files are in use: delete some",
				(unsigned long long)(s->max_bytes >> 20));
		return false;
	}
	if (!ns || own + counted(bytes) <= (left + own) / 2)
		return true;
	field_error_set(
		reterr, "store.symbols_max_bytes",
		"the symbol files of namespace %s would take %.1f MiB, and may take %.1f: half "
		"of what others leave: delete some",
		ns, (double)(own + counted(bytes)) / (1 << 20),
		(double)(left + own) / 2 / (1 << 20));
	return false;
}

/* Gives the temporary file its final name, if there is room for it. */
static int keep(struct symbols *s, const char *ns, const char *stem, const char *temporary,
		uint64_t bytes, struct field_error *reterr)
{
	_cleanup_free_ char *path = path_of(s, stem);
	struct kept_upload *old;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	HASH_FIND_STR(s->files, stem, old);
	if (!has_room(s, ns, old, bytes, reterr)) {
		r = -ENOSPC;
	} else if (rename(temporary, path) < 0) {
		r = symbols_file_explain(-errno, reterr);
	} else {
		if (old)
			forget(s, old);
		remember(s, stem, bytes, (int64_t)(now_wall_ns() / NSEC_PER_SEC));
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

int symbols_put(struct symbols *s, const char *ns, const char *build_id, const void *data, size_t n,
		struct field_error *reterr)
{
	_cleanup_free_ char *temporary = xasprintf("%s/" SYMBOLS_TEMPORARY "XXXXXX", s->dir);
	_cleanup_free_ char *stem = symbols_file_stem(ns, build_id);
	_cleanup_close_ int fd = -1;
	uint64_t bytes;
	int r = symbols_check_build_id(build_id, reterr);

	if (!r && ns)
		r = symbols_check_namespace(ns, reterr);
	if (r)
		return r;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return symbols_file_explain(-errno, reterr);
	r = symbols_file_receive(fd, build_id, data, n, &bytes, reterr);
	if (!r)
		r = keep(s, ns, stem, temporary, bytes, reterr);
	if (r)
		unlink(temporary);
	return r;
}

/* ---- open and close ---- */

static int read_entry(struct symbols *s, int dir_fd, const char *name)
{
	_cleanup_free_ char *stem = NULL;
	struct stat st;

	if (str_has_prefix(name, SYMBOLS_TEMPORARY)) {
		unlinkat(dir_fd, name, 0); /* a hub that was killed left it */
		return 0;
	}
	if (!str_has_suffix(name, SYMBOLS_SUFFIX))
		return 0;
	stem = xstrndup(name, strlen(name) - strlen(SYMBOLS_SUFFIX));
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode))
		remember(s, stem, (uint64_t)st.st_size, st.st_mtime);
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
