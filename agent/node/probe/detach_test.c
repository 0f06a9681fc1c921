// SPDX-License-Identifier: Apache-2.0
/*
 * The close of a link hangs, as it may in the kernel. Meanwhile other processes can be attached.
 * The links are sockets with SO_LINGER, not BPF links.
 */
#include "node/probe/sets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_NS (60 * NSEC_PER_SEC)

struct slow {
	int fd, peer; /* close(fd) waits until the peer has read all bytes */
};

static struct slow slow_new(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);
	struct linger linger = {.l_onoff = 1, .l_linger = 600};
	static const char bytes[65536];
	struct slow s;
	int listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(listens, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(listens, 1), 0);
	assert_int_equal(getsockname(listens, (struct sockaddr *)&a, &n), 0);
	s.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(s.fd, (struct sockaddr *)&a, n), 0);
	s.peer = accept(listens, NULL, NULL);
	assert_true(s.peer >= 0);
	close(listens);
	assert_int_equal(setsockopt(s.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	assert_int_equal(fcntl(s.fd, F_SETFL, O_NONBLOCK), 0);
	while (write(s.fd, bytes, sizeof(bytes)) > 0)
		;
	assert_int_equal(fcntl(s.fd, F_SETFL, 0), 0); /* blocking: else close() would not wait */
	return s;
}

static void slow_goes_on(const struct slow *s)
{
	char bytes[65536];

	while (read(s->peer, bytes, sizeof(bytes)) > 0)
		;
	close(s->peer);
}

static struct probes probes;
static struct attached *attached;
static bool detached;

static void *detach(void *arg)
{
	(void)arg;
	attached = probes_detach(&probes, attached);
	__atomic_store_n(&detached, true, __ATOMIC_RELEASE);
	return NULL;
}

static void an_urgent_detach_that_hangs_keeps_nobody_from_being_attached(void **state)
{
	struct uprobes *u = probes_uprobes_new(1);
	struct probe_set_state *set = &u->sets[PROBES_MEMORY];
	uint64_t deadline_ns = now_mono_ns() + DEADLINE_NS;
	struct slow s = slow_new();
	pthread_t thread;
	bool urgent;

	(void)state;
	set->procs = -1;
	probes.uprobes = u;
	attached = xcalloc(1, sizeof(*attached));
	attached->set = set;
	attached->links = xcalloc(1, sizeof(*attached->links));
	attached->n_links = attached->cap_links = set->n_links = 1;
	attached->links[0].fd = s.fd;
	HASH_ADD(hh, set->attached, key, sizeof(attached->key), attached);
	probes_leave(attached);
	assert_true(probes_is_urgent(u));
	assert_int_equal(pthread_create(&thread, NULL, detach, NULL), 0);
	while ((urgent = probes_is_urgent(u)) && now_mono_ns() < deadline_ns)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_false(__atomic_load_n(&detached, __ATOMIC_ACQUIRE)); /* the close still hangs */
	assert_false(urgent);
	slow_goes_on(&s);
	pthread_join(thread, NULL);
	assert_true(detached);
	assert_null(attached);
	assert_int_equal(set->n_links, 0);
	probes_uprobes_free(u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_urgent_detach_that_hangs_keeps_nobody_from_being_attached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
