/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a real etcd and a real kube-apiserver (of e2e/cluster), and clients of it.
 * Include it once, after cmocka.h.
 */
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "lib/base/testdir.h"
#include "lib/kube/kube_private.h"
#include "lib/loop/testserver.h"

#define MERGE "application/merge-patch+json"

static struct test_ca ca;
static struct test_cert cert;
static char dir[TESTDIR_BYTES];
static char *testkube, *etcd_url, *peer_url;
static uint16_t api_port;
static pid_t etcd, api;

/* ---- processes ---- */

static char *path_of(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static void put(const char *name, const char *text)
{
	_cleanup_free_ char *path = path_of(name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static uint16_t free_port(void)
{
	struct ts_config c = {0};
	uint16_t port;

	close(ts_listen(&c, &port));
	return port;
}

static pid_t spawn(const char *log_name, char *const *argv)
{
	_cleanup_free_ char *log = path_of(log_name);
	pid_t parent = getpid(), pid = fork();
	int fd;

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	if (getppid() == parent)
		execv(argv[0], argv);
	_exit(127);
}

#define A(...) xasprintf(__VA_ARGS__) /* the text is not freed before the test ends */

static void start_etcd(void)
{
	char *argv[] = {testkube,
			A("etcd"),
			A("--data-dir=%s/etcd", dir),
			A("--name=e"),
			A("--unsafe-no-fsync"),
			A("--log-level=warn"),
			A("--listen-client-urls=%s", etcd_url),
			A("--advertise-client-urls=%s", etcd_url),
			A("--listen-peer-urls=%s", peer_url),
			A("--initial-advertise-peer-urls=%s", peer_url),
			A("--initial-cluster=e=%s", peer_url),
			NULL};

	etcd = spawn("etcd.log", argv);
}

static void start_api(void)
{
	char *argv[] = {testkube,
			A("kube-apiserver"),
			A("--etcd-servers=%s", etcd_url),
			A("--bind-address=127.0.0.1"),
			A("--advertise-address=192.0.2.1"),
			A("--endpoint-reconciler-type=none"),
			A("--secure-port=%u", api_port),
			A("--cert-dir=%s/certs", dir),
			A("--tls-cert-file=%s/api.crt", dir),
			A("--tls-private-key-file=%s/api.key", dir),
			A("--token-auth-file=%s/tokens.csv", dir),
			A("--service-account-key-file=%s/api.crt", dir),
			A("--service-account-signing-key-file=%s/api.key", dir),
			A("--service-account-issuer=https://kubernetes.default.svc.cluster.local"),
			A("--service-cluster-ip-range=10.96.0.0/16"),
			A("--authorization-mode=RBAC"),
			A("--disable-admission-plugins=ServiceAccount"),
			A("--profiling=false"),
			NULL};

	api = spawn("api.log", argv);
}

static void end_process(pid_t *pid)
{
	if (*pid <= 0)
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

/* ---- clients ---- */

static struct kube *make_kube(struct loop *l, const struct kube_times *t)
{
	struct kube_config c = {.address = (char *)(uintptr_t) "127.0.0.1",
				.port = api_port,
				.ca_pem = ca.pem,
				.tls_name = (char *)(uintptr_t) "kubernetes.default.svc",
				.token = (char *)(uintptr_t) "secret"};
	struct field_error e = {0};
	struct kube *k;

	assert_int_equal(kube_new(l, &c, "podflame/test", &k, &e), 0);
	kube_set_times(k, t);
	return k;
}

/* ---- start and end ---- */

/* The directory of e2e/cluster's binary; makes the binary if it does not exist. */
static char *find_testkube(void)
{
	char line[512] = "";
	FILE *p = popen("e2e/cluster/build.sh 2>/dev/null", "r");

	if (p && fgets(line, sizeof(line), p))
		line[strcspn(line, "\n")] = '\0';
	if (p)
		pclose(p);
	return *line ? xasprintf("%s/testkube", line) : NULL;
}

static int make_server(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	testkube = find_testkube();
	if (!testkube || access(testkube, X_OK) < 0) {
		print_message("e2e/cluster/build.sh made no testkube (run from the repository)\n");
		return -1;
	}
	assert_int_equal(testdir_make(dir), 0);
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "DNS:kubernetes.default.svc,IP:127.0.0.1");
	put("api.crt", cert.cert_pem);
	put("api.key", cert.key_pem);
	put("tokens.csv", "secret,admin,1,system:masters\n");
	etcd_url = xasprintf("http://127.0.0.1:%u", free_port());
	peer_url = xasprintf("http://127.0.0.1:%u", free_port());
	api_port = free_port();
	start_etcd();
	start_api();
	return 0;
}

static int end_server(void **state)
{
	(void)state;
	end_process(&api);
	end_process(&etcd);
	if (!getenv("KEEP"))
		testdir_remove(dir);
	test_ca_done(&ca);
	test_cert_done(&cert);
	return 0;
}
