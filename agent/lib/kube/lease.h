/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease: elects one of several processes by a Lease of the Kubernetes API, as client-go does, and
 * lets only that one write. Loop thread.
 */
#pragma once

#include "lib/kube/kube.h"

struct kube_lease;
struct kube_lease_config {
	const char *ns, *name; /* of the Lease. If it does not exist, the process makes it */
	const char *identity;  /* of this process; no other process may ever have the same */
	/* Called when this process begins to lead, and when it leads no longer. */
	void (*changed)(bool leads, void *arg);
	void *arg;
};
/* k must outlive the lease. */
int kube_lease_new(struct loop *l, struct kube *k, const struct kube_lease_config *c,
		   struct kube_lease **ret);
/* Does not give the Lease up: kube_lease_resign() does. */
struct kube_lease *kube_lease_free(struct kube_lease *l);
/*
 * Whether this process leads at this moment. A process that was stopped for a while learns here
 * that its time is over, before it has heard of anything.
 */
bool kube_lease_is_held(const struct kube_lease *l);
/*
 * As kube_lease_is_held(), for any thread. 0: this process does not lead at this moment. Else a
 * number of its lead: if it was lost, and another process led, it is another one.
 */
uint64_t kube_lease_term(const struct kube_lease *l);
/*
 * Returns a kube for what only the leader writes (borrowed). It refuses each request but GET, with
 * -EPERM, while this process does not lead, and checks that once more when the request's bytes go
 * to the connection: then on_done gets the status 0. Watches and GET work as with k.
 */
struct kube *kube_lease_writer(struct kube_lease *l);
/* Who leads, as far as this process knows; "": nobody. Borrowed. */
const char *kube_lease_holder(const struct kube_lease *l);
/* Why the Lease cannot be read or written; "": it can. */
const char *kube_lease_problem(const struct kube_lease *l);
/*
 * This process leads no longer, and tries no more. Another one need not wait for the Lease's end.
 * done is called once, now or later: when the API server has answered, or after some seconds.
 */
void kube_lease_resign(struct kube_lease *l, void (*done)(void *arg), void *arg);
