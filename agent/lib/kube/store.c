// SPDX-License-Identifier: Apache-2.0
/*
 * The objects that a watch has delivered, by key. The store decides which differences count as a
 * change, and calls all callbacks about objects.
 */
#include "lib/kube/kube_private.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_OBJECTS 200000 /* above the 150,000 per kind that Kubernetes supports */

struct stored_object {
	char *key;
	json_t *obj;
	uint64_t generation;
	size_t n_bytes;
	UT_hash_handle hh;
};

struct kube_store {
	struct stored_object *entries;
	uint64_t generation;
	size_t n_bytes,
		/*
		 * n_bytes: memory of the objects of the current generation. Each list begins a new
		 * generation, and in the end removes the objects of older ones
		 */
		max_bytes;
	bool muted;
	const struct kube_watch_ops *ops;
	void *arg;
};

struct kube_store *kube_store_new(const struct kube_watch_ops *ops, void *arg, size_t max_bytes)
{
	struct kube_store *s = xcalloc(1, sizeof(*s));

	s->ops = ops;
	s->arg = arg;
	s->max_bytes = max_bytes;
	return s;
}

static void entry_free(struct kube_store *s, struct stored_object *e)
{
	HASH_DEL(s->entries, e);
	json_decref(e->obj);
	free(e->key);
	free(e);
}

struct kube_store *kube_store_free(struct kube_store *s)
{
	struct stored_object *e, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->entries, e, next)
		entry_free(s, e);
	free(s);
	return NULL;
}

static char *key_of(const json_t *obj)
{
	const char *ns = json_str_at(obj, "metadata.namespace", "");
	const char *name = json_str_at(obj, "metadata.name", "");

	if (!*name)
		return NULL;
	return *ns ? xasprintf("%s/%s", ns, name) : xstrdup(name);
}

static struct stored_object *find(const struct kube_store *s, const char *key)
{
	struct stored_object *e;

	HASH_FIND_STR(s->entries, key, e);
	return e;
}

static size_t counted_bytes(const struct kube_store *s, const struct stored_object *e)
{
	return e && e->generation == s->generation ? e->n_bytes : 0;
}

/* Counts e as an object of the current generation. */
static void count_bytes(struct kube_store *s, struct stored_object *e, size_t n_bytes)
{
	s->n_bytes += n_bytes - counted_bytes(s, e);
	e->generation = s->generation;
	e->n_bytes = n_bytes;
}

static void remove_entry(struct kube_store *s, struct stored_object *e)
{
	_cleanup_free_ char *key = TAKE_PTR(e->key);
	json_t *last = json_incref(e->obj);

	s->n_bytes -= counted_bytes(s, e);
	HASH_DEL(s->entries, e);
	json_decref(e->obj);
	free(e);
	if (!s->muted && s->ops->remove)
		s->ops->remove(key, last, s->arg);
	json_decref(last);
}

/* Whether a and b are equal, apart from metadata.resourceVersion. */
static bool same_content(json_t *a, json_t *b)
{
	json_t *ma = json_object_get(a, "metadata"), *mb = json_object_get(b, "metadata");
	json_t *ra = json_incref(json_object_get(ma, "resourceVersion"));
	json_t *rb = json_incref(json_object_get(mb, "resourceVersion"));
	bool same;

	json_object_del(ma, "resourceVersion");
	json_object_del(mb, "resourceVersion");
	same = json_equal(a, b);
	if (ra)
		json_object_set_new(ma, "resourceVersion", ra);
	if (rb)
		json_object_set_new(mb, "resourceVersion", rb);
	return same;
}

/*
 * Copies the resourceVersion of `from` into obj. Changes the object itself, so that each holder of
 * a reference sees the new version.
 */
static void take_version(json_t *obj, const json_t *from)
{
	json_t *rv = json_object_get(json_object_get(from, "metadata"), "resourceVersion");

	json_object_set(json_object_get(obj, "metadata"), "resourceVersion", rv);
}

static bool same_uid(const json_t *a, const json_t *b)
{
	return streq(json_str_at(a, "metadata.uid", ""), json_str_at(b, "metadata.uid", ""));
}

static int drop(const char *reason)
{
	counter_add(counter("kube_dropped_total", "reason", reason), 1);
	return -E2BIG;
}

static int add_entry(struct kube_store *s, const char *key, json_t *obj, size_t n_bytes)
{
	struct stored_object *e;

	if (HASH_COUNT(s->entries) >= MAX_OBJECTS)
		return drop("too_many_objects");
	e = xcalloc(1, sizeof(*e));
	e->key = xstrdup(key);
	e->obj = json_incref(obj);
	count_bytes(s, e, n_bytes);
	HASH_ADD_KEYPTR(hh, s->entries, e->key, strlen(e->key), e);
	if (s->ops->upsert)
		s->ops->upsert(key, obj, NULL, s->arg);
	return 0;
}

int kube_store_apply(struct kube_store *s, json_t *obj, size_t n_bytes)
{
	_cleanup_free_ char *key = key_of(obj);
	struct stored_object *e;
	json_t *old;

	if (s->muted)
		return 0;
	if (!key)
		return -EINVAL;
	e = find(s, key);
	/*
	 * if the UID differs, the old object was deleted and a new one created without an event for
	 * this watch
	 */
	if (e && !same_uid(e->obj, obj)) {
		remove_entry(s, e);
		if (s->muted)
			return 0;
		e = NULL;
	}
	if (n_bytes > s->max_bytes - MIN(s->max_bytes, s->n_bytes - counted_bytes(s, e))) {
		if (e)
			remove_entry(s, e);
		return drop("too_many_bytes");
	}
	if (!e)
		return add_entry(s, key, obj, n_bytes);
	count_bytes(s, e, n_bytes);
	if (same_content(e->obj, obj)) {
		take_version(e->obj, obj);
		return 0;
	}
	old = e->obj;
	e->obj = json_incref(obj);
	if (s->ops->upsert)
		s->ops->upsert(key, obj, old, s->arg);
	json_decref(old);
	return 0;
}

int kube_store_remove(struct kube_store *s, const json_t *obj)
{
	_cleanup_free_ char *key = key_of(obj);
	struct stored_object *e;

	if (!key)
		return -EINVAL;
	e = find(s, key);
	if (e)
		remove_entry(s, e);
	return 0;
}

void kube_store_begin(struct kube_store *s)
{
	s->generation++;
	s->n_bytes = 0;
}

bool kube_store_sweep(struct kube_store *s, unsigned n)
{
	struct stored_object *e, *next;

	HASH_ITER (hh, s->entries, e, next) {
		if (s->muted)
			return false;
		if (e->generation == s->generation)
			continue;
		if (n-- == 0)
			return true;
		remove_entry(s, e);
	}
	return false;
}

void kube_store_mute(struct kube_store *s)
{
	s->muted = true;
}

const json_t *kube_store_get(const struct kube_store *s, const char *key)
{
	struct stored_object *e = find(s, key);

	return e ? e->obj : NULL;
}

void kube_store_each(const struct kube_store *s,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	struct stored_object *e, *next;

	HASH_ITER (hh, s->entries, e, next)
		fn(e->key, e->obj, arg);
}
