/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kube that changes objects only while its owner may, and asks another kube for all. Loop thread.
 * A request waits for its connection, and the process may be stopped meanwhile. So the fence is
 * asked twice: when the request is made, and when its bytes are sent.
 */
#include <stdlib.h>

#include "lib/kube/kube_private.h"

struct kube_fence {
	bool (*holds)(void *arg); /* NULL: its owner has ended */
	void *arg;
	unsigned n_refs;
};
struct kube_fenced {
	struct kube_base base;
	struct kube *to;
	struct kube_fence *fence;
};

bool kube_fence_holds(const struct kube_fence *f)
{
	return f->holds && f->holds(f->arg);
}

struct kube_fence *kube_fence_ref(struct kube_fence *f)
{
	f->n_refs++;
	return f;
}

struct kube_fence *kube_fence_unref(struct kube_fence *f)
{
	if (f && !--f->n_refs)
		free(f);
	return NULL;
}

static int fenced_request(struct kube *k, const char *method, const char *path,
			  const char *content_type, const json_t *body, kube_done_fn *fn, void *arg)
{
	const struct kube_fenced *f = (const struct kube_fenced *)k;
	const struct kube_ops *ops = ((const struct kube_base *)f->to)->ops;

	if (streq(method, "GET"))
		return kube_request(f->to, method, path, content_type, body, fn, arg);
	if (!kube_fence_holds(f->fence))
		return -EPERM;
	if (!ops->request_within)
		return kube_request(f->to, method, path, content_type, body, fn, arg);
	return ops->request_within(f->to, f->fence, method, path, content_type, body, fn, arg);
}

static int fenced_watch_new(struct kube *k, const struct kube_watch_spec *s,
			    const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	return kube_watch_new(((struct kube_fenced *)k)->to, s, ops, arg, ret);
}

/* The other functions are those of a watch, which belongs to the other kube. */
static const struct kube_ops fenced_ops = {.request = fenced_request,
					   .watch_new = fenced_watch_new};

struct kube *kube_fenced_new(struct kube *to, bool (*holds)(void *arg), void *arg)
{
	struct kube_fenced *f = xcalloc(1, sizeof(*f));
	struct kube_fence *fence = xcalloc(1, sizeof(*fence));

	*fence = (struct kube_fence){holds, arg, 1};
	*f = (struct kube_fenced){{&fenced_ops}, to, fence};
	return (struct kube *)f;
}

struct kube *kube_fenced_free(struct kube *k)
{
	struct kube_fenced *f = (struct kube_fenced *)k;

	f->fence->holds = NULL;
	kube_fence_unref(f->fence);
	free(f);
	return NULL;
}
