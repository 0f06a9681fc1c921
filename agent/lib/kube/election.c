/* SPDX-License-Identifier: Apache-2.0 */
/* See election.h. */
#include "lib/kube/election.h"

#include <stdlib.h>

#define MAX_LEASE_NS (300 * NSEC_PER_SEC) /* a Lease that claims more is waited for so long */

const struct election_times kube_election_times = {
	.lease_ns = 15 * NSEC_PER_SEC,
	.deadline_ns = 10 * NSEC_PER_SEC,
	.retry_ns = 2 * NSEC_PER_SEC,
};

void kube_election_init(struct election *e, const char *identity, const struct election_times *t)
{
	*e = (struct election){.times = *t, .identity = xstrdup(identity)};
}

void kube_election_done(struct election *e)
{
	json_decref(e->lease);
	free(e->identity);
	*e = (struct election){0};
}

bool kube_election_leads(const struct election *e, uint64_t now_ns)
{
	return now_ns < e->until_ns;
}

const char *kube_election_holder(const struct election *e)
{
	return json_str_at(e->lease, "spec.holderIdentity", "");
}

static bool is_mine(const struct election *e)
{
	return streq(kube_election_holder(e), e->identity);
}

/* How long others must leave the Lease alone after its last change. */
static uint64_t duration_ns(const struct election *e)
{
	json_int_t s = json_int_at(e->lease, "spec.leaseDurationSeconds", 0);

	return s > 0 ? MIN((uint64_t)s, MAX_LEASE_NS / NSEC_PER_SEC) * NSEC_PER_SEC
		     : e->times.lease_ns;
}

/*
 * Only a change of the spec counts, because only its holder writes that. A change of labels does
 * not prolong the Lease.
 */
static void see(struct election *e, const json_t *lease, uint64_t now_ns)
{
	json_t *copy = json_deep_copy(lease);

	if (!e->lease ||
	    !json_equal(json_object_get(e->lease, "spec"), json_object_get(copy, "spec")))
		e->seen_ns = now_ns;
	json_decref(e->lease);
	e->lease = copy;
}

enum election_step kube_election_begin(struct election *e, uint64_t now_ns)
{
	e->optimistic = kube_election_leads(e, now_ns);
	return e->optimistic ? ELECTION_UPDATE : ELECTION_READ;
}

enum election_step kube_election_read(struct election *e, const json_t *lease, uint64_t now_ns)
{
	if (!lease) {
		json_decref(TAKE_PTR(e->lease));
		return ELECTION_CREATE;
	}
	see(e, lease, now_ns);
	if (*kube_election_holder(e) && !is_mine(e) && now_ns < e->seen_ns + duration_ns(e))
		return ELECTION_WAIT;
	return ELECTION_UPDATE;
}

/* A MicroTime of the Kubernetes API has six digits of a second. */
static json_t *micro_time(uint64_t wall_ns)
{
	char s[32];

	time_format(wall_ns, s);
	return json_sprintf("%.19s.%06uZ", s, (unsigned)(wall_ns % NSEC_PER_SEC / 1000));
}

json_t *kube_election_body(struct election *e, const char *name, uint64_t now_ns,
			   uint64_t now_wall_ns)
{
	const json_t *old = json_object_get(e->lease, "spec");
	json_t *spec =
		json_pack("{s:s, s:I, s:o}", "holderIdentity", e->identity, "leaseDurationSeconds",
			  (json_int_t)(e->times.lease_ns / NSEC_PER_SEC), "renewTime",
			  micro_time(now_wall_ns));

	e->sent_ns = now_ns;
	if (!is_mine(e)) { /* a PATCH keeps what it does not name */
		json_object_set_new(spec, "acquireTime", micro_time(now_wall_ns));
		json_object_set_new(
			spec, "leaseTransitions",
			json_integer(json_int_at(old, "leaseTransitions", 0) + (e->lease != NULL)));
	}
	if (!e->lease)
		return json_pack("{s:s, s:s, s:{s:s}, s:o}", "apiVersion", "coordination.k8s.io/v1",
				 "kind", "Lease", "metadata", "name", name, "spec", spec);
	return json_pack("{s:{s:s}, s:o}", "metadata", "resourceVersion",
			 json_str_at(e->lease, "metadata.resourceVersion", ""), "spec", spec);
}

void kube_election_wrote(struct election *e, const json_t *lease, uint64_t now_ns)
{
	see(e, lease, now_ns);
	/* from when it was sent: the others count from when the API server has had it, or later */
	e->until_ns = is_mine(e) ? e->sent_ns + e->times.deadline_ns : 0;
}

enum election_step kube_election_failed(struct election *e)
{
	bool again = e->optimistic;

	e->optimistic = false;
	return again ? ELECTION_READ : ELECTION_WAIT;
}

json_t *kube_election_resign(struct election *e, uint64_t now_wall_ns)
{
	e->until_ns = 0;
	if (!is_mine(e))
		return NULL;
	return json_pack("{s:{s:s}, s:{s:s, s:i, s:o}}", "metadata", "resourceVersion",
			 json_str_at(e->lease, "metadata.resourceVersion", ""), "spec",
			 "holderIdentity", "", "leaseDurationSeconds", 1, "renewTime",
			 micro_time(now_wall_ns));
}
