/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which JVMs the agent asks for their perf maps, and how: with small processes that stand in for a
 * JVM, and with real JVMs. Also the mailbox between the threads (attach_maps.c).
 */
#include "node/runtime/java_attach/attach.h"
#include "node/confine/confine.h"
#include "node/parse/parse.h"
#include "node/runtime/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/proc/testliving.h"

static void test_versions(void **state)
{
	static const struct {
		const char *version;
		int r;
	} cases[] = {{"17", 0},
		     {"17.0.15+6-LTS", 0},
		     {"25.0.2", 0},
		     {"21.0.8", 0},
		     {"16.0.2", -ENOTSUP},
		     {"11.0.13", -ENOTSUP},
		     {"8u504", -ENOTSUP},
		     {"", -ENOTSUP},
		     {"1.8.0_504", -ENOTSUP},
		     {"OpenJ9 17", -ENOTSUP}};
	char text[ATTACH_TEXT_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(runtime_attach_check_version(cases[i].version, text), cases[i].r);
	runtime_attach_check_version("11.0.13", text);
	assert_string_equal(text, "JDK 11.0.13 cannot write perf maps: 17 and newer can");
}

#define WORDS(s)	      s, sizeof(s)
#define STATUS(state, caught) "Name:\tjava\nState:\t" state "\nSigCgt:\t" caught "\n"

static void test_who_is_not_asked(void **state)
{
	static const char fine[] = STATUS("S (sleeping)", "2000000181005ccf");
	char text[ATTACH_TEXT_BYTES];

	(void)state;
	assert_int_equal(runtime_attach_check_process(fine, WORDS("java\0-jar\0a.jar"), text), 0);
	assert_int_equal(runtime_attach_check_process(STATUS("T (stopped)", "2000000181005ccf"),
						      WORDS(""), text),
			 -EAGAIN);
	assert_int_equal(runtime_attach_check_process(STATUS("S (sleeping)", "2000000181005ccb"),
						      WORDS(""), text),
			 -ENOTSUP);
	assert_string_equal(text, "the JVM does not handle SIGQUIT (-Xrs, or it is just starting)");
	assert_int_equal(runtime_attach_check_process("", WORDS(""), text), -EAGAIN);
	assert_int_equal(runtime_attach_check_process(
				 fine, WORDS("java\0-XX:+DisableAttachMechanism\0A"), text),
			 -ENOTSUP);
	assert_string_equal(text, "the JVM runs with -XX:+DisableAttachMechanism");
	assert_int_equal(runtime_attach_check_process(
				 fine,
				 WORDS("JAVA_TOOL_OPTIONS=-Xmx1g -XX:+DisableAttachMechanism\0"
				       "java\0A"),
				 text),
			 -ENOTSUP);
	assert_int_equal(runtime_attach_check_process(fine,
						      WORDS("java\0-XX:+DisableAttachMechanism\0"
							    "-XX:-DisableAttachMechanism\0A"),
						      text),
			 0);
}

/* ---- processes that are not JVMs ---- */

struct fake {
	pid_t pid;
	struct attach a;
	char socket[64], trigger[64], map[64];
	int listening;
};

static void ignore(int signo)
{
	(void)signo;
}

static void catch_quit(void)
{
	signal(SIGQUIT, ignore);
}

/*
 * The first thread of the process has ended. Its state, options and /tmp are read through a thread
 * that still runs.
 */
static void test_first_thread_has_ended(void **state)
{
	pid_t pid = testliving_start(catch_quit);
	char text[ATTACH_TEXT_BYTES];
	struct attach a;
	uint64_t start;

	(void)state;
	assert_int_equal(proc_start_boottime((uint32_t)pid, &start), 0);
	if (runtime_attach_open((struct process_id){start, pid}, &a, text))
		fail_msg("%s", text);
	assert_true(a.tmp_fd >= 0);
	runtime_attach_done(&a);
	testliving_stop(pid);
}

static struct java_requests *requests;

static int open_requests(void **state)
{
	(void)state;
	requests = runtime_java_requests_new();
	return 0;
}

static int close_requests(void **state)
{
	(void)state;
	requests = runtime_java_requests_unref(requests);
	return 0;
}

static int set_up(void **state)
{
	struct fake *f = xcalloc(1, sizeof(*f));
	char text[ATTACH_TEXT_BYTES];
	uint64_t start;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	f->pid = fork();
	if (f->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGQUIT, ignore);
		if (write(fds[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(fds[0], &(char){0}, 1), 1);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(proc_start_boottime(f->pid, &start), 0);
	assert_int_equal(runtime_attach_open((struct process_id){start, f->pid}, &f->a, text), 0);
	f->a.listener_ns = f->a.reply_ns = 300 * NSEC_PER_MSEC;
	snprintf(f->socket, sizeof(f->socket), "/tmp/.java_pid%d", f->pid);
	snprintf(f->trigger, sizeof(f->trigger), "/tmp/.attach_pid%d", f->pid);
	snprintf(f->map, sizeof(f->map), "/tmp/perf-%d.map", f->pid);
	f->listening = -1;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fake *f = *state;

	/* Whatever happened, the agent leaves no file. */
	assert_int_equal(access(f->trigger, F_OK), -1);
	unlink(f->socket);
	unlink(f->map);
	closep(&f->listening);
	runtime_attach_done(&f->a);
	kill(f->pid, SIGKILL);
	waitpid(f->pid, NULL, 0);
	free(f);
	return 0;
}

static void listen_there(struct fake *f)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	strcpy(a.sun_path, f->socket);
	f->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->listening, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(f->listening, 1), 0);
}

/* Starts a process that answers once on the socket, with this text, and then closes it. */
static pid_t answer(const struct fake *f, const char *text)
{
	pid_t pid = fork();
	char got[64];
	int fd;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = accept(f->listening, NULL, NULL);
	if (read(fd, got, sizeof(got)) != 26 || memcmp(got, "1\0jcmd\0Compiler.perfmap\0\0", 26))
		_exit(2);
	if (write(fd, text, strlen(text)) < 0)
		_exit(1);
	if (!*text)
		pause();
	_exit(0);
}

static void expect(struct fake *f, int r, const char *text)
{
	char said[ATTACH_TEXT_BYTES] = "";
	struct perf_map *map = NULL;

	assert_int_equal(runtime_attach_run(&f->a, &map, said), r);
	assert_string_equal(said, text);
	assert_int_equal(access(f->map, F_OK), -1);
}

static void test_nobody_listens(void **state)
{
	expect(*state, -EPROTO, "it does not answer SIGQUIT");
}

static void test_socket_is_something_else(void **state)
{
	struct fake *f = *state;

	assert_int_equal(symlink("/run/other.sock", f->socket), 0);
	expect(f, -EPROTO, "what lies at /tmp/.java_pid is not its socket");
}

static void test_socket_of_another_user(void **state)
{
	struct fake *f = *state;

	if (geteuid() != 0) {
		print_message("skipped: only root can give a file away\n");
		skip();
	}
	listen_there(f);
	assert_int_equal(chown(f->socket, 12345, 12345), 0);
	expect(f, -EPROTO, "what lies at /tmp/.java_pid is not its socket");
}

static void test_socket_is_dead(void **state)
{
	struct fake *f = *state;

	listen_there(f);
	closep(&f->listening);
	expect(f, -EPROTO, "it cannot be connected to: Connection refused");
}

static void test_no_reply(void **state)
{
	struct fake *f = *state;
	pid_t pid;

	listen_there(f);
	pid = answer(f, "");
	expect(f, -EPROTO, "it does not reply");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_refusal(void **state)
{
	struct fake *f = *state;
	int status;
	pid_t pid;

	listen_there(f);
	pid = answer(f, "1\njava.lang.Exception: \x1b[1mno\nmore");
	expect(f, -EPROTO, "it refuses: java.lang.Exception: ?[1mno");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_agreed_but_no_map(void **state)
{
	struct fake *f = *state;
	pid_t pid;

	listen_there(f);
	pid = answer(f, "0\n");
	expect(f, -ENODATA, "its perf map cannot be read: No data available");
	waitpid(pid, NULL, 0);
}

/* A file of another program, or a trap, has the name of the map. The file stays unchanged. */
static void test_map_is_there(void **state)
{
	struct fake *f = *state;
	char said[ATTACH_TEXT_BYTES];
	struct perf_map *map;
	struct stat st;

	assert_int_equal(symlink("/tmp/not-to-be-written", f->map), 0);
	assert_int_equal(runtime_attach_run(&f->a, &map, said), -EEXIST);
	assert_string_equal(said, "its perf map cannot be made: File exists");
	assert_int_equal(lstat(f->map, &st), 0);
	assert_int_equal(access("/tmp/not-to-be-written", F_OK), -1);
}

/* ---- the child that asks ---- */

struct asking {
	const struct attach *a;
	struct attach_answer answer;
};

static void *ask_there(void *arg)
{
	struct asking *s = arg;

	runtime_attach_ask(s->a, &s->answer);
	return NULL;
}

/*
 * While a child waits for the pod, the agent closes a descriptor. The child must not keep this
 * descriptor open: the agent ends its probes only by closing theirs.
 */
static void test_child_holds_nothing_of_the_agent(void **state)
{
	struct fake *f = *state;
	struct asking s = {.a = &f->a};
	struct pollfd p = {.events = POLLIN};
	pthread_t thread;
	int fds[2], fd;

	f->a.reply_ns = 60 * NSEC_PER_SEC;
	listen_there(f);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&thread, NULL, ask_there, &s), 0);
	fd = accept4(f->listening, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	close(fds[1]);
	p.fd = fds[0];
	assert_int_equal(poll(&p, 1, 20000), 1); /* closed, although the child waits for 60 s */
	assert_int_equal(read(fds[0], &(char){0}, 1), 0);
	assert_int_equal(write(fd, "1\nno\n", 5), 5);
	/* close() would drop the answer, because the request was not read */
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	close(fd);
	assert_int_equal(s.answer.result, ATTACH_REFUSED);
	close(fds[0]);
}

/*
 * Holds the child that waits for an answer. traced: the child may end, but its parent does not see
 * that. Else the child is stopped and does not continue.
 */
static pid_t hold(const struct fake *f, bool traced, int *ret_child)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);
	int fds[2], fd;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	*ret_child = fds[0];
	pid = fork();
	if (pid) {
		close(fds[1]);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = accept(f->listening, NULL, NULL);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 ||
	    (traced ? ptrace(PTRACE_SEIZE, peer.pid, NULL, NULL) : kill(peer.pid, SIGSTOP)) < 0)
		_exit(1);
	if (write(fds[1], &peer.pid, sizeof(peer.pid)) < 0 || (traced && write(fd, "1\nno", 4) < 0))
		_exit(1);
	if (traced) /* ends the reply; close() would drop it, because the request was not read */
		shutdown(fd, SHUT_WR);
	for (;;)
		pause();
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_child_that_ends_late_is_reaped(void **state)
{
	struct counter *stuck = counter("podflame_java_attach_stuck_total", NULL, NULL);
	uint64_t before = counter_get(stuck);
	struct fake *f = *state;
	struct attach_answer answer;
	pid_t holder, child;
	siginfo_t info;
	int fd;

	f->a.reply_ns = 60 * NSEC_PER_SEC;
	f->a.spare_ns = 100 * NSEC_PER_MSEC;
	listen_there(f);
	holder = hold(f, true, &fd);
	runtime_attach_ask(&f->a, &answer);
	if (read(fd, &child, sizeof(child)) != sizeof(child)) {
		print_message("skipped: no process may be traced here\n");
		stop(holder);
		skip();
	}
	assert_int_equal(answer.result, ATTACH_REFUSED);
	assert_int_equal(counter_get(stuck) - before, 1);
	stop(holder);
	/* The child has ended, and its parent has not waited for it yet. */
	assert_int_equal(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
	runtime_attach_remove_map(&f->a);
	assert_int_equal(waitpid(child, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	close(fd);
}

/*
 * The child was killed, so the child could not remove its file. expect() checks that the file is
 * gone.
 */
static void test_stuck_child_leaves_no_file(void **state)
{
	struct fake *f = *state;
	pid_t holder, child;
	int fd;

	f->a.reply_ns = f->a.listener_ns = f->a.spare_ns = 200 * NSEC_PER_MSEC;
	listen_there(f);
	holder = hold(f, false, &fd);
	expect(f, -EPROTO, "the attempt was given up");
	assert_int_equal(read(fd, &child, sizeof(child)), sizeof(child));
	stop(holder);
	close(fd);
}

static void put_map(const struct fake *f, const char *text, bool old)
{
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};

	assert_int_equal(file_write_atomic(f->map, text, strlen(text), 0600), 0);
	if (old)
		assert_int_equal(utimensat(AT_FDCWD, f->map, t, 0), 0);
}

/*
 * Files that a killed agent or an ended program has left are replaced. Files of a live program are
 * not.
 */
static void test_leftover_is_replaced(void **state)
{
	struct fake *f = *state;
	char said[ATTACH_TEXT_BYTES] = "";
	struct perf_map *map;

	put_map(f, "", false);
	expect(f, -EPROTO, "it does not answer SIGQUIT");
	put_map(f, "1000 10 other\n", true);
	expect(f, -EPROTO, "it does not answer SIGQUIT");
	put_map(f, "1000 10 own\n", false);
	assert_int_equal(runtime_attach_run(&f->a, &map, said), -EEXIST);
	assert_int_equal(access(f->map, F_OK), 0);
}

/* ---- real JVMs ---- */

static const char program[] = "public class Spin {\n"
			      "  static long f(int n) { long s = 0; for (int i = 0; i < n; i++) s "
			      "+= i * s + 1; return s; }\n"
			      "  public static void main(String[] a) {\n"
			      "    long t = 0;\n"
			      "    for (int i = 0; i < 30000; i++) t += f(100);\n"
			      "    System.out.println(\"ready\");\n"
			      "    for (;;) t += f(100000);\n"
			      "  }\n"
			      "}\n";

struct jvm {
	pid_t shell; /* the process that made the namespaces; the JVM is its child */
	uint32_t tgid;
	uint64_t start;
	FILE *out;
};

static uint32_t child_of(uint32_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/task/%u/children", pid, pid), *text = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 4096, &text, NULL), 0);
	return (uint32_t)atoi(text);
}

/* Starts a JVM as in a container: with its own PIDs, /tmp and user. */
static void start_jvm(const char *java, const char *option, const char *dir, struct jvm *ret)
{
	_cleanup_free_ char *command =
		xasprintf("mount -t tmpfs -o mode=1777 none /tmp && exec setpriv --reuid=12345 "
			  "--regid=12346 --clear-groups %s -Xbatch -Xmx64m %s %s/Spin.java",
			  java, option, dir);
	char line[64];
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	ret->shell = fork();
	if (ret->shell == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fds[1], 1);
		close(fds[0]);
		execlp("unshare", "unshare", "--pid", "--mount", "--fork", "--kill-child",
		       "--mount-proc", "sh", "-c", command, NULL);
		_exit(127);
	}
	close(fds[1]);
	ret->out = fdopen(fds[0], "r");
	assert_non_null(fgets(line, sizeof(line), ret->out));
	assert_string_equal(line, "ready\n");
	ret->tgid = child_of(ret->shell);
	assert_int_equal(proc_start_boottime(ret->tgid, &ret->start), 0);
}

static void stop_jvm(struct jvm *j)
{
	kill(j->tgid, SIGKILL);
	kill(j->shell, SIGKILL);
	waitpid(j->shell, NULL, 0);
	fclose(j->out);
}

/*
 * Checks that the agent has left no file in the JVM's /tmp. The socket and hsperfdata are files of
 * the JVM itself.
 */
static void assert_nothing_left(const struct jvm *j)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/root/tmp", j->tgid);
	DIR *d = opendir(path);
	const struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d)))
		assert_true(e->d_name[0] == '.' ? !str_has_prefix(e->d_name, ".attach")
						: str_has_prefix(e->d_name, "hsperfdata_"));
	closedir(d);
}

