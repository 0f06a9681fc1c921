// SPDX-License-Identifier: Apache-2.0
/*
 * A real etcd and a real kube-apiserver (of e2e/cluster). The tests kill and stop them, and change
 * the versions of a kind. To build them takes minutes of CPU, and to start them many seconds, so
 * this test needs LONG=1. The tests that always run use a scripted server: testwatch.h. Numbers in
 * names are those of docs/watch-cases.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/kube/testapiserver.h"

#define STEP_NS (300 * NSEC_PER_SEC) /* enough on a machine under load */
#define MAPS	"/api/v1/namespaces/default/configmaps"
#define CRDS	"/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#define THINGS	"/apis/test.example/v1alpha1/namespaces/default/things"
#define VERSION(name, served, storage)                                                             \
	"{\"name\":\"" name "\",\"served\":" served ",\"storage\":" storage                        \
	",\"schema\":{\"openAPIV3Schema\":{\"type\":\"object\","                                   \
	"\"x-kubernetes-preserve-unknown-fields\":true}}}"

/* ---- a client, a watch, and what it has seen ---- */

struct fixture {
	struct loop *loop;
	struct kube *kube, *writer;
	struct kube_watch *watch;
	struct timer poll, again;
	struct buf log;
	const char *wanted;
	uint64_t deadline_ns;
	/* the request that writes an object */
	const char *method, *path, *body;
	int status;
};

static void note(struct fixture *f, const char *what, const char *name)
{
	buf_printf(&f->log, "%s%s ", what, name);
}

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)obj;
	note(arg, old ? "~" : "+", key);
}

static void removed(const char *key, const json_t *last, void *arg)
{
	(void)last;
	note(arg, "-", key);
}

static void state_changed(const char *error, void *arg)
{
	note(arg, error ? "err" : "ok", "");
}

static struct fixture *begin(const char *path, bool optional)
{
	static const struct kube_watch_ops ops = {
		.upsert = upsert, .remove = removed, .state = state_changed};
	struct kube_watch_spec spec = {.path = path, .optional = optional};
	struct kube_times t = kube_times_default;
	struct fixture *f = xcalloc(1, sizeof(*f));

	t.slow_ns = NSEC_PER_SEC;
	t.probe_ns = 3 * NSEC_PER_SEC;
	t.watchdog_ns = NSEC_PER_SEC;
	assert_int_equal(loop_new(&f->loop), 0);
	f->kube = make_kube(f->loop, &t);
	f->writer = make_kube(f->loop, &kube_times_default);
	assert_int_equal(kube_watch_new(f->kube, &spec, &ops, f, &f->watch), 0);
	return f;
}

static void end(struct fixture *f)
{
	timer_cancel(&f->poll);
	timer_cancel(&f->again);
	kube_watch_free(f->watch);
	kube_free(f->kube);
	kube_free(f->writer);
	loop_free(f->loop);
	buf_done(&f->log);
	free(f);
}

static void look(void *arg)
{
	struct fixture *f = arg;

	if (strstr(f->log.data ?: "", f->wanted))
		loop_stop(f->loop, 0);
	else if (now_mono_ns() > f->deadline_ns)
		loop_stop(f->loop, -ETIMEDOUT);
	else
		timer_set(f->loop, &f->poll, 20 * NSEC_PER_MSEC, look, f);
}

/* Waits until the log contains the text, and empties the log. */
static void await(struct fixture *f, const char *wanted)
{
	f->wanted = wanted;
	f->deadline_ns = now_mono_ns() + STEP_NS;
	look(f);
	if (loop_run(f->loop) != 0)
		fail_msg("wanted \"%s\", saw \"%s\"", wanted, f->log.data ?: "");
	buf_reset(&f->log);
}

static void write_once(void *arg);

static void written(int status, const json_t *body, const char *error, void *arg)
{
	struct fixture *f = arg;

	(void)body;
	(void)error;
	f->status = status;
	if (status / 100 == 2 || now_mono_ns() > f->deadline_ns)
		loop_stop(f->loop, 0);
	else /* the server is still starting, or does not know the kind yet */
		timer_set(f->loop, &f->again, 200 * NSEC_PER_MSEC, write_once, f);
}

static void write_once(void *arg)
{
	struct fixture *f = arg;
	_cleanup_json_ json_t *body = f->body ? json_loads(f->body, 0, NULL) : NULL;

	assert_int_equal(kube_request(f->writer, f->method, f->path,
				      streq(f->method, "PATCH") ? MERGE : NULL, body, written, f),
			 0);
}

