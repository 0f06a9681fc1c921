/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of others send profiles to the hub's ingest, and a query finds them: OpenTelemetry's own
 * Go client with the messages of its eBPF profiler, by gRPC and by JSON, and a Collector with both
 * of its exporters. e2e/collector/build.sh builds them, which takes minutes. So this needs LONG=1.
 */
#include "hub/api/testapi.h"
#include "hub/ingest/ingest.h"
#include "lib/loop/testcert.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOKEN	"secret-token"
#define WAIT_NS (300 * NSEC_PER_SEC)

static struct {
	struct worker *writer;
	struct ingest *ingest;
	struct http_server *server;
	struct tls *tls;
	char *ca_file, *address;
	int sender_status;	  /* of whoever has the token */
	char *sender, *collector; /* the programs */
} hub;

static void fill_nothing(struct store *s)
{
	(void)s;
}

static void auth(const char *authorization, const char *peer,
		 void (*fn)(const struct ingest_sender *s, void *arg), void *fn_arg, void *arg)
{
	bool known = streq(authorization, "Bearer " TOKEN);

	(void)peer;
	(void)arg;
	fn(&(struct ingest_sender){.status = known ? hub.sender_status : 401,
				   .error = "not you",
				   .node = "",
				   .hosts = true},
	   fn_arg);
}

static void write_ca(const struct fixture *f, const struct test_ca *ca)
{
	FILE *file;

	hub.ca_file = xasprintf("%s/ca.crt", f->dir);
	file = fopen(hub.ca_file, "w");
	assert_non_null(file);
	fputs(ca->pem, file);
	fclose(file);
}

/* Opens the ingest over the store of the API, with TLS. */
static int setup(void **state)
{
	struct fixture *f = fixture_new();
	struct ingest_config ic = {.auth = auth, .cluster_name = "c1", .any_node = true};
	struct http_server_config hc = {.address = "127.0.0.1",
					.http2 = true,
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = ingest_http_head,
					.handler = ingest_http,
					.refuse = ingest_http_refuse};
	struct test_cert cert;
	struct tls_config tc;
	struct test_ca ca;

	fill_store = fill_nothing;
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	assert_int_equal(setup_with(state, f, NULL, f->dir), 0);
	timer_set(f->loop, &f->guard, WAIT_NS, timed_out, f);
	write_ca(f, &ca);
	tc = (struct tls_config){.cert_pem = cert.cert_pem, .key_pem = cert.key_pem};
	assert_int_equal(tls_new(&tc, true, &hub.tls, NULL), 0);
	assert_int_equal(worker_new(f->loop, "writer", 16 << 20, &hub.writer), 0);
	ic.store = f->store;
	ic.writer = hub.writer;
	assert_int_equal(ingest_new(f->loop, &ic, &hub.ingest), 0);
	hc.tls = hub.tls;
	hc.arg = hub.ingest;
	assert_int_equal(http_server_new(f->loop, &hc, &hub.server, NULL), 0);
	hub.address = xasprintf("127.0.0.1:%u", http_server_port(hub.server));
	hub.sender_status = 200;
	test_cert_done(&cert);
	test_ca_done(&ca);
	return 0;
}

static int close_all(void **state)
{
	hub.server = http_server_free(hub.server);
	worker_free(hub.writer);
	ingest_free(hub.ingest);
	hub.tls = tls_unref(hub.tls);
	unlink(hub.ca_file);
	free(TAKE_PTR(hub.ca_file));
	free(TAKE_PTR(hub.address));
	return teardown(state);
}

/* ---- programs ---- */

struct run {
	struct loop *loop;
	struct watch *watch;
	struct buf out;
};

static void read_output(int fd, void *arg)
{
	struct run *r = arg;
	char piece[4096];
	ssize_t n = read(fd, piece, sizeof(piece));

	if (n > 0) {
		buf_add(&r->out, piece, (size_t)n);
		return;
	}
	r->watch = watch_free(r->watch);
	loop_stop(r->loop, 0);
}

static pid_t spawn(const char *const *args, int out_fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		dup2(out_fd, STDOUT_FILENO);
		execv(args[0], (char *const *)(uintptr_t)args);
		_exit(127);
	}
	assert_true(pid > 0);
	return pid;
}

/* Runs the program while the loop serves it. Returns what it says. */
static char *run(struct fixture *f, const char *const *args)
{
	struct run r = {.loop = f->loop};
	int fds[2], status;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = spawn(args, fds[1]);
	close(fds[1]);
	assert_int_equal(watch_new(f->loop, fds[0], read_output, &r, &r.watch), 0);
	assert_int_equal(loop_run(f->loop), 0);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return buf_steal(&r.out);
}

static char *send_as(struct fixture *f, const char *how, const char *token, const char *service,
		     const char *address)
{
	const char *ca = address == hub.address ? hub.ca_file : "";
	const char *const args[] = {hub.sender, "-ca",	 ca,	  "-token", token,
				    how,	service, address, NULL};

	return run(f, args);
}

static char *build(const char *what)
{
	_cleanup_free_ char *command = xasprintf("e2e/collector/build.sh %s", what);
	FILE *p = popen(command, "r");
	char path[512] = "";

	assert_non_null(p);
	assert_non_null(fgets(path, sizeof(path), p));
	assert_int_equal(pclose(p), 0);
	path[strcspn(path, "\n")] = '\0';
	return xstrdup(path);
}

/* ---- what a query finds ---- */