/* Returns whether the map has the name at any address of the JVM's generated code. */
static bool names(const struct jvm *j, const struct perf_map *m, const char *name)
{
	struct mappings *maps;
	bool found = false;

	assert_int_equal(proc_mappings_read((struct process_id){j->start, j->tgid}, 0, &maps), 0);
	for (size_t i = 0; i < maps->n; i++) {
		const struct mapping *x = &maps->items[i];

		for (uint64_t a = x->start; !*x->path && !found && a < x->end; a += 32) {
			struct perf_function f;

			found = runtime_perf_map_find(m, a, &f) && f.kind == FRAME_JVM &&
				streq(f.name, name);
		}
	}
	proc_mappings_unref(maps);
	return found;
}

/* ---- a JVM whose frames no other runtime walks ---- */

static struct runtime_process *learn_alone(const struct jvm *j, struct parser *parser)
{
	static const struct runtime_ops *const alone[_PF_RUNTIME_MAX] = {
		[PF_RUNTIME_PERFMAP] = &runtime_perfmap_runtime};
	const struct runtime_ops *const *all = runtime_table;
	struct runtime_process *p = NULL;
	struct elf_index **indexes;
	struct mappings *maps;
	bool again;

	assert_int_equal(proc_mappings_read((struct process_id){j->start, j->tgid}, 0, &maps), 0);
	indexes = xcalloc(maps->n + 1, sizeof(struct elf_index *));
	for (size_t i = 0; i < maps->n; i++)
		if (str_has_suffix(maps->items[i].path, "/libjvm.so"))
			assert_int_equal(parse_elf(parser, maps->items[i].fd, &indexes[i]), 0);
	runtime_table = alone;
	assert_int_equal(runtime_learn(NULL, maps, indexes, requests, &p, &again), 0);
	runtime_table = all;
	for (size_t i = 0; i < maps->n; i++)
		elf_index_unref(indexes[i]);
	free(indexes);
	proc_mappings_unref(maps);
	return p;
}

