// SPDX-License-Identifier: Apache-2.0
/*
 * Memory events of real processes: exact bytes by function, what lives, sampling without bias, and that nothing
 * stays behind, whenever probes come and go. Once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/workload_test.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "node/probe/memory.h"

#define LISTED                                                                                     \
	(struct probe_config)                                                                      \
	{                                                                                          \
		.use_list = true, .max_sample_hz = 99                                              \
	}
#define ALLOC (1u << EVENT_MEM_ALLOC)
#define INUSE (1u << EVENT_MEM_INUSE)

/* ---- where the C library allocates ---- */

struct symbol {
	const char *name;
	struct pf_site site;
};
static const struct symbol libc_symbols[] = {
	{"malloc", {PF_SITE_ALLOC, 1, 0, 0, 0, 0}},
	{"calloc", {PF_SITE_ALLOC, 1, 2, 0, 0, 0}},
	{"realloc", {PF_SITE_REALLOC, 2, 0, 1, 0, PF_SITE_NULL_IS_ALLOC}},
	{"posix_memalign", {PF_SITE_OUT, 3, 0, 1, 0, 0}},
	{"aligned_alloc", {PF_SITE_ALLOC, 2, 0, 0, 0, 0}},
	{"free", {PF_SITE_FREE, 0, 0, 1, 0, 0}},
};

struct library {
	uint64_t address; /* in */
	char path[256];
	uint64_t offset;
};

static int find_library(struct dl_phdr_info *info, size_t n, void *arg)
{
	struct library *l = arg;

	(void)n;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type != PT_LOAD || l->address < start ||
		    l->address >= start + ph->p_memsz)
			continue;
		l->offset = l->address - start + ph->p_offset;
		snprintf(l->path, sizeof(l->path), "%s",
			 *info->dlpi_name ? info->dlpi_name : "/proc/self/exe");
		return 1;
	}
	return 0;
}

static struct library library_of(const void *address)
{
	struct library l = {.address = (uintptr_t)address};

	assert_true(dl_iterate_phdr(find_library, &l));
	return l;
}

struct probed {
	struct probe_file file;
	struct probe_site sites[ARRAY_SIZE(libc_symbols)];
	struct pf_mem_proc proc;
};

static void add_site(struct probed *t, const void *address, struct pf_site site)
{
	struct library l = library_of(address);
	struct probe_site *s = &t->sites[t->file.n_sites++];

	if (t->file.n_sites == 1)
		t->file.fd = open(l.path, O_RDONLY | O_CLOEXEC);
	assert_true(t->file.fd >= 0);
	t->file.sites = t->sites;
	s->file_offset = l.offset;
	memcpy(&s->cookie, &site, sizeof(site));
}

static void probe_libc(struct probed *t)
{
	*t = (struct probed){};
	for (size_t i = 0; i < ARRAY_SIZE(libc_symbols); i++)
		add_site(t, dlsym(RTLD_DEFAULT, libc_symbols[i].name), libc_symbols[i].site);
}

/* ---- what the drains say of one process ---- */

struct seen {
	uint64_t n, bytes;
	uint64_t in_short, in_long, in_loop; /* bytes */
};
struct memory_watch {
	pid_t pid;
	struct raw_proc proc;
	bool known;
	struct seen alloc, inuse; /* inuse: the newest snapshot */
	uint64_t snapshot_ns;
	unsigned snapshots, empty;
	uint64_t others, stackless;
};

static void see(struct memory_watch *w, struct seen *t, const struct drain *d,
		const struct raw_sample *s)
{
	const struct raw_stack *k = drain_stack(d, s->ustack);

	t->n += s->n;
	t->bytes += s->value;
	w->stackless += s->n && !k;
	for (size_t i = 0; k && i < k->n; i++) {
		uint64_t a = k->frames[i].address;

		if (IN_RANGE(a, pf_short))
			t->in_short += s->value;
		else if (IN_RANGE(a, pf_long))
			t->in_long += s->value;
		else if (IN_RANGE(a, pf_loop))
			t->in_loop += s->value;
		else
			continue;
		break;
	}
}

