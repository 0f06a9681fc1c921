/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list and watch with a server that sends anything. The input is a script of what the server
 * sends (heads, any bytes, well-formed events and lists, ends, silence) and of how time passes. It
 * may free the watch in the callbacks of the watch. The reports must be consistent: no known object
 * is reported as new, no unknown object as deleted, there are never two requests at once, no state
 * is reported twice, and in the end the watch has the objects that it reported.
 * Fuzzes: lib/kube/watch.c, lib/kube/watch_list.c, lib/kube/watch_stream.c,
 * lib/kube/watch_errors.c, lib/kube/store.c, lib/kube/room.c, lib/kube/decode.c
 */
#include "lib/base/fuzzinput.h"
#include "lib/kube/watch_private.h"
#include "lib/loop/testconn.h"

#include <stdlib.h>

#define MAX_STEPS 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* ---- the HTTP client below the kube; the loop does not run ---- */

struct http_call {
	struct http_request r;
	bool open, head;
	int status;
};
static struct http_call call, probe; /* call: a list or a stream; probe: asked after a silence */
static struct loop *loop;
static struct kube *kube;
static uint64_t idle_ns;
static bool refuses;

static int client_new(struct loop *l, const struct http_client_config *c, struct http_client **ret)
{
	(void)l;
	(void)c;
	*ret = NULL;
	return 0;
}

static struct http_client *client_free(struct http_client *h)
{
	(void)h;
	return NULL;
}

static int request_sent(struct http_client *h, const struct http_request *r, struct http_call **ret)
{
	struct http_call *c = r->on_data ? &call : &probe;

	(void)h;
	check(!c->open);
	check(r->path[0] == '/' && !strpbrk(r->path, " \r\n"));
	if (refuses)
		return -ENOBUFS;
	*c = (struct http_call){.r = *r, .open = true};
	*ret = c;
	return 0;
}

static void request_canceled(struct http_call *c)
{
	check(c->open);
	c->open = false;
}

static uint64_t request_idle_ns(const struct http_call *c)
{
	check(c->open);
	return idle_ns;
}

static const struct kube_http_ops http_ops = {
	.client_new = client_new,
	.client_free = client_free,
	.send = request_sent,
	.cancel = request_canceled,
	.call_idle_ns = request_idle_ns,
};

static void fire(struct timer *t)
{
	if (!t->impl)
		return;
	timer_cancel(t);
	t->fn(t->arg);
}

/* ---- the owner: what it was told ---- */

static struct kube_watch *watch;
static json_t *told; /* key -> object */
static char *state;
static bool is_told, synced, frees;

static void maybe_free(void)
{
	if (!frees || !watch)
		return;
	kube_watch_free(TAKE_PTR(watch));
}

static bool same_but_version(const json_t *a, const json_t *b)
{
	_cleanup_json_ json_t *x = json_deep_copy(a), *y = json_deep_copy(b);

	json_object_del(json_object_get(x, "metadata"), "resourceVersion");
	json_object_del(json_object_get(y, "metadata"), "resourceVersion");
	return json_equal(x, y);
}

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	const json_t *known = json_object_get(told, key);

	(void)arg;
	check(watch && json_is_object(obj));
	check(old ? known && same_but_version(known, old) && !same_but_version(obj, old) : !known);
	check(!json_at(obj, "metadata.managedFields"));
	json_object_set_new(told, key, json_deep_copy(obj));
	maybe_free();
}

static void removed(const char *key, const json_t *last, void *arg)
{
	(void)arg;
	check(watch && last && same_but_version(json_object_get(told, key), last));
	json_object_del(told, key);
	maybe_free();
}

static void on_synced(void *arg)
{
	(void)arg;
	check(watch && !synced);
	synced = true;
	maybe_free();
}

static void on_state(const char *error, void *arg)
{
	(void)arg;
	check(watch && !(is_told && str_equal(state, error)) && (!error || *error));
	free(state);
	state = xstrdup(error);
	is_told = true;
	maybe_free();
}

