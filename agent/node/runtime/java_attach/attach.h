/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: asks a JVM for its perf map, as jcmd does (JDK:
 * sun.tools.attach.VirtualMachineImpl for Linux, os/posix/attachListener_posix.cpp), if a target
 * has javaAttach: Allowed. It blocks, so it runs on a thread that may wait. docs/perf-maps.md.
 */
#pragma once

#include "node/runtime/perfmap/perfmap.h"

#define ATTACH_TEXT_BYTES RUNTIME_PROBLEM_BYTES

/* ---- attach.c: all steps ---- */
struct attach {
	struct perf_file file; /* the process, and its PID in its own namespace */
	uid_t uid;	       /* its effective user and group */
	gid_t gid;
	int pidfd, tmp_fd;		       /* tmp_fd: O_PATH of /tmp in its root */
	char trigger[32], socket[32], map[32]; /* names in that /tmp */
	uint64_t listener_ns, reply_ns;	       /* how long to wait */
	uint64_t spare_ns; /* for the child beyond these; also for its end */
};
/* ret_text: the reason of an error, for a user. */
int runtime_attach_open(struct process_id id, struct attach *ret, char ret_text[ATTACH_TEXT_BYTES]);
/* Asks, reads the map, and removes all files that it made. */
int runtime_attach_run(struct attach *a, struct perf_map **ret, char ret_text[ATTACH_TEXT_BYTES]);
void runtime_attach_done(struct attach *a);

/* ---- attach_maps.c: between perfmap.c and attach.c; any thread ---- */
void runtime_java_map_want(struct java_requests *q, struct process_id id); /* q may be NULL */
/* takes map */
void runtime_java_map_give(struct java_requests *q, struct process_id id, struct perf_map *map);
/* NULL: there is no new one; q may be NULL */
struct perf_map *runtime_java_map_take(struct java_requests *q, struct process_id id);

/* ---- attach_check.c: is it safe to ask? Reasons go to ret_text ---- */
#define ATTACH_JDK_MIN 17 /* the first with Compiler.perfmap (JDK-8254723) */
int runtime_attach_check_version(const char *version, char ret_text[ATTACH_TEXT_BYTES]);
int runtime_attach_check_process(const char *status, const char *command_line, size_t n,
			 char ret_text[ATTACH_TEXT_BYTES]);

/* ---- attach_child.c: what a child does as the process's user ---- */
enum attach_result {
	ATTACH_OK,
	ATTACH_NO_USER,	   /* the agent may not become that user */
	ATTACH_MAP_THERE,  /* a perf map is there, which the agent does not overwrite */
	ATTACH_NO_TRIGGER, /* .attach_pid could not be made */
	ATTACH_NO_SIGNAL,
	ATTACH_NO_LISTENER, /* the JVM did not begin to listen in time */
	ATTACH_NOT_ITS_SOCKET,
	ATTACH_NO_CONNECTION,
	ATTACH_NO_REPLY,
	ATTACH_REFUSED, /* the JVM said no: text */
	ATTACH_STUCK,	/* the child did not end */
	_ATTACH_RESULT_MAX,
};
struct attach_answer {
	enum attach_result result;
	int error;     /* errno, or 0 */
	bool left;     /* a file that the agent made is still there, or may be */
	char text[96]; /* ATTACH_REFUSED: the JVM's reason */
};
/* Both fork. They count files that may be left in the /tmp. */
void runtime_attach_ask(const struct attach *a, struct attach_answer *ret);
void runtime_attach_remove_map(const struct attach *a);
