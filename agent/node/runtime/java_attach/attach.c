/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a JVM for its perf map: checks that the JVM may be asked, asks, reads the map, and removes
 * the files that the agent has made. Runs on a thread that may wait.
 */
#include "node/runtime/java_attach/attach.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AGE_NS	    (10 * NSEC_PER_SEC) /* a younger JVM is not asked yet */
#define LISTENER_NS (5 * NSEC_PER_SEC)
#define REPLY_NS    (10 * NSEC_PER_SEC)
#define SPARE_NS    (3 * NSEC_PER_SEC)
#define WORDS_MAX   (1u << 20) /* bytes of the command line, and of the environment */
#define STATUS_MAX  65536      /* bytes of the status file of a process */
#define SLICES_MAX  (PERF_MAP_FILE_MAX / PERF_MAP_SLICE_BYTES + 1) /* slices of one perf map */

static const char *const results[_ATTACH_RESULT_MAX] = {
	[ATTACH_NO_USER] =
		"the agent may not act as the JVM's user (capabilities SETUID and SETGID)",
	[ATTACH_NOT_CONFINED] = "the agent's child could not give up its rights",
	[ATTACH_MAP_THERE] = "its perf map cannot be made",
	[ATTACH_NO_TRIGGER] = ".attach_pid cannot be made in its /tmp",
	[ATTACH_NO_SIGNAL] = "it cannot be signalled",
	[ATTACH_NO_LISTENER] = "it does not answer SIGQUIT",
	[ATTACH_NOT_ITS_SOCKET] = "what lies at /tmp/.java_pid is not its socket",
	[ATTACH_NO_CONNECTION] = "it cannot be connected to",
	[ATTACH_NO_REPLY] = "it does not reply",
	[ATTACH_REFUSED] = "it refuses",
	[ATTACH_STUCK] = "the attempt was given up",
};

/* ---- the process ---- */

static int add_words(struct buf *words, int thread_fd, const char *what)
{
	_cleanup_free_ char *text = NULL;
	size_t n;
	int r = file_read(thread_fd, what, WORDS_MAX, &text, &n);

	if (r == 0)
		buf_add(words, text, n);
	return r;
}

/*
 * Checks that the process may be asked. JAVA_TOOL_OPTIONS and similar variables are read first,
 * because options of the command line override them. If the options of a process cannot be read, it
 * must not be asked. The options are read through a thread that has not ended: one that has ended
 * shows neither the options nor whether the process is stopped.
 */
static int check_process(uint32_t tgid, char ret_text[ATTACH_TEXT_BYTES])
{
	_cleanup_buf_ struct buf words = {0};
	_cleanup_free_ char *status = NULL;
	_cleanup_close_ int thread_fd = -1;
	int r = proc_open_living(tgid, &thread_fd);

	if (r == 0)
		r = file_read(thread_fd, "status", STATUS_MAX, &status, NULL);
	if (r == 0)
		r = add_words(&words, thread_fd, "environ");
	if (r == 0)
		r = add_words(&words, thread_fd, "cmdline");
	if (r < 0) {
		snprintf(ret_text, ATTACH_TEXT_BYTES, "its options cannot be read: %s",
			 file_error_text(r));
		return r;
	}
	return runtime_attach_check_process(status, words.data ? words.data : "", words.len,
					    ret_text);
}

static int open_fds(struct attach *a)
{
	_cleanup_close_ int root_fd = -1;
	int r;

	a->pidfd = (int)syscall(SYS_pidfd_open, a->file.id.tgid, 0);
	if (a->pidfd < 0)
		return -errno;
	/* This call checks the start time again, so the pidfd is of the right process. */
	r = runtime_perf_file_root(&a->file, &root_fd);
	if (r == 0)
		r = runtime_perf_file_open_path(root_fd, "tmp", O_DIRECTORY, &a->tmp_fd);
	return r;
}

