// SPDX-License-Identifier: Apache-2.0
/*
 * uprobe: probes of functions of one process. Where the kernel has links of many places, one link a file and
 * program; else a perf event a place. The kernel is asked with a link that cannot work, so nothing is attached to
 * find out. Closing a link waits for RCU: those of one process are closed at the same time.
 */
#include "node/probe/memory.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PMU_TYPE   "/sys/bus/event_source/devices/uprobe/type"
#define PMU_RETURN 1 /* format/retprobe: config:0 */

/* ---- links of many places: libbpf has them since 1.3 ---- */

/* union bpf_attr of BPF_LINK_CREATE, include/uapi/linux/bpf.h since 6.6 */
struct multi_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t n, multi_flags, pid, pad;
};

static int multi_create(struct multi_attr *a)
{
	int fd = syscall(SYS_bpf, BPF_LINK_CREATE, a, offsetof(struct multi_attr, pad));

	return fd < 0 ? -errno : fd;
}

static int trivial_program(int attach_type)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach_type);
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "pf_trivial", "GPL", insns, ARRAY_SIZE(insns),
			     &opts);
}

/*
 * A path that is no file is refused with EBADF by who knows such links. A PID of -1 is refused
 * before that since links keep to the process and not to one of its threads (6.10 and later
 * versions of what came before: bpf: Fix multi-uprobe PID filtering logic).
 */
static bool has_multi(int attach_type)
{
	int prog = trivial_program(attach_type);
	uint64_t offset = 0;
	struct multi_attr a = {.prog_fd = prog,
			       .attach_type = attach_type,
			       .path = (uintptr_t) "/",
			       .offsets = (uintptr_t)&offset,
			       .n = 1};
	bool ok;

	if (prog < 0)
		return false;
	ok = multi_create(&a) == -EBADF;
	a.pid = -1;
	ok = ok && multi_create(&a) == -EINVAL;
	close(prog);
	return ok;
}

static int pmu_type(void)
{
	_cleanup_free_ char *text = NULL;
	uint64_t type;
	int r = file_read(-1, PMU_TYPE, 64, &text, NULL);

	if (r)
		return r;
	text[strcspn(text, "\n")] = 0;
	return str_to_u64(text, INT32_MAX, &type) ? -EBADMSG : (int)type;
}

enum uprobe_mode uprobe_mode(void)
{
	if (has_multi(ATTACH_UPROBE_SESSION))
		return UPROBE_SESSION;
	if (has_multi(ATTACH_UPROBE_MULTI))
		return UPROBE_MULTI;
	return pmu_type() >= 0 ? UPROBE_SINGLE : UPROBE_NONE;
}

/* ---- attaching ---- */

/* Places of one file for one program. */
struct places {
	int prog, attach_type;
	bool at_return;
	uint32_t pid;
	char path[32];
	uint64_t *offsets, *cookies;
	size_t n;
};

static int multi_attach(const struct places *b, size_t from, size_t n)
{
	struct multi_attr a = {
		.prog_fd = b->prog,
		.attach_type = b->attach_type,
		.path = (uintptr_t)b->path,
		.offsets = (uintptr_t)(b->offsets + from),
		.cookies = (uintptr_t)(b->cookies + from),
		.n = n,
		.multi_flags = b->at_return ? UPROBE_MULTI_RETURN : 0,
		.pid = b->pid,
	};

	return multi_create(&a);
}

static int single_attach(const struct places *b, size_t at)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = b->cookies[at]);
	int type = pmu_type(), link;
	struct perf_event_attr attr = {
		.type = type,
		.size = sizeof(attr),
		.config = b->at_return ? PMU_RETURN : 0,
		.config1 = (uintptr_t)b->path,
		.config2 = b->offsets[at],
	};
	_cleanup_close_ int event = -1;

	if (type < 0)
		return type;
	event = syscall(SYS_perf_event_open, &attr, (int)b->pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	link = bpf_link_create(b->prog, event, BPF_PERF_EVENT, &opts); /* holds the event */
	return link;
}

static void keep_link(struct attached *a, int fd)
{
	a->links = xrealloc(a->links, (a->n_links + 1) * sizeof(*a->links));
	a->links[a->n_links++] = fd;
}

/* Nothing of it would work: not a matter of places. */
static bool is_hopeless(int r)
{
	return r == -ESRCH || r == -EPERM || r == -EACCES || r == -ENOMEM || r == -EMFILE;
}

/* One place that the kernel refuses has it refuse the whole link: it is looked for by halves. */
static int attach_range(struct attached *a, const struct places *b, size_t from, size_t n,
			size_t *refused)
{
	bool single = a->memory->mode == UPROBE_SINGLE;
	int r;

	if (single && a->n_links >= UPROBE_SINGLE_MAX_OF_ATTACH) {
		*refused += n;
		return -E2BIG;
	}
	if (!single || n == 1) {
		r = single ? single_attach(b, from) : multi_attach(b, from, n);
		if (r >= 0) {
			keep_link(a, r);
			return 0;
		}
		if (n == 1 || is_hopeless(r)) {
			*refused += n;
			return r;
		}
	}
	r = attach_range(a, b, from, n / 2, refused);
	if (is_hopeless(r)) {
		*refused += n - n / 2;
		return r;
	}
	return attach_range(a, b, from + n / 2, n - n / 2, refused);
}

