/* SPDX-License-Identifier: Apache-2.0 */
/* Private to ingest/: of what a sender may speak. */
#pragma once

#include "hub/ingest/ingest.h"

/* Why the hub leaves out a profile of a batch that it stores. */
enum refusal { REFUSAL_NOT_AN_AGENT, REFUSAL_ANOTHER_NODE, REFUSAL_NO_HOSTS, _REFUSAL_MAX };
struct ingest_verdict {
	int status;	    /* 200: the batch may be stored */
	const char *reason; /* a word for programs, a constant; NULL: none */
	char message[800];
	/* see ingest_verdict_count() */
	size_t n_refused[_REFUSAL_MAX], n_unverified;
};
void ingest_verdict(struct ingest_verdict *v, int status, const char *reason, const char *fmt, ...)
	_printf_(4, 5);
/*
 * Counts the profiles that were refused or could not be verified, if the others are stored: the
 * status is 200. A sender sends a batch with another status again, and no profile counts twice. To
 * be called once, when the request ends.
 */
void ingest_verdict_count(const struct ingest_verdict *v);
/*
 * Judges a batch of a sender: its node, its cluster, and whether it may speak of hosts. Any thread.
 * If the status is 200, it has changed the batch: it names the sender's cluster, has lost profiles
 * that the hub refuses (they are counted as skipped), and those that the hub, or the hub of the
 * other cluster, could not verify have TAG_UNVERIFIED.
 */
void ingest_judge(const struct ingest_config *c, const struct ingest_sender *s, struct batch *b,
		  struct ingest_verdict *ret);
