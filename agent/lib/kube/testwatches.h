/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: a kube whose watches the test fills. Include it once, after cmocka.h. */
#pragma once

#include <stdlib.h>

#include "lib/kube/kube.h"

struct kube_watch {
	struct kube_base base;
	bool used, synced, once, metadata_only;
	char left_out_ns[64], path[128], field_selector[320], label_selector[128];
	size_t max_bytes, n_left_out;
	struct kube_watch_ops ops;
	void (*trim)(json_t *obj);
	void *arg;
	struct {
		char key[64];
		const json_t *obj; /* NULL: the object is deleted; the test owns the reference */
	} *items;
	size_t n_items, cap_items;
};
static struct kube_watch watches[8];
static unsigned n_watches_made;

static const struct kube_ops watches_ops;

static int make_watch(struct kube *k, const struct kube_watch_spec *s,
		      const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	size_t i = 0;

	(void)k;
	while (i < ARRAY_SIZE(watches) && watches[i].used)
		i++;
	assert_true(i < ARRAY_SIZE(watches));
	watches[i] = (struct kube_watch){
		.base = {&watches_ops},
		.used = true,
		.once = s->once,
		.metadata_only = s->metadata_only,
		.max_bytes = s->max_bytes,
		.ops = *ops,
		.trim = s->trim,
		.arg = arg,
	};
	snprintf(watches[i].path, sizeof(watches[i].path), "%s", s->path);
	snprintf(watches[i].field_selector, sizeof(watches[i].field_selector), "%s",
		 s->field_selector ?: "");
	snprintf(watches[i].label_selector, sizeof(watches[i].label_selector), "%s",
		 s->label_selector ?: "");
	n_watches_made++;
	*ret = &watches[i];
	return 0;
}

static void free_watch(struct kube_watch *w)
{
	free(w->items);
	*w = (struct kube_watch){0};
}

static bool is_synced(const struct kube_watch *w)
{
	return w->synced;
}

static size_t n_left_out(const struct kube_watch *w)
{
	return w->n_left_out;
}

/* A watch of a test leaves its objects out of one namespace. */
static void each_left_out(const struct kube_watch *w, kube_left_out_fn *fn, void *arg)
{
	if (w->n_left_out)
		fn(w->left_out_ns, w->n_left_out, arg);
}

static const json_t *find_object(const struct kube_watch *w, const char *key)
{
	for (size_t i = 0; i < w->n_items; i++) {
		if (streq(w->items[i].key, key))
			return w->items[i].obj;
	}
	return NULL;
}

static void each_object(const struct kube_watch *w,
			void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	for (size_t i = 0; i < w->n_items; i++) {
		if (w->items[i].obj)
			fn(w->items[i].key, w->items[i].obj, arg);
	}
}

static const struct kube_ops watches_ops = {
	.watch_new = make_watch,
	.watch_free = free_watch,
	.watch_get = find_object,
	.watch_each = each_object,
	.watch_synced = is_synced,
	.watch_left_out = n_left_out,
	.watch_each_left_out = each_left_out,
};

/*
 * Makes the kube. request: called for each request of the code under test; NULL: the code sends
 * none.
 */
static inline struct kube *testwatches(kube_request_fn *request)
{
	static struct kube_ops ops;
	static struct kube_base k = {&ops};

	ops = watches_ops;
	ops.request = request;
	return (struct kube *)&k;
}

/* Sets the object that the watch has under key; NULL: the object is deleted. */
static inline void keep(struct kube_watch *w, const char *key, const json_t *obj)
{
	size_t i = 0;

	while (i < w->n_items && !streq(w->items[i].key, key))
		i++;
	if (i == w->n_items) {
		GROW(w->items, w->n_items, w->cap_items);
		snprintf(w->items[w->n_items++].key, sizeof(w->items->key), "%s", key);
	}
	w->items[i].obj = obj;
}

/* Returns the watch whose path contains part; NULL: there is none now. */
static inline struct kube_watch *find_watch(const char *part)
{
	for (size_t i = 0; i < ARRAY_SIZE(watches); i++) {
		if (watches[i].used && strstr(watches[i].path, part))
			return &watches[i];
	}
	return NULL;
}

static inline struct kube_watch *watch_of(const char *part)
{
	struct kube_watch *w = find_watch(part);

	if (!w)
		fail_msg("nothing watches %s", part);
	return w;
}