static bool returns_memory(const struct pf_site *s)
{
	if (s->flags & PF_SITE_THROWS)
		return false; /* a return that is always probed: bpf/memory.bpf.c, pf_mem_throws() */
	return s->kind == PF_SITE_ALLOC || s->kind == PF_SITE_REALLOC || s->kind == PF_SITE_OUT;
}

static bool is_for(const struct pf_site *s, enum memory_program program, bool inuse)
{
	switch (program) {
	case MEMORY_FREE:
		return s->kind == PF_SITE_FREE && inuse;
	case MEMORY_RETURN:
		return returns_memory(s) && inuse;
	default:
		return s->kind != PF_SITE_FREE;
	}
}

static uint64_t place_of(int fd, const struct probe_site *at, const struct pf_site *site)
{
	return site->kind == PF_SITE_INSIDE ? at->file_offset : emulated_place(fd, at->file_offset);
}

/* The cookie of a site: it tells what a hit of it costs. */
static uint64_t cookie_of(struct memory *m, int fd, uint64_t place, struct pf_site site)
{
	uint8_t code[2];
	uint64_t cookie;

	if (pread(fd, code, sizeof(code), (off_t)place) == sizeof(code) && !is_emulated(code)) {
		if (!m->stepped_more)
			m->stepped_more = uprobe_stepped_more(m->mode);
		site.flags |= (uint16_t)(m->stepped_more << 8);
	}
	memcpy(&cookie, &site, sizeof(cookie));
	return cookie;
}

static int attach_program(struct attached *a, const struct probe_file *file,
			  enum memory_program program, size_t *refused)
{
	struct memory *m = a->memory;
	_cleanup_free_ uint64_t *offsets = xcalloc(file->n_sites + 1, sizeof(*offsets));
	_cleanup_free_ uint64_t *cookies = xcalloc(file->n_sites + 1, sizeof(*cookies));
	struct places b = {
		.prog = m->programs[program],
		.attach_type = m->mode == UPROBE_SESSION && program == MEMORY_ENTRY
				       ? ATTACH_UPROBE_SESSION
				       : ATTACH_UPROBE_MULTI,
		.at_return = program == MEMORY_RETURN,
		.pid = a->key.tgid,
		.offsets = offsets,
		.cookies = cookies,
	};

	snprintf(b.path, sizeof(b.path), "/proc/self/fd/%d", file->fd);
	for (size_t i = 0; i < file->n_sites; i++) {
		struct pf_site site;

		memcpy(&site, &file->sites[i].cookie, sizeof(site));
		if (!is_for(&site, program, a->inuse))
			continue;
		offsets[b.n] = place_of(file->fd, &file->sites[i], &site);
		cookies[b.n] = cookie_of(m, file->fd, offsets[b.n], site);
		b.n++;
	}
	return b.n && b.prog >= 0 ? attach_range(a, &b, 0, b.n, refused) : 0;
}

/* Frees first, then returns: so nothing is seen to be made whose end is not. */
static int attach_files(struct attached *a, const struct probe_file *files, size_t n,
			size_t *refused)
{
	static const enum memory_program order[] = {MEMORY_FREE, MEMORY_RETURN, MEMORY_ENTRY};
	int first_error = 0;

	for (size_t k = 0; k < ARRAY_SIZE(order); k++)
		for (size_t i = 0; i < n; i++) {
			int r = attach_program(a, &files[i], order[k], refused);

			if (is_hopeless(r))
				return r;
			if (r && !first_error)
				first_error = r;
		}
	return first_error;
}

/* ---- closing ---- */

static void *close_link(void *fd)
{
	close((int)(intptr_t)fd);
	return NULL;
}

#define CLOSERS 32

static void close_links(struct attached *a)
{
	for (size_t i = 0; i < a->n_links; i += CLOSERS) {
		size_t n = MIN(a->n_links - i, (size_t)CLOSERS);
		pthread_t threads[CLOSERS];
		bool started[CLOSERS] = {};

		for (size_t k = 1; k < n; k++)
			started[k] = !pthread_create(&threads[k], NULL, close_link,
						     (void *)(intptr_t)a->links[i + k]);
		close(a->links[i]);
		for (size_t k = 1; k < n; k++) {
			if (started[k])
				pthread_join(threads[k], NULL);
			else
				close(a->links[i + k]);
		}
	}
	free(a->links);
	a->links = NULL;
	a->n_links = 0;
}

/* ---- one process ---- */

