// SPDX-License-Identifier: Apache-2.0
/*
 * list + watch of one kind with the semantics of client-go's reflector; the table
 * of cases and their tests is docs/watch.md. One state machine:
 *
 *   wait -> list (pages) -> deliver (in slices) -> watch -> list or watch again
 *
 * Everything that goes wrong ends in wait() with the state to go on with.
 */
#include <stdlib.h>

#include "lib/kube/kube_private.h"

#define LIST_NS		  (60 * NSEC_PER_SEC) /* to the head; a busy server takes its time */
#define WATCH_HEAD_NS	  (75 * NSEC_PER_SEC)
#define LIST_IDLE_NS	  (60 * NSEC_PER_SEC) /* no byte of a list */
#define DELIVER_SLICE	  64		      /* objects a turn of the loop */
#define MAX_RETRY_AFTER_S 600
#define MAX_ERROR_BYTES	  (64 << 10)
#define MAX_LISTED	  200000

enum watch_state { ST_WAIT, ST_LISTING, ST_DELIVERING, ST_WATCHING };

struct kube_watch {
	struct kube *kube;
	struct loop *loop;
	const struct kube_times *times;
	char *path, *selectors; /* "&fieldSelector=...", encoded */
	bool metadata_only, optional;
	struct kube_watch_ops ops;
	void *arg;
	struct kube_store *store;
	unsigned depth; /* callbacks that we are inside of */
	bool dead, synced;

	enum watch_state state;
	bool list_next;	 /* wait goes on with a list, else with a watch */
	char *rv;	 /* last seen; NULL: none yet */
	bool rv_useless; /* the server said so: ask for the newest */
	char *error;	 /* as told to ops.state; NULL: works */
	bool told;
	struct backoff backoff;
	struct timer timer, watchdog;
	struct http_call *call, *probe;
	unsigned n_unauthorized, n_missing;

	/* of the answer that is coming */
	int status;
	uint64_t retry_after_ns, started_ns, n_events, silence_limit_ns, probed_ns;
	bool event_lost;
	struct buf error_body;
	struct lines lines;
	struct list_split split;

	/* of the list */
	char *list_kind, *list_version, *list_rv, *next_page;
	bool quorum, whole; /* this list asks for "" / without pages */
	json_t **items;
	size_t n_items, cap_items, i_item;
};

static void go_on(void *arg);
static void start_list(struct kube_watch *w);
static void start_watch(struct kube_watch *w);

/* ---- telling the owner, who may free us meanwhile ---- */

static void really_free(struct kube_watch *w);

static void enter(struct kube_watch *w)
{
	w->depth++;
}

/* true: w is still there */
static bool leave(struct kube_watch *w)
{
	if (--w->depth == 0 && w->dead) {
		really_free(w);
		return false;
	}
	return !w->dead;
}

static void tell_state(struct kube_watch *w, const char *error)
{
	if (w->dead || (w->told && str_equal(w->error, error)))
		return;
	free(w->error);
	w->error = xstrdup(error);
	w->told = true;
	if (w->ops.state)
		w->ops.state(w->error, w->arg);
}

static void tell_synced(struct kube_watch *w)
{
	if (w->synced || w->dead)
		return;
	w->synced = true;
	if (w->ops.synced)
		w->ops.synced(w->arg);
}

/* ---- waiting ---- */

static void set_text(char **p, const char *s)
{
	char *copy = s && *s ? xstrdup(s) : NULL;

	free(*p);
	*p = copy;
}

static void drop_items(struct kube_watch *w)
{
	for (size_t i = w->i_item; i < w->n_items; i++)
		json_decref(w->items[i]);
	free(w->items);
	w->items = NULL;
	w->n_items = w->cap_items = w->i_item = 0;
	set_text(&w->next_page, NULL);
	w->whole = false;
}

static void wait_ns(struct kube_watch *w, bool list, uint64_t ns)
{
	if (w->dead)
		return;
	drop_items(w);
	w->state = ST_WAIT;
	w->list_next = list;
	timer_cancel(&w->watchdog);
	if (w->probe)
		http_cancel(TAKE_PTR(w->probe));
	timer_set(w->loop, &w->timer, ns, go_on, w);
}

static void count(const char *event)
{
	counter_add(counter("kube_watch_total", "event", event), 1);
}

