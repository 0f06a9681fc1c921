// SPDX-License-Identifier: Apache-2.0
/* Until the modules are there. */
#include "node/alloc_go.h"
#include "node/overhead.h"

#include <stdlib.h>

#define STUB __attribute__((weak))
STUB int alloc_sites_find(const struct runtime_look *look, unsigned mask, struct alloc_sites **ret)
{
	(void)look;
	(void)mask;
	(void)ret;
	return -EOPNOTSUPP;
}
STUB struct alloc_sites *alloc_sites_free(struct alloc_sites *s)
{
	free(s);
	return NULL;
}
STUB int alloc_go_drain(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret)
{
	(void)g;
	(void)who;
	(void)ret;
	return -EOPNOTSUPP;
}
STUB int probes_attach(struct probes *p, uint32_t tgid, uint64_t s, const struct pf_mem_proc *proc,
		       const struct probe_file *files, size_t n, struct attached **ret,
		       size_t *ret_refused)
{
	(void)p;
	(void)tgid;
	(void)s;
	(void)proc;
	(void)files;
	(void)n;
	(void)ret;
	(void)ret_refused;
	return -EOPNOTSUPP;
}
STUB struct attached *probes_detach(struct probes *p, struct attached *a)
{
	(void)p;
	(void)a;
	return NULL;
}
STUB void probes_attached_wait(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			       uint64_t *ret_ns, uint64_t *ret_hits)
{
	(void)a;
	(void)max_ns;
	(void)max_hits;
	*ret_ns = *ret_hits = 0;
}
