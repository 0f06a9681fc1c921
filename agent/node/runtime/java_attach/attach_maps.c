/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mailbox between the runtime perfmap (on the reader's thread) and runtime_java_attach() (on a
 * thread that may wait). perfmap notes JVMs whose names are missing. runtime_java_attach() gives
 * their maps. Any thread may call its functions.
 */
#include "node/runtime/java_attach/attach.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define TICK_NS (NSEC_PER_SEC / 100)

struct jvm {
	struct process_id id;
	uint64_t charged_ns;
	bool unnamed;
	struct perf_map *map; /* a map that the JVM has given, but that perfmap has not taken yet */
};
struct java_requests {
	unsigned refs;
	pthread_mutex_t lock; /* guards all members below */
	struct jvm jvms[JAVA_REQUESTS_MAX];
	size_t n, n_forgotten;
};

struct java_requests *runtime_java_requests_new(void)
{
	struct java_requests *q = xcalloc(1, sizeof(*q));

	q->refs = 1;
	pthread_mutex_init(&q->lock, NULL);
	return q;
}

struct java_requests *runtime_java_requests_ref(struct java_requests *q)
{
	if (q)
		ref_take(&q->refs);
	return q;
}

struct java_requests *runtime_java_requests_unref(struct java_requests *q)
{
	if (!q || !ref_drop(&q->refs))
		return NULL;
	for (size_t i = 0; i < q->n; i++)
		runtime_perf_map_free(q->jvms[i].map);
	pthread_mutex_destroy(&q->lock);
	free(q);
	return NULL;
}

/*
 * Finds the entry of a process. The kernel's start times and those of /proc have different
 * resolutions, so start times that differ by one tick count as equal.
 */
static struct jvm *find(struct java_requests *q, struct process_id id)
{
	for (size_t i = 0; i < q->n; i++) {
		struct jvm *j = &q->jvms[i];

		if (j->id.tgid == id.tgid &&
		    j->id.start_boottime_ns < id.start_boottime_ns + TICK_NS &&
		    id.start_boottime_ns < j->id.start_boottime_ns + TICK_NS)
			return j;
	}
	return NULL;
}

/*
 * Returns whether the JVM needs nothing any more, or its process has ended. If another process has
 * the same PID now, the entry stays a little longer, which does no harm.
 */
static bool is_over(const struct jvm *j)
{
	return (!j->unnamed && !j->map) || (kill((pid_t)j->id.tgid, 0) < 0 && errno == ESRCH);
}

/* Returns a free entry. If all entries are needed, each call forgets another one in turn. */
static struct jvm *make_room(struct java_requests *q)
{
	if (q->n < JAVA_REQUESTS_MAX)
		return &q->jvms[q->n++];
	for (size_t i = 0; i < JAVA_REQUESTS_MAX; i++)
		if (is_over(&q->jvms[i]))
			return &q->jvms[i];
	counter_add(counter("podflame_java_attach_total", "result", "forgotten"), 1);
	return &q->jvms[q->n_forgotten++ % JAVA_REQUESTS_MAX];
}

static struct jvm *find_or_make(struct java_requests *q, struct process_id id)
{
	struct jvm *j = find(q, id);

	if (j)
		return j;
	j = make_room(q);
	runtime_perf_map_free(j->map);
	*j = (struct jvm){.id = id};
	return j;
}

void runtime_java_map_want(struct java_requests *q, struct process_id id, uint64_t charged_ns)
{
	struct jvm *j;

	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	j = find_or_make(q, id);
	j->unnamed = true;
	j->charged_ns = charged_ns;
	pthread_mutex_unlock(&q->lock);
}

uint64_t runtime_java_map_charged(struct java_requests *q, struct process_id id)
{
	const struct jvm *j;
	uint64_t charged_ns;

	pthread_mutex_lock(&q->lock);
	j = find(q, id);
	charged_ns = j ? j->charged_ns : 0;
	pthread_mutex_unlock(&q->lock);
	return charged_ns;
}

bool runtime_java_unnamed(struct java_requests *q, struct process_id id)
{
	const struct jvm *j;
	bool unnamed;

	pthread_mutex_lock(&q->lock);
	j = find(q, id);
	unnamed = j && j->unnamed;
	pthread_mutex_unlock(&q->lock);
	return unnamed;
}

size_t runtime_java_all_unnamed(struct java_requests *q, struct process_id ret[JAVA_REQUESTS_MAX])
{
	size_t n = 0;

	pthread_mutex_lock(&q->lock);
	for (size_t i = 0; i < q->n; i++)
		if (q->jvms[i].unnamed)
			ret[n++] = q->jvms[i].id;
	pthread_mutex_unlock(&q->lock);
	return n;
}

void runtime_java_map_give(struct java_requests *q, struct process_id id, struct perf_map *map)
{
	struct jvm *j;

	pthread_mutex_lock(&q->lock);
	j = find_or_make(q, id);
	runtime_perf_map_free(j->map);
	j->map = map;
	j->unnamed = false;
	pthread_mutex_unlock(&q->lock);
}

struct perf_map *runtime_java_map_take(struct java_requests *q, struct process_id id)
{
	struct perf_map *map;
	struct jvm *j;

	if (!q)
		return NULL;
	pthread_mutex_lock(&q->lock);
	j = find(q, id);
	map = j ? TAKE_PTR(j->map) : NULL;
	pthread_mutex_unlock(&q->lock);
	return map;
}
