// SPDX-License-Identifier: Apache-2.0
/*
 * list + watch of one kind as client-go's reflector does it; the table of cases and their tests is
 * docs/watch.md. One state machine:
 *
 *   wait -> list (pages) -> deliver (in slices) -> watch -> list or watch again
 *
 * Nearly every error ends in kube_watch_wait() with the state that follows the wait. watch_errors.c
 * chooses this state after an error that the server reports.
 */
#include <stdlib.h>
#include <utlist.h>

#include "lib/kube/watch_private.h"

#define MAX_RETRY_AFTER_S 600	     /* seconds; a longer Retry-After counts as this */
#define MAX_ERROR_BYTES	  (64 << 10) /* bytes of the body of an error's answer */
#define MAX_HURRIED	  3	     /* the most early retries in a row */

static void go_on(void *arg);
static void really_free(struct kube_watch *w);

/* ---- telling the owner, who may free us meanwhile ---- */

void kube_watch_enter(struct kube_watch *w)
{
	w->depth++;
}

/* true: w still exists */
bool kube_watch_leave(struct kube_watch *w)
{
	if (--w->depth == 0 && w->dead) {
		really_free(w);
		return false;
	}
	return !w->dead;
}

void kube_watch_tell_state(struct kube_watch *w, const char *error)
{
	if (w->dead || (w->told && str_equal(w->error, error)))
		return;
	free(w->error);
	w->error = xstrdup(error);
	w->told = true;
	if (w->ops.state)
		w->ops.state(w->error, w->arg);
}

void kube_watch_tell_synced(struct kube_watch *w)
{
	if (w->synced || w->dead)
		return;
	w->synced = true;
	if (w->ops.synced)
		w->ops.synced(w->arg);
}

/* ---- waiting ---- */

void kube_watch_set_text(char **p, const char *s)
{
	char *copy = s && *s ? xstrdup(s) : NULL;

	free(*p);
	*p = copy;
}

void kube_watch_drop_items(struct kube_watch *w)
{
	struct kube_item *i, *next;

	DL_FOREACH_SAFE(w->items, i, next)
	kube_item_free(i);
	w->items = NULL;
	w->room = kube_room_free(w->room);
	kube_watch_set_text(&w->next_page, NULL);
	w->whole = false;
}

void kube_watch_wait(struct kube_watch *w, bool list, uint64_t ns)
{
	if (w->dead)
		return;
	kube_watch_drop_items(w);
	w->state = ST_WAIT;
	w->list_next = list;
	w->awaits_server = false;
	w->due_ns = now_mono_ns() + ns;
	timer_cancel(&w->watchdog);
	kube_stream_cancel(w->kube, &w->probe);
	timer_set(w->loop, &w->timer, ns, go_on, w);
}

void kube_watch_count(const char *event)
{
	counter_add(counter("kube_watch_total", "event", event), 1);
}

/*
 * Waits for the backoff, or for the time that the server asked for in Retry-After if that is
 * longer.
 */
void kube_watch_back_off(struct kube_watch *w, bool list)
{
	uint64_t ns = kube_backoff_next(&w->backoff, w->times); /* MAX() would call it twice */

	kube_watch_count("backoff");
	kube_watch_wait(w, list, MAX(ns, w->retry_after_ns));
}

void kube_watch_await_server(struct kube_watch *w)
{
	w->awaits_server = true;
	w->not_before_ns = now_mono_ns() + w->retry_after_ns;
}

void kube_watch_worked(struct kube_watch *w)
{
	w->n_unauthorized = w->n_missing = w->n_hurried = 0;
}

/* Another request has succeeded, so the server works again: makes the rest of the wait short. */
static void on_server_works(void *arg)
{
	struct kube_watch *w = arg;
	uint64_t now = now_mono_ns(), due;

	if (w->state != ST_WAIT || !w->awaits_server || w->n_hurried == MAX_HURRIED)
		return;
	due = MAX(now, w->not_before_ns) + random_below(w->times->hurry_ns + 1);
	w->awaits_server = false;
	if (due >= w->due_ns)
		return;
	w->n_hurried++;
	w->backoff = (struct backoff){0};
	kube_watch_count("hurry");
	timer_set(w->loop, &w->timer, due - now, go_on, w);
}

static void go_on(void *arg)
{
	struct kube_watch *w = arg;

	if (w->list_next || !w->rv)
		kube_watch_start_list(w);
	else
		kube_watch_start_stream(w);
}

void kube_watch_fail(struct kube_watch *w, bool list, const char *what, const char *why)
{
	_cleanup_free_ char *text = xasprintf("%s %s: %s", what, w->path, why);

	kube_watch_tell_state(w, text);
	kube_watch_back_off(w, list);
}

/* ---- the head of an answer ---- */

void kube_watch_remember_head(int status, const struct http_headers *h, void *arg)
{
	struct kube_watch *w = arg;
	const char *retry = http_header(h, "Retry-After");
	uint64_t s = 0;

	w->status = status;
	if (retry && str_to_u64(retry, MAX_RETRY_AFTER_S, &s) == -ERANGE)
		s = MAX_RETRY_AFTER_S;
	w->retry_after_ns = s * NSEC_PER_SEC;
	if (status == 200)
		kube_server_works(w->kube);
}

