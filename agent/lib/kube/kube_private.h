/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/kube and its tests: the times of the reflector, credentials,
 * and the decoders between HTTP and objects.
 */
#pragma once

#include <sys/stat.h>

#include "lib/kube/kube.h"

/* Tests make these short. Defaults and where they come from: kube_times_default. */
struct kube_times {
	uint64_t backoff_first_ns, backoff_max_ns, backoff_reset_ns;
	/* all requests that wait for the server go on within this time once it answers */
	uint64_t hurry_ns;
	uint64_t slow_ns;	 /* retry of 403 and of a kind that is not there */
	/* a watch that ends sooner without a newer version backs off */
	uint64_t short_watch_ns;
	uint64_t watchdog_ns;	 /* how often silence is looked at */
	uint64_t probe_ns;	 /* silence after which the server is asked */
	uint64_t silence_slack_ns; /* beyond timeoutSeconds the stream is given up */
	/* to the head of an answer; a server gives up after 60 s itself, and says so */
	uint64_t list_head_ns, watch_head_ns;
	uint64_t token_max_age_ns, ca_poll_ns;
	unsigned watch_timeout_s; /* random in [x, 2x) */
	unsigned page_limit;
	/* limit of an object's text. One is parsed at a time, and trimmed at once */
	size_t max_object_bytes;
	size_t max_kind_bytes;	 /* of memory: all objects of a watch that says no other */
};
extern const struct kube_times kube_times_default;
void kube_set_times(struct kube *k, const struct kube_times *t); /* before watches are made */
const struct kube_times *kube_get_times(const struct kube *k);

/*
 * The HTTP client below a kube: the functions of lib/loop/http.h with these names, or those of a
 * test.
 */
struct kube_http_ops {
	int (*client_new)(struct loop *l, const struct http_client_config *c,
			  struct http_client **ret);
	struct http_client *(*client_free)(struct http_client *h);
	void (*client_set_tls)(struct http_client *h, struct tls *tls);
	int (*send)(struct http_client *h, const struct http_request *r, struct http_call **ret);
	void (*cancel)(struct http_call *c);
	uint64_t (*call_idle_ns)(const struct http_call *c);
};
int kube_new_over(const struct kube_http_ops *http, struct loop *l, const struct kube_config *c,
		  const char *user_agent, struct kube **ret, struct field_error *reterr);

int kube_config_in_cluster_at(const char *dir, struct kube_config *ret, struct field_error *reterr);

/* ---- credentials.c ---- */
struct kube_token {
	char *text; /* owned; NULL: none */
	struct stat stat; /* of its file, when it was read */
	uint64_t read_ns;
	struct field_error error; /* as reported; path "": none */
};
/*
 * Reads the token. The kubelet swaps a link, so the file may be missing or empty for a moment: then
 * the last token stays, and the error is reported. file NULL: nothing is done.
 */
void kube_token_read(struct kube_token *t, const char *file);
/* Reads the token if its file has changed, or if the last reading is older than this. */
void kube_token_refresh(struct kube_token *t, const char *file, uint64_t max_age_ns);
/*
 * -EALREADY: they are the same as those with known_hash (0: none). reterr: the part by its name in
 * a kubeconfig, its file, and the reason.
 */
int kube_load_tls(const struct kube_config *c, uint64_t known_hash, uint64_t *ret_hash,
		  struct tls **ret,
		  struct field_error *reterr);
/*
 * told: the last report to kube_on_credentials' fn. now NULL: the credentials are usable. The files
 * are read again and again, and each reason is reported once.
 */
void kube_tell_credentials(struct field_error *told, const struct field_error *now);

/* ---- watch.c: what stands behind the watches of a client ---- */
int kube_client_watch_new(struct kube *k, const struct kube_watch_spec *s,
			  const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret);
