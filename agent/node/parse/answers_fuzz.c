/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parse child under an attacker's control answers with any bytes and any descriptors, twice or
 * not at all, and dies at any time. The parser must return an index that the index's reader has
 * accepted, or an error with a reason. No descriptor may stay open. After a child works again, one
 * more file may fail; the file after that one must get its index. Fuzzes: node/parse/parser.c,
 * lib/child/child.c, lib/child/wire.c
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fuzzinput.h"
#include "lib/child/fuzzchild.h"
#include "node/parse/format.h"
#include "node/parse/parser.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define N_FDS 64 /* limit of the descriptors that are looked at */

static bool is_good; /* whether the child works as it should */

/* Makes the smallest index that the index's reader accepts. */
static int empty_index(bool sealed)
{
	struct {
		struct index_header h;
		char strings[8];
	} index = {.h = {.magic = INDEX_MAGIC, .string_bytes = 8}};
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	check(fd >= 0 && fd_write_all(fd, &index, sizeof(index)) == 0);
	if (sealed)
		check(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	return fd;
}

static int some_fd(void)
{
	int fd;

	switch (take() % 6) {
	case 0:
		return empty_index(false);
	case 1:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	case 2:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 3: /* a file larger than allowed, without contents */
		fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		check(ftruncate(fd, (off_t)1 << 40) == 0);
		return fd;
	case 4: { /* bytes of the input */
		size_t want = take(), n = MIN(want, in.n);

		fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		check(fd_write_all(fd, in.data, n) == 0);
		in.data += n;
		in.n -= n;
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
		return fd;
	}
	default:
		return empty_index(true);
	}
}

static void answer(int sock, const void *message, size_t n, size_t n_fds)
{
	int fds[PARSE_FDS_MAX];

	for (size_t i = 0; i < n_fds; i++)
		fds[i] = some_fd();
	(void)child_send(sock, message, n, fds, n_fds);
	for (size_t i = 0; i < n_fds; i++)
		close(fds[i]);
}

static void bad_answers(int sock)
{
	for (unsigned n = take() % 4; n; n--) {
		struct parse_reply reply = {.reason = take()};
		char bytes[256] = {0};
		unsigned what = take();
		size_t size = what & 1 ? take() : sizeof(reply);

		if (what & 4) {
			size_t k = MIN(sizeof(reply), in.n);

			memcpy(&reply, in.data, k);
			in.data += k;
			in.n -= k;
		}
		memcpy(bytes, &reply, sizeof(reply));
		answer(sock, bytes, size, what & 8 ? take() % 4 : what >> 4 & 1);
	}
}

/*
 * ---- these functions replace processes: all that a child would do is done when it is started ----
 * So nothing happens later, and each wait for the child ends at once.
 */

static int child_begins(const char *path, char *const *argv, int sock, pid_t *ret_pid)
{
	const int32_t ready = 0;
	struct parse_reply reply = {0};
	int index = empty_index(true);

	(void)path;
	(void)argv;
	if (is_good) {
		(void)child_send(sock, &ready, sizeof(ready), NULL, 0);
		(void)child_send(sock, &reply, sizeof(reply), &index, 1);
		/*
		 * the request stays in the socket, and the child's end stays open until the parser
		 * closes its own
		 */
		*ret_pid = 1 << 30;
		close(index);
		check(dup2(sock, N_FDS + 8) >= 0);
		return 0;
	}
	close(index);
	if (take() % 16 == 15)
		return -ENOMEM;
	*ret_pid = 1 << 30;
	if (take() % 8)
		(void)child_send(sock, &ready, sizeof(ready), NULL, 0);
	bad_answers(sock);
	if (take() % 2)
		/*
		 * the socket stays open, as if the child hung; else it is closed, as if the child
		 * had died
		 */
		check(dup2(sock, N_FDS + 8) >= 0);
	return 0;
}

static void end(pid_t pid)
{
	(void)pid;
}

static const struct child_ops ops = {
	.now_ns = fuzzchild_now_ns,
	.sleep = fuzzchild_sleep,
	.start = child_begins,
	.end = end,
	.reap = fuzzchild_reap,
	.readable = fuzzchild_readable,
};

static uint64_t open_fds(void)
{
	uint64_t set = 0;

	for (int fd = 3; fd < N_FDS; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			set |= 1ull << fd;
	return set;
}

static void parse_one(struct parser *p, int file, bool debug)
{
	const int dwo[] = {file, -1, file};
	const struct parse_debug_files f = {
		.main_fd = file, .debug_fd = -1, .dwo_fds = dwo, .n_dwo_fds = 3};
	struct elf_index *i = NULL;
	int r;

	r = debug ? parse_debug(p, &f, &i) : parse_elf(p, file, &i);
	check(r == 0 ? i && !*parse_reason(p) : !i && *parse_reason(p));
	check(!is_good || r == 0);
	elf_index_unref(i);
}

static void use(struct parser *p)
{
	int file = open("/dev/null", O_RDONLY | O_CLOEXEC);

	parse_one(p, file, take() & 1);
	parse_one(p, file, take() & 1);
	child_lose(p->child);
	is_good = true;
	parse_one(p, file, false);
	parse_one(p, file, true);
	close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const marks[] = {"a*", NULL}, *const bad_marks[] = {"", NULL};
	struct parser_config c = {
		.timeout_ns = NSEC_PER_MSEC, .max_index_bytes = 1 << 20, .child_ops = &ops};
	uint64_t before = open_fds();
	struct parser *p = NULL;

	in.data = data;
	in.n = n;
	is_good = false;
	fuzzchild_ns = NSEC_PER_SEC;
	c.marks = take() & 1 ? marks : NULL;
	check(parse_new(&(struct parser_config){.marks = bad_marks}, &p) == -EINVAL && !p);
	if (parse_new(&c, &p) == 0) {
		use(p);
		parse_free(p);
	} else {
		check(!p);
	}
	close(N_FDS + 8);
	check(open_fds() == before);
	return 0;
}