/* ---- objects ---- */

void kube_watch_dropped(const char *reason)
{
	counter_add(counter("kube_dropped_total", "reason", reason), 1);
}

json_t *kube_watch_parse(struct kube_watch *w, const char *text, size_t n)
{
	json_t *j =
		/* NUL is allowed, because a user may write "\u0000" into an annotation */
		json_loadb(text, n, JSON_ALLOW_NUL, NULL);

	if (json_is_object(j))
		return j;
	json_decref(j);
	w->event_lost = true;
	kube_watch_dropped("garbage");
	return NULL;
}

/* managedFields are removed, because nobody needs them and they are often half of an object. */
struct kube_item *kube_watch_item(const struct kube_watch *w, json_t *obj)
{
	uint64_t created_ns = 0;
	struct kube_item *i;

	(void)time_parse(json_str_at(obj, "metadata.creationTimestamp", ""), &created_ns);
	json_object_del(json_object_get(obj, "metadata"), "managedFields");
	if (w->trim)
		w->trim(obj);
	i = kube_item_new(obj, created_ns, json_memory_bytes(obj));
	if (!i)
		kube_watch_dropped("object_without_name");
	return i;
}

void kube_watch_reset_answer(struct kube_watch *w)
{
	w->status = 0;
	w->retry_after_ns = 0;
	w->moved = false;
	w->started_ns = now_mono_ns();
	buf_reset(&w->error_body);
}

/* Cancels the list or the stream. The caller has a reason, and decides what follows. */
void kube_watch_hang_up(struct kube_watch *w)
{
	kube_stream_cancel(w->kube, &w->call);
}

/* ---- the public face ---- */

static char *encode_selectors(const struct kube_watch_spec *s)
{
	struct buf b = {0};

	if (s->field_selector) {
		buf_puts(&b, "&fieldSelector=");
		url_encode(&b, s->field_selector);
	}
	if (s->label_selector) {
		buf_puts(&b, "&labelSelector=");
		url_encode(&b, s->label_selector);
	}
	return buf_steal(&b);
}

int kube_client_watch_new(struct kube *k, const struct kube_watch_spec *s,
			  const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	struct kube_watch *w;

	if (!s->path || s->path[0] != '/')
		return -EINVAL;
	w = xcalloc(1, sizeof(*w));
	w->base = *(struct kube_base *)k;
	w->kube = k;
	w->loop = kube_loop(k);
	w->times = kube_get_times(k);
	w->path = xstrdup(s->path);
	w->selectors = encode_selectors(s);
	w->metadata_only = s->metadata_only;
	w->optional = s->optional;
	w->once = s->once;
	w->trim = s->trim;
	w->max_bytes = s->max_bytes ? s->max_bytes : w->times->max_kind_bytes;
	w->ops = *ops;
	w->arg = arg;
	w->store = kube_store_new(&w->ops, arg, w->max_bytes);
	buf_init(&w->error_body, MAX_ERROR_BYTES);
	w->listener = (struct kube_listener){.fn = on_server_works, .arg = w};
	kube_listen(k, &w->listener);
	kube_watch_wait(w, true, s->start_jitter_ns ? random_below(s->start_jitter_ns) : 0);
	*ret = w;
	return 0;
}

static void really_free(struct kube_watch *w)
{
	kube_watch_drop_items(w);
	kube_store_free(w->store);
	kube_lines_done(&w->lines);
	kube_list_split_done(&w->split);
	buf_done(&w->error_body);
	free(w->path);
	free(w->selectors);
	free(w->rv);
	free(w->begin_rv);
	free(w->error);
	free(w->list_kind);
	free(w->list_version);
	free(w->list_rv);
	free(w);
}

void kube_client_watch_free(struct kube_watch *w)
{
	w->dead = true;
	kube_unlisten(w->kube, &w->listener);
	kube_store_mute(w->store);
	kube_watch_hang_up(w);
	kube_stream_cancel(w->kube, &w->probe);
	timer_cancel(&w->timer);
	timer_cancel(&w->watchdog);
	if (w->depth == 0)
		really_free(w);
}

const json_t *kube_client_watch_get(const struct kube_watch *w, const char *key)
{
	return kube_store_get(w->store, key);
}

void kube_client_watch_each(const struct kube_watch *w,
			    void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	kube_store_each(w->store, fn, arg);
}

bool kube_client_watch_synced(const struct kube_watch *w)
{
	return w->synced;
}

size_t kube_client_watch_left_out(const struct kube_watch *w)
{
	return w->n_unread + kube_room_left_out(kube_store_room(w->store));
}

void kube_client_watch_each_left_out(const struct kube_watch *w, kube_left_out_fn *fn, void *arg)
{
	kube_room_each_left_out(kube_store_room(w->store), fn, arg);
}