/* What the server asks for counts when it is longer than our own backoff. */
static void back_off(struct kube_watch *w, bool list)
{
	uint64_t ns = MAX(backoff_next(&w->backoff, w->times), w->retry_after_ns);

	count("backoff");
	wait_ns(w, list, ns);
}

/* What will not change within seconds is asked for at a steady slow pace. */
static void slow(struct kube_watch *w, bool list)
{
	uint64_t ns = w->times->slow_ns + random_below(w->times->slow_ns / 2 + 1);

	count("backoff");
	wait_ns(w, list, MAX(ns, w->retry_after_ns));
}

static void go_on(void *arg)
{
	struct kube_watch *w = arg;

	if (w->list_next || !w->rv)
		start_list(w);
	else
		start_watch(w);
}

static void fail(struct kube_watch *w, bool list, const char *what, const char *why)
{
	_cleanup_free_ char *text = xasprintf("%s %s: %s", what, w->path, why);

	tell_state(w, text);
	back_off(w, list);
}

/* ---- answers that are no list and no stream ---- */

static char *status_text(struct kube_watch *w)
{
	_cleanup_json_ json_t *j = json_loadb(w->error_body.data ?: "", w->error_body.len, 0, NULL);
	const char *message = json_str_at(j, "message", "");

	return *message ? xasprintf("HTTP %d: %.500s", w->status, message)
			: xasprintf("HTTP %d", w->status);
}

static bool says_too_large(const char *text)
{
	return strstr(text, "Too large resource version") != NULL;
}

/* The kind is not served. Once may be a server that is still starting. */
static void on_missing(struct kube_watch *w, const char *text)
{
	w->n_missing++;
	if (!w->optional) {
		tell_state(w, text);
		slow(w, true);
		return;
	}
	if (w->synced && w->n_missing < 2) {
		back_off(w, true);
		return;
	}
	set_text(&w->rv, NULL);
	kube_store_begin(w->store);
	kube_store_sweep(w->store, UINT32_MAX);
	tell_synced(w);
	tell_state(w, NULL);
	slow(w, true);
}

static void on_bad_status(struct kube_watch *w, bool listing)
{
	_cleanup_free_ char *answer = status_text(w);
	_cleanup_free_ char *text =
		xasprintf("%s %s: %s", listing ? "list" : "watch", w->path, answer);
	bool too_large = says_too_large(answer);

	if (w->status != 401)
		w->n_unauthorized = 0;
	switch (w->status) {
	case 401:
		kube_reread_token(w->kube);
		if (w->n_unauthorized++ == 0) {
			wait_ns(w, listing, 0);
			return;
		}
		tell_state(w, text);
		slow(w, listing);
		return;
	case 403:
		tell_state(w, text);
		slow(w, listing);
		return;
	case 404:
		on_missing(w, text);
		return;
	case 410:
		if (listing && w->next_page && !w->whole) { /* the page's snapshot is gone */
			drop_items(w);
			w->whole = w->quorum = true;
			start_list(w);
			return;
		}
		w->rv_useless |= listing;
		if (listing && !w->quorum)
			wait_ns(w, true, 0);
		else
			back_off(w, true);
		return;
	default:
		if (too_large) {
			w->rv_useless = true;
			if (listing && !w->quorum)
				wait_ns(w, true, 0);
			else
				back_off(w, true);
			return;
		}
		tell_state(w, text);
		back_off(w, listing);
	}
}

static void remember_head(int status, const struct http_headers *h, void *arg)
{
	struct kube_watch *w = arg;
	const char *retry = http_header(h, "Retry-After");
	uint64_t s;

	w->status = status;
	w->retry_after_ns = 0;
	if (retry && str_to_u64(retry, MAX_RETRY_AFTER_S, &s) == 0)
		w->retry_after_ns = s * NSEC_PER_SEC;
}

/* ---- objects ---- */

static void dropped(const char *reason)
{
	counter_add(counter("kube_dropped_total", "reason", reason), 1);
}

static json_t *parse(struct kube_watch *w, const char *text, size_t n)
{
	json_t *j = json_loadb(text, n, 0, NULL);

	if (json_is_object(j))
		return j;
	json_decref(j);
	w->event_lost = true;
	dropped("garbage");
	return NULL;
}