/* ---- the server ---- */

/* Delivers a copy, so that a sanitizer reports a read behind its end. */
static void give_piece(const char *text, size_t n)
{
	_cleanup_free_ char *piece = xmalloc(n + 1);

	memcpy(piece, text, n);
	piece = xrealloc(piece, MAX(n, (size_t)1));
	if (call.open && call.head && call.r.on_data)
		call.r.on_data(piece, n, call.r.arg);
}

/*
 * Delivers the text in two pieces, cut anywhere. The watch may cancel the call after the first one.
 */
static void give(const char *text, size_t n)
{
	size_t cut = take() * n / 255;

	give_piece(text, cut);
	give_piece(text + cut, n - cut);
}

static void give_head(int status, const char *retry_after)
{
	const struct http_headers headers = {.n = retry_after != NULL,
					     .field = {{"Retry-After", retry_after}}};

	call.status = status;
	call.head = true;
	call.r.on_head(status, &headers, call.r.arg);
}

static void head(void)
{
	static const int statuses[] = {200, 200, 200, 200, 401, 403, 404, 410, 429, 500, 503};
	static const char *const waits[] = {NULL, "1", "601", "x"};
	int status;

	if (!call.open || call.head)
		return;
	status = statuses[take() % ARRAY_SIZE(statuses)];
	give_head(status, status == 200 ? NULL : waits[take() % ARRAY_SIZE(waits)]);
}

static void done(struct http_call *c, const char *body, size_t n, bool broken)
{
	struct http_call was = *c;

	if (!c->open)
		return;
	c->open = false;
	if (broken && take() % 2)
		was.status = 0;
	else if (!was.status)
		was.status = 200;
	was.r.on_done(was.status, body, n, broken || !was.status ? "it broke" : NULL, was.r.arg);
}

/* Returns an object: few names, two uids, content that changes or not. */
static char *object(void)
{
	unsigned a = take(), b = take();

	return xasprintf("{\"kind\":\"%s\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"%s\","
			 "\"uid\":\"u%u\",\"resourceVersion\":\"%u\"%s},\"a\":%u}",
			 a & 64 ? "Table" : "Pod", &"n\0abcd"[a % 6], b & 1 ? "x" : "", b >> 1 & 1,
			 b >> 4, b & 4 ? ",\"managedFields\":[1]" : "", b >> 3 & 1);
}

static void event(void)
{
	static const char *const types[] = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "X"};
	_cleanup_free_ char *o = object();
	_cleanup_free_ char *line =
		xasprintf("{\"type\":\"%s\",\"object\":%s}\r\n", types[take() % 5], o);

	give(line, strlen(line));
}

static void error_event(void)
{
	static const int codes[] = {410, 429, 500, 504, 400};
	_cleanup_free_ char *line = xasprintf(
		"{\"type\":\"ERROR\",\"object\":{\"code\":%d,\"message\":\"%s\"}}\n",
		codes[take() % 5], take() % 2 ? "Too large resource version: 5, current: 3" : "m");

	give(line, strlen(line));
}

static void list(void)
{
	unsigned n = take() % 5, more = take();
	struct buf b = {0};

	buf_printf(&b,
		   "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":"
		   "\"%u\"%s},\"items\":[",
		   more >> 2, more & 1 ? ",\"continue\":\"c\"" : "");
	for (unsigned i = 0; i < n; i++) {
		_cleanup_free_ char *o = object();

		buf_printf(&b, "%s%s", i ? "," : "", o);
	}
	buf_puts(&b, more & 2 ? "]}" : "]");
	give(b.data, b.len);
	buf_done(&b);
}

static void raw(void)
{
	size_t want = take(), n = MIN(want, in.n);
	_cleanup_free_ char *text = xstrndup((const char *)in.data, n);

	in.data += n;
	in.n -= n;
	give(text, strlen(text));
}

