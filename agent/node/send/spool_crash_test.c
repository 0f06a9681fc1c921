/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent is killed again and again while it spools, sends and drops. The test's hub stores each
 * profile once, by its id. In the end every sample is stored or reported as lost.
 */
#include "node/send/spool.h"
#include "lib/loop/http.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include "lib/base/testdir.h"

#include <cmocka.h>

#define MOST_ITEMS   4
#define MOST_BATCHES 100000

/*
 * What the agent reports to the test. SAID_PUT: it has spooled the batch of this number. SAID_SENT:
 * it has sent these bytes.
 */
enum said { SAID_PUT, SAID_SENT };

/* ---- the hub ---- */

struct hub {
	bool stored[MOST_BATCHES];  /* whether the hub has stored a batch, by the batch's number */
	uint8_t accounts[4096][16]; /* ids of the accounts of losses that came */
	size_t n_accounts;
	uint64_t n_stored, n_told;
};

static bool is_repeat(struct hub *h, const uint8_t *id)
{
	for (size_t i = 0; i < h->n_accounts; i++)
		if (memcmp(h->accounts[i], id, 16) == 0)
			return true;
	assert_true(h->n_accounts < ARRAY_SIZE(h->accounts));
	memcpy(h->accounts[h->n_accounts++], id, 16);
	return false;
}

static void hub_take(struct hub *h, const void *body, size_t n)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_buf_ struct buf bytes = {0};

	assert_int_equal(http_decompress("zstd", body, n, OTLP_MAX_BYTES, &bytes), 0);
	assert_int_equal(otlp_decode(bytes.data, bytes.len, &b, NULL), 0);
	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];
		uint32_t number = p->process_id;

		if (p->n_samples && !h->stored[number]) {
			h->stored[number] = true;
			h->n_stored++;
		}
		for (size_t k = 0; k < p->n_losses; k++)
			if (k || !is_repeat(h, p->id))
				h->n_told += p->losses[k].n_samples;
	}
}

/* ---- the agent ---- */

struct agent {
	struct spool *spool;
	struct spool_item *items;
	size_t n_items;
	int fd;
};

static void say(const struct agent *a, enum said what, const void *data, uint32_t n)
{
	char head[5] = {(char)what};

	memcpy(head + 1, &n, sizeof(n));
	if (fd_write_all(a->fd, head, sizeof(head)) < 0 || fd_write_all(a->fd, data, n) < 0)
		_exit(1);
}

static void add(struct agent *a, struct spool_item *i)
{
	DL_APPEND(a->items, i);
	a->n_items++;
}

static struct batch *batch_of(uint32_t number)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s = profile_add(b, p);

	random_bytes(p->id, sizeof(p->id));
	p->start_ns = NSEC_PER_SEC;
	p->end_ns = 2 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = number;
	profile_tag(b, p, "pod_node", "n1");
	s->stack = STACK_NONE;
	s->cpu = -1;
	s->value = 1;
	s->n_samples = 1;
	return b;
}

static void put(struct agent *a, uint32_t number)
{
	_cleanup_(profile_batch_freep) struct batch *b = batch_of(number);
	struct spool_item *i;

	if (send_spool_put(a->spool, b, SPOOL_SEVERAL_NS, &i) < 0 || !i->path)
		_exit(2);
	add(a, i);
	say(a, SAID_PUT, &number, sizeof(number));
}

static struct spool_item *oldest(struct agent *a)
{
	struct spool_item *i = a->items;

	DL_DELETE(a->items, i);
	a->n_items--;
	return i;
}

static void send_one(struct agent *a)
{
	struct spool_item *i = oldest(a);
	_cleanup_buf_ struct buf body = {0};

	if (send_spool_get(a->spool, i, &body) < 0)
		_exit(3);
	say(a, SAID_SENT, body.data, (uint32_t)body.len);
	send_spool_remove(a->spool, i);
	send_spool_item_free(i);
}

static void account(struct agent *a)
{
	struct spool_item *i;

	if (send_spool_take_losses(a->spool, &i) < 0)
		_exit(4);
	if (i)
		add(a, i);
}

static void agent_open(struct agent *a, const char *dir, int fd)
{
	struct spool_item *i;

	*a = (struct agent){.spool = send_spool_new(dir, true), .fd = fd};
	if (send_spool_scan(a->spool, &a->items) < 0)
		_exit(5);
	DL_FOREACH (a->items, i)
		a->n_items++;
}