void kube_client_watch_free(struct kube_watch *w);
const json_t *kube_client_watch_get(const struct kube_watch *w, const char *key);
void kube_client_watch_each(const struct kube_watch *w,
			    void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
bool kube_client_watch_synced(const struct kube_watch *w);
size_t kube_client_watch_left_out(const struct kube_watch *w);

/* ---- requests below kube_request: streaming, without the retry on 401 ---- */
struct kube_stream {
	const char *path, *accept;
	uint64_t timeout_ns; /* to the head of the answer */
	void (*on_head)(int status, const struct http_headers *h, void *arg);
	void (*on_data)(const void *p, size_t n, void *arg);
	void (*on_done)(int status, const char *body, size_t n, const char *error, void *arg);
	void *arg;
};
int kube_stream(struct kube *k, const struct kube_stream *s, struct http_call **ret);
/* Cancels *call without a callback and sets it to NULL. NULL is fine. */
void kube_stream_cancel(struct kube *k, struct http_call **call);
uint64_t kube_stream_idle_ns(const struct kube *k, const struct http_call *call);
/* "HTTP 403: pods is forbidden: ..." of a Status object, or the number alone. */
char *kube_status_text(int status, const json_t *body);
void kube_reread_token(struct kube *k); /* after a 401 */
void kube_look_at_ca(struct kube *k);	/* after a failed connection: it may have rotated */
struct loop *kube_loop(struct kube *k);

/* ---- told whenever the server has done what was asked for, also of others ---- */
struct kube_listener {
	void (*fn)(void *arg); /* frees nothing */
	void *arg;
	struct kube_listener *prev, *next;
};
void kube_listen(struct kube *k, struct kube_listener *l);
void kube_unlisten(struct kube *k, struct kube_listener *l);
void kube_server_works(struct kube *k);

/* ---- backoff: first * 2^n up to max, each plus a random part of itself ---- */
struct backoff {
	uint64_t next_ns, last_used_ns;
};
uint64_t kube_backoff_next(struct backoff *b, const struct kube_times *t);

/* ---- lines of a watch ---- */
/* Hands on every line that is not empty, without its end; false from fn stops at once. */
struct lines {
	struct buf line;
	bool skipping; /* to the end of a line that is too long */
	struct counter *oversized;
	uint64_t n_lost;
};
typedef bool line_fn(const char *line, size_t n, void *arg);
void kube_lines_init(struct lines *l, size_t max_bytes);
void kube_lines_done(struct lines *l);
bool kube_lines_feed(struct lines *l, const char *p, size_t n, line_fn *fn, void *arg);

/* ---- items of a list ---- */
/*
 * Takes a List apart while it comes: fn gets the text of each element of the top
 * "items"; everything else stays in skeleton. Not a validator: each part is
 * parsed by jansson afterwards.
 */
struct list_split {
	struct buf item, skeleton, key;
	unsigned depth;
	bool in_string, escaped, in_items, skipping;
	struct counter *oversized;
};
void kube_list_split_init(struct list_split *s, size_t max_item_bytes);
void kube_list_split_done(struct list_split *s);
bool kube_list_split_feed(struct list_split *s, const char *p, size_t n, line_fn *fn, void *arg);

/* ---- the objects of one watch ---- */
/* {store}: the delivered objects. All callbacks go through it. */
struct kube_store;
struct kube_store *kube_store_new(const struct kube_watch_ops *ops, void *arg, size_t max_bytes);
struct kube_store *kube_store_free(struct kube_store *s);
/*
 * Both take a reference if they keep obj, which takes n_bytes of memory. -EINVAL: it has no name.
 * -E2BIG: too many objects or bytes; an object that was there and has grown beyond the limit is
 * removed.
 */
int kube_store_apply(struct kube_store *s, json_t *obj, size_t n_bytes);
int kube_store_remove(struct kube_store *s, const json_t *obj);
/* A relist: begin, apply each, then sweep until it returns false: at most n removals a call. */
void kube_store_begin(struct kube_store *s);
bool kube_store_sweep(struct kube_store *s, unsigned n);
/* Set by the owner when it is freed inside a callback: nothing is delivered from then on. */
void kube_store_mute(struct kube_store *s);
const json_t *kube_store_get(const struct kube_store *s, const char *key);
void kube_store_each(const struct kube_store *s,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