/* A file with the name of the map is not a map of this JVM, so the JVM is asked nevertheless. */
static void assert_wanted_with(const struct jvm *j, struct parser *parser, const char *text,
			       const char *problem)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/root/tmp/perf-1.map", j->tgid);
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
	struct runtime_process *p;

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644), 0);
	assert_int_equal(chown(path, 12345, 12346), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, *text ? t : NULL, 0), 0);
	runtime_java_map_give(requests, (struct process_id){j->start, j->tgid},
			      /* so that this JVM does not wait for a map any more */
			      runtime_perf_map_new(0));
	runtime_perf_map_free(
		runtime_java_map_take(requests, (struct process_id){j->start, j->tgid}));
	assert_false(runtime_java_unnamed(requests, (struct process_id){j->start, j->tgid}));
	p = learn_alone(j, parser);
	assert_int_equal(runtime_process_n(p), *problem ? 1 : 0);
	if (*problem) {
		assert_null(runtime_process_at(p, 0).learnt->data);
		assert_string_equal(runtime_process_at(p, 0).learnt->problem, problem);
	}
	assert_true(runtime_java_unnamed(requests, (struct process_id){j->start, j->tgid}));
	runtime_process_unref(p);
}

static void test_jvm_without_names(const char *java, const char *dir)
{
	const struct parser_config config = {.marks = runtime_marks()};
	char text[ATTACH_TEXT_BYTES] = "";
	struct runtime_process *p;
	struct perf_map *map;
	struct parser *parser;
	struct attach a;
	struct jvm j;

	assert_int_equal(parse_new(&config, &parser), 0);
	start_jvm(java, "-Xms32m", dir, &j);
	p = learn_alone(&j, parser);
	assert_int_equal(runtime_process_n(p), 0);
	runtime_process_unref(p);
	assert_true(runtime_java_unnamed(requests, (struct process_id){j.start, j.tgid}));
	/* the JVM is too young for runtime_java_attach() */
	assert_int_equal(
		runtime_java_attach(requests, (struct process_id){j.start, j.tgid}, "17.0.1", text),
		-EAGAIN);
	assert_string_equal(text, "the JVM is just starting");
	assert_wanted_with(&j, parser, "", "");
	assert_wanted_with(&j, parser, "1000 10 other\n",
			   "/tmp/perf-1.map is not used: it was written before the process began");
	assert_int_equal(runtime_attach_open((struct process_id){j.start, j.tgid}, &a, text), 0);
	assert_int_equal(runtime_attach_run(&a, &map, text), 0);
	runtime_attach_done(&a);
	runtime_java_map_give(requests, (struct process_id){j.start, j.tgid}, map);
	p = learn_alone(&j, parser);
	assert_int_equal(runtime_process_n(p), 1);
	assert_non_null(runtime_process_at(p, 0).learnt->data);
	assert_true(runtime_process_at(p, 0).learnt->n_ranges >= 1);
	assert_false(runtime_java_unnamed(requests, (struct process_id){j.start, j.tgid}));
	runtime_process_unref(p);
	stop_jvm(&j);
	parse_free(parser);
}

