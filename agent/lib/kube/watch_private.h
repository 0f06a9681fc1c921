/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the files of a watch: watch.c (state, waiting), watch_list.c (lists and their
 * changes), watch_stream.c (events and silence), watch_errors.c (errors of the server).
 */
#pragma once

#include "lib/kube/kube_private.h"

enum watch_state { ST_WAIT, ST_LISTING, ST_DELIVERING, ST_WATCHING };

struct kube_watch {
	struct kube_base base;
	struct kube *kube;
	struct loop *loop;
	const struct kube_times *times;
	char *path, *selectors; /* selectors: "&fieldSelector=...", encoded */
	bool metadata_only, optional, once;
	void (*trim)(json_t *obj);
	size_t max_bytes;
	struct kube_watch_ops ops;
	void *arg;
	struct kube_store *store;
	unsigned depth; /* callbacks that are running */
	bool dead, synced;

	enum watch_state state;
	bool list_next;	 /* a list follows the wait; false: a watch */
	char *rv;	 /* the last resourceVersion seen; NULL: none yet */
	char *begin_rv;	 /* the resourceVersion from which the stream begins */
	bool rv_useless; /* the server cannot use rv: the next list asks for the newest */
	char *error;	 /* the last report to ops.state; NULL: the watch works */
	bool told;
	struct backoff backoff;
	struct timer timer, watchdog;
	struct kube_listener listener;
	bool awaits_server; /* waits because the server was away or not ready */
	unsigned n_hurried; /* retries that began early since the watch last worked */
	uint64_t due_ns;    /* when the wait ends (CLOCK_MONOTONIC) */
	uint64_t not_before_ns; /* when the time of Retry-After ends (CLOCK_MONOTONIC) */
	struct http_call *call, *probe;
	unsigned n_unauthorized, n_missing;
	/*
	 * ERROR events with a code of 5xx since the last event with a newer version, or the last
	 * complete list
	 */
	unsigned n_errors;

	/* the answer that is being received */
	int status;
	uint64_t retry_after_ns, started_ns, silence_limit_ns, probed_ns;
	bool event_lost, moved; /* moved: an event had a newer version than begin_rv */
	struct buf error_body;
	struct lines lines;
	struct list_split split;

	/* the list that is being received or delivered */
	char *list_kind, *list_version, *list_rv, *next_page;
	bool quorum, whole; /* quorum: asks for the newest version; whole: without pages */
	struct kube_item *items; /* those with room that are not delivered yet */
	struct kube_room *room;	 /* NULL: no list is being received */
	size_t n_unread;	 /* objects of the last list that could not be read */
	uint64_t listed_ns;	 /* when the last list was complete (CLOCK_MONOTONIC) */
	/* when a list begins that brings what has room again; 0: nothing was left out that has */
	uint64_t room_again_ns;
};

void kube_watch_start_list(struct kube_watch *w);
void kube_watch_start_stream(struct kube_watch *w);

/*
 * Called before and after a call of the owner's functions, because the owner may free the watch in
 * them. kube_watch_leave returns whether w still exists.
 */
void kube_watch_enter(struct kube_watch *w);
bool kube_watch_leave(struct kube_watch *w);
void kube_watch_tell_state(struct kube_watch *w, const char *error);	/* NULL: works */
void kube_watch_tell_synced(struct kube_watch *w);

/*
 * These three functions end with a wait, after which a list follows, or a watch at the current
 * version.
 */
void kube_watch_wait(struct kube_watch *w, bool list, uint64_t ns);
void kube_watch_back_off(struct kube_watch *w, bool list);
void kube_watch_fail(struct kube_watch *w, bool list, const char *what, const char *why);
/*
 * Called after one of the three functions above if the server does not work: ends the wait early
 * when another request succeeds.
 */
void kube_watch_await_server(struct kube_watch *w);
void kube_watch_worked(struct kube_watch *w);
bool kube_watch_is_refused(const struct kube_watch *w);
void kube_watch_on_bad_status(struct kube_watch *w, bool listing);
/* Ends the stream and chooses what follows. */
void kube_watch_on_error_event(struct kube_watch *w, const json_t *status);
void kube_watch_hang_up(struct kube_watch *w);

void kube_watch_reset_answer(struct kube_watch *w);
void kube_watch_remember_head(int status, const struct http_headers *h, void *arg);
void kube_watch_drop_items(struct kube_watch *w);
/* returns an object, or NULL if the text was refused and counted */
json_t *kube_watch_parse(struct kube_watch *w, const char *text, size_t n);
/*
 * Removes the members of obj that nobody needs. Takes a reference. NULL: the object was refused and
 * counted.
 */
struct kube_item *kube_watch_item(const struct kube_watch *w, json_t *obj);
void kube_watch_set_text(char **p, const char *s);		/* "" counts as NULL */
void kube_watch_dropped(const char *reason);
void kube_watch_count(const char *event);
