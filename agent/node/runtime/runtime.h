/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime: programs that run inside other programs: Python, Java, Lua. This module learns from a
 * process's files and memory which runtimes it has. The kernel's part (bpf/runtimes.h) walks their
 * frames by what was learnt, and sends words; this module turns the words into names. Each runtime
 * has a directory (python/, jvm/) and a row in bpf/runtimes.h. docs/adding-a-language.md.
 *
 * All runs on the reader's thread, unless a comment says otherwise. In the node that is the files
 * worker, which gets a new thread when a process blocks it; in record it is the main thread. All
 * memory of a process is hostile.
 */
#pragma once

#include "bpf/runtimes.h"
#include "lib/profile/profile.h"
#include "lib/symbols/symbols.h"
#include "node/proc/proc.h"

#include <elf.h>

/* ---- the memory of a process ---- */
struct memory {
	/* Reads all n bytes, or fails. 0 or -errno. */
	int (*read)(void *arg, uint64_t address, void *to, size_t n);
	void *arg;
	size_t budget_bytes; /* bytes that may still be read; each read costs 64 more */
	uint64_t opened_ns;  /* CLOCK_MONOTONIC; the frames to be named are older */
};
#define MEMORY_BUDGET (8u << 20) /* of one learn or resolve */
/* -E2BIG: the budget is used up. -EFAULT: the address is not mapped. */
int runtime_memory_read(struct memory *m, uint64_t address, void *to, size_t n);
int runtime_memory_u8(struct memory *m, uint64_t address, uint8_t *ret);
int runtime_memory_u16(struct memory *m, uint64_t address, uint16_t *ret);
int runtime_memory_u32(struct memory *m, uint64_t address, uint32_t *ret);
int runtime_memory_u64(struct memory *m, uint64_t address, uint64_t *ret);
/* Reads a string up to its NUL; one of max bytes or more is cut. *ret is a new string. */
int runtime_memory_string(struct memory *m, uint64_t address, size_t max, char **ret);

/*
 * The memory of a live process: /proc/PID/mem. -ESRCH: it has ended; its PID may be another's now.
 */
struct process_memory;
int runtime_process_memory_open(struct process_id id, struct process_memory **ret);
struct process_memory *runtime_process_memory_close(struct process_memory *p);
/* Borrowed; each call fills up its budget. */
struct memory *runtime_process_memory(struct process_memory *p);

/* ---- what the files of a runtime use and return ---- */

/* Code of a runtime: a part of a mapping. */
struct runtime_range {
	uint64_t start, end;
	bool managed; /* PF_MANAGED: code made at run time; else part of a file's text */
};
#define RUNTIME_RANGES_MAX 256 /* of one process */
#define RUNTIME_DATA_MAX   4096

struct java_requests;
/* The process in which learn() looks for a runtime. */
struct runtime_look {
	const struct mappings *maps;
	struct elf_index *const *indexes; /* one a mapping; NULL: it has no index, or not yet */
	struct memory *memory;
	const struct runtime_range *taken; /* ranges of the runtimes in earlier rows */
	size_t n_taken;
	struct java_requests *java; /* as in runtime_learn() */
};
/*
 * Finds the first mapping of a file with this mark, and the mark's address in the process. -ENOENT:
 * no file has it.
 */
int runtime_find_mark(const struct runtime_look *look, const char *mark,
		      const struct mapping **ret_mapping, uint64_t *ret_address,
		      uint64_t *ret_size);
/* Process address - ELF virtual address of a mapping with an index. */
uint64_t runtime_bias(const struct runtime_look *look, const struct mapping *m);

/* The headers of an ELF file, as the process has them in memory: hostile. */
#define LOADED_ELF_SEGMENTS_MAX 64 /* real files have about 13 */
struct loaded_elf {
	struct memory *memory;
	uint64_t bias;	 /* process address - ELF virtual address */
	Elf64_Half type; /* ET_EXEC, ET_DYN */
	Elf64_Phdr segments[LOADED_ELF_SEGMENTS_MAX];
	size_t n;
};
/*
 * -ENOENT: no mapping has the headers. -EBADMSG: there is no ELF header of x86-64. -E2BIG: the file
 * has more than LOADED_ELF_SEGMENTS_MAX segments.
 */
int runtime_loaded_elf_read(const struct runtime_look *look, const struct mapping *m,
		    struct loaded_elf *ret);
/* The first segment of this type; NULL: there is none. */
const Elf64_Phdr *runtime_loaded_elf_segment(const struct loaded_elf *e, uint32_t type);

