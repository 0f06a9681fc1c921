/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hubs at a real API server, each a process of its own, without a store. The test changes a
 * target, and waits until the status says that a hub has seen the change. It kills, stops and ends
 * the hub that leads, and kills the API server. What a hub may write is tested in
 * lib/kube/lease_server_test.c.
 *
 * It needs LONG=1, as lib/kube/server_test.c does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hub/hub.h"
#include "lib/kube/testapiserver.h"

#define STEP_NS (300 * NSEC_PER_SEC) /* enough on a machine under load */
#define GROUP	"/apis/podflame.io/v1alpha1"
#define TARGETS GROUP "/namespaces/app/profilingtargets"
#define OWN	"/api/v1/namespaces/podflame-system"
#define LEASES	"/apis/coordination.k8s.io/v1/namespaces/podflame-system/leases"
#define SERVICE "podflame-hub.podflame-system.svc"

/* ---- a hub ---- */

static void stopped(void *arg)
{
	loop_stop(arg, 0);
}

struct running {
	struct loop *loop;
	struct hub *hub;
};

static void on_term(int signo, void *arg)
{
	struct running *r = arg;

	(void)signo;
	hub_stop(r->hub, stopped, r->loop);
}

static int run_hub(const char *name, uint16_t port)
{
	_cleanup_free_ char *text = xasprintf("own_namespace: podflame-system\n"
					      "data_dir: %s/%s\n"
					      "lease: podflame-hub\n"
					      "store: {kind: \"null\"}\n"
					      "api: {port: %u}\n"
					      "ingest: {address: 127.0.0.1, port: 0}\n"
					      "health: {port: 0}\n",
					      dir, name, port);
	struct field_error e = {0};
	struct running r = {0};
	struct config c;
	struct hub_config hc = {.conf = &c};
	int code;

	setenv("POD_NAME", name, 1);
	if (conf_parse("test", text, strlen(text), &c, NULL, &e) || loop_new(&r.loop))
		return 1;
	hc.kube = make_kube(r.loop, &kube_times_default);
	if (loop_on_signal(r.loop, SIGTERM, on_term, &r) || hub_new(r.loop, &hc, &r.hub, &e)) {
		fprintf(stderr, "%s: %s\n", e.path, e.reason);
		return 1;
	}
	code = loop_run(r.loop);
	hub_free(r.hub);
	kube_free((struct kube *)hc.kube);
	loop_free(r.loop);
	conf_done(&c);
	return code;
}

struct child {
	const char *name;
	uint16_t port;
	pid_t pid;
};

static void start_hub(struct child *h)
{
	pid_t parent = getpid();

	h->port = free_port();
	h->pid = fork();
	if (h->pid != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(getppid() == parent ? run_hub(h->name, h->port) : 1);
}

/* Returns how it ended. */
static int end_hub(struct child *h, int signo)
{
	int status = 0;

	kill(h->pid, signo);
	waitpid(h->pid, &status, 0);
	h->pid = 0;
	return status;
}

/* ---- requests ---- */

static struct loop *loop;
static struct kube *kube;
static struct timer pause_timer;
static int answer_status;
static json_t *answer;

static void answered(int status, const json_t *body, const char *error, void *arg)
{
	(void)error;
	(void)arg;
	answer_status = status;
	json_decref(answer);
	answer = json_deep_copy(body);
	loop_stop(loop, 0);
}

static int ask(const char *method, const char *path, const json_t *body)
{
	assert_int_equal(kube_request(kube, method, path, streq(method, "PATCH") ? MERGE : NULL,
				      body, answered, NULL),
			 0);
	assert_int_equal(loop_run(loop), 0);
	return answer_status;
}

static void continue_loop(void *arg)
{
	loop_stop(arg, 0);
}

/* Lets a moment pass between two looks at the same thing. */
static void look_again(uint64_t deadline_ns, const char *what)
{
	if (now_mono_ns() > deadline_ns)
		fail_msg("%s: the last answer was %d", what, answer_status);
	timer_set(loop, &pause_timer, 50 * NSEC_PER_MSEC, continue_loop, loop);
	assert_int_equal(loop_run(loop), 0);
}

/* Makes an object. The server may not know its kind yet. */
static void make(const char *path, json_t *body)
{
	uint64_t deadline_ns = now_mono_ns() + STEP_NS;

	while (ask("POST", path, body) != 201)
		look_again(deadline_ns, path);
	json_decref(body);
}

static void make_named(const char *path, const char *name)
{
	make(path, json_pack("{s:{s:s}}", "metadata", "name", name));
}

static void make_crds(void)
{
	static const char *const files[] = {"crds/profilingtargets.yaml",
					    "crds/clusterprofilingtargets.yaml",
					    "crds/profilingnodereports.yaml"};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_free_ char *text = NULL;
		struct field_error e = {0};
		struct yaml_doc *d;
		size_t n;

		assert_int_equal(file_read(AT_FDCWD, files[i], 1 << 20, &text, &n), 0);
		assert_int_equal(yaml_parse(text, n, &d, &e), 0);
		make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		     json_deep_copy(yaml_root(d)));
		yaml_doc_free(d);
	}
}

