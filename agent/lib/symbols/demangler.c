/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side of the children that demangle: sends names, and checks the length and the bytes
 * of the answers. Each file has a child of its own, so that a name that takes over its child can
 * make names of its own file wrong, and no others. demangler.c also adds up the CPU time of each
 * file's slow names, the file's cost, and stops asking for the names of a file that costs too much.
 */
#include "lib/child/child.h"
#include "lib/symbols/demangle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* Much longer than the limit of a name in the child, 10 to 20 ms of CPU time. */
#define ANSWER_NS	    (2 * NSEC_PER_SEC)
#define IMPATIENT_ANSWER_NS (300 * NSEC_PER_MSEC)
/* after two timeouts in a row, an impatient owner asks no child for this time */
#define PAUSE_NS      (3 * NSEC_PER_SEC)
#define RETRY_NS      (10 * NSEC_PER_SEC) /* pause after a child that could not be started */
#define SLOW_NAME_NS  (NSEC_PER_MSEC / 10)
#define SLOW_NAMES_NS (200 * NSEC_PER_MSEC)
#define SLOW_FILE_NS  (300 * NSEC_PER_SEC)
#define FORGIVEN_PART 500 /* a file's cost shrinks by 1/500 of the elapsed time: 2 ms per second */
/* children that wait for further names of their files, since names come a few at a time */
#define CHILDREN_MAX 80
/* A child reads names of one file only. So it is replaced only in case it leaks memory. */
#define CHILD_NAMES_MAX 65536

struct demangler {
	pthread_mutex_t lock; /* also guards the callers' struct name_cost */
	bool late;	      /* the last child that was asked did not answer in time */
	uint64_t answer_ns;
	struct child_config config; /* of the children */
	struct child_pool *pool;    /* their owners are the files, by name_cost.owner */
	/* retry_ns: no child is asked before this time (CLOCK_MONOTONIC) */
	uint64_t sequence, retry_ns;
	uint64_t rest_ns; /* CLOCK_MONOTONIC: when elf_demangler_rest() looks again */
	struct demangle_request request;
	struct demangle_reply reply;
	char text[DEMANGLED_MAX + 1];
};

static const char *const reasons[] = {
#define X(name, reason) [DEMANGLE_##name] = reason,
	DEMANGLE_RESULTS(X)
#undef X
};

/* ops NULL: child_kernel. */
static struct demangler *new_demangler(const char *self_exe, bool impatient,
				       const struct child_ops *ops)
{
	static const char *const argv[] = {elf_demangle_child_verb, NULL};
	struct demangler *d = xcalloc(1, sizeof(*d));

	pthread_mutex_init(&d->lock, NULL);
	d->answer_ns = impatient ? IMPATIENT_ANSWER_NS : ANSWER_NS;
	d->config = (struct child_config){
		.self_exe = self_exe ? xstrdup(self_exe) : NULL,
		.argv = argv,
		.restarts = "podflame_demangle_child_restarts_total",
		.impatient = impatient,
		.stuck = "podflame_demangle_children_stuck_total",
		.ops = ops,
		.waiting_max = CHILDREN_MAX,
		.questions_max = CHILD_NAMES_MAX,
	};
	d->pool = child_pool_new(&d->config);
	return d;
}

struct demangler *elf_demangler_new(const char *self_exe, bool impatient)
{
	return new_demangler(self_exe, impatient, NULL);
}

struct demangler *elf_demangler_free(struct demangler *d)
{
	if (!d)
		return NULL;
	child_pool_free(d->pool);
	free((char *)d->config.self_exe);
	pthread_mutex_destroy(&d->lock);
	free(d);
	return NULL;
}

void elf_demangler_rest(struct demangler *d)
{
	uint64_t now = now_mono_ns();

	pthread_mutex_lock(&d->lock);
	if (now >= d->rest_ns) {
		d->rest_ns = now + NSEC_PER_SEC;
		child_pool_rest(d->pool);
	}
	pthread_mutex_unlock(&d->lock);
}

static void count(const char *reason)
{
	counter_add(counter("podflame_names_mangled_total", "reason", reason), 1);
}

static bool is_answer(const struct demangler *d, size_t n)
{
	const struct demangle_reply *r = &d->reply;

	return n >= offsetof(struct demangle_reply, text) && r->sequence == d->sequence &&
	       r->n == n - offsetof(struct demangle_reply, text) &&
	       r->result < _DEMANGLE_RESULT_MAX && !memchr(r->text, '\0', r->n) &&
	       (r->result != DEMANGLE_OK || r->n > 0);
}

/* Called if no child could be asked. The name is not the cause. */
static const char *no_child(struct demangler *d, const struct child *c, int error)
{
	d->retry_ns = error == -EAGAIN ? child_next_ns(c) : now_mono_ns() + RETRY_NS;
	return "no_child";
}

/*
 * Called if a child did not answer in time. After one timeout, the name may be the cause. If the
 * next child, which was asked for a name of another file, is late, too, the machine is too busy.
 * Then an impatient owner asks no child for a while.
 */
static const char *timed_out(struct demangler *d)
{
	if (d->config.impatient && d->late)
		d->retry_ns = now_mono_ns() + PAUSE_NS;
	d->late = !d->late;
	return "timeout";
}

