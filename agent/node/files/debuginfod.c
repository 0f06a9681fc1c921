/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file fetches debug files by build id from a debuginfod server that the administrator has
 * chosen. Its own thread asks the server, so that no other thread waits for it. The thread keeps
 * the files in a directory of limited size. If the server does not have a debug file, the thread
 * does not ask for it again for an hour.
 */
#include "node/files/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUEUE_MAX	    256 /* downloads that wait; each has an open descriptor */
#define NEGATIVE_NS	    (3600 * NSEC_PER_SEC)
#define DEFAULT_TIMEOUT_NS  (60 * NSEC_PER_SEC)
#define DEFAULT_CACHE_BYTES ((uint64_t)1 << 30)
#define MEMORY_BYTES	    (64u << 20) /* limit of a file, if there is no directory */
#define BUILD_ID_MAX	    128		/* hex digits of a build id */
#define NONE_MAX                                                                                   \
	4096 /* limit of empty notes "the server has no such file"; a pod can make up build ids */
#define PART_NAME "part" /* the file that is being downloaded */

struct wanted_debug {
	struct file_key key;
	char build_id[BUILD_ID_MAX + 1];
	int main_fd;
	struct wanted_debug *next;
};
struct debuginfod {
	struct files *f;
	debuginfod_fetched_fn *fetched;
	struct url url;
	char *dir, *ca_file;
	uint64_t cache_bytes, timeout_ns;
	int dir_fd; /* -1: files are not kept */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct wanted_debug *queue, **tail;
	size_t n_queued;
	atomic_bool stopping;
};

/* ---- the directory ---- */

struct cached {
	char name[BUILD_ID_MAX + 16];
	uint64_t bytes, used_ns;
};
struct listing {
	struct cached *items;
	size_t n, cap;
	uint64_t bytes;
};

static uint64_t ns_of(const struct timespec *t)
{
	return t->tv_sec * NSEC_PER_SEC + t->tv_nsec;
}

static void list(int dir_fd, struct listing *ret)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	struct stat st;

	if (!dir)
		closep(&fd);
	while (dir && (e = readdir(dir))) {
		struct cached *c;

		if (strlen(e->d_name) >= sizeof(c->name) ||
		    fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		GROW(ret->items, ret->n, ret->cap);
		c = &ret->items[ret->n++];
		snprintf(c->name, sizeof(c->name), "%s", e->d_name);
		c->bytes = (uint64_t)st.st_blocks * 512;
		c->used_ns = ns_of(&st.st_mtim);
		ret->bytes += c->bytes;
	}
	if (dir)
		closedir(dir);
}