/*
 * Repeats these steps until the process is killed: spools a batch, drops one if there are too many,
 * sends the account of losses, sends a batch.
 */
_Noreturn static void agent_run(const char *dir, int fd, uint32_t number)
{
	struct agent a;

	agent_open(&a, dir, fd);
	for (unsigned turn = 0;; turn++) {
		put(&a, number++);
		if (a.n_items > MOST_ITEMS) {
			struct spool_item *i = oldest(&a);

			send_spool_drop(a.spool, i, "spool_full", &(struct send_lost){0});
			send_spool_item_free(i);
		}
		if (turn % 3 == 2)
			account(&a);
		if (turn % 2 == 1)
			send_one(&a);
	}
}

/* ---- killed ---- */

static bool read_whole(int fd, void *data, size_t n)
{
	for (size_t have = 0; have < n;) {
		ssize_t got = read(fd, (char *)data + have, n - have);

		if (got <= 0)
			return false;
		have += (size_t)got;
	}
	return true;
}

/*
 * Reads the reports of the child. Kills the child after_us microseconds after report number
 * after_n. A report that was cut off does not count.
 */
static uint32_t listen_and_kill(struct hub *h, int fd, pid_t pid, unsigned after_n,
				useconds_t after_us)
{
	static char data[1 << 16];
	uint32_t n, n_put = 0;
	char head[5];

	while (read_whole(fd, head, sizeof(head))) {
		memcpy(&n, head + 1, sizeof(n));
		assert_true(n <= sizeof(data));
		if (!read_whole(fd, data, n))
			break;
		n_put += head[0] == SAID_PUT;
		if (head[0] == SAID_SENT)
			hub_take(h, data, n);
		if (after_n-- == 0) {
			usleep(after_us); /* makes the moment of the kill random */
			kill(pid, SIGKILL);
		}
	}
	return n_put;
}

static unsigned n_unfinished(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(d)))
		n += str_has_suffix(e->d_name, ".tmp");
	closedir(d);
	return n;
}

/* Sends all batches that are left, as the next agent would. */
static void send_rest(struct hub *h, const char *dir)
{
	struct agent a;

	agent_open(&a, dir, -1);
	assert_int_equal(n_unfinished(dir), 0);
	account(&a);
	while (a.items) {
		struct spool_item *i = oldest(&a);
		_cleanup_buf_ struct buf body = {0};

		assert_int_equal(send_spool_get(a.spool, i, &body), 0);
		hub_take(h, body.data, body.len);
		send_spool_remove(a.spool, i);
		send_spool_item_free(i);
	}
	send_spool_free(a.spool);
}

static void test_killed_again_and_again(void **state)
{
	unsigned n_kills = getenv("LONG") ? 2000 : 100;
	struct hub *h = xcalloc(1, sizeof(*h));
	uint64_t n_put = 0, seed, missing;
	char dir[TESTDIR_BYTES];

	(void)state;
	random_bytes(&seed, sizeof(seed));
	seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : seed >> 33;
	print_message("SEED=%llu\n", (unsigned long long)seed);
	srand48((long)seed);
	assert_int_equal(testdir_make(dir), 0);
	for (unsigned i = 0; i < n_kills; i++) {
		int fds[2], status;
		pid_t pid;

		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		pid = fork();
		if (pid == 0)
			agent_run(dir, fds[1], i * (MOST_BATCHES / n_kills));
		close(fds[1]);
		n_put += listen_and_kill(h, fds[0], pid, (unsigned)(drand48() * 12),
					 (useconds_t)(drand48() * 2000));
		close(fds[0]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		/* the child was killed and did not exit with an error */
		assert_true(WIFSIGNALED(status));
	}
	send_rest(h, dir);
	print_message("%llu put, %llu stored, %llu told as lost\n", (unsigned long long)n_put,
		      (unsigned long long)h->n_stored, (unsigned long long)h->n_told);
	missing = n_put - h->n_stored - h->n_told;
	/* the agent may be killed before it reports a put, or before it deletes a dropped file */
	assert_true((int64_t)missing <= 0);
	assert_in_range(-(int64_t)missing, 0, 2 * n_kills);
	assert_true(h->n_told > 0);
	free(h);
	assert_int_equal(testdir_remove(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_again_and_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
