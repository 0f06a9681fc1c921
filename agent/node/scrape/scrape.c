/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pods that are asked for profiles, their rounds, and what is told of them. A round begins when
 * the pod's last one was an interval ago and the pod can afford it; it ends when each of its
 * answers is stored or lost. So a pod has at most one answer of each profile in memory.
 */
#include "node/scrape/internal.h"

#include "lib/base/shares.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_PODS   256	       /* of a node; each namespace has a share */
#define MAX_BODIES (16u << 20) /* bytes of all answers in memory; each namespace has a share */
#define COPIES	   2	       /* of an answer: itself, and once more in the request to the hub */
#define CONNECT_NS (5 * NSEC_PER_SEC)
#define ANSWER_NS  (10 * NSEC_PER_SEC) /* how long an answer may take, beside its window */
#define SURE_NS	   (10 * NSEC_PER_SEC) /* after a first failure, until the next round */
#define AGAIN_NS   (10 * NSEC_PER_SEC) /* before the next try to reach the hub */
#define MOST_NS	   (60 * NSEC_PER_SEC) /* the same, at most: the pod's next round waits for it */

/* One profile of a round. While it is delivered, it still has the answer. */
struct asked {
	struct pod *pod;
	enum plan_profile profile;
	struct fetch *fetch;
	struct delivery *delivery;
};
struct pod {
	char *uid, *ns, *name, *app;
	struct scrape *scrape;
	uint64_t ns_hash;
	struct plan_scrape wish; /* owns its strings */
	double percent;		 /* limits.overheadPercent */
	bool has_room, alive;
	struct http_client *client; /* NULL: there was no round yet */
	struct asked asked[_PLAN_PROFILE_MAX];
	unsigned n_open;  /* profiles of the round that have not ended */
	uint64_t next_ns; /* when the next round may begin; CLOCK_MONOTONIC */
	uint64_t cost_ns; /* of this round, so far */
	uint64_t used_ns; /* CPU time of its containers, as last known; 0: never */
	uint64_t read_ns; /* when it was read; CLOCK_MONOTONIC */
	struct scrape_budget budget;
	char *failure; /* of the last two whole rounds, or why the pod is not asked; NULL: none */
	/* of this round, or the last one: of the first profile in order that failed; NULL: none */
	char *failed;
	enum plan_profile failed_profile;
	unsigned n_failed; /* rounds in a row in which one failed */
	/* the same, of the first answer that the hub did not take; NULL: it took all */
	char *hub_failure;
	bool was_put_off; /* the round that is due: it costs too much */
	bool late;	  /* that round, or the last one, was put off */
	UT_hash_handle hh;
};

struct scrape {
	struct scrape_config config;
	struct hub_client hub;
	struct pod *pods; /* by uid */
	struct shares shares;
	bool reading; /* CPU times */
	struct scrape_told told;
	bool changed; /* what is told is not what is true */
};

/* ---- what is told ---- */

/* Takes the text; NULL: nothing fails. */
static void set_failure(struct pod *p, char *text)
{
	p->scrape->changed |= !str_equal(p->failure, text);
	free(p->failure);
	p->failure = text;
}

static void set_late(struct pod *p, bool late)
{
	p->scrape->changed |= p->late != late;
	p->late = late;
}

static void add_told(struct scrape_told *t, const struct pod *p, enum reason reason,
		     const char *what)
{
	_cleanup_free_ char *text = xasprintf("pod %s/%s: %s", p->ns, p->name, what);

	for (size_t i = 0; i < p->wish.n_targets; i++)
		scrape_told_add(t, p->wish.target_uids[i], reason, text);
}

static void tell(struct scrape *s)
{
	struct scrape_told now = {0};

	s->changed = false;
	for (const struct pod *p = s->pods; p; p = p->hh.next) {
		if (p->failure)
			add_told(&now, p, REASON_SCRAPE_FAILED, p->failure);
		if (p->late)
			add_told(&now, p, REASON_SCRAPED_LESS,
				 "its program is asked for profiles less often than each interval, "
				 "because this would cost more than limits.overheadPercent of the "
				 "CPU time that the pod uses");
	}
	scrape_told_tell(&s->config, &s->told, &now);
}

