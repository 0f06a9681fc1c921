/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of attaching that runs as the JVM's user: HotSpot talks only to its own effective user
 * and group, or to root of its own user namespace. So a child of the agent takes that user and
 * group. The child makes only system calls, because it is forked from a program with threads. It
 * looks up all names in the JVM's /tmp, and never follows a link.
 */
#include "node/runtime/java_attach/attach.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS	    (50 * NSEC_PER_MSEC)
#define REPLY_BYTES 512
#define LEFT_MAX    64 /* children that have not ended; at this limit, no new one is made */

/* Attach protocol 1: version, command, three arguments. Each ends with NUL. */
static const char command[] = "1\0jcmd\0Compiler.perfmap\0\0";

/* ---- in the child ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

static void set(struct attach_answer *a, enum attach_result result, int error)
{
	a->result = result;
	a->error = error;
}

/*
 * Changes to the JVM's user and group. It uses system calls, because the functions of libc change
 * all threads, and this child does not have the agent's threads.
 */
static bool become(const struct attach *a)
{
	if (geteuid() == a->uid && getegid() == a->gid)
		return true;
	return syscall(SYS_setgroups, 0, NULL) == 0 &&
	       syscall(SYS_setresgid, a->gid, a->gid, a->gid) == 0 &&
	       syscall(SYS_setresuid, a->uid, a->uid, a->uid) == 0;
}

