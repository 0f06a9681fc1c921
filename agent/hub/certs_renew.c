/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when the hub's certificate and its CA get successors. A new CA is published for a while
 * before it signs, so that no agent meets a certificate that it does not trust.
 */
#include "hub/certs.h"

#include <stdlib.h>

#define DAY_S	   86400
#define CA_RENEW_S (365 * DAY_S)
#define OVERLAP_S  (30 * DAY_S)
/* kubelets bring a changed ConfigMap into pods within about two minutes */
#define SHORT_OVERLAP_S 600
#define CA_NAME		"podflame hub CA"

void hub_cert_set_done(struct cert_set *s)
{
	hub_cert_pair_done(&s->ca);
	hub_cert_pair_done(&s->next);
	hub_cert_pair_done(&s->server);
}

static bool is_set(const char *pem)
{
	return pem && *pem;
}

/* Whether clients accept the certificates that the CA signs for these names. */
static bool signs_for(const struct cert_pair *ca, const char *const *names, uint64_t now_ns)
{
	_cleanup_(hub_cert_pair_done) struct cert_pair made = {0};

	return is_set(ca->cert_pem) && is_set(ca->key_pem) &&
	       !hub_certs_make_server(ca, names, now_ns, &made) &&
	       hub_certs_usable(&made, ca->cert_pem, names, now_ns);
}

/* Whether the CA is constrained, and far from its end. */
static bool lasts(const struct cert_pair *ca, uint64_t now_ns)
{
	struct cert_facts f;

	return !hub_certs_facts(ca->cert_pem, &f) && f.constrained &&
	       f.ends_s - (int64_t)(now_ns / NSEC_PER_SEC) > CA_RENEW_S;
}

/* Makes next, unless the Secret has a good one. */
static int prepare_next(struct cert_set *s, const char *const *names, uint64_t now_ns,
			bool *changed)
{
	if (is_set(s->next.cert_pem) && lasts(&s->next, now_ns) &&
	    signs_for(&s->next, names, now_ns))
		return 0;
	hub_cert_pair_done(&s->next);
	*changed = true;
	return hub_certs_make_ca(CA_NAME, names, now_ns, &s->next);
}

/* How long next must have been published before it takes over. */
static int64_t overlap_s(const struct cert_set *s, const char *const *names, uint64_t now_ns)
{
	const char *const first[] = {names[0], NULL};

	if (signs_for(&s->ca, names, now_ns))
		return OVERLAP_S;
	if (signs_for(&s->ca, first, now_ns) ||
	    hub_certs_usable(&s->server, s->ca.cert_pem, first, now_ns))
		return SHORT_OVERLAP_S;
	return 0;
}

static bool is_due(const struct cert_set *s, const char *const *names, uint64_t now_ns)
{
	struct cert_facts f;

	return !hub_certs_facts(s->next.cert_pem, &f) &&
	       (int64_t)(now_ns / NSEC_PER_SEC) - f.made_s >= overlap_s(s, names, now_ns);
}

static void promote_next(struct cert_set *s)
{
	hub_cert_pair_done(&s->ca);
	s->ca = s->next;
	s->next = (struct cert_pair){0};
}

/* Makes the certificate anew, for those names for which the CA may sign. */
static int renew_server(struct cert_set *s, const char *const *names, uint64_t now_ns,
			bool *changed)
{
	_cleanup_free_ const char **may = NULL;
	size_t n = 0;

	while (names[n])
		n++;
	may = xcalloc(n + 1, sizeof(*may));
	n = 0;
	for (; *names; names++) {
		const char *const one[] = {*names, NULL};

		if (signs_for(&s->ca, one, now_ns))
			may[n++] = *names;
	}
	/* a CA that cannot sign any more stays while its certificate is good */
	if (n == 0 || hub_certs_usable(&s->server, s->ca.cert_pem, may, now_ns))
		return 0;
	hub_cert_pair_done(&s->server);
	*changed = true;
	return hub_certs_make_server(&s->ca, may, now_ns, &s->server);
}

int hub_certs_renew(struct cert_set *s, const char *const *names, uint64_t now_wall_ns,
		    bool *ret_changed)
{
	bool changed = false;
	int r = 0;

	if (signs_for(&s->ca, names, now_wall_ns) && lasts(&s->ca, now_wall_ns)) {
		changed = is_set(s->next.cert_pem);
		hub_cert_pair_done(&s->next);
	} else {
		r = prepare_next(s, names, now_wall_ns, &changed);
		if (!r && is_due(s, names, now_wall_ns)) {
			promote_next(s);
			changed = true;
		}
	}
	if (!r)
		r = renew_server(s, names, now_wall_ns, &changed);
	if (!r)
		*ret_changed = changed;
	return r;
}

char *hub_certs_trusted(const struct cert_set *s)
{
	return xasprintf("%s%s", s->ca.cert_pem ?: "", s->next.cert_pem ?: "");
}

int64_t hub_certs_next_s(const struct cert_set *s)
{
	struct cert_facts f;

	if (!is_set(s->next.cert_pem) || hub_certs_facts(s->next.cert_pem, &f))
		return 0;
	return f.made_s + OVERLAP_S;
}
