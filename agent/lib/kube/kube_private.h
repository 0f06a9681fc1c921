/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/kube and its tests: the waiting times, credentials, and the decoders that turn
 * bytes of HTTP into objects.
 */
#pragma once

#include <sys/stat.h>

#include "lib/kube/kube.h"

#define uthash_fatal(msg) abort()
#include <uthash.h>

/*
 * Waiting times and limits. Tests make the times short. Defaults, with their source:
 * kube_times_default.
 */
struct kube_times {
	uint64_t backoff_first_ns, backoff_max_ns, backoff_reset_ns;
	/* once the server answers, all requests that wait for it are sent within this time */
	uint64_t hurry_ns;
	/*
	 * delay before a retry after 403, after a second 401, or if the server does not have the
	 * kind
	 */
	uint64_t slow_ns;
	/*
	 * a watch that ends before this time, without a newer version, counts as a failure: the
	 * next try waits
	 */
	uint64_t short_watch_ns;
	uint64_t watchdog_ns;	 /* how often the client checks for silence */
	/*
	 * after a silence of this length, the client sends a request to see whether the server
	 * answers
	 */
	uint64_t probe_ns;
	/* a stream is closed if it is silent for timeoutSeconds plus this time */
	uint64_t silence_slack_ns;
	/*
	 * how long the client waits for the head of an answer. A server gives up by itself after
	 * 60 s, and sends an error
	 */
	uint64_t list_head_ns, watch_head_ns;
	uint64_t token_max_age_ns, ca_poll_ns;
	/*
	 * least time between two lists, if the second one only brings objects that had no room in
	 * the first
	 */
	uint64_t room_again_ns;
	/* the server is asked to end a watch after a random time in [x, 2x) */
	unsigned watch_timeout_s;
	unsigned page_limit;
	/*
	 * limit of an object's text. Only one object is parsed at a time, and it is trimmed at once
	 */
	size_t max_object_bytes;
	/* limit of the memory of all objects of a watch, if its spec has no limit */
	size_t max_kind_bytes;
};
extern const struct kube_times kube_times_default;
/* called before watches are made */
void kube_set_times(struct kube *k, const struct kube_times *t);
const struct kube_times *kube_get_times(const struct kube *k);

/*
 * The HTTP client that a kube uses: the functions of lib/loop/http.h with the same names, or those
 * of a test.
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
	struct stat stat; /* state of the token's file when it was read */
	uint64_t read_ns;
	struct field_error error; /* the error that was reported last; path "": none */
};
/*
 * Reads the token. The kubelet replaces a link, so the file may be missing or empty for a moment.
 * Then the last token stays, and the error is reported. If file is NULL, does nothing.
 */
void kube_token_read(struct kube_token *t, const char *file);
/* Reads the token if its file has changed, or if the last read is older than max_age_ns. */
void kube_token_refresh(struct kube_token *t, const char *file, uint64_t max_age_ns);
/*
 * Loads the CA and the certificate. -EALREADY: their hash is known_hash (0: none is known). reterr:
 * the name of the bad part in a kubeconfig, its file, and the reason.
 */
int kube_load_tls(const struct kube_config *c, uint64_t known_hash, uint64_t *ret_hash,
		  struct tls **ret,
		  struct field_error *reterr);
/*
 * Reports a change to the function of kube_on_credentials. now: the error; NULL: the credentials
 * are usable. told: the last reported error. The files are read again and again, but each reason is
 * reported once.
 */
void kube_tell_credentials(struct field_error *told, const struct field_error *now);

/* ---- watch.c: the watches of a client ---- */
int kube_client_watch_new(struct kube *k, const struct kube_watch_spec *s,
			  const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret);
