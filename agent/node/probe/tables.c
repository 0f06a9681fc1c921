// SPDX-License-Identifier: Apache-2.0
/*
 * tables: the kernel's side of node/unwind's ops. A chunk is an array map of one value, made at
 * its first use; the one written last is kept in a buffer until another's turn or a flush. New
 * chunks and dropped ones are told to the outer map by a flush, many at once: each update of it
 * waits for RCU (10 ms). A dropped chunk's place is taken by one empty map for all: batches can
 * update, but not delete.
 */
#include "node/probe/internal.h"

#include <unistd.h>

#include "core.skel.h"

#define NO_CHUNK UINT32_MAX

static int chunk_map(struct probes *p)
{
	return bpf_map__fd(p->core->maps.chunks);
}

/* ---- the chunk at hand ---- */

static int chunk_put(struct chunk_writer *w)
{
	uint32_t zero = 0;
	int r;

	if (!w->dirty)
		return 0;
	r = bpf_map_update_elem(w->fd, &zero, w->bytes, BPF_ANY);
	if (!r)
		w->dirty = false;
	return r;
}

static void chunk_close(struct chunk_writer *w)
{
	/* A new one's descriptor is kept until it is published. */
	if (w->fd >= 0 && !w->is_new)
		close(w->fd);
	w->fd = -1;
	w->chunk = NO_CHUNK;
	w->dirty = w->is_new = false;
}

/* One by one on kernels that cannot batch updates of an outer map. */
static int publish_each(struct probes *p, struct chunk_writer *w)
{
	for (size_t i = 0; i < w->n_told; i++) {
		int r = bpf_map_update_elem(chunk_map(p), &w->told_chunks[i], &w->told_fds[i],
					    BPF_ANY);

		if (r)
			return r;
	}
	return 0;
}

static void told_clear(struct chunk_writer *w)
{
	for (size_t i = 0; i < w->n_told; i++)
		if (w->told_fds[i] != w->empty_fd)
			close(w->told_fds[i]);
	w->n_told = 0;
	if (w->is_new) { /* its descriptor is closed now */
		w->fd = -1;
		chunk_close(w);
	}
}

static int publish(struct probes *p)
{
	struct chunk_writer *w = &p->writer;
	uint32_t n = w->n_told;
	int r;

	if (!n)
		return 0;
	r = chunk_put(w);
	if (r)
		return r;
	r = bpf_map_update_batch(chunk_map(p), w->told_chunks, w->told_fds, &n, NULL);
	if (r)
		r = publish_each(p, w);
	told_clear(w);
	return r;
}

/* Where the chunk will be in the outer map: a place in told_*, kept for it. */
static int told_place(struct probes *p, uint32_t chunk, size_t *ret)
{
	struct chunk_writer *w = &p->writer;
	size_t i = 0;
	int r;

	while (i < w->n_told && w->told_chunks[i] != chunk)
		i++;
	if (i == ARRAY_SIZE(w->told_fds)) {
		r = publish(p);
		if (r)
			return r;
		i = 0;
	}
	if (i == w->n_told) {
		w->told_chunks[w->n_told] = chunk;
		w->told_fds[w->n_told++] = w->empty_fd;
	}
	*ret = i;
	return 0;
}

static int chunk_create(const char *name)
{
	return bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(uint32_t), PF_CHUNK_BYTES, 1, NULL);
}

static int chunk_make(struct probes *p, uint32_t chunk)
{
	struct chunk_writer *w = &p->writer;
	int fd = chunk_create("pf_chunk"), r;
	size_t i;

	if (fd < 0)
		return fd;
	r = told_place(p, chunk, &i);
	if (r) {
		close(fd);
		return r;
	}
	w->told_fds[i] = w->fd = fd;
	w->is_new = true;
	memset(w->bytes, 0, PF_CHUNK_BYTES);
	return 0;
}

