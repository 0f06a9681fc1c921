/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploaded files in the store that all hubs share. What a hub has read of them is in a directory,
 * which is only a cache: DIR/ID.pfindex for the upload ID. Of too many files, those that were used
 * longest ago are removed.
 */
#include "hub/symbols/backend.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_NS	  (10 * NSEC_PER_SEC)
#define AWAY_NS	  (30 * NSEC_PER_SEC)
#define LOOK_NS	  NSEC_PER_SEC /* how often a thread that waits looks whether it still has to */
#define ROOM_PART 4	       /* a cache that is full gives up this part of its files */
#define FETCH_MAX 3	       /* uploads that are read at once: each has its bytes in memory */

struct shared {
	struct store *store;
	char *dir;
	uint64_t max_bytes;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t fetched;
	const struct store_upload *fetching[FETCH_MAX]; /* NULL: none */
	uint64_t bytes;					/* of the files in the directory */
	uint64_t away_ns; /* CLOCK_MONOTONIC; until then no query waits for the store again */
};

/* ---- the cache ---- */

struct cached {
	char *name;
	uint64_t bytes, used_ns;
};
struct cached_files {
	struct cached *items;
	size_t n, cap;
	uint64_t bytes;
};

static void files_done(struct cached_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->items[i].name);
	free(f->items);
}

