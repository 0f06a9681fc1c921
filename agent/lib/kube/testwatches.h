/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: watches that the test fills. Include it once, after cmocka.h; it takes the place
 * of watch.c.
 */
#pragma once

#include <stdlib.h>

#include "lib/kube/kube.h"

struct kube_watch {
	bool used, synced, once, metadata_only;
	char path[128], field_selector[320], label_selector[128];
	size_t max_bytes, n_left_out;
	struct kube_watch_ops ops;
	void (*trim)(json_t *obj);
	void *arg;
	struct {
		char key[64];
		const json_t *obj; /* NULL: it is deleted; the test has the reference */
	} *items;
	size_t n_items, cap_items;
};
static struct kube_watch watches[8];
static unsigned n_watches_made;

int kube_watch_new(struct kube *k, const struct kube_watch_spec *s,
		   const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	size_t i = 0;

	(void)k;
	while (i < ARRAY_SIZE(watches) && watches[i].used)
		i++;
	assert_true(i < ARRAY_SIZE(watches));
	watches[i] = (struct kube_watch){
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

struct kube_watch *kube_watch_free(struct kube_watch *w)
{
	if (!w)
		return NULL;
	free(w->items);
	*w = (struct kube_watch){0};
	return NULL;
}

bool kube_watch_synced(const struct kube_watch *w)
{
	return w->synced;
}

size_t kube_watch_left_out(const struct kube_watch *w)
{
	return w->n_left_out;
}

const json_t *kube_watch_get(const struct kube_watch *w, const char *key)
{
	for (size_t i = 0; i < w->n_items; i++) {
		if (streq(w->items[i].key, key))
			return w->items[i].obj;
	}
	return NULL;
}

void kube_watch_each(const struct kube_watch *w,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	for (size_t i = 0; i < w->n_items; i++) {
		if (w->items[i].obj)
			fn(w->items[i].key, w->items[i].obj, arg);
	}
}

/* obj NULL: it goes. */
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

/* NULL: nothing watches it now. */
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