static bool make_file(const struct attach *a, const char *name)
{
	int fd =
		openat(a->tmp_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static void remove_file(const struct attach *a, const char *name, struct attach_answer *ret)
{
	if (unlinkat(a->tmp_fd, name, 0) < 0 && errno != ENOENT)
		ret->left = true;
}

/*
 * Returns whether the file was left by an attempt that was killed, or by a process that has ended,
 * so that no process uses it any more. Type, user and number of links show that it is not a trap of
 * the pod.
 */
static bool is_leftover(const struct attach *a, const char *name)
{
	struct stat st;

	return fstatat(a->tmp_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       st.st_uid == a->uid && st.st_nlink == 1 &&
	       (st.st_size == 0 || runtime_perf_file_is_older(&a->file, &st));
}

/* Returns 1: the socket exists; 0: it does not exist yet; -1: something else has its name. */
static int has_socket(const struct attach *a)
{
	struct stat st;

	if (fstatat(a->tmp_fd, a->socket, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	return S_ISSOCK(st.st_mode) && (st.st_uid == a->uid || st.st_uid == 0) ? 1 : -1;
}

static void wait_for_socket(const struct attach *a, struct attach_answer *ret)
{
	uint64_t until_ns = now_ns() + a->listener_ns;
	const struct timespec step = {.tv_nsec = STEP_NS};
	int r;

	while ((r = has_socket(a)) == 0 && now_ns() < until_ns)
		nanosleep(&step, NULL);
	if (r == 0)
		set(ret, ATTACH_NO_LISTENER, 0);
}

/*
 * Makes the JVM listen. If the trigger file exists, SIGQUIT makes HotSpot listen. Without this
 * file, HotSpot would print its threads.
 */
static void start_listener(const struct attach *a, struct attach_answer *ret)
{
	bool made = make_file(a, a->trigger);

	if (!made && errno != EEXIST) {
		set(ret, ATTACH_NO_TRIGGER, errno);
		return;
	}
	if (syscall(SYS_pidfd_send_signal, a->pidfd, SIGQUIT, NULL, 0) < 0)
		set(ret, ATTACH_NO_SIGNAL, errno);
	else
		wait_for_socket(a, ret);
	if (made)
		remove_file(a, a->trigger, ret);
}

/*
 * Connects to the socket. Its name is in another root, so the child uses a descriptor of the file.
 */
static int connect_to(const struct attach *a, const char *self_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval most = {.tv_sec = (time_t)(a->reply_ns / NSEC_PER_SEC) + 1};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
	memcpy(address.sun_path, self_path, strlen(self_path) + 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int open_socket(const struct attach *a)
{
	/* makes "/proc/self/fd/N" without printf() */
	char path[24] = "/proc/self/fd/", digits[12];
	int place = openat(a->tmp_fd, a->socket, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd;
	size_t n = 0, at = strlen(path);

	if (place < 0)
		return -1;
	for (int k = place; n == 0 || k; k /= 10)
		digits[n++] = (char)('0' + k % 10);
	while (n)
		path[at++] = digits[--n];
	path[at] = '\0';
	fd = connect_to(a, path);
	close(place);
	return fd;
}

/*
 * Reads the reply. If the command worked, the reply is "0\n" and the command's output, which is
 * empty. Else the reply is another number and the reason.
 */
static void read_reply(const struct attach *a, int fd, struct attach_answer *ret)
{
	uint64_t until_ns = now_ns() + a->reply_ns, now;
	char reply[REPLY_BYTES + 1];
	size_t have = 0;

	while (have < REPLY_BYTES && (now = now_ns()) < until_ns) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (poll(&p, 1, (int)((until_ns - now) / NSEC_PER_MSEC) + 1) <= 0)
			continue;
		n = read(fd, reply + have, REPLY_BYTES - have);
		if (n <= 0)
			break;
		have += n;
	}
	reply[have] = '\0';
	if (have == 0) {
		set(ret, ATTACH_NO_REPLY, 0);
	} else if (have < 2 || memcmp(reply, "0\n", 2) != 0) {
		const char *text = strchr(reply, '\n');
		size_t n;

		text = text && text[1] ? text + 1 : reply;
		n = strcspn(text, "\n");
		set(ret, ATTACH_REFUSED, 0);
		memcpy(ret->text, text, MIN(n, sizeof(ret->text) - 1));
	}
}

static void talk(const struct attach *a, struct attach_answer *ret)
{
	int fd = open_socket(a);

	if (fd < 0 || write(fd, command, sizeof(command)) != (ssize_t)sizeof(command))
		set(ret, ATTACH_NO_CONNECTION, errno);
	else
		read_reply(a, fd, ret);
	if (fd >= 0)
		close(fd);
}

static void ask(const struct attach *a, struct attach_answer *ret)
{
	/*
	 * HotSpot follows links when it writes the map. So the child makes the map's file first: in
	 * a sticky /tmp, no other user can replace it.
	 */
	if (!make_file(a, a->map)) {
		int error = errno;

		if (error != EEXIST || !is_leftover(a, a->map)) {
			set(ret, ATTACH_MAP_THERE, error);
			return;
		}
	}
	if (has_socket(a) == 0)
		start_listener(a, ret);
	if (ret->result == ATTACH_OK && has_socket(a) != 1)
		set(ret, ATTACH_NOT_ITS_SOCKET, 0);
	if (ret->result == ATTACH_OK)
		talk(a, ret);
	if (ret->result != ATTACH_OK)
		remove_file(a, a->map, ret);
}

static void remove_map(const struct attach *a, struct attach_answer *ret)
{
	remove_file(a, a->map, ret);
}

/*
 * Removes the files of an attempt that was cut short. A map with content is not removed, unless it
 * is older than the process. It may be of another program, or the JVM may have written it for the
 * agent after all.
 */
static void remove_leftovers(const struct attach *a, struct attach_answer *ret)
{
	struct stat st;

	if (is_leftover(a, a->trigger))
		remove_file(a, a->trigger, ret);
	if (is_leftover(a, a->map))
		remove_file(a, a->map, ret);
	if (fstatat(a->tmp_fd, a->map, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		ret->left = true;
}

/*
 * Closes all descriptors except the three that the child uses. This child does not call exec, so
 * all descriptors of the agent would stay open in it as long as the pod makes it wait. If the agent
 * closes a descriptor to end something, for example a memory probe, the child's copy would keep it
 * alive. Descriptors 0 to 2 do no harm.
 */
static void close_others(const struct attach *a, int to)
{
	int keep[] = {a->pidfd, a->tmp_fd, to}, from = STDERR_FILENO + 1;

	for (size_t turn = 0; turn < ARRAY_SIZE(keep); turn++) {
		int next = -1;

		for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
			if (keep[i] >= from && (next < 0 || keep[i] < next))
				next = keep[i];
		if (next > from)
			syscall(SYS_close_range, from, next - 1, 0);
		from = MAX(from, next + 1);
	}
	syscall(SYS_close_range, from, ~0U, 0);
}

/* ---- in the parent ---- */

struct child_work {
	attach_child_fn *fn;
	const struct sock_fprog *filter;
	int to;
};

static void in_child(const struct attach *a, const struct child_work *w)
{
	struct attach_answer answer = {.result = ATTACH_OK};
	int to = w->to, r;

	close_others(a, to);
	if (!become(a)) {
		set(&answer, ATTACH_NO_USER, errno);
	} else {
		/* set only now, because a change of the user resets this setting */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		r = runtime_attach_give_up(a, w->filter);
		if (r < 0)
			set(&answer, ATTACH_NOT_CONFINED, -r);
		else
			w->fn(a, &answer);
	}
	if (write(to, &answer, sizeof(answer)) != sizeof(answer))
		_exit(1);
	_exit(0);
}

static bool read_answer(int fd, uint64_t wait_ns, struct attach_answer *ret)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct attach_answer answer;
	int r;

	do
		r = poll(&p, 1, (int)(wait_ns / NSEC_PER_MSEC));
	while (r < 0 && errno == EINTR);
	if (r <= 0 || read(fd, &answer, sizeof(answer)) != sizeof(answer))
		return false;
	answer.text[sizeof(answer.text) - 1] = '\0';
	*ret = answer;
	return true;
}

/* Children that did not end in time, and that have not been reaped since. */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t left[LEFT_MAX];
static size_t n_left;

/* Reaps the children in `left` that have ended. Returns whether one more child can be noted. */
static bool reap_left(void)
{
	size_t n = 0;

	pthread_mutex_lock(&left_lock);
	for (size_t i = 0; i < n_left; i++)
		if (waitpid(left[i], NULL, WNOHANG) == 0)
			left[n++] = left[i];
	n_left = n;
	pthread_mutex_unlock(&left_lock);
	return n < LEFT_MAX;
}

static void leave(pid_t pid)
{
	counter_add(counter("podflame_java_attach_stuck_total", NULL, NULL), 1);
	pthread_mutex_lock(&left_lock);
	if (n_left < LEFT_MAX)
		left[n_left++] = pid;
	pthread_mutex_unlock(&left_lock);
}

/*
 * Waits until the child has ended, but not for long: a file system of the pod may block it in the
 * kernel. Such a child ends when the file system lets it go. The agent does not wait for that.
 */
static void reap(const struct attach *a, pid_t pid)
{
	const struct timespec step = {.tv_nsec = STEP_NS};

	for (uint64_t until_ns = now_ns() + a->spare_ns; waitpid(pid, NULL, WNOHANG) == 0;) {
		if (now_ns() >= until_ns) {
			leave(pid);
			return;
		}
		nanosleep(&step, NULL);
	}
}

static void run_child(const struct attach *a, attach_child_fn *fn, struct attach_answer *ret)
{
	uint64_t wait_ns = a->listener_ns + a->reply_ns + a->spare_ns;
	struct child_work work = {.fn = fn};
	int r = runtime_attach_filter(&work.filter), fds[2];
	pid_t pid;

	if (!r && pipe2(fds, O_CLOEXEC) < 0)
		r = -errno;
	if (r < 0) {
		ret->error = -r;
		return;
	}
	work.to = fds[1];
	pid = fork();
	if (pid == 0)
		in_child(a, &work);
	close(fds[1]);
	if (pid > 0) {
		if (!read_answer(fds[0], wait_ns, ret))
			kill(pid, SIGKILL);
		reap(a, pid);
	} else {
		ret->error = errno;
	}
	close(fds[0]);
}

void runtime_attach_in_child(const struct attach *a, attach_child_fn *fn, struct attach_answer *ret)
{
	*ret = (struct attach_answer){.result = ATTACH_STUCK};
	if (reap_left())
		run_child(a, fn, ret);
	else
		ret->error = EAGAIN;
}

static void count_left(void)
{
	counter_add(counter("podflame_java_files_left_total", NULL, NULL), 1);
}

/* Makes a child that removes files. If the child does not answer, it may not have removed them. */
static void remove_with(const struct attach *a, attach_child_fn *fn)
{
	struct attach_answer answer;

	runtime_attach_in_child(a, fn, &answer);
	if (answer.left || answer.result != ATTACH_OK)
		count_left();
}

void runtime_attach_ask(const struct attach *a, struct attach_answer *ret)
{
	runtime_attach_in_child(a, ask, ret);
	if (ret->left)
		count_left();
	/* the child was killed, so it has removed no file */
	if (ret->result == ATTACH_STUCK && !ret->error)
		remove_with(a, remove_leftovers);
}

void runtime_attach_remove_map(const struct attach *a)
{
	remove_with(a, remove_map);
}
