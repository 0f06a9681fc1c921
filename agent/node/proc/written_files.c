/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of files that were written while a process had them mapped. The names and unwind rows
 * that the agent has of such a file do not belong to the code that runs. The key of a file is its
 * device, its inode and the change time that it had when the agent opened it: containers of one
 * image have files that differ only by their device. Any thread: a lock guards the table.
 */
#include "node/proc/maps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <uthash.h>

#define WRITTEN_MAX 4096
/*
 * how long a file stays in the table after the agent last saw that it was written: the agent may
 * get frames of the file even after it has released the mappings
 */
#define KEPT_NS (60 * NSEC_PER_SEC)

struct written {
	struct written_key {
		uint64_t dev, inode, ctime_ns;
	} key;
	uint64_t seen_ns;
	UT_hash_handle hh;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct written *all;
static _Atomic unsigned n_all;

static void forget(struct written *w)
{
	HASH_DEL(all, w);
	free(w);
	n_all--;
}

/* If the table is full, removes the file that was added first. */
static void make_room(void)
{
	if (n_all < WRITTEN_MAX)
		return;
	forget(all);
	counter_add(counter("podflame_mapped_files_written_evicted_total", NULL, NULL), 1);
}

void proc_maps_written_add(uint64_t dev, uint64_t inode, uint64_t ctime_ns, uint64_t now_ns)
{
	struct written_key key = {dev, inode, ctime_ns};
	struct written *w;

	pthread_mutex_lock(&lock);
	HASH_FIND(hh, all, &key, sizeof(key), w);
	if (!w) {
		make_room();
		w = xcalloc(1, sizeof(*w));
		w->key = key;
		HASH_ADD(hh, all, key, sizeof(w->key), w);
		n_all++;
		counter_add(counter("podflame_mapped_files_written_total", NULL, NULL), 1);
	}
	w->seen_ns = now_ns;
	pthread_mutex_unlock(&lock);
}

void proc_maps_written_expire(uint64_t now_ns)
{
	struct written *w, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER (hh, all, w, next) {
		if (w->seen_ns + KEPT_NS < now_ns)
			forget(w);
	}
	pthread_mutex_unlock(&lock);
}

bool proc_mapping_file_was_written(const struct mapping *m)
{
	struct written_key key = {m->file_dev, m->inode, m->ctime_ns};
	struct written *w = NULL;

	if (!n_all || !m->ctime_ns)
		return false;
	pthread_mutex_lock(&lock);
	HASH_FIND(hh, all, &key, sizeof(key), w);
	pthread_mutex_unlock(&lock);
	return w != NULL;
}

bool proc_mapping_files_were_written(void)
{
	return n_all > 0;
}