void kube_client_watch_free(struct kube_watch *w);
const json_t *kube_client_watch_get(const struct kube_watch *w, const char *key);
void kube_client_watch_each(const struct kube_watch *w,
			    void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
bool kube_client_watch_synced(const struct kube_watch *w);
size_t kube_client_watch_left_out(const struct kube_watch *w);
void kube_client_watch_each_left_out(const struct kube_watch *w, kube_left_out_fn *fn, void *arg);

/* ---- streaming requests; they are not repeated after an answer 401 ---- */
struct kube_stream {
	const char *path, *accept;
	uint64_t timeout_ns; /* time limit for the head of the answer */
	void (*on_head)(int status, const struct http_headers *h, void *arg);
	void (*on_data)(const void *p, size_t n, void *arg);
	void (*on_done)(int status, const char *body, size_t n, const char *error, void *arg);
	void *arg;
};
int kube_stream(struct kube *k, const struct kube_stream *s, struct http_call **ret);
/* Cancels *call without a callback and sets it to NULL. *call may be NULL. */
void kube_stream_cancel(struct kube *k, struct http_call **call);
uint64_t kube_stream_idle_ns(const struct kube *k, const struct http_call *call);
/* The text of a Status object ("HTTP 403: pods is forbidden: ..."), or only the status. */
char *kube_status_text(int status, const json_t *body);
void kube_reread_token(struct kube *k); /* called after an answer 401 */
/* called after a failed connection: the CA may have changed */
void kube_look_at_ca(struct kube *k);
struct loop *kube_loop(struct kube *k);

/* ---- fence.c ---- */
/*
 * A kube that sends to another one, and each request but GET only while holds(arg): lease.h. After
 * kube_fenced_free() holds is not called any more, and requests that wait are not sent.
 */
struct kube *kube_fenced_new(struct kube *to, bool (*holds)(void *arg), void *arg);
struct kube *kube_fenced_free(struct kube *k);

/* ---- listeners: called whenever any request of the client has succeeded ---- */
struct kube_listener {
	void (*fn)(void *arg); /* must not free a listener */
	void *arg;
	struct kube_listener *prev, *next;
};
void kube_listen(struct kube *k, struct kube_listener *l);
void kube_unlisten(struct kube *k, struct kube_listener *l);
void kube_server_works(struct kube *k);

/* ---- backoff: first * 2^n, at most max, plus a random time up to that ---- */
struct backoff {
	uint64_t next_ns, last_used_ns;
};
uint64_t kube_backoff_next(struct backoff *b, const struct kube_times *t);

/* ---- lines of a watch ---- */
/*
 * Calls fn with every line that is not empty, without its end. If fn returns false, stops at once.
 */
struct lines {
	struct buf line;
	bool skipping; /* the rest of a line that is too long is skipped */
	struct counter *oversized;
	uint64_t n_lost; /* lines that were too long */
};
typedef bool line_fn(const char *line, size_t n, void *arg);
void kube_lines_init(struct lines *l, size_t max_bytes);
void kube_lines_done(struct lines *l);
bool kube_lines_feed(struct lines *l, const char *p, size_t n, line_fn *fn, void *arg);

/* ---- items of a list ---- */
/*
 * Splits a List while its bytes arrive: fn gets the text of each element of the top "items".
 * Everything else is kept in skeleton. The splitter does not validate: jansson parses each part
 * afterwards.
 */
struct list_split {
	struct buf item, skeleton, key;
	unsigned depth;
	bool in_string, escaped, in_items, skipping;
	struct counter *oversized;
	uint64_t n_lost; /* items that were too long */
};
void kube_list_split_init(struct list_split *s, size_t max_item_bytes);
void kube_list_split_done(struct list_split *s);
bool kube_list_split_feed(struct list_split *s, const char *p, size_t n, line_fn *fn, void *arg);

/* ---- the objects of one watch ---- */
struct room_share;
/* An object, and its place in the memory of its kind. */
struct kube_item {
	char *key;		/* "namespace/name" or "name" */
	json_t *obj;
	uint64_t created_ns;	/* metadata.creationTimestamp; 0: the object has none */
	size_t n_bytes;		/* memory that obj uses, estimated */
	uint64_t generation;	/* the store's: the list that brought the object */
	struct room_share *share; /* the room's; NULL: the object is in no room */
	size_t at;		/* the room's: position in its share */
	struct kube_item *prev, *next; /* the list that is arriving */
	UT_hash_handle hh;
};
/* Takes a reference of obj. NULL: obj has no name. */
struct kube_item *kube_item_new(json_t *obj, uint64_t created_ns, size_t n_bytes);
struct kube_item *kube_item_free(struct kube_item *i);

/* ---- room.c: which objects of a kind are kept, if there is no room for all ---- */
struct kube_room;
struct kube_room *kube_room_new(size_t max_bytes);
/* The objects in the room are the caller's. It need not remove them before. */
struct kube_room *kube_room_free(struct kube_room *r);
/*
 * Returns whether the object is in the room now. is_new: if it is not, it is counted as left out;
 * false: it was counted before. After the objects of a list, or after each other object, the caller
 * calls kube_room_settle().
 */
bool kube_room_add(struct kube_room *r, struct kube_item *i, bool is_new);
/* For an object that is in the room. */
void kube_room_remove(struct kube_room *r, struct kube_item *i);
/* For a deleted object that was left out. */
void kube_room_forget(struct kube_room *r, const struct kube_item *i);
/*
 * Leaves out objects until the others fit: calls fn for each one that it takes out of the room. fn
 * may free the object.
 */
void kube_room_settle(struct kube_room *r, void (*fn)(struct kube_item *i, void *arg), void *arg);
/* Whether a list that is arriving needs kube_room_settle() before its end. */
bool kube_room_is_over(const struct kube_room *r);
/* Whether an object that was left out would have room now: a new list would bring it. */
bool kube_room_has_more(const struct kube_room *r);
/* Whether another number of objects is left out than at the last call. */
bool kube_room_has_changed(struct kube_room *r);
size_t kube_room_left_out(const struct kube_room *r);
void kube_room_each_left_out(const struct kube_room *r, kube_left_out_fn *fn, void *arg);
void kube_count_left_out(void);

/* ---- store.c ---- */
/* The objects that a watch has delivered. The store calls all callbacks about objects. */
struct kube_store;
struct kube_store *kube_store_new(const struct kube_watch_ops *ops, void *arg, size_t max_bytes);
struct kube_store *kube_store_free(struct kube_store *s);
/*
 * Takes ownership of the object, and keeps it if it has room. Otherwise the store removes an older
 * version of it, too, because that would be wrong. is_new: as for kube_room_add().
 */
void kube_store_take(struct kube_store *s, struct kube_item *i, bool is_new);
/* i: a deleted object, which stays the caller's. */
void kube_store_remove(struct kube_store *s, const struct kube_item *i);
/*
 * A new list replaces the objects: kube_store_begin() with the settled room of the list's objects,
 * kube_store_take() for each of them, then kube_store_sweep() until it returns false. One call of
 * kube_store_sweep() removes at most n objects. The store owns the room from then on.
 */
void kube_store_begin(struct kube_store *s, struct kube_room *room);
bool kube_store_sweep(struct kube_store *s, unsigned n);
/* Calls ops.left_out if another number of objects is left out than at the last call. */
void kube_store_tell_left_out(struct kube_store *s);
/*
 * The owner of the store calls this if it is freed inside a callback: the store calls no more
 * callbacks.
 */
void kube_store_mute(struct kube_store *s);
const struct kube_room *kube_store_room(const struct kube_store *s);
const json_t *kube_store_get(const struct kube_store *s, const char *key);
void kube_store_each(const struct kube_store *s,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