static void ask_jvm(const struct jvm *j)
{
	char text[ATTACH_TEXT_BYTES] = "";
	struct perf_map *map = NULL;
	struct attach a;

	assert_int_equal(runtime_attach_open((struct process_id){j->start, j->tgid}, &a, text), 0);
	assert_int_equal(a.uid, 12345);
	assert_int_equal(a.gid, 12346);
	assert_int_equal(a.file.own_pid, 1);
	assert_int_equal(runtime_attach_run(&a, &map, text), 0);
	assert_true(names(j, map, "Spin::f"));
	assert_nothing_left(j);
	runtime_perf_map_free(map);
	runtime_attach_done(&a);
}

/* Asks as the agent does, which has limited itself. Runs in a process of its own. */
static int ask_confined(const struct jvm *j)
{
	char text[ATTACH_TEXT_BYTES] = "";
	struct perf_map *map = NULL;
	struct attach a;

	if (confine_calls() < 0 ||
	    runtime_attach_open((struct process_id){j->start, j->tgid}, &a, text) < 0)
		return 1;
	return runtime_attach_run(&a, &map, text) < 0 || !names(j, map, "Spin::f");
}

static void test_jvm_gives_its_map(const char *java, const char *dir)
{
	struct jvm j;
	int status;
	pid_t pid;

	start_jvm(java, "-Xms32m", dir, &j);
	pid = fork();
	if (pid == 0)
		_exit(ask_confined(&j));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	ask_jvm(&j); /* now, the JVM listens already */
	stop_jvm(&j);
}

