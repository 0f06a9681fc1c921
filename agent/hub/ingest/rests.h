/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rests: senders that leave the writer to others for a while. The time of a body's write is not
 * known before, and a write cannot be interrupted. So a sender whose body made others wait leaves
 * them the writer for as long as that body took. Loop thread; all times are CLOCK_MONOTONIC.
 */
#pragma once

#include "lib/base/base.h"

struct ingest_rest;
struct ingest_rests {
	struct ingest_rest *by_sender;
};
/* The sender's body took so long, and others waited. */
void ingest_rests_begin(struct ingest_rests *r, const char *sender, uint64_t took_ns,
			uint64_t now_ns);
bool ingest_rests_has(const struct ingest_rests *r, const char *sender, uint64_t now_ns);
/* Forgets those that are over. Returns when the next one will be; 0: nobody rests. */
uint64_t ingest_rests_next_ns(struct ingest_rests *r, uint64_t now_ns);
void ingest_rests_done(struct ingest_rests *r);
