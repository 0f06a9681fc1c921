/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the hub's modules together, and starts and ends them in order. */
#include "hub/hub.h"

#include "hub/api/api.h"
#include "hub/certs.h"
#include "hub/ingest/ingest.h"
#include "hub/leader.h"
#include "hub/pods/pods.h"
#include "hub/senders.h"
#include "hub/stores.h"
#include "hub/status/status.h"
#include "hub/stop.h"
#include "hub/upkeep.h"
#include "lib/loop/health.h"

#include <stdlib.h>
#include <unistd.h>

#define WRITER_BYTES (128u << 20)
#define QUERY_BYTES  (16u << 20)
#define UPLOAD_BYTES (4 * SYMBOLS_UPLOAD_BYTES) /* so one user may have two of the largest */
/*
 * how long a hub that ends serves on, if there are others: until all nodes know that the Service
 * has it no longer
 */
#define SERVE_ON_NS (5 * NSEC_PER_SEC)
/* how long an agent sends to the same of several hubs: so the one that leads hears from all */
#define SENDER_NS (120 * NSEC_PER_SEC)

struct hub {
	struct loop *loop;
	const struct config *conf;
	struct kube *kube;
	bool local;
	struct hub_stores kept;
	struct worker *writer, *choices, *uploads;
	struct worker *query[STORE_MAX_READERS - 1];
	size_t n_query;
	struct ingest *ingest;
	struct api *api;
	struct senders *senders; /* checks those that send profiles; NULL: `podflame local` */
	struct pods *pods;	 /* where pods are; NULL: there is no Kubernetes */
	struct status *status;
	struct certs *certs;
	struct http_server *api_server, *ingest_server;
	struct health_server *probes; /* NULL: `podflame local` */
	struct upkeep *upkeep;	      /* of the store */
	struct leader *leader;	      /* NULL: there is no Kubernetes */
	bool stopping;
	struct hub_stop stop;
	void (*stopped)(void *arg); /* what hub_stop() calls */
	void *stopped_arg;
	char *ns, *token_hint;
};

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
		.http2 = true,
		.max_body_bytes = OTLP_MAX_BYTES,
		.max_age_ns = hub_leader_is_elected(h->leader) ? SENDER_NS : 0,
		.head = ingest_http_head,
		.handler = ingest_http,
		.refuse = ingest_http_refuse,
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
	log_info("serving API and page on %s:%u, OTLP and pushed profiles on %s:%u",
		 h->conf->api_address, http_server_port(h->api_server), h->conf->ingest_address,
		 http_server_port(h->ingest_server));
}

static bool is_serving(struct buf *why, void *arg)
{
	const struct hub *h = arg;
	bool opened = h->api_server && h->ingest_server;

	if (h->stopping)
		buf_puts(why, "the hub is stopping\n");
	else if (!opened)
		buf_puts(why, "the hub waits for its certificate\n");
	return opened && !h->stopping;
}

/*
 * The kubelet's probes have a port of their own: if users or senders take all connections of
 * theirs, the kubelet does not end the hub.
 */
static int open_probes(struct hub *h, struct field_error *reterr)
{
	const struct health_config c = {.address = h->conf->health_address,
					.port = (uint16_t)h->conf->health_port,
					.ready = is_serving,
					.arg = h,
					.probes_only = true};

	return health_new(h->loop, &c, &h->probes, reterr);
}

static json_t *health(void *arg)
{
	const struct hub *h = arg;
	_cleanup_free_ char *clusters = hub_senders_problem(h->senders),
			    *pods = h->pods ? pods_problem(h->pods) : NULL;
	struct store_stats s;

	store_stats(h->kept.store, &s);
	return json_pack("{s:s, s:s, s:s, s:s, s:s}", "store",
			 h->kept.forward ? forward_problem(h->kept.forward)
			 : *s.error && streq(h->conf->store_kind, "clickhouse")
				 ? "ClickHouse does not work: the log of this hub says why"
				 : s.error,
			 "certificate", h->certs ? hub_certs_problem(h->certs) : "", "clusters",
			 clusters, "pods", pods ?: "", "leader", hub_leader_problem(h->leader));
}

