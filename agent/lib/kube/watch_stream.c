// SPDX-License-Identifier: Apache-2.0
/* The stream of a watch: its events, its end, and what happens when it is silent. */
#include <stdlib.h>

#include "lib/kube/watch_private.h"

#define ROOM_JITTER 10 /* a list that brings what has room again comes up to 1/10 later */

static bool is_older(const char *a, const char *b)
{
	uint64_t na, nb;

	return str_to_u64(a, UINT64_MAX, &na) == 0 && str_to_u64(b, UINT64_MAX, &nb) == 0 &&
	       na < nb;
}

/* ---- events ---- */

/* If an object that was left out has room again, only a list brings it. */
static void note_room(struct kube_watch *w)
{
	uint64_t again_ns = w->times->room_again_ns;

	kube_store_tell_left_out(w->store);
	if (w->room_again_ns || !kube_room_has_more(kube_store_room(w->store)))
		return;
	w->room_again_ns = MAX(now_mono_ns(), w->listed_ns + again_ns) +
			   random_below(again_ns / ROOM_JITTER + 1);
}

/* Whether it is time for this list. */
static bool room_is_due(struct kube_watch *w)
{
	if (!w->room_again_ns || now_mono_ns() < w->room_again_ns)
		return false;
	w->room_again_ns = 0;
	return kube_room_has_more(kube_store_room(w->store));
}

static void apply(struct kube_watch *w, const char *type, json_t *obj)
{
	struct kube_item *i = kube_watch_item(w, obj);

	if (!i)
		return;
	if (streq(type, "DELETED")) {
		kube_store_remove(w->store, i);
		kube_item_free(i);
	} else {
		kube_store_take(w->store, i, streq(type, "ADDED"));
	}
	note_room(w);
}

static void on_object_event(struct kube_watch *w, const char *type, json_t *obj)
{
	const char *rv = json_str_at(obj, "metadata.resourceVersion", "");
	_cleanup_free_ char *next_rv = xstrdup(rv);

	if (streq(json_str_at(obj, "kind", ""), "Table")) {
		kube_watch_dropped("table_instead_of_object");
		return;
	}
	if (!streq(type, "BOOKMARK"))
		apply(w, type, obj);
	if (w->dead || !*next_rv || str_equal(next_rv, w->rv))
		return;
	/*
	 * an older version than begin_rv comes from a server that is not up to date: it is no
	 * progress
	 */
	if (!str_equal(next_rv, w->begin_rv) && !is_older(next_rv, w->begin_rv ?: "")) {
		w->moved = true;
		w->n_errors = 0;
	}
	kube_watch_set_text(&w->rv, next_rv);
}

/* Returns false if the stream must end. */
static bool on_event(const char *line, size_t n, void *arg)
{
	struct kube_watch *w = arg;
	_cleanup_json_ json_t *event = kube_watch_parse(w, line, n);
	const char *type = json_str_at(event, "type", "");
	json_t *obj = json_object_get(event, "object");

	if (!event)
		return true;
	if (streq(type, "ERROR")) {
		kube_watch_on_error_event(w, obj);
		return false;
	}
	if (!streq(type, "ADDED") && !streq(type, "MODIFIED") && !streq(type, "DELETED") &&
	    !streq(type, "BOOKMARK")) {
		kube_watch_dropped("unknown_event_type");
		return true;
	}
	if (!json_is_object(obj)) {
		kube_watch_dropped("event_without_object");
		return true;
	}
	on_object_event(w, type, obj);
	return !w->dead;
}

static void watch_head(int status, const struct http_headers *h, void *arg)
{
	struct kube_watch *w = arg;

	kube_watch_remember_head(status, h, arg);
	if (status != 200)
		return;
	kube_watch_worked(w);
	kube_watch_enter(w);
	kube_watch_tell_state(w, NULL);
	kube_watch_leave(w);
}

static void watch_data(const void *p, size_t n, void *arg)
{
	struct kube_watch *w = arg;

	if (w->status != 200) {
		buf_add(&w->error_body, p, n);
		return;
	}
	kube_watch_enter(w);
	kube_lines_feed(&w->lines, p, n, on_event, w);
	/*
	 * n_lost is read after the callback, because the lost event and the event that ended the
	 * stream may have come in one piece
	 */
	w->event_lost |= w->lines.n_lost != 0;
	kube_watch_leave(w);
}

/*
 * Chooses what follows after the end of a stream: at once a watch from the last version. But if the
 * stream was short and brought no newer version, or if an event was lost and so a list must follow,
 * a wait comes first. client-go counts any event as progress, so it would ask a server that repeats
 * an event again and again; only the rate limit of all its requests slows it down.
 */
static void watch_ended(struct kube_watch *w, const char *error)
{
	bool too_short = !w->moved && now_mono_ns() - w->started_ns < w->times->short_watch_ns;
	bool list = w->event_lost || w->lines.n_lost;

	if (error && (too_short || w->status == 0))
		kube_watch_fail(w, list, "watch", error);
	else if (too_short || list)
		kube_watch_back_off(w, list);
	else
		kube_watch_wait(w, false, 0);
	if (error && w->status == 0)
		kube_watch_await_server(w);
}