/* ---- a round ---- */

static void end_round(struct pod *p)
{
	scrape_budget_pay(&p->budget, p->cost_ns);
	p->n_failed = p->failed ? p->n_failed + 1 : 0;
	if (p->n_failed == 1) /* perhaps the program begins or ends: it is told if it stays so */
		p->next_ns = MIN(p->next_ns, now_mono_ns() + SURE_NS);
	set_failure(p, xstrdup(p->n_failed > 1 ? p->failed : p->hub_failure));
}

static void forget_failures(struct pod *p)
{
	free(TAKE_PTR(p->failed));
	free(TAKE_PTR(p->hub_failure));
}

static void note_failure(const struct asked *a, enum scrape_result result, const char *text)
{
	struct pod *p = a->pod;
	_cleanup_free_ char *path = scrape_path(a->profile, p->wish.interval_ns);
	_cleanup_free_ char *failure = xasprintf("port %u, %s: %s", p->wish.port, path, text);

	if (result == SCRAPE_HUB && !p->hub_failure)
		p->hub_failure = xstrdup(failure);
	if (p->failed && p->failed_profile < a->profile)
		return;
	free(p->failed);
	p->failed = TAKE_PTR(failure);
	p->failed_profile = a->profile;
}

/* A profile of the round has ended. text: what is wrong, if it failed. */
static void end_asked(struct asked *a, enum scrape_result result, const char *text)
{
	struct pod *p = a->pod;

	scrape_count(result, 1);
	if (result != SCRAPE_STORED)
		note_failure(a, result, text);
	a->fetch = scrape_fetch_free(a->fetch);
	a->delivery = NULL;
	if (--p->n_open == 0)
		end_round(p);
}

/* The whole intervals in which nobody was asked because the round waited for the hub. */
static void count_lost(const struct pod *p)
{
	uint64_t now_ns = now_mono_ns();
	uint64_t rounds = now_ns > p->next_ns ? (now_ns - p->next_ns) / p->wish.interval_ns : 0;

	scrape_count(SCRAPE_HUB, rounds * (unsigned)__builtin_popcount(p->wish.profiles));
}

static void delivered(enum scrape_result result, const char *text, void *arg)
{
	struct asked *a = arg;

	if (a->pod->n_open == 1) /* the round ends with it */
		count_lost(a->pod);
	end_asked(a, result, text);
}

static void fetched(struct fetch *f, void *arg)
{
	struct asked *a = arg;
	struct pod *p = a->pod;
	const struct parcel parcel = {a->profile, p->app, p->ns, p->name, f};

	a->fetch = f;
	p->cost_ns += f->cost_ns;
	if (f->result == SCRAPE_STORED) {
		a->delivery = scrape_deliver(&p->scrape->hub, &parcel, delivered, a);
		return;
	}
	end_asked(a, f->result, f->text);
}

static size_t bytes_of(const struct pod *p)
{
	size_t n = 0;

	for (enum plan_profile k = 0; k < _PLAN_PROFILE_MAX; k++)
		n += p->asked[k].fetch ? p->asked[k].fetch->n_bytes : 0;
	return COPIES * n;
}

static bool may_take(size_t n, void *arg)
{
	const struct asked *a = arg;
	size_t all = 0, own = 0;

	for (const struct pod *p = a->pod->scrape->pods; p; p = p->hh.next) {
		size_t of_pod = bytes_of(p);

		all += of_pod;
		own += p->ns_hash == a->pod->ns_hash ? of_pod : 0;
	}
	return shares_have_room(all, own, COPIES * n, MAX_BODIES);
}

static void ask(struct pod *p, enum plan_profile profile)
{
	struct asked *a = &p->asked[profile];
	const struct fetch_config c = {.loop = p->scrape->config.work->loop,
				       .client = p->client,
				       .profile = profile,
				       .interval_ns = p->wish.interval_ns,
				       .answer_ns = ANSWER_NS,
				       .may_take = may_take,
				       .done = fetched,
				       .arg = a};

	*a = (struct asked){.pod = p, .profile = profile};
	p->n_open++;
	if (scrape_fetch(&c, &a->fetch) < 0)
		end_asked(a, SCRAPE_UNREACHABLE, "the request cannot be made");
}

