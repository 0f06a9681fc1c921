// SPDX-License-Identifier: Apache-2.0
/*
 * tables: the kernel's side of node/unwind's ops. A chunk is an array map of one value, made when
 * it is first written. The chunk that was written last stays in a buffer until another chunk is
 * written, or until a flush. Descriptors of chunks stay open: to find a map by its id, the agent
 * would need CAP_SYS_ADMIN, which it does not have.
 *
 * A flush puts new and dropped chunks into the outer map, many at once, because each update of that
 * map waits for RCU (10 ms). One empty map replaces all dropped chunks: a batch can update
 * elements, but not delete them.
 */
#include "node/probe/internal.h"

#include <unistd.h>

#include "core.skel.h"
#include "proc.skel.h"

#define NO_CHUNK UINT32_MAX

static int chunk_map(struct probes *p)
{
	return bpf_map__fd(p->core->maps.chunks);
}

/* ---- changes that the outer map does not have yet ---- */

/* Updates the outer map one by one, because some kernels cannot do it in a batch. */
static int publish_each(struct probes *p, const int *fds)
{
	struct chunk_writer *w = &p->writer;

	for (size_t i = 0; i < w->n_told; i++) {
		int r = bpf_map_update_elem(chunk_map(p), &w->told[i], &fds[i], BPF_ANY);

		if (r)
			return r;
	}
	return 0;
}

static int publish(struct probes *p)
{
	struct chunk_writer *w = &p->writer;
	int fds[ARRAY_SIZE(w->told)], r;
	uint32_t n = w->n_told;

	if (!n)
		return 0;
	for (size_t i = 0; i < n; i++) {
		int fd = w->fds[w->told[i]];

		fds[i] = fd >= 0 ? fd : w->empty_fd;
	}
	r = bpf_map_update_batch(chunk_map(p), w->told, fds, &n, NULL);
	if (r)
		r = publish_each(p, fds);
	if (!r)
		w->n_told = 0;
	return r;
}

static int tell(struct probes *p, uint32_t chunk)
{
	struct chunk_writer *w = &p->writer;
	int r;

	for (size_t i = 0; i < w->n_told; i++)
		if (w->told[i] == chunk)
			return 0;
	if (w->n_told == ARRAY_SIZE(w->told)) {
		r = publish(p);
		if (r)
			return r;
	}
	w->told[w->n_told++] = chunk;
	return 0;
}

/* ---- the chunk that is being written ---- */

static int chunk_create(const char *name)
{
	return bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(uint32_t), PF_CHUNK_BYTES, 1, NULL);
}

static int chunk_put(struct chunk_writer *w)
{
	uint32_t zero = 0;
	int r;

	if (!w->dirty)
		return 0;
	r = bpf_map_update_elem(w->fds[w->chunk], &zero, w->bytes, BPF_ANY);
	if (!r)
		w->dirty = false;
	return r;
}

/*
 * Fills the buffer with the chunk's content. A new chunk is all zero; an older one is read from the
 * kernel.
 */
static int chunk_get(struct probes *p, uint32_t chunk)
{
	struct chunk_writer *w = &p->writer;
	uint32_t zero = 0;
	int fd, r;

	if (w->fds[chunk] >= 0)
		return bpf_map_lookup_elem(w->fds[chunk], &zero, w->bytes);
	fd = chunk_create("pf_chunk");
	if (fd < 0)
		return fd;
	r = tell(p, chunk);
	if (r) {
		close(fd);
		return r;
	}
	w->fds[chunk] = fd;
	memset(w->bytes, 0, PF_CHUNK_BYTES);
	return 0;
}

/*
 * Writes the chunk that is in the buffer to the kernel, then fills the buffer with the other chunk.
 */
static int chunk_switch(struct probes *p, uint32_t chunk)
{
	struct chunk_writer *w = &p->writer;
	int r;

	if (w->chunk == chunk)
		return 0;
	r = chunk_put(w);
	if (r)
		return r;
	w->chunk = NO_CHUNK;
	r = chunk_get(p, chunk);
	if (!r)
		w->chunk = chunk;
	return r;
}

/* ---- the ops ---- */

int probes_chunk_write(struct probes *p, uint32_t chunk, uint32_t offset, const void *bytes,
		       size_t n)
{
	int r;

	if (chunk >= PF_CHUNKS_MAX || offset > PF_CHUNK_BYTES || n > PF_CHUNK_BYTES - offset)
		return -EINVAL;
	r = chunk_switch(p, chunk);
	if (r)
		return r;
	memcpy(p->writer.bytes + offset, bytes, n);
	p->writer.dirty = true;
	return 0;
}

int probes_chunk_flush(struct probes *p)
{
	int r = chunk_put(&p->writer);

	return r ? r : publish(p);
}