static void assert_not_asked(const char *java, const char *option, const char *dir, const char *why)
{
	char text[ATTACH_TEXT_BYTES] = "";
	struct attach a;
	struct jvm j;

	start_jvm(java, option, dir, &j);
	assert_int_equal(runtime_attach_open((struct process_id){j.start, j.tgid}, &a, text),
			 -ENOTSUP);
	assert_string_equal(text, why);
	stop_jvm(&j);
}

static void test_jvm_is_left_alone(const char *java, const char *dir)
{
	assert_not_asked(java, "-XX:+DisableAttachMechanism", dir,
			 "the JVM runs with -XX:+DisableAttachMechanism");
	assert_not_asked(java, "-Xrs", dir,
			 "the JVM does not handle SIGQUIT (-Xrs, or it is just starting)");
}

static void with_each_jdk(void (*test)(const char *java, const char *dir))
{
	/* not in /tmp, because the test has a /tmp of its own */
	char dir[] = "/var/tmp/podflame-attach-XXXXXX";
	_cleanup_free_ char *source = NULL;
	glob_t found = {0};

	if (geteuid() != 0 || glob("/usr/lib/jvm/*-[12][0-9]-*jdk*/bin/javac", 0, NULL, &found)) {
		print_message("skipped: needs root and a JDK in /usr/lib/jvm\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	source = xasprintf("%s/Spin.java", dir);
	assert_int_equal(file_write_atomic(source, program, strlen(program), 0644), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		_cleanup_free_ char *java = /* java is in the same directory as javac */
			xstrndup(found.gl_pathv[i], strlen(found.gl_pathv[i]) - 1);

		print_message("%s\n", java);
		test(java, dir);
	}
	globfree(&found);
	unlink(source);
	rmdir(dir);
}

static void test_real_jvms(void **state)
{
	(void)state;
	with_each_jdk(test_jvm_gives_its_map);
}

static void test_real_jvms_without_names(void **state)
{
	(void)state;
	with_each_jdk(test_jvm_without_names);
}

static void test_real_jvms_left_alone(void **state)
{
	(void)state;
	with_each_jdk(test_jvm_is_left_alone);
}

/* ---- the mailbox between the threads ---- */

static void test_wanted_and_given(void **state)
{
	struct perf_map *m = runtime_perf_map_new(0);
	struct process_id all[JAVA_REQUESTS_MAX];

	(void)state;
	assert_false(runtime_java_unnamed(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}));
	runtime_java_map_want(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}, 5);
	assert_true(runtime_java_unnamed(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}));
	assert_false(runtime_java_unnamed(
		/* another process with the same PID */
		requests, (struct process_id){1001 * NSEC_PER_SEC, 7}));
	assert_int_equal(runtime_java_all_unnamed(requests, all), 1);
	assert_int_equal(all[0].tgid, 7);
	assert_int_equal(runtime_java_map_charged(requests, all[0]), 5);
	assert_true(all[0].start_boottime_ns == 1000 * NSEC_PER_SEC);
	assert_null(runtime_java_map_take(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}));
	runtime_java_map_give(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}, m);
	assert_false(runtime_java_unnamed(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}));
	assert_int_equal(runtime_java_all_unnamed(requests, all), 0);
	assert_ptr_equal(
		runtime_java_map_take(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}), m);
	assert_null(runtime_java_map_take(requests, (struct process_id){1000 * NSEC_PER_SEC, 7}));
	runtime_perf_map_free(m);
}

