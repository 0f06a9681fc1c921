/* SPDX-License-Identifier: Apache-2.0 */
/* Private to ingest/: of what a sender may speak. */
#pragma once

#include "hub/ingest/ingest.h"

struct ingest_verdict {
	int status;	    /* 200: the batch may be stored */
	const char *reason; /* a word for programs, a constant; NULL: none */
	char message[800];
};
void ingest_verdict(struct ingest_verdict *v, int status, const char *reason, const char *fmt, ...)
	_printf_(4, 5);
/*
 * Judges a batch of a sender: its node, its cluster, and whether it may speak of hosts. Any thread.
 * If the status is 200, it has changed the batch: it names the sender's cluster, has lost profiles
 * that the hub refuses (they are counted as skipped), and those that the hub, or the hub of the
 * other cluster, could not verify have TAG_UNVERIFIED.
 */
void ingest_judge(const struct ingest_config *c, const struct ingest_sender *s, struct batch *b,
		  struct ingest_verdict *ret);
