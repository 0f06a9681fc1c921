/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leader: whether this hub does what of several hubs only one may do: write the status of targets,
 * delete reports, make the certificate, delete old profiles. Loop thread.
 */
#pragma once

#include "lib/kube/kube.h"

struct leader;
/* lease: name of the Lease in ns, by which the hubs elect one; "": this hub is the only one. */
struct leader *hub_leader_new(struct loop *l, struct kube *k, const char *ns, const char *lease);
struct leader *hub_leader_free(struct leader *e);
/* leader: struct leader *. It may be NULL: there is no Kubernetes, and no other hub. */
bool hub_leader_leads(void *leader);
/* Any thread; otherwise as kube_lease_term(). leader: as above. */
uint64_t hub_leader_term(void *leader);
/* Whether there may be other hubs. */
bool hub_leader_is_elected(const struct leader *e);
/* A kube for what the leader writes: it sends no write when this hub does not lead. Borrowed. */
struct kube *hub_leader_writer(struct leader *e);
/* The problem with the Lease, for /healthz; "" if there is none. Borrowed. */
const char *hub_leader_problem(const struct leader *e);
/* As kube_lease_resign(). done is called at once if there is no Lease. */
void hub_leader_resign(struct leader *e, void (*done)(void *arg), void *arg);