/*
 * Each user of the requests has a list of its own. Maps that were not taken are freed with the
 * list.
 */
static void test_lists_are_apart(void **state)
{
	struct java_requests *other = runtime_java_requests_new();
	const struct process_id jvm = {1000 * NSEC_PER_SEC, 7};

	(void)state;
	runtime_java_map_want(requests, jvm, 5);
	assert_true(runtime_java_unnamed(requests, jvm));
	assert_false(runtime_java_unnamed(other, jvm));
	runtime_java_map_give(other, jvm, runtime_perf_map_new(0));
	assert_true(runtime_java_unnamed(requests, jvm));
	assert_null(runtime_java_map_take(requests, jvm));
	runtime_java_requests_unref(other);
	runtime_java_map_want(NULL, jvm, 5); /* without a list, no JVM is asked */
	assert_null(runtime_java_map_take(NULL, jvm));
}

static uint64_t forgotten(void)
{
	return counter_get(counter("podflame_java_attach_total", "result", "forgotten"));
}

/*
 * Adds one more JVM, whose process runs. Writes all JVMs that wait now to `all`, and returns how
 * many.
 */
static size_t want_one(uint64_t start_s, struct process_id all[JAVA_REQUESTS_MAX])
{
	runtime_java_map_want(requests, (struct process_id){start_s * NSEC_PER_SEC, getpid()}, 5);
	assert_true(runtime_java_unnamed(requests,
					 (struct process_id){start_s * NSEC_PER_SEC, getpid()}));
	return runtime_java_all_unnamed(requests, all);
}

