/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads and deletions. Other hubs may upload at the same time. So a hub lists the files before it
 * keeps one, and again afterwards. If both together have no room, each removes its own, and tells
 * its user. An upload that the second list does not show is removed, too: it may be that a replica
 * lags, so nobody knows whether there is room, or whether the file is the newest one. If it cannot
 * be removed, this hub takes no other upload until it is.
 */
#include "hub/symbols/table.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Returns whether there is room for the file. All files of a namespace may take half of what the
 * files of others leave, so that there is always room for those of one more namespace. Files of all
 * namespaces may take all: only an administrator may upload them.
 */
static bool has_room(const struct symbols *s, const char *ns, const struct kept_upload *old,
		     uint64_t bytes, struct field_error *reterr)
{
	uint64_t old_bytes = old ? symbols_counted(s, old->u.bytes) : 0;
	uint64_t used = s->bytes - old_bytes, own = 0, left;
	const struct kept_namespace *k = NULL;

	bytes = symbols_counted(s, bytes);
	if (ns)
		HASH_FIND_STR(s->namespaces, ns, k);
	if (k)
		own = k->bytes - old_bytes;
	left = s->max_bytes - MIN(s->max_bytes, used);
	if (bytes > left) {
		field_error_set(reterr, "store.symbols_max_bytes",
				"%llu MiB for all symbol files are in use: delete some",
				(unsigned long long)(s->max_bytes >> 20));
		return false;
	}
	if (!ns || own + bytes <= (left + own) / 2)
		return true;
	field_error_set(
		reterr, "store.symbols_max_bytes",
		"the symbol files of namespace %s would take %.1f MiB, and may take %.1f: half "
		"of what others leave: delete some",
		ns, (double)(own + bytes) / (1 << 20), (double)(left + own) / 2 / (1 << 20));
	return false;
}

struct putting {
	struct symbols *s;
	const char *ns;
	struct store_upload u, old; /* old: that it replaces; its build id is "": none */
	bool is_beaten;		    /* another hub has a newer one */
	struct field_error *err;
};

/* Sees whether there is room, and what the upload replaces. Its version is 0: it is a new one. */
static int begin(struct putting *p)
{
	struct symbols *s = p->s;
	const struct kept_upload *old;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	old = symbols_find(s, p->ns, p->u.build_id);
	if (old)
		p->old = old->u;
	if (old && p->u.version)
		r = -EEXIST;
	else if (!has_room(s, p->ns, old, p->u.bytes, p->err))
		r = -ENOSPC;
	pthread_mutex_unlock(&s->lock);
	/* the clock of the hub that has uploaded the older one may be ahead */
	if (!p->u.version)
		p->u.version = MAX(now_wall_ns(), p->old.version + 1);
	return r;
}

/* In the order of the list. */
static bool is_newer(const struct store_upload *a, const struct store_upload *b)
{
	return a->version > b->version || (a->version == b->version && a->id > b->id);
}