static void probe_answer(void)
{
	_cleanup_free_ char *text =
		xasprintf("{\"metadata\":{\"resourceVersion\":\"%u\"}}", take());

	if (probe.open && take() % 4 == 0)
		done(&probe, NULL, 0, true);
	else
		done(&probe, text, strlen(text), false);
}

/* Delivers a complete list: it leads to states that random input seldom reaches. */
static void good_list(void)
{
	if (!call.open || call.head)
		return;
	give_head(200, NULL);
	list();
	done(&call, NULL, 0, false);
}

static void good_head(void)
{
	if (!call.open || call.head)
		return;
	give_head(200, NULL);
}

static void step(void)
{
	switch (take() % 16) {
	case 0:
	case 1:
		fire(&watch->timer);
		break;
	case 2:
		idle_ns = take() * 10 * NSEC_PER_SEC;
		fire(&watch->watchdog);
		break;
	case 3:
		head();
		break;
	case 4:
		raw();
		break;
	case 5:
		done(&call, NULL, 0, take() % 4 == 0);
		break;
	case 6:
		probe_answer();
		break;
	case 7:
		frees = take() == 7;
		break;
	case 8:
	case 9:
		event();
		break;
	case 10:
		error_event();
		break;
	case 11:
		list();
		break;
	case 12:
		good_list();
		break;
	case 13:
		good_head();
		break;
	case 14:
		kube_server_works(kube);
		break;
	default:
		refuses = take() % 8 == 0;
	}
}

static size_t n_known;

static void known(const char *key, const json_t *obj, void *arg)
{
	(void)arg;
	n_known++;
	check(same_but_version(json_object_get(told, key), obj) &&
	      kube_watch_get(watch, key) == obj);
}

static void begin(const uint8_t *data, size_t n)
{
	const struct kube_config config = {.address = "a", .port = 1, .plain_http = true};
	struct kube_times times;
	unsigned limits;

	in.data = data;
	in.n = n;
	call = probe = (struct http_call){0};
	is_told = synced = frees = refuses = false;
	state = NULL;
	told = json_object();
	limits = take();
	times = (struct kube_times){
		.backoff_first_ns = NSEC_PER_SEC,
		.backoff_max_ns = 30 * NSEC_PER_SEC,
		.short_watch_ns = limits & 1 ? 0 : NSEC_PER_SEC,
		.watch_timeout_s = 300,
		.page_limit = 500,
		.max_object_bytes = 256,
		.max_kind_bytes = limits & 2 ? 1 << 20 : 2 << 10,
	};
	check(loop || loop_new(&loop) == 0);
	check(kube_new_over(&http_ops, loop, &config, "fuzz", &kube, NULL) == 0);
	kube_set_times(kube, &times);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct kube_watch_ops ops = {upsert, removed, on_synced, on_state, NULL, NULL};
	struct kube_watch_spec spec = {.path = "/api/v1/pods", .field_selector = "a=b"};
	unsigned shape;

	begin(data, n);
	shape = take();
	spec.metadata_only = shape & 1;
	spec.optional = shape & 2;
	spec.label_selector = shape & 4 ? "c in (d)" : NULL;
	check(kube_watch_new(kube, &spec, &ops, NULL, &watch) == 0);
	for (unsigned i = 0; i < MAX_STEPS && in.n && watch; i++) {
		check(watch->depth == 0);
		step();
	}
	n_known = 0;
	if (watch) {
		kube_watch_each(watch, known, NULL);
		check(n_known == json_object_size(told) && kube_watch_synced(watch) == synced);
	}
	if (watch)
		kube_watch_free(TAKE_PTR(watch));
	check(!call.open && !probe.open);
	kube_server_works(kube); /* a freed watch does not listen */
	kube = kube_free(kube);
	json_decref(told);
	free(state);
	return 0;
}
