/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certs: the hub's certificate, which lies in a Secret. The hub makes it, with a CA of its own,
 * stores both so that they stay the same after a restart, and renews them in time. Or somebody else
 * keeps the Secret, and the hub only follows it. In both cases the hub publishes the CA in a
 * ConfigMap for the agents. Runs on the loop thread.
 */
#pragma once

#include "lib/kube/kube.h"

/* ---- making and checking certificates: no I/O; the caller owns the PEM texts ---- */
struct cert_pair {
	char *cert_pem, *key_pem;
};
void hub_cert_pair_done(struct cert_pair *c);
/*
 * names: DNS names or IP addresses; NULL ends the list. The CA is constrained to them: clients
 * accept no certificate of it with another name (RFC 5280, 4.2.1.10). A DNS name stands for the
 * names below it, too.
 */
int hub_certs_make_ca(const char *common_name, const char *const *names, uint64_t now_wall_ns,
		      struct cert_pair *ret);
/* -EINVAL: the CA cannot be read, or names is empty */
int hub_certs_make_server(const struct cert_pair *ca, const char *const *names,
			  uint64_t now_wall_ns, struct cert_pair *ret);
/*
 * Checks as a client does that the certificate has all of names and is valid now, that a
 * certificate of ca_pem has signed it (intermediate ones may follow it in server->cert_pem), and
 * that the key belongs to it. Returns -EINVAL if not; reterr->path is tls.crt, tls.key or ca.crt.
 */
int hub_certs_check(const struct cert_pair *server, const char *ca_pem, const char *const *names,
		    uint64_t now_wall_ns, struct field_error *reterr);
/* Whether hub_certs_check() accepts the certificate, and it and the CA last another 30 days. */
bool hub_certs_usable(const struct cert_pair *server, const char *ca_pem, const char *const *names,
		      uint64_t now_wall_ns);

struct cert_facts {
	bool constrained;	/* a CA to some names */
	int64_t made_s, ends_s; /* in seconds since 1970 */
};
/* Reads the first certificate of a text. */
int hub_certs_facts(const char *pem, struct cert_facts *ret);

/* ---- renewing them ---- */

/*
 * What the Secret has. Texts may be empty or NULL. The agents trust ca and next; ca has signed the
 * server's certificate. next takes over when the agents have had time to learn of it.
 */
struct cert_set {
	struct cert_pair ca, next, server;
};
void hub_cert_set_done(struct cert_set *s);
/*
 * Makes what is missing in s or ends soon. The CA gets a successor a year before it ends, if it is
 * not constrained, or if it may not sign for all of names. The successor takes over after 30 days;
 * after ten minutes if the certificate lacks some of names until then; at once if clients would
 * accept no certificate for names[0] before. Meanwhile the certificate has those names for which
 * the CA may sign. After a failure s is good for hub_cert_set_done() only.
 */
int hub_certs_renew(struct cert_set *s, const char *const *names, uint64_t now_wall_ns,
		    bool *ret_changed);
/* The certificates that agents are to trust, as one text. The caller owns it. */
char *hub_certs_trusted(const struct cert_set *s);
/* When next takes over at the latest, in seconds since 1970; 0: there is no next. */
int64_t hub_certs_next_s(const struct cert_set *s);

/* ---- storing and publishing them ---- */
struct certs;
struct certs_config {
	const char *ns, *secret, *ca_configmap, *service;
	const char *public_name; /* one more name in the certificate; "": none */
	/*
	 * true: others write tls.crt, tls.key and ca.crt of the Secret, and the hub only reads it,
	 * once a minute
	 */
	bool brought;
	/*
	 * Whether this hub leads: of several hubs, only the one that leads makes certificates and
	 * publishes the CA. The others read the Secret once a minute. NULL: this hub is the only
	 * one
	 */
	bool (*leads)(void *arg);
	void *leads_arg;
};
/* Called with the first certificate and after every renewal; tls is valid during the call only. */
typedef void certs_ready_fn(struct tls *tls, void *arg);
/* k: for a hub that may lose the lead, a kube that does not write then (kube_lease_writer) */
int hub_certs_new(struct loop *l, struct kube *k, const struct certs_config *c,
		  certs_ready_fn *ready, void *arg, struct certs **ret);
struct certs *hub_certs_free(struct certs *c);
/* The problem with the certificate, for /healthz; "" if there is none. */
const char *hub_certs_problem(const struct certs *c);
