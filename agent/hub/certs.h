/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certs: the hub's own certificate. Made at run time, kept in one named Secret so
 * that restarts and a rescheduled pod keep it, and renewed in time; the CA is
 * published in a ConfigMap for the agents. Loop thread.
 */
#pragma once

#include "lib/kube/kube.h"

/* ---- making them: pure, PEM texts owned by the caller ---- */
struct cert_pair {
	char *cert_pem, *key_pem;
};
void hub_cert_pair_done(struct cert_pair *c);
int hub_certs_make_ca(const char *common_name, uint64_t now_wall_ns, struct cert_pair *ret);
/* names: DNS names or IP addresses, NULL-terminated. */
int hub_certs_make_server(const struct cert_pair *ca, const char *const *names,
			  uint64_t now_wall_ns,
		      struct cert_pair *ret);
/* Whether cert_pem is from ca, fits key_pem, names all of names and holds for another 30 days. */
bool hub_certs_usable(const struct cert_pair *server, const char *ca_pem, const char *const *names,
		  uint64_t now_wall_ns);

/* ---- keeping them ---- */
struct certs;
struct certs_config {
	const char *ns, *secret, *ca_configmap, *service;
};
/* ready is called at first and after every renewal; tls is borrowed during the call. */
typedef void certs_ready_fn(struct tls *tls, void *arg);
int hub_certs_new(struct loop *l, struct kube *k, const struct certs_config *c,
		  certs_ready_fn *ready,
	      void *arg, struct certs **ret);
struct certs *hub_certs_free(struct certs *c);
/* The problem, for /healthz; "" if there is none. */
const char *hub_certs_problem(const struct certs *c);
