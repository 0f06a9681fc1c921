/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the hub's modules together, and starts and ends them in order. */
#include "hub/hub.h"

#include "hub/api/api.h"
#include "hub/certs.h"
#include "hub/ingest/ingest.h"
#include "hub/status/status.h"
#include "hub/store/store.h"
#include "hub/symbols/symbols.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define INGEST_AUDIENCE "podflame-ingest"
#define WRITER_BYTES	(128u << 20)
#define QUERY_BYTES	(16u << 20)
/* limit for the bytes of uploads that wait for the worker */
#define UPLOAD_BYTES	(2 * SYMBOLS_UPLOAD_BYTES + (1u << 20))
#define EXPIRE_NS	(60 * NSEC_PER_SEC)
#define EXPIRE_LIMIT_NS (10 * 60 * NSEC_PER_SEC) /* if one deletion takes longer, /healthz fails */
/* how often the hub checks the store's health, for the log */
#define LOOK_NS (5 * NSEC_PER_SEC)

struct hub {
	struct loop *loop;
	const struct config *conf;
	struct kube *kube;
	bool local;
	struct store *store;
	int lock_fd; /* holds the lock on data_dir: only one hub may use it */
	struct symbols *symbols;
	struct worker *writer, *choices, *uploads;
	struct worker *query[STORE_MAX_READERS - 1];
	size_t n_query;
	struct ingest *ingest;
	struct api *api;
	struct gate *gate; /* checks the agents that send profiles */
	struct status *status;
	struct certs *certs;
	struct http_server *api_server, *ingest_server;
	struct timer expire_timer, look_timer;
	char *ns, *token_hint;
	char store_error[STORE_ERROR_BYTES]; /* the store's error that was logged last */
};

/* ---- expiry ---- */

struct expire_job {
	struct job job;
	struct store *store;
};

static void expire_run(struct job *j)
{
	struct expire_job *e = (struct expire_job *)j;
	int r = store_expire(e->store, now_wall_ns());

	if (r)
		log_warn("deleting old profiles: %s", strerror(-r));
	free(e);
}

static void expire(void *arg)
{
	struct hub *h = arg;
	struct expire_job *e = xcalloc(1, sizeof(*e));

	*e = (struct expire_job){.job = {.run = expire_run, .deadline_ns = EXPIRE_LIMIT_NS},
				 .store = h->store};
	if (worker_post(h->writer, &e->job))
		free(e); /* the writer's queue is full: the timer tries again in a minute */
	timer_set(h->loop, &h->expire_timer, EXPIRE_NS, expire, h);
}

/* Logs once that the file is damaged or the disk is full, and once when the error is gone. */
static void look_at_store(void *arg)
{
	struct hub *h = arg;
	struct store_stats s;

	store_stats(h->store, &s);
	if (!streq(s.error, h->store_error) && *s.error)
		log_err("store in %s: %s", h->conf->data_dir, s.error);
	else if (!streq(s.error, h->store_error))
		log_info("store: works again");
	snprintf(h->store_error, sizeof(h->store_error), "%s", s.error);
	timer_set(h->loop, &h->look_timer, LOOK_NS, look_at_store, h);
}

/* ---- the right to send profiles ---- */

struct sender_check {
	void (*done)(int status, const char *node, const char *error, void *arg);
	void *done_arg;
};

static void sender_checked(const struct gate_answer *a, void *arg)
{
	struct sender_check *c = arg;

	c->done(a->status, a->node, a->error, c->done_arg);
	free(c);
}

static void auth(const char *authorization,
		 void (*done)(int status, const char *node, const char *error, void *arg),
		 void *done_arg, void *arg)
{
	static const struct gate_right send = {"create", "profiles"};
	struct sender_check *c = xcalloc(1, sizeof(*c));

	*c = (struct sender_check){done, done_arg};
	api_gate_check(((struct hub *)arg)->gate, authorization, &send, sender_checked, c);
}

/* ---- servers ---- */

/* Opens the server. If it is open already, gives it a new certificate. */
static int serve(struct hub *h, const struct http_server_config *c, struct http_server **server,
		 struct field_error *reterr)
{
	if (!*server)
		return http_server_new(h->loop, c, server, reterr);
	http_server_set_tls(*server, c->tls);
	return 0;
}

