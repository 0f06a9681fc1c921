// SPDX-License-Identifier: Apache-2.0
/*
 * The objects that a watch has delivered, by key. The store decides which differences count as a
 * change, and calls all callbacks about objects. room.c decides which objects have room.
 */
#include "lib/kube/kube_private.h"

#include <stdlib.h>

struct kube_store {
	struct kube_item *items;
	/*
	 * Each list begins a new generation, with a room of its own, and in the end removes the
	 * objects of older ones. Those are in no room.
	 */
	uint64_t generation;
	struct kube_room *room;
	bool muted, changed;
	const struct kube_watch_ops *ops;
	void *arg;
};

struct kube_store *kube_store_new(const struct kube_watch_ops *ops, void *arg, size_t max_bytes)
{
	struct kube_store *s = xcalloc(1, sizeof(*s));

	s->room = kube_room_new(max_bytes);
	s->ops = ops;
	s->arg = arg;
	return s;
}

static char *key_of(const json_t *obj)
{
	const char *ns = json_str_at(obj, "metadata.namespace", "");
	const char *name = json_str_at(obj, "metadata.name", "");

	if (!*name)
		return NULL;
	return *ns ? xasprintf("%s/%s", ns, name) : xstrdup(name);
}

struct kube_item *kube_item_new(json_t *obj, uint64_t created_ns, size_t n_bytes)
{
	char *key = key_of(obj);
	struct kube_item *i;

	if (!key)
		return NULL;
	i = xcalloc(1, sizeof(*i));
	i->key = key;
	i->obj = json_incref(obj);
	i->created_ns = created_ns;
	i->n_bytes = n_bytes;
	return i;
}

struct kube_item *kube_item_free(struct kube_item *i)
{
	if (!i)
		return NULL;
	json_decref(i->obj);
	free(i->key);
	free(i);
	return NULL;
}

struct kube_store *kube_store_free(struct kube_store *s)
{
	struct kube_item *i, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->items, i, next) {
		HASH_DEL(s->items, i);
		kube_item_free(i);
	}
	kube_room_free(s->room);
	free(s);
	return NULL;
}

static struct kube_item *find(const struct kube_store *s, const char *key)
{
	struct kube_item *i;

	HASH_FIND_STR(s->items, key, i);
	return i;
}

/* Takes the object out of the room, if it is in the current one. */
static void give_room_back(struct kube_store *s, struct kube_item *i)
{
	if (i->generation == s->generation && i->share)
		kube_room_remove(s->room, i);
}

static void remove_item(struct kube_store *s, struct kube_item *i)
{
	give_room_back(s, i);
	HASH_DEL(s->items, i);
	if (!s->muted && s->ops->remove)
		s->ops->remove(i->key, i->obj, s->arg);
	kube_item_free(i);
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

void kube_count_left_out(void)
{
	counter_add(counter("kube_dropped_total", "reason", "no_room"), 1);
}

static void tell_no_room(const struct kube_store *s, const struct kube_item *i)
{
	if (!s->muted && s->ops->no_room)
		s->ops->no_room(i->key, i->obj, s->arg);
}

struct arrival {
	struct kube_store *store;
	const struct kube_item *item; /* the object that arrives; NULL: none */
};

static void on_left_out(struct kube_item *i, void *arg)
{
	const struct arrival *a = arg;

	kube_count_left_out();
	tell_no_room(a->store, i);
	if (i != a->item)
		remove_item(a->store, i);
}

/*
 * Whether the object has room. The objects of a list that was received have room already. old: the
 * version that the store has; NULL: none.
 */
static bool has_room(struct kube_store *s, struct kube_item *i, struct kube_item *old, bool is_new)
{
	struct arrival a = {s, i};

	if (i->share)
		return true;
	if (!kube_room_add(s->room, i, is_new || old)) {
		if (is_new || old)
			kube_count_left_out();
		tell_no_room(s, i);
		kube_room_settle(s->room, on_left_out, &a);
		return false;
	}
	kube_room_settle(s->room, on_left_out, &a);
	return i->share;
}

/* Puts the object into the place of the old version. */
static void replace(struct kube_store *s, struct kube_item *i, struct kube_item *old)
{
	HASH_DEL(s->items, old);
	HASH_ADD_KEYPTR(hh, s->items, i->key, strlen(i->key), i);
	if (same_content(old->obj, i->obj)) {
		take_version(old->obj, i->obj);
		json_decref(i->obj);
		i->obj = json_incref(old->obj);
	} else if (s->ops->upsert) {
		s->ops->upsert(i->key, i->obj, old->obj, s->arg);
	}
	kube_item_free(old);
}

void kube_store_take(struct kube_store *s, struct kube_item *i, bool is_new)
{
	struct kube_item *old = find(s, i->key);

	/*
	 * if the UID differs, the old object was deleted and a new one created without an event for
	 * this watch
	 */
	if (old && !same_uid(old->obj, i->obj)) {
		remove_item(s, TAKE_PTR(old));
		is_new = true;
	}
	if (old)
		give_room_back(s, old);
	if (s->muted || !has_room(s, i, old, is_new) || s->muted) {
		if (old)
			remove_item(s, old);
		if (i->share)
			kube_room_remove(s->room, i);
		kube_item_free(i);
		return;
	}
	i->generation = s->generation;
	if (old) {
		replace(s, i, old);
		return;
	}
	HASH_ADD_KEYPTR(hh, s->items, i->key, strlen(i->key), i);
	if (s->ops->upsert)
		s->ops->upsert(i->key, i->obj, NULL, s->arg);
}

void kube_store_remove(struct kube_store *s, const struct kube_item *i)
{
	struct kube_item *old = find(s, i->key);

	if (old)
		remove_item(s, old);
	else
		kube_room_forget(s->room, i);
	kube_room_settle(s->room, on_left_out, &(struct arrival){s, NULL});
}

void kube_store_begin(struct kube_store *s, struct kube_room *room)
{
	s->generation++;
	s->changed |= kube_room_left_out(s->room) != 0;
	kube_room_free(s->room);
	s->room = room;
}

bool kube_store_sweep(struct kube_store *s, unsigned n)
{
	struct kube_item *i, *next;

	HASH_ITER (hh, s->items, i, next) {
		if (s->muted)
			return false;
		if (i->generation == s->generation)
			continue;
		if (n-- == 0)
			return true;
		remove_item(s, i);
	}
	return false;
}

void kube_store_mute(struct kube_store *s)
{
	s->muted = true;
}

void kube_store_tell_left_out(struct kube_store *s)
{
	s->changed |= kube_room_has_changed(s->room);
	if (s->changed && !s->muted && s->ops->left_out)
		s->ops->left_out(s->arg);
	s->changed = false;
}

const struct kube_room *kube_store_room(const struct kube_store *s)
{
	return s->room;
}

const json_t *kube_store_get(const struct kube_store *s, const char *key)
{
	struct kube_item *i = find(s, key);

	return i ? i->obj : NULL;
}

void kube_store_each(const struct kube_store *s,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	struct kube_item *i, *next;

	HASH_ITER (hh, s->items, i, next)
		fn(i->key, i->obj, arg);
}
