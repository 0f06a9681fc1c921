/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials that cannot be read, and system calls that fail while a client sends a request. */
#include "lib/base/fault.h"
#include "lib/kube/kube_private.h"

#include <setjmp.h>
#include <cmocka.h>

#include "lib/base/testdir.h"
#include "lib/loop/testcert.h"

static char dir[TESTDIR_BYTES], kubeconfig[128];
static struct test_ca ca;
static struct test_cert cert;

/* ---- configuration ---- */

static int in_cluster(void *arg)
{
	struct kube_config c, untouched;
	struct field_error e = {0};
	int r;

	(void)arg;
	memset(&c, 0x5a, sizeof(c));
	untouched = c;
	r = kube_config_in_cluster_at(dir, &c, &e);
	if (r) {
		assert_memory_equal(&c, &untouched, sizeof(c));
		assert_true(*e.reason);
		return r;
	}
	assert_string_equal(c.default_namespace, "podflame-system");
	kube_config_done(&c);
	return 0;
}

static int from_file(void *arg)
{
	struct kube_config c, untouched;
	struct field_error e = {0};
	int r;

	(void)arg;
	memset(&c, 0x5a, sizeof(c));
	untouched = c;
	r = kube_config_file(kubeconfig, NULL, &c, &e);
	if (r) {
		assert_memory_equal(&c, &untouched, sizeof(c));
		assert_true(*e.reason);
		return r;
	}
	assert_string_equal(c.address, "127.0.0.1");
	assert_non_null(c.ca_file);
	kube_config_done(&c);
	return 0;
}

static void test_config(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "kube_config_file",
		 .calls = FAULT_FILES | FAULT(MALLOC),
		 .run = from_file},
		{.name = "kube_config_in_cluster", .calls = FAULT_FILES, .run = in_cluster},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

static void write_file(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static int setup(void **state)
{
	(void)state;
	setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1", 1);
	setenv("KUBERNETES_SERVICE_PORT", "443", 1);
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	write_file("ca.crt", ca.pem);
	write_file("token", "secret");
	write_file("namespace", "podflame-system");
	snprintf(kubeconfig, sizeof(kubeconfig), "%s/config", dir);
	write_file("config",
		   "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
		   "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:6443', "
		   "certificate-authority: ca.crt}}]\n"
		   "users: [{name: u, user: {tokenFile: token}}]\n"
		   "contexts: [{name: x, context: {cluster: k, user: u, namespace: app}}]\n");
	return 0;
}

/* ---- a server that works; the client's system calls fail ---- */

struct world {
	struct loop *loop;
	struct http_server *server;
	struct tls *tls;
	struct kube *kube;
	struct kube_watch *watch;
	struct timer outage, deadline;
	unsigned n_answers, n_upserts;
	int status;
	bool too_late;
};

static void answer(struct http_conn *c, const struct http_in *in, void *arg)
{
	static const char list[] = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":"
				   "{\"resourceVersion\":\"5\"},\"items\":[{\"metadata\":{\"name\":"
				   "\"a\",\"namespace\":\"n\",\"uid\":\"u\","
				   "\"resourceVersion\":\"3\"}}]}";

	(void)arg;
	if (strstr(in->query, "watch=")) /* each stream ends as soon as it has begun */
		http_reply(c, 200, "application/json", NULL, "", 0);
	else
		http_reply(c, 200, "application/json", NULL, list, strlen(list));
}

static void late(void *arg)
{
	struct world *w = arg;

	w->too_late = true;
	loop_stop(w->loop, 0);
}

static void world_done(struct world *w)
{
	if (w->loop) {
		timer_cancel(&w->outage);
		timer_cancel(&w->deadline);
	}
	kube_watch_free(w->watch);
	kube_free(w->kube);
	http_server_free(w->server);
	tls_unref(w->tls);
	loop_free(w->loop);
}

/* Makes the server and the client. Their system calls may fail, too: returns 0 or -errno. */
static int world_make(struct world *w)
{
	struct tls_config tls = {.cert_pem = cert.cert_pem, .key_pem = cert.key_pem};
	struct http_server_config hc = {.address = "127.0.0.1", .handler = answer, .arg = w};
	struct kube_config c = {.address = "127.0.0.1",
				.tls_name = "127.0.0.1",
				.ca_pem = ca.pem,
				.token = "secret"};
	struct kube_times times = kube_times_default;
	int r = loop_new(&w->loop);

	if (!r)
		r = tls_new(&tls, true, &w->tls, NULL);
	hc.tls = w->tls;
	if (!r)
		r = http_server_new(w->loop, &hc, &w->server, NULL);
	if (r)
		return r;
	c.port = http_server_port(w->server);
	r = kube_new(w->loop, &c, "test", &w->kube, NULL);
	if (r)
		return r;
	times.backoff_first_ns = NSEC_PER_MSEC;
	times.backoff_max_ns = 5 * NSEC_PER_MSEC;
	times.hurry_ns = times.slow_ns = NSEC_PER_MSEC;
	kube_set_times(w->kube, &times);
	timer_set(w->loop, &w->outage, 20 * NSEC_PER_MSEC, fault_outage_ends, w);
	timer_set(w->loop, &w->deadline, 120 * NSEC_PER_SEC, late, w);
	return 0;
}

static void answered(int status, const json_t *body, const char *error, void *arg)
{
	struct world *w = arg;

	assert_true(status ? body != NULL || status != 200 : error != NULL);
	w->status = status;
	w->n_answers++;
	loop_stop(w->loop, 0);
}

static int request(void *arg)
{
	struct world w = {0};
	int r = world_make(&w);

	(void)arg;
	if (!r)
		r = kube_request(w.kube, "GET", "/api/v1/pods", NULL, NULL, answered, &w);
	if (!r) {
		loop_run(w.loop);
		assert_false(w.too_late);
		assert_int_equal(w.n_answers, 1);
		r = w.status == 200 ? 0 : -EIO;
	}
	world_done(&w);
	return r;
}

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	struct world *w = arg;

	(void)obj;
	assert_string_equal(key, "n/a");
	assert_null(old);
	w->n_upserts++;
}