static int open_api(struct hub *h, struct tls *tls, struct field_error *reterr)
{
	const struct http_server_config c = {
		.section = "api",
		.address = h->conf->api_address,
		.port = (uint16_t)h->conf->api_port,
		.tls = tls,
		.head = api_http_head,
		.handler = api_http,
		.arg = h->api,
	};

	return serve(h, &c, &h->api_server, reterr);
}

static int open_ingest(struct hub *h, struct tls *tls, struct field_error *reterr)
{
	const struct http_server_config c = {
		.section = "ingest",
		.address = h->conf->ingest_address,
		.port = (uint16_t)h->conf->ingest_port,
		.tls = tls,
		.max_body_bytes = OTLP_MAX_BYTES,
		.head = ingest_http_head,
		.handler = ingest_http,
		.arg = h->ingest,
	};

	return serve(h, &c, &h->ingest_server, reterr);
}

static void certificate_ready(struct tls *tls, void *arg)
{
	struct hub *h = arg;
	struct field_error err = {0};
	int r = open_api(h, tls, &err);

	if (!r)
		r = open_ingest(h, tls, &err);
	if (r) {
		log_err("%s: %s", err.path, err.reason);
		loop_stop(h->loop, 1);
		return;
	}
	log_info("serving API and page on %s:%u, OTLP on %s:%u", h->conf->api_address,
		 http_server_port(h->api_server), h->conf->ingest_address,
		 http_server_port(h->ingest_server));
}

static json_t *health(void *arg)
{
	const struct hub *h = arg;
	struct store_stats s;

	store_stats(h->store, &s);
	return json_pack("{s:s, s:s}", "store", s.error, "certificate",
			 h->certs ? hub_certs_problem(h->certs) : "");
}

static json_t *targets(void *arg)
{
	const struct hub *h = arg;

	return h->status ? status_targets(h->status) : NULL;
}

/* ---- start and end ---- */

/*
 * Locks data_dir for this process. This must be a POSIX lock: the kernel releases it when the
 * process ends, even if children still have the file open.
 */
static int lock_data_dir(struct hub *h, struct field_error *reterr)
{
	_cleanup_free_ char *path = xasprintf("%s/lock", h->conf->data_dir);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	h->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (h->lock_fd < 0)
		return field_error_set(reterr, "data_dir", "%s: %s", path, strerror(errno));
	if (fcntl(h->lock_fd, F_SETLK, &lock) < 0)
		return field_error_set(reterr, "data_dir", "%s: another podflame uses it",
				       h->conf->data_dir);
	return 0;
}

static int open_symbols(struct hub *h, struct field_error *reterr)
{
	_cleanup_free_ char *dir = xasprintf("%s/symbols", h->conf->data_dir);
	const struct symbols_config c = {dir, h->conf->symbols_max_bytes};

	return symbols_open(&c, &h->symbols, reterr);
}

static int open_store(struct hub *h, struct field_error *reterr)
{
	const struct store_config c = {
		.kind = h->conf->store_kind,
		.path = h->conf->data_dir,
		.retention_ns = h->conf->store_retention_ns,
		.max_bytes = h->conf->store_max_bytes,
	};
	int r = mkdir_parents(h->conf->data_dir, 0700);

	if (r)
		return field_error_set(reterr, "data_dir", "%s: %s", h->conf->data_dir,
				       strerror(-r));
	r = lock_data_dir(h, reterr);
	if (!r)
		r = store_open(&c, &h->store, reterr);
	return r ? r : open_symbols(h, reterr);
}

/*
 * As many workers run queries as there are CPUs; at least three, so that one user's two queries
 * leave one to others.
 */
static int open_query_workers(struct hub *h)
{
	size_t n = (size_t)MAX(sysconf(_SC_NPROCESSORS_ONLN), 3L);
	char name[16];
	int r = worker_new(h->loop, "choices", QUERY_BYTES, &h->choices);

	for (n = MIN(n, ARRAY_SIZE(h->query)); !r && h->n_query < n; h->n_query += !r) {
		snprintf(name, sizeof(name), "query-%zu", h->n_query + 1);
		r = worker_new(h->loop, name, QUERY_BYTES, &h->query[h->n_query]);
	}
	return r;
}