static void begin_round(struct pod *p)
{
	const struct scrape_config *sc = &p->scrape->config;
	const struct http_client_config c = {.address = p->wish.address,
					     .port = p->wish.port,
					     .user_agent = sc->user_agent,
					     .connect_timeout_ns = CONNECT_NS};

	p->next_ns = now_mono_ns() + p->wish.interval_ns;
	p->cost_ns = 0;
	forget_failures(p);
	if (!p->client && http_client_new(sc->work->loop, &c, &p->client) < 0)
		return;
	p->n_open++; /* the round must not end before all are asked */
	for (enum plan_profile k = 0; k < _PLAN_PROFILE_MAX; k++)
		if (p->wish.profiles & 1u << k)
			ask(p, k);
	if (--p->n_open == 0)
		end_round(p);
}

/* ---- what rounds may cost ---- */

static void earn(struct pod *p, uint64_t used_ns)
{
	uint64_t now_ns = now_mono_ns();
	uint64_t spent_ns = scrape_budget_used(p->used_ns, used_ns, now_ns - p->read_ns);

	if (p->read_ns)
		scrape_budget_earn(&p->budget, spent_ns, p->percent);
	p->used_ns = used_ns ?: p->used_ns;
	p->read_ns = now_ns;
}

static void put_off(struct pod *p)
{
	p->next_ns = now_mono_ns() + p->wish.interval_ns;
	p->was_put_off = true;
	scrape_count(SCRAPE_OVER_BUDGET, 1);
	set_late(p, true);
	if (p->failed) /* the next round, which would tell it, may be hours away */
		set_failure(p, xstrdup(p->failed));
}

static void go_on(struct pod *p)
{
	if (!scrape_budget_may(&p->budget)) {
		put_off(p);
		return;
	}
	set_late(p, p->was_put_off);
	p->was_put_off = false;
	begin_round(p);
}

static bool is_due(const struct pod *p, uint64_t now_ns)
{
	return p->has_room && !p->wish.refused && !p->n_open && p->next_ns <= now_ns;
}

static void cpu_is_read(struct cpu_of_pod *pods, size_t n, void *arg)
{
	struct scrape *s = arg;

	s->reading = false;
	for (size_t i = 0; i < n; i++) {
		struct pod *p;

		HASH_FIND_STR(s->pods, pods[i].uid, p);
		if (!p || !is_due(p, p->next_ns)) /* it is gone, or is asked something else */
			continue;
		earn(p, pods[i].used_ns);
		go_on(p);
	}
}

/* Begins the rounds that are due, when the CPU times of their pods are read. */
void scrape_tick(struct scrape *s)
{
	uint64_t now_ns = now_mono_ns();
	struct cpu_of_pod *due;
	size_t n = 0;

	if (s->changed)
		tell(s);
	if (s->reading)
		return;
	due = xcalloc(HASH_COUNT(s->pods) + 1, sizeof(*due));
	for (const struct pod *p = s->pods; p; p = p->hh.next)
		if (is_due(p, now_ns))
			due[n++].uid = xstrdup(p->uid);
	s->reading = n > 0;
	scrape_read_cpu(&s->config, due, n, cpu_is_read, s);
}

/* ---- which pods ---- */

/*
 * Ends what is under way. The round is not paid: it is not known what it has cost. Answers that the
 * hub does not have yet are lost.
 */
static void stop_round(struct pod *p)
{
	for (enum plan_profile k = 0; k < _PLAN_PROFILE_MAX; k++) {
		scrape_count(SCRAPE_DROPPED, p->asked[k].delivery != NULL);
		p->asked[k].delivery = scrape_delivery_free(p->asked[k].delivery);
		p->asked[k].fetch = scrape_fetch_free(p->asked[k].fetch);
	}
	p->client = http_client_free(p->client);
	p->n_open = p->n_failed = 0;
	forget_failures(p);
}

static void forget(struct scrape *s, struct pod *p)
{
	stop_round(p);
	HASH_DEL(s->pods, p);
	if (p->has_room)
		shares_remove(&s->shares, p->ns_hash);
	s->changed |= p->failure || p->late;
	scrape_wish_done(&p->wish);
	free(p->failure);
	free(p->uid);
	free(p->ns);
	free(p->name);
	free(p->app);
	free(p);
}

