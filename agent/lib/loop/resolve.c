// SPDX-License-Identifier: Apache-2.0
/*
 * Host names -> addresses. getaddrinfo may wait minutes for the network, so each search has a
 * thread of its own; there is one search per name. The last answer for each name is kept, and used
 * while the resolver fails or does not answer.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

#include "lib/loop/conn.h"

#define MAX_NAMES    64 /* names that are known; they come from the configuration */
#define MAX_SEARCHES 8	/* limit for the searches at a time; each has a thread */

struct resolve_config resolve_config = {
	.search = getaddrinfo,
	.late_ns = NSEC_PER_SEC,
	.lost_ns = 300 * NSEC_PER_SEC,
	.keep_ns = 24 * 3600 * NSEC_PER_SEC,
};

/* A struct name is never freed. The lock guards all members except text. */
struct name {
	char *text;
	struct addresses good; /* from the last answer with addresses; n is 0 if there was none */
	uint64_t good_ns, begun_ns;
	/*
	 * error of the last search, or a text that the search is late; NULL: the last search
	 * succeeded
	 */
	const char *error;
	bool searching; /* a search that began at begun_ns is running */
	struct lookup *waiting;
	struct name *next;
};

/*
 * One caller that waits. It is in the list `waiting` of its name, or it is posted to its loop as a
 * job, which frees it.
 */
struct lookup {
	struct job job;
	struct name *of;
	struct loop *loop;
	resolve_fn *fn; /* NULL if the caller has cancelled */
	void *arg;
	uint16_t port;
	bool posted;
	struct timer late;
	struct addresses found;
	const char *error;
	struct lookup *prev, *next;
};

struct resolve_search {
	struct name *of;
	uint64_t begun_ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct name *names;
static unsigned n_names, n_searches;
static resolve_change_fn *on_change;

void resolve_on_change(resolve_change_fn *fn)
{
	on_change = fn;
}

/* ---- addresses ---- */

socklen_t address_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void take_addresses(struct addresses *to, const struct addrinfo *found)
{
	*to = (struct addresses){0};
	for (; found && to->n < MAX_ADDRESSES; found = found->ai_next) {
		struct sockaddr_storage *a = &to->at[to->n];

		if (found->ai_family != AF_INET && found->ai_family != AF_INET6)
			continue;
		memcpy(a, found->ai_addr, MIN((size_t)found->ai_addrlen, sizeof(*a)));
		to->n++;
	}
}

static void set_port(struct addresses *to, uint16_t port)
{
	for (unsigned i = 0; i < to->n; i++) {
		if (to->at[i].ss_family == AF_INET6)
			((struct sockaddr_in6 *)&to->at[i])->sin6_port = htons(port);
		else
			((struct sockaddr_in *)&to->at[i])->sin_port = htons(port);
	}
}

/* ---- the names and their addresses; the lock is held ---- */

static void count(const char *name, const char *label, const char *value)
{
	counter_add(counter(name, label, value), 1);
}

static struct name *find_or_add(const char *text)
{
	struct name *n;

