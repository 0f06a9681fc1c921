/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: glibc's own resolver and a scripted DNS server, in a network and mount namespace
 * of this process. The program must be started for this purpose, and have no threads yet. If
 * anything is missing, these functions end the program.
 */
#pragma once

#include <arpa/inet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/testdir.h"
#include "lib/loop/testcert.h"

static struct {
	int fd;
	/* X of the answer 127.0.0.X; 0: no answer; -1: the answer is a server failure */
	atomic_int last_byte;
	atomic_int n_asked;
} dns;

/* Answers a question with the question and one A record. For other types, with no record. */
_test_util_ void dns_answer(const uint8_t *q, size_t n, const struct sockaddr_in *to, int what)
{
	uint8_t a[600] = {0};
	size_t at = 12;
	bool type_a;

	memcpy(a, q, n);
	while (at < n && q[at])
		at += q[at] + 1U;
	at += 5; /* skips the root of the name, type and class */
	if (at > n)
		return;
	type_a = q[at - 3] == 1;
	a[2] = 0x84 | (q[2] & 1);
	a[3] = what < 0 ? 2 : 0x80;
	a[11] = 0; /* the question's additional part is not in the answer */
	if (what > 0 && type_a) {
		const uint8_t record[] = {0xc0, 12, 0, 1, 0,   1, 0, 0,
					  0,	0,  0, 4, 127, 0, 0, (uint8_t)what};

		a[7] = 1;
		memcpy(a + at, record, sizeof(record));
		at += sizeof(record);
	}
	sendto(dns.fd, a, at, 0, (const struct sockaddr *)to, sizeof(*to));
}

_test_util_ void *dns_main(void *arg)
{
	(void)arg;
	while (true) {
		uint8_t q[512];
		struct sockaddr_in from;
		socklen_t from_n = sizeof(from);
		ssize_t n = recvfrom(dns.fd, q, sizeof(q), 0, (struct sockaddr *)&from, &from_n);

		if (n < 17)
			continue;
		dns.n_asked++;
		if (dns.last_byte)
			dns_answer(q, (size_t)n, &from, dns.last_byte);
	}
	return NULL;
}

_test_util_ void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

_test_util_ void dns_put_file(const char *dir, const char *name, const char *text)
{
	_cleanup_free_ char *from = xasprintf("%s/%s", dir, name), *to = xasprintf("/etc/%s", name);

	must(file_write_atomic(from, text, strlen(text), 0644) == 0, from);
	must(mount(from, to, NULL, MS_BIND, NULL) == 0, to);
}

/*
 * From now on, the process has its own network with only lo, and the resolver is at 127.0.0.1. dir:
 * a directory for the files that this needs. patient: glibc waits as long as it can, 30 s per name;
 * otherwise 1 s.
 */
_test_util_ void dns_enter(const char *dir, bool patient)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(53),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	pthread_t thread;

	must(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0, "unshare");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
	dns_put_file(dir, "resolv.conf",
		     patient ? "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n"
			     : "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
	dns_put_file(dir, "nsswitch.conf", "hosts: files dns\n");
	dns.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	must(ioctl(dns.fd, SIOCSIFFLAGS, &lo) == 0, "lo");
	must(bind(dns.fd, (struct sockaddr *)&sa, sizeof(sa)) == 0, "bind");
	must(pthread_create(&thread, NULL, dns_main, NULL) == 0, "thread");
}

/* ---- the test that starts such a program ---- */

#define DNS_OUTAGE_S 600

/* Runs this program again as `program real DIR SECONDS`; the new process must call dns_enter(). */
_test_util_ void dns_run(const char *program, unsigned outage_s)
{
	char dir[TESTDIR_BYTES], seconds[16];
	char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t) "real", dir, seconds, NULL};
	int status = -1;
	pid_t pid;

	if (geteuid() != 0) {
		print_message("skip: a network namespace needs root\n");
		skip();
	}
	snprintf(seconds, sizeof(seconds), "%u", outage_s);
	assert_int_equal(testdir_make(dir), 0);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	testdir_remove(dir);
	assert_int_equal(status, 0);
}

_test_util_ void dns_run_long(const char *program)
{
	if (!getenv("LONG")) {
		print_message("skip: ten minutes without DNS: LONG=1\n");
		skip();
	}
	dns_run(program, DNS_OUTAGE_S);
}