static json_t *targets(void *arg)
{
	const struct hub *h = arg;

	return h->status ? status_targets(h->status) : NULL;
}

/* ---- start and end ---- */

static int open_stores(struct hub *h, struct field_error *reterr)
{
	_cleanup_free_ const char **clusters = NULL;
	struct hub_stores_config c = {.conf = h->conf,
				      .local = h->local,
				      .own_cluster = h->kube ? h->conf->cluster_name : NULL};

	if (h->senders)
		c.clusters = clusters = hub_senders_clusters(h->senders, &c.n_clusters);
	return hub_stores_open(h->loop, &c, &h->kept, reterr);
}

/*
 * As many workers run queries as there are CPUs; at least three, so that one user's two queries
 * leave one to others. Queries that are dear must not keep the hub from storing, so these workers
 * yield.
 */
static int open_query_workers(struct hub *h)
{
	size_t n = (size_t)MAX(sysconf(_SC_NPROCESSORS_ONLN), 3L);
	char name[16];
	int r = worker_new(h->loop, "choices", QUERY_BYTES, &h->choices);

	for (n = MIN(n, ARRAY_SIZE(h->query)); !r && h->n_query < n; h->n_query += !r) {
		snprintf(name, sizeof(name), "query-%zu", h->n_query + 1);
		r = worker_new(h->loop, name, QUERY_BYTES, &h->query[h->n_query]);
		if (!r)
			worker_yield(h->query[h->n_query]);
	}
	return r;
}

static void remember_pod(const struct store_pod *pod, void *arg)
{
	struct hub *h = arg;
	size_t n;
	char *const *others = store_clusters(h->kept.store, &n);

	for (size_t i = 0; i < n; i++)
		if (str_equal(others[i], pod->cluster))
			return;
	pods_remember(h->pods, &(struct pods_claim){pod->node, pod->ns, pod->name, pod->uid});
}

/*
 * Watches pods. Of those that ended while no hub ran, the hub knows the ones whose profiles it has
 * stored before.
 */
static int open_pods(struct hub *h)
{
	uint64_t since_ns = now_wall_ns() - PODS_KEEP_ENDED_NS;
	struct field_error err = {0};
	int r = pods_new(h->loop, h->kube, &h->pods);

	if (!r &&
	    store_pods(h->kept.store, (int64_t)(since_ns / NSEC_PER_SEC), remember_pod, h, &err))
		log_warn("store: %s: the hub does not know the pods that have ended", err.reason);
	return r;
}

