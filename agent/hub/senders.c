/* SPDX-License-Identifier: Apache-2.0 */
/* See senders.h. Everything here runs on the loop thread. */
#include "hub/senders.h"

#include "hub/api/api.h"
#include "hub/issuers/issuers.h"

#include <stdlib.h>

#define MAX_AGENTS 16 /* as ingest.agents has */

struct senders {
	struct gate *gate;
	char *agents[MAX_AGENTS + 1]; /* the names of agents as users; NULL at the end */
	struct issuers *issuers;      /* NULL: no other cluster is registered */
};

struct sender_check {
	struct senders *senders;
	char *authorization, *peer, *node, *account;
	bool agent;
	/* of one that pushes: */
	json_t *user;
	char *ns;
	bool everywhere;
	void (*done)(const struct ingest_sender *s, void *arg);
	void *done_arg;
};

static void check_free(struct sender_check *c)
{
	free(c->authorization);
	free(c->peer);
	free(c->node);
	free(c->account);
	json_decref(c->user);
	free(c->ns);
	free(c);
}

static void sender_done(struct sender_check *c, const struct gate_answer *a, bool hosts)
{
	c->done(&(struct ingest_sender){.status = a->status,
					.error = a->error,
					.node = c->node ?: a->node,
					.hosts = hosts,
					.agent = c->agent,
					.account = c->account},
		c->done_arg);
	check_free(c);
}

/* The right to send profiles of hosts is one more right: a sender may lack it. */
static void hosts_checked(const struct gate_answer *a, void *arg)
{
	struct gate_answer may = *a;

	may.status = a->status == 403 ? 200 : a->status;
	sender_done(arg, &may, a->status == 200);
}

static const struct gate_right send_right = {"create", "profiles"};

/* The API server says who the sender is; what the profiles say counts for nothing here. */
static bool is_agent(const struct senders *s, const char *user)
{
	for (size_t i = 0; s->agents[i]; i++)
		if (streq(s->agents[i], user))
			return true;
	return false;
}

static void sender_checked(const struct gate_answer *a, void *arg)
{
	static const struct gate_right hosts = {"create", "profiles/host"};
	struct sender_check *c = arg;

	if (a->status != 200) {
		sender_done(c, a, false);
		return;
	}
	c->node = xstrdup(a->node);
	c->account = xstrdup(a->user);
	c->agent = is_agent(c->senders, a->user);
	api_gate_check(c->senders->gate, c->authorization, c->peer, &hosts, hosts_checked, c);
}

static void cluster_checked(int status, const char *cluster, const char *error, void *arg)
{
	struct sender_check *c = arg;

	c->done(&(struct ingest_sender){.status = status,
					.error = error,
					.node = "",
					.hosts = true,
					.cluster = cluster},
		c->done_arg);
	check_free(c);
}

/*
 * Either the registration of a cluster decides, or the API server of the hub's own cluster: a token
 * that one of them refuses is not shown to the other.
 */
void hub_senders_auth(const char *authorization, const char *peer,
		      void (*done)(const struct ingest_sender *s, void *arg), void *done_arg,
		      void *arg)
{
	struct sender_check *c = xcalloc(1, sizeof(*c));
	const char *error, *token = api_gate_bearer(authorization, &error);
	struct senders *s = arg;

	*c = (struct sender_check){.senders = s,
				   .authorization = xstrdup(authorization),
				   .peer = xstrdup(peer),
				   .done = done,
				   .done_arg = done_arg};
	if (s->issuers && token && issuers_knows(s->issuers, token))
		issuers_check(s->issuers, token, peer, cluster_checked, c);
	else
		api_gate_check(s->gate, authorization, peer, &send_right, sender_checked, c);
}

/* ---- who pushes ---- */

/* The first value of a claim of the token; "": it has none. */
static const char *claim(const json_t *user, const char *name)
{
	const json_t *values = json_object_get(json_object_get(user, "extra"), name);

	return json_string_value(json_array_get(values, 0)) ?: "";
}

/* The namespace in "system:serviceaccount:NAMESPACE:NAME". NULL: the user is no such account. */
static char *namespace_of(const json_t *user)
{
	static const char prefix[] = "system:serviceaccount:";
	const char *name = json_str_at(user, "username", "");
	const char *ns = name + strlen(prefix);

	if (!str_has_prefix(name, prefix) || *ns == ':' || !strchr(ns, ':'))
		return NULL;
	return xstrndup(ns, strcspn(ns, ":"));
}