static int open_process(struct attach *a, char ret_text[ATTACH_TEXT_BYTES])
{
	_cleanup_free_ char *status = NULL;
	int r = runtime_perf_file_status((uint32_t)a->file.id.tgid, &status);

	if (r == 0)
		r = check_process((uint32_t)a->file.id.tgid, ret_text);
	if (r < 0)
		return r;
	if (!runtime_perf_status_number(status, "\nUid:", 1, &a->uid) ||
	    !runtime_perf_status_number(status, "\nGid:", 1, &a->gid))
		return -EBADMSG;
	snprintf(a->trigger, sizeof(a->trigger), ".attach_pid%" PRIu32, a->file.own_pid);
	snprintf(a->socket, sizeof(a->socket), ".java_pid%" PRIu32, a->file.own_pid);
	snprintf(a->map, sizeof(a->map), "perf-%" PRIu32 ".map", a->file.own_pid);
	return open_fds(a);
}

void runtime_attach_done(struct attach *a)
{
	closep(&a->pidfd);
	closep(&a->tmp_fd);
	runtime_perf_file_done(&a->file);
}

int runtime_attach_open(struct process_id id, struct attach *ret, char ret_text[ATTACH_TEXT_BYTES])
{
	struct attach a = {.pidfd = -1,
			   .tmp_fd = -1,
			   .listener_ns = LISTENER_NS,
			   .reply_ns = REPLY_NS,
			   .spare_ns = SPARE_NS};
	int r = runtime_perf_file_init(id, &a.file);

	a.file.writer = PERF_MAP_HOTSPOT;
	*ret_text = '\0';
	if (r == 0)
		r = open_process(&a, ret_text);
	if (r < 0 && !*ret_text)
		snprintf(ret_text, ATTACH_TEXT_BYTES, "%s", strerror(-r));
	if (r < 0)
		runtime_attach_done(&a);
	else
		*ret = a;
	return r;
}

/* ---- asking ---- */

static int ask(const struct attach *a, char ret_text[ATTACH_TEXT_BYTES])
{
	_cleanup_free_ char *said = NULL;
	struct attach_answer answer;

	runtime_attach_ask(a, &answer);
	if (answer.result == ATTACH_OK)
		return 0;
	said = elf_text_clean(answer.text);
	snprintf(ret_text, ATTACH_TEXT_BYTES, "%s%s%s",
		 answer.result < _ATTACH_RESULT_MAX && results[answer.result]
			 ? results[answer.result]
			 : "?",
		 answer.error || *said ? ": " : "", answer.error ? strerror(answer.error) : said);
	if (answer.result == ATTACH_STUCK && answer.error) /* the child could not be made */
		return -EAGAIN;
	return answer.error == EEXIST ? -EEXIST : -EPROTO;
}

static int read_map(struct attach *a, char ret_text[ATTACH_TEXT_BYTES])
{
	int r = -EAGAIN;

	for (size_t i = 0; r == -EAGAIN && i < SLICES_MAX; i++)
		r = runtime_perf_file_read(&a->file);
	if (r == 0 && runtime_perf_map_n(a->file.map) == 0)
		r = -ENODATA;
	if (r < 0)
		snprintf(ret_text, ATTACH_TEXT_BYTES, "its perf map cannot be read: %s",
			 runtime_perf_file_problem(r) ? runtime_perf_file_problem(r)
						      : strerror(-r));
	return r;
}

int runtime_attach_run(struct attach *a, struct perf_map **ret, char ret_text[ATTACH_TEXT_BYTES])
{
	int r = ask(a, ret_text);

	if (r < 0)
		return r;
	r = read_map(a, ret_text);
	runtime_attach_remove_map(a);
	if (r == 0)
		*ret = TAKE_PTR(a->file.map);
	return r;
}

int runtime_java_attach(struct java_requests *q, struct process_id id, const char *version,
			char ret_problem[RUNTIME_PROBLEM_BYTES])
{
	struct perf_map *map;
	struct attach a;
	int r = runtime_attach_check_version(version, ret_problem);

	if (r == 0 && now_boot_ns() < id.start_boottime_ns + AGE_NS) {
		snprintf(ret_problem, RUNTIME_PROBLEM_BYTES, "the JVM is just starting");
		r = -EAGAIN;
	}
	if (r == 0)
		r = runtime_attach_open(id, &a, ret_problem);
	if (r < 0)
		return r;
	a.file.charged_ns = runtime_java_map_charged(q, id);
	r = runtime_attach_run(&a, &map, ret_problem);
	if (r == 0)
		runtime_java_map_give(q, id, map);
	runtime_attach_done(&a);
	return r;
}
