/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole node while DNS does not answer. It continues to watch, drain and send with the last known
 * addresses, and its loop never waits. It uses real BPF, glibc's resolver, an API server and a hub.
 * The node reaches both servers by name. They take one request per connection, so each request
 * looks up the name again. This program runs itself as `node_names_test real` in a network
 * namespace. The test lasts for some windows, or for ten minutes with LONG=1. The numbers are those
 * of docs/watch-cases.md.
 */
#include "node/internal.h"
#include "lib/loop/http.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "lib/loop/testdns.h"
#include "lib/loop/testserver.h"

#define BUSY	  "nodetest-names"
#define N_WINDOWS 3 /* minimum of windows and of watched changes, before the outage and in it */
#define LOOK_NS	  (20 * NSEC_PER_MSEC)
#define GUARD_NS  (240 * NSEC_PER_SEC)
/*
 * Longest time for which the loop may stall. A thread that waits for glibc would wait for 30 s. All
 * other code waits at most for a CPU.
 */
#define MAX_STALL_NS (8 * NSEC_PER_SEC)

struct world {
	struct loop *loop;
	struct config conf;
	struct test_server *api;
	struct kube *kube;
	struct kube_watch *watch;
	struct http_server *hub;
	struct node *node;
	struct timer look;
	pid_t busy;
	atomic_int n_changes; /* changes that the API server has sent */
	unsigned n_seen;      /* changes that the watch has seen */
	unsigned n_windows;   /* windows with samples of BUSY that the hub has received */
	uint64_t newest_ns;   /* the end of the newest of the n_windows windows */
	unsigned wanted_seen, wanted_windows;
	uint64_t wanted_end_ns, until_ns, due_ns;
};

/* ---- the API server: a list, then watches with one change each ---- */

static void serve_api(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	struct world *w = arg;
	char event[256];
	int n;

	if (strstr(r->line, "watch=true")) {
		n = ++w->n_changes;
		snprintf(event, sizeof(event),
			 "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"uid\":"
			 "\"u\","
			 "\"labels\":{\"n\":\"%d\"},\"resourceVersion\":\"%d\"}}}\n",
			 n, 10 + n);
		ts_stream(c);
		ts_chunk(c, event);
		usleep(100000);
		ts_last_chunk(c);
	} else {
		ts_reply(c, 200, NULL,
			 "{\"kind\":\"XList\",\"metadata\":{\"resourceVersion\":\"10\"},\"items\":["
			 "]}");
	}
	c->over = true;
}

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)key;
	(void)obj;
	(void)old;
	((struct world *)arg)->n_seen++;
}

static void removed(const char *key, const json_t *last, void *arg)
{
	(void)key;
	(void)last;
	(void)arg;
}

/* ---- the hub ---- */

static void serve_hub(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct world *w = arg;
	_cleanup_buf_ struct buf body = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	must(http_decompress(in->content_encoding, in->body, in->body_bytes, OTLP_MAX_BYTES,
			     &body) == 0 &&
		     otlp_decode(body.data, body.len, &b, NULL) == 0,
	     "what the hub was sent");
	for (size_t i = 0; i < b->n_profiles; i++) {
		if (!streq(b->profiles[i]->app_service, BUSY) || !b->profiles[i]->n_samples)
			continue;
		w->n_windows++;
		w->newest_ns = MAX(w->newest_ns, b->profiles[i]->end_ns);
	}
	http_reply(c, 200, OTLP_CONTENT_TYPE, NULL, "", 0);
}

/* ---- the node ---- */

static void start_busy(struct world *w)
{
	w->busy = fork();
	must(w->busy >= 0, "fork");
	if (w->busy)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, BUSY);
	for (volatile unsigned i = 0;; i++)
		;
}

static void start_hub(struct world *w)
{
	const struct http_server_config c = {.address = "127.0.0.1",
					     .max_body_bytes = OTLP_MAX_BYTES,
					     .brief = true,
					     .handler = serve_hub,
					     .arg = w};

	must(http_server_new(w->loop, &c, &w->hub, NULL) == 0, "hub");
}

static void start_node(struct world *w, const char *dir)
{
	const struct node_config c = {.conf = &w->conf, .local = true};
	struct field_error e = {0};

	conf_init(&w->conf);
	free(w->conf.data_dir);
	w->conf.data_dir = xstrdup(dir);
	free(w->conf.spool_dir);
	w->conf.spool_dir = xasprintf("%s/spool", dir);
	free(w->conf.on_cpu_regex);
	w->conf.on_cpu_regex = xstrdup("^" BUSY "$");
	free(w->conf.hub_url);
	w->conf.hub_url = xasprintf("http://hub.podflame.example:%u", http_server_port(w->hub));
	w->conf.window_ns = NSEC_PER_SEC;
	must(node_new(w->loop, &c, &w->node, &e) == 0, e.reason);
}