static int open_modules(struct hub *h)
{
	const struct ingest_config ic = {
		.store = h->store,
		.writer = h->writer,
		.auth = h->local ? NULL : auth,
		.auth_arg = h,
	};
	const struct api_config ac = {
		.store = h->store,
		.query = h->query,
		.n_query = h->n_query,
		.choices = h->choices,
		.query_bytes = QUERY_BYTES,
		.symbols = h->symbols,
		.uploads = h->uploads,
		.kube = h->local ? NULL : h->kube,
		.version = PODFLAME_VERSION,
		.cluster_name = h->kube ? h->conf->cluster_name : "",
		.token_hint = h->token_hint,
		.store_note = h->conf->store_note,
		.link_trace = h->conf->link_trace,
		.link_logs = h->conf->link_logs,
		.health = health,
		.health_arg = h,
		.targets = targets,
		.targets_arg = h,
		.ns = h->ns,
		.opt_in_required = h->conf->opt_in_required,
		.audit = h->conf->api_audit,
	};
	int r = ingest_new(h->loop, &ic, &h->ingest);

	return r ? r : api_new(h->loop, &ac, &h->api);
}

static int open_status(struct hub *h)
{
	const struct status_config sc = {h->ns, h->conf->opt_in_required};

	return h->kube ? status_new(h->loop, h->kube, &sc, &h->status) : 0;
}

static int open_cluster(struct hub *h)
{
	const struct certs_config cc = {h->ns, h->conf->tls_secret, h->conf->ca_configmap,
					h->conf->service_name};
	const struct gate_config gc = {h->kube, INGEST_AUDIENCE};

	h->gate = api_gate_new(&gc);
	return hub_certs_new(h->loop, h->kube, &cc, certificate_ready, h, &h->certs);
}

static bool is_loopback(const char *address)
{
	return str_has_prefix(address, "127.") || streq(address, "::1") ||
	       streq(address, "localhost");
}

static int open_local(struct hub *h, struct field_error *reterr)
{
	int r;

	if (!is_loopback(h->conf->api_address))
		return field_error_set(reterr, "api.address",
				       "%s: podflame asks nobody to sign in here, so it serves "
				       "only a loopback address",
				       h->conf->api_address);
	r = open_api(h, NULL, reterr);
	if (!r)
		log_info("serving API and page on http://%s:%u/", h->conf->api_address,
			 http_server_port(h->api_server));
	return r;
}

int hub_new(struct loop *l, const struct hub_config *c, struct hub **ret,
	    struct field_error *reterr)
{
	struct hub *h = xcalloc(1, sizeof(*h));
	int r;

	loop_assert(l);
	*h = (struct hub){
		.loop = l, .conf = c->conf, .kube = c->kube, .local = c->local, .lock_fd = -1};
	h->ns = xstrdup(c->conf->own_namespace);
	if (!c->local)
		h->token_hint = xasprintf("kubectl -n %s create token podflame-viewer", h->ns);
	r = open_store(h, reterr);
	if (!r)
		r = worker_new(l, "store-writer", WRITER_BYTES, &h->writer);
	if (!r)
		r = open_query_workers(h);
	if (!r)
		r = worker_new(l, "uploads", UPLOAD_BYTES, &h->uploads);
	if (!r)
		r = open_modules(h);
	if (!r)
		r = open_status(h);
	if (!r)
		r = c->local ? open_local(h, reterr) : open_cluster(h);
	if (r) {
		hub_free(h);
		return r;
	}
	timer_set(l, &h->expire_timer, EXPIRE_NS, expire, h);
	look_at_store(h);
	*ret = h;
	return 0;
}

struct hub *hub_free(struct hub *h)
{
	if (!h)
		return NULL;
	loop_assert(h->loop);
	timer_cancel(&h->expire_timer);
	timer_cancel(&h->look_timer);
	hub_certs_free(h->certs);
	status_free(h->status);
	http_server_free(h->api_server);
	http_server_free(h->ingest_server);
	for (size_t i = 0; i < h->n_query; i++)
		worker_free(h->query[i]);
	worker_free(h->choices);
	worker_free(h->uploads);
	worker_free(h->writer);
	api_free(h->api);
	ingest_free(h->ingest);
	api_gate_free(h->gate, false);
	symbols_close(h->symbols);
	store_close(h->store);
	closep(&h->lock_fd);
	free(h->ns);
	free(h->token_hint);
	free(h);
	return NULL;
}

int hub_ingest(const void *body, size_t n, void *arg)
{
	struct hub *h = arg;

	return ingest_bytes(h->ingest, body, n);
}

void hub_debug(struct hub *h, const char *path, json_t *(*fn)(void *arg), void *arg)
{
	api_debug(h->api, path, fn, arg);
}

uint16_t hub_api_port(const struct hub *h)
{
	return h->api_server ? http_server_port(h->api_server) : 0;
}
