/* SPDX-License-Identifier: Apache-2.0 */
/* Sends what election.c asks for, one request at a time. Loop thread. */
#include "lib/kube/lease.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "lib/kube/election.h"
#include "lib/kube/kube_private.h"

#define LEASES "/apis/coordination.k8s.io/v1/namespaces/"
/*
 * After this time a request counts as failed, and the next one opens another connection. So a
 * leader whose connection hangs tries once more before its time is over.
 */
#define PATIENCE_NS (4 * NSEC_PER_SEC)

struct lease_request {		  /* may stay after the lease is freed */
	struct kube_lease *lease; /* NULL: nobody waits for the answer */
	enum election_step step;
};

struct kube_lease {
	struct loop *loop;
	struct kube *kube, *writer;
	struct election election;
	char *name, *all, *path;
	void (*changed)(bool leads, void *arg);
	void *arg;
	bool told;			 /* what changed() got last */
	_Atomic uint64_t term, until_ns; /* for kube_lease_term(); until_ns 0: it does not lead */
	struct timer retry, patience, end;
	struct lease_request *request; /* under way; NULL: none is */
	bool resigns;
	void (*resigned)(void *arg);
	void *resigned_arg;
	char problem[256];
};

bool kube_lease_is_held(const struct kube_lease *l)
{
	return !l->resigns && kube_election_leads(&l->election, now_boot_ns());
}

/* The end before the number: if another lead begins between, the number is that one's. */
uint64_t kube_lease_term(const struct kube_lease *l)
{
	return now_boot_ns() < atomic_load(&l->until_ns) ? atomic_load(&l->term) : 0;
}

const char *kube_lease_holder(const struct kube_lease *l)
{
	return kube_election_holder(&l->election);
}

const char *kube_lease_problem(const struct kube_lease *l)
{
	return l->problem;
}

/* Reports whether this process leads, now and when its time is over. */
static void look(void *arg)
{
	struct kube_lease *l = arg;
	uint64_t now_ns = now_boot_ns(), until_ns = l->election.until_ns;
	bool leads = kube_lease_is_held(l);

	timer_cancel(&l->end);
	if (leads && !l->told)
		atomic_fetch_add(&l->term, 1);
	atomic_store(&l->until_ns, leads ? until_ns : 0);
	if (leads)
		timer_set(l->loop, &l->end, until_ns - MIN(now_ns, until_ns), look, l);
	if (leads == l->told)
		return;
	l->told = leads;
	l->changed(leads, l->arg);
}

/* ---- requests ---- */

static void do_step(struct kube_lease *l, enum election_step step);

static void set_problem(struct kube_lease *l, const char *error)
{
	snprintf(l->problem, sizeof(l->problem), "Lease %s: %s", l->name,
		 error ?: "the answer has no object");
}

/* Nobody waits for the answer to the request any more. */
static void abandon(struct kube_lease *l)
{
	timer_cancel(&l->patience);
	if (l->request)
		l->request->lease = NULL;
	l->request = NULL;
}

static void end_resigning(struct kube_lease *l)
{
	void (*done)(void *arg) = TAKE_PTR(l->resigned);

	abandon(l);
	if (done)
		done(l->resigned_arg);
}

static void next(struct kube_lease *l, enum election_step step)
{
	look(l);
	do_step(l, step);
}

/* What the answer means, and what comes next. lease: the object in it; NULL: there is none. */
static enum election_step judge(struct kube_lease *l, enum election_step step, int status,
				const json_t *lease, const char *error)
{
	struct election *e = &l->election;
	enum election_step then = ELECTION_WAIT;

	if (step == ELECTION_READ && status == 404)
		return kube_election_read(e, NULL, now_boot_ns());
	if (!lease) {
		if (status != 409)
			set_problem(l, error);
		return kube_election_failed(e);
	}
	if (step == ELECTION_READ)
		then = kube_election_read(e, lease, now_boot_ns());
	else
		kube_election_wrote(e, lease, now_boot_ns());
	if (then == ELECTION_WAIT)
		l->problem[0] = '\0';
	return then;
}