static void test_who_is_forgotten_is_counted(void **state)
{
	struct process_id all[JAVA_REQUESTS_MAX];
	uint64_t before = forgotten();
	pid_t ended = fork();
	size_t given = 0;

	(void)state;
	if (ended == 0)
		_exit(0);
	assert_int_equal(waitpid(ended, NULL, 0), ended);
	for (uint64_t i = 1; i <= 255; i++)
		assert_int_equal(want_one(i, all), i);
	runtime_java_map_want(requests, (struct process_id){NSEC_PER_SEC, ended}, 5);
	/* entries of JVMs that have ended, or that have been asked, are reused */
	assert_int_equal(want_one(256, all), 256);
	assert_false(runtime_java_unnamed(requests, (struct process_id){NSEC_PER_SEC, ended}));
	runtime_java_map_give(requests, (struct process_id){100 * NSEC_PER_SEC, getpid()},
			      runtime_perf_map_new(0));
	runtime_perf_map_free(
		runtime_java_map_take(requests, (struct process_id){100 * NSEC_PER_SEC, getpid()}));
	assert_int_equal(want_one(257, all), 256);
	assert_int_equal(forgotten(), before);
	/* no entry is free, so each call forgets another JVM that waits */
	assert_int_equal(want_one(258, all), 256);
	assert_int_equal(want_one(259, all), 256);
	assert_true(
		runtime_java_unnamed(requests, (struct process_id){258 * NSEC_PER_SEC, getpid()}));
	assert_int_equal(forgotten(), before + 2);
	/* a JVM whose map was given but not taken is also kept */
	for (size_t i = 0; i < 256; i++)
		runtime_java_map_give(requests,
				      (struct process_id){all[i].start_boottime_ns, getpid()},
				      runtime_perf_map_new(0));
	assert_int_equal(want_one(260, all), 1);
	assert_int_equal(forgotten(), before + 3);
	runtime_java_map_give(requests, (struct process_id){260 * NSEC_PER_SEC, getpid()},
			      runtime_perf_map_new(0));
	for (uint64_t i = 1; i <= 260; i++) {
		struct perf_map *map = runtime_java_map_take(
			requests, (struct process_id){i * NSEC_PER_SEC, getpid()});

		given += !!map;
		runtime_perf_map_free(map);
	}
	assert_int_equal(given, 256);
}