/* Nobody needs them and they are often half of an object. */
static void trim(json_t *obj)
{
	json_object_del(json_object_get(obj, "metadata"), "managedFields");
}

/* ---- list ---- */

static bool on_item(const char *text, size_t n, void *arg)
{
	struct kube_watch *w = arg;
	json_t *obj = parse(w, text, n);

	if (!obj)
		return true;
	if (w->n_items >= MAX_LISTED) {
		json_decref(obj);
		dropped("too_many_objects");
		return true;
	}
	trim(obj);
	GROW(w->items, w->n_items, w->cap_items);
	w->items[w->n_items++] = obj;
	return true;
}

static void list_data(const void *p, size_t n, void *arg)
{
	struct kube_watch *w = arg;

	if (w->status == 200)
		list_split_feed(&w->split, p, n, on_item, w);
	else
		buf_add(&w->error_body, p, n);
}

/* Items of built-in kinds come without kind and apiVersion; watch events have them. */
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

	enter(w);
	for (unsigned n = 0; n < DELIVER_SLICE && w->i_item < w->n_items && !w->dead; n++) {
		json_t *obj = w->items[w->i_item++];

		complete_type(w, obj);
		if (kube_store_apply(w->store, obj) == -EINVAL)
			dropped("object_without_name");
		json_decref(obj);
	}
	if (w->i_item == w->n_items && !w->dead)
		more = kube_store_sweep(w->store, DELIVER_SLICE);
	if (!more && !w->dead) {
		drop_items(w);
		tell_synced(w);
		tell_state(w, NULL);
	}
	if (!leave(w))
		return;
	if (more)
		timer_set(w->loop, &w->timer, 0, deliver, w);
	else
		start_watch(w);
}

static void list_complete(struct kube_watch *w)
{
	set_text(&w->rv, w->list_rv);
	w->rv_useless = false;
	w->event_lost = false;
	w->n_unauthorized = w->n_missing = 0;
	kube_store_begin(w->store);
	w->i_item = 0;
	w->state = ST_DELIVERING;
	timer_cancel(&w->watchdog);
	deliver(w);
}

/* The list without its items: is it one, and what comes next? */
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
	set_text(&w->list_kind, item_kind);
	set_text(&w->list_version, json_str_at(j, "apiVersion", ""));
	set_text(&w->list_rv, rv);
	set_text(&w->next_page, json_str_at(j, "metadata.continue", ""));
	return NULL;
}

static void list_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct kube_watch *w = arg;

	(void)body;
	(void)n;
	w->call = NULL;
	enter(w);
	if (status == 0) {
		kube_look_at_ca(w->kube);
		fail(w, true, "list", error);
	} else if (status != 200) {
		on_bad_status(w, true);
	} else {
		const char *why = read_skeleton(w);

		if (why)
			fail(w, true, "list", why);
		else if (w->next_page)
			start_list(w);
		else
			list_complete(w);
	}
	leave(w);
}

