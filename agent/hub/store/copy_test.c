/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of SQLite is copied into another store, of any sink: every answer is that of a store of
 * this sink to which the profiles were sent, also if the copy was killed in between. The profiles
 * are drawn by chance; SEED repeats a run.
 */
#include "hub/store/testdraw.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_PROFILES 2600	   /* more than a batch has */
#define SECONDS	   200	   /* in which their windows end */
#define N_CALLS	   1000000 /* that are exported of a second */

static unsigned seconds = SECONDS;

/* ---- profiles ---- */

static const enum event events[] = {EVENT_ON_CPU, EVENT_OFF_CPU, EVENT_MEM_INUSE};
static const char *const apps[] = {"api", "db", "Total", "Throttled", ""};
static const char *const spaces[] = {"app", "data", NULL};
static const char *const texts[] = {"1", "web", "it's", "a\tb\\", "\xc3\xa9t\xc3\xa9"};
static const char *const tags[] = {"pod", "pod_uid", "container_id", "k8s.label.tier",
				   "container_pid"};

static void a_sample(struct batch *b, struct profile *p)
{
	struct profile_sample *x = draw_sample(b, p, (int64_t)below(100), texts, ARRAY_SIZE(texts));

	if (!below(8))
		x->stack = STACK_NONE;
	if (!below(9))
		x->process_comm = profile_batch_str(b, "Other");
}

/* Every seventh is of the process, event and second of the one before it. */
static void set_process(struct batch *b, struct profile *p, unsigned i,
			const struct profile *before)
{
	if (before && i % 7 == 0 && before->event != EVENT_MEM_INUSE) {
		p->event = before->event;
		p->start_ns = before->start_ns + below(2) * NSEC_PER_SEC;
		p->end_ns = before->end_ns;
		p->app_service = before->app_service;
		p->process_id = before->process_id;
		p->process_start_ns = before->process_start_ns;
		p->tags.n = 0;
		for (size_t t = 0; t < before->tags.n; t++)
			profile_tag(b, p, before->tags.items[t].key, before->tags.items[t].value);
		return;
	}
	p->event = ONE_OF(events);
	if (p->event == EVENT_MEM_INUSE) /* no two snapshots of a process in one second */
		p->process_id = 100 + i / seconds;
	p->process_start_ns = below(2) * 10 * NSEC_PER_SEC;
	for (size_t t = 0; t < ARRAY_SIZE(tags); t++)
		if (!below(4))
			profile_tag(b, p, tags[t], ONE_OF(texts));
	if (!below(3))
		profile_tag(b, p, "pod_cluster", "east");
	if (!below(8))
		profile_tag(b, p, TAG_UNVERIFIED, "true");
}

static void a_profile(struct batch *b, unsigned i, const struct profile *before)
{
	_cleanup_free_ char *id = xasprintf("p%u", i);
	struct profile *p = add_profile(b, id, ONE_OF(apps), below(4) ? 7 + below(5) : 0,
					ONE_OF(spaces), T0 + i * 37 % seconds);

	set_process(b, p, i, before);
	for (unsigned n = below(4); n; n--)
		a_sample(b, p);
	if (!below(5))
		profile_lose(b, p, below(2) ? "ring_full" : "agent_down", below(9), below(3));
	if (!below(6))
		p->estimate_ppm = 1000 + below(9), p->estimate_error = below(50);
}

static struct batch *random_profiles(unsigned from, unsigned n)
{
	struct batch *b = profile_batch_new();
	struct profile *before = NULL;

	for (unsigned i = from; i < from + n; i++) {
		a_profile(b, i, before);
		before = b->profiles[b->n_profiles - 1];
	}
	return b;
}

/* ---- answers, as text ---- */

struct lines {
	char **items;
	size_t n, cap;
};