/* The first mapping of a Go program or library; NULL: the process has none. */
const struct mapping *runtime_go_find(const struct runtime_look *look,
				      const struct elf_index **ret_index);
/* "go1.26.8"; "": a Go before 1.18 built it. -ENOENT: the program has no version. */
int runtime_go_version(const struct loaded_elf *e, char *ret, size_t n);
/* 26 for "go1.26.8"; 0: it is not a numbered release. */
unsigned runtime_go_minor(const char *version);

#define RUNTIME_PROBLEM_BYTES 160
/* What learn() found out about a runtime in a process. */
struct runtime_learnt {
	/* struct pf_<name> for the kernel's part, malloc'd. NULL: its frames are not walked. */
	void *data;
	size_t data_bytes;
	struct runtime_range *ranges; /* malloc'd, any order */
	size_t n_ranges;
	char version[48]; /* "3.11.2", "17.0.15+6-LTS" */
	/* For a user, one sentence: why no frames, or not all, are walked; "": all are. */
	char problem[RUNTIME_PROBLEM_BYTES];
	void *state; /* the runtime's own, for resolve; forget() releases it */
};

/* One frame as the kernel's part sent it: the arguments of pf_push_runtime(). */
struct runtime_words {
	uint8_t type;
	uint64_t a, b;
};
struct runtime_name {
	/* As shown: "json.decoder.JSONDecoder.decode", "java/lang/String::hashCode". */
	char *name;
	char *file;    /* NULL: not known */
	uint32_t line; /* the line that runs; 0: not known */
	bool inlined;
};
#define RUNTIME_NAMES_MAX 64
/* The functions of one frame, root first: an inlined one comes after the one it is inlined into. */
struct runtime_names {
	struct runtime_name *items; /* NULL, n 0: nothing to show for this frame */
	size_t n;
	enum frame_kind kind; /* mostly the runtime's own; FRAME_LIBRARY for its stubs */
};
void runtime_names_done(struct runtime_names *n);
size_t runtime_names_bytes(const struct runtime_names *n);
/* Drops, and counts, names over RUNTIME_NAMES_MAX. */
void runtime_names_add(struct runtime_names *n, char *name /* taken */, char *file /* taken */,
		       uint32_t line, bool inlined);

struct runtime_ops {
	const char *name;  /* "python": for counters, markers, messages */
	const char *title; /* "CPython" */
	enum frame_kind frame_kind;
	/*
	 * After this time a name is asked for again. 0: after a minute; that suffices where words
	 * say which function was at an address.
	 */
	uint64_t names_last_ns;
	bool by_caller; /* the caller names the function: resolve needs the caller */
	/*
	 * The marks that learn looks for in files, NULL at the end: names of symbols of any kind
	 * ("_PyRuntime"; a '*' at the end stands for any text), and, after a '"', texts of
	 * read-only data ("\"$LuaVersion: Lua 5.").
	 */
	const char *const *marks;
	/*
	 * Finds out whether the process has this runtime, and all that the kernel's part needs. It
	 * is called again when mappings or files change. old: its previous result; NULL: none. It
	 * may move old's state to ret, and then sets old->state to NULL. -ENOENT: the process does
	 * not have it. -EAGAIN: the runtime is just starting, and the caller asks again soon. Other
	 * errors are counted by errno. An unknown version is not an error, but a problem.
	 */
	int (*learn)(const struct runtime_look *look, struct runtime_learnt *old,
		     struct runtime_learnt *ret);
	/*
	 * Reads the names of one frame. caller: the next frame of the same runtime towards the
	 * root; NULL: none. -ESTALE: the memory was freed or used again, so that a name could be
	 * wrong. It may keep what it reads in its state. resolve and forget are NULL in a row of
	 * PF_CONTEXTS without frames.
	 */
	int (*resolve)(void *state, struct memory *m, const struct runtime_words *frame,
		       const struct runtime_words *caller, struct runtime_names *ret);
	void (*forget)(void *state);
};
/* NULL: no such kind. Each row of PF_RUNTIMES and PF_CONTEXTS has one. */
const struct runtime_ops *runtime_ops(enum pf_runtime_kind k);
/* A row of PF_CONTEXTS: it says on which call a thread works, and has no functions of its own. */
bool runtime_is_context(enum pf_runtime_kind k);
/* All marks of all runtimes, for parser_config.marks; NULL at the end. */
const char *const *runtime_marks(void);
/* The text of a frame of PF_TYPE_TROUBLE, "[python: not_in_memory]"; a new string. */
char *runtime_trouble_text(enum pf_runtime_kind k, uint64_t trouble);
const char *runtime_trouble_word(uint64_t trouble);