static int compare_used(const void *left, const void *right)
{
	const struct cached *a = left, *b = right;

	return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

/*
 * Deletes the files that were used least recently, and old notes that the server does not have a
 * file.
 */
static void trim(const struct debuginfod *d)
{
	struct listing l = {0};
	uint64_t now = now_wall_ns();
	size_t n_none = 0;

	list(d->dir_fd, &l);
	for (size_t i = 0; i < l.n; i++)
		n_none += str_has_suffix(l.items[i].name, ".none");
	if (l.n)
		qsort(l.items, l.n, sizeof(*l.items), compare_used);
	for (size_t i = 0; i < l.n; i++) {
		const struct cached *c = &l.items[i];
		bool none = str_has_suffix(c->name, ".none");
		bool old = none && (n_none > NONE_MAX || c->used_ns + NEGATIVE_NS < now);

		if (l.bytes <= d->cache_bytes && !old)
			continue;
		unlinkat(d->dir_fd, c->name, 0);
		l.bytes -= c->bytes;
		n_none -= none;
	}
	free(l.items);
}

static void cache_name(char out[BUILD_ID_MAX + 16], const char *build_id, const char *kind)
{
	snprintf(out, BUILD_ID_MAX + 16, "%s.%s", build_id, kind);
}

static int cache_open(const struct debuginfod *d, const char *build_id, int *ret_fd)
{
	char name[BUILD_ID_MAX + 16];
	int fd;

	cache_name(name, build_id, "debug");
	fd = openat(d->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	utimensat(d->dir_fd, name, NULL, 0); /* sets the time of use */
	*ret_fd = fd;
	return 0;
}

static bool is_known_absent(const struct debuginfod *d, const char *build_id)
{
	char name[BUILD_ID_MAX + 16];
	uint64_t now = now_wall_ns(), at;
	struct stat st;

	cache_name(name, build_id, "none");
	if (fstatat(d->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	at = ns_of(&st.st_mtim);
	return at <= now && now - at < NEGATIVE_NS;
}

static void note_absent(const struct debuginfod *d, const char *build_id)
{
	char name[BUILD_ID_MAX + 16];
	int fd;

	cache_name(name, build_id, "debug");
	unlinkat(d->dir_fd, name, 0);
	cache_name(name, build_id, "none");
	fd = openat(d->dir_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	closep(&fd);
	utimensat(d->dir_fd, name, NULL, 0);
}

/* ---- one file ---- */

static int download(const struct debuginfod *d, const char *build_id, int fd, uint64_t max_bytes)
{
	_cleanup_free_ char *path = xasprintf("/buildid/%s/debuginfo", build_id);
	struct fetch_request r = {.url = &d->url,
				  .path = path,
				  .ca_file = d->ca_file,
				  .fd = fd,
				  .max_bytes = MIN(d->f->debug_max_bytes, max_bytes),
				  .timeout_ns = d->timeout_ns,
				  .stopping = &d->stopping};

	return files_fetch(&r);
}

/*
 * Returns -errno, but -EIO instead of -ENOENT. -ENOENT must mean that the server has no such file,
 * because the agent remembers this. If the directory was removed, that is another error.
 */
static int own_error(void)
{
	return errno == ENOENT ? -EIO : -errno;
}

static int download_to_cache(const struct debuginfod *d, const char *build_id)
{
	char name[BUILD_ID_MAX + 16];
	int fd, r;

	unlinkat(d->dir_fd, PART_NAME, 0);
	fd = openat(d->dir_fd, PART_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return own_error();
	r = download(d, build_id, fd, d->cache_bytes);
	close(fd);
	cache_name(name, build_id, "debug");
	if (r == 0 && renameat(d->dir_fd, PART_NAME, d->dir_fd, name) < 0)
		r = own_error();
	if (r < 0)
		unlinkat(d->dir_fd, PART_NAME, 0);
	return r;
}

static int download_to_memory(const struct debuginfod *d, const char *build_id, int *ret_fd)
{
	_cleanup_close_ int fd = memfd_create("podflame-debuginfod", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : download(d, build_id, fd, MEMORY_BYTES);

	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

static const char *download_reason(int error)
{
	switch (error) {
	case -ENOENT:
		return "debuginfod_none";
	case -E2BIG:
		return "debuginfod_too_big";
	case -ETIMEDOUT:
		return "debuginfod_timeout";
	case -ECANCELED:
		return "debuginfod_stopped";
	default:
		return "debuginfod_failed";
	}
}

static int get(const struct debuginfod *d, const char *build_id, int *ret_fd)
{
	int r;

	if (d->dir_fd < 0)
		return download_to_memory(d, build_id, ret_fd);
	r = cache_open(d, build_id, ret_fd);
	if (r == 0)
		return 0;
	if (is_known_absent(d, build_id))
		return -ENOENT;
	r = download_to_cache(d, build_id);
	if (r == 0)
		r = cache_open(d, build_id, ret_fd);
	if (r == -ENOENT || r == -E2BIG)
		note_absent(d, build_id);
	trim(d);
	return r;
}

static void answer(const struct debuginfod *d, const struct wanted_debug *w)
{
	_cleanup_close_ int fd = -1;
	int r = get(d, w->build_id, &fd);

	if (r < 0)
		files_debug_count(download_reason(r));
	r = d->fetched(d->f, &w->key, w->build_id, w->main_fd, fd);
	if (fd >= 0 && d->dir_fd >= 0 && (r == -EBADMSG || r == -ENOEXEC || r == -E2BIG))
		note_absent(d, w->build_id);
}

/* ---- the thread ---- */

static struct wanted_debug *next_wanted(struct debuginfod *d)
{
	struct wanted_debug *w;

	pthread_mutex_lock(&d->lock);
	while (!d->queue && !atomic_load(&d->stopping))
		pthread_cond_wait(&d->changed, &d->lock);
	w = atomic_load(&d->stopping) ? NULL : d->queue;
	if (w) {
		d->queue = w->next;
		if (!d->queue)
			d->tail = &d->queue;
		d->n_queued--;
	}
	pthread_mutex_unlock(&d->lock);
	return w;
}

static void wanted_free(struct wanted_debug *w)
{
	close(w->main_fd);
	free(w);
}

static void open_dir(struct debuginfod *d)
{
	int r;

	if (!d->dir || !*d->dir)
		return;
	r = mkdir_parents(d->dir, 0700);
	if (r == 0) {
		d->dir_fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = d->dir_fd < 0 ? -errno : 0;
	}
	if (r < 0)
		log_warn("debuginfod: nothing is kept: %s: %s", d->dir, strerror(-r));
}

static void *work(void *arg)
{
	struct debuginfod *d = arg;
	struct wanted_debug *w;

	pthread_setname_np(pthread_self(), "debuginfod");
	open_dir(d);
	while ((w = next_wanted(d))) {
		answer(d, w);
		wanted_free(w);
	}
	return NULL;
}

int files_debuginfod_ask(struct debuginfod *d, const struct file_key *key, const char *build_id,
			 int main_fd)
{
	struct wanted_debug *w;
	int r = 0;

	if (strlen(build_id) < 4 || strlen(build_id) > BUILD_ID_MAX)
		return -EINVAL;
	w = xcalloc(1, sizeof(*w));
	w->key = *key;
	snprintf(w->build_id, sizeof(w->build_id), "%s", build_id);
	w->main_fd = fcntl(main_fd, F_DUPFD_CLOEXEC, 3);
	if (w->main_fd < 0) {
		r = -errno;
		free(w);
		return r;
	}
	pthread_mutex_lock(&d->lock);
	if (d->n_queued == QUEUE_MAX) {
		r = -ENOBUFS;
	} else {
		*d->tail = w;
		d->tail = &w->next;
		d->n_queued++;
		pthread_cond_signal(&d->changed);
	}
	pthread_mutex_unlock(&d->lock);
	if (r < 0) {
		files_debug_count("debuginfod_queue_full");
		wanted_free(w);
	}
	return r;
}

int files_debuginfod_new(struct files *f, const struct files_config *c,
			 debuginfod_fetched_fn *fetched, struct debuginfod **ret)
{
	struct debuginfod *d = xcalloc(1, sizeof(*d));
	int r = url_parse(c->debuginfod_url, &d->url, NULL);

	if (r < 0)
		goto fail;
	d->f = f;
	d->fetched = fetched;
	d->dir = xstrdup(c->debuginfod_cache);
	d->ca_file = xstrdup(c->debuginfod_ca_file);
	d->dir_fd = -1;
	d->cache_bytes =
		c->debuginfod_cache_bytes ? c->debuginfod_cache_bytes : DEFAULT_CACHE_BYTES;
	d->timeout_ns = c->debuginfod_timeout_ns ? c->debuginfod_timeout_ns : DEFAULT_TIMEOUT_NS;
	d->tail = &d->queue;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, NULL);
	r = -pthread_create(&d->thread, NULL, work, d);
	if (r < 0) {
		free(d->dir);
		free(d->ca_file);
		goto fail;
	}
	*ret = d;
	return 0;
fail:
	url_done(&d->url);
	free(d);
	return r;
}

struct debuginfod *files_debuginfod_free(struct debuginfod *d)
{
	struct wanted_debug *w;

	if (!d)
		return NULL;
	pthread_mutex_lock(&d->lock);
	atomic_store(&d->stopping, true);
	pthread_cond_signal(&d->changed);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	while ((w = d->queue)) {
		d->queue = w->next;
		wanted_free(w);
	}
	closep(&d->dir_fd);
	url_done(&d->url);
	free(d->dir);
	free(d->ca_file);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->changed);
	free(d);
	return NULL;
}
