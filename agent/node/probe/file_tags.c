// SPDX-License-Identifier: Apache-2.0
/*
 * file_tags: returns the tag by which a stack walk will name a file (bpf/vma.h). The agent maps the
 * file. Then the caller's thread runs a BPF program of core, which looks up that mapping as a stack
 * walk does. core must be loaded.
 */
#include "node/probe/internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.skel.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* the probes whose program and map are used; NULL: no program is loaded */
static const struct probes *lender;
static int program_fd, map_fd;

static pthread_once_t seed_once = PTHREAD_ONCE_INIT;
static uint64_t seed;

static void seed_draw(void)
{
	random_bytes(&seed, sizeof(seed));
}

/*
 * The seed stays the same as long as this process runs, because tags are kept longer than the BPF
 * programs.
 */
uint64_t probes_tags_seed(void)
{
	pthread_once(&seed_once, seed_draw);
	return seed;
}

/* Runs the program for the address `at`. The caller holds the lock. */
static int look(const void *at, struct pf_vma *ret)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts);
	struct pf_vma v = {.address = (uintptr_t)at};
	uint32_t zero = 0;
	int r = bpf_map_update_elem(map_fd, &zero, &v, BPF_ANY);

	if (!r)
		r = bpf_prog_test_run_opts(program_fd, &opts);
	if (!r && opts.retval != PF_VMA_FOUND)
		return -ENODATA;
	return r ? r : bpf_map_lookup_elem(map_fd, &zero, ret);
}

static int look_at(const void *at, struct pf_vma *ret)
{
	int r = -EOPNOTSUPP;

	pthread_mutex_lock(&lock);
	if (lender)
		r = look(at, ret);
	pthread_mutex_unlock(&lock);
	return r;
}

/*
 * Returns the size of a mapping of this file. A huge page can only be mapped and unmapped as a
 * whole; st_blksize is its size.
 */
static int mapping_bytes(int fd, size_t *ret)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = MAX(page, (size_t)st.st_blksize);
	return 0;
}

int probes_file_tag(int fd, uint64_t *ret_tag)
{
	struct pf_vma v = {0};
	size_t bytes = 0;
	void *at;
	int r = mapping_bytes(fd, &bytes);

	if (r < 0)
		return r;
	/* MAP_NORESERVE: for a file of huge pages, none is reserved, because a pod may need it. */
	at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	r = look_at(at, &v);
	if (munmap(at, bytes) < 0)
		counter_add(counter("podflame_file_tag_mappings_left_total", NULL, NULL), 1);
	if (r == 0 && v.tag < PF_TAG_FIRST)
		r = -ENODATA;
	if (r == 0)
		*ret_tag = v.tag;
	return r;
}

/*
 * Maps the agent's own program file. The BPF program must find that mapping, and return the same
 * tag each time.
 */
static int try_out(const char **ret_problem)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	size_t bytes = sysconf(_SC_PAGESIZE);
	uint64_t tag = 0, again = 0;
	struct pf_vma v = {0};
	void *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	int r;

	*ret_problem = "the agent cannot map its own program";
	if (at == MAP_FAILED)
		return -errno;
	*ret_problem = "the agent does not find its own mapping";
	r = look_at(at, &v);
	munmap(at, bytes);
	if (r < 0)
		return r;
	*ret_problem = "the kernel reports the agent's own mapping wrongly";
	if ((uintptr_t)at < v.start || (uintptr_t)at >= v.end || v.runs)
		return -EPROTO;
	*ret_problem = "the tags of files do not work";
	r = probes_file_tag(fd, &tag);
	if (!r)
		r = probes_file_tag(fd, &again);
	return !r && tag != again ? -EPROTO : r;
}

int probes_tags_open(struct probes *p)
{
	const char *problem;
	int r;

	pthread_mutex_lock(&lock);
	lender = p;
	program_fd = bpf_program__fd(p->core->progs.pf_look_self);
	map_fd = bpf_map__fd(p->core->maps.looked);
	pthread_mutex_unlock(&lock);
	r = try_out(&problem);
	p->bpf_config.sees_mappings = !r;
	if (!r)
		return 0;
	probes_tags_close(p);
	if (probes_may_pass(r))
		return r;
	probes_feature_missing(
		p, FEATURE_MAPPINGS,
		"on this kernel, BPF programs cannot read the mappings of a process: %s; the agent "
		"notices new code in the place of old code only if its size differs, and until "
		"then stacks through it may be wrong",
		problem);
	return 0;
}

void probes_tags_close(struct probes *p)
{
	pthread_mutex_lock(&lock);
	if (lender == p)
		lender = NULL;
	pthread_mutex_unlock(&lock);
}
