// SPDX-License-Identifier: Apache-2.0
/*
 * What a watch does after an error that the server reports, as the HTTP status of an answer or as
 * an ERROR event: when it asks again, and whether with a list. It owns nothing. Loop thread.
 */
#include "lib/kube/watch_private.h"

static char *status_text(struct kube_watch *w)
{
	_cleanup_json_ json_t *j = json_loadb(w->error_body.data ?: "", w->error_body.len, 0, NULL);

	return kube_status_text(w->status, j);
}

static bool says_too_large(const char *text)
{
	return strstr(text, "Too large resource version") != NULL;
}

/* Asks again after slow_ns or more, because the cause of the error will not end within seconds. */
static void slow(struct kube_watch *w, bool list)
{
	uint64_t ns = w->times->slow_ns + random_below(w->times->slow_ns / 2 + 1);

	kube_watch_count("backoff");
	kube_watch_wait(w, list, MAX(ns, w->retry_after_ns));
}

/*
 * The server does not have the kind. A server that is still starting may answer so, too. So if a
 * list of an optional kind succeeded before, the kind counts as empty only at the second such
 * answer.
 */
static void on_missing(struct kube_watch *w, const char *text)
{
	w->n_missing++;
	if (!w->optional) {
		kube_watch_tell_state(w, text);
		slow(w, true);
		return;
	}
	if (w->synced && w->n_missing < 2) {
		kube_watch_back_off(w, true);
		return;
	}
	kube_watch_set_text(&w->rv, NULL);
	kube_store_begin(w->store, kube_room_new(w->max_bytes));
	kube_store_sweep(w->store, UINT32_MAX);
	kube_store_tell_left_out(w->store);
	kube_watch_tell_synced(w);
	kube_watch_tell_state(w, NULL);
	slow(w, true);
}

/*
 * Whether the answer has another status than 200. The status of the head counts, even if the rest
 * of the answer is lost.
 */
bool kube_watch_is_refused(const struct kube_watch *w)
{
	return w->status != 0 && w->status != 200;
}

static void on_unauthorized(struct kube_watch *w, bool listing, const char *text)
{
	kube_reread_token(w->kube);
	if (w->n_unauthorized++ == 0) {
		kube_watch_wait(w, listing, 0);
		return;
	}
	kube_watch_tell_state(w, text);
	slow(w, listing);
}

/*
 * Asks for a list. If the failed request was a list that did not ask for the newest version, the
 * new list does, and begins at once. Otherwise a wait comes first.
 */
static void list_again(struct kube_watch *w, bool listing)
{
	if (listing && !w->quorum)
		kube_watch_wait(w, true, 0);
	else
		kube_watch_back_off(w, true);
}

static void on_expired(struct kube_watch *w, bool listing)
{
	/* the server does not have the next page any more: asks for the whole list */
	if (listing && w->next_page && !w->whole) {
		kube_watch_drop_items(w);
		w->whole = w->quorum = true;
		kube_watch_start_list(w);
		return;
	}
	w->rv_useless |= listing;
	list_again(w, listing);
}

static void on_other_status(struct kube_watch *w, bool listing, const char *text)
{
	/*
	 * the server would refuse the same watch again, so a list follows. It asks for another
	 * version, or the answer to it says more about the error
	 */
	bool refused = w->status >= 400 && w->status < 500 && w->status != 429;

	/* status 400 for a list: the server may not know the version */
	w->rv_useless |= listing && w->status == 400;
	kube_watch_tell_state(w, text);
	kube_watch_back_off(w, listing || refused);
	if (w->status >= 500)
		kube_watch_await_server(w);
}

void kube_watch_on_bad_status(struct kube_watch *w, bool listing)
{
	_cleanup_free_ char *answer = status_text(w);
	_cleanup_free_ char *text =
		xasprintf("%s %s: %s", listing ? "list" : "watch", w->path, answer);

	if (w->status != 401)
		w->n_unauthorized = 0;
	if (w->status == 401) {
		on_unauthorized(w, listing, text);
		/* a server that has not read its roles yet also answers 403 */
	} else if (w->status == 403) {
		kube_watch_tell_state(w, text);
		slow(w, listing);
		kube_watch_await_server(w);
	} else if (w->status == 404) {
		on_missing(w, text);
	} else if (w->status == 410) {
		on_expired(w, listing);
	} else if (says_too_large(answer)) {
		w->rv_useless = true;
		list_again(w, listing);
	} else {
		on_other_status(w, listing, text);
	}
}

void kube_watch_on_error_event(struct kube_watch *w, const json_t *status)
{
	int code = (int)json_int_at(status, "code", 0);
	const char *message = json_str_at(status, "message", "no message");
	_cleanup_free_ char *text = xasprintf("error %d: %.500s", code, message);

	kube_watch_hang_up(w);
	if (code == 410) {
		kube_watch_back_off(w, true);
	} else if (says_too_large(message)) {
		w->rv_useless = true;
		kube_watch_back_off(w, true);
	} else {
		/*
		 * the cause of one error may end by itself. After a second one a list follows,
		 * because an object that is stored at this version may cause the error
		 */
		if (code >= 500)
			w->n_errors++;
		kube_watch_fail(w, code != 429 && (code < 500 || w->n_errors > 1), "watch", text);
	}
}