/* Puts it into the table, and sees what another hub has uploaded meanwhile. */
static int end(struct putting *p)
{
	struct symbols *s = p->s;
	const struct kept_upload *k;
	int r = symbols_list_now(s, p->err);

	if (r)
		return r;
	pthread_mutex_lock(&s->lock);
	if (!s->backend->list_ns)
		symbols_take(s, &p->u);
	k = symbols_find(s, p->ns, p->u.build_id);
	p->is_beaten = k && is_newer(&k->u, &p->u);
	if (!p->is_beaten && (!k || k->u.id != p->u.id)) {
		field_error_set(p->err, "store", "the list does not show the upload: try again");
		r = -EAGAIN;
	} else if (!has_room(s, p->ns, k, p->u.bytes, p->err)) {
		r = -ENOSPC;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Removes the upload that was refused. The caller holds s->changing. */
static int remove_unwanted(struct symbols *s, struct field_error *reterr)
{
	int r;

	if (!s->unwanted.id)
		return 0;
	r = s->backend->remove(s->kept, &s->unwanted, false);
	if (!r) {
		s->unwanted.id = 0;
		(void)symbols_list_now(s, NULL);
		return 0;
	}
	counter_add(counter("symbols_remove_errors_total", NULL, NULL), 1);
	field_error_set(reterr, "store",
			"the symbols of build id %s%s%s were refused, but cannot be deleted: no "
			"others are taken until they are",
			s->unwanted.build_id, *s->unwanted.ns ? " of namespace " : "",
			s->unwanted.ns);
	return -EAGAIN;
}

static void refuse(struct putting *p)
{
	struct field_error e = {0};

	p->s->unwanted = p->u;
	if (remove_unwanted(p->s, &e))
		log_warn("%s", e.reason);
}

void symbols_retry(struct symbols *s)
{
	if (pthread_mutex_trylock(&s->changing))
		return; /* an upload is under way, which has tried */
	(void)remove_unwanted(s, NULL);
	pthread_mutex_unlock(&s->changing);
}

/* The caller holds s->changing. */
static int keep(struct putting *p, const struct symbols_received *file)
{
	struct symbols *s = p->s;
	int r = remove_unwanted(s, p->err);

	if (!r)
		r = symbols_list_now(s, p->err);
	if (!r)
		r = begin(p);
	if (!r)
		r = s->backend->put(s->kept, &p->u, file, p->err);
	if (r)
		return r;
	r = end(p);
	if (r)
		refuse(p);
	/* if this fails, the store deletes it later, because there is a newer one */
	else if (p->is_beaten)
		(void)s->backend->remove(s->kept, &p->u, false);
	else if (*p->old.build_id && p->old.id != p->u.id)
		(void)s->backend->remove(s->kept, &p->old, true);
	return r;
}

int symbols_put_as(struct symbols *s, const char *ns, const char *build_id, uint64_t version,
		   const void *data, size_t n, struct field_error *reterr)
{
	_cleanup_free_ char *temporary = xasprintf("%s/" SYMBOLS_TEMPORARY "XXXXXX", s->dir);
	struct symbols_received file = {temporary, data, n};
	struct putting p = {.s = s, .ns = ns, .u.version = version, .err = reterr};
	_cleanup_close_ int fd = -1;
	int r = symbols_check_build_id(build_id, reterr);

	if (!r && ns)
		r = symbols_check_namespace(ns, reterr);
	if (r)
		return r;
	if (n > SYMBOLS_UPLOAD_BYTES) {
		field_error_set(reterr, "body", "is larger than %u MiB compressed",
				SYMBOLS_UPLOAD_BYTES >> 20);
		return -E2BIG;
	}
	snprintf(p.u.ns, sizeof(p.u.ns), "%s", ns ?: "");
	snprintf(p.u.build_id, sizeof(p.u.build_id), "%s", build_id);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return symbols_file_explain(-errno, reterr);
	r = symbols_file_receive(fd, build_id, data, n, &p.u.bytes, reterr);
	if (!r) {
		pthread_mutex_lock(&s->changing);
		r = keep(&p, &file);
		pthread_mutex_unlock(&s->changing);
	}
	unlink(temporary); /* unless it was taken */
	return r;
}

int symbols_put(struct symbols *s, const char *ns, const char *build_id, const void *data, size_t n,
		struct field_error *reterr)
{
	return symbols_put_as(s, ns, build_id, 0, data, n, reterr);
}

/* The caller holds s->changing. */
static int delete_now(struct symbols *s, const char *ns, const char *build_id)
{
	struct store_upload u;
	struct kept_upload *k;
	bool found;
	int r = symbols_list_now(s, NULL);

	if (r)
		return r;
	pthread_mutex_lock(&s->lock);
	k = symbols_find(s, ns, build_id);
	found = k != NULL;
	if (found)
		u = k->u;
	pthread_mutex_unlock(&s->lock);
	r = found ? s->backend->remove(s->kept, &u, true) : -ENOENT;
	if (r)
		return r;
	pthread_mutex_lock(&s->lock);
	k = symbols_find(s, ns, build_id);
	if (k && k->u.id == u.id)
		symbols_forget(s, k);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int symbols_delete(struct symbols *s, const char *ns, const char *build_id)
{
	int r;

	pthread_mutex_lock(&s->changing);
	r = delete_now(s, ns, build_id);
	pthread_mutex_unlock(&s->changing);
	return r;
}
