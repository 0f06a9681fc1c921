// SPDX-License-Identifier: Apache-2.0
/*
 * Names to addresses. getaddrinfo may wait on the network for many seconds, so it
 * runs on a thread of its own.
 */
#include <stdlib.h>

#include "lib/loop/conn.h"

/* Belongs to the resolver's thread while it runs; fn is NULL once nobody waits. */
struct lookup {
	struct job job;
	resolve_fn *fn;
	void *arg;
	char *name, port[8];
	struct addrinfo *found;
	int r;
};

static void lookup_run(struct job *j)
{
	struct lookup *k = (struct lookup *)j;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};

	k->r = getaddrinfo(k->name, k->port, &hints, &k->found);
}

static void lookup_free(struct lookup *k)
{
	if (k->found)
		freeaddrinfo(k->found);
	free(k->name);
	free(k);
}

static void lookup_done(struct job *j)
{
	struct lookup *k = (struct lookup *)j;

	if (k->fn)
		k->fn(k->r == 0 ? TAKE_PTR(k->found) : NULL, k->r ? gai_strerror(k->r) : NULL,
		      k->arg);
	lookup_free(k);
}

int resolve(struct loop *l, const char *name, uint16_t port, resolve_fn *fn, void *arg,
	    struct addrinfo **ret_now, struct lookup **ret_wait)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	struct lookup *k = xcalloc(1, sizeof(*k));
	struct worker *w;
	int r;

	k->job = (struct job){.run = lookup_run, .done = lookup_done, .n_bytes = sizeof(*k)};
	k->fn = fn;
	k->arg = arg;
	k->name = xstrdup(name);
	snprintf(k->port, sizeof(k->port), "%u", port);
	if (getaddrinfo(k->name, k->port, &hints, ret_now) == 0) {
		lookup_free(k);
		return 0;
	}
	r = loop_resolver(l, &w);
	if (r == 0)
		r = worker_post(w, &k->job);
	if (r < 0)
		lookup_free(k);
	else
		*ret_wait = k;
	return r;
}

void resolve_cancel(struct lookup *k)
{
	if (k)
		k->fn = NULL;
}