/* Returns NULL if there is an answer; else the reason why there is none. */
static const char *ask(struct demangler *d, struct child *c, const char *name, size_t n)
{
	size_t n_reply = 0;
	int r;

	d->request.sequence = ++d->sequence;
	memcpy(d->request.name, name, n);
	r = child_ask(c, &d->request, offsetof(struct demangle_request, name) + n, NULL, 0);
	if (r < 0)
		return no_child(d, c, r);
	r = child_answer(c, d->answer_ns, &d->reply, sizeof(d->reply), &n_reply, NULL);
	if (!r && is_answer(d, n_reply)) {
		d->late = false;
		return NULL;
	}
	if (r == -ETIMEDOUT)
		return timed_out(d);
	return r && r != -EBADMSG ? "child_died" : "answer_refused";
}

/*
 * If the child fails, another one is asked, because the name may not be the cause. After a timeout,
 * an impatient owner does not ask again. *ret_lost: the name has cost the file its child.
 */
static const char *ask_twice(struct demangler *d, struct child *c, const char *name, size_t n,
			     bool *ret_lost)
{
	const char *reason = ask(d, c, name, n);

	*ret_lost = reason && !streq(reason, "no_child");
	if (!*ret_lost || (d->config.impatient && streq(reason, "timeout")))
		return reason;
	child_lose(c);
	reason = ask(d, c, name, n);
	*ret_lost = reason;
	return reason;
}

/*
 * Asks a child of the file. If the file has lost one, the pool has the file wait. *ret_again_ns:
 * see elf_demangler_text.
 */
static const char *ask_own(struct demangler *d, uint64_t owner, const char *name, size_t n,
			   uint64_t *ret_again_ns)
{
	const char *reason;
	struct child *c;
	bool lost;

	if (now_mono_ns() < d->retry_ns) {
		*ret_again_ns = d->retry_ns;
		return "no_child";
	}
	if (child_pool_take(d->pool, owner, &c) < 0) {
		*ret_again_ns = MAX(child_pool_next_ns(d->pool, owner), now_mono_ns());
		return "paused";
	}
	reason = ask_twice(d, c, name, n, &lost);
	child_pool_give(d->pool, c, lost);
	if (!reason)
		return NULL;
	if (!lost)
		*ret_again_ns = d->retry_ns;
	else if (streq(reason, "timeout") || streq(reason, "no_child"))
		*ret_again_ns = child_pool_next_ns(d->pool, owner);
	return reason;
}

/*
 * Adds to a file's cost. If its names have taken too long, they stay mangled for SLOW_FILE_NS. Then
 * the cost begins at 0 again.
 */
static void spend(struct name_cost *cost, uint64_t ns)
{
	cost->spent_ns += ns;
	if (cost->spent_ns < SLOW_NAMES_NS)
		return;
	cost->spent_ns = 0;
	cost->slow_until_ns = now_mono_ns() + SLOW_FILE_NS;
}

/* Reduces a file's cost as time passes, because the hub asks for the same names in each query. */
static void forgive(struct name_cost *cost)
{
	uint64_t now = now_mono_ns(), forgiven_ns = (now - cost->forgiven_at_ns) / FORGIVEN_PART;

	cost->spent_ns -= MIN(cost->spent_ns, forgiven_ns);
	cost->forgiven_at_ns = now;
}

/* Returns the file's number, by which the pool knows its child. No two files have the same. */
static uint64_t owner_of(struct name_cost *cost)
{
	static _Atomic uint64_t n_owners;

	if (!cost->owner)
		cost->owner = ++n_owners;
	return cost->owner;
}

/* Returns the demangled name, or NULL if the name stays mangled. */
static char *readable(struct demangler *d, const char *name, size_t n, struct name_cost *cost,
		      uint64_t *ret_again_ns)
{
	const char *reason;

	forgive(cost);
	if (now_mono_ns() < cost->slow_until_ns) {
		reason = "slow_file";
		*ret_again_ns = cost->slow_until_ns;
	} else {
		reason = ask_own(d, owner_of(cost), name, n, ret_again_ns);
	}
	if (reason) {
		count(reason);
		return NULL;
	}
	if (d->reply.cpu_ns > SLOW_NAME_NS)
		spend(cost, MIN(d->reply.cpu_ns, SLOW_NAMES_NS));
	if (d->reply.result != DEMANGLE_OK) {
		count(reasons[d->reply.result]);
		return NULL;
	}
	memcpy(d->text, d->reply.text, d->reply.n);
	d->text[d->reply.n] = '\0';
	return elf_text_clean(d->text);
}

char *elf_demangler_text(struct demangler *d, const char *name, struct name_cost *cost,
			 uint64_t *ret_again_ns)
{
	size_t n = strnlen(name, MANGLED_MAX + 1);
	char *text = NULL;

	*ret_again_ns = 0;
	if (!is_mangled(name))
		return elf_text_clean(name);
	if (n > MANGLED_MAX) {
		count("long_name");
	} else {
		pthread_mutex_lock(&d->lock);
		text = readable(d, name, n, cost, ret_again_ns);
		pthread_mutex_unlock(&d->lock);
	}
	return text ? text : elf_text_clean(name);
}
