/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes elect one of them at a real API server, and the one that leads writes as often as
 * it can. They do not ask whether they lead before they write: the kube of the lease does. The test
 * stops, continues and kills them and the API server. It watches the Lease and what they write. As
 * both lie in one etcd, their versions say in which order the writes came.
 *
 * It needs LONG=1, as server_test.c does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/kube/lease.h"
#include "lib/kube/testapiserver.h"

#define STEP_NS (300 * NSEC_PER_SEC) /* enough on a machine under load */
#define MAPS	"/api/v1/namespaces/default/configmaps"
#define LEASES	"/apis/coordination.k8s.io/v1/namespaces/default/leases"
#define WRITES	MAPS "/writes"

/* ---- a process that may lead ---- */

struct candidate {
	struct loop *loop;
	struct kube *kube;
	struct kube_lease *lease;
	const char *name;
	json_int_t n;
	struct timer again;
};

static void write_one(void *arg);

static void write_again(struct candidate *c, uint64_t after_ns)
{
	timer_set(c->loop, &c->again, after_ns, write_one, c);
}

static void wrote(int status, const json_t *body, const char *error, void *arg)
{
	(void)status;
	(void)body;
	(void)error;
	write_again(arg, 0);
}

static void write_one(void *arg)
{
	struct candidate *c = arg;
	_cleanup_json_ json_t *body = json_pack("{s:{s:s, s:o}}", "data", "by", c->name, "n",
						json_sprintf("%lld", (long long)c->n++));

	if (kube_request(kube_lease_writer(c->lease), "PATCH", WRITES, MERGE, body, wrote, c) < 0)
		write_again(c, NSEC_PER_MSEC);
}

static void ignore_change(bool leads, void *arg)
{
	(void)leads;
	(void)arg;
}

static void resigned(void *arg)
{
	struct candidate *c = arg;

	loop_stop(c->loop, 0);
}

static void on_term(int signo, void *arg)
{
	struct candidate *c = arg;

	(void)signo;
	kube_lease_resign(c->lease, resigned, c);
}

static void run_candidate(const char *name)
{
	static struct candidate c;
	const struct kube_lease_config lc = {"default", "hub", name, ignore_change, NULL};

	c.name = name;
	if (loop_new(&c.loop) || loop_on_signal(c.loop, SIGTERM, on_term, &c))
		_exit(1);
	c.kube = make_kube(c.loop, &kube_times_default);
	if (kube_lease_new(c.loop, c.kube, &lc, &c.lease))
		_exit(1);
	write_again(&c, 0);
	_exit(loop_run(c.loop));
}

static pid_t start_candidate(const char *name)
{
	pid_t parent = getpid(), pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		run_candidate(name);
	_exit(1);
}

/* ---- what the test sees ---- */

struct seen {
	unsigned long long version;
	bool is_lease;
	char who[8]; /* of a Lease: its holder; else: the writer */
};
static struct {
	struct loop *loop;
	struct kube *kube;
	struct kube_watch *lease, *maps;
	struct seen *seen;
	size_t n, cap;
	struct timer look;
	uint64_t deadline_ns;
	const char *who; /* the writer that is waited for; NULL: any */
	unsigned n_wanted, n_writes;
	int status;
} t;

static void note(const json_t *obj, bool is_lease, const char *who)
{
	struct seen s = {.is_lease = is_lease};

	s.version = strtoull(json_str_at(obj, "metadata.resourceVersion", "0"), NULL, 10);
	snprintf(s.who, sizeof(s.who), "%s", who);
	GROW(t.seen, t.n, t.cap);
	t.seen[t.n++] = s;
}

static void on_lease(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)old;
	(void)arg;
	if (streq(key, "default/hub"))
		note(obj, true, json_str_at(obj, "spec.holderIdentity", ""));
}

static void on_map(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	const char *by = json_str_at(obj, "data.by", "");

	(void)old;
	(void)arg;
	if (!streq(key, "default/writes") || !*by)
		return;
	note(obj, false, by);
	t.n_writes += !t.who || streq(by, t.who);
}