static int attached_add(struct attached *a, const struct pf_mem_proc *proc)
{
	struct memory *m = a->memory;
	struct pf_mem_proc v = *proc;
	struct attached *other;
	int r = 0;

	v.cgroup_id = v.hits = 0;
	pthread_mutex_lock(&m->lock);
	HASH_FIND(hh, m->attached, &a->key, sizeof(a->key), other);
	if (other)
		r = -EEXIST;
	a->since_ns = now_boot_ns();
	if (!r)
		r = bpf_map_update_elem(m->procs, &a->key, &v, BPF_ANY);
	if (!r) {
		HASH_ADD(hh, m->attached, key, sizeof(a->key), a);
		m->n_links += a->n_links;
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

static bool is_urgent(const struct memory *m)
{
	return __atomic_load_n(&m->n_leaving, __ATOMIC_RELAXED) > 0;
}

int probes_attach(struct probes *p, uint32_t tgid, uint64_t start_boottime_ns,
		  const struct pf_mem_proc *proc, const struct probe_file *files, size_t n,
		  struct attached **ret, size_t *ret_refused)
{
	struct memory *m = memory_of(p);
	struct attached *a;
	size_t refused = 0;
	int r;

	if (!m)
		return -EOPNOTSUPP;
	if (is_urgent(m))
		return -EAGAIN;
	if (proc->event_mask & 1u << EVENT_MEM_INUSE &&
	    (r = __atomic_load_n(&m->returns, __ATOMIC_ACQUIRE)))
		return r == -EAGAIN ? r : -EOPNOTSUPP; /* on another thread they are just tried */
	a = xcalloc(1, sizeof(*a));
	a->memory = m;
	a->key = (struct pf_process_key){start_boottime_ns, tgid, proc->exec_id};
	a->inuse = proc->event_mask & 1u << EVENT_MEM_INUSE;
	r = attach_files(a, files, n, &refused);
	if (a->n_links && !is_hopeless(r))
		r = attached_add(a, proc);
	else if (!r)
		r = -ENOENT;
	if (r) {
		close_links(a);
		free(a);
		return r;
	}
	*ret = a;
	*ret_refused = refused;
	return 0;
}

struct attached *probes_detach(struct probes *p, struct attached *a)
{
	struct memory *m;

	(void)p;
	if (!a)
		return NULL;
	m = a->memory;
	pthread_mutex_lock(&m->lock);
	HASH_DEL(m->attached, a);
	m->n_links -= a->n_links;
	bpf_map_delete_elem(m->procs, &a->key);
	pthread_mutex_unlock(&m->lock);
	close_links(a);
	if (a->leaving)
		__atomic_fetch_sub(&m->n_leaving, 1, __ATOMIC_RELAXED);
	if (a->inuse)
		live_forget(m);
	free(a);
	return NULL;
}

uint64_t probes_attached_hits(const struct attached *a)
{
	struct pf_mem_proc v = {};

	bpf_map_lookup_elem(a->memory->procs, &a->key, &v);
	return v.hits;
}

void probes_leave(struct attached *a)
{
	a->leaving = true;
	__atomic_fetch_add(&a->memory->n_leaving, 1, __ATOMIC_RELAXED);
}

static void nap_until(uint64_t mono_ns)
{
	uint64_t now = now_mono_ns(), ns = mono_ns > now ? MIN(mono_ns - now, NSEC_PER_MSEC) : 0;

	nanosleep(&(struct timespec){0, (long)ns}, NULL);
}

void probes_attached_wait(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			  uint64_t *ret_ns, uint64_t *ret_hits)
{
	uint64_t end = now_mono_ns() + max_ns;
	struct pf_mem_proc v = {};

	while (now_mono_ns() < end && !is_urgent(a->memory) &&
	       !bpf_map_lookup_elem(a->memory->procs, &a->key, &v) && v.hits < max_hits)
		nap_until(end);
	/* What comes while it is detached counts no more: so the time is exact. */
	bpf_map_lookup_and_delete_elem(a->memory->procs, &a->key, &v);
	*ret_ns = now_boot_ns() - a->since_ns;
	*ret_hits = v.hits;
}

int uprobe_attach_trivial(enum uprobe_mode mode, const char *path, uint64_t offset, uint32_t pid,
			  bool at_return)
{
	uint64_t cookie = 0;
	struct places b = {
		.prog = trivial_program(mode == UPROBE_SINGLE ? 0 : ATTACH_UPROBE_MULTI),
		.attach_type = ATTACH_UPROBE_MULTI,
		.at_return = at_return,
		.pid = pid,
		.offsets = &offset,
		.cookies = &cookie,
		.n = 1,
	};
	int link;

	if (b.prog < 0)
		return b.prog;
	snprintf(b.path, sizeof(b.path), "%s", path);
	link = mode == UPROBE_SINGLE ? single_attach(&b, 0) : multi_attach(&b, 0, 1);
	close(b.prog);
	return link;
}