/* Changes the target, and waits until its status is of the changed target. */
static void change_the_target(void)
{
	static bool suspend;
	_cleanup_json_ json_t *body = json_pack("{s:{s:b}}", "spec", "suspend", suspend = !suspend);
	uint64_t deadline_ns = now_mono_ns() + STEP_NS;
	int64_t generation;

	while (ask("PATCH", TARGETS "/web", body) != 200)
		look_again(deadline_ns, "changing the target");
	generation = json_int_at(answer, "metadata.generation", 0);
	while (ask("GET", TARGETS "/web", NULL) != 200 ||
	       json_int_at(answer, "status.observedGeneration", 0) != generation)
		look_again(deadline_ns, "the status of the target");
}

/* Which of two hubs has the Lease. */
static struct child *leader_of(struct child *a, struct child *b)
{
	uint64_t deadline_ns = now_mono_ns() + STEP_NS;
	const char *holder;

	while (true) {
		ask("GET", LEASES "/podflame-hub", NULL);
		holder = json_str_at(answer, "spec.holderIdentity", "");
		if (str_has_prefix(holder, a->name))
			return a;
		if (str_has_prefix(holder, b->name))
			return b;
		look_again(deadline_ns, "the Lease");
	}
}

/* ---- the certificate ---- */

static void was_served(int status, const char *body, size_t n, const char *error, void *arg)
{
	(void)body;
	(void)n;
	(void)arg;
	(void)error;
	answer_status = status;
	loop_stop(loop, 0);
}

/* Waits until the hub serves, with a certificate of the CA in the ConfigMap. */
static void await_served(const struct child *h)
{
	uint64_t deadline_ns = now_mono_ns() + STEP_NS;
	const struct http_request r = {.method = "GET", .path = "/readyz", .on_done = was_served};

	do {
		struct http_client_config c = {
			.address = "127.0.0.1", .port = h->port, .tls_name = SERVICE};
		struct tls_config t = {0};
		struct http_client *client;
		struct field_error e = {0};

		ask("GET", OWN "/configmaps/podflame-hub-ca", NULL);
		answer_status = 0;
		t.ca_pem = json_string_value(
			json_object_get(json_object_get(answer, "data"), "ca.crt"));
		if (t.ca_pem && tls_new(&t, false, &c.tls, &e) == 0) {
			assert_int_equal(http_client_new(loop, &c, &client), 0);
			assert_int_equal(http_send(client, &r, NULL), 0);
			assert_int_equal(loop_run(loop), 0);
			http_client_free(client);
			tls_unref(c.tls);
		}
		if (answer_status != 200)
			look_again(deadline_ns, h->name);
	} while (answer_status != 200);
}

/* ---- the test ---- */

static int begin(void **state)
{
	int r = make_server(state);

	if (r)
		return r;
	assert_int_equal(loop_new(&loop), 0);
	kube = make_kube(loop, &kube_times_default);
	make_named("/api/v1/namespaces", "podflame-system");
	make_named("/api/v1/namespaces", "app");
	make_named("/api/v1/nodes", "n1");
	make_crds();
	make_named(LEASES, "podflame-hub"); /* as the chart makes them: empty */
	make_named(OWN "/secrets", "podflame-hub-tls");
	make_named(OWN "/configmaps", "podflame-hub-ca");
	make(TARGETS, json_pack("{s:s, s:s, s:{s:s}, s:{s:{}}}", "apiVersion",
				"podflame.io/v1alpha1", "kind", "ProfilingTarget", "metadata",
				"name", "web", "spec", "podSelector"));
	return 0;
}

static int end(void **state)
{
	timer_cancel(&pause_timer);
	json_decref(answer);
	kube_free(kube);
	loop_free(loop);
	return end_server(state);
}

static void two_hubs(void **state)
{
	struct child a = {.name = "hub-a"}, b = {.name = "hub-b"}, *first, *other;

	(void)state;
	start_hub(&a);
	start_hub(&b);
	await_served(&a);
	await_served(&b);
	change_the_target();
	first = leader_of(&a, &b);
	other = first == &a ? &b : &a;

	end_hub(first, SIGKILL);
	change_the_target();
	assert_ptr_equal(leader_of(&a, &b), other);
	start_hub(first);
	await_served(first);

	kill(other->pid, SIGSTOP);
	change_the_target();
	assert_ptr_equal(leader_of(&a, &b), first);
	kill(other->pid, SIGCONT);
	await_served(other);
	change_the_target();

	end_process(&api);
	start_api();
	change_the_target();

	first = leader_of(&a, &b);
	other = first == &a ? &b : &a;
	assert_int_equal(end_hub(first, SIGTERM), 0);
	change_the_target();
	assert_ptr_equal(leader_of(other, other), other);
	await_served(other);
	assert_int_equal(end_hub(other, SIGTERM), 0);
	ask("GET", LEASES "/podflame-hub", NULL);
	assert_string_equal(json_str_at(answer, "spec.holderIdentity", "x"), "");
}

static void skipped(void **state)
{
	(void)state;
	print_message("skip: a real API server: LONG=1\n");
	skip();
}

int main(void)
{
	struct CMUnitTest tests[] = {cmocka_unit_test(two_hubs)};

	if (getenv("LONG"))
		return cmocka_run_group_tests_name("hubs_server", tests, begin, end);
	tests[0].test_func = skipped;
	return cmocka_run_group_tests_name("hubs_server", tests, NULL, NULL);
}