static int by_use(const void *a, const void *b)
{
	const struct cached *x = a, *y = b;

	return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

static int read_cache(const struct shared *c, struct cached_files *ret)
{
	DIR *d = opendir(c->dir);
	struct dirent *e;
	struct stat st;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		if (!str_has_suffix(e->d_name, SYMBOLS_SUFFIX) ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		GROW(ret->items, ret->n, ret->cap);
		ret->items[ret->n++] = (struct cached){xstrdup(e->d_name),
						       symbols_file_counted((uint64_t)st.st_size),
						       symbols_file_time(&st)};
		ret->bytes += ret->items[ret->n - 1].bytes;
	}
	closedir(d);
	return 0;
}

/* Removes files until there is room for so many bytes. The caller holds the lock. */
static int make_room(struct shared *c, uint64_t bytes)
{
	_cleanup_(files_done) struct cached_files f = {0};
	uint64_t most = c->max_bytes - c->max_bytes / ROOM_PART;
	int r;

	bytes = symbols_file_counted(bytes);
	if (bytes > c->max_bytes)
		return -ENOSPC;
	if (c->bytes + bytes <= c->max_bytes)
		return 0;
	r = read_cache(c, &f);
	if (r)
		return r;
	if (f.n)
		qsort(f.items, f.n, sizeof(*f.items), by_use);
	for (size_t i = 0; i < f.n && f.bytes + bytes > MAX(most, bytes); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", c->dir, f.items[i].name);

		if (unlink(path) == 0)
			f.bytes -= f.items[i].bytes;
	}
	c->bytes = f.bytes;
	return 0;
}

static char *path_of(const struct shared *c, const struct store_upload *u)
{
	return xasprintf("%s/%016llx" SYMBOLS_SUFFIX, c->dir, (unsigned long long)u->id);
}

/* Gives a file its name in the cache. The caller holds the lock. */
static int take_file(struct shared *c, const struct store_upload *u, const char *temporary)
{
	_cleanup_free_ char *path = path_of(c, u);
	int r = make_room(c, u->bytes);

	if (!r && rename(temporary, path) < 0)
		r = -errno;
	if (!r)
		c->bytes += symbols_file_counted(u->bytes);
	return r;
}

/* -ENOENT: it is not in the cache, or was damaged there. */
static int open_cached(const struct shared *c, const struct store_upload *u, struct elf_index **ret)
{
	_cleanup_free_ char *path = path_of(c, u);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct elf_index *index = NULL;
	int r = fd < 0 ? -errno : symbols_file_open(fd, &index);

	if (r == -EBADMSG || (!r && elf_index_bytes(index) != u->bytes)) {
		elf_index_unref(index);
		unlink(path);
		return -ENOENT;
	}
	if (!r) {
		futimens(fd, NULL); /* it was used now */
		*ret = index;
	}
	return r;
}

/* ---- fetching ---- */

static int check_received(const struct store_upload *u, uint64_t bytes, struct field_error *reterr)
{
	if (bytes == u->bytes)
		return 0;
	field_error_set(reterr, "store", "has other bytes than its row says");
	return -EBADMSG;
}

/* Reads an upload, and checks it as if it had just been uploaded. */
static int fetch(struct shared *c, const struct store_upload *u, const struct store_wait *w,
		 struct field_error *reterr)
{
	_cleanup_free_ char *temporary = xasprintf("%s/" SYMBOLS_TEMPORARY "XXXXXX", c->dir),
			    *data = xmalloc(MAX(u->packed, 1ul));
	_cleanup_close_ int fd = -1;
	uint64_t bytes;
	int r = store_upload_get(c->store, u, w, data, reterr);

	if (r)
		return r;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return symbols_file_explain(-errno, reterr);
	r = symbols_file_receive(fd, u->build_id, data, u->packed, &bytes, reterr);
	if (r == -E2BIG)
		r = -EBADMSG;
	if (!r)
		r = check_received(u, bytes, reterr);
	if (!r) {
		pthread_mutex_lock(&c->lock);
		r = take_file(c, u, temporary);
		pthread_mutex_unlock(&c->lock);
	}
	if (r)
		unlink(temporary);
	return r;
}

static const char *fetch_result(int r)
{
	return !r ? "ok" : r == -ENOENT ? "lost" : r == -EBADMSG ? "altered" : "failed";
}

/* As fetch(). -EAGAIN, too: it was fetched, and is gone again. -ETIME: the wait has ended. */
static int fetch_and_open(struct shared *c, const struct store_upload *u,
			  const struct store_wait *w, struct elf_index **ret)
{
	struct field_error e = {0};
	int r = fetch(c, u, w, &e);

	counter_add(counter("symbols_fetched_total", "result", fetch_result(r)), 1);
	if (r == -EAGAIN && store_wait_ended(w))
		return -ETIME; /* that says nothing of the store */
	if (r == -EAGAIN) {
		pthread_mutex_lock(&c->lock);
		c->away_ns = now_mono_ns() + AWAY_NS;
		pthread_mutex_unlock(&c->lock);
	}
	if (r) {
		log_warn("symbols of build id %s%s%s cannot be read: %s", u->build_id,
			 *u->ns ? " of namespace " : "", u->ns,
			 *e.reason ? e.reason : strerror(-r));
		return r;
	}
	r = open_cached(c, u, ret);
	return r == -ENOENT ? -EAGAIN : r;
}

/* A place for the upload in c->fetching. NULL: it is being fetched, or too many others are. */
static const struct store_upload **find_turn(struct shared *c, const struct store_upload *u)
{
	const struct store_upload **found = NULL;

	for (size_t i = 0; i < FETCH_MAX; i++) {
		if (!c->fetching[i])
			found = &c->fetching[i];
		else if (c->fetching[i]->id == u->id)
			return NULL;
	}
	return found;
}

/* Waits for it. NULL: the wait has ended, or the store is away. The caller holds the lock. */
static const struct store_upload **wait_for_turn(struct shared *c, const struct store_upload *u,
						 const struct store_wait *w)
{
	const struct store_upload **found = NULL;

	while (now_mono_ns() >= c->away_ns && !store_wait_ended(w) && !(found = find_turn(c, u))) {
		uint64_t until_ns = MIN(now_mono_ns() + LOOK_NS, w->deadline_ns);
		const struct timespec until = {(time_t)(until_ns / NSEC_PER_SEC),
					       (long)(until_ns % NSEC_PER_SEC)};

		pthread_cond_clockwait(&c->fetched, &c->lock, CLOCK_MONOTONIC, &until);
	}
	return found;
}

/* One thread fetches an upload, and others that need it wait. The caller holds the lock. */
static int fetch_in_turn(struct shared *c, const struct store_upload *u, const struct store_wait *w,
			 struct elf_index **ret)
{
	const struct store_upload **turn = wait_for_turn(c, u, w);
	int r = open_cached(c, u, ret); /* another thread may have fetched it meanwhile */

	if (r != -ENOENT)
		return r;
	if (!turn)
		return store_wait_ended(w) ? -ETIME : -EAGAIN;
	*turn = u;
	pthread_mutex_unlock(&c->lock);
	r = fetch_and_open(c, u, w, ret);
	pthread_mutex_lock(&c->lock);
	*turn = NULL;
	pthread_cond_broadcast(&c->fetched);
	return r;
}

static int open_file(void *b, const struct store_upload *u, const struct store_wait *w,
		     struct elf_index **ret)
{
	struct shared *c = b;
	int r = open_cached(c, u, ret);

	if (r != -ENOENT)
		return r;
	pthread_mutex_lock(&c->lock);
	r = fetch_in_turn(c, u, w, ret);
	pthread_mutex_unlock(&c->lock);
	return r;
}

/* ---- the store ---- */

static int list(void *b, store_upload_fn *fn, void *arg, struct field_error *reterr)
{
	return store_uploads(((struct shared *)b)->store, fn, arg, reterr);
}

static int put(void *b, struct store_upload *u, const struct symbols_received *file,
	       struct field_error *reterr)
{
	struct shared *c = b;
	int r = store_upload_put(c->store, u, file->data, file->n, reterr);

	if (r) {
		log_warn("symbols of build id %s are not stored: %s", u->build_id,
			 *reterr->reason ? reterr->reason : strerror(-r));
		return r;
	}
	pthread_mutex_lock(&c->lock);
	(void)take_file(c, u, file->temporary); /* else it is fetched when it is needed */
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static int drop(void *b, const struct store_upload *u, bool older)
{
	return store_upload_delete(((struct shared *)b)->store, u, older, NULL);
}

static void close_it(void *b)
{
	struct shared *c = b;

	pthread_cond_destroy(&c->fetched);
	pthread_mutex_destroy(&c->lock);
	free(c->dir);
	free(c);
}

int symbols_shared_open(struct store *s, const char *dir, uint64_t max_bytes, void **ret,
			struct field_error *reterr)
{
	_cleanup_(files_done) struct cached_files f = {0};
	struct shared *c = xcalloc(1, sizeof(*c));
	int r = mkdir_parents(dir, 0700);

	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->fetched, NULL);
	c->store = s;
	c->dir = xstrdup(dir);
	c->max_bytes = max_bytes;
	if (!r)
		r = read_cache(c, &f);
	if (r) {
		close_it(c);
		return field_error_set(reterr, "data_dir", "%s: %s", dir, strerror(-r));
	}
	c->bytes = f.bytes;
	symbols_file_clean(dir);
	*ret = c;
	return 0;
}

const struct symbols_backend symbols_shared = {.list_ns = LIST_NS,
					       .list = list,
					       .put = put,
					       .remove = drop,
					       .open = open_file,
					       .close = close_it};