static void do_write(struct fixture *f, const char *method, const char *path, const char *body)
{
	f->method = method;
	f->path = path;
	f->body = body;
	f->deadline_ns = now_mono_ns() + STEP_NS;
	write_once(f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->status / 100, 2);
}

static void make_map(struct fixture *f, const char *name)
{
	_cleanup_free_ char *body = xasprintf("{\"metadata\":{\"name\":\"%s\"}}", name);

	do_write(f, "POST", MAPS, body);
}

/* ---- tests ---- */

static void server_01_list_then_watch(void **state)
{
	struct fixture *f = begin(MAPS, false);

	(void)state;
	await(f, "ok "); /* the first test waits here until the server has started */
	make_map(f, "one");
	await(f, "+default/one ");
	do_write(f, "PATCH", MAPS "/one", "{\"data\":{\"a\":\"b\"}}");
	await(f, "~default/one ");
	do_write(f, "DELETE", MAPS "/one", NULL);
	await(f, "-default/one ");
	end(f);
}

static void server_45_killed_and_started_again(void **state)
{
	struct fixture *f = begin(MAPS, false);

	(void)state;
	await(f, "ok ");
	make_map(f, "kept");
	await(f, "+default/kept ");
	end_process(&api);
	await(f, "err ");
	start_api();
	await(f, "ok ");
	make_map(f, "after");
	f->wanted = "+default/after ";
	f->deadline_ns = now_mono_ns() + STEP_NS;
	look(f);
	assert_int_equal(loop_run(f->loop), 0);
	/* the watch has neither removed the old objects nor reported them again */
	assert_null(strstr(f->log.data, "default/kept"));
	assert_non_null(kube_watch_get(f->watch, "default/kept"));
	end(f);
}

static void server_18_stopped_and_continued(void **state)
{
	struct fixture *f = begin(MAPS, false);

	(void)state;
	await(f, "ok ");
	kill(api, SIGSTOP); /* the kernel still acknowledges what the client sends */
	await(f, "err ");
	kill(api, SIGCONT);
	await(f, "ok ");
	make_map(f, "continued");
	await(f, "+default/continued ");
	end(f);
}

#define CRD(versions)                                                                              \
	"{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"CustomResourceDefinition\","       \
	"\"metadata\":{\"name\":\"things.test.example\"},\"spec\":{\"group\":\"test.example\","    \
	"\"scope\":\"Namespaced\",\"names\":{\"plural\":\"things\",\"singular\":\"thing\","        \
	"\"kind\":\"Thing\"},\"versions\":[" versions "]}}"

static void server_42_versions_of_a_kind_change(void **state)
{
	struct fixture *f = begin(THINGS, true);
	const char *crd = CRDS "/things.test.example";

	(void)state;
	await(f, "ok "); /* the kind is not installed: the list is empty */
	do_write(f, "POST", CRDS, CRD(VERSION("v1alpha1", "true", "true")));
	do_write(f, "POST", THINGS,
		 "{\"apiVersion\":\"test.example/v1alpha1\",\"kind\":\"Thing\","
		 "\"metadata\":{\"name\":\"a\"},\"spec\":{\"x\":1}}");
	await(f, "+default/a ");
	do_write(f, "PATCH", crd,
		 "{\"spec\":{\"versions\":[" VERSION("v1alpha1", "true", "false") "," VERSION(
			 "v1beta1", "true", "true") "]}}");
	do_write(f, "PATCH", THINGS "/a", "{\"spec\":{\"x\":2}}");
	await(f, "~default/a "); /* reported as changed, so it was not removed before */
	do_write(f, "PATCH", crd,
		 "{\"spec\":{\"versions\":[" VERSION("v1alpha1", "false", "false") "," VERSION(
			 "v1beta1", "true", "true") "]}}");
	await(f, "-default/a ");
	do_write(f, "PATCH", crd,
		 "{\"spec\":{\"versions\":[" VERSION("v1alpha1", "true", "false") "," VERSION(
			 "v1beta1", "true", "true") "]}}");
	await(f, "+default/a ");
	end(f);
}

static void skipped(void **state)
{
	(void)state;
	print_message("skip: a real API server: LONG=1\n");
	skip();
}

int main(void)
{
	struct CMUnitTest tests[] = {
		cmocka_unit_test(server_01_list_then_watch),
		cmocka_unit_test(server_45_killed_and_started_again),
		cmocka_unit_test(server_18_stopped_and_continued),
		cmocka_unit_test(server_42_versions_of_a_kind_change),
	};

	if (getenv("LONG"))
		return cmocka_run_group_tests_name("server", tests, make_server, end_server);
	for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
		tests[i].test_func = skipped;
	return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
