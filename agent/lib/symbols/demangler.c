/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side of the child that demangles: asks, and checks length and bytes of the answers.
 */
#include "lib/child/child.h"
#include "lib/symbols/demangle.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#define ANSWER_NS     (2 * NSEC_PER_SEC) /* the child ends by itself what takes 20 ms of CPU time */
#define RETRY_NS      (10 * NSEC_PER_SEC) /* after a child that could not be started */
#define CALM_NS	      NSEC_PER_SEC	  /* a child that lived so long is no sign of an attack */
#define SLOW_NAME_NS  (NSEC_PER_MSEC / 10)
#define SLOW_NAMES_NS (200 * NSEC_PER_MSEC)

struct demangler {
	pthread_mutex_t lock;
	struct child *child;
	uint64_t sequence, retry_ns; /* CLOCK_MONOTONIC: no child is asked before */
	struct demangle_request request;
	struct demangle_reply reply;
	char text[DEMANGLED_MAX + 1];
};

static const char *const reasons[] = {
#define X(name, reason) [DEMANGLE_##name] = reason,
	DEMANGLE_RESULTS(X)
#undef X
};

struct demangler *demangler_new(const char *self_exe)
{
	static const char *const argv[] = {demangle_child_verb, NULL};
	struct demangler *d = xcalloc(1, sizeof(*d));

	pthread_mutex_init(&d->lock, NULL);
	d->child = child_new(&(struct child_config){
		.self_exe = self_exe,
		.argv = argv,
		.restarts = "podflame_demangle_child_restarts_total",
		.impatient = true, /* the caller may hold a lock that everyone needs */
		.stuck = "podflame_demangle_children_stuck_total",
	});
	return d;
}

struct demangler *demangler_free(struct demangler *d)
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

/* There was no child to ask: that says nothing of the name. */
static const char *no_child(struct demangler *d, int error)
{
	d->retry_ns = error == -EAGAIN ? child_next_ns(d->child) : now_mono_ns() + RETRY_NS;
	return "no_child";
}

/* NULL: there is an answer; else why there is none. */
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
	r = child_answer(d->child, ANSWER_NS, &d->reply, sizeof(d->reply), &n_reply, NULL);
	if (!r && is_answer(d, n_reply)) {
		if (child_age_ns(d->child) > CALM_NS)
			child_forget_losses(d->child);
		return NULL;
	}
	child_lose(d->child);
	return r == -ETIMEDOUT ? "timeout" : r && r != -EBADMSG ? "child_died" : "answer_refused";
}

/*
 * Asks a second child where the first one failed, which may have had another reason than this name.
 * *ret_again_ns: from then on the answer may be another.
 */
static const char *ask_twice(struct demangler *d, const char *name, size_t n, uint64_t *spent_ns,
			     uint64_t *ret_again_ns)
{
	uint64_t before_ns = *spent_ns;
	const char *reason = NULL;

	for (int i = 0; i < 2; i++) {
		reason = ask(d, name, n);
		if (!reason) {
			*spent_ns = before_ns;
			return NULL;
		}
		if (streq(reason, "no_child")) {
			*ret_again_ns = d->retry_ns;
			return reason;
		}
		*spent_ns += SLOW_NAMES_NS / 2;
	}
	return reason;
}

/* The demangled name; NULL: the name stays mangled. */
static char *readable(struct demangler *d, const char *name, size_t n, uint64_t *spent_ns,
		      uint64_t *ret_again_ns)
{
	const char *reason = ask_twice(d, name, n, spent_ns, ret_again_ns);

	if (reason) {
		count(reason);
		return NULL;
	}
	*spent_ns += d->reply.cpu_ns > SLOW_NAME_NS ? MIN(d->reply.cpu_ns, SLOW_NAMES_NS) : 0;
	if (d->reply.result != DEMANGLE_OK) {
		count(reasons[d->reply.result]);
		return NULL;
	}
	memcpy(d->text, d->reply.text, d->reply.n);
	d->text[d->reply.n] = '\0';
	return text_clean(d->text);
}

char *demangler_text(struct demangler *d, const char *name, uint64_t *spent_ns,
		     uint64_t *ret_again_ns)
{
	size_t n = strnlen(name, MANGLED_MAX + 1);
	char *text = NULL;

	*ret_again_ns = 0;
	if (!is_mangled(name))
		return text_clean(name);
	if (n > MANGLED_MAX) {
		count("long_name");
	} else if (*spent_ns >= SLOW_NAMES_NS) {
		count("slow_file");
	} else {
		pthread_mutex_lock(&d->lock);
		text = readable(d, name, n, spent_ns, ret_again_ns);
		pthread_mutex_unlock(&d->lock);
	}
	return text ? text : text_clean(name);
}