static void answered(int status, const json_t *body, const char *error, void *arg)
{
	_cleanup_free_ struct lease_request *q = arg;
	struct kube_lease *l = q->lease;
	const json_t *lease = status / 100 == 2 && json_is_object(body) ? body : NULL;

	if (!l)
		return;
	abandon(l);
	if (!l->resigns) {
		next(l, judge(l, q->step, status, lease, error));
		return;
	}
	if (q->step == ELECTION_READ && lease) {
		kube_election_read(&l->election, lease, now_boot_ns());
		do_step(l, ELECTION_UPDATE);
	} else {
		end_resigning(l);
	}
}

static void give_up(void *arg)
{
	struct kube_lease *l = arg;

	abandon(l);
	if (l->resigns) {
		end_resigning(l);
		return;
	}
	set_problem(l, "no answer in time");
	next(l, kube_election_failed(&l->election));
}

/* body: stolen; NULL: none */
static void send_request(struct kube_lease *l, enum election_step step, json_t *body)
{
	_cleanup_json_ json_t *owned = body;
	struct lease_request *q = xcalloc(1, sizeof(*q));
	const char *method = step == ELECTION_READ     ? "GET"
			     : step == ELECTION_CREATE ? "POST"
						       : "PATCH";
	const char *type = step == ELECTION_UPDATE ? "application/merge-patch+json" : NULL;
	int r;

	*q = (struct lease_request){l, step};
	l->request = q;
	timer_set(l->loop, &l->patience, PATIENCE_NS, give_up, l);
	r = kube_request(l->kube, method, step == ELECTION_CREATE ? l->all : l->path, type, owned,
			 answered, q);
	if (r < 0)
		answered(0, NULL, strerror(-r), q);
}

/* ---- tries ---- */

static void begin(void *arg)
{
	struct kube_lease *l = arg;

	next(l, kube_election_begin(&l->election, now_boot_ns()));
}

/* Processes that do not lead look at different times, as in client-go. */
static void try_later(struct kube_lease *l)
{
	uint64_t retry_ns = l->election.times.retry_ns,
		 more_ns = kube_lease_is_held(l) ? 0 : random_below(retry_ns * 6 / 5);

	timer_set(l->loop, &l->retry, retry_ns + more_ns, begin, l);
}

static void do_step(struct kube_lease *l, enum election_step step)
{
	json_t *body = NULL;

	if (step == ELECTION_WAIT) {
		try_later(l);
		return;
	}
	if (step != ELECTION_READ && !l->resigns)
		body = kube_election_body(&l->election, l->name, now_boot_ns(), now_wall_ns());
	else if (step != ELECTION_READ)
		body = kube_election_resign(&l->election, now_wall_ns());
	if (step != ELECTION_READ && !body) /* another process has the Lease already */
		end_resigning(l);
	else
		send_request(l, step, body);
}

void kube_lease_resign(struct kube_lease *l, void (*done)(void *arg), void *arg)
{
	bool may_have_it = l->request || streq(kube_lease_holder(l), l->election.identity);

	l->resigns = true;
	l->resigned = done;
	l->resigned_arg = arg;
	timer_cancel(&l->retry);
	abandon(l);
	look(l);
	/* a renewal may be under way, so the Lease is read first */
	if (may_have_it)
		do_step(l, ELECTION_READ);
	else
		end_resigning(l);
}

/* ---- start and end ---- */

static bool holds(void *arg)
{
	return kube_lease_is_held(arg);
}

struct kube *kube_lease_writer(struct kube_lease *l)
{
	return l->writer;
}

int kube_lease_new(struct loop *loop, struct kube *k, const struct kube_lease_config *c,
		   struct kube_lease **ret)
{
	struct kube_lease *l = xcalloc(1, sizeof(*l));

	loop_assert(loop);
	*l = (struct kube_lease){.loop = loop, .kube = k, .changed = c->changed, .arg = c->arg};
	kube_election_init(&l->election, c->identity, &kube_election_times);
	l->name = xstrdup(c->name);
	l->all = xasprintf(LEASES "%s/leases", c->ns);
	l->path = xasprintf("%s/%s", l->all, c->name);
	l->writer = kube_fenced_new(k, holds, l);
	timer_set(loop, &l->retry, 0, begin, l);
	*ret = l;
	return 0;
}

struct kube_lease *kube_lease_free(struct kube_lease *l)
{
	if (!l)
		return NULL;
	abandon(l);
	timer_cancel(&l->retry);
	timer_cancel(&l->end);
	kube_fenced_free(l->writer);
	kube_election_done(&l->election);
	free(l->name);
	free(l->all);
	free(l->path);
	free(l);
	return NULL;
}