int probes_chunk_drop(struct probes *p, uint32_t chunk)
{
	struct chunk_writer *w = &p->writer;
	int r;

	if (chunk >= PF_CHUNKS_MAX)
		return -EINVAL;
	if (w->fds[chunk] < 0)
		return 0;
	if (w->empty_fd < 0)
		w->empty_fd = chunk_create("pf_no_chunk");
	if (w->empty_fd < 0)
		return w->empty_fd;
	r = tell(p, chunk);
	if (r)
		return r;
	if (w->chunk == chunk) {
		w->chunk = NO_CHUNK;
		w->dirty = false;
	}
	close(w->fds[chunk]);
	w->fds[chunk] = -1;
	return 0;
}

/*
 * A program reads the file's state first, and this function writes the state last. So a program
 * that reads READY also reads the other new values.
 */
int probes_file_set(struct probes *p, uint32_t slot, const struct pf_file *f)
{
	int map = bpf_map__fd(p->core->maps.unwind_files), r;
	struct pf_file not_yet = *f;

	if (slot >= PF_FILES_MAX)
		return -EINVAL;
	if (f->state == PF_FILE_READY) {
		not_yet.state = PF_FILE_PENDING;
		r = bpf_map_update_elem(map, &slot, &not_yet, BPF_ANY);
		if (r)
			return r;
	}
	r = bpf_map_update_elem(map, &slot, f, BPF_ANY);
	__atomic_add_fetch(&p->settings->tables, 1, __ATOMIC_RELEASE);
	return r;
}

/*
 * A hash map reuses the memory of a deleted element at once for another key. The counter `reused`
 * lets programs notice that.
 */
static void tell_reused(struct probes *p)
{
	__atomic_add_fetch(&p->settings->reused, 1, __ATOMIC_SEQ_CST);
}

int probes_process_set(struct probes *p, const struct pf_process_key *k, const struct pf_process *v)
{
	tell_reused(p);
	return bpf_map_update_elem(bpf_map__fd(p->core->maps.unwind_procs), k, v, BPF_ANY);
}

int probes_process_remove(struct probes *p, const struct pf_process_key *k)
{
	int r = bpf_map_delete_elem(bpf_map__fd(p->core->maps.unwind_procs), k);

	return r == -ENOENT ? 0 : r;
}

int probes_image_set(struct probes *p, uint64_t tag, const struct pf_image *i)
{
	tell_reused(p);
	return bpf_map_update_elem(bpf_map__fd(p->core->maps.images), &tag, i, BPF_ANY);
}

int probes_image_remove(struct probes *p, uint64_t tag)
{
	int r = bpf_map_delete_elem(bpf_map__fd(p->core->maps.images), &tag);

	return r == -ENOENT ? 0 : r;
}

/*
 * Waits until no program uses what was removed before. An update of an outer map waits for RCU,
 * also one that changes nothing (kernel/bpf/syscall.c, maybe_wait_bpf_programs, since 5.0). It does
 * not wait for sleepable programs: these check `reused`.
 */
int probes_grace(struct probes *p)
{
	uint32_t slot = 0;
	int inner = bpf_map__fd(p->core->maps.counts_0), r;

	r = bpf_map_update_elem(bpf_map__fd(p->core->maps.counts), &slot, &inner, BPF_ANY);
	tell_reused(p);
	return r;
}

void probes_tables_open(struct probes *p)
{
	struct chunk_writer *w = &p->writer;

	w->chunk = NO_CHUNK;
	w->empty_fd = -1;
	w->bytes = xmalloc(PF_CHUNK_BYTES);
	w->fds = xcalloc(PF_CHUNKS_MAX, sizeof(*w->fds));
	for (size_t i = 0; i < PF_CHUNKS_MAX; i++)
		w->fds[i] = -1;
}

void probes_tables_close(struct probes *p)
{
	struct chunk_writer *w = &p->writer;

	for (size_t i = 0; w->fds && i < PF_CHUNKS_MAX; i++)
		if (w->fds[i] >= 0)
			close(w->fds[i]);
	if (w->empty_fd >= 0)
		close(w->empty_fd);
	free(w->fds);
	free(w->bytes);
	*w = (struct chunk_writer){.chunk = NO_CHUNK, .empty_fd = -1};
}

/* ---- processes that exist already ---- */

static uint64_t n_forks(const struct probes *p)
{
	return __atomic_load_n(&p->proc->bss->pf_n_forks, __ATOMIC_RELAXED);
}

int probes_announce(struct probes *p)
{
	if (!p->announce)
		return 0;
	__atomic_store_n(&p->proc->bss->pf_fork_was_told, 0, __ATOMIC_SEQ_CST);
	p->n_forks_announced = n_forks(p);
	return probes_iterator_run(p->announce);
}

bool probes_forked(const struct probes *p)
{
	return p->announce && n_forks(p) != p->n_forks_announced;
}