static int open_modules(struct hub *h)
{
	const struct ingest_config ic = {
		.store = h->kept.store,
		.forward = h->kept.forward,
		.writer = h->writer,
		.auth = h->local ? NULL : hub_senders_auth,
		.push_auth = hub_senders_push_auth,
		.push_rights = hub_senders_push_rights,
		.auth_arg = h->senders,
		.pods = h->pods,
		.cluster_name = h->conf->cluster_name,
		.any_node = !h->conf->ingest_require_node,
	};
	const struct api_config ac = {
		.store = h->kept.store,
		.query = h->query,
		.n_query = h->n_query,
		.choices = h->choices,
		.query_bytes = QUERY_BYTES,
		.symbols = h->kept.symbols,
		.uploads = h->uploads,
		.upload_bytes = UPLOAD_BYTES,
		.kube = h->local ? NULL : h->kube,
		.audiences = (const char *const *)h->conf->api_audiences,
		.own_token_file = KUBE_SERVICE_ACCOUNT "/token",
		.version = PODFLAME_VERSION,
		.cluster_name = h->kube ? h->conf->cluster_name : "",
		.token_hint = h->token_hint,
		.store_note = h->conf->store_note,
		.forwards_to = h->kept.forward ? h->conf->store_url : NULL,
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
	const struct status_config sc = {h->ns, h->conf->opt_in_required, h->pods, hub_leader_leads,
					 h->leader};

	return h->kube ? status_new(h->loop, hub_leader_writer(h->leader), &sc, &h->status) : 0;
}

static int open_cluster(struct hub *h)
{
	const struct certs_config cc = {h->ns,
					h->conf->tls_secret,
					h->conf->ca_configmap,
					h->conf->service_name,
					h->conf->public_name,
					streq(h->conf->tls_source, "secret"),
					hub_leader_is_elected(h->leader) ? hub_leader_leads : NULL,
					h->leader};

	return hub_certs_new(h->loop, hub_leader_writer(h->leader), &cc, certificate_ready, h,
			     &h->certs);
}

static int open_local(struct hub *h, struct field_error *reterr)
{
	int r;

	if (!url_is_loopback(h->conf->api_address))
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
		.loop = l, .conf = c->conf, .kube = c->kube, .local = c->local, .kept.lock_fd = -1};
	h->ns = xstrdup(c->conf->own_namespace);
	if (!c->local)
		h->token_hint = xasprintf("kubectl -n NAMESPACE create token NAME --audience %s",
					  c->conf->api_audiences[0]);
	r = c->local ? 0 : hub_senders_new(l, h->kube, h->conf, &h->senders, reterr);
	if (!r)
		r = open_stores(h, reterr);
	if (!r)
		r = worker_new(l, "store-writer", WRITER_BYTES, &h->writer);
	if (!r)
		r = open_query_workers(h);
	if (!r)
		r = worker_new(l, "uploads", UPLOAD_BYTES + QUERY_BYTES, &h->uploads);
	if (!r && h->kube) {
		h->leader = hub_leader_new(l, h->kube, h->ns, h->conf->lease);
		r = open_pods(h);
	}
	if (!r)
		r = open_modules(h);
	if (!r)
		r = open_status(h);
	if (!r && !c->local)
		r = open_probes(h, reterr);
	if (!r)
		r = c->local ? open_local(h, reterr) : open_cluster(h);
	if (r) {
		hub_free(h);
		return r;
	}
	h->upkeep = hub_upkeep_new(&(struct upkeep_config){
		.loop = l,
		.store = h->kept.store,
		.symbols = h->kept.symbols,
		.writer = h->writer,
		.uploads = h->uploads,
		.where = *h->conf->store_url ? h->conf->store_url : h->conf->data_dir,
		.leader = h->leader,
	});
	*ret = h;
	return 0;
}

/* ---- end ---- */

static void has_stopped(void *arg)
{
	struct hub *h = arg;

	h->stopped(h->stopped_arg);
}

/* Another hub leads from now on. */
static void has_resigned(void *arg)
{
	struct hub *h = arg;
	uint64_t serve_ns = hub_leader_is_elected(h->leader) ? SERVE_ON_NS : 0;

	h->stop = (struct hub_stop){.servers = {h->api_server, h->ingest_server}};
	hub_stop_begin(&h->stop, h->loop, serve_ns, has_stopped, h);
}

void hub_stop(struct hub *h, void (*stopped)(void *arg), void *arg)
{
	loop_assert(h->loop);
	h->stopping = true;
	h->stopped = stopped;
	h->stopped_arg = arg;
	hub_leader_resign(h->leader, has_resigned, h);
}

struct hub *hub_free(struct hub *h)
{
	if (!h)
		return NULL;
	loop_assert(h->loop);
	hub_stop_cancel(&h->stop);
	hub_upkeep_free(h->upkeep);
	hub_certs_free(h->certs);
	status_free(h->status);
	health_free(h->probes);
	http_server_free(h->api_server);
	http_server_free(h->ingest_server);
	for (size_t i = 0; i < h->n_query; i++)
		worker_free(h->query[i]);
	worker_free(h->choices);
	worker_free(h->uploads);
	worker_free(h->writer);
	api_free(h->api);
	ingest_free(h->ingest);
	hub_senders_free(h->senders);
	pods_free(h->pods);
	hub_stores_close(&h->kept);
	hub_leader_free(h->leader);
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
