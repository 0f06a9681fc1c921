/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.scrape: which profiles of its own the agent asks a pod's program for, and where. The pod's
 * annotation decides about the port; the address is the pod's own, as the API server says it. Pure.
 */
#include "node/plan/internal.h"

#include <arpa/inet.h>
#include <stdlib.h>

#define INTERVAL_MIN_NS (10 * NSEC_PER_SEC)
#define INTERVAL_MAX_NS (600 * NSEC_PER_SEC) /* a longer spec.scrape.interval is refused */

static const struct {
	const char *name;
	enum event event; /* see plan_profile_event() */
} profiles[_PLAN_PROFILE_MAX] = {
	[PLAN_PROFILE_HEAP] = {"heap", EVENT_MEM_INUSE},
	[PLAN_PROFILE_ALLOCS] = {"allocs", EVENT_MEM_ALLOC},
	[PLAN_PROFILE_MUTEX] = {"mutex", EVENT_OFF_CPU},
	[PLAN_PROFILE_BLOCK] = {"block", EVENT_OFF_CPU},
	[PLAN_PROFILE_GOROUTINE] = {"goroutine", EVENT_OFF_CPU},
	[PLAN_PROFILE_CPU] = {"cpu", EVENT_ON_CPU},
};

const char *plan_profile_name(enum plan_profile p)
{
	return profiles[p].name;
}

enum event plan_profile_event(enum plan_profile p)
{
	return profiles[p].event;
}

unsigned plan_profiles_of_events(unsigned event_mask)
{
	unsigned mask = 0;

	for (enum plan_profile p = 0; p < _PLAN_PROFILE_MAX; p++)
		if (event_mask & 1u << profiles[p].event)
			mask |= 1u << p;
	return mask;
}

/* ---- the target ---- */

static unsigned read_profiles(const json_t *scrape)
{
	const json_t *list = json_object_get(scrape, "profiles"), *v;
	_cleanup_json_ json_t *def = json_loads(plan_field("scrape.profiles")->def, 0, NULL);
	unsigned mask = 0;
	size_t i;

	json_array_foreach (list ? list : def, i, v) {
		for (enum plan_profile p = 0; p < _PLAN_PROFILE_MAX; p++)
			if (str_equal(json_string_value(v), profiles[p].name))
				mask |= 1u << p;
	}
	return mask;
}

int plan_scrape_read(const json_t *spec, struct scrape_wish *ret, struct field_error *reterr)
{
	const json_t *scrape = json_object_get(spec, "scrape");
	_cleanup_json_ json_t *def =
		json_loads(plan_field("scrape.interval")->def, JSON_DECODE_ANY, NULL);
	const char *interval = json_str_at(scrape, "interval", json_string_value(def));
	uint64_t ns;

	*ret = (struct scrape_wish){0};
	if (!scrape)
		return 0;
	if (str_to_duration_ns(interval, &ns) < 0 || ns < INTERVAL_MIN_NS || ns > INTERVAL_MAX_NS)
		return field_error_set(reterr, "spec.scrape.interval", "must be from 10s to 10m");
	*ret = (struct scrape_wish){.profiles = read_profiles(scrape),
				    .port = (uint16_t)json_int_at(scrape, "port", 0),
				    .interval_ns = ns};
	return 0;
}

/* ---- the pod ---- */

/*
 * Whether a connection to the address reaches the pod and nothing else: it is not one of the node,
 * of this agent, or of several machines.
 */
static bool is_of_pod(const char *address, const char *node_address)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (streq(address, node_address))
		return false;
	if (inet_pton(AF_INET, address, &v4) == 1) {
		uint32_t a = ntohl(v4.s_addr), net = a >> 24;

		return net != 0 && net != 127 && net < 224 && a >> 16 != 0xa9fe;
	}
	return inet_pton(AF_INET6, address, &v6) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&v6) &&
	       !IN6_IS_ADDR_LOOPBACK(&v6) && !IN6_IS_ADDR_LINKLOCAL(&v6) &&
	       !IN6_IS_ADDR_MULTICAST(&v6) && !IN6_IS_ADDR_V4MAPPED(&v6) &&
	       !IN6_IS_ADDR_V4COMPAT(&v6);
}

void plan_scrape_pod_decode(const json_t *obj, struct pod_scrape *ret)
{
	const json_t *annotations = json_at(obj, "metadata.annotations");
	const json_t *said = json_object_get(annotations, PLAN_SCRAPE_ANNOTATION);
	const char *text = json_string_value(said) ?: "";
	const char *address = json_str_at(obj, "status.podIP", NULL);
	uint64_t port = 0;

	*ret = (struct pod_scrape){
		.address = address, .annotated = said != NULL, .off = streq(text, "disabled")};
	if (said && !ret->off && (str_to_u64(text, UINT16_MAX, &port) < 0 || !port))
		ret->refused = "its annotation " PLAN_SCRAPE_ANNOTATION
			       " is neither a port nor \"disabled\"";
	else if (json_bool_at(obj, "spec.hostNetwork", false))
		ret->refused = "it uses the network of its node";
	else if (address && !is_of_pod(address, json_str_at(obj, "status.hostIP", "")))
		ret->refused = "its address is not one of a pod";
	ret->port = (uint16_t)port;
}

/* ---- both ---- */

void plan_scrape_add(struct plan_scrape **s, const struct target *t, const struct pod_scrape *pod)
{
	struct plan_scrape *out = *s;
	const struct scrape_wish *w = &t->scrape;

	if (!w->profiles || pod->off || !(w->port || pod->annotated))
		return;
	if (!pod->address && !pod->refused) /* it has no network yet */
		return;
	if (!out) {
		*s = out = xcalloc(1, sizeof(*out));
		out->address = xstrdup(pod->address);
		out->refused = pod->refused;
		out->port = pod->port;
	}
	if (!pod->port && out->port && w->port && out->port != w->port && !out->refused)
		out->refused =
			"targets name different ports; set the annotation " PLAN_SCRAPE_ANNOTATION;
	out->port = out->port ?: w->port;
	out->profiles |= w->profiles;
	out->interval_ns =
		out->interval_ns ? MIN(out->interval_ns, w->interval_ns) : w->interval_ns;
	out->target_uids =
		xrealloc(out->target_uids, (out->n_targets + 1) * sizeof(*out->target_uids));
	out->target_uids[out->n_targets++] = xstrdup(t->uid);
}

struct plan_scrape *plan_scrape_free(struct plan_scrape *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n_targets; i++)
		free(s->target_uids[i]);
	free(s->target_uids);
	free(s->address);
	free(s);
	return NULL;
}

json_t *plan_scrape_json(const struct plan_scrape *s)
{
	json_t *list = json_array(), *targets = json_array();

	for (enum plan_profile p = 0; s && p < _PLAN_PROFILE_MAX; p++)
		if (s->profiles & 1u << p)
			json_array_append_new(list, json_string(profiles[p].name));
	for (size_t i = 0; s && i < s->n_targets; i++)
		json_array_append_new(targets, json_string(s->target_uids[i]));
	if (s)
		return json_pack("{s:s?, s:i, s:o, s:i, s:s?, s:o}", "address", s->address, "port",
				 (int)s->port, "profiles", list, "intervalSeconds",
				 (int)(s->interval_ns / NSEC_PER_SEC), "refused", s->refused,
				 "targets", targets);
	json_decref(list);
	json_decref(targets);
	return json_null();
}
