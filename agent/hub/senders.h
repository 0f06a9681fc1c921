/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the hub: which senders of profiles it accepts. Agents of its own cluster have a token
 * that the API server knows, and the rights that it gives them. The hubs of registered clusters
 * have a token of theirs.
 */
#pragma once

#include "hub/ingest/ingest.h"
#include "lib/conf/conf.h"
#include "lib/kube/kube.h"

struct senders;
/* Reads the registrations of other clusters; reterr says what is wrong there. */
int hub_senders_new(struct loop *l, struct kube *kube, const struct config *conf,
		    struct senders **ret, struct field_error *reterr);
/* The names of the registered clusters, borrowed. The caller frees the list. */
const char **hub_senders_clusters(const struct senders *s, size_t *ret_n);
/* Senders whose check has not ended get 503. */
struct senders *hub_senders_free(struct senders *s);
ingest_auth_fn hub_senders_auth; /* arg is a struct senders *, here and below */
/*
 * For profiles that programs push: the token is of a service account of the own cluster, which may
 * create profiles.podflame.io in its own namespace.
 */
ingest_auth_fn hub_senders_push_auth;
ingest_rights_fn hub_senders_push_rights;
/*
 * A text for /healthz, which names no cluster, because anybody may read it; "": all is well. The
 * caller frees it. s NULL is allowed.
 */
char *hub_senders_problem(const struct senders *s);
