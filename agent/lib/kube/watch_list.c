// SPDX-License-Identifier: Apache-2.0
/*
 * The lists of a watch. Pages are split into objects while they arrive. Only a complete list is
 * compared with the store, in slices: one per turn of the loop.
 */
#include <stdlib.h>
#include <utlist.h>

#include "lib/kube/watch_private.h"

#define DELIVER_SLICE 64 /* objects per turn of the loop */

static void leave_out(struct kube_item *i, void *arg)
{
	struct kube_watch *w = arg;

	kube_count_left_out();
	if (w->ops.no_room)
		w->ops.no_room(i->key, i->obj, w->arg);
	DL_DELETE(w->items, i);
	kube_item_free(i);
}

static bool on_item(const char *text, size_t n, void *arg)
{
	struct kube_watch *w = arg;
	_cleanup_json_ json_t *obj = kube_watch_parse(w, text, n);
	struct kube_item *i = obj ? kube_watch_item(w, obj) : NULL;

	if (!i) {
		w->n_unread++;
		return true;
	}
	DL_APPEND(w->items, i);
	if (!kube_room_add(w->room, i, true))
		leave_out(i, w);
	else if (kube_room_is_over(w->room))
		kube_room_settle(w->room, leave_out, w);
	return true;
}

static void list_data(const void *p, size_t n, void *arg)
{
	struct kube_watch *w = arg;

	if (w->status == 200)
		kube_list_split_feed(&w->split, p, n, on_item, w);
	else
		buf_add(&w->error_body, p, n);
}

/*
 * Adds kind and apiVersion to an item of a list. The API server leaves them out of the items of
 * built-in kinds, but not out of the objects of watch events.
 */
static void complete_type(const struct kube_watch *w, json_t *obj)
{
	if (w->list_kind && !json_object_get(obj, "kind"))
		json_object_set_new(obj, "kind", json_string(w->list_kind));
	if (w->list_version && !json_object_get(obj, "apiVersion"))
		json_object_set_new(obj, "apiVersion", json_string(w->list_version));
}

static void deliver(void *arg)
{
	struct kube_watch *w = arg;
	bool more = true;

	kube_watch_enter(w);
	for (unsigned n = 0; n < DELIVER_SLICE && w->items && !w->dead; n++) {
		struct kube_item *i = w->items;

		DL_DELETE(w->items, i);
		complete_type(w, i->obj);
		kube_store_take(w->store, i, true);
	}
	if (!w->items && !w->dead)
		more = kube_store_sweep(w->store, DELIVER_SLICE);
	if (!more && !w->dead) {
		kube_watch_drop_items(w);
		kube_store_tell_left_out(w->store);
		kube_watch_tell_synced(w);
		kube_watch_tell_state(w, NULL);
	}
	if (!kube_watch_leave(w))
		return;
	if (more)
		timer_set(w->loop, &w->timer, 0, deliver, w);
	else if (!w->once)
		kube_watch_start_stream(w);
}

static void list_complete(struct kube_watch *w)
{
	kube_watch_set_text(&w->rv, w->list_rv);
	w->rv_useless = false;
	w->event_lost = false;
	w->n_errors = 0;
	kube_watch_worked(w);
	kube_room_settle(w->room, leave_out, w);
	kube_store_begin(w->store, TAKE_PTR(w->room));
	w->listed_ns = now_mono_ns();
	w->room_again_ns = 0;
	w->state = ST_DELIVERING;
	timer_cancel(&w->watchdog);
	deliver(w);
}

