/* SPDX-License-Identifier: Apache-2.0 */
/* See senders.h. Everything here runs on the loop thread. */
#include "hub/senders.h"

#include "hub/api/api.h"
#include "hub/issuers/issuers.h"

#include <stdlib.h>

struct senders {
	struct gate *gate;
	struct issuers *issuers; /* NULL: no other cluster is registered */
};

struct sender_check {
	struct senders *senders;
	char *authorization, *peer, *node;
	void (*done)(const struct ingest_sender *s, void *arg);
	void *done_arg;
};

static void check_free(struct sender_check *c)
{
	free(c->authorization);
	free(c->peer);
	free(c->node);
	free(c);
}

static void sender_done(struct sender_check *c, const struct gate_answer *a, bool hosts)
{
	c->done(&(struct ingest_sender){a->status, a->error, c->node ?: a->node, hosts, NULL},
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

static void sender_checked(const struct gate_answer *a, void *arg)
{
	static const struct gate_right hosts = {"create", "profiles/host"};
	struct sender_check *c = arg;

	if (a->status != 200) {
		sender_done(c, a, false);
		return;
	}
	c->node = xstrdup(a->node);
	api_gate_check(c->senders->gate, c->authorization, c->peer, &hosts, hosts_checked, c);
}

static void cluster_checked(int status, const char *cluster, const char *error, void *arg)
{
	struct sender_check *c = arg;

	c->done(&(struct ingest_sender){status, error, "", true, cluster}, c->done_arg);
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
	static const struct gate_right send = {"create", "profiles"};
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
		api_gate_check(s->gate, authorization, peer, &send, sender_checked, c);
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
	**ret = (struct senders){api_gate_new(&gc), i};
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
	api_gate_free(s->gate, false);
	issuers_free(s->issuers);
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