static void pusher_done(struct sender_check *c, int status, const char *error)
{
	c->done(
		&(struct ingest_sender){
			.status = status,
			.error = error,
			.node = claim(c->user, "authentication.kubernetes.io/node-name"),
			.ns = c->ns ?: "",
			.pod = claim(c->user, "authentication.kubernetes.io/pod-name"),
			.pod_uid = claim(c->user, "authentication.kubernetes.io/pod-uid"),
			.everywhere = c->everywhere,
			.user = c->user},
		c->done_arg);
	check_free(c);
}

static void own_namespace_checked(int status, const char *error, void *arg)
{
	pusher_done(arg, status, error);
}

static void pusher_checked(const struct gate_answer *a, void *arg)
{
	struct sender_check *c = arg;

	if (a->status != 200 && a->status != 403) {
		pusher_done(c, a->status, a->error);
		return;
	}
	c->user = json_incref((json_t *)a->user_info);
	c->ns = namespace_of(c->user);
	c->everywhere = a->status == 200;
	if (!c->ns)
		pusher_done(c, 403, "only service accounts may push profiles");
	else if (c->everywhere)
		pusher_done(c, 200, NULL);
	else
		api_gate_check_in(c->senders->gate, c->user, &send_right,
				  (const char *const *)&c->ns, 1, own_namespace_checked, c);
}

void hub_senders_push_auth(const char *authorization, const char *peer,
			   void (*done)(const struct ingest_sender *s, void *arg), void *done_arg,
			   void *arg)
{
	struct sender_check *c = xcalloc(1, sizeof(*c));
	struct senders *s = arg;

	*c = (struct sender_check){.senders = s, .done = done, .done_arg = done_arg};
	api_gate_check_pusher(s->gate, authorization, peer, &send_right, pusher_checked, c);
}

void hub_senders_push_rights(const json_t *user, const char *const *namespaces, size_t n,
			     void (*done)(int status, const char *error, void *arg), void *done_arg,
			     void *arg)
{
	struct senders *s = arg;

	api_gate_check_in(s->gate, user, &send_right, namespaces, n, done, done_arg);
}

/* ---- start and end ---- */

static void tell_keys(const char *cluster, const char *error, void *arg)
{
	(void)arg;
	if (error)
		log_warn("cluster %s: its keys cannot be read: %s", cluster, error);
	else
		log_info("cluster %s: its keys can be read again", cluster);
}

static void read_agents(struct senders *s, const struct config *conf)
{
	for (size_t i = 0; conf->ingest_agents[i] && i < MAX_AGENTS; i++) {
		const char *name = conf->ingest_agents[i], *slash = strchr(name, '/');
		_cleanup_free_ char *ns = slash ? xstrndup(name, (size_t)(slash - name))
						: xstrdup(conf->own_namespace);

		s->agents[i] =
			xasprintf("system:serviceaccount:%s:%s", ns, slash ? slash + 1 : name);
	}
}

int hub_senders_new(struct loop *l, struct kube *kube, const struct config *conf,
		    struct senders **ret, struct field_error *reterr)
{
	static const char *const audiences[] = {ISSUERS_AUDIENCE, NULL};
	const struct gate_config gc = {kube, audiences, KUBE_SERVICE_ACCOUNT "/token"};
	const struct issuers_config ic = {.file = conf->clusters_file,
					  .own_cluster = conf->cluster_name,
					  .own_token_file = KUBE_SERVICE_ACCOUNT "/token",
					  .tell = tell_keys};
	struct issuers *i = NULL;
	int r = *ic.file ? issuers_new(l, &ic, &i, reterr) : 0;

	if (r < 0)
		return r;
	*ret = xcalloc(1, sizeof(**ret));
	**ret = (struct senders){.gate = api_gate_new(&gc), .issuers = i};
	read_agents(*ret, conf);
	return 0;
}

const char **hub_senders_clusters(const struct senders *s, size_t *ret_n)
{
	const char **names = NULL, *name;
	size_t n = 0, cap = 0;

	while (s->issuers && (name = issuers_cluster(s->issuers, n))) {
		GROW(names, n, cap);
		names[n++] = name;
	}
	*ret_n = n;
	return names;
}

struct senders *hub_senders_free(struct senders *s)
{
	if (!s)
		return NULL;
	api_gate_free(s->gate, true);
	issuers_free(s->issuers);
	for (size_t n = 0; s->agents[n]; n++)
		free(s->agents[n]);
	free(s);
	return NULL;
}

char *hub_senders_problem(const struct senders *s)
{
	unsigned n = 0, n_failed = 0;

	if (s && s->issuers)
		issuers_count(s->issuers, &n, &n_failed);
	if (!n_failed)
		return xstrdup("");
	return xasprintf("the keys of %u of %u registered clusters cannot be read: see the log",
			 n_failed, n);
}
