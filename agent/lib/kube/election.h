/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/kube: which of several processes leads, decided as in client-go
 * (k8s.io/client-go/tools/leaderelection, July 2026) by a Lease of coordination.k8s.io/v1. A pure
 * state machine: the caller sends the requests that it asks for, and passes their answers and the
 * time.
 *
 * All times are CLOCK_BOOTTIME of this process: when it first saw the Lease as it is now, and when
 * it began to send its last renewal. It never compares the times in the Lease, which are for
 * people. So the clocks of two processes may show any times, but none may go faster than the other
 * by half: the leader gives up after 10 s without a renewal, and the others wait 15 s.
 */
#pragma once

#include "lib/base/base.h"

struct election_times {
	uint64_t lease_ns;    /* the others wait this long after the Lease's last change */
	uint64_t deadline_ns; /* the leader leads this long after its last renewal */
	uint64_t retry_ns;    /* between two renewals, or two looks of another process */
};
extern const struct election_times kube_election_times; /* those of client-go */

struct election {
	struct election_times times;
	char *identity;	   /* of this process; no other process ever has the same */
	json_t *lease;	   /* the object as it was last seen; NULL: none was seen */
	uint64_t seen_ns;  /* when its spec was first seen so */
	uint64_t sent_ns;  /* when the caller began to send the last write */
	uint64_t until_ns; /* this process leads until then; 0: it does not */
	bool optimistic;   /* the write renews what was seen before, without a read */
};
enum election_step {
	ELECTION_WAIT,	 /* nothing, until the next try */
	ELECTION_READ,	 /* GET, then kube_election_read() or kube_election_failed() */
	ELECTION_CREATE, /* POST of kube_election_body(), then kube_election_wrote() or _failed() */
	ELECTION_UPDATE, /* PATCH of kube_election_body(), then the same */
};
void kube_election_init(struct election *e, const char *identity, const struct election_times *t);
void kube_election_done(struct election *e);
/* Begins a try: one every retry_ns. */
enum election_step kube_election_begin(struct election *e, uint64_t now_ns);
/* The answer to a read. lease: borrowed; NULL: it does not exist. */
enum election_step kube_election_read(struct election *e, const json_t *lease, uint64_t now_ns);
/* What to write. The caller owns the result, and sends it at once. */
json_t *kube_election_body(struct election *e, const char *name, uint64_t now_ns,
			   uint64_t now_wall_ns);
/* The write was accepted. lease: the object in the answer, borrowed. */
void kube_election_wrote(struct election *e, const json_t *lease, uint64_t now_ns);
/* The request failed, was refused (409: another has written), or was given up. */
enum election_step kube_election_failed(struct election *e);
/* Whether this process may act as the leader now. */
bool kube_election_leads(const struct election *e, uint64_t now_ns);
/* Who leads, as far as this process knows; "": nobody. Borrowed. */
const char *kube_election_holder(const struct election *e);
/*
 * This process leads no longer. Returns the body that gives the Lease up, so that another need not
 * wait for its end; the caller owns it. NULL: the Lease is not this process's.
 */
json_t *kube_election_resign(struct election *e, uint64_t now_wall_ns);
