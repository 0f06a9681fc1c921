/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the store in CPU time of its thread. It writes batches like those of agents to a file
 * under /tmp, then runs queries as the API does, including the reply. The goals are for the default
 * number of rows; ROWS=1e7 writes ten times as many. There are two loads. `life` is 20 services of
 * 10 pods each, and all pods of a service run the same code. `hard` is 200 processes of 20
 * programs, whose stacks have little in common (100,000 stacks of 37 frames), like the load with
 * which other profilers were measured.
 */
#include "hub/query/query.h"
#include "lib/base/bench.h"
#include "lib/base/testdir.h"

#include <math.h>
#include <unistd.h>

#define T0		1700000000
#define WINDOW_S	10
#define PODS		200
#define PODS_A_NODE	20
#define ROWS_A_PROFILE	50
#define FUNCTIONS	2000 /* functions in each program */
#define MEAN_DEPTH	37
#define MAX_DEPTH	56
#define MAX_STACKS	1000
#define N_SNAPSHOTS	100
#define SNAPSHOT_STACKS 20
#define REPEATS		3

struct load {
	const char *name;
	unsigned pods_a_program, stacks_a_program;
	bool random_leaves; /* after the first 16 frames, stacks share nothing */
	/* sums of what was written */
	uint64_t windows, cpu_ns, text_bytes, n_stacks, n_rows;
	uint64_t samples, value; /* sums of namespace "app" */
	bool seen[PODS][MAX_STACKS];
};

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	const uint64_t key[] = {a, b, c};

	return hash_bytes(key, sizeof(key), 1);
}

/* The function at a depth of a stack. The closer to the leaf, the fewer stacks share it. */
static unsigned function_at(const struct load *l, unsigned stack, unsigned depth)
{
	unsigned bits = depth < 6 ? 0 : MIN((depth - 6) / 2, 10u);

	if (l->random_leaves && depth >= 16)
		return (unsigned)(mix(stack, depth, 0) % FUNCTIONS);
	return (unsigned)(mix(stack >> (10 - bits), depth, 1) % FUNCTIONS);
}

static uint32_t make_stack(struct load *l, struct batch *b, unsigned program, unsigned stack)
{
	unsigned depth = MEAN_DEPTH * 2 - MAX_DEPTH +
			 (unsigned)(mix(program, stack, 2) % ((MAX_DEPTH - MEAN_DEPTH) * 2 + 1));
	struct frame frames[MAX_DEPTH];
	char names[MAX_DEPTH][48];
	uint32_t index;

	for (unsigned i = 0; i < depth; i++) {
		int n = snprintf(names[i], sizeof(names[i]), "program_%03u::part::function_%u",
				 program * l->pods_a_program / 10, function_at(l, stack, i));

		frames[i] = (struct frame){
			.kind = FRAME_APP, .name = names[i], .module = "/usr/bin/program"};
		if (!l->seen[program][stack])
			l->text_bytes += (unsigned)n + 1;
	}
	l->n_stacks += !l->seen[program][stack];
	l->seen[program][stack] = true;
	if (profile_batch_stack(b, frames, depth, &index))
		bench_die("a batch of its stacks", ENOMEM);
	return index;
}

/*
 * Adds n samples to the profile. Few stacks get most of the samples. Each stack appears once,
 * because an agent adds up equal stacks.
 */
static void add_rows(struct load *l, struct batch *b, struct profile *p, unsigned program,
		     uint64_t window, unsigned n)
{
	const char *thread = profile_batch_str(b, "worker");
	bool taken[MAX_STACKS] = {};

	for (unsigned k = 0, draw = 0; k < n; draw++) {
		double u = (double)(mix(window, p->process_id, draw) % 1000003) / 1000003;
		unsigned stack = (unsigned)(l->stacks_a_program * u * sqrt(u));
		struct profile_sample *s;

		if (taken[stack])
			continue;
		taken[stack] = true;
		s = profile_add(b, p);
		s->thread_comm = thread;
		s->cpu = -1;
		s->n_samples = draw % 7 + 1;
		s->value = (int64_t)s->n_samples * 10101;
		s->stack = make_stack(l, b, program, stack);
		k++;
	}
}