/*
 * Handles the last line, which needs no newline, as in client-go. Half an object is ignored, and
 * does not count as garbage. Returns false if the line ended the stream.
 */
static bool take_last_line(struct kube_watch *w)
{
	_cleanup_json_ json_t *whole = NULL;

	if (w->lines.skipping)
		return true;
	whole = json_loadb(w->lines.line.data ?: "", w->lines.line.len, JSON_ALLOW_NUL, NULL);
	return !json_is_object(whole) || kube_lines_feed(&w->lines, "\n", 1, on_event, w);
}

static void watch_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct kube_watch *w = arg;
	bool goes_on = true;

	(void)body;
	(void)n;
	w->call = NULL;
	kube_watch_enter(w);
	if (status == 0)
		kube_look_at_ca(w->kube);
	if (status == 200 && !error)
		goes_on = take_last_line(w);
	if (kube_watch_is_refused(w))
		kube_watch_on_bad_status(w, false);
	else if (goes_on)
		watch_ended(w, error);
	kube_watch_leave(w);
}

/* ---- silence ---- */

static void probe_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct kube_watch *w = arg;
	_cleanup_json_ json_t *j = NULL;
	const char *newest;

	(void)error;
	w->probe = NULL;
	if (w->state != ST_WATCHING)
		return;
	j = json_loadb(body ?: "", n, JSON_ALLOW_NUL, NULL);
	newest = json_str_at(j, "metadata.resourceVersion", "");
	kube_watch_enter(w);
	if (status == 0) {
		kube_watch_hang_up(w);
		kube_watch_fail(w, false, "watch",
				"the stream is silent and the server does not answer");
		kube_watch_await_server(w);
	} else if (w->rv && is_older(newest, w->rv)) { /* the server was restored from a backup */
		kube_watch_hang_up(w);
		w->rv_useless = true;
		kube_watch_wait(w, true, 0);
	}
	kube_watch_leave(w);
}

static void start_probe(struct kube_watch *w)
{
	_cleanup_free_ char *path = xasprintf("%s?limit=1%s", w->path, w->selectors);
	struct kube_stream s = {
		.path = path,
		.accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"
			  "application/json",
		.on_done = probe_done,
		.arg = w,
	};

	w->probed_ns = now_mono_ns();
	if (kube_stream(w->kube, &s, &w->probe) < 0)
		w->probe = NULL;
}

static void watch_silence(void *arg)
{
	struct kube_watch *w = arg;
	uint64_t now_ns = now_mono_ns(),
		 idle_ns = w->call ? kube_stream_idle_ns(w->kube, w->call) : 0;

	if (idle_ns > w->silence_limit_ns) {
		kube_watch_count("silent_stream_closed");
		kube_watch_enter(w);
		kube_watch_hang_up(w);
		kube_watch_wait(w, false, 0);
		kube_watch_leave(w);
		return;
	}
	if (room_is_due(w)) {
		kube_watch_count("room_again");
		kube_watch_enter(w);
		kube_watch_hang_up(w);
		kube_watch_wait(w, true, 0);
		kube_watch_leave(w);
		return;
	}
	if (idle_ns > w->times->probe_ns && now_ns - w->probed_ns > w->times->probe_ns && !w->probe)
		start_probe(w);
	timer_set(w->loop, &w->watchdog, w->times->watchdog_ns, watch_silence, w);
}

void kube_watch_start_stream(struct kube_watch *w)
{
	unsigned timeout_s = w->times->watch_timeout_s +
			     (unsigned)random_below(MAX(w->times->watch_timeout_s, 1u));
	struct kube_stream s = {
		.accept = w->metadata_only ? "application/json;as=PartialObjectMetadata;"
					     "g=meta.k8s.io;v=v1,application/json"
					   : "application/json",
		.timeout_ns = w->times->watch_head_ns,
		.on_head = watch_head,
		.on_data = watch_data,
		.on_done = watch_done,
		.arg = w,
	};
	_cleanup_free_ char *path = NULL;
	struct buf b = {0};
	int r;

	if (w->dead)
		return;
	w->state = ST_WATCHING;
	kube_watch_count("watch");
	kube_watch_reset_answer(w);
	w->silence_limit_ns = timeout_s * NSEC_PER_SEC + w->times->silence_slack_ns;
	kube_lines_done(&w->lines);
	kube_lines_init(&w->lines, w->times->max_object_bytes);
	buf_printf(&b, "%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%u&resourceVersion=",
		   w->path, timeout_s);
	url_encode(&b, w->rv);
	kube_watch_set_text(&w->begin_rv, w->rv);
	buf_puts(&b, w->selectors);
	path = buf_steal(&b);
	s.path = path;
	r = kube_stream(w->kube, &s, &w->call);
	if (r < 0) {
		kube_watch_enter(w);
		kube_watch_fail(w, false, "watch", strerror(-r));
		kube_watch_leave(w);
	} else {
		timer_set(w->loop, &w->watchdog, w->times->watchdog_ns, watch_silence, w);
	}
}
