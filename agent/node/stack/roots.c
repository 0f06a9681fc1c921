/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root directories of the cgroups' processes. A process may end before its mappings are read.
 * If all processes of its cgroup that were read have the same root, it is a process of the same
 * container, so the debug files of that container name its frames, too. Runs on the pipeline worker
 * only.
 */
#include "node/stack/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define ROOTS_MAX   4096
#define EQUAL_ROOTS 8 /* readings in a row after which what was read before does not count */

struct cgroup_root {
	uint64_t cgroup_id; /* the key */
	uint64_t root;	    /* what files_root() returned; 0: the processes have several roots */
	uint64_t last;	    /* the root that was read last */
	bool nodes;	    /* it is the root directory of the node itself */
	unsigned n_equal;   /* readings in a row that had it, up to EQUAL_ROOTS */
	UT_hash_handle hh;  /* in the order of readings; the head was read least recently */
};

static struct cgroup_root *find(const struct stacks *s, uint64_t cgroup_id)
{
	struct cgroup_root *r;

	HASH_FIND(hh, s->roots, &cgroup_id, sizeof(cgroup_id), r);
	return r;
}

static void forget(struct stacks *s, struct cgroup_root *r)
{
	HASH_DEL(s->roots, r);
	free(r);
}

static struct cgroup_root *make(uint64_t cgroup_id)
{
	struct cgroup_root *r = xcalloc(1, sizeof(*r));

	r->cgroup_id = cgroup_id;
	return r;
}

static void begin(struct cgroup_root *r, uint64_t root, bool nodes)
{
	r->root = r->last = root;
	r->nodes = nodes;
	r->n_equal = 1;
}

/*
 * A process that starts in a container (runc) is in its cgroup before it has its root. Until then
 * it has the node's root, which counts only as long as no process of the cgroup has another one.
 * Several other roots are forgotten once a number of processes had the same.
 */
static void update(struct cgroup_root *r, uint64_t root, bool nodes)
{
	if (!r->last || (r->nodes && !nodes)) {
		begin(r, root, nodes);
		return;
	}
	if (nodes && !r->nodes)
		return;
	r->n_equal = root == r->last ? MIN(r->n_equal + 1, EQUAL_ROOTS) : 1;
	r->last = root;
	if (r->n_equal == EQUAL_ROOTS)
		r->root = root;
	else if (r->root != root)
		r->root = 0;
}

/*
 * Finds device and inode of a directory. A directory of FUSE is not asked, because its daemon may
 * not answer.
 */
static int find_directory(int fd, const char *path, struct directory *ret)
{
	struct statx x;

	if (statx(fd, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &x) < 0)
		return -errno;
	*ret = (struct directory){makedev(x.stx_dev_major, x.stx_dev_minor), x.stx_ino};
	return 0;
}

void stacks_roots_begin(struct stacks *s)
{
	(void)find_directory(AT_FDCWD, "/proc/1/root/", &s->nodes_root);
}

bool stacks_root_is_nodes(const struct stacks *s, int root_fd)
{
	struct directory d;

	return root_fd >= 0 && s->nodes_root.inode && find_directory(root_fd, "", &d) == 0 &&
	       d.dev == s->nodes_root.dev && d.inode == s->nodes_root.inode;
}

void stacks_roots_note(struct stacks *s, uint64_t cgroup_id, uint64_t root, bool nodes)
{
	struct cgroup_root *r = find(s, cgroup_id);

	if (!cgroup_id || !root)
		return;
	if (r)
		HASH_DEL(s->roots, r);
	else
		r = make(cgroup_id);
	update(r, root, nodes);
	HASH_ADD(hh, s->roots, cgroup_id, sizeof(r->cgroup_id), r);
	if (HASH_COUNT(s->roots) <= ROOTS_MAX)
		return;
	forget(s, s->roots);
	counter_add(counter("podflame_symbol_roots_evicted_total", NULL, NULL), 1);
}

uint64_t stacks_roots_find(const struct stacks *s, uint64_t cgroup_id)
{
	const struct cgroup_root *r = find(s, cgroup_id);

	return r ? r->root : 0;
}

void stacks_roots_free(struct stacks *s)
{
	while (s->roots)
		forget(s, s->roots);
}