static void start_watch(struct world *w)
{
	static const struct kube_watch_ops ops = {.upsert = upsert, .remove = removed};
	static const struct kube_watch_spec spec = {.path = "/x"};
	const struct ts_config tc = {.forgets = true};
	struct kube_config c = {.address = (char *)(uintptr_t) "api.podflame.example",
				.tls_name = (char *)(uintptr_t) "api.podflame.example",
				.plain_http = true};
	struct field_error e = {0};

	w->api = ts_start(&tc, serve_api, w);
	c.port = w->api->port;
	must(kube_new(w->loop, &c, "t", &w->kube, &e) == 0, e.reason);
	must(kube_watch_new(w->kube, &spec, &ops, w, &w->watch) == 0, "watch");
}

/* ---- before and in the outage ---- */

static void look(void *arg)
{
	struct world *w = arg;
	uint64_t now = now_mono_ns();

	if (now > w->due_ns)
		loop_stop(w->loop, -ETIMEDOUT);
	else if (w->n_seen >= w->wanted_seen && w->n_windows >= w->wanted_windows &&
		 w->newest_ns >= w->wanted_end_ns && now >= w->until_ns)
		loop_stop(w->loop, 0);
	else
		timer_set(w->loop, &w->look, LOOK_NS, look, w);
}

/* Runs for at least ns, and until N_WINDOWS more windows and as many changes have arrived. */
static void goes_on(struct world *w, uint64_t ns, const char *when)
{
	uint64_t stall_ns;
	unsigned seen = w->n_seen, windows = w->n_windows;

	w->wanted_seen = seen + N_WINDOWS;
	w->wanted_windows = windows + N_WINDOWS;
	w->until_ns = now_mono_ns() + ns;
	/* the windows must end after this moment: it is not enough that they are sent after it */
	w->wanted_end_ns = now_wall_ns() + ns;
	w->due_ns = w->until_ns + GUARD_NS;
	look(w);
	if (loop_run(w->loop) != 0)
		fprintf(stderr, "%s: %u changes and %u windows came\n", when, w->n_seen - seen,
			w->n_windows - windows);
	must(now_mono_ns() <= w->due_ns, when);
	stall_ns = loop_longest_ever_ns(w->loop);
	printf("%s: %u changes seen, %u windows sent, longest stall so far %.1f ms\n", when,
	       w->n_seen - seen, w->n_windows - windows, (double)stall_ns / 1e6);
	must(stall_ns < MAX_STALL_NS, "the loop waits for nobody");
}

static void end(struct world *w)
{
	kill(w->busy, SIGKILL);
	waitpid(w->busy, NULL, 0);
	node_free(w->node);
	kube_watch_free(w->watch);
	kube_free(w->kube);
	http_server_free(w->hub);
	loop_free(w->loop);
	ts_stop(w->api);
	conf_done(&w->conf);
}

static uint64_t n_last_known(void)
{
	return counter_get(counter("name_last_known_total", "reason", "failed")) +
	       counter_get(counter("name_last_known_total", "reason", "late"));
}

static int real_node(const char *dir, unsigned outage_s)
{
	struct world w = {0};
	uint64_t before;

	dns_enter(dir, true);
	dns.last_byte = 1;
	must(loop_new(&w.loop) == 0, "loop");
	start_busy(&w);
	start_hub(&w);
	start_node(&w, dir);
	start_watch(&w);
	goes_on(&w, 0, "with DNS");
	dns.last_byte = 0;
	before = n_last_known();
	goes_on(&w, outage_s * NSEC_PER_SEC, "without DNS");
	/* each window needs both names, but the first connections may be older than the outage */
	must(n_last_known() - before >= 2 * (N_WINDOWS - 1), "names were asked for");
	end(&w);
	return 0;
}

static void names_51_node_without_dns(void **state)
{
	(void)state;
	dns_run("node_names_test", 0);
}

static void names_51_node_ten_minutes_without_dns_long(void **state)
{
	(void)state;
	dns_run_long("node_names_test");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_51_node_without_dns),
		cmocka_unit_test(names_51_node_ten_minutes_without_dns_long),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	if (argc == 4 && streq(argv[1], "real"))
		return real_node(argv[2], (unsigned)strtoul(argv[3], NULL, 10));
	return cmocka_run_group_tests_name("node_names", tests, NULL, NULL);
}