/* The sender has taken three samples at 20 Hz of a stack of Python. */
static void assert_found(struct fixture *f, const char *service)
{
	_cleanup_free_ char *body =
		xasprintf("{\"profile_event_type\":\"cpu\",\"profile_language_type\":\"eBPF\","
			  "\"app_service\":\"%s\",\"time_start\":%lld,\"time_end\":%lld}",
			  service, (long long)(now_wall_ns() / NSEC_PER_SEC) - 600,
			  (long long)(now_wall_ns() / NSEC_PER_SEC) + 600);
	static const char *const parts[] = {"\"work\"", "\"<module>\"", "150000"};

	assert_int_equal(ask(f, "POST", TRACING, NULL, body), 200);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (!strstr(f->body, parts[i]))
			fail_msg("no %s of %s in %s", parts[i], service, f->body);
}

static uint64_t n_stored(const struct fixture *f)
{
	struct store_stats s;

	store_stats(f->store, &s);
	return s.n_profiles;
}

/* ---- tests ---- */

static void the_profilers_messages_arrive(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *grpc = send_as(f, "-json=false", TOKEN, "by-grpc", hub.address),
			    *json = send_as(f, "-json", TOKEN, "by-json", hub.address);

	assert_string_equal(grpc, "stored\n");
	assert_string_equal(json, "stored\n");
	assert_found(f, "by-grpc");
	assert_found(f, "by-json");
	assert_int_equal(n_stored(f), 2);
}

static void refusals_are_understood(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *grpc = send_as(f, "-json=false", "x", "a", hub.address),
			    *json = send_as(f, "-json", "x", "a", hub.address), *busy = NULL,
			    *forbidden = NULL;

	assert_string_equal(grpc, "Unauthenticated: not you\n");
	assert_string_equal(json, "401: {\"code\":16,\"message\":\"not you\"}\n\n");
	hub.sender_status = 503;
	busy = send_as(f, "-json=false", TOKEN, "a", hub.address);
	assert_string_equal(busy, "Unavailable: not you retry 5s\n");
	hub.sender_status = 403;
	forbidden = send_as(f, "-json=false", TOKEN, "a", hub.address);
	assert_string_equal(forbidden, "PermissionDenied: not you\n");
	assert_int_equal(n_stored(f), 0);
}

static uint16_t free_port(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&sa, n), 0);
	getsockname(fd, (struct sockaddr *)&sa, &n);
	close(fd);
	return ntohs(sa.sin_port);
}

/* The configuration of docs/otlp.md, with this hub's address. */
static char *write_config(const struct fixture *f, const char *exporter, uint16_t port)
{
	char *path = xasprintf("%s/otelcol.yaml", f->dir);
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fprintf(file,
		"receivers:\n"
		"  otlp: {protocols: {grpc: {endpoint: \"127.0.0.1:%u\"}}}\n"
		"exporters:\n"
		"  %s:\n"
		"    endpoint: \"%s%s\"\n"
		"    tls: {ca_file: \"%s\"}\n"
		"    headers: {Authorization: \"Bearer %s\"}\n"
		"service:\n"
		"  telemetry: {metrics: {level: none}}\n"
		"  pipelines:\n"
		"    profiles: {receivers: [otlp], exporters: [%s]}\n",
		port, exporter, streq(exporter, "otlp") ? "" : "https://", hub.address, hub.ca_file,
		TOKEN, exporter);
	fclose(file);
	return path;
}

static void look_again(void *arg)
{
	loop_stop(arg, 0);
}

static void wait_a_little(struct fixture *f)
{
	struct timer t = {0};

	timer_set(f->loop, &t, 20 * NSEC_PER_MSEC, look_again, f->loop);
	assert_int_equal(loop_run(f->loop), 0);
}

static bool listens(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool answers = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0;

	close(fd);
	return answers;
}

static void a_collector_passes_on(void **state, const char *exporter)
{
	struct fixture *f = *state;
	uint16_t port = free_port();
	_cleanup_free_ char *config = write_config(f, exporter, port),
			    *address = xasprintf("127.0.0.1:%u", port), *said = NULL,
			    *file = xasprintf("file:%s", config);
	const char *const args[] = {hub.collector, "--config", file,
				    "--feature-gates=service.profilesSupport", NULL};
	pid_t pid = spawn(args, STDERR_FILENO);
	int status;

	while (!listens(port)) {
		assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
		wait_a_little(f);
	}
	said = send_as(f, "-json=false", "", exporter, address);
	assert_string_equal(said, "stored\n"); /* by the Collector */
	while (n_stored(f) == 0)
		wait_a_little(f);
	assert_found(f, exporter);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unlink(config);
}

static void a_collector_exports_by_grpc(void **state)
{
	a_collector_passes_on(state, "otlp");
}

static void a_collector_exports_by_http(void **state)
{
	a_collector_passes_on(state, "otlphttp");
}

static int build_programs(void **state)
{
	(void)state;
	hub.sender = build("sender");
	hub.collector = build("otelcol");
	return 0;
}

static int free_programs(void **state)
{
	(void)state;
	free(hub.sender);
	free(hub.collector);
	return 0;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, close_all)

static void skipped(void **state)
{
	(void)state;
	print_message("skip: clients and Collector of OpenTelemetry: LONG=1\n");
	skip();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(the_profilers_messages_arrive),
		T(refusals_are_understood),
		T(a_collector_exports_by_grpc),
		T(a_collector_exports_by_http),
	};
	static const struct CMUnitTest none[] = {cmocka_unit_test(skipped)};

	signal(SIGPIPE, SIG_IGN);
	if (!getenv("LONG"))
		return cmocka_run_group_tests_name("foreign", none, NULL, NULL);
	return cmocka_run_group_tests_name("foreign", tests, build_programs, free_programs);
}
