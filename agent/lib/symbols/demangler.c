/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side of the child that demangles: sends names, and checks the length and the bytes of
 * the answers. It also adds up the CPU time of each file's slow names, the file's cost, and stops
 * asking for the names of a file that costs too much.
 */
#include "lib/child/child.h"
#include "lib/symbols/demangle.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

/* Much longer than the limit of a name in the child, 10 to 20 ms of CPU time. */
#define ANSWER_NS	    (2 * NSEC_PER_SEC)
#define IMPATIENT_ANSWER_NS (300 * NSEC_PER_MSEC)
/* after two timeouts in a row, an impatient owner asks no child for this time */
#define PAUSE_NS (3 * NSEC_PER_SEC)
#define RETRY_NS (10 * NSEC_PER_SEC) /* pause after a child that could not be started */
/* pause for a file's names, after the first timeout at one of them */
#define FILE_PAUSE_NS	  (10 * NSEC_PER_SEC)
#define FILE_PAUSE_MAX_NS (640 * NSEC_PER_SEC) /* each timeout doubles the pause */
/* if a child that is older than this answers, the next loss is the first in a row */
#define CALM_NS	      NSEC_PER_SEC
#define SLOW_NAME_NS  (NSEC_PER_MSEC / 10)
#define SLOW_NAMES_NS (200 * NSEC_PER_MSEC)
#define SLOW_FILE_NS  (300 * NSEC_PER_SEC)
#define FORGIVEN_PART 500 /* a file's cost shrinks by 1/500 of the elapsed time: 2 ms per second */

struct demangler {
	pthread_mutex_t lock; /* also guards the callers' struct name_cost */
	bool impatient;
	bool late; /* the last child that was asked did not answer in time */
	uint64_t answer_ns;
	struct child *child;
	/* retry_ns: no child is asked before this time (CLOCK_MONOTONIC) */
	uint64_t sequence, retry_ns;
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
static struct child *new_child(const char *self_exe, bool impatient, const struct child_ops *ops)
{
	static const char *const argv[] = {elf_demangle_child_verb, NULL};
	const struct child_config c = {
		.self_exe = self_exe,
		.argv = argv,
		.restarts = "podflame_demangle_child_restarts_total",
		.impatient = impatient,
		.stuck = "podflame_demangle_children_stuck_total",
		.ops = ops,
	};

	return child_new(&c);
}

struct demangler *elf_demangler_new(const char *self_exe, bool impatient)
{
	struct demangler *d = xcalloc(1, sizeof(*d));

	pthread_mutex_init(&d->lock, NULL);
	d->impatient = impatient;
	d->answer_ns = impatient ? IMPATIENT_ANSWER_NS : ANSWER_NS;
	d->child = new_child(self_exe, impatient, NULL);
	return d;
}

struct demangler *elf_demangler_free(struct demangler *d)
{
	if (!d)
		return NULL;
	child_free(d->child);
	pthread_mutex_destroy(&d->lock);
	free(d);
	return NULL;
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
static const char *no_child(struct demangler *d, int error)
{
	d->retry_ns = error == -EAGAIN ? child_next_ns(d->child) : now_mono_ns() + RETRY_NS;
	return "no_child";
}

static void answered(struct demangler *d)
{
	d->late = false;
	if (child_age_ns(d->child) > CALM_NS)
		child_forget_losses(d->child);
}

/*
 * Called if a child did not answer in time. After one timeout, the name may be the cause. If the
 * next child, which was asked for a name of another file, is late, too, the machine is too busy.
 * Then an impatient owner asks no child for a while.
 */
static const char *timed_out(struct demangler *d)
{
	if (d->impatient && d->late)
		d->retry_ns = now_mono_ns() + PAUSE_NS;
	d->late = !d->late;
	return "timeout";
}

/* Returns NULL if there is an answer; else the reason why there is none. */
static const char *ask(struct demangler *d, const char *name, size_t n)
{
	size_t n_reply = 0;
	int r;

	if (now_mono_ns() < d->retry_ns)
		return "no_child";
	d->request.sequence = ++d->sequence;
	memcpy(d->request.name, name, n);
	r = child_ask(d->child, &d->request, offsetof(struct demangle_request, name) + n, NULL, 0);
	if (r < 0)
		return no_child(d, r);
	r = child_answer(d->child, d->answer_ns, &d->reply, sizeof(d->reply), &n_reply, NULL);
	if (!r && is_answer(d, n_reply)) {
		answered(d);
		return NULL;
	}
	child_lose(d->child);
	if (r == -ETIMEDOUT)
		return timed_out(d);
	return r && r != -EBADMSG ? "child_died" : "answer_refused";
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

/*
 * Called when a child has failed at one of the file's names. After a timeout, no child is asked for
 * the file's names until a pause is over, because the machine may have been too busy. The pause
 * gets longer each time. before: the file's cost before this name, so that two timeouts at one name
 * lengthen the pause only once.
 */
static void charge(struct name_cost *cost, const struct name_cost *before, const char *reason)
{
	if (streq(reason, "timeout")) {
		cost->pause_ns = before->pause_ns ? MIN(2 * before->pause_ns, FILE_PAUSE_MAX_NS)
						  : FILE_PAUSE_NS;
		cost->next_ns = now_mono_ns() + cost->pause_ns;
	} else {
		spend(cost, SLOW_NAMES_NS / 2);
	}
}

/*
 * If the first child fails, asks a second one, because the name may not be the cause. After a
 * timeout, an impatient owner does not ask again. *ret_again_ns: see elf_demangler_text.
 */
static const char *ask_twice(struct demangler *d, const char *name, size_t n,
			     struct name_cost *cost, uint64_t *ret_again_ns)
{
	const struct name_cost before = *cost;
	const char *reason = NULL;

	for (int i = 0; i < 2; i++) {
		reason = ask(d, name, n);
		if (!reason) {
			*cost = before;
			return NULL;
		}
		if (streq(reason, "no_child")) {
			*ret_again_ns = d->retry_ns;
			return reason;
		}
		charge(cost, &before, reason);
		if (d->impatient && streq(reason, "timeout"))
			break;
	}
	if (streq(reason, "timeout"))
		*ret_again_ns = cost->next_ns;
	return reason;
}

static void pay(struct name_cost *cost, uint64_t cpu_ns)
{
	if (cpu_ns > SLOW_NAME_NS)
		spend(cost, MIN(cpu_ns, SLOW_NAMES_NS));
	/* If a pause has been over for as long as it lasted, the next one is short again. */
	if (now_mono_ns() >= cost->next_ns + cost->pause_ns)
		cost->pause_ns = 0;
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
	} else if (now_mono_ns() < cost->next_ns) {
		reason = "timeout";
		*ret_again_ns = cost->next_ns;
	} else {
		reason = ask_twice(d, name, n, cost, ret_again_ns);
	}
	if (reason) {
		count(reason);
		return NULL;
	}
	pay(cost, d->reply.cpu_ns);
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