static void look(void *arg)
{
	(void)arg;
	if (t.n_writes >= t.n_wanted)
		loop_stop(t.loop, 0);
	else if (now_mono_ns() > t.deadline_ns)
		loop_stop(t.loop, -ETIMEDOUT);
	else
		timer_set(t.loop, &t.look, 20 * NSEC_PER_MSEC, look, NULL);
}

/* Waits until this one has written so many times; NULL: any of them. */
static void await_writes(const char *who, unsigned n)
{
	t.who = who;
	t.n_writes = 0;
	t.n_wanted = n;
	t.deadline_ns = now_mono_ns() + STEP_NS;
	look(NULL);
	if (loop_run(t.loop) != 0)
		fail_msg("%u of %u writes by %s", t.n_writes, n, who ?: "any");
}

static void answered(int status, const json_t *body, const char *error, void *arg)
{
	(void)body;
	(void)error;
	(void)arg;
	t.status = status;
	loop_stop(t.loop, 0);
}

static int by_version(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	return (x->version > y->version) - (x->version < y->version);
}

/* Each write came while its writer had the Lease. Forgets all. */
static void check_and_forget(void)
{
	const char *holder = NULL;

	qsort(t.seen, t.n, sizeof(*t.seen), by_version);
	for (size_t i = 0; i < t.n; i++) {
		const struct seen *s = &t.seen[i];

		if (s->is_lease)
			holder = s->who;
		else if (holder && !streq(holder, s->who))
			fail_msg("version %llu: %s writes while %s leads", s->version, s->who,
				 holder);
	}
	t.n = 0;
}

static int begin(void **state)
{
	static const struct kube_watch_ops lease_ops = {.upsert = on_lease},
					   map_ops = {.upsert = on_map};
	const struct kube_watch_spec leases = {.path = LEASES}, maps = {.path = MAPS};
	int r = make_server(state);

	if (r)
		return r;
	assert_int_equal(loop_new(&t.loop), 0);
	t.kube = make_kube(t.loop, &kube_times_default);
	while (t.status != 201) { /* the server starts */
		_cleanup_json_ json_t *body = json_pack("{s:{s:s}}", "metadata", "name", "writes");

		assert_int_equal(kube_request(t.kube, "POST", MAPS, NULL, body, answered, NULL), 0);
		assert_int_equal(loop_run(t.loop), 0);
		if (t.status != 201)
			usleep(200000);
	}
	assert_int_equal(kube_watch_new(t.kube, &leases, &lease_ops, NULL, &t.lease), 0);
	return kube_watch_new(t.kube, &maps, &map_ops, NULL, &t.maps);
}

static int end(void **state)
{
	timer_cancel(&t.look);
	kube_watch_free(t.lease);
	kube_watch_free(t.maps);
	kube_free(t.kube);
	loop_free(t.loop);
	free(t.seen);
	return end_server(state);
}

static void end_candidate(pid_t *pid, int signo)
{
	kill(*pid, signo);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

/* ---- tests ---- */

static void two_elect_one(void **state)
{
	pid_t a, b;

	(void)state;
	a = start_candidate("a");
	await_writes("a", 100);
	b = start_candidate("b");
	await_writes("a", 100);

	kill(a, SIGSTOP); /* in the middle of a write, most likely */
	await_writes("b", 100);
	kill(a, SIGCONT);
	await_writes("b", 500); /* a goes on, sees that its time is over, and writes nothing */
	check_and_forget();

	end_candidate(&b, SIGKILL);
	await_writes("a", 100);
	check_and_forget();

	b = start_candidate("b");
	end_process(&api);
	start_api();
	await_writes(NULL, 100);
	t.n = 0; /* the watches may have missed some versions */
	end_candidate(&a, SIGTERM);
	await_writes("b", 100);
	check_and_forget();
	end_candidate(&b, SIGTERM);
}

static void skipped(void **state)
{
	(void)state;
	print_message("skip: a real API server: LONG=1\n");
	skip();
}

int main(void)
{
	struct CMUnitTest tests[] = {cmocka_unit_test(two_elect_one)};

	if (getenv("LONG"))
		return cmocka_run_group_tests_name("lease_server", tests, begin, end);
	tests[0].test_func = skipped;
	return cmocka_run_group_tests_name("lease_server", tests, NULL, NULL);
}
