/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the functions of a struct kube or a struct kube_watch: those of client.c and watch.c, or
 * those of a test. It owns nothing. Loop thread.
 */
#include "lib/kube/kube.h"

static const struct kube_ops *ops_of(const struct kube *k)
{
	return ((const struct kube_base *)k)->ops;
}

static const struct kube_ops *ops_of_watch(const struct kube_watch *w)
{
	return ((const struct kube_base *)w)->ops;
}

int kube_request(struct kube *k, const char *method, const char *path, const char *content_type,
		 const json_t *body, kube_done_fn *fn, void *arg)
{
	return ops_of(k)->request(k, method, path, content_type, body, fn, arg);
}

int kube_watch_new(struct kube *k, const struct kube_watch_spec *s,
		   const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	return ops_of(k)->watch_new(k, s, ops, arg, ret);
}

struct kube_watch *kube_watch_free(struct kube_watch *w)
{
	if (w)
		ops_of_watch(w)->watch_free(w);
	return NULL;
}

const json_t *kube_watch_get(const struct kube_watch *w, const char *key)
{
	return ops_of_watch(w)->watch_get(w, key);
}

void kube_watch_each(const struct kube_watch *w,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	ops_of_watch(w)->watch_each(w, fn, arg);
}

bool kube_watch_synced(const struct kube_watch *w)
{
	return ops_of_watch(w)->watch_synced(w);
}

size_t kube_watch_left_out(const struct kube_watch *w)
{
	return ops_of_watch(w)->watch_left_out(w);
}

void kube_watch_each_left_out(const struct kube_watch *w, kube_left_out_fn *fn, void *arg)
{
	ops_of_watch(w)->watch_each_left_out(w, fn, arg);
}
