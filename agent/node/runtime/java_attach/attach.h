/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: if a target has javaAttach: Allowed, asks a JVM for its perf map, as jcmd
 * does (JDK: sun.tools.attach.VirtualMachineImpl for Linux, os/posix/attachListener_posix.cpp).
 * Asking blocks, so it runs on a thread that may wait. docs/perf-maps.md.
 */
#pragma once

#include "node/runtime/perfmap/perfmap.h"

#define ATTACH_TEXT_BYTES RUNTIME_PROBLEM_BYTES

/* ---- attach.c: all steps ---- */
struct attach {
	struct perf_file file; /* the process, with its PID in its own namespace */
	uid_t uid;	       /* effective user and group of the process */
	gid_t gid;
	/* tmp_fd: O_PATH descriptor of /tmp in the process's root */
	int pidfd, tmp_fd;
	char trigger[32], socket[32], map[32]; /* names of the files in the process's /tmp */
	/* how long to wait for the listener and for the reply */
	uint64_t listener_ns, reply_ns;
	/*
	 * how much longer than both together the child may take to answer; also how long the agent
	 * then waits for the child's end
	 */
	uint64_t spare_ns;
};
/* Opens what the other steps need. ret_text: if this fails, the reason, for a user. */
int runtime_attach_open(struct process_id id, struct attach *ret, char ret_text[ATTACH_TEXT_BYTES]);
/* Asks the JVM, reads the map, and removes all files that the agent has made. */
int runtime_attach_run(struct attach *a, struct perf_map **ret, char ret_text[ATTACH_TEXT_BYTES]);
void runtime_attach_done(struct attach *a);

/* ---- attach_maps.c: the mailbox between perfmap.c and attach.c; any thread ---- */
/* charged_ns: of struct charged, the process's. q may be NULL. */
void runtime_java_map_want(struct java_requests *q, struct process_id id, uint64_t charged_ns);
/* Returns charged_ns of a process that was wanted; 0: it was not. */
uint64_t runtime_java_map_charged(struct java_requests *q, struct process_id id);
/* Gives a map to q, which then owns it. */
void runtime_java_map_give(struct java_requests *q, struct process_id id, struct perf_map *map);
/* Takes the newest map of a process. NULL: no new map has been given. q may be NULL. */
struct perf_map *runtime_java_map_take(struct java_requests *q, struct process_id id);

/* ---- attach_check.c: whether a JVM can safely be asked; if not, ret_text is the reason ---- */
#define ATTACH_JDK_MIN 17 /* the first JDK that has the command Compiler.perfmap (JDK-8254723) */
int runtime_attach_check_version(const char *version, char ret_text[ATTACH_TEXT_BYTES]);
int runtime_attach_check_process(const char *status, const char *command_line, size_t n,
			 char ret_text[ATTACH_TEXT_BYTES]);

/* ---- attach_child.c: the part that a child does as the process's user ---- */
enum attach_result {
	ATTACH_OK,
	ATTACH_NO_USER,	   /* the agent may not become that user */
	ATTACH_NOT_CONFINED, /* the child could not give up its rights */
	ATTACH_MAP_THERE,  /* a perf map exists, and the agent does not overwrite it */
	ATTACH_NO_TRIGGER, /* the file .attach_pid could not be made */
	ATTACH_NO_SIGNAL,
	ATTACH_NO_LISTENER, /* the JVM did not begin to listen in time */
	ATTACH_NOT_ITS_SOCKET,
	ATTACH_NO_CONNECTION,
	ATTACH_NO_REPLY,
	ATTACH_REFUSED, /* the JVM refused; text has its reason */
	ATTACH_STUCK,	/* the child did not end */
	_ATTACH_RESULT_MAX,
};
struct attach_answer {
	enum attach_result result;
	int error;     /* errno, or 0 */
	bool left;     /* a file that the agent made still exists, or may exist */
	char text[96]; /* ATTACH_REFUSED: the JVM's reason */
};
typedef void attach_child_fn(const struct attach *a, struct attach_answer *ret);
/*
 * Runs fn in a child that has the JVM's user and no other rights. Waits for the child's answer.
 * attach_rights.c says what the child may do.
 */
void runtime_attach_in_child(const struct attach *a, attach_child_fn *fn,
			     struct attach_answer *ret);
/*
 * Both functions fork. If a file that the agent made may be left in the process's /tmp, they add 1
 * to the counter podflame_java_files_left_total.
 */
void runtime_attach_ask(const struct attach *a, struct attach_answer *ret);
void runtime_attach_remove_map(const struct attach *a);

/* ---- attach_rights.c: what the child gives up once it has the JVM's user ---- */
struct sock_fprog;
/* The child's filter of system calls, which stays valid. The agent asks for it before it forks. */
int runtime_attach_filter(const struct sock_fprog **ret);
/* Called in the child. It makes only system calls. 0 or -errno. */
int runtime_attach_give_up(const struct attach *a, const struct sock_fprog *filter);
