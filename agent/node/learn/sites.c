/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the probes, groups the places where a process allocates memory by file. It also compares such
 * places, and makes the text about memory that the probes cannot see. See sites.h. It attaches
 * nothing and owns nothing.
 */
#include "node/learn/sites.h"

#include <stdlib.h>

static struct pf_mem_proc process_of(const struct alloc_sites *s, const struct mappings *m,
				     unsigned event_mask)
{
	struct pf_mem_proc p = {
		.exec_id = m->exec_id,
		.event_mask = event_mask,
		.n_inner = (uint32_t)s->n_inner,
		.n_functions = s->n_functions,
	};

	for (size_t i = 0; i < s->n_inner; i++) {
		p.inner[i].start = s->inner[i].start;
		p.inner[i].end = s->inner[i].end;
	}
	return p;
}

/* Groups the places by file: in s, the places of one file follow one another. */
void learn_site_files(const struct alloc_sites *s, const struct mappings *m, unsigned event_mask,
		      struct site_files *ret)
{
	struct site_files f = {.process = process_of(s, m, event_mask)};
	struct probe_file *file = NULL;

	f.sites = xcalloc(s->n + 1, sizeof(*f.sites));
	f.files = xcalloc(s->n + 1, sizeof(*f.files));
	for (size_t i = 0; i < s->n; i++) {
		const struct alloc_site *x = &s->items[i];
		int fd = m->items[x->mapping].fd;

		f.sites[i].file_offset = x->file_offset;
		f.sites[i].semaphore = x->semaphore;
		memcpy(&f.sites[i].cookie, &x->site, sizeof(x->site));
		if (!file || file->fd != fd) {
			file = &f.files[f.n_files++];
			file->fd = fd;
			file->sites = &f.sites[i];
		}
		file->n_sites++;
	}
	*ret = f;
}

void learn_site_files_done(struct site_files *f)
{
	free(f->sites);
	free(f->files);
	*f = (struct site_files){0};
}

static bool is_same(const struct alloc_site *a, const struct mapping *ma,
		    const struct alloc_site *b, const struct mapping *mb)
{
	return a->file_offset == b->file_offset && a->address == b->address &&
	       a->semaphore == b->semaphore && !memcmp(&a->site, &b->site, sizeof(a->site)) &&
	       ma->inode == mb->inode && ma->dev_major == mb->dev_major &&
	       ma->dev_minor == mb->dev_minor;
}

bool learn_sites_equal(const struct alloc_sites *a, const struct mappings *ma,
		       const struct alloc_sites *b, const struct mappings *mb)
{
	if (a->n != b->n || a->n_inner != b->n_inner || !a->go != !b->go ||
	    memcmp(a->inner, b->inner, a->n_inner * sizeof(a->inner[0])))
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (!is_same(&a->items[i], &ma->items[a->items[i].mapping], &b->items[i],
			     &mb->items[b->items[i].mapping]))
			return false;
	return true;
}

void learn_sites_take_over(struct alloc_sites *s, const struct alloc_sites *newer)
{
	s->own_heap = newer->own_heap;
	memcpy(s->problem, newer->problem, sizeof(s->problem));
}

/* What a process must have loaded, before there is anything that the set probes. */
static const char *const needed[_PROBES_SET_MAX] = {
	[PROBES_GPU_MEMORY] = "a CUDA driver (libcuda.so.1)",
	[PROBES_GPU] = "a CUDA driver (libcuda.so.1)",
	[PROBES_RDMA] = "libibverbs (libibverbs.so.1)",
	[PROBES_RDMA_LATENCY] = "libibverbs (libibverbs.so.1)",
};

bool learn_sites_may_come(enum probe_set set, const struct alloc_sites *s)
{
	return needed[set] && !s->n;
}

/* A problem comes from a finder that found the library. So then nothing is lacking. */
const char *learn_sites_lack(enum probe_set set, const struct alloc_sites *s)
{
	return learn_sites_may_come(set, s) && !*s->problem ? needed[set] : NULL;
}

/*
 * Whether an exception may leave the function. In a site of kind PF_SITE_INSIDE, flags contains a
 * factor in the same bits.
 */
static bool throws(const struct pf_site *s)
{
	return s->kind != PF_SITE_INSIDE && s->flags & PF_SITE_THROWS;
}

/*
 * Returns the event of the mask whose value is the memory that is in use now; _EVENT_MAX: there is
 * none.
 */
static enum event live_of(unsigned event_mask)
{
	for (enum event e = 0; e < _EVENT_MAX; e++)
		if (event_mask & 1u << e && profile_event_info(e)->snapshot)
			return e;
	return _EVENT_MAX;
}

/*
 * The last text is about exceptions: an exception cannot pass a probe of a function's return, see
 * probe/attach.c.
 */
char *learn_sites_problem(const struct alloc_sites *s, unsigned event_mask,
			  const struct probes_refused *refused)
{
	enum event live = live_of(event_mask);

	if (refused && refused->too_many)
		return xstrdup("not all is seen: it allocates in too many places for probes with "
			       "one place each, which podflame needs on an old kernel or if its "
			       "first thread has ended");
	if (refused && refused->inuse && live < _EVENT_MAX)
		return xasprintf("%s is not seen: the kernel refuses a probe without which memory "
				 "that has ended would count as in use",
				 profile_event_info(live)->name);
	if (refused && refused->n && event_mask & 1u << EVENT_ON_GPU)
		return xstrdup("on-gpu is not seen: the kernel refuses a probe of the library that "
			       "reports it. Another profiler may probe the library there, but not "
			       "raise its semaphores");
	if (refused && refused->n && event_mask & (1u << EVENT_RDMA | 1u << EVENT_RDMA_LATENCY))
		return xasprintf("not all requests of %s are seen: the kernel refuses to probe %zu "
				 "of the functions of libibverbs and of the RDMA device's provider",
				 event_mask & 1u << EVENT_RDMA ? "rdma" : "rdma-latency",
				 refused->n);
	if (*s->problem)
		return xstrdup(s->problem);
	if (refused && refused->objects)
		return xstrdup("hbm-inuse shows the memory that PyTorch keeps as a whole, without "
			       "its objects: the process allocates them too often for probes");
	for (size_t i = 0; i < s->n && live == EVENT_MEM_INUSE; i++)
		if (throws(&s->items[i].site))
			return xstrdup("mem-inuse does not see what the allocator's own operator "
				       "new returns: its exceptions cannot pass a probe of its "
				       "return");
	return NULL;
}
