/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mailbox between the perfmap runtime (reader's thread) and runtime_java_attach() (a thread
 * that may wait). One side notes JVMs whose names are missing, the other gives maps. Any thread.
 */
#include "node/runtime/java_attach/attach.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define JVMS_MAX 256
#define TICK_NS	 (NSEC_PER_SEC / 100)

struct jvm {
	struct process_id id;
	bool unnamed;
	struct perf_map *map; /* given, but not taken yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jvm jvms[JVMS_MAX];
static size_t n_jvms, n_forgotten;

/*
 * Start times of the kernel and of /proc have different resolutions: a tick of difference is equal.
 */
static struct jvm *find(struct process_id id)
{
	for (size_t i = 0; i < n_jvms; i++) {
		struct jvm *j = &jvms[i];

		if (j->id.tgid == id.tgid &&
		    j->id.start_boottime_ns < id.start_boottime_ns + TICK_NS &&
		    id.start_boottime_ns < j->id.start_boottime_ns + TICK_NS)
			return j;
	}
	return NULL;
}

/*
 * The JVM needs nothing any more, or its process is gone. If another process has its PID by now,
 * the entry stays a little longer, which does no harm.
 */
static bool is_over(const struct jvm *j)
{
	return (!j->unnamed && !j->map) || (kill((pid_t)j->id.tgid, 0) < 0 && errno == ESRCH);
}

/* If all entries are needed, each in turn is forgotten. */
static struct jvm *make_room(void)
{
	if (n_jvms < JVMS_MAX)
		return &jvms[n_jvms++];
	for (size_t i = 0; i < JVMS_MAX; i++)
		if (is_over(&jvms[i]))
			return &jvms[i];
	counter_add(counter("podflame_java_attach_total", "result", "forgotten"), 1);
	return &jvms[n_forgotten++ % JVMS_MAX];
}

static struct jvm *find_or_make(struct process_id id)
{
	struct jvm *j = find(id);

	if (j)
		return j;
	j = make_room();
	runtime_perf_map_free(j->map);
	*j = (struct jvm){.id = id};
	return j;
}

void runtime_java_map_want(struct process_id id)
{
	pthread_mutex_lock(&lock);
	find_or_make(id)->unnamed = true;
	pthread_mutex_unlock(&lock);
}

bool runtime_java_unnamed(struct process_id id)
{
	const struct jvm *j;
	bool unnamed;

	pthread_mutex_lock(&lock);
	j = find(id);
	unnamed = j && j->unnamed;
	pthread_mutex_unlock(&lock);
	return unnamed;
}

size_t runtime_java_all_unnamed(struct process_id *ret, size_t max)
{
	size_t n = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_jvms && n < max; i++)
		if (jvms[i].unnamed)
			ret[n++] = jvms[i].id;
	pthread_mutex_unlock(&lock);
	return n;
}

void runtime_java_map_give(struct process_id id, struct perf_map *map)
{
	struct jvm *j;

	pthread_mutex_lock(&lock);
	j = find_or_make(id);
	runtime_perf_map_free(j->map);
	j->map = map;
	j->unnamed = false;
	pthread_mutex_unlock(&lock);
}

struct perf_map *runtime_java_map_take(struct process_id id)
{
	struct perf_map *map;
	struct jvm *j;

	pthread_mutex_lock(&lock);
	j = find(id);
	map = j ? TAKE_PTR(j->map) : NULL;
	pthread_mutex_unlock(&lock);
	return map;
}