static void add_profile(struct load *l, struct batch *b, enum event event, uint64_t window,
			unsigned pod, unsigned n)
{
	struct profile *p = profile_batch_profile(b);
	unsigned program = pod / l->pods_a_program;
	char text[32];
	const char *parts[] = {text};

	snprintf(text, sizeof(text), "%d/%u/%u", event, (unsigned)window, pod);
	profile_id_make(parts, 1, p->id);
	p->event = event;
	p->start_ns = (T0 + window * WINDOW_S) * NSEC_PER_SEC;
	p->end_ns = p->start_ns + WINDOW_S * NSEC_PER_SEC;
	snprintf(text, sizeof(text), "service-%u", pod / 10);
	p->app_service = profile_batch_str(b, text);
	profile_tag(b, p, "pod_group", text);
	snprintf(text, sizeof(text), "service-%u-%u", pod / 10, pod);
	profile_tag(b, p, "pod", text);
	snprintf(text, sizeof(text), "node-%u", pod / PODS_A_NODE);
	profile_tag(b, p, "pod_node", text);
	profile_tag(b, p, "pod_cluster", "c1");
	profile_tag(b, p, "pod_ns", pod % 2 ? "app" : "data");
	p->process_id = pod + 1;
	p->process_start_ns = NSEC_PER_SEC;
	add_rows(l, b, p, program, window, n);
	for (size_t i = 0; pod % 2 && event == EVENT_ON_CPU && i < p->n_samples; i++) {
		l->samples += p->samples[i].n_samples;
		l->value += (uint64_t)p->samples[i].value;
	}
	l->n_rows += event == EVENT_ON_CPU ? n : 0;
}

/* Writes windows. A batch has one window of all pods of a node. */
static void write_windows(struct load *l, struct store *s, enum event event, uint64_t n_windows,
			  unsigned n)
{
	for (uint64_t i = 0; i < n_windows * (PODS / PODS_A_NODE); i++) {
		unsigned pod = (unsigned)(i % (PODS / PODS_A_NODE)) * PODS_A_NODE;
		struct batch *b = profile_batch_new();
		uint64_t from;
		size_t n_new;
		int r;

		for (unsigned k = 0; k < PODS_A_NODE; k++)
			add_profile(l, b, event, i / (PODS / PODS_A_NODE), pod + k, n);
		from = thread_cpu_ns();
		r = store_write(s, b, &n_new);
		l->cpu_ns += thread_cpu_ns() - from;
		if (r || n_new != PODS_A_NODE)
			bench_die("write", r ? r : EEXIST);
		profile_batch_free(b);
	}
}

/* ---- names of results: they contain the load and the number of rows ---- */

static const char *name_of(const struct load *l, const char *what)
{
	static char name[64];

	snprintf(name, sizeof(name), "store.%s_%.0e_%s", what, (double)l->n_rows, l->name);
	return name;
}

static void bench_write(struct load *l, struct store *s, uint64_t n_rows)
{
	uint64_t per_window = (uint64_t)PODS * ROWS_A_PROFILE;
	struct store_stats stats;
	char against[96];

	l->windows = n_rows / per_window;
	write_windows(l, s, EVENT_ON_CPU, l->windows, ROWS_A_PROFILE);
	snprintf(against, sizeof(against),
		 "%llu stacks new in them; SQLite, tuned, same shape: 229000",
		 (unsigned long long)l->n_stacks);
	bench_goal(name_of(l, "write"), (double)l->n_rows / (l->cpu_ns / 1e9), "rows/CPU-s",
		   ">= 200000", against);
	if (store_expire(s, (T0 + 1) * NSEC_PER_SEC)) /* store_expire() updates the stats */
		bench_die("expire", EIO);
	store_stats(s, &stats);
	snprintf(against, sizeof(against), "%.1f more for the stacks' text once",
		 (double)l->text_bytes / (double)l->n_rows);
	bench_goal(name_of(l, "bytes"), (double)stats.bytes / (double)l->n_rows, "B/row",
		   l->text_bytes ? "<= 30 + stacks' text once" : "<= 30", against);
}

/* ---- queries ---- */

struct adding {
	struct tree *tree;
	uint64_t n_samples;
};

static int add_row(const struct store_row *row, void *arg)
{
	struct adding *a = arg;

	a->n_samples += row->n_samples;
	return query_tree_add(a->tree, row, -1);
}

/* Does what the query worker does with a request body. */
static char *ask(struct store *s, const char *body, uint64_t *ret_samples)
{
	struct adding a = {.tree = query_tree_new(&query_deepflow_form)};
	struct store_summary summary = {};
	struct tracing_request r = {};
	struct field_error e = {};
	char *reply;
	size_t n;
	int http;

	if (query_tracing_parse(body, strlen(body), &r, &e) ||
	    store_read(s, r.selection, add_row, &a, &summary, &e))
		bench_die(e.reason, EINVAL);
	reply = query_tracing_reply(a.tree, &r, &summary, &http, &n);
	store_summary_done(&summary);
	query_tracing_request_done(&r);
	query_tree_free(a.tree);
	*ret_samples = a.n_samples;
	return reply;
}

