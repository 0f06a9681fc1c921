/* SPDX-License-Identifier: Apache-2.0 */
/* See no_room.h. */
#include "hub/status/no_room.h"

#include "lib/reason/reason.h"

#include <stdlib.h>
#include <utlist.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

/* targets whose status waits to be written; a further one is counted and is not told */
#define MAX_WAITING   16384
#define MAX_IN_FLIGHT 4 /* writes at a time, so that those of others are not late */
#define SOON_NS	      (50 * NSEC_PER_MSEC) /* several that arrive together begin together */
#define RETRY_NS      (10 * NSEC_PER_SEC)

struct crowded_out {		 /* a target whose status waits, or is being written */
	struct no_room *no_room; /* NULL: it was freed while the write was under way */
	char *uid, *path, *rv;
	int64_t generation;
	struct crowded_out *prev, *next; /* the list of those that are being written */
	UT_hash_handle hh;
};
struct no_room {
	struct loop *loop;
	struct kube *kube;
	bool (*may_write)(void *arg);
	void *arg;
	struct crowded_out *waiting; /* a uthash table, by uid; the first one is the next */
	struct crowded_out *in_flight;
	unsigned n_in_flight;
	struct timer timer;
	uint64_t due_ns; /* monotonic; 0: the timer is not set */
	bool has_failed; /* the log says so */
};

struct no_room *status_no_room_new(struct loop *l, struct kube *k, bool (*may_write)(void *arg),
				   void *arg)
{
	struct no_room *n = xcalloc(1, sizeof(*n));

	n->loop = l;
	n->kube = k;
	n->may_write = may_write;
	n->arg = arg;
	return n;
}

static void free_one(struct crowded_out *c)
{
	free(c->uid);
	free(c->path);
	free(c->rv);
	free(c);
}

static void drop(struct no_room *n, struct crowded_out *c)
{
	HASH_DEL(n->waiting, c);
	free_one(c);
}

struct no_room *status_no_room_free(struct no_room *n)
{
	struct crowded_out *c, *next;

	if (!n)
		return NULL;
	timer_cancel(&n->timer);
	HASH_ITER (hh, n->waiting, c, next)
		drop(n, c);
	DL_FOREACH (n->in_flight, c)
		c->no_room = NULL;
	free(n);
	return NULL;
}

/* ---- writing ---- */

static void write_next(void *arg);

static void write_after(struct no_room *n, uint64_t delay_ns)
{
	uint64_t due_ns = now_mono_ns() + delay_ns;

	if (!n->waiting || (n->due_ns && n->due_ns <= due_ns))
		return;
	n->due_ns = due_ns;
	timer_set(n->loop, &n->timer, delay_ns, write_next, n);
}

/* Tries again later, unless a newer version of the target waits already. */
static void put_back(struct no_room *n, struct crowded_out *c)
{
	struct crowded_out *newer;

	HASH_FIND_STR(n->waiting, c->uid, newer);
	if (newer)
		free_one(c);
	else
		HASH_ADD_KEYPTR(hh, n->waiting, c->uid, strlen(c->uid), c);
}

/* Whether the same write may succeed later. */
static bool may_retry(int http)
{
	return http <= 0 || http == 401 || http == 403 || http == 429 || http >= 500;
}

static void on_written(int http, const json_t *body, const char *error, void *arg)
{
	struct crowded_out *c = arg;
	struct no_room *n = c->no_room;

	(void)body;
	if (!n) {
		free_one(c);
		return;
	}
	DL_DELETE(n->in_flight, c);
	n->n_in_flight--;
	if (may_retry(http)) {
		if (!n->has_failed)
			log_warn("status of %s could not be written: %s (status %d)", c->path,
				 error ?: "refused", http);
		n->has_failed = true;
		put_back(n, c);
		write_after(n, RETRY_NS);
		return;
	}
	/* 409: the target has changed, so it arrives again */
	n->has_failed = false;
	free_one(c);
	write_after(n, 0);
}

/* Keeps firstReadyTime, because the time of stopAfter goes on. */
static json_t *status_of(const struct crowded_out *c)
{
	static const char message[] =
		"the hub has no room in memory for this target: its namespace, or the cluster for "
		"a ClusterProfilingTarget, has so many or so large targets that only the oldest "
		"have room. The hub does not know whether agents profile it";
	char now[32];

	time_format(now_wall_ns(), now);
	return json_pack("{s:I, s:[{s:s, s:s, s:s, s:s, s:s, s:I}], s:n, s:n, s:n, s:n}",
			 "observedGeneration", (json_int_t)c->generation, "conditions", "type",
			 "Ready", "status", "Unknown", "reason", reason_name(REASON_NO_ROOM),
			 "message", message, "lastTransitionTime", now, "observedGeneration",
			 (json_int_t)c->generation, "events", "summary", "failures", "stacks");
}

static void write_one(struct no_room *n, struct crowded_out *c)
{
	_cleanup_json_ json_t *body = json_pack("{s:{s:s, s:s}, s:o}", "metadata", "uid", c->uid,
						"resourceVersion", c->rv, "status", status_of(c));

	HASH_DEL(n->waiting, c);
	DL_APPEND(n->in_flight, c);
	n->n_in_flight++;
	if (kube_request(n->kube, "PATCH", c->path, "application/merge-patch+json", body,
			 on_written, c) < 0)
		on_written(0, NULL, "no request could be made", c);
}

static void write_next(void *arg)
{
	struct no_room *n = arg;

	n->due_ns = 0;
	if (!n->may_write(n->arg)) {
		write_after(n, RETRY_NS);
		return;
	}
	while (n->waiting && n->n_in_flight < MAX_IN_FLIGHT && !n->due_ns)
		write_one(n, n->waiting);
}

/* ---- what arrives ---- */

static bool says_so(const json_t *target)
{
	const json_t *ready = json_with(json_at(target, "status.conditions"), "type", "Ready");

	return streq(json_str_at(ready, "reason", ""), reason_name(REASON_NO_ROOM)) &&
	       json_int_at(ready, "observedGeneration", -1) ==
		       json_int_at(target, "metadata.generation", 0);
}

void status_no_room_tell(struct no_room *n, const json_t *target, const char *path)
{
	const char *uid = json_str_at(target, "metadata.uid", "");
	struct crowded_out *c;

	status_no_room_forget(n, uid);
	if (!*uid || says_so(target))
		return;
	if (HASH_COUNT(n->waiting) >= MAX_WAITING) {
		counter_add(counter("podflame_targets_not_told_total", NULL, NULL), 1);
		return;
	}
	c = xcalloc(1, sizeof(*c));
	*c = (struct crowded_out){
		.no_room = n,
		.uid = xstrdup(uid),
		.path = xstrdup(path),
		.rv = xstrdup(json_str_at(target, "metadata.resourceVersion", "")),
		.generation = json_int_at(target, "metadata.generation", 0),
	};
	HASH_ADD_KEYPTR(hh, n->waiting, c->uid, strlen(c->uid), c);
	write_after(n, SOON_NS);
}

void status_no_room_forget(struct no_room *n, const char *uid)
{
	struct crowded_out *c;

	HASH_FIND_STR(n->waiting, uid, c);
	if (c)
		drop(n, c);
}