int main(int argc, char **argv)
{
#define REQUESTS_TEST(f) cmocka_unit_test_setup_teardown(f, open_requests, close_requests)
#define FAKE_TEST(f)	 cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_first_thread_has_ended),
		cmocka_unit_test(test_who_is_not_asked),
		REQUESTS_TEST(test_wanted_and_given),
		REQUESTS_TEST(test_lists_are_apart),
		REQUESTS_TEST(test_who_is_forgotten_is_counted),
		FAKE_TEST(test_nobody_listens),
		FAKE_TEST(test_socket_is_something_else),
		FAKE_TEST(test_socket_of_another_user),
		FAKE_TEST(test_socket_is_dead),
		FAKE_TEST(test_no_reply),
		FAKE_TEST(test_refusal),
		FAKE_TEST(test_agreed_but_no_map),
		FAKE_TEST(test_map_is_there),
		FAKE_TEST(test_child_holds_nothing_of_the_agent),
		FAKE_TEST(test_child_that_ends_late_is_reaped),
		FAKE_TEST(test_stuck_child_leaves_no_file),
		FAKE_TEST(test_leftover_is_replaced),
		cmocka_unit_test(test_real_jvms),
		REQUESTS_TEST(test_real_jvms_without_names),
		cmocka_unit_test(test_real_jvms_left_alone),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
