/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the API server is asked about tokens that it has not accepted lately. Anybody who
 * reaches the hub can make up such tokens. So each peer, and all together, have a credit of tokens
 * that the API server refuses, and a peer leaves as many reviews to others as it has under way. The
 * credit of all is no concern of a peer of which no token was refused for a minute.
 */
#include "hub/api/auth.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_UNDER_WAY	48		     /* such reviews at once, of all peers */
#define PEER_REFUSALS	32		     /* refused tokens of a peer, at once */
#define PEER_REFUSAL_NS (1 * NSEC_PER_SEC)   /* after this time, one more */
#define ALL_REFUSALS	256		     /* of all peers, at once */
#define ALL_REFUSAL_NS	(50 * NSEC_PER_MSEC) /* after this time, one more */
#define LATELY_NS	(60 * NSEC_PER_SEC)  /* after the last refusal is forgiven */
#define MAX_PEERS	4096		     /* peers of which tokens were refused lately */
#define PEER_NAME_BYTES 64

/* A number of refusals, one of which is forgiven after each period of time. */
struct credit {
	uint64_t whole_ns; /* CLOCK_BOOTTIME: when all are forgiven; 0: there were none */
};

struct sign_in_peer {
	char name[PEER_NAME_BYTES];
	unsigned n_open;
	struct credit credit;
	UT_hash_handle hh;
};

struct sign_ins {
	struct sign_in_peer *peers; /* the one that is known longest first */
	unsigned n_open;
	struct credit credit;
};

static bool was_refused_lately(const struct sign_in_peer *p, uint64_t now_ns)
{
	return p->credit.whole_ns && p->credit.whole_ns + LATELY_NS > now_ns;
}

/* Whether n more tokens may be refused. */
static bool has_credit(const struct credit *c, uint64_t now_ns, unsigned n, uint64_t each_ns,
		       unsigned most)
{
	return MAX(c->whole_ns, now_ns) + n * each_ns <= now_ns + most * each_ns;
}

static void charge(struct credit *c, uint64_t each_ns)
{
	c->whole_ns = MAX(c->whole_ns, now_boot_ns()) + each_ns;
}

static int refuse(const char *reason, const char *error, int status, const char **ret_error)
{
	counter_add(counter("sign_ins_refused_total", "reason", reason), 1);
	*ret_error = error;
	return status;
}

/* p NULL: no token of the peer was refused lately. Returns 0, or the status of the refusal. */
static int judge(const struct sign_ins *s, const struct sign_in_peer *p, const char **ret_error)
{
	uint64_t now_ns = now_boot_ns();
	unsigned n_open = p ? p->n_open : 0;

	if (n_open + 1 > MAX_UNDER_WAY - MIN(s->n_open + 1, (unsigned)MAX_UNDER_WAY))
		return refuse(n_open ? "peer_under_way" : "all_under_way",
			      "too many sign-ins are being checked; try again", n_open ? 429 : 503,
			      ret_error);
	if (!p)
		return 0;
	if (!has_credit(&p->credit, now_ns, n_open + 1, PEER_REFUSAL_NS, PEER_REFUSALS))
		return refuse("peer_refused",
			      "too many tokens of this address were refused; try again later", 429,
			      ret_error);
	if (was_refused_lately(p, now_ns) &&
	    !has_credit(&s->credit, now_ns, s->n_open + 1, ALL_REFUSAL_NS, ALL_REFUSALS))
		return refuse("all_refused", "too many tokens were refused; try again later", 429,
			      ret_error);
	return 0;
}

static void forget(struct sign_ins *s, struct sign_in_peer *p)
{
	HASH_DEL(s->peers, p);
	free(p);
}

/* Forgets the peers that were not refused lately; if there is none, the one known longest. */
static void make_room(struct sign_ins *s)
{
	uint64_t now_ns = now_boot_ns();
	struct sign_in_peer *p, *next, *oldest = NULL;

	if (HASH_COUNT(s->peers) < MAX_PEERS)
		return;
	HASH_ITER (hh, s->peers, p, next) {
		if (p->n_open)
			continue;
		if (!was_refused_lately(p, now_ns))
			forget(s, p);
		else if (!oldest)
			oldest = p;
	}
	if (HASH_COUNT(s->peers) >= MAX_PEERS && oldest)
		forget(s, oldest);
}

static struct sign_in_peer *peer_new(struct sign_ins *s, const char *name)
{
	struct sign_in_peer *p;

	make_room(s);
	p = xcalloc(1, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "%s", name);
	HASH_ADD_STR(s->peers, name, p);
	return p;
}

int api_sign_ins_begin(struct sign_ins *s, const char *peer, struct sign_in_peer **ret,
		       const char **ret_error)
{
	char name[PEER_NAME_BYTES];
	struct sign_in_peer *p;
	int status;

	snprintf(name, sizeof(name), "%s", peer);
	HASH_FIND_STR(s->peers, name, p);
	status = judge(s, p, ret_error);
	if (status)
		return status;
	if (!p)
		p = peer_new(s, name);
	p->n_open++;
	s->n_open++;
	*ret = p;
	return 0;
}

void api_sign_ins_end(struct sign_ins *s, struct sign_in_peer *p, bool refused)
{
	if (!p)
		return;
	p->n_open--;
	s->n_open--;
	if (refused) {
		charge(&p->credit, PEER_REFUSAL_NS);
		charge(&s->credit, ALL_REFUSAL_NS);
	} else if (!p->n_open && !was_refused_lately(p, now_boot_ns())) {
		forget(s, p);
	}
}

struct sign_ins *api_sign_ins_new(void)
{
	return xcalloc(1, sizeof(struct sign_ins));
}

struct sign_ins *api_sign_ins_free(struct sign_ins *s)
{
	struct sign_in_peer *p, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->peers, p, next)
		forget(s, p);
	free(s);
	return NULL;
}