static void watch_sample(struct memory_watch *w, const struct drain *d, const struct raw_sample *s)
{
	if ((pid_t)s->tgid != w->pid) {
		w->others += s->n;
		return;
	}
	if (s->event == EVENT_MEM_ALLOC)
		see(w, &w->alloc, d, s);
	if (s->event != EVENT_MEM_INUSE)
		return;
	if (s->last_ns != w->snapshot_ns) {
		w->inuse = (struct seen){};
		w->snapshot_ns = s->last_ns;
		w->snapshots++;
	}
	w->empty += s->n == 0;
	see(w, &w->inuse, d, s);
}

static void watch_drain(struct probes *p, struct memory_watch *w, bool full)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, full, &d), 0);
	for (size_t i = 0; i < d->n_procs; i++)
		if ((pid_t)d->procs[i].tgid == w->pid) {
			w->proc = d->procs[i];
			w->known = true;
		}
	for (size_t i = 0; i < d->n_samples; i++)
		watch_sample(w, d, &d->samples[i]);
	drain_free(d);
}

/* Everything until now, and a snapshot of now. */
static void watch_all(struct probes *p, struct memory_watch *w)
{
	probes_live_ask(p);
	watch_drain(p, w, true);
	watch_drain(p, w, true);
}

/* ---- a process and its probes ---- */

/* ready: 1 it waits; 2 go on; it says 3 when its work is done. */
static void say_and_wait(struct truth *t, uint32_t done)
{
	t->ready = done;
	while (t->ready == done)
		nap(1);
}

static void await(const struct child *c, uint32_t ready)
{
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (c->truth->ready != ready) {
		if (now_mono_ns() > deadline)
			fail_msg("the workload does not come to step %u", ready);
		nap(1);
	}
}

struct scene {
	struct child c;
	struct probes *p;
	struct memory_watch w;
	struct probed probed;
	struct attached *a;
};

static enum uprobe_mode mode_at_most = UPROBE_SESSION;

static void want(struct scene *s, unsigned events, uint64_t bytes)
{
	struct listed_process l = {
		.tgid = s->c.pid,
		.start_boottime_ns = s->c.start_ns,
		.event_mask = events,
		.settings = {.alloc_sample_bytes = bytes, .inuse_sample_bytes = bytes},
	};

	assert_int_equal(probes_list(s->p, &l, 1), 0);
}

/* Who it is, exactly: told by the kernel. */
static void get_known(struct scene *s)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (!s->w.known) {
		assert_int_equal(probes_announce(s->p), 0);
		watch_drain(s->p, &s->w, false);
		if (now_mono_ns() > deadline)
			fail_msg("the kernel does not tell of the process");
	}
}

static int scene_attach(struct scene *s, unsigned events)
{
	size_t refused = 99;
	int r;

	s->probed.proc.event_mask = events;
	s->probed.proc.exec_id = s->w.proc.exec_id;
	r = probes_attach(s->p, s->c.pid, s->w.proc.start_boottime_ns, &s->probed.proc,
			  &s->probed.file, 1, &s->a, &refused);
	if (!r)
		assert_int_equal(refused, 0);
	return r;
}

/* Of sites in s->probed, if there are some, else of the C library. */
static void scene_open(struct scene *s, body_fn *body, unsigned events, uint64_t bytes)
{
	struct memory *m;

	if (!s->probed.file.n_sites)
		probe_libc(&s->probed);
	s->c = child_start(body, NULL);
	s->w = (struct memory_watch){.pid = s->c.pid};
	s->p = open_probes(LISTED);
	m = s->p->events[EVENT_MEM_ALLOC].own;
	if (m->mode < mode_at_most) {
		print_message("skipped: this kernel has no such uprobes\n");
		skip();
	}
	m->mode = mode_at_most;
	want(s, events, bytes);
	get_known(s);
	assert_int_equal(scene_attach(s, events), 0);
	await(&s->c, 1);
}

static unsigned map_count(int map, size_t key_bytes)
{
	_cleanup_free_ char *key = xcalloc(1, key_bytes), *next = xcalloc(1, key_bytes);
	unsigned n = 0;

	for (void *at = NULL; !bpf_map_get_next_key(map, at, next); at = key, n++)
		memcpy(key, next, key_bytes);
	return n;
}

