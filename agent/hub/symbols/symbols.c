/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the uploaded files, as they were listed last. The files that were used last stay
 * open. An index in use stays valid after its file is deleted.
 */
#include "hub/symbols/table.h"

#include <stdlib.h>

#define OPEN_MAX 32 /* indexes that are open at once; the one used longest ago is closed */
#define AGAIN_NS (30 * NSEC_PER_SEC) /* until a file that could not be read is tried again */

static const char *ns_of(const struct store_upload *u)
{
	return *u->ns ? u->ns : NULL;
}

struct kept_upload *symbols_find(const struct symbols *s, const char *ns, const char *build_id)
{
	_cleanup_free_ char *stem = symbols_file_stem(ns, build_id);
	struct kept_upload *k;

	HASH_FIND_STR(s->files, stem, k);
	return k;
}

static struct kept_upload *find_of(const struct symbols *s, const struct store_upload *u)
{
	return symbols_find(s, ns_of(u), u->build_id);
}

static bool is_same(const struct store_upload *a, const struct store_upload *b)
{
	return a->id == b->id && a->version == b->version;
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

/* Sets *ret_u to the upload that is the file, and *ret to its index, if that is open. */
static int look_up(struct symbols *s, const char *ns, const char *build_id,
		   struct store_upload *ret_u, struct elf_index **ret)
{
	struct kept_upload *k;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	k = symbols_find(s, ns, build_id);
	if (!k) {
		r = -ENOENT;
	} else if (now_mono_ns() < k->again_ns) {
		r = k->trouble;
	} else {
		k->used = ++s->turn;
		*ret_u = k->u;
		if (k->index)
			*ret = elf_index_ref(k->index);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* *ret_u: which upload was tried; its build id is "" if none was. */
static int open_upload(struct symbols *s, const char *ns, const char *build_id,
		       const struct store_wait *w, struct store_upload *ret_u,
		       struct elf_index **ret)
{
	int r;

	*ret_u = (struct store_upload){0};
	r = look_up(s, ns, build_id, ret_u, ret);
	return r || *ret ? r : s->backend->open(s->kept, ret_u, w, ret);
}

/* Remembers what came of it, unless the file was replaced meanwhile. */
static void remember_opened(struct symbols *s, const struct store_upload *u, int r,
			    struct elf_index *index)
{
	struct kept_upload *k;

	pthread_mutex_lock(&s->lock);
	k = find_of(s, u);
	if (!k || !is_same(&k->u, u)) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	k->trouble = r;
	/* of a directory, other errors are of the moment, such as no free descriptor */
	if (r == -EBADMSG || (r && s->backend->list_ns))
		k->again_ns = now_mono_ns() + AGAIN_NS;
	if (!r && !k->index) {
		k->index = elf_index_ref(index);
		if (++s->n_open > OPEN_MAX)
			close_oldest(s);
	}
	pthread_mutex_unlock(&s->lock);
}

int symbols_index(struct symbols *s, const char *ns, const char *build_id,
		  const struct store_wait *w, struct elf_index **ret)
{
	static const struct store_wait no_limit = {.deadline_ns = UINT64_MAX};
	struct elf_index *index = NULL;
	struct store_upload u;
	int r = open_upload(s, ns, build_id, w ?: &no_limit, &u, &index);

	/* another hub may have replaced it, or deleted it */
	if (r == -ENOENT && *u.build_id && !symbols_list_now(s, NULL))
		r = open_upload(s, ns, build_id, w ?: &no_limit, &u, &index);
	if (!*u.build_id || r == -ETIME)
		return r;
	if (r == -ENOENT || r == -EIO)
		r = -EBADMSG;
	if (r == -EBADMSG)
		counter_add(counter("symbols_damaged_total", NULL, NULL), 1);
	remember_opened(s, &u, r, index);
	if (!r)
		*ret = index;
	return r;
}

/* ---- the cost of names ---- */

struct symbols_cost *symbols_cost(struct symbols *s, const char *ns, const char *build_id)
{
	struct symbols_cost *c = NULL;
	struct kept_upload *k;

	pthread_mutex_lock(&s->lock);
	k = symbols_find(s, ns, build_id);
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

uint64_t symbols_counted(const struct symbols *s, uint64_t bytes)
{
	return MAX(symbols_file_counted(bytes), s->max_bytes / STORE_MAX_UPLOADS);
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

void symbols_forget(struct symbols *s, struct kept_upload *k)
{
	uint64_t bytes = symbols_counted(s, k->u.bytes);

	close_index(s, k);
	unref_cost(k->cost);
	s->bytes -= bytes;
	count_file(s, ns_of(&k->u), bytes, false);
	HASH_DEL(s->files, k);
	free(k->stem);
	free(k);
}

void symbols_take(struct symbols *s, const struct store_upload *u)
{
	struct kept_upload *k = find_of(s, u);
	uint64_t bytes = symbols_counted(s, u->bytes);

	if (k)
		symbols_forget(s, k);
	k = xcalloc(1, sizeof(*k));
	k->u = *u;
	k->round = s->round;
	k->stem = symbols_file_stem(ns_of(u), u->build_id);
	k->cost = xcalloc(1, sizeof(*k->cost));
	k->cost->refs = 1;
	s->bytes += bytes;
	count_file(s, ns_of(u), bytes, true);
	HASH_ADD_KEYPTR(hh, s->files, k->stem, strlen(k->stem), k);
}

/* ---- the list ---- */

struct listing {
	struct symbols *s;
	size_t n_refused;
};

/* Whether it can be one of ours: a database has what somebody has written there. */
static bool is_upload(const struct store_upload *u)
{
	return symbols_check_build_id(u->build_id, NULL) == 0 &&
	       (!*u->ns || symbols_check_namespace(u->ns, NULL) == 0) && u->id <= INT64_MAX &&
	       u->version <= INT64_MAX && u->bytes <= SYMBOLS_FILE_BYTES &&
	       u->packed <= SYMBOLS_UPLOAD_BYTES;
}

static void take_listed(const struct store_upload *u, void *arg)
{
	struct listing *l = arg;
	struct symbols *s = l->s;
	struct kept_upload *k;

	if (!is_upload(u)) {
		l->n_refused++;
		return;
	}
	pthread_mutex_lock(&s->lock);
	k = find_of(s, u);
	if (k && k->round != s->round && is_same(&k->u, u))
		k->round = s->round;
	else if (!k || k->round != s->round) /* else this is an older one */
		symbols_take(s, u);
	pthread_mutex_unlock(&s->lock);
}

static void forget_unlisted(struct symbols *s)
{
	struct kept_upload *k, *next;

	pthread_mutex_lock(&s->lock);
	HASH_ITER (hh, s->files, k, next) {
		if (k->round != s->round)
			symbols_forget(s, k);
	}
	pthread_mutex_unlock(&s->lock);
}

/* Logs what has changed since the list before. */
static void tell_list(struct symbols *s, int r, size_t n_refused, const struct field_error *e)
{
	if (r && !s->list_failed)
		log_warn("uploaded symbols: %s: those that were listed before stay",
			 *e->reason ? e->reason : strerror(-r));
	if (r)
		counter_add(counter("symbols_list_errors_total", NULL, NULL), 1);
	s->list_failed = r != 0;
	if (r)
		return;
	if (n_refused > s->n_refused)
		log_warn("uploaded symbols: %zu rows of the list are none of podflame's",
			 n_refused);
	s->n_refused = n_refused;
}

/* The caller holds s->listing. */
static int list_files(struct symbols *s, struct field_error *reterr)
{
	struct listing l = {.s = s};
	struct field_error e = {0};
	int r;

	pthread_mutex_lock(&s->lock);
	s->round++;
	pthread_mutex_unlock(&s->lock);
	r = s->backend->list(s->kept, take_listed, &l, &e);
	if (!r)
		forget_unlisted(s);
	if (s->backend->list_ns)
		tell_list(s, r, l.n_refused, &e);
	s->listed_ns = now_mono_ns();
	if (r && reterr)
		*reterr = e;
	return r;
}

int symbols_list_now(struct symbols *s, struct field_error *reterr)
{
	int r = 0;

	if (!s->backend->list_ns)
		return 0;
	pthread_mutex_lock(&s->listing);
	r = list_files(s, reterr);
	pthread_mutex_unlock(&s->listing);
	return r;
}

static void list_if_old(struct symbols *s)
{
	if (!s->backend->list_ns)
		return;
	pthread_mutex_lock(&s->listing);
	if (!s->listed_ns || now_mono_ns() - s->listed_ns >= s->backend->list_ns)
		(void)list_files(s, NULL);
	pthread_mutex_unlock(&s->listing);
}

bool symbols_any(struct symbols *s)
{
	bool any;

	list_if_old(s);
	pthread_mutex_lock(&s->lock);
	any = s->files != NULL;
	pthread_mutex_unlock(&s->lock);
	return any;
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

	list_if_old(s);
	pthread_mutex_lock(&s->lock);
	list = xcalloc(HASH_COUNT(s->namespaces) + 1, sizeof(*list));
	for (k = s->namespaces; k; k = k->hh.next)
		list[n++] = xstrdup(k->ns);
	pthread_mutex_unlock(&s->lock);
	qsort(list, n, sizeof(*list), by_name);
	*ret_n = n;
	return list;
}

static int by_build_id(const struct kept_upload *a, const struct kept_upload *b)
{
	int order = strcmp(a->u.build_id, b->u.build_id);

	return order ? order : strcmp(a->u.ns, b->u.ns);
}

json_t *symbols_list(struct symbols *s)
{
	json_t *list = json_array();

	list_if_old(s);
	pthread_mutex_lock(&s->lock);
	HASH_SORT(s->files, by_build_id);
	for (const struct kept_upload *k = s->files; k; k = k->hh.next)
		json_array_append_new(list, json_pack("{s:s, s:s?, s:I, s:I}", "build_id",
						      k->u.build_id, "namespace", ns_of(&k->u),
						      "bytes", (json_int_t)k->u.bytes, "uploaded",
						      (json_int_t)(k->u.version / NSEC_PER_SEC)));
	pthread_mutex_unlock(&s->lock);
	return list;
}

/* ---- open and close ---- */

int symbols_open_over(const struct symbols_config *c, const struct symbols_backend *backend,
		      void *kept, struct symbols **ret, struct field_error *reterr)
{
	struct symbols *s = xcalloc(1, sizeof(*s));
	int r;

	s->backend = backend;
	s->kept = kept;
	s->dir = xstrdup(c->dir);
	s->max_bytes = c->max_bytes;
	s->demangler = elf_demangler_new(NULL, false);
	pthread_mutex_init(&s->changing, NULL);
	pthread_mutex_init(&s->listing, NULL);
	pthread_mutex_init(&s->lock, NULL);
	r = list_files(s, reterr);
	if (r && !backend->list_ns) {
		symbols_close(s);
		return r;
	}
	*ret = s; /* else it is listed again soon */
	return 0;
}

int symbols_open(const struct symbols_config *c, struct symbols **ret, struct field_error *reterr)
{
	void *kept;
	int r = c->store ? symbols_shared_open(c->store, c->dir, c->max_bytes, &kept, reterr)
			 : symbols_local_open(c->dir, &kept, reterr);

	return r ? r
		 : symbols_open_over(c, c->store ? &symbols_shared : &symbols_local, kept, ret,
				     reterr);
}

struct symbols *symbols_close(struct symbols *s)
{
	if (!s)
		return NULL;
	while (s->files)
		symbols_forget(s, s->files);
	s->backend->close(s->kept);
	elf_demangler_free(s->demangler);
	pthread_mutex_destroy(&s->changing);
	pthread_mutex_destroy(&s->listing);
	pthread_mutex_destroy(&s->lock);
	free(s->dir);
	free(s);
	return NULL;
}

struct demangler *symbols_demangler(struct symbols *s)
{
	return s->demangler;
}