	LL_FOREACH (names, n)
		if (streq(n->text, text))
			return n;
	if (n_names == MAX_NAMES)
		return NULL;
	n = xcalloc(1, sizeof(*n));
	n->text = xstrdup(text);
	LL_PREPEND(names, n);
	n_names++;
	return n;
}

static bool has_last_known(const struct name *n)
{
	return n->good.n && now_mono_ns() - n->good_ns < resolve_config.keep_ns;
}

static void set_error(struct name *n, const char *error)
{
	bool changed = !n->error != !error;
	unsigned n_failing = 0;

	n->error = error;
	if (!changed)
		return;
	if (on_change)
		on_change(n->text, error);
	LL_FOREACH (names, n)
		n_failing += n->error != NULL;
	counter_set(counter("names_failing", NULL, NULL), n_failing);
}

/* Gives the caller the last known addresses, because the resolver fails or is late. */
static void stand_in(struct lookup *k, const char *reason)
{
	k->found = k->of->good;
	k->found.trouble = k->of->error;
	count("name_last_known_total", "reason", reason);
}

static void answer(struct lookup *k)
{
	struct name *n = k->of;

	if (!n->error)
		k->found = n->good;
	else if (has_last_known(n))
		stand_in(k, "failed");
	else
		k->error = n->error;
	set_port(&k->found, k->port);
	k->posted = true;
	loop_post(k->loop, &k->job);
}

/* ---- the search ---- */

static const char *search_error(int r)
{
	return r == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(r);
}

static void found(struct name *n, const struct addresses *a, const char *error)
{
	struct lookup *k, *next;

	n->searching = false;
	if (!error) {
		n->good = *a;
		n->good_ns = now_mono_ns();
	}
	set_error(n, error);
	count("name_lookups_total", "result", error ? "failed" : "answered");
	DL_FOREACH_SAFE(n->waiting, k, next)
	{
		DL_DELETE(n->waiting, k);
		answer(k);
	}
}

static void *search_main(void *arg)
{
	_cleanup_free_ struct resolve_search *s = arg;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *list;
	struct name *n = s->of;
	struct addresses a = {0};
	const char *error = NULL;
	int r;

	thread_name("resolver");
	r = resolve_config.search(n->text, NULL, &hints, &list);
	if (r == 0) {
		take_addresses(&a, list);
		freeaddrinfo(list);
	}
	if (r != 0 || a.n == 0)
		error = r ? search_error(r) : "the name has no address";
	pthread_mutex_lock(&lock);
	n_searches--;
	if (n->begun_ns == s->begun_ns) /* otherwise a later search has replaced this one */
		found(n, &a, error);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/*
 * Starts a search, unless one is running for this name or too many are running. A search that has
 * run for lost_ns counts as lost.
 */
static void begin_search(struct name *n)
{
	struct resolve_search *s;

	if (n->searching && now_mono_ns() - n->begun_ns < resolve_config.lost_ns)
		return;
	if (n_searches == MAX_SEARCHES) {
		count("name_lookups_total", "result", "refused");
		return;
	}
	s = xcalloc(1, sizeof(*s));
	*s = (struct resolve_search){n, now_mono_ns()};
	if (thread_start(NULL, search_main, s) < 0) {
		free(s);
		count("name_lookups_total", "result", "refused");
		return;
	}
	/*
	 * begun_ns is set only here. If it were set before and no thread had started, the answer of
	 * an older search would be ignored. The new thread waits for the lock before it reads s.
	 */
	n->begun_ns = s->begun_ns;
	n_searches++;
	n->searching = true;
}

/* ---- callers that wait, on the threads of their loops ---- */

static void lookup_free(struct lookup *k)
{
	timer_cancel(&k->late);
	free(k);
}

static void lookup_done(struct job *j)
{
	struct lookup *k = (struct lookup *)j;

	if (k->fn)
		k->fn(k->error ? NULL : &k->found, k->error, k->arg);
	lookup_free(k);
}

static void lookup_late(void *arg)
{
	struct lookup *k = arg;
	struct name *n = k->of;

	pthread_mutex_lock(&lock);
	if (k->posted) { /* the answer is on its way: the posted job frees k */
		pthread_mutex_unlock(&lock);
		return;
	}
	set_error(n, n->error ?: "the resolver does not answer");
	stand_in(k, "late");
	set_port(&k->found, k->port);
	DL_DELETE(n->waiting, k);
	pthread_mutex_unlock(&lock);
	lookup_done(&k->job);
}

static struct lookup *wait_for(struct loop *l, struct name *n, uint16_t port, resolve_fn *fn,
			       void *arg)
{
	struct lookup *k = xcalloc(1, sizeof(*k));
	uint64_t waited_ns = now_mono_ns() - n->begun_ns, late_ns = resolve_config.late_ns;

	k->job.done = lookup_done;
	k->of = n;
	k->loop = l;
	k->fn = fn;
	k->arg = arg;
	k->port = port;
	DL_APPEND(n->waiting, k);
	if (has_last_known(n))
		timer_set(l, &k->late, late_ns - MIN(late_ns, waited_ns), lookup_late, k);
	return k;
}

static bool is_literal(const char *name, uint16_t port, struct addresses *ret)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list;

	if (getaddrinfo(name, NULL, &hints, &list) != 0)
		return false;
	take_addresses(ret, list);
	freeaddrinfo(list);
	set_port(ret, port);
	return ret->n > 0;
}

int resolve(struct loop *l, const char *name, uint16_t port, resolve_fn *fn, void *arg,
	    struct addresses *ret_now, struct lookup **ret_wait)
{
	struct name *n;
	int r = 0;

	loop_assert(l);
	if (is_literal(name, port, ret_now))
		return 1;
	pthread_mutex_lock(&lock);
	n = find_or_add(name);
	if (n)
		begin_search(n);
	if (!n || (!n->searching && !has_last_known(n)))
		r = -EBUSY;
	else
		*ret_wait = wait_for(l, n, port, fn, arg);
	pthread_mutex_unlock(&lock);
	return r;
}

void resolve_cancel(struct lookup *k)
{
	bool posted;

	if (!k)
		return;
	pthread_mutex_lock(&lock);
	posted = k->posted;
	k->fn = NULL;
	if (!posted)
		DL_DELETE(k->of->waiting, k);
	pthread_mutex_unlock(&lock);
	if (!posted)
		lookup_free(k);
}