static void add_line(struct lines *l, char *text)
{
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = text;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the lines in the order of their texts. */
static void put_sorted(struct lines *l, struct buf *out)
{
	if (l->n)
		qsort(l->items, l->n, sizeof(*l->items), by_text);
	for (size_t i = 0; i < l->n; i++) {
		buf_printf(out, "%s\n", l->items[i]);
		free(l->items[i]);
	}
	free(l->items);
	*l = (struct lines){0};
}

static int add_row(const struct store_row *row, void *arg)
{
	_cleanup_buf_ struct buf b = {0};
	struct frame flat[64];

	for (size_t i = 0; i < row->n_frames; i++)
		flat[i] = *row->frames[i];
	profile_stack_render(&row->head, flat, row->n_frames, &b);
	add_line(arg, xasprintf("%s: %s [%s] %" PRId64 " %" PRIu64, row->app_service ?: "(none)",
				b.data ?: "", row->group ?: "(none)", row->value, row->n_samples));
	return 0;
}

static void put_summary(const struct store_summary *s, struct buf *out)
{
	struct lines l = {0};

	buf_printf(out, "samples %" PRIu64 " profiles %" PRIu64 " unverified %" PRIu64,
		   s->n_samples, s->n_profiles, s->n_unverified);
	buf_printf(out,
		   " first %" PRId64 " last %" PRId64 " ppm %u error %" PRIu64 " throttled %" PRIu64
		   "\n",
		   s->first_s, s->last_s, s->estimate_ppm, s->estimate_error, s->throttled_us);
	for (size_t i = 0; i < s->n_losses; i++)
		add_line(&l, xasprintf("lost %s %" PRIu64 " %" PRIu64 " %d", s->losses[i].reason,
				       s->losses[i].n_samples, s->losses[i].time_ns,
				       s->losses[i].of_node));
	for (size_t i = 0; i < s->n_cuts; i++)
		add_line(&l, xasprintf("cut %s %s %d %" PRId64, s->cuts[i].cluster ?: "(own)",
				       s->cuts[i].ns ?: "(none)", s->cuts[i].unverified,
				       s->cuts[i].until_s));
	put_sorted(&l, out);
}

static void put_read(struct store *s, const struct selection *sel, struct buf *out)
{
	struct store_summary summary = {0};
	struct field_error e = {0};
	struct lines l = {0};

	if (store_read(s, &store_scope_all, sel, add_row, &l, &summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	put_sorted(&l, out);
	put_summary(&summary, out);
	store_summary_done(&summary);
}

static void put_series(struct store *s, const struct selection *sel, struct buf *out)
{
	const struct series_request r = {
		.sel = sel, .step_s = 10, .group_by = "pod_ns", .limit = 100};
	struct store_series x = {0};
	struct field_error e = {0};
	struct lines l = {0};

	if (store_series(s, &store_scope_all, &r, &x, &e))
		fail_msg("%s: %s", e.path, e.reason);
	for (size_t i = 0; i < x.n_groups; i++)
		for (size_t t = 0; t < x.n_steps; t++)
			add_line(&l,
				 xasprintf("step %zu %s %" PRId64, t, x.groups[i].value ?: "(none)",
					   x.groups[i].values[t]));
	put_sorted(&l, out);
	store_series_done(&x);
}

static int add_choice(const struct store_choice *c, const char *value, uint64_t n, void *arg)
{
	(void)c;
	add_line(arg, xasprintf("%s %" PRIu64, value, n));
	return 0;
}

static void put_choices(struct store *s, const struct selection *sel, struct buf *out)
{
	static const char *const of[] = {"pod_cluster", "pod", "thread", "wait"};
	struct field_error e = {0};
	struct lines l = {0};

	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		if (read_values(s, sel, of[i], 100, add_choice, &l, &e))
			fail_msg("%s: %s", e.path, e.reason);
		buf_printf(out, "values of %s\n", of[i]);
		put_sorted(&l, out);
	}
}

static void add_oldest(const struct store_cut *of, int64_t oldest_s, int64_t newest_s, void *arg)
{
	add_line(arg, xasprintf("oldest %s %s %d %" PRId64 " %" PRId64 " %" PRId64,
				of->cluster ?: "(own)", of->ns ?: "(none)", of->unverified,
				oldest_s, newest_s, of->until_s));
}

static void add_pod(const struct store_pod *p, void *arg)
{
	add_line(arg, xasprintf("pod %s %s %s %s %s", p->cluster ?: "", p->ns ?: "", p->name ?: "",
				p->uid ?: "", p->node ?: ""));
}

static void put_rest(struct store *s, struct buf *out)
{
	struct field_error e = {0};
	struct lines l = {0};
	size_t n;
	char *const *clusters = store_clusters(s, &n);

	for (size_t i = 0; i < n; i++)
		add_line(&l, xasprintf("cluster %s", clusters[i]));
	if (store_oldest(s, &store_scope_all, NULL, add_oldest, &l, &e) ||
	    store_pods(s, T0 - 10, add_pod, &l, &e))
		fail_msg("%s: %s", e.path, e.reason);
	put_sorted(&l, out);
}

/* Everything that can be asked, as one text. */
static char *answers(struct store *s)
{
	static const char *const groups[] = {NULL, "k8s.label.tier", "trace_id"};
	struct buf out = {0};

	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		struct selection sel = {.event = events[i],
					.time_start_s = T0 - 10,
					.time_end_s = T0 + SECONDS,
					.with_total = true,
					.max_time_ns = 600 * NSEC_PER_SEC};

		for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
			sel.group_by = groups[g];
			put_read(s, &sel, &out);
		}
		sel.group_by = NULL;
		put_series(s, &sel, &out);
		put_choices(s, &sel, &out);
		sel.time_start_s = T0 + 40;
		sel.time_end_s = T0 + 41;
		put_read(s, &sel, &out);
	}
	put_rest(s, &out);
	return buf_steal(&out);
}