static void no_remove(const char *key, const json_t *last, void *arg)
{
	(void)last;
	(void)arg;
	fail_msg("%s was there all the time", key);
}

static void synced(void *arg)
{
	struct world *w = arg;

	loop_stop(w->loop, 0);
}

/* The list arrives in the end: a watch tries again without a limit. */
static int list(void *arg)
{
	static const struct kube_watch_spec spec = {.path = "/api/v1/pods"};
	static const struct kube_watch_ops ops = {upsert, no_remove, synced, NULL, NULL, NULL};
	struct world w = {0};
	int r = world_make(&w);

	(void)arg;
	if (!r)
		r = kube_watch_new(w.kube, &spec, &ops, &w, &w.watch);
	if (!r) {
		loop_run(w.loop);
		assert_false(w.too_late);
		assert_int_equal(w.n_upserts, 1);
		assert_true(kube_watch_synced(w.watch));
	}
	world_done(&w);
	return r;
}

#define CONNECTION                                                                                 \
	(FAULT(FD) | FAULT(READ) | FAULT(WRITE) | FAULT(CONNECT) | FAULT(SEND) | FAULT(RECV) |     \
	 FAULT(POLL) | FAULT(EPOLL))

static void test_server(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "kube_request", .calls = CONNECTION, .run = request, .step = 5},
		{.name = "kube_request: memory",
		 .calls = FAULT(MALLOC),
		 .run = request,
		 .step = 499},
		{.name = "kube_watch", .calls = CONNECTION, .run = list, .step = 7},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_server),
	};
	int r;

	if (testdir_make(dir))
		return 1;
	r = cmocka_run_group_tests_name("kube_faults", tests, setup, NULL);
	test_cert_done(&cert);
	test_ca_done(&ca);
	return testdir_remove(dir) ? 1 : r;
}