static void scene_close(struct scene *s)
{
	struct memory *m = memory_of(s->p);

	s->a = probes_detach(s->p, s->a);
	assert_null(s->a);
	assert_int_equal(map_count(m->procs, sizeof(struct pf_process_key)), 0);
	assert_int_equal(map_count(m->live, sizeof(struct pf_live_key)), 0);
	assert_int_equal(map_count(m->pending, sizeof(struct pf_pending_key)), 0);
	assert_int_equal(m->n_links, 0);
	assert_int_equal(s->w.others, 0);
	probes_free(s->p);
	close(s->probed.file.fd);
	child_stop(&s->c);
}

static void go(struct scene *s, uint32_t until)
{
	s->c.truth->ready = 2;
	await(&s->c, until);
	watch_all(s->p, &s->w);
}

static uint64_t lost(const char *reason)
{
	return counter_get(counter("podflame_samples_dropped_total", "reason", reason));
}

/* ---- exact bytes by function ---- */

static void *volatile keep[4096];

IN_SECTION(pf_short) static void allocate_every_way(void)
{
	volatile size_t huge = SIZE_MAX - 4096;
	void *p = NULL;

	keep[0] = malloc(1000);
	keep[1] = calloc(10, 300);
	keep[2] = realloc(NULL, 500);
	keep[2] = realloc(keep[2], 70000);
	keep[3] = aligned_alloc(64, 6400);
	if (posix_memalign(&p, 64, 7777))
		abort();
	keep[4] = p;
	keep[5] = malloc(huge); /* fails, as does the next */
	keep[6] = calloc(huge >> 24, huge >> 24);
	if (keep[5] || keep[6])
		abort();
}
#define SHORT_ALLOC (1000 + 3000 + 500 + 70000 + 6400 + 7777)
#define SHORT_LIVES (1000 + 3000 + 70000 + 6400 + 7777)

IN_SECTION(pf_long) static void allocate_and_free(void)
{
	for (int i = 0; i < 1000; i++)
		free((void *)(keep[7] = malloc(100)));
	keep[7] = malloc(11);
}
#define LONG_ALLOC (1000 * 100 + 11)

static void *free_it(void *p)
{
	free(p);
	return NULL;
}

IN_SECTION(pf_loop) static void body_exact(struct truth *t)
{
	pthread_t other;

	say_and_wait(t, 1);
	allocate_every_way();
	allocate_and_free();
	say_and_wait(t, 3);
	/* Freed elsewhere; a child's frees are not ours. */
	if (fork() == 0) {
		free((void *)keep[1]);
		free((void *)keep[3]);
		_exit(0);
	}
	wait(NULL);
	pthread_create(&other, NULL, free_it, (void *)keep[0]);
	pthread_join(other, NULL);
	keep[2] = realloc((void *)keep[2], 10);
	say_and_wait(t, 4);
	keep[2] = realloc((void *)keep[2], 0); /* frees */
	for (int i = 1; i < 8; i++)
		if (i != 2)
			free((void *)keep[i]);
	say_and_wait(t, 5);
}

static void bytes_are_exact_and_what_is_freed_is_gone(void **state)
{
	struct scene s = {};

	(void)state;
	scene_open(&s, body_exact, ALLOC | INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.in_short, SHORT_ALLOC);
	assert_int_equal(s.w.alloc.in_long, LONG_ALLOC);
	assert_int_equal(s.w.inuse.in_short, SHORT_LIVES);
	assert_int_equal(s.w.inuse.in_long, 11);
	assert_int_equal(s.w.stackless, 0);
	go(&s, 4);
	assert_int_equal(s.w.inuse.in_short, SHORT_LIVES - 1000 - 70000);
	assert_int_equal(s.w.inuse.in_loop, 10);
	go(&s, 5);
	assert_int_equal(s.w.inuse.in_short, 0);
	assert_int_equal(s.w.inuse.in_long, 0);
	assert_int_equal(lost("live_evicted"), 0);
	assert_int_equal(lost("pending_full"), 0);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_exact_and_what_is_freed_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
