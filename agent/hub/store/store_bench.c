/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the hub's store takes in and answers: 100,000 stacks of 30 frames in 100
 * profiles, written as new, again as stacks it knows, then asked for; and what lives in 100
 * processes after 100 snapshots. On disk, under /tmp.
 */
#include "hub/store/store.h"
#include "lib/base/bench.h"

#include <unistd.h>

#define T0	 1700000000ULL
#define PROFILES 100
#define STACKS	 1000 /* a profile */
#define DEPTH	 30
#define ROWS	 ((double)PROFILES * STACKS)

/* Each differs from every other, but shares most functions with its process's: a tree. */
static uint32_t make_stack(struct batch *b, unsigned profile, unsigned stack)
{
	char names[DEPTH][32];
	struct frame f[DEPTH];
	uint32_t index;

	for (unsigned i = 0; i < DEPTH; i++) {
		unsigned varies = i < 10 ? 0 : i < 20 ? stack / 32 : i < DEPTH - 1 ? 0 : stack % 32;

		snprintf(names[i], sizeof(names[i]), "function_%u_%u_%u", profile, i, varies);
		f[i] = (struct frame){.kind = FRAME_APP, .name = names[i], .module = "/bin/bench"};
	}
	if (batch_stack(b, f, DEPTH, &index))
		bench_die("a batch of its stacks", ENOMEM);
	return index;
}

static struct batch *make_profile(enum event event, unsigned window, unsigned i, unsigned n_stacks)
{
	_cleanup_free_ char *id = xasprintf("%u/%u/%u", event, window, i);
	_cleanup_free_ char *pod = xasprintf("bench-%u", i);
	struct batch *b = batch_new();
	struct profile *p = batch_profile(b);

	profile_id_make((const char *const *)&id, 1, p->id);
	p->event = event;
	p->start_ns = (T0 + window * 10) * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = batch_str(b, "bench");
	p->process_id = i + 1;
	p->process_start_ns = NSEC_PER_SEC;
	profile_tag(b, p, "pod_cluster", "c1");
	profile_tag(b, p, "pod_ns", i % 2 ? "app" : "data");
	profile_tag(b, p, "pod", pod);
	for (unsigned k = 0; k < n_stacks; k++) {
		struct profile_sample *s = profile_add(b, p);

		s->thread_comm = batch_str(b, "worker");
		s->cpu = -1;
		s->n_samples = k % 7 + 1;
		s->value = (int64_t)s->n_samples * 10101;
		s->stack = make_stack(b, i, k);
	}
	return b;
}

static uint64_t write_window(struct store *s, enum event event, unsigned window, unsigned n_stacks)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < PROFILES; i++) {
		struct batch *b = make_profile(event, window, i, n_stacks);
		uint64_t from = now_mono_ns();
		size_t n_new;
		int r = store_write(s, b, &n_new);

		ns += now_mono_ns() - from;
		if (r || n_new != 1)
			bench_die("write", r ? r : EEXIST);
		batch_free(b);
	}
	return ns;
}

static void bench_write(struct store *s, unsigned window, const char *name, const char *against)
{
	uint64_t ns = write_window(s, EVENT_ON_CPU, window, STACKS);

	bench_report(name, ROWS / (ns / 1e9), "rows/s", against);
}

static int count(const struct store_row *row, void *arg)
{
	(void)row;
	++*(size_t *)arg;
	return 0;
}

static void bench_read(struct store *s, enum event event, const char *name, char *allowed,
		       const char *against)
{
	struct selection sel = {.event = event,
				.time_start_s = T0,
				.time_end_s = T0 + 3600,
				.allowed_namespaces = allowed ? &allowed : NULL,
				.n_allowed_namespaces = allowed ? 1 : 0};
	struct store_summary summary = {};
	struct field_error err = {};
	uint64_t from = now_mono_ns();
	size_t n = 0;
	int r = store_read(s, &sel, count, &n, &summary, &err);

	if (r || !n)
		bench_die(*err.reason ? err.reason : "read", r ? r : ENOENT);
	bench_report(name, (now_mono_ns() - from) / 1e6, "ms", against);
	store_summary_done(&summary);
}

int main(void)
{
	char dir[] = "/tmp/podflame-bench-XXXXXX";
	struct store_config c = {.kind = "sqlite", .path = dir};
	struct store_stats stats;
	struct field_error err = {};
	struct store *s;

	if (!mkdtemp(dir) || store_open(&c, &s, &err))
		bench_die(*err.reason ? err.reason : dir, errno);
	bench_write(s, 0, "store.write_new_stacks", "a node at 99 Hz sends at most 99 a core");
	bench_write(s, 1, "store.write_known_stacks", "store.write_new_stacks");
	bench_read(s, EVENT_ON_CPU, "store.read_all", NULL, "200000 rows, 100000 stacks");
	bench_read(s, EVENT_ON_CPU, "store.read_one_namespace", "app", "store.read_all");
	if (store_expire(s, now_wall_ns())) /* counts what it holds */
		bench_die("expire", EIO);
	store_stats(s, &stats);
	bench_report("store.bytes_a_row", stats.bytes / (2 * ROWS), "bytes",
		     "its stacks as text: 500");
	for (unsigned window = 0; window < 100; window++)
		write_window(s, EVENT_MEM_INUSE, window, 20);
	bench_read(s, EVENT_MEM_INUSE, "store.read_newest", NULL,
		   "2000 stacks of 100 snapshots of 100 processes");
	store_close(s);
	return execlp("rm", "rm", "-r", dir, NULL);
}