/* ---- two stores ---- */

struct two {
	char dir[TESTDIR_BYTES], from_dir[96], to_dir[96], database[32];
	uint64_t seed;
	struct store *from;
	struct store *sent; /* of the other sink, if there is one: what was sent to `from`, too */
	struct store_config to;
};

/* The hub receives n more profiles. */
static void send_random(struct two *x, unsigned from, unsigned n)
{
	struct batch *b = random_profiles(from, n);
	size_t n_new;

	if (x->sent)
		assert_int_equal(store_write(x->sent, b, &n_new), 0);
	write_batch(x->from, b, n);
}

static struct store *open_with_east(struct store_config c)
{
	static const char *const clusters[] = {"east"};
	struct field_error e = {0};
	struct store *s = NULL;

	c.clusters = clusters;
	c.n_clusters = 1;
	if (store_open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

static struct store *open_from(const struct two *x)
{
	return open_with_east((struct store_config){.kind = "sqlite", .path = x->from_dir});
}

static int two_setup(void **state)
{
	struct two *x = xcalloc(1, sizeof(*x));
	const char *given = getenv("SEED");
	char database[32];

	*state = x;
	if (testdir_make(x->dir))
		return -1;
	snprintf(x->from_dir, sizeof(x->from_dir), "%s/from", x->dir);
	snprintf(x->to_dir, sizeof(x->to_dir), "%s/to", x->dir);
	x->to = config_at(x->to_dir, x->database);
	x->seed = given ? strtoull(given, NULL, 10) : 1;
	if (!given && getenv("LONG"))
		random_bytes(&x->seed, sizeof(x->seed));
	print_message("SEED=%" PRIu64 "\n", x->seed);
	x->from = open_from(x);
	if (!streq(x->to.kind, "sqlite"))
		x->sent = open_with_east(config_at(x->dir, database));
	seed_now = x->seed;
	send_random(x, 0, N_PROFILES);
	return 0;
}

static int two_teardown(void **state)
{
	struct two *x = *state;
	int r;

	store_close(x->from);
	store_close(x->sent);
	r = testdir_remove(x->dir);
	free(x);
	return r;
}

struct progress {
	struct store_copied last;
	unsigned n_calls, kill_at; /* 0: never */
	struct two *hub;	   /* NULL, or it receives profiles after the first batch */
};

static void note(const struct store_copied *c, void *arg)
{
	struct progress *p = arg;

	assert_true(c->n_done >= p->last.n_done && c->until_s >= p->last.until_s);
	p->last = *c;
	p->n_calls++;
	if (p->n_calls == p->kill_at)
		kill(getpid(), SIGKILL);
	if (p->hub && p->n_calls == 1)
		send_random(p->hub, N_PROFILES, 10);
}

static void copy(struct two *x, struct progress *p)
{
	const struct store_config from = {.kind = "sqlite", .path = x->from_dir};
	struct field_error e;

	if (store_copy(&from, &x->to, note, p, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_true(p->last.whole);
	assert_int_equal(p->last.n_left_out, 0);
}

static void same_answers(struct two *x)
{
	_cleanup_free_ char *want = answers(x->sent ?: x->from), *got = NULL;
	struct store *to = open_at(x->to_dir, 0, 0);
	const char *a = want, *b;

	got = answers(to);
	store_close(to);
	for (b = got; *a && *a == *b; a++, b++)
		;
	if (*a == *b)
		return;
	while (a > want && a[-1] != '\n')
		a--, b--;
	fail_msg("SEED=%" PRIu64 "\n--- before\n%.400s\n--- after\n%.400s", x->seed, a, b);
}

static void a_copy_gives_the_same_answers(void **state)
{
	struct two *x = *state;
	struct progress p = {0};

	copy(x, &p);
	assert_int_equal(p.last.n_done, N_PROFILES);
	assert_int_equal(p.last.n_new, N_PROFILES);
	assert_int_equal(p.last.n_profiles, N_PROFILES);
	assert_true(p.n_calls > 2);
	same_answers(x);
	/* once more: nothing is new */
	p = (struct progress){0};
	copy(x, &p);
	assert_int_equal(p.last.n_done, N_PROFILES);
	assert_int_equal(p.last.n_new, 0);
}

static void a_copy_that_is_killed_goes_on(void **state)
{
	struct two *x = *state;
	struct progress p = {.kill_at = 1};
	int status;
	pid_t child;

	/* no file of SQLite is open while the process forks */
	x->from = store_close(x->from);
	child = fork();
	if (!child) {
		copy(x, &p);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	p.kill_at = 0;
	copy(x, &p);
	assert_int_equal(p.last.n_done, N_PROFILES);
	assert_true(p.last.n_new > 0 && p.last.n_new < N_PROFILES);
	x->from = open_from(x);
	same_answers(x);
}

/* Profiles that come during the copy are copied by it or by the next one. */
static void a_hub_writes_meanwhile(void **state)
{
	struct two *x = *state;
	struct progress p = {.hub = x};

	copy(x, &p);
	p = (struct progress){0};
	copy(x, &p);
	assert_int_equal(p.last.n_done, N_PROFILES + 10);
	same_answers(x);
}

/* Skips a test that shows nothing more of another sink. */
static void only_once(const struct two *x)
{
	if (!x->sent)
		return;
	print_message("skip: it is about the store that is read\n");
	skip();
}

/* Batches end within the second, so what its profiles share is given out over several of them. */
static void a_second_of_several_batches(void **state)
{
	struct two *x = *state;
	struct progress p = {0};

	only_once(x);
	x->from = store_close(x->from);
	assert_int_equal(testdir_remove(x->from_dir), 0);
	x->from = open_from(x);
	seconds = 1;
	send_random(x, N_PROFILES, N_PROFILES);
	seconds = SECONDS;
	copy(x, &p);
	assert_int_equal(p.last.n_new, N_PROFILES);
	assert_true(p.n_calls > 2);
	same_answers(x);
}

static void calls_beyond_the_limit_are_told(void **state)
{
	struct two *x = *state;
	const struct store_config from = {.kind = "sqlite", .path = x->from_dir};
	struct progress p = {0};
	struct field_error e;

	only_once(x);
	x->from = store_close(x->from);
	sql(x->from_dir,
	    "DROP TRIGGER links_INSERT; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM "
	    "n WHERE i<" SQ_TEXT(N_CALLS) ") INSERT INTO links SELECT printf('%032x', i), "
					  "printf('%016x', i), -1, 1, (SELECT MIN(time) FROM "
					  "links), 1, 0, 1, 1 FROM n");
	if (store_copy(&from, &x->to, note, &p, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(p.last.n_new, N_PROFILES);
	/* they belong to no profile; there is no room for the others of that second */
	assert_true(p.last.n_left_out > N_CALLS);
}

static void deletions_are_copied(void **state)
{
	const struct store_cut cuts[] = {
		{.ns = (char *)"app", .until_s = T0},
		{.cluster = (char *)"east", .ns = (char *)"data", .until_s = T0},
		{.cluster = (char *)"east", .unverified = true, .until_s = T0}};
	struct two *x = *state;
	struct progress p = {0};

	x->from = store_close(x->from);
	sql(x->from_dir, "UPDATE places SET until_s=" SQ_TEXT(
				 T0) " WHERE name IN "
				     "('app', 'east:data', 'east:" STORE_PLACE_UNVERIFIED "')");
	x->from = open_from(x);
	for (size_t i = 0; x->sent && i < ARRAY_SIZE(cuts); i++)
		assert_int_equal(store_put_cut(x->sent, &cuts[i]), 0);
	copy(x, &p);
	same_answers(x);
}

static void a_store_of_another_version(void **state)
{
	struct two *x = *state;
	const struct store_config from = {.kind = "sqlite", .path = x->from_dir};
	struct progress p = {0};
	struct field_error e;

	x->from = store_close(x->from);
	sql(x->from_dir, "PRAGMA user_version=7");
	assert_int_equal(store_copy(&from, &x->to, note, &p, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "another version (7"));
	assert_int_equal(p.n_calls, 0);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, two_setup, two_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_copy_gives_the_same_answers),   TEST(a_copy_that_is_killed_goes_on),
		TEST(a_hub_writes_meanwhile),	       TEST(a_second_of_several_batches),
		TEST(calls_beyond_the_limit_are_told), TEST(deletions_are_copied),
		TEST(a_store_of_another_version),
	};

	return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
