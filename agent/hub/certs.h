/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certs: the hub's own certificate. The hub makes it at its first start, stores it in a Secret so
 * that it stays the same after a restart, and renews it in time. It publishes the CA in a ConfigMap
 * for the agents. Runs on the loop thread.
 */
#pragma once

#include "lib/kube/kube.h"

/* ---- making certificates: no I/O; the caller owns the PEM texts ---- */
struct cert_pair {
	char *cert_pem, *key_pem;
};
void hub_cert_pair_done(struct cert_pair *c);
int hub_certs_make_ca(const char *common_name, uint64_t now_wall_ns, struct cert_pair *ret);
/* names: DNS names or IP addresses; NULL ends the list. */
int hub_certs_make_server(const struct cert_pair *ca, const char *const *names,
			  uint64_t now_wall_ns,
		      struct cert_pair *ret);
/*
 * Whether the certificate is signed by the CA, belongs to the key in server, has all of names and
 * is valid for another 30 days.
 */
bool hub_certs_usable(const struct cert_pair *server, const char *ca_pem, const char *const *names,
		  uint64_t now_wall_ns);

/* ---- storing and renewing certificates ---- */
struct certs;
struct certs_config {
	const char *ns, *secret, *ca_configmap, *service;
};
/* Called with the first certificate and after every renewal; tls is valid during the call only. */
typedef void certs_ready_fn(struct tls *tls, void *arg);
int hub_certs_new(struct loop *l, struct kube *k, const struct certs_config *c,
		  certs_ready_fn *ready,
	      void *arg, struct certs **ret);
struct certs *hub_certs_free(struct certs *c);
/* The problem with the certificate, for /healthz; "" if there is none. */
const char *hub_certs_problem(const struct certs *c);