/* The total of the root, which is the first row of node_values: function, parent, self, total. */
static int64_t root_value(const char *reply)
{
	const char *at = strstr(reply, "\"node_values\"");
	long long total;

	at = at ? strstr(at, "[[") : NULL;
	return at && sscanf(at, "[[%*d,%*d,%*d,%lld]", &total) == 1 ? total : -1;
}

struct asked {
	double cpu_s, wall_ms;
	int64_t value;
	uint64_t n_samples;
};

/* The median of three queries. */
static struct asked ask_often(struct store *s, const char *body)
{
	struct asked a[REPEATS], swap;

	for (int i = 0; i < REPEATS; i++) {
		uint64_t cpu = thread_cpu_ns(), wall = now_mono_ns();

		char *reply = ask(s, body, &a[i].n_samples);

		a[i].cpu_s = (double)(thread_cpu_ns() - cpu) / 1e9;
		a[i].wall_ms = (double)(now_mono_ns() - wall) / 1e6;
		a[i].value = root_value(reply);
		free(reply);
		for (int k = i; k > 0 && a[k].cpu_s < a[k - 1].cpu_s; k--) {
			swap = a[k];
			a[k] = a[k - 1];
			a[k - 1] = swap;
		}
	}
	return a[REPEATS / 2];
}

#define BODY                                                                                       \
	"{\"profile_event_type\":\"%s\",\"profile_language_type\":\"eBPF\","                       \
	"\"result_format\":\"flat\",\"time_start\":%d,\"time_end\":%llu,%s}"

static void bench_namespace(struct load *l, struct store *s)
{
	char body[512];
	struct asked a;

	snprintf(body, sizeof(body), BODY, "on-cpu", T0,
		 (unsigned long long)(T0 + l->windows * WINDOW_S),
		 "\"tag_filter\":\"pod_ns='app'\"");
	a = ask_often(s, body);
	if (a.n_samples != l->samples || (uint64_t)a.value != l->value)
		bench_die("namespace: the sum is not what was written", EILSEQ);
	bench_goal(name_of(l, "namespace"), a.cpu_s, "CPU-s", "<= 4 at 1e7",
		   "half of the rows, to the whole reply, exact; SQLite, tuned, same shape, no "
		   "reply: 4.0");
	bench_report(name_of(l, "namespace_latency"), a.wall_ms, "ms", "wall time of that");
}

static void bench_service(struct load *l, struct store *s)
{
	char body[512];
	struct asked a;

	snprintf(body, sizeof(body), BODY, "on-cpu", T0 + 100,
		 (unsigned long long)(T0 + 100 + l->windows * WINDOW_S / 10),
		 "\"app_service\":\"service-7\"");
	a = ask_often(s, body);
	if (!a.value)
		bench_die("service: nothing found", ENOENT);
	bench_report(name_of(l, "service"), a.cpu_s, "CPU-s",
		     "one service, a tenth of the time; SQLite, tuned: 0.055 at 1e6, 0.26 at 1e7");
	bench_report(name_of(l, "service_latency"), a.wall_ms, "ms", "wall time of that");
}

static void bench_newest(struct load *l, struct store *s)
{
	char body[512];

	write_windows(l, s, EVENT_MEM_INUSE, N_SNAPSHOTS, SNAPSHOT_STACKS);
	snprintf(body, sizeof(body), BODY, "mem-inuse", T0,
		 (unsigned long long)(T0 + N_SNAPSHOTS * WINDOW_S), "\"tag_filter\":\"\"");
	bench_report(name_of(l, "newest"), ask_often(s, body).cpu_s, "CPU-s",
		     "mem-inuse: the newest of 100 snapshots of 200 processes, 20 stacks each");
}

static void bench_load(struct load *l, uint64_t n_rows)
{
	char dir[] = "/tmp/podflame-bench-XXXXXX";
	struct store_config c = {.kind = "sqlite", .path = dir};
	struct field_error err = {};
	struct store *s;

	if (!mkdtemp(dir) || store_open(&c, &s, &err))
		bench_die(*err.reason ? err.reason : dir, errno);
	bench_write(l, s, n_rows);
	bench_namespace(l, s);
	bench_service(l, s);
	if (!l->random_leaves)
		bench_newest(l, s);
	store_close(s);
	if (testdir_remove(dir))
		bench_die(dir, EIO);
}

int main(void)
{
	static struct load life = {.name = "life", .pods_a_program = 10, .stacks_a_program = 1000},
			   hard = {.name = "hard",
				   .pods_a_program = 1,
				   .stacks_a_program = 500,
				   .random_leaves = true};
	uint64_t n_rows = (uint64_t)strtod(getenv("ROWS") ?: "1e6", NULL);

	bench_load(&life, n_rows);
	bench_load(&hard, n_rows);
	return 0;
}
