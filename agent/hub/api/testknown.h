/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of Pyroscope's API only: a store whose answers are known. pyroscope_test.c asks the API
 * for them, and e2e/grafana the hub, by the client that Grafana uses.
 */
#pragma once

#include "hub/store/store.h"

static const struct known {
	enum event event;
	int64_t end_s; /* after T0 */
	const char *ns, *group, *pod, *node, *app;
	int64_t value;
} known[] = {
	{EVENT_ON_CPU, 0, "app", "web", "web-1", "n1", "java", 1000},
	{EVENT_ON_CPU, 10, "app", "web", "web-1", "n1", "java", 2000},
	{EVENT_ON_CPU, 20, "app", "web", "web-1", "n1", "java", 3000},
	{EVENT_ON_CPU, 10, "app", "web", "web-2", "n2", "java", 500},
	{EVENT_ON_CPU, 0, "vault", "keys", "keys-1", "n1", "vault", 70},
	{EVENT_ON_CPU, 0, NULL, NULL, NULL, "n1", "sshd", 9},
	{EVENT_OFF_CPU, 10, "app", "web", "web-1", "n1", "java", 40},
	{EVENT_MEM_INUSE, 0, "app", "web", "web-1", "n1", "java", 500},
	{EVENT_MEM_INUSE, 10, "app", "web", "web-1", "n1", "java", 700},
};

static inline void known_tag(struct batch *b, struct profile *p, const char *key, const char *value)
{
	if (value)
		profile_tag(b, p, key, value);
}

/* main, and in a pod a function of the pod's name. What ends last is in a call. */
static inline int known_stack(struct batch *b, struct profile_sample *s, const struct known *x)
{
	static const struct profile_link call = {.trace_id = {[15] = 0xab},
						 .span_id = {[7] = 0xcd}};
	const struct frame frames[] = {{.kind = FRAME_APP, .name = "main"},
				       {.kind = FRAME_LIBRARY, .name = x->pod}};
	int r = profile_batch_stack(b, frames, x->pod ? 2 : 1, &s->stack);

	return !r && x->end_s == 20 ? profile_batch_link(b, &call, &s->link) : r;
}

/* t0: Unix time of the first window's end, in seconds; it ends with 0. Returns 0 or -errno. */
static inline int known_write(struct store *s, int64_t t0)
{
	struct batch *b = profile_batch_new();
	size_t n_new;
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(known); i++) {
		const struct known *x = &known[i];
		struct profile *p = profile_batch_profile(b);
		struct profile_sample *sample;

		p->id[0] = (uint8_t)(i + 1);
		p->event = x->event;
		p->end_ns = (uint64_t)(t0 + x->end_s) * NSEC_PER_SEC;
		p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
		p->app_service = profile_batch_str(b, x->app);
		p->process_id = 7;
		known_tag(b, p, "pod_cluster", "c1");
		known_tag(b, p, "pod_ns", x->ns);
		known_tag(b, p, "pod_group", x->group);
		known_tag(b, p, "pod", x->pod);
		known_tag(b, p, "pod_node", x->node);
		known_tag(b, p, "k8s.label.app.kubernetes.io/name", x->ns ? x->group : NULL);
		sample = profile_add(b, p);
		sample->thread_comm = profile_batch_str(b, "worker");
		sample->cpu = -1;
		sample->value = x->value;
		sample->n_samples = 1;
		r = known_stack(b, sample, x);
	}
	r = r ? r : store_write(s, b, &n_new);
	profile_batch_free(b);
	return r;
}