/* Reads the list without its items, and finds the next page. Returns an error if it is no list. */
static const char *read_skeleton(struct kube_watch *w)
{
	const struct buf *b = &w->split.skeleton;
	_cleanup_json_ json_t *j = json_loadb(b->data ?: "", b->len, 0, NULL);
	const char *kind = json_str_at(j, "kind", ""),
		   *rv = json_str_at(j, "metadata.resourceVersion", "");
	const json_t *items = json_object_get(j, "items");
	_cleanup_free_ char *item_kind = NULL;

	if (!json_is_object(j) || b->failed)
		return "the answer is no JSON object";
	if (!str_has_suffix(kind, "List") ||
	    (items && !json_is_array(items) && !json_is_null(items)))
		return "the answer is no list of objects";
	if (!*rv)
		return "the list has no resourceVersion";
	item_kind = xstrndup(kind, strlen(kind) - 4);
	kube_watch_set_text(&w->list_kind, item_kind);
	kube_watch_set_text(&w->list_version, json_str_at(j, "apiVersion", ""));
	kube_watch_set_text(&w->list_rv, rv);
	kube_watch_set_text(&w->next_page, json_str_at(j, "metadata.continue", ""));
	return NULL;
}

static void list_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct kube_watch *w = arg;

	(void)body;
	(void)n;
	w->call = NULL;
	kube_watch_enter(w);
	if (kube_watch_is_refused(w)) {
		kube_watch_on_bad_status(w, true);
	} else if (status == 0) {
		kube_look_at_ca(w->kube);
		kube_watch_fail(w, true, "list", error);
		kube_watch_await_server(w);
	} else {
		const char *why = read_skeleton(w);

		w->n_unread += w->split.n_lost;
		if (why)
			kube_watch_fail(w, true, "list", why);
		else if (w->next_page)
			kube_watch_start_list(w);
		else
			list_complete(w);
	}
	kube_watch_leave(w);
}

/*
 * Ends a list if the server has been silent for too long. Once its answer has begun, a list has no
 * other deadline.
 */
static void watch_list(void *arg)
{
	struct kube_watch *w = arg;

	if (w->call && kube_stream_idle_ns(w->kube, w->call) >
			       MIN(w->times->list_head_ns, w->times->probe_ns)) {
		kube_watch_hang_up(w);
		kube_watch_enter(w);
		kube_watch_fail(w, true, "list", "the server fell silent");
		kube_watch_await_server(w);
		kube_watch_leave(w);
		return;
	}
	timer_set(w->loop, &w->watchdog, w->times->watchdog_ns, watch_list, w);
}

static char *list_path(struct kube_watch *w)
{
	struct buf b = {0};
	const char *rv = w->quorum ? "" : w->rv ?: "0";

	buf_printf(&b, "%s?", w->path);
	if (w->next_page) {
		buf_printf(&b, "limit=%u&continue=", w->times->page_limit);
		url_encode(&b, w->next_page);
	} else {
		if (!w->whole && (!*rv || streq(rv, "0")))
			buf_printf(&b, "limit=%u&", w->times->page_limit);
		buf_puts(&b, "resourceVersion=");
		url_encode(&b, rv);
	}
	buf_puts(&b, w->selectors);
	return buf_steal(&b);
}

void kube_watch_start_list(struct kube_watch *w)
{
	struct kube_stream s = {
		.accept = w->metadata_only ? "application/json;as=PartialObjectMetadataList;"
					     "g=meta.k8s.io;v=v1,application/json"
					   : "application/json",
		.timeout_ns = w->times->list_head_ns,
		.on_head = kube_watch_remember_head,
		.on_data = list_data,
		.on_done = list_done,
		.arg = w,
	};
	_cleanup_free_ char *path = NULL;
	int r;

	if (w->dead)
		return;
	if (!w->next_page && !w->whole)
		w->quorum = w->rv_useless;
	if (!w->next_page)
		w->n_unread = 0;
	if (!w->room)
		w->room = kube_room_new(w->max_bytes);
	w->state = ST_LISTING;
	kube_watch_count("list");
	kube_watch_reset_answer(w);
	kube_list_split_done(&w->split);
	kube_list_split_init(&w->split, w->times->max_object_bytes);
	path = list_path(w);
	s.path = path;
	r = kube_stream(w->kube, &s, &w->call);
	if (r < 0) {
		kube_watch_enter(w);
		kube_watch_fail(w, true, "list", strerror(-r));
		kube_watch_leave(w);
	} else {
		timer_set(w->loop, &w->watchdog, w->times->watchdog_ns, watch_list, w);
	}
}
