/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/ingest/rests.h"

#include <stdlib.h>
#include <uthash.h>

#define REST_MAX_NS (60 * NSEC_PER_SEC)
#define RESTS_MAX   4096 /* senders; further ones do not rest */

struct ingest_rest {
	uint64_t until_ns;
	UT_hash_handle hh;
	char sender[];
};

static struct ingest_rest *find(const struct ingest_rests *r, const char *sender)
{
	struct ingest_rest *x;

	HASH_FIND_STR(r->by_sender, sender, x);
	return x;
}

void ingest_rests_begin(struct ingest_rests *r, const char *sender, uint64_t took_ns,
			uint64_t now_ns)
{
	struct ingest_rest *x = find(r, sender);
	size_t n = strlen(sender) + 1;

	if (!x) {
		if (HASH_COUNT(r->by_sender) == RESTS_MAX)
			return;
		x = xcalloc(1, sizeof(*x) + n);
		memcpy(x->sender, sender, n);
		HASH_ADD_STR(r->by_sender, sender, x);
	}
	x->until_ns = now_ns + MIN(took_ns, REST_MAX_NS);
}

bool ingest_rests_has(const struct ingest_rests *r, const char *sender, uint64_t now_ns)
{
	const struct ingest_rest *x = find(r, sender);

	return x && now_ns < x->until_ns;
}

uint64_t ingest_rests_next_ns(struct ingest_rests *r, uint64_t now_ns)
{
	struct ingest_rest *x, *next;
	uint64_t first_ns = 0;

	HASH_ITER (hh, r->by_sender, x, next) {
		if (now_ns < x->until_ns) {
			first_ns = first_ns ? MIN(first_ns, x->until_ns) : x->until_ns;
			continue;
		}
		HASH_DEL(r->by_sender, x);
		free(x);
	}
	return first_ns;
}

void ingest_rests_done(struct ingest_rests *r)
{
	(void)ingest_rests_next_ns(r, UINT64_MAX);
}