/* ---- the runtimes of a process ---- */
struct runtime_process; /* those of one exec of a process; reference counted, any thread */
struct runtime_process *runtime_process_ref(struct runtime_process *p);
struct runtime_process *runtime_process_unref(struct runtime_process *p);
/*
 * Reader's thread. Looks for all runtimes in a process. p: the previous result, or NULL; the new
 * one shares its states, and p stays valid for others that have a reference. *ret: p with one more
 * reference if nothing changed; NULL: the process has no runtime. *ret_again: a runtime is just
 * starting, and the caller looks again in a moment. indexes: as in runtime_look. java: takes the
 * JVMs whose code has no names, and gives their maps; NULL: no JVM is asked. -ESRCH: the process
 * has ended. -EBUSY: another thread is blocked in it.
 */
int runtime_learn(struct runtime_process *p, const struct mappings *maps,
		  struct elf_index *const *indexes, struct java_requests *java,
		  struct runtime_process **ret, bool *ret_again);
/*
 * false: runtime_learn() would find nothing: no file has a mark, no code is generated. Any thread.
 */
bool runtime_likely(const struct mappings *maps, struct elf_index *const *indexes);
/*
 * Whether a mapping's code was made at run time, as far as the mapping shows it: it is memory
 * without a file, or a file in memory that is not a program (.NET writes its code through one
 * mapping and runs it in another). index: the file's; NULL: it has none.
 */
bool runtime_mapping_is_generated(const struct mapping *m, const struct elf_index *index);

/* Any thread; borrowed from p. */
struct runtime_view {
	enum pf_runtime_kind kind;
	const struct runtime_learnt *learnt;
};
size_t runtime_process_n(const struct runtime_process *p);
/* i is also the index that the kernel's part has. */
struct runtime_view runtime_process_at(const struct runtime_process *p, size_t i);

/*
 * A runtime that podflame recognises but does not walk (recognised.c): functions of its program
 * have no names. Constants.
 */
struct runtime_recognised {
	const char *name, *title; /* "ruby", "Ruby" */
	const char *text;	  /* for a user: what has no names, and what works */
	bool by_map;		  /* a perf map names its functions */
};
#define RUNTIME_RECOGNISED_MAX 16
size_t runtime_process_n_recognised(const struct runtime_process *p);
const struct runtime_recognised *runtime_process_recognised(const struct runtime_process *p,
							    size_t i);
/* Whether the process has a perf map, which names functions of a recognised runtime. */
bool runtime_process_has_map(const struct runtime_process *p);

/* One frame to be named. If it cannot be named, error is set and names.n is 0. */
struct runtime_ask {
	enum pf_runtime_kind kind;
	struct runtime_words frame, caller;
	bool has_caller;
	/* out */
	struct runtime_names names;
	int error; /* 0 or -errno */
};
/*
 * Reader's thread. Reads the names of n frames. -ESRCH: the process has ended. -EBUSY: another
 * thread is blocked in it.
 */
int runtime_resolve(struct runtime_process *p, struct runtime_ask *asks, size_t n);
/*
 * Reader's thread. Reads one byte at each address, so that the pages are in memory for the kernel's
 * part next time.
 */
void runtime_touch(struct runtime_process *p, const uint64_t *addresses, size_t n);

/* ---- javaAttach: the agent asks a JVM for its perf map; docs/perf-maps.md ---- */
/*
 * The JVMs that need a map, and the maps that they have given. Reference counted, and a
 * runtime_process holds a reference; any thread. Of more than the limit one is forgotten.
 */
#define JAVA_REQUESTS_MAX 256
struct java_requests *runtime_java_requests_new(void);
struct java_requests *runtime_java_requests_ref(struct java_requests *q); /* NULL: NULL */
struct java_requests *runtime_java_requests_unref(struct java_requests *q);
/*
 * Whether the process is a JVM with generated code that has no names: it is not walked and has no
 * map, or the map lacks names.
 */
bool runtime_java_unnamed(struct java_requests *q, struct process_id id);
/* Writes all such processes to ret. Returns how many. */
size_t runtime_java_all_unnamed(struct java_requests *q, struct process_id ret[JAVA_REQUESTS_MAX]);
/*
 * Blocks for at most 20 s, so the caller needs a thread that may wait. version: the JVM's, as
 * learnt. 0: the next runtime_learn() and runtime_resolve() have the map. -EAGAIN: it may work
 * later. Other errors: it will not. ret_problem: the reason, for a user.
 */
int runtime_java_attach(struct java_requests *q, struct process_id id, const char *version,
			char ret_problem[RUNTIME_PROBLEM_BYTES]);