/* What dropped chunks become, and how it is told from a real one. */
static int empty_open(struct chunk_writer *w)
{
	struct bpf_map_info info = {};
	uint32_t n = sizeof(info);
	int fd, r;

	if (w->empty_fd >= 0)
		return 0;
	fd = chunk_create("pf_no_chunk");
	if (fd < 0)
		return fd;
	r = bpf_obj_get_info_by_fd(fd, &info, &n);
	if (r) {
		close(fd);
		return r;
	}
	w->empty_fd = fd;
	w->empty_id = info.id;
	return 0;
}

static int chunk_read(struct chunk_writer *w)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(w->fd, &zero, w->bytes);
}

static int chunk_find(struct probes *p, uint32_t chunk)
{
	struct chunk_writer *w = &p->writer;
	uint32_t id;
	int r;

	for (size_t i = 0; i < w->n_told; i++) {
		if (w->told_chunks[i] != chunk)
			continue;
		if (w->told_fds[i] == w->empty_fd)
			return chunk_make(p, chunk);
		w->fd = w->told_fds[i];
		w->is_new = true;
		return chunk_read(w);
	}
	r = bpf_map_lookup_elem(chunk_map(p), &chunk, &id);
	if (r == -ENOENT || (!r && w->empty_fd >= 0 && id == w->empty_id))
		return chunk_make(p, chunk);
	if (r)
		return r;
	w->fd = bpf_map_get_fd_by_id(id);
	return w->fd < 0 ? -errno : chunk_read(w);
}

/* Makes the chunk the one at hand. */
static int chunk_switch(struct probes *p, uint32_t chunk)
{
	struct chunk_writer *w = &p->writer;
	int r;

	if (w->chunk == chunk)
		return 0;
	r = chunk_put(w);
	if (r)
		return r;
	chunk_close(w);
	if (!w->bytes)
		w->bytes = xmalloc(PF_CHUNK_BYTES);
	r = chunk_find(p, chunk);
	if (r) {
		chunk_close(w);
		return r;
	}
	w->chunk = chunk;
	return 0;
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
	size_t i;
	int r;

	if (chunk >= PF_CHUNKS_MAX)
		return -EINVAL;
	if (w->chunk == chunk)
		chunk_close(w);
	r = empty_open(w);
	if (!r)
		r = told_place(p, chunk, &i);
	if (r)
		return r;
	if (w->told_fds[i] != w->empty_fd)
		close(w->told_fds[i]);
	w->told_fds[i] = w->empty_fd;
	return 0;
}

/* A program that sees READY sees the rest: it reads the state first, this writes it last. */
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

int probes_process_set(struct probes *p, const struct pf_process_key *k, const struct pf_process *v)
{
	return bpf_map_update_elem(bpf_map__fd(p->core->maps.unwind_procs), k, v, BPF_ANY);
}

int probes_process_remove(struct probes *p, const struct pf_process_key *k)
{
	int r = bpf_map_delete_elem(bpf_map__fd(p->core->maps.unwind_procs), k);

	return r == -ENOENT ? 0 : r;
}

/*
 * Any update of an outer map waits for RCU, whatever it writes (kernel/bpf/syscall.c,
 * maybe_wait_bpf_programs, since 5.0).
 */
int probes_grace(struct probes *p)
{
	uint32_t slot = 0;
	int inner = bpf_map__fd(p->core->maps.counts_0);

	return bpf_map_update_elem(bpf_map__fd(p->core->maps.counts), &slot, &inner, BPF_ANY);
}

void tables_open(struct probes *p)
{
	p->writer.chunk = NO_CHUNK;
	p->writer.fd = p->writer.empty_fd = -1;
}

void tables_close(struct probes *p)
{
	struct chunk_writer *w = &p->writer;

	chunk_close(w);
	told_clear(w);
	if (w->empty_fd >= 0)
		close(w->empty_fd);
	free(w->bytes);
	w->bytes = NULL;
}

/* ---- who is there already ---- */

int probes_announce(struct probes *p)
{
	_cleanup_close_ int fd = -1;
	char nothing[64];
	ssize_t n;

	if (!p->announce)
		return 0;
	fd = bpf_iter_create(bpf_link__fd(p->announce));
	if (fd < 0)
		return -errno;
	do
		n = read(fd, nothing, sizeof(nothing));
	while (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)));
	return n < 0 ? -errno : 0;
}
