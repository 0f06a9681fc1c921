/* SPDX-License-Identifier: Apache-2.0 */
/* See leader.h. */
#include "hub/leader.h"

#include "lib/kube/lease.h"

#include <stdlib.h>
#include <unistd.h>

struct leader {
	struct kube *kube;
	struct kube_lease *lease; /* NULL: this hub is the only one */
	bool resigns;
};

static void tell_metric(bool leads)
{
	counter_set(counter("podflame_leader", NULL, NULL), leads);
}

static void changed(bool leads, void *arg)
{
	const struct leader *e = arg;

	tell_metric(leads);
	if (leads)
		log_info("this hub leads: it writes the status of targets and the certificate");
	else if (e->resigns)
		log_info("this hub gives up the lead, because it ends");
	else
		log_warn("this hub leads no longer%s%s", *kube_lease_problem(e->lease) ? ": " : "",
			 kube_lease_problem(e->lease));
}

/*
 * Two processes of one pod never run at once, but a host may run several hubs: so the name is not
 * enough.
 */
static char *make_identity(void)
{
	const char *pod = getenv("POD_NAME");
	char host[65] = "";
	uint64_t nr;

	gethostname(host, sizeof(host) - 1);
	random_bytes(&nr, sizeof(nr));
	return xasprintf("%s_%016llx", pod ?: host, (unsigned long long)nr);
}

struct leader *hub_leader_new(struct loop *l, struct kube *k, const char *ns, const char *lease)
{
	struct leader *e = xcalloc(1, sizeof(*e));
	_cleanup_free_ char *identity = make_identity();
	const struct kube_lease_config c = {ns, lease, identity, changed, e};

	e->kube = k;
	tell_metric(!*lease);
	if (*lease)
		kube_lease_new(l, k, &c, &e->lease);
	return e;
}

struct leader *hub_leader_free(struct leader *e)
{
	if (e)
		kube_lease_free(e->lease);
	free(e);
	return NULL;
}

bool hub_leader_leads(void *leader)
{
	const struct leader *e = leader;

	return !e || !e->lease || kube_lease_is_held(e->lease);
}

uint64_t hub_leader_term(void *leader)
{
	const struct leader *e = leader;

	return hub_leader_is_elected(e) ? kube_lease_term(e->lease) : 1;
}

bool hub_leader_is_elected(const struct leader *e)
{
	return e && e->lease;
}

struct kube *hub_leader_writer(struct leader *e)
{
	return e->lease ? kube_lease_writer(e->lease) : e->kube;
}

const char *hub_leader_problem(const struct leader *e)
{
	return hub_leader_is_elected(e) ? kube_lease_problem(e->lease) : "";
}

void hub_leader_resign(struct leader *e, void (*done)(void *arg), void *arg)
{
	if (!hub_leader_is_elected(e)) {
		done(arg);
		return;
	}
	e->resigns = true;
	kube_lease_resign(e->lease, done, arg);
}