/* Lists have no end time, only a longest silence. */
static void watch_list(void *arg)
{
	struct kube_watch *w = arg;

	if (w->call && http_call_idle_ns(w->call) > MIN(LIST_IDLE_NS, w->times->probe_ns)) {
		http_cancel(TAKE_PTR(w->call));
		enter(w);
		fail(w, true, "list", "the server fell silent");
		leave(w);
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

static void reset_answer(struct kube_watch *w)
{
	w->status = 0;
	w->retry_after_ns = 0;
	w->n_events = 0;
	w->started_ns = now_mono_ns();
	buf_reset(&w->error_body);
}

static void start_list(struct kube_watch *w)
{
	struct kube_stream s = {
		.accept = w->metadata_only ? "application/json;as=PartialObjectMetadataList;"
					     "g=meta.k8s.io;v=v1,application/json"
					   : "application/json",
		.timeout_ns = LIST_NS,
		.on_head = remember_head,
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
	w->state = ST_LISTING;
	count("list");
	reset_answer(w);
	list_split_done(&w->split);
	list_split_init(&w->split, w->times->max_object_bytes);
	path = list_path(w);
	s.path = path;
	r = kube_stream(w->kube, &s, &w->call);
	if (r < 0)
		fail(w, true, "list", strerror(-r));
	else
		timer_set(w->loop, &w->watchdog, w->times->watchdog_ns, watch_list, w);
}

/* ---- watch ---- */

/* Both end the stream: the reason is acted on where it is known. */
static void hang_up(struct kube_watch *w)
{
	if (w->call)
		http_cancel(TAKE_PTR(w->call));
}

static void on_error_event(struct kube_watch *w, const json_t *status)
{
	int code = (int)json_int_at(status, "code", 0);
	const char *message = json_str_at(status, "message", "no message");
	_cleanup_free_ char *text = xasprintf("error %d: %.500s", code, message);

	hang_up(w);
	if (code == 410) {
		back_off(w, true);
	} else if (says_too_large(message)) {
		w->rv_useless = true;
		back_off(w, true);
	} else {
		fail(w, code != 429 && code < 500, "watch", text);
	}
}

static void on_object_event(struct kube_watch *w, const char *type, json_t *obj)
{
	const char *rv = json_str_at(obj, "metadata.resourceVersion", "");
	_cleanup_free_ char *next_rv = xstrdup(rv);
	int r = 0;

	if (streq(json_str_at(obj, "kind", ""), "Table")) {
		dropped("table_instead_of_object");
		return;
	}
	trim(obj);
	if (streq(type, "DELETED"))
		r = kube_store_remove(w->store, obj);
	else if (!streq(type, "BOOKMARK"))
		r = kube_store_apply(w->store, obj);
	if (r == -EINVAL)
		dropped("object_without_name");
	if (!w->dead && *next_rv)
		set_text(&w->rv, next_rv);
}

/* false: this stream is over */
static bool on_event(const char *line, size_t n, void *arg)
{
	struct kube_watch *w = arg;
	_cleanup_json_ json_t *event = parse(w, line, n);
	const char *type = json_str_at(event, "type", "");
	json_t *obj = json_object_get(event, "object");

	if (!event)
		return true;
	if (streq(type, "ERROR")) {
		on_error_event(w, obj);
		return false;
	}
	if (!streq(type, "ADDED") && !streq(type, "MODIFIED") && !streq(type, "DELETED") &&
	    !streq(type, "BOOKMARK")) {
		dropped("unknown_event_type");
		return true;
	}
	if (!json_is_object(obj)) {
		dropped("event_without_object");
		return true;
	}
	w->n_events++;
	on_object_event(w, type, obj);
	return !w->dead;
}

static void watch_head(int status, const struct http_headers *h, void *arg)
{
	struct kube_watch *w = arg;

	remember_head(status, h, arg);
	if (status != 200)
		return;
	w->n_unauthorized = w->n_missing = 0;
	enter(w);
	tell_state(w, NULL);
	leave(w);
}

static void watch_data(const void *p, size_t n, void *arg)
{
	struct kube_watch *w = arg;

	if (w->status != 200) {
		buf_add(&w->error_body, p, n);
		return;
	}
	enter(w);
	w->event_lost |= w->lines.n_lost != 0;
	lines_feed(&w->lines, p, n, on_event, w);
	leave(w);
}

/* The stream ended without a word of error: go on where we are, unless it proves nothing. */
static void watch_ended(struct kube_watch *w, const char *error)
{
	bool too_short =
		w->n_events == 0 && now_mono_ns() - w->started_ns < w->times->short_watch_ns;
	bool list = w->event_lost || w->lines.n_lost;

	if (error && (too_short || w->status == 0))
		fail(w, list, "watch", error);
	else if (too_short || list)
		back_off(w, list);
	else
		wait_ns(w, false, 0);
}

static void watch_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct kube_watch *w = arg;

	(void)body;
	(void)n;
	w->call = NULL;
	enter(w);
	if (status == 0)
		kube_look_at_ca(w->kube);
	if (status == 200 || status == 0)
		watch_ended(w, error);
	else
		on_bad_status(w, false);
	leave(w);
}

/* ---- silence ---- */

static bool is_older(const char *a, const char *b)
{
	uint64_t na, nb;

	return str_to_u64(a, UINT64_MAX, &na) == 0 && str_to_u64(b, UINT64_MAX, &nb) == 0 &&
	       na < nb;
}

static void probe_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct kube_watch *w = arg;
	_cleanup_json_ json_t *j = NULL;
	const char *newest;

	(void)error;
	w->probe = NULL;
	if (w->state != ST_WATCHING)
		return;
	j = json_loadb(body ?: "", n, 0, NULL);
	newest = json_str_at(j, "metadata.resourceVersion", "");
	enter(w);
	if (status == 0) {
		hang_up(w);
		fail(w, false, "watch", "the stream is silent and the server does not answer");
	} else if (w->rv && is_older(newest, w->rv)) { /* restored from a backup */
		hang_up(w);
		w->rv_useless = true;
		wait_ns(w, true, 0);
	}
	leave(w);
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
	uint64_t now_ns = now_mono_ns(), idle_ns = w->call ? http_call_idle_ns(w->call) : 0;

	if (idle_ns > w->silence_limit_ns) {
		count("silent_stream_closed");
		enter(w);
		hang_up(w);
		wait_ns(w, false, 0);
		leave(w);
		return;
	}
	if (idle_ns > w->times->probe_ns && now_ns - w->probed_ns > w->times->probe_ns && !w->probe)
		start_probe(w);
	timer_set(w->loop, &w->watchdog, w->times->watchdog_ns, watch_silence, w);
}

static void start_watch(struct kube_watch *w)
{
	unsigned timeout_s = w->times->watch_timeout_s +
			     (unsigned)random_below(MAX(w->times->watch_timeout_s, 1u));
	struct kube_stream s = {
		.accept = w->metadata_only ? "application/json;as=PartialObjectMetadata;"
					     "g=meta.k8s.io;v=v1,application/json"
					   : "application/json",
		.timeout_ns = WATCH_HEAD_NS,
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
	count("watch");
	reset_answer(w);
	w->silence_limit_ns = timeout_s * NSEC_PER_SEC + w->times->silence_slack_ns;
	lines_done(&w->lines);
	lines_init(&w->lines, w->times->max_object_bytes);
	buf_printf(&b, "%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%u&resourceVersion=",
		   w->path, timeout_s);
	url_encode(&b, w->rv);
	buf_puts(&b, w->selectors);
	path = buf_steal(&b);
	s.path = path;
	r = kube_stream(w->kube, &s, &w->call);
	if (r < 0)
		fail(w, false, "watch", strerror(-r));
	else
		timer_set(w->loop, &w->watchdog, w->times->watchdog_ns, watch_silence, w);
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

int kube_watch_new(struct kube *k, const struct kube_watch_spec *s,
		   const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	struct kube_watch *w;

	if (!s->path || s->path[0] != '/')
		return -EINVAL;
	w = xcalloc(1, sizeof(*w));
	w->kube = k;
	w->loop = kube_loop(k);
	w->times = kube_get_times(k);
	w->path = xstrdup(s->path);
	w->selectors = encode_selectors(s);
	w->metadata_only = s->metadata_only;
	w->optional = s->optional;
	w->ops = *ops;
	w->arg = arg;
	w->store = kube_store_new(&w->ops, arg);
	buf_init(&w->error_body, MAX_ERROR_BYTES);
	wait_ns(w, true, s->start_jitter_ns ? random_below(s->start_jitter_ns) : 0);
	*ret = w;
	return 0;
}

static void really_free(struct kube_watch *w)
{
	drop_items(w);
	kube_store_free(w->store);
	lines_done(&w->lines);
	list_split_done(&w->split);
	buf_done(&w->error_body);
	free(w->path);
	free(w->selectors);
	free(w->rv);
	free(w->error);
	free(w->list_kind);
	free(w->list_version);
	free(w->list_rv);
	free(w);
}

struct kube_watch *kube_watch_free(struct kube_watch *w)
{
	if (!w)
		return NULL;
	w->dead = true;
	kube_store_mute(w->store);
	hang_up(w);
	if (w->probe)
		http_cancel(TAKE_PTR(w->probe));
	timer_cancel(&w->timer);
	timer_cancel(&w->watchdog);
	if (w->depth == 0)
		really_free(w);
	return NULL;
}

const json_t *kube_watch_get(const struct kube_watch *w, const char *key)
{
	return kube_store_get(w->store, key);
}

void kube_watch_each(const struct kube_watch *w,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	kube_store_each(w->store, fn, arg);
}

bool kube_watch_synced(const struct kube_watch *w)
{
	return w->synced;
}