static const char *tag(const struct tags *t, const char *key)
{
	for (size_t i = 0; i < t->n; i++)
		if (streq(t->items[i].key, key))
			return t->items[i].value;
	return NULL;
}

static struct pod *pod_new(struct scrape *s, const struct plan_pod *of)
{
	struct pod *p = xcalloc(1, sizeof(*p));

	*p = (struct pod){.uid = xstrdup(of->uid),
			  .ns = xstrdup(of->ns),
			  .name = xstrdup(of->name),
			  .app = xstrdup(tag(&of->tags, "pod_group") ?: of->name),
			  .scrape = s,
			  .ns_hash = proc_ns_hash(of->ns)};
	p->has_room = shares_may_add(&s->shares, p->ns_hash, MAX_PODS);
	if (p->has_room)
		shares_add(&s->shares, p->ns_hash);
	HASH_ADD_KEYPTR(hh, s->pods, p->uid, strlen(p->uid), p);
	return p;
}

static double percent_of(const struct plan_pod *pod)
{
	double least = 100;

	for (size_t i = 0; i < pod->n_containers; i++) {
		double percent = pod->containers[i].overhead_percent;

		least = MIN(least, percent > 0 ? percent : PLAN_OVERHEAD_PERCENT);
	}
	return least;
}

/* The pod is asked something else from now on. First rounds do not all begin together. */
static void ask_anew(struct pod *p)
{
	const char *refused = !p->has_room
				      ? "more pods are asked for profiles on its node than the "
					"agent has room for"
				      : p->wish.refused;

	stop_round(p);
	p->next_ns = now_mono_ns() + random_below(MAX(p->wish.interval_ns, (uint64_t)1));
	set_failure(p, xstrdup(refused));
	if (refused)
		scrape_count(p->has_room ? SCRAPE_FORBIDDEN : SCRAPE_TOO_MANY, 1);
}

static void keep(struct scrape *s, const struct plan_pod *of)
{
	struct pod *p;
	bool anew;

	HASH_FIND_STR(s->pods, of->uid, p);
	anew = !p;
	if (!p)
		p = pod_new(s, of);
	anew |= !scrape_wish_is_same(&p->wish, of->scrape);
	s->changed |=
		(p->failure || p->late) && !scrape_wish_has_same_targets(&p->wish, of->scrape);
	scrape_wish_copy(of->scrape, &p->wish);
	p->percent = percent_of(of);
	p->alive = true;
	if (anew)
		ask_anew(p);
}

void scrape_plan(struct scrape *s, const struct plan *plan)
{
	struct pod *p, *next;

	loop_assert(s->config.work->loop);
	for (p = s->pods; p; p = p->hh.next)
		p->alive = false;
	for (size_t i = 0; i < plan->n_pods; i++)
		if (plan->pods[i].scrape)
			keep(s, &plan->pods[i]);
	HASH_ITER (hh, s->pods, p, next)
		if (!p->alive)
			forget(s, p);
}

/* ---- creation and end ---- */

int scrape_new(const struct scrape_config *c, struct scrape **ret, struct field_error *reterr)
{
	const struct otlp_client_config oc = {.url = c->url,
					      .ca_file = c->ca_file,
					      .token_file = c->token_file,
					      .user_agent = c->user_agent};
	struct scrape *s = xcalloc(1, sizeof(*s));
	int r = otlp_client_new(c->work->loop, &oc, &s->hub.client, reterr);

	if (r < 0) {
		free(s);
		return r;
	}
	s->config = *c;
	s->hub.work = c->work;
	s->hub.again_ns = AGAIN_NS;
	s->hub.most_ns = MOST_NS;
	*ret = s;
	return 0;
}

struct hub_client *scrape_hub(struct scrape *s)
{
	return &s->hub;
}

struct scrape *scrape_free(struct scrape *s)
{
	struct pod *p, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->pods, p, next)
		forget(s, p);
	scrape_told_done(&s->told);
	shares_done(&s->shares);
	otlp_client_free(s->hub.client);
	free(s);
	return NULL;
}
